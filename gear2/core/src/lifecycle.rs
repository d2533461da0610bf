//! The life of a VM: start, stop, restart, end.
//!
//! Owns the goal of each VM. Gear1 keeps the state ([`VmState`]), so that a restarted Gear2
//! continues from it. A loop with an unfinished goal calls [`Lifecycle::step`] between two events;
//! each step makes at most one call that takes time. One row a state, one column a goal; the cell
//! is the call:
//!
//! | state   | Run          | Restart               | Stop             | PowerOff |
//! |---------|--------------|-----------------------|------------------|----------|
//! | Stopped | pause, quiesce, load | as Run, from now on   | done             | power off |
//! | Loading | load         | as Run, from now on   | done             | power off |
//! | Loaded  | start; done  | as Run, from now on   | done             | power off |
//! | Running | done         | stop                  | stop; then done  | power off |
//! | Stopping| as Restart   | stop (again)          | stop; then done  | power off |
//!
//! GiveUp is as Stop, and the manifest's safe state follows, which the caller brings about. The goal
//! stays until then: a Gear2 that fails in between leaves it to the next one.

use gear1_abi::call::{Status, VmState};
use gear1_abi::event::{Ended, Fault};
use gearv_manifest::Restart;

use crate::config::{SafeState, VmConfig};
use crate::gear1::{Gear1, VmHistory};
use crate::last_words::Cause;
use crate::lives::{News, Reported};
use crate::restarts::{REMEMBERED, RestartPolicy, Restarts, Verdict};

#[cfg(test)]
mod tests;

/// Request for a change of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Is to run, if it does not already.
    Run,
    /// Is to run from its beginning.
    Restart,
    /// Is to stop.
    Stop,
    /// Has failed, and is not started again.
    GiveUp,
    /// The machine must be powered off.
    PowerOff,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is left to do.
    Done,
    /// There is more to do at once.
    More,
    /// More work follows when a vCPU of the VM has left, or a bus master of the VM has quiesced.
    Wait,
    /// The VM is stopped, and ran before: call [`Lifecycle::set_quiet`] when nobody uses its memory
    /// any longer, then call again.
    Quiesce,
    /// The VM is loaded: bring its devices to their reset state and call again.
    Reset,
    /// The VM is started again later, at this time.
    Pause(u64),
    /// The VM failed, is stopped, and is not started again: bring its safe state about, if it has
    /// one, and call [`Lifecycle::set_safe`]. Without one nothing is left to do.
    GivenUp(Why),
    /// The VM was started, and its virtual count is 0 at this count; nothing is left to do.
    Started(u64),
    /// The VM is stopped; nothing is left to do.
    Stopped,
    /// The caller must power the machine off.
    PowerOff,
    /// Gear1 refused; nothing is left to do.
    Refused(Status),
}

/// Reason why a VM is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The VM ended too often.
    TooOften,
    /// The manifest wants no restart after a failure.
    NoRestart,
    /// An earlier step has said it.
    Known,
}

/// Lifecycle of a VM: the goal, and the progress towards it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lifecycle {
    /// Aim of the next steps, by somebody's request or after the VM's own end.
    goal: Option<Goal>,
    /// Whether the devices of the loaded VM are in their reset state.
    devices_reset: bool,
    /// Starts and ends that were reported.
    reported: Reported,
    /// Number of faults since Gear2 started.
    faults: u32,
    /// Last fault that the VM could not continue from, with the index of the vCPU in the VM.
    last_fault: Option<(usize, Fault)>,
    /// Whether the wait for other VMs at boot is over.
    may_start: bool,
    /// Whether nobody uses the stopped VM's memory.
    quiet: bool,
    /// Count of device VM starts when the devices were told to leave the stopped VM's memory alone.
    pub(crate) quiesces: Option<u32>,
    /// Counter value since which the goal waits for somebody else, and whether the log says so.
    waits_since: Option<(u64, bool)>,
    /// Last automatic restarts.
    restarts: Restarts,
    /// Automatic restart that the last end calls for.
    owed: Owed,
    /// Whether the VM stays stopped until somebody asks for a start.
    given_up: bool,
    /// Starts of the standby before the fail-over to it began, if one did.
    failed_over: Option<u32>,
    /// Cause of the end of the current life, or of the last one.
    cause: Cause,
}

/// An automatic restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owed {
    /// No restart.
    #[default]
    Nothing,
    /// The policy has to decide whether the VM is restarted.
    Judgement,
    /// The restart follows at `due`; `reported`: the log says so.
    Pause { due: u64, reported: bool },
}

impl Owed {
    /// The numbers of [`Self::Nothing`] and [`Self::Judgement`]; from there on they are times.
    const NOTHING: u64 = 0;
    const JUDGEMENT: u64 = 1;

