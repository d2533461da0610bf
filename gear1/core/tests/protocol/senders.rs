//! The same SGI of a GICv2 by two senders at once: it comes once from each, and says from whom, in
//! all orders. The shipped virtual GIC and the shipped words of a vCPU; each function does what the
//! one of `runtime/src/vgic.rs` does that it names.
//!
//! Requirements: G1-GIC-004, G1-GIC-007, G1-GIC-017, G1-VCPU-001.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use gear1_core::vgic::{
    GicVersion, IntId, Kicks, ListRegisters, Lr, LrReplay, LrState, Maintenance, VcpuIndex, VmGic,
};
use shuttle::scheduler::{DfsScheduler, PctScheduler};
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::atomic::{self, Order};
use crate::machine::Line;
use crate::vcpu::{Requests, VcpuShared};
use crate::{DRAWN, SEED, config};

const SGI: u32 = 5;
const WORD: u8 = 2;
const VALID: u64 = 1 << 63;
const SOURCE: u32 = 10;

/// List registers of a guest that ends each acknowledged interrupt.
#[derive(Default)]
struct Lists([u64; 2]);

impl Lists {
    /// Acknowledges and ends all pending interrupts, and counts each at its sender.
    fn serve(&mut self, served: &mut [u32; 3]) {
        for raw in self.0.iter().filter(|raw| **raw != 0) {
            served[(raw >> SOURCE & 7) as usize] += 1;
        }
        self.0 = [0; 2];
    }
}

impl ListRegisters for Lists {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn read(&self, index: usize) -> Lr {
        let raw = self.0[index];
        if raw == 0 {
            return Lr::EMPTY;
        }
        Lr {
            intid: IntId::new(raw as u32 & 0x3ff).unwrap(),
            priority: 0xa0,
            state: LrState::Pending,
            hw: false,
            eoi: false,
            group1: true,
            source: (raw >> SOURCE & 7) as u8,
        }
    }

    fn encode(lr: Lr) -> u64 {
        match lr.state {
            LrState::Invalid => 0,
            _ => VALID | u64::from(lr.intid.number()) | u64::from(lr.source) << SOURCE,
        }
    }

    fn write_raw(&mut self, index: usize, raw: u64) {
        self.0[index] = raw;
    }

    fn empty_mask(&self) -> u32 {
        let lists = self.0.iter().enumerate();
        lists.fold(0, |mask, (index, raw)| mask | u32::from(*raw == 0) << index)
    }

    fn wants_maintenance(&self) -> bool {
        false
    }

    fn set_maintenance(&mut self, _wanted: Maintenance) {}
}

/// State that only the target's own CPU uses.
struct Target {
    lists: Lists,
    posted_sgi: LrReplay,
    /// Deliveries to the guest, by sender.
    served: [u32; 3],
}

struct Machine {
    vcpu: VcpuShared,
    gic: Mutex<VmGic>,
    kicks: Line,
    /// Whether `take_sgi_of` takes the senders before the SGI, which loses one in between.
    is_wrong: bool,
}

fn target() -> VcpuIndex {
    VcpuIndex::new(0).unwrap()
}

impl Machine {
    fn new(is_wrong: bool) -> Self {
        let mut gic = VmGic::new();
        gic.configure(GicVersion::V2, 3, 32);
        let all = u64::from(u32::MAX);
        // Groups on; the target's SGIs in Group 1, enabled, all of one priority.
        for (offset, value) in [(0, 3), (0x80, all), (0x100, all), (0x404, 0xa0a0_a0a0)] {
            let _ = gic.distributor_write(target(), offset, WORD, value);
        }
        let vcpu = VcpuShared::new();
        vcpu.set_state(VcpuState::Running);
        Self {
            vcpu,
            gic: Mutex::new(gic),
            kicks: Line::default(),
            is_wrong,
        }
    }

    /// `vgic::sgi_at_once` of another vCPU.
    fn send(&self, from: usize) {
        self.vcpu.request_sgi_of(SGI, 1 << from);
        self.kicks.raise();
    }

    /// `vgic::replay_posted`.
    fn replay_posted(&self, cpu: &mut Target) -> bool {
        let last = cpu.posted_sgi;
        let sgi = Requests::sgi(last.number());
        if self.vcpu.requests() != sgi {
            return false;
        }
        let mut apply = || last.apply(&mut cpu.lists);
        if !self.is_wrong {
            return self.vcpu.take_sgi_of(last.number(), last.sender(), apply);
        }
        let senders = self.vcpu.take_senders(last.number());
        self.vcpu.take(sgi);
        let is_done = senders == last.sender() && apply();
        if !is_done {
            self.vcpu.request_sgi_of(last.number(), senders);
        }
        is_done
    }

