//! Command lines of VMs that run Linux: Linux drops without a word what it cannot use, and a guest
//! whose console does not exist shows nothing at all.
#![cfg(any(test, feature = "host"))]

use super::backends::kernel_words;
use super::error;
use crate::error::{Found, Report, Rule};
use crate::model::{Manifest, Payload, VirtioKind, Vm, VmKind};

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
    for word in kernel_words(cmdline) {
        let console = word.strip_prefix("console=");
        if let Some(name) = console.filter(|name| !has_console(manifest, vm, name)) {
            let place = error(Rule::NoSuchConsole, vm, "cmdline");
            report.error(place.found(Found::Text(name)));
        }
    }
}

/// Tells whether the VM has the console that `console=` names, with its options behind a comma. A
/// VM that owns devices may have any UART, and so may a real-time VM, which has no emulated one.
fn has_console(manifest: &Manifest<'_>, vm: &Vm<'_>, name: &str) -> bool {
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
        _ => vm.kind == VmKind::RealTime || !vm.devices.is_empty(),
    }
}

/// Iterates over the VM's virtio consoles.
fn consoles(manifest: &Manifest<'_>, vm: &Vm<'_>) -> impl Iterator<Item = ()> {
    let devices = manifest.virtio_of(vm.id);
    let of_kind = devices.filter(|(_, device)| device.kind == Some(VirtioKind::Console));
    of_kind.map(drop)
}
