//! PSCI and SMCCC as a guest may use them: answers, refusals, CPUs that go on and off, and
//! suspension. Runs with the vCPUs on two CPUs and on one, beside another VM, which is not to be
//! reached. Requirements: G1-PSCI-001 to G1-PSCI-008. G1-PSCI-002. G1-PSCI-004.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gear1_abi::{ABI_VERSION, guest as abi};
use test_guests::psci::{self, affinity, function, hvc, result, smc};
use test_guests::timer::{self, Kind};
use test_guests::{Machine, check, cpu, finish, gic, guest, read_sysreg, report, say};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// Numbers that nobody has. SMCCC has the owner in bits 29:24: 4 is Arm's standard service, 0 the
/// architecture, 6 the hypervisor's vendor, 63 a trusted OS. Bit 31 at 0 marks a yielding call.
const UNKNOWN: [u32; 6] = [
    0x8400_00ff,
    0xc400_00ff,
    0x8000_00ff,
    0x8600_00ff,
    0xbf00_0000,
    0x0000_1234,
];
/// Functions that any PSCI 1.x has.
const PRESENT: [u32; 7] = [
    function::VERSION,
    function::CPU_OFF,
    function::CPU_ON,
    function::AFFINITY_INFO,
    function::SYSTEM_OFF,
    function::SYSTEM_RESET,
    function::FEATURES,
];
/// Optional functions that GearV has. KVM offers SYSTEM_SUSPEND only where its VMM asks for it
/// (KVM_CAP_ARM_SYSTEM_SUSPEND).
const OPTIONAL: [u32; 5] = [
    function::CPU_SUSPEND,
    function::CPU_DEFAULT_SUSPEND,
    function::NODE_HW_STATE,
    function::SYSTEM_SUSPEND,
    function::SYSTEM_RESET2,
];
/// AFFINITY_INFO and CPU_ON of a CPU that runs. AFFINITY_INFO and CPU_ON must agree, as a system
/// looks at one and acts by the other.
const RUNNING: (i32, i32) = (affinity::ON, result::ALREADY_ON);
/// CPU_ON by the 32-bit convention.
const CPU_ON_32: u32 = 0x8400_0003;
/// In argument registers: bits that the 32-bit convention leaves out (SMCCC 2.6). QEMU's own
/// firmware looks at them.
const ABOVE: u64 = 0xdead_beef << 32;

/// Times that CPU 1 has come to its entry point.
static STARTS: AtomicU64 = AtomicU64::new(0);
/// CPU 1 stays on until this is set, so that CPU 0 can see it running. A CPU that turned itself off
/// at once could be seen off by a look that comes late.
static MAY_STOP: AtomicBool = AtomicBool::new(false);
/// MPIDR_EL1 as CPU 1 reads it: the name by which CPU_ON turned it on must be its own.
static AFFINITY: AtomicU64 = AtomicU64::new(0);

/// Phase of the other CPU, or of this one after its machine slept.
static PHASE: AtomicU64 = AtomicU64::new(phase::ON);
mod phase {
    /// Count the start and wait.
    pub(super) const ON: u64 = 0;
    /// CPU 1: suspend, several times.
    pub(super) const SUSPEND: u64 = 1;
    /// CPU 0: the CPU was woken with the machine.
    pub(super) const SYSTEM: u64 = 2;
}
/// Times that CPU 1 was woken, and checks of it that failed.
static WOKEN: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// Whether CPU 1 has been turned on for its suspensions. Each wake-up comes to the same entry point
/// as the start.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Compare value of the timer that wakes the machine.
static DEADLINE: AtomicU64 = AtomicU64::new(0);

/// A conduit: HVC and SMC take the same registers (SMCCC).
type Call = fn(u32, [u64; 3]) -> [u64; 4];

/// By HVC alone where there is no GearV: QEMU's own firmware takes no SMC from EL1 then.
fn main(machine: &Machine) {
    answers("hvc", hvc);
    if machine.gearv {
        answers("smc", smc);
        services(machine);
    }
    refusals(machine);
    if machine.cpus < 2 {
        say!("one CPU: CPU_ON is not tried");
        return;
    }
    turn_on_and_off(function::CPU_ON, 0, "cpu-on");
    turn_on_and_off(CPU_ON_32, 0, "cpu-on-32");
    if machine.gearv {
        check_gearv(machine);
    }
}

