//! The device VM: its devices of the board, the memory that it shares with the guests that it
//! serves and with Gear2, and the channels between them.
//!
//! Owns the layout of the device VM's window, its stage 2 beyond its own memory, and the first
//! contents of all shared memory. Invariants: of all VMs only the device VM can write a served
//! guest's register page, and no alias of that page is cached; every channel has its own address,
//! and ends in its own line or interrupt.
//!
//! | offset in the window | behind it |
//! |---|---|
//! | 0 | emulated PL061 blocks, a page each; the first one is Gear2's |
//! | 0x8_0000 | GDM's own doorbell page, with a doorbell for Gear2 |
//! | 0x8_1000 | doorbell pages, one for each VM that is served: a doorbell for each of its devices, one for Gear2, one to arm the lines of its devices on each PL061 |
//! | 0x9_0000 | register pages of the guests, a page for each VM that is served |
//!
//! A guest's store to QueueNotify raises the device's line of a PL061. A doorbell pulses the
//! guest's virtio interrupt. The guests' memory is no part of the window: the device VM sees it at
//! its physical address.
//!
//! Requirements: G1-MEM-004, G1-CHN-001.

use alloc::vec::Vec;
use core::ops::Range;

use gear1_abi::boot::{BootChannel, BootInfo, BootPl061, ChannelKind, MAX_PL061};
use gear1_abi::id::MAX_VMS;
use gear1_abi::layout::{PAGE_SIZE, gear2};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::{Attributes, PageState};
use gear2_protocol::{
    DOORBELL_GEAR2, MAX_DEVICES, REGION_SIZE, VIRTIO_INTERRUPT_ACK, VIRTIO_QUEUE_NOTIFY,
    VIRTIO_STRIDE, doorbell_arm, doorbell_device, doorbell_page, line_of_channel,
};
use gearv_manifest::blob::Blob;
use gearv_manifest::{MAX_VIRTIO, MEMORY_ALIGN, Manifest, VirtioDevice, Vm};

use crate::dax;
use crate::device_tree::{self, Facts, Served};
use crate::fdt::Board;
use crate::flat;
use crate::layout::FreeMemory;
use crate::partition::{Emulated, Mapping, Purpose, Space};
use crate::passthrough::{MAPPING_TABLES, Passthrough};
use crate::refusal::{Fault, Refusal};
use crate::region::Region;

#[cfg(test)]
mod tests;

const _: () = assert!(MAX_VIRTIO == MAX_DEVICES && VirtioDevice::STRIDE == VIRTIO_STRIDE);
const _: () = assert!(line_of_channel(MAX_DEVICES - 1).0 < MAX_PL061);

/// The interrupt of the first emulated PL061; the others follow. A board whose own devices have one
/// of them is refused, since a guest's distributor has each INTID once.
const FIRST_INTID: u32 = 232;
/// Offsets of the doorbell pages and of the register pages in the window. The PL061 blocks come
/// before them, a page each.
const DOORBELLS: u64 = 0x8_0000;
const REGISTERS: u64 = 0x9_0000;
const _: () = assert!(
    doorbell_page(MAX_VMS as u32 - 1) as u64 * PAGE_SIZE <= REGISTERS - DOORBELLS,
    "the device VM itself is not served"
);
/// The first registers of a virtio-mmio device (virtio 1.2, 4.2.2): magic, version, device type and
/// vendor, which is the device model's.
const VIRTIO_MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VIRTIO_VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"GEAR");

/// The device VM and its devices of the board.
#[derive(Clone, Debug)]
pub struct DeviceVm<'m, 'a> {
    /// The manifest, which says what the VM serves.
    manifest: &'m Manifest<'a>,
    /// The VM, with the devices that it owns.
    pub own: Passthrough<'m, 'a>,
}

/// Memory that the device VM shares.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The region shared with Gear2: slots for accesses, and the rings of consoles.
    pub control: Region,
    /// The register page of each VM that is served, in the order of the manifest.
    pages: Vec<Pa>,
}

impl<'m, 'a> DeviceVm<'m, 'a> {
    /// Finds the manifest's device VM, if there is one, and its devices of the board in `tree`.
    pub fn find(
        manifest: &'m Manifest<'a>,
        tree: &Blob<'m>,
        board: &Board,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Self>, Refusal> {
        let Some(vm) = manifest.device_vm() else {
            return Ok(None);
        };
        let own = Passthrough::find(manifest, vm, intids(manifest), tree, board, faults)?;
        Ok(Some(Self { manifest, own }))
    }

    /// Returns the first address behind all that the VM sees beside memory.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.own.limit().max(self.own.vm.window().end)
    }

