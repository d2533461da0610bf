//! Windows, the only way the runtime reaches a guest's memory and a guest's devices: to load a VM,
//! for what changes hands, and for configuration space of PCI functions. Each CPU has two (source
//! and destination) of 64 KiB; what they map changes, and is nothing between two uses.
//!
//! Requirements: G1-MEM-003, G1-MEM-015, G1-DMA-002.

use core::marker::PhantomData;
use core::ptr;

use gear1_abi::boot::{BootFunction, BootLoad, BootMaster, BootRegion, MAX_FUNCTIONS};
use gear1_abi::id::{CpuIndex, VmId};
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::layout::el2::{PIECE, WINDOW_SIZE, WINDOW_STRIDE, WINDOW_TABLES, WINDOWS};
use gear1_core::guest_memory::GuestMemory;
use gear1_core::lifecycle::{Register, stop_master};
use gear1_core::pci::{self, Access, FUNCTION_SIZE, NO_FUNCTION};
use gear1_core::seed::Start;

use crate::handover::Handover;
use crate::mmio::Mmio;
use crate::this_cpu::LocalCpu;
use crate::{barrier, bulk, tlb};

const PAGES: u64 = WINDOW_SIZE / PAGE_SIZE;
/// Level-3 page: valid, AttrIndx 0 (Normal write-back), `AP[1]` RES1, inner
/// shareable, accessed, XN (Arm ARM D8.3.1, one VA range).
const PAGE: u64 = 0b11 | 1 << 6 | 0b11 << 8 | 1 << 10 | 1 << 54;
const READ_ONLY: u64 = 1 << 7;
/// AttrIndx 1: Device-nGnRE.
const DEVICE: u64 = 1 << 2;

/// Functions whose configuration space is mapped at once.
const FUNCTIONS_AT_ONCE: u64 = PAGES;
/// Bits of the command register; the status register behind it keeps its bits when 0 is written.
const COMMAND_MASK: u32 = 0xffff;
/// Bus Master Enable: 0 keeps a function from memory, and a bridge from passing requests up.
const BUS_MASTER: u32 = 1 << 2;

/// Selector of one of a CPU's two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Read-only.
    Source = 0,
    /// Read-write.
    Destination = 1,
}

/// A window that maps physical memory until it is dropped.
#[derive(Debug)]
struct Window {
    cpu: CpuIndex,
    side: Side,
    /// Offset of the first byte in the window.
    offset: u64,
    size: u64,
    /// Keeps a window on the CPU that mapped it: only that CPU's TLB forgets it.
    local: PhantomData<*const ()>,
}

fn entry(cpu: CpuIndex, side: Side, page: u64) -> *mut u64 {
    let table = WINDOW_TABLES.wrapping_add(cpu.reg().wrapping_mul(PAGE_SIZE));
    let index = (side as u64).wrapping_mul(PAGES).wrapping_add(page % PAGES);
    table.wrapping_add(index.wrapping_mul(8)) as *mut u64
}

/// Returns how many pages a window maps.
fn pages(offset: u64, size: u64) -> u64 {
    offset.wrapping_add(size).div_ceil(PAGE_SIZE).min(PAGES)
}

impl Window {
    /// Maps `size` bytes at the physical address `pa`, as far as they fit.
    ///
    /// # Safety
    ///
    /// The CPU has no other window on this side. The bytes are memory that no Rust value is in, and
    /// the caller may read them, or write them where the side is the destination.
    unsafe fn map(cpu: LocalCpu<'_>, side: Side, pa: u64, size: u64) -> Self {
        let cpu = cpu.index();
        let offset = pa % PAGE_SIZE;
        let size = size.min(WINDOW_SIZE.wrapping_sub(offset));
        let base = pa.wrapping_sub(offset);
        let attributes = if side == Side::Source {
            PAGE | READ_ONLY
        } else {
            PAGE
        };
        // Bound: 16 pages of a window.
        for page in 0..pages(offset, size) {
            let descriptor = base.wrapping_add(page.wrapping_mul(PAGE_SIZE)) | attributes;
            // SAFETY: the entry lies in this CPU's window table, which init mapped.
            unsafe { ptr::write_volatile(entry(cpu, side, page), descriptor) };
        }
        // The entries were invalid before: no break-before-make is due, only visibility.
        barrier::dsb_ishst();
        barrier::isb();
        Self {
            cpu,
            side,
            offset,
            size,
            local: PhantomData,
        }
    }

