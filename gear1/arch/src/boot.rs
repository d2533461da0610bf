//! The machine as init sees it: entry, early tables, physical memory, the jump into the runtime.
//!
//! Owns init's unsafe code. Init runs alone, on the CPU that booted, with its image mapped at its
//! link address (one 2 MiB block), the device tree in a window above it, and requested memory mapped
//! at its physical address. Invariants: init writes only physical memory that was passed to
//! [`Machine::map_ram`] and not given away by [`Machine::share`] or [`Machine::share_device_tree`],
//! and never its own image; no reference ever points to memory that can be written that way.
//!
//! The image defines `gear1_init_main(machine: Machine) -> !`, `gear1_init_exception(esr, elr, far)
//! -> !`, and in its linker script the symbols that `boot/entry.rs` and this file name.
//!
//! Requirements: G1-BOOT-010, G1-BOOT-013.

use alloc::vec::Vec;
use core::arch::asm;
use core::cell::Cell;
use core::ops::Range;
use core::ptr;

use aarch64_cpu::registers::{CNTFRQ_EL0, ID_AA64DFR0_EL1, ID_AA64MMFR0_EL1, MPIDR_EL1, Readable};
use gear1_abi::boot::BootInfo;
use gear1_abi::info::Gear2Info;
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::addr::{Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage1::{self, Rights};
use gear1_core::table::{Descriptors, ENTRIES, MapError, Span, TABLE_SIZE, TableMemory};

use crate::mmio::Mmio;
use crate::uart::BootUart;
use crate::{barrier, bulk};

mod entry;
mod heap;
mod memcpy;

const AFFINITY: u64 = 0x0000_00ff_00ff_ffff;
/// Bytes of memory that one entry of a root table maps.
const ROOT_ENTRY_SIZE: u64 = 1 << 39;
/// Distance of the device tree's window from init's link address.
const WINDOW: u64 = 1 << 30;

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
    static __bss_start: u8;
    static __bss_end: u8;
    static __early_tables: u8;
    static __tables_start: u8;
    static __tables_end: u8;
    static __stack_guard: [u64; 512];
}

unsafe extern "Rust" {
    fn gear1_init_main(machine: Machine) -> !;
}

/// Zeroes `.bss`. Reached from `boot/entry.rs`, once, before all other Rust code and before init has
/// exception vectors.
#[unsafe(no_mangle)]
extern "C" fn gear1_init_clear() {
    let bss = (&raw const __bss_start).cast_mut();
    let size = (&raw const __bss_end).addr() - bss.addr();
    // SAFETY: the linker script keeps this range for statics, none of which is used before, and for
    // the stack's lowest page, which is reached last.
    unsafe { bulk::zero(bss, size) };
}

/// Reached from `boot/entry.rs`, once.
#[unsafe(no_mangle)]
extern "C" fn gear1_init_start(device_tree: u64, image: u64) -> ! {
    heap::set_up();
    let machine = Machine::new(Pa::new(device_tree), Pa::new(image));
    // SAFETY: the image defines it with this very signature, as the module's documentation asks.
    unsafe { gear1_init_main(machine) }
}

/// The machine. There is one.
#[derive(Debug)]
pub struct Machine {
    device_tree: Pa,
    /// Bytes that are mapped from the device tree's first block on.
    device_tree_size: u64,
    image: Range<u64>,
    tables: EarlyTables,
    root: Pa,
    mapped: Vec<Range<u64>>,
    shared: Vec<Range<u64>>,
    writable: Vec<Range<u64>>,
    /// Start and end of the one of `writable` that was written last: most writes are words of
    /// tables, one beside the other.
    last_written: Cell<(u64, u64)>,
    devices: Vec<Range<u64>>,
}

impl Machine {
    fn new(device_tree: Pa, image: Pa) -> Self {
        let link = address_of(&raw const __image_start);
        let tables = EarlyTables {
            offset: link.wrapping_sub(image.get()),
            next: address_of(&raw const __tables_start),
            end: address_of(&raw const __tables_end),
        };
        let root = address_of(&raw const __early_tables).wrapping_sub(tables.offset);
        let size = address_of(&raw const __image_end) - link;
        let mut machine = Self {
            device_tree,
            device_tree_size: 0,
            image: image.get()..image.get() + size,
            tables,
            root: Pa::new(root),
            mapped: Vec::new(),
            shared: Vec::new(),
            writable: Vec::new(),
            last_written: Cell::new((0, 0)),
            devices: Vec::new(),
        };
        // The identity map of the image has served its purpose; RAM is mapped in large blocks.
        let entry = (image.get() / ROOT_ENTRY_SIZE) as usize;
        machine.tables.write(machine.root, entry, 0);
        forget_translations();
        machine
    }

