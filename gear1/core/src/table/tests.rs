use std::collections::BTreeMap;
use std::vec;

use proptest::prelude::{Strategy, prop, proptest};

use super::testing::FakeTables;
use super::{Descriptors as _, Level, MapError, Slot, Span, Tables};
use crate::addr::Pa;

const KIB4: u64 = 1 << 12;
const MIB2: u64 = 1 << 21;
const GIB: u64 = 1 << 30;
const RAW: u64 = 1 << 10;

fn tables() -> Tables {
    Tables::new(Pa::new(0), Level::L0, 1 << 48)
}

fn span(input: u64, output: u64, size: u64) -> Span {
    Span {
        input,
        output,
        size,
    }
}

#[test]
fn largest_leaves_are_used() {
    let mut memory = FakeTables::new(1, 16);
    let tables = tables();
    let start = GIB - MIB2 - KIB4;
    tables
        .map(&mut memory, span(start, start + GIB, 2 * GIB), RAW)
        .unwrap();
    let level = |input| tables.walk(&memory, input).map(|leaf| leaf.level);
    assert_eq!(level(start - 1), None);
    assert_eq!(level(start), Some(Level::L3));
    assert_eq!(level(GIB - MIB2), Some(Level::L2));
    assert_eq!(level(GIB), Some(Level::L1));
    assert_eq!(level(2 * GIB), Some(Level::L2));
    assert_eq!(level(3 * GIB - MIB2 - KIB4), None);
    // Level 1; levels 2 and 3 at the start; levels 2 and 3 at the end.
    assert_eq!(memory.used(), 5);
}

#[test]
fn unlike_alignment_takes_smaller_leaves() {
    let mut memory = FakeTables::new(1, 16);
    let tables = tables();
    tables.map(&mut memory, span(GIB, MIB2, GIB), RAW).unwrap();
    let leaf = tables.walk(&memory, GIB + 5).unwrap();
    assert_eq!((leaf.level, leaf.output), (Level::L2, Pa::new(MIB2 + 5)));
}

#[test]
fn refusals_change_nothing() {
    let mut memory = FakeTables::new(1, 3);
    let tables = tables();
    tables.map(&mut memory, span(MIB2, 0, KIB4), RAW).unwrap();
    let before = memory.clone();
    let cases = [
        (span(MIB2 - KIB4, 0, 2 * KIB4), MapError::Occupied(MIB2)),
        (span(0, 0, GIB), MapError::Occupied(MIB2)),
        (span(MIB2, 0, KIB4), MapError::Occupied(MIB2)),
        (span(GIB, 0, MIB2), MapError::NoTables),
        (span(0, 0, 0), MapError::Unaligned),
        (span(1, 0, KIB4), MapError::Unaligned),
        (span(0, 1, KIB4), MapError::Unaligned),
        (span(0, 0, 1), MapError::Unaligned),
        (span((1 << 48) - KIB4, 0, 2 * KIB4), MapError::OutOfRange),
        (span(0, (1 << 48) - KIB4, 2 * KIB4), MapError::OutOfRange),
        (span(u64::MAX - KIB4 + 1, 0, KIB4), MapError::OutOfRange),
    ];
    for (span, error) in cases {
        assert_eq!(tables.map(&mut memory, span, RAW), Err(error), "{span:?}");
        assert!(memory == before, "{span:?}");
    }
}

#[test]
fn an_invalid_descriptor_with_an_owner_is_kept() {
    let mut memory = FakeTables::new(1, 8);
    memory.write(Pa::new(0), 0, 7 << 2);
    let refused = tables().map(&mut memory, span(0, 0, KIB4), RAW);
    assert_eq!(refused, Err(MapError::Occupied(0)));
    assert_eq!(tables().walk(&memory, 0), None);
}

#[test]
fn concatenated_roots_follow_one_another() {
    let mut memory = FakeTables::new(2, 8);
    let tables = Tables::new(Pa::new(0), Level::L1, 1 << 40);
    tables
        .map(&mut memory, span(512 * GIB, 7 * GIB, 2 * GIB), RAW)
        .unwrap();
    assert_eq!(memory.read(Pa::new(4096), 1), (8 * GIB) | RAW | 1);
    assert_eq!(
        tables.walk(&memory, 513 * GIB).unwrap().output,
        Pa::new(8 * GIB)
    );
    assert_eq!(tables.walk(&memory, 1 << 40), None);
}

#[test]
fn page_tables_are_made_once() {
    let mut memory = FakeTables::new(1, 8);
    let tables = tables();
    let table = tables.page_table(&mut memory, GIB).unwrap();
    assert_eq!(tables.page_table(&mut memory, GIB + KIB4), Ok(table));
    assert_eq!(memory.used(), 3);
    tables.map(&mut memory, span(0, 0, MIB2), RAW).unwrap();
    assert_eq!(
        tables.page_table(&mut memory, KIB4),
        Err(MapError::Occupied(KIB4))
    );
}

