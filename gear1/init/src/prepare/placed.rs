//! The system in memory: where everything lies, and what is built there.
//!
//! Three steps, in this order: all memory is given out ([`Placed::place`]), the list of all
//! mappings is made and checked ([`Placed::partition`]), and only then stage 2 is built from that
//! list and the VMs are loaded ([`Placed::build`]). A refusal therefore leaves no stage 2 behind.
//!
//! Requirements: G1-BOOT-003, G1-MEM-004.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gear1_abi::boot::{BootGear2, BootInfo};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::{Attributes, Geometry, Stage2};
use gearv_manifest::{Vm, VmKind};

use super::boot_info;
use super::system::{System, member, pool_size};
use crate::device_vm::{Shared, memory_attributes};
use crate::doorbells;
use crate::el2::{self, Driven, Runtime};
use crate::fdt::{Board, GICC_SIZE, Smmu, Uart};
use crate::gear2;
use crate::layout::{self, FreeMemory};
use crate::partition::{Ground, Mapping, Partition, Purpose, Roots, Space};
use crate::passthrough::Passthrough;
use crate::refusal::Refusal;
use crate::region::{Region, subtract};
use crate::shared;
use crate::smmu::{self, view};
use crate::sve;
use crate::table_memory::BootTables;
use crate::trace;
use crate::vm;

/// Root tables are taken from the pool's start, which is aligned to the largest of them.
const POOL_ALIGN: u64 = 0x8000;

/// Where everything lies in memory.
pub(super) struct Placed<'a> {
    /// Memory for all stage-2 tables, roots included. The runtime takes those that init leaves.
    pool: Region,
    pub(super) runtime: Runtime,
    /// The SMMU, if a VM owns a device behind it.
    smmu: Option<smmu::Placed>,
    /// Memory that the device VM shares.
    shared: Option<Shared>,
    /// The boot UART, unless a VM has it.
    uart: Option<Uart>,
    gear2: gear2::Loaded,
    /// Where each VM's memory lies, in the order of the manifest.
    starts: Vec<Pa>,
    vms: Vec<vm::Prepared<'a>>,
    /// Allocated memory that stays Gear1's own.
    gear1: Vec<(Region, &'static str)>,
}

impl<'a> Placed<'a> {
    /// Gives out memory, and loads Gear1's runtime and Gear2. Memory with a fixed address goes
    /// first, and what fits anywhere goes last:
    ///
    /// 1. memory that VMs share from boot on, VMs with an address in the manifest, and the rings of
    ///    trace records
    /// 2. the pool, the runtime, and the device VM's regions, in the smallest holes
    /// 3. Gear2
    /// 4. the other VMs, in what is left
    /// 5. finished device trees, whose size depends on where the VMs lie
    ///
    /// Gear1's own memory is found by the difference of the free memory before and after: an
    /// allocation that is forgotten in a list could otherwise be given to a VM.
    pub(super) fn place<M: PhysicalMemory>(
        system: &System<'_, 'a>,
        free: &mut FreeMemory,
        memory: &mut M,
    ) -> Result<Self, Refusal> {
        let manifest = system.manifest;
        shared::take(free, manifest)?;
        let fixed = layout::take_fixed(free, manifest)?;
        let rings = trace::take(manifest, system.given.board, free, memory)?;
        let before = free.clone();
        let (pool, smmu, runtime) = place_runtime(system, rings, free, memory)?;
        let mut gear1 = free.given_since(&before, "the runtime");
        // Not among Gear1's own: the device VM has these regions in its stage 2, and the check of
        // the list refuses a mapping of what Gear1 keeps.
        let device_vm = system.owners.device_vm.as_ref();
        let shared = device_vm.map(|vm| vm.take(free, memory)).transpose()?;
        // A VM that owns the boot UART has it alone: Gear2 has no console of its own then, and is
        // reached through the device VM, if there is one.
        let has_uart = |uart: &Uart| system.owners.all().any(|vm| vm.has_uart(uart));
        let uart = system.given.board.uart.filter(|uart| !has_uart(uart));
        let control = shared.as_ref().map(|shared| shared.control);
        let smmu_intid = smmu.as_ref().map_or(0, smmu::Placed::intid);
        let gear2 = load_gear2(system, (uart, smmu_intid), control, rings, free, memory)?;
        let starts = layout::take_rest(free, manifest, &fixed)?;
        let before = free.clone();
        let vms = prepare_vms(system, &starts, shared.as_ref(), free)?;
        gear1.extend(free.given_since(&before, "a device tree to be loaded again"));
        Ok(Self {
            pool,
            runtime,
            smmu,
            shared,
            uart,
            gear2,
            starts,
            vms,
            gear1,
        })
    }

