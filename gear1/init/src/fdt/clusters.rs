//! Clusters of CPUs, whose cores share a cache and are of one kind.
//!
//! `/cpus/cpu-map` groups cores into clusters, which may nest and lie in sockets (the kernel's
//! binding cpu/cpu-topology). The innermost group counts: what lies above has less in common. A
//! tree without a map, or with one that lacks a CPU, has the clusters that the affinities show.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;
use core::iter;

use gearv_manifest::blob::Node;

use super::Cpu;

/// Numbers the clusters in the order of their first CPUs. `phandles`: of the CPUs' nodes, in the
/// order of `list`.
pub(super) fn assign(cpus: &Node<'_>, phandles: &[Option<u32>], list: &mut [Cpu]) {
    let groups = by_map(cpus, phandles).unwrap_or_else(|| by_affinity(list));
    let mut known: Vec<u64> = Vec::new();
    for (cpu, group) in list.iter_mut().zip(groups) {
        let number = known.iter().position(|one| *one == group);
        let number = number.unwrap_or_else(|| {
            known.push(group);
            known.len() - 1
        });
        // A board has at most MAX_CPUS (8) that count, and so many clusters.
        cpu.cluster = u8::try_from(number).unwrap_or(u8::MAX);
    }
}

/// Returns the group of each CPU by the map; `None`: there is none that names all CPUs.
fn by_map(cpus: &Node<'_>, phandles: &[Option<u32>]) -> Option<Vec<u64>> {
    let map = cpus.child("cpu-map")?;
    let mut named = Vec::new();
    collect(&map, &mut 0, &mut named);
    let group = |phandle: &Option<u32>| {
        let cpu = named.iter().find(|(cpu, _)| Some(*cpu) == *phandle)?;
        Some(cpu.1)
    };
    phandles.iter().map(group).collect()
}

/// Collects the phandles of the CPUs below a node, each with the number of its group. The blob's
/// reader has bounded how deep nodes nest.
fn collect(node: &Node<'_>, groups: &mut u64, named: &mut Vec<(u32, u64)>) {
    *groups += 1;
    let own = *groups;
    for child in node.children() {
        if child.name().starts_with("core") {
            // A core with threads names its CPUs in the threads' nodes.
            let holders = iter::once(child).chain(child.children());
            let phandles = holders.filter_map(|holder| phandle_in(&holder, "cpu"));
            named.extend(phandles.map(|cpu| (cpu, own)));
        } else {
            collect(&child, groups, named);
        }
    }
}

/// Returns the phandle that is the value of a property.
pub(super) fn phandle_in(node: &Node<'_>, property: &str) -> Option<u32> {
    node.property(property)?.cells()?.next()
}

/// Returns the group of each CPU by affinity: all levels but the one that counts cores. That is
/// Aff0, or Aff1 where Aff0 counts the threads of a core and each core has one.
fn by_affinity(list: &[Cpu]) -> Vec<u64> {
    let threads = list.len() > 1 && list.iter().all(|cpu| cpu.mpidr & 0xff == 0);
    let shift = if threads { 16 } else { 8 };
    list.iter().map(|cpu| cpu.mpidr >> shift).collect()
}

#[cfg(test)]
mod tests;
