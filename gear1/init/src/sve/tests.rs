//! Requirements: G1-CPU-018. The CPU of these boots has vectors of 128, 256 and 512 bits.

use alloc::vec::Vec;

use gear1_abi::layout::{PAGE_SIZE, el2};

use crate::prepare::tests::Case;
use crate::testing::mappings;
use crate::trees::cells;

fn with(linux: u32, flat: u32) -> Case {
    let mut case = Case::new();
    case.manifest = case.manifest.set("/vms/linux", "sve-bits", cells(&[linux]));
    case.manifest = case.manifest.set("/vms/flat", "sve-bits", cells(&[flat]));
    case
}

/// Two vCPUs of 512 bits have a page each (2 KiB of vectors), and one of 256 bits.
#[test]
fn each_vcpu_has_memory_of_its_own() {
    let (prepared, memory, _) = with(512, 256).run();
    let root = prepared.unwrap().root.get();
    let info = *memory.boot_info.as_ref().unwrap().1;
    assert_eq!(info.vector_lengths, 0b1011);
    assert_eq!([info.vms[0].sve_bits, info.vms[1].sve_bits], [512, 256]);
    let all = mappings(&memory, root, 512, 39);
    let is_one = |input: u64| (el2::SVE..el2::SVE + 32 * el2::SVE_STRIDE).contains(&input);
    let pages: Vec<_> = all.iter().filter(|leaf| is_one(leaf.input)).collect();
    let inputs: Vec<u64> = pages.iter().map(|leaf| leaf.input - el2::SVE).collect();
    assert_eq!(inputs, [0, el2::SVE_STRIDE, 2 * el2::SVE_STRIDE]);
    for page in &pages {
        assert_eq!(page.output.bytes(), PAGE_SIZE);
        assert_eq!(page.descriptor & 1 << 7, 0, "read-only at EL2");
        let bytes = memory.read(page.output.start, PAGE_SIZE as usize);
        assert!(bytes.iter().all(|byte| *byte == 0));
        let same = pages.iter().filter(|other| other.output == page.output);
        assert_eq!(same.count(), 1, "two vCPUs share a page");
    }
}

#[test]
fn a_vm_without_sve_takes_no_memory_and_asks_no_cpu() {
    let (prepared, memory, _) = with(0, 0).run();
    let root = prepared.unwrap().root.get();
    assert_eq!(memory.boot_info.as_ref().unwrap().1.vector_lengths, 0);
    let all = mappings(&memory, root, 512, 39);
    assert!(all.iter().all(|leaf| leaf.input < el2::SVE));
}

/// A guest would find 256 bits in the place of 384, and 512 in the place of 1024.
#[test]
fn a_length_that_the_cpu_has_not_is_refused() {
    for bits in [384, 1024] {
        let refused = with(0, bits).refused();
        let expected = alloc::format!(
            "M-CPU-011: /vms/flat: sve-bits: this machine's CPUs have no vectors of this length \
             ({bits}; CPU 0 has vectors of 128, 256, 512 bits)"
        );
        assert!(refused.contains(&expected), "{refused}");
    }
}

/// A board of Cortex-A53 is judged without its CPU, and QEMU's names a model that the CPU is not.
#[test]
fn a_model_without_sve_is_known_by_its_name() {
    let mut case = with(128, 0);
    case.board = case
        .board
        .set("/", "compatible", crate::trees::text("arm,juno"));
    let refused = case.refused();
    assert!(refused.contains("M-CPU-011: /vms/linux"), "{refused}");
    assert!(!refused.contains("CPU 0"), "{refused}");
    assert!(with(128, 0).run().0.is_ok());
}
