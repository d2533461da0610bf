//! Requirements: G1-CPU-004, G1-DMA-004.

use super::{Attributes, Geometry, Memory, PageState};
use crate::addr::{Ipa, Pa};
use crate::table::Level;
use crate::table::testing::FakeTables;

const GIB: u64 = 1 << 30;
/// T0SZ, SL0 and PS of VTCR_EL2.
fn fields(vtcr: u64) -> (u64, u64, u64) {
    (vtcr & 0x3f, vtcr >> 6 & 3, vtcr >> 16 & 7)
}

/// G1-MEM-002: every PARange, 52 bits and the reserved values included, gives a legal VTCR_EL2.
#[test]
fn every_pa_range_has_a_shape() {
    let widest = [
        (32, 32, 1, 0, 4096),
        (36, 28, 1, 1, 4096),
        (40, 24, 1, 2, 8192),
        (42, 22, 1, 3, 32768),
        (44, 20, 2, 4, 4096),
        (48, 16, 2, 5, 4096),
    ];
    for pa_range in 0..16_u64 {
        let (bits, t0sz, sl0, ps, root) = widest[pa_range.min(5) as usize];
        let geometry = Geometry::choose(pa_range, 1 << bits).unwrap();
        assert_eq!(
            fields(geometry.vtcr()),
            (t0sz, sl0, ps),
            "PARange {pa_range}"
        );
        assert_eq!((geometry.limit(), geometry.root_size()), (1 << bits, root));
        assert_eq!(Geometry::from_vtcr(geometry.vtcr()), geometry);
        assert_eq!(Geometry::choose(pa_range, (1 << bits) + 1), None);
    }
}

/// A53 (40 bits), A57 and A72 (44), N1 (48) and `max` (52) all start at level 1 in small machines.
#[test]
fn small_machines_take_forty_bits() {
    for pa_range in [2, 4, 5, 6] {
        let geometry = Geometry::choose(pa_range, 2 * GIB).unwrap();
        assert_eq!(geometry.vtcr(), 0x8002_3558);
        assert_eq!((geometry.limit(), geometry.root_size()), (1 << 40, 8192));
    }
    let geometry = Geometry::choose(1, 2 * GIB).unwrap();
    assert_eq!(
        (geometry.limit(), fields(geometry.vtcr())),
        (1 << 36, (28, 1, 1))
    );
}

#[test]
fn attributes_are_what_the_manual_says() {
    let common = 0b11 << 8 | 1 << 10 | 0b1111 << 2 | 1 << 6 | 1 << 55;
    assert_eq!(Attributes::RAM.bits(), common | 1 << 7);
    assert_eq!(Attributes::CODE.bits(), common);
    assert_eq!(Attributes::CONSTANTS.bits(), common | 1 << 54);
    assert_eq!(Attributes::DATA.bits(), common | 1 << 7 | 1 << 54);
    assert_eq!(
        Attributes::DEVICE.bits(),
        1 << 54 | 1 << 10 | 0b11 << 6 | 1 << 2
    );
}

#[test]
fn walks_return_what_was_mapped() {
    let geometry = Geometry::choose(4, 4 * GIB).unwrap();
    let mut memory = FakeTables::new(2, 8);
    let stage2 = geometry.stage2(Pa::new(0));
    stage2
        .map(
            &mut memory,
            Ipa::new(GIB),
            Pa::new(3 * GIB),
            GIB,
            Attributes::RAM,
        )
        .unwrap();
    stage2
        .map(
            &mut memory,
            Ipa::new(0x900_0000),
            Pa::new(0x1000),
            4096,
            Attributes::DEVICE,
        )
        .unwrap();
    stage2
        .map(
            &mut memory,
            Ipa::new(0),
            Pa::new(GIB),
            4096,
            Attributes::CODE,
        )
        .unwrap();
    let walk = |ipa| stage2.walk(&memory, Ipa::new(ipa));

    let ram = walk(GIB + 0x1234).unwrap();
    assert_eq!((ram.pa, ram.level), (Pa::new(3 * GIB + 0x1234), Level::L1));
    assert_eq!(ram.attributes, Attributes::RAM);
    assert_eq!(ram.attributes.state, Some(PageState::Owned));
    let device = walk(0x900_0ffc).unwrap();
    assert_eq!(
        (device.pa, device.attributes),
        (Pa::new(0x1ffc), Attributes::DEVICE)
    );
    assert_eq!(device.attributes.memory, Memory::Device);
    assert_eq!(walk(0).unwrap().attributes, Attributes::CODE);
    assert_eq!(walk(4096), None);
    assert_eq!(walk(u64::MAX), None);
}

/// What devices use is mapped by pages and stays so, as no break-before-make is possible under an
/// access of a device. An empty table goes: nothing is mapped there.
///
/// Requirement: G1-DMA-004.
#[test]
fn pages_that_devices_use_never_become_a_block() {
    const BLOCK: u64 = 2 << 20;
    for keeps_pages in [false, true] {
        let stage2 = Geometry::choose(2, 1 << 32).unwrap().stage2(Pa::new(0));
        let mut tables = FakeTables::new(1, 8);
        tables.keeps_pages = keeps_pages;
        let attributes = Attributes::RAM.with_state(PageState::Owned);
        for page in (0..BLOCK).step_by(4096) {
            let (ipa, pa) = (Ipa::new(BLOCK + page), Pa::new(BLOCK + page));
            stage2.map(&mut tables, ipa, pa, 4096, attributes).unwrap();
        }
        let merged = stage2.tidy(&mut tables, Ipa::new(BLOCK));
        let (size, _) = stage2.descriptor(&tables, Ipa::new(BLOCK));
        let expected = if keeps_pages {
            (false, 4096)
        } else {
            (true, BLOCK)
        };
        assert_eq!((merged, size), expected);
    }
}
