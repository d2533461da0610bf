//! Guests at their CPU interfaces: they acknowledge and end interrupts.

use super::reference::Reference;
use super::{World, v};

impl World {
    pub(super) fn acknowledge(&mut self, vcpu: usize) {
        self.maintain(vcpu);
        if !self.loaded[vcpu] {
            return;
        }
        if self.is_clean() {
            self.resolve();
        }
        let was_clean = self.is_clean();
        let running = self.cpus[vcpu]
            .running
            .last()
            .map_or(0x100, |running| u16::from(running.priority));
        let due = self
            .reference
            .best_due(vcpu)
            .filter(|(priority, _)| u16::from(*priority) < running);
        let taken = self.cpus[vcpu].acknowledge();
        if was_clean {
            let of_taken = taken.map(|(intid, _)| self.reference.at(vcpu, intid.number()).priority);
            assert_eq!(
                of_taken,
                due.map(|(priority, _)| priority),
                "{taken:?} for {due:?}"
            );
        }
        if let Some((intid, source)) = taken {
            let intid = intid.number();
            let kicked = self.is_kicked(vcpu);
            let interrupt = self.reference.at(vcpu, intid);
            assert!(
                kicked || interrupt.unsure || Reference::is_pending(interrupt),
                "{intid} was not pending"
            );
            assert!(
                intid >= 16 || kicked || interrupt.unsure || interrupt.latch.contains(&source),
                "SGI {intid} does not come from {source}"
            );
            interrupt.unsure |= kicked;
            interrupt.latch.remove(&source);
            interrupt.active = true;
            interrupt.sender = source;
            interrupt.taken_by = vcpu;
        }
    }

    pub(super) fn end(&mut self, vcpu: usize) {
        self.maintain(vcpu);
        if !self.loaded[vcpu] {
            return;
        }
        if self.eoi_mode && self.cpus[vcpu].wanted.deactivate {
            self.trap_deactivate(vcpu);
            return;
        }
        // The end of an interrupt that is no longer active here (ICACTIVER) would count for another
        // one.
        let running = self.cpus[vcpu]
            .running
            .last()
            .map(|running| running.intid.number());
        if let Some(intid) = running
            && !self.reference.at(vcpu, intid).is_active_on(vcpu)
            && self.cpus[vcpu].wanted.deactivate
        {
            self.cpus[vcpu].running.pop();
            return;
        }
        let counts_ends = self.cpus[vcpu].wanted.deactivate;
        let Some((intid, was_listed)) = self.cpus[vcpu].end() else {
            return;
        };
        for ended in core::mem::take(&mut self.cpus[vcpu].deactivated) {
            let interrupt = self.reference.at(vcpu, ended.number());
            assert!(interrupt.physical, "{ended:?} was deactivated twice");
            interrupt.physical = false;
        }
        let interrupt = self.reference.at(vcpu, intid.number());
        assert!(
            was_listed || counts_ends || !interrupt.is_active_on(vcpu),
            "{intid:?} was active in no list register"
        );
        if was_listed || counts_ends {
            interrupt.active = false;
        }
    }

    /// The guest's ICC_DIR_EL1 traps.
    fn trap_deactivate(&mut self, vcpu: usize) {
        let Some(running) = self.cpus[vcpu].running.pop() else {
            return;
        };
        let intid = running.intid;
        let kicks = self.gic.sync(v(vcpu), &mut self.cpus[vcpu]);
        self.revalidate_replays(vcpu);
        self.kick(kicks);
        self.reference.at(vcpu, intid.number()).active = false;
        let kicks = self.gic.deactivate(v(vcpu), intid);
        self.kick(kicks);
        self.flush(vcpu);
    }

    /// The guest's WFI: a maintenance interrupt that its last end raised may not have come yet.
    /// Only what was asked for is flushed, then the guest goes on.
    pub(super) fn wait(&mut self, vcpu: usize) {
        if !self.loaded[vcpu] {
            return;
        }
        let kicks = self.gic.sync(v(vcpu), &mut self.cpus[vcpu]);
        self.kick(kicks);
        self.revalidate_replays(vcpu);
        self.take_physical(vcpu);
        if self.is_kicked(vcpu) {
            self.flush(vcpu);
        }
    }
}