    /// Returns the memory that init takes, stack and heap included.
    #[must_use]
    pub fn image(&self) -> Range<u64> {
        self.image.clone()
    }

    /// Returns where the firmware says that the board's device tree is.
    #[must_use]
    pub fn device_tree(&self) -> Pa {
        self.device_tree
    }

    /// Returns this CPU's affinity.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        MPIDR_EL1.get() & AFFINITY
    }

    /// Returns ID_AA64MMFR0_EL1.PARange.
    #[must_use]
    pub fn pa_range(&self) -> u64 {
        ID_AA64MMFR0_EL1.read(ID_AA64MMFR0_EL1::PARange)
    }

    /// Tells whether the CPU has a PMU of Arm's architecture (ID_AA64DFR0_EL1.PMUVer).
    #[must_use]
    pub fn has_pmu(&self) -> bool {
        !matches!(ID_AA64DFR0_EL1.read(ID_AA64DFR0_EL1::PMUVer), 0 | 15)
    }

    /// Returns the counter's frequency as firmware set it.
    #[must_use]
    pub fn counter_hz(&self) -> u64 {
        CNTFRQ_EL0.get()
    }

    /// Maps memory for init to write, except init's own and shared memory.
    ///
    /// # Safety
    ///
    /// The region is memory: a store to a device's register may make the device write anywhere.
    pub unsafe fn map_ram(&mut self, region: Range<u64>) -> Result<(), MapError> {
        self.map(region.clone(), Rights::ReadWrite)?;
        let mut writable = without(&[region], &self.image);
        for shared in &self.shared {
            writable = without(&writable, shared);
        }
        self.writable.append(&mut writable);
        Ok(())
    }

    /// Maps a device's registers, to be read. Refuses what is memory of init's.
    pub fn map_device(&mut self, registers: Range<u64>) -> Result<(), MapError> {
        let mut shared = self.shared.iter();
        if overlap(&registers, &self.image) || shared.any(|one| overlap(one, &registers)) {
            return Err(MapError::OutOfRange);
        }
        self.map(registers.clone(), Rights::Device)?;
        self.devices.push(registers);
        Ok(())
    }

    /// Maps a UART of one of the kinds of [`gear1_abi::info::uart`], for init's messages.
    ///
    /// # Safety
    ///
    /// A UART of this kind is at `base`, and no memory is in its page.
    pub unsafe fn console(&mut self, kind: u32, base: u64) -> Result<BootUart, MapError> {
        let start = base & !(PAGE_SIZE - 1);
        self.map_device(start..start + PAGE_SIZE)?;
        // SAFETY: `map_device` has mapped the page, and nothing in init unmaps anything. A UART of
        // these kinds accesses no memory.
        Ok(BootUart::take_over(kind, unsafe {
            Mmio::new(start, PAGE_SIZE)
        }))
    }

    /// Maps memory, and gives it out to be read for as long as init runs: from now on init does not
    /// write it. `None` where it is init's own, or cannot be mapped.
    ///
    /// # Safety
    ///
    /// The region is memory that no device and no other CPU writes.
    pub unsafe fn share(&mut self, region: Range<u64>) -> Option<&'static [u8]> {
        let size = self.keep_from_writes(&region)?;
        self.map(region.clone(), Rights::ReadWrite).ok()?;
        // SAFETY: the caller's conditions. All of it is mapped, for good. It is not in init's image,
        // and it was just taken out of what `PhysicalMemory` writes, to which `map_ram` never adds
        // it.
        Some(unsafe {
            core::slice::from_raw_parts(ptr::with_exposed_provenance(region.start as usize), size)
        })
    }

    /// Maps the first `bytes` of the device tree, as [`Machine::share`] does memory, but away from
    /// memory's own addresses: pages of a table there would keep RAM from being mapped by blocks.
    ///
    /// # Safety
    ///
    /// Memory from [`Machine::device_tree`] on, which no device and no other CPU writes.
    pub unsafe fn share_device_tree(&mut self, bytes: u64) -> Option<&'static [u8]> {
        let start = self.device_tree.get();
        let region = start..start.checked_add(bytes)?;
        let size = self.keep_from_writes(&region)?;
        // By pages: nobody has said yet what stands beside the tree, `no-map` memory or registers.
        let pages = whole_pages(&region)?;
        let window = address_of(&raw const __image_start) + WINDOW;
        let mapped = self.device_tree_size;
        let wanted = pages.end - pages.start;
        if wanted > mapped {
            let span = Span {
                input: window + mapped,
                output: pages.start + mapped,
                size: wanted - mapped,
            };
            let rights = Rights::Read.bits();
            let tables = stage1::tables(self.root);
            tables.map(&mut self.tables, span, rights).ok()?;
            self.device_tree_size = wanted;
            barrier::dsb_ishst();
            barrier::isb();
        }
        let place = (window + (start - pages.start)) as usize;
        // SAFETY: mapped above or before, and nothing is unmapped from the window. The pages' memory is
        // in no range that init writes, and the caller says that nobody else writes it.
        Some(unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(place), size) })
    }

    /// Takes a region out of what init writes, for good, and returns its size. `None` where it is
    /// init's own, or a device's.
    fn keep_from_writes(&mut self, region: &Range<u64>) -> Option<usize> {
        let size = usize::try_from(region.end.checked_sub(region.start)?).ok()?;
        let pages = whole_pages(region)?;
        let mut devices = self.devices.iter();
        let is_taken = overlap(region, &self.image) || devices.any(|one| overlap(one, &pages));
        if is_taken || region.start == 0 {
            return None;
        }
        self.writable = without(&self.writable, &pages);
        self.last_written.set((0, 0));
        self.shared.push(pages);
        Some(size)
    }

    /// Enters the runtime at `entry`, with `root` as the root of its tables. Halts if init's stack
    /// was too small.
    ///
    /// # Safety
    ///
    /// The tables at `root` map the runtime's image, whose first instruction is at `entry`, its
    /// stacks and `BootInfo` where `gear1_abi::layout::el2` has them, and are in memory.
    pub unsafe fn enter(mut self, entry: Va, root: Pa) -> ! {
        // SAFETY: the linker script has this page, zeroed at entry, at the stack's lowest end,
        // which nothing writes on purpose.
        let guard = unsafe { (&raw const __stack_guard).read() };
        let all = guard.as_chunks::<4>().0.iter();
        let all = all.fold(0, |all, [a, b, c, d]| all | a | b | c | d);
        assert!(all == 0, "its stack overflows");
        let runtime = (el2::RUNTIME / ROOT_ENTRY_SIZE) as usize;
        let descriptor = self.read_word(Pa::new(root.get() + runtime as u64 * 8));
        self.tables.write(self.root, runtime, descriptor);
        barrier::dsb_ishst();
        barrier::isb();
        cache_instructions_anew();
        // SAFETY: init's tables now map the runtime as its own do, so the caller's `entry` is its
        // first instruction in both. It expects these registers, and never returns.
        unsafe {
            asm!(
                "br {entry}",
                entry = in(reg) entry.get(),
                in("x0") el2::BOOT_INFO,
                in("x1") root.get(),
                options(noreturn)
            )
        }
    }

    /// Maps the unmapped part of `region` at its physical address. Memory around init's image is
    /// mapped with it, by blocks: `writable` keeps writes from the image.
    fn map(&mut self, region: Range<u64>, rights: Rights) -> Result<(), MapError> {
        let pages = whole_pages(&region).ok_or(MapError::OutOfRange)?;
        // A bank of memory may have no whole page, and a device no size.
        if pages.is_empty() {
            return Ok(());
        }
        let mut missing = alloc::vec![pages.clone()];
        for mapped in self.mapped.iter().filter(|one| overlap(one, &pages)) {
            missing = without(&missing, mapped);
        }
        for part in missing {
            let span = Span {
                input: part.start,
                output: part.start,
                size: part.end - part.start,
            };
            stage1::tables(self.root).map(&mut self.tables, span, rights.bits())?;
            self.mapped.push(part);
        }
        barrier::dsb_ishst();
        barrier::isb();
        Ok(())
    }

    /// Returns `pa` as a pointer to `size` bytes that init may write, or stops the machine.
    #[inline]
    fn writable(&self, pa: Pa, size: u64) -> *mut u8 {
        let end = pa.get().saturating_add(size);
        let (first, behind) = self.last_written.get();
        if pa.get() < first || behind < end {
            self.last_written.set(self.find_writable(pa.get()..end));
        }
        ptr::with_exposed_provenance_mut(pa.get() as usize)
    }

    /// Returns `pa` as a pointer to `count` aligned words that init may write, or stops the
    /// machine.
    #[inline]
    fn words(&self, pa: Pa, count: usize) -> *mut u64 {
        let first = self.writable(pa, count as u64 * 8).cast::<u64>();
        assert!(first.is_aligned(), "word at {pa:#x}");
        first
    }

    /// Returns the writable range that holds `bytes`, or stops the machine.
    #[inline(never)]
    fn find_writable(&self, bytes: Range<u64>) -> (u64, u64) {
        let inside = |range: &&Range<u64>| range.start <= bytes.start && bytes.end <= range.end;
        let Some(range) = self.writable.iter().find(inside) else {
            let Range { start, end } = bytes;
            panic!("write to {start:#x} to {end:#x}: not init's");
        };
        (range.start, range.end)
    }
}

