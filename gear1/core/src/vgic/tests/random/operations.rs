//! Operations on the GIC and on the reference alike: registers, lines, physical interrupts, SGIs,
//! loading and unloading.

use super::super::{BYTE, DOUBLEWORD, SGI, WORD, field_read, field_write, id, v};
use super::reference::Reference;
use super::{Fake, INTIDS, Op, VCPUS, World};
use crate::vgic::{GicVersion, LrReplay, VmGic, only_target};

impl World {
    pub(super) fn apply(&mut self, op: Op) {
        match op {
            Op::Enable(vcpu, intid, on) => self.enable(vcpu, intid, on),
            Op::Group(vcpu, intid, group0) => self.set_group(vcpu, intid, group0),
            Op::Groups(groups) => self.enable_groups(groups),
            Op::Priority(vcpu, intid, priority) => self.prioritize(vcpu, intid, priority),
            Op::Config(vcpu, intid, edge) => self.configure(vcpu, intid, edge),
            Op::Route(intid, vcpu) => self.route(intid, vcpu),
            Op::Pend(vcpu, intid, on) => self.pend(vcpu, intid, on),
            Op::Activate(vcpu, intid, on) => self.activate(vcpu, intid, on),
            Op::Line(vcpu, intid, high) => self.set_line(vcpu, intid, high),
            Op::Pulse(vcpu, intid) => self.pulse(vcpu, intid),
            Op::Physical(vcpu, intid) => self.inject(vcpu, intid),
            Op::PhysicalLoaded(vcpu) => self.inject_loaded(vcpu),
            Op::Retract(vcpu, intid) => self.retract(vcpu, intid),
            Op::Sgi(from, intid, targets) => self.send(from, intid, targets, false),
            Op::SgiLoaded(from, intid, targets) => self.send(from, intid, targets, true),
            Op::Exit(vcpu) => self.flush(vcpu),
            Op::Unload(vcpu) => self.unload(vcpu),
            Op::Leave(vcpu) => self.leave(vcpu),
            Op::Load(vcpu) => self.load(vcpu),
            Op::Acknowledge(vcpu) => self.acknowledge(vcpu),
            Op::End(vcpu) => {
                self.end(vcpu);
                self.maintain(vcpu);
            }
            Op::Wait(vcpu, ends) => {
                if ends {
                    self.end(vcpu);
                }
                self.wait(vcpu);
            }
        }
    }

    fn enable(&mut self, vcpu: usize, intid: u32, on: bool) {
        self.reference.at(vcpu, intid).enabled = on;
        self.write_bit(vcpu, if on { 0x100 } else { 0x180 }, intid);
    }

    fn set_group(&mut self, vcpu: usize, intid: u32, group0: bool) {
        self.reference.at(vcpu, intid).group0 = group0;
        let index = intid as usize / 32;
        let old = field_read(&self.gic, v(vcpu), 0x80, index) & !(1 << (intid % 32));
        let new = old | u32::from(!group0) << (intid % 32);
        let kicks = field_write(&mut self.gic, v(vcpu), 0x80, index, new);
        self.kick(kicks);
    }

    fn enable_groups(&mut self, groups: u8) {
        self.reference.groups = groups;
        let kicks = self.gic.distributor_write(v(0), 0, WORD, groups.into());
        self.kick(kicks);
    }

    fn prioritize(&mut self, vcpu: usize, intid: u32, priority: u8) {
        // Guests end interrupts in the order of the priorities with which they took them.
        let is_taken = self.reference.at(vcpu, intid).active || !self.is_clean();
        if !self.eoi_mode && is_taken {
            return;
        }
        self.reference.at(vcpu, intid).priority = priority;
        let offset = 0x400 + u64::from(intid);
        let value = priority.into();
        let is_private = self.reference.version == GicVersion::V3 && intid < 32;
        let kicks = if is_private {
            self.gic
                .redistributor_write(v(vcpu), SGI + offset, BYTE, value)
        } else {
            self.gic.distributor_write(v(vcpu), offset, BYTE, value)
        };
        self.kick(kicks);
        self.flush_all();
    }

    /// Makes an interrupt one of an edge or of a level, which an SGI cannot be.
    fn configure(&mut self, vcpu: usize, intid: u32, edge: bool) {
        if intid < 16 {
            return;
        }
        self.reference.at(vcpu, intid).edge = edge;
        let index = intid as usize / 16;
        let bit = 2 << (intid % 16 * 2);
        let old = field_read(&self.gic, v(vcpu), 0xc00, index);
        let new = if edge { old | bit } else { old & !bit };
        let kicks = field_write(&mut self.gic, v(vcpu), 0xc00, index, new);
        self.kick(kicks);
    }

