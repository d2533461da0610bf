//! State of a vCPU that every CPU may read and change: the run state, requests to it, exit
//! counters. The registers are elsewhere and belong to the vCPU's *owner CPU* alone.
//!
//! Protocol (who may do what):
//!
//! | transition | by | how |
//! |---|---|---|
//! | Ready → Running | owner CPU | compare-exchange, then read [`Requests`] |
//! | AwaitsMmio, AwaitsHypercall → Running | owner CPU, whose decision has the reply of the loaded vCPU | compare-exchange, then read [`Requests`] |
//! | Running → Ready, AwaitsMmio, AwaitsHypercall | owner CPU | store |
//! | Running → Wfi | owner CPU | before it reads [`Requests`], or under the VM lock, after it saw nothing deliverable |
//! | Wfi → Running | owner CPU | compare-exchange, when it has seen a request after all, or runs it |
//! | Wfi → Ready | anybody | compare-exchange, then the owner CPU gets a wake-up |
//! | AwaitsMmio, AwaitsHypercall → Ready | the loop that replies | compare-exchange |
//! | Off → Ready | anybody, under the VM lock (CPU_ON, start) | after `request_reset` |
//! | any but Running → Off | anybody, under the VM lock (stop) | compare-exchange |
//!
//! A waker raises [`Requests`] first and reads the state afterwards; an owner
//! CPU makes the vCPU Running first and reads the requests afterwards. Both
//! are sequentially consistent, so one of the two sees the other.
//!
//! A request that concerns only what the vCPU executes next ([`Requests::ICACHE`]) wakes nobody,
//! and is no reason not to wait: it is served with the others once the vCPU runs again.
//!
//! Requirements: G1-VCPU-001 (no lost wake-up), G1-VCPU-002 (runs on one CPU), G1-CPU-011.

mod shared;
mod signals;

pub use shared::{IcacheRequests, Notify, Requests, Start, VcpuShared};
pub use signals::CpuShared;

/// Tells whether a vCPU is in power-down: it waits, and starts anew when it wakes.
pub fn is_powered_down(vcpu: &VcpuShared) -> bool {
    // planted: a vCPU that waits in WFI is shown in power-down
    vcpu.is(gear1_abi::call::VcpuState::Wfi) && vcpu.requests().intersects(Requests::WARM)
}

#[cfg(test)]
mod tests;
