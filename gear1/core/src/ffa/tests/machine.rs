//! VMs that call, and the ghost that follows them.

use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use gear1_abi::boot::BootRegion;
use gear1_abi::id::VmId;
use gear1_abi::regs::Regs;
use gear1_ghost::walk::Tree;
use gear1_ghost::{Ghost, Seen, Wrong};

use super::super::{End, Outcome, Platform, call, function, release};
use crate::addr::Pa;
use crate::ownership::testing::{FakeVms, SIZE, Snapshot, start, vm};
use crate::ownership::{Ledger, Piece, Vms, bit};
use crate::stage2::{Geometry, Stage2};
use crate::table::testing::Pages;

pub(super) const PAGE: u64 = 4096;
pub(super) const COUNT: usize = 3;
/// Of each of four VMs as each of them sees it, spans of 2 MiB.
const PARTS: usize = 4 * 4 * (SIZE >> 21) as usize;

/// Random numbers, the same from the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// VMs with memory that can be read and written.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) vms: FakeVms,
    memory: Pages,
    pub(super) running: u16,
    /// All VMs: bit per VM.
    pub(super) members: u16,
    /// A planted bug: the tables of two VMs are taken for each other.
    pub(super) swapped: bool,
    /// A planted bug: the tables note an owner who shares as the borrower, and the borrower as the
    /// owner.
    pub(super) owners_swapped: bool,
}

impl Host {
    fn page(&mut self, page: u64) -> &mut Vec<u64> {
        let page = self.memory.entry(page);
        Arc::make_mut(page.or_insert_with(|| Arc::new([0; 512].to_vec())))
    }

    pub(super) fn word(&mut self, page: u64, index: usize) -> &mut u64 {
        &mut self.page(page)[index]
    }

    /// Returns what reads the descriptor at a physical address in a VM's table.
    fn descriptors(&self) -> impl FnMut(usize, u64) -> u64 {
        let mut read = self.vms.descriptors();
        move |index, at| {
            let descriptor = read(index, at);
            // SharedOwned is 2, SharedBorrowed 3.
            match (self.owners_swapped, descriptor >> 55 & 0xf) {
                (true, 2 | 3) => descriptor ^ 1 << 55,
                _ => descriptor,
            }
        }
    }

    fn who(&self, vm_id: VmId) -> VmId {
        match (self.swapped, vm_id.index()) {
            (true, 0) => vm(1),
            (true, 1) => vm(0),
            _ => vm_id,
        }
    }
}

impl Vms for Host {
    type Tables<'a> = <FakeVms as Vms>::Tables<'a>;

    fn tables(&mut self, vm: VmId) -> Self::Tables<'_> {
        let vm = self.who(vm);
        self.vms.tables(vm)
    }

    fn stage2(&self, vm: VmId) -> Stage2 {
        self.vms.stage2(vm)
    }

    fn regions(&self, vm: VmId) -> &'static [BootRegion] {
        self.vms.regions(vm)
    }
}

impl Platform for Host {
    fn read_page(&mut self, page: Pa, offset: u64, words: &mut [u64]) {
        assert_eq!(offset % 8, 0);
        assert!(offset + 8 * words.len() as u64 <= PAGE);
        for (index, word) in (offset as usize / 8..).zip(words) {
            *word = *self.word(page.get(), index);
        }
    }

    fn write_page(&mut self, page: Pa, offset: u64, words: &[u64]) {
        assert_eq!(offset % 8, 0);
        assert!(offset + 8 * words.len() as u64 <= PAGE);
        for (index, word) in (offset as usize / 8..).zip(words) {
            *self.word(page.get(), index) = *word;
        }
    }

    fn clean(&mut self, piece: Piece) {
        let pages = (0..u64::from(piece.pages)).map(|page| piece.pa.get() + page * PAGE);
        if piece.zero {
            pages.for_each(|page| drop(self.memory.remove(&page)));
        }
    }

    fn is_running(&self, vm: VmId) -> bool {
        self.running & bit(vm) != 0
    }

    fn peers(&self, vm: VmId) -> u16 {
        self.members & !bit(vm)
    }

    fn vcpu_count(&self, _vm: VmId) -> u16 {
        1
    }
}

/// State that is compared after a refusal.
pub(super) type Everything = (Snapshot, Ledger);

pub(super) struct Machine {
    pub(super) host: Host,
    pub(super) ledger: Ledger,
    pub(super) ghost: Box<Ghost>,
    seen: Seen<PARTS>,
    /// Whether each check covers all pages, and compares its result with that of the partial check.
    pub(super) looks_at_all: bool,
    /// A planted bug: the ghost takes two VMs for each other.
    pub(super) ghost_swaps: bool,
}

/// Returns the address that VM `index` sees its page `number` at.
pub(super) fn own(index: usize, number: u64) -> u64 {
    let elsewhere = if index == 2 { 64 << 20 } else { 0 };
    start(index) + elsewhere + number * PAGE
}

/// Returns the TX buffer (PA) of a VM; RX is behind it.
pub(super) fn tx(index: usize) -> u64 {
    start(index) + SIZE - 2 * PAGE
}

/// The call that maps a VM's buffers.
pub(super) fn map_call(index: usize) -> Regs {
    let at = SIZE / PAGE - 2;
    let id = u64::from(function::RXTX_MAP | function::SMC64);
    [id, own(index, at), own(index, at + 1), 1, 0, 0, 0, 0]
}

impl Machine {
    /// Makes three VMs, each of which may take `budget` tables.
    pub(super) fn new(budget: usize) -> Self {
        Self::of(COUNT, budget)
    }

