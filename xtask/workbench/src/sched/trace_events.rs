//! The time line in the Trace Event format, which Perfetto and chrome://tracing open.
//!
//! Process 1 has a thread for each CPU, which shows what runs there. Process 2 has a thread for
//! each vCPU, which shows its runs, its wake-ups and how long it waits after each.
//!
//! The same format is that of `gearctl trace`, so that a simulation and a recording are looked at
//! with one tool.

use serde_json::{Value, json};

use super::Simulated;
use super::figures::us;

/// The format groups lanes by process numbers; these are invented.
const CPUS: u32 = 1;
/// Lanes by vCPU, where a reader follows one guest.
const VCPUS: u32 = 2;

/// Returns the document.
pub fn document(simulated: &[Simulated]) -> Value {
    let mut events = vec![
        metadata("process_name", CPUS, 0, "CPUs"),
        metadata("process_name", VCPUS, 0, "vCPUs"),
    ];
    let mut thread = 0;
    for cpu in simulated {
        let name = format!("CPU {} ({})", cpu.cpu, cpu.policy);
        events.push(metadata("thread_name", CPUS, cpu.cpu, &name));
        for (task, lane) in cpu.lanes.iter().enumerate() {
            events.push(metadata("thread_name", VCPUS, thread, &lane.name));
            events.extend(of_vcpu(cpu, task, thread));
            thread += 1;
        }
        events.extend(cpu.virtual_cpu.stretches.iter().map(|stretch| {
            let name = &cpu.lanes[stretch.task].name;
            complete(name, "run", CPUS, cpu.cpu, (stretch.start, stretch.end))
        }));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

/// Returns the runs, waits and wake-ups of a vCPU. A wait is shown beside the run that ends it,
/// because that is the latency a reader looks for.
fn of_vcpu(cpu: &Simulated, task: usize, thread: usize) -> Vec<Value> {
    let stretches = cpu.virtual_cpu.stretches.iter();
    let runs = stretches.filter(|stretch| stretch.task == task);
    let mut events: Vec<_> = runs
        .map(|run| complete("run", "run", VCPUS, thread, (run.start, run.end)))
        .collect();
    for (start, latency) in &cpu.virtual_cpu.tasks[task].wakes {
        events.push(json!({
            "name": "wake-up", "cat": "wake", "ph": "i", "s": "t",
            "ts": us(*start), "pid": VCPUS, "tid": thread,
        }));
        if *latency > 0 {
            let end = start + latency;
            events.push(complete("wait", "wait", VCPUS, thread, (*start, end)));
        }
    }
    events
}

/// Returns an event with a beginning and a length, in microseconds.
fn complete(name: &str, kind: &str, pid: u32, tid: usize, (start, end): (u64, u64)) -> Value {
    json!({
        "name": name, "cat": kind, "ph": "X",
        "ts": us(start), "dur": us(end - start), "pid": pid, "tid": tid,
    })
}

/// Names of processes and threads are events of their own (Trace Event Format, "Metadata").
fn metadata(what: &str, pid: u32, tid: usize, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
}
