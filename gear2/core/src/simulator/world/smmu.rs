//! The SMMU's events, and its interrupt on CPU 0 as the GIC has it.

use alloc::collections::VecDeque;

use gear1_abi::call::Status;
use gear1_abi::regs::Regs;

/// Events that the queue has room for.
pub(in crate::simulator) const ROOM: usize = 128;

#[derive(Debug, Default)]
pub(in crate::simulator) struct Smmu {
    events: VecDeque<Regs>,
    is_overflow: bool,
    /// The interrupt is pending, and active: Gear2 has got it and has not ended it.
    pub(in crate::simulator) pending: bool,
    active: bool,
    /// A device goes on and on of which nobody is told: the interrupt is a level that stays.
    pub(in crate::simulator) is_held: bool,
    /// Number of interrupts.
    pub(in crate::simulator) interrupts: u64,
}

impl Smmu {
    /// A device of a VM faults: an edge when the queue was empty.
    pub(in crate::simulator) fn fault(&mut self, vm: u64, address: u64) {
        self.pending |= self.events.is_empty();
        if self.events.len() == ROOM {
            self.is_overflow = true;
            return;
        }
        self.events.push_back([0, vm, 8, address, 1, 0x10, 0, 0]);
    }

    /// A device that nobody owns faults: the record has no address.
    pub(in crate::simulator) fn fault_of_nobody(&mut self) {
        self.pending |= self.events.is_empty();
        self.events.push_back([0, u64::MAX, 9, 0, 2, 0x04, 0, 0]);
    }

    /// Tells whether the interrupt is delivered now: an active one waits.
    pub(in crate::simulator) const fn is_due(&self) -> bool {
        (self.pending || self.is_held) && !self.active
    }

    /// Delivers the interrupt.
    pub(in crate::simulator) fn deliver(&mut self) -> bool {
        let due = self.is_due();
        if due {
            self.pending = false;
            self.active = true;
            self.interrupts += 1;
        }
        due
    }

    /// Gear1 repeats the interrupt for a Gear2 that was restarted.
    pub(in crate::simulator) fn repeat(&mut self) {
        self.pending = true;
        self.active = false;
    }

    /// Answers DMA_EVENT.
    pub(in crate::simulator) fn take(&mut self, results: &mut Regs) -> Status {
        match self.events.pop_front() {
            Some(event) => {
                *results = event;
                results[6] = u64::from(core::mem::take(&mut self.is_overflow));
                Status::Ok
            }
            None => Status::NotFound,
        }
    }

    /// Answers IRQ_DONE.
    pub(in crate::simulator) fn done(&mut self) -> Status {
        assert!(self.active, "ends an interrupt twice");
        self.active = false;
        Status::Ok
    }
}
