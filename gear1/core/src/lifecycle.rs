//! A VM's life: which call may be made in which state, and what the state is then.
//!
//! | call | Stopped | Loading | Loaded | Running | Stopping |
//! |---|---|---|---|---|---|
//! | load | Loading | Loading or Loaded | Loading (from the start) | refused | refused |
//! | start | refused | refused | Running | refused | refused |
//! | stop | done | done | done | Stopping, then Stopped | until Stopped |
//!
//! Requirements: G1-RUN-009, G1-DMA-002.

use core::mem;

use gear1_abi::boot::BootMaster;
use gear1_abi::call::{Status, VmState};
use gear1_abi::event::{Ended, Ends};

use crate::atomic::{AtomicU64, Ordering};

/// Judges a VM_LOAD. `Ok(true)`: the load starts; `Ok(false)`: the load continues.
pub const fn load(state: VmState) -> Result<bool, Status> {
    match state {
        VmState::Stopped | VmState::Loaded => Ok(true),
        VmState::Loading => Ok(false),
        VmState::Running | VmState::Stopping => Err(Status::WrongState),
    }
}

/// Returns whether VM_LOAD may continue after it has released and retaken the VM's lock.
/// `same_life`: nobody has started the VM meanwhile. The VM may have ended since and may have
/// shared memory before, which the next load takes back first.
pub const fn still_loads(state: VmState, same_life: bool) -> bool {
    matches!(state, VmState::Loading) && same_life
}

/// VM_START.
pub fn start(state: VmState) -> Result<VmState, Status> {
    let loaded = state == VmState::Loaded;
    loaded.then_some(VmState::Running).ok_or(Status::WrongState)
}

/// Returns whether VM_STOP, or a VM's own end, must ask the vCPUs to stop, again if they were asked
/// before.
pub const fn stop(state: VmState) -> bool {
    matches!(state, VmState::Running | VmState::Stopping)
}

/// Returns the state after a look at the VM: a stop ends when `still` finds nothing of the VM at
/// work.
pub fn complete_stop(state: VmState, still: impl FnOnce() -> bool) -> VmState {
    if state == VmState::Stopping && !still() {
        VmState::Stopped
    } else {
        state
    }
}

/// A 32-bit register of a device.
pub trait Register {
    /// Writes the register.
    fn write(&mut self, value: u32);
    /// Reads the register.
    fn read(&mut self) -> u32;
}

/// Whether a VM's bus masters were told to stop in this life of the VM.
///
/// Each is told once. A store of a reset bit begins the reset anew, so a device whose reset takes
/// longer than from the store to the load behind it would never be found stopped.
#[derive(Debug)]
pub struct Masters {
    are_told: bool,
}

impl Masters {
    /// Masters that the VM uses, or will.
    pub const NEW: Self = Self { are_told: false };

    /// Tells whether the masters have yet to be told, which the caller then does.
    pub const fn tell(&mut self) -> bool {
        !mem::replace(&mut self.are_told, true)
    }
}

/// Tells a bus master to stop if the caller `tells` its VM's now, and returns whether it has.
pub fn stop_master(register: &mut impl Register, master: &BootMaster, tells: bool) -> bool {
    // planted: a bus master is told to stop at each look
    if tells {
        register.write(master.value);
    }
    register.read() & master.busy == 0
}

/// State of a running VM that others may read without the VM's lock: a real-time VM must not wait
/// for callers that ask without end (G1-RT-001). The words change with the VM's lock held, when the
/// VM starts and when it ends.
pub struct RunningLife {
    /// [`RUNS`], how the former life ended, and the number of starts; 0: the VM does not run.
    word: AtomicU64,
    ends: AtomicU64,
}

const RUNS: u64 = 1 << 63;
const END_SHIFT: u32 = 32;

impl Default for RunningLife {
    fn default() -> Self {
        Self::new()
    }
}

impl RunningLife {
    /// A VM that does not run.
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        }
    }

    /// The VM runs from now on.
    pub fn begin(&self, starts: u32, end: Ended, ends: Ends) {
        self.ends.store(ends.0, Ordering::SeqCst);
        let word = RUNS | (end as u64) << END_SHIFT | u64::from(starts);
        self.word.store(word, Ordering::SeqCst);
    }

    /// Notes that the VM no longer runs.
    pub fn end(&self) {
        self.word.store(0, Ordering::SeqCst);
    }

    /// Returns whether the VM runs.
    pub fn runs(&self) -> bool {
        self.word.load(Ordering::SeqCst) != 0
    }

    /// Returns the number of starts, how the former life ended if nobody has seen to that, and how
    /// the last lives ended. `None`: the VM does not run, or its life has just changed; ask under
    /// its lock.
    pub fn read(&self) -> Option<(u32, Ended, Ends)> {
        let word = self.word.load(Ordering::SeqCst);
        let ends = Ends(self.ends.load(Ordering::SeqCst));
        // Each life has a word of its own: the number of starts.
        if word == 0 || self.word.load(Ordering::SeqCst) != word {
            return None;
        }
        let end = Ended::from_reg(word >> END_SHIFT & 3)?;
        Some((word as u32, end, ends))
    }
}

#[cfg(test)]
mod tests;
