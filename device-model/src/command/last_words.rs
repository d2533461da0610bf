//! `gearctl last-words`: why a VM's last life ended, where its vCPUs were, what it said last.

use gear1_abi::call::vcpu_reg::{self, PER_CALL};
use gear2_protocol::{cause, op, outcome};

use super::answer::{Cause, LastEnd, LastRegister, LastWords};
use super::records;
use crate::client::{Client, Vm};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Bytes of console output in an answer.
const ANSWER_BYTES: usize = 48;
/// Attempts at words that belong together: the VM may end again meanwhile.
const ATTEMPTS: usize = 3;

/// Returns why a VM ended.
fn cause(why: u64) -> Cause {
    match why {
        cause::STOPPED => Cause::Stopped,
        cause::OFF => Cause::Off,
        cause::RESET => Cause::Reset,
        cause::CRASH => Cause::Crash,
        cause::HANG => Cause::Hang,
        _ => Cause::Unknown,
    }
}

/// Returns the words that tell of a VM's last end, if there was one. An older Gear2 keeps none.
fn find(client: &mut Client, vm: &Vm) -> Result<Option<[u64; 6]>, Error> {
    let answer = client.call(op::LAST_WORDS, &[vm.id])?;
    Ok((answer.outcome == outcome::OK).then_some(answer.results))
}

/// Returns the last end of a VM, if there was one.
pub(super) fn last_end(client: &mut Client, vm: &Vm) -> Result<Option<LastEnd>, Error> {
    let hz = client.about()?.hz.max(1);
    let end = |[life, why, time, ..]: [u64; 6]| LastEnd {
        life,
        cause: cause(why),
        time: records::seconds(time, hz),
    };
    Ok(find(client, vm)?.map(end))
}

/// Returns the last words of a VM.
pub(super) fn of(client: &mut Client, name: &str) -> Result<LastWords, Error> {
    let vm = client.find(name)?;
    let hz = client.about()?.hz.max(1);
    for _ in 0..ATTEMPTS {
        let Some(words) = find(client, &vm)? else {
            break;
        };
        let [life, why, time, console, known, _] = words;
        let registers = registers(client, &vm, known)?;
        let console = console_lines(client, &vm, console)?;
        if find(client, &vm)? != Some(words) {
            continue;
        }
        return Ok(LastWords {
            vm: vm.name,
            life,
            cause: cause(why),
            time: records::seconds(time, hz),
            registers,
            console,
        });
    }
    Err(Error::not_found(format!(
        "VM {} has no last words: it has not ended since Gear2's start",
        vm.name
    )))
}

/// Returns each register of each vCPU whose registers are known.
fn registers(client: &mut Client, vm: &Vm, known: u64) -> Result<Vec<LastRegister>, Error> {
    let mut rows = Vec::new();
    for vcpu in (0..vm.vcpus).filter(|vcpu| *vcpu < 64 && known >> vcpu & 1 != 0) {
        let mut values = Vec::new();
        for first in (0..vcpu_reg::COUNT as u64).step_by(PER_CALL) {
            let answer = client.call(op::LAST_REGISTERS, &[vm.id, vcpu, first])?;
            values.extend(answer.results);
        }
        rows.extend(names().into_iter().map(|(register, number)| {
            let value = values.get(number).copied().unwrap_or(0);
            LastRegister {
                vcpu,
                register,
                value: format!("{value:#x}"),
            }
        }));
    }
    Ok(rows)
}

/// Returns the names of the registers, and their numbers: first those that tell where a vCPU was.
fn names() -> Vec<(String, usize)> {
    let special = [
        ("pc", vcpu_reg::PC),
        ("spsr_el2", vcpu_reg::PSTATE),
        ("sp_el0", vcpu_reg::SP_EL0),
        ("sp_el1", vcpu_reg::SP_EL1),
        ("elr_el1", vcpu_reg::ELR),
        ("spsr_el1", vcpu_reg::SPSR),
        ("esr_el1", vcpu_reg::ESR),
        ("far_el1", vcpu_reg::FAR),
        ("vbar_el1", vcpu_reg::VBAR),
        ("ttbr0_el1", vcpu_reg::TTBR0),
        ("ttbr1_el1", vcpu_reg::TTBR1),
    ];
    let special = special.into_iter();
    let special = special.map(|(name, number)| (name.to_owned(), number));
    let general = (0..vcpu_reg::SP_EL0).map(|number| (format!("x{number}"), number));
    special.chain(general).collect()
}

/// Returns the lines that the VM's console showed last. The first one may lack its beginning.
fn console_lines(client: &mut Client, vm: &Vm, count: u64) -> Result<Vec<String>, Error> {
    let mut bytes = Vec::new();
    for offset in (0..count).step_by(ANSWER_BYTES) {
        let answer = client.call(op::LAST_CONSOLE, &[vm.id, offset])?;
        bytes.extend(answer.results.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    let text = String::from_utf8_lossy(&bytes);
    // A guest's control characters do nothing to the terminal of who reads this.
    let line = |line: &str| line.chars().filter(|c| !c.is_control()).collect();
    Ok(text.lines().map(line).collect())
}
