//! A board's memory on this machine, so that Gear1's init can run here: pages as they are written.

use std::collections::HashMap;

use gear1_abi::boot::BootInfo;
use gear1_abi::info::Gear2Info;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::table::MapError;
use gear1_init::fdt::{Board, Smmu, SmmuKind};

/// The granule of init's tables.
const PAGE: u64 = 4096;
/// Offset of GICR_TYPER, and its bit of the last redistributor (Arm IHI 0069, 12.11.35). init walks
/// the redistributors to their last one, as any driver of a GICv3 does.
const TYPER: u64 = 8;
/// A driver that walks the frames stops there.
const LAST: u64 = 1 << 4;

/// Memory that reads as zero where nothing was written. A map of pages: a board has gigabytes, of
/// which init writes a few MiB.
pub(crate) struct HostMemory {
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
    /// Device registers that init reads: the redistributors' types. The one device that init reads
    /// while it places memory.
    registers: HashMap<u64, u64>,
    /// The SMMU, and its registers as init has written them, by their addresses.
    smmu: Option<Smmu>,
    smmu_registers: HashMap<u64, u32>,
    /// Hand-over from init.
    pub boot_info: Option<Box<BootInfo>>,
}

impl HostMemory {
    /// Returns the memory of a board before boot. The registers are what a board with these CPUs
    /// has, since the tree does not tell them.
    pub(crate) fn new(board: &Board) -> HostMemory {
        let count = board.cpus.len() as u64;
        let typer = |(index, cpu): (u64, &gear1_init::fdt::Cpu)| {
            let last = if index + 1 == count { LAST } else { 0 };
            let at = board.gic.gicr + index * board.gic.gicr_stride + TYPER;
            (at, affinity(cpu.mpidr) << 32 | last)
        };
        HostMemory {
            pages: HashMap::new(),
            registers: (0..).zip(&board.cpus).map(typer).collect(),
            smmu: board.smmu.clone(),
            smmu_registers: HashMap::new(),
            boot_info: None,
        }
    }

    /// Returns the SMMU and where registers of it begin, if one of them is at the address.
    fn in_smmu(&self, pa: Pa) -> Option<(&Smmu, u64)> {
        let smmu = self.smmu.as_ref()?;
        let mut regions = smmu.regions();
        let region = regions.find(|region| (region.start..region.end).contains(&pa.get()))?;
        Some((smmu, region.start))
    }

    /// Returns a register of an SMMU that has all that Gear1 asks for, as no tree tells otherwise,
    /// and that does at once what it is told (Arm IHI 0070, 6.3; Arm IHI 0062, 9.6).
    fn smmu_register(&self, kind: &SmmuKind, base: u64, offset: u64) -> u32 {
        let at = |offset| self.smmu_registers.get(&(base + offset));
        let written = |offset| at(offset).copied().unwrap_or(0);
        let is_v2 = matches!(kind, SmmuKind::V2(_));
        match offset {
            // IMCTR of an IPMMU's contexts, whose bit 1 is the flush that is done.
            0..0x200 if matches!(kind, SmmuKind::Ipmmu(_)) => written(offset) & !2,
            _ if matches!(kind, SmmuKind::Ipmmu(_)) => written(offset),
            // An SMMUv2's IDR0: stage 2, 15 bits of StreamIDs to be matched by 128 registers. IDR1:
            // 16 context banks, two halves of 16 pages of 4 KiB. IDR2: 4 KiB pages, 48 bits.
            0x20 if is_v2 => 1 << 29 | 1 << 27 | 15 << 9 | 128,
            0x24 if is_v2 => 3 << 28 | 16,
            0x28 if is_v2 => 1 << 12 | 5 << 4 | 5,
            _ if is_v2 => written(offset),
            // IDR0: two levels, coherent, AArch64, stage 2. IDR1: queues and StreamIDs. IDR5: 4 KiB
            // pages, 48 bits.
            0x0 => 1 << 27 | 1 << 4 | 0b10 << 2 | 1,
            0x4 => 19 << 21 | 19 << 16 | 32,
            0x14 => 1 << 4 | 5,
            // CR0ACK, GBPA, IRQ_CTRLACK, CMDQ_CONS.
            0x24 => written(0x20),
            0x44 => written(0x44) & !(1 << 31),
            0x54 => written(0x50),
            0x9c => written(0x98),
            _ => written(offset),
        }
    }

