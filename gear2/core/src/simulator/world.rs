//! The simulated machine: its state, Gear2's calls, and the next event.

use alloc::vec::Vec;

use gear1_abi::call::{Decision, Reply, Status, VcpuState, VmState, number};
use gear1_abi::event::{Ended, Ends, Event, Fault, VmEnd};
use gear1_abi::id::VcpuId;
use gear1_abi::regs::{NO_DEADLINE, Regs};

use crate::config::VcpuConfig;

use super::gdm::Gdm;
use super::{CONSOLE, Guest, LOAD_PIECES, LOAD_TICKS, Plan, UART_INTID, Wire};

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
    pub(super) devices: u32,
    pub(super) first_channel: u32,
    pub(super) irq: bool,
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

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    pub(super) runs: Option<usize>,
    pub(super) deadline: u64,
    pub(super) trap_wfe: bool,
    pub(super) poked: bool,
    pub(super) doorbell: bool,
    pub(super) irq: bool,
    /// Wake-ups of real-time VMs' vCPUs, a bit each.
    pub(super) real_time: u32,
}

/// The state of the simulated machine.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(super) random: u64,
    pub(super) cpus: Vec<Cpu>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) vms: Vec<Vm>,
    pub(super) wire: Wire,
    pub(super) irq_open: bool,
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
}

impl World {
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

    pub(super) fn call(&mut self, call: u16, args: Regs, cpu: usize) -> Regs {
        if let Some(left) = &mut self.fails_in {
            *left = left.saturating_sub(1);
        }
        let index = usize::try_from(args[0]).unwrap_or(usize::MAX);
        let mut results = [0; 8];
        let status = match call {
            number::VERSION => {
                results[1] = u64::from(gear1_abi::ABI_VERSION);
                results[2] = self.now;
                let last = [self.restarts, 1, 0x1000_0000, self.failed as u64];
                results[3..7].copy_from_slice(&last);
                Status::Ok
            }
            number::VCPU_STATE => {
                let Some(vcpu) = self.vcpus.get(index) else {
                    results[0] = Status::NotFound as u64;
                    return results;
                };
                results[1] = vcpu.state as u64;
                if let Some(Event::Mmio(_, access)) = vcpu.asked {
                    (results[2], results[3]) = (access.ipa, access.access_word());
                }
                results[4] = vcpu.cpu as u64;
                Status::Ok
            }
            number::VCPU_ASSIGN => {
                assert_eq!(self.vcpus[index].cpu, usize::try_from(args[1]).unwrap());
                Status::Ok
            }
            number::VCPU_REPLY => {
                let reply = Reply::from_reg(args[2]).unwrap();
                self.reply(index, reply, args[1], cpu)
            }
            number::VM_STATE => {
                results[1] = self.vms[index].state as u64;
                let vm = &self.vms[index];
                results[3..6].copy_from_slice(&[vm.starts, vm.end as u64, vm.ends.0]);
                Status::Ok
            }
            number::VM_STOP => self.stop(index, cpu),
            number::VM_LOAD => {
                let vm = &mut self.vms[index];
                assert!(
                    matches!(vm.state, VmState::Stopped | VmState::Loading),
                    "{vm:?}"
                );
                let channels = vm.first_channel..vm.first_channel + vm.devices;
                if let Some(gdm) = &self.gdm
                    && vm.state == VmState::Stopped
                    && vm.starts > 0
                {
                    let still = self.gdm_runs || self.masters == 0 || self.masters_stuck;
                    for device in channels {
                        let (asked, done) = gdm.reset(device as usize);
                        assert!(asked, "the next GDM would use the memory");
                        let under_way = gdm.up || gdm.stalled && self.gdm_runs;
                        assert!(done || !under_way, "a device uses the memory");
                        assert!(done || still, "a bus master uses the memory");
                    }
                }
                vm.end = Ended::No;
                vm.left = if vm.state == VmState::Stopped {
                    LOAD_PIECES
                } else {
                    vm.left
                } - 1;
                vm.state = if vm.left == 0 {
                    VmState::Loaded
                } else {
                    VmState::Loading
                };
                results[1] = vm.left;
                self.now += LOAD_TICKS;
                Status::Ok
            }
            number::VM_START => {
                assert_eq!(self.vms[index].state, VmState::Loaded);
                self.vms[index].starts_anew();
                self.vms[index].listens = false;
                if let Some(gdm) = &mut self.gdm {
                    let first = self.vms[index].first_channel as usize;
                    gdm.vm_starts(first..first + self.vms[index].devices as usize);
                    if index == 0 {
                        self.masters = self.random as u32 % 4;
                        gdm.boots(self.now);
                        self.gdm_runs = true;
                    }
                }
                assert!(!self.vms[index].irq, "a device was not reset");
                if !self.vms[index].real_time {
                    let boot = self.vms[index].first;
                    self.make_ready(boot);
                }
                Status::Ok
            }
            number::IRQ_SET => {
                assert_eq!(args[1], u64::from(CONSOLE.intid));
                let vm = &mut self.vms[index];
                let changes = vm.irq != (args[2] == 1);
                assert!(changes || self.restarts > 0, "a level that is already so");
                vm.irq = args[2] == 1;
                if !vm.irq {
                    vm.in_one_go = 0;
                }
                let boot = vm.first;
                if vm.irq && self.vcpus[boot].state == VcpuState::Wfi {
                    self.make_ready(boot);
                }
                Status::Ok
            }
            number::IRQ_DONE => {
                assert_eq!(args[0], u64::from(UART_INTID));
                let open = core::mem::take(&mut self.irq_open);
                assert!(open || self.restarts > 0, "ends an interrupt twice");
                Status::Ok
            }
            number::POKE => {
                self.cpus[index].poked = true;
                Status::Ok
            }
            number::PL061_RAISE => {
                let delay = self.below(300);
                let line = (args[0] as usize, args[1] as u32);
                match &mut self.gdm {
                    Some(gdm) if self.gdm_runs => {
                        gdm.raised(line, self.now, delay);
                        Status::Ok
                    }
                    _ => Status::WrongState,
                }
            }
            number::EXIT_STATS if self.gdm.is_none() => {
                let mmio = args[1] == gear1_abi::exit::ExitReason::MmioGear2 as u64;
                results[1] = if mmio && self.restarts > 0 {
                    self.vcpus[index].questions
                } else {
                    0
                };
                Status::Ok
            }
            number::EXIT_STATS => {
                [results[1], results[2]] = [7, 8];
                Status::Ok
            }
            number::LOG_READ if self.gdm.is_some() && args[0] == 3 => {
                results[1..7].copy_from_slice(&[4, 5, 6, 7, 8, 9]);
                Status::Ok
            }
            number::LOG_READ => Status::NotFound,
            number::SYSTEM if self.keeps_power_on => Status::WrongState,
            number::SYSTEM => {
                self.powered_off = true;
                Status::Ok
            }
            other => panic!("call {other} in a simulation"),
        };
        results[0] = status as u64;
        results
    }

