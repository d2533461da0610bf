//! The bytes of FF-A's descriptors (Arm DEN0077A 1.1: memory transactions, partition information).
//!
//! Owns: offsets, flags, and which values are legal by themselves. What is read was copied from
//! the caller's buffer before, so it does not change while it is judged. All numbers are
//! little-endian.

use crate::addr::Ipa;
use crate::ffa::endpoint;
use crate::ownership::{Error, Kind, Offer, Request};

/// Bytes of a range.
pub const RANGE_SIZE: u64 = 16;
/// Bytes that ranges are copied in.
pub const PIECE: usize = 256;
/// Bytes of an answer before its ranges.
pub const RESPONSE_HEADER: u64 = 80;
/// Bytes of FFA_MEM_RELINQUISH's descriptor for one endpoint.
pub const RELINQUISH_SIZE: usize = 18;
/// Bytes of a partition's description.
pub const PARTITION_SIZE: u64 = 24;

/// Bytes of a transaction descriptor without what it points to.
const TRANSACTION_SIZE: u32 = 48;
/// Bytes of an endpoint's memory access descriptor.
const ACCESS_SIZE: u32 = 16;
/// Bytes of a composite memory region descriptor before its ranges.
const COMPOSITE_SIZE: u32 = 16;

/// Memory region attributes: Normal, write-back, inner shareable.
const WRITE_BACK: u16 = 0b10 << 4 | 0b11 << 2 | 0b11;
const FLAG_ZERO: u32 = 1 << 0;
const FLAG_ZERO_AFTER: u32 = 1 << 2;
const FLAG_TYPE_SHIFT: u32 = 3;
const READ_ONLY: u8 = 0b01;
const READ_WRITE: u8 = 0b10;
const NEVER_EXECUTE: u8 = 0b01 << 2;
const EXECUTE: u8 = 0b10 << 2;
const DATA_MASK: u8 = 0b11;
const CODE_MASK: u8 = 0b11 << 2;
/// A partition that runs in AArch64 and takes no messages.
const PARTITION_PROPERTIES: u32 = 1 << 8;

/// Where the ranges are, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Composite {
    /// All pages.
    pub pages: u32,
    /// Ranges.
    pub ranges: u32,
    /// Offset of the first range in the whole descriptor.
    pub start: u64,
}

/// A transaction descriptor with its one endpoint, without its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who has sent, or sends, the memory.
    pub sender: u16,
    /// Which transaction; 0 when it is being made.
    pub handle: u64,
    /// The sender's number.
    pub tag: u64,
    /// Who gets the memory.
    pub receiver: u16,
    /// The ranges, if they are said.
    pub composite: Option<Composite>,
    attributes: u16,
    flags: u32,
    permissions: u8,
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    let behind = from.get(at..).unwrap_or_default();
    found
        .iter_mut()
        .zip(behind)
        .for_each(|(to, byte)| *to = *byte);
    found
}

fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(from, at))
}

fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

fn put(to: &mut [u8], at: usize, value: &[u8]) {
    let places = to.iter_mut().skip(at);
    places.zip(value).for_each(|(to, byte)| *to = *byte);
}

fn is_zero(from: &[u8], at: usize, count: usize) -> bool {
    from.iter().skip(at).take(count).all(|byte| *byte == 0)
}

const fn require(holds: bool) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Invalid) }
}

const fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Share => 1,
        Kind::Lend => 2,
        Kind::Donate => 3,
    }
}

impl Header {
    /// Reads a descriptor with `read`, which copies bytes from an offset and refuses what is
    /// outside of the descriptor.
    pub fn read(read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Error>) -> Result<Self, Error> {
        let mut head = [0_u8; TRANSACTION_SIZE as usize];
        read(0, &mut head)?;
        let access_at = u32_at(&head, 32);
        require(u32_at(&head, 24) == ACCESS_SIZE && u32_at(&head, 28) == 1)?;
        require(access_at >= TRANSACTION_SIZE && access_at.is_multiple_of(ACCESS_SIZE))?;
        let mut access = [0_u8; ACCESS_SIZE as usize];
        read(access_at.into(), &mut access)?;
        // No flag of an endpoint, byte 3, applies to the only one.
        require(is_zero(&head, 36, 12) && is_zero(&access, 8, 8) && is_zero(&access, 3, 1))?;
        let composite = match u32_at(&access, 4) {
            0 => None,
            at => {
                require(at > access_at && at.is_multiple_of(ACCESS_SIZE))?;
                Some(Composite::read(at, read)?)
            }
        };
        let [permissions] = bytes(&access, 2);
        Ok(Self {
            sender: u16_at(&head, 0),
            attributes: u16_at(&head, 2),
            flags: u32_at(&head, 4),
            handle: u64_at(&head, 8),
            tag: u64_at(&head, 16),
            receiver: u16_at(&access, 0),
            permissions,
            composite,
        })
    }

    /// Judges flags, attributes and permissions of what is sent: whether the receiver may write,
    /// and whether it is to be wiped.
    pub fn offered(&self, kind: Kind) -> Result<(bool, bool), Error> {
        let zero = self.flags == FLAG_ZERO;
        // With one receiver, the attributes are not the sender's to say unless both use it.
        let attributes = match kind {
            Kind::Share => WRITE_BACK,
            Kind::Lend | Kind::Donate => 0,
        };
        require(self.attributes == attributes)?;
        let write = match (kind, self.permissions) {
            (Kind::Share | Kind::Lend, READ_ONLY) => false,
            (Kind::Share | Kind::Lend, READ_WRITE) | (Kind::Donate, 0) => true,
            (Kind::Share | Kind::Lend | Kind::Donate, _) => return Err(Error::Invalid),
        };
        require(self.flags == 0 || (zero && kind != Kind::Share && write))?;
        Ok((write, zero))
    }

