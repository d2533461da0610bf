//! The calling thread's CPU and scheduling class.

use std::arch::asm;
use std::fs;
use std::io;
use std::mem;

/// Binds the thread to one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: a `cpu_set_t` is a bit mask, for which all zeroes is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `CPU_SET` checks the index against the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    allow(0, &set)
}

/// Allows all CPUs to all threads of the process.
pub(crate) fn free_all() -> io::Result<()> {
    // SAFETY: a `cpu_set_t` is a bit mask, for which all zeroes is a value.
    let mut all: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: `CPU_SET` checks the index against the set's size.
        unsafe { libc::CPU_SET(cpu, &mut all) };
    }
    for thread in fs::read_dir("/proc/self/task")? {
        let name = thread?.file_name();
        if let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) {
            allow(thread, &all)?;
        }
    }
    Ok(())
}

/// Binds a thread, 0 being the calling one, to CPUs.
fn allow(thread: libc::pid_t, cpus: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set lives for the call, and its size is given.
    checked(unsafe { libc::sched_setaffinity(thread, size_of_val(cpus), &raw const *cpus) })
}

/// Returns the physical counter in nanoseconds: Linux on a host has no offset.
pub(crate) fn counter_ns() -> u64 {
    let (ticks, frequency): (u64, u64);
    // SAFETY: reads two registers that Linux lets programs read.
    unsafe {
        asm!(
            "isb",
            "mrs {ticks}, cntvct_el0",
            "mrs {frequency}, cntfrq_el0",
            ticks = out(reg) ticks,
            frequency = out(reg) frequency,
            options(nomem, nostack),
        );
    }
    (u128::from(ticks) * 1_000_000_000 / u128::from(frequency)) as u64
}

/// Gives the thread SCHED_FIFO with this priority.
pub(crate) fn run_with_fifo(priority: i32) -> io::Result<()> {
    // SAFETY: a `sched_param` is integers, for which all zeroes is a value.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: names the calling thread.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: `this` is alive, and the parameters live for the call.
    let error =
        unsafe { libc::pthread_setschedparam(this, libc::SCHED_FIFO, &raw const parameters) };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Gives the thread a nice value.
pub(crate) fn run_with_nice(nice: i32) -> io::Result<()> {
    // SAFETY: takes no pointer. Linux takes 0 for the calling thread, not for its process.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })
}

/// Argument of sched_setattr, in its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Gives the thread SCHED_DEADLINE with runtime, relative deadline and period in microseconds.
pub(crate) fn run_with_deadline(times: [u64; 3]) -> io::Result<()> {
    let [runtime_ns, deadline_ns, period_ns] = times.map(|us| us * 1_000);
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns,
        deadline_ns,
        period_ns,
    };
    // SAFETY: names the calling thread; the attributes live for the call and say their size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    checked(result as libc::c_int)
}

/// Keeps all memory of the process, present and future, in RAM.
pub(crate) fn lock_memory() -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
