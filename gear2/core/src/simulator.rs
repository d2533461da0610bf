//! A Gear1 with guests, for tests: it checks that Gear2 keeps the contract of `gear1-abi`.
//!
//! Owns virtual time, vCPUs whose guests act at random, VMs that take a while
//! to load, the far end of the UART, and a device model. It delivers events one at a time to
//! the loops of several CPUs, in the order of time, and panics when a loop
//! runs a vCPU twice, leaves a ready one alone, answers not at all, twice or to nobody,
//! or calls what the state does not allow.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::{Decision, Reply, Status, VcpuState, VmState, number};
use gear1_abi::event::{Event, Fault, Mmio, VmEnd};
use gear1_abi::guest::GEAR2_NOP;
use gear1_abi::id::{CpuIndex, MAX_VCPUS, VcpuId, VmId};
use gear1_abi::regs::{NO_DEADLINE, Regs};
use gear2_protocol::Region;
use gearv_manifest::{Console, CpuSet, Restart};

use crate::config::{Config, VcpuConfig, VirtioPage, VmConfig};
use crate::console::Uart;
use crate::cpu_loop::CpuLoop;
use crate::gear1::Conduit;
use crate::kept::Kept;
use crate::machine::{Machine, Platform};
use crate::scheduler::{Parameters, Policy};

pub(crate) mod gdm;

use gdm::Gdm;

pub(crate) const SLICE: u64 = 500;
pub(crate) const UART_INTID: u32 = 33;
const CONSOLE: Console = Console::DEFAULT;
const VIRTIO_IPA: u64 = 0x0a00_0000;
const NOTHING_IPA: u64 = 0x0b00_0000;
const LOAD_PIECES: u64 = 20;
const LOAD_TICKS: u64 = 50;

/// What a guest's vCPUs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// Never leave the CPU by themselves.
    Spins,
    /// Everything a guest can do but end.
    Works,
    /// Everything.
    WorksAndEnds,
}

/// A VM of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) guest: Guest,
    /// The CPU of each vCPU.
    pub(crate) cpus: Vec<usize>,
    pub(crate) restart: Restart,
    /// Number of its virtio devices.
    pub(crate) devices: u32,
}

/// Makes Gear2's configuration for a plan. Time is in microseconds.
pub(crate) fn config(cpu_count: usize, plans: &[Plan]) -> Config {
    let mut vcpus = [None; MAX_VCPUS];
    let mut next = 0;
    let mut vms = Vec::new();
    let mut first_channel = 0;
    for (place, plan) in plans.iter().enumerate() {
        let id = VmId::new(place).unwrap();
        let first = next;
        for (index, &cpu) in plan.cpus.iter().enumerate() {
            vcpus[next] = Some(VcpuConfig {
                vm: id,
                index,
                cpu: CpuIndex::new(cpu).unwrap(),
            });
            next += 1;
        }
        vms.push(VmConfig {
            id,
            name: format!("guest{place}"),
            console: Some(CONSOLE),
            may_power_off: false,
            restart: plan.restart,
            watchdog: 0,
            autostart: true,
            scheduled: true,
            virtio: (plan.devices > 0).then_some(VirtioPage {
                ipa: VIRTIO_IPA,
                first_channel,
                count: plan.devices,
            }),
            vcpus: first..next,
        });
        first_channel += plan.devices;
    }
    Config {
        cpus: CpuSet::first(cpu_count),
        counter_hz: 1_000_000,
        uart_intid: UART_INTID,
        policy: Policy::named("round-robin").unwrap(),
        parameters: Parameters { slice: SLICE },
        vms,
        device_vm: None,
        vcpus,
    }
}

/// The far end of the UART.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Rc<RefCell<(Vec<u8>, VecDeque<u8>)>>);

impl Uart for Wire {
    fn send(&mut self, byte: u8) -> bool {
        self.0.borrow_mut().0.push(byte);
        true
    }

