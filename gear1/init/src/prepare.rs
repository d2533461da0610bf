//! The whole of init but the machine: from the board's device tree and the archive to a runtime
//! that can be entered.
//!
//! Invariant: whatever is wrong is found before the first guest could run; there is no way from a
//! [`Refusal`] on to a hand-over.
//!
//! Requirements: G1-BOOT-002, G1-BOOT-008, G1-BOOT-012.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::boot::{
    BOOT_MAGIC, BootChannel, BootCpu, BootGear2, BootInfo, BootMaster, BootVm, IrqOwner,
    MAX_CHANNELS, MAX_INTIDS, MAX_MASTERS, RealTime, SHARING_TABLES,
};
use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use gear1_abi::layout::{PAGE_SIZE, gear2 as gear2_layout};
use gear1_abi::{ABI_VERSION, info::uart};
use gear1_core::addr::{Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage1;
use gear1_core::stage2::{Attributes, Geometry, Stage2};
use gearv_manifest::blob::Blob;
use gearv_manifest::{
    Archive, CpuIndex, GicMode, MANIFEST_MEMBER, Manifest, ManifestError, Member, Privilege,
    Restart, Severity, Vm, VmKind,
};

use crate::device_vm::{DeviceVm, Shared, memory_attributes};
use crate::devices;
use crate::el2::{self, Runtime};
use crate::fdt::{Board, GICC_SIZE, Uart};
use crate::gear2;
use crate::layout::{self, FreeMemory};
use crate::partition::{Ground, Mapping, Partition, Purpose, Roots, Space};
use crate::passthrough::{Passthrough, check_owners};
use crate::refusal::{Fault, Refusal, none_of, refusal};
use crate::region::{Region, subtract};
use crate::shared;
use crate::table_memory::BootTables;
use crate::vm;

#[cfg(test)]
pub(crate) mod tests;

/// VMID of the empty stage 2.
const NULL_VMID: u16 = 0xff;
/// Root tables are taken from the pool's start, which is aligned to the largest of them.
const POOL_ALIGN: u64 = 0x8000;
/// Tables that Gear2's pieces take at most, beside its heap's.
const GEAR2_TABLES: u64 = 16;
/// Tables for each VM beside its memory's: for GICV and register pages.
const SPARE_TABLES: u64 = 8;
/// Tables for each VM's page of stolen time.
const STOLEN_TIME_TABLES: u64 = 2;
/// GIC versions that this build supports.
const GIC_VERSIONS: &[u32] = &[2, 3];
const KINDS: &[VmKind] = &[VmKind::Guest, VmKind::Device, VmKind::RealTime];
const PRIVILEGES: &[Privilege] = &[Privilege::El0, Privilege::El1];

/// Inputs of init.
#[derive(Debug)]
pub struct Given<'a> {
    /// The machine.
    pub board: &'a Board,
    /// The bytes of the boot archive.
    pub archive: &'a [u8],
    /// The runtime's flat image.
    pub runtime: &'a [u8],
    /// Memory of init itself.
    pub init: Region,
    /// Memory of the board's device tree.
    pub device_tree: Region,
    /// Bytes of the board's device tree.
    pub tree: &'a [u8],
    /// Affinity of this CPU.
    pub boot_cpu: u64,
    /// ID_AA64MMFR0_EL1.PARange.
    pub pa_range: u64,
    /// Frequency of the counter.
    pub counter_hz: u32,
}

/// Entry of the runtime, and the free memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Entry point of the runtime.
    pub entry: Va,
    /// Root of the runtime's tables, for TTBR0_EL2.
    pub root: Pa,
    /// Memory that is left free.
    pub left: Vec<Region>,
    /// List of all mappings of VMs.
    pub partition: Partition,
}

