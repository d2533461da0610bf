//! The runtime in memory: its image, its stacks and its EL2 tables at [`gear1_abi::layout::el2`].
//!
//! Invariants: only the image's text and the boot page are executable, and neither can be written;
//! below every stack lies an unmapped page; no VM's memory is mapped.
//!
//! Init builds these tables with its own MMU on and its own tables installed. The runtime runs on
//! them from its first instruction, and changes nothing in them later but the window tables.
//!
//! Requirements: G1-MEM-001, G1-MEM-003.

use gear1_abi::boot::BootInfo;
use gear1_abi::image::ImageHeader;
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::addr::{Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage1::{self, Rights};
use gear1_core::table::{Span, TableMemory, Tables};

use crate::board_watchdog::Fed;
use crate::fdt::{Board, GICC_SIZE};
use crate::flat::{self, Flat};
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;
use crate::smmu;
use crate::smmu::v3::QUEUES_SIZE;
use crate::sve;
use crate::table_memory::BootTables;
use crate::trace;

/// Bytes that are mapped for each CPU's redistributor: RD and SGI frames.
const GICR_SIZE: u64 = 0x2_0000;
/// GICR_TYPER (Arm IHI 0069): the offset, and of its bits Last and VLPIS.
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
    /// The stage-2 table pool, which EL2 writes: it changes stage 2 of VMs that share memory.
    pub pool: Region,
    /// Root of the runtime's tables.
    pub root: Pa,
    /// Stolen time, a page a VM.
    pub stolen_time: Pa,
}

/// Devices that the runtime drives, beside the interrupt controller and the UART, the rings that it
/// writes, and the vCPUs that have registers of SVE.
#[derive(Clone, Copy, Debug)]
pub struct Driven<'d> {
    /// Devices that are fed.
    pub fed: &'d [Fed],
    /// The SMMU, if a VM owns a device behind it.
    pub smmu: Option<&'d smmu::Placed>,
    /// The rings of trace records, if the manifest has them.
    pub trace: Option<trace::Rings>,
    /// Memory that registers of SVE take.
    pub vectors: &'d [sve::Piece],
}