    /// Returns the list of all that is mapped or emulated. Every stage 2 is built from this list
    /// and from nothing else, so the check of the list is a check of the machine.
    pub(super) fn partition(&self, system: &System<'_, 'a>) -> Partition {
        let (board, manifest) = (system.given.board, system.manifest);
        let mut mappings = self.gear2.mappings.clone();
        let mut emulated = Vec::new();
        for (vm, prepared) in manifest.vms.iter().zip(&self.vms) {
            mappings.push(prepared.mapping(vm, memory_attributes(manifest, vm)));
            mappings.extend(vm::cpu_interface(vm, board));
            mappings.extend(self.heartbeat(vm));
            emulated.extend(vm::emulated(vm, board));
        }
        // planted: a VM's memory is mapped in Gear2 too
        mappings.extend(shared::mappings(manifest));
        let others = &system.owners.others;
        mappings.extend(others.iter().flat_map(Passthrough::mappings));
        emulated.extend(system.owners.all().flat_map(Passthrough::emulated));
        let device_vm = system.owners.device_vm.as_ref();
        if let Some((device_vm, shared)) = device_vm.zip(self.shared.as_ref()) {
            mappings.extend(device_vm.mappings(shared, &self.starts));
            emulated.extend(device_vm.emulated());
        }
        emulated.extend(doorbells::emulated(manifest));
        let mut partition = Partition::new(mappings, emulated);
        // Last, since a page of stolen time gives way to everything else.
        for vm in manifest.vms.iter() {
            if let Some(stolen_time) = self.stolen_time(vm) {
                partition.add_anywhere(stolen_time, &board.memory, system.geometry.limit());
            }
        }
        partition
    }

    /// Returns the mapping of the VM's page of stolen time, which the VM reads and Gear1 writes, at
    /// the page's physical address. From a real-time VM, whose CPU is its own, nothing is stolen.
    /// The manifest's author cannot know where the page lies, so the VM sees the page elsewhere if
    /// something else is there, and where no peer's memory can be.
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

    /// Returns the mapping of a real-time VM's heartbeat, at the manifest's address. The page is
    /// one of those that tell other VMs their stolen time.
    fn heartbeat(&self, vm: &Vm<'_>) -> Option<Mapping> {
        let page = self.runtime.stolen_time.get() + vm.id.reg() * PAGE_SIZE;
        vm.heartbeat().map(|region| Mapping {
            space: Space::Vm(vm.id),
            ipa: region.start,
            pa: page,
            size: PAGE_SIZE,
            attributes: Attributes::WRITTEN_UNOWNED,
            why: Purpose::Heartbeat,
        })
    }