/// Prepares everything, in memory that nobody else has.
pub fn prepare<M: PhysicalMemory>(given: &Given<'_>, memory: &mut M) -> Result<HandOver, Refusal> {
    let board = given.board;
    check_board(given)?;
    let archive = Archive::new(given.archive).map_err(|error| refusal!(Archive, "{error}"))?;
    let blob = member(&archive, MANIFEST_MEMBER)?.data;
    let taken = taken(given);
    let manifest = read_manifest(blob, given, &taken)?;
    let mut faults = Vec::new();
    let owners = Owners::find(&manifest, given.tree, board, &mut faults)?;
    // planted: a manifest that breaks a rule is taken
    none_of(&faults)?;
    // planted: a file with another digest is taken
    check_digests(&manifest, &archive)?;
    let system = System {
        given,
        archive: &archive,
        blob,
        manifest: &manifest,
        owners: &owners,
        geometry: geometry(given, &manifest, &owners)?,
    };
    let mut free = FreeMemory::new(&board.memory, &taken);
    let placed = Placed::place(&system, &mut free, memory)?;
    let partition = placed.partition(&system);
    partition.check(&placed.ground(&system), &manifest)?;
    let info = placed.build(&system, &partition, memory)?;
    let runtime = &placed.runtime;
    memory.write_boot_info(runtime.boot_info, &info);
    memory.clean(runtime.boot_info, size_of::<BootInfo>() as u64);
    Ok(HandOver {
        entry: runtime.entry,
        root: runtime.root,
        left: free.regions().to_vec(),
        partition,
    })
}

/// Everything that is known before memory is given out.
struct System<'s, 'a> {
    given: &'s Given<'s>,
    archive: &'s Archive<'a>,
    /// The manifest's bytes.
    blob: &'a [u8],
    manifest: &'s Manifest<'a>,
    owners: &'s Owners<'s, 'a>,
    geometry: Geometry,
}

/// The VMs that own devices of the board.
struct Owners<'m, 'a> {
    device_vm: Option<DeviceVm<'m, 'a>>,
    real_time: Vec<Passthrough<'m, 'a>>,
}

impl<'m, 'a> Owners<'m, 'a> {
    /// Finds the VMs and their devices. What the manifest does wrong goes to `faults`.
    fn find(
        manifest: &'m Manifest<'a>,
        tree: &'m [u8],
        board: &Board,
        faults: &mut Vec<Fault>,
    ) -> Result<Self, Refusal> {
        let owners = Self {
            device_vm: DeviceVm::find(manifest, tree, board, faults)?,
            real_time: Passthrough::find_real_time(manifest, tree, board, faults)?,
        };
        check_owners(owners.all(), faults);
        Ok(owners)
    }

    fn all(&self) -> impl Iterator<Item = &Passthrough<'m, 'a>> + Clone {
        let device_vm = self.device_vm.as_ref().map(|vm| &vm.own);
        self.real_time.iter().chain(device_vm)
    }

    /// Returns the first address behind all that the VMs see beside memory.
    fn limit(&self) -> u64 {
        let device_vm = self.device_vm.as_ref().map(DeviceVm::limit);
        let limits = self
            .real_time
            .iter()
            .map(Passthrough::limit)
            .chain(device_vm);
        limits.fold(0, u64::max)
    }

    /// Returns how many tables the VMs' devices, and all that the device VM shares, take at most.
    fn table_count(&self) -> u64 {
        let device_vm = self.device_vm.as_ref().map_or(0, DeviceVm::table_count);
        let real_time: u64 = self.real_time.iter().map(Passthrough::table_count).sum();
        device_vm + real_time
    }
}

/// Where everything lies in memory.
struct Placed<'a> {
    pool: Region,
    runtime: Runtime,
    /// Memory that the device VM shares.
    shared: Option<Shared>,
    /// The boot UART, unless a VM has it.
    uart: Option<Uart>,
    gear2: gear2::Loaded,
    /// Where each VM's memory lies.
    starts: Vec<Pa>,
    vms: Vec<vm::Prepared<'a>>,
    /// Allocated memory that stays Gear1's own.
    gear1: Vec<(Region, &'static str)>,
}

