//! The interrupt controller, GICv2 or GICv3 as the device tree says: what both have in common.
//!
//! One security state, no LPIs. Interrupts are in the group that arrives as IRQ when nothing else
//! is configured: Group 0 of a GICv2, Group 1 of a GICv3.

pub mod v2;
pub mod v3;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use crate::machine::Version;
use crate::mmio::{read32, write8, write32, write64};
use crate::{Machine, cpu, read_sysreg};

/// Offsets in the distributor; those of per-interrupt registers also count in a redistributor's
/// SGI frame, for SGIs and PPIs.
pub mod register {
    /// Control.
    pub const CTLR: u64 = 0x0;
    /// Type.
    pub const TYPER: u64 = 0x4;
    /// Implementer.
    pub const IIDR: u64 = 0x8;
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
    /// Target CPUs, a byte an interrupt.
    pub const ITARGETSR: u64 = 0x800;
    /// Configuration, two bits an interrupt.
    pub const ICFGR: u64 = 0xc00;
    /// Software-generated interrupt.
    pub const SGIR: u64 = 0xf00;
    /// Clear pending SGIs by sender, a byte an interrupt.
    pub const CPENDSGIR: u64 = 0xf10;
    /// Set pending SGIs by sender, a byte an interrupt.
    pub const SPENDSGIR: u64 = 0xf20;
    /// Route of an SPI, eight bytes each.
    pub const IROUTER: u64 = 0x6000;
}

const RWP: u32 = 1 << 31;

/// Priority that the set-up gives each interrupt.
pub const PRIORITY: u8 = 0xa0;
/// Result of [`acknowledge`] when no interrupt is due.
pub const NONE: u32 = 1023;

static DISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
/// Address of the GICv2's CPU interface; 0 says that it is a GICv3.
static CPU_INTERFACE: AtomicU64 = AtomicU64::new(0);

/// Returns the architecture of the controller.
pub fn version() -> Version {
    match CPU_INTERFACE.load(Relaxed) {
        0 => Version::V3,
        _ => Version::V2,
    }
}

/// Returns the distributor's address.
pub fn distributor() -> u64 {
    DISTRIBUTOR.load(Relaxed)
}

/// Returns the number of INTIDs that the distributor has.
pub fn line_count() -> u32 {
    32 * ((read32(distributor() + register::TYPER) & 0x1f) + 1)
}

/// Sets up the distributor, from whatever state: all SPIs disabled and idle.
pub fn init(machine: &Machine) {
    let base = machine.gicd.start;
    DISTRIBUTOR.store(base, Relaxed);
    match machine.gic {
        Version::V2 => CPU_INTERFACE.store(machine.gic_cpus.start, Relaxed),
        Version::V3 => v3::init(machine.gic_cpus.start),
    }
    let (group, enable) = match version() {
        Version::V2 => (0, v2::ENABLE),
        Version::V3 => (!0, v3::ENABLE),
    };
    for word in 1..u64::from(line_count() / 32) {
        init_word(base, word, group);
    }
    write32(base + register::CTLR, enable);
    cpu::wait_until(|| version() == Version::V2 || read32(base + register::CTLR) & RWP == 0);
}

/// Sets up this CPU's interrupts and interface, from whatever state: all disabled and idle, no
/// mask.
pub fn init_cpu() {
    match version() {
        Version::V2 => {
            init_word(distributor(), 0, 0);
            v2::init_cpu();
        }
        Version::V3 => v3::init_cpu(),
    }
}

/// SGIs that were found pending.
static PENDING_SGIS: AtomicU64 = AtomicU64::new(0);

/// Notes which SGIs are pending on this CPU. Each CPU that is turned on does so before anything is
/// set up.
pub fn note_pending_sgis() {
    let frame = match version() {
        Version::V2 => distributor(),
        Version::V3 => v3::start_frame(),
    };
    let pending = read32(frame + register::ISPENDR) & 0xffff;
    PENDING_SGIS.fetch_or(pending.into(), Relaxed);
}

/// Returns the SGIs that were found pending.
pub fn pending_sgis() -> u64 {
    PENDING_SGIS.load(Relaxed)
}

/// Disables 32 interrupts, makes them idle, and gives them their group and priority.
fn init_word(frame: u64, word: u64, group: u32) {
    for clear in [register::ICENABLER, register::ICPENDR, register::ICACTIVER] {
        write32(frame + clear + 4 * word, !0);
    }
    write32(frame + register::IGROUPR + 4 * word, group);
    for four in 8 * word..8 * (word + 1) {
        write32(
            frame + register::IPRIORITYR + 4 * four,
            u32::from_ne_bytes([PRIORITY; 4]),
        );
    }
}

