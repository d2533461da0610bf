//! From the entry code to the guest's own functions, and the end.

use core::arch::global_asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Machine;
use crate::{cpu, gic, psci, report, say, uart};

global_asm!(include_str!("boot.s"));

unsafe extern "Rust" {
    safe fn guest_main(machine: &Machine);
    safe fn guest_other_cpu(cpu: usize);
}

/// The physical counter at the boot CPU's second instruction; `boot.s` writes it.
#[unsafe(no_mangle)]
static FIRST_COUNT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static _head: [u32; 1];
    safe static LEFT_OVER_REGISTERS: AtomicU64;
}

/// Returns the physical counter at the second instruction of the boot CPU, in ticks.
pub fn first_count() -> u64 {
    FIRST_COUNT.load(Ordering::Relaxed)
}

/// Returns the address of the first instruction.
pub fn first_address() -> u64 {
    (&raw const _head) as u64
}

/// Returns all bits that were set in X19 to X29 of a CPU when it started.
pub fn left_over_registers() -> u64 {
    LEFT_OVER_REGISTERS.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn boot_cpu_main(dtb: u64) -> ! {
    let Some(machine) = Machine::from_dtb(dtb) else {
        report::fail("boot", format_args!("no usable device tree at {dtb:#x}"));
        finish();
    };
    uart::init(machine.uart);
    gic::init(&machine);
    gic::init_cpu();
    guest_main(&machine);
    finish()
}

#[unsafe(no_mangle)]
extern "C" fn other_cpu_main(index: u64) -> ! {
    gic::note_pending_sgis();
    gic::init_cpu();
    guest_other_cpu(index as usize);
    psci::cpu_off();
    cpu::halt()
}

/// Ends the report and turns the machine off.
pub fn finish() -> ! {
    say!("DONE");
    psci::system_off();
    cpu::halt()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::fail("panic", format_args!("{info}"));
    finish()
}
