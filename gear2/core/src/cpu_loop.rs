//! The loop of one CPU: from an event to a decision.
//!
//! Owns the ready vCPUs of its CPU (in its [`Scheduler`]) and the VMs whose lifecycle it advances.
//! A vCPU belongs to one loop, which alone runs it.
//!
//! Invariants: an access or call of an event is answered before the next event, once, or belongs to
//! the device model, whose answer is passed on by the loop that gets the doorbell; a loop is idle
//! only when none of its vCPUs is ready; the load of a VM takes at most every other time slice from
//! ready vCPUs.

use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use gear1_abi::call::{Decision, Reply, Status, VcpuState, VmState};
use gear1_abi::event::{Ended, Event, Fault, Mmio};
use gear1_abi::guest::{GEAR2_NOP, NOT_SUPPORTED};
use gear1_abi::id::{CpuIndex, MAX_VMS, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use crate::config::VmConfig;
use crate::console::Command;
use crate::control::{self, Task};
use crate::device_model::Pulse;
use crate::gear1::Gear1;
use crate::lifecycle::{Goal, Lifecycle, Step};
use crate::machine::{Answer, Machine, Missing, Platform, SharedVm};
use crate::report;
use crate::scheduler::{Choice, Scheduler};

mod real_time;
#[cfg(test)]
mod tests;

/// Time for which ready vCPUs run between two pieces of a load.
const LOAD_PAUSE_US: u64 = 200;
/// Longest time between two checks of a VM that waits for somebody else.
const WAIT_PAUSE_US: u64 = 1_000;
/// Longest time between two checks of such a VM once the wait was reported.
const LONG_WAIT_PAUSE_US: u64 = 20_000;
/// Longest time between two checks of a VM that waits at boot for earlier ones.
const BOOT_PAUSE_US: u64 = 10_000;
/// Longest time between two checks of such a VM once the wait was reported.
const LONG_BOOT_PAUSE_US: u64 = 100_000;
/// After so long people are told that a VM does not stop, or cannot be loaded.
const WAIT_PATIENCE_US: u64 = 2_000_000;
/// After so long people are told what a VM waits for at boot: a device VM takes some seconds.
const BOOT_PATIENCE_US: u64 = 10_000_000;
/// People are told of pauses of this length before a restart.
const LONG_PAUSE_US: u64 = 1_000_000;

/// The job of sending console output that is held back, telling the device model of it, and giving
/// consoles input that waits. The other bits are VMs'.
const CONSOLE_JOB: u32 = 1 << MAX_VMS;

/// The job of looking whether the device model is alive.
const WATCH_JOB: u32 = 2 << MAX_VMS;

const fn vm_job(vm: VmId) -> u32 {
    1 << vm.index()
}

/// Rest of a job for a VM.
enum Progress {
    /// More, at once.
    More,
    /// More, at this time at the latest.
    At(u64),
    /// Nothing.
    Done,
}

/// An answer that a vCPU waits for.
type Due = Option<(VcpuId, Answer)>;

/// The loop of one CPU.
pub struct CpuLoop<'m, P: Platform> {
    machine: &'m Machine<P>,
    cpu: CpuIndex,
    scheduler: Box<dyn Scheduler>,
    /// Jobs of this loop beside running vCPUs: one bit for each VM whose lifecycle it advances,
    /// [`CONSOLE_JOB`] and [`WATCH_JOB`].
    jobs: u32,
    /// Counter value by which the jobs are due, if there are any.
    job_deadline: u64,
    /// Running vCPU, and the time until which only an event that wakes or stops a vCPU changes the
    /// choice.
    last: Option<Choice>,
    /// Counter value at which that vCPU began to run.
    since: u64,
}

impl<'m, P: Platform> CpuLoop<'m, P> {
    /// Makes the loop of `cpu`.
    #[must_use]
    pub fn new(machine: &'m Machine<P>, cpu: CpuIndex) -> Self {
        let scheduler = (machine.config.policy.make)(machine.config.parameters);
        Self {
            machine,
            cpu,
            scheduler,
            jobs: 0,
            job_deadline: NO_DEADLINE,
            last: None,
            since: 0,
        }
    }

    /// Takes over the vCPUs of this CPU, and starts the VMs that run from boot on and whose first
    /// vCPU is one of them. Returns the first decision.
    pub fn start(&mut self, gear1: &mut impl Gear1) -> Decision {
        let now = gear1.now();
        self.look_again(gear1, now);
        let machine = self.machine;
        let boot_vcpus = machine.config.vcpus().filter(|(_, vcpu)| vcpu.index == 0);
        for (_, vcpu) in boot_vcpus {
            if vcpu.cpu == self.cpu {
                self.begin(gear1, vcpu.vm);
            }
        }
        self.decide(gear1, None, now)
    }

