//! VMs whose tables are maps, for tests.

use std::boxed::Box;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::vec::Vec;

use gear1_abi::boot::BootRegion;
use gear1_abi::id::VmId;
use gear1_ghost::walk::Tree;

use super::{Ledger, Vms};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Attributes, Geometry, Stage2};
use crate::table::testing::{FakeTable, FakeTables};
use crate::table::{Descriptors, LiveTables, TableMemory};

/// Size of each VM's memory: 4 MiB.
pub(crate) const SIZE: u64 = 4 << 20;

/// VMs, of which the third sees its memory elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct FakeVms {
    tables: Vec<FakeTables>,
    regions: Vec<&'static [BootRegion]>,
    /// Number of TLB invalidations.
    pub(crate) invalidated: usize,
    /// Number of descriptor writes.
    pub(crate) writes: u64,
    /// Number of descriptor reads.
    pub(crate) reads: Cell<u64>,
}

/// Tables of one VM.
pub(crate) struct VmTables<'a>(
    &'a mut FakeTables,
    &'a mut usize,
    &'a mut u64,
    &'a Cell<u64>,
);

/// Level and descriptor of the leaf of each page, by VM and address.
pub(crate) type Pages = BTreeMap<(usize, u64), (u64, u64)>;
/// Mappings of all VMs, and the number of their tables.
pub(crate) type Snapshot = (Pages, Vec<usize>);

pub(crate) fn vm(index: usize) -> VmId {
    VmId::new(index).unwrap()
}

/// Returns the start of a VM's memory.
pub(crate) fn start(index: usize) -> u64 {
    (16 << 20) + index as u64 * SIZE
}

impl FakeVms {
    /// Makes three VMs, each of which may take `budget` tables.
    pub(crate) fn new(budget: usize) -> Self {
        Self::of(3, budget)
    }

    /// Makes `count` VMs.
    pub(crate) fn of(count: usize, budget: usize) -> Self {
        let mut vms = Self {
            tables: Vec::new(),
            regions: Vec::new(),
            invalidated: 0,
            writes: 0,
            reads: Cell::new(0),
        };
        for index in 0..count {
            let region = BootRegion {
                ipa: start(index) + if index == 2 { 64 << 20 } else { 0 },
                pa: start(index),
                size: SIZE,
            };
            // One table maps the VM's memory.
            let mut tables = FakeTables::new(2, budget + 1);
            let (ipa, pa) = (Ipa::new(region.ipa), Pa::new(region.pa));
            vms.stage2(vm(index))
                .map(&mut tables, ipa, pa, SIZE, Attributes::RAM)
                .unwrap();
            vms.tables.push(tables);
            vms.regions.push(Box::leak(Box::new([region])));
        }
        vms
    }

    /// Lets a VM's memory be two regions that adjoin, the first of `size` bytes.
    pub(crate) fn split_region(&mut self, index: usize, size: u64) {
        let [whole] = self.regions[index] else {
            panic!("VM {index} has several regions");
        };
        let first = BootRegion {
            ipa: whole.ipa,
            pa: whole.pa,
            size,
        };
        let second = BootRegion {
            ipa: whole.ipa + size,
            pa: whole.pa + size,
            size: whole.size - size,
        };
        self.regions[index] = Box::leak(Box::new([first, second]));
    }

    /// Lets a VM see its memory at `ipa`, in new tables of which it may take `budget`.
    pub(crate) fn see_at(&mut self, index: usize, ipa: u64, budget: usize) {
        let region = BootRegion {
            ipa,
            ..self.regions[index][0]
        };
        let mut tables = FakeTables::new(2, budget + 1);
        let (ipa, pa) = (Ipa::new(region.ipa), Pa::new(region.pa));
        self.stage2(vm(index))
            .map(&mut tables, ipa, pa, region.size, Attributes::RAM)
            .unwrap();
        self.tables[index] = tables;
        self.regions[index] = Box::leak(Box::new([region]));
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let mut pages = BTreeMap::new();
        let count = self.tables.len();
        for index in 0..count {
            let places =
                (start(0)..start(count)).chain(start(2) + (64 << 20)..start(3) + (64 << 20));
            for ipa in places.step_by(4096) {
                let stage2 = self.stage2(vm(index));
                let found = stage2.descriptor(&self.tables(vm(index)), Ipa::new(ipa));
                if found.1 != 0 {
                    pages.insert((index, ipa), found);
                }
            }
        }
        (pages, self.table_counts())
    }

