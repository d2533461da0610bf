//! The loop's part in a trace: its rings are switched, and the counters of its vCPUs noted.
//!
//! The counters of one vCPU are noted in one round of the job, so that no event waits for those of all
//! vCPUs.

use alloc::boxed::Box;
use core::mem;

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::CpuLoop;
use super::jobs::TRACE_JOB;
use crate::gear1::Gear1;
use crate::kept::bit;
use crate::machine::{Platform, TRACE};
use crate::scheduler::Null;
use crate::trace::{Recorded, is_on};

/// Time for which ready vCPUs run between two notes.
const NOTE_PAUSE_US: u64 = 50;

/// State of a loop's part.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    /// Last order that was begun.
    order: u32,
    /// vCPUs whose counters are not noted yet, a bit each.
    to_note: u32,
    /// Those of real-time VMs, which run meanwhile.
    running: u32,
    /// The policy is recorded.
    is_recorded: bool,
}

impl<P: Platform> CpuLoop<'_, P> {
    /// Switches the rings of this CPU as the manifest says. An earlier Gear2 may have left Gear1's on.
    pub(super) fn begin_tracing(&mut self, gear1: &mut impl Gear1) {
        if self.machine.trace.has_rings() {
            let from_boot = self.machine.config.trace_from_boot;
            self.record(gear1, from_boot);
        }
    }

    /// Has all loops carry out a new order.
    pub(super) fn pass_trace_order(&mut self, gear1: &mut impl Gear1) {
        let machine = self.machine;
        for cpu in machine.config.cpus.iter().filter(|cpu| *cpu != self.cpu) {
            machine.poke(gear1, cpu, TRACE);
        }
        self.take_job(TRACE_JOB, 0);
    }

    /// Carries out an order for one round. Returns when the next one is due.
    pub(super) fn go_on_tracing(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        let machine = self.machine;
        let order = machine.trace.order();
        if self.tracing.order != order {
            self.tracing.order = order;
            self.tracing.to_note = self.moves.here;
            self.tracing.running = self.to_note_running();
            if is_on(order) {
                self.record(gear1, true);
            }
        }
        // One that has left meanwhile is another CPU's to note.
        self.tracing.to_note &= self.moves.here;
        if let Some(vcpu) = VcpuId::new(self.tracing.to_note.trailing_zeros() as usize) {
            self.tracing.to_note &= !bit(vcpu);
            machine.trace.note(gear1, vcpu, order);
            return now.saturating_add(machine.config.ticks(NOTE_PAUSE_US));
        }
        if let Some(vcpu) = VcpuId::new(self.tracing.running.trailing_zeros() as usize) {
            self.tracing.running &= !bit(vcpu);
            machine.trace.note_running(gear1, vcpu, order);
            return now.saturating_add(machine.config.ticks(NOTE_PAUSE_US));
        }
        if !is_on(order) {
            self.record(gear1, machine.config.trace_from_boot);
        }
        machine.trace.set_done(self.cpu, order);
        self.jobs &= !TRACE_JOB;
        NO_DEADLINE
    }

    /// Returns the vCPUs on CPUs without a loop whose counters this one notes: one loop does for all.
    /// The rings of those CPUs are written since boot or never.
    fn to_note_running(&self) -> u32 {
        let config = &self.machine.config;
        let is_first = config.cpus.iter().next() == Some(self.cpu);
        let vms = config.vms.iter().filter(|vm| !vm.scheduled);
        let vcpus = vms.flat_map(|vm| vm.vcpus.clone()).filter_map(VcpuId::new);
        match is_first && config.trace_from_boot {
            true => vcpus.fold(0, |all, vcpu| all | bit(vcpu)),
            false => 0,
        }
    }

    /// Switches both rings of this CPU on or off.
    fn record(&mut self, gear1: &mut impl Gear1, on: bool) {
        // Refused by a Gear1 that was built without tracing: the order has told so.
        let _ = gear1.trace(on);
        let Some(ring) = self.machine.trace.ring(self.cpu) else {
            return;
        };
        if self.tracing.is_recorded == on {
            return;
        }
        self.tracing.is_recorded = on;
        let policy = mem::replace(&mut self.scheduler, Box::new(Null::default()));
        if on {
            self.scheduler = Box::new(Recorded::new(policy, ring));
        } else if let Some(policy) = policy.recorded() {
            // As `is_recorded` says, the policy was one that records.
            self.scheduler = policy;
        }
    }
}
