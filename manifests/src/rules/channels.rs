//! Rules on the doorbells between VMs (`/channels`).
//!
//! A real-time VM's CPU takes no lock of another VM's, and no other CPU takes the lock of a
//! real-time VM. A doorbell between the two is therefore an interrupt of the machine's, which needs
//! neither: the receiver has to have the machine's interrupt controller.

use super::{is_name, shared};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{MIN_INTERVAL_US, SHARED_INTIDS};
use crate::model::{Channel, GicMode, Manifest, Region, Vm, VmKind};
use crate::nearest::nearest;
use crate::{ADDRESS_LIMIT, SharedMemory};

#[cfg(test)]
mod tests;

/// Returns the node of a channel.
fn path<'a>(channel: &Channel<'a>) -> NodePath<'a> {
    NodePath::ROOT.child("channels").child(channel.name)
}

/// Makes an error at a property of a channel.
fn error<'a>(rule: Rule, channel: &Channel<'a>, property: &'static str) -> ManifestError<'a> {
    ManifestError::at_property(rule, path(channel), property)
}

/// Judges what needs no machine; `complete` says that no VM was left out. A channel without an end
/// has its message; what follows from the end is not judged.
pub(super) fn check<'a>(manifest: &Manifest<'a>, complete: bool, report: &mut Report<'_, 'a>) {
    for (place, channel) in manifest.channels.iter().enumerate() {
        if !is_name(channel.name) {
            report.error(ManifestError::at(Rule::ChannelName, path(channel)));
        }
        // Nobody but Gear2 rings a power button.
        let from = if channel.power_button {
            None
        } else {
            find_vm(manifest, channel, ("from", channel.from), complete, report)
        };
        let to = find_vm(manifest, channel, ("to", channel.to), complete, report);
        check_ends(manifest, place, channel, (from, to), report);
        if let (Some(_), Some(_)) = (from, to) {
            check_memory(manifest, channel, complete, report);
        }
        if let (true, Some(to)) = (channel.power_button, to) {
            check_button(manifest, place, channel, to, report);
        }
        check_range(channel, report);
    }
}

/// Judges a power button of `to`, beside the channels before its place in the list.
fn check_button<'a>(
    manifest: &Manifest<'a>,
    place: usize,
    channel: &Channel<'a>,
    to: &Vm<'a>,
    report: &mut Report<'_, 'a>,
) {
    let mut before = manifest.channels.iter().take(place);
    let place = |rule| error(rule, channel, "to").found(Found::Text(to.name));
    // planted: a VM has two power buttons
    if let Some(other) = before.find(|other| other.power_button && other.to == to.name) {
        report.error(place(Rule::SecondButton).conflicts(path(other)));
    }
    if to.kind == VmKind::Device {
        report.error(place(Rule::DeviceButton).conflicts(NodePath::vm(to.name)));
    } else if to.kind == VmKind::RealTime && to.gic != GicMode::PassThrough {
        report.error(place(Rule::RingsEmulated).conflicts(NodePath::vm(to.name)));
    }
}

/// Judges the channel that Gear2 rings when `vm` has ended by itself.
pub(super) fn check_tells<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let Some(name) = vm.tells else { return };
    let own = || manifest.channels.iter().filter(|one| one.from == vm.name);
    // planted: Gear2 rings another VM's channel
    if own().all(|channel| channel.name != name) {
        let place = super::error(Rule::TellsNobody, vm, "tells").found(Found::Text(name));
        report.error(place.near(nearest(name, own().map(|channel| channel.name))));
    }
}

/// Judges a channel with the ends that it has, beside the channels before its place in the list.
fn check_ends<'a>(
    manifest: &Manifest<'a>,
    place: usize,
    channel: &Channel<'a>,
    (from, to): (Option<&Vm<'a>>, Option<&Vm<'a>>),
    report: &mut Report<'_, 'a>,
) {
    let before = || manifest.channels.iter().take(place);
    if let Some(from) = from {
        check_address(manifest, channel, from, before(), report);
    }
    if let Some(to) = to {
        check_interrupt(manifest, channel, to, before(), report);
    }
    if let (Some(from), Some(to)) = (from, to) {
        check_pair(channel, from, to, report);
    }
}

