//! A VM that owns devices of the board: their registers in its stage 2, their interrupts, and the
//! device tree in which they are enabled.
//!
//! Invariant: a device has one owner ([`check_owners`]).
//!
//! The device VM, real-time VMs and guests alike are such VMs. Registers appear at their physical
//! addresses, as the board's tree says. A device that masters the bus and is not behind an SMMU
//! reaches all memory, which the manifest's author has to accept for each of them, and says of a
//! guest by `trusts-dma` (`docs/threat-model.md`).
//!
//! Requirements: G1-BOOT-005.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use gear1_abi::boot::{BootInfo, IrqOwner, MAX_MASTERS, MAX_PCI_FUNCTIONS, MAX_STREAM_RANGES};
use gear1_core::stage2::{Attributes, PageState};
use gearv_manifest::blob::Blob;
use gearv_manifest::{ChannelEnd, Manifest, Payload, Rule, SharedMemory, VirtioDevice, Vm, VmKind};

use crate::device_tree::{self, Facts};
use crate::devices::{self, Owned, Streams};
use crate::fdt::{Board, Uart};
use crate::partition::{Emulated, Mapping, Purpose, Space};
use crate::refusal::{Fault, Refusal};
use crate::region::Region;
use crate::vm;

mod emulated;
#[cfg(test)]
mod tests;

/// Most tables that a mapping takes, beside those of its GiBs.
pub(crate) const MAPPING_TABLES: u64 = 5;

/// A VM with devices.
#[derive(Clone, Debug)]
pub struct Passthrough<'m, 'a> {
    /// The VM.
    pub vm: &'m Vm<'a>,
    /// Devices of the board that the VM owns.
    pub(crate) owned: Owned<'a>,
    /// The board's tree, from which the VM's is made.
    pub(crate) tree: Blob<'m>,
    /// Memory that the VM shares, with the metadata that describes it.
    pub(crate) shared: Vec<Region>,
    /// Doorbells of the VM.
    pub(crate) channels: Vec<ChannelEnd<'a>>,
    /// Virtio devices of the VM, which the device VM serves.
    virtio: Vec<VirtioDevice<'a>>,
}

impl<'m, 'a> Passthrough<'m, 'a> {
    /// Finds what `vm` owns of the board in `tree`. `virtual_intids` are those that Gear1 emulates
    /// devices with.
    pub fn find(
        manifest: &Manifest<'a>,
        vm: &'m Vm<'a>,
        virtual_intids: Range<u32>,
        tree: &Blob<'m>,
        board: &Board,
        faults: &mut Vec<Fault>,
    ) -> Result<Self, Refusal> {
        let owned = devices::resolve(manifest, vm, virtual_intids, tree, board, faults)?;
        let virtio = manifest.virtio_of(vm.id).map(|(_, device)| *device);
        let virtio = emulated::checked(vm, virtio.collect(), &owned, faults);
        let shared = manifest.shared_of(vm).map(SharedMemory::with_lead);
        Ok(Self {
            vm,
            owned,
            tree: *tree,
            shared: shared.collect(),
            channels: manifest.channel_ends(vm).collect(),
            virtio,
        })
    }

    /// Finds the VMs that own devices, beside the device VM. Gear1 emulates no device with an
    /// interrupt for them, so no INTID is taken.
    pub fn find_others(
        manifest: &'m Manifest<'a>,
        tree: &Blob<'m>,
        board: &Board,
        faults: &mut Vec<Fault>,
    ) -> Result<Vec<Self>, Refusal> {
        let vms = manifest.vms.iter();
        let vms = vms.filter(|vm| vm.kind != VmKind::Device && !vm.devices.is_empty());
        vms.map(|vm| Self::find(manifest, vm, 0..0, tree, board, faults))
            .collect()
    }

    /// Tells whether the VM has this UART, which Gear2 then does not get.
    #[must_use]
    pub fn has_uart(&self, uart: &Uart) -> bool {
        let page = Region::new(uart.base, uart.base + 1);
        self.owned.contains(&page)
    }

    /// Returns registers of the VM's that lie in a region.
    pub(crate) fn device_at(&self, region: &Region) -> Option<&Region> {
        self.owned.pages.iter().find(|page| page.overlaps(region))
    }

    /// Tells whether a device of the VM's has this interrupt, or may have.
    pub(crate) fn has_interrupt(&self, intid: u32) -> bool {
        self.owned.may_have_interrupt(intid)
    }

    /// Returns the streams of the VM's devices.
    #[must_use]
    pub fn streams(&self) -> &[Streams] {
        &self.owned.streams
    }

