//! SMMUv3: the driver of a System MMU that translates devices' accesses by the VMs' stage 2
//! (Arm IHI 0070). The others are [`v2`] and [`ipmmu`]; what the runtime has each do is [`host`].
//!
//! Owns the use of the registers and the events. Init starts the SMMU; the runtime reads events,
//! has the SMMU forget what it has cached ([`command`]), and shuts a VM's streams while the VM is
//! stopped ([`stream`]). A stream has the stage 2 of its VM, by the tables that the CPUs walk, or
//! none.
//!
//! Invariant: an access that a device without an owner begins after [`seize`] aborts. With
//! translation off every access aborts (SMMU_GBPA.ABORT). An access that the SMMU has accepted
//! before is firmware's, which leaves no device at work (docs/safety-manual.md, A-04).
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003.

pub mod command;
pub mod event;
pub mod host;
pub mod ipmmu;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod v2;

use tock_registers::register_bitfields;

use self::command::{Command, Queue};
use self::event::Event;

/// Bytes of the registers: two pages of 64 KiB, the second for the queues of events.
pub const REGISTERS_SIZE: u64 = 0x2_0000;
/// Events that the queue has room for, as a power of 2: a page of 32-byte records.
const EVENTS_LOG2: u32 = 7;
/// Reads of a register that the SMMU changes, before the SMMU is taken as stuck: nobody waits while
/// init starts it, and a read of a device's register takes 20 ns at least.
const PATIENCE: u32 = 10_000_000;

/// Identification (6.3.1, 6.3.2, 6.3.6).
const IDR0: usize = 0x0;
const IDR1: usize = 0x4;
const IDR5: usize = 0x14;
/// Control (6.3.9 to 6.3.14).
const CR0: usize = 0x20;
const CR0ACK: usize = 0x24;
const CR1: usize = 0x28;
const CR2: usize = 0x2c;
const GBPA: usize = 0x44;
/// Interrupts and errors (6.3.15 to 6.3.18).
const IRQ_CTRL: usize = 0x50;
const IRQ_CTRLACK: usize = 0x54;
const GERROR: usize = 0x60;
const GERRORN: usize = 0x64;
/// Tables and queues (6.3.23 to 6.3.31).
const STRTAB_BASE: usize = 0x80;
const STRTAB_BASE_CFG: usize = 0x88;
const CMDQ_BASE: usize = 0x90;
const EVENTQ_BASE: usize = 0xa0;
const EVENTQ_IRQ_CFG0: usize = 0xb0;
/// In the second page.
const EVENTQ_PROD: usize = 0x1_00a8;
const EVENTQ_CONS: usize = 0x1_00ac;
/// EVENTQ_PROD.OVFLG and EVENTQ_CONS.OVACKFLG: they differ while an overflow is not acknowledged.
const OVERFLOW: u32 = 1 << 31;