/// Checks what GearV's PSCI offers beyond turning CPUs on and off. The order matters: the last one
/// ends in another function.
fn check_gearv(machine: &Machine) {
    turn_on_and_off(CPU_ON_32, ABOVE, "cpu-on-32-above");
    levels();
    optional();
    suspend_refusals(machine);
    standby();
    suspends();
    // Goes on in `other`.
    suspend_system();
}

/// Results are signed words in W0 (DEN 0022, return codes). Linux takes them so
/// (`psci_to_linux_errno`).
fn status(call: Call, function: u32, arguments: [u64; 3]) -> i32 {
    call(function, arguments)[0] as i32
}

/// PSCI_FEATURES has to know every function that is there, and PSCI_VERSION to be 1.0 or more.
/// Linux looks for functions by PSCI_FEATURES from 1.0 on, and takes a refusal for their absence.
fn answers(conduit: &str, call: Call) {
    say!("by {conduit}");
    let version = call(function::VERSION, [0; 3])[0];
    let is_1 = version >> 16 == 1;
    check!("version", is_1, "{version:#x} is not PSCI 1.x");
    let mut present = PRESENT.iter();
    let missing = present.find(|&&f| status(call, function::FEATURES, [f.into(), 0, 0]) < 0);
    check!("features", missing.is_none(), "lacks {missing:x?}");
    let mut unknown = UNKNOWN.iter();
    let odd = unknown.find(|&&f| status(call, f, [0; 3]) != result::NOT_SUPPORTED);
    let refused = odd.is_none();
    check!("unknown-functions", refused, "{odd:x?} is not refused");
    let unknown = status(call, function::FEATURES, [UNKNOWN[0].into(), 0, 0]);
    report::equal("features-unknown", unknown, result::NOT_SUPPORTED);
}

/// SMCCC_ARCH_FEATURES is how Linux finds firmware's workarounds.
fn services(machine: &Machine) {
    let version = hvc(function::SMCCC_VERSION, [0; 3])[0];
    let is_1_1 = (0x1_0001..0x2_0000).contains(&version);
    check!("smccc-version", is_1_1, "{version:#x}");
    let arch = |of: u32| status(hvc, function::ARCH_FEATURES, [of.into(), 0, 0]);
    let known = arch(function::SMCCC_VERSION);
    report::equal("arch-features", known, result::SUCCESS);
    let unknown = arch(UNKNOWN[2]);
    report::equal("arch-features-unknown", unknown, result::NOT_SUPPORTED);
    check!("uid", machine.gearv, "not GearV's");
    let version = hvc(abi::GEARV_VERSION, [0; 3])[0];
    report::equal("gearv-version", version, ABI_VERSION.into());
    report::equal("gear2-nop", psci::gear2_nop(), 0);
}

/// INVALID_PARAMETERS for a CPU that is not there, ALREADY_ON for one that runs. An MPIDR with a
/// bit outside of the affinity fields names no CPU: it must not be cut to one that is there.
fn refusals(machine: &Machine) {
    let (entry, beyond) = (psci::entry(), machine.cpus as u64);
    cpu_on("cpu-on-beyond", [beyond, entry], result::INVALID_PARAMETERS);
    let no_such = [0x7f_0000, entry];
    cpu_on("cpu-on-no-such", no_such, result::INVALID_PARAMETERS);
    cpu_on("cpu-on-self", [0, entry], result::ALREADY_ON);
    let info = psci::affinity_info(machine.cpus);
    report::equal("affinity-beyond", info, result::INVALID_PARAMETERS);
    report::equal("affinity-self", psci::affinity_info(0), affinity::ON);
    if machine.gearv {
        let above = [1 | ABOVE, entry];
        cpu_on("cpu-on-above", above, result::INVALID_PARAMETERS);
    }
    if machine.gearv && machine.cpus > 1 {
        entry_refusals(machine);
    }
}

/// Entry points that are no memory of the VM's, after which the CPU is still off. INVALID_ADDRESS
/// is what PSCI 1.0 added for entry points. The addresses are in a hole, in another VM's memory,
/// and beyond all of memory.
fn entry_refusals(machine: &Machine) {
    cpu_on("cpu-on-hole", [1, 0x1000], result::INVALID_ADDRESS);
    let foreign = [1, machine.ram.end];
    cpu_on("cpu-on-foreign", foreign, result::INVALID_ADDRESS);
    cpu_on("cpu-on-huge", [1, 1 << 52], result::INVALID_ADDRESS);
    let info = psci::affinity_info(1);
    report::equal("affinity-after-refusal", info, affinity::OFF);
}

