//! Repairs: what to write in place of a mistake, as exactly as the mistake allows.
//!
//! A rule has one repair for all that break it. What people write from the habit of other formats
//! has one of its own here, since no edit distance leads from `bootargs` to `cmdline`.
//!
//! The text of a repair is the first that exists of these, from the most exact to the least:
//!
//! 1. what the property takes, with an example ([`expected`]);
//! 2. a sentence on a habit, such as a property that stands in another node;
//! 3. a sentence made from what stands there, such as a list in one string;
//! 4. the names that are allowed at that place;
//! 5. the rule's own repair.

use gearv_manifest::binding::{VM_NODES, VM_PROPERTIES};
use gearv_manifest::{Found, ManifestError, Rule};

use super::expected;

/// Names of device trees, virtual machine monitors and other formats, and the binding's. Each is a
/// word of libvirt, QEMU, Xen, Docker, systemd or device trees for the same thing.
const SYNONYMS: &[(&str, &str)] = &[
    // QEMU and boot loaders: the command line, the files and the memory of a kernel.
    ("append", "cmdline"),
    ("args", "cmdline"),
    ("binary", "image"),
    ("bootargs", "cmdline"),
    ("command-line", "cmdline"),
    // Xen's credit scheduler, cgroups and systemd.
    ("cap", "cap-percent"),
    ("cores", "vcpus"),
    ("cpu-shares", "weight"),
    // Plural and singular, and words of libvirt and of device trees, for devices and interrupts.
    ("device", "devices"),
    ("file", "backend"),
    ("firmware", "image"),
    ("initramfs", "initrd"),
    ("interrupts", "interrupt"),
    ("irq", "interrupt"),
    ("local-mac-address", "mac"),
    ("mac-address", "mac"),
    // Memory without its unit.
    ("mem", "memory-mib"),
    ("memory", "memory-mib"),
    ("memory-mb", "memory-mib"),
    ("memory-size", "memory-mib"),
    // Scheduling of POSIX and of Linux' SCHED_DEADLINE, and names that other monitors give to what
    // a device or a VM has.
    ("path", "backend"),
    ("nice", "priority"),
    ("peers", "ffa-peers"),
    ("ram", "memory-mib"),
    ("ramdisk", "initrd"),
    ("readonly", "read-only"),
    ("ro", "read-only"),
    ("runtime-us", "budget-us"),
    ("shares", "weight"),
    ("size", "size-mib"),
    ("smp", "vcpus"),
    ("type", "kind"),
    ("writers", "vms"),
];

/// Names that are no misspelling of one of the binding's, and what to write instead. The whole
/// sentence is the repair, since there is nothing to replace the name with.
const HABITS: &[(&str, &str)] = &[
    (
        // VMs start by default here, and stay off by default in libvirt.
        "autostart",
        "a VM starts with the machine: write no-autostart; for one that does not, or remove it",
    ),
    ("baud", "remove it: an emulated UART takes every rate"),
    (
        "phandle",
        "dtc adds it to a node that a value refers to by its label: write a number or a name there",
    ),
    ("dtb", "remove it: xtask writes the device tree of each VM"),
    (
        "load-address",
        "write load-offset, which counts from the start of the VM's memory: load-offset = <0x80000>;",
    ),
    (
        // Device trees of boards have all addresses in it.
        "reg",
        "write memory-mib for a VM's memory, and address for a console or shared memory",
    ),
    (
        "scheduler",
        "write it in /gear2, or in a pool below /gear2/pools: it holds for all VMs there",
    ),
    (
        "slice-us",
        "write it in /gear2, or in a pool below /gear2/pools: it holds for all VMs there",
    ),
    (
        "balancer",
        "write it in /gear2, or in a pool below /gear2/pools: it holds for all VMs there",
    ),
    (
        // How device trees of boards switch a node off.
        "status",
        "remove it; no-autostart; keeps a VM from starting with the machine",
    ),
    (
        // The binding fixes both, because a manifest describes no bus.
        "#address-cells",
        "remove it: an address is one cell, or two of which the first is the upper half",
    ),
    ("#size-cells", "remove it: sizes are in MiB, in one cell"),
];

