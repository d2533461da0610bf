//! Gear1's records as a person reads them: VMs and vCPUs by their names, codes by their words.

use gear1_abi::record::{Record, RecordId};

use super::answer::Logged as Row;
use crate::client::{Logged, Vm};

/// Names of all VMs, and of their vCPUs by their numbers over all VMs.
pub(super) struct Names {
    /// Names by the number of the VM.
    vms: Vec<(u64, String)>,
    /// Index and VM by the number of the vCPU over all VMs, which is the one in records.
    vcpus: Vec<(u64, String)>,
}

impl Names {
    /// Takes the names from Gear2's answers.
    pub(super) fn of(vms: &[Vm]) -> Names {
        let vcpus = vms.iter().flat_map(|vm| {
            let numbers = (0..).zip(vm.numbers());
            numbers.map(|(index, number): (u64, u64)| (number, format!("{index} of {}", vm.name)))
        });
        Names {
            vms: vms.iter().map(|vm| (vm.id, vm.name.clone())).collect(),
            vcpus: vcpus.collect(),
        }
    }

    /// Returns the name of a VM.
    pub(super) fn vm(&self, number: u64) -> String {
        named(&self.vms, number)
    }

    /// Returns the name of the VM of a vCPU.
    pub(super) fn vm_of_vcpu(&self, number: u64) -> Option<String> {
        let (_, name) = self.vcpus.iter().find(|(of, _)| *of == number)?;
        name.split_once(" of ").map(|(_, vm)| vm.to_owned())
    }
}

/// Returns the name of a number; Gear1 may know what the manifest does not.
fn named(names: &[(u64, String)], number: u64) -> String {
    let found = names.iter().find(|(of, _)| *of == number);
    found.map_or_else(|| hexadecimal(number), |(_, name)| name.clone())
}

/// Returns a value that is an address or a register, or of which nothing is known here.
fn hexadecimal(value: u64) -> String {
    format!("{value:#x}")
}

/// Returns the row of a record, after a row about lost records before it.
pub(super) fn log_rows(logged: &Logged, names: &Names, hz: u64) -> Vec<Row> {
    let record = &logged.record;
    // A gap is a row of its own, at the time of the record behind it.
    let lost = (logged.lost > 0).then(|| ("Lost".to_owned(), lost_text(logged.lost)));
    let time = seconds(record.time, hz);
    let row = |(event, message): (String, String)| Row {
        time: time.clone(),
        cpu: record.id_and_cpu >> 32,
        event,
        message,
    };
    let rows = lost
        .into_iter()
        .chain([(event(record), message(record, names))]);
    rows.map(row).collect()
}

/// Says that Gear1's ring of a CPU went round before somebody read it.
pub(super) fn lost_text(lost: u64) -> String {
    format!("{lost} records of this CPU were overwritten before they were read")
}

/// Returns the kind of a record, by which a program or `grep` tells records apart.
/// A kind that this gearctl does not know has its number as its name.
fn event(record: &Record) -> String {
    let id = id(record);
    match RecordId::from_index(id) {
        Some(id) => format!("{id:?}"),
        None => format!("Record{id}"),
    }
}

/// Returns the kind of a record, which shares its word with the number of the CPU.
pub(super) fn id(record: &Record) -> u64 {
    record.id_and_cpu & 0xffff_ffff
}

/// Returns a record's text with its values; a newer Gear1 may have records without a text here.
pub(super) fn message(record: &Record, names: &Names) -> String {
    let Some(id) = RecordId::from_index(id(record)) else {
        let values = record.values.map(hexadecimal);
        return values.join(" ");
    };
    let mut text = String::new();
    let mut rest = id.text();
    while let Some((before, behind)) = rest.split_once('{') {
        text += before;
        let Some((place, behind)) = behind.split_once('}') else {
            break;
        };
        text += &shown(before, value_at(record, place), names);
        rest = behind;
    }
    text + rest
}

/// Returns the value that a place of a record's text stands for.
fn value_at(record: &Record, place: &str) -> u64 {
    let place = place.parse::<usize>().ok();
    let value = place.and_then(|place| record.values.get(place));
    value.copied().unwrap_or(0)
}

