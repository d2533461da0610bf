//! Comparison of the GIC with the reference.

use super::super::{BYTE, field_read, id, v};
use super::reference::Reference;
use super::{INTIDS, Op, VCPUS, World};
use crate::vgic::{GicVersion, is_quiet};

impl World {
    /// Adopts from the GIC what only it can know.
    pub(super) fn resolve(&mut self) {
        if !self
            .reference
            .interrupts
            .values()
            .any(|interrupt| interrupt.unsure)
        {
            return;
        }
        self.flush_all();
        self.sync();
        for vcpu in 0..VCPUS {
            for intid in INTIDS {
                if !core::mem::take(&mut self.reference.at(vcpu, intid).unsure) {
                    continue;
                }
                let by_sender = self.reference.version == GicVersion::V2 && intid < 16;
                let senders = if by_sender {
                    self.gic
                        .distributor_read(v(vcpu), 0xf20 + u64::from(intid), BYTE)
                } else {
                    u64::from(
                        field_read(&self.gic, v(vcpu), 0x200, intid as usize / 32) >> (intid % 32)
                            & 1,
                    )
                };
                let interrupt = self.reference.at(vcpu, intid);
                if interrupt.line && !interrupt.edge {
                    // The line hides the second delivery for now.
                    interrupt.unsure = true;
                } else {
                    interrupt.latch = (0..8).filter(|sender| senders >> sender & 1 != 0).collect();
                }
            }
        }
    }

    /// A vCPU that was not kicked and whose list registers are quiet has nothing to wake for.
    fn check_quiet(&mut self) {
        for vcpu in 0..VCPUS {
            if self.loaded[vcpu] && !self.is_kicked(vcpu) && is_quiet(&mut self.cpus[vcpu]) {
                let kicks = self.gic.sync(v(vcpu), &mut self.cpus[vcpu]);
                self.kick(kicks);
                self.revalidate_replays(vcpu);
                self.take_physical(vcpu);
                assert!(!self.gic.deliverable(v(vcpu), 0xff), "vCPU {vcpu}");
            }
        }
    }

    /// G1-GIC-017: an SGI's list register names who sent what is active there, or pending.
    fn check_senders(&mut self, vcpu: usize) {
        for lr in self.cpus[vcpu].listed() {
            let (intid, source) = (lr.intid.number(), lr.source);
            let interrupt = self.reference.at(vcpu, intid);
            if lr.state.is_active() {
                assert_eq!(
                    source, interrupt.sender,
                    "sender of {intid}, active on {vcpu}"
                );
            } else if intid < 16 {
                let senders = &interrupt.latch;
                assert!(
                    senders.contains(&source),
                    "{intid} of {vcpu} pending from {source}, not {senders:?}"
                );
            } else {
                assert_eq!(source, 0, "{lr:?} is no SGI");
            }
        }
    }

    /// Compares all that the guest can see, and the physical side.
    pub(super) fn check(&mut self) {
        self.resolve();
        self.check_quiet();
        self.flush_all();
        self.check_quiet();
        self.sync();
        for vcpu in 0..VCPUS {
            self.check_senders(vcpu);
            for intid in INTIDS {
                let bit = 1 << (intid % 32);
                let index = intid as usize / 32;
                let interrupt = self.reference.at(vcpu, intid).clone();
                let pending = field_read(&self.gic, v(vcpu), 0x200, index) & bit != 0;
                let active = field_read(&self.gic, v(vcpu), 0x300, index) & bit != 0;
                assert_eq!(
                    pending,
                    Reference::is_pending(&interrupt),
                    "{intid} of {vcpu} pending"
                );
                assert_eq!(active, interrupt.active, "{intid} of {vcpu} active");
                assert_eq!(
                    self.gic.hw_active(v(vcpu), id(intid)),
                    interrupt.physical,
                    "{intid} of {vcpu} physical"
                );
                assert!(
                    !interrupt.physical || pending || active,
                    "{intid} is physically active for nothing"
                );
            }
            for pmr in [0xff, 0x80, 0x20] {
                let due = self
                    .reference
                    .best_due(vcpu)
                    .is_some_and(|(priority, _)| priority < pmr);
                assert_eq!(
                    self.gic.deliverable(v(vcpu), pmr),
                    due,
                    "vCPU {vcpu} under {pmr:#x}"
                );
            }
        }
    }

    /// Lets the guests take everything: G1-GIC-007, nothing is lost.
    pub(super) fn drain(&mut self) {
        for vcpu in 0..VCPUS {
            self.apply(Op::Load(vcpu));
            for intid in INTIDS {
                self.apply(Op::Line(vcpu, intid, false));
            }
        }
        for _ in 0..100 {
            for vcpu in 0..VCPUS {
                self.flush_all();
                self.apply(Op::End(vcpu));
                self.flush_all();
                self.apply(Op::Acknowledge(vcpu));
            }
        }
        self.check();
        for vcpu in 0..VCPUS {
            assert_eq!(self.reference.best_due(vcpu), None);
        }
    }
}