    /// Maps the pages of `size` bytes of device registers at the physical address `pa`, as far as
    /// they fit, on the destination's side.
    ///
    /// # Safety
    ///
    /// The CPU has no other window on this side. Device registers that the caller may write are at
    /// `pa`.
    unsafe fn map_registers(cpu: LocalCpu<'_>, pa: u64, size: u64) -> Self {
        let cpu = cpu.index();
        let (side, offset) = (Side::Destination, pa % PAGE_SIZE);
        let base = pa.wrapping_sub(offset);
        // Bound: 16 pages of a window.
        for page in 0..pages(offset, size) {
            let descriptor = base.wrapping_add(page.wrapping_mul(PAGE_SIZE)) | PAGE | DEVICE;
            // SAFETY: as in `map`.
            unsafe { ptr::write_volatile(entry(cpu, side, page), descriptor) };
        }
        barrier::dsb_ishst();
        barrier::isb();
        Self {
            cpu,
            side,
            offset,
            size,
            local: PhantomData,
        }
    }

    fn page_address(&self, page: u64) -> u64 {
        let cpu = self.cpu.reg().wrapping_mul(WINDOW_STRIDE);
        let side = (self.side as u64).wrapping_mul(WINDOW_SIZE);
        WINDOWS
            .wrapping_add(cpu)
            .wrapping_add(side)
            .wrapping_add(page.wrapping_mul(PAGE_SIZE))
    }

    fn address(&self) -> u64 {
        self.page_address(0).wrapping_add(self.offset)
    }

    /// Returns the bytes mapped.
    fn size(&self) -> u64 {
        self.size
    }

    /// Fills the window with zeroes.
    fn zero(&self) {
        // SAFETY: `size` bytes from `address` are mapped writable for this window.
        unsafe { bulk::zero(self.address() as *mut u8, self.size as usize) };
    }

    /// Copies the source window to `offset` of this one, as far as both reach.
    fn copy_from(&self, source: &Window, offset: u64) {
        let room = self.size.saturating_sub(offset);
        let count = source.size.min(room);
        let to = self.address().wrapping_add(offset) as *mut u8;
        // SAFETY: both ranges are mapped, the destination writable; the two sides
        // are different addresses, and a VM's memory never overlaps the archive.
        unsafe { bulk::copy(source.address() as *const u8, to, count as usize) };
    }

    /// Copies `bytes` to `offset` of the window, as far as it reaches.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let room = self.size.saturating_sub(offset);
        let count = room.min(bytes.len() as u64) as usize;
        let to = self.address().wrapping_add(offset) as *mut u8;
        // SAFETY: so many bytes are mapped, writable; a Rust value is in no window.
        unsafe { bulk::copy(bytes.as_ptr(), to, count) };
    }

    /// Cleans and invalidates the window's lines to the point of coherency: the guest starts with
    /// its caches off and must find the written data.
    fn clean(&self) {
        // SAFETY: `size` bytes from `address` are mapped for this window.
        unsafe { bulk::clean(self.address() as *mut u8, self.size as usize) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Bound: 16 pages of a window.
        for page in 0..pages(self.offset, self.size) {
            // SAFETY: as in `map`.
            unsafe { ptr::write_volatile(entry(self.cpu, self.side, page), 0) };
            tlb::invalidate_el2_page(self.page_address(page));
        }
    }
}

/// A page of a VM's memory, which its guest may be changing.
#[derive(Debug)]
pub struct GuestPage(Window);

impl GuestPage {
    /// Maps the page where `memory` begins.
    ///
    /// # Safety
    ///
    /// No other page is mapped on this CPU. `memory` is in a region of a VM that init handed over,
    /// and of a VM on whose behalf the caller reads and writes.
    #[must_use]
    pub unsafe fn map(cpu: LocalCpu<'_>, memory: GuestMemory) -> Self {
        let page = memory.pa() & !(PAGE_SIZE.wrapping_sub(1));
        // SAFETY: the caller's conditions. All other windows of this module are gone on return. A
        // VM's regions are whole pages, and guests' memory holds no Rust value.
        Self(unsafe { Window::map(cpu, Side::Destination, page, PAGE_SIZE) })
    }

