//! The tests that run on the target: one row a manifest in `tests/manifests`.
//!
//! To add one: write a guest in `tests/guests/src/bin`, a manifest that names it as
//! `artifact:guest:<bin>`, and a row here.
//!
//! A row on several models depends on what the CPU has; the others would find the same anywhere.

mod features;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetTest {
    /// The stem of the manifest's file.
    pub(super) manifest: &'static str,
    /// Guest that also runs without GearV, on the first of the models, to show that real machines
    /// meet its expectations.
    pub(super) native: Option<&'static str>,
    /// The CPU models that it runs on, one run each.
    pub(super) models: &'static [&'static str],
    /// Further models, which it runs on with `--slow` alone.
    pub(super) slow_models: &'static [&'static str],
    /// Whether the row also runs with a GICv2, on the first of the models.
    pub(super) gicv2: bool,
    /// The number of the machine's CPUs.
    pub(super) cpus: u32,
    /// Whether time is counted in instructions, for tests that measure: each figure is the same on
    /// a busy host.
    pub(super) icount: bool,
    /// With that, the longest turn of a CPU in microseconds.
    pub(super) turn_us: Option<u32>,
    /// Properties of the CPU model, each with a comma before it.
    pub(super) cpu_properties: &'static str,
    /// The most seconds that a run takes.
    pub(super) timeout_s: u64,
    /// Number of guests that print `DONE`. A guest that spins for others' sake prints none.
    pub(super) guests: usize,
    /// Least number of checks in all guests: a guest that leaves out some must not pass.
    pub(super) passes: usize,
    /// Texts that the terminal must show in the end: what Gear2 says, which no guest can check.
    pub(super) says: &'static [&'static str],
    /// Whether only `--slow` runs it.
    pub(super) slow: bool,
}

/// Row that others are made from.
pub(super) const DEFAULT: TargetTest = TargetTest {
    manifest: "",
    native: None,
    models: &["cortex-a57"],
    slow_models: &[],
    gicv2: false,
    cpus: 2,
    icount: false,
    turn_us: None,
    cpu_properties: "",
    timeout_s: 60,
    guests: 1,
    passes: 1,
    says: &[],
    slow: false,
};

/// The CPU models that what depends on the model runs on.
const MODELS: &[&str] = &["cortex-a57", "max"];
/// Models beside these that `--slow` adds. QEMU gives its Cortex-A72 the features of its
/// Cortex-A57; rows on all models show in each run that Gear1 takes its identification registers.
const SLOW_MODELS: &[&str] = &["cortex-a72"];
/// All models that GearV is tested on, the one with the most features first. `max` has physical
/// addresses of 52 bits, the Cortex-A53 of 40.
const ALL_MODELS: &[&str] = &[
    "max",
    "cortex-a53",
    "cortex-a57",
    "cortex-a72",
    "neoverse-n1",
];

/// Returns all rows.
pub(super) fn target_tests() -> impl Iterator<Item = &'static TargetTest> {
    ROWS.iter().chain(features::ROWS)
}

