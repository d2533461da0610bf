//! Virtio devices for honest drivers, those of the crate `virtio-drivers`: memory, registers,
//! waiting.
//!
//! Owns: the pages that drivers get, of which all are free again when the last driver is gone, and
//! the heap, which only these drivers use. Only the boot CPU drives devices.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use buddy_system_allocator::Heap;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use crate::machine::VirtioNode;
use crate::mmio::read32;
use crate::{cpu, gic, timer};

const PAGES: usize = 64;
const REGISTERS: usize = 0x200;
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const DEVICE_ID: u64 = 8;
/// Time between two checks of a device that has not come up. The device model may start after the
/// guest.
const STEP_US: u64 = 20_000;

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[[u8; PAGE_SIZE]; PAGES]>);

// SAFETY: only the boot CPU drives devices, and each page is given to one driver at a time.
unsafe impl Sync for Pages {}

static POOL: Pages = Pages(UnsafeCell::new([[0; PAGE_SIZE]; PAGES]));
/// Pages given out since the pool was empty, and those that came back since.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static RETURNED: AtomicUsize = AtomicUsize::new(0);

const HEAP_SIZE: usize = 0x1_0000;

struct GuestHeap {
    heap: UnsafeCell<Heap<17>>,
    space: UnsafeCell<[u64; HEAP_SIZE / 8]>,
}

// SAFETY: only the boot CPU drives devices, and nothing is allocated in interrupts.
unsafe impl Sync for GuestHeap {}

#[global_allocator]
static HEAP: GuestHeap = GuestHeap {
    heap: UnsafeCell::new(Heap::empty()),
    space: UnsafeCell::new([0; HEAP_SIZE / 8]),
};

// SAFETY: the allocator's own promises; it gets the space once, before it gives any of it.
unsafe impl GlobalAlloc for GuestHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: nobody else refers to the heap: only the boot CPU comes here, and not twice.
        let heap = unsafe { &mut *self.heap.get() };
        if heap.stats_total_bytes() == 0 {
            // SAFETY: the space is used for nothing else.
            unsafe { heap.init(self.space.get() as usize, HEAP_SIZE) };
        }
        heap.alloc(layout)
            .map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let heap = unsafe { &mut *self.heap.get() };
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the caller promises that it came from `alloc` with this layout.
            unsafe { heap.dealloc(start, layout) };
        }
    }
}

/// The machine for `virtio-drivers`: memory is where its address says.
#[derive(Debug)]
pub struct GuestHal;

// SAFETY: pages lie in the pool, are aligned, zeroed, and given out once; memory is mapped at its
// address, so a buffer is shared by naming it.
unsafe impl Hal for GuestHal {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = TAKEN.fetch_add(pages, Relaxed);
        assert!(first + pages <= PAGES, "no pages are left for a driver");
        let start = POOL.0.get().cast::<u8>().wrapping_add(first * PAGE_SIZE);
        // SAFETY: the pages lie in the pool, as checked, and nobody else has them.
        unsafe { start.write_bytes(0, pages * PAGE_SIZE) };
        let start = NonNull::new(start).expect("the pool is somewhere");
        (start.as_ptr() as PhysAddr, start)
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, pages: usize) -> i32 {
        if RETURNED.fetch_add(pages, Relaxed) + pages == TAKEN.load(Relaxed) {
            TAKEN.store(0, Relaxed);
            RETURNED.store(0, Relaxed);
        }
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, _size: usize) -> NonNull<u8> {
        NonNull::new(paddr as *mut u8).expect("registers are not at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().as_ptr() as PhysAddr
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// Waits until the device model shows the device; returns its type. `None` if that takes longer
/// than `seconds`.
pub fn wait_for_device(node: &VirtioNode, seconds: u64) -> Option<u32> {
    for _ in 0..seconds * 1_000_000 / STEP_US {
        if read32(node.registers) == MAGIC {
            return Some(read32(node.registers + DEVICE_ID));
        }
        timer::sleep_us(STEP_US);
    }
    None
}

/// Returns the device's registers for a driver, which must be the only one.
pub fn transport(node: &VirtioNode) -> MmioTransport<'static> {
    let header = NonNull::new(node.registers as *mut VirtIOHeader).expect("not at 0");
    // SAFETY: the device tree says that these are the registers of a virtio device, and they are
    // mapped for good.
    let transport = unsafe { MmioTransport::new(header, REGISTERS) };
    transport.expect("the device has shown itself")
}

/// Waits in WFI, with interrupts masked, for the device's interrupt, or until `us` microseconds
/// have passed.
pub fn wait_for_interrupt(node: &VirtioNode, us: u64) {
    gic::enable(node.intid);
    gic::enable(timer::INTID);
    timer::arm(timer::now() + timer::from_us(us));
    cpu::wfi();
    timer::disarm();
    loop {
        let intid = gic::acknowledge();
        if !gic::is_real(intid) {
            return;
        }
        gic::end(intid);
    }
}
