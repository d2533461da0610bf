//! The system before memory is given out: the manifest, the archive, and the owners of devices.
//!
//! How many tables the pool needs is known before there is one, because the runtime gets none
//! later: each mapping's worst case is counted. A pool that is too small is a refusal at boot,
//! never a failure of a running VM.
//!
//! Requirements: G1-BOOT-003.

use alloc::vec::Vec;

use gear1_abi::boot::SHARING_TABLES;
use gear1_abi::layout::{PAGE_SIZE, gear2 as gear2_layout};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::Geometry;
use gear1_core::sve::Lengths;
use gearv_manifest::blob::Blob;
use gearv_manifest::{Archive, Manifest, Member, Vm};

use super::Given;
use crate::board_watchdog::{self, Fed};
use crate::device_vm::DeviceVm;
use crate::devices::as_booted;
use crate::devices::placed::{self, Rooms};
use crate::doorbells;
use crate::fdt::Board;
use crate::passthrough::{Passthrough, check_kinds, check_owners, check_peers};
use crate::refusal::{Fault, Refusal, refusal};
use crate::region::Region;
use crate::smmu::{self, OwnedStreams, view};
use crate::trace;
use crate::vm;

/// Tables that Gear2's pieces take at most, beside its heap's. They lie in a few regions of its
/// address space, far apart from each other.
const GEAR2_TABLES: u64 = 16;

/// Tables for each VM beside its memory's: for GICV and register pages.
const SPARE_TABLES: u64 = 8;

/// Tables for each VM's page of stolen time.
const STOLEN_TIME_TABLES: u64 = 2;

/// Everything that is known before memory is given out.
pub(super) struct System<'s, 'a> {
    pub(super) given: &'s Given<'s>,
    pub(super) archive: &'s Archive<'a>,
    /// The manifest's bytes, which Gear2 gets as they are.
    pub(super) blob: &'a [u8],
    pub(super) manifest: &'s Manifest<'a>,
    pub(super) owners: &'s Owners<'s, 'a>,
    /// Lengths of vectors that the boot CPU has, if a VM has SVE.
    pub(super) vector_lengths: Lengths,
    /// Shape of every stage 2: VTCR_EL2 is the same for all contexts.
    pub(super) geometry: Geometry,
}

impl<'s, 'a> System<'s, 'a> {
    /// Takes in what was read and judged, and chooses the shape of every stage 2.
    pub(super) fn new(
        given: &'s Given<'s>,
        archive: &'s Archive<'a>,
        blob: &'a [u8],
        manifest: &'s Manifest<'a>,
        owners: &'s Owners<'s, 'a>,
        vector_lengths: Lengths,
    ) -> Result<Self, Refusal> {
        let limit = address_limit(given.board, manifest, owners);
        let geometry = Geometry::choose(given.pa_range, limit).ok_or_else(|| {
            refusal!(
                Manifest,
                "addresses up to {limit:#x} are used: more than this CPU's stage 2 can translate"
            )
        })?;
        Ok(Self {
            given,
            archive,
            blob,
            manifest,
            owners,
            vector_lengths,
            geometry,
        })
    }
}

/// The VMs that own devices of the board.
pub(super) struct Owners<'m, 'a> {
    pub(super) device_vm: Option<DeviceVm<'m, 'a>>,
    pub(super) others: Vec<Passthrough<'m, 'a>>,
    /// Devices that Gear1 feeds, and no VM owns.
    pub(super) fed: Vec<Fed>,
}

