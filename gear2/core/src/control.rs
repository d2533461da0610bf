//! The control mailbox: what `gearctl` asks for, through the device model.
//!
//! Owns the meaning of each operation of [`gear2_protocol::op`]. It answers what can be answered at
//! once; what changes a VM's life is begun here and left to the loop that got the doorbell.
//!
//! The mailbox lies in memory that the device VM writes at any time. Each word is read once, and
//! every word is an identifier that is looked up or a number that is passed on to Gear1, which
//! checks it. A device VM that breaks the protocol gets wrong answers, and nothing else of Gear2
//! changes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gear1_abi::call::{Reply, VcpuState, VmState};
use gear1_abi::event::Fault;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{VcpuId, VmId};
use gear2_protocol::{Control, PROTOCOL_VERSION, op, outcome, vm_flag};

use crate::config::VmConfig;
use crate::gear1::{Gear1, Waits};
use crate::lifecycle::{Goal, Lifecycle};
use crate::machine::{Machine, Platform};

mod health;
mod sched;
mod trace;

/// Work that a control operation leaves to the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing.
    None,
    /// Pursue the goal of the VM.
    Ask(VmId, Goal),
    /// The VM was paused or resumed: all its loops are to look again.
    LookAgain(VmId),
    /// All loops have an order about traces.
    Trace,
}

/// Result words of an answer.
type Words = [u64; 6];
/// Outcome (a constant of [`outcome`]) with the result words and the task that is left.
type Answer = Result<(u32, Words, Task), u32>;

const NOTHING: Words = [0; 6];

/// Answers what stands in the mailbox, if it is new. Several loops may get a doorbell for one
/// request: the lock over the last answer lets one of them serve it. The answer's number is stored
/// last, with release, as the other side reads the results once it sees the number.
pub(crate) fn serve<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1) -> Task {
    let Some(model) = &machine.device_model else {
        return Task::None;
    };
    let mailbox = model.control();
    let mut answered = model.answered.lock();
    let asked = mailbox.asked.load(Acquire);
    if asked == *answered {
        return Task::None;
    }
    *answered = asked;
    let answer = perform(machine, gear1, mailbox);
    let (outcome, words, task) = answer.unwrap_or_else(|outcome| (outcome, NOTHING, Task::None));
    for (result, word) in mailbox.results.iter().zip(words) {
        result.store(word, Relaxed);
    }
    mailbox.outcome.store(outcome, Relaxed);
    mailbox.answered.store(asked, Release);
    drop(answered);
    model.raise(gear1);
    task
}

/// Performs the operation in the mailbox, or returns the outcome that refuses it.
fn perform<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1, mailbox: &Control) -> Answer {
    let [first, second, third, fourth] = mailbox.arguments.each_ref().map(|a| a.load(Relaxed));
    let vm = || find_vm(machine, first);
    let vcpu = || VcpuId::from_reg(first).ok_or(outcome::NOT_FOUND);
    match mailbox.op.load(Relaxed) {
        op::NONE => done(NOTHING),
        op::VM_INFO => vm_info(machine, gear1, vm()?),
        op::VM_START => ask(machine, gear1, vm()?, Goal::Run),
        op::VM_STOP => stop(machine, gear1, vm()?, second != 0),
        op::VM_RESTART => ask(machine, gear1, vm()?, Goal::Restart),
        op::VM_PAUSE => pause(machine, gear1, vm()?, true, second != 0),
        op::VM_RESUME => pause(machine, gear1, vm()?, false, second != 0),
        op::VM_POWER_BUTTON => press_power_button(machine, gear1, vm()?),
        op::EXIT_STATS => exit_stats(gear1, vcpu()?, second),
        op::VCPU_INFO => vcpu_info(machine, gear1, vcpu()?),
        op::VCPU_UNSEEN => done([machine.is_unseen(vcpu()?).into(), 0, 0, 0, 0, 0]),
        op::LOG_READ => log_read(gear1, first),
        op::VERSION => version(machine, gear1),
        op::VM_FAULT => vm_fault(machine, vm()?),
        op::VM_HEALTH => health::vm(machine, vm()?),
        op::LAST_WORDS => health::last_words(machine, vm()?),
        op::LAST_REGISTERS => health::last_registers(machine, vm()?, second, third),
        op::LAST_CONSOLE => health::last_console(machine, vm()?, second),
        op::VCPU_REGISTERS => health::registers(machine, gear1, vm()?, second, third),
        op::VM_NAME => done(name_words(&vm()?.name)),
        op::SCHED_CPU => sched::cpu(machine, sched::find_cpu(machine, first)?),
        op::SCHED_VCPU => sched::vcpu(machine, sched::find_vcpu(machine, first)?),
        op::SCHED_MOVE => sched::begin_move(machine, gear1, first, second),
        op::SCHED_PIN => sched::pin(machine, first, second),
        op::SCHED_CLOSE => sched::close(machine, gear1, first, second != 0),
        op::SCHED_POOL => sched::pool(machine, first, second),
        op::SCHED_SHARE => sched::share(machine, vm()?, second),
        op::SCHED_SET => sched::set(machine, gear1, vm()?, [second, third, fourth]),
        op::SCHED_SET_POOL => sched::set_pool(machine, gear1, vm()?, second),
        op::TRACE => trace::switch(machine, gear1, first),
        op::TRACE_READ => trace::read(machine, first, second),
        op::TRACE_NOTE => trace::note(machine, first),
        _ => Err(outcome::UNKNOWN),
    }
}