    /// Returns how many tables all mappings take at most, in all trees. The pool is sized by this
    /// before there are addresses, so each mapping counts as if it began anywhere.
    #[must_use]
    pub fn table_count(&self) -> u64 {
        let tables = |bytes: u64| (bytes >> 30) + MAPPING_TABLES;
        let guests = self.manifest.virtio_vms().map(|vm| {
            // The VM's memory with its metadata, and its register page in three trees.
            tables(vm.memory.bytes) + 4 * MAPPING_TABLES
        });
        // The control region in both trees.
        self.own.table_count() + guests.sum::<u64>() + 3 * MAPPING_TABLES
    }

    /// Takes the memory that is shared, zero but for what makes Linux offer it to the device model.
    pub fn take<M: PhysicalMemory>(
        &self,
        free: &mut FreeMemory,
        memory: &mut M,
    ) -> Result<Shared, Refusal> {
        let size = REGION_SIZE as u64;
        let what = "the device VM's control region";
        let slice = free.take(dax::DATA_OFFSET + size, MEMORY_ALIGN, what)?;
        let start = slice.get() + dax::DATA_OFFSET;
        memory.wipe(Pa::new(start), size);
        Ok(Shared {
            control: Region::new(start, start + size),
            pages: self.take_pages(free, memory)?,
        })
    }

    /// Takes a register page for each VM that is served. Each VM has its own, so that no guest
    /// reads what the device model tells another.
    fn take_pages<M: PhysicalMemory>(
        &self,
        free: &mut FreeMemory,
        memory: &mut M,
    ) -> Result<Vec<Pa>, Refusal> {
        let mut pages = Vec::new();
        for vm in self.manifest.virtio_vms() {
            let page = flat::zeroed(free, memory, PAGE_SIZE, "virtio registers")?;
            self.identify(vm, page, memory);
            pages.push(page);
        }
        Ok(pages)
    }

    /// Fills in what a driver reads before its first write. The write waits for the device model;
    /// a guest that is up before that would find no device otherwise.
    fn identify<M: PhysicalMemory>(&self, vm: &Vm<'_>, page: Pa, memory: &mut M) {
        for (_, device) in self.manifest.virtio_of(vm.id) {
            let registers = [VIRTIO_MAGIC, VIRTIO_VERSION, device.device_id(), VENDOR];
            let bytes: Vec<u8> = registers
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            memory.write(Pa::new(page.get() + device.offset()), &bytes);
        }
        memory.clean(page, PAGE_SIZE);
    }

    /// Makes the VM's device tree; `starts` is where each VM's memory lies.
    pub fn device_tree(
        &self,
        shared: &Shared,
        starts: &[Pa],
        board: &Board,
        regions: [Region; 2],
    ) -> Result<Vec<u8>, Refusal> {
        let facts = Facts {
            pl061: &self.pl061(),
            slices: &self.slices(shared, starts),
            control: Some(shared.control),
            served: &self.served(starts),
            ..self.own.facts(board, regions)
        };
        device_tree::make(&self.own.tree, &facts)
    }

    /// Returns the memory that device-dax offers to the device model, each region with what
    /// describes it: the control region, the guests' memory, and what all VMs share from boot on.
    fn slices(&self, shared: &Shared, starts: &[Pa]) -> Vec<Region> {
        let guests = self.guests(starts).map(|(_, all)| all);
        let regions = core::iter::once(shared.control).chain(guests);
        let regions = regions.map(with_description);
        regions.chain(self.own.shared.iter().copied()).collect()
    }

