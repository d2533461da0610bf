//! Reports for the console's keys: VMs and vCPUs, exit counts, Gear1's log.
//!
//! A report is made while guests wait, inside one event. Each line is formatted first and then
//! shown, so no lock of a VM is held while the console is.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use gear1_abi::call::{VcpuState, VmState, vcpu_reg};
use gear1_abi::event::Fault;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::record::{Record, RecordId};

use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::last_words::Registers;
use crate::machine::{Machine, Platform};

#[cfg(test)]
mod tests;

/// Most log records shown at once: more than the rings of all CPUs keep.
const LOG_RECORDS: usize = 512;

/// Shows each VM with its state and its vCPUs, real-time VMs included: Gear1 knows of all.
pub(crate) fn list<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1) {
    for vm in &machine.config.vms {
        let state = gear1.vm_state(vm.id).map_or("unknown", vm_state_text);
        let mut line = vcpus_text(vm, gear1);
        let shared = machine.vm(vm.id).map(|(_, shared)| shared);
        // A copy: the lock is not held while the console is.
        let lifecycle = shared.map(|shared| *shared.lifecycle.lock());
        if let Some((index, fault)) = lifecycle.and_then(|lifecycle| lifecycle.last_fault()) {
            let text = fault_text(&fault);
            add(
                &mut line,
                format_args!("; its last fault was vCPU {index}'s: {text}"),
            );
        }
        // A VM that is given up has the state "stopped", as one that was turned off: only this word
        // tells a failure from an order.
        if lifecycle.is_some_and(|lifecycle| lifecycle.is_given_up()) {
            line.push_str("; given up");
        }
        let aborted = machine.dma_count(vm.id);
        if aborted != 0 {
            let text = format_args!("; {aborted} accesses of its devices were aborted");
            add(&mut line, text);
        }
        machine.say(
            None,
            format_args!("{} {} {state}{line}", vm.id.index(), vm.name),
        );
    }
}

/// Returns a VM's vCPUs with CPU and state.
fn vcpus_text(vm: &VmConfig, gear1: &mut impl Gear1) -> String {
    let mut line = String::new();
    for (index, vcpu) in vcpus_of(vm) {
        // A vCPU that Gear1 does not know has no line; the VM's other vCPUs are shown all the same.
        let Ok((state, cpu)) = gear1.vcpu_info(vcpu) else {
            continue;
        };
        let state = VcpuState::from_reg(state).map_or("unknown", vcpu_state_text);
        add(
            &mut line,
            format_args!(", vCPU {index} on CPU {cpu}: {state}"),
        );
    }
    line
}

/// Shows for each vCPU, on a line, the exits that occurred: how often, and the mean time of those
/// timed.
pub(crate) fn statistics<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1) {
    let vms = machine.config.vms.iter();
    for (vm, (index, vcpu)) in vms.flat_map(|vm| vcpus_of(vm).map(move |vcpu| (vm, vcpu))) {
        let mut line = String::new();
        for &reason in ExitReason::ALL {
            // Reasons that never occurred would hide the others.
            let Ok((count @ 1.., ticks)) = gear1.exit_stats(vcpu, reason) else {
                continue;
            };
            add(&mut line, format_args!(" {} {count}", reason.label()));
            if ticks > 0 {
                // 64 bits would overflow after 18 s of exits at 1 GHz.
                let nanoseconds = u128::from(ticks) * 1_000_000_000
                    / (u128::from(machine.config.counter_hz.max(1)) * u128::from(count));
                add(&mut line, format_args!(" ({nanoseconds} ns)"));
            }
        }
        machine.say(None, format_args!("{} vCPU {index}:{line}", vm.name));
    }
}

/// Iterates over a VM's vCPUs with their indices in it, by which people name them.
fn vcpus_of(vm: &VmConfig) -> impl Iterator<Item = (usize, VcpuId)> {
    let vcpus = vm.vcpus.clone().filter_map(VcpuId::new);
    vcpus.enumerate()
}

/// Shows Gear1's log records as text: CPU by CPU, the oldest that is kept first.
pub(crate) fn log<P: Platform>(machine: &Machine<P>, gear1: &mut impl Gear1) {
    // The oldest record that Gear1 keeps.
    let mut cursor = 0;
    // Bounded, as Gear1 may write records faster than they are shown.
    for _ in 0..LOG_RECORDS {
        // The cursor is Gear1's: records that were overwritten meanwhile are left out, and the next
        // one that is kept comes.
        let Some((next, record)) = gear1.log_read(cursor) else {
            return;
        };
        cursor = next;
        machine.say(
            None,
            format_args!("{}", record_text(&record, machine.config.counter_hz)),
        );
    }
}