    /// Starts a VM that runs from boot on; after a restart of Gear2 continues the goals of the
    /// previous instance.
    fn begin(&mut self, gear1: &mut impl Gear1, vm: VmId) {
        let machine = self.machine;
        let Some((config, shared)) = machine.vm(vm) else {
            return;
        };
        if machine.restarts == 0 {
            if config.autostart {
                self.ask(vm, Goal::Run);
            }
            return;
        }
        if shared.lifecycle.lock().goal().is_some() {
            self.take_job(vm_job(vm), 0);
        }
        // The loop that watched the device model ended with the previous Gear2.
        let runs = gear1.vm_state(vm) == Ok(VmState::Running);
        if runs && machine.on_start(gear1, config, self.cpu) {
            self.take_job(WATCH_JOB, 0);
        }
    }

    /// Runs the loop for good.
    pub fn run(&mut self, gear1: &mut impl Gear1) -> ! {
        let mut decision = self.start(gear1);
        loop {
            let (event, now) = gear1.next(decision);
            decision = self.on_event(gear1, event, now);
        }
    }

    /// Takes in an event and decides what the CPU does next.
    #[inline]
    pub fn on_event(&mut self, gear1: &mut impl Gear1, event: Event, now: u64) -> Decision {
        if let Some(last) = self.last {
            let ticks = now.saturating_sub(self.since);
            self.machine.account(last.vcpu, ticks);
        }
        self.since = now;
        let due = self.handle_event(gear1, event, now);
        match (due, self.last) {
            // An answer alone changes nothing: the short way back for accesses and calls.
            (Some((vcpu, answer)), Some(last)) if vcpu == last.vcpu && now < last.deadline => {
                run(last, answer.words())
            }
            (due, _) => self.decide(gear1, due, now),
        }
    }

    #[inline]
    fn handle_event(&mut self, gear1: &mut impl Gear1, event: Event, now: u64) -> Due {
        match event {
            Event::Mmio(vcpu, access) => return self.access(gear1, vcpu, access, now),
            Event::Hypercall(vcpu, call) => return Some((vcpu, hypercall::<P>(call))),
            Event::Wfi(vcpu) => self.scheduler.block(vcpu, now),
            Event::Wfe(vcpu) => self.scheduler.give_way(vcpu, now),
            Event::Wake(vcpu) => self.wake(gear1, vcpu, now),
            Event::Off(vcpu) => self.off(vcpu, now),
            Event::VmEnd(vcpu, _) => self.vm_end(gear1, vcpu, now),
            Event::Fault(vcpu, fault) => self.fault(gear1, vcpu, fault, now),
            Event::Irq(_, intid) => self.interrupt(gear1, intid, now),
            Event::Poke(_) => {
                self.look_again(gear1, now);
                self.serve(gear1, now);
            }
            Event::Doorbell(_) => self.serve(gear1, now),
            Event::Refused(status) => self.refused(gear1, status, now),
            Event::Deadline(_) => {}
        }
        None
    }

    #[inline]
    fn access(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, access: Mmio, now: u64) -> Due {
        let (answer, console_due) = self.machine.access(gear1, vcpu, access, now);
        if let Some(due) = console_due {
            self.take_job(CONSOLE_JOB, due);
        }
        if answer.is_none() {
            self.scheduler.block(vcpu, now);
        }
        Some((vcpu, answer?))
    }

    /// Serves requests of the device model, and passes on its answers.
    fn serve(&mut self, gear1: &mut impl Gear1, now: u64) {
        let machine = self.machine;
        let Some(model) = &machine.device_model else {
            return;
        };
        // Gear1 wakes a vCPU of another loop there.
        model.collect(gear1, |vcpu| {
            if let Some(config) = machine.config.vcpu(vcpu)
                && config.cpu == self.cpu
            {
                self.make_ready(vcpu, config.vm, now);
            }
        });
        if let Some(due) = machine.take_ring_input(gear1, now) {
            self.take_job(CONSOLE_JOB, due);
        }
        match control::serve(machine, gear1) {
            Task::None => {}
            Task::Ask(vm, goal) => self.ask(vm, goal),
            Task::LookAgain(vm) => self.have_all_look_again(gear1, vm, now),
        }
        model.greet(gear1);
    }

    /// Has all loops that run a VM's vCPUs look again, this one at once.
    fn have_all_look_again(&mut self, gear1: &mut impl Gear1, vm: VmId, now: u64) {
        for (_, vcpu) in self.machine.config.vcpus() {
            if vcpu.vm == vm && vcpu.cpu != self.cpu {
                let _ = gear1.poke(vcpu.cpu);
            }
        }
        self.look_again(gear1, now);
    }

