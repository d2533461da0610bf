//! Feeding of the board's watchdog and of a line for a microcontroller (L4): only while all layers
//! below are alive.
//!
//! One CPU with a loop, the feeder, comes here each period. The feeder probes the loop of every
//! CPU, itself included. A loop takes its probe with its next event, hence only if the CPU takes
//! interrupts, Gear1 dispatches there, and Gear2 has come back for an event. The feeder feeds if
//! every probe of the period before was taken. A feeder that hangs feeds nothing, and neither does
//! a machine that has halted.
//!
//! CPUs of real-time VMs are not probed: nothing may interrupt them.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.

use core::sync::atomic::{AtomicU32, Ordering};

use gear1_abi::id::CpuIndex;
use gear1_abi::record::RecordId;
use gear1_arch::board_watchdog::Page;
use gear1_arch::cpu;
use gear1_core::board_watchdog::Watchdog;

use crate::machine::{self, Cpu, Machine};
use crate::{kick, log};

/// CPUs that have a loop, a bit each.
static PROBED: AtomicU32 = AtomicU32::new(0);
/// CPUs that kept the feeder from feeding the last time, a bit each.
static LATE: AtomicU32 = AtomicU32::new(0);

fn bit(cpu: CpuIndex) -> u32 {
    1_u32.wrapping_shl(cpu.index() as u32)
}

/// Lets nothing be fed from now on unless the loop of this CPU takes its probes.
pub(crate) fn watch(cpu: CpuIndex) {
    PROBED.fetch_or(bit(cpu), Ordering::SeqCst);
}

/// Starts what the board has. Returns the time of the first feeding, if there is anything to feed.
pub(crate) fn start(machine: &Machine) -> Option<u64> {
    let is_any = for_each(machine, |watchdog, page, timeout_ms| {
        watchdog.start(page, timeout_ms);
    });
    is_any.then(|| next(machine))
}

/// Feeds what the board has, if all loops have taken their probes, and probes them again. Returns
/// the time of the next feeding.
pub(crate) fn feed(cpu: &Cpu, machine: &Machine) -> u64 {
    let late = late(machine);
    // planted: the board's watchdog is fed whatever CPUs do
    if late == 0 {
        for_each(machine, |watchdog, page, timeout_ms| {
            watchdog.feed(page, timeout_ms);
        });
    }
    // One record for one cause: the feeder comes again and again.
    if LATE.swap(late, Ordering::SeqCst) != late && late != 0 {
        log::log(cpu.index(), RecordId::NotFed, [u64::from(late), 0, 0]);
    }
    for_each_loop(machine, |other| {
        machine::cpu_shared(other).probe();
        kick::kick_cpu(cpu, machine, other);
    });
    next(machine)
}

fn next(machine: &Machine) -> u64 {
    cpu::now().wrapping_add(machine.boot.feed_period)
}

/// Returns the CPUs whose loops have yet to take a probe, a bit each.
fn late(machine: &Machine) -> u32 {
    let mut late = 0;
    for_each_loop(machine, |cpu| {
        if machine::cpu_shared(cpu).is_probed() {
            late |= bit(cpu);
        }
    });
    late
}

/// Calls `act` for each CPU with a loop.
fn for_each_loop(machine: &Machine, mut act: impl FnMut(CpuIndex)) {
    let probed = PROBED.load(Ordering::SeqCst);
    // Bound: MAX_CPUS (8).
    for number in 0..machine.boot.cpu_count as usize {
        if let Some(cpu) = CpuIndex::new(number)
            && probed & bit(cpu) != 0
        {
            act(cpu);
        }
    }
}

/// Calls `act` for each device of the hand-over, and tells whether there is one.
fn for_each(machine: &Machine, act: impl Fn(Watchdog, &Page, u32)) -> bool {
    let mut is_any = false;
    // Bound: MAX_WATCHDOGS (2).
    for (number, boot) in machine.boot.watchdogs.iter().enumerate() {
        if let Some(watchdog) = Watchdog::of(boot.kind, boot.parameter)
            && let Some(page) = Page::of(machine.handover, number)
        {
            act(watchdog, &page, boot.timeout_ms);
            is_any = true;
        }
    }
    is_any
}
