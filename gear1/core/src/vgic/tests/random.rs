//! Random operations of guests, devices and hypervisor, against an executable
//! reference of maps and sets. Kicks are acted upon late, as between CPUs, so
//! that guests run on with list registers that are out of date.

use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::fake::Fake;
use super::{BYTE, DOUBLEWORD, SGI, WORD, field_read, field_write, id, ready, v};
use crate::vgic::{GicVersion, Kicks, ListRegisters, LrReplay, VmGic, is_quiet, only_target};

const VCPUS: usize = 3;
/// INTIDs that are used: some SGIs, PPIs and SPIs of two words.
const INTIDS: [u32; 12] = [0, 1, 5, 16, 27, 30, 32, 33, 40, 63, 64, 65];
const LISTS: usize = 2;

/// Key of an interrupt: a private one has a vCPU, an SPI has none.
type Key = (Option<usize>, u32);

fn key(vcpu: usize, intid: u32) -> Key {
    ((intid < 32).then_some(vcpu), intid)
}

#[derive(Clone, Default)]
struct Interrupt {
    enabled: bool,
    group0: bool,
    priority: u8,
    edge: bool,
    line: bool,
    /// Senders of a GICv2 SGI; else only 0.
    latch: BTreeSet<u8>,
    active: bool,
    /// vCPU that acknowledged the interrupt last.
    taken_by: usize,
    /// Taken from an outdated list register while more came: one delivery or two are both right.
    unsure: bool,
    /// The physical interrupt is active for it.
    physical: bool,
    route: usize,
}

impl Interrupt {
    fn is_active_on(&self, vcpu: usize) -> bool {
        self.active && self.taken_by == vcpu
    }
}

/// Model of the architecture.
struct Reference {
    version: GicVersion,
    groups: u8,
    interrupts: BTreeMap<Key, Interrupt>,
}

impl Reference {
    fn new(version: GicVersion) -> Self {
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

    fn at(&mut self, vcpu: usize, intid: u32) -> &mut Interrupt {
        self.interrupts.get_mut(&key(vcpu, intid)).unwrap()
    }

    fn is_pending(interrupt: &Interrupt) -> bool {
        !interrupt.latch.is_empty() || interrupt.line && !interrupt.edge
    }

    /// Tells whether the vCPU can be given the interrupt, its running priority apart.
    fn is_due(&self, vcpu: usize, key: &Key, interrupt: &Interrupt) -> bool {
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

    fn best_due(&self, vcpu: usize) -> Option<(u8, u32)> {
        let due = self
            .interrupts
            .iter()
            .filter(|(key, interrupt)| self.is_due(vcpu, key, interrupt));
        due.map(|(key, interrupt)| (interrupt.priority, key.1))
            .min()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Enable(usize, u32, bool),
    Group(usize, u32, bool),
    Groups(u8),
    Priority(usize, u32, u8),
    Config(usize, u32, bool),
    Route(u32, usize),
    Pend(usize, u32, bool),
    Activate(usize, u32, bool),
    Line(usize, u32, bool),
    Physical(usize, u32),
    PhysicalLoaded(usize),
    Retract(usize, u32),
    Sgi(usize, u32, u8),
    SgiLoaded(usize, u32, u8),
    Exit(usize),
    Unload(usize),
    Load(usize),
    Acknowledge(usize),
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let vcpu = || 0..VCPUS;
    let intid = || prop::sample::select(&INTIDS[..]);
    let spi = || prop::sample::select(&INTIDS[6..]);
    let sgi = || prop::sample::select(&INTIDS[..3]);
    prop_oneof![
        2 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, on)| Op::Enable(v, i, on)),
        1 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, on)| Op::Group(v, i, on)),
        1 => (0..4_u8).prop_map(Op::Groups),
        2 => (vcpu(), intid(), 0..6_u8).prop_map(|(v, i, p)| Op::Priority(v, i, p << 5)),
        1 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, edge)| Op::Config(v, i, edge)),
        1 => (spi(), vcpu()).prop_map(|(i, v)| Op::Route(i, v)),
        4 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, on)| Op::Pend(v, i, on)),
        1 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, on)| Op::Activate(v, i, on)),
        4 => (vcpu(), intid(), any::<bool>()).prop_map(|(v, i, on)| Op::Line(v, i, on)),
        3 => (vcpu(), intid()).prop_map(|(v, i)| Op::Physical(v, i)),
        3 => vcpu().prop_map(Op::PhysicalLoaded),
        1 => (vcpu(), intid()).prop_map(|(v, i)| Op::Retract(v, i)),
        4 => (vcpu(), sgi(), 0..8_u8).prop_map(|(v, i, targets)| Op::Sgi(v, i, targets)),
        3 => (vcpu(), sgi(), 0..8_u8).prop_map(|(v, i, targets)| Op::SgiLoaded(v, i, targets)),
        6 => vcpu().prop_map(Op::Exit),
        1 => vcpu().prop_map(Op::Unload),
        2 => vcpu().prop_map(Op::Load),
        10 => vcpu().prop_map(Op::Acknowledge),
        8 => vcpu().prop_map(Op::End),
    ]
}

