//! A CPU for the tests of policies: loads in short, and questions about what ran.
//!
//! The CPU is a [`VirtualCpu`], which judges each choice; a defect ends the test. Other events of
//! the CPU come at random times, since no policy may depend on when it is asked.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;
use proptest::prelude::*;

use super::virtual_cpu::{self, Costs, Random, VirtualCpu};
use super::{Plan, Policy, PolicyKind, Refused, Share};

/// Behaviour of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Never blocks.
    Spins,
    /// A job of `work` ticks in each period, due at its end.
    Periodic { period: u64, work: u64, phase: u64 },
    /// Works and sleeps for random times up to these.
    Random { work: u64, sleep: u64 },
}

impl Load {
    /// Returns the load of a vCPU that begins at `now`.
    fn boxed(self, now: u64, seed: u64) -> Box<dyn virtual_cpu::Load> {
        match self {
            Self::Spins => Box::new(virtual_cpu::Spin),
            Self::Periodic {
                period,
                work,
                phase,
            } => Box::new(virtual_cpu::Periodic {
                period,
                work,
                start: now + phase,
                jitter: 0,
                random: Random::new(seed),
            }),
            Self::Random { work, sleep } => Box::new(virtual_cpu::Bursts {
                work,
                sleep,
                start: now,
                random: Some(Random::new(seed)),
            }),
        }
    }
}

/// The CPU. A policy that conserves work is idle only while nobody is ready.
pub(super) struct Harness {
    cpu: VirtualCpu,
    pub(super) random: Random,
}

impl Deref for Harness {
    type Target = VirtualCpu;

    fn deref(&self) -> &VirtualCpu {
        &self.cpu
    }
}

impl DerefMut for Harness {
    fn deref_mut(&mut self) -> &mut VirtualCpu {
        &mut self.cpu
    }
}

pub(super) fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

/// Returns the parameters of a VM of its own for a vCPU.
pub(super) fn share(index: usize) -> Share {
    Share::of(VmId::from_low_bits(index))
}

/// Loads of any kind but periodic ones: what never blocks, and what works and sleeps for long or for
/// short times.
pub(super) fn any_load() -> impl Strategy<Value = Load> {
    let random = |(work, sleep)| Load::Random { work, sleep };
    prop_oneof![
        Just(Load::Spins),
        (1..9_000_u64, 1..9_000_u64).prop_map(random),
        // More runs in a period than a cap remembers.
        (1..200_u64, 1..200_u64).prop_map(random),
    ]
}

impl Harness {
    /// Makes a CPU on which a guest with the parameters `light` works for short times, the first
    /// task, beside as many guests that never block as `spinners`.
    pub(super) fn light_beside(
        name: &str,
        plan: &Plan,
        light: Share,
        period: u64,
        spinners: usize,
    ) -> Self {
        let mut tasks: Vec<_> = (1..=spinners).map(|i| (share(i), Load::Spins)).collect();
        // The phase is no multiple of a slice, so that wake-ups come at all times of one.
        let load = Load::Periodic {
            period,
            work: 3,
            phase: 77,
        };
        tasks.insert(0, (light, load));
        Self::new(name, plan, &tasks, 1)
    }

    /// Makes a CPU with a policy of the table.
    pub(super) fn new(name: &str, plan: &Plan, tasks: &[(Share, Load)], seed: u64) -> Self {
        let policy = (PolicyKind::named(name).unwrap().make)(plan);
        Self::with(policy, tasks, seed)
    }

    /// Makes a CPU with a policy.
    pub(super) fn with(policy: Box<dyn Policy>, tasks: &[(Share, Load)], seed: u64) -> Self {
        let mut cpu = VirtualCpu::new(policy, Costs::default(), seed);
        cpu.conserves = true;
        let random = Random::new(seed ^ 0x5eed);
        let mut harness = Self { cpu, random };
        for (share, load) in tasks {
            harness.add(share, *load).unwrap();
        }
        harness
    }

    /// Adds a vCPU, whose load begins now.
    pub(super) fn add(&mut self, share: &Share, load: Load) -> Result<usize, Refused> {
        let load = load.boxed(self.now, self.random.below(NO_DEADLINE));
        let vcpu = vcpu(self.tasks.len());
        self.cpu.add(vcpu, share, load)
    }

    /// Changes the parameters of a vCPU.
    pub(super) fn set(&mut self, task: usize, share: &Share) -> Result<(), Refused> {
        let now = self.now;
        self.cpu.policy.set(vcpu(task), share, now)
    }

    /// Lets time pass until `end`.
    pub(super) fn run_until(&mut self, end: u64) {
        self.cpu
            .run_until(end)
            .unwrap_or_else(|defect| panic!("{defect}"));
    }

    /// Returns the longest time for which a vCPU was ready and did not run.
    pub(super) fn gap(&self, task: usize) -> u64 {
        self.tasks[task].longest_wait(self.now)
    }

    /// Returns the longest time from a wake-up after `start` to the first run.
    pub(super) fn latency(&self, task: usize, start: u64) -> u64 {
        let wakes = self.tasks[task].wakes.iter();
        let late = wakes.filter(|wake| wake.0 >= start).map(|wake| wake.1);
        late.max().unwrap_or(0)
    }

    /// Returns the most that a vCPU ran in any window of a length.
    pub(super) fn most_in(&self, index: usize, length: u64) -> u64 {
        self.most_in_after(index, length, 0)
    }

    /// Returns the most that a vCPU ran in any window of a length after `from`. A window that holds
    /// the most begins where a stretch begins, or ends where one ends. A run has thousands of
    /// stretches, hence each window is two searches.
    pub(super) fn most_in_after(&self, index: usize, length: u64, from: u64) -> u64 {
        let mut ran = 0;
        let stretches: Vec<_> = self
            .stretches
            .iter()
            .filter(|stretch| stretch.task == index)
            .map(|stretch| {
                let before = ran;
                ran += stretch.end - stretch.start;
                (stretch.start, stretch.end, before)
            })
            .collect();
        let ran_until = |time: u64| {
            let begun = stretches.partition_point(|(start, ..)| *start < time);
            let last = begun.checked_sub(1).map(|last| stretches[last]);
            last.map_or(0, |(start, end, before)| before + end.min(time) - start)
        };
        let windows = stretches
            .iter()
            .flat_map(|(start, end, _)| [*start, end.saturating_sub(length)]);
        let most = windows
            .map(|start| start.max(from))
            .map(|start| ran_until(start + length) - ran_until(start));
        most.max().unwrap_or(0)
    }
}