    /// Returns what no VM may be given: init and its inputs, which the runtime reads again or
    /// wipes, the interrupt controller, and all that was taken for Gear1. Memory of firmware is not
    /// there: it never was free, so no mapping of memory can reach it.
    pub(super) fn ground<'g>(
        &self,
        system: &System<'g, 'a>,
        empty_table: Option<Region>,
    ) -> Ground<'g> {
        let (given, board) = (system.given, system.given.board);
        let mut gear1 = alloc::vec![
            (given.init, "init"),
            (given.device_tree, "the board's device tree"),
            (board.archive, "the boot archive"),
        ];
        gear1.extend(gic_registers(board));
        let fed = system.owners.fed.iter();
        gear1.extend(fed.map(|fed| (fed.region(), "what Gear1 feeds")));
        let smmu = board.smmu.iter().flat_map(Smmu::regions);
        gear1.extend(smmu.map(|registers| (registers, "the SMMU")));
        gear1.extend(empty_table.map(|table| (table, "the IPMMU's empty table")));
        gear1.extend(self.runtime_memory());
        Ground {
            memory: &board.memory,
            gear1,
            gicc: (board.gic.version == 2).then(|| gicc(board)),
            limit: system.geometry.limit(),
        }
    }

    /// Returns the allocated memory that no VM sees: all but the pages of stolen time and of
    /// heartbeats, which lie among the runtime's memory and which VMs read or write.
    fn runtime_memory(&self) -> impl Iterator<Item = (Region, &'static str)> {
        let start = self.runtime.stolen_time.get();
        let stolen_time = Region::new(start, start + self.vms.len() as u64 * PAGE_SIZE);
        self.gear1.iter().flat_map(move |(region, what)| {
            let rest = subtract(&[*region], &[stolen_time]);
            rest.into_iter().map(|rest| (rest, *what))
        })
    }

    /// Builds every stage 2, fills what is shared and the VMs that start by themselves, and returns
    /// what the runtime is to know. Tables that the pool has left after that are the runtime's, for
    /// memory that VMs share later.
    pub(super) fn build<M: PhysicalMemory>(
        &self,
        system: &System<'_, 'a>,
        partition: &Partition,
        memory: &mut M,
    ) -> Result<Box<BootInfo>, Refusal> {
        let mut pool = FreeMemory::new(&[self.pool], &[]);
        let mut tables = BootTables {
            memory,
            free: &mut pool,
        };
        // The empty tree is a root without a table below, so that its translation faults at once.
        let null = next_root(&system.geometry, &mut tables)?;
        let roots = next_roots(system, &mut tables)?;
        let manifest = system.manifest;
        let vms = manifest.vms.iter();
        let by_pages = vms.filter(|vm| system.owners.has_pages(manifest, vm));
        let by_pages: Vec<_> = by_pages.map(|vm| vm.id).collect();
        partition.apply(&roots, manifest, &by_pages, &mut tables)?;
        let mut info = self.information(system, &null, &roots);
        self.load_vms(system, partition, &roots, &mut info, tables.memory);
        self.fill_shared(system, &mut info, tables.memory);
        if let Some(smmu) = &self.smmu {
            let (machine, hz) = (self.seen_by_devices(system), system.given.counter_hz);
            // planted: the SMMU stays off
            smmu.start(&machine, hz, &mut info, &mut tables)?;
        }
        // Tables are taken from the pool's start, so one number tells the runtime where to go on.
        info.pool_used = self.pool.bytes() - pool.total();
        Ok(info)
    }

    /// Returns what decides how the tables of VMs' devices look.
    fn seen_by_devices<'s>(&self, system: &'s System<'_, 'a>) -> view::Machine<'s> {
        let vms = system.manifest.vms.iter();
        view::Machine {
            geometry: &system.geometry,
            pool: self.pool,
            hidden: vms
                .map(|vm| system.owners.hidden(vm, system.given.board))
                .collect(),
        }
    }

    /// Returns what the runtime is to know of the machine and of Gear2. `null` is the empty stage
    /// 2, which is installed where neither a guest's nor Gear2's may be.
    fn information(&self, system: &System<'_, 'a>, null: &Stage2, roots: &Roots) -> Box<BootInfo> {
        let mut info = boot_info::of_machine(system, self.uart, &self.runtime);
        info.null_root = null.root().get();
        info.gear2 = BootGear2 {
            root: roots.gear2.root().get(),
            ..self.gear2.boot
        };
        info
    }

    /// Loads the VMs that start by themselves, and tells the runtime how to load all of them. A VM
    /// is loaded anew from the archive, which therefore stays in memory, at each later start.
    ///
    /// Where a real-time VM starts by itself, the others are left to the runtime: to fill the
    /// memory of a Linux takes longer than all of a boot. Nothing is refused when a VM is loaded.
    fn load_vms<M: PhysicalMemory>(
        &self,
        system: &System<'_, 'a>,
        partition: &Partition,
        roots: &Roots,
        info: &mut BootInfo,
        memory: &mut M,
    ) {
        let (board, manifest) = (system.given.board, system.manifest);
        let archive_pa = Pa::new(board.archive.start);
        let is_real_time = |vm: &Vm<'_>| vm.kind == VmKind::RealTime;
        let mut vms = manifest.vms.iter();
        let has_real_time = vms.any(|vm| is_real_time(vm) && vm.autostart);
        // The device VM reads and writes the memory of the VMs that it serves from boot on, whether
        // they run or not, and must not find there what ran before the boot.
        let has_device_vm = system.owners.device_vm.is_some();
        let is_seen = |vm: &Vm<'_>| has_device_vm && manifest.virtio_of(vm.id).next().is_some();
        let vms = manifest.vms.iter().zip(&self.vms).zip(&roots.vms);
        for (((vm, prepared), root), slot) in vms.zip(&mut info.vms) {
            // planted: a real-time VM waits until others are loaded
            let starts = vm.autostart && (is_real_time(vm) || !has_real_time);
            // planted: the device VM finds what ran before the boot
            let fills = starts || is_seen(vm);
            *slot = prepared.load(vm, (archive_pa, fills), root.root(), memory);
            slot.loaded = fills && vm.autostart;
            slot.stolen_time_ipa = partition.stolen_time(vm.id);
            let (count, mib, at) = (vm.vcpu_count, vm.memory.bytes >> 20, slot.regions[0].pa);
            log::info!("{}: {count} vCPUs, {mib} MiB at {at:#x}", vm.name);
        }
        boot_info::fill_vms(info, board, manifest, system.given.counter_hz.into());
    }

    /// Fills the memory that VMs share, before any VM runs that could write it, and tells the
    /// runtime of devices and their owners.
    fn fill_shared<M: PhysicalMemory>(
        &self,
        system: &System<'_, 'a>,
        info: &mut BootInfo,
        memory: &mut M,
    ) {
        shared::fill(system.manifest, memory);
        let owners = system.owners;
        owners.others.iter().for_each(|vm| vm.fill(info));
        if let Some((device_vm, shared)) = owners.device_vm.as_ref().zip(self.shared.as_ref()) {
            device_vm.describe(shared, &self.starts, memory);
            device_vm.fill(info);
        }
        doorbells::fill(system.manifest, system.given.counter_hz, info);
        boot_info::fill_channels(info, system.manifest, owners.device_vm.as_ref());
    }
}

