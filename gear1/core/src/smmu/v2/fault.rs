//! Faults of an SMMUv2: registers that keep the first fault of all streams without a context, and
//! of each context bank (Arm IHI 0062, 3.8 to 3.11).
//!
//! A fault is told as the event of an SMMUv3 that says the same, so that whoever counts them knows
//! one kind of SMMU.
//!
//! Requirements: G1-DMA-003.

use tock_registers::register_bitfields;

use super::{CBFRSYNRA, Device, FAR, FSR, FSYNR0, GFAR, GFSR, GFSYNR0, GFSYNR1, Shape};
use crate::smmu::event::{Access, Event, number};

register_bitfields! { u32,
    /// SMMU_sGFSR and SMMU_CBn_FSR, where the two have a bit in common.
    STATUS [
        /// More faults came before this one was cleared, and are lost.
        MULTI OFFSET(31) NUMBITS(1) [],
    ],
    /// SMMU_CBn_FSR.
    BANK_STATUS [
        /// An upstream transaction that is not supported.
        UUT OFFSET(8) NUMBITS(1) [],
        /// An address that is too large for the tables.
        ASF OFFSET(7) NUMBITS(1) [],
        /// A walk that memory refuses.
        EF OFFSET(4) NUMBITS(1) [],
        /// A permission that the page lacks.
        PF OFFSET(3) NUMBITS(1) [],
        /// A cleared access flag.
        AFF OFFSET(2) NUMBITS(1) [],
        /// No translation.
        TF OFFSET(1) NUMBITS(1) [],
    ],
    /// SMMU_sGFSR.
    GLOBAL_STATUS [
        /// A stream that matches nothing.
        USF OFFSET(1) NUMBITS(1) [],
    ],
    /// SMMU_CBn_FSYNR0.
    SYNDROME [
        /// A write.
        WNR OFFSET(4) NUMBITS(1) [],
    ],
    /// SMMU_sGFSYNR0.
    GLOBAL_SYNDROME [
        /// A write.
        WNR OFFSET(1) NUMBITS(1) [],
    ],
    /// SMMU_sGFSYNR1 and SMMU_CBFRSYNRAn.
    STREAM [
        ID OFFSET(0) NUMBITS(16) [],
    ],
}

/// Bits of either status that tell of a fault. The others tell of its format.
const FAULTS: u32 = 0xc000_01ff;

/// Registers that keep a fault, by their offsets.
struct Record {
    status: usize,
    address: usize,
    syndrome: usize,
    stream: usize,
}

/// Takes a fault out of the registers: of all streams without a context, or of one of the first
/// `banks` context banks, which are those in use. `is_owned` tells whether a VM owns a stream. Calls
/// do not overlap.
pub fn take(device: &mut impl Device, banks: u32, is_owned: impl Fn(u32) -> bool) -> Option<Event> {
    let global = Record {
        status: GFSR,
        address: GFAR,
        syndrome: GFSYNR0,
        stream: GFSYNR1,
    };
    // A VM's streams match no register while the VM is stopped, and only then. As with an SMMUv3, it
    // has no events then. What is lost behind one of its faults is nobody's, or a stopped VM's too:
    // all others have context banks.
    if let Some((status, event)) = take_record(device, &global)
        && !(GLOBAL_STATUS::USF.is_set(status) && is_owned(STREAM::ID.read(event.stream)))
    {
        let is_write = GLOBAL_SYNDROME::WNR.is_set(event.syndrome);
        let number = match GLOBAL_STATUS::USF.is_set(status) {
            true => number::BAD_STREAM,
            false => number::BAD_ENTRY,
        };
        return Some(event.told(number, is_write, status));
    }
    let shape = Shape::of(device);
    // Bound: one context bank a VM, MAX_VMS (16).
    for bank in 0..banks {
        let own = Record {
            status: shape.bank(bank, FSR),
            address: shape.bank(bank, FAR),
            syndrome: shape.bank(bank, FSYNR0),
            stream: shape.of_bank(bank, CBFRSYNRA),
        };
        if let Some((status, event)) = take_record(device, &own) {
            let is_write = SYNDROME::WNR.is_set(event.syndrome);
            return Some(event.told(number_of(status), is_write, status));
        }
    }
    None
}

/// Contents of a record's registers.
struct Raw {
    stream: u32,
    address: u64,
    syndrome: u32,
}

impl Raw {
    /// Returns the event of the fault.
    fn told(self, number: u8, is_write: bool, status: u32) -> Event {
        Event {
            number,
            stream: STREAM::ID.read(self.stream),
            // Of faults that came between the reading and the clearing of another, their being
            // lost is all that is left.
            access: (status & FAULTS != STATUS::MULTI::SET.value).then_some(Access {
                address: self.address,
                is_write,
            }),
            is_overflow: STATUS::MULTI.is_set(status),
        }
    }
}

/// Reads a record that holds a fault, and makes room for the next. The status is cleared last: until
/// then the other registers do not change.
fn take_record(device: &mut impl Device, record: &Record) -> Option<(u32, Raw)> {
    let status = device.read32(record.status);
    if status & FAULTS == 0 {
        return None;
    }
    let low = device.read32(record.address);
    let high = device.read32(record.address.wrapping_add(4));
    let raw = Raw {
        stream: device.read32(record.stream),
        address: u64::from(high).wrapping_shl(32) | u64::from(low),
        syndrome: device.read32(record.syndrome),
    };
    device.order();
    // Bits of a status are cleared by ones.
    // planted: a fault of an SMMUv2 is told for ever
    device.write32(record.status, status);
    Some((status, raw))
}

/// Returns the number of the event that says what a context's status says.
fn number_of(status: u32) -> u8 {
    if BANK_STATUS::PF.is_set(status) {
        number::PERMISSION
    } else if BANK_STATUS::AFF.is_set(status) {
        number::ACCESS
    } else if BANK_STATUS::ASF.is_set(status) {
        number::ADDRESS_SIZE
    } else if BANK_STATUS::EF.is_set(status) {
        number::WALK
    } else if BANK_STATUS::UUT.is_set(status) {
        number::UNSUPPORTED
    } else if BANK_STATUS::TF.is_set(status) {
        number::TRANSLATION
    } else {
        number::BAD_ENTRY
    }
}
