//! IC IALLUIS of a guest that Gear1 carries out itself: which trap begins an instruction, and which
//! repeats one.
//!
//! The instruction is complete when the CPUs of all of the VM's vCPUs have invalidated their
//! instruction caches. Gear1 does not wait for them at EL2: the guest executes the instruction
//! again, and traps, until they have. An exception may come to the guest in between, whose handler
//! changes code and executes the instruction for itself, perhaps at the same address. That
//! instruction asks for more than the interrupted one, and must not pass for its repetition.
//!
//! Therefore ELR_EL1 holds [`MARK`] from one try to the next. Each exception to EL1 overwrites
//! ELR_EL1, so a try that finds the mark follows the last one with nothing in between; the old
//! value, which the exception would have overwritten as well, comes back with the completion.
//!
//! Requirements: G1-CPU-011.

/// ELR_EL1 between two tries: the last instruction of the address space, which no guest returns to.
pub const MARK: u64 = !3;

/// An IC IALLUIS of a vCPU, from its first trap to its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcacheTry {
    /// Number of the request to the VM's other vCPUs; 0: no instruction is under way.
    number: u64,
    /// The guest's ELR_EL1.
    elr: u64,
}

impl IcacheTry {
    /// No instruction is under way.
    pub const NONE: Self = Self { number: 0, elr: 0 };

    /// Returns the number of the request that the trapped instruction repeats, if it does.
    pub const fn repeated(&self, elr_el1: u64) -> Option<u64> {
        // planted: a handler's invalidation passes for the interrupted one
        if self.number != 0 && elr_el1 == MARK {
            Some(self.number)
        } else {
            None
        }
    }

    /// Notes the result of a try of the instruction whose request has this number, and returns what
    /// ELR_EL1 must hold from now on. If the instruction is not complete, it runs again.
    pub const fn tried(&mut self, number: u64, elr_el1: u64, is_complete: bool) -> u64 {
        let elr = match self.repeated(elr_el1) {
            Some(_) => self.elr,
            None => elr_el1,
        };
        if is_complete {
            *self = Self::NONE;
            elr
        } else {
            *self = Self { number, elr };
            MARK
        }
    }
}

#[cfg(test)]
mod tests;
