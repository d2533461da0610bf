//! First instructions of Gear1, and memory after the boot, seen by a debugger, because no VM can.
//!
//! Requirements: G1-BOOT-010, G1-BOOT-011, G1-BOOT-013, G1-GIC-016.
//!
//! A debugger stops the machine before Gear1's first instruction, and at places between init and
//! the first guest. QEMU gives it physical memory, which no guest has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSymbol as _};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::workspace;
use xtask::run;

use crate::gdb::Gdb;
use crate::gear2_registers::returns_of_next;
use crate::part::{Part, Tally};

/// Any manifest would do: nothing of its VMs is looked at.
const MANIFEST: &str = "counters";
/// Bytes of the page that init finds zeroed if its stack was large enough, and by how much less
/// stacks shrink. Init checks the page when it ends (G1-BOOT-013), since it has no guard page that
/// faults.
const GUARD_SIZE: u64 = 0x1000;
const STACK_STEP: usize = 0xc00;
/// An arm64 image lies at a multiple of it, at an offset that the header may give.
const ALIGN: u64 = 2 << 20;
/// Addresses at which QEMU may load an arm64 image. QEMU chooses by the image's header.
const PLACES: [u64; 3] = [0x4000_0000, 0x4008_0000, 0x4020_0000];
/// GICD_ISACTIVER1, and GICR_CTLR of the boot CPU, on QEMU's `virt`. Physical addresses, written by
/// the debugger as firmware would have.
const ACTIVE: u64 = 0x0800_0304;
const GICR_CTLR: u64 = 0x080a_0000;
const ENABLE_LPIS: u32 = 1;
/// Words of GICD_ISACTIVERn with INTIDs 32 to 255.
const WORDS: u64 = 7;
/// In the header of an arm64 image (Linux, Documentation/arch/arm64/booting.rst).
const MAGIC: (u64, &[u8]) = (56, b"ARM\x64");

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("boot without EL2", without_el2),
        Part::new("boot leaves nothing", leaves_nothing),
        Part::new("boot ends what firmware left active", ends_interrupts),
        Part::new("boot with too small a stack", small_stack),
    ]
}

/// Started at EL1, Gear1 stops where the label says that it needs EL2. Gear1 has no console by
/// then, so the place where it stops is the message.
fn without_el2(tally: &mut Tally) -> Result<()> {
    let init = workspace::bare_elf("gear1-init");
    stops_without_el2(&images(None)?, &init, tally)
}

/// Runs the test with another Gear1, whose init with symbols is `init`. The symbols must be those
/// of the same build.
pub(super) fn stops_without_el2_of(gear1: PathBuf, init: &Path, tally: &mut Tally) -> Result<()> {
    stops_without_el2(&images(Some(gear1))?, init, tally)
}

/// Breakpoints at all places, since the place of the image is not known before it runs.
fn stops_without_el2(images: &Images, init: &Path, tally: &mut Tally) -> Result<()> {
    let needs_el2 = symbol(init, "gear1_init_needs_el2")?;
    let (_session, mut gdb) = start(images, false)?;
    for place in PLACES {
        gdb.set_breakpoint(place + needs_el2 % ALIGN)?;
    }
    gdb.resume()?;
    let pc = gdb.general()?.pc;
    ensure!(pc % ALIGN == needs_el2 % ALIGN, "stopped at {pc:#x}");
    tally.pass(1);
    Ok(())
}

/// Init is wiped when Gear2 begins, before any guest that Gear2 schedules has run. Init has read the
/// manifest and the guests' images, and it has code that a guest could jump to if a table were
/// wrong: nothing of it may be there.
fn leaves_nothing(tally: &mut Tally) -> Result<()> {
    nothing_is_left(&images(None)?, tally)
}

/// Runs the test with another Gear1.
pub(super) fn leaves_nothing_of(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    nothing_is_left(&images(Some(gear1))?, tally)
}

/// The image is found by its magic before it runs; afterwards nothing shows where it was.
fn nothing_is_left(images: &Images, tally: &mut Tally) -> Result<()> {
    let size = usize::try_from(fs::metadata(&images.gear1)?.len())?;
    let (_session, mut gdb) = start(images, true)?;
    let mut init = None;
    for place in PLACES {
        if gdb.physical(place + MAGIC.0, MAGIC.1.len())? == MAGIC.1 {
            init = Some(place);
        }
    }
    let init = init.context("no image was loaded")?;
    run_to_gear2(&mut gdb)?;
    let left = gdb.physical(init, size)?;
    // Zeroes are what a wiped page has.
    let left = left.iter().filter(|byte| **byte != 0).count();
    let left_of = format!("{left} of {size} bytes at {init:#x}");
    ensure!(left == 0, "{left_of} are left of init");
    tally.pass(1);
    Ok(())
}

/// Lets the machine run until Gear2 begins, before any guest has run.
fn run_to_gear2(gdb: &mut Gdb) -> Result<()> {
    for address in returns_of_next()? {
        gdb.set_breakpoint(address)?;
    }
    gdb.resume()
}