    /// `vgic::flush_gic`.
    fn flush(&self, cpu: &mut Target) {
        if self.replay_posted(cpu) {
            return;
        }
        let sgis = self.vcpu.take_each(Requests::INTERRUPTS).sgis();
        let mut gic = self.gic.lock().unwrap();
        // `vgic::post_sgis`.
        let _flushed = gic.post_sgis_of(target(), sgis, |sgi| self.vcpu.take_senders(sgi));
        assert_eq!(gic.flush(target(), &mut cpu.lists), Kicks::NONE);
        if !cpu.posted_sgi.is_none() {
            cpu.posted_sgi = gic.revalidate(target(), cpu.posted_sgi);
        }
        if sgis.is_power_of_two() {
            let sgi = IntId::new(sgis.trailing_zeros()).unwrap();
            cpu.posted_sgi = gic.replay_of::<Lists>(target(), sgi, false);
        }
    }

    /// Runs the target's guest after a kick: serves pending interrupts, and takes the maintenance
    /// interrupts by which the next sender's request follows.
    fn computes(&self, cpu: &mut Target) {
        self.kicks.wait();
        // `vcpu::after_interrupt`.
        if self.vcpu.requests().is_interrupts() {
            self.flush(cpu);
        }
        for _ in 0..3 {
            cpu.lists.serve(&mut cpu.served);
            let mut gic = self.gic.lock().unwrap();
            let _flushed = gic.flush(target(), &mut cpu.lists);
        }
    }
}

/// Checks that each SGI arrives once, and from whom: `first` has sent the one that can be repeated,
/// and the CPUs beside the target's send as the vCPUs that are given.
fn once(is_wrong: bool, first: usize, beside: &[&'static [usize]]) {
    let machine = Arc::new(Machine::new(is_wrong));
    let mut cpu = Target {
        lists: Lists::default(),
        posted_sgi: LrReplay::NONE,
        served: [0; 3],
    };
    machine.send(first);
    machine.computes(&mut cpu);
    assert!(!cpu.posted_sgi.is_none() && cpu.served[first] == 1);
    let begin = |senders: &'static [usize]| {
        let machine = Arc::clone(&machine);
        thread::spawn(move || senders.iter().for_each(|from| machine.send(*from)))
    };
    let threads: Vec<_> = beside.iter().map(|senders| begin(senders)).collect();
    machine.computes(&mut cpu);
    for thread in threads {
        thread.join().unwrap();
    }
    // At the end no kick is under way.
    machine.kicks.raise();
    machine.computes(&mut cpu);
    let mut expected = cpu.served.map(|_| 0);
    expected[first] = 1;
    beside
        .iter()
        .flat_map(|senders| senders.iter())
        .for_each(|from| expected[*from] += 1);
    assert_eq!(cpu.served, expected, "an SGI came another number of times");
}

/// Draws orders, of which there are millions.
fn many_orders(is_wrong: bool, beside: &'static [&'static [usize]]) {
    for first in [1, 2] {
        for kind in [Order::Kept, Order::LoadsOvertake] {
            let scheduler = PctScheduler::new_from_seed(SEED, 3, DRAWN);
            let runner = Runner::new(scheduler, config());
            atomic::on(kind, || runner.run(move || once(is_wrong, first, beside)));
        }
    }
}

#[test]
fn an_sgi_of_one_sender_behind_anothers_comes_from_each() {
    for (first, second) in [(1, 2), (2, 1)] {
        let beside: &[usize] = if second == 1 { &[1] } else { &[2] };
        let runner = Runner::new(DfsScheduler::new(None, false), config());
        let orders = runner.run(move || once(false, first, &[beside]));
        println!("figure: all {orders} orders of an SGI by two senders and its target");
        assert!(orders > 50, "{orders} orders only");
    }
}

#[test]
fn an_sgi_of_two_senders_comes_from_each() {
    many_orders(false, &[&[1, 2]]);
    many_orders(false, &[&[1], &[2]]);
}

/// The model finds a wrong protocol: a delivery that takes the senders before the SGI.
#[test]
#[should_panic(expected = "another number of times")]
fn a_delivery_that_takes_the_senders_first_is_found() {
    many_orders(true, &[&[1, 2]]);
}
