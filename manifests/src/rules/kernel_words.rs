//! Warnings on words of a command line that Linux takes without a word, and not as they are meant:
//! words that a blank or a quote has cut, options for what the VM does not have, and memory that
//! the VM does not have.
//!
//! Source of what Linux reads: Linux, Documentation/admin-guide/kernel-parameters.txt.
#![cfg(any(test, feature = "host"))]

use super::backends::kernel_words;
use super::error;
use crate::error::{Found, Report, Rule};
use crate::model::{Manifest, Payload, VirtioKind, Vm, VmKind};

#[cfg(test)]
mod tests;

/// Size of a huge page by default, which `hugepages=` counts: 2 MiB with pages of 4 KiB.
const HUGE_PAGE: u64 = 2 << 20;
/// Options whose values have no comma, so that a comma before one of them joins two words.
const JOINED: [&str; 8] = [
    ",root=",
    ",console=",
    ",earlycon",
    ",init=",
    ",rdinit=",
    ",quiet",
    ",panic=",
    ",loglevel=",
];

/// Names that people put before a whole command line, as U-Boot's variables and device trees do.
const BEFORE_ALL: [&str; 4] = ["bootargs=", "cmdline=", "append=", "linux="];

/// Options that people write in capitals, as variables of a shell.
const IN_CAPITALS: [&str; 4] = ["root", "console", "init", "rdinit"];

/// Warns of the words of the VM's command line.
pub(super) fn warn<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let Payload::Linux {
        cmdline, initrd, ..
    } = vm.payload
    else {
        return;
    };
    let has_root = kernel_words(cmdline).any(|word| word.starts_with("root="));
    // Without a card, a root file system of the network has a warning of its own.
    let is_told = kernel_words(cmdline).any(|word| word == "root=/dev/nfs");
    let has_card = is_told || may_have_card(manifest, vm);
    // One reason for each word: a cut word is not judged by what it would have meant.
    for word in kernel_words(cmdline) {
        let why = form(word)
            .or_else(|| needless(vm, word))
            .or_else(|| set_up(word).filter(|_| !has_card))
            .or_else(|| without_disk(word, initrd.is_some(), has_root))
            .or_else(|| beyond_memory(vm, word, cmdline));
        if let Some(why) = why {
            report.error(error(Rule::KernelWord, vm, "cmdline").found(Found::Word(word, why)));
        }
    }
    let screens = only_screens(vm, cmdline);
    let screens = screens.then_some("the last console= is a screen, which the VM does not have");
    let lines = cmdline.contains('\n').then_some(
        "a line break is a blank to Linux, and ends the line that programs read of /proc/cmdline",
    );
    let others = open_quote(cmdline).into_iter().chain(screens);
    for why in others.chain(lines) {
        report.error(error(Rule::KernelWord, vm, "cmdline").found(Found::Reason(why)));
    }
}

/// Finds a word that is cut, or that is two.
fn form(word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or(word);
    if BEFORE_ALL.iter().any(|start| word.starts_with(start)) {
        return Some("the options begin without a name before them");
    }
    if let Some((option, _)) = word.split_once(':')
        && matches!(option, "root" | "console" | "init" | "rdinit" | "initrd")
    {
        return Some("an option and its value have an = between them");
    }
    if name == "earlyprintk" {
        return Some("Linux has it on other CPUs; earlycon shows early messages");
    }
    let is_capital = |option: &&str| *name != **option && name.eq_ignore_ascii_case(option);
    let why = match word {
        _ if word.starts_with('=') => "an = with a blank before it belongs to no option",
        "root=" | "console=" => "nothing stands behind its =",
        _ if IN_CAPITALS.iter().any(is_capital) => "options of Linux are in lower case",
        _ if word.starts_with('"') => "Linux takes all between two quotes for one word",
        _ if JOINED.iter().any(|joined| word.contains(joined)) => {
            "a comma does not separate options: blanks do"
        }
        _ if word.starts_with("gearv") && !word.starts_with("gearv.") => {
            "options of GearV's initramfs begin with gearv. and a point"
        }
        _ => return None,
    };
    Some(why)
}

/// Finds a quote that nothing closes. A word that begins with a quote has a reason of its own.
fn open_quote(cmdline: &str) -> Option<&'static str> {
    let is_told = kernel_words(cmdline).any(|word| word.starts_with('"'));
    let is_open = !is_told && !cmdline.matches('"').count().is_multiple_of(2);
    is_open.then_some("the quote has no end: Linux takes all behind it for one word")
}