/// Nodes at the wrong place, and where they belong. The names are right, so that a suggestion of
/// another name would be wrong.
const MISPLACED: &[(&str, &str)] = &[
    (
        "block",
        "write it below the node virtio of the VM: virtio { NAME { type = ...; }; };",
    ),
    ("chosen", "remove it: each VM has a cmdline of its own"),
    (
        "disk",
        "write it below the node virtio of the VM: virtio { disk { type = \"block\"; ... }; };",
    ),
    ("gear2", "write it below the root, beside vms"),
    ("channels", "write it below the root, beside vms"),
    ("memory", "write memory-mib = <N>; in the VM"),
    (
        "net",
        "write it below the node virtio of the VM: virtio { net { type = \"net\"; ... }; };",
    ),
    (
        "pool",
        "write it below the node pools of /gear2: pools { NAME { cpus = <...>; }; };",
    ),
    ("pools", "write it in /gear2"),
    ("shared-memory", "write it below the root, beside vms"),
    ("virtio", "write it in the VM that has the devices"),
    (
        "window",
        "write it below the node windows of /gear2 or of a pool: windows { NAME { ... }; };",
    ),
    (
        "windows",
        "write it in /gear2, or in a pool below /gear2/pools",
    ),
];

/// Says how to repair, with what the property takes where that is the question. A rule's own repair
/// is the last resort: one text for all that break the rule names neither the property nor the
/// value that stands there.
pub(super) fn text(error: &ManifestError<'_>) -> String {
    exact(error).unwrap_or_else(|| error.rule.repair().to_owned())
}

/// Rules on types and ranges get the property's row; unknown names get a habit or the list of what
/// is allowed. A habit goes first, since who writes a word of another format looks for the same
/// thing, and would have to find it in a list of forty names.
fn exact(error: &ManifestError<'_>) -> Option<String> {
    let node = error.node.to_string();
    let name = node.rsplit('/').next().unwrap_or_default();
    let is_shared = node.starts_with("/shared-memory");
    match error.rule {
        Rule::WrongType | Rule::OutOfRange | Rule::UnknownValue => {
            let property = error.property;
            property.and_then(|property| expected::value(&node, property))
        }
        Rule::UnknownProperty => error
            .property
            .and_then(|property| instead_of_property(&node, property))
            .or_else(|| expected::names(&node, false)),
        Rule::UnknownNode => {
            let parent = node.rsplit_once('/').map_or("", |(parent, _)| parent);
            instead_of_node(parent, name).or_else(|| expected::names(parent, true))
        }
        Rule::NotMemory | Rule::MemoryReserved if is_shared => Some(
            "place it, and the 2 MiB before it that describe it, in free memory of one bank".into(),
        ),
        Rule::MemoryLimit if error.property == Some("memory-mib") => {
            expected::value(&node, "memory-mib")
        }
        Rule::DeviceStays if says(error, "emulated console") => {
            Some("take it out of devices, or remove the VM's node console".into())
        }
        Rule::NoPayload => below_vms(name),
        Rule::DevicePath => path_of_device(error),
        Rule::VhostCommand => words_of_command(error),
        _ => one_for_each(error),
    }
}

/// Says how the path of a device is written that lacks its slash. What has no unit address is
/// probably none of a node.
fn path_of_device(error: &ManifestError<'_>) -> Option<String> {
    match error.found {
        Found::Text(text) if text.contains('@') && !text.starts_with('/') => Some(format!(
            "write the whole path, from the root on: \"/{text}\""
        )),
        _ => one_for_each(error),
    }
}

/// Says how a command is written whose options stand in the program's name. GDM starts the program
/// without a shell, which would split the text at its blanks.
fn words_of_command(error: &ManifestError<'_>) -> Option<String> {
    let Found::Text(text) = error.found else {
        return None;
    };
    let words = text.split_whitespace().map(|word| format!("\"{word}\""));
    let words: Vec<String> = words.collect();
    let has_options = text.contains(" -");
    has_options.then(|| format!("write a string for each word: {}", words.join(", ")))
}