/// The GIC, its vCPUs on CPUs of their own, and the reference model.
struct World {
    gic: Box<VmGic>,
    cpus: Vec<Fake>,
    loaded: [bool; VCPUS],
    /// EOImode 1: priority drop and deactivation are apart.
    eoi_mode: bool,
    /// Kicked and not yet flushed.
    kicked: [bool; VCPUS],
    /// Fast path of each CPU for the timer interrupt.
    timer: [LrReplay; VCPUS],
    /// SGIs posted to the vCPU, a bit each.
    posted: [u32; VCPUS],
    /// Fast path of each CPU for the last posted SGI.
    posted_sgi: [LrReplay; VCPUS],
    reference: Reference,
}

impl World {
    fn new(version: GicVersion, eoi_mode: bool) -> Self {
        let mut world = Self {
            gic: ready(version, VCPUS, 64),
            cpus: (0..VCPUS).map(|_| Fake::new(LISTS)).collect(),
            loaded: [true; VCPUS],
            eoi_mode,
            kicked: [false; VCPUS],
            timer: [LrReplay::NONE; VCPUS],
            posted: [0; VCPUS],
            posted_sgi: [LrReplay::NONE; VCPUS],
            reference: Reference::new(version),
        };
        for intid in INTIDS {
            let group0 = version == GicVersion::V2;
            for vcpu in 0..VCPUS {
                world.reference.at(vcpu, intid).group0 = group0;
            }
            if intid >= 32 {
                world.apply(Op::Route(intid, 0));
            }
        }
        world
    }

    fn kick(&mut self, kicks: Kicks) {
        for vcpu in kicks.iter() {
            self.kicked[vcpu.index()] = true;
        }
    }

    fn flush(&mut self, vcpu: usize) {
        if !self.loaded[vcpu] {
            return;
        }
        let posted = core::mem::take(&mut self.posted[vcpu]);
        let how = self.posted_sgi[vcpu];
        let is_same = !self.is_kicked(vcpu) && posted == 1 << how.number();
        if is_same && how.apply(&mut self.cpus[vcpu]) {
            return;
        }
        self.kicked[vcpu] = false;
        let _flushed = self.gic.post_sgis(v(vcpu), posted);
        let kicks = self.gic.flush(v(vcpu), &mut self.cpus[vcpu]);
        self.revalidate_replays(vcpu);
        assert!(!kicks.contains(v(vcpu)));
        self.kick(kicks);
        self.take_physical(vcpu);
        if posted.is_power_of_two() {
            let sgi = id(posted.trailing_zeros());
            self.posted_sgi[vcpu] = self.gic.replay_of::<Fake>(v(vcpu), sgi, false);
        }
    }

    /// Tells whether a request to the vCPU is raised.
    fn is_kicked(&self, vcpu: usize) -> bool {
        self.kicked[vcpu] || self.posted[vcpu] != 0
    }

    /// Makes the posted SGIs of a vCPU pending, as an access to its redistributor does.
    fn drain_posted(&mut self, vcpu: usize) {
        let posted = core::mem::take(&mut self.posted[vcpu]);
        let kicks = self.gic.post_sgis(v(vcpu), posted);
        self.kick(kicks);
    }

    /// Serves the maintenance interrupt, which comes before the guest's next instruction.
    fn maintain(&mut self, vcpu: usize) {
        if self.loaded[vcpu] && self.cpus[vcpu].maintenance() {
            self.flush(vcpu);
            // A posted SGI is seen to before.
            self.flush(vcpu);
            assert!(
                !self.cpus[vcpu].maintenance(),
                "maintenance interrupt without end"
            );
        }
    }

    /// After a change by the vCPU's own CPU.
    fn revalidate_replays(&mut self, vcpu: usize) {
        for replay in [&mut self.timer[vcpu], &mut self.posted_sgi[vcpu]] {
            *replay = self.gic.revalidate(v(vcpu), *replay);
        }
    }

    /// Flushes until nobody is kicked.
    fn flush_all(&mut self) {
        for _ in 0..20 {
            (0..VCPUS).for_each(|vcpu| self.maintain(vcpu));
            let is_next = |vcpu: &usize| self.is_kicked(*vcpu) && self.loaded[*vcpu];
            let Some(vcpu) = (0..VCPUS).find(is_next) else {
                return;
            };
            self.flush(vcpu);
        }
        panic!("kicks without end");
    }