    fn receive(&mut self) -> Option<u8> {
        self.0.borrow_mut().1.pop_front()
    }

    fn interrupt_when_room(&mut self, _: bool) {}
}

pub(crate) struct Simulated;

impl Platform for Simulated {
    type Uart = Wire;
    type Relax = spin::relax::Spin;
}

#[derive(Debug)]
struct Vcpu {
    vm: usize,
    cpu: usize,
    state: VcpuState,
    /// A wake-up event is pending.
    wake: bool,
    /// Its VM is being stopped while it runs.
    leave: bool,
    /// When it wakes from WFI.
    wake_at: u64,
    /// When it does something by itself.
    acts_at: u64,
    used: u64,
    /// What it waits for is the device model's to answer.
    forwarded: bool,
    /// What it asked is to be answered with.
    expected: Option<(Reply, Option<u64>)>,
    /// What it asked.
    asked: Option<Event>,
    /// How often it asked.
    questions: u64,
    /// It asks that again when it runs.
    again: bool,
}

#[derive(Debug)]
struct Vm {
    guest: Guest,
    first: usize,
    state: VmState,
    left: u64,
    starts: u64,
    /// How it ended by itself.
    end: u64,
    devices: u32,
    first_channel: u32,
    irq: bool,
    /// Its UART's receive interrupts are enabled.
    listens: bool,
    /// How many bytes it read.
    read: u64,
    /// The line it sends, and how much of it was sent.
    line: u64,
    sent: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    runs: Option<usize>,
    deadline: u64,
    trap_wfe: bool,
    poked: bool,
    doorbell: bool,
    irq: bool,
}

/// The state of the simulated machine.
pub(crate) struct World {
    pub(crate) now: u64,
    random: u64,
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    vms: Vec<Vm>,
    wire: Wire,
    irq_open: bool,
    /// The device VM runs.
    gdm_runs: bool,
    /// How often the device VM is to be stopped before its bus masters have, and whether they never do.
    masters: u32,
    pub(crate) masters_stuck: bool,
    /// The device model; the device VM is VM 0.
    pub(crate) gdm: Option<Gdm>,
    /// Accesses for the device model.
    pub(crate) forwarded: u64,
    /// VMs, a bit each, that do not run.
    pub(crate) paused: u32,
    pub(crate) refused: u64,
    pub(crate) powered_off: bool,
    /// Ends of VMs happen only while this is set.
    pub(crate) disorder: bool,
    /// Guests only spin from now on.
    pub(crate) frozen: bool,
    /// A VM whose last vCPU left is stopped without being asked again.
    stops_by_itself: bool,
    /// How often Gear2 was restarted, and the CPU whose loop failed last.
    restarts: u64,
    failed: usize,
    /// Gear2 fails at the call that makes this zero.
    pub(crate) fails_in: Option<u64>,
    /// Answers that were refusals of what Gear2 may have failed at.
    blamed: u64,
}

impl World {
    fn gdm_due(&self) -> u64 {
        let at = self.gdm.as_ref().map_or(NO_DEADLINE, |gdm| gdm.at);
        at.max(self.now)
    }

    fn gdm_acts(&mut self) {
        let mishap = (self.disorder && self.below(20) == 0).then(|| self.below(3) as usize);
        let now = self.now;
        if self.gdm.as_mut().is_some_and(|gdm| gdm.act(now, mishap)) {
            self.ring();
        }
    }