    /// Returns word `index` behind the word at `offset`, which is in the page and aligned.
    fn word(&self, offset: u64, index: usize) -> *mut u64 {
        let offset = offset.wrapping_add((index as u64).wrapping_mul(8));
        let offset = (offset % PAGE_SIZE) & !7;
        self.0.address().wrapping_add(offset) as *mut u64
    }

    /// Copies words out, from `offset` on, a multiple of 8.
    pub fn read(&self, offset: u64, words: &mut [u64]) {
        // Bound: words of the caller's buffer, at most a page's.
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: an aligned word of the page, which is mapped; volatile, for a guest may be
            // writing.
            *word = unsafe { self.word(offset, index).read_volatile() };
        }
    }

    /// Copies words in, likewise.
    pub fn write(&self, offset: u64, words: &[u64]) {
        // Bound: words of the caller's buffer, at most a page's.
        for (index, word) in words.iter().enumerate() {
            // SAFETY: as in `read`; the page is mapped writable.
            unsafe { self.word(offset, index).write_volatile(*word) };
        }
    }
}

/// Wipes, if `zero`, and cleans memory of a VM.
///
/// # Safety
///
/// As for [`GuestPage::map`]; with `zero`, whoever has the memory has lost what is in it.
pub unsafe fn clean_guest_memory(cpu: LocalCpu<'_>, memory: GuestMemory, zero: bool) {
    // SAFETY: as in `GuestPage::map`.
    let window = unsafe { Window::map(cpu, Side::Destination, memory.pa(), memory.size()) };
    if zero {
        window.zero();
    }
    window.clean();
}

/// Returns the physical address of the byte `progress` of the regions, and the number of bytes from
/// there to the end of its region.
fn place(regions: &[BootRegion], progress: u64) -> Option<(u64, u64)> {
    let mut rest = progress;
    // Bound: MAX_REGIONS (4).
    for region in regions {
        if rest < region.size {
            return Some((region.pa.wrapping_add(rest), region.size.wrapping_sub(rest)));
        }
        rest = rest.wrapping_sub(region.size);
    }
    None
}

/// Releases a CPU that spins with its MMU off until the word at the physical address `release`
/// holds an entry point (Linux's `Documentation/arch/arm64/booting.rst`).
///
/// # Safety
///
/// The word belongs to firmware, and to no VM. Code of this image that starts a CPU is at `entry`.
/// No [`GuestPage`] is mapped on this CPU.
pub(crate) unsafe fn release_cpu(cpu: LocalCpu<'_>, release: u64, entry: u64) {
    // SAFETY: the caller's conditions. All other windows of this module are gone on return.
    let window = unsafe { Window::map(cpu, Side::Destination, release & !7, 8) };
    // SAFETY: eight bytes from `address`, a multiple of 8, are mapped writable for this window.
    unsafe { ptr::write_volatile(window.address() as *mut u64, entry) };
    window.clean();
    drop(window);
    barrier::sev();
}

/// Wipes one piece of the regions, `progress` bytes from their start (a
/// multiple of [`PIECE`]), and copies what the load table puts there. `start`: the VM's start, of
/// which the seed is.
///
/// # Safety
///
/// The regions and loads are those that init handed over for one VM that is stopped and shares
/// nothing, or for Gear2 while no CPU runs it. No [`GuestPage`] is mapped on this CPU.
pub unsafe fn load_piece(
    cpu: LocalCpu<'_>,
    regions: &'static [BootRegion],
    loads: &'static [BootLoad],
    progress: u64,
    start: Option<Start<'_>>,
) {
    let Some((pa, rest)) = place(regions, progress) else {
        return;
    };
    // SAFETY: what init wrote down as a VM's or Gear2's is never memory of Gear1, and the one who
    // has it is stopped.
    let destination = unsafe { Window::map(cpu, Side::Destination, pa, rest.min(PIECE)) };
    // planted: a VM finds the memory of its former life
    destination.zero();
    let end = pa.wrapping_add(destination.size());
    // Bound: MAX_LOADS (6).
    for item in loads {
        let to = end.min(item.destination.wrapping_add(item.size));
        let mut at = pa.max(item.destination);
        if let Some(start) = start.filter(|_| item.is_seed && at < to) {
            let skipped = item.source.wrapping_add(at.wrapping_sub(item.destination));
            let seed = start.seed();
            let rest = seed.get(skipped as usize..).unwrap_or_default();
            let count = to.wrapping_sub(at) as usize;
            destination.write(at.wrapping_sub(pa), rest.get(..count).unwrap_or_default());
            continue;
        }
        // Bound: 2 source windows for one destination window.
        while at < to {
            let source = item.source.wrapping_add(at.wrapping_sub(item.destination));
            // SAFETY: a load's source is in the archive, which is only read.
            let window = unsafe { Window::map(cpu, Side::Source, source, to.wrapping_sub(at)) };
            destination.copy_from(&window, at.wrapping_sub(pa));
            at = at.wrapping_add(window.size());
        }
    }
    destination.clean();
}

