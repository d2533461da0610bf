//! SVE of VMs: whether this CPU has the vectors that the manifest says, and the memory of the
//! registers, which the runtime maps and no VM has.
//!
//! The boot CPU stands for all: the runtime turns another one off that differs from it in lengths that
//! its VMs reach.
//!
//! Requirements: G1-CPU-018.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::sve::{GRANULE, LONGEST, Lengths, size};
use gearv_manifest::{CpuIndex, CpuSet, Manifest, Rule, Vm, VmKind};

use crate::flat;
use crate::layout::FreeMemory;
use crate::refusal::{Fault, Refusal};

/// Memory of one vCPU's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// EL2 VA.
    pub input: u64,
    /// Bytes, as whole pages.
    pub size: u64,
}

/// Finds VMs with longer vectors than this CPU has, and VMs with a length that it has not: their
/// guests would find a shorter one. Returns the CPU's lengths, of which `ask` tells; it is called
/// only if a VM has SVE.
pub fn check(manifest: &Manifest<'_>, ask: fn() -> Lengths, faults: &mut Vec<Fault>) -> Lengths {
    let has_sve = manifest.vms.iter().any(|vm| vm.sve_bits != 0);
    if !has_sve {
        return Lengths::NONE;
    }
    // Before the look: firmware that keeps SVE from EL2 may not return from it.
    log::info!("SVE: this CPU is asked; firmware has to allow that (CPTR_EL3.EZ)");
    let lengths = ask();
    // planted: a VM has vectors that the CPU has not
    let missing = |bits: u32| bits != 0 && !lengths.has(bits);
    for vm in manifest.vms.iter().filter(|vm| missing(vm.sve_bits)) {
        let text = alloc::format!("{}; CPU 0 has {}", vm.sve_bits, list(lengths));
        faults.push(Fault::new(Rule::NoVectors, vm.name, "sve-bits", text));
    }
    lengths
}

/// Returns the lengths as a text.
fn list(lengths: Lengths) -> String {
    let all = (GRANULE..=LONGEST).step_by(GRANULE as usize);
    let there = all.filter(|bits| lengths.has(*bits));
    let texts: Vec<String> = there.map(|bits| bits.to_string()).collect();
    match texts.as_slice() {
        [] => "no SVE".into(),
        texts => alloc::format!("vectors of {} bits", texts.join(", ")),
    }
}

/// Returns the longest vectors in bits of the VMs that a CPU may run: of a real-time VM's CPU its VM's,
/// and of one of Gear2's all others', since Gear2 may move vCPUs among its CPUs.
#[must_use]
pub fn longest(manifest: &Manifest<'_>, gear2_cpus: CpuSet, cpu: CpuIndex) -> u32 {
    let may_run = |vm: &&Vm<'_>| match vm.kind {
        VmKind::RealTime => vm.cpus.set().contains(cpu),
        VmKind::Guest | VmKind::Device => gear2_cpus.contains(cpu),
    };
    let vms = manifest.vms.iter().filter(may_run);
    vms.map(|vm| vm.sve_bits).max().unwrap_or(0)
}

/// Returns the memory of the registers of all vCPUs whose VMs have SVE, in the order of the vCPUs.
#[must_use]
pub fn pieces(manifest: &Manifest<'_>) -> Vec<Piece> {
    let vcpus = manifest.vms.iter();
    let vcpus = vcpus.flat_map(|vm| core::iter::repeat_n(vm.sve_bits, vm.vcpu_count));
    let inputs = (el2::SVE..).step_by(el2::SVE_STRIDE as usize);
    let with_sve = inputs.zip(vcpus).filter(|(_, bits)| *bits != 0);
    let pieces = with_sve.map(|(input, bits)| Piece {
        input,
        size: size(bits).next_multiple_of(PAGE_SIZE),
    });
    pieces.collect()
}

/// Takes the memory of all pieces, side by side and zeroed; `None`: there is none.
pub(crate) fn take<M: PhysicalMemory>(
    pieces: &[Piece],
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Option<Pa>, Refusal> {
    let size: u64 = pieces.iter().map(|piece| piece.size).sum();
    if size == 0 {
        return Ok(None);
    }
    flat::zeroed(free, memory, size, "registers of SVE").map(Some)
}

#[cfg(test)]
mod tests;