    /// Returns the devices that the device model serves, guest by guest. Register pages are counted
    /// in the same order, as [`take`](Self::take) takes them.
    fn served(&self, starts: &[Pa]) -> Vec<Served<'a>> {
        let guests = self.guests(starts).zip(0..);
        let served = guests.flat_map(|((vm, guest), page)| {
            let devices = self.manifest.virtio_of(vm.id);
            devices.map(move |(channel, device)| Served {
                channel: channel as u32,
                vm: vm.name,
                device: *device,
                guest_ipa: vm.memory.ipa.unwrap_or(guest.start),
                guest,
                page,
            })
        });
        served.collect()
    }

    /// Returns the mappings of all that the VM sees beside its own memory, and of the register
    /// pages in the guests.
    #[must_use]
    pub fn mappings(&self, shared: &Shared, starts: &[Pa]) -> Vec<Mapping> {
        let mut mappings: Vec<Mapping> = self.own.mappings().collect();
        self.add_regions(shared, starts, &mut mappings);
        self.add_registers(shared, starts, &mut mappings);
        mappings
    }

    /// Adds the memory that the device model reaches, each region with the description ahead of it
    /// that makes Linux offer it.
    fn add_regions(&self, shared: &Shared, starts: &[Pa], mappings: &mut Vec<Mapping>) {
        let own = Space::Vm(self.own.vm.id);
        let guests = self.guests(starts);
        let served = guests.map(|(vm, region)| (region, Purpose::ServedMemory(vm.id)));
        let regions = core::iter::once((shared.control, Purpose::ControlRegion)).chain(served);
        let borrowed = Attributes::DATA.with_state(PageState::SharedBorrowed);
        for (region, why) in regions {
            let start = region.start - dax::DATA_OFFSET;
            let lead = Region::new(start, region.start);
            let described = Purpose::DaxDescription;
            mappings.extend([
                mapping(own, start, lead, Attributes::DATA, described),
                mapping(own, region.start, region, borrowed, why),
            ]);
        }
    }

    /// Adds each served VM's register page: the VM reads the page that the device VM writes. Gear2
    /// writes it as well, since it does writes of drivers while the device model sleeps.
    fn add_registers(&self, shared: &Shared, starts: &[Pa], mappings: &mut Vec<Mapping>) {
        let own = Space::Vm(self.own.vm.id);
        let written = Attributes {
            write: true,
            ..Attributes::REGISTERS.with_state(PageState::SharedOwned)
        };
        let by_gear2 = Attributes {
            write: true,
            ..Attributes::REGISTERS
        };
        let registers = self.own.vm.window_ipa + REGISTERS;
        let places = |first: u64| (first..).step_by(PAGE_SIZE as usize);
        let places = places(registers).zip(places(gear2::REGISTERS));
        let pages = shared.pages.iter().zip(places);
        for ((vm, _), (page, (ipa, gear2_ipa))) in self.guests(starts).zip(pages) {
            let page = Region::new(page.get(), page.get() + PAGE_SIZE);
            let why = Purpose::VirtioRegisters(vm.id);
            let guest = Space::Vm(vm.id);
            mappings.extend([
                mapping(own, ipa, page, written, why),
                mapping(guest, vm.virtio_ipa, page, Attributes::REGISTERS, why),
                mapping(Space::Gear2, gear2_ipa, page, by_gear2, why),
            ]);
        }
    }

    /// Iterates over what Gear1 emulates in the VM's window.
    pub fn emulated(&self) -> impl Iterator<Item = Emulated> {
        let vm = self.own.vm;
        let blocks = self.pl061().into_iter().map(|block| (block.ipa, "PL061"));
        let own = core::iter::once(self.doorbells(0));
        let served = self.manifest.virtio_vms().zip(0..);
        let served = served.map(|(_, registers)| self.doorbells(doorbell_page(registers)));
        let doorbells = own.chain(served).map(|ipa| (ipa, "doorbells"));
        blocks.chain(doorbells).map(|(ipa, what)| Emulated {
            vm: vm.id,
            region: Region::new(ipa, ipa + PAGE_SIZE),
            what,
        })
    }

    /// Writes what describes each shared region to Linux. Numbers begin at 1, and tell the regions
    /// of one boot apart.
    pub fn describe<M: PhysicalMemory>(&self, shared: &Shared, starts: &[Pa], memory: &mut M) {
        let guests = self.guests(starts).map(|(_, all)| all);
        for (region, number) in core::iter::once(shared.control).chain(guests).zip(1..) {
            // The device model maps parts of the control region, a page each, in processes that
            // may reach no other part of it.
            let align = match number {
                1 => PAGE_SIZE,
                _ => dax::DATA_OFFSET,
            };
            dax::describe(region, number, align, memory);
        }
    }

    /// Tells the runtime what the VM owns, and of its PL061 blocks.
    pub fn fill(&self, info: &mut BootInfo) {
        self.own.fill(info);
        for (slot, pl061) in info.pl061.iter_mut().zip(self.pl061()) {
            *slot = pl061;
        }
    }

    /// Returns the channels that `vm` stores to. QueueNotify leads to the device model at once. An
    /// acknowledgement of InterruptStatus's bit 0 has no effect, and is answered without Gear2.
    pub(crate) fn channels(&self, vm: &Vm<'a>) -> Vec<BootChannel> {
        let mut list = Vec::new();
        for (channel, device) in self.manifest.virtio_of(vm.id) {
            // planted: a guest's doorbell is another device's
            let registers = vm.virtio_ipa + device.offset();
            let (pl061, line) = line_of_channel(channel);
            let notify = (registers + VIRTIO_QUEUE_NOTIFY, ChannelKind::Pl061);
            list.push(self::channel(notify, pl061 as u32, line));
            let acknowledge = (registers + VIRTIO_INTERRUPT_ACK, ChannelKind::Acknowledge);
            list.push(self::channel(acknowledge, 0, 0));
        }
        if vm.id == self.own.vm.id {
            self.add_doorbells(&mut list);
        }
        list
    }

    /// Returns the address of a doorbell page.
    const fn doorbells(&self, page: u32) -> u64 {
        self.own.vm.window_ipa + DOORBELLS + page as u64 * PAGE_SIZE
    }

    /// Adds the channels of the device model. Each VM's are in a page of their own, so that the
    /// process that serves a VM rings at no other. Interrupts come first: they are what a running
    /// device needs, and Gear1 looks for a channel from the first one on.
    fn add_doorbells(&self, list: &mut Vec<BootChannel>) {
        let pages = || {
            self.manifest
                .virtio_vms()
                .zip(0..)
                .map(|(vm, registers)| (vm, self.doorbells(doorbell_page(registers))))
        };
        for (vm, page) in pages() {
            let devices = self.manifest.virtio_of(vm.id);
            list.extend(devices.map(|(number, device)| {
                let ipa = page + doorbell_device(number) as u64;
                let interrupt = (ipa, ChannelKind::Interrupt);
                // planted: a doorbell of the device model is at another guest
                channel(interrupt, vm.id.reg() as u32, device.intid())
            }));
        }
        for page in core::iter::once(self.doorbells(0)).chain(pages().map(|(_, page)| page)) {
            let gear2 = page + DOORBELL_GEAR2 as u64;
            list.push(channel((gear2, ChannelKind::Gear2), 0, 0));
        }
        for (vm, page) in pages() {
            self.add_armings(vm, page, list);
        }
    }

    /// Adds, to a VM's doorbell page, the doorbells that arm its devices' lines: one for each PL061
    /// that has any. The first PL061 is Gear2's, which does not raise it without end.
    fn add_armings(&self, vm: &Vm<'_>, page: u64, list: &mut Vec<BootChannel>) {
        for pl061 in 1..intids(self.manifest).len() {
            let lines = self
                .manifest
                .virtio_of(vm.id)
                .map(|(number, _)| line_of_channel(number));
            let lines = lines.filter(|(block, _)| *block == pl061);
            let lines = lines.fold(0, |lines, (_, line)| lines | 1 << line);
            if lines != 0 {
                let ipa = page + doorbell_arm(pl061) as u64;
                list.push(channel((ipa, ChannelKind::Arm), pl061 as u32, lines));
            }
        }
    }

    /// Returns the emulated PL061 blocks, a page each from the window's beginning.
    fn pl061(&self) -> Vec<BootPl061> {
        let window = (self.own.vm.window_ipa..).step_by(PAGE_SIZE as usize);
        let blocks = intids(self.manifest).zip(window);
        let blocks = blocks.map(|(intid, ipa)| BootPl061 {
            ipa,
            intid,
            vm: self.own.vm.id.reg() as u32,
        });
        blocks.collect()
    }

    /// Iterates over the VMs that are served, with their memory.
    fn guests<'s>(&'s self, starts: &'s [Pa]) -> impl Iterator<Item = (&'m Vm<'a>, Region)> + 's {
        self.manifest.virtio_vms().filter_map(|vm| {
            let start = starts.get(vm.id.index())?.get();
            // planted: a served VM's memory is another's too
            Some((vm, Region::new(start, start + vm.memory.bytes)))
        })
    }
}