    /// Shows a line about a VM, or about Gear2.
    fn say(&mut self, vm: Option<VmId>, text: fmt::Arguments<'_>) {
        self.machine.say(vm, text);
        self.schedule_console();
    }

    /// Makes sure that new messages are shown.
    fn schedule_console(&mut self) {
        if self.machine.device_model.is_some() {
            self.take_job(CONSOLE_JOB, 0);
        }
    }

    fn decide(&mut self, gear1: &mut impl Gear1, due: Due, now: u64) -> Decision {
        let mut now = now;
        let mut job_deadline = NO_DEADLINE;
        if self.jobs != 0 {
            now = self.work(gear1, now);
            self.since = now;
        }
        if self.jobs != 0 {
            job_deadline = self.job_deadline;
        }
        self.last = self.scheduler.pick(now).map(|choice| Choice {
            deadline: choice.deadline.min(job_deadline),
            ..choice
        });
        let runs = self.last.map(|choice| choice.vcpu);
        let mut words = (Reply::None, 0);
        match due {
            Some((vcpu, answer)) if runs == Some(vcpu) => words = answer.words(),
            Some((vcpu, answer)) => {
                let (reply, value) = answer.words();
                // A refusal means that the vCPU's VM is being stopped: the vCPU no longer waits.
                let _ = gear1.vcpu_reply(vcpu, reply, value);
            }
            None => {}
        }
        match self.last {
            Some(choice) => run(choice, words),
            None => Decision::Idle {
                deadline: job_deadline,
            },
        }
    }

    /// Takes in a vCPU that can go on, unless its VM is paused: a resumed VM's are looked for.
    fn make_ready(&mut self, vcpu: VcpuId, vm: VmId, now: u64) {
        if !self.machine.is_paused(vm) {
            self.scheduler.wake(vcpu, now);
        }
    }

    fn wake(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, now: u64) {
        match self.machine.config.vcpu(vcpu) {
            Some(config) if config.cpu == self.cpu => {
                self.make_ready(vcpu, config.vm, now);
            }
            Some(config) => {
                // Gear1 does not know yet where it belongs.
                let _ = gear1.vcpu_assign(vcpu, config.cpu);
                let _ = gear1.poke(config.cpu);
            }
            None => self.look_at_real_time(gear1, vcpu),
        }
    }

    /// Lets go of a vCPU that is off. If its VM is being stopped, that may have been the last one.
    fn off(&mut self, vcpu: VcpuId, now: u64) {
        self.scheduler.block(vcpu, now);
        if let Some(config) = self.machine.config.vcpu(vcpu) {
            self.take_job(vm_job(config.vm), now);
        }
    }

    fn vm_end(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, now: u64) {
        let Some((config, shared)) = self.let_go_of_vm(vcpu, now) else {
            return;
        };
        self.ended(gear1, config, &mut shared.lifecycle.lock(), None, now);
    }

    /// Reports a vCPU that cannot continue, and applies the manifest's policy to its VM.
    fn fault(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, fault: Fault, now: u64) {
        let Some((config, shared)) = self.let_go_of_vm(vcpu, now) else {
            return;
        };
        let index = self.machine.config.vcpu(vcpu).map_or(0, |vcpu| vcpu.index);
        let text = report::fault_text(&fault);
        let text = format!("vCPU {index} cannot go on: {text}");
        let mut lifecycle = shared.lifecycle.lock();
        lifecycle.faulted(index, fault);
        self.ended(gear1, config, &mut lifecycle, Some(&text), now);
    }

    /// Does what the manifest says of a VM that has ended by itself. An event that comes late finds
    /// that the end was reported and seen to: a sibling caused it as well, or somebody has stopped
    /// the VM since.
    fn ended(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        fault: Option<&str>,
        now: u64,
    ) {
        self.machine.report_news(gear1, config, lifecycle, fault);
        self.schedule_console();
        self.take_job(vm_job(config.id), now);
    }

    /// Takes all vCPUs of a VM that is ending off this CPU, and returns the VM.
    fn let_go_of_vm(&mut self, vcpu: VcpuId, now: u64) -> Option<(&'m VmConfig, &'m SharedVm<P>)> {
        let machine = self.machine;
        let vm = machine.config.vcpu(vcpu)?.vm;
        for (other, config) in machine.config.vcpus() {
            if config.vm == vm {
                self.scheduler.block(other, now);
            }
        }
        machine.vm(vm)
    }

