//! Random operations of guests, devices and hypervisor, against an executable
//! reference of maps and sets. Kicks are acted upon late, as between CPUs, so
//! that guests run on with list registers that are out of date.

mod checks;
mod guest;
mod operations;
mod reference;

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::fake::Fake;
use super::{field_write, id, ready, v};
use crate::vgic::{GicVersion, Kicks, ListRegisters, LrReplay, VmGic};
use reference::Reference;

const VCPUS: usize = 3;
/// INTIDs that are used: some SGIs, PPIs and SPIs of two words.
const INTIDS: [u32; 12] = [0, 1, 5, 16, 27, 30, 32, 33, 40, 63, 64, 65];
const LISTS: usize = 2;

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
    Pulse(usize, u32),
    Physical(usize, u32),
    PhysicalLoaded(usize),
    Retract(usize, u32),
    Sgi(usize, u32, u8),
    SgiLoaded(usize, u32, u8),
    Exit(usize),
    Unload(usize),
    Leave(usize),
    Load(usize),
    Acknowledge(usize),
    End(usize),
    Wait(usize, bool),
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
        2 => (vcpu(), intid()).prop_map(|(v, i)| Op::Pulse(v, i)),
        3 => (vcpu(), intid()).prop_map(|(v, i)| Op::Physical(v, i)),
        3 => vcpu().prop_map(Op::PhysicalLoaded),
        1 => (vcpu(), intid()).prop_map(|(v, i)| Op::Retract(v, i)),
        4 => (vcpu(), sgi(), 0..8_u8).prop_map(|(v, i, targets)| Op::Sgi(v, i, targets)),
        3 => (vcpu(), sgi(), 0..8_u8).prop_map(|(v, i, targets)| Op::SgiLoaded(v, i, targets)),
        6 => vcpu().prop_map(Op::Exit),
        1 => vcpu().prop_map(Op::Unload),
        2 => vcpu().prop_map(Op::Leave),
        2 => vcpu().prop_map(Op::Load),
        10 => vcpu().prop_map(Op::Acknowledge),
        8 => vcpu().prop_map(Op::End),
        3 => (vcpu(), any::<bool>()).prop_map(|(v, ends)| Op::Wait(v, ends)),
    ]
}

/// The GIC, its vCPUs on CPUs of their own, and the reference model.
struct World {
    gic: Box<VmGic>,
    cpus: Vec<Fake>,
    loaded: [bool; VCPUS],
    /// Unloaded with nothing in list registers, and not folded since.
    has_left: [bool; VCPUS],
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
            has_left: [false; VCPUS],
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
            } else {
                self.fold_unloaded(vcpu);
            }
        }
    }
}

fn run(version: GicVersion, eoi_mode: bool, ops: Vec<Op>) {
    let mut world = World::new(version, eoi_mode);
    assert_eq!(world.cpus[0].all(), (1 << LISTS) - 1);
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