    fn route(&mut self, intid: u32, vcpu: usize) {
        self.reference.at(0, intid).route = vcpu;
        let intid = u64::from(intid);
        let (offset, size, value) = match self.reference.version {
            GicVersion::V2 => (0x800 + intid, BYTE, 1 << vcpu),
            GicVersion::V3 => (0x6000 + 8 * intid, DOUBLEWORD, vcpu as u64),
        };
        let kicks = self.gic.distributor_write(v(0), offset, size, value);
        self.kick(kicks);
    }

    fn pend(&mut self, vcpu: usize, intid: u32, on: bool) {
        let by_sender = self.reference.version == GicVersion::V2 && intid < 16;
        if !by_sender {
            let interrupt = self.reference.at(vcpu, intid);
            if on {
                interrupt.latch.insert(0);
            } else {
                interrupt.latch.clear();
            }
        }
        self.write_bit(vcpu, if on { 0x200 } else { 0x280 }, intid);
        if by_sender {
            self.pend_by_sender(vcpu, intid, on);
        }
    }

    /// GICD_CPENDSGIR, GICD_SPENDSGIR by sender 1.
    fn pend_by_sender(&mut self, vcpu: usize, intid: u32, on: bool) {
        let offset = if on { 0xf20 } else { 0xf10 } + u64::from(intid);
        let kicks = self.gic.distributor_write(v(vcpu), offset, BYTE, 0b10);
        self.kick(kicks);
        let latch = &mut self.reference.at(vcpu, intid).latch;
        if on {
            latch.insert(1)
        } else {
            latch.remove(&1)
        };
    }

    fn activate(&mut self, vcpu: usize, intid: u32, on: bool) {
        // Without ICC_DIR_EL1 a guest can end only acknowledged interrupts.
        if on && !self.eoi_mode {
            return;
        }
        // Made exact for all, as the guest that asks for it must do.
        self.flush_all();
        self.sync();
        let interrupt = self.reference.at(vcpu, intid);
        if on && !interrupt.active {
            interrupt.taken_by = if intid < 32 { vcpu } else { interrupt.route };
        }
        interrupt.active = on;
        self.write_bit(vcpu, if on { 0x300 } else { 0x380 }, intid);
        self.flush_all();
    }

    fn set_line(&mut self, vcpu: usize, intid: u32, high: bool) {
        let interrupt = self.reference.at(vcpu, intid);
        if intid < 16 || interrupt.physical {
            return;
        }
        if high && !interrupt.line && interrupt.edge {
            interrupt.latch.insert(0);
        }
        interrupt.line = high;
        let kicks = self.gic.set_line(v(vcpu), id(intid), high);
        self.kick(kicks);
    }

    /// A line that nothing holds rises and falls.
    fn pulse(&mut self, vcpu: usize, intid: u32) {
        let interrupt = self.reference.at(vcpu, intid);
        if intid < 16 || interrupt.physical || interrupt.line {
            return;
        }
        if interrupt.edge {
            interrupt.latch.insert(0);
        }
        let kicks = self.gic.pulse(v(vcpu), id(intid));
        self.kick(kicks);
    }

    /// A physical interrupt comes for a vCPU that need not be loaded.
    fn inject(&mut self, vcpu: usize, intid: u32) {
        let interrupt = self.reference.at(vcpu, intid);
        if intid < 16 || interrupt.physical || interrupt.line {
            return;
        }
        interrupt.physical = true;
        interrupt.latch.insert(0);
        let kicks = self.gic.inject_hw(v(vcpu), id(intid));
        self.kick(kicks);
    }

    /// The timer interrupt comes for the loaded vCPU, by the fast path if that is open.
    fn inject_loaded(&mut self, vcpu: usize) {
        let interrupt = self.reference.at(vcpu, 27);
        if !self.loaded[vcpu] || interrupt.physical || interrupt.line {
            return;
        }
        interrupt.physical = true;
        interrupt.latch.insert(0);
        if !self.is_kicked(vcpu) && self.timer[vcpu].apply(&mut self.cpus[vcpu]) {
            return;
        }
        let injected = self.gic.inject_hw(v(vcpu), id(27));
        let flushed = self.gic.flush(v(vcpu), &mut self.cpus[vcpu]);
        self.timer[vcpu] = self.gic.replay_of::<Fake>(v(vcpu), id(27), true);
        self.kick(injected.union(flushed).without(v(vcpu)));
    }

