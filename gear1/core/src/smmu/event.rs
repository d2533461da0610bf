//! Records of the event queue (Arm IHI 0070, 7.3).
//!
//! Requirements: G1-DMA-003.

use tock_registers::register_bitfields;

register_bitfields! { u64,
    /// First word of a record.
    RECORD0 [
        STREAM OFFSET(32) NUMBITS(32) [],
        NUMBER OFFSET(0) NUMBITS(8) [],
    ],
    /// Second word.
    RECORD1 [
        /// A read, else a write.
        RNW OFFSET(35) NUMBITS(1) [],
    ],
}

/// Access of a device that the SMMU has aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event: 0x10 is a translation fault, 0x13 a permission fault, 0x02 a stream
    /// that nobody has.
    pub number: u8,
    /// StreamID.
    pub stream: u32,
    /// Address that the device used: its VM's IPA.
    pub address: u64,
    /// Whether the device would have written.
    pub is_write: bool,
    /// Whether later events were lost since the queue was full.
    pub is_overflow: bool,
}

impl Event {
    /// Reads a record.
    #[must_use]
    pub fn of([first, second, address, _]: [u64; 4], is_overflow: bool) -> Self {
        Self {
            number: RECORD0::NUMBER.read(first) as u8,
            stream: RECORD0::STREAM.read(first) as u32,
            address,
            is_write: !RECORD1::RNW.is_set(second),
            is_overflow,
        }
    }
}