    const fn word(self) -> u64 {
        match self {
            Self::Nothing => Self::NOTHING,
            Self::Judgement => Self::JUDGEMENT,
            Self::Pause { due, .. } if due > Self::JUDGEMENT => due,
            // Times 0 and 1 have other meanings, and a pause until then is long over.
            Self::Pause { .. } => Self::JUDGEMENT + 1,
        }
    }

    /// Goes on with the word of an earlier Gear2. A pause is no longer than the policy's window.
    fn resumed(word: u64, now: u64, policy: &RestartPolicy) -> Self {
        match word {
            Self::NOTHING => Self::Nothing,
            Self::JUDGEMENT => Self::Judgement,
            due => Self::Pause {
                due: due.min(now.saturating_add(policy.window)),
                reported: false,
            },
        }
    }
}

/// Returns the goal that follows from a VM's own end. A real-time VM has none: Gear1 handles the
/// end.
pub(crate) const fn goal_after(vm: &VmConfig, end: Ended) -> Option<Goal> {
    if !vm.scheduled {
        return None;
    }
    match (end, vm.restart) {
        (Ended::No, _) => None,
        (Ended::Off, _) if vm.may_power_off => Some(Goal::PowerOff),
        (Ended::Reset, _)
        | (Ended::Off, Restart::Always)
        | (Ended::Fault, Restart::Always | Restart::OnFailure) => Some(Goal::Restart),
        (Ended::Fault, Restart::Never) if !matches!(vm.safe_state, SafeState::Stop) => {
            Some(Goal::GiveUp)
        }
        (Ended::Off, Restart::Never | Restart::OnFailure) | (Ended::Fault, Restart::Never) => {
            Some(Goal::Stop)
        }
    }
}

impl Lifecycle {
    /// Goes on where an earlier Gear2 was.
    pub(crate) fn resumed(goal: Option<Goal>, reported: Reported, given_up: bool) -> Self {
        Self {
            goal,
            reported,
            given_up,
            ..Self::default()
        }
    }

    /// Goes on with what [`Self::restarts`] returned to an earlier Gear2.
    pub(crate) fn resume_restarts(
        &mut self,
        (times, owed): ([u64; REMEMBERED], u64),
        now: u64,
        policy: &RestartPolicy,
    ) {
        self.restarts = Restarts::resumed(times, now, policy);
        self.owed = Owed::resumed(owed, now, policy);
    }

    /// Returns the times of the VM's last restarts, and the restart that is owed to it, as words.
    pub(crate) fn restarts(&self) -> ([u64; REMEMBERED], u64) {
        (self.restarts.times(), self.owed.word())
    }

    /// Goes on with what [`Self::fail_over_word`] returned to an earlier Gear2.
    pub(crate) const fn resume_fail_over(&mut self, word: u32) {
        self.failed_over = word.checked_sub(1);
    }

    /// Returns the fail-over that has begun, as a word; 0: none.
    pub(crate) const fn fail_over_word(&self) -> u32 {
        match self.failed_over {
            Some(starts) => starts.saturating_add(1),
            None => 0,
        }
    }

    /// Begins a fail-over to a standby that was started so often. Returns whether the standby is
    /// still to be started: a fail-over that an earlier Gear2 began may have come further.
    pub(crate) fn begin_fail_over(&mut self, starts: u32) -> bool {
        *self.failed_over.get_or_insert(starts) == starts
    }

    /// Tells whether a standby was started in the VM's place.
    pub(crate) const fn has_failed_over(&self) -> bool {
        self.failed_over.is_some()
    }

    /// Notes that the safe state of the VM that was given up is brought about, or is what `goal`
    /// leads to.
    pub(crate) fn set_safe(&mut self, goal: Option<Goal>) {
        if self.goal == Some(Goal::GiveUp) {
            self.goal = goal;
        }
    }

    /// Returns the goal.
    pub(crate) const fn goal(&self) -> Option<Goal> {
        self.goal
    }

    /// Sets a goal that somebody asks for, and resets the count of automatic restarts. The last
    /// request wins, except that a VM on its way down stops completely before it is started again,
    /// and nothing stops the machine's power-off.
    pub(crate) fn ask(&mut self, goal: Goal) {
        self.restarts = Restarts::default();
        self.owed = Owed::Nothing;
        self.given_up = false;
        self.failed_over = None;
        self.set_goal(goal);
    }

    /// Sets a goal, beside the one that is pursued: nothing takes a power-off back, and a VM that
    /// is on its way down comes up again by a restart.
    fn set_goal(&mut self, goal: Goal) {
        self.goal = Some(match (self.goal, goal) {
            (Some(Goal::PowerOff), _) => Goal::PowerOff,
            (Some(Goal::Stop | Goal::GiveUp | Goal::Restart), Goal::Run) => Goal::Restart,
            (_, goal) => goal,
        });
    }