    /// The source of a physical interrupt takes it back.
    fn retract(&mut self, vcpu: usize, intid: u32) {
        let interrupt = self.reference.at(vcpu, intid);
        if !interrupt.physical || intid < 16 {
            return;
        }
        self.flush_all();
        self.sync();
        self.reference.at(vcpu, intid).latch.clear();
        let kicks = self.gic.retract_hw(v(vcpu), id(intid));
        self.kick(kicks);
        self.take_physical(vcpu);
        self.flush_all();
    }

    fn send(&mut self, from: usize, intid: u32, targets: u8, loaded: bool) {
        let by_sender = self.reference.version == GicVersion::V2;
        for target in (0..VCPUS).filter(|target| targets >> target & 1 != 0) {
            let sender = if by_sender { from as u8 } else { 0 };
            self.reference.at(target, intid).latch.insert(sender);
        }
        let kicks = if by_sender {
            let value = u64::from(targets) << 16 | u64::from(intid);
            self.gic.distributor_write(v(from), 0xf00, WORD, value)
        } else {
            let value = u64::from(intid) << 24 | u64::from(targets);
            if loaded && let Some((target, sgi)) = only_target(value) {
                self.post(from, target, sgi);
                return;
            }
            self.gic.sgi1r(v(from), value)
        };
        self.kick(kicks);
    }

    /// Posts an SGI to one vCPU, which may be the sender.
    fn post(&mut self, from: usize, target: usize, sgi: u32) {
        let how = self.posted_sgi[target];
        let is_own = from == target && self.loaded[from];
        let repeats = is_own && !self.is_kicked(from) && how.number() == sgi;
        if repeats && how.apply(&mut self.cpus[from]) {
            return;
        }
        self.posted[target] |= 1 << sgi;
        if is_own {
            self.flush(from);
        }
    }

    fn unload(&mut self, vcpu: usize) {
        if !self.loaded[vcpu] {
            return;
        }
        let kicks = self.gic.save(v(vcpu), &mut self.cpus[vcpu]);
        self.revalidate_replays(vcpu);
        assert_eq!(self.cpus[vcpu].listed().count(), 0);
        self.loaded[vcpu] = false;
        self.kick(kicks);
        self.take_physical(vcpu);
        assert!(!self.cpus[vcpu].maintenance());
        self.take_private_away(vcpu);
    }

    /// Unloads a vCPU that leaves nothing, without a look at the GIC's state.
    fn leave(&mut self, vcpu: usize) {
        if self.loaded[vcpu] && VmGic::leaves_nothing(&mut self.cpus[vcpu]) {
            assert!(!self.cpus[vcpu].maintenance());
            self.loaded[vcpu] = false;
            self.timer[vcpu] = LrReplay::NONE;
            self.posted_sgi[vcpu] = LrReplay::NONE;
            self.has_left[vcpu] = true;
        }
    }

    /// The physical PPIs' active states go with the vCPU.
    fn take_private_away(&mut self, vcpu: usize) {
        for intid in INTIDS.into_iter().filter(|intid| *intid < 32) {
            let interrupt = self.reference.at(vcpu, intid);
            interrupt.physical &= interrupt.active || Reference::is_pending(interrupt);
        }
    }

    /// Folds what a vCPU that is not loaded has ended.
    pub(super) fn fold_unloaded(&mut self, vcpu: usize) {
        let kicks = self.gic.fold_unloaded(v(vcpu));
        assert!(!kicks.contains(v(vcpu)));
        self.kick(kicks);
        self.has_been_folded(vcpu);
    }

    fn has_been_folded(&mut self, vcpu: usize) {
        if core::mem::take(&mut self.has_left[vcpu]) {
            self.take_private_away(vcpu);
        }
        self.take_physical(vcpu);
    }

    fn load(&mut self, vcpu: usize) {
        if !self.loaded[vcpu] {
            self.loaded[vcpu] = true;
            let kicks = self.gic.resume(v(vcpu), &mut self.cpus[vcpu]);
            assert!(!kicks.contains(v(vcpu)));
            self.kick(kicks);
            self.has_been_folded(vcpu);
            if self.is_kicked(vcpu) && self.posted[vcpu] != 0 || self.gic.has_waiting(v(vcpu)) {
                self.flush(vcpu);
            }
            self.kicked[vcpu] = false;
        }
    }
}