    /// Returns the level of what stands for `ipa` in a VM's tables, and its descriptor.
    pub(crate) fn descriptor(&mut self, index: usize, ipa: Ipa) -> (u64, u64) {
        let stage2 = self.stage2(vm(index));
        stage2.descriptor(&self.tables(vm(index)), ipa)
    }

    /// Returns all that a VM's tables map, each with its address there, its physical address, and
    /// its size. Every table is walked.
    pub(crate) fn leaves(&self, index: usize) -> Vec<(u64, u64, u64)> {
        let (mut read, mut found) = (self.descriptors(), Vec::new());
        let vtcr = Geometry::choose(2, 1 << 32).unwrap().vtcr();
        let walked =
            Tree { vtcr, root: 0 }.each_leaf(&mut |at| read(index, at), &mut |ipa, pa, size| {
                found.push((ipa, pa, size));
                Ok(())
            });
        walked.unwrap();
        found
    }

    /// Returns a table of a VM's, which exists.
    pub(crate) fn table(&self, index: usize, table: u64) -> &FakeTable {
        self.tables[index].table(Pa::new(table))
    }

    /// Returns where each table of a VM's is, in no order.
    pub(crate) fn table_addresses(&self, index: usize) -> Vec<u64> {
        self.tables[index].walk_all().into_keys().collect()
    }

    /// Returns what reads the descriptor at a physical address in a VM's table.
    pub(crate) fn descriptors(&self) -> impl FnMut(usize, u64) -> u64 {
        // Mostly one of the table that the last one was of.
        let (mut last, mut words) = ((0, 0), [].as_slice());
        move |index, at| {
            let table = at & !0xfff;
            if words.is_empty() || last != (index, table) {
                words = self.table(index, table).words();
                last = (index, table);
            }
            words[(at & 0xfff) as usize / 8]
        }
    }

    /// Lets a VM have no table more, or those that it may have again.
    pub(crate) fn starve(&mut self, index: usize, is_starved: bool) {
        self.tables[index].is_empty = is_starved;
    }

    pub(crate) fn is_starved(&self, index: usize) -> bool {
        self.tables[index].is_empty
    }

    /// Returns how many tables each VM has.
    pub(crate) fn table_counts(&self) -> Vec<usize> {
        self.tables.iter().map(FakeTables::count).collect()
    }
}

impl Ledger {
    /// Returns the ledger without the number of begun transactions.
    pub(crate) fn without_serial(&self) -> Self {
        Self {
            serial: 0,
            ..self.clone()
        }
    }
}

impl Vms for FakeVms {
    type Tables<'a> = VmTables<'a>;

    fn tables(&mut self, vm: VmId) -> VmTables<'_> {
        let tables = &mut self.tables[vm.index()];
        VmTables(tables, &mut self.invalidated, &mut self.writes, &self.reads)
    }

    fn stage2(&self, _vm: VmId) -> Stage2 {
        Geometry::choose(2, 1 << 32).unwrap().stage2(Pa::new(0))
    }

    fn regions(&self, vm: VmId) -> &'static [BootRegion] {
        self.regions[vm.index()]
    }
}

impl Descriptors for VmTables<'_> {
    fn read(&self, table: Pa, index: usize) -> u64 {
        self.3.set(self.3.get() + 1);
        self.0.read(table, index)
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        *self.2 += 1;
        self.0.write(table, index, descriptor);
    }
}

impl TableMemory for VmTables<'_> {
    fn alloc(&mut self) -> Option<Pa> {
        self.0.alloc()
    }

    fn available(&self) -> usize {
        self.0.available()
    }
}

impl LiveTables for VmTables<'_> {
    fn free(&mut self, table: Pa) {
        self.0.free(table);
    }

    fn invalidate(&mut self) {
        *self.1 += 1;
    }

    fn keeps_pages(&self) -> bool {
        self.0.keeps_pages()
    }
}