/// Cleans and invalidates one piece of the VM's memory, `progress` bytes from its start (a
/// multiple of [`PIECE`]), for all CPUs. The VM may run: no byte is read or written.
///
/// # Safety
///
/// No [`GuestPage`] is mapped on this CPU.
pub unsafe fn clean_piece(cpu: LocalCpu<'_>, boot: Handover, vm: VmId, progress: u64) {
    let vm = vm.select(&boot.vms);
    if let Some((pa, rest)) = place(&vm.regions, progress) {
        // SAFETY: memory of a VM, of which no byte is read or written.
        unsafe { Window::map(cpu, Side::Destination, pa, rest.min(PIECE)) }.clean();
    }
}

/// Wipes what init was: its code, data and heap.
///
/// # Safety
///
/// The runtime starts. No [`GuestPage`] is mapped on this CPU.
pub unsafe fn wipe_init(cpu: LocalCpu<'_>, boot: Handover) {
    let end = boot.init.saturating_add(boot.init_size);
    let mut at = boot.init;
    // Bound: init's size / 64 KiB.
    while at < end {
        // SAFETY: init never runs again, and nobody has its memory.
        let window = unsafe { Window::map(cpu, Side::Destination, at, end.wrapping_sub(at)) };
        // planted: init stays in memory
        window.zero();
        window.clean();
        at = at.wrapping_add(window.size());
    }
}

/// Tells the VM's bus masters to stop, those with a register of their own only if the caller
/// `tells` them now, and returns whether all have.
///
/// # Safety
///
/// The VM is stopping or stopped. No [`GuestPage`] is mapped on this CPU.
pub unsafe fn stop_masters(cpu: LocalCpu<'_>, boot: Handover, vm: VmId, tells: bool) -> bool {
    let masters = boot.info().masters.iter();
    let own = masters.filter(|master| master.register != 0 && u64::from(master.vm) == vm.reg());
    let mut stopped = true;
    // Bound: MAX_MASTERS (64).
    for master in own {
        stopped &= if master.functions == 0 {
            // SAFETY: the caller's conditions, and `master` is in what init handed over.
            unsafe { stop_by_register(cpu, master, tells) }
        } else {
            // SAFETY: as above.
            unsafe { stop_functions(cpu, master) }
        };
    }
    stopped
}

/// A 32-bit device register, aligned, in the window of [`Window::map_registers`] that begins there.
struct Mapped(Window);

impl Register for Mapped {
    fn write(&mut self, value: u32) {
        // SAFETY: a device register that is mapped for this window.
        unsafe { ptr::write_volatile(self.0.address() as *mut u32, value) };
    }

    fn read(&mut self) -> u32 {
        // SAFETY: as above. Accesses to one device stay in order (Device-nGnRE).
        unsafe { ptr::read_volatile(self.0.address() as *const u32) }
    }
}

/// Tells a bus master to stop if the caller `tells` it now, and returns whether it has.
///
/// # Safety
///
/// As for [`stop_masters`]; `master` is one of the VM's that init handed over.
unsafe fn stop_by_register(cpu: LocalCpu<'_>, master: &'static BootMaster, tells: bool) -> bool {
    // SAFETY: init found a register of a device of that VM there: never memory, and nothing that
    // Gear1 uses. The caller has no other window.
    let window = unsafe { Window::map_registers(cpu, master.register, 4) };
    stop_master(&mut Mapped(window), master, tells)
}