    /// Returns the first address behind all devices, which stage 2 has to reach at its physical
    /// address, and behind configuration space that Gear1 emulates there.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let pages = self.owned.pages.iter().map(|page| page.end);
        let spaces = self.owned.bridge.iter().map(|bridge| bridge.space.end);
        pages.chain(spaces).fold(0, u64::max)
    }

    /// Returns how many tables the devices take at most: each range of pages as if no table above
    /// it were there yet. Addresses are the physical ones, so that whole GiBs are blocks.
    #[must_use]
    pub fn table_count(&self) -> u64 {
        let tables = |page: &Region| (page.bytes() >> 39) + MAPPING_TABLES;
        self.owned.pages.iter().map(tables).sum()
    }

    /// Iterates over the mappings of the devices' registers, at their physical addresses.
    pub fn mappings(&self) -> impl Iterator<Item = Mapping> {
        self.owned.pages.iter().map(|page| Mapping {
            space: Space::Vm(self.vm.id),
            ipa: page.start,
            pa: page.start,
            // planted: no longer: it has no more of the board than its devices
            size: page.bytes(),
            attributes: Attributes::DEVICE.with_state(PageState::Owned),
            why: Purpose::Device,
        })
    }

    /// Iterates over the configuration space that the VM sees of a bridge which is not its own.
    pub fn emulated(&self) -> impl Iterator<Item = Emulated> {
        let bridge = self.owned.bridge.iter();
        bridge.map(|bridge| Emulated {
            vm: self.vm.id,
            region: bridge.space,
            what: "PCI configuration space",
        })
    }

    /// Tells the runtime whose the devices' interrupts are, and which of them master the bus.
    pub fn fill(&self, info: &mut BootInfo) {
        let owner = IrqOwner::vm(self.vm.id.index()).unwrap_or_default();
        for interrupt in &self.owned.interrupts {
            let at = interrupt.intid as usize;
            if let Some(slot) = info.irq_owner.get_mut(at) {
                *slot = owner;
            }
            if let Some(word) = info.irq_edge.get_mut(at / 32) {
                *word |= u32::from(interrupt.is_edge) << (at % 32);
            }
        }
        let free = info.masters.iter_mut().filter(|slot| slot.register == 0);
        free.zip(&self.owned.masters)
            .for_each(|(slot, master)| *slot = *master);
        self.fill_functions(info);
    }

    /// Tells the runtime of the PCI functions that the VM owns apart from their bridge.
    fn fill_functions(&self, info: &mut BootInfo) {
        let vm = info.vms.get_mut(self.vm.id.index());
        if let Some((vm, bridge)) = vm.zip(self.owned.bridge.as_ref()) {
            vm.pci_space = bridge.space.start;
        }
        let free = info.functions.iter_mut().filter(|slot| slot.space == 0);
        let functions = self.owned.functions.iter();
        free.zip(functions)
            .for_each(|(slot, function)| *slot = function.boot(self.vm.id.reg() as u32));
    }

    /// Returns what the VM's device tree is made from, without anything that Gear1 adds.
    #[must_use]
    pub fn facts(&self, board: &Board, [memory, initrd]: [Region; 2]) -> Facts<'_, 'a> {
        Facts {
            vm: self.vm,
            owned: &self.owned,
            memory,
            initrd,
            bootargs: match self.vm.payload {
                Payload::Linux { cmdline, .. } | Payload::Flat { cmdline, .. } => cmdline,
            },
            seed: vm::first_seed(board, self.vm),
            pl061: &[],
            slices: &self.shared,
            virtio: &self.virtio,
            channels: &self.channels,
            control: None,
            served: &[],
        }
    }

    /// Makes the VM's device tree.
    pub fn device_tree(&self, board: &Board, regions: [Region; 2]) -> Result<Vec<u8>, Refusal> {
        device_tree::make(&self.tree, &self.facts(board, regions))
    }
}

/// Refuses a device, or an interrupt, that two VMs would own, and more bus masters than can be
/// stopped. Devices are compared by page: stage 2 gives whole pages, so two devices in one page
/// have one owner.
pub fn check_owners<'p, 'm: 'p, 'a: 'm>(
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>> + Clone,
    faults: &mut Vec<Fault>,
) {
    for (number, one) in owners.clone().enumerate() {
        for other in owners.clone().skip(number + 1) {
            if let Some(what) = common(&one.owned, &other.owned) {
                let fault = Fault::new(Rule::DeviceTaken, other.vm.name, "devices", what);
                faults.push(Fault {
                    other: Some(one.vm.name.to_string()),
                    ..fault
                });
            }
        }
    }
    check_counts(owners, faults);
}

