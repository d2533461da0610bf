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
    BOOT_MAGIC, BootChannel, BootCpu, BootInfo, BootMaster, BootRegion, BootVm, IrqOwner,
    MAX_CHANNELS, MAX_INTIDS, MAX_MASTERS, RealTime, SHARING_TABLES,
};
use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use gear1_abi::layout::{PAGE_SIZE, gear2 as gear2_layout};
use gear1_abi::{ABI_VERSION, info::uart};
use gear1_core::addr::{Ipa, Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage1;
use gear1_core::stage2::{Attributes, Geometry, Stage2};
use gearv_manifest::blob::Blob;
use gearv_manifest::{
    Archive, CpuIndex, GicMode, MANIFEST_MEMBER, Manifest, ManifestError, Privilege, Restart,
    Severity, Vm, VmKind,
};

use crate::device_vm::{DeviceVm, memory_attributes};
use crate::devices;
use crate::el2::{self, Runtime};
use crate::fdt::{Board, GICC_SIZE, Uart};
use crate::gear2;
use crate::layout::{self, FreeMemory};
use crate::passed::{Passed, check_owners};
use crate::refusal::{Refusal, none_of, refusal};
use crate::region::Region;
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
/// Bytes of GICV that a guest finds where GICC is: all but the page of GICC_DIR, which Gear1
/// emulates, since nothing else tells of the end of an interrupt that is in no list register.
const GICV_SIZE: u64 = 0x1000;
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
}