register_bitfields! { u32,
    /// SMMU_IDR0.
    ID0 [
        /// Stream tables of two levels.
        ST_LEVEL OFFSET(27) NUMBITS(2) [TwoLevels = 1],
        /// What becomes of accesses that fault.
        STALL_MODEL OFFSET(24) NUMBITS(2) [Forced = 2],
        /// Byte order of tables.
        TTENDIAN OFFSET(21) NUMBITS(2) [Big = 3],
        /// Messages as interrupts.
        MSI OFFSET(13) NUMBITS(1) [],
        /// Devices may translate addresses themselves, by Address Translation Services of PCI.
        ATS OFFSET(10) NUMBITS(1) [],
        /// Walks and queues are coherent with the CPUs' caches.
        COHACC OFFSET(4) NUMBITS(1) [],
        /// Formats of tables: bit 1 is AArch64's.
        TTF OFFSET(2) NUMBITS(2) [],
        S2P OFFSET(0) NUMBITS(1) [],
    ],
    /// SMMU_IDR1.
    ID1 [
        /// Addresses of tables and queues that cannot be written.
        PRESET OFFSET(29) NUMBITS(2) [],
        CMDQS OFFSET(21) NUMBITS(5) [],
        EVENTQS OFFSET(16) NUMBITS(5) [],
        SIDSIZE OFFSET(0) NUMBITS(6) [],
    ],
    /// SMMU_IDR5.
    ID5 [
        GRAN4K OFFSET(4) NUMBITS(1) [],
        OAS OFFSET(0) NUMBITS(3) [],
    ],
    /// SMMU_CR0.
    CONTROL0 [
        /// An access with an address that the device says is translated is checked by its stream
        /// table entry.
        ATSCHK OFFSET(4) NUMBITS(1) [],
        CMDQEN OFFSET(3) NUMBITS(1) [],
        EVENTQEN OFFSET(2) NUMBITS(1) [],
        SMMUEN OFFSET(0) NUMBITS(1) [],
    ],
    /// SMMU_CR1: how tables and queues are accessed.
    CONTROL1 [
        TABLE_SH OFFSET(10) NUMBITS(2) [Inner = 3],
        TABLE_OC OFFSET(8) NUMBITS(2) [WriteBack = 1],
        TABLE_IC OFFSET(6) NUMBITS(2) [WriteBack = 1],
        QUEUE_SH OFFSET(4) NUMBITS(2) [Inner = 3],
        QUEUE_OC OFFSET(2) NUMBITS(2) [WriteBack = 1],
        QUEUE_IC OFFSET(0) NUMBITS(2) [WriteBack = 1],
    ],
    /// SMMU_CR2.
    CONTROL2 [
        /// The SMMU takes no part in the CPUs' broadcast TLB maintenance.
        PTM OFFSET(2) NUMBITS(1) [],
        /// Streams that the table does not have become events.
        RECINVSID OFFSET(1) NUMBITS(1) [],
    ],
    /// SMMU_GBPA.
    BYPASS [
        UPDATE OFFSET(31) NUMBITS(1) [],
        ABORT OFFSET(20) NUMBITS(1) [],
    ],
    /// SMMU_IRQ_CTRL.
    IRQS [
        EVENTQ OFFSET(2) NUMBITS(1) [],
    ],
    /// SMMU_STRTAB_BASE_CFG.
    TABLE [
        FMT OFFSET(16) NUMBITS(2) [TwoLevels = 1],
        SPLIT OFFSET(6) NUMBITS(5) [],
        LOG2SIZE OFFSET(0) NUMBITS(6) [],
    ],
}

/// Hint that tables and queues are worth a cache line (STRTAB_BASE.RA, CMDQ_BASE.RA).
const READ_ALLOCATE: u64 = 1 << 62;

/// Registers and queues of an SMMU.
pub trait Device {
    /// Reads a register of 32 bits.
    fn read32(&self, offset: usize) -> u32;
    /// Writes a register of 32 bits.
    fn write32(&mut self, offset: usize, value: u32);
    /// Writes a register of 64 bits.
    fn write64(&mut self, offset: usize, value: u64);
    /// Writes an entry of the command queue.
    fn put_command(&mut self, slot: u32, command: [u64; 2]);
    /// Reads an entry of the event queue.
    fn event(&self, slot: u32) -> [u64; 4];
    /// Completes earlier accesses to memory and registers before later ones.
    fn order(&self);
}

/// Addresses of what init has placed in memory (PA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// First level of the stream table, aligned to its size.
    pub streams: u64,
    /// Bits of the StreamIDs that the table has.
    pub stream_bits: u32,
    /// Page of the command queue.
    pub commands: u64,
    /// Page of the event queue.
    pub events: u64,
}

/// Features that the SMMU lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No stage 2 by little-endian AArch64 tables with pages of 4 KiB.
    Stage2,
    /// Accesses that fault always stall.
    Stalls,
    /// Walks that are not coherent with the CPUs' caches.
    Coherency,
    /// No stream table of two levels, or fewer StreamIDs than the board's device tree uses.
    Streams,
    /// Fewer bits of physical addresses than stage 2 has.
    Addresses,
    /// Queues smaller than a page, or at addresses that cannot be written.
    Queues,
    /// An SMMUv2 with fewer stream match registers than VMs' devices take.
    Matches,
    /// An SMMUv2 or an IPMMU with fewer contexts than VMs own devices.
    Contexts,
}