/// Returns a value in words that fit the text before it.
fn shown(before: &str, value: u64, names: &Names) -> String {
    // A record has numbers alone. The text before a place says what its number is.
    let is_behind = |word: &str| before.ends_with(word);
    if is_behind("vCPU ") {
        named(&names.vcpus, value)
    } else if is_behind("VM ") {
        named(&names.vms, value)
    } else if is_behind("CPU ") {
        value.to_string()
    } else if is_behind("ESR ") {
        with_word(value, exception_class(value))
    } else if is_behind("system register ") {
        system_register(value)
    } else if is_behind("interrupt ") {
        interrupt(value)
    } else if is_behind("failure ") {
        failure(value).map_or_else(|| hexadecimal(value), str::to_owned)
    } else if is_behind("PSCI error ") {
        // PSCI's errors are negative numbers.
        let error = value.cast_signed();
        psci_error(error).map_or_else(|| error.to_string(), str::to_owned)
    } else {
        hexadecimal(value)
    }
}

/// Returns a register whole, with the word for a field of it: people look up the rest.
fn with_word(value: u64, word: Option<&str>) -> String {
    match word {
        Some(word) => format!("{value:#x} ({word})"),
        None => hexadecimal(value),
    }
}

/// Returns the words for the class of an exception syndrome (Arm ARM, ESR_EL2.EC).
fn exception_class(esr: u64) -> Option<&'static str> {
    Some(match esr >> 26 & 0x3f {
        0x00 => "unknown instruction",
        0x01 => "WFI or WFE",
        0x07 => "floating point",
        0x0e => "illegal state",
        0x15 => "SVC",
        0x16 => "HVC",
        0x17 => "SMC",
        0x18 => "system register",
        0x19 => "SVE",
        0x20 | 0x21 => "instruction abort",
        0x22 => "unaligned PC",
        0x24 | 0x25 => "data abort",
        0x26 => "unaligned SP",
        0x2f => "SError",
        0x3c => "BRK",
        _ => return None,
    })
}

/// Returns the generic name of a system register from its syndrome: Op0, Op2, Op1, CRn, CRm.
fn system_register(id: u64) -> String {
    let field = |low: u32, bits: u32| id >> low & ((1 << bits) - 1);
    let (op0, op1, op2) = (field(20, 2), field(14, 3), field(17, 3));
    let (crn, crm) = (field(10, 4), field(1, 4));
    format!("S{op0}_{op1}_C{crn}_C{crm}_{op2}")
}

/// Returns an INTID with its kind (GICv3, 2.2.1).
/// Device trees count PPIs and SPIs from 0, so that both numbers are shown.
fn interrupt(intid: u64) -> String {
    match intid {
        0..16 => format!("{intid} (SGI)"),
        16..32 => format!("{intid} (PPI {})", intid - 16),
        32..1020 => format!("{intid} (SPI {})", intid - 32),
        _ => intid.to_string(),
    }
}

/// Returns why Gear2 was restarted.
fn failure(failure: u64) -> Option<&'static str> {
    match failure {
        1 => Some("a loop hung"),
        2 => Some("it faulted"),
        3 => Some("it gave up"),
        _ => None,
    }
}

/// Returns the name of a PSCI error (PSCI, 5.2.2).
fn psci_error(error: i64) -> Option<&'static str> {
    Some(match error {
        -1 => "NOT_SUPPORTED",
        -2 => "INVALID_PARAMETERS",
        -3 => "DENIED",
        -4 => "ALREADY_ON",
        -5 => "ON_PENDING",
        -6 => "INTERNAL_FAILURE",
        -7 => "NOT_PRESENT",
        -8 => "DISABLED",
        -9 => "INVALID_ADDRESS",
        _ => return None,
    })
}

/// Returns a time of the counter in seconds, to a microsecond.
pub(super) fn seconds(ticks: u64, hz: u64) -> String {
    // A million times the ticks of five hours at 1 GHz has more than 64 bits.
    let microseconds = u128::from(ticks) * 1_000_000 / u128::from(hz);
    format!(
        "{}.{:06}",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    )
}

#[cfg(test)]
mod tests;