    /// Rings Gear2's doorbell, on any CPU.
    fn ring(&mut self) {
        let cpu = self.below(self.cpus.len() as u64) as usize;
        self.cpus[cpu].doorbell = true;
    }

    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn call(&mut self, call: u16, args: Regs, cpu: usize) -> Regs {
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
                (results[3], results[4]) = (self.vms[index].starts, self.vms[index].end);
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
                        assert!(done || !gdm.up, "a device uses the memory");
                        assert!(done || still, "a bus master uses the memory");
                    }
                }
                vm.end = 0;
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
                self.vms[index].state = VmState::Running;
                self.vms[index].starts += 1;
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
                let boot = self.vms[index].first;
                self.make_ready(boot);
                Status::Ok
            }
            number::IRQ_SET => {
                assert_eq!(args[1], u64::from(CONSOLE.intid));
                let vm = &mut self.vms[index];
                let changes = vm.irq != (args[2] == 1);
                assert!(changes || self.restarts > 0, "a level that is already so");
                vm.irq = args[2] == 1;
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
                assert_eq!([args[0], args[1]], [0, 0]);
                let delay = self.below(300);
                match &mut self.gdm {
                    Some(gdm) if self.gdm_runs => {
                        gdm.raised(self.now, delay);
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
            number::SYSTEM => {
                self.powered_off = true;
                Status::Ok
            }
            other => panic!("call {other} in a simulation"),
        };
        results[0] = status as u64;
        results
    }

    fn reply(&mut self, index: usize, reply: Reply, value: u64, cpu: usize) -> Status {
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
                    // What was typed and not read is lost at a restart.
                    let input_is_lost = self.restarts > 0 && vcpu.reads_input() && value == 0;
                    assert!(expected.is_none_or(|expected| expected == value) || input_is_lost);
                }
                vcpu.state = VcpuState::Ready;
                vcpu.forwarded = false;
                vcpu.wake = vcpu.cpu != cpu;
                Status::Ok
            }
            // Its VM was stopped since.
            VcpuState::Off => Status::WrongState,
            VcpuState::Ready | VcpuState::Running | VcpuState::Wfi => {
                panic!("vCPU {index} asked nothing: {vcpu:?}")
            }
        }
    }

    fn make_ready(&mut self, index: usize) {
        self.vcpus[index].state = VcpuState::Ready;
        self.vcpus[index].wake = true;
    }

    /// Stops what does not run, and tells what does to leave.
    fn stop(&mut self, vm: usize, cpu: usize) -> Status {
        let state = self.vms[vm].state;
        assert!(
            matches!(state, VmState::Running | VmState::Stopping),
            "{state:?}"
        );
        self.vms[vm].state = VmState::Stopping;
        self.vms[vm].end = 0;
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
    fn masters_stop(&mut self, vm: usize) -> bool {
        if vm != 0 || self.gdm.is_none() {
            return true;
        }
        if !self.masters_stuck {
            self.masters = self.masters.saturating_sub(1);
        }
        self.masters == 0 && !self.masters_stuck
    }

    fn gdm_ends(&mut self, vm: usize) {
        if let Some(gdm) = &mut self.gdm
            && vm == 0
        {
            gdm.ends();
            self.gdm_runs = false;
        }
    }

    fn is_empty(&self, vm: usize) -> bool {
        self.vcpus
            .iter()
            .all(|vcpu| vcpu.vm != vm || vcpu.state == VcpuState::Off)
    }

    fn turn_off(&mut self, index: usize) {
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
    fn decided(&mut self, cpu: usize, decision: Decision) -> Option<Event> {
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
    fn check_others(&self, cpu: usize) {
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
    fn due(&self, cpu: usize) -> u64 {
        let here = &self.cpus[cpu];
        let mut due = here.deadline.max(self.now);
        if here.poked || here.irq || here.doorbell {
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
    fn event(&mut self, cpu: usize) -> Event {
        let now = self.now;
        let runs = self.cpus[cpu].runs.take();
        let id = runs.and_then(VcpuId::new);
        if let Some(index) = runs {
            self.vcpus[index].state = VcpuState::Ready;
            if self.vcpus[index].leave {
                self.turn_off(index);
                return Event::Off(id.unwrap());
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
        assert!(now >= self.cpus[cpu].deadline, "an event without a cause");
        Event::Deadline(id)
    }

    /// Does something on behalf of a guest.
    fn act(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = self.vcpus[index].vm;
        if core::mem::take(&mut self.vcpus[index].again)
            && let Some(event) = self.vcpus[index].asked
        {
            return self.ask_again(index, event);
        }
        let ends = self.disorder && self.vms[vm].guest == Guest::WorksAndEnds;
        match self.below(if ends { 1010 } else { 1000 }) {
            0..400 => self.use_console(index, id),
            400..450 if self.vms[vm].devices > 0 && self.gdm.is_some() => {
                self.use_device(index, id)
            }
            400..450 => self.ask(
                index,
                id,
                VcpuState::AwaitsMmio,
                (Reply::Abort, None),
                |id| {
                    Event::Mmio(
                        id,
                        Mmio {
                            ipa: NOTHING_IPA,
                            size_log2: 2,
                            store: Some(1),
                        },
                    )
                },
            ),
            450..600 => {
                let expected = (Reply::Value, Some(0));
                self.ask(index, id, VcpuState::AwaitsHypercall, expected, |id| {
                    Event::Hypercall(id, [u64::from(GEAR2_NOP), 0, 0, 0, 0])
                })
            }
            600..620 => {
                let expected = (Reply::Value, Some(u64::MAX));
                self.ask(index, id, VcpuState::AwaitsHypercall, expected, |id| {
                    Event::Hypercall(id, [0x8600_0abc, 0, 0, 0, 0])
                })
            }
            620..900 => {
                let wake_in = 1 + self.below(3000);
                let vcpu = &mut self.vcpus[index];
                vcpu.state = VcpuState::Wfi;
                vcpu.wake_at = self.now + wake_in;
                Event::Wfi(id)
            }
            900..940 if self.cpus[self.vcpus[index].cpu].trap_wfe => Event::Wfe(id),
            900..940 => Event::Deadline(Some(id)),
            940..980 => {
                // CPU_ON of a sibling. The caller goes on; Gear1 says something else meanwhile.
                let off = |vcpu: &Vcpu| vcpu.vm == vm && vcpu.state == VcpuState::Off;
                if let Some(sibling) = self.vcpus.iter().position(off) {
                    self.make_ready(sibling);
                }
                Event::Poke(Some(id))
            }
            980..1000 if index == self.vms[vm].first => Event::Deadline(Some(id)),
            980..1000 => {
                self.turn_off(index);
                Event::Off(id)
            }
            kind => {
                self.vms[vm].state = VmState::Stopping;
                self.vms[vm].end = match kind {
                    1000..1004 => 2,
                    1004..1007 => 1,
                    _ => 3,
                };
                self.gdm_ends(vm);
                let running = |vcpu: &&mut Vcpu| vcpu.vm == vm;
                for vcpu in self.vcpus.iter_mut().filter(running) {
                    vcpu.wake = false;
                    vcpu.leave = vcpu.state == VcpuState::Running;
                    if !vcpu.leave {
                        vcpu.state = VcpuState::Off;
                        (vcpu.expected, vcpu.again) = (None, false);
                    }
                }
                self.turn_off(index);
                match kind {
                    1000..1004 => Event::VmEnd(id, VmEnd::Reset),
                    1004..1007 => Event::VmEnd(id, VmEnd::Off),
                    _ => Event::Fault(id, Fault::default()),
                }
            }
        }
    }

    fn ask_again(&mut self, index: usize, event: Event) -> Event {
        let served = |mmio: Mmio| self.gdm.is_some() && mmio.ipa & !0xfff == VIRTIO_IPA;
        let forwarded = matches!(event, Event::Mmio(_, mmio) if served(mmio));
        let vcpu = &mut self.vcpus[index];
        vcpu.state = match event {
            Event::Hypercall(..) => VcpuState::AwaitsHypercall,
            _ => VcpuState::AwaitsMmio,
        };
        vcpu.questions += 1;
        vcpu.forwarded = forwarded;
        event
    }

    fn ask(
        &mut self,
        index: usize,
        id: VcpuId,
        state: VcpuState,
        expected: (Reply, Option<u64>),
        event: impl FnOnce(VcpuId) -> Event,
    ) -> Event {
        self.vcpus[index].state = state;
        self.vcpus[index].forwarded = false;
        self.vcpus[index].expected = Some(expected);
        let event = event(id);
        self.vcpus[index].asked = Some(event);
        self.vcpus[index].questions += 1;
        event
    }

    /// Loads or stores a register of a virtio device.
    fn use_device(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = &self.vms[self.vcpus[index].vm];
        let (first, count) = (vm.first_channel, u64::from(vm.devices));
        let device = u32::try_from(self.below(count)).unwrap();
        let register = u32::try_from(self.below(0x80)).unwrap() * 4;
        let store = (self.below(2) == 1).then_some(1 + self.below(1 << 20));
        let access = Mmio {
            ipa: VIRTIO_IPA + u64::from(device) * 0x200 + u64::from(register),
            size_log2: 2,
            store,
        };
        let word = u32::try_from(access.access_word()).unwrap();
        let (reply, value) = gdm::answer(first + device, register, word, store.unwrap_or(0));
        let state = VcpuState::AwaitsMmio;
        let event = self.ask(index, id, state, (reply, Some(value)), |id| {
            Event::Mmio(id, access)
        });
        self.vcpus[index].forwarded = true;
        self.forwarded += 1;
        event
    }

    /// The boot vCPU sends the next byte of the numbers 0, 1, 2, a line each, and reads what was
    /// typed, `x` or with a device model the alphabet, on its interrupt; the others look at the flags.
    fn use_console(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = &mut self.vms[self.vcpus[index].vm];
        let mut value = None;
        let (offset, store) = if index != vm.first {
            (0x18, None)
        } else if !core::mem::replace(&mut vm.listens, true) {
            (0x38, Some(0x50))
        } else if vm.irq {
            value = Some(u64::from(match self.gdm {
                Some(_) => gdm::typed_byte(u32::try_from(vm.read).unwrap()),
                None => b'x',
            }));
            vm.read += 1;
            (0x00, None)
        } else {
            (0x00, Some(vm.next_byte()))
        };
        let access = Mmio {
            ipa: CONSOLE.ipa + offset,
            size_log2: 0,
            store,
        };
        let state = VcpuState::AwaitsMmio;
        self.ask(index, id, state, (Reply::Value, value), |id| {
            Event::Mmio(id, access)
        })
    }
}

impl Vcpu {
    /// Tells whether it asked for a byte of its console.
    fn reads_input(&self) -> bool {
        let mmio = |mmio: &Mmio| mmio.ipa == CONSOLE.ipa && mmio.store.is_none();
        matches!(&self.asked, Some(Event::Mmio(_, access)) if mmio(access))
    }

    /// Tells whether the device model has what it asks.
    fn has_slot(&self, gdm: &Option<Gdm>) -> bool {
        let Some(Event::Mmio(id, access)) = self.asked else {
            return false;
        };
        let slot = gdm.as_ref().map(|gdm| &gdm.region.slots[id.index()]);
        let virtio = access.ipa & !0xfff == VIRTIO_IPA;
        virtio && slot.is_some_and(|slot| slot.state() != gear2_protocol::slot::IDLE)
    }
}

impl Vm {
    fn next_byte(&mut self) -> u64 {
        let line = format!("{}\n", self.line);
        let byte = line.as_bytes()[self.sent];
        self.sent += 1;
        if self.sent == line.len() {
            self.line += 1;
            self.sent = 0;
        }
        byte.into()
    }
}

/// One CPU's way into the world.
#[derive(Clone)]
pub(crate) struct Handle {
    world: Rc<RefCell<World>>,
    cpu: usize,
}

impl Conduit for Handle {
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs {
        assert_ne!(NUMBER, number::NEXT, "the simulation makes this call");
        if self.world.borrow().fails_in == Some(0) {
            std::panic::resume_unwind(Box::new(Failed));
        }
        self.world.borrow_mut().call(NUMBER, arguments, self.cpu)
    }
}

/// Gear2 failed in the middle of something.
struct Failed;

/// A simulated machine with Gear2 on it.
pub(crate) struct Simulation {
    config: Config,
    kept: &'static Kept,
    pub(crate) world: Rc<RefCell<World>>,
    loops: Vec<CpuLoop<'static, Simulated>>,
    /// A refusal that the CPU gets before anything else.
    refusals: Vec<Option<Event>>,
}

impl Simulation {
    pub(crate) fn new(cpu_count: usize, plans: &[Plan], seed: u64) -> Self {
        Self::make(cpu_count, plans, seed, None, 0)
    }

    /// Makes a machine whose VM 0 is the device VM, which has the UART too.
    pub(crate) fn with_device_model(cpu_count: usize, plans: &[Plan], seed: u64) -> Self {
        Self::watched(cpu_count, plans, seed, 0)
    }

    /// The same with a device model that shows signs of life at least so often, which is expected of it.
    pub(crate) fn watched(cpu_count: usize, plans: &[Plan], seed: u64, watchdog: u64) -> Self {
        let mut gdm = Gdm::new(plans.len());
        gdm.beats = (watchdog != 0).then_some((watchdog / 2, 0));
        Self::make(cpu_count, plans, seed, Some(gdm), watchdog)
    }

    fn make(cpu_count: usize, plans: &[Plan], seed: u64, gdm: Option<Gdm>, watchdog: u64) -> Self {
        let wire = Wire::default();
        let mut config = config(cpu_count, plans);
        let region = gdm.as_ref().map(|gdm| gdm.region);
        config.device_vm = region.and(VmId::new(0));
        config.vms[0].watchdog = watchdog;
        let world = Rc::new(RefCell::new(World {
            now: 1_000,
            random: seed | 1,
            cpus: (0..cpu_count).map(|_| Cpu::default()).collect(),
            vcpus: config.vcpus().map(|(_, vcpu)| new_vcpu(&vcpu)).collect(),
            vms: plans.iter().map(new_vm).collect(),
            wire: wire.clone(),
            irq_open: false,
            gdm_runs: false,
            masters: 0,
            masters_stuck: false,
            gdm,
            forwarded: 0,
            paused: 0,
            refused: 0,
            powered_off: false,
            disorder: true,
            frozen: false,
            stops_by_itself: seed & 2 != 0,
            restarts: 0,
            failed: 0,
            fails_in: None,
            blamed: 0,
        }));
        let (mut first, mut first_channel) = (0, 0);
        for (vm, plan) in world.borrow_mut().vms.iter_mut().zip(plans) {
            vm.first = first;
            first += plan.cpus.len();
            vm.first_channel = first_channel;
            first_channel += plan.devices;
        }
        let mut simulation = Self {
            config,
            kept: Box::leak(Box::new(Kept::new())),
            world,
            loops: Vec::new(),
            refusals: vec![None; cpu_count],
        };
        simulation.enter();
        simulation
    }

    /// Enters all loops from their beginning.
    fn enter(&mut self) {
        let cpu_count = self.refusals.len();
        self.refusals = vec![None; cpu_count];
        let region = self.world.borrow().gdm.as_ref().map(|gdm| gdm.region);
        let wire = self.world.borrow().wire.clone();
        let uart = region.is_none().then_some(wire);
        let (config, kept) = (self.config.clone(), self.kept);
        let mut handle = self.handle(0);
        let machine = Machine::<Simulated>::new(config, uart, region, kept, &mut handle);
        let machine = Box::leak(Box::new(machine));
        self.loops = (0..cpu_count)
            .map(|cpu| CpuLoop::new(machine, CpuIndex::new(cpu).unwrap()))
            .collect();
        for cpu in 0..cpu_count {
            let mut handle = self.handle(cpu);
            let decision = self.loops[cpu].start(&mut handle);
            self.decided(cpu, decision);
        }
    }

    /// Restarts Gear2 as Gear1 does: the loop on `cpu` failed.
    pub(crate) fn restart(&mut self, cpu: usize) {
        {
            let mut world = self.world.borrow_mut();
            let world = &mut *world;
            (world.restarts, world.failed) = (world.restarts + 1, cpu);
            (world.fails_in, world.irq_open) = (None, false);
            for here in &mut world.cpus {
                if let Some(index) = here.runs.take() {
                    let vcpu = &mut world.vcpus[index];
                    // One that is to leave does so when it is run next.
                    let leaves = core::mem::take(&mut vcpu.leave);
                    vcpu.state = if leaves {
                        VcpuState::Off
                    } else {
                        VcpuState::Ready
                    };
                }
                here.deadline = NO_DEADLINE;
                here.doorbell = true;
            }
            world.cpus[0].irq = true;
        }
        self.enter();
    }

    /// Delivers the event that is due next on CPU 0, but a call of a guest to a loop that fails at once.
    pub(crate) fn lose_call(&mut self) -> bool {
        let due = self.world.borrow().due(0);
        if due == NO_DEADLINE {
            return false;
        }
        let mut world = self.world.borrow_mut();
        world.now = due;
        let event = world.event(0);
        let now = world.now;
        drop(world);
        if !matches!(event, Event::Hypercall(..)) {
            let mut handle = self.handle(0);
            let decision = self.loops[0].on_event(&mut handle, event, now);
            self.decided(0, decision);
        }
        true
    }

    /// Tells whether a vCPU is in a state.
    pub(crate) fn is_in(&self, vcpu: usize, state: VcpuState) -> bool {
        self.world.borrow().vcpus[vcpu].state == state
    }

    /// Lets Gear2 fail at the call to Gear1 after this many.
    pub(crate) fn fail_in(&self, calls: u64) {
        self.world.borrow_mut().fails_in = Some(calls);
    }

    /// Returns how often Gear2 was restarted, and how many accesses were refused for it.
    pub(crate) fn restarts(&self) -> (u64, u64) {
        let world = self.world.borrow();
        (world.restarts, world.blamed)
    }

    fn handle(&self, cpu: usize) -> Handle {
        Handle {
            world: Rc::clone(&self.world),
            cpu,
        }
    }

    fn decided(&mut self, cpu: usize, decision: Decision) {
        // Through the registers, as on the target.
        let decision = Decision::decode(&decision.encode()).unwrap();
        self.refusals[cpu] = self.world.borrow_mut().decided(cpu, decision);
    }

    /// Delivers one event, the one that is due next. Returns whether one is.
    pub(crate) fn step(&mut self) -> bool {
        let mut world = self.world.borrow_mut();
        let turn = usize::try_from(world.below(64)).unwrap();
        let cpu_count = self.loops.len();
        let dues = (0..cpu_count)
            .map(|offset| (turn + offset) % cpu_count)
            .map(|cpu| {
                (
                    if self.refusals[cpu].is_some() {
                        world.now
                    } else {
                        world.due(cpu)
                    },
                    cpu,
                )
            });
        let Some((due, cpu)) = dues.min_by_key(|(due, _)| *due) else {
            return false;
        };
        let gdm_due = world.gdm_due();
        let due = due.min(gdm_due);
        if due == NO_DEADLINE {
            return false;
        }
        let elapsed = due - world.now;
        let running: Vec<_> = world.cpus.iter().filter_map(|cpu| cpu.runs).collect();
        running
            .into_iter()
            .for_each(|index| world.vcpus[index].used += elapsed);
        world.now = due;
        if due == gdm_due {
            world.gdm_acts();
            return true;
        }
        let event = self.refusals[cpu]
            .take()
            .unwrap_or_else(|| world.event(cpu));
        // The way to Gear2 takes time, too: a deadline may be over when an exit arrives.
        let delay = world.below(20);
        world.now += delay;
        let now = world.now;
        drop(world);
        let event = Event::decode(&event.encode()).unwrap();
        let mut handle = self.handle(cpu);
        let this = &mut self.loops[cpu];
        let decide = || this.on_event(&mut handle, event, now);
        // What failed is never used again.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(decide)) {
            Ok(decision) => self.decided(cpu, decision),
            Err(panic) if panic.is::<Failed>() => self.restart(cpu),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        true
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            if !self.step() {
                return;
            }
        }
    }

    /// Types at the terminal; the interrupt goes to CPU 0.
    pub(crate) fn type_keys(&self, keys: &[u8]) {
        let mut world = self.world.borrow_mut();
        world.wire.0.borrow_mut().1.extend(keys);
        world.cpus[0].irq = true;
    }

    /// Returns what the terminal has shown since the last call.
    pub(crate) fn shown(&self) -> String {
        let world = self.world.borrow();
        let shown = core::mem::take(&mut world.wire.0.borrow_mut().0);
        String::from_utf8(shown).unwrap()
    }

    /// Returns the time that each vCPU has had.
    pub(crate) fn used(&self) -> Vec<u64> {
        self.world
            .borrow()
            .vcpus
            .iter()
            .map(|vcpu| vcpu.used)
            .collect()
    }

    pub(crate) fn vm_states(&self) -> Vec<VmState> {
        self.world.borrow().vms.iter().map(|vm| vm.state).collect()
    }

    pub(crate) fn starts(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.starts).collect()
    }

    /// Returns how many whole lines each VM sent.
    pub(crate) fn lines(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.line).collect()
    }

    /// Returns how many bytes each VM read from its console.
    pub(crate) fn read(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.read).collect()
    }

    /// Tells whether every CPU is idle for good.
    pub(crate) fn is_quiet(&self) -> bool {
        let world = self.world.borrow();
        let cpus = (0..world.cpus.len()).all(|cpu| world.due(cpu) == NO_DEADLINE);
        cpus && world.gdm_due() == NO_DEADLINE
    }

    /// Returns how many vCPUs wait for the device model.
    pub(crate) fn unanswered(&self) -> usize {
        let world = self.world.borrow();
        let waits = |vcpu: &&Vcpu| vcpu.state == VcpuState::AwaitsMmio;
        world.vcpus.iter().filter(waits).count()
    }

    /// Asks for an operation by the mailbox, and returns the outcome and the result words.
    pub(crate) fn control(&mut self, op: u32, arguments: [u64; 2]) -> (u32, [u64; 6]) {
        let mailbox = {
            let mut world = self.world.borrow_mut();
            let mailbox = &world.gdm.as_ref().unwrap().region.control;
            for (word, argument) in mailbox.arguments.iter().zip(arguments) {
                word.store(argument, Relaxed);
            }
            mailbox.op.store(op, Relaxed);
            mailbox.asked.fetch_add(1, Relaxed);
            world.ring();
            mailbox
        };
        let asked = mailbox.asked.load(Relaxed);
        while mailbox.answered.load(Relaxed) != asked {
            assert!(self.step(), "nothing happens");
        }
        let results = core::array::from_fn(|word| mailbox.results[word].load(Relaxed));
        (mailbox.outcome.load(Relaxed), results)
    }
}

fn new_vcpu(config: &VcpuConfig) -> Vcpu {
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

fn new_vm(plan: &Plan) -> Vm {
    Vm {
        guest: plan.guest,
        first: 0,
        state: VmState::Stopped,
        left: 0,
        starts: 0,
        end: 0,
        devices: plan.devices,
        first_channel: 0,
        irq: false,
        listens: false,
        read: 0,
        line: 0,
        sent: 0,
    }
}
