//! The simulated machine and its state.

use alloc::vec::Vec;

use gear1_abi::call::{Reply, VcpuState, VmState, Waits};
use gear1_abi::event::{Ended, Ends, Event};
use gear1_abi::regs::NO_DEADLINE;

use crate::config::VcpuConfig;

use super::gdm::Gdm;
use super::ledger::Ledger;
use super::{Guest, Plan, Wire};

mod calls;
mod events;
mod smmu;

pub(super) use smmu::Smmu;

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) vm: usize,
    pub(super) cpu: usize,
    pub(super) state: VcpuState,
    /// A wake-up event is pending.
    pub(super) wake: bool,
    /// Whether the VM is being stopped while this vCPU runs.
    pub(super) leave: bool,
    /// Time at which the vCPU wakes from WFI.
    pub(super) wake_at: u64,
    /// Time of the vCPU's next own action.
    pub(super) acts_at: u64,
    pub(super) used: u64,
    /// Whether the device model has to answer the request.
    pub(super) forwarded: bool,
    /// Answer that the request must get.
    pub(super) expected: Option<(Reply, Option<u64>)>,
    /// Last request.
    pub(super) asked: Option<Event>,
    /// Number of requests.
    pub(super) questions: u64,
    /// Whether the vCPU repeats the request when it runs.
    pub(super) again: bool,
    /// Whether its CPU has its registers.
    pub(super) held: bool,
}

#[derive(Debug)]
pub(super) struct Vm {
    pub(super) guest: Guest,
    pub(super) first: usize,
    pub(super) state: VmState,
    pub(super) left: u64,
    pub(super) starts: u64,
    /// End by the VM itself, if nobody has handled it yet.
    pub(super) end: Ended,
    /// Ends of the last lives.
    pub(super) ends: Ends,
    /// Starts and own ends, in order.
    pub(super) lived: Vec<Lived>,
    /// Whether Gear1 runs the VM and tells CPU 0's loop of its ends.
    pub(super) real_time: bool,
    /// Whether Gear1 tells registers of a life that lasts.
    pub(super) dump: bool,
    pub(super) devices: u32,
    pub(super) first_channel: u32,
    pub(super) irq: bool,
    /// Level of the watchdog's first signal.
    pub(super) signalled: bool,
    /// Whether the guest spins, and refreshes its watchdog no longer.
    pub(super) hangs: bool,
    /// Number of refreshes of the watchdog.
    pub(super) fed: u64,
    /// Whether the UART's receive interrupts are enabled.
    pub(super) listens: bool,
    /// Bytes that the guest read.
    pub(super) read: u64,
    /// Bytes read since the UART was empty: as many as one interrupt handler reads.
    pub(super) in_one_go: u64,
    /// Line that the guest sends; `sent` counts the bytes of that line which were sent.
    pub(super) line: u64,
    pub(super) sent: usize,
}

/// A start or an end of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lived {
    Started,
    Ended(Ended),
}

impl Vm {
    pub(super) fn starts_anew(&mut self) {
        self.state = VmState::Running;
        self.starts += 1;
        self.ends = self.ends.begin_life();
        self.lived.push(Lived::Started);
    }

    pub(super) fn ends_by_itself(&mut self, how: Ended) {
        self.state = VmState::Stopping;
        self.end = how;
        self.ends = self.ends.end_life(how);
        self.lived.push(Lived::Ended(how));
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    pub(super) runs: Option<usize>,
    /// Time at which the last decision took effect; 0: an event was pending.
    pub(super) began: u64,
    pub(super) deadline: u64,
    pub(super) waits: Waits,
    /// Time since which the vCPU that runs waits inside Gear1.
    pub(super) waits_since: Option<u64>,
    /// Ticks for which it has done so since the last event.
    pub(super) waited: u64,
    /// Ticks for which vCPUs have done so since Gear2's start, but for a wait that lasts.
    pub(super) waited_before: u64,
    pub(super) poked: bool,
    pub(super) doorbell: bool,
    pub(super) irq: bool,
    /// Wake-ups of real-time VMs' vCPUs, a bit each.
    pub(super) real_time: u32,
    /// Wake-ups of vCPUs that have left the CPU, a bit each.
    pub(super) crossed: u32,
    /// Writes its ring of trace records.
    pub(super) traces: bool,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            runs: None,
            began: 0,
            deadline: 0,
            waits: Waits::Leaves,
            waits_since: None,
            waited: 0,
            waited_before: 0,
            poked: false,
            doorbell: false,
            irq: false,
            real_time: 0,
            crossed: 0,
            traces: false,
        }
    }
}

impl Cpu {
    /// Ends a wait inside Gear1.
    pub(super) fn end_wait(&mut self, now: u64) {
        if let Some(since) = self.waits_since.take() {
            let ticks = now.saturating_sub(since);
            self.waited += ticks;
            self.waited_before += ticks;
        }
    }
}