impl<'a> Placed<'a> {
    /// Gives out memory, and loads Gear1's runtime and Gear2.
    fn place<M: PhysicalMemory>(
        system: &System<'_, 'a>,
        free: &mut FreeMemory,
        memory: &mut M,
    ) -> Result<Self, Refusal> {
        let (given, manifest) = (system.given, system.manifest);
        let board = given.board;
        shared::take(free, manifest)?;
        let fixed = layout::take_fixed(free, manifest)?;
        let before = free.clone();
        let pool_size = pool_size(manifest, &system.geometry, system.owners);
        let pool = free.take(pool_size, POOL_ALIGN, "stage-2 tables")?.get();
        let pool = Region::new(pool, pool + pool_size);
        let vm_count = manifest.vms.len();
        let runtime = el2::load(given.runtime, board, pool, vm_count, free, memory)?;
        let mut gear1 = free.given_since(&before, "the runtime");
        let device_vm = system.owners.device_vm.as_ref();
        let shared = device_vm.map(|vm| vm.take(free, memory)).transpose()?;
        let has_uart = |uart: &Uart| system.owners.all().any(|vm| vm.has_uart(uart));
        let uart = board.uart.filter(|uart| !has_uart(uart));
        let control = shared.as_ref().map(|shared| shared.control);
        let gear2 = load_gear2(system, uart, control, free, memory)?;
        let starts = layout::take_rest(free, manifest, &fixed)?;
        let before = free.clone();
        let mut vms = Vec::new();
        for (vm, start) in manifest.vms.iter().zip(&starts) {
            vms.push(prepare_vm(
                system,
                vm,
                *start,
                &starts,
                shared.as_ref(),
                free,
            )?);
        }
        gear1.extend(free.given_since(&before, "a device tree to be loaded again"));
        Ok(Self {
            pool,
            runtime,
            shared,
            uart,
            gear2,
            starts,
            vms,
            gear1,
        })
    }

    /// Returns the list of all that is mapped or emulated.
    fn partition(&self, system: &System<'_, 'a>) -> Partition {
        let (board, manifest) = (system.given.board, system.manifest);
        let mut mappings = self.gear2.mappings.clone();
        let mut emulated = Vec::new();
        for (vm, prepared) in manifest.vms.iter().zip(&self.vms) {
            mappings.push(prepared.mapping(vm, memory_attributes(manifest, vm)));
            mappings.extend(vm::cpu_interface(vm, board));
            emulated.extend(vm::emulated(vm, board));
        }
        // planted: a VM's memory is mapped in Gear2 too
        mappings.extend(shared::mappings(manifest));
        let real_time = &system.owners.real_time;
        mappings.extend(real_time.iter().flat_map(Passthrough::mappings));
        let device_vm = system.owners.device_vm.as_ref();
        if let Some((device_vm, shared)) = device_vm.zip(self.shared.as_ref()) {
            mappings.extend(device_vm.mappings(shared, &self.starts));
            emulated.extend(device_vm.emulated());
        }
        let mut partition = Partition::new(mappings, emulated);
        for vm in manifest.vms.iter() {
            if let Some(stolen_time) = self.stolen_time(vm) {
                partition.add_anywhere(stolen_time, &board.memory, system.geometry.limit());
            }
        }
        partition
    }

    /// Returns the mapping of the VM's page of stolen time, at the page's physical address. From a
    /// real-time VM, whose CPU is its own, nothing is stolen. The manifest's author cannot know
    /// where the page lies, so the VM sees the page elsewhere if something else is there, and where no
    /// peer's memory can be.
    fn stolen_time(&self, vm: &Vm<'_>) -> Option<Mapping> {
        let page = self.runtime.stolen_time.get() + vm.id.reg() * PAGE_SIZE;
        (vm.kind != VmKind::RealTime).then_some(Mapping {
            space: Space::Vm(vm.id),
            ipa: page,
            pa: page,
            size: PAGE_SIZE,
            attributes: Attributes::READ_ONLY_UNOWNED,
            why: Purpose::StolenTime,
        })
    }

    /// Returns what no VM may be given.
    fn ground<'g>(&self, system: &System<'g, 'a>) -> Ground<'g> {
        let (given, board) = (system.given, system.given.board);
        let gic = &board.gic;
        let gicc = Region::new(board.gicc(), board.gicc() + GICC_SIZE);
        let gich = Region::new(gic.gich, gic.gich + PAGE_SIZE);
        let gicr = Region::new(gic.gicr, gic.gicr + board.gicr_size);
        let [gicd, _] = vm::gic_regions(board, 0);
        let is_v2 = gic.version == 2;
        let mut gear1 = alloc::vec![
            (given.init, "init"),
            (given.device_tree, "the board's device tree"),
            (board.archive, "the boot archive"),
            (gicd, "the GIC's distributor"),
        ];
        if is_v2 {
            gear1.extend([(gicc, "the GIC's CPU interface"), (gich, "GICH")]);
        } else {
            gear1.push((gicr, "the GIC's redistributors"));
        }
        // VMs read their pages of stolen time, which lie among the runtime's memory.
        let stolen_time = self.runtime.stolen_time.get();
        let stolen_time = Region::new(stolen_time, stolen_time + self.vms.len() as u64 * PAGE_SIZE);
        for (region, what) in &self.gear1 {
            let rest = subtract(&[*region], &[stolen_time]);
            gear1.extend(rest.into_iter().map(|rest| (rest, *what)));
        }
        Ground {
            memory: &board.memory,
            gear1,
            gicc: is_v2.then_some(gicc),
            limit: system.geometry.limit(),
        }
    }