impl Machine {
    /// Stops unless the register's bytes are mapped.
    fn check_mapped(&self, pa: Pa, size: u64) {
        let mapped = |range: &Range<u64>| range.start <= pa.get() && pa.get() + size <= range.end;
        assert!(
            self.mapped.iter().any(mapped),
            "register at {pa:#x} is not mapped"
        );
    }

    /// Stops unless the register is a device's that is mapped.
    fn check_device(&self, pa: Pa, size: u64) {
        let device = |range: &Range<u64>| range.start <= pa.get() && pa.get() + size <= range.end;
        assert!(
            self.devices.iter().any(device),
            "register at {pa:#x} is no device's"
        );
    }
}

impl PhysicalMemory for Machine {
    fn read_word(&self, pa: Pa) -> u64 {
        let word = self.words(pa, 1);
        // SAFETY: `words` says that it is mapped memory; it is aligned, and any bits are a word.
        unsafe { word.read_volatile() }
    }

    fn write_word(&mut self, pa: Pa, value: u64) {
        let word = self.words(pa, 1);
        // SAFETY: as for `read_word`; no reference points there.
        unsafe { word.write_volatile(value) };
    }

    fn count_zero_words(&self, pa: Pa, count: usize) -> usize {
        let words = self.words(pa, count);
        // SAFETY: as for `read_word`: `words` has seen all of them.
        let is_zero = |index: &usize| unsafe { words.wrapping_add(*index).read_volatile() } == 0;
        (0..count).take_while(is_zero).count()
    }

