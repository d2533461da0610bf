//! GICv3 (Arm IHI 0069): distributor, redistributors, CPU interface by system registers.
//!
//! One security state, everything in Group 1, no LPIs.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::mmio::{read32, read64, write8, write32, write64};
use crate::{MAX_CPUS, Machine, cpu, read_sysreg, write_sysreg};

/// Offsets in the distributor; those of per-interrupt registers also count in a redistributor's
/// SGI frame, for SGIs and PPIs.
pub mod register {
    /// Control.
    pub const CTLR: u64 = 0x0;
    /// Type.
    pub const TYPER: u64 = 0x4;
    /// Group, a bit an interrupt.
    pub const IGROUPR: u64 = 0x80;
    /// Set enable.
    pub const ISENABLER: u64 = 0x100;
    /// Clear enable.
    pub const ICENABLER: u64 = 0x180;
    /// Set pending.
    pub const ISPENDR: u64 = 0x200;
    /// Clear pending.
    pub const ICPENDR: u64 = 0x280;
    /// Set active.
    pub const ISACTIVER: u64 = 0x300;
    /// Clear active.
    pub const ICACTIVER: u64 = 0x380;
    /// Priority, a byte an interrupt.
    pub const IPRIORITYR: u64 = 0x400;
    /// Configuration, two bits an interrupt.
    pub const ICFGR: u64 = 0xc00;
    /// Route of an SPI, eight bytes each.
    pub const IROUTER: u64 = 0x6000;
}

const RWP: u32 = 1 << 31;
const ENABLE_GROUP1_AFFINITY_ROUTING: u32 = 0x12;
const WAKER: u64 = 0x14;
const SLEEPS: u32 = 1 << 1;
const CHILDREN_ASLEEP: u32 = 1 << 2;
const SGI_FRAME: u64 = 0x1_0000;
const FRAMES: u64 = 0x2_0000;
const TYPER_LAST: u64 = 1 << 4;

/// The priority that [`init`] and [`init_cpu`] give.
pub const PRIORITY: u8 = 0xa0;

static DISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
static FIRST_REDISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
static REDISTRIBUTORS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Returns the distributor's address.
pub fn distributor() -> u64 {
    DISTRIBUTOR.load(Relaxed)
}

/// Returns the address of this CPU's redistributor.
pub fn redistributor() -> u64 {
    REDISTRIBUTORS[cpu::index()].load(Relaxed)
}

/// Sets up the distributor: all SPIs disabled, in Group 1.
pub(crate) fn init(machine: &Machine) {
    let base = machine.gicd.start;
    DISTRIBUTOR.store(base, Relaxed);
    FIRST_REDISTRIBUTOR.store(machine.gicr.start, Relaxed);
    let registers = u64::from(read32(base + register::TYPER) & 0x1f) + 1;
    for index in 1..registers {
        write32(base + register::ICENABLER + 4 * index, !0);
        write32(base + register::IGROUPR + 4 * index, !0);
    }
    for word in 8..registers * 8 {
        write32(
            base + register::IPRIORITYR + 4 * word,
            u32::from_ne_bytes([PRIORITY; 4]),
        );
    }
    write32(base + register::CTLR, ENABLE_GROUP1_AFFINITY_ROUTING);
    cpu::wait_until(|| read32(base + register::CTLR) & RWP == 0);
}

/// Sets up this CPU's redistributor and interface: all its interrupts disabled, no mask.
pub(crate) fn init_cpu() {
    let base = find_redistributor();
    REDISTRIBUTORS[cpu::index()].store(base, Relaxed);
    write32(base + WAKER, read32(base + WAKER) & !SLEEPS);
    cpu::wait_until(|| read32(base + WAKER) & CHILDREN_ASLEEP == 0);
    let frame = base + SGI_FRAME;
    write32(frame + register::ICENABLER, !0);
    write32(frame + register::IGROUPR, !0);
    for word in 0..8 {
        write32(
            frame + register::IPRIORITYR + 4 * word,
            u32::from_ne_bytes([PRIORITY; 4]),
        );
    }
    write_sysreg!("icc_sre_el1", 7);
    write_sysreg!("icc_pmr_el1", 0xff);
    write_sysreg!("icc_bpr1_el1", 0);
    write_sysreg!("icc_ctlr_el1", 0);
    write_sysreg!("icc_igrpen1_el1", 1);
}

/// Finds the redistributor whose affinity is this CPU's, or the last.
fn find_redistributor() -> u64 {
    let mpidr = read_sysreg!("mpidr_el1");
    let affinity = mpidr >> 8 & 0xff00_0000 | mpidr & 0xff_ffff;
    let mut base = FIRST_REDISTRIBUTOR.load(Relaxed);
    loop {
        let typer = read64(base + 8);
        if typer >> 32 == affinity || typer & TYPER_LAST != 0 {
            return base;
        }
        base += FRAMES;
    }
}

/// Returns the frame that holds the registers of `intid`.
pub fn frame(intid: u32) -> u64 {
    if intid < 32 {
        redistributor() + SGI_FRAME
    } else {
        distributor()
    }
}

/// Writes the bit of `intid` in a register that has one for each interrupt.
pub fn write_bit(register: u64, intid: u32) {
    write32(
        frame(intid) + register + 4 * u64::from(intid / 32),
        1 << (intid % 32),
    );
}

/// Reads the bit of `intid` in a register that has one for each interrupt.
pub fn read_bit(register: u64, intid: u32) -> bool {
    read32(frame(intid) + register + 4 * u64::from(intid / 32)) >> (intid % 32) & 1 != 0
}

/// Enables an interrupt; an SPI goes to this CPU.
pub fn enable(intid: u32) {
    if intid >= 32 {
        let route = read_sysreg!("mpidr_el1") & 0xff_00ff_ffff;
        write64(
            distributor() + register::IROUTER + 8 * u64::from(intid),
            route,
        );
    }
    write_bit(register::ISENABLER, intid);
}

/// Disables an interrupt, and waits until that has taken effect.
pub fn disable(intid: u32) {
    write_bit(register::ICENABLER, intid);
    let control = if intid < 32 {
        redistributor()
    } else {
        distributor()
    };
    let busy = if intid < 32 { 1 << 3 } else { RWP };
    cpu::wait_until(|| read32(control) & busy == 0);
}

/// Gives an interrupt a priority; 0 is the highest.
pub fn set_priority(intid: u32, priority: u8) {
    write8(
        frame(intid) + register::IPRIORITYR + u64::from(intid),
        priority,
    );
}

/// Lets only interrupts of a higher priority, a lower number, through to this CPU.
pub fn set_mask(priority: u8) {
    write_sysreg!("icc_pmr_el1", priority.into());
}

/// Sends an SGI to the CPU whose Aff0 is `cpu` and whose other fields are 0.
pub fn send_sgi(cpu: usize, intid: u32) {
    cpu::dsb();
    write_sysreg!("icc_sgi1r_el1", u64::from(intid) << 24 | 1 << cpu);
}

/// Acknowledges the pending interrupt of the highest priority.
pub fn acknowledge() -> u32 {
    let intid = read_sysreg!("icc_iar1_el1") as u32;
    cpu::dsb();
    intid
}

/// Tells whether an acknowledged INTID is that of an interrupt.
pub fn is_real(intid: u32) -> bool {
    intid < 1020
}

/// Ends an acknowledged interrupt.
pub fn end(intid: u32) {
    write_sysreg!("icc_eoir1_el1", intid.into());
}
