//! The SMMU: devices forget what their VM loses, and what they try beside that is told to Gear2.
//!
//! The SMMU walks the stage 2 that the CPUs walk, and caches translations of its own. Whoever takes
//! a page from a VM that goes on calls [`invalidate`] with the invalidation of the CPUs' TLBs. That
//! cannot fail: an SMMU that does not answer in time is turned off, which lets no later access
//! through, and Gear1 halts. A VM that stops has its streams shut ([`turn`]): the stop lasts until
//! the SMMU has done so.
//!
//! Owns the lock over the SMMU's queues. It is innermost, and held while three commands are issued,
//! the SMMU is asked how far it is, or an event is taken. Nobody waits for the SMMU with it held. A
//! VM without devices behind the SMMU never takes it.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use core::sync::atomic::{AtomicBool, Ordering};

use gear1_abi::boot::BootStreams;
use gear1_abi::call::DmaKind;
use gear1_abi::id::VmId;
use gear1_arch::sync::{TicketGuard, TicketLock};
use gear1_arch::{barrier, cpu};
use gear1_core::smmu::event::Event;

use crate::halt::{HaltReason, halt_early};
use crate::machine::{self, Machine};
use crate::smmu_driver::{HostSmmu, Queue, Smmu, Streams};

static QUEUE: TicketLock<Queue> = TicketLock::new(Smmu::EMPTY);
/// The SMMU is being turned off, or is: no stream may be opened.
static IS_CLOSING: AtomicBool = AtomicBool::new(false);
/// The SMMU was turned off because it did not answer: no command is done any longer, and no access
/// passes. A real-time VM that outlives the halt ends and starts without the SMMU.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Takes the lock. A real-time VM's CPU does so when that VM ends or is loaded, and waits for a hold
/// of each other CPU at most.
fn queue() -> TicketGuard<'static, Queue> {
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::share(&QUEUE);
    QUEUE.lock()
}

/// Returns the SMMU if a VM has devices behind it that can reach memory.
fn of(machine: &Machine, vm: VmId) -> Option<Smmu> {
    // First, as most machines have none.
    let device = Smmu::of(machine.handover)?;
    (owns_streams(machine, vm) && !IS_OFF.load(Ordering::Acquire)).then_some(device)
}

/// Opens or shuts the streams of a VM, and tells whether the SMMU has done that: no access goes
/// through, and none of before is under way, once they are shut. Until then, the caller asks again.
/// The VM's lock is held.
pub(crate) fn turn(machine: &Machine, vm: VmId, streams: &mut Streams, opens: bool) -> bool {
    let Some(mut device) = of(machine, vm) else {
        return true;
    };
    if streams.differ(opens) {
        let vmid = machine::boot_vm(machine, vm).vmid;
        // planted: devices of a VM that has ended go on
        device.switch(vmid, opens);
        if is_closing() {
            // The streams may have been opened behind the turn-off, which the halt relies on. The
            // caller asks again, and finds the SMMU off when all streams are shut.
            device.switch(vmid, false);
            return false;
        }
        let Some(ticket) = device.forget(&mut queue(), vmid, true) else {
            return false;
        };
        streams.told(opens, ticket);
    }
    let mut queue = queue();
    streams.are_done(&mut *queue, &mut device)
}

/// Tells whether another CPU turns the SMMU off. A CPU that has opened streams and reads `false` has
/// opened them before the turn-off begins: each side writes, waits by DSB, and goes on (Arm ARM
/// B2.3).
fn is_closing() -> bool {
    barrier::dsb_sy();
    IS_CLOSING.load(Ordering::Relaxed)
}

/// Makes the SMMU forget what a VM's stage 2 was, and waits until no device uses it any longer.
///
/// The wait is as long as the slowest access that a device has begun. A device that never ends one
/// ends in a halt.
pub(crate) fn invalidate(machine: &Machine, vm: VmId) {
    let Some(mut device) = of(machine, vm) else {
        return;
    };
    let vmid = machine::boot_vm(machine, vm).vmid;
    let begin = cpu::now();
    let mut ticket = None;
    // Bound: BootSmmu::patience, 1 s of the counter.
    while cpu::now().wrapping_sub(begin) < machine.boot.smmu.patience {
        let mut queue = queue();
        ticket = ticket.or_else(|| device.forget(&mut queue, vmid, false));
        if ticket.is_some_and(|ticket| device.is_done(&mut queue, ticket)) {
            return;
        }
        drop(queue);
        barrier::yield_hint();
    }
    // What a device may still reach must not become another VM's. The halt names the SMMU, whether
    // or not it has obeyed.
    IS_CLOSING.store(true, Ordering::Relaxed);
    barrier::dsb_sy();
    device.shut();
    IS_OFF.store(true, Ordering::Release);
    halt_early(HaltReason::Smmu);
}

/// Tells whether a VM has devices behind the SMMU.
pub(crate) fn owns_streams(machine: &Machine, vm: VmId) -> bool {
    let mut streams = machine.boot.smmu.streams.iter();
    // Bound: MAX_STREAM_RANGES (16).
    streams.any(|range| range.count != 0 && u64::from(range.vm) == vm.reg())
}

/// Takes the next event of the SMMU, as DMA_EVENT returns it.
pub(crate) fn take_event(machine: &Machine) -> Option<[u64; 6]> {
    let mut device = Smmu::of(machine.handover)?;
    let boot = &machine.boot.smmu;
    let owner_of = |stream: u32| owner(&boot.streams, stream & !boot.ignored);
    let queue = queue();
    let event = device.take_event(|stream| owner_of(stream).is_some())?;
    drop(queue);
    let Event {
        number,
        stream,
        access,
        is_overflow,
    } = event;
    let owner = owner_of(stream);
    let (address, kind) = match access {
        Some(access) if access.is_write => (access.address, DmaKind::Write),
        Some(access) => (access.address, DmaKind::Read),
        None => (0, DmaKind::Unknown),
    };
    Some([
        owner.map_or(u64::MAX, u64::from),
        stream.into(),
        address,
        kind as u64,
        number.into(),
        is_overflow.into(),
    ])
}

/// Returns the VM whose device has this StreamID.
fn owner(streams: &[BootStreams], stream: u32) -> Option<u32> {
    let mut streams = streams.iter();
    // Bound: MAX_STREAM_RANGES (16).
    let range = streams.find(|range| stream.wrapping_sub(range.first) < range.count);
    // planted: an event is charged to no VM
    range.map(|range| range.vm)
}