/// The SMMU has not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

/// Returns what keeps the SMMU from translating `stream_bits` bits of StreamIDs by tables of a
/// CPU whose physical addresses have the size `pa_range` (ID_AA64MMFR0_EL1.PARange).
pub fn unfit(device: &impl Device, stream_bits: u32, pa_range: u64) -> Option<Unfit> {
    let [id0, id1, id5] = [IDR0, IDR1, IDR5].map(|offset| device.read32(offset));
    let walks = ID0::S2P.is_set(id0) && ID0::TTF.read(id0) & 2 != 0 && ID5::GRAN4K.is_set(id5);
    if !walks || ID0::TTENDIAN::Big.matches_all(id0) {
        Some(Unfit::Stage2)
    } else if ID0::STALL_MODEL::Forced.matches_all(id0) {
        Some(Unfit::Stalls)
    } else if !ID0::COHACC.is_set(id0) {
        Some(Unfit::Coherency)
    } else if !ID0::ST_LEVEL::TwoLevels.matches_all(id0) || ID1::SIDSIZE.read(id1) < stream_bits {
        Some(Unfit::Streams)
    } else if u64::from(ID5::OAS.read(id5)) < pa_range {
        Some(Unfit::Addresses)
    } else if ID1::PRESET.read(id1) != 0
        || ID1::CMDQS.read(id1) < command::LOG2
        || ID1::EVENTQS.read(id1) < EVENTS_LOG2
    {
        Some(Unfit::Queues)
    } else {
        None
    }
}

/// Makes every later access of every device abort. Firmware may have left the SMMU translating, or
/// letting all accesses through, and its interrupts going, as messages to an address of firmware's.
pub fn seize(device: &mut impl Device) -> Result<(), Stuck> {
    await_value(device, GBPA, BYPASS::UPDATE::SET.mask(), 0)?;
    // planted: accesses pass while the SMMU is off
    let abort = BYPASS::UPDATE::SET + BYPASS::ABORT::SET;
    device.write32(GBPA, abort.value);
    await_value(device, GBPA, BYPASS::UPDATE::SET.mask(), 0)?;
    shut(device)?;
    set_interrupts(device, 0)
}

/// Stops translation, so that every access of every device aborts: [`seize`] came first. The
/// answer says that no later access is translated.
pub fn shut(device: &mut impl Device) -> Result<(), Stuck> {
    set_control(device, 0)
}

/// Starts translation by the tables in `memory`. [`seize`] came first.
pub fn start(device: &mut impl Device, memory: &Memory) -> Result<(), Stuck> {
    let tables =
        CONTROL1::TABLE_SH::Inner + CONTROL1::TABLE_OC::WriteBack + CONTROL1::TABLE_IC::WriteBack;
    let queues =
        CONTROL1::QUEUE_SH::Inner + CONTROL1::QUEUE_OC::WriteBack + CONTROL1::QUEUE_IC::WriteBack;
    device.write32(CR1, (tables + queues).value);
    device.write32(CR2, (CONTROL2::PTM::SET + CONTROL2::RECINVSID::SET).value);
    place(device, memory);
    // What firmware left as an error would keep the queues from working.
    let errors = device.read32(GERROR);
    device.write32(GERRORN, errors);
    let mut control = CONTROL0::CMDQEN::SET;
    if ID0::ATS.is_set(device.read32(IDR0)) {
        // Before caches are emptied: they keep what the check needs (6.3.9.4). No entry lets a
        // device translate by itself (STE.EATS), so such an access aborts.
        // planted: addresses that devices say are translated are not checked
        control += CONTROL0::ATSCHK::SET;
    }
    set_control(device, control.value)?;
    forget_all(device)?;
    control += CONTROL0::EVENTQEN::SET;
    set_control(device, control.value)?;
    set_interrupts(device, IRQS::EVENTQ::SET.value)?;
    control += CONTROL0::SMMUEN::SET;
    set_control(device, control.value)
}

