//! Changes code for its other CPUs and invalidates the instruction caches of all by IC IALLUIS,
//! which Gear1 carries out beside a real-time VM. On a CPU with FEAT_EVT.
//!
//! QEMU has no instruction cache that could be stale, so exits show that each instruction trapped,
//! and that the siblings that ran were asked before it was complete.
//!
//! Requirements: G1-CPU-011, G1-RT-010.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gear1_abi::exit::ExitReason;
use test_guests::psci::{affinity, affinity_info, cpu_on, result::SUCCESS};
use test_guests::report::equal;
use test_guests::stats::exits;
use test_guests::{Machine, check, cpu, gic, guest, read_sysreg, timer, write_sysreg};

guest!(main, irq = on_interrupt, other_cpu = other);

/// Changes of the code in a row. Each change is a race with the CPU that executes.
const CHANGES: u64 = 100;
/// Interrupts that the last test takes at most until some have come between two tries. An interrupt
/// hits the gap between two tries by chance only: many may be needed.
const INTERRUPTS: u64 = 2_000;
const BETWEEN: u64 = 3;
/// SGI that ends a wait.
const WAKE: u32 = 3;
/// `MOVZ X0, #0` and `RET`: the code that changes, in the immediate value. The immediate value is
/// in bits 20:5. One instruction is replaced by one store of 32 bits, so no CPU executes half of a
/// change.
const MOVZ: u32 = 0xd280_0000;
const RET: u32 = 0xd65f_03c0;

/// Tasks of a CPU.
mod task {
    /// Waits for another task.
    pub(super) const NONE: u64 = 0;
    /// Executes the code that others change.
    pub(super) const EXECUTE: u64 = 1;
    /// Changes code of its own, and executes.
    pub(super) const CHANGE: u64 = 2;
    /// Waits for the SGI.
    pub(super) const WAIT: u64 = 3;
    /// Turns the CPU off.
    pub(super) const OFF: u64 = 4;
}

/// Code that changes, and what it returns at least. One cache line: DC CVAU by one address cleans
/// both words.
#[repr(C, align(64))]
struct Code {
    words: [AtomicU32; 2],
    published: AtomicU64,
}

struct Other {
    task: AtomicU64,
    /// Task that it is at. CPU 0 waits for it: a task that has not begun asks nothing of Gear1.
    state: AtomicU64,
    executed: AtomicU64,
    /// Exits by kicks in the last task. EXIT_STATS answers with the calling vCPU's own counts, so
    /// each CPU reads its own.
    kicks: AtomicU64,
    woken: AtomicU64,
}

static CODE: [Code; 3] = [const {
    Code {
        words: [AtomicU32::new(MOVZ), AtomicU32::new(RET)],
        published: AtomicU64::new(0),
    }
}; 3];
static OTHERS: [Other; 3] = [const {
    Other {
        task: AtomicU64::new(task::NONE),
        state: AtomicU64::new(task::NONE),
        executed: AtomicU64::new(0),
        kicks: AtomicU64::new(0),
        woken: AtomicU64::new(0),
    }
}; 3];
/// Executions that returned an older value than was published. Gear1 has the guest go on only when
/// no vCPU executes what its CPU cached before (G1-CPU-011).
static STALE: AtomicU64 = AtomicU64::new(0);
/// Interrupts that were taken, and those of them at the instruction itself.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// ELR_EL1 at the instruction means that Gear1 had the guest execute it again, and the interrupt
/// came before the next try.
static AT_IC: AtomicU64 = AtomicU64::new(0);

// A label of its own lets the handler tell whether ELR_EL1 is at the instruction. DSB waits for the
// completion on all CPUs, and ISB discards what this CPU has fetched ahead.
global_asm!(
    ".global ic_ialluis",
    "ic_ialluis:",
    "ic ialluis",
    "dsb ish",
    "isb",
    "ret"
);

unsafe extern "C" {
    safe fn ic_ialluis();
}