/// Returns an answer that is complete.
const fn done(words: Words) -> Answer {
    Ok((outcome::OK, words, Task::None))
}

/// Returns the VM of the manifest that an argument names.
fn find_vm<P: Platform>(machine: &Machine<P>, vm: u64) -> Result<&VmConfig, u32> {
    let config = VmId::from_reg(vm).and_then(|vm| machine.config.vm(vm));
    config.ok_or(outcome::NOT_FOUND)
}

/// Returns a VM's state, vCPUs and history. State and lifecycle are read one after the other, and
/// may be of two moments.
fn vm_info<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1, vm: &VmConfig) -> Answer {
    let state = gear1.vm_state(vm.id).map_err(|_| outcome::NOT_FOUND)?;
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let lifecycle = *shared.lifecycle.lock();
    let restarts = lifecycle.starts().saturating_sub(1);
    let faults = lifecycle.faults().into();
    let is_suspended = suspended(gear1, vm).is_some();
    let suspended = u64::from(is_suspended) * vm_flag::SUSPENDED;
    let flags = vm_flags(machine, vm, &lifecycle) | suspended;
    let (first, count) = (vm.vcpus.start as u64, vm.vcpus.len() as u64);
    done([state as u64, count, first, restarts.into(), flags, faults])
}

/// Returns the flags of a VM ([`vm_flag`]).
fn vm_flags<P: Platform>(machine: &Machine<P>, vm: &VmConfig, lifecycle: &Lifecycle) -> u64 {
    let flags = [
        (vm.may_power_off, vm_flag::MAY_POWER_OFF),
        (machine.is_paused(vm.id), vm_flag::PAUSED),
        (machine.is_quiet(vm), vm_flag::QUIET),
        (vm.dump, vm_flag::DUMP),
        (lifecycle.waits_for_long(), vm_flag::WAITS),
        (lifecycle.is_given_up(), vm_flag::GIVEN_UP),
        (lifecycle.has_failed_over(), vm_flag::FAILED_OVER),
        (!vm.scheduled, vm_flag::REAL_TIME),
        (is_device_vm(machine, vm), vm_flag::DEVICE_MODEL),
        (vm.console.is_none(), vm_flag::NO_CONSOLE),
    ];
    let set = flags.into_iter().filter(|(set, _)| *set);
    set.fold(0, |flags, (_, flag)| flags | flag)
}

/// Returns whether the device model runs in the VM.
fn is_device_vm<P: Platform>(machine: &Machine<P>, vm: &VmConfig) -> bool {
    machine.config.device_vm == Some(vm.id)
}

/// Returns why a vCPU of the VM could not go on the last time. The note outlives the VM's restart,
/// so that a person can still ask.
fn vm_fault<P: Platform>(machine: &Machine<P>, vm: &VmConfig) -> Answer {
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let last = shared.lifecycle.lock().last_fault();
    let (vcpu, fault) = last.ok_or(outcome::NOT_FOUND)?;
    let Fault {
        esr,
        far,
        ipa,
        pc,
        pstate,
    } = fault;
    done([vcpu as u64, esr, far, ipa, pc, pstate])
}

/// Begins a change of a VM's life, if its state has a use for it. The answer says that it was
/// begun: a stop may take as long as the guest's last exit, and the caller asks for the state.
fn ask<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    goal: Goal,
) -> Answer {
    let state = gear1.vm_state(vm.id).map_err(|_| outcome::NOT_FOUND)?;
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let is_to_run = shared.lifecycle.lock().is_to_run();
    let sensible = match goal {
        Goal::Run => state != VmState::Running,
        Goal::Stop => state != VmState::Stopped || is_to_run,
        Goal::Restart | Goal::GiveUp | Goal::PowerOff => true,
    };
    if sensible {
        Ok((outcome::STARTED, NOTHING, Task::Ask(vm.id, goal)))
    } else {
        Err(outcome::WRONG_STATE)
    }
}

/// Stops a VM. Nobody could start the VM again that is the way to Gear2: with `force` it ends as
/// if it had turned itself off.
fn stop<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    force: bool,
) -> Answer {
    if vm.must_run && !force {
        return Err(outcome::NEEDED);
    }
    let goal = machine.goal_for_stop(gear1, vm);
    ask(machine, gear1, vm, goal)
}

