//! The runtime in memory: its image, its stacks and its EL2 tables at [`gear1_abi::layout::el2`].
//!
//! Invariants: only the image's text and the boot page are executable, and neither can be written;
//! below every stack lies an unmapped page; no VM's memory is mapped.
//!
//! Requirements: G1-MEM-001, G1-MEM-003.

use gear1_abi::boot::BootInfo;
use gear1_abi::image::ImageHeader;
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::addr::{Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage1::{self, Rights};
use gear1_core::table::{Span, TableMemory, Tables};

use crate::fdt::{Board, GICC_SIZE};
use crate::flat::{self, Flat};
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;
use crate::table_memory::BootTables;

/// Bytes that are mapped for each CPU's redistributor: RD and SGI frames.
const GICR_SIZE: u64 = 0x2_0000;
const GICR_TYPER: u64 = 8;
const TYPER_LAST: u64 = 1 << 4;
const TYPER_VLPIS: u64 = 1 << 1;
/// Offset at which GICH is mapped behind GICC.
const GICH_OFFSET: u64 = 0x2_0000;

/// Addresses of the runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Entry point.
    pub entry: Va,
    /// PA of the image.
    pub image: Pa,
    /// PA of the page that CPUs enter.
    pub boot_page: Pa,
    /// PA of the [`BootInfo`].
    pub boot_info: Pa,
    /// The stage-2 table pool.
    pub pool: Region,
    /// Root of the runtime's tables.
    pub root: Pa,
    /// Stolen time, a page a VM.
    pub stolen_time: Pa,
}

/// Loads the runtime from its flat image `file` and builds its tables.
pub fn load<M: PhysicalMemory>(
    file: &[u8],
    board: &Board,
    pool: Region,
    vm_count: usize,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Runtime, Refusal> {
    let flat = parse(file)?;
    let image = flat.load(free, memory)?;
    let boot_info = free.take(info_size(), PAGE_SIZE, "Gear1's boot information")?;
    let stacks = flat::zeroed(free, memory, stacks_size(board), "Gear1's stacks")?;
    let stolen_size = vm_count as u64 * PAGE_SIZE;
    let stolen_time = flat::zeroed(free, memory, stolen_size, "stolen time")?;
    let mut tables = BootTables { memory, free };
    let root = tables.alloc().ok_or_else(flat::no_tables)?;
    let runtime = Runtime {
        entry: Va::new(flat.header.entry),
        image,
        boot_page: flat.place(image, flat.header.boot_page),
        boot_info,
        pool,
        root,
        stolen_time,
    };
    let tree = stage1::tables(root);
    map_image(&tree, &mut tables, &flat.header, image)?;
    map_stacks(&tree, &mut tables, board, stacks)?;
    map_data(&tree, &mut tables, &runtime, stolen_size)?;
    if let Some(uart) = board.uart {
        let page = Span {
            input: el2::UART,
            output: uart.page(),
            size: PAGE_SIZE,
        };
        map(&tree, &mut tables, page, Rights::Device)?;
    }
    map_windows(&tree, &mut tables, board)?;
    map_gic(&tree, &mut tables, board)?;
    Ok(runtime)
}

/// Reads the header of the runtime's image. CPUs enter the boot page with the MMU off, so the page
/// has to be one of the text's that are mapped.
fn parse(file: &[u8]) -> Result<Flat<'_>, Refusal> {
    let magic = gear1_abi::image::RUNTIME_MAGIC;
    let flat = Flat::parse(file, magic, el2::RUNTIME, "the Gear1 runtime")?;
    let header = &flat.header;
    let is_in_text = (header.base..header.text_end).contains(&header.boot_page);
    if is_in_text && header.boot_page.is_multiple_of(PAGE_SIZE) {
        return Ok(flat);
    }
    Err(refusal!(
        Archive,
        "the Gear1 runtime: boot_page is no page of its text"
    ))
}

fn map<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    span: Span,
    rights: Rights,
) -> Result<(), Refusal> {
    let va = span.input;
    let refuse = |error| refusal!(Machine, "EL2 address {va:#x} cannot be mapped: {error:?}");
    tree.map(tables, span, rights.bits()).map_err(refuse)
}

/// Maps the stack of each CPU at the top of the CPU's stride, above a page that stays unmapped.
fn map_stacks<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    board: &Board,
    stacks: Pa,
) -> Result<(), Refusal> {
    for cpu in 0..board.cpus.len() as u64 {
        let top = el2::STACKS + (cpu + 1) * el2::STACK_STRIDE;
        let stack = Span {
            input: top - el2::STACK_SIZE,
            output: stacks.get() + cpu * el2::STACK_SIZE,
            size: el2::STACK_SIZE,
        };
        map(tree, tables, stack, Rights::ReadWrite)?;
    }
    Ok(())
}

