//! The loop of one CPU: from an event to a decision.
//!
//! Owns the ready vCPUs of its CPU (in its [`Policy`]) and the VMs whose lifecycle it advances.
//! A vCPU belongs to one loop, which alone runs it.
//!
//! Invariants: an access or call of an event is answered before the next event, once, or belongs to
//! the device model, whose answer is passed on by the loop that gets the doorbell; a loop is idle
//! only when its policy lets none of its vCPUs run; the load of a VM takes at most every other time
//! slice from ready vCPUs.
//!
//! Gear1 wakes, polls and interrupts nothing here: a loop runs from one `NEXT` to the next, and
//! what happens meanwhile waits in Gear1 as events. Loops of other CPUs run at the same time. What
//! loops share is in [`Machine`], under its locks; a loop tells another of a change by a poke.

use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use gear1_abi::call::{Decision, Reply, Status, VcpuState, VmState, Waits};
use gear1_abi::event::{Event, Fault, Mmio};
use gear1_abi::guest::{GEAR2_NOP, NOT_SUPPORTED};
use gear1_abi::id::{CpuIndex, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use crate::config::VmConfig;
use crate::console::Command;
use crate::control::{self, Task};
use crate::gear1::{Gear1, Times};
use crate::lifecycle::{Goal, Lifecycle};
use crate::load::Measured;
use crate::machine::{Answer, Later, Machine, Platform, SharedVm};
use crate::report;
use crate::scheduler::{Choice, Policy};
use jobs::{CONSOLE_JOB, WATCH_JOB, WATCHDOG_JOB, vm_job};
use moves::{Moves, vcpus_of};
use tracing::Tracing;

mod charges;
mod dma;
mod give_up;
mod jobs;
mod moves;
mod real_time;
mod shares;
mod short;
#[cfg(test)]
mod tests;
mod tracing;
mod waits;
mod watchdogs;

/// An answer that a vCPU waits for.
type Due = Option<(VcpuId, Answer)>;

/// The loop of one CPU.
pub struct CpuLoop<'m, P: Platform> {
    /// Shared by the loops of all CPUs.
    machine: &'m Machine<P>,
    /// CPU that the loop runs on.
    cpu: CpuIndex,
    /// Policy of this CPU, with its ready vCPUs.
    scheduler: Box<dyn Policy + 'm>,
    /// vCPUs of this CPU, and those that come and go.
    moves: Moves,
    /// Jobs of this loop beside running vCPUs: one bit for each VM whose lifecycle it advances,
    /// [`CONSOLE_JOB`] and [`WATCH_JOB`].
    jobs: u32,
    /// The SMMU has interrupted, and nobody has looked since.
    is_new_dma: bool,
    /// Counter value by which the jobs are due, if there are any.
    job_deadline: u64,
    /// Running vCPU.
    last: Option<Run>,
    /// Behaviour of WFI of a vCPU beside which no other one can run.
    waits: Waits,
    /// vCPU for which the gears worked since the last event, if another one or none runs now: their
    /// work is charged to it. Without one, the work is charged to the vCPU that runs.
    cause: Option<VcpuId>,
    /// Counter value up to which all is charged.
    charged: u64,
    /// Ticks for which the running vCPU has waited inside Gear1 since, and whether it still does.
    open_wait: u64,
    /// Ticks for which vCPUs have waited inside Gear1 since the loop began, without these.
    waited: u64,
    /// Part in a trace.
    tracing: Tracing,
}

/// A vCPU that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    vcpu: VcpuId,
    /// Time until which only an event that wakes or stops a vCPU changes the choice.
    until: u64,
    /// Behaviour of WFI and WFE of the vCPU.
    waits: Waits,
}