    /// Judges flags, attributes and permissions of a retrieval of what was offered: what the
    /// receiver gets.
    pub fn requested(&self, offer: &Offer) -> Result<Request, Error> {
        let said = self.flags >> FLAG_TYPE_SHIFT & 0b11;
        let known = FLAG_ZERO | FLAG_ZERO_AFTER | 0b11 << FLAG_TYPE_SHIFT;
        require(self.flags & !known == 0 && (said == 0 || said == type_of(offer.kind)))?;
        require(self.attributes == 0 || self.attributes == WRITE_BACK)?;
        require(self.permissions & !(DATA_MASK | CODE_MASK) == 0)?;
        let write = match self.permissions & DATA_MASK {
            0 => offer.write,
            READ_ONLY => false,
            READ_WRITE if offer.write => true,
            READ_WRITE => return Err(Error::Denied),
            _ => return Err(Error::Invalid),
        };
        let execute = match self.permissions & CODE_MASK {
            0 | NEVER_EXECUTE => false,
            EXECUTE if offer.kind != Kind::Share => true,
            EXECUTE => return Err(Error::Denied),
            _ => return Err(Error::Invalid),
        };
        // Wiped before only if the sender said so; afterwards only what is lent and was written.
        if self.flags & FLAG_ZERO != 0 && !offer.zero {
            return Err(Error::Denied);
        }
        let zero_after = self.flags & FLAG_ZERO_AFTER != 0;
        require(!zero_after || (offer.kind == Kind::Lend && write))?;
        Ok(Request {
            write,
            execute,
            zero_after,
        })
    }
}

impl Composite {
    fn read(
        at: u32,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut composite = [0_u8; COMPOSITE_SIZE as usize];
        read(at.into(), &mut composite)?;
        require(is_zero(&composite, 8, 8))?;
        Ok(Self {
            pages: u32_at(&composite, 0),
            ranges: u32_at(&composite, 4),
            start: u64::from(at).wrapping_add(COMPOSITE_SIZE.into()),
        })
    }
}

/// Reads a range: where, and how many pages.
pub fn range(from: &[u8]) -> Result<(Ipa, u32), Error> {
    require(is_zero(from, 12, 4))?;
    Ok((Ipa::new(u64_at(from, 0)), u32_at(from, 8)))
}

/// Returns a range.
#[must_use]
pub fn range_bytes(ipa: Ipa, pages: u16) -> [u8; RANGE_SIZE as usize] {
    let mut to = [0; RANGE_SIZE as usize];
    put(&mut to, 0, &ipa.get().to_le_bytes());
    put(&mut to, 8, &pages.to_le_bytes());
    to
}

/// Returns the beginning of the answer to a retrieval.
#[must_use]
pub fn response(offer: &Offer, handle: u64, request: Request) -> [u8; RESPONSE_HEADER as usize] {
    let mut to = [0; RESPONSE_HEADER as usize];
    let zero = if offer.zero { FLAG_ZERO } else { 0 };
    let flags = type_of(offer.kind) << FLAG_TYPE_SHIFT | zero;
    put(&mut to, 0, &endpoint(offer.sender).to_le_bytes());
    put(&mut to, 2, &WRITE_BACK.to_le_bytes());
    put(&mut to, 4, &flags.to_le_bytes());
    put(&mut to, 8, &handle.to_le_bytes());
    put(&mut to, 16, &offer.tag.to_le_bytes());
    put(&mut to, 24, &ACCESS_SIZE.to_le_bytes());
    put(&mut to, 28, &1_u32.to_le_bytes());
    put(&mut to, 32, &TRANSACTION_SIZE.to_le_bytes());
    let data = if request.write { READ_WRITE } else { READ_ONLY };
    let code = if request.execute {
        EXECUTE
    } else {
        NEVER_EXECUTE
    };
    put(&mut to, 48, &endpoint(offer.receiver).to_le_bytes());
    put(&mut to, 50, &[data | code]);
    put(&mut to, 52, &64_u32.to_le_bytes());
    put(&mut to, 64, &u32::from(offer.pages).to_le_bytes());
    put(&mut to, 68, &u32::from(offer.ranges).to_le_bytes());
    to
}

/// What FFA_MEM_RELINQUISH says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relinquished {
    /// Which transaction.
    pub handle: u64,
    /// Who gives it up.
    pub endpoint: u16,
    /// It is wiped.
    pub zero: bool,
}

/// Reads FFA_MEM_RELINQUISH's descriptor.
pub fn relinquished(from: &[u8; RELINQUISH_SIZE]) -> Result<Relinquished, Error> {
    let flags = u32_at(from, 8);
    require(flags & !FLAG_ZERO == 0 && u32_at(from, 12) == 1)?;
    Ok(Relinquished {
        handle: u64_at(from, 0),
        endpoint: u16_at(from, 16),
        zero: flags == FLAG_ZERO,
    })
}

/// Returns the description of a partition.
#[must_use]
pub fn partition(endpoint: u16, vcpus: u16) -> [u8; PARTITION_SIZE as usize] {
    let mut to = [0; PARTITION_SIZE as usize];
    put(&mut to, 0, &endpoint.to_le_bytes());
    put(&mut to, 2, &vcpus.to_le_bytes());
    put(&mut to, 4, &PARTITION_PROPERTIES.to_le_bytes());
    to
}