fn main(machine: &Machine) {
    equal("cpus", machine.cpus, 4);
    gic::enable(WAKE);
    by_itself();
    equal("cpu-on", [cpu_on(1), cpu_on(2)], [SUCCESS; 2]);
    beside_one_that_executes();
    three_at_once();
    beside_one_that_waits();
    beside_one_that_is_off();
    interrupted();
    equal("stale", STALE.load(Ordering::Acquire), 0);
}

/// With all others off; ELR_EL1, which Gear1 uses between two tries, stays. One trap: a vCPU that
/// is off does not count as one to wait for. Gear1 keeps a mark in ELR_EL1 from one try to the
/// next, since each exception overwrites that register.
fn by_itself() {
    const ELR: u64 = 0xffff_0000_1234_5678;
    write_sysreg!("elr_el1", ELR);
    equal("by-itself", traps(|| change(0)), 1);
    equal("elr", read_sysreg!("elr_el1"), ELR);
}

/// Each instruction is complete only when the CPU that executes the code has been kicked. The
/// sibling answers by an exit, and the instruction traps again until it has: nobody waits at EL2.
fn beside_one_that_executes() {
    const ELR: u64 = 0xffff_0000_8765_4320;
    begin(1, task::EXECUTE);
    write_sysreg!("elr_el1", ELR);
    let traps = traps(|| changes(0));
    equal("elr-beside", read_sysreg!("elr_el1"), ELR);
    let kicks = end(1);
    check!("repeats", traps > CHANGES, "{traps} traps");
    // A deadline of Gear2's may come before a kick.
    check!("asks", kicks >= CHANGES / 2, "{kicks} kicks");
}

/// Two CPUs change code of their own, and all execute all of it. CPU 2 shares a CPU with CPU 0.
/// CPU 2 is not running while CPU 0 asks, so its CPU invalidates before it enters the vCPU the
/// next time.
fn three_at_once() {
    begin(1, task::CHANGE);
    begin(2, task::EXECUTE);
    changes(0);
    _ = end(1);
    _ = end(2);
    let published = CODE[1].published.load(Ordering::Acquire);
    check!("both-change", published >= CHANGES, "{published} changes");
}

/// A CPU that waits is not woken: another vCPU is on it, so that WFI traps. A vCPU that does not
/// run has served every request: its CPU looks before the vCPU's next instruction. One trap a
/// change shows that nobody waited for it.
fn beside_one_that_waits() {
    begin(1, task::WAIT);
    timer::delay_us(100);
    equal("beside-waiting", traps(|| changes(0)), CHANGES);
    let woken = OTHERS[1].woken.load(Ordering::Acquire);
    equal("not-woken", woken, 0);
    OTHERS[1].task.store(task::EXECUTE, Ordering::Release);
    gic::send_sgi_to(1 << 1, WAKE);
    begin(1, task::EXECUTE);
    _ = end(1);
}

/// CPUs that are off hold nothing up, and execute what is new when they are on. CPU_ON keeps the
/// request to a vCPU that was off: the instruction cache is not emptied by the start.
fn beside_one_that_is_off() {
    for other in [1, 2] {
        OTHERS[other].task.store(task::OFF, Ordering::Release);
        cpu::wait_until(|| affinity_info(other) == affinity::OFF);
    }
    equal("beside-off", traps(|| changes(0)), CHANGES);
    equal("on-again", cpu_on(1), SUCCESS);
    begin(1, task::EXECUTE);
    _ = end(1);
}

/// A handler changes code itself, also between two tries of the instruction that it interrupts. The
/// handler's instruction asks for more than the interrupted one. A Gear1 that took it for a
/// repetition would let the handler go on before the siblings know of its change.
fn interrupted() {
    begin(1, task::EXECUTE);
    gic::enable(timer::INTID);
    timer::arm(timer::now());
    cpu::unmask_irqs();
    while TAKEN.load(Ordering::Relaxed) < INTERRUPTS && AT_IC.load(Ordering::Relaxed) < BETWEEN {
        change(0);
    }
    cpu::mask_irqs();
    timer::disarm();
    _ = end(1);
    let taken = TAKEN.load(Ordering::Relaxed);
    let at_ic = AT_IC.load(Ordering::Relaxed);
    check!("interrupted", at_ic >= BETWEEN, "{at_ic} of {taken}");
}

