//! Gear2's part in traces, for tests: two CPUs, whose rings get the same records in each trace.

use std::sync::atomic::Ordering;

use gear1_abi::exit::ExitReason;
use gear2_protocol::{Region, op, outcome, traced};

/// Classes of syndromes.
const WAIT: u64 = 0x01;
const SVC: u64 = 0x15;
const HVC: u64 = 0x16;
const ABORT: u64 = 0x24;
const INTERRUPT: u64 = 0x3f;

/// Reasons for which vCPU 2 exits between its two notes.
pub(crate) const COUNTED: [ExitReason; 4] = [
    ExitReason::MmioGear2,
    ExitReason::Timer,
    ExitReason::Wfi,
    ExitReason::Channel,
];

/// State of the fake.
#[derive(Default)]
pub(crate) struct FakeTrace {
    on: bool,
    /// Records were written, by a trace.
    is_written: bool,
    /// A loop has not carried out the order yet.
    is_busy: bool,
}

/// Returns a record of Gear1's, of a vCPU or of Gear2.
pub(crate) fn trap(time: u64, vcpu: Option<u64>, class: u64, iss: u64) -> [u64; 2] {
    let vcpu = vcpu.map_or(0, |vcpu| vcpu + 1);
    [time, (class << 26 | iss) << 32 | vcpu]
}

/// Returns the records of CPU 0 in a trace.
pub(crate) fn traps() -> Vec<[u64; 2]> {
    let one = Some(2);
    vec![
        trap(100, one, HVC, 0),
        trap(110, None, SVC, 0),
        trap(130, one, ABORT, 0x7),
        trap(150, one, INTERRUPT, 27),
        trap(170, one, WAIT, 0),
        trap(175, None, SVC, 16),
        trap(180, None, SVC, 0),
        trap(300, None, SVC, 0),
        trap(320, one, ABORT, 0x4f),
    ]
}

fn decisions() -> Vec<[u64; 2]> {
    let event = |time, what: u32, vcpu: u64| [time, u64::from(what) << 32 | vcpu];
    vec![
        event(170, traced::BLOCKED, 3),
        event(170, traced::IDLE, 0),
        event(300, traced::WOKEN, 3),
        event(300, traced::CHOSEN, 3),
    ]
}

impl FakeTrace {
    pub(crate) fn answer(
        &mut self,
        region: &Region,
        op: u32,
        [first, second]: [u64; 2],
    ) -> (u32, [u64; 6]) {
        match (op, first) {
            (op::TRACE, 0 | 1) => self.switch(first == 1),
            (op::TRACE, 2) => (outcome::OK, [0x1000, 0x8000, 0, 3, 0, 0]),
            (op::TRACE_READ, 0 | 1 | 8 | 9) => self.read(region, first, second),
            (op::TRACE_NOTE, 2) if !self.on => {
                fill(region, &notes());
                (outcome::OK, [ExitReason::COUNT as u64, 0, 0, 0, 0, 0])
            }
            _ => (outcome::NOT_FOUND, [0; 6]),
        }
    }

    fn switch(&mut self, on: bool) -> (u32, [u64; 6]) {
        self.is_busy = self.on != on && !self.is_busy;
        if self.is_busy {
            return (outcome::BUSY, [0; 6]);
        }
        self.on = on;
        self.is_written |= on;
        (outcome::OK, [0x1000, 0x8000, 0, 3, 0, 0])
    }

    /// One record of CPU 0 is older than any trace.
    fn read(&self, region: &Region, ring: u64, cursor: u64) -> (u32, [u64; 6]) {
        let mut records = match ring {
            0 => vec![trap(7, Some(0), HVC, 0)],
            _ => vec![],
        };
        match ring {
            0 if self.is_written => records.extend(traps()),
            8 if self.is_written => records.extend(decisions()),
            _ => {}
        }
        let end = records.len() as u64 * 16;
        let first = (cursor.min(end) / 16) as usize;
        let words: Vec<u64> = records[first..].iter().flatten().copied().collect();
        fill(region, &words);
        (outcome::OK, [end, words.len() as u64 / 2, 0, 0, 0, 0])
    }
}

/// Returns the words of the notes of vCPU 2.
pub(crate) fn notes() -> Vec<u64> {
    let mut words = vec![100];
    words.extend(ExitReason::ALL.iter().map(|_| 40));
    words.push(320);
    words.extend(ExitReason::ALL.iter().map(|reason| {
        let grew = COUNTED.contains(reason);
        40 + u64::from(grew)
    }));
    words
}

fn fill(region: &Region, words: &[u64]) {
    for (to, word) in region.trace.iter().zip(words) {
        to.store(*word, Ordering::Relaxed);
    }
}
