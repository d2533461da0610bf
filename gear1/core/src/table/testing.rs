//! Tables in a map, for tests.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use gear1_ghost::GROUPS;

use super::{Descriptors, ENTRIES, LiveTables, TableMemory};
use crate::addr::Pa;

/// The first table that [`FakeTables`] gives out; the pages below are for roots.
pub(crate) const FIRST: u64 = 0x10_0000;

/// Hash of a page's address: the default hash takes longer than the tested code.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ (value >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Pages by their address; copies share equal pages.
pub(crate) type Pages = HashMap<u64, Arc<Vec<u64>>, BuildHasherDefault<PageHasher>>;

/// One of [`FakeTables`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeTable {
    words: Arc<Vec<u64>>,
    writes: [u64; GROUPS],
}

impl FakeTable {
    fn new() -> Self {
        Self {
            words: Arc::new(vec![0; ENTRIES]),
            writes: [0; GROUPS],
        }
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns how often each eighth of it was written. No other table comes to be where it was.
    pub(crate) fn writes(&self) -> [u64; GROUPS] {
        self.writes
    }
}

/// Tables that exist only as far as they were given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeTables {
    tables: HashMap<u64, FakeTable, BuildHasherDefault<PageHasher>>,
    next: u64,
    available: usize,
    /// There is none for now, whatever is available.
    pub(crate) is_empty: bool,
    /// Devices walk the tables.
    pub(crate) keeps_pages: bool,
}

impl FakeTables {
    /// Returns `roots` root tables at address 0 and a pool of `available` more.
    pub(crate) fn new(roots: u64, available: usize) -> Self {
        let tables = (0..roots)
            .map(|root| (root * 4096, FakeTable::new()))
            .collect();
        Self {
            tables,
            next: FIRST,
            available,
            is_empty: false,
            keeps_pages: false,
        }
    }

    /// Returns every table that is there, by its address.
    pub(crate) fn walk_all(&self) -> Pages {
        let tables = self.tables.iter();
        tables
            .map(|(at, table)| (*at, table.words.clone()))
            .collect()
    }

    /// Returns how many tables are there.
    pub(crate) fn count(&self) -> usize {
        self.tables.len()
    }

    /// Returns a table, which exists.
    pub(crate) fn table(&self, table: Pa) -> &FakeTable {
        &self.tables[&table.get()]
    }

    pub(crate) fn used(&self) -> u64 {
        (self.next - FIRST) / 4096
    }
}

impl Descriptors for FakeTables {
    fn read(&self, table: Pa, index: usize) -> u64 {
        self.table(table).words[index]
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        let table = self.tables.get_mut(&table.get());
        let table = table.expect("a table that exists");
        table.writes[index * GROUPS / ENTRIES] += 1;
        Arc::make_mut(&mut table.words)[index] = descriptor;
    }
}

impl TableMemory for FakeTables {
    fn alloc(&mut self) -> Option<Pa> {
        if self.is_empty {
            return None;
        }
        self.available = self.available.checked_sub(1)?;
        let table = self.next;
        self.next += 4096;
        self.tables.insert(table, FakeTable::new());
        Some(Pa::new(table))
    }

    fn available(&self) -> usize {
        if self.is_empty { 0 } else { self.available }
    }
}

impl LiveTables for FakeTables {
    fn free(&mut self, table: Pa) {
        let freed = self.tables.remove(&table.get());
        freed.expect("a table that exists");
        self.available += 1;
    }

    fn invalidate(&mut self) {}

    fn keeps_pages(&self) -> bool {
        self.keeps_pages
    }
}