impl<'m, P: Platform> CpuLoop<'m, P> {
    /// Makes the loop of `cpu`.
    #[must_use]
    pub fn new(machine: &'m Machine<P>, cpu: CpuIndex) -> Self {
        let config = &machine.config;
        let pool = config.pool(cpu);
        let mut scheduler: Box<dyn Policy + 'm> = pool.make_policy();
        // Without a balancer nobody reads the load, and no event pays for measuring it.
        if let Some(period) = pool.balancer.period() {
            let load = &machine.loads[cpu.index()];
            scheduler = Box::new(Measured::new(scheduler, load, config.ticks(period)));
        }
        let mut this = Self {
            machine,
            cpu,
            scheduler,
            moves: Moves::new(),
            jobs: 0,
            is_new_dma: false,
            job_deadline: NO_DEADLINE,
            last: None,
            waits: Waits::Leaves,
            cause: None,
            charged: 0,
            tracing: Tracing::default(),
            open_wait: 0,
            waited: 0,
        };
        this.settle();
        this
    }

    /// Takes over the vCPUs of this CPU, and starts the VMs that run from boot on and whose first
    /// vCPU is one of them. Returns the first decision.
    pub fn start(&mut self, gear1: &mut impl Gear1) -> Decision {
        self.begin_tracing(gear1);
        let now = gear1.now();
        self.charged = now;
        self.look_again(gear1, now);
        // A CPU that was closed by an earlier Gear2 may have kept vCPUs.
        self.go_on_with_moves(gear1, now);
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
        // `autostart` is about the boot of the machine: a VM that was stopped since stays stopped
        // when Gear2 is restarted.
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
        if runs && machine.look_after(vm, self.cpu) {
            self.take_job(WATCHDOG_JOB, 0);
        }
    }

    /// Runs the loop for good. The event comes with the counter value of its exit, so the loop
    /// needs no call to know the time.
    pub fn run(&mut self, gear1: &mut impl Gear1) -> ! {
        let mut decision = self.start(gear1);
        loop {
            let (regs, times) = gear1.next(decision);
            decision = self.on_registers(gear1, &regs, times);
        }
    }

    /// Takes in an event and decides what the CPU does next.
    pub fn on_event(&mut self, gear1: &mut impl Gear1, event: Event, times: Times) -> Decision {
        self.on_registers(gear1, &event.encode(), times)
    }

    /// Takes in another event. The short way back charges nothing: a later event does.
    #[inline]
    fn on_other(&mut self, gear1: &mut impl Gear1, event: Event, times: Times) -> Decision {
        let now = times.now;
        // Before anything else looks at the event: its words are still where Gear1 left them.
        if let Some(decision) = self.set_up(event, now) {
            return decision;
        }
        if let Some(cause) = self.cause {
            self.charge_work(cause, event, times);
        }
        let due = self.handle_event(gear1, event, now);
        match (due, self.last) {
            // An answer alone changes nothing: the short way back for accesses and calls.
            (Some((vcpu, answer)), Some(last)) if vcpu == last.vcpu && now < last.until => {
                run(last, answer.words())
            }
            (due, _) => {
                self.charge(now);
                if let Some((vcpu, _)) = due {
                    self.cause = Some(vcpu);
                }
                self.decide(gear1, due, now)
            }
        }
    }

