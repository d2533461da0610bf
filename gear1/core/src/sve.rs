//! SVE (FEAT_SVE, Arm ARM B1.2) of VMs that the manifest gives it to: the lengths of vectors that a
//! CPU has, and the memory that a vCPU's registers take.
//!
//! ZCR_EL2.LEN limits a VM to the length that the manifest says. The guest chooses any shorter one
//! that the CPU has; a request that the CPU has not becomes the next shorter length it has (Arm ARM,
//! ZCR_EL1.LEN). Two CPUs are therefore alike for a VM when they have the same lengths up to the
//! VM's, whatever longer ones either has.
//!
//! Requirements: G1-CPU-018.

/// Bit of [`VcpuContext::features`](crate::context::VcpuContext::features): the VM has SVE. Beside it
/// there are those of [`monitors`](crate::monitors) and [`pointer_auth`](crate::pointer_auth).
pub const SVE: u64 = 8;

/// Lengths of vectors are multiples of this, in bits.
pub const GRANULE: u32 = 128;
/// The longest vectors of the architecture, in bits.
pub const LONGEST: u32 = 2048;

/// Lengths of vectors that a CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths(u16);

impl Lengths {
    /// Of a CPU without SVE.
    pub const NONE: Self = Self(0);

    /// Reads lengths from a word with a bit each: bit *n* stands for 128 (*n* + 1) bits.
    #[must_use]
    pub const fn from_bits(word: u16) -> Self {
        Self(word)
    }

    /// Returns the word that [`Lengths::from_bits`] reads.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Adds a length in bits; what is no length changes nothing.
    #[must_use]
    pub const fn with(self, length: u32) -> Self {
        Self(self.0 | bit(length))
    }

    /// Tells whether this length in bits is one of them.
    #[must_use]
    pub const fn has(self, length: u32) -> bool {
        self.0 & bit(length) != 0
    }

    /// Tells whether a VM whose longest vectors have `length` bits finds two CPUs alike.
    #[must_use]
    pub const fn agree(self, other: Self, length: u32) -> bool {
        let reached = match bit(length) {
            0 => 0,
            highest => highest | highest.wrapping_sub(1),
        };
        // planted: a CPU with other vectors runs VMs
        (self.0 ^ other.0) & reached == 0
    }
}

/// Returns the bit of a length in bits; 0: there is no such length.
const fn bit(length: u32) -> u16 {
    if length == 0 || length > LONGEST || !length.is_multiple_of(GRANULE) {
        return 0;
    }
    1_u16.wrapping_shl((length / GRANULE).wrapping_sub(1))
}

/// Returns ZCR_ELx.LEN of a length in bits.
#[must_use]
#[inline(always)]
pub const fn zcr(length: u32) -> u64 {
    (length / GRANULE).wrapping_sub(1) as u64 & 0xf
}

/// Offset of Z0 in a vCPU's memory, in bytes. ZCR_EL1 stands before it, P0 to P15 and FFR behind Z31.
pub const VECTORS_OFFSET: u64 = 16;

/// Returns the bytes that the registers of a vCPU take whose longest vectors have `length` bits: 32
/// vectors, and 17 predicates with a bit for each byte of a vector.
#[must_use]
pub const fn size(length: u32) -> u64 {
    let vector = length as u64 / 8;
    let predicates = 17_u64.wrapping_mul(vector / 8);
    VECTORS_OFFSET
        .wrapping_add(32_u64.wrapping_mul(vector))
        .wrapping_add(predicates)
}

#[cfg(test)]
mod tests;
