//! Accesses of vCPUs that GDM performs: one slot a vCPU.
//!
//! Owns what each slot is used for. A slot that is posted is GDM's until it answers, also when the
//! VM is stopped meanwhile: then the answer is dropped, and what the VM asks in its next life waits
//! until the slot is free. So every access is answered once, by its own answer.
//!
//! | use       | post              | abandon   | GDM answers                        |
//! |-----------|-------------------|-----------|------------------------------------|
//! | Free      | Asked             | Free      | nothing                            |
//! | Asked     | cannot be         | Abandoned | Free, passed on                    |
//! | Abandoned | Abandoned, waits  | Abandoned, nothing waits | Free; or Asked, by what waits |

use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear2_protocol::{MAX_DEVICES, MmioSlot, slot};

use crate::kept::Kept;
use crate::platform::Answer;

#[cfg(test)]
mod tests;

/// An access to a device's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The device's channel.
    pub(crate) device: u32,
    /// Offset of the register.
    pub(crate) register: u32,
    /// log2 of the size in bits 1:0, write in bit 2.
    pub(crate) access: u32,
    /// The value stored.
    pub(crate) value: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    Free,
    /// The vCPU waits for the answer.
    Asked,
    /// Nobody waits for the answer.
    Abandoned,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    used: Use,
    /// The access that is posted when the slot is free.
    waiting: Option<Request>,
    sequence: u64,
    /// Place in [`Slots::busy`] of the device that GDM has an access to.
    device: usize,
}

/// The place of each vCPU's slot in the region, by the vCPU's number. A VM's slots have a page of
/// their own.
pub(crate) type Places = [Option<&'static MmioSlot>; MAX_VCPUS];

/// The slots of all vCPUs.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Places,
    kept: &'static Kept,
    entries: [Entry; MAX_VCPUS],
    /// How many accesses to each device GDM has; the last place is all others'.
    busy: [u8; MAX_DEVICES + 1],
    forwarded: u64,
}

const _: () = assert!(MAX_VCPUS < u8::MAX as usize);

impl Slots {
    pub(crate) fn new(slots: Places, kept: &'static Kept) -> Self {
        Self {
            slots,
            kept,
            entries: [Entry::default(); MAX_VCPUS],
            busy: [0; MAX_DEVICES + 1],
            forwarded: 0,
        }
    }

    /// Takes over the slot that an earlier Gear2 used. `awaited`: device, register and access word
    /// of what the vCPU waits for, if it is the device model's to answer. What stands in the slot
    /// is the same, or nobody waits for it: the earlier Gear2 noted which access the vCPU asked
    /// last, since one of an earlier life of the VM may differ in nothing, or in its value alone.
    pub(crate) fn take_over(&mut self, vcpu: VcpuId, awaited: Option<[u32; 3]>) {
        let index = vcpu.index();
        let Some(slot) = self.slots[index] else {
            return;
        };
        let held = [&slot.device, &slot.register, &slot.access].map(|word| word.load(Relaxed));
        let entry = &mut self.entries[index];
        entry.sequence = slot.sequence.load(Relaxed);
        entry.used = match slot.state() {
            slot::IDLE => Use::Free,
            // planted: an answer to an earlier life of the VM is taken over
            // planted: an answer to another access is taken over
            _ if awaited == Some(held) && self.kept.asked(vcpu) == entry.sequence => Use::Asked,
            _ => Use::Abandoned,
        };
        if entry.used != Use::Free {
            self.take(index, held[0]);
        }
    }

    /// Notes that GDM has an access to a device in a slot.
    fn take(&mut self, index: usize, device: u32) {
        let place = (device as usize).min(MAX_DEVICES);
        self.entries[index].device = place;
        self.busy[place] += 1;
    }

    /// Tells whether GDM has no access to a device: it has answered all.
    pub(crate) fn is_idle(&self, device: u32) -> bool {
        self.busy
            .get(device as usize)
            .is_none_or(|count| *count == 0)
    }

    /// Returns how many accesses of guests were forwarded.
    pub(crate) const fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// Forwards an access of a vCPU to GDM, or keeps it until the slot is free. Returns whether GDM
    /// needs a signal.
    pub(crate) fn post(&mut self, vcpu: VcpuId, request: Request) -> bool {
        self.forwarded += 1;
        let entry = &mut self.entries[vcpu.index()];
        match entry.used {
            Use::Free => {
                self.fill(vcpu, request);
                true
            }
            Use::Asked | Use::Abandoned => {
                entry.used = Use::Abandoned;
                entry.waiting = Some(request);
                self.kept.set_asked(vcpu, 0);
                false
            }
        }
    }

    /// Tells whether a vCPU waits for GDM.
    pub(crate) const fn awaits(&self, vcpu: VcpuId) -> bool {
        let entry = &self.entries[vcpu.index()];
        matches!(entry.used, Use::Asked) || entry.waiting.is_some()
    }

    /// Notes that a vCPU no longer waits for an answer.
    pub(crate) fn abandon(&mut self, vcpu: VcpuId) {
        let entry = &mut self.entries[vcpu.index()];
        entry.waiting = None;
        self.kept.set_asked(vcpu, 0);
        if entry.used != Use::Free {
            entry.used = Use::Abandoned;
        }
    }

    /// Tells whether GDM owes no answer in a vCPU's slot.
    pub(crate) fn is_free(&self, vcpu: VcpuId) -> bool {
        self.entries[vcpu.index()].used == Use::Free
    }

    /// Collects GDM's answers and passes them on. Returns whether a kept access was posted, so that
    /// GDM needs a signal.
    pub(crate) fn collect(&mut self, mut answered: impl FnMut(VcpuId, Answer)) -> bool {
        let mut posted = false;
        for index in 0..MAX_VCPUS {
            let used = self.entries[index].used;
            let (Some(answer), Some(vcpu)) = (self.answer(index), VcpuId::new(index)) else {
                continue;
            };
            self.entries[index].used = Use::Free;
            self.busy[self.entries[index].device] -= 1;
            if used == Use::Asked {
                answered(vcpu, answer);
            }
            if let Some(request) = self.entries[index].waiting.take() {
                self.fill(vcpu, request);
                posted = true;
            }
        }
        posted
    }

    /// Takes GDM's answer out of a slot. What is no state of the protocol is an abort.
    fn answer(&self, index: usize) -> Option<Answer> {
        let slot = self.slots[index]?;
        if self.entries[index].used == Use::Free {
            return None;
        }
        let answer = match slot.state() {
            slot::POSTED => return None,
            slot::DONE => Answer::Value(slot.value.load(Relaxed)),
            _ => Answer::Abort,
        };
        slot.set_state(slot::IDLE);
        Some(answer)
    }

    /// Posts an access in a free slot.
    fn fill(&mut self, vcpu: VcpuId, request: Request) {
        let Some(slot) = self.slots[vcpu.index()] else {
            return;
        };
        let entry = &mut self.entries[vcpu.index()];
        entry.used = Use::Asked;
        // 0 is nobody's.
        entry.sequence = entry.sequence.wrapping_add(1).max(1);
        let sequence = entry.sequence;
        self.take(vcpu.index(), request.device);
        self.kept.set_asked(vcpu, sequence);
        slot.device.store(request.device, Relaxed);
        slot.register.store(request.register, Relaxed);
        slot.access.store(request.access, Relaxed);
        slot.value.store(request.value, Relaxed);
        slot.sequence.store(sequence, Relaxed);
        slot.set_state(slot::POSTED);
    }
}