    fn write_words(&mut self, pa: Pa, count: usize, first: u64, step: u64) {
        let words = self.words(pa, count);
        let mut value = first;
        for index in 0..count {
            // SAFETY: as for `write_word`: `words` has seen all of them.
            unsafe { words.wrapping_add(index).write_volatile(value) };
            value = value.wrapping_add(step);
        }
    }

    fn write(&mut self, pa: Pa, bytes: &[u8]) {
        let target = self.writable(pa, bytes.len() as u64);
        // SAFETY: the target is memory to which no reference points, so `bytes` is elsewhere.
        unsafe { bulk::copy(bytes.as_ptr(), target, bytes.len()) };
    }

    fn zero(&mut self, pa: Pa, size: u64) {
        let target = self.writable(pa, size);
        // SAFETY: `writable` says that it is memory to which no reference points.
        unsafe { bulk::zero(target, size as usize) };
    }

    fn wipe(&mut self, pa: Pa, size: u64) {
        let target = self.writable(pa, size);
        // SAFETY: `writable` says that it is memory to which no reference points.
        unsafe { bulk::wipe(target, size as usize) };
    }

    fn write_boot_info(&mut self, pa: Pa, info: &BootInfo) {
        let target = self
            .writable(pa, size_of::<BootInfo>() as u64)
            .cast::<BootInfo>();
        assert!(target.is_aligned(), "BootInfo at {pa:#x}");
        // SAFETY: `writable` says that it is memory to which no reference points; it is aligned.
        unsafe { ptr::copy_nonoverlapping(info, target, 1) };
    }

    fn write_gear2_info(&mut self, pa: Pa, info: &Gear2Info) {
        let target = self
            .writable(pa, size_of::<Gear2Info>() as u64)
            .cast::<Gear2Info>();
        assert!(target.is_aligned(), "Gear2Info at {pa:#x}");
        // SAFETY: as for `write_boot_info`.
        unsafe { target.write(*info) };
    }

    fn clean(&mut self, pa: Pa, size: u64) {
        let start = self.writable(pa, size);
        // SAFETY: `writable` says that the bytes are mapped.
        unsafe { bulk::clean(start, size as usize) };
    }

    fn read_register8(&self, pa: Pa) -> u8 {
        self.check_mapped(pa, 1);
        // SAFETY: as for `read_register32`.
        unsafe { Mmio::new(pa.get(), 1) }.read8(0)
    }

