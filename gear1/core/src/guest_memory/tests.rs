//! Requirements: G1-MEM-003, G1-MEM-015.

use gear1_abi::boot::{BootRegion, BootVm};
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::layout::el2::WINDOW_SIZE;

use super::GuestMemory;

const START: u64 = 0x4000_0000;
const SIZE: u64 = 2 * WINDOW_SIZE;

/// Two VMs: the regions of the first adjoin each other, and the memory of the second.
fn vms() -> [BootVm; 2] {
    let region = |number| BootRegion {
        ipa: 0,
        pa: START + number * SIZE,
        size: SIZE,
    };
    let mut vms = [BootVm::default(); 2];
    vms[0].regions[..2].copy_from_slice(&[region(0), region(1)]);
    vms[1].regions[0] = region(2);
    vms
}

/// G1-MEM-003, -015: every byte of a piece is of one region, whatever adjoins that region.
#[test]
fn a_piece_is_memory_of_one_region() {
    let end = START + 3 * SIZE;
    for boundary in [START, START + SIZE, START + 2 * SIZE, end] {
        for before in [0, 1, 16] {
            for behind in [0, 1, 15] {
                let (before, behind) = (before * PAGE_SIZE, behind * PAGE_SIZE);
                let is_free =
                    (boundary == START && before != 0) || (boundary == end && behind != 0);
                let piece = GuestMemory::of(&vms(), boundary - before, before + behind);
                let is_one = before + behind != 0 && (before == 0 || behind == 0) && !is_free;
                assert_eq!(
                    piece.is_some(),
                    is_one,
                    "{before:#x} and {behind:#x} at {boundary:#x}"
                );
                if let Some(piece) = piece {
                    assert_eq!(piece.pa(), boundary - before);
                    assert_eq!(piece.size(), before + behind);
                }
            }
        }
    }
    // Beside the empty regions of a VM, and at the end of all addresses.
    for pa in [0, u64::MAX, u64::MAX - PAGE_SIZE + 1] {
        assert_eq!(GuestMemory::of(&vms(), pa, PAGE_SIZE), None);
    }
    assert_eq!(GuestMemory::of(&vms(), START + PAGE_SIZE, u64::MAX), None);
}

/// Of the VMs that are named only: a search among one VM's regions finds no other VM's memory.
#[test]
fn a_page_of_another_vm_is_not_found() {
    let vms = vms();
    let [first, second] = [&vms[..1], &vms[1..]];
    for (of, pa) in [(first, START), (second, START + 2 * SIZE)] {
        assert!(GuestMemory::of(of, pa, PAGE_SIZE).is_some(), "{pa:#x}");
    }
    for (of, pa) in [(second, START), (first, START + 2 * SIZE)] {
        assert_eq!(GuestMemory::of(of, pa, PAGE_SIZE), None, "{pa:#x}");
    }
}

/// A window maps all of a piece, also of one that begins inside a page.
#[test]
fn a_piece_fits_a_window() {
    let of = |pa, size| GuestMemory::of(&vms(), pa, size).is_some();
    assert!(of(START, WINDOW_SIZE));
    assert!(!of(START, WINDOW_SIZE + 8));
    assert!(of(START + 8, WINDOW_SIZE - 8));
    assert!(!of(START + 8, WINDOW_SIZE));
}