const ROWS: &[TargetTest] = &[
    // The VM behind the guest is whom a target beyond the guest's own vCPUs would reach.
    TargetTest {
        manifest: "psci",
        gicv2: true,
        native: Some("psci"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        guests: 2,
        passes: 59,
        ..DEFAULT
    },
    // On one CPU a vCPU that was turned on has not run yet when the caller looks at it.
    TargetTest {
        manifest: "psci-shared",
        cpus: 1,
        guests: 2,
        passes: 59,
        ..DEFAULT
    },
    // A guest without an initial RAM disk and one with one: each has checks of its own.
    TargetTest {
        manifest: "device-tree",
        gicv2: true,
        native: Some("device_tree"),
        cpus: 1,
        guests: 2,
        passes: 8 + 9,
        ..DEFAULT
    },
    // With a CPU for each vCPU the hardware's timers run on while others wait.
    TargetTest {
        manifest: "timers",
        native: Some("timers"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        gicv2: true,
        ..DEFAULT
    },
    // On one CPU a timer becomes due while its vCPU is unloaded. The second VM has another offset.
    TargetTest {
        manifest: "timers-shared",
        guests: 2,
        passes: 2 * 78,
        says: &["the other vCPU took its time"],
        gicv2: true,
        models: &["cortex-a57", "max"],
        cpus: 1,
        ..DEFAULT
    },
    // Both versions of the controller have these basics in common.
    TargetTest {
        manifest: "gic",
        gicv2: true,
        native: Some("gic"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        ..DEFAULT
    },
    // QEMU's own controller is the reference, where the manuals leave no choice.
    TargetTest {
        manifest: "gic-registers",
        gicv2: true,
        native: Some("gic_registers"),
        passes: 50,
        ..DEFAULT
    },
    // More interrupts than list registers, of which QEMU's CPUs have four.
    TargetTest {
        manifest: "gic-states",
        gicv2: true,
        native: Some("gic_states"),
        passes: 50,
        ..DEFAULT
    },
    // A CPU for each vCPU. Turns of four CPUs on a busy host are why the limit is wide.
    TargetTest {
        manifest: "gic-smp",
        gicv2: true,
        native: Some("gic_smp"),
        cpus: 4,
        timeout_s: 120,
        passes: 8,
        ..DEFAULT
    },
    // The most vCPUs that a VM has, on fewer CPUs.
    TargetTest {
        manifest: "gic-smp-8",
        gicv2: true,
        timeout_s: 120,
        passes: 8,
        ..DEFAULT
    },
    // Counts that are no power of two: a mask of all vCPUs must not be rounded up.
    TargetTest {
        manifest: "gic-smp-odd",
        gicv2: true,
        timeout_s: 180,
        guests: 4,
        passes: 32,
        ..DEFAULT
    },
    // Checks are the bystander's as well, whose interrupts must be right all the time.
    TargetTest {
        manifest: "gic-stress",
        gicv2: true,
        timeout_s: 120,
        guests: 2,
        passes: 30,
        ..DEFAULT
    },
    // Models differ in the size of the address space that is attacked.
    TargetTest {
        manifest: "isolation",
        gicv2: true,
        native: Some("isolation"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        guests: 2,
        ..DEFAULT
    },
    // Four roles: two VMs write the memory, one reads it, one has nothing of it.
    TargetTest {
        manifest: "shared",
        gicv2: true,
        guests: 4,
        passes: 15,
        ..DEFAULT
    },
    // Turns of 10 us have a flood and its receiver run as if at once.
    TargetTest {
        manifest: "doorbell",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        guests: 2,
        passes: 12,
        ..DEFAULT
    },
    // Exits of the real-time VM are counted exactly, which takes icount.
    TargetTest {
        manifest: "doorbell-rt",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        passes: 6,
        ..DEFAULT
    },
    // 100,000 rings for what is rare.
    TargetTest {
        manifest: "doorbell-rt-long",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        timeout_s: 600,
        passes: 6,
        slow: true,
        ..DEFAULT
    },
    // The identification that a guest sees follows from the CPU's, so this row has all models.
    TargetTest {
        manifest: "cpu",
        gicv2: true,
        native: Some("cpu"),
        models: ALL_MODELS,
        passes: 49,
        ..DEFAULT
    },
    // Of the models `max` alone has FEAT_EVT, which the trap of IC IALLUIS belongs to.
    TargetTest {
        manifest: "icache",
        gicv2: true,
        models: &["max"],
        cpus: 3,
        icount: true,
        passes: 14,
        ..DEFAULT
    },
    // The guest's tables lie in device registers: a walk of Gear1's reads them, or aborts.
    TargetTest {
        manifest: "walks",
        gicv2: true,
        passes: 4,
        ..DEFAULT
    },
    // Each of three ways to be stuck ends a life. The VM `stuck` is not started again after its
    // first.
    TargetTest {
        manifest: "faults",
        gicv2: true,
        native: Some("faults"),
        models: ALL_MODELS,
        passes: 12,
        says: &[
            "faults vCPU 0 cannot go on: its exception handler cannot be fetched; PC 0xf0000200, SPSR 0x",
            "faults vCPU 0 cannot go on: its exception handler accesses what is not there",
            "faults vCPU 0 cannot go on: its exception handler uses what its CPU does not have",
            "faults restarted",
            "stuck vCPU 0 cannot go on: its exception handler cannot be fetched; PC 0xf0000200",
            "stuck stopped",
        ],
        ..DEFAULT
    },
    // Two restarts, then the standby: each step is told.
    TargetTest {
        manifest: "supervised",
        gicv2: true,
        guests: 2,
        passes: 4,
        says: &[
            "main is given up: it was restarted 2 times already",
            "main fails over: limp-home is started in its place",
            "limp-home started",
        ],
        ..DEFAULT
    },
    // A real-time VM hears of each end without an exit, which it counts itself.
    TargetTest {
        manifest: "supervised-rt",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        passes: 3,
        ..DEFAULT
    },
    // A silence of 2 ms ends the VM, so turns of QEMU's CPUs must be much shorter than that.
    TargetTest {
        manifest: "heartbeat",
        gicv2: true,
        cpus: 4,
        icount: true,
        turn_us: Some(10),
        cpu_properties: ",cntfrq=1000000000",
        passes: 17,
        ..DEFAULT
    },
    // With the virtual controller Gear1 stops the VM's CPUs in another way than with pass-through.
    TargetTest {
        manifest: "heartbeat-emulated",
        slow: true,
        cpus: 4,
        icount: true,
        turn_us: Some(10),
        cpu_properties: ",cntfrq=1000000000",
        passes: 17,
        ..DEFAULT
    },
    // On one CPU: what a guest arms is there when Gear2 runs.
    TargetTest {
        manifest: "debug",
        native: Some("debug"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 1,
        ..DEFAULT
    },
    TargetTest {
        manifest: "debug-own",
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 1,
        ..DEFAULT
    },
    // Gear2 at EL1 is at the exception level that a guest's breakpoints are made for.
    TargetTest {
        manifest: "debug-own-el1",
        cpus: 1,
        ..DEFAULT
    },
    // Two instances on one CPU: each wait of one runs the other.
    TargetTest {
        manifest: "registers",
        native: Some("registers"),
        cpus: 1,
        guests: 2,
        ..DEFAULT
    },
    // Part of `gear2_registers.rs`, which looks at Gear2 meanwhile; here the guest itself is
    // judged.
    TargetTest {
        manifest: "secrets",
        gicv2: true,
        native: Some("secrets"),
        cpus: 1,
        guests: 2,
        passes: 2,
        ..DEFAULT
    },
    TargetTest {
        manifest: "ffa",
        // The A72 shares all that FF-A depends on with the A57.
        models: &["cortex-a57", "max"],
        guests: 2,
        passes: 500,
        ..DEFAULT
    },
    // A CPU for each vCPU: one that never leaves its guest keeps its TLB entries.
    TargetTest {
        manifest: "tlb",
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 4,
        guests: 2,
        passes: 20,
        ..DEFAULT
    },
    // FP registers change hands only where two guests share a CPU.
    TargetTest {
        manifest: "fp",
        gicv2: true,
        native: Some("fp"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 1,
        guests: 2,
        ..DEFAULT
    },
    // A wake-up that is lost shows as a hang, so the limit is wide.
    TargetTest {
        manifest: "wfi-smp",
        gicv2: true,
        native: Some("wfi_smp"),
        timeout_s: 180,
        ..DEFAULT
    },
    // A vCPU that is woken may have to wait for the one that woke it.
    TargetTest {
        manifest: "wfi-smp-shared",
        gicv2: true,
        cpus: 1,
        timeout_s: 180,
        ..DEFAULT
    },
    // The balancer moves vCPUs between their wake-ups.
    TargetTest {
        manifest: "wfi-smp-moves",
        gicv2: true,
        timeout_s: 180,
        guests: 3,
        passes: 12,
        ..DEFAULT
    },
    // One tick an instruction: the guest's sweep has its timer due at each instruction of Gear1's
    // way.
    TargetTest {
        manifest: "wfi-timer",
        gicv2: true,
        models: &["max", "cortex-a57"],
        cpus: 1,
        icount: true,
        cpu_properties: ",cntfrq=1000000000",
        passes: 4,
        ..DEFAULT
    },
    // `bench --sched` needs the guest in all its roles; figures are not judged here.
    TargetTest {
        manifest: "sched",
        native: Some("sched"),
        gicv2: true,
        models: &["max"],
        cpus: 1,
        icount: true,
        cpu_properties: ",cntfrq=1000000000",
        guests: 4,
        passes: 4,
        says: &[
            "SCHED role=periodic id=0",
            "SCHED role=spin id=1 cpu=1",
            "SCHED role=burst id=2",
            "SCHED role=window id=3",
        ],
        ..DEFAULT
    },
    // Half of the CPU each, in instructions: no busy host changes the share.
    TargetTest {
        manifest: "spin",
        cpus: 1,
        icount: true,
        guests: 2,
        ..DEFAULT
    },
    // The example of CONTRIBUTING.md.
    TargetTest {
        manifest: "first-steps",
        native: Some("first_steps"),
        passes: 2,
        ..DEFAULT
    },
    TargetTest {
        manifest: "control-loop",
        gicv2: true,
        models: &["cortex-a57", "max"],
        icount: true,
        // Else the other CPU's turns take longer than a period.
        turn_us: Some(50),
        timeout_s: 180,
        says: &["control loop: 300 periods, at most "],
        ..DEFAULT
    },
    // Work of 3.5 ms once: the guest must count the periods that it missed.
    TargetTest {
        manifest: "control-late",
        cpus: 1,
        icount: true,
        ..DEFAULT
    },
    // Alone on the machine, as an interrupt of others would be an exit more.
    TargetTest {
        manifest: "counters",
        gicv2: true,
        cpus: 1,
        icount: true,
        ..DEFAULT
    },
    // Under icount each boot takes the same time, so the number of resets is known.
    TargetTest {
        manifest: "reboot",
        gicv2: true,
        native: Some("reboot"),
        cpus: 1,
        icount: true,
        passes: 6,
        ..DEFAULT
    },
    // Two checks of each bystander and of the saboteur, and three for each way to fail.
    TargetTest {
        manifest: "gear2-fails",
        gicv2: true,
        models: MODELS,
        slow_models: SLOW_MODELS,
        icount: true,
        guests: 3,
        passes: 2 + 2 + 2 + 5 * 3,
        says: &[
            "gear2: restarted, 1 in all: CPU 0 did not come back",
            "gear2: restarted, 2 in all: CPU 0 made a fault",
            "gear2: restarted, 5 in all: CPU 0 gave up",
        ],
        ..DEFAULT
    },
    // Gear2 at EL1 has the guest's EL1 registers switched at each exit, those of a fault too.
    TargetTest {
        manifest: "faults-el1",
        gicv2: true,
        models: MODELS,
        slow_models: SLOW_MODELS,
        ..DEFAULT
    },
    TargetTest {
        manifest: "fp-el1",
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 1,
        guests: 2,
        ..DEFAULT
    },
    TargetTest {
        manifest: "bench-el1",
        icount: true,
        cpu_properties: ",cntfrq=1000000000",
        ..DEFAULT
    },
    // Figures are those of `cargo xtask bench`; this row shows that the guest works.
    TargetTest {
        manifest: "bench",
        native: Some("bench"),
        icount: true,
        cpu_properties: ",cntfrq=1000000000",
        ..DEFAULT
    },
    // Two CPUs of the VM's own, and Gear2's with a guest that spins.
    TargetTest {
        manifest: "rt-passthrough",
        gicv2: true,
        native: Some("realtime"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 3,
        passes: 15,
        ..DEFAULT
    },
    // The virtual controller has no interrupt of others within reach, so checks are fewer.
    TargetTest {
        manifest: "rt-emulated",
        gicv2: true,
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 3,
        passes: 10,
        ..DEFAULT
    },
];