    /// Does `each` with every page that the bytes at `start` lie in: the offset in the page and the
    /// range of the bytes. Ranges of init cross pages at will.
    fn by_page(start: u64, size: u64, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < size {
            let at = start + done;
            let count = (PAGE - at % PAGE).min(size - done);
            let range = done as usize..(done + count) as usize;
            each(at / PAGE, (at % PAGE) as usize, range);
            done += count;
        }
    }
}

/// Packs an affinity as GICR_TYPER has it. Aff3 moves next to the others (Arm IHI 0069,
/// GICR_TYPER.Affinity_Value).
fn affinity(mpidr: u64) -> u64 {
    mpidr & 0xff_ffff | (mpidr >> 32 & 0xff) << 24
}

impl PhysicalMemory for HostMemory {
    /// Little-endian, as tables are.
    fn read_word(&self, pa: Pa) -> u64 {
        let page = self.pages.get(&(pa.get() / PAGE));
        let at = (pa.get() % PAGE) as usize;
        let word = page.and_then(|page| page[at..].first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Tables are written by words.
    fn write_word(&mut self, pa: Pa, value: u64) {
        self.write(pa, &value.to_le_bytes());
    }

    /// Images are written by pieces.
    fn write(&mut self, pa: Pa, bytes: &[u8]) {
        HostMemory::by_page(pa.get(), bytes.len() as u64, |page, at, range| {
            let blank = || Box::new([0; PAGE as usize]);
            let page = self.pages.entry(page).or_insert_with(blank);
            page[at..at + range.len()].copy_from_slice(&bytes[range]);
        });
    }

    /// Dropped pages keep the map small: init zeroes the VMs' memory.
    fn zero(&mut self, pa: Pa, size: u64) {
        let (first, last) = (pa.get() / PAGE, (pa.get() + size).div_ceil(PAGE));
        // Zeroed pages are dropped; init zeroes whole pages, and the end of the last one.
        if pa.get().is_multiple_of(PAGE) && size.is_multiple_of(PAGE) {
            self.pages.retain(|page, _| !(first..last).contains(page));
            return;
        }
        HostMemory::by_page(pa.get(), size, |page, at, range| {
            if let Some(page) = self.pages.get_mut(&page) {
                page[at..at + range.len()].fill(0);
            }
        });
    }

    /// Kept as a structure, for the report.
    fn write_boot_info(&mut self, _: Pa, info: &BootInfo) {
        self.boot_info = Some(Box::new(*info));
    }

    /// Nothing asks for it here.
    fn write_gear2_info(&mut self, _: Pa, _: &Gear2Info) {}

    /// Caches of this machine do not concern a board.
    fn clean(&mut self, _: Pa, _: u64) {}

    /// Reads as zero, as of a watchdog that tells of no reset.
    fn read_register8(&self, _: Pa) -> u8 {
        0
    }

    /// Reads as zero, like a register of 8 bits.
    fn read_register16(&self, _: Pa) -> u16 {
        0
    }

    /// Returns all ones but for the SMMU: no tree tells how many interrupts a distributor has.
    fn read_register32(&self, pa: Pa) -> u32 {
        match self.in_smmu(pa) {
            Some((smmu, base)) => self.smmu_register(&smmu.kind, base, pa.get() - base),
            None => u32::MAX,
        }
    }

    /// Anything else reads as zero, as a register that is not there would.
    fn read_register(&self, pa: Pa) -> u64 {
        self.registers.get(&pa.get()).copied().unwrap_or(0)
    }

    /// The SMMU alone is written.
    fn write_register32(&mut self, pa: Pa, value: u32) {
        if self.in_smmu(pa).is_some() {
            self.smmu_registers.insert(pa.get(), value);
        }
    }

    /// Addresses of tables, which nothing walks here.
    fn write_register(&mut self, _: Pa, _: u64) {}

    /// A board's tree does not tell what is on a bus.
    fn reach_registers(&mut self, _: std::ops::Range<u64>) -> Result<bool, MapError> {
        Ok(false)
    }

    /// One thread has one order.
    fn order(&self) {}
}
