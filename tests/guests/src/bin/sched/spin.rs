//! The role that works without a pause, on each CPU of the VM.
//!
//! A spinner measures by reads of the counter between pieces of work. A long time between two reads
//! means that another vCPU ran; the work done is counted by pieces, and does not depend on what the
//! counter says.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use test_guests::{MAX_CPUS, Machine, cpu, psci, report, say, timer};

use crate::{Plan, set_up_cpu, wait, work};

/// Work between two reads of the counter, in instructions: the resolution of gaps and runs. Less
/// would measure the counter's own reads.
const UNIT: u64 = 1_000;
/// A longer time between two reads is a gap: longer than the way of an interrupt through a host's
/// kernel, shorter than any turn of another vCPU. QEMU's or a host's own pauses would otherwise end
/// runs.
const GAP_US: u64 = 50;
/// Most runs whose times are kept. Runs beyond these are counted and not traced. The records are
/// static: the guest has no heap.
const TRACED: usize = 64;

/// Work of a CPU, in ticks of the virtual counter. Each CPU writes its own record, and CPU 0 prints
/// all of them after the end.
struct Record {
    /// Set last: a record that is not done is a failure, and no zero.
    done: AtomicBool,
    units: AtomicU64,
    longest_gap: AtomicU64,
    longest_run: AtomicU64,
    gaps: AtomicU64,
    /// Begin and end of the first runs, behind the start.
    runs: [[AtomicU64; 2]; TRACED],
}

static RECORDS: [Record; MAX_CPUS] = [const {
    Record {
        done: AtomicBool::new(false),
        units: AtomicU64::new(0),
        longest_gap: AtomicU64::new(0),
        longest_run: AtomicU64::new(0),
        gaps: AtomicU64::new(0),
        runs: [const { [const { AtomicU64::new(0) }; 2] }; TRACED],
    }
}; MAX_CPUS];

/// The plan, for the other CPUs: start, end, unit and gap. The command line is read on CPU 0 alone.
/// Stored before CPU_ON, which orders the stores before the other CPU's first load.
static PLAN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Turns the other CPUs on, spins beside them and reports for all. The report waits for a time at
/// which all guests have ended: a console's exits would take time from those that still measure.
pub(crate) fn boot_cpu(machine: &Machine, plan: &Plan) {
    let unit = machine.option("unit").unwrap_or(UNIT);
    let gap = timer::from_us(machine.option("gap-us").unwrap_or(GAP_US));
    for (place, value) in PLAN.iter().zip([plan.start, plan.end, unit, gap]) {
        place.store(value, Ordering::Release);
    }
    for index in 1..machine.cpus {
        let result = psci::cpu_on(index);
        if result != psci::result::SUCCESS {
            report::fail("spin", format_args!("CPU_ON of {index} returns {result}"));
        }
    }
    if !plan.sleep_until_start() {
        return;
    }
    run(&RECORDS[0]);
    plan.sleep_until_report();
    let traced = machine.option("trace") == Some(1);
    for (index, record) in RECORDS.iter().enumerate().take(machine.cpus) {
        print(plan, unit, index, record);
        if traced {
            print_runs(plan, index, record);
        }
    }
}

/// Spins on a CPU that was turned on. Work that begins late would look like a scheduler's
/// unfairness.
pub(crate) fn other_cpu(index: usize) {
    set_up_cpu();
    let start = PLAN[0].load(Ordering::Acquire);
    // A CPU that is late for the start reports no work.
    if timer::now() < start {
        wait::until(start);
        run(&RECORDS[index]);
    }
    cpu::halt()
}

/// Works until the end, and records the gaps. Local variables keep stores to memory out of the
/// work.
fn run(record: &Record) {
    let [start, end, unit, gap] = PLAN.each_ref().map(|place| place.load(Ordering::Acquire));
    let (mut units, mut gaps, mut longest_gap, mut longest_run) = (0, 0, 0, 0);
    let mut begin = timer::now();
    let mut last = begin;
    loop {
        work(unit);
        let now = timer::now();
        let pause = now - last;
        // The last run ends with the measurement and not with a gap, and is a run all the same.
        let ends = now >= end;
        if pause > gap || ends {
            longest_run = (last - begin).max(longest_run);
            if let Some([from, to]) = record.runs.get(gaps) {
                from.store(begin - start, Ordering::Relaxed);
                to.store(last - start, Ordering::Relaxed);
            }
            gaps += 1;
            begin = now;
        }
        if ends {
            break;
        }
        if pause > gap {
            longest_gap = pause.max(longest_gap);
        }
        units += 1;
        last = now;
    }
    record.units.store(units, Ordering::Relaxed);
    record.gaps.store(gaps as u64 - 1, Ordering::Relaxed);
    record.longest_gap.store(longest_gap, Ordering::Relaxed);
    record.longest_run.store(longest_run, Ordering::Relaxed);
    record.done.store(true, Ordering::Release);
}

/// Prints the report of a CPU. The line is that of `tests/measure/src/bench/sched/guest.rs`. `gaps`
/// counts what others took; a run that is longer than a time slice tells that nobody else was
/// ready.
fn print(plan: &Plan, unit: u64, index: usize, record: &Record) {
    let id = plan.id;
    if !record.done.load(Ordering::Acquire) {
        return report::fail("spin", format_args!("CPU {index} has not ended"));
    }
    let units = record.units.load(Ordering::Relaxed);
    let gaps = record.gaps.load(Ordering::Relaxed);
    let [gap, run] = [&record.longest_gap, &record.longest_run]
        .map(|ticks| timer::to_ns(ticks.load(Ordering::Relaxed)));
    say!(
        "SCHED role=spin id={id} cpu={index} unit={unit} units={units} gaps={gaps} gap_max={gap} run_max={run}"
    );
}

/// Prints when the first runs began and ended, behind the start. The number of runs is one more
/// than that of gaps.
fn print_runs(plan: &Plan, index: usize, record: &Record) {
    let id = plan.id;
    let ended = record.gaps.load(Ordering::Relaxed) as usize + 1;
    for [from, to] in record.runs.iter().take(ended) {
        let [from, to] = [from, to].map(|at| timer::to_ns(at.load(Ordering::Relaxed)));
        say!("TRACE id={id} cpu={index} from={from} to={to}");
    }
}
