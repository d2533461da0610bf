//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;

use crate::testing::{VIRT_GICV3, tree};
use crate::trees::{Tree, cells, text};

use super::super::read;

/// Returns `virt` with CPUs of these affinities, whose phandles count from 100, and no map.
fn virt(affinities: &[u32]) -> Tree {
    let mut tree = tree(VIRT_GICV3);
    let (_, cpus) = tree
        .children
        .iter_mut()
        .find(|(name, _)| name == "cpus")
        .unwrap();
    cpus.children.clear();
    for (affinity, phandle) in affinities.iter().zip(100..) {
        let path = alloc::format!("/cpus/cpu@{affinity:x}");
        tree = tree
            .node(&path)
            .set(&path, "device_type", text("cpu"))
            .set(&path, "enable-method", text("psci"))
            .set(&path, "reg", cells(&[*affinity]))
            .set(&path, "phandle", cells(&[phandle]));
    }
    tree
}

/// Adds cores to the map: the path of each below it, and the index of its CPU.
fn mapped(tree: Tree, cores: &[(&str, u32)]) -> Tree {
    cores.iter().fold(tree, |tree, (path, cpu)| {
        let path = alloc::format!("/cpus/cpu-map/{path}");
        tree.node(&path).set(&path, "cpu", cells(&[100 + cpu]))
    })
}

fn clusters(tree: &Tree) -> Vec<u8> {
    let board = read(tree.flatten().as_slice()).board.unwrap();
    board.cpus.iter().map(|cpu| cpu.cluster).collect()
}

#[test]
fn the_map_groups_cores() {
    let virt = virt(&[0, 1, 2, 3]);
    let two = [
        ("socket0/cluster0/core0", 0),
        ("socket0/cluster0/core1", 2),
        ("socket0/cluster1/core0", 1),
        ("socket0/cluster1/core1", 3),
    ];
    assert_eq!(clusters(&mapped(virt.clone(), &two)), [0, 1, 0, 1]);
    let sockets = [
        ("socket0/core0", 0),
        ("socket0/core1", 1),
        ("socket1/core0", 2),
        ("socket1/core1", 3),
    ];
    assert_eq!(clusters(&mapped(virt.clone(), &sockets)), [0, 0, 1, 1]);
    let threads = [
        ("cluster0/core0/thread0", 0),
        ("cluster0/core0/thread1", 1),
        ("cluster0/core1/thread0", 2),
        ("cluster1/core0/thread0", 3),
    ];
    assert_eq!(clusters(&mapped(virt, &threads)), [0, 0, 0, 1]);
}

/// A cluster in a cluster is one of its own, and each has a number in the order of the CPUs.
#[test]
fn the_innermost_cluster_counts() {
    let nested = [
        ("cluster0/cluster0/core0", 3),
        ("cluster0/cluster1/core0", 2),
        ("cluster1/core0", 0),
        ("cluster1/core1", 1),
    ];
    assert_eq!(
        clusters(&mapped(virt(&[0, 1, 2, 3]), &nested)),
        [0, 0, 1, 2]
    );
}

#[test]
fn affinities_count_without_a_whole_map() {
    let virt = || virt(&[0, 1, 0x100, 0x101]);
    assert_eq!(clusters(&virt()), [0, 0, 1, 1]);
    let lacking = [("cluster0/core0", 0), ("cluster0/core1", 2)];
    assert_eq!(clusters(&mapped(virt(), &lacking)), [0, 0, 1, 1]);
    // Aff0 counts threads, of which each core has one.
    assert_eq!(clusters(&self::virt(&[0, 0x100, 0x1_0000])), [0, 0, 1]);
    assert_eq!(clusters(&self::virt(&[0x100])), [0]);
}