    /// Takes in an event, and returns the answer that a vCPU waits for, if the event asks for one.
    /// `Deadline` changes no more than who pays: the policy looks at the time in any case.
    ///
    /// Rare events have functions that are not inlined: their code here would cost each wake-up
    /// instructions that save registers.
    #[inline]
    fn handle_event(&mut self, gear1: &mut impl Gear1, event: Event, now: u64) -> Due {
        match event {
            Event::Mmio(vcpu, access) => return self.access(gear1, vcpu, access, now),
            Event::Hypercall(vcpu, call) => return Some((vcpu, hypercall::<P>(call))),
            _ => self.charge(now),
        }
        match event {
            // Accesses and calls have returned above, without a charge: `on_other` may take the short
            // way back. A WFI is none of the others.
            Event::Mmio(..) | Event::Hypercall(..) | Event::Wfi(_) => {}
            Event::Wfe(vcpu) => {
                self.cause = Some(vcpu);
                // The vCPU waits for something that another one may hold: it stays ready, and its
                // turn ends.
                self.scheduler.give_way(vcpu, now);
            }
            Event::Wake(vcpu) => self.wake(gear1, vcpu, now),
            Event::Off(vcpu) => self.off(vcpu, now),
            Event::VmEnd(vcpu, _) => self.vm_end(gear1, vcpu, now),
            Event::Fault(vcpu, fault) => self.fault(gear1, vcpu, fault, now),
            Event::Irq(_, intid) => self.interrupt(gear1, intid, now),
            Event::Poke(_) => self.errands(gear1, now),
            Event::Doorbell(_) => self.serve(gear1, now),
            Event::Refused(status) => self.refused(gear1, status, now),
            Event::Deadline(_) => {
                let ended = self.last.map(|last| last.vcpu);
                self.cause = ended.filter(|vcpu| self.scheduler.pays_for_end(*vcpu));
            }
        }
        None
    }

    /// Answers an access to an emulated device. A vCPU whose access goes to the device model is no
    /// longer ready: the doorbell that brings the answer wakes it.
    #[inline]
    fn access(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, access: Mmio, now: u64) -> Due {
        let (answer, later) = self.machine.access(gear1, vcpu, access, now);
        match later {
            None => {}
            Some(Later::Console(due)) => self.take_job(CONSOLE_JOB, due),
            Some(Later::Watchdog(due)) => self.look_after_vcpu(vcpu, due),
        }
        if answer.is_none() {
            self.charge(now);
            self.cause = Some(vcpu);
            self.scheduler.block(vcpu, now);
        }
        Some((vcpu, answer?))
    }

    /// Serves requests of the device model, and passes on its answers. One doorbell may stand for
    /// several requests, so all places where the device model leaves something are looked at.
    fn serve(&mut self, gear1: &mut impl Gear1, now: u64) {
        let machine = self.machine;
        let Some(model) = &machine.device_model else {
            return;
        };
        // Gear1 wakes a vCPU of another loop there.
        model.collect(gear1, |vcpu| {
            if let Some(config) = machine.config.vcpu(vcpu)
                && self.moves.has(vcpu)
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
            Task::Trace => self.pass_trace_order(gear1),
            Task::LookAgain(vm) => self.have_all_look_again(gear1, vm, now),
        }
        // A GDM that has just been started missed the signals before.
        model.greet(gear1);
    }

    /// Has all loops that run a VM's vCPUs look again, this one at once.
    fn have_all_look_again(&mut self, gear1: &mut impl Gear1, vm: VmId, now: u64) {
        for (vcpu, config) in self.machine.config.vcpus() {
            // A policy is its own loop's alone: another CPU is told to look.
            if config.vm == vm && !self.moves.has(vcpu) {
                self.forward_wake(gear1, vcpu);
            }
        }
        self.look_again(gear1, now);
    }

    /// Shows a line about a VM, or about Gear2.
    fn say(&mut self, vm: Option<VmId>, text: fmt::Arguments<'_>) {
        self.machine.say(vm, text);
        self.schedule_console();
    }

    /// Makes sure that new messages are shown. The job comes due at once, yet after this event's
    /// answer.
    fn schedule_console(&mut self) {
        if self.machine.device_model.is_some() {
            self.take_job(CONSOLE_JOB, 0);
        }
    }

    /// Decides what the CPU does next, after due jobs. `due` is an answer that a vCPU waits for:
    /// with the decision if that vCPU runs next, else by a call of its own, since the vCPU may wait
    /// long.
    #[inline(always)]
    fn decide(&mut self, gear1: &mut impl Gear1, due: Due, now: u64) -> Decision {
        let (choice, job_deadline) = if self.jobs == 0 {
            (self.scheduler.pick(now), NO_DEADLINE)
        } else {
            self.pick_after_jobs(gear1, now)
        };
        let mut idle_until = job_deadline;
        self.last = match choice {
            Choice::Run(choice) => {
                let (waits, until) = self.waits_of(choice, now);
                Some(Run {
                    vcpu: choice.vcpu,
                    until: until.min(job_deadline),
                    waits,
                })
            }
            Choice::Idle { until } => {
                idle_until = until.min(job_deadline);
                None
            }
        };
        let runs = self.last.map(|choice| choice.vcpu);
        // The gears worked for the vCPU that runs: the work is charged together with its run.
        if self.cause == runs {
            self.cause = None;
        }
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
            Some(choice) => {
                // People who ask for the vCPU's time get the time from here on too, which no event
                // has charged yet.
                self.machine.runs(choice.vcpu, self.charged, self.waited);
                run(choice, words)
            }
            None => Decision::Idle {
                deadline: idle_until,
            },
        }
    }