/// Returns the VM that a property names.
fn find_vm<'m, 'a>(
    manifest: &'m Manifest<'a>,
    channel: &Channel<'a>,
    (property, name): (&'static str, &'a str),
    complete: bool,
    report: &mut Report<'_, 'a>,
) -> Option<&'m Vm<'a>> {
    let vm = manifest.vm_named(name);
    // A VM that rings itself means another: it could set its own interrupt without an exit.
    let is_itself = property == "to" && channel.from == name;
    // A VM that was left out for its own errors may be the one that is named.
    if is_itself || vm.is_none() && (complete || name.is_empty()) {
        let near = nearest(name, manifest.vms.iter().map(|vm| vm.name)).filter(|_| !is_itself);
        let place = error(Rule::ChannelVm, channel, property).near(near);
        report.error(match name {
            "" => place,
            name => place.found(Found::Text(name)),
        });
        return None;
    }
    vm
}

/// Judges whether one VM can ring the other.
fn check_pair<'a>(channel: &Channel<'a>, from: &Vm<'a>, to: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let is_real_time = |vm: &Vm<'_>| vm.kind == VmKind::RealTime;
    let place = |rule, property, vm: &Vm<'a>| {
        error(rule, channel, property)
            .found(Found::Text(vm.name))
            .conflicts(NodePath::vm(vm.name))
    };
    // In the order of what has to change first: without a way to interrupt, no interval matters.
    if is_real_time(to) && to.gic != GicMode::PassThrough {
        report.error(place(Rule::RingsEmulated, "to", to));
    } else if is_real_time(from) && !is_real_time(to) {
        report.error(place(Rule::RealTimeRings, "to", to));
    } else if is_real_time(to) && channel.min_interval_us.is_none() {
        report.error(error(Rule::NoInterval, channel, "min-interval-us"));
    }
    // Beside the rest, because the sender is at fault here, and the receiver there.
    check_timer(channel, from, report);
}

/// Refuses an interval of a sender whose CPU has no timer of Gear1's to wait with: a real-time VM
/// with the machine's interrupt controller.
fn check_timer<'a>(channel: &Channel<'a>, from: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let interval = channel.min_interval_us.unwrap_or(0);
    let has_no_timer = from.kind == VmKind::RealTime && from.gic == GicMode::PassThrough;
    if has_no_timer && interval != 0 {
        let place = error(Rule::NoTimer, channel, "min-interval-us");
        let place = place.found(Found::Number(interval.into()));
        report.error(place.conflicts(NodePath::vm(from.name)));
    }
}

/// Judges the interval, in microseconds: ticks of it have to fit into 64 bits at any frequency.
fn check_range<'a>(channel: &Channel<'a>, report: &mut Report<'_, 'a>) {
    if let Some(interval) = channel.min_interval_us
        && !MIN_INTERVAL_US.contains(&interval)
    {
        let place = error(Rule::OutOfRange, channel, "min-interval-us");
        report.error(place.found(Found::Us(interval)));
    }
}

/// Judges whether both VMs have the memory: each finds it in the node of its channel.
fn check_memory<'a>(
    manifest: &Manifest<'a>,
    channel: &Channel<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let Some(name) = channel.memory else { return };
    // The node that has all memories may be the misspelled one.
    if manifest.shared.is_empty() && !complete {
        return;
    }
    let has_both = |shared: &SharedMemory<'_>| {
        let mut ends = [channel.from, channel.to].into_iter();
        ends.all(|vm| shared.access(vm).is_some())
    };
    // A name that exists needs no similar one: the memory lacks a VM.
    let memory = manifest.memory_of(channel);
    if !memory.is_some_and(has_both) {
        let names = manifest.shared.iter().map(|shared| shared.name);
        let near = nearest(name, names).filter(|_| memory.is_none());
        let place = error(Rule::ChannelMemory, channel, "memory").found(Found::Text(name));
        report.error(place.near(near));
    }
}