fn on_interrupt(intid: u32) {
    if intid != timer::INTID {
        return;
    }
    let place = ic_ialluis as extern "C" fn();
    let at_ic = read_sysreg!("elr_el1") == place as usize as u64;
    AT_IC.fetch_add(at_ic.into(), Ordering::Relaxed);
    change(2);
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
    // About 2.5 us, with a little that changes.
    let period = timer::from_us(5) / 2;
    timer::arm(timer::now() + period + period * (taken % 8) / 16);
}

/// Returns how many system registers trap in `body`. IC IALLUIS is the only instruction in `body`
/// that traps as a System register access, by HCR_EL2.TICAB.
fn traps(body: impl FnOnce()) -> u64 {
    let before = exits(ExitReason::Sysreg);
    body();
    exits(ExitReason::Sysreg) - before
}

fn changes(which: usize) {
    (0..CHANGES).for_each(|_| change(which));
}

/// Changes code so that it returns the next value, and then says so. The order is the
/// architecture's for code that other CPUs execute: store, DC CVAU, DSB, IC, DSB, ISB. The number
/// is published last, as a promise of what is executed from then on.
fn change(which: usize) {
    let Code { words, published } = &CODE[which];
    let value = published.load(Ordering::Acquire) + 1;
    words[0].store(MOVZ | (value as u32) << 5, Ordering::Relaxed);
    // SAFETY: cleaning loses nothing.
    unsafe { asm!("dc cvau, {}", "dsb ish", in(reg) words, options(nostack)) };
    ic_ialluis();
    published.store(value, Ordering::Release);
}

/// Executes all code once. ISB discards instructions that this CPU fetched before it read the
/// promise.
fn execute() {
    for code in &CODE {
        let least = code.published.load(Ordering::Acquire);
        cpu::isb();
        let value: u64;
        // SAFETY: the words set X0 and return.
        unsafe {
            asm!("blr {}", in(reg) ptr::from_ref(code), out("x0") value, out("x30") _);
        }
        // A value that is published later may be there already.
        STALE.fetch_add((value < least).into(), Ordering::Relaxed);
    }
}

/// Gives another CPU a task, and waits until it is at work.
fn begin(which: usize, task: u64) {
    let other = &OTHERS[which];
    other.task.store(task, Ordering::Release);
    cpu::wait_until(|| other.state.load(Ordering::Acquire) == task);
}

/// Lets another CPU end its task, and returns its exits by kicks meanwhile. An execution may have
/// begun before the last change.
fn end(which: usize) -> u64 {
    let executed = OTHERS[which].executed.load(Ordering::Acquire);
    // Twice, so that the last change is executed as well.
    cpu::wait_until(|| OTHERS[which].executed.load(Ordering::Acquire) > executed + 1);
    begin(which, task::NONE);
    OTHERS[which].kicks.load(Ordering::Acquire)
}

/// Runs the tasks of another CPU; it is off when this returns.
fn other(index: usize) {
    let own = &OTHERS[index];
    gic::enable(WAKE);
    let (mut changed, mut before) = (0, 0);
    loop {
        let task = own.task.load(Ordering::Acquire);
        if own.state.load(Ordering::Relaxed) != task {
            let kicks = exits(ExitReason::Kick);
            own.kicks.store(kicks - before, Ordering::Relaxed);
            before = kicks;
            own.state.store(task, Ordering::Release);
        }
        match task {
            task::EXECUTE => execute(),
            task::CHANGE if changed < CHANGES => {
                change(index);
                execute();
                changed += 1;
            }
            task::WAIT => {
                cpu::wfi();
                own.woken.fetch_add(1, Ordering::Release);
                let acknowledged = gic::acknowledge();
                if gic::is_real(acknowledged) {
                    gic::end(acknowledged);
                }
            }
            task::OFF => return,
            _ => {}
        }
        let is_done = task != task::CHANGE || changed == CHANGES;
        own.executed.fetch_add(is_done.into(), Ordering::Release);
        cpu::relax();
    }
}
