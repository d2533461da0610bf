//! The partition: what each VM and Gear2 see of physical memory when the machine starts.
//!
//! Owns the one list of stage-2 mappings. Each module of init adds the mappings that are its
//! subject. [`Partition::check`] judges the list as a whole before a byte of a VM's memory is
//! written, and [`Partition::apply`] builds every stage 2 from it; nothing else in init maps at
//! stage 2.
//!
//! Invariants of a list that is checked: an IPA of a VM has one meaning, mapped or emulated; a
//! physical page has one owner and only those other users that [`Mapping::may_share`] names;
//! nothing of Gear1's own and nothing of the archive is mapped; what is not RAM is Device memory.
//!
//! Requirements: G1-MEM-004, G1-MEM-024, G1-DMA-004.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::{Ipa, Pa};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::{Attributes, Memory, PageState, Stage2};
use gearv_manifest::{Manifest, VmId};

use crate::refusal::{Refusal, refusal};
use crate::region::{Region, pages};
use crate::table_memory::BootTables;

#[cfg(test)]
mod tests;

/// Whose stage 2 a mapping belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Gear2's.
    Gear2,
    /// A VM's.
    Vm(VmId),
}

impl Space {
    /// Returns the manifest's node of the space's owner.
    #[must_use]
    pub fn path(self, manifest: &Manifest<'_>) -> String {
        match self {
            Self::Gear2 => "/gear2".to_string(),
            Self::Vm(vm) => format!("/vms/{}", name(manifest, vm)),
        }
    }
}

/// Why a mapping is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The VM's own memory.
    Memory,
    /// A GICv2's CPU interface: the virtual one, or the physical one of a VM with pass-through.
    CpuInterface,
    /// The page in which Gear1 tells the VM how much time was stolen from it.
    StolenTime,
    /// The page in which the VM shows Gear1 a sign of life.
    Heartbeat,
    /// Registers of a device that the VM owns.
    Device,
    /// Memory that several VMs have from boot on, by its place in the manifest.
    SharedMemory(usize),
    /// The memory of a VM that the device VM serves, in the device VM.
    ServedMemory(VmId),
    /// Metadata that describes a region to the device VM's Linux.
    DaxDescription,
    /// The register page of a VM's virtio devices.
    VirtioRegisters(VmId),
    /// The region that Gear2 shares with the device VM.
    ControlRegion,
    /// A part of Gear2.
    Gear2(&'static str),
}

impl Purpose {
    /// Returns the purpose in words.
    #[must_use]
    pub fn text(self, manifest: &Manifest<'_>) -> String {
        match self {
            Self::Memory => "memory".to_string(),
            Self::CpuInterface => "GIC CPU interface".to_string(),
            Self::StolenTime => "stolen time".to_string(),
            Self::Heartbeat => "heartbeat".to_string(),
            Self::Device => "device registers".to_string(),
            Self::SharedMemory(number) => {
                let shared = manifest.shared.iter().nth(number);
                let name = shared.map_or("?", |shared| shared.name);
                format!("/shared-memory/{name}")
            }
            Self::ServedMemory(vm) => format!("memory of /vms/{}", name(manifest, vm)),
            Self::DaxDescription => "dax description".to_string(),
            Self::VirtioRegisters(vm) => {
                format!("virtio registers of /vms/{}", name(manifest, vm))
            }
            Self::ControlRegion => "control region".to_string(),
            Self::Gear2(part) => part.to_string(),
        }
    }
}

/// Returns a VM's name in the manifest.
fn name<'a>(manifest: &Manifest<'a>, vm: VmId) -> &'a str {
    let mut vms = manifest.vms.iter();
    vms.find(|one| one.id == vm).map_or("?", |vm| vm.name)
}

/// Physical memory, or a device's registers, in a stage 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Whose stage 2.
    pub space: Space,
    /// The first address there.
    pub ipa: u64,
    /// The first physical address.
    pub pa: u64,
    /// Bytes.
    pub size: u64,
    /// Access rights, memory type and sharing state.
    pub attributes: Attributes,
    /// Why the mapping is there.
    pub why: Purpose,
}

impl Mapping {
    /// Returns the addresses in the space.
    #[must_use]
    pub const fn input(&self) -> Region {
        Region::new(self.ipa, self.ipa.saturating_add(self.size))
    }

    /// Returns the physical addresses.
    #[must_use]
    pub const fn output(&self) -> Region {
        Region::new(self.pa, self.pa.saturating_add(self.size))
    }

