//! The SMMU: devices forget what their VM loses, and what they try beside that is told to Gear2.
//!
//! The SMMU walks the stage 2 that the CPUs walk, and caches translations of its own. Whoever takes
//! a page from a VM calls [`invalidate`] with the invalidation of the CPUs' TLBs. That cannot fail: an
//! SMMU that does not answer in time is turned off, which lets no later access through, and Gear1
//! halts.
//!
//! Owns the lock over the SMMU's queues. It is innermost, and held for two commands or one event.
//! A VM without devices behind the SMMU never takes it.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use gear1_abi::boot::BootStreams;
use gear1_abi::id::VmId;
use gear1_arch::smmu::Smmu;
use gear1_arch::sync::TicketLock;
use gear1_core::smmu;
use gear1_core::smmu::event::Event;

use crate::halt::{HaltReason, halt_early};
use crate::machine::{self, Machine};

static QUEUES: TicketLock<()> = TicketLock::new(());

/// Makes the SMMU forget what a VM's stage 2 was, and waits until no device uses it any longer.
pub(crate) fn invalidate(machine: &Machine, vm: VmId) {
    // First, as most machines have none.
    let Some(mut device) = Smmu::of(machine.handover) else {
        return;
    };
    if !owns_streams(machine, vm) {
        return;
    }
    // A real-time VM's CPU takes it when that VM ends, and waits for two commands of each other CPU
    // at most.
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::share(&QUEUES);
    let _queues = QUEUES.lock();
    let vmid = machine::boot_vm(machine, vm).vmid;
    if smmu::invalidate(&mut device, vmid).is_err() {
        // What a device may still reach must not become another VM's. The halt names the SMMU,
        // whether or not it has obeyed.
        let _ = smmu::shut(&mut device);
        halt_early(HaltReason::Smmu);
    }
}

/// Tells whether a VM has devices behind the SMMU.
fn owns_streams(machine: &Machine, vm: VmId) -> bool {
    let mut streams = machine.boot.smmu.streams.iter();
    // Bound: MAX_STREAM_RANGES (16).
    streams.any(|range| range.count != 0 && u64::from(range.vm) == vm.reg())
}

/// Takes the oldest event of the SMMU, as DMA_EVENT returns it.
pub(crate) fn take_event(machine: &Machine) -> Option<[u64; 6]> {
    let mut device = Smmu::of(machine.handover)?;
    let queues = QUEUES.lock();
    let event = smmu::take_event(&mut device)?;
    drop(queues);
    let Event {
        number,
        stream,
        address,
        is_write,
        is_overflow,
    } = event;
    let owner = owner(&machine.boot.smmu.streams, stream);
    Some([
        owner.map_or(u64::MAX, u64::from),
        stream.into(),
        address,
        is_write.into(),
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
