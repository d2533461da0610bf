use vm_memory::{GuestMemoryBackend as _, GuestMemoryRegion as _};

use super::*;

#[test]
fn an_access_is_in_the_region_or_an_error() {
    const BEGIN: u64 = 0x4000_0000;
    const SIZE: u64 = 0x2000;
    let region = GuestRegionMmap::from_range(GuestAddress(BEGIN), SIZE as usize, None).unwrap();
    assert_eq!(region.len(), SIZE);
    let memory = Memory::of(region).unwrap();
    let is_in = |address, length| memory.slice(GuestAddress(address), length).is_ok();
    for (address, length) in [
        (BEGIN, SIZE as usize),
        (BEGIN + SIZE - 1, 1),
        (BEGIN + SIZE, 0),
    ] {
        assert!(is_in(address, length), "{address:#x} {length:#x}");
    }
    for (address, length) in [
        (BEGIN, SIZE as usize + 1),
        (BEGIN + SIZE - 1, 2),
        (BEGIN + SIZE, 1),
        (BEGIN - 1, 1),
        (BEGIN - 1, 2),
        (0, 1),
        (u64::MAX, 1),
        (u64::MAX, usize::MAX),
        (BEGIN + 1, usize::MAX),
        (BEGIN - 1, usize::MAX),
    ] {
        assert!(!is_in(address, length), "{address:#x} {length:#x}");
    }
    // Both ways lead to the same bytes.
    let bytes = memory.slice(GuestAddress(BEGIN + 5), 1).unwrap();
    let host = memory.get_host_address(GuestAddress(BEGIN + 5)).unwrap();
    assert_eq!(bytes.ptr_guard().as_ptr(), host.cast_const());
}