/// Shows the last words of a VM: its console output is on this console already.
pub(crate) fn last_words<P: Platform>(machine: &Machine<P>, vm: Option<VmId>) {
    let Some((config, shared)) = vm.and_then(|vm| machine.vm(vm)) else {
        return;
    };
    let name = &config.name;
    let mut lines = Vec::new();
    // The block ends the lock before the first line is shown: a console whose client reads slowly
    // would else hold up the CPU that writes the next last words.
    {
        let words = shared.last_words.lock();
        if words.life == 0 {
            lines.push(format!("{name} has not ended since Gear2's start"));
        } else {
            let (cause, life) = (words.cause.text(), words.life);
            let time = time_text(words.time, machine.config.counter_hz);
            lines.push(format!("{name} {cause} in its life {life}, at {time} s"));
        }
        for (index, registers) in words.vcpus.iter().enumerate() {
            let text = registers
                .as_ref()
                .map_or("not known".into(), registers_text);
            lines.push(format!("{name} vCPU {index}: {text}"));
        }
    }
    for line in lines {
        machine.say(None, format_args!("{line}"));
    }
}

/// Returns the registers of a vCPU as text.
fn registers_text(registers: &Registers) -> String {
    let mut line = String::new();
    let named = [
        ("PC", vcpu_reg::PC),
        ("SPSR", vcpu_reg::PSTATE),
        ("SP_EL0", vcpu_reg::SP_EL0),
        ("SP_EL1", vcpu_reg::SP_EL1),
        ("ELR", vcpu_reg::ELR),
        ("SPSR_EL1", vcpu_reg::SPSR),
        ("ESR", vcpu_reg::ESR),
        ("FAR", vcpu_reg::FAR),
        ("VBAR", vcpu_reg::VBAR),
        ("TTBR0", vcpu_reg::TTBR0),
        ("TTBR1", vcpu_reg::TTBR1),
    ];
    for (name, number) in named {
        add(&mut line, format_args!("{name} {:#x} ", registers[number]));
    }
    for (number, value) in registers[..vcpu_reg::SP_EL0].iter().enumerate() {
        add(&mut line, format_args!("X{number} {value:#x} "));
    }
    // Each register ends with a space, also the last one.
    line.truncate(line.trim_end().len());
    line
}

/// Returns a record as text: time in seconds, CPU, what happened. Gear1 keeps numbers; the texts
/// and the places of the numbers in them are in `gear1_abi`. A later Gear1's record, whose text is
/// not known here, is shown as numbers.
fn record_text(record: &Record, counter_hz: u64) -> String {
    let time = time_text(record.time, counter_hz);
    let (id, cpu) = (record.id_and_cpu & 0xffff_ffff, record.id_and_cpu >> 32);
    let mut line = String::new();
    add(&mut line, format_args!("{time} CPU {cpu}: "));
    // The two gears may be of different builds: an unknown record is no reason to show none.
    let Some(id) = RecordId::from_index(id) else {
        add(&mut line, format_args!("record {id} {:x?}", record.values));
        return line;
    };
    let mut rest = id.text();
    // A text names its values in any order.
    while let Some((before, behind)) = rest.split_once('{')
        && let Some((place, behind)) = behind.split_once('}')
    {
        let value = place
            .parse()
            .ok()
            .and_then(|at: usize| record.values.get(at));
        add(
            &mut line,
            format_args!("{before}{:#x}", value.unwrap_or(&0)),
        );
        rest = behind;
    }
    line.push_str(rest);
    line
}

/// Returns a counter value as seconds.
fn time_text(ticks: u64, counter_hz: u64) -> String {
    // 64 bits would overflow after five hours at 1 GHz.
    let microseconds = u128::from(ticks) * 1_000_000 / u128::from(counter_hz.max(1));
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    format!("{seconds:5}.{fraction:06}")
}

/// Returns why a guest cannot go on: reason, then registers. Gear1 has seen an exception that leads
/// back to itself; ESR_EL2 has the class of the last one.
pub(crate) fn fault_text(fault: &Fault) -> String {
    let Fault {
        esr,
        far,
        ipa,
        pc,
        pstate,
    } = fault;
    let what = match esr >> ESR_CLASS {
        INSTRUCTION_ABORT => "its exception handler cannot be fetched",
        DATA_ABORT => "its exception handler accesses what is not there",
        _ => "its exception handler uses what its CPU does not have",
    };
    format!("{what}; PC {pc:#x}, SPSR {pstate:#x}, ESR {esr:#x}, FAR {far:#x}, IPA {ipa:#x}")
}

/// Position of the exception class in ESR_EL2, and two classes (Arm ARM D24.2.40).
const ESR_CLASS: u32 = 26;
const INSTRUCTION_ABORT: u64 = 0x20;
const DATA_ABORT: u64 = 0x24;

/// Appends to a string, which cannot fail.
fn add(line: &mut String, text: core::fmt::Arguments<'_>) {
    // An error can come from a `Display` alone, and the report would then lack a word, not end.
    line.write_fmt(text).unwrap_or_default();
}

/// Returns the word for a VM's state.
const fn vm_state_text(state: VmState) -> &'static str {
    match state {
        VmState::Stopped => "stopped",
        VmState::Loading => "loading",
        VmState::Loaded => "loaded",
        VmState::Running => "running",
        VmState::Stopping => "stopping",
    }
}

/// Returns the words for a vCPU's state.
const fn vcpu_state_text(state: VcpuState) -> &'static str {
    match state {
        VcpuState::Off => "off",
        VcpuState::Ready => "ready",
        VcpuState::Running => "running",
        VcpuState::Wfi => "waits",
        VcpuState::AwaitsMmio => "waits for a device",
        VcpuState::AwaitsHypercall => "waits for a call",
    }
}
