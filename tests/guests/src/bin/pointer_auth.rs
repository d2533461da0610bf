//! Signs pointers with five keys of its own, while another guest on the same CPU does the same with
//! other keys, and a third one has no pointer authentication: `keys` is 0 there.
//!
//! Requirements: G1-CPU-015.
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::exception::{catch, esr};
use test_guests::{Machine, check, guest, read_sysreg, report, timer, write_sysreg};

guest!(main);

/// Each wait runs the others.
const SLEEPS: u64 = 200;
const SLEEP_US: u64 = 100;
/// SCTLR_EL1.EnIA, EnIB, EnDA and EnDB: the instructions sign.
const ENABLE: u64 = 1 << 31 | 1 << 30 | 1 << 27 | 1 << 13;
/// MIDR_EL1: part number of the Cortex-A57, which has no pointer authentication.
const CORTEX_A57: u64 = 0xd07;

/// The registers of the keys: instructions A and B, data A and B, generic.
macro_rules! each_key {
    ($what:ident) => {
        $what!(
            "S3_0_C2_C1_0",
            "S3_0_C2_C1_1",
            "S3_0_C2_C1_2",
            "S3_0_C2_C1_3",
            "S3_0_C2_C2_0",
            "S3_0_C2_C2_1",
            "S3_0_C2_C2_2",
            "S3_0_C2_C2_3",
            "S3_0_C2_C3_0",
            "S3_0_C2_C3_1"
        )
    };
}

macro_rules! read_all {
    ($($key:literal),+) => { [$(read_sysreg!($key)),+] };
}

macro_rules! read_each {
    ($($key:literal),+) => { [$(catch(|| _ = read_sysreg!($key))),+] };
}

/// Without a number, as natively, the keys are those of 1.
fn main(machine: &Machine) {
    let number = machine.option("keys").unwrap_or(1);
    let part = read_sysreg!("midr_el1") >> 4 & 0xfff;
    let expected = number != 0 && part != CORTEX_A57;
    report::equal("announced", announced(), expected);
    if expected {
        sign(number);
    } else {
        is_undefined();
    }
}

/// Tells whether an ID register shows APA, API or GPA, GPI, or their like of QARMA3.
fn announced() -> bool {
    let isar1 = read_sysreg!("id_aa64isar1_el1");
    let isar2 = read_sysreg!("S3_0_C0_C6_2");
    isar1 & 0xff00_0ff0 != 0 || isar2 & 0x0f00_ff00 != 0
}

/// Keys and signatures stay as they are over switches to a guest that has others.
fn sign(number: u64) {
    write_sysreg!("sctlr_el1", read_sysreg!("sctlr_el1") | ENABLE);
    let keys = set_keys(number.wrapping_mul(0x0123_4567_89ab_cdef));
    report::equal("reads-back", each_key!(read_all), keys);
    let signed = signatures();
    let (mut lost, mut wrong) = (0, 0);
    for _ in 0..SLEEPS {
        timer::sleep_us(SLEEP_US);
        lost += u64::from(each_key!(read_all) != keys);
        wrong += u64::from(signatures() != signed);
    }
    check!("keys-kept", lost == 0, "{lost} of {SLEEPS} times lost");
    check!("signatures-kept", wrong == 0, "{wrong} of {SLEEPS} differ");
    // Other keys sign otherwise: each of them is in use.
    set_keys(!number);
    let same = signatures().into_iter().zip(signed);
    let same = same.filter(|(new, old)| new == old);
    report::equal("keys-matter", same.count() as u64, 0);
}

/// Sets each key to another value, made from `seed`, and returns the values.
fn set_keys(seed: u64) -> [u64; 10] {
    let mut next = seed;
    let mut keys = [0; 10];
    for key in &mut keys {
        next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        *key = next;
    }
    let mut values = keys.into_iter();
    macro_rules! write_all {
        ($($key:literal),+) => { $(write_sysreg!($key, values.next().unwrap_or(0));)+ };
    }
    each_key!(write_all);
    // SAFETY: the keys have effect.
    unsafe { asm!("isb") };
    keys
}

/// Returns what each key makes of one pointer and one modifier.
fn signatures() -> [u64; 5] {
    let (pointer, modifier) = (0x1234_5678_u64, 0x9abc_def0_u64);
    let [mut ia, mut ib, mut da, mut db] = [pointer; 4];
    let generic: u64;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!(
            ".arch_extension pauth",
            "pacia {ia}, {modifier}",
            "pacib {ib}, {modifier}",
            "pacda {da}, {modifier}",
            "pacdb {db}, {modifier}",
            "pacga {generic}, {pointer}, {modifier}",
            ia = inout(reg) ia,
            ib = inout(reg) ib,
            da = inout(reg) da,
            db = inout(reg) db,
            pointer = in(reg) pointer,
            modifier = in(reg) modifier,
            generic = out(reg) generic,
            options(nomem, nostack),
        );
    }
    [ia, ib, da, db, generic]
}

/// No key can be read, whoever has loaded which.
fn is_undefined() {
    let mut defined = 0;
    for _ in 0..SLEEPS {
        timer::sleep_us(SLEEP_US);
        let all = each_key!(read_each);
        let is_one = |caught: &Option<_>| {
            let class = |one: &test_guests::exception::Caught| one.class();
            caught.as_ref().map(class) != Some(esr::EC_UNKNOWN)
        };
        defined += all.iter().filter(|caught| is_one(caught)).count() as u64;
    }
    report::equal("keys-undefined", defined, 0);
}
