//! The shipped words of a vCPU, with the checker's atomics.

#[expect(unreachable_pub, reason = "in its crate it is public")]
#[path = "../../src/vcpu/shared.rs"]
mod shared;

pub(crate) use shared::{CpuShared, IcacheRequests, Notify, Requests, VcpuShared};
