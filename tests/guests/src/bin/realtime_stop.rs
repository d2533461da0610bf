//! A real-time VM that is stopped and started in every state: the number of the start, which the
//! VM's UART keeps, selects the state.
//!
//! Requirements: G1-RT-005, G1-RT-006, G1-RT-009, G1-FLT-005.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use test_guests::exception::{catch, ignore};
use test_guests::mmio::{read32, read64, write32, write64};
use test_guests::{Machine, boot, check, cpu, gic, guest, psci, say, uart, write_sysreg};

guest!(main, irq = ignore, other_cpu = other);

/// PL011: fractional divisor, which a restart of the VM does not touch. The VM's memory is wiped at
/// each start, so a device that the VM owns is the only place to count.
const FBRD: u64 = 0x28;
/// Nobody's, in every machine of the tests. An access of a real-time VM's is never forwarded to
/// Gear2.
const NOWHERE: u64 = 0xf000_0000;
/// Into the memory that nothing of the image lies in. The next life finds zeros there, or memory
/// has outlived its VM.
const BEHIND_IMAGE: u64 = 8 << 20;

const SGI: u32 = 7;

/// Way in which both CPUs wait: 0 spin, else WFI. A stop has to reach a CPU that never traps: Gear1
/// takes the VM's stage 2 away (G1-RT-005).
static WAIT: AtomicU32 = AtomicU32::new(0);
static OTHER_IS_UP: AtomicBool = AtomicBool::new(false);

/// Faults and resets make Gear1 start the VM by itself; in the other states the VM is stopped from
/// outside once it has said `ready`.
fn main(machine: &Machine) {
    let start = read32(uart::base() + FBRD);
    write32(uart::base() + FBRD, start + 1);
    say!("start {start}");
    let old = read64(machine.ram.start + BEHIND_IMAGE);
    check!("wiped", old == 0, "{old:#x}");
    check_registers();
    write64(machine.ram.start + BEHIND_IMAGE, u64::MAX);
    match start {
        // The loop never traps, and no interrupt reaches the CPUs.
        0 | 6 => both(0, start),
        1 => both(1, start),
        2 => {
            be_interrupted();
            stay(0, start);
        }
        3 => {
            aborts();
            say!("faults");
            write_sysreg!("vbar_el1", NOWHERE);
            read32(NOWHERE);
        }
        4 => psci::system_reset(),
        5 => psci::system_off(),
        _ => {
            gic::set_delivery(false);
            stay(1, start);
        }
    }
}

/// Makes two accesses to unowned addresses, which Gear1 logs: one that its syndrome describes, and
/// one that it does not (G1-FLT-005). Records go to the log of the VM's own CPU, and no lock is
/// taken for them.
fn aborts() {
    let decoded = catch(|| {
        read32(NOWHERE + 0x100);
    });
    let pair = catch(|| {
        // SAFETY: it aborts, and is skipped.
        unsafe {
            asm!("ldp x4, x5, [{}]", in(reg) NOWHERE + 0x200, out("x4") _, out("x5") _, options(nostack));
        }
    });
    check!("aborts", decoded.is_some() && pair.is_some(), "none came");
}

/// Takes an interrupt without ending it, at a priority that masks all others: the CPU must notice
/// its next start all the same. The CPU interface belongs to the guest, and Gear1 finds it in this
/// state at the next start: active priorities and mask must be reset (G1-RT-005).
fn be_interrupted() {
    gic::set_priority(SGI, 0);
    gic::enable(SGI);
    gic::send_sgi(0, SGI);
    cpu::wait_until(|| gic::is_real(gic::acknowledge()));
    let active = gic::read_bit(gic::register::ISACTIVER, SGI);
    check!("interrupted", active, "it is not active");
    gic::set_mask(0);
    gic::set_delivery(false);
}

/// Both CPUs must leave: a VM of which one CPU goes on has not stopped.
fn both(wait: u32, start: u32) {
    WAIT.store(wait, Relaxed);
    psci::cpu_on(1);
    cpu::wait_until(|| OTHER_IS_UP.load(Acquire));
    check_registers();
    stay(wait, start);
}

/// Checks the initial registers of the CPUs that are up by now. The library notes X19 to X29 at a
/// CPU's first instruction: values of the former life would have outlived the VM there (G1-RT-005).
fn check_registers() {
    let left_over = boot::left_over_registers();
    check!("registers are zero", left_over == 0, "{left_over:#x}");
}

fn other(_cpu: usize) {
    OTHER_IS_UP.store(true, Release);
    forever(WAIT.load(Relaxed));
}

fn stay(wait: u32, start: u32) {
    say!("ready {start}");
    forever(wait);
}

/// Neither way traps in a VM with pass-through, and masked interrupts keep every kick out.
fn forever(wait: u32) {
    cpu::mask_irqs();
    loop {
        if wait == 0 {
            // SAFETY: it changes nothing. What stands in X28 now is not to be there after the next
            // start.
            unsafe { asm!("yield", in("x28") u64::MAX, options(nomem, nostack)) };
        } else {
            cpu::wfi();
        }
    }
}