/// Checks the result of CPU_ON, with an MPIDR and an entry point.
fn cpu_on(name: &str, [mpidr, entry]: [u64; 2], expected: i32) {
    let result = status(hvc, function::CPU_ON, [mpidr, entry, 0]);
    report::equal(name, result, expected);
}

/// Turns CPU 1 on and off, three times, with `above` set in all arguments. Three times, because a
/// second start after CPU_OFF takes other ways than a first one. G1-PSCI-004: nothing is ever
/// pending here. The context, 1, comes back in X0: the library takes the CPU's stack from it.
fn turn_on_and_off(function: u32, above: u64, name: &str) {
    let arguments = [1, psci::entry(), 1].map(|argument| argument | above);
    let on = || hvc(function, arguments)[0] as i32;
    for _ in 0..3 {
        let before = STARTS.load(Ordering::Acquire);
        MAY_STOP.store(false, Ordering::Release);
        let off = psci::affinity_info(1);
        let first = on();
        cpu::wait_until(|| first != result::SUCCESS || STARTS.load(Ordering::Acquire) != before);
        let (second, running) = (on(), psci::affinity_info(1));
        MAY_STOP.store(true, Ordering::Release);
        let states = (off, running, AFFINITY.load(Ordering::Relaxed));
        cpu::wait_until(|| psci::affinity_info(1) == affinity::OFF);
        let results = (result::SUCCESS, result::ALREADY_ON);
        let expected = (results, (affinity::OFF, affinity::ON, 1));
        report::equal(name, ((first, second), states), expected);
    }
}

/// Every start comes here, of CPU_ON and of a suspension that powered down.
fn other(index: usize) {
    match (index, PHASE.load(Ordering::Acquire)) {
        (1, phase::SUSPEND) => return suspend_cpu(),
        (0, phase::SYSTEM) => return after_system_suspend(),
        _ => {}
    }
    AFFINITY.store(
        read_sysreg!("mpidr_el1") & 0xff_00ff_ffff,
        Ordering::Relaxed,
    );
    STARTS.fetch_add(1, Ordering::Release);
    cpu::wait_until(|| MAY_STOP.load(Ordering::Acquire));
}

/// Power states of CPU_SUSPEND in the original format (Arm DEN 0022): bit 16 is the type, 0 for
/// standby and 1 for power-down. All other fields are 0 here.
const STANDBY: u64 = 0;
const POWER_DOWN: u64 = 1 << 16;
const SGI: u32 = 5;
/// Long beside the way to sleep, or the interrupt would be due before the call.
const SLEEP_US: u64 = 3000;

/// Negative: not there. Otherwise flags.
fn features(function: u32) -> i32 {
    status(hvc, function::FEATURES, [function.into(), 0, 0])
}

/// AFFINITY_INFO and NODE_HW_STATE above a CPU (G1-PSCI-005). Affinity levels above 0 stand for
/// groups of CPUs; a group is on while one of its CPUs is. A target is compared above its level
/// only: the bits below are ignored.
fn levels() {
    let info = |target: u64, level: u64| status(hvc, function::AFFINITY_INFO, [target, level, 0]);
    let cases = [
        (0, 1, affinity::ON),
        (0xff, 1, affinity::ON),
        (0xff_ffff, 3, affinity::ON),
        (0x100, 1, result::INVALID_PARAMETERS),
        (0x100, 0, result::INVALID_PARAMETERS),
        (0, 4, result::INVALID_PARAMETERS),
    ];
    let wrong = cases
        .into_iter()
        .find(|&(target, level, expected)| info(target, level) != expected);
    check!("affinity-levels", wrong.is_none(), "{wrong:x?}");
    let node = |target: u64, level: u64| status(hvc, function::NODE_HW_STATE, [target, level, 0]);
    let states = (node(0, 0), node(1, 0), node(2, 0), node(0, 1));
    let expected = (0, 1, result::INVALID_PARAMETERS, result::INVALID_PARAMETERS);
    report::equal("node-hw-state", states, expected);
}

