//! A CPU in virtual time: a policy, vCPUs with loads, and what becomes of each of them.
//!
//! Owns the time. A load says when its vCPU wakes and how long that works; the policy decides what
//! runs; the CPU charges, wakes and blocks as a loop does. Each choice is judged: only a ready vCPU
//! runs, and the end of a choice lies ahead. Switches and exits take time ([`Costs`]).
//!
//! For the host alone: `cargo xtask sched` and the tests of policies.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::{Choice, Policy, Refused, Run, Share};
pub use load::{Bursts, Idle, Job, Load, Periodic, Random, Recorded, Spin};

mod load;
#[cfg(test)]
mod tests;

/// Costs of the gears from an event of a vCPU that runs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The part that is charged to that vCPU: its run ends when Gear1 has read the counter.
    pub entry: u64,
    /// All, back to the same vCPU.
    pub same: u64,
    /// All, to the first instruction of another one.
    pub other: u64,
}

/// Costs of the gears, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From the end of a choice, or another event that is about no vCPU.
    pub end: Way,
    /// From the wake-up of another vCPU.
    pub wake_up: Way,
    /// From a block.
    pub block: Way,
    /// More to a vCPU that has waited since it woke: the interrupt that woke it is delivered.
    pub late: u64,
    /// From a wake-up on an idle CPU to the first instruction.
    pub wake: u64,
}

impl Costs {
    /// Returns costs with one figure for all switches, which the run of no vCPU pays.
    #[must_use]
    pub const fn new(switch: u64, exit: u64, wake: u64) -> Self {
        let way = Way {
            entry: 0,
            same: exit,
            other: switch,
        };
        Self {
            end: way,
            wake_up: way,
            block: way,
            late: 0,
            wake,
        }
    }

    /// Returns the costs with decisions that take longer.
    #[must_use]
    pub const fn with_decision(self, longer: u64) -> Self {
        const fn way(way: Way, longer: u64) -> Way {
            Way {
                entry: way.entry,
                same: way.same + longer,
                other: way.other + longer,
            }
        }
        Self {
            end: way(self.end, longer),
            wake_up: way(self.wake_up, longer),
            block: way(self.block, longer),
            ..self
        }
    }
}

/// Event that ended the run of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The vCPU has not left its guest: its next job was there when the last one ended.
    None,
    End,
    WakeUp,
    Block,
}

/// A stretch of time in which one vCPU ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Index of the vCPU's task.
    pub task: usize,
    /// Time of the first instruction.
    pub start: u64,
    /// Time of the exit.
    pub end: u64,
}

/// Faults of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The vCPU that is to run is not ready.
    NotReady(VcpuId),
    /// The choice ends before it begins.
    NoTime(Choice),
    /// A vCPU is ready, and the CPU is idle for good.
    Lost(VcpuId),
    /// A vCPU is ready, the CPU is idle, and the policy promises to conserve work.
    Idle(VcpuId),
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(vcpu) => write!(f, "vCPU {} runs and is not ready", vcpu.index()),
            Self::NoTime(choice) => write!(f, "a choice has no time: {choice:?}"),
            Self::Lost(vcpu) => write!(f, "vCPU {} is ready and lost", vcpu.index()),
            Self::Idle(vcpu) => write!(f, "vCPU {} is ready and the CPU idle", vcpu.index()),
        }
    }
}

/// A vCPU and its history.
pub struct Task {
    /// The vCPU.
    pub vcpu: VcpuId,
    /// Source of its jobs.
    load: Box<dyn Load>,
    /// The job that runs or comes next.
    job: Option<Job>,
    /// Whether it has work, whether it runs or not.
    ready: bool,
    /// Ticks of the job that are left.
    left: u64,
    /// Time since which it is ready and does not run.
    since: u64,
    /// Whether it has not run since it woke.
    fresh: bool,
    /// Ticks that it ran.
    pub used: u64,
    /// Ticks that the gears took for it.
    pub overhead: u64,
    /// Ticks that its jobs asked for so far.
    pub wanted: u64,
    /// Jobs that ended.
    pub jobs: u64,
    /// Jobs that ended after they were due.
    pub late: u64,
    /// Times for which it was ready and did not run.
    pub waits: Vec<u64>,
    /// Times of its wake-ups, and how long it took from each to its first instruction.
    pub wakes: Vec<(u64, u64)>,
    /// Times from the release of its jobs to their ends.
    pub responses: Vec<u64>,
    /// How often another vCPU ran although this one could have gone on.
    pub preemptions: u64,
    /// How often it got the CPU after another one.
    pub switches: u64,
}

impl Task {
    /// Returns the time of the next wake-up.
    fn wakes_at(&self) -> u64 {
        match &self.job {
            Some(job) if !self.ready => job.release,
            _ => NO_DEADLINE,
        }
    }

    /// Takes the next job of the load.
    fn next_job(&mut self, now: u64) {
        self.job = self.load.next(now);
        self.left = self.job.map_or(0, |job| job.work);
    }

