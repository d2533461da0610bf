//! Gear2 in memory: its image, its inputs, and its stage 2 at [`layout`](gear1_abi::layout::gear2).
//!
//! Invariants: only Gear2's text is executable, and is not writable; an unmapped page lies below
//! every stack; Gear2 sees nothing of Gear1 and of no VM.
//!
//! All of Gear2's accesses to memory are cacheable, as HCR_EL2.DC is set while Gear2 runs (Arm ARM
//! D19.2.48). Memory is therefore not cleaned after it is written.
//!
//! Nothing is added to Gear2's stage 2 later. The runtime fills the image, as it does at a restart,
//! and wipes the heap, at the places that are found here: CPUs of real-time VMs start before, and
//! the image and the heap take longer than all of a small VM. Manifest and information are copies
//! that Gear2 can only read, so a failed Gear2 leaves them to the next one as they were.
//!
//! Requirements: G1-MEM-004.

use alloc::vec::Vec;

use gear1_abi::ABI_VERSION;
use gear1_abi::boot::{BootGear2, BootLoad, BootRegion};
use gear1_abi::id::{MAX_CPUS, MAX_VMS};
use gear1_abi::image::GEAR2_MAGIC;
use gear1_abi::info::{Gear2Info, INFO_MAGIC, uart};
use gear1_abi::layout::{PAGE_SIZE, gear2};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::{Attributes, PageState};
use gearv_manifest::{MEMORY_ALIGN, Manifest, Privilege};

use crate::fdt::{Board, Uart};
use crate::flat::{self, Flat};
use crate::layout::FreeMemory;
use crate::partition::{Mapping, Purpose, Space};
use crate::refusal::Refusal;
use crate::region::Region;
use crate::trace;

/// VMID of Gear2, which has a stage 2 as VMs do, at EL0 as well as at EL1.
pub const VMID: u16 = 1;

/// Sources of Gear2's memory.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'s> {
    /// Flat image.
    pub image: &'s [u8],
    /// PA of the flat image in the archive, which init leaves in place.
    pub image_at: Pa,
    /// The manifest.
    pub manifest: &'s Manifest<'s>,
    /// The manifest's blob.
    pub blob: &'s [u8],
    /// The machine.
    pub board: &'s Board,
    /// The boot UART, unless a VM has it.
    pub uart: Option<Uart>,
    /// The region shared with the device model, if there is one.
    pub shared: Option<Region>,
    /// Frequency of the counter.
    pub counter_hz: u32,
    /// INTID of the SMMU's event queue; 0: Gear2 gets none.
    pub smmu_intid: u32,
    /// The rings of trace records, if there are any.
    pub trace: Option<trace::Rings>,
}

/// Gear2 before its stage 2 is built, which the check of the whole partition precedes.
#[derive(Debug)]
pub struct Loaded {
    /// Mappings of Gear2.
    pub mappings: Vec<Mapping>,
    /// Hand-over to the runtime; `root` is not known yet.
    pub boot: BootGear2,
}

/// Places Gear2, and loads all that it reads beside its image. Each piece gets its own pages, so
/// that each has rights of its own.
pub fn load<M: PhysicalMemory>(
    sources: &Sources<'_>,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Loaded, Refusal> {
    // The image is the archive's, and may be another build's: magic, ABI and base are compared.
    let flat = Flat::parse(sources.image, GEAR2_MAGIC, gear2::IMAGE, "gear2.bin")?;
    let image = flat.take(free)?;
    let mut mappings = Vec::from(segments(&flat, image));
    mappings.push(load_manifest(sources, free, memory)?);
    mappings.push(load_information(sources, free, memory)?);
    add_stacks(sources, free, memory, &mut mappings)?;
    let heap = take_heap(sources, free)?;
    mappings.push(heap);
    mappings.extend(sources.shared.map(control_region));
    mappings.extend(sources.trace.iter().flat_map(|rings| rings.mappings()));
    mappings.extend(sources.uart.map(|uart| {
        let page = Pa::new(uart.page());
        piece(gear2::UART, page, PAGE_SIZE, Attributes::DEVICE, "UART")
    }));
    let boot = boot(sources, &flat, image, &heap);
    Ok(Loaded { mappings, boot })
}