/// Pauses or resumes a running VM, or wakes one that has suspended itself. The device VM is not
/// paused: nobody could resume it. `devices`: a VM that has stopped will do, whose devices may still
/// have requests under way; its next start ends the pause.
fn pause<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    paused: bool,
    devices: bool,
) -> Answer {
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let lifecycle = shared.lifecycle.lock();
    let state = gear1.vm_state(vm.id);
    let running = state == Ok(VmState::Running);
    let stands = running || devices && state == Ok(VmState::Stopped);
    let mine = vm.scheduled && !is_device_vm(machine, vm);
    let is_awake = machine.is_paused(vm.id) || paused || !running;
    if let Some(vcpu) = suspended(gear1, vm).filter(|_| !is_awake) {
        // An interrupt may have been faster.
        let _ = gear1.vcpu_reply(vcpu, Reply::None, 0);
        return done(NOTHING);
    }
    if !mine || !stands || machine.is_paused(vm.id) == paused {
        return Err(outcome::WRONG_STATE);
    }
    machine.set_paused(gear1, vm, paused);
    if !paused && running {
        machine.excuse_pause(gear1, vm, shared);
    }
    drop(lifecycle);
    Ok((outcome::OK, NOTHING, Task::LookAgain(vm.id)))
}

/// Presses the power button of a VM that runs. What the VM makes of it is the VM's affair.
fn press_power_button<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
) -> Answer {
    let button = vm.power_button.ok_or(outcome::NOT_FOUND)?;
    let is_running = gear1.vm_state(vm.id) == Ok(VmState::Running);
    if !is_running || machine.is_paused(vm.id) {
        return Err(outcome::WRONG_STATE);
    }
    // Gear1 has the same manifest, and lets Gear2 ring it.
    gear1.channel_ring(button).map_err(|_| outcome::NOT_FOUND)?;
    done(NOTHING)
}

/// Returns the vCPU with which a VM has suspended itself: all others are off, and this one waits in
/// power-down.
fn suspended(gear1: &mut impl Gear1, vm: &VmConfig) -> Option<VcpuId> {
    let vcpus = vm.vcpus.clone().filter_map(VcpuId::new);
    let mut on = vcpus.filter(|vcpu| gear1.vcpu_state(*vcpu) != Ok(VcpuState::Off));
    let (only, another) = (on.next()?, on.next());
    let is_alone = vm.scheduled && another.is_none();
    drop(on);
    (is_alone && gear1.is_powered_down(only)).then_some(only)
}

/// Returns how often a vCPU left its guest for a reason, and the time until it was back.
fn exit_stats(gear1: &mut impl Gear1, vcpu: VcpuId, reason: u64) -> Answer {
    let reason = usize::try_from(reason)
        .ok()
        .and_then(ExitReason::from_index);
    let reason = reason.ok_or(outcome::NOT_FOUND)?;
    let (count, ticks) = gear1
        .exit_stats(vcpu, reason)
        .map_err(|_| outcome::NOT_FOUND)?;
    done([count, ticks, 0, 0, 0, 0])
}

/// Returns how long a vCPU ran, by Gear2's account, its CPU and its state, and what Gear1 counts of
/// its waits.
fn vcpu_info<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1, vcpu: VcpuId) -> Answer {
    let (state, cpu) = gear1.vcpu_info(vcpu).map_err(|_| outcome::NOT_FOUND)?;
    machine.look_at_accounts(gear1);
    let ran = machine.ran(gear1, vcpu);
    // A real-time VM's vCPU has its CPU always.
    let waits = gear1.vcpu_waits(vcpu).map_err(|_| outcome::NOT_FOUND)?;
    let Waits {
        stolen,
        waited,
        preemptions,
        ..
    } = waits;
    done([ran, cpu, state, waited, stolen, preemptions])
}

/// Returns the next record of Gear1's log; the caller keeps the cursor, so Gear2 keeps no reader.
fn log_read(gear1: &mut impl Gear1, cursor: u64) -> Answer {
    let (next, record) = gear1.log_read(cursor).ok_or(outcome::NOT_FOUND)?;
    let [a, b, c] = record.values;
    done([next, record.time, record.id_and_cpu, a, b, c])
}

/// Returns the versions of all interfaces, and the counts of the whole machine.
fn version<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1) -> Answer {
    let model = machine.device_model.as_ref();
    let forwarded = model.map_or(0, |model| model.slots.lock().forwarded());
    let cpus = machine.config.cpus.len() as u64;
    let (abi, now) = (gear1.abi_version(), gear1.now());
    let protocol = PROTOCOL_VERSION.into();
    done([abi, protocol, now, cpus, forwarded, machine.restarts])
}

/// Returns a name's bytes as words, cut or padded with zeroes.
fn name_words(name: &str) -> Words {
    bytes_words(name.as_bytes())
}

/// Returns bytes as words, cut or padded with zeroes.
fn bytes_words(bytes: &[u8]) -> Words {
    let mut words = NOTHING;
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    words
}