/// Finds an option for what the VM has none of, or not as many.
fn needless(vm: &Vm<'_>, word: &str) -> Option<&'static str> {
    let count = vm.vcpu_count as u64;
    // Fewer than the VM has: its vCPUs would be scheduled, and never turned on.
    let fewer = ["maxcpus=", "nr_cpus="];
    let fewer = fewer.iter().find_map(|option| value(word, option));
    if fewer.is_some_and(|cpus| cpus < count) {
        return Some("Linux does not use all vCPUs of the VM");
    }
    // Lists of CPUs; flags before the numbers are no numbers, and fall out.
    let listed = ["isolcpus=", "nohz_full=", "rcu_nocbs=", "irqaffinity="];
    let listed = listed.iter().find_map(|option| word.strip_prefix(option));
    if listed.is_some_and(|list| largest(list).is_some_and(|cpu| cpu >= count)) {
        return Some("Linux numbers the vCPUs of the VM from 0 on, not the machine's CPUs");
    }
    // Linux would look for tables, find none, and go on without devices.
    let acpi = matches!(word, "acpi=force" | "acpi=on");
    acpi.then_some("a VM has a device tree and no ACPI tables")
}

/// Tells whether the VM has a network card. Devices of hardware are no guest's, and what other VMs
/// own may be one.
fn may_have_card(manifest: &Manifest<'_>, vm: &Vm<'_>) -> bool {
    let mut devices = manifest.virtio_of(vm.id);
    vm.kind != VmKind::Guest || devices.any(|(_, device)| device.kind == Some(VirtioKind::Net))
}

/// Finds an option that sets up a network card.
fn set_up(word: &str) -> Option<&'static str> {
    // With `none` and `off` Linux sets up nothing.
    let is_off = matches!(word, "ip=none" | "ip=off");
    let sets_up = !is_off && (word.starts_with("ip=") || word.starts_with("gearv.ip="));
    sets_up.then_some("the VM has no network card: a device of type = \"net\" below virtio")
}

/// Returns the largest number of a list such as `2,4-7`.
fn largest(list: &str) -> Option<u64> {
    let numbers = list.split([',', '-']);
    numbers.filter_map(|number| number.parse().ok()).max()
}

/// Finds an option on a disk or an initrd that the VM does not have.
fn without_disk(word: &str, has_initrd: bool, has_root: bool) -> Option<&'static str> {
    match word {
        "noinitrd" if has_initrd => Some("noinitrd has Linux ignore the VM's initrd"),
        _ if word.starts_with("initrd=") => {
            Some("only a boot loader reads initrd=; the initrd property names the file")
        }
        _ if word.starts_with("init=") && has_initrd && !has_root => {
            Some("an initramfs starts what rdinit= names; init= is for a root file system")
        }
        _ => None,
    }
}

/// Finds an option that asks for more memory than the VM has, or that takes it away.
fn beyond_memory(vm: &Vm<'_>, word: &str, cmdline: &str) -> Option<&'static str> {
    let memory = vm.memory.bytes;
    if bytes(word, "mem=").is_some_and(|limit| limit < memory) {
        return Some("mem= leaves memory of the VM unused; memory-mib says how much it has");
    }
    // Linux gives up on a reservation that does not fit, in a line of its log.
    let reserved = ["crashkernel=", "cma="];
    let reserved = reserved.iter().find_map(|option| bytes(word, option));
    // The count is of pages of that size then, and is left alone.
    let has_other_size = kernel_words(cmdline).any(|word| word.contains("hugepagesz="));
    let huge = value(word, "hugepages=").filter(|_| !has_other_size);
    let huge = huge.map(|pages| pages.saturating_mul(HUGE_PAGE));
    let is_beyond = reserved.or(huge).is_some_and(|needed| needed >= memory);
    is_beyond.then_some("the VM does not have as much memory")
}

/// Reads the number behind an option.
fn value(word: &str, option: &str) -> Option<u64> {
    word.strip_prefix(option)?.parse().ok()
}

/// Reads a size behind an option, with the letters that Linux's `memparse` takes.
fn bytes(word: &str, option: &str) -> Option<u64> {
    let text = word.strip_prefix(option)?;
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let shift = match rest.chars().next() {
        None | Some('@' | ',') => 0,
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        Some(_) => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Tells whether Linux's /dev/console of a guest is a screen, and so shows nothing.
fn only_screens(vm: &Vm<'_>, cmdline: &str) -> bool {
    let consoles = kernel_words(cmdline).filter_map(|word| word.strip_prefix("console="));
    // `tty0` and `tty` are the screen; `ttyAMA0` and others go on with letters.
    let is_screen = |name: &str| {
        name.strip_prefix("tty")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
    };
    vm.kind == VmKind::Guest && consoles.last().is_some_and(is_screen)
}