/// Returns the mapping of the region shared with the device model, which Gear2 owns and the device
/// VM borrows.
fn control_region(shared: Region) -> Mapping {
    Mapping {
        space: Space::Gear2,
        ipa: gear2::SHARED,
        pa: shared.start,
        size: shared.bytes(),
        attributes: Attributes::DATA.with_state(PageState::SharedOwned),
        why: Purpose::ControlRegion,
    }
}

/// Returns the mappings of the image's segments, each with the rights that its contents need: code
/// that is read and executed, constants that are read, variables that are read and written.
fn segments(flat: &Flat<'_>, image: Pa) -> [Mapping; 3] {
    let header = &flat.header;
    let segment = |start: u64, end: u64, attributes, what| {
        let place = flat.place(image, start);
        piece(start, place, end - start, attributes, what)
    };
    let [text_end, rodata_end] = [header.text_end, header.rodata_end];
    [
        segment(header.base, text_end, Attributes::CODE, "code"),
        segment(text_end, rodata_end, Attributes::CONSTANTS, "constants"),
        segment(rodata_end, header.bss_end, Attributes::DATA, "variables"),
    ]
}

/// Copies the manifest into a page of its own. The archive stays where Gear2 cannot reach it.
fn load_manifest<M: PhysicalMemory>(
    sources: &Sources<'_>,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Mapping, Refusal> {
    let size = sources.blob.len() as u64;
    let place = flat::zeroed_in_caches(free, memory, size, "Gear2's manifest")?;
    memory.write(place, sources.blob);
    let attributes = Attributes::CONSTANTS;
    Ok(piece(gear2::MANIFEST, place, size, attributes, "manifest"))
}

/// Writes what Gear2 has to know of the machine and the manifest does not say.
fn load_information<M: PhysicalMemory>(
    sources: &Sources<'_>,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Mapping, Refusal> {
    let size = size_of::<Gear2Info>() as u64;
    let place = flat::zeroed_in_caches(free, memory, size, "Gear2's information")?;
    memory.write_gear2_info(place, &information(sources));
    let attributes = Attributes::CONSTANTS;
    Ok(piece(gear2::INFO, place, size, attributes, "information"))
}

/// Gives each CPU of Gear2 a stack. CPUs of real-time VMs have none, since no loop runs there. Only
/// the upper part of a stride is mapped: an overflow ends in a fault instead of in the stack below.
fn add_stacks<M: PhysicalMemory>(
    sources: &Sources<'_>,
    free: &mut FreeMemory,
    memory: &mut M,
    mappings: &mut Vec<Mapping>,
) -> Result<(), Refusal> {
    let size = gear2::STACK_SIZE;
    for cpu in sources.manifest.gear2_cpus(sources.board.cpus.len()).iter() {
        let stack = flat::zeroed_in_caches(free, memory, size, "Gear2's stacks")?;
        let top = gear2::STACKS + (cpu.reg() + 1) * gear2::STACK_STRIDE;
        mappings.push(piece(top - size, stack, size, Attributes::DATA, "stack"));
    }
    Ok(())
}

/// Takes the heap, of the size that the manifest gives, in whole blocks, which the translation of
/// Gear2's accesses needs fewest entries for.
fn take_heap(sources: &Sources<'_>, free: &mut FreeMemory) -> Result<Mapping, Refusal> {
    let size = sources.manifest.gear2.memory_bytes;
    let heap = free.take(size, MEMORY_ALIGN, "Gear2's heap")?;
    Ok(piece(gear2::HEAP, heap, size, Attributes::DATA, "heap"))
}

