//! A Gear1 with guests, for tests: it checks that Gear2 keeps the contract of `gear1-abi`.
//!
//! Owns virtual time, vCPUs whose guests act at random, VMs that take a while
//! to load, the far end of the UART, and a device model. It delivers events one at a time to
//! the loops of several CPUs, in the order of time, and panics when a loop
//! runs a vCPU twice, leaves a ready one alone, answers not at all, twice or to nobody,
//! or calls what the state does not allow.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::AtomicU64;

use gear1_abi::call::{Decision, VcpuState, WAITS_HERE, Waits, number as call};
use gear1_abi::event::Event;
use gear1_abi::id::{CpuIndex, MAX_CPUS, VmId};
use gear1_abi::regs::{NO_DEADLINE, Regs};
use gear2_protocol::Region;
use gearv_manifest::{Balancer, Console, WatchdogDevice};

use crate::balancer;
use crate::config::{Config, PoolConfig};
use crate::console::Uart;
use crate::cpu_loop::CpuLoop;
use crate::gear1::{Conduit, Times};
use crate::kept::Kept;
use crate::machine::{Machine, Platform, Shared};
use crate::scheduler::{PolicyKind, Window};
use crate::trace::Gear1Ring;

pub(crate) mod gdm;
mod guest;
mod ledger;
mod plan;
mod view;
mod world;

use gdm::Gdm;
use ledger::Ledger;
pub(crate) use plan::{AT_ONCE, Guest, Plan, config};
pub(crate) use world::Lived;
use world::{Cpu, Smmu, World, new_vcpu, new_vm};

/// Time at which Gear2 starts.
const START: u64 = 1_000;
pub(crate) const SLICE: u64 = 500;
pub(crate) const UART_INTID: u32 = 33;
/// Interrupt of the SMMU's event queue.
pub(crate) const SMMU_INTID: u32 = 106;
const CONSOLE: Console = Console::DEFAULT;
pub(crate) const WATCHDOG: WatchdogDevice = WatchdogDevice {
    ipa: WatchdogDevice::DEFAULT_IPA,
    intid: WatchdogDevice::INTID,
};
const VIRTIO_IPA: u64 = 0x0a00_0000;
const NOTHING_IPA: u64 = 0x0b00_0000;
pub(crate) const LOAD_PIECES: u64 = 20;
pub(crate) const LOAD_TICKS: u64 = 50;

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

/// Interface of one CPU's loop to the world.
#[derive(Clone)]
pub(crate) struct Handle {
    world: Rc<RefCell<World>>,
    cpu: usize,
}

impl Conduit for Handle {
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs {
        assert_ne!(NUMBER, call::NEXT, "the simulation makes this call");
        if self.world.borrow().fails_in == Some(0) {
            std::panic::resume_unwind(Box::new(Failed));
        }
        self.world.borrow_mut().call(NUMBER, arguments, self.cpu)
    }
}

/// Gear2 failed in the middle of something.
struct Failed;

/// Makes what the loops share, as Gear2 does when it begins.
fn new_machine(
    config: &Config,
    uart: Option<Wire>,
    region: Option<&'static Region>,
    kept: &'static Kept,
    gear1: &mut Handle,
) -> &'static Machine<Simulated> {
    let shared = region.map(|region| Shared { region, pages: &[] });
    let rings = match gear1.world.borrow().has_rings {
        true => config.cpus.len(),
        false => 0,
    };
    let mut config = config.clone();
    config.rings = (0..rings).map(|_| empty_ring()).collect();
    Box::leak(Box::new(Machine::new(config, uart, shared, kept, gear1)))
}

/// Numbers vCPUs and channels through all VMs, as Gear1 does.
fn number(world: &mut World, plans: &[Plan]) {
    let (mut first, mut first_channel) = (0, 0);
    for (vm, plan) in world.vms.iter_mut().zip(plans) {
        vm.first = first;
        first += plan.cpus.len();
        vm.first_channel = first_channel;
        first_channel += plan.devices;
    }
}

/// Makes a ring of Gear1's that nobody has written.
fn empty_ring() -> Gear1Ring {
    let words = (0..8 + 2 * 256).map(|_| AtomicU64::new(0));
    Gear1Ring::new(Vec::leak(words.collect()))
}

