//! GICv3 (Arm IHI 0069): redistributors, CPU interface by system registers.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::init_word;
use crate::mmio::{read32, read64, write32};
use crate::{MAX_CPUS, cpu, read_sysreg, write_sysreg};

/// GICD_CTLR: affinity routing, Group 1.
pub(super) const ENABLE: u32 = 0x12;
/// GICR_WAKER, with ProcessorSleep and ChildrenAsleep: a redistributor that sleeps forwards no
/// interrupt.
const WAKER: u64 = 0x14;
const SLEEPS: u32 = 1 << 1;
const CHILDREN_ASLEEP: u32 = 1 << 2;
const SGI_FRAME: u64 = 0x1_0000;
/// Size of a redistributor's frames.
pub const FRAMES: u64 = 0x2_0000;
/// GICR_TYPER.Last: no redistributor follows.
const TYPER_LAST: u64 = 1 << 4;

/// Address from the device tree.
static FIRST_REDISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
/// Addresses by CPU, so that the frames are walked once.
static REDISTRIBUTORS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Takes in where the redistributors begin.
pub(super) fn init(first_redistributor: u64) {
    FIRST_REDISTRIBUTOR.store(first_redistributor, Relaxed);
}

/// Returns the address of this CPU's redistributor.
pub fn redistributor() -> u64 {
    REDISTRIBUTORS[cpu::index()].load(Relaxed)
}

/// Returns the address of this CPU's frame for SGIs and PPIs.
pub fn sgi_frame() -> u64 {
    redistributor() + SGI_FRAME
}

/// Sets this CPU's redistributor and interface up. Active priorities are cleared too, as a test may
/// have left some.
pub(super) fn init_cpu() {
    let base = find_redistributor();
    REDISTRIBUTORS[cpu::index()].store(base, Relaxed);
    write32(base + WAKER, read32(base + WAKER) & !SLEEPS);
    cpu::wait_until(|| read32(base + WAKER) & CHILDREN_ASLEEP == 0);
    init_word(base + SGI_FRAME, 0, !0);
    write_sysreg!("icc_sre_el1", 7);
    write_sysreg!("icc_ap0r0_el1", 0);
    write_sysreg!("icc_ap1r0_el1", 0);
    write_sysreg!("icc_igrpen0_el1", 0);
    write_sysreg!("icc_pmr_el1", 0xff);
    write_sysreg!("icc_bpr1_el1", 0);
    write_sysreg!("icc_ctlr_el1", 0);
    write_sysreg!("icc_igrpen1_el1", 1);
}

/// Returns the frame of this CPU, which has not been set up yet.
pub(super) fn start_frame() -> u64 {
    find_redistributor() + SGI_FRAME
}

/// Enables or disables Group 1, the group of all interrupts here.
pub(super) fn set_delivery(on: bool) {
    write_sysreg!("icc_igrpen1_el1", on.into());
}

/// Lets both groups of interrupts through to this CPU.
pub fn enable_groups() {
    write_sysreg!("icc_igrpen0_el1", 1);
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

/// Lets priorities above this one through.
pub(super) fn set_mask(priority: u8) {
    write_sysreg!("icc_pmr_el1", priority.into());
}

/// Sets the binary point.
pub(super) fn set_preemption(lowest: u8) {
    write_sysreg!("icc_bpr1_el1", lowest.into());
}

/// Sets EOImode.
pub(super) fn set_two_step(on: bool) {
    write_sysreg!("icc_ctlr_el1", u64::from(on) << 1);
}

/// Sends an SGI to one CPU. Aff0 is the CPU's number in all machines of the tests.
pub(super) fn send_sgi(cpu: usize, intid: u32) {
    send_sgi_to(1 << cpu, intid);
}

/// Sends an SGI to CPUs of a mask. The barrier makes memory visible to a target before its
/// interrupt (IHI 0069: an SGI is not ordered behind stores by itself).
pub(super) fn send_sgi_to(cpus: u8, intid: u32) {
    cpu::dsb();
    write_sysreg!("icc_sgi1r_el1", u64::from(intid) << 24 | u64::from(cpus));
}

/// Sends an SGI to all but the sender (ICC_SGI1R_EL1.IRM, bit 40).
pub(super) fn send_sgi_to_others(intid: u32) {
    cpu::dsb();
    write_sysreg!("icc_sgi1r_el1", 1 << 40 | u64::from(intid) << 24);
}

/// Acknowledges. The barrier orders the acknowledge before the handler's accesses and its end.
pub(super) fn acknowledge() -> u32 {
    let intid = read_sysreg!("icc_iar1_el1") as u32;
    cpu::dsb();
    intid
}

pub(super) fn end(intid: u32) {
    write_sysreg!("icc_eoir1_el1", intid.into());
}

pub(super) fn deactivate(intid: u32) {
    write_sysreg!("icc_dir_el1", intid.into());
}

pub(super) fn highest_pending() -> u32 {
    read_sysreg!("icc_hppir1_el1") as u32
}

pub(super) fn running_priority() -> u8 {
    read_sysreg!("icc_rpr_el1") as u8
}
