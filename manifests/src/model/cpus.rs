//! Physical CPUs, as a set and in an order.

use crate::list::List;
use crate::{CpuIndex, MAX_CPUS};

/// A set of physical CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(u64);

impl CpuSet {
    /// No CPU.
    pub const EMPTY: Self = Self(0);

    /// Returns the CPUs from 0 to `count - 1`.
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count)
            .filter_map(CpuIndex::new)
            .fold(Self::EMPTY, Self::with)
    }

    /// Returns the set with one more CPU.
    #[must_use]
    pub const fn with(self, cpu: CpuIndex) -> Self {
        Self(self.0 | 1 << cpu.index())
    }

    /// Returns the union.
    #[must_use]
    pub const fn with_all(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the difference.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Tells whether the CPU is in the set.
    #[must_use]
    pub const fn contains(self, cpu: CpuIndex) -> bool {
        self.0 & 1 << cpu.index() != 0
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Tells whether there is no CPU.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as a mask: bit *i* for CPU *i*.
    #[must_use]
    pub const fn mask(self) -> u64 {
        self.0
    }

    /// Iterates over the CPUs from the lowest.
    pub fn iter(self) -> impl Iterator<Item = CpuIndex> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let cpu = CpuIndex::new(rest.trailing_zeros() as usize)?;
            rest &= rest.wrapping_sub(1);
            Some(cpu)
        })
    }
}

/// Physical CPUs in an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuList(List<CpuIndex, MAX_CPUS>);

impl CpuList {
    /// Appends a CPU, and tells whether there was room.
    #[must_use]
    pub fn push(&mut self, cpu: CpuIndex) -> bool {
        self.0.push(cpu).is_ok()
    }

    /// Returns the entry at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<CpuIndex> {
        self.0.get(index).copied()
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> impl Iterator<Item = CpuIndex> {
        self.0.iter().copied()
    }

    /// Returns the CPUs without their order.
    #[must_use]
    pub fn set(self) -> CpuSet {
        self.iter().fold(CpuSet::EMPTY, CpuSet::with)
    }
}
