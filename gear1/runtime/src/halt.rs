//! The end: Gear1 cannot go on. Prints what a person needs and stops the machine.
//!
//! Never reachable by a guest. `cargo xtask symbolize` turns the addresses into
//! functions and lines.
//!
//! Requirements: G1-RUN-002.

use gear1_abi::call::Failure;
use gear1_abi::id::CpuIndex;
use gear1_abi::info::uart;
use gear1_arch::entry::HaltFrame;
use gear1_arch::exception::{ELR_EL2, ESR_EL2, FAR_EL2, HPFAR_EL2, SPSR_EL2};
use gear1_arch::mmio::Mmio;
use gear1_arch::uart::BootUart;
use gear1_arch::{cpu, stack};

use crate::gic::{Gic, HostGic, KICK};
use crate::machine::{self, Cpu};

/// Why Gear1 halts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltReason {
    /// An exception inside EL2.
    Exception,
    /// The hand-over structure is not ours.
    BootInfo,
    /// A table that init filled does not fit together.
    Inconsistent,
    /// Gear2 did something that no page or register of its own allows, and is not restarted.
    Gear2Fault,
    /// Gear2 reported a fatal error, and Gear1 does not restart it.
    Gear2Fatal,
    /// Gear2 does not come back, and is not restarted.
    Gear2Hang,
    /// A range to wipe, clean or read for a VM is not within one region of a VM.
    GuestMemory,
    /// The SMMU does not invalidate what a VM has lost.
    Smmu,
    /// The ghost specification says otherwise.
    #[cfg(feature = "check-ghost")]
    Ghost,
}

impl HaltReason {
    /// Returns the reason that a failure of Gear2's is if it is not restarted.
    pub(crate) const fn of(failure: Failure) -> Self {
        match failure {
            Failure::Hang => Self::Gear2Hang,
            Failure::Fault => Self::Gear2Fault,
            Failure::Fatal => Self::Gear2Fatal,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Exception => "exception inside EL2",
            Self::BootInfo => "init and runtime do not match (BootInfo magic or ABI version)",
            Self::Inconsistent => "boot tables are inconsistent",
            Self::Gear2Fault => "fault in Gear2",
            Self::Gear2Fatal => "Gear2 cannot go on",
            Self::Gear2Hang => "Gear2 does not come back",
            Self::GuestMemory => "memory that changes hands is not in one region of a VM",
            Self::Smmu => "the SMMU does not answer",
            #[cfg(feature = "check-ghost")]
            Self::Ghost => "the ghost specification differs",
        }
    }
}

/// The UART, as far as there is one. Before the machine is known, it is taken to be a PL011.
pub(crate) fn console() -> BootUart {
    match machine::get().map_or(uart::PL011, |m| m.boot.uart_kind) {
        uart::NONE => BootUart::take_over(uart::NONE, Mmio::NONE),
        // SAFETY: this is the runtime's image, and only a halt asks for the UART.
        kind => unsafe { gear1_arch::uart::boot(kind) },
    }
}

/// Prints ` name=value`.
pub(crate) fn line(out: BootUart, name: &str, value: u64) {
    out.text(" ");
    out.text(name);
    out.text("=");
    out.hex(value);
}

/// Prints the line that every halt begins with. Two CPUs that halt at once may mix their lines: a
/// lock here could be held by the CPU that failed.
pub(crate) fn header(out: BootUart, reason: HaltReason) {
    out.text("\ngear1: HALT: ");
    out.text(reason.text());
    out.text("\ngear1:");
    line(out, "mpidr", cpu::affinity());
    line(out, "counter", cpu::now());
    out.text("\n");
}