/// Announced functions answer, others return NOT_SUPPORTED (G1-PSCI-003). A function that answers
/// and is not announced would be used by nobody, and one that is announced and does not answer
/// breaks who trusts it.
fn optional() {
    // The 32-bit forms are announced as well; the flags of CPU_SUSPEND are 0.
    let mut there = OPTIONAL.into_iter();
    let missing = there.find(|&f| features(f) != 0 || features(f & !0x4000_0000) != 0);
    check!("optional-there", missing.is_none(), "lacks {missing:x?}");
    // Migration, freezing, OS-initiated mode, statistics, memory protection.
    let absent = [5, 7, 0xb, 0xf, 0x10, 0x11, 0x13, 0x14];
    let mut absent = absent
        .into_iter()
        .flat_map(|number| [0x8400_0000 + number, 0xc400_0000 + number]);
    let odd = absent.find(|&f| {
        features(f) != result::NOT_SUPPORTED || status(hvc, f, [0; 3]) != result::NOT_SUPPORTED
    });
    check!("optional-absent", odd.is_none(), "{odd:x?} is there");
    let vendor = status(hvc, function::SYSTEM_RESET2, [1 << 31, 0, 0]);
    report::equal("reset2-type", vendor, result::INVALID_PARAMETERS);
}

/// Checks that a wrong power state or entry point is refused at once. A CPU that slept first and
/// failed at its wake-up could tell nobody. Bits of the original format that are reserved must be
/// zero (DEN 0022, CPU_SUSPEND).
fn suspend_refusals(machine: &Machine) {
    let entry = psci::entry();
    let suspend = |state: u64, entry: u64| status(hvc, function::CPU_SUSPEND, [state, entry, 0]);
    let bad_state = suspend(POWER_DOWN | 1 << 31, entry);
    report::equal("suspend-state", bad_state, result::INVALID_PARAMETERS);
    for wrong in [machine.ram.end, 0x1000, 1 << 52, entry + 2] {
        let refused = [
            suspend(POWER_DOWN, wrong),
            status(hvc, function::CPU_DEFAULT_SUSPEND, [wrong, 0, 0]),
            status(hvc, function::SYSTEM_SUSPEND, [wrong, 0, 0]),
            status(hvc, function::CPU_ON, [1, wrong, 0]),
        ];
        report::equal("entry-refused", refused, [result::INVALID_ADDRESS; 4]);
    }
}

/// CPU_SUSPEND of a standby state returns once an interrupt is due, of either timer. A standby
/// state keeps all registers, and the second call checks that a due interrupt is enough not to
/// sleep. KVM takes every CPU_SUSPEND for WFI. Here a look at the counter tells that the call did
/// wait.
fn standby() {
    for kind in [Kind::Virtual, Kind::Physical] {
        gic::enable(kind.intid());
        let deadline = kind.now() + timer::from_us(SLEEP_US);
        kind.set_compare(deadline);
        kind.set_control(1);
        let result = status(hvc, function::CPU_SUSPEND, [STANDBY, 0, 0]);
        let woken = kind.now();
        // The interrupt is still due: the CPU does not wait again.
        let again = status(hvc, 0x8400_0001, [STANDBY, 0, 0]);
        kind.set_control(0);
        take_pending();
        report::equal("standby", [result, again], [result::SUCCESS; 2]);
        check!(
            "standby-waits",
            woken >= deadline,
            "{woken} before {deadline}"
        );
    }
}

/// Takes and ends the interrupt that is pending, if one is. The interrupt was never taken by an
/// exception, as interrupts are masked here.
fn take_pending() {
    let intid = gic::acknowledge();
    if gic::is_real(intid) {
        gic::end(intid);
    }
}

/// CPU 1 powers down, and is on all the while (G1-PSCI-006). A suspended CPU is on for
/// AFFINITY_INFO and CPU_ON; another CPU must not be able to start it at an entry point of its own.
fn suspends() {
    PHASE.store(phase::SUSPEND, Ordering::Release);
    just_turned_on();
    // Timers wake CPU 1 twice; then it waits for an SGI.
    wait_for(|| WOKEN.load(Ordering::Acquire) == 2);
    timer::sleep_us(SLEEP_US);
    let suspended = (psci::affinity_info(1), psci::cpu_on(1));
    report::equal("suspended-is-on", suspended, RUNNING);
    let system = status(hvc, function::SYSTEM_SUSPEND, [psci::entry(), 0, 0]);
    report::equal("system-suspend-denied", system, result::DENIED);
    report::equal("sleeps", WOKEN.load(Ordering::Acquire), 2);
    gic::send_sgi(1, SGI);
    wait_for(|| psci::affinity_info(1) == affinity::OFF);
    let seen = (WOKEN.load(Ordering::Acquire), WRONG.load(Ordering::Acquire));
    report::equal("power-down", seen, (3, 0));
}

