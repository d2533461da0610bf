//! The TRNG service, version 1.0 (Arm DEN 0098): calls, and answers from the CPU's own source or
//! from firmware's.
//!
//! Gear1 answers on a CPU with FEAT_RNG. A call of firmware keeps the CPU at EL3 for as long as
//! firmware likes, where no deadline of Gear1's comes, so only a VM that the manifest allows it has
//! its calls passed on. What firmware returns is cut to what the specification leaves to it.
//!
//! Requirements: G1-CPU-016, G1-CPU-017.

/// Results of a call, X0 to X3.
pub type Results = [u64; 4];

/// The version that is offered: 1.0.
pub const VERSION: u64 = 0x1_0000;

/// Status of a call: a negative word, which the 64-bit convention extends by its sign.
pub mod ret {
    /// Done.
    pub const SUCCESS: u64 = 0;
    /// The function does not exist.
    pub const NOT_SUPPORTED: u64 = -1_i64 as u64;
    /// No number of bits, or more than the registers have.
    pub const INVALID_PARAMETERS: u64 = -2_i64 as u64;
    /// The source has nothing now: the caller may ask again.
    pub const NO_ENTROPY: u64 = -3_i64 as u64;
}

/// Functions of the service.
pub mod function {
    /// TRNG_VERSION.
    pub const VERSION: u32 = 0x8400_0050;
    /// TRNG_FEATURES.
    pub const FEATURES: u32 = 0x8400_0051;
    /// TRNG_GET_UUID.
    pub const GET_UUID: u32 = 0x8400_0052;
    /// TRNG_RND, SMC32.
    pub const RND_32: u32 = 0x8400_0053;
    /// TRNG_RND, SMC64.
    pub const RND_64: u32 = 0xc400_0053;
}

/// Names the source that RNDRRS reads. The first word is not all ones, which would be NOT_SUPPORTED.
pub const UUID: [u32; 4] = [0x3bd1_6f0a, 0x4c27_9d55, 0x97e2_0c8b, 0x61f4_a83e];

/// Reads of the CPU's source for one register of a result. Each lasts as long as the core takes to
/// reseed, at most "a reasonable period" by the architecture (Arm ARM C6.2, MRS of RNDRRS).
const TRIES: usize = 4;
/// Result registers of TRNG_RND.
const WORDS: u32 = 3;

/// A call of the service, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// TRNG_VERSION.
    Version,
    /// TRNG_FEATURES of this function.
    Features(u32),
    /// TRNG_GET_UUID.
    Uuid,
    /// TRNG_RND.
    Random(Request),
    /// TRNG_RND of a number of bits that does not fit.
    Invalid,
}

/// A number of random bits that fits into the result registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    bits: u32,
    /// Bits of a result register: 32 or 64, by the calling convention.
    width: u32,
}

/// Decodes the call in X0 and X1. `None`: the service has no such function.
pub const fn decode(x0: u64, x1: u64) -> Option<Call> {
    // Only W0 is the function, and the 32-bit convention passes W1 (SMCCC 2.6, 2.7).
    let word = x1 & 0xffff_ffff;
    match x0 as u32 {
        function::VERSION => Some(Call::Version),
        function::FEATURES => Some(Call::Features(word as u32)),
        function::GET_UUID => Some(Call::Uuid),
        // planted: the upper half of a 32-bit argument counts
        function::RND_32 => Some(request(word, u32::BITS)),
        function::RND_64 => Some(request(x1, u64::BITS)),
        _ => None,
    }
}

/// At most 96 bits in the 32-bit convention, and 192 in the 64-bit one.
const fn request(bits: u64, width: u32) -> Call {
    let most = width.wrapping_mul(WORDS);
    if bits == 0 || bits > most as u64 {
        Call::Invalid
    } else {
        Call::Random(Request {
            bits: bits as u32,
            width,
        })
    }
}

