//! The tests that run on the target: one row a manifest in `tests/manifests`.
//!
//! To add one: write a guest in `tests/guests/src/bin`, a manifest that names it as
//! `artifact:guest:<bin>`, and a row here.

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
    /// Whether time is counted in instructions, for tests that measure.
    pub(super) icount: bool,
    /// With that, the longest turn of a CPU in microseconds.
    pub(super) turn_us: Option<u32>,
    /// Properties of the CPU model, each with a comma before it.
    pub(super) cpu_properties: &'static str,
    /// The most seconds that a run takes.
    pub(super) timeout_s: u64,
    /// Number of guests that print `DONE`.
    pub(super) guests: usize,
    /// Least number of checks in all guests.
    pub(super) passes: usize,
    /// Texts that the terminal must show in the end.
    pub(super) says: &'static [&'static str],
    /// Whether only `--slow` runs it.
    pub(super) slow: bool,
}

/// Row that others are made from.
const DEFAULT: TargetTest = TargetTest {
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
/// Models beside these that `--slow` adds. QEMU gives its Cortex-A72 the features of its Cortex-A57;
/// rows on all models show in each run that Gear1 takes its identification registers.
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

/// All rows.
pub(super) const TARGET_TESTS: &[TargetTest] = &[
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
    TargetTest {
        manifest: "psci-shared",
        cpus: 1,
        guests: 2,
        passes: 59,
        ..DEFAULT
    },
    TargetTest {
        manifest: "device-tree",
        gicv2: true,
        native: Some("device_tree"),
        cpus: 1,
        guests: 2,
        passes: 8 + 9,
        ..DEFAULT
    },
    TargetTest {
        manifest: "timers",
        native: Some("timers"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        gicv2: true,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "gic",
        gicv2: true,
        native: Some("gic"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-registers",
        gicv2: true,
        native: Some("gic_registers"),
        passes: 50,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-states",
        gicv2: true,
        native: Some("gic_states"),
        passes: 50,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-smp",
        gicv2: true,
        native: Some("gic_smp"),
        cpus: 4,
        timeout_s: 120,
        passes: 8,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-smp-8",
        gicv2: true,
        timeout_s: 120,
        passes: 8,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-smp-odd",
        gicv2: true,
        timeout_s: 180,
        guests: 4,
        passes: 32,
        ..DEFAULT
    },
    TargetTest {
        manifest: "gic-stress",
        gicv2: true,
        timeout_s: 120,
        guests: 2,
        passes: 30,
        ..DEFAULT
    },
    TargetTest {
        manifest: "isolation",
        gicv2: true,
        native: Some("isolation"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        guests: 2,
        ..DEFAULT
    },
    TargetTest {
        manifest: "shared",
        gicv2: true,
        guests: 4,
        passes: 15,
        ..DEFAULT
    },
    TargetTest {
        manifest: "doorbell",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        guests: 2,
        passes: 12,
        ..DEFAULT
    },
    TargetTest {
        manifest: "doorbell-rt",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        passes: 6,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "cpu",
        gicv2: true,
        native: Some("cpu"),
        models: ALL_MODELS,
        passes: 49,
        ..DEFAULT
    },
    TargetTest {
        manifest: "icache",
        gicv2: true,
        models: &["max"],
        cpus: 3,
        icount: true,
        passes: 14,
        ..DEFAULT
    },
    TargetTest {
        manifest: "walks",
        gicv2: true,
        passes: 4,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "supervised-rt",
        gicv2: true,
        icount: true,
        turn_us: Some(10),
        passes: 3,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "heartbeat-emulated",
        cpus: 4,
        icount: true,
        turn_us: Some(10),
        cpu_properties: ",cntfrq=1000000000",
        passes: 17,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "debug-own-el1",
        cpus: 1,
        ..DEFAULT
    },
    TargetTest {
        manifest: "rt-monitors",
        gicv2: true,
        models: &["cortex-a57", "max"],
        icount: true,
        passes: 20,
        ..DEFAULT
    },
    TargetTest {
        manifest: "monitors",
        native: Some("monitors"),
        models: MODELS,
        slow_models: SLOW_MODELS,
        gicv2: true,
        cpus: 1,
        icount: true,
        guests: 3,
        passes: 2 * 28 + 4,
        ..DEFAULT
    },
    TargetTest {
        manifest: "registers",
        native: Some("registers"),
        cpus: 1,
        guests: 2,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "tlb",
        models: MODELS,
        slow_models: SLOW_MODELS,
        cpus: 4,
        guests: 2,
        passes: 20,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "wfi-smp",
        gicv2: true,
        native: Some("wfi_smp"),
        timeout_s: 180,
        ..DEFAULT
    },
    TargetTest {
        manifest: "wfi-smp-shared",
        gicv2: true,
        cpus: 1,
        timeout_s: 180,
        ..DEFAULT
    },
    TargetTest {
        manifest: "wfi-smp-moves",
        gicv2: true,
        timeout_s: 180,
        guests: 3,
        passes: 12,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "control-late",
        cpus: 1,
        icount: true,
        ..DEFAULT
    },
    TargetTest {
        manifest: "counters",
        gicv2: true,
        cpus: 1,
        icount: true,
        ..DEFAULT
    },
    TargetTest {
        manifest: "reboot",
        gicv2: true,
        native: Some("reboot"),
        cpus: 1,
        icount: true,
        passes: 6,
        ..DEFAULT
    },
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
    TargetTest {
        manifest: "bench",
        native: Some("bench"),
        icount: true,
        cpu_properties: ",cntfrq=1000000000",
        ..DEFAULT
    },
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
