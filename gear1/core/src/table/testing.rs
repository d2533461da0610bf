//! Tables in a map, for tests.

use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

use super::{ENTRIES, LiveTables, TableMemory};
use crate::addr::Pa;

/// The first table that [`FakeTables`] gives out; the pages below are for roots.
pub(crate) const FIRST: u64 = 0x10_0000;

/// Tables that exist only as far as they were given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeTables {
    tables: HashMap<u64, Vec<u64>>,
    next: u64,
    available: usize,
}

impl FakeTables {
    /// Returns `roots` root tables at address 0 and a pool of `available` more.
    pub(crate) fn new(roots: u64, available: usize) -> Self {
        let tables = (0..roots)
            .map(|root| (root * 4096, vec![0; ENTRIES]))
            .collect();
        Self {
            tables,
            next: FIRST,
            available,
        }
    }

    /// Returns every table that is there, by its address.
    pub(crate) fn walk_all(&self) -> HashMap<u64, Vec<u64>> {
        self.tables.clone()
    }

    pub(crate) fn used(&self) -> u64 {
        (self.next - FIRST) / 4096
    }
}

impl TableMemory for FakeTables {
    fn read(&self, table: Pa, index: usize) -> u64 {
        self.tables[&table.get()][index]
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        self.tables
            .get_mut(&table.get())
            .expect("a table that exists")[index] = descriptor;
    }

    fn alloc(&mut self) -> Option<Pa> {
        self.available = self.available.checked_sub(1)?;
        let table = self.next;
        self.next += 4096;
        self.tables.insert(table, vec![0; ENTRIES]);
        Some(Pa::new(table))
    }

    fn available(&self) -> usize {
        self.available
    }
}

impl LiveTables for FakeTables {
    fn free(&mut self, table: Pa) {
        let freed = self.tables.remove(&table.get());
        freed.expect("a table that exists");
        self.available += 1;
    }

    fn invalidate(&mut self) {}
}