impl<'m, 'a> Owners<'m, 'a> {
    /// Finds the VMs and their devices. What the manifest does wrong goes to `faults`.
    pub(super) fn find(
        manifest: &'m Manifest<'a>,
        tree: &Blob<'m>,
        board: &Board,
        faults: &mut Vec<Fault>,
    ) -> Result<Self, Refusal> {
        let owners = Self {
            device_vm: DeviceVm::find(manifest, tree, board, faults)?,
            others: Passthrough::find_others(manifest, tree, board, faults)?,
            fed: board_watchdog::find(manifest, board, faults),
        };
        check_owners(owners.all(), faults);
        // A VM, or a node of /bus-masters or /as-booted, may have been left out for an error of its
        // own.
        if manifest.is_complete {
            check_kinds(manifest, owners.all(), faults);
            as_booted::check(manifest, owners.all().map(|owner| &owner.owned), faults);
        }
        check_peers(manifest, owners.all(), faults);
        smmu::check(board, &owners.streams(), manifest)?;
        board_watchdog::check_owners(&owners.fed, owners.all(), faults);
        // Behind the owners: whether a doorbell's interrupt is a device's depends on who has what.
        if !manifest.channels.is_empty() {
            doorbells::check(manifest, owners.all(), tree, faults);
        }
        Ok(owners)
    }