    /// Makes `count` VMs.
    pub(super) fn of(count: usize, budget: usize) -> Self {
        let vms = FakeVms::of(count, budget);
        let mut ledger = Ledger::new();
        let members = (1 << count) - 1;
        ledger.configure(members);
        let mut ghost = Box::new(Ghost::new());
        let vtcr = Geometry::choose(2, 1 << 32).unwrap().vtcr();
        for index in 0..count {
            let tree = Tree { vtcr, root: 0 };
            ghost
                .add(index, tree, own(index, 0), start(index), SIZE)
                .unwrap();
        }
        let mut machine = Self {
            host: Host {
                vms,
                memory: Pages::default(),
                running: members,
                members,
                swapped: false,
                owners_swapped: false,
            },
            ledger,
            ghost,
            seen: Seen::new(),
            looks_at_all: false,
            ghost_swaps: false,
        };
        for index in 0..count {
            machine.map_buffers(index).unwrap();
        }
        machine
    }

    pub(super) fn map_buffers(&mut self, index: usize) -> Result<Regs, Wrong> {
        self.call(index, &map_call(index))
    }

    pub(super) fn everything(&mut self) -> Everything {
        (self.host.vms.snapshot(), self.ledger.without_serial())
    }

    /// Makes a call to its end. The ghost follows it and looks after each step.
    pub(super) fn call(&mut self, index: usize, regs: &Regs) -> Result<Regs, Wrong> {
        // Bound: a few steps for each page.
        for _ in 0..5000 {
            if let Some(answer) = self.step_of_call(index, regs)? {
                return Ok(answer);
            }
        }
        panic!("no end");
    }

    /// Makes one step of a call, and returns the answer if that was the last.
    pub(super) fn step_of_call(
        &mut self,
        index: usize,
        regs: &Regs,
    ) -> Result<Option<Regs>, Wrong> {
        self.step_of_vcpu(index, 0, regs)
    }

    /// Makes one step of a call of a vCPU.
    pub(super) fn step_of_vcpu(
        &mut self,
        index: usize,
        vcpu: usize,
        regs: &Regs,
    ) -> Result<Option<Regs>, Wrong> {
        let writes = self.host.vms.writes;
        let said = self.host.page(tx(index)).clone();
        let outcome = call(&mut self.ledger, &mut self.host, vm(index), regs);
        let answer = match &outcome {
            Outcome::Return(answer) => Some(answer),
            Outcome::Again => None,
        };
        let who = match (self.ghost_swaps, index) {
            (true, 0) => 1,
            (true, 1) => 0,
            _ => index,
        };
        self.ghost
            .call(who, vcpu, regs, &said, answer, self.host.running)?;
        // A refusal, a step that only wiped a piece, and RX_RELEASE write no descriptor, so no
        // check follows.
        let is_done = answer.is_some_and(|x| x[0] != u64::from(function::ERROR));
        let is_release = regs[0] == u64::from(function::RX_RELEASE);
        if (is_done && !is_release) || self.host.vms.writes != writes {
            self.check()?;
        }
        Ok(answer.copied())
    }

    /// Compares with the tables the pages of which something has changed since the last look.
    pub(super) fn check(&mut self) -> Result<(), Wrong> {
        let Self {
            ghost, host, seen, ..
        } = self;
        let mut versions = |index, table| host.vms.table(index, table).writes();
        let result = ghost.check_changed(seen, &mut versions, &mut host.descriptors());
        if self.looks_at_all {
            assert_eq!(result, self.check_all());
        }
        result
    }

    /// Compares all pages with the tables.
    pub(super) fn check_all(&self) -> Result<(), Wrong> {
        self.ghost.check(&mut self.host.descriptors())
    }

    /// Looks for pages that are mapped where they must not be.
    pub(super) fn check_aliases(&self) -> Result<(), Wrong> {
        self.ghost.check_aliases(&mut self.host.descriptors())
    }

    /// Loads a VM anew.
    pub(super) fn reload(&mut self, index: usize) -> Result<(), Wrong> {
        self.host.running &= !bit(vm(index));
        // Bound: as many steps as transactions, and pieces of them.
        while !self.step_of_end(index)? {}
        self.host.running |= bit(vm(index));
        self.map_buffers(index).map(drop)
    }

    /// Makes one step of the end of a VM, which does not run. Tells whether that was the last.
    pub(super) fn step_of_end(&mut self, index: usize) -> Result<bool, Wrong> {
        self.ghost.begin_end(index);
        let writes = self.host.vms.writes;
        match release(&mut self.ledger, &mut self.host, vm(index)) {
            End::Done => {
                self.ghost.end(index)?;
                self.check()?;
                self.check_all()?;
                self.is_alone(index);
                return Ok(true);
            }
            End::More => {}
            End::Runs => panic!("VM {index} runs"),
        }
        if self.host.vms.writes != writes {
            self.check()?;
        }
        Ok(false)
    }

    /// Checks, by a walk of all tables, that nobody else maps a page of a VM's, that it maps its
    /// own only, and all of that.
    pub(super) fn is_alone(&self, index: usize) {
        let own = start(index)..start(index) + SIZE;
        for other in 0..self.host.members.count_ones() as usize {
            let mut bytes = 0;
            for (ipa, pa, size) in self.host.vms.leaves(other) {
                let is_own = pa < own.end && own.start < pa + size;
                assert!(
                    is_own == (other == index),
                    "after the end of VM {index}, VM {other} maps {pa:#x} at {ipa:#x}"
                );
                bytes += size;
            }
            assert!(other != index || bytes == SIZE);
        }
    }
}
