//! Warnings on the systems that xtask makes: which VM each initial RAM disk is for, and the
//! addresses that they take on the device VM's network.
//!
//! The manifest's reader knows neither artifacts nor the words of a command line that are theirs.
//! Only what an artifact certainly does is warned of.

use gearv_manifest::{
    Found, Manifest, ManifestError, NodePath, Payload, Rule, VirtioKind, Vm, VmKind,
};

use super::ARTIFACT_PREFIX;
use super::has_virtio;
use crate::artifact::{Artifact, Use};
use crate::network;

/// The prefix of the network that the device VM and its guests share, and its length as the scripts
/// of the userlands take it. The device VM's bridge and QEMU's user network share it.
const NETWORK: (&str, &str) = ("10.0.2.", "24");

/// Address of a guest whose command line names none, with the length of its prefix. The script of
/// the guests' userland has the same.
const DEFAULT: &str = "10.0.2.101/24";

/// Takes each warning. The rules' own form, so that these warnings look like theirs.
type Sink<'s, 'a> = &'s mut dyn FnMut(ManifestError<'a>);

/// Warns of userlands in VMs that they are not made for. Two guests of one address answer for each
/// other, and only packets that get lost tell.
pub fn warn<'a>(manifest: &Manifest<'a>, sink: Sink<'_, 'a>) {
    let mut before: Vec<(&str, NodePath<'a>)> = Vec::new();
    for vm in manifest.vms.iter() {
        if let Some((initrd, used)) = artifact(vm) {
            judge_initrd(manifest, vm, (initrd, used), sink);
        }
        judge_root(vm, sink);
        let Some(words) = words(manifest, vm) else {
            continue;
        };
        let address = judge_address(vm, words, sink);
        match before.iter().find(|(other, _)| *other == address) {
            Some((_, other)) => {
                sink(place(Rule::SameAddress, vm, "cmdline", words).conflicts(*other));
            }
            None => before.push((address, NodePath::vm(vm.name))),
        }
    }
}

/// Shortens the callers.
fn place<'a>(rule: Rule, vm: &Vm<'a>, property: &'static str, text: &'a str) -> ManifestError<'a> {
    ManifestError::at_property(rule, NodePath::vm(vm.name), property).found(Found::Text(text))
}

/// Returns the artifact that is the VM's initial RAM disk, and what it is for. A file of a person's
/// own is never judged here.
fn artifact<'a>(vm: &Vm<'a>) -> Option<(&'a str, Use)> {
    let Payload::Linux { initrd, .. } = vm.payload else {
        return None;
    };
    let name = initrd?;
    let artifact = Artifact::named(name.strip_prefix(ARTIFACT_PREFIX)?)?;
    Some((name, artifact.used_as()))
}

/// Warns of a Linux that is given no root file system: its kernel panics at the end of its boot.
fn judge_root<'a>(vm: &Vm<'a>, sink: Sink<'_, 'a>) {
    let Payload::Linux {
        kernel,
        initrd: None,
        cmdline,
    } = vm.payload
    else {
        return;
    };
    // The programs for VMs have a kernel's header too.
    let named = kernel.strip_prefix(ARTIFACT_PREFIX);
    let artifact = named.and_then(Artifact::named);
    let used = artifact.map(|artifact| artifact.used_as());
    let has_root = cmdline
        .split_whitespace()
        .any(|word| word.starts_with("root="));
    let place = ManifestError::at(Rule::NoRoot, NodePath::vm(vm.name));
    match used {
        // Debian's kernels have the drivers of disks as modules, which an initrd has to bring.
        Some(Use::Kernel) => {
            let why = "this kernel's drivers of disks are modules, which an initrd loads";
            sink(place.found(Found::Reason(why)));
        }
        None if !has_root => sink(place),
        _ => {}
    }
}

/// Warns of an initial RAM disk that misses what its system looks for. A guest in the device VM's
/// userland starts a device model without devices.
fn judge_initrd<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    (initrd, used): (&'a str, Use),
    sink: Sink<'_, 'a>,
) {
    let serves = vm.kind == VmKind::Device && manifest.virtio_vms().next().is_some();
    let is_other = match used {
        Use::DeviceInitrd => vm.kind != VmKind::Device,
        Use::DiskInitrd => !has_virtio(manifest, vm, VirtioKind::Block),
        Use::Initrd => serves,
        Use::AnyInitrd | Use::Kernel | Use::Flat | Use::Gear2 => false,
    };
    if is_other {
        sink(place(Rule::OtherInitrd, vm, "initrd", initrd));
    }
}

/// Returns the address, with the length of its prefix, that a guest's userland takes; `None`: the
/// guest has no network card, or a system that may take any. Systems other than ours take addresses
/// by ways of their own.
fn words<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>) -> Option<&'a str> {
    let Payload::Linux { cmdline, .. } = vm.payload else {
        return None;
    };
    let mut words = cmdline.split_whitespace();
    let named = words.find_map(|word| word.strip_prefix(network::ADDRESS_OPTION));
    let is_ours = artifact(vm).is_some_and(|(_, used)| used == Use::DiskInitrd);
    let address = named.or(is_ours.then_some(DEFAULT))?;
    has_virtio(manifest, vm, VirtioKind::Net).then_some(address)
}

/// Judges a guest's address, and returns it without the length of its prefix. 0 and 255 name the
/// network.
fn judge_address<'a>(vm: &Vm<'a>, words: &'a str, sink: Sink<'_, 'a>) -> &'a str {
    let (start, length) = NETWORK;
    let (address, prefix) = words.split_once('/').unwrap_or((words, ""));
    let number = address.strip_prefix(start);
    let number = number.and_then(|number| number.parse::<u8>().ok());
    let is_a_guests = matches!(number, Some(1..=254)) && address != network::DEVICE_VM;
    if !is_a_guests || prefix != length {
        sink(place(Rule::NoGuestAddress, vm, "cmdline", words));
    }
    address
}

#[cfg(test)]
mod tests;