    /// Takes in a vCPU that can go on, unless its VM is paused: a resumed VM's are looked for.
    fn make_ready(&mut self, vcpu: VcpuId, vm: VmId, now: u64) {
        if !self.machine.is_paused(vm) {
            self.scheduler.wake(vcpu, now);
        }
    }

    /// Takes in a vCPU that Gear1 woke. A wake-up that crossed a move comes to the vCPU's former
    /// CPU.
    fn wake(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, now: u64) {
        match self.machine.config.vcpu(vcpu) {
            Some(config) if self.moves.has(vcpu) => {
                self.cause = Some(vcpu);
                self.make_ready(vcpu, config.vm, now);
            }
            Some(_) => self.forward_wake(gear1, vcpu),
            None => self.look_at_real_time(gear1, vcpu),
        }
    }

    /// Lets go of a vCPU that is off. If its VM is being stopped, that may have been the last one.
    #[inline(never)]
    fn off(&mut self, vcpu: VcpuId, now: u64) {
        self.cause = Some(vcpu);
        self.scheduler.block(vcpu, now);
        if let Some(config) = self.machine.config.vcpu(vcpu) {
            self.take_job(vm_job(config.vm), now);
        }
    }

    /// Takes in the end of a VM at its own request.
    #[inline(never)]
    fn vm_end(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, now: u64) {
        let Some((config, shared)) = self.let_go_of_vm(vcpu, now) else {
            return;
        };
        self.ended(gear1, config, &mut shared.lifecycle.lock(), None, now);
    }

    /// Reports a vCPU that cannot continue, and applies the manifest's policy to its VM.
    #[inline(never)]
    fn fault(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, fault: Fault, now: u64) {
        let Some((config, shared)) = self.let_go_of_vm(vcpu, now) else {
            return;
        };
        let index = self.machine.config.vcpu(vcpu).map_or(0, |vcpu| vcpu.index);
        let text = report::fault_text(&fault);
        let text = format!("vCPU {index} cannot go on: {text}");
        let mut lifecycle = shared.lifecycle.lock();
        // `gearctl` shows the fault also when the VM has been restarted.
        lifecycle.faulted(index, fault);
        self.ended(gear1, config, &mut lifecycle, Some(&text), now);
    }

    /// Does what the manifest says of a VM that has ended by itself: the VM's lifecycle decides, as
    /// the next job of this loop. An event that comes late finds
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

    /// Takes all vCPUs of a VM that is ending off this CPU, and returns the VM. Loops of other CPUs
    /// get an `Off` for each of theirs.
    fn let_go_of_vm(&mut self, vcpu: VcpuId, now: u64) -> Option<(&'m VmConfig, &'m SharedVm<P>)> {
        let machine = self.machine;
        self.cause = Some(vcpu);
        let vm = machine.config.vcpu(vcpu)?.vm;
        for (other, config) in machine.config.vcpus() {
            if config.vm == vm {
                self.scheduler.block(other, now);
            }
        }
        machine.vm(vm)
    }