    /// Notes that Gear1 cannot power the machine off: the VM keeps its state, unless it must run.
    pub(crate) fn stays_on(&mut self, must_run: bool) {
        self.goal = must_run.then_some(Goal::Run);
    }

    /// Notes what the VM itself caused, unless somebody has asked for something already.
    pub(crate) fn ended(&mut self, goal: Goal) {
        if matches!(self.goal, None | Some(Goal::Run)) {
            if goal == Goal::Restart {
                self.owed = Owed::Judgement;
            }
            self.set_goal(goal);
        }
    }

    /// Notes that nobody uses the stopped VM's memory any longer.
    pub(crate) fn set_quiet(&mut self) {
        self.quiet = true;
        self.quiesces = None;
        self.waits_since = None;
    }

    /// Returns whether the VM is given up.
    pub(crate) const fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Returns whether the VM has to run, but waits for somebody else, or for the end of a pause.
    pub(crate) const fn waits_for_long(&self) -> bool {
        matches!(self.waits_since, Some((_, true))) || matches!(self.owed, Owed::Pause { .. })
    }

    /// Tells, once, that a pause before a restart has begun.
    pub(crate) const fn is_new_pause(&mut self) -> bool {
        match &mut self.owed {
            Owed::Pause { reported, .. } => !core::mem::replace(reported, true),
            Owed::Judgement | Owed::Nothing => false,
        }
    }

    /// Tells, once, that somebody else has been waited for, for longer than `patience` (ticks).
    pub(crate) fn waits_too_long(&mut self, now: u64, patience: u64) -> bool {
        let (since, reported) = *self.waits_since.get_or_insert((now, false));
        let too_long = now.saturating_sub(since) > patience;
        self.waits_since = Some((since, reported || too_long));
        too_long && !reported
    }

    /// Returns how long (ticks) somebody else has been waited for.
    pub(crate) fn has_waited(&self, now: u64) -> u64 {
        self.waits_since
            .map_or(0, |(since, _)| now.saturating_sub(since))
    }

    /// Returns the next unreported start or end of the VM, and marks it as reported.
    pub(crate) fn news(&mut self, history: &VmHistory) -> Option<News> {
        self.reported.next(history)
    }

    /// Returns the news already reported.
    pub(crate) const fn reported(&self) -> Reported {
        self.reported
    }

    /// Returns how often the VM was started.
    pub(crate) const fn starts(&self) -> u32 {
        self.reported.starts()
    }

    /// Tells whether the VM is on its way to run.
    pub(crate) fn is_to_run(&self) -> bool {
        matches!(self.goal, Some(Goal::Run | Goal::Restart))
    }

    /// Tells whether the VM is to run, never did, and may have to wait for others at boot.
    pub(crate) fn is_first_start(&self) -> bool {
        self.goal == Some(Goal::Run) && self.starts() == 0 && !self.may_start
    }

    /// Notes that the VM's wait for others at boot is over.
    pub(crate) const fn set_may_start(&mut self) {
        self.may_start = true;
    }

    /// Notes why the VM ends.
    pub(crate) const fn set_cause(&mut self, cause: Cause) {
        self.cause = cause;
    }

    /// Returns why the VM ends, or has ended.
    pub(crate) const fn cause(&self) -> Cause {
        self.cause
    }

    /// Notes that a vCPU of the VM cannot go on.
    pub(crate) fn faulted(&mut self, vcpu: usize, fault: Fault) {
        self.faults = self.faults.saturating_add(1);
        self.last_fault = Some((vcpu, fault));
    }

    /// Returns how often a vCPU of the VM could not go on.
    pub(crate) const fn faults(&self) -> u32 {
        self.faults
    }

    /// Returns which vCPU could not go on the last time, and why.
    pub(crate) const fn last_fault(&self) -> Option<(usize, Fault)> {
        self.last_fault
    }

    /// Does one step towards the goal.
    pub(crate) fn step(&mut self, vm: &VmConfig, gear1: &mut impl Gear1) -> Step {
        let Some(goal) = self.goal else {
            return Step::Done;
        };
        if goal == Goal::PowerOff {
            return Step::PowerOff;
        }
        let step = match gear1.vm_state(vm.id) {
            Ok(state) => self.step_from(state, goal, vm, gear1),
            Err(refusal) => Step::Refused(refusal),
        };
        // Any progress ends a wait: patience counts for each wait by itself.
        if !matches!(step, Step::Wait | Step::Quiesce) {
            self.waits_since = None;
        }
        match step {
            Step::Done | Step::Started(_) | Step::Stopped | Step::Refused(_) => {
                self.goal = None;
            }
            Step::GivenUp(_) => {
                let is_safe = matches!(vm.safe_state, SafeState::Stop);
                // planted: a VM is given up before its standby is to run
                self.goal = (!is_safe).then_some(Goal::GiveUp);
            }
            Step::More
            | Step::Wait
            | Step::Quiesce
            | Step::Pause(_)
            | Step::Reset
            | Step::PowerOff => {}
        }
        step
    }

