//! A device of one VM against all memory, with an SMMU and without one.
//!
//! The guest `dma` has QEMU's `edu` write a pattern of 64 bytes to addresses all over the board's
//! memory. Whether a byte has arrived, the host sees: it reads the machine's memory and looks for
//! the pattern. What the device reads, the guest sees.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003.
//!
//! Nothing on a CPU can show that a device was kept out: a write that is aborted and one that goes
//! elsewhere look alike there. The machine's memory, saved through QEMU's monitor, is the witness.

mod monitor;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use workbench::board::BoardTree;
use workbench::build_images::{Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::tools::Tools;
use workbench::workspace;
use xtask::check;
use xtask::smoke::ESCAPE;

use self::monitor::Monitor;
use crate::guests::count_verdicts;
use crate::part::{Part, Tally};
use crate::realtime::{Serial, images};

/// The board's memory.
const RAM: u64 = 0x4000_0000;
/// Small, because all of it is saved and searched.
const MEMORY_MIB: u32 = 128;
/// Memory of the VM that owns the device, as both manifests say. Fixed by the manifests, so that
/// the host can tell a hit from the guest's own copy.
const OWN: Range<u64> = 0x4600_0000..0x4680_0000;
/// The pattern, and where the device writes it after the VM's reset, as the guest has it.
const SOURCE: u64 = OWN.end - (1 << 20);
/// Another place than that of the first life, so that a late write shows alone.
const LATE: u64 = 0x1000;
/// Where the device writes without an SMMU, as the manifest says.
const TARGET: u64 = 1140 << 20;
/// Distance of attacked addresses, in the first memory and in all of it, and the guest's seed. The
/// first 2 MiB are attacked at the smaller distance.
const GEARS: u64 = 2 << 20;
const FINE: u64 = 64 << 10;
const STEP: u64 = 1 << 20;
const SEED: u64 = 77;
const PATTERN: usize = 64;
/// Accesses of a transfer that nobody answers: QEMU goes on with each word. 64 bytes, in words of
/// 4.
const ACCESSES: u64 = 16;
/// StreamID of the second device on bus 0, behind the bridge itself. The StreamID is the device's
/// PCI address: device 1, function 0.
const STREAM: &str = "(StreamID 0x8)";
/// Stream table entries of a bus, their size, and the first word of one that aborts. SMMUv3 (IHI
/// 0070), 5.2: an entry has 64 bytes; V = 1 with Config = 0 in the first word aborts.
const STREAMS: usize = 256;
const ENTRY: usize = 64;
const SHUT: u64 = 1;
/// Entry of Gear2's list for the VM that has ended. The list is asked for until it says so, because
/// the VM's end takes its time.
const OFF: &str = "0 dma stopped";
/// Attacks of the long part, those between two lines of the guest, and the longest wait for a line.
/// A line must come within the wait, or the attack is taken to hang.
const RANDOM: u64 = 1_000_000;
const PROGRESS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(120);
/// Looks at Gear2's list, and the time between two. 10 s in all.
const LOOKS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// One part for the short tests: each needs the same machine, and none says much without the
/// others.
pub(super) fn parts() -> Vec<Part> {
    let short = Part::new("guest dma", |tally| {
        for (manifest, smmu) in [("dma", true), ("dma-exposed", false)] {
            let name = format!("{manifest}: check warns only without an SMMU");
            tally.check(&name, warns(manifest, smmu));
        }
        attacks(&images("dma", None)?, tally)?;
        lends(&images("dma-lends", None)?, tally)?;
        tally.check("a VM whose device attacks is stopped", is_stopped());
        reaches(&images("dma-exposed", None)?, tally)
    });
    let long = Part::new("a bus master attacks for long", attacks_for_long);
    vec![short, long.slow(true)]
}

/// Has the device attack under another Gear1. Planted bugs take checks out of Gear1's handling of
/// the SMMU.
pub(super) fn attacks_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    attacks(&images("dma", Some(gear1.clone()))?, tally)?;
    lends(&images("dma-lends", Some(gear1))?, tally)
}

/// Checks a manifest against its machine: the warning of bus masters that reach all memory comes
/// unless there is an SMMU. The machine's own tree is asked for, as a user would do with an unknown
/// board.
fn warns(manifest: &str, smmu: bool) -> Result<()> {
    let tools = Tools::prepare()?;
    let tree = workspace::output_dir().join(format!("{manifest}-board.dtb"));
    let machine = Machine {
        cpus: 3,
        smmu,
        second_serial: Some("none".into()),
        ..machine()
    };
    fs::create_dir_all(workspace::output_dir())?;
    Qemu::prepare(10)?.dump_tree(&machine, &tree)?;
    let board = BoardTree::from_file(&tree, &tools)?;
    let file = workspace::root().join(format!("tests/manifests/{manifest}.dts"));
    let findings = check::check(&file, &board, &tools)?;
    let found: Vec<_> = findings.list.iter().map(|found| found.id).collect();
    let expected: &[&str] = if smmu { &[] } else { &["M-WRN-001"] };
    ensure!(found == expected, "found: {found:?}");
    Ok(())
}

