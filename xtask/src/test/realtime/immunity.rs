//! What others do to a real-time VM: nothing.
//!
//! The VM (`tests/guests/src/bin/realtime_immune.rs`) prints for each window how late its timer was,
//! its exits, and how many interrupts it got that are not its own. The first windows pass before any
//! other VM runs: in all later ones exits and foreign interrupts must be 0, and least, half and 95 %
//! of the latencies as they were. Times are instructions, under `icount`; the worst is only shown: QEMU runs
//! CPUs in turns, and when its main loop breaks one off, CPU 0 may wait for the others' turns.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Serial, TIMEOUT, images};
use crate::build_images::{Images, last_words};
use crate::expect::Session;
use crate::qemu::{Machine, Qemu};
use crate::run;
use crate::smoke::{self, ESCAPE, Extent};
use crate::test::{Part, Tally};
use crate::workspace;

/// Windows before the others begin, and beside each of them.
const WINDOWS: usize = 6;
/// How much later than before a latency may be, in per cent.
const TOLERANCE: u64 = 5;
/// How often who disturbs leaves its CPU at least.
const EXITS: u64 = 3;
/// How long so many windows may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

/// A VM that disturbs: its number in the manifest, and what it says when it is at work.
struct Other {
    vm: usize,
    name: &'static str,
    works: &'static str,
}

const OTHERS: [Other; 5] = [
    Other {
        vm: 1,
        name: "foe",
        works: "",
    },
    Other {
        vm: 2,
        name: "attacker",
        works: "ATTACKS 4000",
    },
    Other {
        vm: 3,
        name: "storm",
        works: "TAKEN 1",
    },
    Other {
        vm: 4,
        name: "resets",
        works: "gear2: resets resets itself",
    },
    Other {
        vm: 5,
        name: "saboteur",
        works: "gear2: restarted, 1 in all",
    },
];

pub(super) fn parts() -> Vec<Part> {
    let part = |gic: u32| {
        let name = format!("real-time VM is immune with GICv{gic}");
        Part::new(name, move |tally| immunity(gic, tally)).slow(gic == 2)
    };
    let halt = Part::new("Gear2's ninth failure halts", ninth_failure);
    let linux = Part::new("real-time VM is immune beside Linux", beside_linux).slow(true);
    vec![halt, part(3), part(2), linux]
}

/// The device VM boots, its guest's disk and network are busy, GDM is killed and kept away, and both VMs
/// restart; before, `gearctl` stops and starts the real-time VM itself.
fn beside_linux(tally: &mut Tally) -> Result<()> {
    let images = images("rt-linux", None)?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        icount: true,
        ..run::machine_for(&images)?
    };
    let report = |line: &str| println!("{line}");
    let (qemu, log) = (Qemu::prepare(10)?, "rt-linux/console.log");
    let checks = smoke::check_all(&qemu, &machine, &images, log, Extent::BRIEF, &report)?;
    tally.pass(checks);
    let file = machine.second_serial.context("the VM owns a UART")?;
    let all = windows(&Serial { file }.text()?)?;
    let (before, during) = all.split_at_checked(WINDOWS).context("no windows")?;
    let before = Latencies::of(&before[1..])?;
    tally.check("beside Linux", judge("Linux", &before, during));
    Ok(())
}

/// G1-SUP-003: after eight restarts Gear1 halts; the real-time VM runs on as before.
fn ninth_failure(tally: &mut Tally) -> Result<()> {
    let directory = workspace::output_dir().join("gear2-halts");
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        icount: true,
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let images = images("gear2-halts", None)?;
    let mut session = images.start(
        &Qemu::prepare(10)?,
        &machine,
        &directory.join("console.log"),
    )?;
    session.give_up_on(&[]);
    for text in [
        "gear2: restarted, 8 in all",
        "gear1: HALT: fault in Gear2",
        "gear2-restarts=0x0000000000000008",
        "gear1: machine stopped",
    ] {
        let found = session.expect(text, TIMEOUT).map(drop);
        tally.check(
            text,
            found.map_err(|error| anyhow!("{error:#}\n{}", session.tail(20))),
        );
    }
    let first = windows(&serial.text()?)?.len() + 1;
    wait_for_windows(&mut session, &serial, first + WINDOWS)?;
    let all = windows(&serial.text()?)?;
    let (before, after) = all.split_at(first);
    let before = Latencies::of(before)?;
    tally.check("it runs on", judge("a halt", &before, after));
    Ok(())
}

fn immunity(gic: u32, tally: &mut Tally) -> Result<()> {
    attack(&images("rt-immune", None)?, gic, &[], tally)
}

/// Has the others named, or all, disturb the VM, one after the other, and judges each.
pub(super) fn attack(images: &Images, gic: u32, only: &[&str], tally: &mut Tally) -> Result<()> {
    let directory = workspace::output_dir().join(format!("rt-immune/gicv{gic}"));
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        cpus: 4,
        gic,
        icount: true,
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let qemu = Qemu::prepare(10)?;
    let mut session = images.start(&qemu, &machine, &directory.join("console.log"))?;
    attacks(&mut session, &serial, only, tally)
        .map_err(|error| anyhow!("{error:#}\n{}", last_words(&session)))
}

