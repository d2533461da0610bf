//! From the entry code to the guest's own functions, and the end.

use core::arch::global_asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Machine;
use crate::{cpu, gic, psci, report, say, uart};

global_asm!(include_str!("boot.s"));

unsafe extern "Rust" {
    safe fn guest_first(machine: &Machine);
    safe fn guest_main(machine: &Machine);
    safe fn guest_other_cpu(cpu: usize);
}

/// The physical counter at the boot CPU's second instruction, the virtual one behind it, and the
/// physical one again; `boot.s` writes them.
#[unsafe(no_mangle)]
/// A VM's virtual count begins at its start (G1-TIM-005), which only the first instructions can
/// see.
static FIRST_COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

unsafe extern "C" {
    static _head: [u32; 1];
    safe static LEFT_OVER_REGISTERS: AtomicU64;
}

/// Returns the physical counter at the second instruction of the boot CPU, in ticks.
pub fn first_count() -> u64 {
    FIRST_COUNTS[0].load(Ordering::Relaxed)
}

/// Returns bounds of what the virtual counter lagged behind the physical one then, in ticks. The
/// virtual count is read between two physical ones, hence two bounds.
pub fn first_offset() -> [i64; 2] {
    let [before, count, after] = FIRST_COUNTS.each_ref().map(|c| c.load(Ordering::Relaxed));
    [before, after].map(|physical| physical.wrapping_sub(count) as i64)
}

/// Returns the address of the first instruction. The image runs wherever it is loaded, so that the
/// address is that of the manifest or of QEMU.
pub fn first_address() -> u64 {
    (&raw const _head) as u64
}

/// Returns all bits that were set in X19 to X29 of a CPU when it started. Another VM's values there
/// would be a leak by the world switch. Neither PSCI nor the boot protocol of Linux fixes X19 to
/// X29.
pub fn left_over_registers() -> u64 {
    LEFT_OVER_REGISTERS.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
/// The UART comes before all else, so that a failure of anything behind can be told.
extern "C" fn boot_cpu_main(dtb: u64) -> ! {
    let Some(machine) = Machine::from_dtb(dtb) else {
        report::fail("boot", format_args!("no usable device tree at {dtb:#x}"));
        finish();
    };
    uart::init(machine.uart, machine.uart_is_sbsa);
    guest_first(&machine);
    gic::init(&machine);
    gic::init_cpu();
    guest_main(&machine);
    finish()
}

#[unsafe(no_mangle)]
/// Pending SGIs are noted before the set-up clears them. A CPU whose part returns is turned off,
/// and halts if PSCI refuses.
extern "C" fn other_cpu_main(index: u64) -> ! {
    gic::note_pending_sgis();
    gic::init_cpu();
    guest_other_cpu(index as usize);
    psci::cpu_off();
    cpu::halt()
}

/// The `first` of a guest that looks at nothing before its set-up.
pub fn ignore(_machine: &Machine) {}

/// Ends the report and turns the machine off. The host waits for DONE, and the power-off ends QEMU;
/// without PSCI the CPU halts.
pub fn finish() -> ! {
    say!("DONE");
    psci::system_off();
    cpu::halt()
}

#[panic_handler]
/// A panic is one failed check, and the run ends as any other, with no wait for a time-out.
fn panic(info: &PanicInfo<'_>) -> ! {
    report::fail("panic", format_args!("{info}"));
    finish()
}
