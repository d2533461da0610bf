//! The shipped words of a vCPU and of a CPU's loop, with the checker's atomics.

#[expect(unreachable_pub, reason = "in its crate it is public")]
#[path = "../../src/vcpu/shared.rs"]
mod shared;
#[expect(unreachable_pub, reason = "in its crate it is public")]
#[path = "../../src/vcpu/signals.rs"]
mod signals;

pub(crate) use shared::{IcacheRequests, Notify, Requests, VcpuShared};
pub(crate) use signals::CpuShared;
