//! The CPU's ring of trace records, which the vectors write ([`entry`](crate::entry)).
//!
//! Requirements: G1-TRC-001.

use core::ptr;

use gear1_abi::id::MAX_VCPUS;
use gear1_abi::layout::el2;
use gear1_abi::trace::{HEADER_OFFSET, Header};
use gear1_core::vcpu::VcpuShared;

use crate::handover::Handover;
use crate::this_cpu::ThisCpu;

/// Gives this CPU its ring, if the manifest has rings. A record refers to a vCPU by the low half of
/// the address in `vcpus`, whose upper half is that of the whole image.
pub fn attach<T>(cpu: &mut ThisCpu<T>, boot: Handover, vcpus: &'static [VcpuShared; MAX_VCPUS]) {
    let size = boot.trace_size;
    if size == 0 {
        return;
    }
    let piece = el2::TRACE.wrapping_add(cpu.index().reg().wrapping_mul(el2::TRACE_STRIDE));
    cpu.trace = piece.wrapping_add(HEADER_OFFSET);
    let header = Header {
        position: 0,
        mask: size.wrapping_sub(1),
        first_vcpu: u64::from(ptr::from_ref(vcpus).addr() as u32),
        vcpu_stride: size_of::<VcpuShared>() as u64,
        reserved: [0; 4],
    };
    // SAFETY: `trace_size` says that init mapped a page and a ring of that size for each CPU, for good;
    // the header is at the page's end, aligned. Gear2 alone has the ring too, and only reads.
    unsafe { (cpu.trace as *mut Header).write_volatile(header) };
}