    /// Returns the longest time for which it was ready and did not run, up to `now`.
    #[must_use]
    pub fn longest_wait(&self, now: u64) -> u64 {
        let waits = self.ready.then(|| now - self.since);
        self.waits.iter().copied().chain(waits).max().unwrap_or(0)
    }

    /// Returns the jobs that were late, with one that should have ended before `now`.
    #[must_use]
    pub fn missed(&self, now: u64) -> u64 {
        let job = self.job.filter(|job| self.ready && job.due < now);
        self.late + u64::from(job.is_some())
    }

    /// Tells whether it could run at the end of the time that has passed.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }
}

/// The CPU.
pub struct VirtualCpu {
    /// Policy of the CPU.
    pub policy: Box<dyn Policy>,
    /// The time.
    pub now: u64,
    /// All vCPUs that were added, in this order. Those that were removed keep their places.
    pub tasks: Vec<Task>,
    /// Runs, in the order of time.
    pub stretches: Vec<Stretch>,
    /// Whether the policy runs somebody whenever somebody is ready.
    pub conserves: bool,
    /// Mean time between events that are about no vCPU; 0: none.
    pub noise: u64,
    /// Costs of the gears.
    pub costs: Costs,
    /// Source of the noise: the same seed gives the same events.
    random: Random,
    /// Task that has the CPU.
    current: Option<usize>,
    /// Event for which that one has left its guest. The entry is charged.
    event: Event,
    /// Task that caused the event: what follows is charged to it.
    cause: Option<usize>,
}