/// Options of a simulated machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The device model shows signs of life at least so often, which is expected of it; 0: neither.
    pub(crate) watchdog: u64,
    /// The UART is Gear2's, not the device VM's.
    pub(crate) terminal: bool,
    pub(crate) boot_order_timeout: u64,
    /// The policy of all CPUs, if not round-robin.
    pub(crate) policy: Option<&'static PolicyKind>,
    /// The only window of a major frame of this many ticks is VM 0's: start and length. All other
    /// VMs have the CPUs for the rest of the frame.
    pub(crate) window: Option<(u64, u64, u64)>,
    /// The balancer of all pools, if there is one.
    pub(crate) balancer: Option<Balancer>,
    /// Cluster of each CPU.
    pub(crate) clusters: [u8; MAX_CPUS],
    /// Number of CPUs, the last ones, that are a pool of their own.
    pub(crate) own_pool: usize,
    /// Difference of that pool from the other one.
    pub(crate) own: Option<fn(&mut PoolConfig)>,
    /// Gear1 has rings of trace records.
    pub(crate) rings: bool,
}

/// A simulated machine with Gear2 on it.
pub(crate) struct Simulation {
    config: Config,
    /// The UART is Gear2's.
    terminal: bool,
    kept: &'static Kept,
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) machine: &'static Machine<Simulated>,
    loops: Vec<CpuLoop<'static, Simulated>>,
    /// A refusal that the CPU gets before anything else.
    refusals: Vec<Option<Event>>,
}

impl Simulation {
    pub(crate) fn new(cpu_count: usize, plans: &[Plan], seed: u64) -> Self {
        let options = Options {
            terminal: true,
            ..Options::default()
        };
        Self::make(cpu_count, plans, seed, None, options)
    }

    /// Makes a machine without a device model.
    pub(crate) fn plain(cpu_count: usize, plans: &[Plan], seed: u64, options: Options) -> Self {
        let options = Options {
            terminal: true,
            ..options
        };
        Self::make(cpu_count, plans, seed, None, options)
    }

    /// Makes a machine with another policy.
    pub(crate) fn with_policy(
        cpu_count: usize,
        plans: &[Plan],
        seed: u64,
        policy: &'static PolicyKind,
    ) -> Self {
        let options = Options {
            policy: Some(policy),
            ..Options::default()
        };
        Self::plain(cpu_count, plans, seed, options)
    }

    /// Makes a machine whose VM 0 is the device VM, which has the UART too.
    pub(crate) fn with_device_model(cpu_count: usize, plans: &[Plan], seed: u64) -> Self {
        Self::with_options(cpu_count, plans, seed, Options::default())
    }

    /// Makes a machine whose VM 0 is the device VM.
    pub(crate) fn with_options(
        cpu_count: usize,
        plans: &[Plan],
        seed: u64,
        options: Options,
    ) -> Self {
        let mut gdm = Gdm::new(plans.len());
        gdm.beats = (options.watchdog != 0).then_some((options.watchdog / 2, 0));
        Self::make(cpu_count, plans, seed, Some(gdm), options)
    }