    fn interrupt(&mut self, gear1: &mut impl Gear1, intid: u32, now: u64) {
        if intid == self.machine.config.uart_intid {
            while let Some((command, vm)) = self.machine.take_input(gear1, now) {
                self.command(gear1, command, vm);
            }
            if let Some(due) = self.machine.service_console(gear1, now) {
                self.take_job(CONSOLE_JOB, due);
            }
        } else {
            self.say(None, format_args!("interrupt {intid} is not expected"));
        }
        let _ = gear1.irq_done(intid);
    }

    fn command(&mut self, gear1: &mut impl Gear1, command: Command, vm: Option<VmId>) {
        let goal = match command {
            Command::List => return report::list(self.machine, gear1),
            Command::Statistics => return report::statistics(self.machine, gear1),
            Command::Log => return report::log(self.machine, gear1),
            Command::Start => Goal::Run,
            Command::Stop => Goal::Stop,
            Command::Restart => Goal::Restart,
            Command::PowerOff => Goal::PowerOff,
        };
        if let Some(vm) = vm {
            self.ask(vm, goal);
        }
    }

    /// Asks for something of a VM, and makes it this loop's job.
    fn ask(&mut self, vm: VmId, goal: Goal) {
        let Some((_, shared)) = self.machine.vm(vm) else {
            return;
        };
        let mut lifecycle = shared.lifecycle.lock();
        lifecycle.ask(goal);
        self.machine.keep(vm, &lifecycle);
        drop(lifecycle);
        self.take_job(vm_job(vm), 0);
    }

    /// Takes a job, due at a time; the turn of the vCPU that runs ends then at the latest.
    fn take_job(&mut self, job: u32, due: u64) {
        self.job_deadline = if self.jobs == 0 {
            due
        } else {
            self.job_deadline.min(due)
        };
        self.jobs |= job;
        if let Some(last) = &mut self.last {
            last.deadline = last.deadline.min(due);
        }
    }