/// Refuses more than the runtime has room for: bus masters, of which each is stopped under its VM's
/// lock, so that their number bounds how long a stop holds the lock; ranges of StreamIDs, by which
/// it tells devices apart that fault; and PCI functions apart from their bridges.
fn check_counts<'p, 'm: 'p, 'a: 'm>(
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>>,
    faults: &mut Vec<Fault>,
) {
    let mut limits: [(usize, usize, &str, Counted<'_>); 3] = [
        (0, MAX_MASTERS, "bus masters", |owned| owned.masters.len()),
        (0, MAX_STREAM_RANGES, "ranges of StreamIDs", |owned| {
            owned.streams.len()
        }),
        (0, MAX_PCI_FUNCTIONS, "PCI functions", |owned| {
            owned.functions.len()
        }),
    ];
    for one in owners {
        for (count, limit, what, counted) in &mut limits {
            let before = *count;
            *count += counted(&one.owned);
            // The VM that is one too many is named, and none behind it.
            if *count > *limit && before <= *limit {
                let what = alloc::format!("{count} {what}; {limit} fit");
                let fault = Fault::new(Rule::TooManyMasters, one.vm.name, "devices", what);
                faults.push(fault);
            }
        }
    }
}

/// How many of something a VM owns.
type Counted<'a> = fn(&Owned<'a>) -> usize;

/// Refuses a guest with devices behind the SMMU that shares memory by FF-A, unless the manifest
/// trusts the guest: each change waits for the accesses that its devices have begun, and Gear1
/// halts if one never ends.
pub fn check_peers<'p, 'm: 'p, 'a: 'm>(
    manifest: &Manifest<'a>,
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>>,
    faults: &mut Vec<Fault>,
) {
    for one in owners.filter(|one| !one.streams().is_empty()) {
        let is_judged = one.vm.kind == VmKind::Guest && !one.vm.trusts_dma;
        // planted: a guest's device can hold Gear1 up
        if let Some(peer) = manifest.peers(one.vm).next().filter(|_| is_judged) {
            let fault = Fault::new(Rule::DmaAndPeers, one.vm.name, "devices", peer.name);
            faults.push(fault);
        }
    }
}

/// Refuses a node of `/bus-masters` that stands for no VM's device: a misspelled word would leave
/// the device running.
pub fn check_kinds<'p, 'm: 'p, 'a: 'm>(
    manifest: &Manifest<'a>,
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>>,
    faults: &mut Vec<Fault>,
) {
    let used: Vec<&str> = owners.flat_map(|one| &one.owned.kinds).copied().collect();
    let kinds = manifest.bus_masters.iter();
    for kind in kinds.filter(|kind| !used.contains(&kind.name)) {
        let fault = Fault::new(Rule::NoSuchMaster, kind.name, "compatible", kind.compatible);
        faults.push(Fault {
            parent: "bus-masters",
            ..fault
        });
    }
}

/// Returns a PCI function of one VM whose device has functions of the other too, or whose whole
/// bridge the other owns. Functions of one device may reach each other without the SMMU (PCI
/// Express Base Specification, 6.12), and a device with one function may answer at the others'
/// places.
fn common_function<'a>(one: &Owned<'a>, other: &Owned<'_>) -> Option<&'a str> {
    let is_others = |function: &&devices::Function<'_>| {
        let mut functions = other.functions.iter();
        let mut pages = other.pages.iter();
        // planted: two VMs own one PCI function
        functions.any(|other| other.device() == function.device())
            || pages.any(|page| page.overlaps(&function.space))
    };
    one.functions.iter().find(is_others).map(|one| one.path)
}

/// Says what two VMs would both own. Interrupts and streams are compared beside pages, because two
/// devices may share a line, or a master of the bus.
fn common(one: &Owned<'_>, other: &Owned<'_>) -> Option<String> {
    let overlaps = |page: &&Region| other.pages.iter().any(|p| p.overlaps(page));
    if let Some(page) = one.pages.iter().find(overlaps) {
        return Some(alloc::format!("the device at {:#x}", page.start));
    }
    if let Some(function) = common_function(one, other).or_else(|| common_function(other, one)) {
        return Some(alloc::format!("the PCI function {function}"));
    }
    // planted: two VMs own one interrupt
    let shared = |of: &&devices::Interrupt| other.interrupts.iter().any(|i| i.intid == of.intid);
    if let Some(interrupt) = one.interrupts.iter().find(shared) {
        return Some(alloc::format!("INTID {}", interrupt.intid));
    }
    // planted: two VMs own one stream
    let shared = |of: &&Streams| other.streams.iter().any(|streams| streams.overlaps(of));
    let streams = one.streams.iter().find(shared)?;
    Some(alloc::format!(
        "the device with StreamID {:#x}",
        streams.first
    ))
}