/// Prints X0 to X30, four a line.
fn registers(out: BootUart, x: &[u64; 31]) {
    // Bound: 31 registers.
    for (index, value) in (0_u8..31).zip(x) {
        if index.is_multiple_of(4) {
            out.text("gear1:");
        }
        out.text(" x");
        let digits = [b'0'.wrapping_add(index / 10), b'0'.wrapping_add(index % 10)];
        // Bound: 2 bytes.
        out.text(core::str::from_utf8(&digits).unwrap_or("??"));
        out.text("=");
        out.hex(*value);
        if index % 4 == 3 {
            out.text("\n");
        }
    }
    out.text("\n");
}

/// Halts from a handler: `cpu` is the CPU that found the reason.
#[cold]
#[inline(never)]
pub(crate) fn halt(cpu: &mut Cpu, reason: HaltReason) -> ! {
    let out = console();
    header(out, reason);
    out.text("gear1:");
    line(out, "cpu", cpu.index().reg());
    match cpu.data.loaded.as_ref() {
        Some(loaded) => {
            line(out, "vm", loaded.vm.reg());
            line(out, "vcpu", loaded.index.index() as u64);
        }
        None => out.text(" vm=none"),
    }
    line(out, "gear2", u64::from(cpu.is_gear2_current()));
    line(out, "gear2-restarts", machine::gear2_restarts()[0]);
    out.text("\n");
    syndrome_registers(out);
    let x = cpu.frame().x;
    registers(out, &x);
    finish(out)
}

/// Prints what EL2 holds of the exception that brought this CPU here.
fn syndrome_registers(out: BootUart) {
    out.text("gear1:");
    line(out, "esr", ESR_EL2.get());
    line(out, "elr", ELR_EL2.get());
    line(out, "far", FAR_EL2.get());
    line(out, "hpfar", HPFAR_EL2.get());
    line(out, "spsr", SPSR_EL2.get());
    out.text("\n");
}

/// Halts before a CPU has its state.
pub(crate) fn halt_early(reason: HaltReason) -> ! {
    let out = console();
    header(out, reason);
    finish(out)
}

/// Halts because a range of physical memory is not in one region of a VM.
#[cold]
#[inline(never)]
pub(crate) fn guest_memory(pa: u64, size: u64) -> ! {
    let out = console();
    header(out, HaltReason::GuestMemory);
    out.text("gear1:");
    line(out, "pa", pa);
    line(out, "size", size);
    out.text("\n");
    finish(out)
}

/// Stops the other CPUs and this one. Real-time VMs run on: what failed is not theirs
/// (G1-RT-008).
pub(crate) fn finish(out: BootUart) -> ! {
    out.text("gear1: machine stopped\n");
    if let Some(machine) = machine::get() {
        gear1_arch::stop::request();
        // Bound: MAX_CPUS (8).
        for (number, other) in (0..machine.boot.cpu_count as usize).zip(&machine.boot.cpus) {
            if other.mpidr != cpu::affinity()
                && !other.real_time
                && let Some(target) = CpuIndex::new(number)
            {
                Gic::send_sgi(Gic::sgi(target, other.mpidr, KICK));
            }
        }
    }
    cpu::park()
}

/// Called by the vectors for an exception inside EL2.
#[unsafe(no_mangle)]
extern "C" fn gear1_halted(frame: &HaltFrame) -> ! {
    let out = console();
    header(out, HaltReason::Exception);
    out.text("gear1:");
    line(out, "esr", frame.esr);
    line(out, "elr", frame.elr);
    line(out, "far", frame.far);
    line(out, "spsr", frame.spsr);
    line(out, "sp", frame.sp);
    line(out, "vector", frame.vector);
    out.text("\n");
    registers(out, &frame.x);
    stack_words(out, frame);
    finish(out)
}

/// Prints the words above the stack pointer of an exception inside EL2: the return addresses among
/// them name the callers.
fn stack_words(out: BootUart, frame: &HaltFrame) {
    out.text("gear1: stack:");
    // SAFETY: this CPU is up, and `frame` holds its stack pointer.
    let words = unsafe { stack::words(frame.sp, 32) };
    // Bound: 32 words of stack.
    for word in words {
        out.text(" ");
        out.hex(word);
    }
    out.text("\n");
}
