//! Operations about VMs that hang, are slow, or have ended.

use gear1_abi::call::vcpu_reg::{self, PER_CALL};
use gear1_abi::call::{Status, VmState};
use gear1_abi::id::VcpuId;
use gear2_protocol::outcome;

use super::{Answer, bytes_words, done};
use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::last_words::LastWords;
use crate::machine::{Machine, Platform, WORDS};

/// Bytes of an answer.
const ANSWER_BYTES: usize = 48;

/// Returns how a VM did since Gear2's start.
pub(super) fn vm<P: Platform>(machine: &Machine<P>, vm: &VmConfig) -> Answer {
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let [hangs, late, starved] = shared.watchdog.lock().counts().map(u64::from);
    let has_one = vm.watchdog_device.is_some() || !vm.scheduled;
    let longest = if has_one { vm.watchdog } else { 0 };
    let aborted = machine.dma_count(vm.id);
    done([hangs, late, starved, longest, vm.progress, aborted])
}

/// Returns what the last words of a VM are about.
pub(super) fn last_words<P: Platform>(machine: &Machine<P>, vm: &VmConfig) -> Answer {
    with(machine, vm, |words| {
        let (life, cause) = (words.life.into(), words.cause.number());
        let console = words.console.len() as u64;
        Some([life, cause, words.time, console, words.known(), 0])
    })
}

/// Returns six registers of a vCPU.
pub(super) fn last_registers<P: Platform>(
    machine: &Machine<P>,
    vm: &VmConfig,
    vcpu: u64,
    first: u64,
) -> Answer {
    with(machine, vm, |words| {
        let registers = words.vcpus.get(usize::try_from(vcpu).ok()?)?.as_ref()?;
        Some(six(registers.get(usize::try_from(first).ok()?..)?))
    })
}

/// Returns six registers of a vCPU of a VM that is paused or has stopped. Another CPU's loop, which
/// still has them, is told to let go of them: the caller asks again.
pub(super) fn registers<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    vcpu: u64,
    first: u64,
) -> Answer {
    if !vm.dump {
        return Err(outcome::FORBIDDEN);
    }
    let stands = gear1.vm_state(vm.id) == Ok(VmState::Stopped) || machine.is_paused(vm.id);
    // planted: registers of a VM that runs are told
    if !stands {
        return Err(outcome::WRONG_STATE);
    }
    let index = usize::try_from(vcpu).map_err(|_| outcome::NOT_FOUND)?;
    let vcpu = vm.vcpus.clone().nth(index).and_then(VcpuId::new);
    let vcpu = vcpu.ok_or(outcome::NOT_FOUND)?;
    let known = 0..(vcpu_reg::FP + vcpu_reg::FP_COUNT) as u64;
    if !known.contains(&first) {
        return Err(outcome::NOT_FOUND);
    }
    match gear1.six_registers(vcpu, first) {
        Ok(registers) => done(registers),
        Err(Status::Busy) => {
            machine.poke(gear1, machine.placement.cpu(vcpu), WORDS);
            Err(outcome::BUSY)
        }
        Err(Status::NoSuchCall) => Err(outcome::UNKNOWN),
        // A vCPU that was off in all of this life: its registers are nobody's.
        Err(Status::NotFound) => done([0; PER_CALL]),
        // An older Gear1, which tells of lives that have ended alone.
        Err(Status::WrongState | Status::Invalid | Status::Ok) => Err(outcome::WRONG_STATE),
    }
}

/// Returns the first six of some registers; 0 stands for those that there are not.
fn six(registers: &[u64]) -> super::Words {
    let mut wanted = registers.iter().copied();
    [(); PER_CALL].map(|()| wanted.next().unwrap_or(0))
}

/// Returns a part of the console output.
pub(super) fn last_console<P: Platform>(
    machine: &Machine<P>,
    vm: &VmConfig,
    offset: u64,
) -> Answer {
    with(machine, vm, |words| {
        let behind = words.console.get(usize::try_from(offset).ok()?..)?;
        Some(bytes_words(&behind[..behind.len().min(ANSWER_BYTES)]))
    })
}

/// Answers by the last words of a VM that has ended.
fn with<P: Platform>(
    machine: &Machine<P>,
    vm: &VmConfig,
    answer: impl FnOnce(&LastWords) -> Option<super::Words>,
) -> Answer {
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let words = shared.last_words.lock();
    let words = Some(&*words).filter(|words| words.life != 0);
    done(words.and_then(answer).ok_or(outcome::NOT_FOUND)?)
}