/// Returns the channel at an address. `target` and `number` mean what the kind says.
const fn channel((ipa, kind): (u64, ChannelKind), target: u32, number: u32) -> BootChannel {
    BootChannel {
        ipa,
        kind,
        target,
        number,
    }
}

/// Returns the mapping of `region` at `ipa`.
fn mapping(
    space: Space,
    ipa: u64,
    region: Region,
    attributes: Attributes,
    why: Purpose,
) -> Mapping {
    Mapping {
        space,
        ipa,
        pa: region.start,
        size: region.bytes(),
        attributes,
        why,
    }
}

/// Returns a guest's memory as its own tree maps it: shared if the device VM serves it. Memory that
/// is shared is no longer the guest's to lend or donate by FF-A.
#[must_use]
pub fn memory_attributes(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Attributes {
    match manifest.virtio_of(vm.id).next() {
        Some(_) => Attributes::RAM.with_state(PageState::SharedOwned),
        None => Attributes::RAM,
    }
}

/// Returns the region with what describes it.
fn with_description(region: Region) -> Region {
    Region::new(region.start - dax::DATA_OFFSET, region.end)
}

/// Returns the interrupts of the PL061 blocks, of eight lines each: Gear2's, and one for eight
/// channels.
pub(crate) fn intids(manifest: &Manifest<'_>) -> Range<u32> {
    let last = manifest.virtio.len().checked_sub(1).map(line_of_channel);
    FIRST_INTID..FIRST_INTID + 1 + last.map_or(0, |(pl061, _)| pl061 as u32)
}
