//! Rows of features that the CPU has, some of which the manifest gives.

use super::{DEFAULT, MODELS, SLOW_MODELS, TargetTest};

pub(super) const ROWS: &[TargetTest] = &[
    // A real-time VM has the registers themselves, without traps or switches.
    TargetTest {
        manifest: "rt-monitors",
        gicv2: true,
        models: &["cortex-a57", "max"],
        icount: true,
        passes: 20,
        ..DEFAULT
    },
    // Two guests and a bystander on one CPU. Instructions are counted exactly, which takes icount.
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
    // The Cortex-A57 has none, and a manifest that asks for it changes nothing there.
    TargetTest {
        manifest: "pointer-auth",
        native: Some("pointer_auth"),
        models: &["max", "cortex-a57"],
        cpus: 1,
        guests: 3,
        passes: 6,
        ..DEFAULT
    },
    // Two lengths of vectors and none on one CPU, the second vCPU of the first guest beside them.
    TargetTest {
        manifest: "sve",
        native: Some("sve"),
        models: &["max"],
        gicv2: true,
        cpus: 1,
        guests: 3,
        passes: 12 + 9 + 3,
        ..DEFAULT
    },
    // QEMU's own PSCI has no such service natively.
    TargetTest {
        manifest: "trng",
        models: &["max"],
        gicv2: true,
        cpus: 1,
        passes: 2 * 17,
        ..DEFAULT
    },
    // The Cortex-A57 has no source.
    TargetTest {
        manifest: "trng",
        cpus: 1,
        passes: 2,
        ..DEFAULT
    },
    TargetTest {
        manifest: "rt-trng",
        models: &["max"],
        passes: 2 * 17,
        ..DEFAULT
    },
];
