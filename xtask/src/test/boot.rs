//! What the first instructions do, and what the boot leaves behind: seen by a debugger, for no VM can.
//!
//! Requirements: G1-BOOT-010, G1-BOOT-011.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSymbol as _};

use super::gdb::Gdb;
use super::gear2_registers::returns_of_next;
use super::{Part, Tally};
use crate::build_images::{self, Images};
use crate::expect::Session;
use crate::qemu::{Console, Machine, Qemu};
use crate::{run, workspace};

const MANIFEST: &str = "counters";
/// An arm64 image lies at a multiple of it, at an offset that the header may give.
const ALIGN: u64 = 2 << 20;
/// Where QEMU may load an arm64 image.
const PLACES: [u64; 3] = [0x4000_0000, 0x4008_0000, 0x4020_0000];
/// In the header of an arm64 image (Linux, Documentation/arch/arm64/booting.rst).
const MAGIC: (u64, &[u8]) = (56, b"ARM\x64");

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("boot without EL2", without_el2),
        Part::new("boot leaves nothing", leaves_nothing),
    ]
}

/// Started at EL1, Gear1 stops where the label says that it needs EL2.
fn without_el2(tally: &mut Tally) -> Result<()> {
    let init = workspace::bare_elf("gear1-init");
    stops_without_el2(&images(None)?, &init, tally)
}

/// The same with another Gear1, whose init with symbols is `init`.
pub(super) fn stops_without_el2_of(gear1: PathBuf, init: &Path, tally: &mut Tally) -> Result<()> {
    stops_without_el2(&images(Some(gear1))?, init, tally)
}

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

/// When Gear2 begins, and no guest has run, init is wiped.
fn leaves_nothing(tally: &mut Tally) -> Result<()> {
    nothing_is_left(&images(None)?, tally)
}

/// The same with another Gear1.
pub(super) fn leaves_nothing_of(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    nothing_is_left(&images(Some(gear1))?, tally)
}

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
    for address in returns_of_next()? {
        gdb.set_breakpoint(address)?;
    }
    gdb.resume()?;
    let left = gdb.physical(init, size)?;
    let left = left.iter().filter(|byte| **byte != 0).count();
    ensure!(
        left == 0,
        "{left} of {size} bytes at {init:#x} are left of init"
    );
    tally.pass(1);
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