    fn step_from(
        &mut self,
        state: VmState,
        goal: Goal,
        vm: &VmConfig,
        gear1: &mut impl Gear1,
    ) -> Step {
        match (state, goal) {
            (VmState::Running | VmState::Stopping, Goal::GiveUp) => match gear1.vm_stop(vm.id) {
                Ok(()) => self.give_up(Why::NoRestart),
                Err(refusal) => busy_or(refusal),
            },
            (_, Goal::GiveUp) => self.give_up(Why::NoRestart),
            (VmState::Running | VmState::Stopping, Goal::Stop) => match gear1.vm_stop(vm.id) {
                Ok(()) => Step::Stopped,
                Err(refusal) => busy_or(refusal),
            },
            (VmState::Running, Goal::Restart) | (VmState::Stopping, Goal::Restart | Goal::Run) => {
                match gear1.vm_stop(vm.id) {
                    Ok(()) => {
                        self.goal = Some(Goal::Run);
                        Step::More
                    }
                    Err(refusal) => busy_or(refusal),
                }
            }
            (VmState::Running, Goal::Run) => Step::Done,
            (VmState::Stopped | VmState::Loading | VmState::Loaded, Goal::Stop) => Step::Stopped,
            (VmState::Stopped | VmState::Loading, Goal::Run | Goal::Restart) => {
                // The former life has ended: what is left of a restart is a start.
                self.goal = Some(Goal::Run);
                if let Some(step) = self.judge_restart(vm, gear1) {
                    return step;
                }
                if self.starts() > 0 && !self.quiet {
                    return Step::Quiesce;
                }
                match gear1.vm_load(vm.id) {
                    Ok(_) => Step::More,
                    Err(refusal) => busy_or(refusal),
                }
            }
            (VmState::Loaded, Goal::Run | Goal::Restart) => self.start(vm, gear1),
            (_, Goal::PowerOff) => Step::PowerOff,
        }
    }

    /// Holds up, or refuses, a restart that nobody asked for.
    fn judge_restart(&mut self, vm: &VmConfig, gear1: &mut impl Gear1) -> Option<Step> {
        if self.owed == Owed::Nothing {
            return None;
        }
        let now = gear1.now();
        if self.owed == Owed::Judgement {
            match self.restarts.judge(now, &vm.restarts, vm.must_run) {
                Verdict::At(due) => {
                    self.owed = Owed::Pause {
                        due,
                        reported: false,
                    }
                }
                Verdict::GiveUp => {
                    self.owed = Owed::Nothing;
                    return Some(self.give_up(Why::TooOften));
                }
            }
        }
        match self.owed {
            Owed::Pause { due, .. } if now < due => Some(Step::Pause(due)),
            Owed::Pause { .. } | Owed::Judgement | Owed::Nothing => {
                self.owed = Owed::Nothing;
                None
            }
        }
    }

    /// Gives the VM, which is stopped, up. The reason is told once.
    const fn give_up(&mut self, why: Why) -> Step {
        let is_known = core::mem::replace(&mut self.given_up, true);
        Step::GivenUp(if is_known { Why::Known } else { why })
    }

    fn start(&mut self, vm: &VmConfig, gear1: &mut impl Gear1) -> Step {
        self.goal = Some(Goal::Run);
        if !self.devices_reset {
            self.devices_reset = true;
            return Step::Reset;
        }
        self.devices_reset = false;
        // The device model may use the memory again as soon as the guest runs.
        self.quiet = false;
        // Nobody else starts a VM that Gear2 has loaded.
        let before = gear1.vm_history(vm.id);
        let before = before.map_or(self.starts(), |history| history.starts);
        match gear1.vm_start(vm.id) {
            Ok(origin) => {
                self.reported = Reported::up_to_start(before.saturating_add(1));
                self.cause = Cause::default();
                Step::Started(origin)
            }
            Err(refusal) => busy_or(refusal),
        }
    }
}

/// Returns the step that a refusal of Gear1's means: wait for what is at work still, or tell
/// people.
const fn busy_or(refusal: Status) -> Step {
    match refusal {
        Status::Busy => Step::Wait,
        Status::Ok
        | Status::NoSuchCall
        | Status::NotFound
        | Status::WrongState
        | Status::Invalid => Step::Refused(refusal),
    }
}