    fn make(
        cpu_count: usize,
        plans: &[Plan],
        seed: u64,
        gdm: Option<Gdm>,
        options: Options,
    ) -> Self {
        let wire = Wire::default();
        let mut config = config(cpu_count, plans);
        let region = gdm.as_ref().map(|gdm| gdm.region);
        config.device_vm = region.and(VmId::new(0));
        if options.watchdog != 0 {
            config.vms[0].watchdog = options.watchdog;
        }
        config.vms[0].share.needed = region.is_some();
        config.boot_order_timeout = options.boot_order_timeout;
        config.clusters = options.clusters;
        set_up_pool(&mut config.default_pool, &options);
        config.split_pool(options.own_pool);
        if let (Some(own), Some(pool)) = (options.own, config.pools.first_mut()) {
            own(pool);
        }
        let world = Rc::new(RefCell::new(World {
            now: START,
            has_rings: options.rings,
            random: seed | 1,
            cpus: (0..cpu_count).map(|_| Cpu::default()).collect(),
            vcpus: config.vcpus().map(|(_, vcpu)| new_vcpu(&vcpu)).collect(),
            vms: plans.iter().map(new_vm).collect(),
            wire: wire.clone(),
            irq_open: false,
            smmu: Smmu::default(),
            gdm_runs: false,
            masters: 0,
            masters_stuck: false,
            gdm,
            forwarded: 0,
            paused: 0,
            refused: 0,
            powered_off: false,
            keeps_power_on: false,
            disorder: true,
            frozen: false,
            conserves: options.window.is_none(),
            stops_by_itself: seed & 2 != 0,
            restarts: 0,
            failed: 0,
            fails_in: None,
            blamed: 0,
            ends_next: None,
            ledger: Ledger::new(cpu_count, START),
            rings: [0; 2],
            starves: false,
            silent: None,
            powered_down: None,
        }));
        number(&mut world.borrow_mut(), plans);
        let kept = Box::leak(Box::new(Kept::new()));
        let mut handle = Handle {
            world: Rc::clone(&world),
            cpu: 0,
        };
        let uart = options.terminal.then_some(wire);
        let mut simulation = Self {
            terminal: options.terminal,
            machine: new_machine(&config, uart, region, kept, &mut handle),
            config,
            kept,
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
        let machine = self.machine;
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
            world.restarts += 1;
            world.failed = cpu;
            world.fails_in = None;
            world.irq_open = false;
            world.smmu.repeat();
            for here in &mut world.cpus {
                let waits = here.waits_since.take().is_some();
                (here.waited, here.waited_before) = (0, 0);
                if let Some(index) = here.runs.take()
                    && !waits
                {
                    let vcpu = &mut world.vcpus[index];
                    // A vCPU that has to leave does so when it is run next.
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
        let region = self.world.borrow().gdm.as_ref().map(|gdm| gdm.region);
        let wire = self.world.borrow().wire.clone();
        let uart = self.terminal.then_some(wire);
        let mut handle = self.handle(0);
        self.machine = new_machine(&self.config, uart, region, self.kept, &mut handle);
        self.enter();
    }

    /// Delivers the event that is due next on CPU 0, but a call of a guest to a loop that fails at
    /// once.
    pub(crate) fn lose_call(&mut self) -> bool {
        let due = self.world.borrow().due(0);
        if due == NO_DEADLINE {
            return false;
        }
        let mut world = self.world.borrow_mut();
        world.now = due;
        let Some(event) = world.event(0) else {
            return true;
        };
        let now = world.now;
        let waited = core::mem::take(&mut world.cpus[0].waited);
        drop(world);
        if !matches!(event, Event::Hypercall(..)) {
            let mut handle = self.handle(0);
            let times = Times {
                began: 0,
                now,
                waited,
            };
            let decision = self.loops[0].on_event(&mut handle, event, times);
            self.decided(0, decision);
        }
        true
    }

    /// Returns what WFI does of the vCPU that a CPU runs, if it runs one.
    pub(crate) fn waits(&self, cpu: usize) -> Option<Waits> {
        let here = &self.world.borrow().cpus[cpu];
        here.runs.map(|_| here.waits)
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

    /// Returns an interface to the world that a CPU's loop would have.
    pub(crate) fn handle(&self, cpu: usize) -> Handle {
        Handle {
            world: Rc::clone(&self.world),
            cpu,
        }
    }

    fn decided(&mut self, cpu: usize, decision: Decision) {
        // Through the registers, as on the target.
        let decision = Decision::decode(&decision.encode()).unwrap();
        let mut world = self.world.borrow_mut();
        world.ledger.decided(cpu, decision);
        self.refusals[cpu] = world.decided(cpu, decision);
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
        world.go_to(due);
        if due == gdm_due {
            world.gdm_acts();
            return true;
        }
        let waits = world.cpus[cpu].waits_since.is_some();
        let refusal = self.refusals[cpu].take();
        let Some(event) = refusal.or_else(|| world.event(cpu)) else {
            // Gear2 hears nothing of it.
            return true;
        };
        // The way to Gear2 takes time, too: a deadline may be over when an exit arrives.
        let delay = world.below(20);
        world.now = (world.now + delay).max(world.cpus[cpu].began);
        let (began, now) = (world.cpus[cpu].began, world.now);
        let waited = core::mem::take(&mut world.cpus[cpu].waited);
        let flag = if waits { WAITS_HERE } else { 0 };
        let times = Times {
            began,
            now,
            waited: waited | flag,
        };
        world.ledger.event(cpu, event, times);
        drop(world);
        let event = Event::decode(&event.encode()).unwrap();
        let mut handle = self.handle(cpu);
        let this = &mut self.loops[cpu];
        let decide = || this.on_event(&mut handle, event, times);
        // A loop that failed is never used again.
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
}

/// Gives a pool the policy, the balancer and the windows of the options.
fn set_up_pool(pool: &mut PoolConfig, options: &Options) {
    pool.policy = options.policy.unwrap_or(pool.policy);
    if let Some(balancer) = options.balancer {
        pool.balancer = balancer::of(balancer);
    }
    if let Some((frame, start, length)) = options.window {
        let window = |start, length, vm| Window { start, length, vm };
        pool.plan.frame = frame;
        pool.plan.windows = vec![
            window(0, start, None),
            window(start, length, VmId::new(0)),
            window(start + length, frame - start - length, None),
        ];
    }
}
