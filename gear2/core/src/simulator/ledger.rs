//! Debts of each vCPU by `docs/schedulers.md`, computed from what happened on the CPUs.

use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::call::{Decision, WAITS_HERE};
use gear1_abi::event::Event;
use gear1_abi::id::{MAX_VCPUS, VcpuId};

use crate::gear1::Times;

/// Time of a CPU since its last event.
#[derive(Clone, Copy, Debug)]
struct Interval {
    since: u64,
    /// vCPU that the last event is about.
    cause: Option<VcpuId>,
    /// vCPU of the last decision.
    chosen: Option<VcpuId>,
}

/// Charges of all vCPUs up to the last event of each CPU.
#[derive(Debug)]
pub(crate) struct Ledger {
    cpus: Vec<Interval>,
    /// Charges by vCPU.
    pub(crate) charges: [u64; MAX_VCPUS],
    /// The part of them in which the guest ran.
    pub(crate) ran: [u64; MAX_VCPUS],
    /// Time that is nobody's.
    pub(crate) idle: u64,
    start: u64,
    /// The last event was one after which Gear2 has charged all.
    pub(crate) settled: bool,
}

impl Ledger {
    /// Begins the account of all CPUs at `now`.
    pub(super) fn new(cpu_count: usize, now: u64) -> Self {
        let interval = Interval {
            since: now,
            cause: None,
            chosen: None,
        };
        Self {
            cpus: vec![interval; cpu_count],
            charges: [0; MAX_VCPUS],
            ran: [0; MAX_VCPUS],
            idle: 0,
            start: now,
            settled: false,
        }
    }

    /// Returns the time of a CPU's up to its last event, or to the end of the load that followed.
    pub(crate) fn elapsed(&self, cpu: usize) -> u64 {
        self.cpus[cpu].since - self.start
    }

    /// Charges ticks to a vCPU, or to nobody.
    fn charge(&mut self, vcpu: Option<VcpuId>, ticks: u64) {
        match vcpu {
            Some(vcpu) => self.charges[vcpu.index()] += ticks,
            None => self.idle += ticks,
        }
    }

    /// An event of a CPU ends the interval before it.
    pub(super) fn event(&mut self, cpu: usize, event: Event, times: Times) {
        let Interval {
            since,
            cause,
            chosen,
        } = self.cpus[cpu];
        // An event was pending: the decision took no effect, and all of the time was work.
        let began = if times.began == 0 {
            times.now
        } else {
            times.began
        };
        // Up to the guest's first instruction, Gear1 and Gear2 worked for the vCPU of the last
        // event, or, after an event that is about nobody, for the one that was chosen.
        self.charge(cause.or(chosen), began - since);
        let waited = times.waited & !WAITS_HERE;
        self.charge(None, waited);
        self.charge(chosen, times.now - began - waited);
        if let Some(vcpu) = chosen {
            self.ran[vcpu.index()] += times.now - began - waited;
        }
        // After these two Gear2 answers before it charges: the guest goes on, and its next longer
        // event charges both intervals.
        let short = matches!(event, Event::Mmio(..) | Event::Hypercall(..));
        // A wake-up of the vCPU that left last begins no other account either.
        let goes_on = matches!(event, Event::Wake(vcpu) if chosen.is_none() && cause == Some(vcpu));
        self.settled = !short && !goes_on;
        self.cpus[cpu] = Interval {
            since: times.now,
            cause: match event {
                Event::Mmio(vcpu, _)
                | Event::Hypercall(vcpu, _)
                | Event::Wfi(vcpu)
                | Event::Wfe(vcpu)
                | Event::Wake(vcpu)
                | Event::Off(vcpu)
                | Event::VmEnd(vcpu, _)
                | Event::Fault(vcpu, _) => Some(vcpu),
                Event::Deadline(_)
                | Event::Irq(..)
                | Event::Poke(_)
                | Event::Refused(_)
                | Event::Doorbell(_) => None,
            },
            chosen: None,
        };
    }

    /// A piece of a load that a CPU's loop makes: the VM's first vCPU owes it.
    pub(super) fn load(&mut self, cpu: usize, first: usize, ticks: u64) {
        self.charges[first] += ticks;
        self.cpus[cpu].since += ticks;
    }

    /// Notes whom the time from now on is for.
    pub(super) fn decided(&mut self, cpu: usize, decision: Decision) {
        self.cpus[cpu].chosen = match decision {
            Decision::Run { vcpu, .. } => Some(vcpu),
            Decision::Idle { .. } => None,
        };
    }
}
