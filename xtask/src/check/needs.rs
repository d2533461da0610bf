//! Resources that the devices of a VM need from other nodes: clocks, resets, power domains and the
//! like.
//!
//! A Linux driver waits for the suppliers that its node refers to, and a node that is not the VM's
//! is disabled in the VM's tree. A flat binary may well use a device that firmware has set up, so
//! its suppliers may be nobody's. Another VM's they may not be: that VM can turn the device's clock
//! or power off, and Linux does so with clocks that none of its own devices uses.
//!
//! What is found is a warning: a driver may do without, and firmware may have left a clock running.
//! The bindings are Linux'; a property that is not in [`LISTS`] is not followed.

use gear1_init::refusal::Fault;
use gearv_manifest::blob::{Blob, Node};
use gearv_manifest::{Manifest, Payload, Rule, Vm};

/// Properties that list nodes, each followed by the number of cells that the named property of that
/// node gives.
const LISTS: &[(&str, &str)] = &[
    ("clocks", "#clock-cells"),
    ("resets", "#reset-cells"),
    ("power-domains", "#power-domain-cells"),
    ("phys", "#phy-cells"),
    ("dmas", "#dma-cells"),
    ("mboxes", "#mbox-cells"),
];
/// Compatible strings of suppliers without registers, of which every VM has a copy. A copy in each
/// VM's tree harms nobody, since there is nothing to write to.
const FIXED: &[&str] = &["fixed-clock", "fixed-factor-clock", "regulator-fixed"];
/// Compatible strings of clocks that tell the time of day, on the boards that are here. Clocks
/// behind a bus, such as I2C, have a node of their own kind each, and are not known here.
const CLOCKS: &[&str] = &["arm,pl031", "xlnx,zynqmp-rtc"];

/// Returns the missing suppliers, once for each device and each node that it needs.
pub(super) fn missing(manifest: &Manifest<'_>, tree: &Blob<'_>) -> Vec<Fault> {
    let owners = manifest.vms.iter().filter(|vm| !vm.devices.is_empty());
    let mut nodes = Vec::new();
    flatten(&tree.root(), "", &mut nodes);
    owners.flat_map(|vm| of_vm(manifest, vm, &nodes)).collect()
}

/// Returns what is wrong where guests show the clock of a device VM that owns none, and the board
/// has one that nobody owns. A board without a clock has its time from the network.
pub(super) fn clock(manifest: &Manifest<'_>, tree: &Blob<'_>) -> Option<Fault> {
    let server = manifest.device_vm()?;
    manifest.vms.iter().find(|vm| vm.rtc.is_some())?;
    let mut nodes = Vec::new();
    flatten(&tree.root(), "", &mut nodes);
    let is_disabled = |node: &Node<'_>| {
        let status = node.property("status");
        status.is_some_and(|status| status.value == b"disabled\0")
    };
    let clocks = nodes
        .iter()
        .filter(|(_, node)| is_one_of(node, CLOCKS) && !is_disabled(node));
    let clocks: Vec<&str> = clocks.map(|(path, _)| path.as_str()).collect();
    if clocks.iter().any(|path| server.devices.owns(path)) {
        return None;
    }
    let owned = |path: &&str| manifest.vms.iter().any(|vm| vm.devices.owns(path));
    let free = clocks.into_iter().find(|path| !owned(path))?;
    let why = format!("guests have an rtc node, and {free} is not in devices");
    Some(Fault::new(Rule::CannotServe, server.name, "devices", why))
}

/// The path is kept, as a node does not know its parents.
type Found<'t> = (String, Node<'t>);

/// Searches by phandle go over all nodes, so a list is made once.
fn flatten<'t>(node: &Node<'t>, path: &str, nodes: &mut Vec<Found<'t>>) {
    for child in node.children() {
        let path = format!("{path}/{}", child.name());
        nodes.push((path.clone(), child));
        flatten(&child, &path, nodes);
    }
}

/// Devices of one VM: to a kernel, what nobody owns is missing too.
fn of_vm(manifest: &Manifest<'_>, vm: &Vm<'_>, nodes: &[Found<'_>]) -> Vec<Fault> {
    let has_kernel = matches!(vm.payload, Payload::Linux { .. });
    let owner = |path| manifest.vms.iter().find(|other| other.devices.owns(path));
    let mut faults: Vec<Fault> = Vec::new();
    for (path, node) in nodes.iter().filter(|(path, _)| vm.devices.owns(path)) {
        let waits = has_kernel && !is_as_booted(manifest, path);
        for (property, cells) in LISTS {
            for (needed, other) in targets(node, property, cells, nodes) {
                let is_there = vm.devices.owns(needed) || is_one_of(other, FIXED);
                let owner = owner(needed).map(|owner| owner.name.to_owned());
                let is_missing = !is_there && (waits || owner.is_some());
                let why = format!("{path}: it needs {needed}");
                if is_missing && !faults.iter().any(|known| known.found == why) {
                    faults.push(Fault {
                        other: owner,
                        ..Fault::new(Rule::NeedsOther, vm.name, "devices", why)
                    });
                }
            }
        }
    }
    faults
}

/// Tells whether the device at `path`, or one above it, is used as firmware left it: its driver
/// waits for nothing then. What another VM can turn off, it turns off all the same.
fn is_as_booted(manifest: &Manifest<'_>, path: &str) -> bool {
    let mut kept = manifest.as_booted.iter();
    kept.any(|kept| {
        let rest = path.strip_prefix(kept.device);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Returns the nodes that a list of references names; what follows one that is not there is not
/// understood.
fn targets<'n, 't>(
    node: &Node<'t>,
    property: &str,
    cells: &str,
    nodes: &'n [Found<'t>],
) -> Vec<(&'n str, &'n Node<'t>)> {
    let list = node.property(property).and_then(|list| list.cells());
    let Some(mut list) = list else {
        return Vec::new();
    };
    let mut found = Vec::new();
    while let Some(phandle) = list.next() {
        let named = |(_, node): &&Found<'_>| cell(node, "phandle") == Some(phandle);
        let Some((path, target)) = nodes.iter().find(named) else {
            break;
        };
        found.push((path.as_str(), target));
        for _ in 0..cell(target, cells).unwrap_or(0) {
            list.next();
        }
    }
    found
}

/// Tells whether a node is compatible with one of `all`. `compatible` is a list of strings, each
/// with its zero.
fn is_one_of(node: &Node<'_>, all: &[&str]) -> bool {
    let names = node
        .property("compatible")
        .map_or(&[][..], |names| names.value);
    let mut names = names.split(|byte| *byte == 0);
    names.any(|name| all.iter().any(|one| one.as_bytes() == name))
}

/// The first cell of a property. Phandles and numbers of cells have one.
fn cell(node: &Node<'_>, name: &str) -> Option<u32> {
    node.property(name)?.cells()?.next()
}
