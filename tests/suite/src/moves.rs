//! CPUs that leave the scheduler and come back, by `gearctl`, while all vCPUs of the machine are
//! busy (`tests/manifests/moves.dts`).
//!
//! The bare guests judge inside their VMs whether a wake-up is lost. stress-ng works beneath Linux
//! in rounds with an end: a wake-up that is lost leaves a process of it asleep, and the round does
//! not end. Both kernels, whose vCPUs move as well, complain about CPUs that stall.
//!
//! A lost wake-up needs a move at exactly the wrong moment. Host tests try the orders; here a great
//! number of moves leaves little to chance.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::Machine;
use xtask::smoke::device_vm::{LEAVE, enter, json, leave, number};
use xtask::smoke::{shell, shell_within};

use crate::device_shell::{on_machine, power_off};
use crate::guests::count_verdicts;
use crate::linux::STRESSORS;
use crate::part::{Part, Tally};

/// An hour; tests/README.md tells what was seen.
const STORM: Duration = Duration::from_secs(3_600);
const END: Duration = Duration::from_secs(60);
/// Times that a CPU is turned off and on.
const TIMES: u32 = 1_000;
/// The guest in which stress-ng works, the seconds of a round, and the longest time of one: its
/// vCPUs get a part of CPUs that are slow. Rounds end, which is the test: a process that sleeps for
/// ever is found by its round.
const STRESSED: &str = "stress";
const ROUND_S: u32 = 10;
const ROUND: Duration = Duration::from_secs(300);
/// Exit code of a round whose figures stress-ng does not trust: at the end of the round it killed a
/// child of `tlb-shootdown` in the two instructions that count a turn. No process is asleep then.
const UNTRUSTWORTHY: u32 = 7;
/// Lines of a kernel's log about CPUs that did not go on. The kernel watches its own CPUs, and
/// would name the one that stood still.
const COMPLAINTS: &str = "dmesg | grep -c 'stall\\|lockup\\|Oops\\|BUG' || :";

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("CPUs leave and come back", storm).slow(true)]
}

fn storm(tally: &mut Tally) -> Result<()> {
    let machine = Machine {
        cpus: 4,
        ..Machine::default()
    };
    on_machine("moves", machine, |session, manifest| {
        let stressed = manifest.vms.iter().find(|vm| vm.name == STRESSED);
        let stressed = stressed.with_context(|| format!("no VM {STRESSED}"))?;
        check(session, stressed, tally)
    })
}

/// Refusals come first, as they need CPUs in a known state.
fn check(session: &mut Session, stressed: &VmSummary, tally: &mut Tally) -> Result<()> {
    refuses(session)?;
    tally.pass(1);
    begin_stress(session, stressed)?;
    let before = moves(session)?;
    let turns = format!(
        "i=0; while [ $i -lt {TIMES} ]; do c=$((i % 4)); gearctl sched cpu $c off > /run/sched && \
         gearctl sched cpu $c on > /run/sched || break; i=$((i + 1)); done; [ $i -eq {TIMES} ]"
    );
    shell_within(session, &turns, STORM).context("a CPU was not turned off or on")?;
    tally.pass(TIMES as usize);
    let moved = moves(session)? - before;
    println!("figure: {moved} moves while a CPU was turned off and on {TIMES} times");
    // Eight vCPUs are on four CPUs: about two move each time.
    ensure!(moved >= u64::from(TIMES), "{moved} moves only");
    tally.pass(1);
    end_stress(session, stressed, tally)?;
    for vm in ["one", "two"] {
        let said = console(session, vm)?;
        let passed = count_verdicts(&said, tally);
        ensure!(passed > 0, "{vm} has no verdict");
    }
    no_cpu_stalled(session, tally)?;
    power_off(session)
}

/// Has stress-ng work in the guest, round after round, until the file `stop` is there. A status of
/// the round is judged at once, and the log says which round it was.
fn begin_stress(session: &mut Session, guest: &VmSummary) -> Result<()> {
    enter(session, guest)?;
    let round = format!("stress-ng {STRESSORS} --timeout {ROUND_S}s --oomable");
    let judged = format!("[ $s -eq 0 ] || [ $s -eq {UNTRUSTWORTHY} ] || echo BROKEN with $s");
    let rounds = format!("until [ -e /stop ]; do {round}; s=$?; {judged}; done");
    shell(session, &format!("({rounds}) > /said 2>&1 & :"))?;
    leave(session)
}

/// Waits for the end of the last round, and judges all of them.
fn end_stress(session: &mut Session, guest: &VmSummary, tally: &mut Tally) -> Result<()> {
    enter(session, guest)?;
    shell_within(session, "touch /stop; wait", ROUND).context("a round of stress-ng never ends")?;
    // With the lines before, which tell the round and the reason.
    let said = shell(session, "grep -B 16 'BROKEN\\|FAIL\\|fail:' /said || :")?;
    ensure!(said.trim().is_empty(), "stress-ng says {said}");
    let done = shell(session, "grep -c 'successful run completed' /said || :")?;
    let rounds: u64 = done
        .trim()
        .parse()
        .with_context(|| format!("{done:?} rounds"))?;
    println!("figure: {rounds} rounds of stress-ng, {ROUND_S} s each");
    ensure!(rounds > 1, "{rounds} rounds of stress-ng only");
    tally.pass(1);
    no_cpu_stalled(session, tally)?;
    leave(session)
}

fn no_cpu_stalled(session: &mut Session, tally: &mut Tally) -> Result<()> {
    let complaints = shell(session, COMPLAINTS)?;
    ensure!(
        complaints.trim() == "0",
        "the kernel complains: {complaints}"
    );
    tally.pass(1);
    Ok(())
}

/// The last CPU stays on, and a pin keeps its CPU on. A weight that can be set afterwards shows
/// that the scheduler still takes commands.
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
    session.send(&format!("gearctl console --all {vm}\n"))?;
    let said = session.expect("DONE\n", END)?;
    session.send(LEAVE)?;
    std::thread::sleep(Duration::from_millis(500));
    shell(session, "echo left")?;
    Ok(said)
}
