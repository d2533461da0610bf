//! Immunity of a real-time VM: no other VM has an effect on it.
//!
//! The first windows pass before any other VM runs; then one VM after the other disturbs the
//! real-time VM.
//!
//! "Immune" is a claim about what does not happen, so the yardstick is the VM itself: its latencies
//! beside nobody, on the same machine and in the same run. Under `icount` an instruction more on
//! its CPU shows.

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::build_images::{Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::smoke::ESCAPE;

use super::machine::{Serial, TIMEOUT, images};
use super::windows::{Latencies, PATIENCE, WINDOWS, Window, judge, wait_for_windows, windows};
use crate::part::{Part, Tally};

/// Least number of exits of a disturbing VM in a window. An attacker that was refused at its first
/// try, and then idles, would prove nothing.
const EXITS: u64 = 3;

/// A VM that disturbs: its number in the manifest, its attack, and its message when the attack is
/// under way. A message shows that the attack has begun; an empty one stands for VMs without a
/// console.
struct Other {
    vm: usize,
    name: &'static str,
    does: &'static str,
    works: &'static str,
}

/// The VM that turns itself off if something is not refused. Its victims look for effects as well:
/// foreign interrupts are counted in each window.
const TRESPASSER: &str = "trespasser";

/// The VM that floods the real-time VM's doorbell. A doorbell is the one effect that the manifest
/// allows, no more often than its `min-interval-us`.
const RINGER: &str = "ringer";

/// Each kind of neighbour is there: real-time, scheduled, one that restarts, one that fails Gear2.
/// The one that makes Gear2 hang is last, since the keys that start and stop the others go through
/// Gear2.
const OTHERS: [Other; 10] = [
    // Of the victim's kind: its interrupts do not pass Gear1 either, so only rights keep it away.
    Other {
        vm: 1,
        name: "foe",
        does: "attacks at random as a real-time VM",
        works: "",
    },
    // Calls and accesses with random values reach Gear1 and Gear2 all the time.
    Other {
        vm: 2,
        name: "attacker",
        does: "attacks at random as a guest",
        works: "ATTACKS 4000",
    },
    // Each SGI to a vCPU that waits has Gear1 kick a CPU, which must not be the victim's.
    Other {
        vm: 3,
        name: "storm",
        does: "sends SGIs without a pause",
        works: "TAKEN 1",
    },
    // Each end of the VM has Gear1 freeze it and load it anew.
    Other {
        vm: 4,
        name: "resets",
        does: "restarts without end",
        works: "gear2: resets resets itself",
    },
    // The attack differs with each start of this VM.
    Other {
        vm: 6,
        name: TRESPASSER,
        does: "goes for others' CPUs by SGIs",
        works: "",
    },
    Other {
        vm: 6,
        name: TRESPASSER,
        does: "goes for others' SPIs",
        works: "",
    },
    Other {
        vm: 6,
        name: TRESPASSER,
        does: "goes for others' redistributors",
        works: "",
    },
    Other {
        vm: 6,
        name: TRESPASSER,
        does: "sets up others' DMA",
        works: "",
    },
    // The manifest lets the doorbell through, at intervals of 500 us at least.
    Other {
        vm: 7,
        name: RINGER,
        does: "rings without a pause",
        works: "RUNG 5000",
    },
    // A restart of Gear2 stops all of Gear2's CPUs; the victim's CPU is none of them.
    Other {
        vm: 5,
        name: "saboteur",
        does: "makes Gear2 hang",
        works: "gear2: restarted, 1 in all",
    },
];

/// The row with GICv2 is slow for the time of a whole run.
pub(super) fn parts() -> Vec<Part> {
    let part = |gic: u32| {
        let name = format!("real-time VM is immune with GICv{gic}");
        Part::new(name, move |tally| immunity(gic, tally)).slow(gic == 2)
    };
    let halt = Part::new("Gear2 that fails too often halts", too_many_failures);
    vec![halt, part(3), part(2)]
}

/// G1-SUP-003: after `restart-limit` restarts Gear1 halts; the real-time VM runs on as before. A
/// halt of Gear2's side must not be a halt of the machine for those who need no Gear2.
fn too_many_failures(tally: &mut Tally) -> Result<()> {
    let directory = workspace::output_dir().join("gear2-halts");
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        icount: true,
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let images = images("gear2-halts", None)?;
    let log = directory.join("console.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    // The halt is what is awaited here.
    session.give_up_on(&[]);
    for text in HALT {
        let found = session.expect(text, TIMEOUT).map(drop);
        let found = found.map_err(|error| anyhow!("{error:#}\n{}", session.tail(20)));
        tally.check(text, found);
    }
    let first = windows(&serial.text()?)?.len() + 1;
    wait_for_windows(&mut session, &serial, first + WINDOWS)?;
    let all = windows(&serial.text()?)?;
    let (before, after) = all.split_at(first);
    let before = Latencies::of(before)?;
    tally.check("it runs on", judge("a halt", &before, after));
    Ok(())
}

/// Messages of Gear2's last restart and of the halt. The number of restarts is the manifest's
/// `restart-limit`.
const HALT: [&str; 4] = [
    "gear2: restarted, 3 in all",
    "gear1: HALT: fault in Gear2",
    "gear2-restarts=0x0000000000000003",
    "gear1: machine stopped",
];

fn immunity(gic: u32, tally: &mut Tally) -> Result<()> {
    attack(&images("rt-immune", None)?, gic, &[], tally)
}

/// Returns the VM's latencies beside nobody. Other tests measure against this.
pub(super) fn alone() -> Result<Latencies> {
    let directory = workspace::output_dir().join("rt-immune/alone");
    let serial = Serial::new(&directory)?;
    let images = images("rt-immune", None)?;
    let log = directory.join("console.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine(3, &serial), &log)?;
    let before = wait_for_them(&mut session, &serial)?;
    judge("nobody", &before, &windows(&serial.text()?)?)?;
    Ok(before)
}

/// Waits for the windows before anybody else runs; the first one has the caches' and tables' first
/// uses. A cold first window would raise the yardstick.
fn wait_for_them(session: &mut Session, serial: &Serial) -> Result<Latencies> {
    wait_for_windows(session, serial, 1 + WINDOWS)?;
    Latencies::of(&windows(&serial.text()?)?[1..])
}

/// With a counter of 1 GHz a tick is a nanosecond. The VM has CPU 0, which `icount` runs first.
fn machine(gic: u32, serial: &Serial) -> Machine {
    Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        cpus: 5,
        gic,
        icount: true,
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    }
}

/// Has the others named, or all, disturb the VM, one after the other, and judges each. All attacks
/// share a boot: a latency that an earlier neighbour has spoilt for good shows with the next.
pub(super) fn attack(images: &Images, gic: u32, only: &[&str], tally: &mut Tally) -> Result<()> {
    let directory = workspace::output_dir().join(format!("rt-immune/gicv{gic}"));
    let serial = Serial::new(&directory)?;
    let qemu = Qemu::prepare(10)?;
    let log = directory.join("console.log");
    let mut session = images.start(&qemu, &machine(gic, &serial), &log)?;
    attacks(&mut session, &serial, only, tally)
        .map_err(|error| anyhow!("{error:#}\n{}", last_words(&session)))
}

/// The saboteur is not judged by exits: the restart of Gear2, which is awaited, shows its work.
fn attacks(session: &mut Session, serial: &Serial, only: &[&str], tally: &mut Tally) -> Result<()> {
    // Nothing is running yet but Gear2, idle.
    let before = wait_for_them(session, serial)?;
    let alone = windows(&serial.text()?)?;
    tally.check("alone", judge("nobody", &before, &alone));
    let mut judged = alone.len();
    let is_wanted = |other: &&Other| only.is_empty() || only.contains(&other.name);
    for other in OTHERS.iter().filter(is_wanted) {
        let all = windows_beside(session, serial, other)?;
        let during = all.get(judged..).context("windows are missing")?;
        judged = all.len();
        let title = format!("{} {}", other.name, other.does);
        tally.check(&title, judge(&title, &before, during));
        if other.name == RINGER {
            tally.check("rings arrive", all_are_rung(during));
        }
        if other.name != "saboteur" {
            tally.check(&title, is_at_work(session, other));
            stop(session, other)?;
        }
    }
    Ok(())
}

/// The next neighbour is to be alone with the VM.
fn stop(session: &mut Session, other: &Other) -> Result<()> {
    key(session, other.vm, 's')?;
    session.expect(&format!("gear2: {} stopped", other.name), TIMEOUT)?;
    Ok(())
}

/// Checks that a doorbell has come in each of the last windows. Those before them may have passed
/// while the VM that rings was started.
fn all_are_rung(during: &[Window]) -> Result<()> {
    let mut last = during.iter().rev().take(WINDOWS);
    let silent = last.find(|window| window.rings == 0);
    ensure!(silent.is_none(), "no ring: {silent:?}");
    Ok(())
}

/// Starts another VM, and returns all windows once some have passed beside it. The windows before
/// the message belong to the VM's load, which disturbs as well and is judged, too.
fn windows_beside(session: &mut Session, serial: &Serial, other: &Other) -> Result<Vec<Window>> {
    key(session, other.vm, 't')?;
    session.expect(&format!("gear2: {} ", other.name), TIMEOUT)?;
    if !other.works.is_empty() {
        session.expect(other.works, PATIENCE)?;
    }
    // Effects of the last step show in the next windows.
    let seen = windows(&serial.text()?)?.len();
    wait_for_windows(session, serial, seen + WINDOWS)?;
    windows(&serial.text()?)
}

/// Checks that a VM has left its CPU often, as an attacker does. The trespasser turns itself off
/// when something is not refused, which its console cannot say: Gear2 does.
fn is_at_work(session: &mut Session, other: &Other) -> Result<()> {
    key(session, other.vm, 'p')?;
    session.expect(&format!("gear2: {} vCPU 0:", other.name), TIMEOUT)?;
    let counts = session.expect("\n", TIMEOUT)?;
    let numbers = counts
        .split(' ')
        .filter_map(|word| word.parse::<u64>().ok());
    let exits: u64 = numbers.sum();
    println!("{}:{counts}", other.name);
    let off = format!("gear2: {TRESPASSER} turned itself off");
    ensure!(!session.transcript().contains(&off), "it is not refused");
    ensure!(
        exits >= EXITS,
        "{} left its CPU {exits} times:{counts}",
        other.name
    );
    Ok(())
}

/// Gives Gear2 a command about a VM. Keys need no device VM, which would be a neighbour itself.
fn key(session: &mut Session, vm: usize, key: char) -> Result<()> {
    session.send(&format!("{ESCAPE}{vm}{ESCAPE}{key}"))
}
