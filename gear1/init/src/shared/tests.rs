//! Requirements: G1-MEM-021.

use alloc::vec::Vec;

use crate::dax::{BLOCK_OFFSET, DATA_OFFSET};
use crate::prepare::tests::{Case, stage2};
use crate::region::Region;
use crate::testing::Mapping;
use crate::trees::{cells, text};

const MIB: u64 = 1 << 20;
const ADDRESS: u64 = 0x5000_0000;
const LEAD: u64 = ADDRESS - DATA_OFFSET;
const RIGHTS: u64 = 0b11 << 6 | 1 << 54;
const READ_ONLY: u64 = 1 << 6 | 1 << 54;
const READ_WRITE: u64 = 0b11 << 6 | 1 << 54;
const STATE: u64 = 0xf << 55;

fn case() -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/reader", "memory-mib", cells(&[2]))
        .set("/vms/reader", "image", text("guest.bin"))
        .set("/shared-memory/board", "address", cells(&[ADDRESS as u32]))
        .set("/shared-memory/board", "size-mib", cells(&[4]))
        .set("/shared-memory/board", "vms", text("linux"))
        .set("/shared-memory/board", "readers", text("reader"));
    case
}

/// Returns the leaves that translate to the memory, or what describes it.
fn leaves(mappings: &[Mapping]) -> Vec<Mapping> {
    let all = Region::new(LEAD, ADDRESS + 4 * MIB);
    let here = |leaf: &&Mapping| leaf.output.overlaps(&all);
    mappings.iter().filter(here).copied().collect()
}

#[test]
fn each_vm_has_what_the_manifest_says_and_no_more() {
    let (prepared, memory, _) = case().run();
    let left = prepared.unwrap().left;
    assert!(
        left.iter()
            .all(|free| !free.overlaps(&Region::new(LEAD, ADDRESS + 4 * MIB)))
    );
    let roots = memory.boot_info.as_ref().unwrap().1.vms.map(|vm| vm.root);
    let rights = |vm: usize| {
        let leaves = leaves(&stage2(&memory, roots[vm]));
        assert!(leaves.iter().all(|leaf| leaf.input == leaf.output.start));
        // No VM owns the memory: no call shares it on.
        assert!(leaves.iter().all(|leaf| leaf.descriptor & STATE == 0));
        let data = leaves.iter().filter(|leaf| leaf.input >= ADDRESS);
        let size: u64 = data.clone().map(|leaf| leaf.output.bytes()).sum();
        let lead = leaves.iter().filter(|leaf| leaf.input < ADDRESS);
        assert!(
            lead.clone()
                .all(|leaf| leaf.descriptor & RIGHTS == READ_ONLY)
        );
        (
            size,
            data.map(|leaf| leaf.descriptor & RIGHTS)
                .collect::<Vec<_>>(),
        )
    };
    let (size, writer) = rights(0);
    assert_eq!(size, 4 * MIB);
    assert!(writer.iter().all(|rights| *rights == READ_WRITE));
    assert_eq!(rights(1).0, 0);
    let (size, reader) = rights(2);
    assert_eq!(size, 4 * MIB);
    assert!(reader.iter().all(|rights| *rights == READ_ONLY));
}

#[test]
fn it_is_zero_and_described_to_linux() {
    let (prepared, memory, _) = case().run();
    prepared.unwrap();
    let word = |at: u64| memory.read(at, 8);
    assert_eq!(word(ADDRESS), [0; 8]);
    assert_eq!(word(ADDRESS + 4 * MIB - 8), [0; 8]);
    assert_eq!(word(LEAD + BLOCK_OFFSET), *b"NVDIMM_D");
}

#[test]
fn memory_that_is_taken_is_refused() {
    let mut case = case();
    // Address at which the loader has put the device tree.
    let device_tree = cells(&[0x4a00_0000]);
    case.manifest = case
        .manifest
        .set("/shared-memory/board", "address", device_tree);
    let refused = case.run().0.unwrap_err();
    assert!(
        refused.contains("M-MEM-006: /shared-memory/board: address: "),
        "{refused}"
    );
}
