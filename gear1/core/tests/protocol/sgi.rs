//! An SGI that is posted to a vCPU while a third one looks at its redistributor: the shipped
//! virtual GIC and the shipped words of a vCPU, in all orders. Each function does what the one of
//! `runtime/src/vgic.rs` does that it names.
//!
//! Requirements: G1-GIC-007, G1-VCPU-001.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use gear1_core::vgic::{
    GicVersion, IntId, Kicks, ListRegisters, Lr, LrReplay, LrState, Maintenance, VcpuIndex, VmGic,
};
use shuttle::scheduler::DfsScheduler;
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::config;
use crate::machine::Line;
use crate::vcpu::{Notify, Requests, VcpuShared};

const SGI: u32 = 5;
const WORD: u8 = 2;

/// List registers of a guest that ends each acknowledged interrupt.
#[derive(Default)]
pub(crate) struct Lists([u64; 2]);

const VALID: u64 = 1 << 63;
/// Place of the sender, which an SGI of a GICv2 has.
const SENDER: u32 = 10;

impl Lists {
    /// Acknowledges and ends all pending interrupts, and returns their number.
    fn serve(&mut self) -> u32 {
        self.serve_each().count() as u32
    }

    /// Acknowledges and ends all pending interrupts, and returns their senders.
    pub(crate) fn serve_each(&mut self) -> impl Iterator<Item = usize> + use<> {
        let served = std::mem::take(&mut self.0).into_iter();
        served
            .filter(|raw| *raw != 0)
            .map(|raw| (raw >> SENDER & 7) as usize)
    }
}

impl ListRegisters for Lists {
    fn all(&self) -> u32 {
        (1 << self.0.len()) - 1
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
            source: (raw >> SENDER & 7) as u8,
        }
    }

    fn encode(lr: Lr) -> u64 {
        match lr.state {
            LrState::Invalid => 0,
            _ => VALID | u64::from(lr.intid.number()) | u64::from(lr.source) << SENDER,
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
    /// Deliveries to the guest.
    served: u32,
}

struct Machine {
    vcpu: VcpuShared,
    gic: Mutex<VmGic>,
    kicks: Line,
    /// Whether `replay_posted` says that it delivered an SGI that somebody else drained.
    is_wrong: bool,
}

fn target() -> VcpuIndex {
    VcpuIndex::new(0).unwrap()
}

impl Machine {
    fn new(is_wrong: bool) -> Self {
        let mut gic = VmGic::new();
        gic.configure(GicVersion::V3, 3, 32);
        let all = u64::from(u32::MAX);
        // Groups on; the target's SGIs in Group 1, enabled, all of one priority.
        let _ = gic.distributor_write(target(), 0, WORD, 3);
        for (offset, value) in [(0x80, all), (0x100, all), (0x404, 0xa0a0_a0a0)] {
            let _ = gic.redistributor_write(target(), 0x1_0000 + offset, WORD, value);
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

    /// `vgic::sgi1r` of another vCPU.
    fn send(&self) {
        self.notify(self.vcpu.request(Requests::sgi(SGI)));
    }

    fn notify(&self, notify: Notify) {
        assert!(notify != Notify::Wake, "the target runs");
        self.kicks.raise();
    }

    /// `vgic_mmio::sync_from_hw` at the target's redistributor by a third vCPU:
    /// `vgic::drain_posted` under the lock.
    fn sync_from_hw(&self) {
        let mut gic = self.gic.lock().unwrap();
        let posted = self.vcpu.take_each(Requests::SGIS);
        let kicks = gic.post_sgis(target(), posted.sgis());
        if kicks.contains(target()) {
            self.notify(self.vcpu.request(Requests::IRQ));
        }
    }

    /// `vgic::replay_posted`.
    fn replay_posted(&self, cpu: &mut Target) -> bool {
        let sgi = Requests::sgi(cpu.posted_sgi.number());
        self.vcpu.requests() == sgi
            && cpu.posted_sgi.apply(&mut cpu.lists)
            && (self.vcpu.take(sgi) || self.is_wrong)
    }

    /// `vgic::flush_gic`.
    fn flush(&self, cpu: &mut Target) {
        if self.replay_posted(cpu) {
            return;
        }
        let sgis = self.vcpu.take_each(Requests::INTERRUPTS).sgis();
        let mut gic = self.gic.lock().unwrap();
        let _flushed = gic.post_sgis(target(), sgis);
        assert_eq!(gic.flush(target(), &mut cpu.lists), Kicks::NONE);
        if !cpu.posted_sgi.is_none() {
            cpu.posted_sgi = gic.revalidate(target(), cpu.posted_sgi);
        }
        if sgis.is_power_of_two() {
            let sgi = IntId::new(sgis.trailing_zeros()).unwrap();
            cpu.posted_sgi = gic.replay_of::<Lists>(target(), sgi, false);
        }
    }

    /// Runs the target's guest, which computes: serves pending interrupts between two kicks.
    fn compute(&self, cpu: &mut Target) {
        cpu.served += cpu.lists.serve();
        self.kicks.wait();
        // `vcpu::after_interrupt`.
        if self.vcpu.requests().is_interrupts() {
            self.flush(cpu);
        }
        cpu.served += cpu.lists.serve();
    }
}

/// Checks how often one SGI arrives while a third vCPU looks at the target.
fn all_orders(is_wrong: bool) {
    let runner = Runner::new(DfsScheduler::new(None, false), config());
    let orders = runner.run(move || {
        let machine = Arc::new(Machine::new(is_wrong));
        let mut cpu = Target {
            lists: Lists::default(),
            posted_sgi: LrReplay::NONE,
            served: 0,
        };
        // The first one makes the next ones replayable.
        machine.send();
        machine.compute(&mut cpu);
        assert!(!cpu.posted_sgi.is_none() && cpu.served == 1);
        // Only a look behind the SGI finds it, so that both can be one CPU's.
        let beside = Arc::clone(&machine);
        let others = thread::spawn(move || {
            beside.send();
            beside.sync_from_hw();
        });
        machine.compute(&mut cpu);
        others.join().unwrap();
        // At the end no kick is under way.
        machine.kicks.raise();
        machine.compute(&mut cpu);
        assert_eq!(cpu.served, 2, "one SGI came another number of times");
    });
    println!("figure: all {orders} orders of an SGI, its target and a third vCPU");
    assert!(orders > 100, "{orders} orders only");
}

#[test]
fn an_sgi_that_a_third_drains_comes_once() {
    all_orders(false);
}

/// The model finds a wrong protocol: a delivery without the lock that does not check whether the
/// bit was set.
#[test]
#[should_panic(expected = "another number of times")]
fn a_delivery_that_does_not_take_the_bit_is_found() {
    all_orders(true);
}
