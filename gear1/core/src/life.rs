//! A VM's life: which call may be made in which state, and what the state is then.
//!
//! | call | Stopped | Loading | Loaded | Running | Stopping |
//! |---|---|---|---|---|---|
//! | load | Loading | Loading or Loaded | Loading (from the start) | refused | refused |
//! | start | refused | refused | Running | refused | refused |
//! | stop | done | done | done | Stopping, then Stopped | until Stopped |
//!
//! Requirements: G1-RUN-009.

use gear1_abi::call::{Status, VmState};

/// VM_LOAD: `Ok(true)`, it is loaded from the start; `Ok(false)`, its loading goes on.
pub const fn load(state: VmState) -> Result<bool, Status> {
    match state {
        VmState::Stopped | VmState::Loaded => Ok(true),
        VmState::Loading => Ok(false),
        VmState::Running | VmState::Stopping => Err(Status::WrongState),
    }
}

/// VM_START.
pub fn start(state: VmState) -> Result<VmState, Status> {
    let loaded = state == VmState::Loaded;
    loaded.then_some(VmState::Running).ok_or(Status::WrongState)
}

/// VM_STOP, and a VM's own end: whether its vCPUs are to be asked, again if they were.
pub const fn stop(state: VmState) -> bool {
    matches!(state, VmState::Running | VmState::Stopping)
}

/// What the state is once somebody looks: a stop ends when nothing of the VM's is `still` at work.
pub fn settled(state: VmState, still: impl FnOnce() -> bool) -> VmState {
    if state == VmState::Stopping && !still() {
        VmState::Stopped
    } else {
        state
    }
}

#[cfg(test)]
mod tests;