    /// Tells whether the two may map the same physical page: the manifest, or Gear1's own design,
    /// declares the memory shared, one side at most owns it, and no side caches what another does
    /// not.
    #[must_use]
    pub fn may_share(&self, other: &Self) -> bool {
        use PageState::{SharedBorrowed, SharedOwned};
        let states = (self.attributes.state, other.attributes.state);
        let has_one_owner = matches!(
            states,
            (Some(SharedOwned), Some(SharedBorrowed)) | (Some(SharedBorrowed), Some(SharedOwned))
        );
        self.is_declared_with(other, has_one_owner, states == (None, None))
            && self.space != other.space
            && self.attributes.memory == other.attributes.memory
    }

    /// Returns the size in which the mapping is entered. The memory of a VM in `by_pages` is
    /// entered by pages. Its devices may use it while pages change, and break-before-make of a
    /// block would abort their accesses (docs/design.md).
    fn step(&self, by_pages: &[VmId]) -> u64 {
        let is_by_pages = |vm: &VmId| self.space == Space::Vm(*vm);
        match self.why {
            Purpose::Memory if by_pages.iter().any(is_by_pages) => PAGE_SIZE,
            _ => self.size,
        }
    }

    /// Tells whether the reasons of the two name memory that they are meant to share:
    /// `has_one_owner` and `has_none` say which of the two owns the page. A pair that is not listed
    /// is an accident, so a new reason shares nothing until a line here says so.
    fn is_declared_with(&self, other: &Self, has_one_owner: bool, has_none: bool) -> bool {
        match (self.why, other.why) {
            // A VM's memory is its own, and the device VM borrows it.
            (Purpose::Memory, Purpose::ServedMemory(guest)) => {
                has_one_owner && self.space == Space::Vm(guest)
            }
            (Purpose::ServedMemory(guest), Purpose::Memory) => {
                has_one_owner && other.space == Space::Vm(guest)
            }
            // The device VM owns the page; the guest and Gear2 borrow it.
            (Purpose::VirtioRegisters(one), Purpose::VirtioRegisters(of)) => {
                one == of && (has_one_owner || self.is_guests_and_gear2s(other, one))
            }
            (Purpose::ControlRegion, Purpose::ControlRegion) => has_one_owner,
            (Purpose::SharedMemory(one), Purpose::SharedMemory(other)) => has_none && one == other,
            // Each CPU that reads there finds its own (Arm IHI 0048, 5.5).
            (Purpose::CpuInterface, Purpose::CpuInterface) => has_none,
            _ => false,
        }
    }
}

impl Mapping {
    /// Tells whether one of the two is what `guest` sees and cannot write, and one what Gear2 sees.
    fn is_guests_and_gear2s(&self, other: &Self, guest: VmId) -> bool {
        let borrowed = Some(PageState::SharedBorrowed);
        let is_guests = |one: &Self| one.space == Space::Vm(guest) && !one.attributes.write;
        let pair = |one: &Self, other: &Self| is_guests(one) && other.space == Space::Gear2;
        self.attributes.state == borrowed
            && other.attributes.state == borrowed
            && (pair(self, other) || pair(other, self))
    }
}

/// Addresses of a VM whose accesses exit: Gear1 or Gear2 emulates what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulated {
    /// The VM.
    pub vm: VmId,
    /// The addresses in the VM.
    pub region: Region,
    /// Name of the emulated device.
    pub what: &'static str,
}

/// Facts that the list is judged against.
#[derive(Clone, Debug)]
pub struct Ground<'g> {
    /// The board's RAM.
    pub memory: &'g [Region],
    /// Gear1's own memory, with the name of each part.
    pub gear1: Vec<(Region, &'static str)>,
    /// A GICv2's physical CPU interface, which Gear1 shares with VMs that have pass-through.
    pub gicc: Option<Region>,
    /// The first address that no stage 2 translates.
    pub limit: u64,
}

/// The roots of all stage-2 trees.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Gear2's.
    pub gear2: Stage2,
    /// The VMs', in the order of the manifest.
    pub vms: Vec<Stage2>,
}

impl Roots {
    /// Returns the stage 2 of a space; `None` only if the list names a VM that was not prepared.
    fn of(&self, space: Space) -> Option<&Stage2> {
        match space {
            Space::Gear2 => Some(&self.gear2),
            Space::Vm(vm) => self.vms.get(vm.index()),
        }
    }
}

/// All stage-2 mappings of a machine, and what is emulated beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// The mappings, by space and address.
    pub mappings: Vec<Mapping>,
    /// Emulated devices, by VM and address.
    pub emulated: Vec<Emulated>,
}

impl Partition {
    /// Returns the list in order, without mappings of no byte.
    #[must_use]
    pub fn new(mut mappings: Vec<Mapping>, mut emulated: Vec<Emulated>) -> Self {
        mappings.retain(|mapping| mapping.size != 0);
        mappings.sort_by_key(|mapping| (mapping.space, mapping.ipa));
        emulated.sort_by_key(|emulated| (emulated.vm, emulated.region.start));
        Self { mappings, emulated }
    }

