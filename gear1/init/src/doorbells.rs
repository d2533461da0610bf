//! Doorbells between VMs (`/channels`): the stores that ring, the interrupts that follow, and the
//! nodes that tell a VM with devices of them. xtask writes the nodes of all other VMs.
//!
//! Invariants: nothing is mapped at a doorbell's page, so that each store traps; an interrupt has
//! no other source. A receiver with the machine's interrupt controller gets an interrupt of the
//! machine that no device has, as if a device of its own had it.
//!
//! Requirements: G1-CHN-004, G1-CHN-007, G1-CHN-008.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::boot::{BootChannel, BootDoorbell, BootInfo, ChannelKind, IrqOwner};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gearv_manifest::blob::Blob;
use gearv_manifest::{Channel, GicMode, Manifest, Rule, Vm, VmKind};

use crate::fdt::Board;
use crate::partition::Emulated;
use crate::passthrough::Passthrough;
use crate::refusal::{Fault, Refusal, refusal};
use crate::{device_vm, devices};

#[cfg(test)]
mod tests;

/// GICD_TYPER, whose lowest 5 bits tell how many interrupts there are.
const GICD_TYPER: u64 = 4;

/// Returns the doorbells that `vm` stores to, for the hand-over. `target` is the doorbell's place
/// among all channels, by which the runtime finds what [`fill`] says of it; a doorbell has no use
/// for `number`.
#[must_use]
pub fn channels(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Vec<BootChannel> {
    let all = (0..).zip(manifest.channels.iter());
    // planted: a doorbell is another VM's too
    let own = all.filter(|(_, channel)| channel.from == vm.name);
    own.map(|(number, channel)| BootChannel {
        ipa: channel.ipa,
        kind: ChannelKind::Doorbell,
        target: number,
        number: 0,
    })
    .collect()
}

/// Tells the runtime whom each doorbell interrupts, and how often at most. Intervals become ticks
/// of the physical counter here, so that a ring divides nothing. The rules on manifests have
/// refused a channel to a VM that does not exist.
pub fn fill(manifest: &Manifest<'_>, counter_hz: u32, info: &mut BootInfo) {
    for (number, channel) in manifest.channels.iter().enumerate() {
        let Some(to) = manifest.vm_named(channel.to) else {
            continue;
        };
        if let Some(slot) = info.doorbells.get_mut(number) {
            *slot = BootDoorbell {
                interval: ticks(channel.min_interval_us.unwrap_or(0), counter_hz),
                vm: to.id.reg() as u32,
                intid: channel.intid,
                gear2: u32::from(manifest.is_gear2s(channel)),
            };
        }
        if to.gic == GicMode::PassThrough {
            own_interrupt(channel.intid as usize, to, info);
        }
    }
}

/// Makes an interrupt of the machine a VM's own, triggered by an edge: the pending state ends when
/// the VM acknowledges it.
fn own_interrupt(intid: usize, vm: &Vm<'_>, info: &mut BootInfo) {
    if let Some(owner) = info.irq_owner.get_mut(intid) {
        *owner = IrqOwner::vm(vm.id.index()).unwrap_or_default();
    }
    if let Some(word) = info.irq_edge.get_mut(intid / 32) {
        *word |= 1 << (intid % 32);
    }
}

/// Returns microseconds in counter ticks, rounded up: an interval below the manifest's would let
/// through interrupts that the receiver's windows have no room for.
fn ticks(microseconds: u32, counter_hz: u32) -> u64 {
    (u64::from(microseconds) * u64::from(counter_hz)).div_ceil(1_000_000)
}

/// Returns the pages (IPA) at which nothing may be mapped. As part of the partition's list they are
/// compared with all mappings, those of devices included.
#[must_use]
pub fn emulated(manifest: &Manifest<'_>) -> Vec<Emulated> {
    let channels = manifest.channels.iter();
    let pages = channels.filter_map(|channel| {
        Some(Emulated {
            vm: manifest.vm_named(channel.from)?.id,
            region: channel.doorbell(),
            what: "a doorbell",
        })
    });
    pages.collect()
}

/// Refuses doorbells over devices of the sender, and interrupts that have another source. `owners`
/// are the VMs with devices of the board that `tree` describes. Memory and emulated registers are
/// known without the board: the rules on manifests judge them.
pub(crate) fn check<'p, 'm: 'p, 'a: 'm>(
    manifest: &Manifest<'_>,
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>> + Clone,
    tree: &Blob<'_>,
    faults: &mut Vec<Fault>,
) {
    for channel in manifest.channels.iter() {
        let owner = |name| owners.clone().find(|owner| owner.vm.name == name);
        let page = channel.doorbell();
        if let Some(device) = owner(channel.from).and_then(|from| from.device_at(&page)) {
            let what = alloc::format!("a device of the VM lies at {:#x}", device.start);
            faults.push(fault(Rule::DoorbellOverMemory, channel, "address", what));
        }
        let to = manifest.vm_named(channel.to);
        let own = owner(channel.to).is_some_and(|to| to.has_interrupt(channel.intid));
        let source = to.and_then(|to| source_of(manifest, channel, to, own, tree));
        if let Some(source) = source {
            let rule = Rule::ChannelInterruptTaken;
            let what = alloc::format!("{} is that of {source}", channel.intid);
            faults.push(fault(rule, channel, "interrupt", what));
        }
    }
}