/// With an SMMU: no byte arrives, and each attempt is an event of the VM's. The VM's second life
/// finds its device stopped. When that life has ended, the stream table lets nothing through. The
/// count of aborted accesses is exact: one that is missing was either lost as an event or let
/// through.
fn attacks(images: &Images, tally: &mut Tally) -> Result<()> {
    let machine = Machine {
        cpus: 3,
        smmu: true,
        ..machine()
    };
    // Each address but those in the VM's own memory, and the other VM's code.
    let bytes = (u64::from(MEMORY_MIB) << 20) - (OWN.end - OWN.start);
    let attempts = GEARS / FINE + bytes / STEP + 1;
    let counted = format!("; {} accesses of its", attempts * ACCESSES);
    let told = format!("a device of dma {STREAM} may not write 0x40000000: event 0x10, 1 by now");
    let is_over = |session: &mut Session| {
        session.expect(&told, TIMEOUT)?;
        until_listed(session, &counted)?;
        until_listed(session, OFF)
    };
    let memory = run(images, machine, is_over, tally)?;
    let found = places(&memory);
    tally.pass(3);
    let outside: Vec<_> = found.iter().filter(|place| !OWN.contains(place)).collect();
    tally.check(
        "no byte outside of the VM's memory",
        holds(outside.is_empty(), || format!("written: {outside:x?}")),
    );
    tally.check(
        "the host finds the pattern where it is",
        // The pattern's own place must be found, or the search itself does not work.
        holds(found.contains(&SOURCE), || format!("found: {found:x?}")),
    );
    tally.check(
        "nothing is written for a VM that has ended",
        holds(!found.contains(&(SOURCE + LATE)), || "it is".to_owned()),
    );
    let entries = stream_entries(&memory);
    let shut = entries.iter().filter(|first| **first == SHUT).count();
    tally.check(
        "the streams of a VM that has ended are shut",
        holds((entries.len(), shut) == (STREAMS, STREAMS), || {
            format!("{shut} of {} entries are", entries.len())
        }),
    );
    Ok(())
}

/// A page that a device VM has lent is out of its device's reach: one transfer faults. The right to
/// a page is the same for CPUs and devices: stage 2 is one table for both.
fn lends(images: &Images, tally: &mut Tally) -> Result<()> {
    let machine = Machine {
        smmu: true,
        ..machine()
    };
    let counted = format!("; {ACCESSES} accesses of its");
    run(
        images,
        machine,
        |session| until_listed(session, &counted),
        tally,
    )?;
    tally.pass(1);
    Ok(())
}

/// A VM with a limit of aborted accesses is stopped in the middle of its attack. The limit is the
/// manifest's `dma-fault-limit`.
fn is_stopped() -> Result<()> {
    let images = images("dma-stopped", None)?;
    let directory = images.archive.with_file_name("");
    let machine = Machine {
        smmu: true,
        second_serial: Some(Serial::new(&directory)?.file),
        ..machine()
    };
    let command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    let mut session = images.start_by(command, &directory.join("console.log"))?;
    session.expect(
        "dma ends: 100 accesses of its devices were aborted",
        TIMEOUT,
    )?;
    until_listed(&mut session, OFF)
}

/// Asks Gear2 for its list until a text stands there. Events and ends reach Gear2 some time after
/// the guest's last line, so the question is repeated.
fn until_listed(session: &mut Session, text: &str) -> Result<()> {
    for _ in 0..LOOKS {
        session.send(&format!("{ESCAPE}l"))?;
        session.listen(PAUSE)?;
        if session.transcript().contains(text) {
            return Ok(());
        }
    }
    bail!("the list does not say {text:?}")
}

