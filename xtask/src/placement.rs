//! Placement on a board: Gear1's own init, run on this machine.
//!
//! Owns only the decisions of a boot loader: the addresses of Gear1, the archive and the device
//! tree. `gear1_init` makes all others.

use std::fs;

use anyhow::{Context, Result, anyhow};
use gear1_abi::boot::BootInfo;
use gear1_core::sve::Lengths;
use gear1_init::devices::{self, Device};
use gear1_init::fdt::Board;
use gear1_init::partition::Partition;
use gear1_init::prepare::{Given, prepare};
use gear1_init::refusal::Refusal;
use gear1_init::region::Region;
use workbench::board::BoardTree;
use workbench::build_images;
use workbench::tools::Tools;

use crate::host_memory::HostMemory;

/// Memory is asked for in MiB, as in manifests.
const MIB: u64 = 1 << 20;
/// init places everything by pages.
const PAGE: u64 = 4096;
/// Addresses of 44 bits, as Cortex-A57 and A72 have them (ID_AA64MMFR0_EL1.PARange).
const PA_RANGE: u64 = 0b0100;
/// A counter's frequency; no place depends on it.
const COUNTER_HZ: u32 = 62_500_000;
/// Offset of Gear1 from the start of memory: Linux's boot protocol for arm64 aligns an image to
/// 2 MiB.
const INIT_OFFSET: u64 = 2 * MIB;
/// Offset of the archive from the start of memory.
const ARCHIVE_OFFSET: u64 = 128 * MIB;

/// A booted board, as far as init's work goes.
pub struct Placement {
    /// The board as init reads it.
    pub board: Board,
    /// Gear1's init while it runs, the archive, and the device tree.
    pub init: Region,
    /// The board's device tree.
    pub device_tree: Region,
    /// The archive.
    pub archive: Region,
    /// Memory that is left free.
    pub left: Vec<Region>,
    /// Devices of the board.
    pub devices: Vec<Device>,
    /// Hand-over from init to the runtime.
    pub info: Box<BootInfo>,
    /// List of all mappings of VMs.
    pub partition: Partition,
}

/// Gear1's images, as far as init's work goes.
pub(crate) struct Gear1 {
    /// Bytes of memory that init takes.
    pub(crate) size: u64,
    /// The flat image of the runtime.
    pub(crate) runtime: Vec<u8>,
}

impl Gear1 {
    /// Builds the images and returns those for a GIC of this version.
    fn build(gic_version: u32) -> Result<Gear1> {
        let (gear1, _) = build_images::gears()?;
        let image = fs::read(gear1)?;
        let size = image.get(16..24).and_then(|size| size.try_into().ok());
        Ok(Gear1 {
            size: size.map_or(image.len() as u64, u64::from_le_bytes),
            runtime: fs::read(build_images::runtime(gic_version)?)?,
        })
    }
}

/// Runs init, with the images as they are built, on `archive` for `board`; a refusal by init is not
/// an error of this function.
pub fn place(
    board: BoardTree,
    archive: &[u8],
    tools: &Tools,
) -> Result<Result<Placement, Refusal>> {
    let gear1 = Gear1::build(board.read()?.gic.version)?;
    place_with(board, archive, &gear1, tools)
}

/// Runs init with these images.
pub(crate) fn place_with(
    board: BoardTree,
    archive: &[u8],
    gear1: &Gear1,
    tools: &Tools,
) -> Result<Result<Placement, Refusal>> {
    let [init, archive_at] = loaded(&board.read()?, gear1.size, archive.len() as u64);
    // The tree names the archive's place, so its size is known only with that.
    let board = board.with_archive(archive_at.start..archive_at.end, tools)?;
    let size = board.bytes().len() as u64;
    let device_tree = sized(archive_at.end.next_multiple_of(PAGE), size);
    let facts = board.read()?;
    let mut memory = HostMemory::new(&facts);
    let given = Given {
        board: &facts,
        archive,
        runtime: &gear1.runtime,
        init,
        device_tree,
        tree: board.tree()?,
        boot_cpu: facts.cpus.first().map_or(0, |cpu| cpu.mpidr),
        pa_range: PA_RANGE,
        counter_hz: COUNTER_HZ,
        // The machine's CPU is asked when it boots.
        vector_lengths: || Lengths::from_bits(u16::MAX),
    };
    let hand_over = match prepare(&given, &mut memory) {
        Ok(hand_over) => hand_over,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(Ok(Placement {
        devices: inventory(&board)?,
        archive: facts.archive,
        board: facts,
        init,
        device_tree,
        left: hand_over.left,
        info: memory.boot_info.context("init handed nothing over")?,
        partition: hand_over.partition,
    }))
}

/// Returns where a boot loader puts Gear1's init and the archive, of these sizes in bytes.
pub fn loaded(board: &Board, init: u64, archive: u64) -> [Region; 2] {
    let bank = board.memory.first().map_or(0, |bank| bank.start);
    [
        sized(bank + INIT_OFFSET, init),
        sized(bank + ARCHIVE_OFFSET, archive),
    ]
}

/// Returns where the built images lie when they boot.
pub fn of_images(board: &Board, archive: u64) -> Result<[Region; 2]> {
    let gear1 = Gear1::build(board.gic.version)?;
    Ok(loaded(board, gear1.size, archive))
}

/// Returns the devices in a board's device tree.
fn inventory(board: &BoardTree) -> Result<Vec<Device>> {
    devices::inventory(&board.tree()?).map_err(|refusal| anyhow!("{refusal}"))
}

/// Makes a region of a start and a size, as the hand-over tells them.
fn sized(start: u64, size: u64) -> Region {
    Region::new(start, start + size)
}