/// Maps the boot page at its physical address, where a CPU turns the MMU on, and the memory that
/// the runtime reads and writes beside its image.
fn map_data<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    runtime: &Runtime,
    stolen_size: u64,
) -> Result<(), Refusal> {
    let boot_page = runtime.boot_page.get();
    let [info, stolen_time] = [runtime.boot_info, runtime.stolen_time].map(Pa::get);
    let pool = runtime.pool;
    for (input, output, size, rights) in [
        (boot_page, boot_page, PAGE_SIZE, Rights::ReadExecute),
        (el2::BOOT_INFO, info, info_size(), Rights::Read),
        (
            el2::STOLEN_TIME,
            stolen_time,
            stolen_size,
            Rights::ReadWrite,
        ),
        // planted: a guest's memory is mapped at EL2
        (el2::POOL, pool.start, pool.bytes(), Rights::ReadWrite),
    ] {
        let span = Span {
            input,
            output,
            size,
        };
        map(tree, tables, span, rights)?;
    }
    Ok(())
}

/// Returns the bytes of the [`BootInfo`], in whole pages.
const fn info_size() -> u64 {
    (size_of::<BootInfo>() as u64).next_multiple_of(PAGE_SIZE)
}

fn map_image<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    header: &ImageHeader,
    image: Pa,
) -> Result<(), Refusal> {
    let segments = [
        (header.base, header.text_end, Rights::ReadExecute),
        (header.text_end, header.rodata_end, Rights::Read),
        (header.rodata_end, header.bss_end, Rights::ReadWrite),
    ];
    for (start, end, rights) in segments {
        let span = Span {
            input: start,
            output: image.get() + (start - header.base),
            size: end - start,
        };
        if span.size != 0 {
            map(tree, tables, span, rights)?;
        }
    }
    Ok(())
}

/// Gives each CPU an empty table for its windows, and maps that table itself.
fn map_windows<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    board: &Board,
) -> Result<(), Refusal> {
    for cpu in 0..board.cpus.len() as u64 {
        let table = tree
            .page_table(tables, el2::WINDOWS + cpu * el2::WINDOW_STRIDE)
            .map_err(|_| flat::no_tables())?;
        let input = el2::WINDOW_TABLES + cpu * PAGE_SIZE;
        let span = Span {
            input,
            output: table.get(),
            size: PAGE_SIZE,
        };
        tree.map(tables, span, Rights::ReadWrite.bits())
            .map_err(|_| flat::no_tables())?;
    }
    Ok(())
}

fn map_gic<M: PhysicalMemory>(
    tree: &Tables,
    tables: &mut BootTables<'_, M>,
    board: &Board,
) -> Result<(), Refusal> {
    let gic = &board.gic;
    let map = |tables: &mut BootTables<'_, M>, input: u64, output: u64, size: u64| {
        let span = Span {
            input,
            output,
            size,
        };
        let refuse = |error| refusal!(Board, "the GIC at {output:#x} cannot be mapped: {error:?}");
        tree.map(tables, span, Rights::Device.bits())
            .map_err(refuse)
    };
    if gic.version == 2 {
        map(tables, el2::GICD, gic.gicd, 0x1000)?;
        map(tables, el2::GICR, board.gicc(), GICC_SIZE)?;
        return map(tables, el2::GICR + GICH_OFFSET, gic.gich, 0x1000);
    }
    map(tables, el2::GICD, gic.gicd, 0x1_0000)?;
    let frames = (el2::GICR..).step_by(GICR_SIZE as usize);
    for (cpu, input) in board.cpus.iter().zip(frames) {
        let frame = redistributor(board, &*tables.memory, cpu.mpidr).ok_or_else(|| {
            refusal!(
                Board,
                "/cpus: reg: no GIC redistributor belongs to the CPU with affinity {:#x}",
                cpu.mpidr
            )
        })?;
        map(tables, input, frame, GICR_SIZE)?;
    }
    Ok(())
}

/// Finds the redistributor of the CPU with affinity `mpidr`.
fn redistributor<M: PhysicalMemory>(board: &Board, memory: &M, mpidr: u64) -> Option<u64> {
    let affinity = mpidr >> 8 & 0xff00_0000 | mpidr & 0x00ff_ffff;
    let end = board.gic.gicr + board.gicr_size;
    let mut frame = board.gic.gicr;
    while frame + GICR_SIZE <= end {
        let typer = memory.read_register(Pa::new(frame + GICR_TYPER));
        if typer >> 32 == affinity {
            return Some(frame);
        }
        if typer & TYPER_LAST != 0 {
            return None;
        }
        let own = if typer & TYPER_VLPIS == 0 {
            GICR_SIZE
        } else {
            2 * GICR_SIZE
        };
        frame += board.gic.gicr_stride.max(own);
    }
    None
}

fn stacks_size(board: &Board) -> u64 {
    board.cpus.len() as u64 * el2::STACK_SIZE
}