/// Loads the runtime from its flat image `file` and builds its tables.
///
/// All memory is taken before the first table, so the tables lie behind it and grow into what is
/// free. The `BootInfo` is written last of all by [`prepare`](crate::prepare), into the pages that
/// are taken here.
pub fn load<M: PhysicalMemory>(
    file: &[u8],
    board: &Board,
    driven: &Driven<'_>,
    pool: Region,
    vm_count: usize,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Runtime, Refusal> {
    let flat = parse(file)?;
    let image = flat.load(free, memory)?;
    let boot_info = free.take(info_size(), PAGE_SIZE, "Gear1's boot information")?;
    let stacks = flat::zeroed_in_caches(free, memory, stacks_size(board), "Gear1's stacks")?;
    let stolen_size = vm_count as u64 * PAGE_SIZE;
    let stolen_time = flat::zeroed(free, memory, stolen_size, "stolen time")?;
    let vectors = sve::take(driven.vectors, free, memory)?;
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
    let mut space = AddressSpace {
        tree,
        tables,
        board,
    };
    space.map_image(&flat.header, image)?;
    space.map_stacks(stacks)?;
    space.map_data(&runtime, stolen_size)?;
    space.map_uart()?;
    space.map_watchdogs(driven.fed)?;
    space.map_smmu(driven.smmu)?;
    space.map_trace(driven.trace)?;
    space.map_vectors(driven.vectors, vectors)?;
    space.map_windows()?;
    space.map_gic()?;
    Ok(runtime)
}

/// Reads the header of the runtime's image, which was built with init and is part of its file. CPUs
/// enter the boot page with the MMU off, so the page has to be one of the text's that are mapped.
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

/// EL2's address space in the making.
struct AddressSpace<'m, 'b, M> {
    tree: Tables,
    tables: BootTables<'m, M>,
    board: &'b Board,
}

impl<M: PhysicalMemory> AddressSpace<'_, '_, M> {
    /// Maps `size` bytes at `input` in EL2 to those at the physical address `output`.
    fn map(&mut self, input: u64, output: u64, size: u64, rights: Rights) -> Result<(), Refusal> {
        let span = Span {
            input,
            output,
            size,
        };
        let refuse = |error| {
            refusal!(
                Machine,
                "EL2 address {input:#x} cannot be mapped: {error:?}"
            )
        };
        self.tree
            .map(&mut self.tables, span, rights.bits())
            .map_err(refuse)
    }

    /// Maps the segments of the image, each with the rights that its contents need: nothing is both
    /// writable and executable.
    fn map_image(&mut self, header: &ImageHeader, image: Pa) -> Result<(), Refusal> {
        let segments = [
            (header.base, header.text_end, Rights::ReadExecute),
            (header.text_end, header.rodata_end, Rights::Read),
            (header.rodata_end, header.bss_end, Rights::ReadWrite),
        ];
        for (start, end, rights) in segments {
            if start != end {
                let place = image.get() + (start - header.base);
                self.map(start, place, end - start, rights)?;
            }
        }
        Ok(())
    }

    /// Maps the stack of each CPU at the top of the CPU's stride, above a page that stays unmapped:
    /// an overflow is a fault, and not another CPU's stack.
    fn map_stacks(&mut self, stacks: Pa) -> Result<(), Refusal> {
        let size = el2::STACK_SIZE;
        for cpu in 0..self.board.cpus.len() as u64 {
            let top = el2::STACKS + (cpu + 1) * el2::STACK_STRIDE;
            let stack = stacks.get() + cpu * size;
            self.map(top - size, stack, size, Rights::ReadWrite)?;
        }
        Ok(())
    }

    /// Maps the boot page at its physical address, where a CPU turns the MMU on, and the memory
    /// that the runtime reads and writes beside its image.
    fn map_data(&mut self, runtime: &Runtime, stolen_size: u64) -> Result<(), Refusal> {
        let boot_page = runtime.boot_page.get();
        let [info, stolen] = [runtime.boot_info, runtime.stolen_time].map(Pa::get);
        let (pool, both) = (runtime.pool, Rights::ReadWrite);
        self.map(boot_page, boot_page, PAGE_SIZE, Rights::ReadExecute)?;
        self.map(el2::BOOT_INFO, info, info_size(), Rights::Read)?;
        self.map(el2::STOLEN_TIME, stolen, stolen_size, both)?;
        // planted: a guest's memory is mapped at EL2
        self.map(el2::POOL, pool.start, pool.bytes(), both)
    }

    /// Maps the boot UART, on which the runtime prints the reason of a halt, whoever owns the UART.
    fn map_uart(&mut self) -> Result<(), Refusal> {
        let Some(uart) = self.board.uart else {
            return Ok(());
        };
        self.map(el2::UART, uart.page(), PAGE_SIZE, Rights::Device)
    }

    /// Maps what the runtime feeds, a page each.
    fn map_watchdogs(&mut self, fed: &[Fed]) -> Result<(), Refusal> {
        for (fed, input) in fed
            .iter()
            .zip((el2::WATCHDOGS..).step_by(PAGE_SIZE as usize))
        {
            self.map(input, fed.page, PAGE_SIZE, Rights::Device)?;
        }
        Ok(())
    }

    /// Maps the SMMU's registers, and an SMMUv3's queues and the stream table's entries. The table's
    /// first level is not mapped: it does not change.
    fn map_smmu(&mut self, smmu: Option<&smmu::Placed>) -> Result<(), Refusal> {
        let Some(smmu) = smmu else {
            return Ok(());
        };
        let mut at = el2::SMMU;
        for registers in smmu.registers() {
            self.map(at, registers.start, registers.bytes(), Rights::Device)?;
            at += registers.bytes();
        }
        let smmu::Parts::V3(v3) = &smmu.parts else {
            return Ok(());
        };
        let (queues, entries) = (v3.queues.get(), v3.entries);
        self.map(el2::SMMU_QUEUES, queues, QUEUES_SIZE, Rights::ReadWrite)?;
        self.map(
            el2::SMMU_STREAMS,
            entries.start,
            entries.bytes(),
            Rights::ReadWrite,
        )
    }

    /// Maps the rings of trace records.
    fn map_trace(&mut self, rings: Option<trace::Rings>) -> Result<(), Refusal> {
        for piece in rings.into_iter().flat_map(trace::Rings::pieces) {
            let input = el2::TRACE + piece.offset;
            self.map(input, piece.pa, piece.size, Rights::ReadWrite)?;
        }
        Ok(())
    }

    /// Maps the registers of SVE, whose memory lies in the order of `pieces`.
    fn map_vectors(&mut self, pieces: &[sve::Piece], start: Option<Pa>) -> Result<(), Refusal> {
        let mut output = start.map_or(0, Pa::get);
        for piece in pieces {
            self.map(piece.input, output, piece.size, Rights::ReadWrite)?;
            output += piece.size;
        }
        Ok(())
    }

    /// Gives each CPU an empty table for its windows, and maps that table itself: the runtime has
    /// no other way to write a descriptor of its own.
    fn map_windows(&mut self) -> Result<(), Refusal> {
        for cpu in 0..self.board.cpus.len() as u64 {
            let window = el2::WINDOWS + cpu * el2::WINDOW_STRIDE;
            let table = self.tree.page_table(&mut self.tables, window);
            let table = table.map_err(|_| flat::no_tables())?;
            let input = el2::WINDOW_TABLES + cpu * PAGE_SIZE;
            self.map(input, table.get(), PAGE_SIZE, Rights::ReadWrite)?;
        }
        Ok(())
    }

    /// Maps the interrupt controller's registers.
    fn map_gic(&mut self) -> Result<(), Refusal> {
        match self.board.gic.version {
            2 => self.map_gicv2(),
            _ => self.map_gicv3(),
        }
    }

    /// Maps a GICv2: distributor, CPU interface and the virtual interface's control. GICV is a
    /// guest's, and the runtime has no use for it.
    fn map_gicv2(&mut self) -> Result<(), Refusal> {
        let (gic, gicc) = (self.board.gic, self.board.gicc());
        self.map_registers(el2::GICD, gic.gicd, 0x1000)?;
        self.map_registers(el2::GICR, gicc, GICC_SIZE)?;
        self.map_registers(el2::GICR + GICH_OFFSET, gic.gich, 0x1000)
    }

    /// Maps a GICv3: the distributor, and of each CPU's redistributor the frames at the CPU's own
    /// address, so that the runtime finds them by the CPU's index.
    fn map_gicv3(&mut self) -> Result<(), Refusal> {
        let board = self.board;
        self.map_registers(el2::GICD, board.gic.gicd, 0x1_0000)?;
        let frames = (el2::GICR..).step_by(GICR_SIZE as usize);
        for (cpu, input) in board.cpus.iter().zip(frames) {
            let frame = redistributor(board, &*self.tables.memory, cpu.mpidr);
            let frame = frame.ok_or_else(|| {
                refusal!(
                    Board,
                    "/cpus: reg: no GIC redistributor belongs to the CPU with affinity {:#x}",
                    cpu.mpidr
                )
            })?;
            self.map_registers(input, frame, GICR_SIZE)?;
        }
        Ok(())
    }

    /// Maps registers of the interrupt controller. The board's tree is at fault if they cannot be:
    /// it alone says where they are.
    fn map_registers(&mut self, input: u64, output: u64, size: u64) -> Result<(), Refusal> {
        let span = Span {
            input,
            output,
            size,
        };
        let refuse = |error| refusal!(Board, "the GIC at {output:#x} cannot be mapped: {error:?}");
        self.tree
            .map(&mut self.tables, span, Rights::Device.bits())
            .map_err(refuse)
    }
}

/// Returns the bytes of the [`BootInfo`], in whole pages.
const fn info_size() -> u64 {
    (size_of::<BootInfo>() as u64).next_multiple_of(PAGE_SIZE)
}

/// Finds the redistributor of the CPU with affinity `mpidr`. The frames stand in no promised order,
/// so each is asked whose it is, up to the one that says it is the last.
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
        frame += board.gic.gicr_stride.max(frames_size(typer));
    }
    None
}

/// Returns the bytes of a redistributor's frames: two of 64 KiB, and two more with virtual LPIs.
const fn frames_size(typer: u64) -> u64 {
    if typer & TYPER_VLPIS == 0 {
        GICR_SIZE
    } else {
        2 * GICR_SIZE
    }
}

/// Returns the bytes of all CPUs' stacks, which lie side by side in physical memory.
fn stacks_size(board: &Board) -> u64 {
    board.cpus.len() as u64 * el2::STACK_SIZE
}
