//! CPUs that leave the scheduler and come back, by `gearctl`, while all vCPUs of the machine are
//! busy (`tests/manifests/moves.dts`).
//!
//! The guests judge inside their VMs whether a wake-up is lost; Linux in the device VM, whose vCPUs
//! move as well, complains about CPUs that stall.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::{device_userland, workspace};
use xtask::run;
use xtask::smoke::device_vm::{LEAVE, json, number, widen};
use xtask::smoke::{shell, shell_within};

use crate::guests::count_verdicts;
use crate::part::{Part, Tally};

const BOOT: Duration = Duration::from_secs(180);
const STORM: Duration = Duration::from_secs(1_800);
const END: Duration = Duration::from_secs(60);
/// Times that a CPU is turned off and on.
const TIMES: u32 = 1_000;

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("CPUs leave and come back", storm).slow(true)]
}

fn storm(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("tests/manifests/moves.dts"))?;
    let machine = Machine {
        cpus: 4,
        memory_mib: run::memory_for(&images)?,
        ..Machine::default()
    };
    let log = images.archive.with_file_name("test.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let result = check(&mut session, tally);
    result.with_context(|| last_words(&session))
}

fn check(session: &mut Session, tally: &mut Tally) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    widen(session)?;
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    refuses(session)?;
    tally.pass(1);
    let before = moves(session)?;
    let turns = format!(
        "i=0; while [ $i -lt {TIMES} ]; do c=$((i % 4)); gearctl sched cpu $c off > /run/sched && \
         gearctl sched cpu $c on > /run/sched || break; i=$((i + 1)); done; [ $i -eq {TIMES} ]"
    );
    shell_within(session, &turns, STORM).context("a CPU was not turned off or on")?;
    tally.pass(TIMES as usize);
    let moved = moves(session)? - before;
    println!("figure: {moved} moves while a CPU was turned off and on {TIMES} times");
    // Six vCPUs are on four CPUs: one or two move each time.
    ensure!(moved >= u64::from(TIMES), "{moved} moves only");
    tally.pass(1);
    for vm in ["one", "two"] {
        let said = console(session, vm)?;
        let passed = count_verdicts(&said, tally);
        ensure!(passed > 0, "{vm} has no verdict");
    }
    let kernel = "dmesg | grep -c 'stall\\|lockup\\|Oops\\|BUG' || :";
    let complaints = shell(session, kernel)?;
    ensure!(
        complaints.trim() == "0",
        "the kernel complains: {complaints}"
    );
    tally.pass(1);
    session.send("poweroff -f\n")?;
    let status = session.expect_end(END)?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(())
}

/// The last CPU stays on, and a pin keeps its CPU on.
fn refuses(session: &mut Session) -> Result<()> {
    shell(
        session,
        "gearctl sched pin one 0 2 && ! gearctl sched cpu 2 off 2> /run/why",
    )?;
    let why = shell(session, "cat /run/why")?;
    ensure!(why.contains("a vCPU is pinned"), "it says {why:?}");
    shell(session, "gearctl sched unpin one 0")?;
    let off = "for c in 1 2 3; do gearctl sched cpu $c off || exit 1; done";
    shell(session, &format!("({off})"))?;
    shell(session, "! gearctl sched cpu 0 off 2> /run/why")?;
    let why = shell(session, "cat /run/why")?;
    ensure!(
        why.contains("no other CPU of the pool takes vCPUs"),
        "it says {why:?}"
    );
    let on = "for c in 1 2 3; do gearctl sched cpu $c on || exit 1; done";
    shell(session, &format!("({on})"))?;
    let set = "gearctl sched set one weight 300 --json";
    let set = json(session, set)?;
    ensure!(number(&set["weight"])? == 300, "{set}");
    Ok(())
}

/// Returns the number of moves so far.
fn moves(session: &mut Session) -> Result<u64> {
    let sched: Value = json(session, "gearctl sched --json")?;
    number(&sched["moves"])
}

/// Returns what a guest has said up to its next end.
fn console(session: &mut Session, vm: &str) -> Result<String> {
    session.send(&format!("gearctl console {vm}\n"))?;
    let said = session.expect("DONE\n", END)?;
    session.send(LEAVE)?;
    std::thread::sleep(Duration::from_millis(500));
    shell(session, "echo left")?;
    Ok(said)
}
