//! A CPU for policies alone: loads, discrete events, and what became of each vCPU.
//!
//! Owns virtual time. Every vCPU has a load; the policy decides what runs, and the harness charges
//! it, wakes it and blocks it. Each choice is checked: only a ready vCPU runs, the time of a choice
//! lies ahead, and a policy that conserves work is idle only while nobody is ready. Other events of
//! the CPU come at random times, since no policy may depend on when it is asked.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use super::{Choice, Plan, Policy, PolicyKind, Share};

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

/// A stretch of time in which one vCPU ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) vcpu: usize,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A vCPU and its history.
#[derive(Debug)]
pub(super) struct Task {
    load: Load,
    ready: bool,
    /// Ticks until the vCPU blocks.
    work: u64,
    /// Time of the next wake-up.
    wakes: u64,
    /// Time since which it is ready and does not run.
    since: u64,
    /// Whether it has not run since it woke.
    fresh: bool,
    pub(super) used: u64,
    pub(super) jobs: u64,
    /// Jobs that ended after their periods.
    pub(super) late: u64,
    /// Longest time from a wake-up to the first run.
    pub(super) latency: u64,
    /// Longest time for which it was ready and did not run.
    pub(super) gap: u64,
}

/// The CPU.
pub(super) struct Harness {
    pub(super) policy: Box<dyn Policy>,
    pub(super) now: u64,
    pub(super) tasks: Vec<Task>,
    pub(super) trace: Vec<Stretch>,
    pub(super) switches: u64,
    /// Whether the policy runs somebody whenever somebody is ready.
    pub(super) conserves: bool,
    /// Mean time between events that are about no vCPU; 0: none.
    pub(super) noise: u64,
    random: u64,
}

pub(super) fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

/// Returns the parameters of a VM of its own for a vCPU.
pub(super) fn share(index: usize) -> Share {
    Share::of(VmId::from_low_bits(index))
}

impl Harness {
    /// Makes a CPU with a policy of the table.
    pub(super) fn new(name: &str, plan: &Plan, tasks: &[(Share, Load)], seed: u64) -> Self {
        let policy = (PolicyKind::named(name).unwrap().make)(plan);
        let mut harness = Self {
            policy,
            now: 0,
            tasks: Vec::new(),
            trace: Vec::new(),
            switches: 0,
            conserves: true,
            noise: 0,
            random: seed | 1,
        };
        for (index, (share, load)) in tasks.iter().enumerate() {
            harness.policy.add(vcpu(index), share, 0).unwrap();
            harness.tasks.push(Task {
                load: *load,
                ready: false,
                work: 0,
                wakes: match load {
                    Load::Periodic { phase, .. } => *phase,
                    Load::Spins | Load::Random { .. } => 0,
                },
                since: 0,
                fresh: false,
                used: 0,
                jobs: 0,
                late: 0,
                latency: 0,
                gap: 0,
            });
        }
        harness
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit.max(1)
    }

    /// Lets time pass until `end`.
    pub(super) fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.wake_due();
            let choice = self.policy.pick(self.now);
            let mut next = self.tasks.iter().map(|task| task.wakes).min().unwrap();
            if self.noise > 0 {
                next = next.min(self.now + 1 + self.below(2 * self.noise));
            }
            next = next.min(end);
            match choice {
                Choice::Run(run) => {
                    assert!(run.until > self.now, "no time to run: {run:?}");
                    self.runs(run.vcpu.index(), next.min(run.until));
                }
                Choice::Idle { until } => {
                    assert!(until > self.now, "no time to wait");
                    let ready = self.tasks.iter().any(|task| task.ready);
                    assert!(!(self.conserves && ready), "idle beside a ready vCPU");
                    assert!(!ready || until < NO_DEADLINE, "a lost vCPU");
                    self.now = next.min(until);
                }
            }
        }
        // A wait that has not ended counts, too.
        for task in self.tasks.iter_mut().filter(|task| task.ready) {
            task.gap = task.gap.max(self.now - task.since);
        }
    }

    fn wake_due(&mut self) {
        for index in 0..self.tasks.len() {
            if self.tasks[index].wakes > self.now {
                continue;
            }
            let load = self.tasks[index].load;
            let work = match load {
                Load::Spins => NO_DEADLINE,
                Load::Periodic { work, .. } => work,
                Load::Random { work, .. } => 1 + self.below(work),
            };
            let now = self.now;
            let task = &mut self.tasks[index];
            (task.work, task.since, task.fresh) = (work, now, true);
            // A job whose period is over was released then.
            task.since = now.min(task.wakes.max(task.since));
            task.wakes = NO_DEADLINE;
            task.ready = true;
            self.policy.wake(vcpu(index), now);
        }
    }

    /// Runs a vCPU until a time, or until it blocks.
    fn runs(&mut self, index: usize, until: u64) {
        let start = self.now;
        let task = &mut self.tasks[index];
        assert!(task.ready, "{index} is not ready");
        let end = until.min(start.saturating_add(task.work));
        let waited = start - task.since;
        task.gap = task.gap.max(waited);
        if task.fresh {
            task.latency = task.latency.max(waited);
        }
        (task.fresh, task.since) = (false, end);
        task.used += end - start;
        task.work -= end - start;
        self.now = end;
        match self.trace.last_mut() {
            Some(last) if last.vcpu == index && last.end == start => last.end = end,
            _ => {
                self.switches += 1;
                self.trace.push(Stretch {
                    vcpu: index,
                    start,
                    end,
                });
            }
        }
        self.policy.ran(vcpu(index), end - start, end);
        if self.tasks[index].work == 0 {
            self.blocks(index);
        }
    }

    fn blocks(&mut self, index: usize) {
        let now = self.now;
        let sleep = match self.tasks[index].load {
            Load::Random { sleep, .. } => 1 + self.below(sleep),
            Load::Spins | Load::Periodic { .. } => 0,
        };
        let task = &mut self.tasks[index];
        task.ready = false;
        task.wakes = match task.load {
            Load::Spins => NO_DEADLINE,
            Load::Random { .. } => now + sleep,
            Load::Periodic { period, phase, .. } => {
                task.jobs += 1;
                let due = phase + task.jobs * period;
                task.late += u64::from(now > due);
                due
            }
        };
        self.policy.block(vcpu(index), now);
    }

    /// Returns the ticks that a vCPU ran in a window of time.
    pub(super) fn used_in(&self, index: usize, start: u64, end: u64) -> u64 {
        let stretches = self.trace.iter().filter(|stretch| stretch.vcpu == index);
        let inside = stretches.map(|s| s.end.min(end).saturating_sub(s.start.max(start)));
        inside.sum()
    }

    /// Returns the most that a vCPU ran in any window of a length. A window that holds the most
    /// begins where a stretch begins, or ends where one ends.
    pub(super) fn most_in(&self, index: usize, length: u64) -> u64 {
        let stretches = self.trace.iter().filter(|stretch| stretch.vcpu == index);
        let windows = stretches.flat_map(|s| [s.start, s.end.saturating_sub(length)]);
        let most = windows.map(|start| self.used_in(index, start, start + length));
        most.max().unwrap_or(0)
    }
}