/// Prepares everything, in memory that nobody else has.
pub fn prepare<M: PhysicalMemory>(given: &Given<'_>, memory: &mut M) -> Result<HandOver, Refusal> {
    let board = given.board;
    check_board(given)?;
    let archive = Archive::new(given.archive).map_err(|error| refusal!(Archive, "{error}"))?;
    let member = |name: &str| {
        let found = archive.find(name);
        found.ok_or_else(|| {
            refusal!(
                Archive,
                "{name}: missing in the boot archive: build the image again"
            )
        })
    };
    let blob = member(MANIFEST_MEMBER)?.data;
    let taken = taken(given);
    let manifest = read_manifest(blob, given, &taken)?;
    let mut faults = Vec::new();
    let device_vm = DeviceVm::find(&manifest, given.tree, board, &mut faults)?;
    let real_time = Passed::find_real_time(&manifest, given.tree, board, &mut faults)?;
    let passed = real_time.iter().chain(device_vm.as_ref().map(|vm| &vm.own));
    check_owners(passed.clone(), &mut faults);
    // planted: a manifest that breaks a rule is taken
    none_of(&faults)?;
    // planted: a file with another digest is taken
    check_digests(&manifest, &archive)?;
    let has_uart = |uart: &Uart| passed.clone().any(|vm| vm.has_uart(uart));
    let geometry = geometry(given, &manifest, device_vm.as_ref(), &real_time)?;

    let mut free = FreeMemory::new(&board.memory, &taken);
    shared::take(&mut free, &manifest)?;
    let fixed = layout::take_fixed(&mut free, &manifest)?;
    let pool_size = pool_size(&manifest, &geometry, device_vm.as_ref(), &real_time);
    let pool = free.take(pool_size, POOL_ALIGN, "stage-2 tables")?.get();
    let pool = Region::new(pool, pool + pool_size);
    let vm_count = manifest.vms.len();
    let runtime = el2::load(given.runtime, board, pool, vm_count, &mut free, memory)?;
    let shared = device_vm.as_ref().map(|vm| vm.take(&mut free, memory));
    let shared = shared.transpose()?;
    let device_vm = device_vm.as_ref().zip(shared.as_ref());
    // Unless a VM has it.
    let uart = board.uart.filter(|uart| !has_uart(uart));
    let image = member(manifest.gear2.image)?;
    let image_at = Pa::new(board.archive.start + image.offset as u64);
    let counter_hz = given.counter_hz;
    let sources = gear2::Sources {
        image: image.data,
        image_at,
        manifest: &manifest,
        blob,
        board,
        uart,
        shared: shared.as_ref().map(|shared| shared.control),
        counter_hz,
    };
    let gear2 = gear2::load(&sources, &mut free, memory)?;
    let starts = layout::take_rest(&mut free, &manifest, &fixed)?;
    let mut prepared = Vec::new();
    for (vm, start) in manifest.vms.iter().zip(&starts) {
        let device_vm = device_vm.filter(|(device_vm, _)| device_vm.own.vm.id == vm.id);
        let owner = real_time.iter().find(|owner| owner.vm.id == vm.id);
        let own_tree =
            owner.map(|owner| move |memory, initrd| owner.device_tree(board, [memory, initrd]));
        let make = device_vm.map(|(device_vm, shared)| {
            let starts = &starts;
            move |memory, initrd| device_vm.device_tree(shared, starts, board, [memory, initrd])
        });
        let make = make.as_ref().map(|make| make as &vm::MakeTree<'_>);
        let own_tree = own_tree.as_ref().map(|make| make as &vm::MakeTree<'_>);
        let make = make.or(own_tree);
        prepared.push(vm::prepare(vm, *start, make, &archive, board, &mut free)?);
    }

    let mut pool_free = FreeMemory::new(&[pool], &[]);
    let mut tables = BootTables {
        memory,
        free: &mut pool_free,
    };
    let root_size = geometry.root_size();
    let mut next_root = || {
        let root = tables.free.take(root_size, root_size, "stage-2 roots")?;
        tables.memory.zero(root, root_size);
        Ok::<_, Refusal>(geometry.stage2(root))
    };
    let null = next_root()?;
    let gear2_root = next_root()?;
    let roots = manifest.vms.iter().map(|_| next_root());
    let roots = roots.collect::<Result<Vec<_>, _>>()?;
    let gear2 = gear2.map(&gear2_root, &mut tables)?;
    let mut boot_vms = [BootVm::default(); MAX_VMS];
    let vms = manifest.vms.iter().zip(&prepared).zip(&roots);
    for (((vm, prepared), root), slot) in vms.zip(&mut boot_vms) {
        let archive_pa = Pa::new(board.archive.start);
        let attributes = memory_attributes(&manifest, vm);
        *slot = prepared.load(vm, archive_pa, attributes, root, &mut tables)?;
        if board.gic.version == 2 {
            map_cpu_interface(board, vm, root, &mut tables)?;
        }
        let told = runtime.stolen_time.get() + vm.id.reg() * PAGE_SIZE;
        slot.stolen_ipa = map_stolen_time(vm, &slot.regions[0], told, root, &mut tables)?;
        let (count, mib, at) = (vm.vcpu_count, vm.memory.bytes >> 20, slot.regions[0].pa);
        log::info!("{}: {count} vCPUs, {mib} MiB at {at:#x}", vm.name);
    }
    shared::map(&manifest, &roots, &mut tables)?;
    for vm in &real_time {
        if let Some(root) = roots.get(vm.vm.id.index()) {
            vm.map(root, &mut tables)?;
        }
    }
    if let Some((device_vm, shared)) = device_vm {
        device_vm.map(shared, &starts, &roots, &mut tables)?;
        device_vm.describe(shared, &starts, tables.memory);
    }
    let mut info = machine_info(given, uart, &runtime, &manifest);
    info.vtcr_el2 = geometry.vtcr();
    info.root_size = geometry.root_size();
    info.null_root = null.root().get();
    info.gear2 = gear2;
    info.vms = boot_vms;
    fill_vms(&mut info, board, &manifest);
    real_time.iter().for_each(|vm| vm.fill(&mut info));
    if let Some((device_vm, _)) = device_vm {
        device_vm.fill(&mut info);
    }
    info.pool_used = pool_size - tables.free.total();
    memory.write_boot_info(runtime.boot_info, &info);
    memory.clean(runtime.boot_info, size_of::<BootInfo>() as u64);
    Ok(HandOver {
        entry: runtime.entry,
        root: runtime.root,
        left: free.regions().to_vec(),
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

/// Gives a VM the virtual CPU interface as its GICC (Arm IHI 0048, 5.5), or the real one.
fn map_cpu_interface<M: PhysicalMemory>(
    board: &Board,
    vm: &Vm<'_>,
    stage2: &Stage2,
    tables: &mut BootTables<'_, M>,
) -> Result<(), Refusal> {
    let (interface, size) = match vm.gic {
        GicMode::PassThrough => (board.gicc(), GICC_SIZE),
        GicMode::Emulated => (board.gic.gicv, GICV_SIZE),
    };
    let (ipa, pa) = (Ipa::new(board.gic.gicr), Pa::new(interface));
    let mapped = stage2.map(tables, ipa, pa, size, Attributes::DEVICE);
    let name = vm.name;
    mapped.map_err(|error| {
        refusal!(
            Machine,
            "/vms/{name}: its CPU interface cannot be mapped: {error:?}"
        )
    })
}

/// Maps a VM's page of stolen time, at the page's physical address. Returns that address, or 0
/// where the VM has another mapping there. A real-time VM has its CPU to itself and loses no time.
fn map_stolen_time<M: PhysicalMemory>(
    vm: &Vm<'_>,
    memory: &BootRegion,
    page: u64,
    stage2: &Stage2,
    tables: &mut BootTables<'_, M>,
) -> Result<u64, Refusal> {
    let console = vm.console.map_or(0, |console| console.ipa);
    let is_taken = page.wrapping_sub(memory.ipa) < memory.size || console == page;
    if is_taken || vm.virtio_ipa == page || vm.kind == VmKind::RealTime {
        return Ok(0);
    }
    let (ipa, pa) = (Ipa::new(page), Pa::new(page));
    let mapped = stage2.map(tables, ipa, pa, PAGE_SIZE, Attributes::TOLD);
    mapped.map_err(|error| refusal!(Machine, "stolen time cannot be mapped: {error:?}"))?;
    Ok(page)
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
    let device_vm = DeviceVm::find(&manifest, tree, board, &mut faults)?;
    let real_time = Passed::find_real_time(&manifest, tree, board, &mut faults)?;
    let owners = real_time.iter().chain(device_vm.as_ref().map(|vm| &vm.own));
    check_owners(owners, &mut faults);
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
    device_vm: Option<&DeviceVm<'_, '_>>,
    real_time: &[Passed<'_, '_>],
) -> Result<Geometry, Refusal> {
    let board = given.board;
    let gear2_end = gear2_layout::HEAP + manifest.gear2.memory_bytes;
    let memory = board.memory.iter().map(|bank| bank.end);
    let vms = || manifest.vms.iter();
    let guests = vms().filter_map(|vm| Some(vm.memory.guest()?.end));
    let consoles = vms().filter_map(|vm| Some(vm.console?.ipa + PAGE_SIZE));
    let devices = vm::gic_regions(board, gear1_abi::id::MAX_VCPUS_PER_VM).map(|region| region.end);
    let virtio = manifest.virtio_vms().map(|vm| vm.virtio_ipa + PAGE_SIZE);
    let owned = device_vm.map(DeviceVm::limit);
    let ends = memory.chain(guests).chain(consoles).chain(devices);
    let ends = ends.chain(virtio).chain(owned);
    let ends = ends.chain(real_time.iter().map(Passed::limit));
    let limit = ends.fold(gear2_end, u64::max);
    Geometry::choose(given.pa_range, limit).ok_or_else(|| {
        refusal!(
            Manifest,
            "addresses up to {limit:#x} are used: more than this CPU's stage 2 can translate"
        )
    })
}

fn pool_size(
    manifest: &Manifest<'_>,
    geometry: &Geometry,
    device_vm: Option<&DeviceVm<'_, '_>>,
    real_time: &[Passed<'_, '_>],
) -> u64 {
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
    let shared = device_vm.map_or(0, DeviceVm::table_count);
    let passed: u64 = real_time.iter().map(Passed::table_count).sum();
    roots + (gear2 + vms.sum::<u64>() + shared + passed) * PAGE_SIZE
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
        home_cpu: [0; MAX_VCPUS],
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
            let home = info.home_cpu.get_mut(next as usize + vcpu).zip(cpu);
            if let Some((slot, cpu)) = home {
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