    /// Adds a mapping at its address, or if the space has something else there, at the first free
    /// address behind something that the space has, or behind a bank of `ram`. An address that is
    /// RAM of the machine is the last choice: the VM sees memory that a peer shares with it later
    /// at its physical address, and could not retrieve a page that lies there. Without any free
    /// address below `limit` the mapping stays where it is, and [`check`](Self::check) refuses the
    /// list.
    pub fn add_anywhere(&mut self, mut mapping: Mapping, ram: &[Region], limit: u64) {
        let taken = self.taken(mapping.space);
        let is_free = |start: &u64, apart_from: &[Region]| {
            let region = Region::new(*start, start.saturating_add(mapping.size));
            let mut others = taken.iter().chain(apart_from);
            region.end <= limit && !others.any(|other| other.overlaps(&region))
        };
        let banks: Vec<Region> = ram.iter().map(pages).collect();
        let ends = taken.iter().chain(&banks).map(|region| region.end);
        let mut ends: Vec<u64> = ends.filter(|end| end.is_multiple_of(PAGE_SIZE)).collect();
        ends.sort_unstable();
        // Gear1's own page is at this address, so that no peer's is.
        let own = Some(mapping.ipa).filter(|start| is_free(start, &[]));
        let find = |apart_from| ends.iter().copied().find(|end| is_free(end, apart_from));
        // planted: a page that gives way lies where a peer's memory may be
        let free = own.or_else(|| find(&banks)).or_else(|| find(&[]));
        mapping.ipa = free.unwrap_or(mapping.ipa);
        self.insert(mapping);
    }

    /// Adds a mapping where the order of the list has its place.
    fn insert(&mut self, mapping: Mapping) {
        let is_before = |one: &Mapping| (one.space, one.ipa) <= (mapping.space, mapping.ipa);
        let place = self.mappings.partition_point(is_before);
        self.mappings.insert(place, mapping);
    }

    /// Returns the addresses of a space that have a meaning, in ascending order.
    fn taken(&self, space: Space) -> Vec<Region> {
        let mapped = self.mappings.iter().filter(|one| one.space == space);
        let emulated = self.emulated.iter();
        let emulated = emulated.filter(|one| space == Space::Vm(one.vm));
        let mut taken: Vec<Region> = mapped
            .map(Mapping::input)
            .chain(emulated.map(|one| one.region))
            .collect();
        taken.sort_by_key(|region| region.start);
        taken
    }

    /// Returns where a VM finds its stolen time; 0: nothing is stolen from the VM.
    #[must_use]
    pub fn stolen_time(&self, vm: VmId) -> u64 {
        let is_told = |one: &&Mapping| one.space == Space::Vm(vm) && one.why == Purpose::StolenTime;
        self.mappings.iter().find(is_told).map_or(0, |one| one.ipa)
    }

    /// Refuses the list unless all invariants of this module hold.
    pub fn check(&self, ground: &Ground<'_>, manifest: &Manifest<'_>) -> Result<(), Refusal> {
        for (number, one) in self.mappings.iter().enumerate() {
            check_shape(one, ground, manifest)?;
            check_own(one, ground, manifest)?;
            check_attributes(one, ground, manifest)?;
            // planted: a mapping hides an emulated device
            self.check_emulated(one, manifest)?;
            for other in self.mappings.iter().skip(number + 1) {
                check_pair(one, other, manifest)?;
            }
        }
        Ok(())
    }

    /// Refuses a mapping that hides an emulated device: its accesses would not exit.
    fn check_emulated(&self, mapping: &Mapping, manifest: &Manifest<'_>) -> Result<(), Refusal> {
        let mut emulated = self.emulated.iter();
        let hidden = emulated.find(|emulated| {
            mapping.space == Space::Vm(emulated.vm) && emulated.region.overlaps(&mapping.input())
        });
        hidden.map_or(Ok(()), |hidden| {
            let (what, at) = (hidden.what, hidden.region.start);
            Err(refuse(
                mapping,
                manifest,
                &format!("{what} is emulated at {at:#x}"),
            ))
        })
    }