/// Returns the frame that holds the registers of `intid`.
pub fn frame(intid: u32) -> u64 {
    match version() {
        Version::V3 if intid < 32 => v3::sgi_frame(),
        Version::V2 | Version::V3 => distributor(),
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
        route(intid, cpu::index());
    }
    enable_as_routed(intid);
}

/// Enables an interrupt; an SPI goes where it was sent before.
pub fn enable_as_routed(intid: u32) {
    write_bit(register::ISENABLER, intid);
}

/// Sends an SPI to one CPU.
pub fn route(intid: u32, to: usize) {
    match version() {
        Version::V2 => write8(
            distributor() + register::ITARGETSR + u64::from(intid),
            1 << to,
        ),
        Version::V3 => write64(
            distributor() + register::IROUTER + 8 * u64::from(intid),
            read_sysreg!("mpidr_el1") & 0xff_00ff_ff00 | to as u64,
        ),
    }
}

/// Disables an interrupt, and waits until that has taken effect.
pub fn disable(intid: u32) {
    write_bit(register::ICENABLER, intid);
    let (control, busy) = match version() {
        Version::V2 => return,
        Version::V3 if intid < 32 => (v3::redistributor(), 1 << 3),
        Version::V3 => (distributor(), RWP),
    };
    cpu::wait_until(|| read32(control) & busy == 0);
}

/// Makes an interrupt pending by a register, or no longer so. SGIs of a GICv2 have registers of
/// their own, a byte each with a bit for each sender: this CPU is it then.
pub fn set_pending(intid: u32, pending: bool) {
    let by_sender = version() == Version::V2 && intid < 16;
    let (by_bit, by_byte) = if pending {
        (register::ISPENDR, register::SPENDSGIR)
    } else {
        (register::ICPENDR, register::CPENDSGIR)
    };
    if by_sender {
        let sender = 1 << cpu::index();
        write8(distributor() + by_byte + u64::from(intid), sender);
    } else {
        write_bit(by_bit, intid);
    }
}

/// Tells whether SGIs can be disabled, which a GICv2 may leave out (IHI 0048, 4.3.5).
pub fn can_disable_sgis() -> bool {
    write32(frame(0) + register::ICENABLER, 1);
    !read_bit(register::ISENABLER, 0)
}

/// Gives an interrupt a priority; 0 is the highest.
pub fn set_priority(intid: u32, priority: u8) {
    write8(
        frame(intid) + register::IPRIORITYR + u64::from(intid),
        priority,
    );
}

/// Makes an interrupt edge-triggered or level-sensitive. Not for SGIs.
pub fn set_edge(intid: u32, edge: bool) {
    let register = frame(intid) + register::ICFGR + 4 * u64::from(intid / 16);
    let bit = 2 << (intid % 16 * 2);
    let others = read32(register) & !bit;
    write32(register, if edge { others | bit } else { others });
}

macro_rules! either {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {$(
        $(#[$doc])*
        pub fn $name($($argument: $type),*) $(-> $result)? {
            match version() {
                Version::V2 => v2::$name($($argument),*),
                Version::V3 => v3::$name($($argument),*),
            }
        }
    )+};
}

either! {
    /// Lets only interrupts of a higher priority, a lower number, through to this CPU.
    set_mask(priority: u8);
    /// Compares only the priorities' bits from `lowest` (1 to 7) on to decide who preempts whom.
    set_preemption(lowest: u8);
    /// Says whether ends are two steps (EOImode 1): [`end`] drops the priority, [`deactivate`]
    /// ends.
    set_two_step(on: bool);
    /// Lets this CPU's interrupts through, or none.
    set_delivery(on: bool);
    /// Sends an SGI to the CPU whose Aff0 is `cpu` and whose other fields are 0.
    send_sgi(cpu: usize, intid: u32);
    /// Sends an SGI to the CPUs whose bits are set.
    send_sgi_to(cpus: u8, intid: u32);
    /// Sends an SGI to all CPUs but this one.
    send_sgi_to_others(intid: u32);
    /// Acknowledges the pending interrupt of the highest priority. For an SGI of a GICv2 bits 12:10
    /// say who sent it: [`intid`] leaves them out.
    acknowledge() -> u32;
    /// Ends an acknowledged interrupt, with what [`acknowledge`] returned.
    end(acknowledged: u32);
    /// Ends the active state after [`end`] has dropped the priority.
    deactivate(acknowledged: u32);
    /// Returns the pending interrupt of the highest priority.
    highest_pending() -> u32;
    /// Returns the priority of the interrupt that is being handled, or 0xff.
    running_priority() -> u8;
}

/// Returns the INTID of an acknowledged interrupt.
pub fn intid(acknowledged: u32) -> u32 {
    match version() {
        Version::V2 => acknowledged & 0x3ff,
        Version::V3 => acknowledged,
    }
}

/// Returns whether an acknowledged INTID is an interrupt.
pub fn is_real(acknowledged: u32) -> bool {
    intid(acknowledged) < 1020
}
