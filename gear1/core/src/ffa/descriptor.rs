//! The bytes of FF-A's descriptors (Arm DEN0077A 1.1: memory transactions, partition information).
//!
//! Owns: offsets, flags, and which values are legal by themselves. What is read was copied from the
//! caller's buffer before, so it does not change while it is judged. Descriptors are words of 64
//! bits, little-endian as the CPU is; their parts are fields of those, the first the lowest.
//!
//! Requirements: G1-MEM-012.

use gear1_abi::id::VmId;

use crate::addr::Ipa;
use crate::ffa::{endpoint, low};
pub use crate::ownership::RANGE_SIZE;
use crate::ownership::{Error, Kind, Offer, Request, bit};

/// Most receivers of a transaction.
pub const MAX_RECEIVERS: usize = 4;
/// Bytes of an answer before its ranges.
pub const RESPONSE_HEADER: u64 = 80;
/// Bytes of FFA_MEM_RELINQUISH's descriptor for one endpoint.
pub const RELINQUISH_SIZE: u64 = 18;
/// Bytes of a partition's description.
pub const PARTITION_SIZE: u64 = 24;

/// Size of a transaction descriptor without its access descriptors and ranges.
const TRANSACTION_SIZE: u64 = 48;
/// Bytes of an endpoint's memory access descriptor.
const ACCESS_SIZE: u64 = 16;
/// Bytes of a composite memory region descriptor before its ranges.
const COMPOSITE_SIZE: u64 = 16;

/// Memory region attributes: Normal, write-back, inner shareable.
const WRITE_BACK: u16 = 0b10 << 4 | 0b11 << 2 | 0b11;
const FLAG_ZERO: u32 = 1 << 0;
const FLAG_ZERO_AFTER: u32 = 1 << 2;
const FLAG_TYPE_SHIFT: u32 = 3;
/// The receiver names only itself.
const FLAG_ALONE: u32 = 1 << 10;
const READ_ONLY: u8 = 0b01;
const READ_WRITE: u8 = 0b10;
const NEVER_EXECUTE: u8 = 0b01 << 2;
const EXECUTE: u8 = 0b10 << 2;
const DATA_MASK: u8 = 0b11;
const CODE_MASK: u8 = 0b11 << 2;
/// A partition that runs in AArch64, and sends and receives direct requests.
const PARTITION_PROPERTIES: u64 = 1 << 8 | 0b11;

/// Offset and number of the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Composite {
    /// All pages.
    pub pages: u32,
    /// Ranges.
    pub ranges: u32,
    /// Offset of the first range in the whole descriptor.
    pub start: u64,
}

/// Access descriptor of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Access {
    endpoint: u16,
    permissions: u8,
}

/// A transaction descriptor with its endpoints, without its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sender of the memory.
    pub sender: u16,
    /// Handle of the transaction; 0 while the transaction is being made.
    pub handle: u64,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Ranges, if the descriptor has them.
    pub composite: Option<Composite>,
    attributes: u16,
    flags: u32,
    accesses: [Access; MAX_RECEIVERS],
    count: usize,
}

/// Receivers of an offer, and their rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// VMs that may retrieve, one bit each.
    pub receivers: u16,
    /// Receivers that may write, one bit each.
    pub writers: u16,
    /// Whether the memory is wiped before the retrieval.
    pub zero: bool,
}