/// Returns what the runtime is to know of Gear2: entry, image, and the times in ticks that bound
/// how long a loop may take and how often Gear2 may fail. The image file stays in the archive, from
/// which a restart loads Gear2 again.
fn boot(sources: &Sources<'_>, flat: &Flat<'_>, image: Pa, heap: &Mapping) -> BootGear2 {
    let header = &flat.header;
    let manifest = sources.manifest;
    let hz = u64::from(sources.counter_hz);
    BootGear2 {
        vmid: VMID,
        entry: header.entry,
        image: BootRegion {
            ipa: header.base,
            pa: image.get(),
            size: flat.size(),
        },
        // Up to the end of the initialized data: the runtime, which knows both ends, wipes the bss
        // behind it and the rest of the last page, which Gear2 can read.
        load: BootLoad {
            source: sources.image_at.get(),
            destination: image.get(),
            size: header.data_end - header.base,
            is_seed: false,
        },
        heap: BootRegion {
            ipa: heap.ipa,
            pa: heap.pa,
            size: heap.size,
        },
        period: u64::from(manifest.gear2.period_ms(sources.board.is_virtual)) * hz / 1000,
        el1: manifest.gear2.privilege == Privilege::El1,
        restarts: manifest.gear2.restart_limit,
        window: u64::from(manifest.gear2.restart_window_ms) * hz / 1000,
        ..BootGear2::default()
    }
}

/// Returns the mapping of a part of Gear2, grown to whole pages. The rest of the last page is zero:
/// it was taken, and is wiped, with the part.
fn piece(ipa: u64, pa: Pa, size: u64, attributes: Attributes, what: &'static str) -> Mapping {
    Mapping {
        space: Space::Gear2,
        ipa,
        pa: pa.get(),
        size: size.next_multiple_of(PAGE_SIZE),
        attributes,
        why: Purpose::Gear2(what),
    }
}

/// Returns what Gear2 is to know. vCPUs are counted through all VMs in the manifest's order, as the
/// runtime counts them.
fn information(sources: &Sources<'_>) -> Gear2Info {
    let Sources {
        manifest, board, ..
    } = sources;
    let cpu_count = board.cpus.len();
    let mut info = Gear2Info {
        magic: INFO_MAGIC,
        abi_version: ABI_VERSION,
        cpu_count: cpu_count as u32,
        vm_count: manifest.vms.len() as u32,
        counter_hz: sources.counter_hz,
        manifest_size: sources.blob.len() as u64,
        heap_size: manifest.gear2.memory_bytes,
        uart_kind: sources.uart.map_or(uart::NONE, |uart| uart.kind),
        uart_intid: sources.uart.map_or(0, |uart| uart.intid),
        shared_size: sources.shared.map_or(0, |region| region.bytes()),
        cpu_mask: manifest.gear2_cpus(cpu_count).mask(),
        mpidr: [0; MAX_CPUS],
        cluster: [0; MAX_CPUS],
        first_vcpu: [0; MAX_VMS],
        vcpu_count: [0; MAX_VMS],
        register_pages: match sources.shared {
            Some(_) => manifest.virtio_vms().count() as u64,
            None => 0,
        },
        smmu_intid: sources.smmu_intid,
        trace_size: sources.trace.map_or(0, |rings| rings.size),
    };
    let slots = info.mpidr.iter_mut().zip(&mut info.cluster);
    for ((mpidr, cluster), cpu) in slots.zip(&board.cpus) {
        (*mpidr, *cluster) = (cpu.mpidr, cpu.cluster);
    }
    // Gear2 names a vCPU to Gear1 by this number alone, so both have to count alike; the manifest's
    // order is the one thing that both read.
    let mut next = 0;
    let slots = info.first_vcpu.iter_mut().zip(&mut info.vcpu_count);
    for ((first, count), vm) in slots.zip(manifest.vms.iter()) {
        *first = next;
        *count = vm.vcpu_count as u16;
        next += *count;
    }
    info
}
