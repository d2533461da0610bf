//! Keeps changing patterns in all SVE registers over switches to other guests of the same CPU: one has
//! vectors of another length, and a third one, with `bits=0`, has no SVE.
//!
//! Requirements: G1-CPU-018.
#![no_std]
#![no_main]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gear1_abi::exit::ExitReason;
use test_guests::exception::{catch, esr};
use test_guests::sve::{self, Registers};
use test_guests::{Machine, check, fp, guest, psci, read_sysreg, report, say, stats, timer};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other_cpu
);

/// Exchanges of the registers with other guests.
const SWITCHES: u64 = 1_000;
/// Further rounds at the end, because the other guests are still counting.
const AFTERWARDS: u64 = 200;
/// Without exchanges the loop would not end.
const MOST_ROUNDS: u64 = 20 * SWITCHES;
const SLEEP_US: u64 = 10;
/// A guest looks at its registers for the first time when those of smaller numbers have filled them.
const TURN_US: u64 = 50_000;
/// ZCR_EL1.LEN of the longest vectors of the architecture.
const MOST: u64 = 0xf;
/// Lives of the second vCPU that have ended, and those that found something in a register.
static LIVES: AtomicU64 = AtomicU64::new(0);
static NOT_CLEAR: AtomicU64 = AtomicU64::new(0);

/// Without a number of bits, as natively, the vectors are as long as the CPU's.
fn main(machine: &Machine) {
    let bits = machine.option("bits");
    let number = machine.option("number").unwrap_or(1);
    let shown = read_sysreg!("id_aa64pfr0_el1") >> 32 & 0xf;
    timer::sleep_us(number * TURN_US);
    if bits == Some(0) {
        let version = read_sysreg!("S3_0_C0_C4_4");
        report::equal("sve-hidden", (shown, version), (0, 0));
        without_sve(number);
    } else {
        report::equal("sve-shown", shown, 1);
        with_sve(machine, bits, number);
    }
}

fn with_sve(machine: &Machine, bits: Option<u64>, number: u64) {
    sve::enable();
    let asked_at_boot = read_sysreg!("S3_0_C1_C2_0");
    report::equal("length-at-boot", asked_at_boot, 0);
    let longest = sve::ask(MOST);
    let [pattern, found] = sve::copies();
    found.store();
    check!("clear-at-boot", found.is_clear(), "not zero");
    let expected = bits.map_or(longest, |bits| bits as usize);
    report::equal("longest", longest, expected);
    lengths(longest);
    let (rounds, lost) = switch(machine, number, [pattern, found]);
    check!("patterns-kept", lost == 0, "{lost} of {rounds} lost");
    if machine.gearv {
        let switches = stats::exits(ExitReason::Fp);
        let enough = switches >= SWITCHES;
        check!("switches", enough, "{switches} in {rounds} rounds");
    }
    hidden_when_shorter(number, [pattern, found]);
    if machine.cpus > 1 {
        second_vcpu();
    }
}

/// Whatever is asked for, the vectors are no longer, and the longest are those of the manifest.
fn lengths(longest: usize) {
    let is_wrong = |len: &u64| {
        let length = sve::ask(*len);
        let asked = 128 * (*len as usize + 1);
        let exact = asked.is_power_of_two() && asked <= longest && length != asked;
        exact || length > asked || length > longest
    };
    let wrong = (0..=MOST).filter(is_wrong).count() as u64;
    report::equal("lengths", wrong, 0);
    report::equal("reads-back", read_sysreg!("S3_0_C1_C2_0"), MOST);
}

/// Goes on until Gear1 has exchanged registers often enough; returns rounds and lost patterns.
fn switch(machine: &Machine, number: u64, copies: [&mut Registers; 2]) -> (u64, u64) {
    let [pattern, found] = copies;
    let (mut rounds, mut lost) = (0, 0);
    let is_enough = |rounds| match machine.gearv {
        true => stats::exits(ExitReason::Fp) >= SWITCHES || rounds >= MOST_ROUNDS,
        false => rounds >= SWITCHES,
    };
    while !is_enough(rounds) {
        lost += keep(number, rounds..rounds + 50, [pattern, found]);
        rounds += 50;
    }
    lost += keep(number, rounds..rounds + AFTERWARDS, [pattern, found]);
    (rounds + AFTERWARDS, lost)
}

/// Lets go of the CPU with a pattern in the registers, once for each round, each time at another
/// length. Returns the number of patterns that were not there afterwards.
fn keep(number: u64, rounds: Range<u64>, [pattern, found]: [&mut Registers; 2]) -> u64 {
    let mut lost = 0;
    for round in rounds {
        // Every second time the longest vectors.
        let zcr = if round % 2 == 0 {
            MOST
        } else {
            (round / 2) & MOST
        };
        let length = sve::ask(zcr) / 8;
        pattern.fill((number << 32) ^ round, length, zcr);
        pattern.load();
        timer::sleep_us(SLEEP_US);
        found.store();
        lost += u64::from(found != pattern);
    }
    lost
}

/// Bits beyond shorter vectors are the guest's own, or zero, when the vectors are long again.
fn hidden_when_shorter(number: u64, [pattern, found]: [&mut Registers; 2]) {
    let mut foreign = 0;
    for round in 0..AFTERWARDS {
        let length = sve::ask(MOST) / 8;
        pattern.fill(number << 40 ^ round, length, MOST);
        pattern.load();
        sve::ask(0);
        timer::sleep_us(SLEEP_US);
        sve::ask(MOST);
        found.store();
        foreign += u64::from(!found.is_at_most(pattern));
    }
    report::equal("beyond-is-own", foreign, 0);
}

/// A vCPU that is turned on again finds nothing of its former life.
fn second_vcpu() {
    for lives in 1..=2 {
        // Off is what it becomes after its last instruction.
        while psci::affinity_info(1) != psci::affinity::OFF {
            timer::sleep_us(SLEEP_US);
        }
        // This vCPU's use has Gear1 store the other one's registers, from which it would load them.
        let [registers, _] = sve::copies();
        registers.store();
        report::equal("turned-on", psci::cpu_on(1), 0);
        while LIVES.load(SeqCst) != lives {
            timer::sleep_us(SLEEP_US);
        }
    }
    report::equal("clear-at-each-start", NOT_CLEAR.load(SeqCst), 0);
}

/// Leaves a pattern behind, and its runtime turns it off.
fn other_cpu(_index: usize) {
    sve::enable();
    let length = sve::ask(MOST) / 8;
    let [registers, _] = sve::copies();
    registers.store();
    NOT_CLEAR.fetch_add(u64::from(!registers.is_clear()), SeqCst);
    registers.fill(77, length, MOST);
    registers.load();
    LIVES.fetch_add(1, SeqCst);
}

/// SVE is undefined, whoever has just used it, and FP keeps its values beside it.
fn without_sve(number: u64) {
    sve::enable();
    let (mut defined, mut lost) = (0, 0);
    for round in 0..SWITCHES {
        let pattern = fp::Registers::pattern((number << 32) ^ round);
        pattern.load();
        timer::sleep_us(SLEEP_US);
        let length = catch(|| _ = sve::length());
        let control = catch(|| _ = read_sysreg!("S3_0_C1_C2_0"));
        lost += u64::from(fp::Registers::current() != pattern);
        for caught in [length, control] {
            let class = caught.map(|caught| caught.class());
            defined += u64::from(class != Some(esr::EC_UNKNOWN));
        }
    }
    report::equal("sve-undefined", defined, 0);
    report::equal("fp-kept", lost, 0);
    say!("{} exchanges", stats::exits(ExitReason::Fp));
}