    /// Builds every stage 2, fills what is shared and the VMs that start by themselves, and returns
    /// what the runtime is to know.
    fn build<M: PhysicalMemory>(
        &self,
        system: &System<'_, 'a>,
        partition: &Partition,
        memory: &mut M,
    ) -> Result<Box<BootInfo>, Refusal> {
        let (board, manifest) = (system.given.board, system.manifest);
        let mut pool = FreeMemory::new(&[self.pool], &[]);
        let mut tables = BootTables {
            memory,
            free: &mut pool,
        };
        let null = next_root(&system.geometry, &mut tables)?;
        let roots = Roots {
            gear2: next_root(&system.geometry, &mut tables)?,
            vms: manifest
                .vms
                .iter()
                .map(|_| next_root(&system.geometry, &mut tables))
                .collect::<Result<_, _>>()?,
        };
        partition.apply(&roots, manifest, &mut tables)?;
        let memory = tables.memory;
        let mut info = machine_info(system.given, self.uart, &self.runtime, manifest);
        info.vtcr_el2 = system.geometry.vtcr();
        info.root_size = system.geometry.root_size();
        info.null_root = null.root().get();
        info.gear2 = BootGear2 {
            root: roots.gear2.root().get(),
            ..self.gear2.boot
        };
        let archive_pa = Pa::new(board.archive.start);
        let vms = manifest.vms.iter().zip(&self.vms).zip(&roots.vms);
        for (((vm, prepared), root), slot) in vms.zip(&mut info.vms) {
            *slot = prepared.load(vm, archive_pa, root.root(), memory);
            slot.stolen_time_ipa = partition.stolen_time(vm.id);
            let (count, mib, at) = (vm.vcpu_count, vm.memory.bytes >> 20, slot.regions[0].pa);
            log::info!("{}: {count} vCPUs, {mib} MiB at {at:#x}", vm.name);
        }
        fill_vms(&mut info, board, manifest);
        shared::fill(manifest, memory);
        let owners = system.owners;
        owners.real_time.iter().for_each(|vm| vm.fill(&mut info));
        if let Some((device_vm, shared)) = owners.device_vm.as_ref().zip(self.shared.as_ref()) {
            device_vm.describe(shared, &self.starts, memory);
            device_vm.fill(&mut info);
        }
        info.pool_used = self.pool.bytes() - pool.total();
        Ok(info)
    }
}

/// Takes the next root of a stage 2.
fn next_root<M: PhysicalMemory>(
    geometry: &Geometry,
    tables: &mut BootTables<'_, M>,
) -> Result<Stage2, Refusal> {
    let size = geometry.root_size();
    let root = tables.free.take(size, size, "stage-2 roots")?;
    tables.memory.zero(root, size);
    Ok(geometry.stage2(root))
}