const fn high(word: u64) -> u64 {
    word >> 32
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

/// Returns the VM with this identifier, 1 to 16.
fn vm(endpoint: u16) -> Option<VmId> {
    VmId::from_reg(u64::from(endpoint).checked_sub(1)?)
}

impl Header {
    /// Reads a descriptor with `read`, which copies words from an offset, a multiple of their size,
    /// and refuses offsets outside of the descriptor.
    pub fn read(
        read: &mut impl FnMut(u64, &mut [u64]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut head = [0_u64; TRANSACTION_SIZE as usize / 8];
        read(0, &mut head)?;
        let [first, handle, tag, sizes, first_access, reserved] = head;
        let count = high(sizes) as usize;
        require(low(sizes) == ACCESS_SIZE && count != 0 && reserved | high(first_access) == 0)?;
        require(first_access >= TRANSACTION_SIZE && first_access.is_multiple_of(ACCESS_SIZE))?;
        if count > MAX_RECEIVERS {
            return Err(Error::NoMemory);
        }
        let mut at = first_access;
        // Bound: MAX_RECEIVERS (4).
        let mut accesses = [Access::default(); MAX_RECEIVERS];
        let mut composite = None;
        // Bound: MAX_RECEIVERS (4).
        for slot in accesses.iter_mut().take(count) {
            let (access, offset) = Access::read(at, read)?;
            require(composite.is_none_or(|other| other == offset))?;
            composite = Some(offset);
            *slot = access;
            at = at.wrapping_add(ACCESS_SIZE);
        }
        Ok(Self {
            sender: first as u16,
            attributes: (first >> 16) as u16,
            flags: high(first) as u32,
            handle,
            tag,
            accesses,
            count,
            composite: match composite {
                None | Some(0) => None,
                Some(offset) => Some(Composite::read(offset, at, read)?),
            },
        })
    }

    fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().take(self.count)
    }

    /// Checks flags, attributes and permissions of an offer to VMs of which only `peers` may
    /// receive.
    pub fn offered(&self, kind: Kind, peers: u16) -> Result<Offered, Error> {
        let zero = self.flags == FLAG_ZERO;
        // With one receiver, the attributes are not the sender's to say unless both use it.
        let shared = kind == Kind::Share || self.count > 1;
        require(kind != Kind::Donate || self.count == 1)?;
        require(self.attributes == if shared { WRITE_BACK } else { 0 })?;
        let mut offered = Offered {
            zero,
            ..Offered::default()
        };
        // Bound: MAX_RECEIVERS (4).
        for access in self.accesses() {
            let bit = vm(access.endpoint).map_or(0, bit);
            // planted: memory goes to who is no peer
            if bit & peers == 0 {
                return Err(Error::Denied);
            }
            require(offered.receivers & bit == 0)?;
            offered.receivers |= bit;
            match (kind, access.permissions) {
                (Kind::Share | Kind::Lend, READ_WRITE) | (Kind::Donate, 0) => {
                    offered.writers |= bit;
                }
                (Kind::Share | Kind::Lend, READ_ONLY) => {}
                (Kind::Share | Kind::Lend | Kind::Donate, _) => return Err(Error::Invalid),
            }
        }
        let all_write = offered.writers == offered.receivers;
        require(self.flags == 0 || (zero && kind != Kind::Share && all_write))?;
        Ok(offered)
    }

    /// Checks a retrieval: the entries of `receiver` and of the other receivers against the offer.
    /// Returns the granted request.
    pub fn requested(&self, offer: &Offer, receiver: VmId) -> Result<Request, Error> {
        let permissions = self.permissions_of(offer, receiver)?;
        let said = self.flags >> FLAG_TYPE_SHIFT & 0b11;
        let known = FLAG_ZERO | FLAG_ZERO_AFTER | FLAG_ALONE | 0b11 << FLAG_TYPE_SHIFT;
        require(self.flags & !known == 0 && (said == 0 || said == type_of(offer.kind)))?;
        require(self.attributes == 0 || self.attributes == WRITE_BACK)?;
        require(permissions & !(DATA_MASK | CODE_MASK) == 0)?;
        let write = writes(offer, receiver, permissions)?;
        let execute = executes(offer, receiver, permissions)?;
        // A wipe before the retrieval needs the sender's flag; a wipe afterwards needs lent memory
        // that the receiver may write.
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

    /// Returns the permissions that `receiver` asks for. The entries name each receiver of the
    /// offer once, or `receiver` alone if the flags say so.
    fn permissions_of(&self, offer: &Offer, receiver: VmId) -> Result<u8, Error> {
        let mut named = 0;
        let mut permissions = 0;
        // Bound: MAX_RECEIVERS (4).
        for access in self.accesses() {
            let bit = vm(access.endpoint).map_or(0, bit);
            require(bit & offer.receivers & !named != 0)?;
            named |= bit;
            if access.endpoint == endpoint(receiver) {
                permissions = access.permissions;
            }
        }
        let all = if self.flags & FLAG_ALONE == 0 {
            offer.receivers
        } else {
            bit(receiver)
        };
        require(named == all)?;
        Ok(permissions)
    }
}

/// Returns whether `receiver`, which asks for these permissions, writes.
const fn writes(offer: &Offer, receiver: VmId, permissions: u8) -> Result<bool, Error> {
    let may_write = offer.writers & bit(receiver) != 0;
    match permissions & DATA_MASK {
        0 => Ok(may_write),
        READ_ONLY => Ok(false),
        // planted: who may only read asks to write, and does
        READ_WRITE if may_write => Ok(true),
        READ_WRITE => Err(Error::Denied),
        _ => Err(Error::Invalid),
    }
}

/// Returns whether `receiver`, which asks for these permissions, executes.
fn executes(offer: &Offer, receiver: VmId, permissions: u8) -> Result<bool, Error> {
    // planted: what is shared is executed
    let alone = offer.kind != Kind::Share && offer.receivers == bit(receiver);
    match permissions & CODE_MASK {
        0 | NEVER_EXECUTE => Ok(false),
        EXECUTE if alone => Ok(true),
        EXECUTE => Err(Error::Denied),
        _ => Err(Error::Invalid),
    }
}

impl Access {
    /// Reads the entry of a receiver at `at`, and the offset of the composite that the entry names.
    fn read(
        at: u64,
        read: &mut impl FnMut(u64, &mut [u64]) -> Result<(), Error>,
    ) -> Result<(Self, u64), Error> {
        let mut access = [0_u64; 2];
        read(at, &mut access)?;
        let [said, reserved] = access;
        // No flag of an endpoint, the byte below its composite, applies.
        require(reserved | (said >> 24 & 0xff) == 0)?;
        let entry = Self {
            endpoint: said as u16,
            permissions: (said >> 16) as u8,
        };
        Ok((entry, high(said)))
    }
}

impl Composite {
    /// Reads words at `at`, which must lie behind `behind`.
    fn read(
        at: u64,
        behind: u64,
        read: &mut impl FnMut(u64, &mut [u64]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        require(at >= behind && at.is_multiple_of(COMPOSITE_SIZE))?;
        let mut composite = [0_u64; 2];
        read(at, &mut composite)?;
        let [counts, reserved] = composite;
        require(reserved == 0)?;
        Ok(Self {
            pages: counts as u32,
            ranges: high(counts) as u32,
            start: at.wrapping_add(COMPOSITE_SIZE),
        })
    }
}

/// Reads a range: where, and how many pages.
pub fn range(from: [u64; 2]) -> Result<(Ipa, u32), Error> {
    let [address, pages] = from;
    require(high(pages) == 0)?;
    Ok((Ipa::new(address), pages as u32))
}

/// Returns the beginning of the answer to a retrieval by `receiver`.
#[must_use]
pub fn response(
    offer: &Offer,
    handle: u64,
    receiver: VmId,
    request: Request,
) -> [u64; RESPONSE_HEADER as usize / 8] {
    let zero = if offer.zero { FLAG_ZERO } else { 0 };
    let flags = type_of(offer.kind) << FLAG_TYPE_SHIFT | zero;
    let data = if request.write { READ_WRITE } else { READ_ONLY };
    let code = if request.execute {
        EXECUTE
    } else {
        NEVER_EXECUTE
    };
    let sender = u64::from(endpoint(offer.sender)) | u64::from(WRITE_BACK) << 16;
    let permissions = u64::from(data | code) << 16;
    [
        sender | u64::from(flags) << 32,
        handle,
        offer.tag,
        1 << 32 | ACCESS_SIZE,
        TRANSACTION_SIZE,
        0,
        u64::from(endpoint(receiver)) | permissions | 64 << 32,
        0,
        u64::from(offer.ranges) << 32 | u64::from(offer.pages),
        0,
    ]
}

/// Contents of an FFA_MEM_RELINQUISH descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relinquished {
    /// Handle of the transaction.
    pub handle: u64,
    /// Endpoint that gives the memory up.
    pub endpoint: u16,
    /// Whether the memory is wiped.
    pub zero: bool,
}

/// Reads FFA_MEM_RELINQUISH's descriptor.
pub fn relinquished(from: [u64; 3]) -> Result<Relinquished, Error> {
    let [handle, flags_and_count, endpoints] = from;
    let zero = u64::from(FLAG_ZERO);
    require(flags_and_count & !zero == 1 << 32)?;
    Ok(Relinquished {
        handle,
        endpoint: endpoints as u16,
        zero: flags_and_count & zero != 0,
    })
}

/// Returns the description of a partition.
#[must_use]
pub fn partition(endpoint: u16, vcpus: u16) -> [u64; PARTITION_SIZE as usize / 8] {
    let first = u64::from(endpoint) | u64::from(vcpus) << 16;
    [first | PARTITION_PROPERTIES << 32, 0, 0]
}
