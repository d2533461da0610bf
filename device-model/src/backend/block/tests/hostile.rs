//! Rings that break rules: the device serves, or breaks and can be reset.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::*;

#[test]
fn a_chain_that_breaks_a_rule_breaks_the_device_until_its_reset() {
    let end = RAM + RAM_SIZE as u64;
    let chains: &[&[(u64, u32, u16, u16)]] = &[
        // A loop; a next outside the table; memory outside the guest's, by a byte and by much.
        &[(HEADER, 16, NEXT, 0)],
        &[(HEADER, 16, NEXT, 16)],
        &[(end - 15, 16, NEXT, 1), (STATUS, 1, WRITE, 0)],
        &[(u64::MAX - 3, 16, NEXT, 1), (STATUS, 1, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (BUFFER, u32::MAX, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (end, 1, WRITE, 0)],
        // Readable behind writable; no header; no status; an indirect table of odd size.
        &[(STATUS, 1, WRITE | NEXT, 1), (HEADER, 16, 0, 0)],
        &[(STATUS, 1, WRITE, 0)],
        &[(HEADER, 16, 0, 0)],
        &[(HEADER, 15, INDIRECT, 0)],
        &[(HEADER, 0, INDIRECT, 0)],
        &[(end, 32, INDIRECT, 0)],
    ];
    let mut disk = Disk::new();
    for chain in chains {
        let table = disk.guest.rings[0].descriptors();
        for (index, descriptor) in chain.iter().enumerate() {
            disk.guest.describe(table, index as u16, *descriptor);
        }
        let used = disk.guest.used_index(0);
        disk.guest.offer(0, 0);
        disk.guest.work();
        assert_eq!(disk.guest.used_index(0), used, "{chain:?}");
        assert_eq!(disk.guest.status() & NEEDS_RESET, NEEDS_RESET, "{chain:?}");
        disk.guest.put(disk.guest.rings[0].available(), &[0; 4]);
        disk.guest.put(disk.guest.rings[0].used(), &[0; 4]);
        disk.guest.rings[0].added = 0;
        disk.guest.initialise(FLUSH, 1);
        assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    }
}

#[test]
fn a_broken_chain_leaves_those_before_it_done() {
    let mut disk = Disk::new();
    offer_one_of_many(&mut disk, 0, 0, 1);
    offer_one_of_many(&mut disk, 1, 0, 2);
    let table = disk.guest.rings[0].descriptors();
    disk.guest.describe(table, 6, (HEADER, 16, NEXT, 6));
    disk.guest.offer(0, 6);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 2);
    assert_eq!(disk.guest.get(STATUS, 2), [0; 2]);
    assert_eq!(disk.guest.status() & NEEDS_RESET, NEEDS_RESET);
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![
        6 => select(vec![HEADER, STATUS, BUFFER, RAM, RAM + 0x4000, RAM + 0x8000]),
        1 => RAM..RAM + RAM_SIZE as u64,
        1 => any::<u64>(),
    ];
    let length = prop_oneof![
        6 => select(vec![0, 1, 16, 48, 256, 512, 4096]),
        1 => any::<u32>(),
    ];
    (address, length, 0..8_u16, 0..18_u16)
}

proptest! {
    /// Random tables, heads and indices: the device serves, or breaks and can be reset. The memory
    /// behind the guest's does not change (its end is the end of a mapping).
    #[test]
    fn hostile_rings_harm_nobody(
        table in vec(descriptor(), 16),
        heads in vec(0..20_u16, 1..24),
        kind in select(vec![0, 1, 4, 8, 11, 13, 99]),
        jump in prop_oneof![3 => select(vec![0_u16]), 1 => any::<u16>()],
    ) {
        let mut disk = Disk::new();
        let ring = disk.guest.rings[0];
        disk.guest.put(HEADER, &u64::from(kind as u32).to_le_bytes());
        for (index, descriptor) in table.iter().enumerate() {
            disk.guest.describe(ring.descriptors(), index as u16, *descriptor);
        }
        for head in heads {
            disk.guest.offer(0, head);
            disk.guest.work();
        }
        disk.guest.rings[0].added = disk.guest.rings[0].added.wrapping_add(jump);
        disk.guest.offer(0, 0);
        disk.guest.work();
        assert_eq!(disk.file().len(), SECTORS * 512);
        disk.guest.put(ring.available(), &[0; 4]);
        disk.guest.put(ring.used(), &[0; 4]);
        disk.guest.rings[0].added = 0;
        disk.guest.initialise(FLUSH, 1);
        assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    }
}
