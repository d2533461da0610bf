//! Exceptions: interrupts go to the guest's `irq`, expected ones are recorded and skipped, all
//! others end the guest with a report.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{MAX_CPUS, boot, cpu, gic, monitors, read_sysreg, report};

unsafe extern "Rust" {
    safe fn guest_irq(intid: u32);
}

/// Bits of ESR_EL1.
pub mod esr {
    /// Position of the exception class.
    pub const EC_SHIFT: u32 = 26;
    /// Class: unknown reason, which is what an undefined instruction has.
    pub const EC_UNKNOWN: u64 = 0x00;
    /// Class: SVC.
    pub const EC_SVC: u64 = 0x15;
    /// Class: trapped system register.
    pub const EC_SYSREG: u64 = 0x18;
    /// Class: instruction abort from EL0.
    pub const EC_INSTRUCTION_ABORT_EL0: u64 = 0x20;
    /// Class: data abort from EL0.
    pub const EC_DATA_ABORT_EL0: u64 = 0x24;
    /// Class: instruction abort without a change of level.
    pub const EC_INSTRUCTION_ABORT: u64 = 0x21;
    /// Class: data abort without a change of level.
    pub const EC_DATA_ABORT: u64 = 0x25;
    /// The instruction has 32 bits.
    pub const IL: u64 = 1 << 25;
    /// External abort type.
    pub const EA: u64 = 1 << 9;
    /// Cache maintenance.
    pub const CM: u64 = 1 << 8;
    /// Write, not read.
    pub const WNR: u64 = 1 << 6;
    /// Fault status.
    pub const STATUS: u64 = 0x3f;
    /// Fault status: alignment.
    pub const ALIGNMENT: u64 = 0x21;
    /// Fault status: synchronous external abort, not on a table walk.
    pub const EXTERNAL: u64 = 0x10;
    /// Fault status: the same on a table walk, plus the level.
    pub const EXTERNAL_WALK: u64 = 0x14;
}

/// Registers that `boot.s` saves; 288 bytes.
#[repr(C)]
struct Frame {
    x: [u64; 31],
    elr: u64,
    spsr: u64,
    esr: u64,
    far: u64,
}
const _: () = assert!(size_of::<Frame>() == 280);

/// An exception that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// ESR_EL1.
    pub esr: u64,
    /// FAR_EL1.
    pub far: u64,
    /// ELR_EL1.
    pub elr: u64,
    /// SPSR_EL1.
    pub spsr: u64,
    /// The vector, and what the handler had in DAIF.
    pub entry: (u64, u64),
}

impl Caught {
    /// Returns the exception class.
    pub const fn class(&self) -> u64 {
        self.esr >> esr::EC_SHIFT
    }

    /// Returns whether the exception is an alignment fault.
    pub const fn is_alignment(&self) -> bool {
        self.class() == esr::EC_DATA_ABORT && self.esr & esr::STATUS == esr::ALIGNMENT
    }
}

struct Trap {
    armed: AtomicBool,
    count: AtomicU64,
    esr: AtomicU64,
    far: AtomicU64,
    elr: AtomicU64,
    spsr: AtomicU64,
    vector: AtomicU64,
    daif: AtomicU64,
}

/// For each CPU: an exception on one must not pass for another one's.
static TRAPS: [Trap; MAX_CPUS] = [const {
    Trap {
        armed: AtomicBool::new(false),
        count: AtomicU64::new(0),
        esr: AtomicU64::new(0),
        far: AtomicU64::new(0),
        elr: AtomicU64::new(0),
        spsr: AtomicU64::new(0),
        vector: AtomicU64::new(0),
        daif: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Runs `body`; records an exception in it, and skips the instruction. Returns the first exception.
///
/// A fetch that aborts continues at X30: fetch by `blr` only. Code at EL0 returns to EL1 by SVC, to
/// the address in X2.
pub fn catch(body: impl FnOnce()) -> Option<Caught> {
    let trap = &TRAPS[cpu::index()];
    trap.count.store(0, Relaxed);
    trap.armed.store(true, Relaxed);
    body();
    trap.armed.store(false, Relaxed);
    (trap.count.load(Relaxed) != 0).then(|| Caught {
        esr: trap.esr.load(Relaxed),
        far: trap.far.load(Relaxed),
        elr: trap.elr.load(Relaxed),
        spsr: trap.spsr.load(Relaxed),
        entry: (trap.vector.load(Relaxed), trap.daif.load(Relaxed)),
    })
}

/// The `irq` of a guest that unmasks none.
pub fn ignore(_intid: u32) {}

#[unsafe(no_mangle)]
extern "C" fn exception(vector: u64, frame: &mut Frame) {
    let armed = TRAPS[cpu::index()].armed.load(Relaxed);
    let class = frame.esr >> esr::EC_SHIFT;
    if vector == SYNC_SP1
        && let Some(spsr) = monitors::taken(class, frame.elr, frame.spsr)
    {
        frame.spsr = spsr;
        return;
    }
    match vector {
        SYNC_EL0 if armed && frame.esr >> esr::EC_SHIFT == esr::EC_SVC => {
            frame.elr = frame.x[2];
            frame.spsr = PSTATE_EL1H;
        }
        SYNC_SP0 | SYNC_SP1 | SYNC_EL0 if armed => record(vector, frame),
        5 => interrupt(),
        _ => fatal(vector, frame),
    }
}

/// Vectors: from EL1 with SP_EL0, from EL1 with SP_EL1, from EL0.
const SYNC_SP0: u64 = 0;
const SYNC_SP1: u64 = 4;
const SYNC_EL0: u64 = 8;
/// PSTATE of all code but what a test runs at EL0.
const PSTATE_EL1H: u64 = 0x3c5;

/// Only the first is kept: what follows in `body` may be its consequence. A fetch that aborted has
/// no next instruction: BLR has left its own in X30.
fn record(vector: u64, frame: &mut Frame) {
    let trap = &TRAPS[cpu::index()];
    let count = trap.count.load(Relaxed);
    trap.count.store(count + 1, Relaxed);
    if count == 0 {
        trap.esr.store(frame.esr, Relaxed);
        trap.far.store(frame.far, Relaxed);
        trap.elr.store(frame.elr, Relaxed);
        trap.spsr.store(frame.spsr, Relaxed);
        trap.vector.store(vector, Relaxed);
        trap.daif.store(read_sysreg!("daif"), Relaxed);
    }
    let class = frame.esr >> esr::EC_SHIFT;
    let fetch = class == esr::EC_INSTRUCTION_ABORT || class == esr::EC_INSTRUCTION_ABORT_EL0;
    frame.elr = if fetch { frame.x[30] } else { frame.elr + 4 };
}

fn interrupt() {
    let acknowledged = gic::acknowledge();
    if gic::is_real(acknowledged) {
        guest_irq(gic::intid(acknowledged));
        gic::end(acknowledged);
    }
}

/// An exception that nobody expects is a failure of the test, and the guest could only repeat it.
fn fatal(vector: u64, frame: &Frame) -> ! {
    let Frame {
        esr,
        elr,
        far,
        spsr,
        ..
    } = frame;
    report::fail(
        "exception",
        format_args!(
            "vector {vector}, CPU {}, ESR {esr:#x}, ELR {elr:#x}, FAR {far:#x}, SPSR {spsr:#x}",
            cpu::index()
        ),
    );
    boot::finish()
}