/// Takes the pool of stage-2 tables, in one piece, so that the runtime maps it once, and the SMMU's
/// memory, and loads the runtime, which maps both.
fn place_runtime<M: PhysicalMemory>(
    system: &System<'_, '_>,
    trace: Option<trace::Rings>,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<(Region, Option<smmu::Placed>, Runtime), Refusal> {
    let (given, manifest) = (system.given, system.manifest);
    let pool_size = pool_size(manifest, given.board, &system.geometry, system.owners);
    let pool = free.take(pool_size, POOL_ALIGN, "stage-2 tables")?.get();
    let pool = Region::new(pool, pool + pool_size);
    let vm_count = manifest.vms.len();
    let (streams, pa_range) = (system.owners.streams(), system.geometry.pa_range());
    let smmu = smmu::place(given.board, streams, pa_range, free, memory)?;
    let driven = Driven {
        fed: &system.owners.fed,
        smmu: smmu.as_ref(),
        trace,
        vectors: &sve::pieces(manifest),
    };
    let runtime = el2::load(
        given.runtime,
        given.board,
        &driven,
        pool,
        vm_count,
        free,
        memory,
    )?;
    Ok((pool, smmu, runtime))
}

/// Returns a GICv2's physical CPU interface, which the runtime uses on each CPU but those of VMs
/// with pass-through.
fn gicc(board: &Board) -> Region {
    Region::new(board.gicc(), board.gicc() + GICC_SIZE)
}

/// Returns the registers of the interrupt controller, with the name of each frame. GICV is left
/// out: a VM with a GICv2 has it, and it holds nothing but that VM's interrupts.
fn gic_registers(board: &Board) -> Vec<(Region, &'static str)> {
    let gic = &board.gic;
    let [gicd, _] = vm::gic_regions(board, 0);
    let mut frames = alloc::vec![(gicd, "the GIC's distributor")];
    if gic.version == 2 {
        let gich = Region::new(gic.gich, gic.gich + PAGE_SIZE);
        frames.extend([(gicc(board), "the GIC's CPU interface"), (gich, "GICH")]);
    } else {
        let gicr = Region::new(gic.gicr, gic.gicr + board.gicr_size);
        frames.push((gicr, "the GIC's redistributors"));
    }
    frames
}

/// Takes the next root of a stage 2. Roots come first out of the pool, whose start has their
/// alignment; a root may have several concatenated tables.
fn next_root<M: PhysicalMemory>(
    geometry: &Geometry,
    tables: &mut BootTables<'_, M>,
) -> Result<Stage2, Refusal> {
    // VTTBR_EL2.BADDR has no bits below the size of the concatenated tables (Arm ARM, D8.2).
    let size = geometry.root_size();
    let root = tables.free.take(size, size, "stage-2 roots")?;
    tables.memory.zero(root, size);
    Ok(geometry.stage2(root))
}

/// Takes the roots of Gear2 and of all VMs, each its own: a VM that has no memory yet has an empty
/// stage 2.
fn next_roots<M: PhysicalMemory>(
    system: &System<'_, '_>,
    tables: &mut BootTables<'_, M>,
) -> Result<Roots, Refusal> {
    let gear2 = next_root(&system.geometry, tables)?;
    let vms = system.manifest.vms.iter();
    let vms = vms.map(|_| next_root(&system.geometry, tables));
    Ok(Roots {
        gear2,
        vms: vms.collect::<Result<_, _>>()?,
    })
}

/// Loads Gear2 from the archive, with its UART and the INTID of its other interrupt. `shared` is
/// the region that it shares with the device model.
fn load_gear2<M: PhysicalMemory>(
    system: &System<'_, '_>,
    (uart, smmu_intid): (Option<Uart>, u32),
    shared: Option<Region>,
    trace: Option<trace::Rings>,
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
        smmu_intid,
        trace,
    };
    gear2::load(&sources, free, memory)
}

/// Prepares all VMs; `starts` is where each one's memory lies. The device VM's tree names the
/// memory of the guests that it serves, so every place is known before the first tree is made.
fn prepare_vms<'a>(
    system: &System<'_, 'a>,
    starts: &[Pa],
    shared: Option<&Shared>,
    free: &mut FreeMemory,
) -> Result<Vec<vm::Prepared<'a>>, Refusal> {
    let vms = system.manifest.vms.iter().zip(starts);
    vms.map(|(vm, start)| prepare_vm(system, vm, *start, starts, shared, free))
        .collect()
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
    let mut others = system.owners.others.iter();
    if let Some(owner) = others.find(|owner| owner.vm.id == vm.id) {
        let make = |memory, initrd| owner.device_tree(board, [memory, initrd]);
        return vm::prepare(vm, start, Some(&make), archive, board, free);
    }
    vm::prepare(vm, start, None, archive, board, free)
}