fn load_gear2<M: PhysicalMemory>(
    system: &System<'_, '_>,
    uart: Option<Uart>,
    shared: Option<Region>,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<gear2::Loaded, Refusal> {
    let board = system.given.board;
    let image = member(system.archive, system.manifest.gear2.image)?;
    let sources = gear2::Sources {
        image: image.data,
        image_at: Pa::new(board.archive.start + image.offset as u64),
        manifest: system.manifest,
        blob: system.blob,
        board,
        uart,
        shared,
        counter_hz: system.given.counter_hz,
    };
    gear2::load(&sources, free, memory)
}

/// Finds a place for a VM's payload, and finishes the VM's device tree. init makes the tree of a VM
/// with devices from the board's; the archive has the others.
fn prepare_vm<'a>(
    system: &System<'_, 'a>,
    vm: &Vm<'a>,
    start: Pa,
    starts: &[Pa],
    shared: Option<&Shared>,
    free: &mut FreeMemory,
) -> Result<vm::Prepared<'a>, Refusal> {
    let board = system.given.board;
    let archive = system.archive;
    let device_vm = system.owners.device_vm.as_ref().zip(shared);
    if let Some((device_vm, shared)) = device_vm.filter(|(owner, _)| owner.own.vm.id == vm.id) {
        let make = |memory, initrd| device_vm.device_tree(shared, starts, board, [memory, initrd]);
        return vm::prepare(vm, start, Some(&make), archive, board, free);
    }
    let mut real_time = system.owners.real_time.iter();
    if let Some(owner) = real_time.find(|owner| owner.vm.id == vm.id) {
        let make = |memory, initrd| owner.device_tree(board, [memory, initrd]);
        return vm::prepare(vm, start, Some(&make), archive, board, free);
    }
    vm::prepare(vm, start, None, archive, board, free)
}

fn member<'a>(archive: &Archive<'a>, name: &str) -> Result<Member<'a>, Refusal> {
    archive.find(name).ok_or_else(|| {
        refusal!(
            Archive,
            "{name}: missing in the boot archive: build the image again"
        )
    })
}

fn check_board(given: &Given<'_>) -> Result<(), Refusal> {
    let board = given.board;
    let affinity = given.boot_cpu;
    // planted: the boot goes on on a CPU that is not the first
    if board.cpus.first().map(|cpu| cpu.mpidr) != Some(affinity) {
        return Err(refusal!(
            Board,
            "/cpus: reg: the first CPU is not the one that boots, whose affinity is {affinity:#x}"
        ));
    }
    if !GIC_VERSIONS.contains(&board.gic.version) {
        let version = board.gic.version;
        return Err(refusal!(
            Board,
            "this build does not drive the interrupt controller: it is a GICv{version}"
        ));
    }
    Ok(())
}

/// Returns the memory that is not free.
fn taken(given: &Given<'_>) -> Vec<Region> {
    let board = given.board;
    let own = [
        Region::new(0, PAGE_SIZE),
        given.init,
        given.device_tree,
        board.archive,
    ];
    board.reserved.iter().copied().chain(own).collect()
}

fn read_manifest<'a>(
    blob: &'a [u8],
    given: &Given<'_>,
    taken: &[Region],
) -> Result<Manifest<'a>, Refusal> {
    let mut first: Option<String> = None;
    let mut sink = |error: ManifestError<'_>| match error.rule.severity() {
        Severity::Warning => log::warn!("manifest: {error}"),
        Severity::Error => drop(first.get_or_insert_with(|| error.to_string())),
    };
    let read = with_facts(given.board, given.tree, taken, |facts| {
        gearv_manifest::validate(blob, facts, &mut sink)
    })?;
    read.map_err(|refused| {
        let first = first.unwrap_or_default();
        match refused.error_count {
            0 | 1 => refusal!(Manifest, "{first}"),
            count => refusal!(Manifest, "{first} (the first of {count} errors)"),
        }
    })
}

/// Refuses files that are not those which the manifest was written for.
fn check_digests(manifest: &Manifest<'_>, archive: &Archive<'_>) -> Result<(), Refusal> {
    let mut first = Ok(());
    let find = |name: &str| Some(archive.find(name)?.data);
    gearv_manifest::check_digests(manifest, find, &mut |error| {
        if first.is_ok() {
            first = Err(refusal!(Manifest, "{error}"));
        }
    });
    first
}