    /// Does the jobs if it is time to, and returns the time after that.
    fn work(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        if now < self.job_deadline {
            return now;
        }
        let (loads, mut due) = self.bring_vms_further(gear1);
        let now = gear1.now();
        if loads {
            // Nothing to pause for if no vCPU is ready.
            let idle = self.scheduler.pick(now).is_none();
            let pause = if idle { 0 } else { LOAD_PAUSE_US };
            due = due.min(now.saturating_add(self.machine.config.ticks(pause)));
        }
        if self.jobs & WATCH_JOB != 0 {
            due = due.min(self.watch(gear1, now));
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

    /// Looks whether the device model is alive, and returns when to do what follows.
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
        let name = &config.name;
        self.say(
            Some(config.id),
            format_args!("{name}: the device model shows no sign of life"),
        );
        if let Some(goal) = machine.goal_after(gear1, config, Ended::Fault) {
            shared.lifecycle.lock().ended(goal);
        }
        self.jobs |= vm_job(config.id);
        now.saturating_add(machine.config.ticks(WAIT_PAUSE_US))
    }

    /// Brings VMs further. Returns whether one is being loaded, and when to look at the others
    /// again.
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

    fn step(&mut self, gear1: &mut impl Gear1, vm: VmId) -> Progress {
        let machine = self.machine;
        let Some((config, shared)) = machine.vm(vm) else {
            return Progress::Done;
        };
        let before = gear1.now();
        let at = |pause: u64| Progress::At(before.saturating_add(machine.config.ticks(pause)));
        // The loop that holds the lock advances the VM just now.
        let Some(mut lifecycle) = shared.lifecycle.try_lock() else {
            return at(WAIT_PAUSE_US);
        };
        if lifecycle.is_first_start() {
            let missing = machine.missing_before(config);
            let pause = missing
                .and_then(|missing| self.wait_at_boot(config, &mut lifecycle, missing, before));
            match pause {
                Some(pause) => return at(pause),
                None => lifecycle.set_may_start(),
            }
        }
        if lifecycle.goal().is_some() {
            // The log names the VM's own end before the step that follows from the goal.
            machine.report_news(gear1, config, &mut lifecycle, None);
        }
        let step = lifecycle.step(config, gear1);
        machine.keep(vm, &lifecycle);
        let name = &config.name;
        match step {
            Step::More => {
                let ticks = gear1.now().saturating_sub(before);
                machine.account_loading(vm, ticks);
                return Progress::More;
            }
            Step::Wait => {
                let what =
                    format_args!("{name} does not stop: a vCPU or a bus master of its is at work");
                return at(self.wait(config, &mut lifecycle, what, before));
            }
            Step::Quiesce => {
                if !machine.quiesce(gear1, config, &mut lifecycle.quiesces) {
                    let device_vm = machine
                        .config
                        .device_vm
                        .and_then(|vm| machine.config.vm(vm));
                    let device_vm = device_vm.map_or("", |vm| &vm.name);
                    let what = format_args!(
                        "{name} waits: the device model in {device_vm} still uses its memory"
                    );
                    return at(self.wait(config, &mut lifecycle, what, before));
                }
                lifecycle.set_quiet();
                return Progress::More;
            }
            Step::Pause(due) => {
                let left = due.saturating_sub(before);
                if left >= machine.config.ticks(LONG_PAUSE_US) && lifecycle.is_new_pause() {
                    let seconds = left / machine.config.ticks(1_000_000).max(1);
                    self.say(
                        Some(vm),
                        format_args!("{name} is started again in {seconds} s"),
                    );
                }
                return Progress::At(due);
            }
            Step::GivenUp => {
                let limit = config.restarts.limit;
                let text =
                    format_args!("{name} is given up: it was restarted {limit} times already");
                self.say(Some(vm), text);
            }
            Step::Reset => {
                machine.reset(gear1, vm);
                return Progress::More;
            }
            Step::Started => {
                if machine.on_start(gear1, config, self.cpu) {
                    self.jobs |= WATCH_JOB;
                }
                let verb = if lifecycle.starts() > 1 {
                    "restarted"
                } else {
                    "started"
                };
                self.say(Some(vm), format_args!("{name} {verb}"));
            }
            Step::Stopped => self.say(Some(vm), format_args!("{name} stopped")),
            Step::PowerOff => {
                self.say(Some(vm), format_args!("power off"));
                machine.drain_console();
                if gear1.power_off().is_err() {
                    lifecycle.stays_on(config.must_run);
                    machine.keep(vm, &lifecycle);
                    self.say(
                        Some(vm),
                        format_args!("no power off: a real-time VM runs; stop it first"),
                    );
                    return Progress::More;
                }
            }
            Step::Refused(status) => {
                self.say(Some(vm), format_args!("{name}: Gear1 refuses: {status:?}"));
            }
            Step::Done => {}
        }
        Progress::Done
    }

    /// Says, once, what a VM waits for for so long, and returns the pause before the next look.
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

    /// Compares with Gear1 which vCPUs of this CPU are ready. Between two events no vCPU of this
    /// CPU waits for an answer of this loop's.
    fn look_again(&mut self, gear1: &mut impl Gear1, now: u64) {
        for (vcpu, config) in self.machine.config.vcpus() {
            if config.cpu != self.cpu {
                continue;
            }
            let ready = match gear1.vcpu_state(vcpu) {
                Ok(VcpuState::Ready | VcpuState::Running) => true,
                Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall) => {
                    self.machine.can_go_on(gear1, vcpu)
                }
                Ok(VcpuState::Off | VcpuState::Wfi) | Err(_) => false,
            };
            if ready && !self.machine.is_paused(config.vm) {
                self.scheduler.wake(vcpu, now);
            } else {
                self.scheduler.block(vcpu, now);
            }
        }
    }

    /// Finds out why Gear1 did not take the last decision. Most often the vCPU's VM was stopped
    /// by another loop; one that Gear1 refuses without that reason is left alone.
    fn refused(&mut self, gear1: &mut impl Gear1, status: u64, now: u64) {
        self.look_again(gear1, now);
        let Some(vcpu) = self.last.map(|choice| choice.vcpu) else {
            return;
        };
        if gear1.vcpu_state(vcpu) != Ok(VcpuState::Ready) {
            return;
        }
        self.scheduler.block(vcpu, now);
        let Some(config) = self.machine.config.vcpu(vcpu) else {
            return;
        };
        if gear1.vm_state(config.vm) == Ok(VmState::Running) {
            let status = Status::from_reg(status);
            let index = vcpu.index();
            self.say(
                Some(config.vm),
                format_args!("vCPU {index} was refused: {status:?}"),
            );
        }
    }
}

const fn run(choice: Choice, (reply, value): (Reply, u64)) -> Decision {
    Decision::Run {
        vcpu: choice.vcpu,
        deadline: choice.deadline,
        reply,
        value,
        trap_wfe: choice.contended,
    }
}

#[inline]
fn hypercall<P: Platform>(call: [u64; 5]) -> Answer {
    // SMCCC: the function identifier is a 32-bit value.
    if call[0] & 0xffff_ffff == u64::from(GEAR2_NOP) {
        Answer::Value(0)
    } else {
        Answer::Value(P::call(call).unwrap_or(NOT_SUPPORTED))
    }
}
