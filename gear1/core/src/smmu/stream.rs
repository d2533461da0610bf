//! The stream table: which stage 2 the accesses of a stream go through (Arm IHI 0070, 5.1, 5.2).
//!
//! A StreamID names a device: on PCI the bus, device and function. The first level has an entry for
//! each [`STREAMS`] StreamIDs. An entry without a second level, and a stream table entry of zeroes,
//! abort. Once the SMMU translates, one field of an entry changes: whether the streams of a VM are
//! shut. A change of a VM's memory is one of its stage 2.
//!
//! Requirements: G1-DMA-001, G1-DMA-002.

use tock_registers::register_bitfields;

/// Bits of a StreamID that choose an entry of the second level (STRTAB_BASE_CFG.SPLIT).
pub const SPLIT: u32 = 8;
/// StreamIDs of one table of the second level.
pub const STREAMS: u32 = 1 << SPLIT;
/// Bytes of an entry of the second level.
pub const ENTRY_SIZE: u64 = 64;
/// Bytes of a table of the second level, which are also its alignment.
pub const TABLE_SIZE: u64 = ENTRY_SIZE << SPLIT;
/// Words of an entry of the second level.
pub const ENTRY_WORDS: usize = 8;
/// Fields of VTCR_EL2 that an entry has in the same order: T0SZ, SL0, IRGN0, ORGN0, SH0, TG0, PS.
const SHAPE: u64 = 0x7_ffff;

register_bitfields! { u64,
    /// First word of a stream table entry.
    ENTRY0 [
        CONFIG OFFSET(1) NUMBITS(3) [Abort = 0b000, Stage2 = 0b110],
        VALID OFFSET(0) NUMBITS(1) [],
    ],
    /// Second word.
    ENTRY1 [
        SHCFG OFFSET(44) NUMBITS(2) [Incoming = 0b01],
    ],
    /// Third word.
    ENTRY2 [
        /// Faults become events.
        S2R OFFSET(58) NUMBITS(1) [],
        /// A cleared access flag is no fault.
        S2AFFD OFFSET(53) NUMBITS(1) [],
        /// Tables of AArch64.
        S2AA64 OFFSET(51) NUMBITS(1) [],
        /// Shape of the stage 2, as in VTCR_EL2.
        SHAPE OFFSET(32) NUMBITS(19) [],
        S2VMID OFFSET(0) NUMBITS(16) [],
    ],
    /// Entry of the first level.
    FIRST [
        /// One more than the bits of StreamIDs that the second level has; 0: there is none.
        SPAN OFFSET(0) NUMBITS(5) [],
    ],
}

/// A stage 2 as VTTBR_EL2 and VTCR_EL2 name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage2 {
    /// Root table (PA).
    pub root: u64,
    /// VMID.
    pub vmid: u16,
    /// VTCR_EL2.
    pub vtcr: u64,
}

/// Returns the stream table entry of a stream that goes through this stage 2 alone, or is shut.
/// Accesses that fault are aborted at once, not stalled: a stalled device would keep what it shares
/// with others.
#[must_use]
pub fn entry(stage2: &Stage2, is_open: bool) -> [u64; ENTRY_WORDS] {
    let shape = ENTRY2::SHAPE.val(stage2.vtcr & SHAPE);
    let faults = ENTRY2::S2R::SET + ENTRY2::S2AFFD::SET;
    let vmid = ENTRY2::S2VMID.val(stage2.vmid.into());
    [
        first(is_open),
        ENTRY1::SHCFG::Incoming.value,
        (faults + ENTRY2::S2AA64::SET + shape + vmid).value,
        stage2.root,
        0,
        0,
        0,
        0,
    ]
}

/// Returns the first word of an entry.
fn first(is_open: bool) -> u64 {
    let config = if is_open {
        // planted: a device's accesses pass by stage 2
        ENTRY0::CONFIG::Stage2
    } else {
        ENTRY0::CONFIG::Abort
    };
    (ENTRY0::VALID::SET + config).value
}

/// Tables of the second level, one after the other.
pub trait Tables {
    /// Returns the number of entries.
    fn count(&self) -> usize;
    /// Reads a word of an entry.
    fn read(&self, entry: usize, word: usize) -> u64;
    /// Writes the first word of an entry, at once.
    fn write_first(&mut self, entry: usize, value: u64);
}

/// Shuts the streams of a VM, or opens them. The SMMU is to read the entries anew. The first word is
/// all that changes: an entry is whole at each moment, as hardware reads it by such words (3.21.3).
pub fn switch(tables: &mut impl Tables, vmid: u16, opens: bool) {
    let first = first(opens);
    // Bound: MAX_STREAM_TABLES (8) x 256 entries.
    for entry in 0..tables.count() {
        let third = tables.read(entry, 2);
        // An entry that has no owner is all zeroes.
        // planted: a VM that stops shuts another VM's streams
        if third != 0 && ENTRY2::S2VMID.read(third) == u64::from(vmid) {
            tables.write_first(entry, first);
        }
    }
}

/// Returns the entry of the first level that leads to a table of the second.
#[must_use]
pub fn first_level(table: u64) -> u64 {
    table | FIRST::SPAN.val((SPLIT + 1).into()).value
}