    /// Places the PCI functions that VMs own apart from their bridges, whose registers and
    /// interrupts are known only then. One line of the bus may have functions of two VMs.
    pub(super) fn place_functions<M: PhysicalMemory>(
        &mut self,
        memory: &mut M,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Refusal> {
        let mut rooms = Rooms::default();
        let device_vm = self.device_vm.as_mut().map(|vm| &mut vm.own);
        for owner in self.others.iter_mut().chain(device_vm) {
            placed::place(&mut owner.owned, &mut rooms, memory)?;
        }
        if !rooms.is_empty() {
            check_owners(self.all(), faults);
        }
        Ok(())
    }

    /// Iterates over all VMs that own devices.
    pub(super) fn all(&self) -> impl Iterator<Item = &Passthrough<'m, 'a>> + Clone {
        let device_vm = self.device_vm.as_ref().map(|vm| &vm.own);
        self.others.iter().chain(device_vm)
    }

    /// Returns the streams of all VMs' devices behind the SMMU.
    pub(super) fn streams(&self) -> Vec<OwnedStreams> {
        let all = self.all().flat_map(|owner| {
            let vm = owner.vm.id.index();
            let streams = owner.streams().iter();
            streams.map(move |streams| OwnedStreams {
                streams: *streams,
                vm,
            })
        });
        all.collect()
    }

    /// Tells whether a VM's own memory is mapped by pages. What a VM shares is a page of its own in
    /// its stage 2; a block that is split for it is away for a moment, and an access of a device
    /// would fail then.
    pub(super) fn has_pages(&self, manifest: &Manifest<'_>, vm: &Vm<'_>) -> bool {
        self.has_streams(vm) && manifest.peers(vm).next().is_some()
    }

    /// Tells whether a VM has devices behind the SMMU.
    fn has_streams(&self, vm: &Vm<'_>) -> bool {
        let mut all = self.all();
        all.any(|owner| owner.vm.id == vm.id && !owner.streams().is_empty())
    }

    /// Returns what a VM's CPUs reach and its devices behind the SMMU do not: the CPU interface of
    /// a GICv2 (IPA).
    pub(super) fn hidden(&self, vm: &Vm<'_>, board: &Board) -> Option<Region> {
        let interface = vm::cpu_interface(vm, board).filter(|_| self.has_streams(vm))?;
        Some(Region::new(interface.ipa, interface.ipa + interface.size))
    }

    /// Returns the first address behind all that the VMs see beside memory.
    fn limit(&self) -> u64 {
        let device_vm = self.device_vm.as_ref().map(DeviceVm::limit);
        let limits = self.others.iter().map(Passthrough::limit).chain(device_vm);
        limits.fold(0, u64::max)
    }

    /// Returns how many tables the VMs' devices, and all that the device VM shares, take at most.
    fn table_count(&self) -> u64 {
        let device_vm = self.device_vm.as_ref().map_or(0, DeviceVm::table_count);
        let others: u64 = self.others.iter().map(Passthrough::table_count).sum();
        device_vm + others
    }
}

/// Returns the first address behind all that a stage 2 translates. All trees have one shape, so the
/// highest address of any VM, of Gear2 and of the board's memory counts. Each bit more may cost
/// each walk a level, so the shape is no larger than the machine needs.
fn address_limit(board: &Board, manifest: &Manifest<'_>, owners: &Owners<'_, '_>) -> u64 {
    let gear2_end = gear2_layout::HEAP + manifest.gear2.memory_bytes;
    let memory = board.memory.iter().map(|bank| bank.end);
    let vms = || manifest.vms.iter();
    let guests = vms().filter_map(|vm| Some(vm.memory.guest()?.end));
    let consoles = vms().filter_map(|vm| Some(vm.console?.ipa + PAGE_SIZE));
    let devices = vm::gic_regions(board, gear1_abi::id::MAX_VCPUS_PER_VM).map(|region| region.end);
    let virtio = manifest.virtio_vms().map(|vm| vm.virtio_ipa + PAGE_SIZE);
    let clocks = vms().filter_map(|vm| Some(vm.rtc?.ipa + PAGE_SIZE));
    let watchdogs = vms().filter_map(|vm| Some(vm.watchdog_region()?.end));
    let ends = memory
        .chain(guests)
        .chain(consoles)
        .chain(clocks)
        .chain(watchdogs)
        .chain(devices)
        .chain(virtio);
    let doorbells = manifest.channels.iter().map(|one| one.doorbell().end);
    let ends = ends.chain(doorbells).chain([owners.limit()]);
    ends.fold(gear2_end, u64::max)
}

/// Returns how many bytes the stage-2 tables of all VMs and of Gear2 take at most, with the roots:
/// one each, Gear2's and the empty one, and those of devices that do not reach all that their VM
/// does.
pub(super) fn pool_size(
    manifest: &Manifest<'_>,
    board: &Board,
    geometry: &Geometry,
    owners: &Owners<'_, '_>,
) -> u64 {
    // Level 2 tables of a range that begins anywhere, and a level 1 table.
    let tables = |bytes: u64| (bytes >> 30) + 3;
    let roots = (manifest.vms.len() as u64 + 2) * geometry.root_size();
    let hidden = manifest
        .vms
        .iter()
        .filter_map(|vm| owners.hidden(vm, board));
    let views: u64 = hidden.map(|hidden| view::size(geometry, &hidden)).sum();
    let trace = trace::table_count(manifest, board.cpus.len());
    let gear2 = GEAR2_TABLES + tables(manifest.gear2.memory_bytes) + trace;
    let vms = manifest.vms.iter().map(|vm| {
        let shared = manifest.shared_of(vm);
        let shared = shared.map(|shared| 2 * tables(shared.bytes));
        let of_pages = match owners.has_pages(manifest, vm) {
            // Level 3 tables of a range that begins anywhere.
            true => (vm.memory.bytes >> 21) + 2,
            false => 0,
        };
        let own = tables(vm.memory.bytes) + of_pages + SPARE_TABLES + STOLEN_TIME_TABLES;
        own + shared.sum::<u64>() + sharing_tables(manifest, vm)
    });
    roots + views + (gear2 + vms.sum::<u64>() + owners.table_count()) * PAGE_SIZE
}

/// Returns how many tables a VM may take after boot, to share memory. A VM without peers takes
/// none: its stage 2 never changes.
fn sharing_tables(manifest: &Manifest<'_>, vm: &Vm<'_>) -> u64 {
    match manifest.peers(vm).next() {
        Some(_) => SHARING_TABLES,
        None => 0,
    }
}

/// Returns a file of the archive that every image has.
pub(super) fn member<'a>(archive: &Archive<'a>, name: &str) -> Result<Member<'a>, Refusal> {
    archive.find(name).ok_or_else(|| {
        refusal!(
            Archive,
            "{name}: missing in the boot archive: build the image again"
        )
    })
}