/// Returns the level 3 descriptor of `input`, however many tables that takes.
fn page(tables: &Tables, memory: &mut FakeTables, input: u64) -> Result<Slot, MapError> {
    loop {
        if let Some(slot) = tables.page(memory, input)? {
            return Ok(slot);
        }
    }
}

/// G1-MEM-018: a block that was split and merged again is as before, at every level.
#[test]
fn tidying_undoes_splitting() {
    let mut memory = FakeTables::new(2, 8);
    let tables = Tables::new(Pa::new(0), Level::L1, 1 << 40);
    tables.map(&mut memory, span(GIB, 0, GIB), RAW).unwrap();
    tables.map(&mut memory, span(0, MIB2, MIB2), RAW).unwrap();
    let before = memory.walk_all();
    for input in [0, GIB, GIB + 5 * MIB2 + KIB4, 3 * GIB] {
        let slot = page(&tables, &mut memory, input).unwrap();
        assert_eq!(slot.level, Level::L3);
        let changed = slot.descriptor ^ 1 << 55;
        memory.write(slot.table, slot.index, changed);
        while tables.tidy(&mut memory, input, |_| true) {}
        assert_eq!(tables.slot(&memory, input).descriptor, changed);
        memory.write(slot.table, slot.index, slot.descriptor);
        while tables.tidy(&mut memory, input, |_| true) {}
        assert_eq!(memory.walk_all(), before, "{input:#x}");
    }
    let short = FakeTables::new(2, 1);
    let mut memory = short.clone();
    tables.map(&mut memory, span(GIB, 0, GIB), RAW).unwrap();
    let before = memory.walk_all();
    assert_eq!(
        page(&tables, &mut memory, GIB).map(|_| ()),
        Err(MapError::NoTables)
    );
    while tables.tidy(&mut memory, GIB, |_| true) {}
    assert_eq!(memory.walk_all(), before);
}

/// Ranges in which everything can collide: around a 1 GiB boundary.
fn ranges() -> impl Strategy<Value = Span> {
    let at = |span: u64| GIB - 4 * MIB2 + span * KIB4;
    let sizes = prop::sample::select(vec![1, 2, 3, 511, 512, 513, 1024, 1536]);
    let starts = prop::sample::select(vec![0, 1, 2, 510, 511, 512, 1024, 1536, 2047, 2048, 2049]);
    let outputs = prop::sample::select(vec![0, 1, 512, 0x4_0000]);
    (starts, outputs, sizes)
        .prop_map(move |(input, output, size)| span(at(input), output * KIB4, size * KIB4))
}

proptest! {
    /// The tables agree with a map from page to page, and count the memory that they take.
    #[test]
    fn agrees_with_a_map(spans in prop::collection::vec(ranges(), 1..12), pool in 0_usize..12) {
        let tables = tables();
        let mut memory = FakeTables::new(1, pool);
        let mut model = BTreeMap::new();
        for span in spans {
            let pages = (0..span.size / KIB4).map(|page| page * KIB4);
            let taken = pages.clone().find(|page| model.contains_key(&(span.input + page)));
            let before = memory.clone();
            match tables.map(&mut memory, span, RAW) {
                Ok(()) => {
                    assert_eq!(taken, None);
                    model.extend(pages.map(|page| (span.input + page, span.output + page)));
                }
                Err(MapError::Occupied(input)) => assert_eq!(taken, Some(input - span.input)),
                Err(error) => assert_eq!((error, taken), (MapError::NoTables, None)),
            }
            if memory.used() == before.used() && taken.is_some() {
                assert!(memory == before);
            }
        }
        for page in (0..4096).map(|page| GIB - 4 * MIB2 - 16 * KIB4 + page * KIB4) {
            let output = tables.walk(&memory, page + 8).map(|leaf| leaf.output.get() - 8);
            assert_eq!(output, model.get(&page).copied());
        }
    }

    /// A span that fits is never refused half-way: the counted tables suffice.
    #[test]
    fn the_count_is_exact(span in ranges()) {
        let mut memory = FakeTables::new(1, 64);
        tables().map(&mut memory, span, RAW).unwrap();
        let needed = usize::try_from(memory.used()).unwrap();
        assert_eq!(tables().map(&mut FakeTables::new(1, needed), span, RAW), Ok(()));
        let short = FakeTables::new(1, needed - 1);
        let mut memory = short.clone();
        assert_eq!(tables().map(&mut memory, span, RAW), Err(MapError::NoTables));
        assert!(memory == short);
    }
}