/// Interrupts that firmware acknowledged and did not end would never come again, and its LPIs would
/// go on: the controller is put into such a state before the first instruction. QEMU starts with a
/// clean controller, so no other test has this.
fn ends_interrupts(tally: &mut Tally) -> Result<()> {
    let (_session, mut gdb) = start(&images(None)?, true)?;
    leave_interrupts_active(&mut gdb)?;
    run_to_gear2(&mut gdb)?;
    for word in 0..WORDS {
        let active = read_word(&mut gdb, ACTIVE + 4 * word)?;
        ensure!(active == 0, "word {word} of GICD_ISACTIVER is {active:#x}");
    }
    let lpis = read_word(&mut gdb, GICR_CTLR)? & ENABLE_LPIS;
    ensure!(lpis == 0, "GICR_CTLR.EnableLPIs is 1");
    tally.pass(2);
    Ok(())
}

/// Makes all shared interrupts active and enables LPIs, as firmware may leave them. The state is
/// read back: writes that QEMU ignores would make the test pass for nothing.
fn leave_interrupts_active(gdb: &mut Gdb) -> Result<()> {
    for word in 0..WORDS {
        gdb.write_physical(ACTIVE + 4 * word, u32::MAX)?;
    }
    gdb.write_physical(GICR_CTLR, ENABLE_LPIS)?;
    let active = read_word(gdb, ACTIVE)?;
    let lpis = read_word(gdb, GICR_CTLR)? & ENABLE_LPIS;
    let is_set = active == u32::MAX && lpis == ENABLE_LPIS;
    ensure!(is_set, "{active:#x} and {lpis} could be set");
    Ok(())
}

fn read_word(gdb: &mut Gdb, address: u64) -> Result<u32> {
    let bytes = gdb.physical(address, 4)?;
    Ok(u32::from_le_bytes(bytes.as_slice().try_into()?))
}

/// Smaller and smaller stacks: GearV starts until one is too small, which init says then. Only a
/// stack that is too small shows that the check works. Steps are smaller than the guard page, so
/// that no size jumps over it.
fn small_stack(tally: &mut Tally) -> Result<()> {
    let elf = workspace::bare_elf("gear1-init");
    let (top, guard) = (symbol(&elf, "__stack_top")?, symbol(&elf, "__stack_guard")?);
    let mut images = images(None)?;
    let good = fs::read(&images.gear1)?;
    images.gear1 = workspace::output_dir().join(format!("{MANIFEST}/small-stack.img"));
    let sizes = (GUARD_SIZE..top - guard).rev().step_by(STACK_STEP);
    for (started, size) in sizes.enumerate() {
        let mut image = good.clone();
        move_stack(&mut image, top, (guard + size) & !0xf)?;
        fs::write(&images.gear1, image)?;
        if !is_enough(&images).with_context(|| format!("{size} bytes of stack"))? {
            ensure!(started > 0, "no stack is large enough");
            tally.pass(2);
            return Ok(());
        }
    }
    anyhow::bail!("every stack is large enough")
}

/// Tells whether init's stack is large enough. Init stops the machine if it is not. An exception in
/// init means that memory below the stack was overwritten before the check: the check came too
/// late.
fn is_enough(images: &Images) -> Result<bool> {
    const MOST: Duration = Duration::from_secs(60);
    let machine = Machine {
        memory_mib: run::memory_for(images)?,
        ..Machine::default()
    };
    let log = workspace::output_dir().join(format!("{MANIFEST}/small-stack.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    session.give_up_on(&[]);
    let exception = "exception in Gear1's init";
    let ends = ["gear2: ", "its stack overflows", exception];
    match session.expect_any(&ends, MOST)? {
        (_, 0) => Ok(true),
        (_, 1) => {
            let stopped = "the machine is stopped; no guest was started";
            session.expect(stopped, MOST).map(|_| false)
        }
        _ => anyhow::bail!("init ends otherwise:\n{}", session.tail(20)),
    }
}

/// Replaces the top of init's stack in its image, where the first instructions find it. The image
/// is changed instead of the source, since all sizes then have the same code.
fn move_stack(image: &mut [u8], from: u64, to: u64) -> Result<()> {
    let words = image.chunks_exact_mut(8);
    let mut tops = words.filter(|word| **word == from.to_le_bytes());
    let top = tops
        .next()
        .context("the image does not hold its stack's top")?;
    top.copy_from_slice(&to.to_le_bytes());
    ensure!(tops.next().is_none(), "the image holds it twice");
    Ok(())
}

fn images(gear1: Option<PathBuf>) -> Result<Images> {
    let manifest = workspace::root().join(format!("tests/manifests/{MANIFEST}.dts"));
    let mut images = build_images::build(&manifest)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    Ok(images)
}

fn start(images: &Images, virtualization: bool) -> Result<(Session, Gdb)> {
    let machine = Machine {
        cpus: 1,
        memory_mib: run::memory_for(images)?,
        virtualization,
        ..Machine::default()
    };
    let command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    let log: PathBuf = workspace::output_dir().join(format!("{MANIFEST}/boot-gdb.log"));
    Gdb::start(command, &log)
}

fn symbol(elf: &Path, name: &str) -> Result<u64> {
    let elf = fs::read(elf)?;
    let file = object::File::parse(&*elf)?;
    let symbol = file.symbol_by_name(name);
    Ok(symbol
        .with_context(|| format!("no symbol {name}"))?
        .address())
}