/// The state of the simulated machine.
pub(crate) struct World {
    pub(crate) now: u64,
    /// Gear1 was built with tracing.
    pub(crate) has_rings: bool,
    pub(super) random: u64,
    pub(super) cpus: Vec<Cpu>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) vms: Vec<Vm>,
    pub(super) wire: Wire,
    pub(super) irq_open: bool,
    pub(super) smmu: Smmu,
    /// The device VM runs.
    pub(super) gdm_runs: bool,
    /// Number of stops of the device VM that its bus masters take to quiesce, and whether they
    /// never do.
    pub(super) masters: u32,
    pub(crate) masters_stuck: bool,
    /// The device model; the device VM is VM 0.
    pub(crate) gdm: Option<Gdm>,
    /// Accesses for the device model.
    pub(crate) forwarded: u64,
    /// VMs, a bit each, that do not run.
    pub(crate) paused: u32,
    pub(crate) refused: u64,
    pub(crate) powered_off: bool,
    /// A real-time VM runs, so that Gear1 does not power the machine off.
    pub(crate) keeps_power_on: bool,
    /// Ends of VMs happen only while this is set.
    pub(crate) disorder: bool,
    /// Guests only spin from now on.
    pub(crate) frozen: bool,
    /// The policy runs a ready vCPU whenever there is one.
    pub(crate) conserves: bool,
    /// A VM whose last vCPU left is stopped without being asked again.
    pub(super) stops_by_itself: bool,
    /// Number of restarts of Gear2, and the CPU whose loop failed last.
    pub(super) restarts: u64,
    pub(super) failed: usize,
    /// Gear2 fails at the call that makes this zero.
    pub(crate) fails_in: Option<u64>,
    /// Answers that were refusals of what Gear2 may have failed at.
    pub(super) blamed: u64,
    /// A VM that ends by itself as soon as it does anything.
    pub(super) ends_next: Option<(usize, Ended)>,
    pub(crate) ledger: Ledger,
    /// Rings of each doorbell by Gear2.
    pub(crate) rings: [u32; 2],
    /// All vCPUs could run and get no CPU, as far as Gear1 says.
    pub(crate) starves: bool,
    /// The last life of a VM whose heartbeat stopped, and the VM.
    pub(crate) silent: Option<(usize, u64)>,
    /// The vCPU that waits in power-down.
    pub(crate) powered_down: Option<usize>,
}

impl World {
    /// Returns the CPU of a vCPU.
    pub(crate) fn cpu_of(&self, vcpu: usize) -> usize {
        self.vcpus[vcpu].cpu
    }

    /// Returns the ticks for which vCPUs of a CPU have waited inside Gear1.
    pub(crate) fn waited_on(&self, cpu: usize) -> u64 {
        self.cpus[cpu].waited_before
    }

    /// Returns the number of vCPUs of a CPU.
    pub(crate) fn vcpus_on(&self, cpu: usize) -> usize {
        self.vcpus.iter().filter(|vcpu| vcpu.cpu == cpu).count()
    }

    /// Lets time pass. The vCPUs that were entered use it.
    pub(super) fn go_to(&mut self, time: u64) {
        for cpu in &self.cpus {
            if let (Some(index), None) = (cpu.runs, cpu.waits_since) {
                let from = self.now.max(cpu.began);
                self.vcpus[index].used += time.saturating_sub(from);
            }
        }
        self.now = time;
    }

    pub(super) fn gdm_due(&self) -> u64 {
        let at = self.gdm.as_ref().map_or(NO_DEADLINE, |gdm| gdm.at);
        at.max(self.now)
    }

    pub(super) fn gdm_acts(&mut self) {
        let mishap = (self.disorder && self.below(20) == 0).then(|| self.below(3) as usize);
        let now = self.now;
        if self.gdm.as_mut().is_some_and(|gdm| gdm.act(now, mishap)) {
            self.ring();
        }
    }

    /// Rings Gear2's doorbell, on any CPU.
    pub(super) fn ring(&mut self) {
        let cpu = self.below(self.cpus.len() as u64) as usize;
        self.cpus[cpu].doorbell = true;
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    pub(super) fn make_ready(&mut self, index: usize) {
        self.vcpus[index].state = VcpuState::Ready;
        self.vcpus[index].wake = true;
    }

    /// Tells the bus masters of a VM whose vCPUs are off to stop, and returns whether they have.
    pub(super) fn masters_stop(&mut self, vm: usize) -> bool {
        if vm != 0 || self.gdm.is_none() {
            return true;
        }
        if !self.masters_stuck {
            self.masters = self.masters.saturating_sub(1);
        }
        self.masters == 0 && !self.masters_stuck
    }

    pub(super) fn gdm_ends(&mut self, vm: usize) {
        if let Some(gdm) = &mut self.gdm
            && vm == 0
        {
            gdm.ends();
            // Gear1 stops the bus masters of the device VM.
            gdm.stalled = false;
            self.gdm_runs = false;
        }
    }

    pub(super) fn is_empty(&self, vm: usize) -> bool {
        self.vcpus
            .iter()
            .all(|vcpu| vcpu.vm != vm || vcpu.state == VcpuState::Off)
    }

    pub(super) fn turn_off(&mut self, index: usize) {
        let vm = self.vcpus[index].vm;
        self.vcpus[index].state = VcpuState::Off;
        self.vcpus[index].leave = false;
        self.vcpus[index].again = false;
        let stopping = self.vms[vm].state == VmState::Stopping;
        if stopping && self.stops_by_itself && self.is_empty(vm) && self.masters_stop(vm) {
            self.vms[vm].state = VmState::Stopped;
        }
    }
}

pub(super) fn new_vcpu(config: &VcpuConfig) -> Vcpu {
    Vcpu {
        vm: config.vm.index(),
        cpu: config.cpu.index(),
        state: VcpuState::Off,
        wake: false,
        leave: false,
        wake_at: 0,
        acts_at: 0,
        used: 0,
        forwarded: false,
        expected: None,
        asked: None,
        questions: 0,
        again: false,
        held: false,
    }
}

pub(super) fn new_vm(plan: &Plan) -> Vm {
    Vm {
        guest: plan.guest,
        first: 0,
        state: VmState::Stopped,
        left: 0,
        starts: 0,
        end: Ended::No,
        ends: Ends(0),
        lived: Vec::new(),
        real_time: plan.real_time,
        dump: plan.dump,
        devices: plan.devices,
        first_channel: 0,
        irq: false,
        signalled: false,
        hangs: false,
        fed: 0,
        listens: false,
        read: 0,
        in_one_go: 0,
        line: 0,
        sent: 0,
    }
}
