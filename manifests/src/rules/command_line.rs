//! Command lines of VMs that run Linux: Linux drops without a word what it cannot use, and a guest
//! whose console does not exist shows nothing at all.
#![cfg(any(test, feature = "host"))]

use super::backends::kernel_words;
use super::{error, root_disk};
use crate::error::{Found, Report, Rule};
use crate::model::{Manifest, Payload, VirtioKind, Vm};

/// Most bytes of a command line that Linux takes on arm64 (COMMAND_LINE_SIZE), without the NUL.
const LONGEST: usize = 2047;
/// Consoles that every kernel has, or that do nothing.
const ALWAYS: [&str; 3] = ["tty", "ttynull", "null"];

/// Warns of what the VM's Linux would drop.
pub(crate) fn warn<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let Payload::Linux { cmdline, .. } = vm.payload else {
        return;
    };
    if cmdline.len() > LONGEST {
        let place = error(Rule::LongCommandLine, vm, "cmdline");
        report.error(place.found(Found::Number(cmdline.len() as u64)));
    }
    for name in kernel_words(cmdline).filter_map(|word| missing_console(manifest, vm, word)) {
        let place = error(Rule::NoSuchConsole, vm, "cmdline");
        report.error(place.found(Found::Text(name)));
    }
    root_disk::warn(manifest, vm, cmdline, report);
}

/// Returns the console that a word names, if the VM lacks it.
fn missing_console<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, word: &'a str) -> Option<&'a str> {
    let console = word.strip_prefix("console=");
    // One without a name is a word that a blank has cut.
    let console = console.filter(|name| !name.is_empty() && !has_console(manifest, vm, name));
    let early = word.strip_prefix("earlycon=");
    let early = early.filter(|options| !has_early_console(vm, options));
    console.or(early)
}

/// Tells whether the VM has the console that `console=` names, with its options behind a comma.
fn has_console(manifest: &Manifest<'_>, vm: &Vm<'_>, name: &str) -> bool {
    // Options are the rate and the format, which an emulated UART ignores.
    let name = name.split(',').next().unwrap_or(name);
    let kind = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let number = name
        .get(kind.len()..)
        .and_then(|number| number.parse().ok());
    if ALWAYS.contains(&kind) {
        return true;
    }
    match (kind, number) {
        ("hvc", Some(number)) => consoles(manifest, vm).nth(number).is_some(),
        ("ttyAMA", Some(0_usize)) if vm.console.is_some() => true,
        // A PL011 is always a ttyAMA. Other UARTs have names that their drivers choose.
        _ => vm
            .devices
            .iter()
            .any(|pattern| may_be_uart(pattern) && (kind == "ttyAMA" || !is_pl011(pattern))),
    }
}

/// Names of nodes that are UARTs, or have UARTs below.
const UARTS: [&str; 9] = [
    "pl011", "uart", "serial", "soc", "bus", "axi", "amba", "ahb", "apb",
];

/// Tells whether a pattern may stand for a UART: by the name, or by a star that ends a name.
fn may_be_uart(pattern: &str) -> bool {
    let name = last_name(pattern);
    let is_open = pattern.ends_with('*') && !name.contains('@');
    is_open || UARTS.iter().any(|uart| name.contains(uart))
}

/// Tells whether a pattern stands for PL011s alone.
fn is_pl011(pattern: &str) -> bool {
    last_name(pattern).starts_with("pl011@")
}

/// Returns the last name of a path, with its unit address.
fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Tells whether the VM has a UART where `earlycon=` says, or one whose address is not in the
/// manifest: a node's unit address is the CPU's for nodes of the root alone.
fn has_early_console(vm: &Vm<'_>, options: &str) -> bool {
    let Some(address) = options.split(',').find_map(hexadecimal) else {
        // Without an address Linux takes the UART from the device tree.
        return true;
    };
    // The emulated UART may be used early: its registers answer from the first instruction on.
    let is_own = vm.console.is_some_and(|console| console.ipa == address);
    let is_there = |pattern: &str| {
        let unit = pattern.rsplit_once('@').map(|(_, unit)| unit);
        let unit = unit.and_then(|unit| u64::from_str_radix(unit, 16).ok());
        let is_of_root = pattern.matches('/').count() == 1;
        match unit.filter(|_| is_of_root) {
            Some(unit) => unit == address,
            None => may_be_uart(pattern),
        }
    };
    is_own || vm.devices.iter().any(is_there)
}

/// Reads a number that begins with `0x`.
fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Iterates over the VM's virtio consoles.
fn consoles(manifest: &Manifest<'_>, vm: &Vm<'_>) -> impl Iterator<Item = ()> {
    let devices = manifest.virtio_of(vm.id);
    let of_kind = devices.filter(|(_, device)| device.kind == Some(VirtioKind::Console));
    of_kind.map(drop)
}
