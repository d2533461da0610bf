//! The TRNG service (Arm DEN 0098), by both conduits: from the CPU's source on a core with FEAT_RNG,
//! from firmware where the option `firmware` is not 0 (`el3`, which gives ones alone), else none.
//!
//! Requirements: G1-CPU-016, G1-CPU-017.
#![no_std]
#![no_main]

use test_guests::psci::{self, hvc, smc};
use test_guests::{Machine, check, guest, read_sysreg, report};

guest!(main);

const VERSION: u32 = 0x8400_0050;
const FEATURES: u32 = 0x8400_0051;
const GET_UUID: u32 = 0x8400_0052;
const RND_32: u32 = 0x8400_0053;
const RND_64: u32 = 0xc400_0053;
const FUNCTIONS: [u32; 5] = [VERSION, FEATURES, GET_UUID, RND_32, RND_64];
/// Functions that the service does not have: one behind its own, and 64-bit forms of 32-bit ones.
const UNKNOWN: [u32; 3] = [0x8400_0054, 0xc400_0050, 0xc400_0052];

const SUCCESS: u64 = 0;
const NOT_SUPPORTED: u64 = -1_i64 as u64;
const INVALID_PARAMETERS: u64 = -2_i64 as u64;
const NO_ENTROPY: u64 = -3_i64 as u64;

/// Calls in which each bit that is asked for has to be 0 once and 1 once: neither shows in 2^-57 of
/// all runs.
const CALLS: usize = 64;
/// Identifier that the firmware `el3` gives.
const FIRMWARES_UUID: [u64; 4] = [0x1234_5678, 0x9abc_def0, 0x0fed_cba9, 0x8765_4321];

type Call = fn(u32, [u64; 3]) -> [u64; 4];

fn main(machine: &Machine) {
    let has_source = read_sysreg!("id_aa64isar0_el1") >> 60 & 0xf != 0;
    let asks_firmware = machine.option("firmware").unwrap_or(0) != 0;
    let conduits: [Call; 2] = [|f, a| hvc(f, a), |f, a| smc(f, a)];
    for call in conduits {
        if has_source || asks_firmware {
            announced(call);
            refused(call);
        } else {
            absent(call);
        }
        if has_source {
            random(call);
        } else if asks_firmware {
            from_firmware(call);
        }
    }
}

/// PSCI_FEATURES is about PSCI alone, and SMCCC_ARCH_FEATURES about the architecture's calls.
fn announced(call: Call) {
    report::equal("version", call(VERSION, [0; 3]), [0x1_0000, 0, 0, 0]);
    let feature = |id: u32| call(FEATURES, [id.into(), 0, 0]);
    report::equal("has-all", FUNCTIONS.map(feature), [[SUCCESS, 0, 0, 0]; 5]);
    let lacks = [NOT_SUPPORTED, 0, 0, 0];
    report::equal("has-no-more", UNKNOWN.map(feature), [lacks; 3]);
    // SMC32 passes W1.
    let above = 0xffff_ffff_0000_0000 | u64::from(RND_64);
    report::equal("argument-is-w1", call(FEATURES, [above, 0, 0])[0], SUCCESS);
    let uuid = call(GET_UUID, [0; 3]);
    report::equal("uuid-stays", call(GET_UUID, [0; 3]), uuid);
    let is_words = uuid.iter().all(|word| *word <= 0xffff_ffff);
    let is_one = uuid[0] != 0xffff_ffff && uuid != [0; 4];
    check!("uuid", is_words && is_one, "{uuid:x?}");
    let unknown = UNKNOWN.map(|id| call(id, [64, 0, 0])[0]);
    report::equal("unknown", unknown, [NOT_SUPPORTED; 3]);
    others_lack_it(call);
}

/// The calls of other services say nothing of this one.
fn others_lack_it(call: Call) {
    let of = |query, id: u32| call(query, [id.into(), 0, 0])[0] as i32;
    for query in [psci::function::FEATURES, psci::function::ARCH_FEATURES] {
        let all = FUNCTIONS.map(|id| of(query, id));
        report::equal("not-of-psci", all, [psci::result::NOT_SUPPORTED; 5]);
    }
}

/// No number of bits, or more than three registers have.
fn refused(call: Call) {
    let refused = [INVALID_PARAMETERS, 0, 0, 0];
    for (function, bits) in [
        (RND_64, 0),
        (RND_64, 193),
        (RND_64, 1 << 32 | 64),
        (RND_32, 0),
        (RND_32, 97),
    ] {
        report::equal("refused", call(function, [bits, 9, 9]), refused);
    }
}

/// Each bit that is asked for is random, and no other bit is set.
fn random(call: Call) {
    let mut wrong = 0;
    for bits in 1..=192 {
        wrong += u64::from(!is_random(call, RND_64, bits, 64));
    }
    report::equal("bits-of-192", wrong, 0);
    for bits in 1..=96 {
        wrong += u64::from(!is_random(call, RND_32, bits, 32));
    }
    report::equal("bits-of-96", wrong, 0);
    let above = call(RND_32, [0xffff_ffff_0000_0020, 0, 0]);
    let is_w1 = above[0] == SUCCESS && above[1] == 0 && above[2] == 0;
    check!("bits-are-w1", is_w1, "{above:x?}");
}

fn is_random(call: Call, function: u32, bits: u64, width: u64) -> bool {
    let (mut zeros, mut ones) = ([u64::MAX; 3], [0; 3]);
    for _ in 0..CALLS {
        let [status, words @ ..] = call(function, [bits, 0, 0]);
        if status != SUCCESS {
            return false;
        }
        for (at, word) in words.into_iter().enumerate() {
            zeros[at] &= word;
            ones[at] |= word;
        }
    }
    zeros == [0; 3] && ones == mask(bits, width)
}

/// Returns X1 to X3 with the lowest `bits` of the number set: X3 has the lowest.
fn mask(bits: u64, width: u64) -> [u64; 3] {
    let mut words = [0; 3];
    for bit in 0..bits {
        words[2 - (bit / width) as usize] |= 1 << (bit % width);
    }
    words
}

/// The firmware sets all bits of X1 to X3, and those of X0 above the word, whatever it is asked. It
/// has no entropy in the 32-bit convention.
fn from_firmware(call: Call) {
    report::equal("firmwares-uuid", call(GET_UUID, [0; 3]), FIRMWARES_UUID);
    let is_cut = |bits: &u64| {
        let [high, middle, low] = mask(*bits, 64);
        call(RND_64, [*bits, 0, 0]) == [SUCCESS, high, middle, low]
    };
    report::equal(
        "firmwares-bits",
        (1..=192).filter(is_cut).count() as u64,
        192,
    );
    let nothing = [NO_ENTROPY, 0, 0, 0];
    report::equal("firmware-has-none", call(RND_32, [96, 0, 0]), nothing);
}

/// Neither a source nor firmware: no function is there.
fn absent(call: Call) {
    let all = FUNCTIONS.map(|id| call(id, [64, 0, 0])[0]);
    report::equal("absent", all, [NOT_SUPPORTED; 5]);
}
