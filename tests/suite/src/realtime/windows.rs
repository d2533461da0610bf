//! Output of the real-time VM `tests/guests/src/bin/realtime_immune.rs`, and the limits for it.
//!
//! Each window is a line: the latencies of the timer, the interrupts of a doorbell and the
//! microseconds that they came in, the exits, the number of foreign interrupts, and the number of
//! the VM's own interrupts, of which the guest causes one. Whatever others do, exits and foreign
//! interrupts must be 0, and the minimum, the median and the 95th percentile of the latencies must
//! be as before. Times are instructions, under `icount`. The maximum is only shown: QEMU runs CPUs
//! in turns, and when its main loop breaks one off, CPU 0 may wait for the others' turns.
//!
//! The VM itself counts, because nobody else may look: a probe on its CPU would be the disturbance
//! that it looks for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;

use super::machine::Serial;

/// Windows before the others begin, and beside each of them. The median of so few is not moved by a
/// single odd one.
pub(super) const WINDOWS: usize = 6;
/// `min-interval-us` of the doorbell.
const INTERVAL_US: u64 = 500;
/// Tolerated growth of a latency, in per cent. A single exit costs more than that.
const TOLERANCE: u64 = 5;
/// Longest time of a few windows on a busy host.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A VM that stands still writes no window, and the wait ends by failure.
pub(super) fn wait_for_windows(session: &mut Session, serial: &Serial, count: usize) -> Result<()> {
    serial.wait_until(session, PATIENCE, |text| {
        windows(text).is_ok_and(|windows| windows.len() >= count)
    })
}

/// Returns how often the VM began to measure. The guest numbers windows from 0 in each life.
pub(super) fn lives(text: &str) -> usize {
    text.matches("WINDOW 0 ").count()
}

/// Waits until the VM has begun to measure `count` times, and has gone on since. The state that
/// Gear2 shows does not tell when a restart begins: a VM that is going to be stopped runs, too.
pub(super) fn wait_for_life(session: &mut Session, serial: &Serial, count: usize) -> Result<()> {
    serial.wait_until(session, PATIENCE, |text| lives(text) >= count)?;
    let begun = windows(&serial.text()?)?.len();
    wait_for_windows(session, serial, begun + WINDOWS)
}

/// A line of the VM. Latencies: minimum, median, 95th percentile, maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    least: u64,
    half: u64,
    most: u64,
    pub(crate) worst: u64,
    pub(super) rings: u64,
    /// Microseconds in which the rings came.
    us: u64,
    exits: u64,
    foreign: u64,
    own: u64,
}

/// Reads all whole lines.
pub(crate) fn windows(text: &str) -> Result<Vec<Window>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    // A line that a stop of the VM tore continues with the next one.
    let is_whole = |line: &&str| line.matches("WINDOW").count() == 1 && line.contains(" own ");
    let lines = whole.lines().filter(is_whole);
    lines.map(window).collect()
}

fn window(line: &str) -> Result<Window> {
    let value = |name| value(line, name);
    Ok(Window {
        least: value("least")?,
        half: value("half")?,
        most: value("most")?,
        worst: value("worst")?,
        rings: value("rings")?,
        us: value("in")?,
        exits: value("exits")?,
        foreign: value("foreign")?,
        own: value("own")?,
    })
}

/// Returns the number behind a name.
fn value(line: &str, name: &str) -> Result<u64> {
    let mut words = line.split(' ').skip_while(|word| *word != name);
    let word = words.nth(1);
    let word = word.with_context(|| format!("{line:?} has no {name}"))?;
    Ok(word.parse()?)
}

/// The latencies of several windows: the median of each figure. Windows are alike, and the median
/// drops one that a turn of QEMU's has cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    least: u64,
    half: u64,
    most: u64,
    worst: u64,
}

impl Latencies {
    pub(super) fn of(windows: &[Window]) -> Result<Latencies> {
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

/// Growth is judged in the three figures that repeat; the maximum is printed.
pub(super) fn judge(name: &str, before: &Latencies, during: &[Window]) -> Result<()> {
    let now = Latencies::of(during)?;
    let late = during.iter().filter(|window| window.worst > before.worst);
    let (late, all) = (late.count(), during.len());
    println!("beside {name}: {now}; {late} of {all} windows have a later one than before");
    undisturbed(during)?;
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

/// Checks what does not depend on how fast the emulator is. Exits and foreign interrupts are
/// counted by the guest, and are exact on any host.
pub(crate) fn undisturbed(during: &[Window]) -> Result<()> {
    ensure!(!during.is_empty(), "there is no window");
    let exits: u64 = during.iter().map(|window| window.exits).sum();
    ensure!(exits == 0, "it left its CPU {exits} times");
    let foreign = during.iter().map(|window| window.foreign).max();
    ensure!(foreign == Some(0), "{foreign:?} interrupts are not its own");
    let flooded = during
        .iter()
        .find(|window| window.rings > window.us / INTERVAL_US + 1);
    ensure!(
        flooded.is_none(),
        "its doorbell comes too often: {flooded:?}"
    );
    let own = during.iter().find(|window| window.own != 1);
    ensure!(own.is_none(), "its own interrupt came not once: {own:?}");
    Ok(())
}
