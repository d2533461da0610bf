//! Reference: the architecture, in maps and sets.

use std::collections::{BTreeMap, BTreeSet};

use super::{INTIDS, VCPUS};
use crate::vgic::GicVersion;

/// Key of an interrupt: a private one has a vCPU, an SPI has none.
type Key = (Option<usize>, u32);

pub(super) fn key(vcpu: usize, intid: u32) -> Key {
    ((intid < 32).then_some(vcpu), intid)
}

#[derive(Clone, Default)]
pub(super) struct Interrupt {
    pub(super) enabled: bool,
    pub(super) group0: bool,
    pub(super) priority: u8,
    pub(super) edge: bool,
    pub(super) line: bool,
    /// Senders of a GICv2 SGI; else only 0.
    pub(super) latch: BTreeSet<u8>,
    pub(super) active: bool,
    /// Sender of a GICv2 SGI that is active, as the guest acknowledged it; else 0.
    pub(super) sender: u8,
    /// vCPU that acknowledged the interrupt last.
    pub(super) taken_by: usize,
    /// Taken from an outdated list register while more came: one delivery or two are both right.
    pub(super) unsure: bool,
    /// The physical interrupt is active for it.
    pub(super) physical: bool,
    pub(super) route: usize,
}

impl Interrupt {
    pub(super) fn is_active_on(&self, vcpu: usize) -> bool {
        self.active && self.taken_by == vcpu
    }
}

/// Model of the architecture.
pub(super) struct Reference {
    pub(super) version: GicVersion,
    pub(super) groups: u8,
    pub(super) interrupts: BTreeMap<Key, Interrupt>,
}

impl Reference {
    pub(super) fn new(version: GicVersion) -> Self {
        let mut interrupts = BTreeMap::new();
        for vcpu in 0..VCPUS {
            for intid in INTIDS {
                let edge = intid < 16;
                let interrupt = Interrupt {
                    enabled: true,
                    priority: 0xa0,
                    edge,
                    ..Default::default()
                };
                interrupts.insert(key(vcpu, intid), interrupt);
            }
        }
        Self {
            version,
            groups: 3,
            interrupts,
        }
    }

    pub(super) fn at(&mut self, vcpu: usize, intid: u32) -> &mut Interrupt {
        self.interrupts.get_mut(&key(vcpu, intid)).unwrap()
    }

    pub(super) fn is_pending(interrupt: &Interrupt) -> bool {
        !interrupt.latch.is_empty() || interrupt.line && !interrupt.edge
    }

    /// Tells whether the vCPU can be given the interrupt, its running priority apart.
    pub(super) fn is_due(&self, vcpu: usize, key: &Key, interrupt: &Interrupt) -> bool {
        let group_enabled = match (self.version, interrupt.group0) {
            (GicVersion::V3, true) => false,
            (GicVersion::V3 | GicVersion::V2, false) => self.groups & 2 != 0,
            (GicVersion::V2, true) => self.groups & 1 != 0,
        };
        let is_here = key.0.map_or(interrupt.route == vcpu, |owner| owner == vcpu);
        is_here
            && group_enabled
            && interrupt.enabled
            && !interrupt.active
            && Self::is_pending(interrupt)
    }

    pub(super) fn best_due(&self, vcpu: usize) -> Option<(u8, u32)> {
        let due = self
            .interrupts
            .iter()
            .filter(|(key, interrupt)| self.is_due(vcpu, key, interrupt));
        due.map(|(key, interrupt)| (interrupt.priority, key.1))
            .min()
    }
}