/// Returns what else makes a channel's interrupt pending. `own`: a device of the receiver does.
/// Only a receiver with the machine's interrupt controller shares its interrupts with devices of
/// other owners, or of nobody: a device without a driver may drive its line all the same.
fn source_of(
    manifest: &Manifest<'_>,
    channel: &Channel<'_>,
    to: &Vm<'_>,
    own: bool,
    tree: &Blob<'_>,
) -> Option<String> {
    let is_virtual = device_vm::intids(manifest).contains(&channel.intid);
    if own {
        Some("a device of the VM".to_string())
    } else if to.kind == VmKind::Device && is_virtual {
        Some("an emulated PL061 of the device VM".to_string())
    } else if to.gic == GicMode::PassThrough {
        // planted: a doorbell has the interrupt of a device
        devices::source_of(tree, channel.intid)
    } else {
        None
    }
}

fn fault(rule: Rule, channel: &Channel<'_>, property: &'static str, what: String) -> Fault {
    Fault {
        parent: "channels",
        ..Fault::new(rule, channel.name, property, what)
    }
}

/// Returns the number of the distributor's interrupts (GICD_TYPER.ITLinesNumber).
fn interrupt_count<M: PhysicalMemory>(board: &Board, memory: &M) -> u32 {
    let typer = memory.read_register32(Pa::new(board.gic.gicd + GICD_TYPER));
    32 * ((typer & 0x1f) + 1)
}

/// Refuses interrupts that the machine's distributor does not have: they would never come, as their
/// bits of GICD_ISPENDR are RES0. The device tree does not tell their number, so the distributor is
/// asked, and only where a channel needs that: a board without such channels is not touched.
pub fn check_distributor<M: PhysicalMemory>(
    manifest: &Manifest<'_>,
    board: &Board,
    memory: &M,
) -> Result<(), Refusal> {
    let is_physical = |vm: &Vm<'_>| vm.gic == GicMode::PassThrough;
    let physical = |channel: &&Channel<'_>| manifest.vm_named(channel.to).is_some_and(is_physical);
    let mut physical = manifest.channels.iter().filter(physical).peekable();
    if physical.peek().is_none() {
        return Ok(());
    }
    let count = interrupt_count(board, memory);
    match physical.find(|channel| channel.intid >= count) {
        Some(Channel { name, intid, .. }) => Err(refusal!(
            Machine,
            "/channels/{name}: interrupt: the interrupt controller has {count} interrupts, and no {intid}"
        )),
        None => Ok(()),
    }
}
