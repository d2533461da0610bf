//! PSCI and SMCCC as a guest may use them: answers, refusals, and CPUs that go on and off.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gear1_abi::{ABI_VERSION, guest as abi};
use test_guests::psci::{self, affinity, function, hvc, result, smc};
use test_guests::{Machine, check, cpu, guest, read_sysreg, report, say};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

const UNKNOWN: [u32; 6] = [
    0x8400_00ff,
    0xc400_00ff,
    0x8000_00ff,
    0x8600_00ff,
    0xbf00_0000,
    0x0000_1234,
];
/// CPU_ON by the 32-bit convention.
const CPU_ON_32: u32 = 0x8400_0003;

static STARTS: AtomicU64 = AtomicU64::new(0);
static MAY_STOP: AtomicBool = AtomicBool::new(false);
static AFFINITY: AtomicU64 = AtomicU64::new(0);

type Call = fn(u32, [u64; 3]) -> [u64; 4];

fn main(machine: &Machine) {
    answers("hvc", hvc);
    if machine.gearv {
        answers("smc", smc);
        services(machine);
    }
    refusals(machine);
    if machine.cpus < 2 {
        say!("one CPU: CPU_ON is not tried");
    } else {
        turn_on_and_off(function::CPU_ON, "cpu-on");
        turn_on_and_off(CPU_ON_32, "cpu-on-32");
    }
}

fn status(call: Call, function: u32, arguments: [u64; 3]) -> i32 {
    call(function, arguments)[0] as i32
}

fn answers(conduit: &str, call: Call) {
    say!("by {conduit}");
    let version = call(function::VERSION, [0; 3])[0];
    check!(
        "version",
        version >> 16 == 1,
        "{version:#x} is not PSCI 1.x"
    );
    let present = [
        function::VERSION,
        function::CPU_OFF,
        function::CPU_ON,
        function::AFFINITY_INFO,
        function::SYSTEM_OFF,
        function::SYSTEM_RESET,
        function::FEATURES,
    ];
    let missing = present
        .iter()
        .find(|&&f| status(call, function::FEATURES, [f.into(), 0, 0]) < 0);
    check!("features", missing.is_none(), "lacks {missing:x?}");
    let odd = UNKNOWN
        .iter()
        .find(|&&f| status(call, f, [0; 3]) != result::NOT_SUPPORTED);
    check!(
        "unknown-functions",
        odd.is_none(),
        "{odd:x?} is not refused"
    );
    let unknown = status(call, function::FEATURES, [UNKNOWN[0].into(), 0, 0]);
    report::equal("features-unknown", unknown, result::NOT_SUPPORTED);
}

fn services(machine: &Machine) {
    let version = hvc(function::SMCCC_VERSION, [0; 3])[0];
    check!(
        "smccc-version",
        (0x1_0001..0x2_0000).contains(&version),
        "{version:#x}"
    );
    let arch = |of: u32| status(hvc, function::ARCH_FEATURES, [of.into(), 0, 0]);
    report::equal(
        "arch-features",
        arch(function::SMCCC_VERSION),
        result::SUCCESS,
    );
    report::equal(
        "arch-features-unknown",
        arch(0x8000_3fff),
        result::NOT_SUPPORTED,
    );
    check!("uid", machine.gearv, "not GearV's");
    report::equal(
        "gearv-version",
        hvc(abi::GEARV_VERSION, [0; 3])[0],
        ABI_VERSION.into(),
    );
    report::equal("gear2-nop", psci::gear2_nop(), 0);
}

fn refusals(machine: &Machine) {
    let on = |mpidr: u64, entry: u64| status(hvc, function::CPU_ON, [mpidr, entry, 0]);
    let beyond = machine.cpus as u64;
    report::equal(
        "cpu-on-beyond",
        on(beyond, psci::entry()),
        result::INVALID_PARAMETERS,
    );
    report::equal(
        "cpu-on-no-such",
        on(0x7f_0000, psci::entry()),
        result::INVALID_PARAMETERS,
    );
    report::equal("cpu-on-self", on(0, psci::entry()), result::ALREADY_ON);
    report::equal(
        "affinity-beyond",
        psci::affinity_info(machine.cpus),
        result::INVALID_PARAMETERS,
    );
    report::equal("affinity-self", psci::affinity_info(0), affinity::ON);
    if machine.gearv && machine.cpus > 1 {
        report::equal("cpu-on-hole", on(1, 0x1000), result::INVALID_ADDRESS);
        report::equal(
            "cpu-on-foreign",
            on(1, machine.ram.end),
            result::INVALID_ADDRESS,
        );
        report::equal("cpu-on-huge", on(1, 1 << 52), result::INVALID_ADDRESS);
        report::equal(
            "affinity-after-refusal",
            psci::affinity_info(1),
            affinity::OFF,
        );
    }
}

/// Turns CPU 1 on and off, three times.
fn turn_on_and_off(function: u32, name: &str) {
    let on = || hvc(function, [1, psci::entry(), 1])[0] as i32;
    for _ in 0..3 {
        let before = STARTS.load(Ordering::Acquire);
        MAY_STOP.store(false, Ordering::Release);
        let off = psci::affinity_info(1);
        let first = on();
        cpu::wait_until(|| STARTS.load(Ordering::Acquire) != before);
        let (second, running) = (on(), psci::affinity_info(1));
        MAY_STOP.store(true, Ordering::Release);
        let seen = (
            off,
            first,
            second,
            running,
            AFFINITY.load(Ordering::Relaxed),
        );
        let expected = (
            affinity::OFF,
            result::SUCCESS,
            result::ALREADY_ON,
            affinity::ON,
            1,
        );
        cpu::wait_until(|| psci::affinity_info(1) == affinity::OFF);
        report::equal(name, seen, expected);
    }
}

fn other(_index: usize) {
    AFFINITY.store(
        read_sysreg!("mpidr_el1") & 0xff_00ff_ffff,
        Ordering::Relaxed,
    );
    STARTS.fetch_add(1, Ordering::Release);
    cpu::wait_until(|| MAY_STOP.load(Ordering::Acquire));
}