/// Judges where `from` is to see the doorbell; `before` are the channels ahead in the file.
fn check_address<'a: 'm, 'm>(
    manifest: &'m Manifest<'a>,
    channel: &Channel<'a>,
    from: &Vm<'a>,
    before: impl Iterator<Item = &'m Channel<'a>>,
    report: &mut Report<'_, 'a>,
) {
    // An address that is left out follows from the channel's place, and can be in the way, too.
    let found = Found::Number(channel.ipa);
    let place = |rule| error(rule, channel, "address").found(found);
    if !channel.ipa.is_multiple_of(Channel::PAGE) || channel.ipa >= ADDRESS_LIMIT {
        report.error(place(Rule::DoorbellAddress));
        return;
    }
    let page = channel.doorbell();
    let overlaps = |region: Region| region.overlaps(&page);
    // Only of the same sender: doorbells of two VMs may lie at one address, each in its own.
    let mut others = before.filter(|other| other.from == from.name);
    // With the 2 MiB that describe it to Linux, which the VM sees as well.
    let memory = manifest.shared_of(from).map(SharedMemory::with_lead);
    // planted: a doorbell hides memory
    let mut seen = shared::seen_by(manifest, from).chain(memory);
    // Another doorbell first: that is the clash of two lines that stand side by side.
    if let Some(other) = others.find(|other| overlaps(other.doorbell())) {
        report.error(place(Rule::DoorbellOverMemory).conflicts(path(other)));
    } else if seen.any(overlaps) {
        report.error(place(Rule::DoorbellOverMemory).conflicts(NodePath::vm(from.name)));
    }
}

/// Judges the interrupt of `to`; `before` are the channels ahead in the file. VMs with pass-through
/// have the machine's interrupts, of which each has one owner.
fn check_interrupt<'a: 'm, 'm>(
    manifest: &'m Manifest<'a>,
    channel: &Channel<'a>,
    to: &Vm<'a>,
    before: impl Iterator<Item = &'m Channel<'a>>,
    report: &mut Report<'_, 'a>,
) {
    let found = Found::Number(channel.intid.into());
    let place = |rule| error(rule, channel, "interrupt").found(found);
    if !SHARED_INTIDS.contains(&channel.intid) {
        report.error(place(Rule::ChannelInterrupt));
        return;
    }
    let is_physical = |vm: &Vm<'_>| vm.gic == GicMode::PassThrough;
    let has_it = |other: &&Channel<'_>| {
        let vm = manifest.vm_named(other.to);
        // The machine has each interrupt once; a virtual distributor is each VM's own.
        let both_physical = is_physical(to) && vm.is_some_and(is_physical);
        // planted: two doorbells have one interrupt
        other.intid == channel.intid && (other.to == to.name || both_physical)
    };
    let console = to.console.map(|console| console.intid);
    let watchdog = to.watchdog().map(|watchdog| watchdog.intid);
    let mut virtio = manifest.virtio_of(to.id);
    if let Some(other) = { before }.find(has_it) {
        report.error(place(Rule::ChannelInterruptTaken).conflicts(path(other)));
    } else if console == Some(channel.intid) {
        let console = NodePath::vm(to.name).child("console");
        report.error(place(Rule::ChannelInterruptTaken).conflicts(console));
    } else if watchdog == Some(channel.intid) {
        report.error(place(Rule::ChannelInterruptTaken).conflicts(NodePath::vm(to.name)));
    } else if virtio.any(|(_, device)| device.intid() == channel.intid) {
        let virtio = NodePath::vm(to.name).child("virtio");
        report.error(place(Rule::ChannelInterruptTaken).conflicts(virtio));
    }
}

/// Judges whether the machine has something where `from` is to see the doorbell: `may_be_taken`
/// tells of a range of a VM's.
pub(super) fn check_on<'a>(
    manifest: &Manifest<'a>,
    may_be_taken: impl Fn(&Vm<'_>, Region) -> bool,
    report: &mut Report<'_, 'a>,
) {
    for channel in manifest.channels.iter() {
        let from = manifest.vm_named(channel.from);
        if from.is_some_and(|from| may_be_taken(from, channel.doorbell())) {
            let place = error(Rule::DoorbellOverMemory, channel, "address");
            report.error(place.found(Found::Number(channel.ipa)));
        }
    }
}
