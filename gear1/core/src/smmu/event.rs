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

/// Numbers of events, by which faults of the other SMMUs are told as well.
pub(super) mod number {
    pub(in crate::smmu) const UNSUPPORTED: u8 = 0x01;
    pub(in crate::smmu) const BAD_STREAM: u8 = 0x02;
    pub(in crate::smmu) const BAD_ENTRY: u8 = 0x04;
    pub(in crate::smmu) const WALK: u8 = 0x0b;
    pub(in crate::smmu) const TRANSLATION: u8 = 0x10;
    pub(in crate::smmu) const ADDRESS_SIZE: u8 = 0x11;
    pub(in crate::smmu) const ACCESS: u8 = 0x12;
    pub(in crate::smmu) const PERMISSION: u8 = 0x13;
    pub(in crate::smmu) const TLB_CONFLICT: u8 = 0x20;
}

/// Tells whether records of events with this number tell the access (7.3.2 to 7.3.20): F_UUT,
/// F_WALK_EABT, F_TRANSLATION, F_ADDR_SIZE, F_ACCESS and F_PERMISSION.
const fn tells_access(number: u8) -> bool {
    matches!(number, 0x01 | 0x0b | 0x10..=0x13)
}

/// Access that a device tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address that the device used: its VM's IPA.
    pub address: u64,
    /// Whether the device would have written.
    pub is_write: bool,
}

/// Access of a device that the SMMU has aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event: 0x10 is a translation fault, 0x13 a permission fault. A stream that
    /// nobody has gives 0x02 where the stream table has no entry for it, else 0x04.
    pub number: u8,
    /// StreamID.
    pub stream: u32,
    /// The access, if the record tells it.
    pub access: Option<Access>,
    /// Whether later events were lost since the queue was full.
    pub is_overflow: bool,
}

impl Event {
    /// Reads a record.
    #[must_use]
    pub fn of([first, second, address, _]: [u64; 4], is_overflow: bool) -> Self {
        let number = RECORD0::NUMBER.read(first) as u8;
        let access = Access {
            address,
            is_write: !RECORD1::RNW.is_set(second),
        };
        Self {
            number,
            stream: RECORD0::STREAM.read(first) as u32,
            access: tells_access(number).then_some(access),
            is_overflow,
        }
    }
}