/// Makes the SMMU forget all that firmware had it cache, and waits until it has.
fn forget_all(device: &mut impl Device) -> Result<(), Stuck> {
    let mut queue = Queue::new();
    let commands = [Command::reread_streams(), Command::forget_everything()];
    let ticket = queue.issue(device, &commands).ok_or(Stuck)?;
    for _ in 0..PATIENCE {
        if queue.is_done(device, ticket) {
            return Ok(());
        }
    }
    Err(Stuck)
}

/// Tells the SMMU where tables and queues are, both queues empty.
fn place(device: &mut impl Device, memory: &Memory) {
    let split = TABLE::SPLIT.val(stream::SPLIT);
    let size = TABLE::LOG2SIZE.val(memory.stream_bits);
    device.write64(STRTAB_BASE, memory.streams | READ_ALLOCATE);
    device.write32(
        STRTAB_BASE_CFG,
        (TABLE::FMT::TwoLevels + split + size).value,
    );
    let (commands, events) = (u64::from(command::LOG2), u64::from(EVENTS_LOG2));
    device.write64(CMDQ_BASE, memory.commands | commands | READ_ALLOCATE);
    device.write64(EVENTQ_BASE, memory.events | events | READ_ALLOCATE);
    for index in [command::PROD, command::CONS, EVENTQ_PROD, EVENTQ_CONS] {
        device.write32(index, 0);
    }
    if ID0::MSI.is_set(device.read32(IDR0)) {
        // No message, but the wire. Interrupts are off (6.3.28).
        device.write64(EVENTQ_IRQ_CFG0, 0);
    }
}

/// Takes the oldest event out of the queue. Calls do not overlap.
pub fn take_event(device: &mut impl Device) -> Option<Event> {
    let producer = device.read32(EVENTQ_PROD);
    let consumer = device.read32(EVENTQ_CONS);
    let both = slots(EVENTS_LOG2, 2);
    if (producer ^ consumer) & both == 0 {
        return None;
    }
    device.order();
    let record = device.event(consumer & slots(EVENTS_LOG2, 1));
    let is_overflow = (producer ^ consumer) & OVERFLOW != 0;
    device.order();
    // The flag as it was read acknowledges that overflow, and no later one.
    let next = consumer.wrapping_add(1) & both;
    device.write32(EVENTQ_CONS, next | producer & OVERFLOW);
    Some(Event::of(record, is_overflow))
}

/// Returns the mask of `laps` times the entries of a queue: an index has one bit more than a slot,
/// so that a full queue is not an empty one (3.5.1).
const fn slots(log2: u32, laps: u32) -> u32 {
    laps.wrapping_shl(log2).wrapping_sub(1)
}

/// Writes SMMU_IRQ_CTRL, and waits until the SMMU acts by it (6.3.15).
fn set_interrupts(device: &mut impl Device, value: u32) -> Result<(), Stuck> {
    device.write32(IRQ_CTRL, value);
    await_value(device, IRQ_CTRLACK, u32::MAX, value)
}

/// Writes SMMU_CR0, and waits until the SMMU acts by it (6.3.9).
fn set_control(device: &mut impl Device, value: u32) -> Result<(), Stuck> {
    device.write32(CR0, value);
    await_value(device, CR0ACK, u32::MAX, value)
}

/// Waits until bits of a register have a value. One loop for all waits.
#[inline(never)]
fn await_value(device: &impl Device, offset: usize, mask: u32, value: u32) -> Result<(), Stuck> {
    // Bound: PATIENCE reads.
    for _ in 0..PATIENCE {
        if device.read32(offset) & mask == value {
            return Ok(());
        }
    }
    Err(Stuck)
}