impl VirtualCpu {
    /// Makes a CPU without vCPUs.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, costs: Costs, seed: u64) -> Self {
        Self {
            policy,
            now: 0,
            tasks: Vec::new(),
            stretches: Vec::new(),
            conserves: false,
            noise: 0,
            costs,
            random: Random::new(seed),
            current: None,
            event: Event::None,
            cause: None,
        }
    }

    /// Adds a vCPU, if the policy takes it.
    pub fn add(
        &mut self,
        vcpu: VcpuId,
        share: &Share,
        load: Box<dyn Load>,
    ) -> Result<usize, Refused> {
        self.policy.add(vcpu, share, self.now)?;
        let mut task = Task {
            vcpu,
            load,
            job: None,
            ready: false,
            left: 0,
            since: 0,
            fresh: false,
            used: 0,
            overhead: 0,
            wanted: 0,
            jobs: 0,
            late: 0,
            waits: Vec::new(),
            wakes: Vec::new(),
            responses: Vec::new(),
            preemptions: 0,
            switches: 0,
        };
        task.next_job(self.now);
        self.tasks.push(task);
        Ok(self.tasks.len() - 1)
    }

    /// Removes the vCPU of a task, which wakes no more.
    pub fn remove(&mut self, task: usize) {
        self.policy.remove(self.tasks[task].vcpu, self.now);
        (self.tasks[task].ready, self.tasks[task].job) = (false, None);
        self.cause = self.cause.filter(|cause| *cause != task);
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: u64) -> Result<(), Defect> {
        while self.now < end {
            self.wake_due();
            let choice = self.policy.pick(self.now);
            let next = self.next_event().min(end);
            match choice {
                Choice::Run(run) => self.run(run, next, end)?,
                Choice::Idle { until } => {
                    self.judge_idle(choice, until)?;
                    self.current = None;
                    self.now = next.min(until);
                }
            }
        }
        Ok(())
    }

    /// Returns the time of the next event that no choice causes.
    fn next_event(&mut self) -> u64 {
        let wakes = self.tasks.iter().map(Task::wakes_at).min();
        let noise = if self.noise > 0 {
            // Uniform up to twice the mean, and never now: time would stand still.
            self.now + 1 + self.random.below(2 * self.noise)
        } else {
            NO_DEADLINE
        };
        wakes.unwrap_or(NO_DEADLINE).min(noise)
    }

    fn judge_idle(&self, choice: Choice, until: u64) -> Result<(), Defect> {
        if until <= self.now {
            return Err(Defect::NoTime(choice));
        }
        match self.tasks.iter().find(|task| task.ready) {
            Some(task) if self.conserves => Err(Defect::Idle(task.vcpu)),
            // Idle for a time is right: a cap, a budget or a window may forbid the vCPU to run.
            Some(task) if until == NO_DEADLINE => Err(Defect::Lost(task.vcpu)),
            _ => Ok(()),
        }
    }

    /// Returns what the gears take from an event.
    const fn way(&self, event: Event) -> Way {
        match event {
            Event::None => Way {
                entry: 0,
                same: 0,
                other: self.costs.end.other,
            },
            Event::End => self.costs.end,
            Event::WakeUp => self.costs.wake_up,
            Event::Block => self.costs.block,
        }
    }

    /// Ends the run of a task for an event: the way to the counter's reading is still its own.
    fn leave(&mut self, index: usize, event: Event) {
        self.event = event;
        let entry = self.way(event).entry;
        if entry > 0 {
            self.now += entry;
            self.tasks[index].overhead += entry;
            self.policy.ran(self.tasks[index].vcpu, entry, self.now);
        }
    }

    fn wake_due(&mut self) {
        for (index, task) in self.tasks.iter_mut().enumerate() {
            let due = task.wakes_at();
            if due > self.now {
                continue;
            }
            (task.since, task.fresh, task.ready) = (due, true, true);
            task.wanted = task.wanted.saturating_add(task.left);
            self.policy.wake(task.vcpu, self.now);
            self.cause = Some(index);
        }
    }

    /// Runs what was chosen until its time is over, until an event, or until it blocks. Nothing
    /// happens at `limit`, where the caller stops.
    fn run(&mut self, run: Run, next: u64, limit: u64) -> Result<(), Defect> {
        let ready = |task: &Task| task.vcpu == run.vcpu && task.ready;
        let index = self.tasks.iter().position(ready);
        let index = index.ok_or(Defect::NotReady(run.vcpu))?;
        if run.until <= self.now {
            return Err(Defect::NoTime(Choice::Run(run)));
        }
        self.enter(index);
        let task = &mut self.tasks[index];
        let start = self.now;
        // The first of the next event, the end of the choice and the end of the job. What the gears
        // took in `enter` may lie behind all of them.
        let end = start.max(next.min(run.until).min(start.saturating_add(task.left)));
        self.note_wait(index, start);
        let task = &mut self.tasks[index];
        task.since = end;
        task.used += end - start;
        task.left -= end - start;
        self.now = end;
        self.note_stretch(index, start, end);
        if end > start {
            self.policy.ran(run.vcpu, end - start, end);
        }
        if self.tasks[index].left == 0 {
            self.end_job(index);
        } else if self.tasks.iter().any(|task| task.wakes_at() <= end) {
            self.leave(index, Event::WakeUp);
        } else if end == limit && end < run.until {
            self.event = Event::None;
        } else {
            self.leave(index, Event::End);
            if self.policy.pays_for_end(run.vcpu) {
                self.cause = Some(index);
            }
        }
        Ok(())
    }

    /// Notes a run. One that goes on is one stretch, however often the policy was asked meanwhile.
    fn note_stretch(&mut self, task: usize, start: u64, end: u64) {
        match self.stretches.last_mut() {
            Some(last) if last.task == task && last.end == start => last.end = end,
            _ => self.stretches.push(Stretch { task, start, end }),
        }
    }

    /// Returns what the way to a task takes, without the entry, which is charged.
    fn way_to(&self, index: usize) -> u64 {
        let way = self.way(self.event);
        let all = match self.current {
            None => return self.costs.wake,
            Some(current) if current == index => way.same,
            // A wake-up that preempts delivers its interrupt in any case.
            Some(_) if self.tasks[index].fresh && self.event != Event::WakeUp => {
                way.other + self.costs.late
            }
            Some(_) => way.other,
        };
        all.saturating_sub(way.entry)
    }

    /// Makes a task the one that has the CPU, and charges what that takes.
    fn enter(&mut self, index: usize) {
        let cost = self.way_to(index);
        if self.current != Some(index) {
            self.tasks[index].switches += 1;
            if let Some(current) = self.current.filter(|current| self.tasks[*current].ready) {
                self.tasks[current].preemptions += 1;
            }
        }
        // Charged to whoever caused the event, as `CpuLoop` charges the work of the gears.
        let cause = self.cause.take().unwrap_or(index);
        self.now += cost;
        if cost > 0 {
            self.tasks[cause].overhead += cost;
            let vcpu = self.tasks[cause].vcpu;
            self.policy.ran(vcpu, cost, self.now);
        }
        self.current = Some(index);
    }

    /// Ends the wait of a task that runs from `start` on.
    fn note_wait(&mut self, index: usize, start: u64) {
        let task = &mut self.tasks[index];
        let waited = start - task.since;
        if core::mem::take(&mut task.fresh) {
            task.wakes.push((task.since, waited));
        }
        if waited > 0 {
            task.waits.push(waited);
        }
    }

    /// Ends the job of a task. The next one begins at once if it was released meanwhile, else the
    /// vCPU blocks.
    fn end_job(&mut self, index: usize) {
        let now = self.now;
        let task = &mut self.tasks[index];
        if let Some(job) = task.job {
            task.jobs += 1;
            task.late += u64::from(now > job.due);
            task.responses.push(now - job.release);
        }
        task.next_job(now);
        if let Some(job) = task.job.filter(|job| job.release <= now) {
            task.wanted = task.wanted.saturating_add(job.work);
            self.event = Event::None;
            return;
        }
        self.leave(index, Event::Block);
        let task = &mut self.tasks[index];
        task.ready = false;
        self.policy.block(task.vcpu, self.now);
        self.cause = Some(index);
    }
}