/// Keeps all functions of a PCI bus from memory, and returns whether they are. What a function has
/// written before has left the bus: the answer to a read of configuration space does not pass it
/// (PCI Express Base Specification, 2.4.1).
///
/// # Safety
///
/// As for [`stop_masters`]; `bus` is one of the VM's that init handed over, with `functions`.
unsafe fn stop_functions(cpu: LocalCpu<'_>, bus: &'static BootMaster) -> bool {
    let count = u64::from(bus.functions.min(MAX_FUNCTIONS));
    let mut stopped = true;
    // Bound: MAX_FUNCTIONS (256) / FUNCTIONS_AT_ONCE (16).
    for first in (0..count).step_by(FUNCTIONS_AT_ONCE as usize) {
        let pa = bus.register.wrapping_add(first.wrapping_mul(FUNCTION_SIZE));
        let functions = FUNCTIONS_AT_ONCE.min(count.wrapping_sub(first));
        let size = functions.wrapping_mul(FUNCTION_SIZE);
        // SAFETY: init found the bus's configuration space there, as the VM's. The caller has no
        // other window.
        let window = unsafe { Window::map_registers(cpu, pa, size) };
        // Bound: FUNCTIONS_AT_ONCE (16).
        for function in 0..functions {
            let space = window
                .address()
                .wrapping_add(function.wrapping_mul(FUNCTION_SIZE));
            // SAFETY: configuration space of a function, which is mapped for this window.
            stopped &= unsafe { stop_function(space) };
        }
    }
    stopped
}

/// Keeps a PCI function from memory, and returns whether it is.
///
/// # Safety
///
/// Configuration space of a function that is to stop is mapped at `space`.
unsafe fn stop_function(space: u64) -> bool {
    let (identity, command) = (
        space as *const u32,
        space.wrapping_add(pci::COMMAND) as *mut u32,
    );
    // SAFETY: the caller's condition; both registers are aligned.
    if unsafe { ptr::read_volatile(identity) } == NO_FUNCTION {
        return true;
    }
    // SAFETY: as above.
    let old = unsafe { ptr::read_volatile(command) };
    // planted: PCI functions of a VM that has ended go on
    let new = old & COMMAND_MASK & !BUS_MASTER;
    // SAFETY: as above.
    unsafe { ptr::write_volatile(command, new) };
    // SAFETY: as above. Accesses to one device stay in order (Device-nGnRE).
    let state = unsafe { ptr::read_volatile(command) };
    state & BUS_MASTER == 0
}

/// A PCI function's configuration space, until this is dropped.
#[derive(Debug)]
pub struct FunctionSpace(Window);

impl FunctionSpace {
    /// Maps the configuration space of a function.
    ///
    /// # Safety
    ///
    /// `function` is one that init handed over. No [`GuestPage`] is mapped on this CPU.
    #[must_use]
    pub unsafe fn map(cpu: LocalCpu<'_>, function: &'static BootFunction) -> Self {
        // SAFETY: init found the function there. The caller has no other window.
        Self(unsafe { Window::map_registers(cpu, function.space, FUNCTION_SIZE) })
    }

    /// Returns the function's registers.
    fn registers(&self) -> Mmio {
        // SAFETY: configuration space of a function is mapped for this window, as device registers.
        unsafe { Mmio::new(self.0.address(), FUNCTION_SIZE) }
    }
}

/// Each access has the size that the VM chose: a wider one could clear the neighbours' status.
impl pci::ConfigSpace for FunctionSpace {
    fn read(&self, access: Access) -> u32 {
        let (registers, offset) = (self.registers(), access.offset() as usize);
        match access.size_log2() {
            0 => registers.read8(offset).into(),
            1 => registers.read16(offset).into(),
            _ => registers.read32(offset),
        }
    }

    fn write(&mut self, access: Access, value: u32) {
        let (registers, offset) = (self.registers(), access.offset() as usize);
        match access.size_log2() {
            0 => registers.write8(offset, value as u8),
            1 => registers.write16(offset, value as u16),
            _ => registers.write32(offset, value),
        }
    }
}