/// A million accesses at random addresses reach nothing. Places at a fixed distance may all miss a
/// hole in the tables; random ones do not for so long. Progress lines keep the wait for each short.
fn attacks_for_long(tally: &mut Tally) -> Result<()> {
    let images = images("dma-long", None)?;
    let directory = images.archive.with_file_name("");
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        smmu: true,
        second_serial: Some(serial.file.clone()),
        ..machine()
    };
    let mut command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    let monitor = Monitor::add_to(&mut command);
    let mut session = images.start_by(command, &directory.join("console.log"))?;
    for step in 1..=RANDOM / PROGRESS {
        let number = step * PROGRESS;
        let line = format!("dma: {number} random accesses");
        serial.wait_within(&line, PATIENCE, &mut session)?;
    }
    serial.wait_for("DONE", &mut session)?;
    let found = places(&memory_of(monitor, &directory)?);
    let outside: Vec<_> = found.iter().filter(|place| !OWN.contains(place)).collect();
    tally.check(
        "no byte outside of the VM's memory",
        holds(outside.is_empty() && !found.is_empty(), || {
            format!("written: {outside:x?}")
        }),
    );
    Ok(())
}

/// Without one: the device reaches the other VM, so that the test above shows something.
fn reaches(images: &Images, tally: &mut Tally) -> Result<()> {
    let machine = Machine {
        cpus: 2,
        ..machine()
    };
    let found = places(&run(images, machine, |_| Ok(()), tally)?);
    tally.check(
        "the device has written another VM's memory",
        holds(found.contains(&TARGET), || format!("found: {found:x?}")),
    );
    Ok(())
}

/// Returns a failure unless a condition holds.
fn holds(condition: bool, why: impl FnOnce() -> String) -> Result<()> {
    condition.then_some(()).ok_or_else(|| anyhow!(why()))
}

/// Returns the machine of both tests: time passes by itself while the device works. `edu` masters
/// the bus by default with 28 bits of address; the mask lets it name all memory.
fn machine() -> Machine {
    let options = ["-device", "edu,dma_mask=0xffffffffff"];
    Machine {
        memory_mib: MEMORY_MIB,
        icount: true,
        options: options.map(Into::into).to_vec(),
        ..Machine::default()
    }
}

/// Runs the machine until the guest is done and `is_over`, and returns its memory. Verdicts of the
/// guest are counted before anything else fails.
fn run(
    images: &Images,
    machine: Machine,
    is_over: impl FnOnce(&mut Session) -> Result<()>,
    tally: &mut Tally,
) -> Result<Vec<u8>> {
    let directory = images.archive.with_file_name("");
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        second_serial: Some(serial.file.clone()),
        ..machine
    };
    let mut command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    let monitor = Monitor::add_to(&mut command);
    let mut session = images.start_by(command, &directory.join("console.log"))?;
    let ended = serial.wait_for("DONE", &mut session);
    count_verdicts(&serial.text()?, tally);
    let memory = ended
        .and_then(|()| is_over(&mut session))
        .and_then(|()| memory_of(monitor, &directory));
    memory.map_err(|error| anyhow!("{error:#}\n{}", last_words(&session)))
}

/// Returns the machine's memory.
fn memory_of(monitor: monitor::Socket, directory: &Path) -> Result<Vec<u8>> {
    let file = directory.join("memory.bin");
    monitor
        .connect()?
        .save(RAM, u64::from(MEMORY_MIB) << 20, &file)?;
    let memory = fs::read(&file).with_context(|| file.display().to_string())?;
    fs::remove_file(&file)?;
    ensure!(memory.len() == (MEMORY_MIB as usize) << 20, "not all of it");
    Ok(memory)
}

/// Returns the first words of the stream table entries that have an owner, which are found by their
/// shape: shareability as the device says, S2R, S2AFFD and S2AA64, nothing for stage 1. The table
/// lies wherever init has put it, and nothing outside tells where.
fn stream_entries(memory: &[u8]) -> Vec<u64> {
    let words = |entry: &[u8]| -> Vec<u64> {
        let words = entry.as_chunks::<8>().0.iter();
        words.map(|word| u64::from_le_bytes(*word)).collect()
    };
    let entries = memory.chunks_exact(ENTRY).map(words);
    let owned = entries.filter(|words| {
        words[1] == 1 << 44 && words[2] >> 51 == 0b1000_0101 && words[4..] == [0; 4]
    });
    owned.map(|words| words[0]).collect()
}

/// Returns the addresses at which the pattern stands in memory. The generator of the pattern is the
/// guest's, in the same words: 64 bytes that nothing else holds.
fn places(memory: &[u8]) -> Vec<u64> {
    let pattern: Vec<u8> = (0..PATTERN as u64)
        .map(|at| (SEED * 31 + at * at * 7 + at * 13) as u8)
        .collect();
    let blocks = memory.chunks_exact(PATTERN).zip(0..);
    let found = blocks.filter(|(block, _)| *block == pattern);
    found
        .map(|(_, index)| RAM + index * PATTERN as u64)
        .collect()
}