/// Says where a node belongs that stands among the VMs, and so is one: most have a name that no VM
/// would be given. A node below /vms is a VM by its place, whatever the author meant.
fn below_vms(name: &str) -> Option<String> {
    let place = if VM_NODES.contains(&name) {
        format!("{name} is a node of a VM: write it between the braces of that VM")
    } else {
        habit(MISPLACED, name)?
    };
    Some(format!(
        "{place}; a VM of this name needs a kernel or an image"
    ))
}

/// Tells whether the reason names `what`. init's reasons are texts, of which one part decides.
fn says(error: &ManifestError<'_>, what: &str) -> bool {
    matches!(error.found, Found::Reason(reason) if reason.contains(what))
}

/// Says how a list of strings is written, where one string has several names. Other formats
/// separate lists by commas within one string. Commas, blanks and semicolons are taken for
/// separators: no name of a VM has one.
fn one_for_each(error: &ManifestError<'_>) -> Option<String> {
    let is_list = matches!(
        error.rule,
        Rule::SharedVm | Rule::UnknownPeer | Rule::NoSuchDevice | Rule::DevicePath
    );
    let Found::Text(text) = error.found else {
        return None;
    };
    let names = text.split([',', ' ', ';']).filter(|name| !name.is_empty());
    // The name of a device's type has a comma too, and is no list of paths.
    let are_paths = matches!(error.rule, Rule::NoSuchDevice | Rule::DevicePath);
    let is_list = is_list
        && names
            .clone()
            .all(|name| !are_paths || name.starts_with('/'));
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let is_several = is_list && names.len() > 1;
    is_several.then(|| format!("write one string for each: {}", names.join(", ")))
}

/// Says what to write for a property that is none of the binding's. `console;` instead of `console
/// { };` is a mistake of its own: dtc takes both, and a device with defaults alone has nothing to
/// stand between its braces.
fn instead_of_property(node: &str, property: &str) -> Option<String> {
    if is_vm(node) && VM_NODES.contains(&property) {
        return Some(format!("{property} is a node: write {property} {{ }};"));
    }
    habit(HABITS, property)
}

/// Says what to write for a node that is none of the binding's. A node below `console` or `virtio`
/// may be a device that belongs one step up.
fn instead_of_node(parent: &str, name: &str) -> Option<String> {
    let above = parent.rsplit('/').next().unwrap_or_default();
    if is_vm(parent) && VM_NODES.contains(&above) {
        return below_vms(above);
    }
    if is_vm(parent) && VM_PROPERTIES.contains(&name) {
        return expected::value(parent, name).map(|value| format!("{name} is a property: {value}"));
    }
    habit(MISPLACED, name)
}

/// Returns the sentence for a name. Tables are short, and read once a mistake: a map would gain
/// nothing.
fn habit(table: &[(&str, &str)], name: &str) -> Option<String> {
    let found = table.iter().find(|(wrong, _)| *wrong == name);
    found.map(|(_, instead)| (*instead).to_owned())
}

/// Tells whether this is the path of a VM. Nodes deeper have other names.
fn is_vm(node: &str) -> bool {
    let name = node.strip_prefix("/vms/");
    name.is_some_and(|name| !name.contains('/'))
}

/// Returns the name that was probably meant: the one that means the same here, or the one that is
/// spelled most like it. A synonym counts only if the node may have the property; a habit's
/// sentence replaces any suggestion. A habit's sentence and a suggestion beside each other would
/// contradict one another.
pub(super) fn nearest<'a>(error: &ManifestError<'a>) -> Option<&'a str> {
    match (error.rule, error.property) {
        (Rule::UnknownProperty, Some(property)) => {
            let node = error.node.to_string();
            let same = SYNONYMS.iter().find(|(other, _)| *other == property);
            let same = same.map(|(_, name)| *name);
            let same = same.filter(|name| expected::has_property(&node, name));
            match instead_of_property(&node, property) {
                Some(_) => None,
                None => same.or(error.nearest),
            }
        }
        _ if one_for_each(error).is_some() => None,
        _ => error.nearest,
    }
}

#[cfg(test)]
mod tests;
