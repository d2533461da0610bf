//! A CPU interface with list registers, encoded unlike any hardware: what a
//! guest with EOImode 0 acknowledges and ends.

use std::vec::Vec;

use crate::vgic::{IntId, ListRegisters, Lr, LrState, Maintenance};

/// An interrupt that the guest has acknowledged and not yet ended.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) intid: IntId,
    pub(super) priority: u8,
    /// Sender of a GICv2 SGI, which the guest names again when it ends the SGI.
    source: u8,
}

impl Running {
    /// Tells whether its end finds this list register: by INTID and sender (IHI 0048, 5.5).
    fn is_in(&self, lr: &Lr) -> bool {
        lr.state.is_active() && (lr.intid, lr.source) == (self.intid, self.source)
    }
}

/// The list registers and the guest's view of them.
pub(super) struct Fake {
    lists: Vec<Option<Lr>>,
    /// Ended with the EOI flag, and not looked at since.
    eoi_raised: Vec<bool>,
    pub(super) wanted: Maintenance,
    /// Acknowledged interrupts, innermost last.
    pub(super) running: Vec<Running>,
    /// Physical interrupts that the guest's EOI deactivated.
    pub(super) deactivated: Vec<IntId>,
    pub(super) write_count: usize,
    /// Ended without a list register.
    lost_ends: u32,
    /// List registers written since the last context synchronization event: whether each was empty
    /// before, which is what [`empty_mask`](ListRegisters::empty_mask) says still.
    before: Vec<Option<bool>>,
}

impl Fake {
    pub(super) fn new(count: usize) -> Self {
        Self {
            lists: std::vec![None; count],
            eoi_raised: std::vec![false; count],
            wanted: Maintenance::default(),
            running: Vec::new(),
            deactivated: Vec::new(),
            write_count: 0,
            lost_ends: 0,
            before: std::vec![None; count],
        }
    }

    /// Tells whether the maintenance interrupt is raised.
    pub(super) fn maintenance(&self) -> bool {
        let valid = self.lists.iter().flatten().count();
        let pending = self
            .lists
            .iter()
            .flatten()
            .filter(|lr| lr.state.is_pending())
            .count();
        self.wanted.underflow && valid <= 1
            || self.wanted.no_pending && pending == 0
            || self.wanted.deactivate && self.lost_ends != 0
            || self.eoi_raised.contains(&true)
    }

    fn is_empty(&self, index: usize) -> bool {
        self.lists[index].is_none() && !self.eoi_raised[index]
    }

    /// Returns the contents of all valid list registers.
    pub(super) fn listed(&self) -> impl Iterator<Item = Lr> {
        self.lists.iter().flatten().copied()
    }

    /// Returns the valid list register of an interrupt.
    pub(super) fn find(&self, number: u32) -> Option<Lr> {
        self.listed().find(|lr| lr.intid.number() == number)
    }

    /// The guest acknowledges: returns the interrupt, and the sender of a GICv2 SGI.
    pub(super) fn acknowledge(&mut self) -> Option<(IntId, u8)> {
        // The guest was entered, which synchronizes.
        self.before.fill(None);
        let running = self
            .running
            .last()
            .map_or(0x100, |running| u16::from(running.priority));
        let candidates = self.lists.iter_mut().flatten();
        let best = candidates
            .filter(|lr| lr.state == LrState::Pending && u16::from(lr.priority) < running)
            .min_by_key(|lr| (lr.priority, lr.intid.number()))?;
        best.state = LrState::Active;
        self.running.push(Running {
            intid: best.intid,
            priority: best.priority,
            source: best.source,
        });
        Some((best.intid, best.source))
    }

    /// The guest ends the innermost interrupt: returns it, and whether a list register had it.
    pub(super) fn end(&mut self) -> Option<(IntId, bool)> {
        self.before.fill(None);
        let running = self.running.pop()?;
        let intid = running.intid;
        let holds = |lr: &Option<Lr>| lr.is_some_and(|lr| running.is_in(&lr));
        let Some(index) = self.lists.iter().position(holds) else {
            self.lost_ends += 1;
            return Some((intid, false));
        };
        let lr = self.lists[index].as_mut().unwrap();
        if lr.state == LrState::PendingActive {
            lr.state = LrState::Pending;
        } else {
            self.eoi_raised[index] = lr.eoi;
            if lr.hw {
                self.deactivated.push(intid);
            }
            lr.state = LrState::Invalid;
            self.lists[index] = None;
        }
        Some((intid, true))
    }
}

impl ListRegisters for Fake {
    fn all(&self) -> u32 {
        (1 << self.lists.len()) - 1
    }

    fn read(&self, index: usize) -> Lr {
        self.lists[index].unwrap_or(Lr::EMPTY)
    }

    fn encode(lr: Lr) -> u64 {
        let state = [
            LrState::Invalid,
            LrState::Pending,
            LrState::Active,
            LrState::PendingActive,
        ];
        let state = state.iter().position(|one| *one == lr.state).unwrap();
        let bytes = [
            lr.intid.number() as u8,
            (lr.intid.number() >> 8) as u8,
            lr.priority,
            state as u8,
            lr.hw.into(),
            lr.eoi.into(),
            lr.group1.into(),
            lr.source,
        ];
        u64::from_le_bytes(bytes)
    }

    fn write_raw(&mut self, index: usize, raw: u64) {
        let [low, high, priority, state, hw, eoi, group1, source] = raw.to_le_bytes();
        let lr = Lr {
            intid: IntId::new(u32::from(high) << 8 | u32::from(low)).unwrap(),
            priority,
            state: LrState::new(state & 1 != 0, state & 2 != 0),
            hw: hw != 0,
            eoi: eoi != 0,
            group1: group1 != 0,
            source,
        };
        assert!(
            !(lr.hw && (lr.eoi || lr.state == LrState::PendingActive)),
            "{lr:?}"
        );
        assert_eq!(lr.priority & 7, 0);
        if self.before[index].is_none() {
            self.before[index] = Some(self.is_empty(index));
        }
        self.eoi_raised[index] = false;
        self.lists[index] = (lr.state != LrState::Invalid).then_some(lr);
        self.write_count += 1;
        for list in self.lists.iter().flatten() {
            let same = self
                .lists
                .iter()
                .flatten()
                .filter(|lr| lr.intid == list.intid)
                .count();
            assert_eq!(same, 1, "{list:?} stands in two list registers");
        }
    }

    fn synchronize(&mut self) {
        self.before.fill(None);
    }

    fn empty_mask(&self) -> u32 {
        (0..self.lists.len())
            .filter(|index| self.before[*index].unwrap_or_else(|| self.is_empty(*index)))
            .map(|index| 1 << index)
            .sum()
    }

    fn wants_maintenance(&self) -> bool {
        self.wanted != Maintenance::default()
    }

    fn take_lost_ends(&mut self) -> u32 {
        core::mem::take(&mut self.lost_ends)
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        assert_ne!(self.wanted, wanted);
        self.wanted = wanted;
    }
}
