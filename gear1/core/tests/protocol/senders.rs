//! The same SGI of a GICv2 by two senders at once: it comes once from each, and says from whom, in
//! all orders. The shipped virtual GIC and the shipped words of a vCPU; each function does what the
//! one of `runtime/src/vgic.rs` does that it names.
//!
//! Requirements: G1-GIC-004, G1-GIC-007, G1-GIC-017, G1-VCPU-001.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use gear1_core::vgic::{GicVersion, IntId, Kicks, LrReplay, VcpuIndex, VmGic};
use shuttle::scheduler::{DfsScheduler, PctScheduler};
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::atomic::{self, Order};
use crate::machine::Line;
use crate::sgi::Lists;
use crate::vcpu::{Requests, VcpuShared};
use crate::{DRAWN, SEED, config};

const SGI: u32 = 5;
const WORD: u8 = 2;
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
            for sender in cpu.lists.serve_each() {
                cpu.served[sender] += 1;
            }
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