    pub(super) fn reply(&mut self, index: usize, reply: Reply, value: u64, cpu: usize) -> Status {
        let vcpu = &mut self.vcpus[index];
        match vcpu.state {
            VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall => {
                let question = vcpu.expected;
                let (kind, expected) = vcpu.expected.take().expect("one answer to one question");
                if reply == Reply::None {
                    assert!(self.restarts > 0 && !vcpu.has_slot(&self.gdm), "{vcpu:?}");
                    vcpu.expected = question;
                    vcpu.again = true;
                } else if self.restarts > 0 && reply == Reply::Abort && kind != Reply::Abort {
                    self.blamed += 1;
                } else {
                    assert_eq!(reply, kind);
                    // A restart loses bytes that were typed and not read.
                    let input_is_lost = self.restarts > 0 && vcpu.reads_input() && value == 0;
                    assert!(
                        expected.is_none_or(|expected| expected == value) || input_is_lost,
                        "{vcpu:?} {value}"
                    );
                }
                vcpu.state = VcpuState::Ready;
                vcpu.forwarded = false;
                vcpu.wake = vcpu.cpu != cpu;
                Status::Ok
            }
            // The VM was stopped in between.
            VcpuState::Off => Status::WrongState,
            VcpuState::Ready | VcpuState::Running | VcpuState::Wfi => {
                panic!("vCPU {index} asked nothing: {vcpu:?}")
            }
        }
    }

    pub(super) fn make_ready(&mut self, index: usize) {
        self.vcpus[index].state = VcpuState::Ready;
        self.vcpus[index].wake = true;
    }

    /// Stops what does not run, and tells what does to leave.
    pub(super) fn stop(&mut self, vm: usize, cpu: usize) -> Status {
        let state = self.vms[vm].state;
        assert!(
            matches!(state, VmState::Running | VmState::Stopping),
            "{state:?}"
        );
        self.vms[vm].state = VmState::Stopping;
        self.vms[vm].end = Ended::No;
        self.gdm_ends(vm);
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.vm == vm) {
            assert!(
                vcpu.state != VcpuState::Running || vcpu.cpu != cpu,
                "runs under its loop"
            );
            vcpu.wake = false;
            if vcpu.state == VcpuState::Running {
                vcpu.leave = true;
            } else {
                vcpu.state = VcpuState::Off;
                (vcpu.expected, vcpu.again) = (None, false);
            }
        }
        if self.is_empty(vm) && self.masters_stop(vm) {
            self.vms[vm].state = VmState::Stopped;
            return Status::Ok;
        }
        Status::Busy
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

