//! Operations about VMs that hang, are slow, or have ended.

use gear1_abi::call::vcpu_reg::PER_CALL;
use gear2_protocol::outcome;

use super::{Answer, bytes_words, done};
use crate::config::VmConfig;
use crate::last_words::LastWords;
use crate::machine::{Machine, Platform};

/// Bytes of an answer.
const ANSWER_BYTES: usize = 48;

/// Returns how a VM did since Gear2's start.
pub(super) fn vm<P: Platform>(machine: &Machine<P>, vm: &VmConfig) -> Answer {
    let (_, shared) = machine.vm(vm.id).ok_or(outcome::NOT_FOUND)?;
    let [hangs, late, starved] = shared.watchdog.lock().counts().map(u64::from);
    let has_one = vm.watchdog_device.is_some() || !vm.scheduled;
    let longest = if has_one { vm.watchdog } else { 0 };
    done([hangs, late, starved, longest, vm.progress, 0])
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
        let behind = registers.get(usize::try_from(first).ok()?..)?;
        let mut wanted = behind.iter().copied();
        Some([(); PER_CALL].map(|()| wanted.next().unwrap_or(0)))
    })
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