/// Turns CPU 1 on, and then looks at AFFINITY_INFO and turns it on once more. On one CPU, the other
/// vCPU has not run yet; on two it may have. Other firmware may need time, in which the start is
/// pending (Arm DEN 0022, 5.6).
fn just_turned_on() {
    let first = psci::cpu_on(1);
    let states = (psci::affinity_info(1), psci::cpu_on(1));
    let pending = (affinity::ON_PENDING, result::ON_PENDING);
    let becomes_on = (affinity::ON_PENDING, result::ALREADY_ON);
    let legal =
        states == RUNNING || !psci::is_gearv() && (states == pending || states == becomes_on);
    say!("just turned on: {states:?}");
    check!("just-turned-on", first == 0 && legal, "{first}, {states:?}");
}

/// Waits in WFI, which lets the other one run where both share a CPU. A spin would keep the vCPU
/// that is waited for from its CPU.
fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        timer::sleep_us(100);
    }
}

/// CPU 1: powers down until its virtual timer, then its physical timer, then an SGI wakes it.
/// Power-down loses all registers, so the phase is read from memory.
fn suspend_cpu() {
    if !STARTED.swap(true, Ordering::AcqRel) {
        return suspend_until(Kind::Virtual);
    }
    let round = WOKEN.load(Ordering::Acquire);
    woken_by_timer(round);
    WOKEN.store(round + 1, Ordering::Release);
    match round {
        0 => suspend_until(Kind::Physical),
        1 => {
            gic::enable(SGI);
            let _ = hvc(function::CPU_DEFAULT_SUSPEND, [psci::entry(), 1, 0]);
            refused();
        }
        _ => {}
    }
}

/// Checks that CPU 1 was woken by the awaited interrupt, with the timers as they were and the MMU
/// on. A control of 5 is ENABLE and ISTATUS: the timer went on while its vCPU was down
/// (G1-TIM-009).
fn woken_by_timer(round: u64) {
    let kind = if round == 0 {
        Kind::Virtual
    } else {
        Kind::Physical
    };
    if round < 2 && kind.control() != 5 || read_sysreg!("sctlr_el1") & 1 == 0 {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
    kind.set_control(0);
    // After `gic::init_cpu`, no interrupt is enabled, and pending ones stay pending.
    gic::write_bit(gic::register::ICPENDR, kind.intid());
}

/// CPU 1: powers down until a timer wakes it.
fn suspend_until(kind: Kind) {
    gic::enable(kind.intid());
    kind.set_compare(kind.now() + timer::from_us(SLEEP_US));
    kind.set_control(1);
    let _ = hvc(function::CPU_SUSPEND, [POWER_DOWN, psci::entry(), 1]);
    refused();
}

/// Notes that a call came back which should have powered down. The number is large, to be told from
/// checks of a wake-up.
fn refused() {
    WRONG.fetch_add(100, Ordering::Relaxed);
}

/// The last CPU that is on suspends the machine until its timer wakes it (G1-PSCI-007). CPU 1 is
/// off by now, which SYSTEM_SUSPEND demands.
fn suspend_system() {
    PHASE.store(phase::SYSTEM, Ordering::Release);
    gic::enable(timer::INTID);
    let deadline = timer::now() + timer::from_us(SLEEP_US);
    DEADLINE.store(deadline, Ordering::Relaxed);
    timer::arm(deadline);
    let result = status(hvc, function::SYSTEM_SUSPEND, [psci::entry(), 0, 0]);
    report::equal("system-suspend", result, result::SUCCESS);
}

/// Ends the test behind the wake-up of the machine, which comes to the entry point and not to the
/// caller.
fn after_system_suspend() {
    let deadline = DEADLINE.load(Ordering::Relaxed);
    check!(
        "system-suspend",
        timer::now() >= deadline,
        "woken too early"
    );
    timer::disarm();
    finish()
}
