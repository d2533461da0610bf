//! Jobs of a loop beside running vCPUs: VMs on the way to their goals, the device model's
//! heartbeat, and the console.
//!
//! A job is done when it is due or later, never inside the answer to an event: a load of many
//! pieces must not delay the vCPUs of the CPU.
//!
//! A VM's job belongs to the loop that was asked for the VM's goal, whichever CPU that is. Two
//! loops may have a job for one VM, after two requests: the lifecycle's lock lets one of them step
//! at a time, and the other finds nothing left to do. Times are deadlines of the physical counter.

use core::fmt;

use gear1_abi::call::VmState;
use gear1_abi::event::Ended;
use gear1_abi::id::{MAX_VMS, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;
use gearv_manifest::Restart;

use super::CpuLoop;
use crate::config::VmConfig;
use crate::device_model::Pulse;
use crate::gear1::Gear1;
use crate::last_words::Cause;
use crate::lifecycle::{Goal, Lifecycle, Step};
use crate::machine::{Missing, Platform, SharedVm};
use crate::scheduler::Choice;

/// Time for which ready vCPUs run between two pieces of a load. A piece of 32 KiB takes some tens
/// of microseconds, so the load gets less of the CPU than they do.
const LOAD_PAUSE_US: u64 = 200;

/// Longest time between two checks of a VM that waits for somebody else.
pub(super) const WAIT_PAUSE_US: u64 = 1_000;

/// Longest time between two checks of such a VM once the wait was reported.
const LONG_WAIT_PAUSE_US: u64 = 20_000;

/// Longest time between two checks of a VM that waits at boot for earlier ones.
const BOOT_PAUSE_US: u64 = 10_000;

/// Longest time between two checks of such a VM once the wait was reported.
const LONG_BOOT_PAUSE_US: u64 = 100_000;

/// Time between two looks for registers that another loop has to let go of.
const WORDS_PAUSE_US: u64 = 100;

/// After so long people are told that a VM does not stop, or cannot be loaded.
const WAIT_PATIENCE_US: u64 = 2_000_000;

/// After so long people are told what a VM waits for at boot: a device VM takes some seconds.
const BOOT_PATIENCE_US: u64 = 10_000_000;

/// People are told of pauses of this length before a restart.
const LONG_PAUSE_US: u64 = 1_000_000;

/// The job of sending console output that is held back, telling the device model of it, and giving
/// consoles input that waits. The other bits are VMs'.
pub(super) const CONSOLE_JOB: u32 = 1 << MAX_VMS;

/// The job of looking whether the device model is alive.
pub(super) const WATCH_JOB: u32 = 2 << MAX_VMS;

/// The job of looking at the watchdogs of guests.
pub(super) const WATCHDOG_JOB: u32 = 8 << MAX_VMS;

/// The job of looking for a CPU with less to do, for good if there is a balancer.
pub(super) const BALANCE_JOB: u32 = 4 << MAX_VMS;

/// The job of looking at accesses of devices that the SMMU has aborted.
pub(super) const DMA_JOB: u32 = 16 << MAX_VMS;

/// The job of carrying out an order about traces.
pub(super) const TRACE_JOB: u32 = 32 << MAX_VMS;

/// Returns the job of bringing a VM to its goal.
pub(super) const fn vm_job(vm: VmId) -> u32 {
    1 << vm.index()
}

/// Rest of a job for a VM, after one step of it.
pub(super) enum Progress {
    /// More, at once.
    More,
    /// More, at this time at the latest.
    At(u64),
    /// Nothing.
    Done,
}

impl<P: Platform> CpuLoop<'_, P> {
    /// Takes a job, due at a time; the turn of the vCPU that runs ends then at the latest. Without
    /// that, a vCPU that is alone would run without a deadline, and the job would never be done.
    pub(super) fn take_job(&mut self, job: u32, due: u64) {
        // Without jobs the deadline is that of one that is done.
        self.job_deadline = if self.jobs == 0 {
            due
        } else {
            self.job_deadline.min(due)
        };
        self.jobs |= job;
        if let Some(last) = &mut self.last {
            last.until = last.until.min(due);
        }
    }

    /// Does what is due of the jobs. Returns the choice of the policy after that, and when the next
    /// jobs are due.
    #[inline(never)]
    pub(super) fn pick_after_jobs(&mut self, gear1: &mut impl Gear1, now: u64) -> (Choice, u64) {
        let now = self.work(gear1, now);
        let choice = self.scheduler.pick(now);
        let mut due = if self.jobs == 0 {
            NO_DEADLINE
        } else {
            self.job_deadline
        };
        if self.jobs & BALANCE_JOB != 0 {
            // At a pace of its own, whatever the deadline of the other jobs is.
            due = due.min(self.balance(gear1, choice, now));
        }
        (choice, due)
    }

    /// Does the jobs if it is time to, and returns the time after that. All jobs are done when the
    /// first of them is due: one deadline is kept, as a job that is not due costs little.
    fn work(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        if now < self.job_deadline {
            return now;
        }
        let (loads, mut due) = self.bring_vms_further(gear1);
        // A step may take as long as Gear1 needs for a piece of a load: pauses count from its end.
        let now = gear1.now();
        if loads {
            // Nothing to pause for if no vCPU is ready.
            let idle = matches!(self.scheduler.pick(now), Choice::Idle { .. });
            let pause = if idle { 0 } else { LOAD_PAUSE_US };
            due = due.min(now.saturating_add(self.machine.config.ticks(pause)));
        }
        if self.jobs & WATCH_JOB != 0 {
            due = due.min(self.watch(gear1, now));
        }
        if self.jobs & WATCHDOG_JOB != 0 {
            due = due.min(self.look_at_watchdogs(gear1, now));
        }
        if self.jobs & DMA_JOB != 0 {
            due = due.min(self.look_at_dma(gear1, now));
        }
        if self.jobs & TRACE_JOB != 0 {
            due = due.min(self.go_on_tracing(gear1, now));
        }
        // Last, as the other jobs say something.
        if self.jobs & CONSOLE_JOB != 0 {
            match self.machine.service_console(gear1, now) {
                Some(held_until) => due = due.min(held_until),
                None => self.jobs &= !CONSOLE_JOB,
            }
        }
        self.job_deadline = due;
        now
    }

    /// Looks whether the device model is alive, and returns when to do what follows. A pulse of
    /// another loop's watch, or of a VM that has stopped since, ends this loop's.
    fn watch(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        let machine = self.machine;
        let vm = machine.config.device_vm.and_then(|vm| machine.vm(vm));
        let (Some((config, shared)), Some(model)) = (vm, &machine.device_model) else {
            return NO_DEADLINE;
        };
        let runs = gear1.vm_state(config.id) == Ok(VmState::Running);
        let pulse = model.watch(self.cpu, now, config.watchdog);
        if let (Some(Pulse::Lives(again)), true) = (pulse, runs) {
            return again;
        }
        self.jobs &= !WATCH_JOB;
        if pulse != Some(Pulse::Gone) || !runs {
            return NO_DEADLINE;
        }
        self.end_device_vm(gear1, config, shared);
        now.saturating_add(machine.config.ticks(WAIT_PAUSE_US))
    }

    /// Treats the device VM, in which GDM runs, as one that has made a fault: its kernel may run
    /// on, but a device model that shows no sign of life serves nobody.
    fn end_device_vm(&mut self, gear1: &mut impl Gear1, config: &VmConfig, shared: &SharedVm<P>) {
        let name = &config.name;
        self.say(
            Some(config.id),
            format_args!("{name}: the device model shows no sign of life"),
        );
        self.end_as_after_fault(gear1, config, shared, Cause::Hang);
    }

    /// Has follow what follows from a fault of a VM. The caller returns when its job is due. A
    /// real-time VM, which runs without Gear2 and would go on, is restarted or stopped by Gear2.
    pub(super) fn end_as_after_fault(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        cause: Cause,
    ) {
        // planted: nobody is told of a VM that hangs
        self.machine.tell(gear1, config);
        let goal = if config.scheduled {
            self.machine.goal_after(gear1, config, Ended::Fault)
        } else if config.restart == Restart::Never {
            Some(Goal::Stop)
        } else {
            Some(Goal::Restart)
        };
        if let Some(goal) = goal {
            let mut lifecycle = shared.lifecycle.lock();
            lifecycle.set_cause(cause);
            lifecycle.ended(goal);
            self.machine.keep(config.id, &lifecycle);
        }
        self.jobs |= vm_job(config.id);
    }

    /// Brings VMs further, in the order of the manifest. Returns whether one is being loaded, and
    /// when to look at the others again.
    fn bring_vms_further(&mut self, gear1: &mut impl Gear1) -> (bool, u64) {
        let mut due = NO_DEADLINE;
        for vm in self.machine.config.vms.iter().map(|vm| vm.id) {
            if self.jobs & vm_job(vm) == 0 {
                continue;
            }
            match self.step(gear1, vm) {
                // One piece is loaded between two events; VMs are loaded one after the other.
                Progress::More => return (true, due),
                Progress::At(time) => due = due.min(time),
                Progress::Done => self.jobs &= !vm_job(vm),
            }
        }
        (false, due)
    }

    /// Brings a VM one step further on the way to its goal. A step loads one
    /// piece at most, so that no event waits for two.
    fn step(&mut self, gear1: &mut impl Gear1, vm: VmId) -> Progress {
        let machine = self.machine;
        let Some((config, shared)) = machine.vm(vm) else {
            return Progress::Done;
        };
        let now = gear1.now();
        // The loop that holds the lock advances the VM just now.
        let Some(mut lifecycle) = shared.lifecycle.try_lock() else {
            return self.in_a_while(now, WAIT_PAUSE_US);
        };
        if let Some(pause) = self.pause_at_boot(config, &mut lifecycle, now) {
            return self.in_a_while(now, pause);
        }
        if lifecycle.goal().is_some() {
            // The log names the VM's own end before the step that follows from the goal.
            machine.report_news(gear1, config, &mut lifecycle, None);
        }
        if self.has_more_words(gear1, config, shared, &lifecycle) {
            return self.in_a_while(now, WORDS_PAUSE_US);
        }
        if lifecycle.goal().is_none() && gear1.vm_state(vm) == Ok(VmState::Stopping) {
            // A real-time VM that Gear1 ends: its words come when its vCPUs have left.
            return self.in_a_while(now, LONG_WAIT_PAUSE_US);
        }
        let step = lifecycle.step(config, gear1);
        machine.keep(vm, &lifecycle);
        if matches!(step, Step::Stopped | Step::GivenUp(_)) {
            // The last step, if the words are not complete yet: another one collects the rest.
            let more = self.has_more_words(gear1, config, shared, &lifecycle);
            let progress = self.follow(gear1, config, &mut lifecycle, step, now);
            return match progress {
                Progress::Done if more => self.in_a_while(now, WORDS_PAUSE_US),
                progress => progress,
            };
        }
        self.follow(gear1, config, &mut lifecycle, step, now)
    }

    /// Collects the last words of a VM that has ended. Returns whether there are more to come.
    fn has_more_words(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        lifecycle: &Lifecycle,
    ) -> bool {
        let machine = self.machine;
        !machine.collect_last_words(gear1, config, shared, lifecycle, self.cpu)
    }

    /// Returns the progress of a VM that is looked at again after a pause that began at `now`.
    pub(super) fn in_a_while(&self, now: u64, pause_us: u64) -> Progress {
        Progress::At(now.saturating_add(self.machine.config.ticks(pause_us)))
    }

    /// Returns how long a VM that was never started waits for those that start before it. `None`:
    /// no longer.
    fn pause_at_boot(
        &mut self,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        now: u64,
    ) -> Option<u64> {
        if !lifecycle.is_first_start() {
            return None;
        }
        let missing = self.machine.missing_before(config);
        let pause = missing.and_then(|missing| self.wait_at_boot(config, lifecycle, missing, now));
        if pause.is_none() {
            lifecycle.set_may_start();
        }
        pause
    }

    /// Does what a step of a VM's lifecycle, begun at `before`, leaves to the loop. The lifecycle
    /// itself says nothing and knows no device model.
    fn follow(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        step: Step,
        before: u64,
    ) -> Progress {
        let machine = self.machine;
        let vm = config.id;
        let name = &config.name;
        match step {
            Step::More => {
                self.charge_load(config, before, gear1.now());
                return Progress::More;
            }
            Step::Wait => {
                let what =
                    format_args!("{name} does not stop: a vCPU or a bus master of its is at work");
                let pause = self.wait(config, lifecycle, what, before);
                return self.in_a_while(before, pause);
            }
            Step::Quiesce => return self.quiesce(gear1, config, lifecycle, before),
            Step::Pause(due) => return self.pause(config, lifecycle, due, before),
            Step::GivenUp(why) => return self.give_up(gear1, config, lifecycle, why, before),
            // The memory is loaded and no vCPU runs: devices that are reset now stay so until the
            // guest's first instruction.
            Step::Reset => {
                machine.reset(gear1, vm);
                return Progress::More;
            }
            Step::Started(origin) => self.started(gear1, config, lifecycle, origin),
            Step::Stopped => self.say(Some(vm), format_args!("{name} stopped")),
            Step::PowerOff => return self.power_off(gear1, config, lifecycle),
            Step::Refused(status) => {
                self.say(Some(vm), format_args!("{name}: Gear1 refuses: {status:?}"));
            }
            Step::Done => {}
        }
        Progress::Done
    }

    /// Charges a piece of a load to the VM's first vCPU. The piece is taken out of the time that
    /// the event's cause or the next vCPU is charged for.
    fn charge_load(&mut self, config: &VmConfig, before: u64, now: u64) {
        let Some(first) = VcpuId::new(config.vcpus.start) else {
            return;
        };
        let ticks = now.saturating_sub(before);
        self.charged = self.charged.saturating_add(ticks);
        // planted: loading is nobody's time
        self.machine.account(first, ticks);
        self.scheduler.ran(first, ticks, now);
    }

    /// Waits until the device model uses the memory of a stopped VM no longer: a load would change
    /// the memory below a transfer.
    fn quiesce(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        now: u64,
    ) -> Progress {
        let machine = self.machine;
        if machine.quiesce(gear1, config, &mut lifecycle.quiesces) {
            // The answer holds for this life: the next end asks again.
            lifecycle.set_quiet();
            return Progress::More;
        }
        let device_vm = machine
            .config
            .device_vm
            .and_then(|vm| machine.config.vm(vm));
        let device_vm = device_vm.map_or("", |vm| &vm.name);
        let name = &config.name;
        let what =
            format_args!("{name} waits: the device model in {device_vm} still uses its memory");
        let pause = self.wait(config, lifecycle, what, now);
        self.in_a_while(now, pause)
    }

    /// Leaves a VM stopped until its restart is due. Only a long pause is announced, as most
    /// restarts follow at once.
    fn pause(
        &mut self,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        due: u64,
        now: u64,
    ) -> Progress {
        let ticks = |us: u64| self.machine.config.ticks(us);
        let left = due.saturating_sub(now);
        if left >= ticks(LONG_PAUSE_US) && lifecycle.is_new_pause() {
            let seconds = left / ticks(1_000_000).max(1);
            let name = &config.name;
            self.say(
                Some(config.id),
                format_args!("{name} is started again in {seconds} s"),
            );
        }
        Progress::At(due)
    }

    /// Tells the device model and the user of a start. A device VM's own start begins the watch of
    /// its heartbeat.
    fn started(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &Lifecycle,
        origin: u64,
    ) {
        self.begin_watchdog(gear1, config, origin);
        if self.machine.on_start(gear1, config, self.cpu) {
            self.jobs |= WATCH_JOB;
        }
        let verb = if lifecycle.starts() > 1 {
            "restarted"
        } else {
            "started"
        };
        let name = &config.name;
        self.say(Some(config.id), format_args!("{name} {verb}"));
    }

    /// Powers the machine off. Gear1 refuses while a real-time VM runs; then all goes on. Console
    /// output is sent before, as nobody sends it afterwards.
    fn power_off(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
    ) -> Progress {
        let machine = self.machine;
        let vm = config.id;
        self.say(Some(vm), format_args!("power off"));
        machine.drain_console();
        if gear1.power_off().is_ok() {
            return Progress::Done;
        }
        lifecycle.stays_on(config.must_run);
        machine.keep(vm, lifecycle);
        self.say(
            Some(vm),
            format_args!("no power off: a real-time VM runs; stop it first"),
        );
        Progress::More
    }

    /// Says, once, what a VM waits for for so long, and returns the pause before the next look. The
    /// pause grows with the wait: what takes seconds is not missed by milliseconds.
    fn wait(
        &mut self,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        what: fmt::Arguments<'_>,
        now: u64,
    ) -> u64 {
        let patience = self.machine.config.ticks(WAIT_PATIENCE_US);
        if lifecycle.waits_too_long(now, patience) {
            self.say(Some(config.id), what);
        }
        if lifecycle.waits_for_long() {
            LONG_WAIT_PAUSE_US
        } else {
            WAIT_PAUSE_US
        }
    }

    /// Has a VM wait for those that start before it, unless it has for so long that it starts
    /// without them. Returns the pause before the next look.
    fn wait_at_boot(
        &mut self,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        missing: Missing<'_>,
        now: u64,
    ) -> Option<u64> {
        let (name, timeout) = (&config.name, self.machine.config.boot_order_timeout);
        // planted: a VM waits at boot without a word
        let patience = self.machine.config.ticks(BOOT_PATIENCE_US);
        if lifecycle.waits_too_long(now, patience) {
            let text = format_args!("{name} waits for {missing}");
            self.say(Some(config.id), text);
        }
        if timeout != 0 && lifecycle.has_waited(now) >= timeout {
            let text = format_args!("{name} starts without {missing}");
            self.say(Some(config.id), text);
            return None;
        }
        Some(if lifecycle.waits_for_long() {
            LONG_BOOT_PAUSE_US
        } else {
            BOOT_PAUSE_US
        })
    }
}