/// Gives `judge` the board's facts; `taken` is memory that no VM can have.
fn with_facts<T>(
    board: &Board,
    tree: &[u8],
    taken: &[Region],
    judge: impl FnOnce(&gearv_manifest::Board<'_>) -> T,
) -> Result<T, Refusal> {
    let devices = vm::gic_regions(board, gear1_abi::id::MAX_VCPUS_PER_VM);
    let tree = Blob::new(tree).map_err(|error| refusal!(Board, "{error}"))?;
    let masters = devices::bus_masters(&tree);
    let masters: Vec<&str> = masters.iter().map(String::as_str).collect();
    let clusters: Vec<u64> = board.cpus.iter().map(|cpu| cpu.mpidr >> 8).collect();
    Ok(judge(&gearv_manifest::Board {
        cpu_count: board.cpus.len(),
        clusters: &clusters,
        memory: &board.memory,
        reserved: taken,
        devices: &devices,
        pmu: board.has_pmu,
        kinds: KINDS,
        privileges: PRIVILEGES,
        masters: &masters,
    }))
}

/// Judges a manifest for a board before there are images: by all rules, those on devices and on the
/// place of memory included. Errors and warnings go to `sink`; an error is returned if the board
/// itself will not do.
pub fn judge(
    blob: &[u8],
    board: &Board,
    tree: &[u8],
    sink: &mut dyn FnMut(&ManifestError<'_>),
) -> Result<usize, Refusal> {
    let judged = with_facts(board, tree, &board.reserved, |facts| {
        gearv_manifest::judge(blob, Some(facts), &mut |error| sink(&error))
    })?;
    let Some(manifest) = judged.manifest else {
        return Ok(judged.error_count);
    };
    let mut faults = Vec::new();
    Owners::find(&manifest, tree, board, &mut faults)?;
    let mut free = FreeMemory::new(&board.memory, &board.reserved);
    let placed = shared::take(&mut free, &manifest)
        .and_then(|()| layout::take_fixed(&mut free, &manifest))
        .and_then(|fixed| layout::take_rest(&mut free, &manifest, &fixed));
    if let Err(refusal) = placed
        && judged.error_count == 0
    {
        faults.extend(refusal.fault.map(|fault| *fault));
    }
    faults.iter().for_each(|fault| sink(&fault.error()));
    Ok(judged.error_count + faults.len())
}

fn geometry(
    given: &Given<'_>,
    manifest: &Manifest<'_>,
    owners: &Owners<'_, '_>,
) -> Result<Geometry, Refusal> {
    let board = given.board;
    let gear2_end = gear2_layout::HEAP + manifest.gear2.memory_bytes;
    let memory = board.memory.iter().map(|bank| bank.end);
    let vms = || manifest.vms.iter();
    let guests = vms().filter_map(|vm| Some(vm.memory.guest()?.end));
    let consoles = vms().filter_map(|vm| Some(vm.console?.ipa + PAGE_SIZE));
    let devices = vm::gic_regions(board, gear1_abi::id::MAX_VCPUS_PER_VM).map(|region| region.end);
    let virtio = manifest.virtio_vms().map(|vm| vm.virtio_ipa + PAGE_SIZE);
    let ends = memory.chain(guests).chain(consoles).chain(devices);
    let ends = ends.chain(virtio).chain([owners.limit()]);
    let limit = ends.fold(gear2_end, u64::max);
    Geometry::choose(given.pa_range, limit).ok_or_else(|| {
        refusal!(
            Manifest,
            "addresses up to {limit:#x} are used: more than this CPU's stage 2 can translate"
        )
    })
}

fn pool_size(manifest: &Manifest<'_>, geometry: &Geometry, owners: &Owners<'_, '_>) -> u64 {
    // Level 2 tables of a range that begins anywhere, and a level 1 table.
    let tables = |bytes: u64| (bytes >> 30) + 3;
    let roots = (manifest.vms.len() as u64 + 2) * geometry.root_size();
    let gear2 = GEAR2_TABLES + tables(manifest.gear2.memory_bytes);
    let vms = manifest.vms.iter().map(|vm| {
        let shared = manifest.shared_of(vm);
        let shared = shared.map(|shared| 2 * tables(shared.bytes));
        let own = tables(vm.memory.bytes) + SPARE_TABLES + STOLEN_TIME_TABLES;
        own + shared.sum::<u64>() + sharing_tables(manifest, vm)
    });
    roots + (gear2 + vms.sum::<u64>() + owners.table_count()) * PAGE_SIZE
}

/// Returns how many tables a VM may take after boot, to share memory.
fn sharing_tables(manifest: &Manifest<'_>, vm: &Vm<'_>) -> u64 {
    match manifest.peers(vm).next() {
        Some(_) => SHARING_TABLES,
        None => 0,
    }
}

/// Returns what the runtime is to know of the machine; nothing of VMs.
fn machine_info(
    given: &Given<'_>,
    gear2_uart: Option<Uart>,
    runtime: &Runtime,
    manifest: &Manifest<'_>,
) -> Box<BootInfo> {
    let board = given.board;
    let mut info = Box::new(BootInfo {
        magic: BOOT_MAGIC,
        abi_version: ABI_VERSION,
        cpu_count: board.cpus.len() as u32,
        cpus: [BootCpu::default(); MAX_CPUS],
        enable_method: board.enable_method,
        ttbr0_el2: runtime.root.get(),
        mair_el2: stage1::MAIR,
        tcr_el2: stage1::tcr(given.pa_range),
        vtcr_el2: 0,
        root_size: 0,
        null_root: 0,
        null_vmid: NULL_VMID,
        boot_page: runtime.boot_page.get(),
        image: runtime.image.get(),
        pool: runtime.pool.start,
        pool_size: runtime.pool.bytes(),
        pool_used: 0,
        init: given.init.start,
        init_size: given.init.bytes(),
        gic: board.gic,
        // Gear1 prints the reason of a halt on this UART, whoever owns it.
        uart_kind: board.uart.map_or(uart::NONE, |uart| uart.kind),
        uart_intid: gear2_uart.map_or(0, |uart| uart.intid),
        vm_count: 0,
        vcpu_count: 0,
        vms: [BootVm::default(); MAX_VMS],
        owner_cpu: [0; MAX_VCPUS],
        gear2: Default::default(),
        irq_owner: [IrqOwner::NONE; MAX_INTIDS],
        irq_edge: [0; 32],
        channels: [BootChannel::default(); MAX_CHANNELS],
        pl061: Default::default(),
        masters: [BootMaster::default(); MAX_MASTERS],
    });
    let gear2_cpus = manifest.gear2_cpus(board.cpus.len());
    let real_time = manifest.real_time_cpus();
    for (index, (slot, cpu)) in info.cpus.iter_mut().zip(&board.cpus).enumerate() {
        *slot = BootCpu {
            mpidr: cpu.mpidr,
            release_addr: cpu.release_addr,
            gear2: CpuIndex::new(index).is_some_and(|cpu| gear2_cpus.contains(cpu)),
            real_time: CpuIndex::new(index).is_some_and(|cpu| real_time.contains(cpu)),
        };
    }
    let owner = gear2_uart.and_then(|uart| info.irq_owner.get_mut(uart.intid as usize));
    if let Some(owner) = owner {
        *owner = IrqOwner::GEAR2;
    }
    info
}

fn fill_vms(info: &mut BootInfo, board: &Board, manifest: &Manifest<'_>) {
    let mut next = 0;
    info.vm_count = manifest.vms.len() as u32;
    for (slot, vm) in info.vms.iter_mut().zip(manifest.vms.iter()) {
        slot.first_vcpu = next;
        slot.gicd_ipa = board.gic.gicd;
        slot.gicr_ipa = board.gic.gicr;
        slot.powers_machine = vm.may_power_off;
        slot.restarts_after_fault = vm.restart != Restart::Never;
        slot.restarts_after_off = vm.restart == Restart::Always;
        slot.real_time = real_time(vm);
        (slot.debug, slot.pmu) = (vm.debug, vm.pmu);
        slot.peers = manifest
            .peers(vm)
            .fold(0, |peers, peer| peers | 1 << peer.id.index());
        for vcpu in 0..vm.vcpu_count {
            let cpu = manifest.start_cpu(vm, vcpu, board.cpus.len());
            let slot = info.owner_cpu.get_mut(next as usize + vcpu).zip(cpu);
            if let Some((slot, cpu)) = slot {
                *slot = cpu.index() as u16;
            }
        }
        next += vm.vcpu_count as u16;
    }
    info.vcpu_count = next.into();
}

/// Returns how Gear1 is to run a VM.
fn real_time(vm: &Vm<'_>) -> RealTime {
    match (vm.kind, vm.gic) {
        (VmKind::RealTime, GicMode::PassThrough) => RealTime::PassThrough,
        (VmKind::RealTime, GicMode::Emulated) => RealTime::Emulated,
        (VmKind::Guest | VmKind::Device, GicMode::PassThrough | GicMode::Emulated) => RealTime::No,
    }
}