    /// Serves the boot UART, the only device of Gear2's own, whose interrupt ends last: the UART's
    /// line is low by then, or the interrupt comes again. The SMMU's interrupt ends with its job.
    #[inline(never)]
    fn interrupt(&mut self, gear1: &mut impl Gear1, intid: u32, now: u64) {
        if intid == self.machine.config.uart_intid {
            while let Some((command, vm)) = self.machine.take_input(gear1, now) {
                self.command(gear1, command, vm);
            }
            if let Some(due) = self.machine.service_console(gear1, now) {
                self.take_job(CONSOLE_JOB, due);
            }
        } else if intid == self.machine.config.smmu_intid {
            return self.dma_interrupt(now);
        } else {
            self.say(None, format_args!("interrupt {intid} is not expected"));
        }
        let _ = gear1.irq_done(intid);
    }

    /// Carries out a key's command. Commands on a VM become goals, as those of `gearctl` do.
    fn command(&mut self, gear1: &mut impl Gear1, command: Command, vm: Option<VmId>) {
        let goal = match command {
            Command::List => return report::list(self.machine, gear1),
            Command::Statistics => return report::statistics(self.machine, gear1),
            Command::Log => return report::log(self.machine, gear1),
            Command::LastWords => return report::last_words(self.machine, vm),
            Command::Start => Goal::Run,
            Command::Stop => Goal::Stop,
            Command::Restart => Goal::Restart,
            Command::PowerOff => Goal::PowerOff,
        };
        if let Some(vm) = vm {
            self.ask(vm, goal);
        }
    }

    /// Asks for something of a VM, and makes it this loop's job. The goal is kept at once: a Gear2
    /// that fails before the first step leaves it to the next one.
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

    /// Compares with Gear1 which vCPUs of this CPU are ready. Between two events no vCPU of this
    /// CPU waits for an answer of this loop's. Gear1's view counts: events that a former instance
    /// of Gear2 took are lost, and the states of vCPUs are not.
    fn look_again(&mut self, gear1: &mut impl Gear1, now: u64) {
        for vcpu in vcpus_of(self.moves.here) {
            self.look_at(gear1, vcpu, now);
        }
    }

    /// Finds out why Gear1 did not take the last decision, which ran nothing. Most often the vCPU's
    /// VM was stopped by another loop; one that Gear1 refuses without that reason is left alone.
    #[inline(never)]
    fn refused(&mut self, gear1: &mut impl Gear1, status: u64, now: u64) {
        self.look_again(gear1, now);
        let Some(vcpu) = self.last.map(|choice| choice.vcpu) else {
            return;
        };
        // The vCPU is not ready any more, and `look_again` has blocked it.
        if gear1.vcpu_state(vcpu) != Ok(VcpuState::Ready) {
            return;
        }
        self.scheduler.block(vcpu, now);
        let Some(config) = self.machine.config.vcpu(vcpu) else {
            return;
        };
        // A VM that does not run explains the refusal.
        if gear1.vm_state(config.vm) == Ok(VmState::Running) {
            let (index, status) = (vcpu.index(), Status::from_reg(status));
            let text = format_args!("vCPU {index} was refused: {status:?}");
            self.say(Some(config.vm), text);
        }
    }
}

/// Returns the decision to run a vCPU.
const fn run(choice: Run, (reply, value): (Reply, u64)) -> Decision {
    Decision::Run {
        vcpu: choice.vcpu,
        deadline: choice.until,
        reply,
        value,
        waits: choice.waits,
    }
}

/// Answers a vendor call that Gear1 does not know: by the platform, or not at all.
#[inline]
fn hypercall<P: Platform>(call: [u64; 5]) -> Answer {
    // SMCCC: the function identifier is a 32-bit value.
    if call[0] & 0xffff_ffff == u64::from(GEAR2_NOP) {
        Answer::Value(0)
    } else {
        Answer::Value(P::call(call).unwrap_or(NOT_SUPPORTED))
    }
}