/// Tells whether the service has a function, as TRNG_FEATURES says.
const fn exists(function: u32) -> bool {
    matches!(
        function,
        function::VERSION
            | function::FEATURES
            | function::GET_UUID
            | function::RND_32
            | function::RND_64
    )
}

impl Call {
    /// Returns the answer where it needs no source; firmware that is asked is one.
    const fn constant(self) -> Option<Results> {
        match self {
            Self::Version => Some([VERSION, 0, 0, 0]),
            Self::Invalid => Some([ret::INVALID_PARAMETERS, 0, 0, 0]),
            Self::Features(id) if !exists(id) => Some([ret::NOT_SUPPORTED, 0, 0, 0]),
            Self::Features(_) | Self::Uuid | Self::Random(_) => None,
        }
    }

    /// Answers from the source of this CPU, which `draw` reads once.
    #[inline(always)]
    pub fn answer(self, draw: impl FnMut() -> Option<u64>) -> Results {
        match (self.constant(), self) {
            (Some(results), _) => results,
            (None, Self::Random(request)) => request.fill(draw),
            // Bound: 4 words.
            (None, Self::Uuid) => UUID.map(u64::from),
            (None, Self::Version | Self::Features(_) | Self::Invalid) => [ret::SUCCESS, 0, 0, 0],
        }
    }

    /// Answers from firmware, which `call` calls with the same function and argument.
    #[inline(always)]
    pub fn pass_on(self, call: impl FnOnce() -> Results) -> Results {
        self.constant().unwrap_or_else(|| self.cut(call()))
    }

    /// Returns what the specification lets firmware say of `results`: a word as the status or of
    /// the identifier, nothing beside an error, and no more bits than were asked for.
    fn cut(self, results: Results) -> Results {
        let [status, words @ ..] = results;
        // The status is a word with a sign (Arm DEN 0098, 2).
        let status = i64::from(status as u32 as i32) as u64;
        match self {
            // Bound: 4 words.
            Self::Uuid => results.map(|word| word & 0xffff_ffff),
            // planted: what firmware leaves in other registers is random
            Self::Random(request) if status == ret::SUCCESS => {
                let masks = request.masks();
                let mut words = words.into_iter().zip(masks).map(|(word, mask)| word & mask);
                let mut next = || words.next().unwrap_or(0);
                [status, next(), next(), next()]
            }
            Self::Version | Self::Features(_) | Self::Random(_) | Self::Invalid => {
                [status, 0, 0, 0]
            }
        }
    }
}

impl Request {
    /// Returns the bits of X1 to X3 that carry random bits: the lowest of the number are in X3.
    const fn masks(self) -> [u64; 3] {
        let middle = self.bits.saturating_sub(self.width);
        let high = middle.saturating_sub(self.width);
        [
            low_bits(high, self.width),
            low_bits(middle, self.width),
            low_bits(self.bits, self.width),
        ]
    }

    /// Reads a new word for each register that carries bits. Without one of them there is no
    /// entropy: half of a seed is none.
    fn fill(self, mut draw: impl FnMut() -> Option<u64>) -> Results {
        let mut results = [ret::SUCCESS, 0, 0, 0];
        let [_, words @ ..] = &mut results;
        // Bound: 3 registers.
        for (word, mask) in words.iter_mut().zip(self.masks()) {
            if mask == 0 {
                continue;
            }
            // Bound: TRIES (4).
            match (0..TRIES).find_map(|_| draw()) {
                // planted: unused bits are random
                Some(value) => *word = value & mask,
                // planted: a source without entropy gives zeros
                None => return [ret::NO_ENTROPY, 0, 0, 0],
            }
        }
        results
    }
}

/// Returns a mask of the lowest `count` bits, of `most` at most, which is 64 at most.
const fn low_bits(count: u32, most: u32) -> u64 {
    let count = if count < most { count } else { most };
    match count {
        0 => 0,
        // 1 to 64: the shift is less than 64.
        _ => u64::MAX.wrapping_shr(u64::BITS.wrapping_sub(count)),
    }
}

#[cfg(test)]
mod tests;