    fn read_register16(&self, pa: Pa) -> u16 {
        self.check_mapped(pa, 2);
        // SAFETY: as for `read_register32`.
        unsafe { Mmio::new(pa.get(), 2) }.read16(0)
    }

    fn read_register32(&self, pa: Pa) -> u32 {
        self.check_mapped(pa, 4);
        // SAFETY: a device's register, mapped by `map_device`, or memory; nothing is written.
        unsafe { Mmio::new(pa.get(), 4) }.read32(0)
    }

    fn read_register(&self, pa: Pa) -> u64 {
        self.check_mapped(pa, 8);
        // SAFETY: as for `read_register32`.
        unsafe { Mmio::new(pa.get(), 8) }.read64(0)
    }

    fn write_register32(&mut self, pa: Pa, value: u32) {
        self.check_device(pa, 4);
        // SAFETY: a device's register, mapped by `map_device`. Init's driver of the SMMU
        // calls with addresses of memory that it has taken for the SMMU, and the one that places
        // PCI functions keeps these from memory.
        unsafe { Mmio::new(pa.get(), 4) }.write32(0, value);
    }

    fn write_register(&mut self, pa: Pa, value: u64) {
        self.check_device(pa, 8);
        // SAFETY: as for `write_register32`.
        unsafe { Mmio::new(pa.get(), 8) }.write64(0, value);
    }

    fn reach_registers(&mut self, registers: Range<u64>) -> Result<bool, MapError> {
        self.map_device(registers)?;
        Ok(true)
    }

    fn order(&self) {
        barrier::dsb_sy();
    }
}

/// Tables inside init's image, reached through its link address.
#[derive(Debug)]
struct EarlyTables {
    /// Offset from a physical address of the image to the address that init uses.
    offset: u64,
    next: u64,
    end: u64,
}

impl EarlyTables {
    fn entry(&self, table: Pa, index: usize) -> *mut u64 {
        let table = table.get().wrapping_add(self.offset) as usize;
        ptr::with_exposed_provenance_mut::<u64>(table).wrapping_add(index % ENTRIES)
    }
}

impl Descriptors for EarlyTables {
    fn read(&self, table: Pa, index: usize) -> u64 {
        // SAFETY: the walk comes here with the root and with what `alloc` returned: tables inside
        // the image, which nothing else touches.
        unsafe { self.entry(table, index).read_volatile() }
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        // SAFETY: as for `read`.
        unsafe { self.entry(table, index).write_volatile(descriptor) };
    }
}

impl TableMemory for EarlyTables {
    fn alloc(&mut self) -> Option<Pa> {
        let table = (self.available() != 0).then_some(self.next)?;
        self.next += TABLE_SIZE;
        let start = ptr::with_exposed_provenance_mut(table as usize);
        // SAFETY: the table lies inside the image, and was given to nobody before.
        unsafe { bulk::zero(start, TABLE_SIZE as usize) };
        barrier::dsb_ishst();
        Some(Pa::new(table.wrapping_sub(self.offset)))
    }

    fn available(&self) -> usize {
        ((self.end - self.next) / TABLE_SIZE) as usize
    }
}

fn forget_translations() {
    barrier::dsb_ish();
    // SAFETY: dropping cached translations of EL2 makes the next walks read the tables, which map
    // all that init uses.
    unsafe { asm!("tlbi alle2", options(nostack, preserves_flags)) };
    barrier::dsb_nsh();
    barrier::isb();
}

fn cache_instructions_anew() {
    crate::tlb::invalidate_instruction_caches();
}

fn address_of(symbol: *const u8) -> u64 {
    symbol.expose_provenance() as u64
}

/// Returns the region grown to whole pages.
fn whole_pages(region: &Range<u64>) -> Option<Range<u64>> {
    let end = Pa::new(region.end).align_up(PAGE_SIZE)?;
    Some(Pa::new(region.start).page().get()..end.get())
}

/// Tells whether two ranges share an address.
const fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the non-empty parts of the ranges that are not in `hole`.
fn without(ranges: &[Range<u64>], hole: &Range<u64>) -> Vec<Range<u64>> {
    let parts = |range: &Range<u64>| {
        let before = range.start..range.end.min(hole.start);
        let behind = range.start.max(hole.end)..range.end;
        [before, behind]
    };
    ranges
        .iter()
        .flat_map(parts)
        .filter(|range| !range.is_empty())
        .collect()
}