    fn is_clean(&self) -> bool {
        let is_dirty = |vcpu: usize| {
            self.loaded[vcpu] && (self.is_kicked(vcpu) || self.cpus[vcpu].maintenance())
        };
        !(0..VCPUS).any(is_dirty)
    }

    /// Deactivates what the GIC says has ended, and what guests' EOIs ended.
    fn take_physical(&mut self, vcpu: usize) {
        while let Some(intid) = self.gic.take_ended(v(vcpu)) {
            self.reference.at(vcpu, intid.number()).physical = false;
        }
    }

    fn write_bit(&mut self, vcpu: usize, base: u64, intid: u32) {
        self.drain_posted(vcpu);
        let index = intid as usize / 32;
        let kicks = field_write(&mut self.gic, v(vcpu), base, index, 1 << (intid % 32));
        self.kick(kicks);
        self.take_physical(vcpu);
    }

    fn sync(&mut self) {
        for vcpu in 0..VCPUS {
            self.drain_posted(vcpu);
            if self.loaded[vcpu] {
                let kicks = self.gic.sync(v(vcpu), &mut self.cpus[vcpu]);
                self.revalidate_replays(vcpu);
                self.kick(kicks);
                self.take_physical(vcpu);
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Enable(vcpu, intid, on) => {
                self.reference.at(vcpu, intid).enabled = on;
                self.write_bit(vcpu, if on { 0x100 } else { 0x180 }, intid);
            }
            Op::Group(vcpu, intid, group0) => {
                self.reference.at(vcpu, intid).group0 = group0;
                let index = intid as usize / 32;
                let old = field_read(&self.gic, v(vcpu), 0x80, index) & !(1 << (intid % 32));
                let new = old | u32::from(!group0) << (intid % 32);
                let kicks = field_write(&mut self.gic, v(vcpu), 0x80, index, new);
                self.kick(kicks);
            }
            Op::Groups(groups) => {
                self.reference.groups = groups;
                let kicks = self.gic.distributor_write(v(0), 0, WORD, groups.into());
                self.kick(kicks);
            }
            // Guests end interrupts in the order of the priorities with which they took them.
            Op::Priority(vcpu, intid, _)
                if !self.eoi_mode
                    && (self.reference.at(vcpu, intid).active || !self.is_clean()) => {}
            Op::Priority(vcpu, intid, priority) => {
                self.reference.at(vcpu, intid).priority = priority;
                let offset = 0x400 + u64::from(intid);
                let kicks = if self.reference.version == GicVersion::V3 && intid < 32 {
                    self.gic
                        .redistributor_write(v(vcpu), SGI + offset, BYTE, priority.into())
                } else {
                    self.gic
                        .distributor_write(v(vcpu), offset, BYTE, priority.into())
                };
                self.kick(kicks);
                self.flush_all();
            }
            Op::Config(vcpu, intid, edge) if intid >= 16 => {
                self.reference.at(vcpu, intid).edge = edge;
                let index = intid as usize / 16;
                let bit = 2 << (intid % 16 * 2);
                let old = field_read(&self.gic, v(vcpu), 0xc00, index);
                let new = if edge { old | bit } else { old & !bit };
                let kicks = field_write(&mut self.gic, v(vcpu), 0xc00, index, new);
                self.kick(kicks);
            }
            Op::Config(..) => {}
            Op::Route(intid, vcpu) => {
                self.reference.at(0, intid).route = vcpu;
                let kicks = match self.reference.version {
                    GicVersion::V2 => {
                        self.gic
                            .distributor_write(v(0), 0x800 + u64::from(intid), BYTE, 1 << vcpu)
                    }
                    GicVersion::V3 => {
                        let offset = 0x6000 + 8 * u64::from(intid);
                        self.gic
                            .distributor_write(v(0), offset, DOUBLEWORD, vcpu as u64)
                    }
                };
                self.kick(kicks);
            }
            Op::Pend(vcpu, intid, on) => self.pend(vcpu, intid, on),
            // Without ICC_DIR_EL1 a guest can end only acknowledged interrupts.
            Op::Activate(_, _, true) if !self.eoi_mode => {}
            Op::Activate(vcpu, intid, on) => {
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
            Op::Line(vcpu, intid, high) => {
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
            Op::Physical(vcpu, intid) => {
                let interrupt = self.reference.at(vcpu, intid);
                if intid < 16 || interrupt.physical || interrupt.line {
                    return;
                }
                interrupt.physical = true;
                interrupt.latch.insert(0);
                let kicks = self.gic.inject_hw(v(vcpu), id(intid));
                self.kick(kicks);
            }
            Op::PhysicalLoaded(vcpu) => {
                let interrupt = self.reference.at(vcpu, 27);
                if !self.loaded[vcpu] || interrupt.physical || interrupt.line {
                    return;
                }
                interrupt.physical = true;
                interrupt.latch.insert(0);
                if !self.is_kicked(vcpu) && self.timer[vcpu].apply(&mut self.cpus[vcpu]) {
                    return;
                }
                let mut kicks = self.gic.inject_hw(v(vcpu), id(27));
                kicks = kicks
                    .union(self.gic.flush(v(vcpu), &mut self.cpus[vcpu]))
                    .without(v(vcpu));
                self.timer[vcpu] = self.gic.replay_of::<Fake>(v(vcpu), id(27), true);
                self.kick(kicks);
            }
            Op::Retract(vcpu, intid) => {
                let interrupt = self.reference.at(vcpu, intid);
                if interrupt.physical && intid >= 16 {
                    self.flush_all();
                    self.sync();
                    self.reference.at(vcpu, intid).latch.clear();
                    let kicks = self.gic.retract_hw(v(vcpu), id(intid));
                    self.kick(kicks);
                    self.take_physical(vcpu);
                    self.flush_all();
                }
            }
            Op::Sgi(from, intid, targets) => self.send(from, intid, targets, false),
            Op::SgiLoaded(from, intid, targets) => self.send(from, intid, targets, true),
            Op::Exit(vcpu) => self.flush(vcpu),
            Op::Unload(vcpu) => {
                if self.loaded[vcpu] {
                    let kicks = self.gic.save(v(vcpu), &mut self.cpus[vcpu]);
                    self.revalidate_replays(vcpu);
                    assert_eq!(self.cpus[vcpu].listed().count(), 0);
                    self.loaded[vcpu] = false;
                    self.kick(kicks);
                    self.take_physical(vcpu);
                    assert!(!self.cpus[vcpu].maintenance());
                    // The physical PPIs' active states go with the vCPU.
                    for intid in INTIDS.into_iter().filter(|intid| *intid < 32) {
                        let interrupt = self.reference.at(vcpu, intid);
                        interrupt.physical &= interrupt.active || Reference::is_pending(interrupt);
                    }
                }
            }
            Op::Load(vcpu) => {
                if !self.loaded[vcpu] {
                    self.loaded[vcpu] = true;
                    self.flush(vcpu);
                }
            }
            Op::Acknowledge(vcpu) => self.acknowledge(vcpu),
            Op::End(vcpu) => self.end(vcpu),
        }
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
            // GICD_CPENDSGIR, GICD_SPENDSGIR by sender 1.
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

    fn acknowledge(&mut self, vcpu: usize) {
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
            .map_or(0x100, |(_, priority)| u16::from(*priority));
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
            interrupt.unsure |= kicked;
            interrupt.latch.remove(&source);
            interrupt.active = true;
            interrupt.taken_by = vcpu;
        }
    }

    fn end(&mut self, vcpu: usize) {
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
            .map(|(intid, _)| intid.number());
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
        self.maintain(vcpu);
    }

    /// The guest's ICC_DIR_EL1 traps.
    fn trap_deactivate(&mut self, vcpu: usize) {
        let Some((intid, _)) = self.cpus[vcpu].running.pop() else {
            return;
        };
        let kicks = self.gic.sync(v(vcpu), &mut self.cpus[vcpu]);
        self.revalidate_replays(vcpu);
        self.kick(kicks);
        self.reference.at(vcpu, intid.number()).active = false;
        let kicks = self.gic.deactivate(v(vcpu), intid);
        self.kick(kicks);
        self.flush(vcpu);
    }

    /// Adopts from the GIC what only it can know.
    fn resolve(&mut self) {
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

    /// Compares all that the guest can see, and the physical side.
    fn check(&mut self) {
        self.resolve();
        self.check_quiet();
        self.flush_all();
        self.check_quiet();
        self.sync();
        for vcpu in 0..VCPUS {
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
    fn drain(&mut self) {
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

fn run(version: GicVersion, eoi_mode: bool, ops: Vec<Op>) {
    let mut world = World::new(version, eoi_mode);
    assert_eq!(world.cpus[0].count(), LISTS);
    for (step, op) in ops.into_iter().enumerate() {
        world.apply(op);
        if step % 8 == 7 {
            world.check();
        }
    }
    world.check();
    world.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// G1-GIC-003, G1-GIC-007, G1-GIC-008, G1-GIC-012.
    #[test]
    fn gicv3_is_as_the_reference(eoi_mode: bool, ops in prop::collection::vec(op(), 1..200)) {
        run(GicVersion::V3, eoi_mode, ops);
    }

    #[test]
    fn gicv2_is_as_the_reference(ops in prop::collection::vec(op(), 1..200)) {
        run(GicVersion::V2, false, ops);
    }
}
