//! Translation tables in free memory.
//!
//! No table is ever freed here: a refusal ends the boot. No barrier is needed either, as no CPU
//! walks these tables before init is done.
//!
//! Requirements: G1-BOOT-003.

use core::ops::Range;

use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::table::{Descriptors, TABLE_SIZE, TableMemory};

use crate::layout::FreeMemory;

/// Tables that are taken from `free` as they are needed.
#[derive(Debug)]
pub struct BootTables<'m, M> {
    /// Memory that holds the tables.
    pub memory: &'m mut M,
    /// Free memory that tables are taken from.
    pub free: &'m mut FreeMemory,
}

impl<M: PhysicalMemory> Descriptors for BootTables<'_, M> {
    fn read(&self, table: Pa, index: usize) -> u64 {
        self.memory.read_word(entry(table, index))
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        self.memory.write_word(entry(table, index), descriptor);
    }

    fn count_empty(&self, table: Pa, indexes: Range<usize>) -> usize {
        let first = entry(table, indexes.start);
        self.memory.count_zero_words(first, indexes.len())
    }

    fn write_run(&mut self, table: Pa, indexes: Range<usize>, first: u64, step: u64) {
        let place = entry(table, indexes.start);
        self.memory.write_words(place, indexes.len(), first, step);
    }
}

impl<M: PhysicalMemory> TableMemory for BootTables<'_, M> {
    /// Takes a table and wipes it: a descriptor of zero maps nothing.
    fn alloc(&mut self) -> Option<Pa> {
        let table = self
            .free
            .take(TABLE_SIZE, TABLE_SIZE, "a translation table")
            .ok()?;
        self.memory.zero(table, TABLE_SIZE);
        Some(table)
    }

    fn available(&self) -> usize {
        usize::try_from(self.free.total() / TABLE_SIZE).unwrap_or(usize::MAX)
    }
}

/// Returns the address of a descriptor.
#[inline(always)]
fn entry(table: Pa, index: usize) -> Pa {
    Pa::new(table.get() + index as u64 * 8)
}