    /// Builds every stage 2 from the list, which is the only way to one.
    pub fn apply<M: PhysicalMemory>(
        &self,
        roots: &Roots,
        manifest: &Manifest<'_>,
        by_pages: &[VmId],
        tables: &mut BootTables<'_, M>,
    ) -> Result<(), Refusal> {
        for mapping in &self.mappings {
            let root = roots.of(mapping.space);
            let root = root.ok_or_else(|| refuse(mapping, manifest, "there is no stage 2"))?;
            let step = mapping.step(by_pages);
            for offset in (0..mapping.size).step_by(step as usize) {
                let (ipa, pa) = (mapping.ipa + offset, mapping.pa + offset);
                root.map(tables, Ipa::new(ipa), Pa::new(pa), step, mapping.attributes)
                    .map_err(|error| refuse(mapping, manifest, &format!("{error:?}")))?;
            }
        }
        Ok(())
    }
}

/// Refuses addresses that no descriptor can say.
fn check_shape(
    mapping: &Mapping,
    ground: &Ground<'_>,
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    if !is_whole_pages(mapping) {
        let (pa, size) = (mapping.pa, mapping.size);
        let what = format!("{size:#x} bytes at {pa:#x} are no whole pages");
        return Err(refuse(mapping, manifest, &what));
    }
    let limit = ground.limit;
    if !ends_below(mapping.ipa, mapping.size, limit) || !ends_below(mapping.pa, mapping.size, limit)
    {
        let what = format!("stage 2 translates no address from {limit:#x} on");
        return Err(refuse(mapping, manifest, &what));
    }
    Ok(())
}

/// Tells whether a mapping begins and ends with a page on both sides: a descriptor has no room for
/// the lower bits, and would map the neighbours in the page as well.
fn is_whole_pages(mapping: &Mapping) -> bool {
    let numbers = [mapping.ipa, mapping.pa, mapping.size];
    numbers
        .iter()
        .all(|number| number.is_multiple_of(PAGE_SIZE))
}

/// Tells whether a range ends at or below the limit; one that wraps around does not.
fn ends_below(start: u64, size: u64, limit: u64) -> bool {
    start.checked_add(size).is_some_and(|end| end <= limit)
}

/// Refuses what is Gear1's own. A GICv2's physical CPU interface alone is Gear1's and a VM's: each
/// CPU that accesses the page finds its own registers there.
fn check_own(
    mapping: &Mapping,
    ground: &Ground<'_>,
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    let output = mapping.output();
    let is_gicc = mapping.why == Purpose::CpuInterface
        && ground.gicc.is_some_and(|gicc| gicc.contains(&output));
    let mut own = ground.gear1.iter();
    match own.find(|(region, _)| region.overlaps(&output) && !is_gicc) {
        Some((region, what)) => {
            let (start, end) = (region.start, region.end);
            let what = format!("{what} at {start:#x} to {end:#x} is Gear1's own");
            Err(refuse(mapping, manifest, &what))
        }
        None => Ok(()),
    }
}

/// Refuses registers that could be cached or executed, and stolen time that a VM could write.
/// A cached register would be read and written at other times than the driver means; a speculative
/// fetch of an executable one could change the device.
fn check_attributes(
    mapping: &Mapping,
    ground: &Ground<'_>,
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    let (output, attributes) = (mapping.output(), mapping.attributes);
    let is_ram = ground.memory.iter().any(|bank| bank.overlaps(&output));
    let is_device = attributes.memory == Memory::Device;
    if (!is_ram || mapping.why == Purpose::Device) && (!is_device || attributes.execute) {
        let what = format!("registers at {:#x} are no Device memory", mapping.pa);
        return Err(refuse(mapping, manifest, &what));
    }
    if mapping.why == Purpose::StolenTime && attributes.write {
        return Err(refuse(mapping, manifest, "the VM could write it"));
    }
    Ok(())
}

/// Refuses an IPA with two meanings, and a page with two owners.
fn check_pair(one: &Mapping, other: &Mapping, manifest: &Manifest<'_>) -> Result<(), Refusal> {
    if one.space == other.space && one.input().overlaps(&other.input()) {
        let (why, ipa) = (other.why.text(manifest), other.ipa);
        let what = format!("{why} is mapped at {ipa:#x}");
        return Err(refuse(one, manifest, &what));
    }
    // planted: a second mapping of a page is not refused
    if one.output().overlaps(&other.output()) && !one.may_share(other) {
        let (why, space) = (other.why.text(manifest), other.space.path(manifest));
        let at = one.pa.max(other.pa);
        let what = format!("the page at {at:#x} is {why} in {space} too");
        return Err(refuse(one, manifest, &what));
    }
    Ok(())
}

/// Says where a mapping is, and why it is refused.
fn refuse(mapping: &Mapping, manifest: &Manifest<'_>, what: &str) -> Refusal {
    let (space, why) = (mapping.space.path(manifest), mapping.why.text(manifest));
    let Region { start, end } = mapping.input();
    refusal!(
        Machine,
        "{space}: {why} at {start:#x} to {end:#x} cannot be mapped: {what}"
    )
}
