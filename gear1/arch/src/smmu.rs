//! The SMMU, where init has mapped it: registers, queues and stream table entries of an SMMUv3. An
//! SMMUv2 and an IPMMU have registers alone ([`v2`], [`ipmmu`]).
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

pub mod beside_gicv2;
pub mod ipmmu;
pub mod v2;

use core::ptr;

use gear1_abi::boot::MAX_STREAM_TABLES;
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::smmu::command::{Command, Queue, Ticket};
use gear1_core::smmu::event::Event;
use gear1_core::smmu::host::HostSmmu;
use gear1_core::smmu::stream::{self, ENTRY_SIZE, STREAMS, Tables};
use gear1_core::smmu::{self, Device, REGISTERS_SIZE};

use crate::barrier;
use crate::handover::Handover;
use crate::mmio::Mmio;

/// Event queue, behind the command queue.
const EVENTS: u64 = el2::SMMU_QUEUES + PAGE_SIZE;

/// The SMMUv3 that init has started. Its tables and queues are where init has placed them: nothing
/// here writes an address.
#[derive(Debug)]
pub struct SmmuV3 {
    registers: Mmio,
    streams: StreamTables,
}

impl SmmuV3 {
    /// Names the SMMU's registers and queues, if init has handed over one.
    #[must_use]
    pub fn of(boot: Handover) -> Option<Self> {
        if boot.info().smmu.registers == 0 {
            return None;
        }
        // SAFETY: init maps the registers here for good, and checks that no VM has them. Registers
        // that hold addresses of memory are written by nothing: `write64` drops what it gets.
        let registers = unsafe { Mmio::new(el2::SMMU, REGISTERS_SIZE) };
        Some(Self {
            registers,
            streams: StreamTables::of(boot),
        })
    }
}

/// Returns the address of a word in a page of entries.
fn word(page: u64, offset: u64) -> *mut u64 {
    page.wrapping_add((offset % PAGE_SIZE) & !7) as *mut u64
}

impl Device for SmmuV3 {
    fn read32(&self, offset: usize) -> u32 {
        self.registers.read32(offset)
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.registers.write32(offset, value);
    }

    fn write64(&mut self, _offset: usize, _value: u64) {}

    fn put_command(&mut self, slot: u32, command: [u64; 2]) {
        let first = u64::from(slot).wrapping_mul(16);
        let [low, high] = command;
        // SAFETY: an aligned word in the page of the command queue, which `of` saw handed over.
        // Commands invalidate and synchronize: none makes the SMMU write memory.
        unsafe { ptr::write_volatile(word(el2::SMMU_QUEUES, first), low) };
        let second = first.wrapping_add(8);
        // SAFETY: as above.
        unsafe { ptr::write_volatile(word(el2::SMMU_QUEUES, second), high) };
    }

    fn event(&self, slot: u32) -> [u64; 4] {
        let first = u64::from(slot).wrapping_mul(32);
        // Bound: 4 words.
        // SAFETY: aligned words in the page of the event queue, which `of` saw handed over. The SMMU
        // writes there too, so the accesses are volatile.
        [0, 8, 16, 24].map(|at| unsafe { ptr::read_volatile(word(EVENTS, first.wrapping_add(at))) })
    }

    fn order(&self) {
        barrier::dsb_sy();
    }
}

impl HostSmmu for SmmuV3 {
    type Queue = Queue;
    type Ticket = Ticket;
    const EMPTY: Queue = Queue::new();

    fn switch(&mut self, vmid: u16, opens: bool) {
        stream::switch(&mut self.streams, vmid, opens);
    }

    fn forget(&mut self, queue: &mut Queue, vmid: u16, has_switched: bool) -> Option<Ticket> {
        let commands = [Command::reread_streams(), Command::forget(vmid)];
        let first = usize::from(!has_switched);
        queue.issue(self, commands.get(first..)?)
    }

    fn is_done(&mut self, queue: &mut Queue, ticket: Ticket) -> bool {
        queue.is_done(self, ticket)
    }

    fn take_event(&mut self, _is_owned: impl Fn(u32) -> bool) -> Option<Event> {
        smmu::take_event(self)
    }

    fn shut(&mut self) {
        let _ = smmu::shut(self);
    }
}

/// Tables of the second level that init has handed over.
#[derive(Debug)]
struct StreamTables(usize);

impl StreamTables {
    /// Names the tables; none, if init has handed over no SMMU.
    fn of(boot: Handover) -> Self {
        let tables = (boot.info().smmu.stream_tables as usize).min(MAX_STREAM_TABLES);
        Self(tables.wrapping_mul(STREAMS as usize))
    }

    /// Returns the address of a word of an entry, if there is that entry.
    fn word(&self, entry: usize, word: usize) -> Option<*mut u64> {
        let first = el2::SMMU_STREAMS.wrapping_add((entry as u64).wrapping_mul(ENTRY_SIZE));
        let address = first.wrapping_add((word as u64).wrapping_mul(8) % ENTRY_SIZE);
        (entry < self.0).then_some(address as *mut u64)
    }
}

impl Tables for StreamTables {
    fn count(&self) -> usize {
        self.0
    }

    fn read(&self, entry: usize, word: usize) -> u64 {
        // SAFETY: an aligned word of a table that init has mapped and `of` saw handed over. The SMMU
        // reads it too, so the access is volatile.
        self.word(entry, word)
            .map_or(0, |at| unsafe { ptr::read_volatile(at) })
    }

    fn write_first(&mut self, entry: usize, value: u64) {
        if let Some(at) = self.word(entry, 0) {
            // SAFETY: as above. The first word has no address: which stage 2 a stream has is left.
            unsafe { ptr::write_volatile(at, value) };
        }
    }
}
