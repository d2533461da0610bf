//! Firmware at EL3 that counts: how often Gear1 has it empty the branch predictors, against the
//! changes of VM that a guest brings about.
//!
//! Requirements: G1-CPU-012, G1-CPU-013, G1-CPU-017.
//!
//! No guest can see a call of firmware, and QEMU has no branch predictor. QEMU's `virt` with a
//! secure state has EL3, and the guest `el3` is the firmware there: it prints its count at each of
//! the guest's marks. The guest knows how many changes lie between two marks.
//!
//! The firmware also gives random numbers, which a guest can tell from a CPU's.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::board::BoardTree;
use workbench::build_images::{self, Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::tools::Tools;
use workbench::workspace;
use xtask::run;
use xtask::smoke::{BOOT, focus, ready, shell};

use crate::guests::{count_verdicts, wait_for_done};
use crate::part::{Part, Tally};

/// Addresses of Gear1, as in `el3.s`, and of the archive, both in the machine's memory. The
/// machine's tree lies at the start of memory (QEMU's docs/system/arm/virt.rst).
const GEAR1: u64 = 0x4020_0000;
const ARCHIVE: u64 = 0x4400_0000;
/// Firmware's line with its count, in hexadecimal, and the guest's with the changes of a phase.
const COUNT: &str = "firmware: calls 0x";
const PHASE: &str = "phase ";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Phases of the guest, and its calls of workaround 3 of its own.
const PHASES: usize = 5;
const OWN_CALLS: u64 = 3;
/// Linux's words for a Cortex-A57 and A72 with firmware's mitigations, below
/// `/sys/devices/system/cpu/vulnerabilities`.
const LINUX: [(&str, &str); 3] = [
    ("meltdown", "Not affected"),
    ("spectre_v2", "Mitigation: Branch predictor hardening, BHB"),
    ("spec_store_bypass", "Not affected"),
];
/// Checks of the guest: six answers by each conduit, the messages, and the other vCPU.
const CHECKS: usize = 14;
/// Checks of the two guests that ask for random numbers.
const TRNG_CHECKS: usize = 2 * 17 + 2;

pub(super) fn parts() -> Vec<Part> {
    let counts = Part::new("firmware at EL3 counts changes of VM", |tally| {
        // Their branch predictors have no tags.
        for model in ["cortex-a57", "cortex-a72"] {
            on(model, None, tally)?;
        }
        // FEAT_CSV2: the guest's own calls are the only ones.
        with_csv2("neoverse-n1", tally)
    });
    let linux = Part::new("Linux finds firmware's mitigations", |tally| {
        for model in ["cortex-a57", "cortex-a72"] {
            tally.check(model, linux_on(model));
        }
        Ok(())
    });
    let random = Part::new("firmware at EL3 gives random numbers", |tally| {
        random_under("cortex-a57", None, tally)
    });
    vec![counts, random, linux.slow(true)]
}

/// The kernel of a guest has branch predictors hardened by firmware, and no store bypassed, as the
/// same kernel says without a hypervisor: workaround 2 stays on.
fn linux_on(model: &str) -> Result<()> {
    let mut session = start(model, "firmware-linux", None)?;
    session.expect(&ready("linux"), BOOT)?;
    focus(&mut session, 0, "linux")?;
    for (file, expected) in LINUX {
        let folder = "/sys/devices/system/cpu/vulnerabilities";
        let said = shell(&mut session, &format!("cat {folder}/{file}"))?;
        let begins = said.lines().any(|line| line.starts_with(expected));
        ensure!(begins, "{file} says {said:?} in place of {expected:?}");
    }
    Ok(())
}

/// Has the firmware count under another Gear1.
pub(super) fn counts_other(gear1: &Path, tally: &mut Tally) -> Result<()> {
    on("cortex-a57", Some(gear1), tally)
}

/// Has the firmware give random numbers under another Gear1.
pub(super) fn random_other(gear1: &Path, tally: &mut Tally) -> Result<()> {
    random_under("cortex-a57", Some(gear1), tally)
}

/// A VM that may call firmware has its random numbers, and the VM beside it has none. The CPU has
/// no source of its own.
fn random_under(model: &str, gear1: Option<&Path>, tally: &mut Tally) -> Result<()> {
    let mut session = start(model, "firmware-trng", gear1)?;
    let ended = wait_for_done(&mut session, 2, TIMEOUT);
    let passed = count_verdicts(session.transcript(), tally);
    ended.with_context(|| last_words(&session))?;
    ensure!(passed == TRNG_CHECKS, "{passed} of {TRNG_CHECKS} checks");
    Ok(())
}

/// On a CPU that needs the calls, each phase has as many as changes.
fn on(model: &str, gear1: Option<&Path>, tally: &mut Tally) -> Result<()> {
    let transcript = run(model, gear1, tally)?;
    let changes = numbers(&transcript, PHASE, 10)?;
    let counts = numbers(&transcript, COUNT, 16)?;
    // A mark behind each phase, and one when the machine is turned off.
    ensure!(
        changes.len() == PHASES && counts.len() == PHASES + 1,
        "{model}: phases {changes:?}, marks {counts:?}"
    );
    let called = counts.windows(2).map(|pair| pair[1] - pair[0]);
    let called: Vec<u64> = called.take(PHASES - 1).collect();
    tally.check(
        &format!("{model}: calls by phase"),
        same(&called, &changes[1..]),
    );
    Ok(())
}

/// On a CPU with FEAT_CSV2, marks do not reach firmware, and changes need none.
fn with_csv2(model: &str, tally: &mut Tally) -> Result<()> {
    let transcript = run(model, None, tally)?;
    let counts = numbers(&transcript, COUNT, 16)?;
    tally.check(
        &format!("{model}: the guest's calls alone"),
        same(&counts, &[OWN_CALLS]),
    );
    Ok(())
}

fn same(found: &[u64], expected: &[u64]) -> Result<()> {
    ensure!(found == expected, "{found:?} in place of {expected:?}");
    Ok(())
}

/// Returns the last word of each line with this text, as a number. Behind the text, since Gear2
/// puts labels before the guests' lines.
fn numbers(transcript: &str, text: &str, radix: u32) -> Result<Vec<u64>> {
    let lines = transcript.lines().filter_map(|line| line.split_once(text));
    let number = |(_, rest): (&str, &str)| {
        let last = rest.split_whitespace().last().unwrap_or_default();
        u64::from_str_radix(last, radix).with_context(|| format!("{text}{rest}"))
    };
    lines.map(number).collect()
}

/// Runs the guests to the end of the machine, and returns what the console showed.
fn run(model: &str, gear1: Option<&Path>, tally: &mut Tally) -> Result<String> {
    let mut session = start(model, "vm-changes", gear1)?;
    let ended = session.expect_end(TIMEOUT);
    let passed = count_verdicts(session.transcript(), tally);
    ended.with_context(|| last_words(&session))?;
    ensure!(passed == CHECKS, "{model}: {passed} of {CHECKS} checks");
    Ok(session.transcript().to_owned())
}

/// Starts a manifest behind the firmware, on one CPU.
fn start(model: &str, manifest: &str, gear1: Option<&Path>) -> Result<Session> {
    let file = workspace::root().join(format!("tests/manifests/{manifest}.dts"));
    let mut images = build_images::build(&file)?;
    if let Some(gear1) = gear1 {
        images.gear1 = gear1.to_owned();
    }
    let machine = Machine {
        cpu: model.to_owned(),
        cpus: 1,
        secure: true,
        memory_mib: run::memory_for(&images)?,
        ..Machine::default()
    };
    let qemu = Qemu::prepare(10)?;
    let machine = with_files(machine, &qemu, &images)?;
    let log = workspace::output_dir().join(format!("{manifest}-{model}.log"));
    images.start(&qemu, &machine, &log)
}

/// Adds what a boot loader would load: QEMU loads a kernel and its files only where it is the
/// firmware itself.
fn with_files(machine: Machine, qemu: &Qemu, images: &Images) -> Result<Machine> {
    let tools = Tools::prepare()?;
    let dump = workspace::output_dir().join("firmware-board.dtb");
    qemu.dump_tree(&machine, &dump)?;
    let end = ARCHIVE + fs::metadata(&images.archive)?.len();
    let tree = BoardTree::from_file(&dump, &tools)?.with_archive(ARCHIVE..end, &tools)?;
    let file = workspace::output_dir().join("firmware.dtb");
    fs::write(&file, tree.bytes())?;
    let load =
        |file: &Path, at: u64| format!("loader,file={},addr={at:#x},force-raw=on", file.display());
    let options = [
        "-dtb".to_owned(),
        file.display().to_string(),
        "-device".to_owned(),
        load(&images.gear1, GEAR1),
        "-device".to_owned(),
        load(&images.archive, ARCHIVE),
    ];
    Ok(Machine {
        firmware: Some(build_images::build_guest("el3")?),
        options: options.map(Into::into).to_vec(),
        ..machine
    })
}