fn attacks(session: &mut Session, serial: &Serial, only: &[&str], tally: &mut Tally) -> Result<()> {
    wait_for_windows(session, serial, 1 + WINDOWS)?;
    // Nothing is running yet but Gear2, idle; the first window has the caches' and tables' first uses.
    let alone = windows(&serial.text()?)?;
    let before = Latencies::of(&alone[1..])?;
    tally.check("alone", judge("nobody", &before, &alone[1..]));
    let is_wanted = |other: &&Other| only.is_empty() || only.contains(&other.name);
    for other in OTHERS.iter().filter(is_wanted) {
        let first = windows(&serial.text()?)?.len() + 1;
        key(session, other.vm, 't')?;
        session.expect(&format!("gear2: {} ", other.name), TIMEOUT)?;
        if !other.works.is_empty() {
            session.expect(other.works, PATIENCE)?;
        }
        // What happened just now shows in the windows to come.
        let seen = windows(&serial.text()?)?.len();
        wait_for_windows(session, serial, seen + WINDOWS)?;
        let during = windows(&serial.text()?)?;
        let during = during.get(first..).context("windows are missing")?;
        tally.check(other.name, judge(other.name, &before, during));
        if other.name != "saboteur" {
            tally.check("it is at work", is_at_work(session, other));
            key(session, other.vm, 's')?;
            session.expect(&format!("gear2: {} stopped", other.name), TIMEOUT)?;
        }
    }
    Ok(())
}

/// Checks that a VM has left its CPU often, as whoever attacks does.
fn is_at_work(session: &mut Session, other: &Other) -> Result<()> {
    key(session, other.vm, 'p')?;
    session.expect(&format!("gear2: {} vCPU 0:", other.name), TIMEOUT)?;
    let counts = session.expect("\n", TIMEOUT)?;
    let numbers = counts
        .split(' ')
        .filter_map(|word| word.parse::<u64>().ok());
    let exits: u64 = numbers.sum();
    println!("{}:{counts}", other.name);
    ensure!(
        exits >= EXITS,
        "{} left its CPU {exits} times:{counts}",
        other.name
    );
    Ok(())
}

/// Gives Gear2 a command about a VM.
fn key(session: &mut Session, vm: usize, key: char) -> Result<()> {
    session.send(&format!("{ESCAPE}{vm}{ESCAPE}{key}"))
}

fn wait_for_windows(session: &mut Session, serial: &Serial, count: usize) -> Result<()> {
    serial.wait_until(session, PATIENCE, |text| {
        windows(text).is_ok_and(|windows| windows.len() >= count)
    })
}

/// One line of the VM's.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    least: u64,
    half: u64,
    most: u64,
    worst: u64,
    exits: u64,
    foreign: u64,
}

/// Reads all whole lines.
fn windows(text: &str) -> Result<Vec<Window>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    // One that a stop of the VM tore goes on with the next one.
    let is_whole = |line: &&str| line.matches("WINDOW").count() == 1 && line.contains("foreign");
    let lines = whole.lines().filter(is_whole);
    lines.map(window).collect()
}

fn window(line: &str) -> Result<Window> {
    let words: Vec<&str> = line.split(' ').collect();
    let value = |name: &str| -> Result<u64> {
        let at = words.iter().position(|word| *word == name);
        let word = at.and_then(|at| words.get(at + 1));
        Ok(word
            .with_context(|| format!("{line:?} has no {name}"))?
            .parse()?)
    };
    Ok(Window {
        least: value("least")?,
        half: value("half")?,
        most: value("most")?,
        worst: value("worst")?,
        exits: value("exits")?,
        foreign: value("foreign")?,
    })
}

/// The latencies of several windows: the median of each figure.
#[derive(Clone, Copy, Debug)]
struct Latencies {
    least: u64,
    half: u64,
    most: u64,
    worst: u64,
}

impl Latencies {
    fn of(windows: &[Window]) -> Result<Latencies> {
        ensure!(!windows.is_empty(), "there is no window");
        let median = |of: fn(&Window) -> u64| {
            let mut values: Vec<u64> = windows.iter().map(of).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        Ok(Latencies {
            least: median(|window| window.least),
            half: median(|window| window.half),
            most: median(|window| window.most),
            worst: windows.iter().map(|window| window.worst).max().unwrap_or(0),
        })
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Latencies {
            least,
            half,
            most,
            worst,
        } = self;
        write!(
            f,
            "latency least {least}, half {half}, 95 % {most}, worst {worst} instructions"
        )
    }
}

fn judge(name: &str, before: &Latencies, during: &[Window]) -> Result<()> {
    let now = Latencies::of(during)?;
    println!("beside {name}: {now}, {} windows", during.len());
    let exits: u64 = during.iter().map(|window| window.exits).sum();
    ensure!(exits == 0, "it left its CPU {exits} times");
    let foreign = during.iter().map(|window| window.foreign).max();
    ensure!(foreign == Some(0), "{foreign:?} interrupts are not its own");
    for (what, then, now) in [
        ("least", before.least, now.least),
        ("half", before.half, now.half),
        ("95 %", before.most, now.most),
    ] {
        let limit = then + then * TOLERANCE / 100;
        ensure!(
            now <= limit,
            "{what} of the latencies: {now}, and {then} before"
        );
    }
    Ok(())
}