    /// Takes a decision in, and returns the refusal if it cannot be carried out.
    pub(super) fn decided(&mut self, cpu: usize, decision: Decision) -> Option<Event> {
        let now = self.now;
        match decision {
            Decision::Idle { deadline } => {
                self.cpus[cpu].deadline = deadline;
                self.cpus[cpu].runs = None;
            }
            Decision::Run {
                vcpu,
                deadline,
                reply,
                value,
                trap_wfe,
            } => {
                let index = vcpu.index();
                assert_eq!(self.vcpus[index].cpu, cpu, "runs on the wrong CPU");
                assert!(deadline > now, "no time to run");
                if reply != Reply::None {
                    // The VM may have been stopped in between.
                    self.reply(index, reply, value, cpu);
                }
                match self.vcpus[index].state {
                    VcpuState::Ready => {}
                    VcpuState::Off | VcpuState::Wfi => {
                        self.refused += 1;
                        return Some(Event::Refused(Status::WrongState as u64));
                    }
                    VcpuState::Running | VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall => {
                        panic!("cannot be run: {:?}", self.vcpus[index])
                    }
                }
                let acts_in = match self.vms[self.vcpus[index].vm].guest {
                    _ if self.vcpus[index].again => 0,
                    _ if self.frozen => NO_DEADLINE,
                    Guest::Spins => NO_DEADLINE,
                    Guest::Works | Guest::WorksAndEnds => 1 + self.below(300),
                };
                let vcpu = &mut self.vcpus[index];
                vcpu.state = VcpuState::Running;
                vcpu.wake = false;
                vcpu.acts_at = now.saturating_add(acts_in);
                self.cpus[cpu] = Cpu {
                    runs: Some(index),
                    deadline,
                    trap_wfe,
                    ..self.cpus[cpu]
                };
            }
        }
        assert!(cpu != 0 || !self.irq_open, "an interrupt is left active");
        self.check_others(cpu);
        None
    }

    /// No vCPU of the CPU is forgotten: what does not run is off, waits, or is behind another one.
    pub(super) fn check_others(&self, cpu: usize) {
        let idle = self.cpus[cpu].runs.is_none();
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.cpu == cpu) {
            let open = matches!(
                vcpu.state,
                VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall
            );
            assert!(!open || vcpu.forwarded, "not answered: {vcpu:?}");
            let paused = self.paused >> vcpu.vm & 1 != 0;
            let ready = vcpu.state == VcpuState::Ready && !vcpu.wake && !paused;
            assert!(!(idle && ready), "a lost wake-up: {vcpu:?}");
        }
    }

    /// Returns when the next event for the CPU is due.
    pub(super) fn due(&self, cpu: usize) -> u64 {
        let here = &self.cpus[cpu];
        let mut due = here.deadline.max(self.now);
        if here.poked || here.irq || here.doorbell || here.real_time != 0 {
            return self.now;
        }
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.cpu == cpu) {
            due = due.min(match vcpu.state {
                VcpuState::Ready if vcpu.wake => self.now,
                VcpuState::Wfi => vcpu.wake_at.max(self.now),
                VcpuState::Running if vcpu.leave => self.now,
                VcpuState::Running => vcpu.acts_at.max(self.now),
                VcpuState::Off
                | VcpuState::Ready
                | VcpuState::AwaitsMmio
                | VcpuState::AwaitsHypercall => continue,
            });
        }
        due
    }

    /// Returns the event that is due on the CPU now.
    pub(super) fn event(&mut self, cpu: usize) -> Event {
        let now = self.now;
        let runs = self.cpus[cpu].runs.take();
        let id = runs.and_then(VcpuId::new);
        if let Some(index) = runs {
            self.vcpus[index].state = VcpuState::Ready;
            if self.vcpus[index].leave {
                self.turn_off(index);
                let vm = self.vcpus[index].vm;
                let ends = self.disorder && self.vms[vm].guest == Guest::WorksAndEnds;
                // The VM was already ending when the vCPU asked for an end.
                return match self.below(4) {
                    0 if ends => Event::VmEnd(id.unwrap(), VmEnd::Off),
                    1 if ends => Event::Fault(id.unwrap(), Fault::default()),
                    _ => Event::Off(id.unwrap()),
                };
            }
            if self.vcpus[index].acts_at <= now {
                return self.act(index, id.unwrap());
            }
        }
        if core::mem::take(&mut self.cpus[cpu].poked) {
            return Event::Poke(id);
        }
        if core::mem::take(&mut self.cpus[cpu].doorbell) {
            return Event::Doorbell(id);
        }
        if core::mem::take(&mut self.cpus[cpu].irq) {
            self.irq_open = true;
            return Event::Irq(id, UART_INTID);
        }
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.cpu == cpu) {
            if vcpu.state == VcpuState::Wfi && vcpu.wake_at <= now {
                vcpu.state = VcpuState::Ready;
                vcpu.wake = true;
            }
        }
        let woken = |vcpu: &Vcpu| vcpu.cpu == cpu && vcpu.wake;
        if let Some(index) = self.vcpus.iter().position(woken) {
            self.vcpus[index].wake = false;
            return Event::Wake(VcpuId::new(index).unwrap());
        }
        let real_time = self.cpus[cpu].real_time;
        if real_time != 0 {
            self.cpus[cpu].real_time &= real_time - 1;
            return Event::Wake(VcpuId::new(real_time.trailing_zeros() as usize).unwrap());
        }
        assert!(now >= self.cpus[cpu].deadline, "an event without a cause");
        Event::Deadline(id)
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
        devices: plan.devices,
        first_channel: 0,
        irq: false,
        listens: false,
        read: 0,
        in_one_go: 0,
        line: 0,
        sent: 0,
    }
}
