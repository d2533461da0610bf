//! Names of binding v1: nodes, properties, and the words that are values.

use crate::model::{GicMode, Privilege, Restart, VirtioKind, VmKind};

pub(super) const ROOT_PROPERTIES: &[&str] = &["compatible", "version"];
pub(super) const ROOT_NODES: &[&str] = &["gear2", "vms", "shared-memory"];
pub(super) const SHARED_PROPERTIES: &[&str] = &["address", "size-mib", "vms", "readers"];
pub(super) const GEAR2_PROPERTIES: &[&str] = &[
    "image",
    "memory-mib",
    "cpus",
    "scheduler",
    "slice-us",
    "privilege",
    "watchdog-ms",
    "boot-order-timeout-ms",
    "image-sha256",
];
pub(super) const VM_PROPERTIES: &[&str] = &[
    "kind",
    "vcpus",
    "cpus",
    "memory-mib",
    "memory-address",
    "memory-ipa",
    "memory-align-mib",
    "kernel",
    "kernel-sha256",
    "initrd",
    "initrd-sha256",
    "cmdline",
    "image",
    "image-sha256",
    "load-offset",
    "entry-offset",
    "may-power-off",
    "debug",
    "pmu",
    "no-autostart",
    "boot-order",
    "restart",
    "restart-limit",
    "restart-window-ms",
    "restart-backoff-ms",
    "watchdog-ms",
    "gic",
    "devices",
    "window-address",
    "virtio-address",
    "ffa-peers",
];
/// Properties of [`crate::model::RestartLimit`], in the order of its fields.
pub(super) const RESTART_LIMITS: [&str; 3] =
    ["restart-limit", "restart-window-ms", "restart-backoff-ms"];
pub(super) const VM_NODES: &[&str] = &["console", "virtio"];
pub(super) const VIRTIO_PROPERTIES: &[&str] = &["type", "backend", "read-only", "mac"];
pub(super) const CONSOLE_PROPERTIES: &[&str] = &["address", "interrupt"];

/// Properties whose values are cells. A blob has no types: a string of three characters is a cell
/// in it. Who has the source looks there.
pub const CELL_PROPERTIES: &[&str] = &[
    "version",
    "vcpus",
    "cpus",
    "memory-mib",
    "memory-address",
    "memory-ipa",
    "memory-align-mib",
    "size-mib",
    "address",
    "interrupt",
    "window-address",
    "virtio-address",
    "load-offset",
    "entry-offset",
    "slice-us",
    "watchdog-ms",
    "boot-order",
    "boot-order-timeout-ms",
    "restart-limit",
    "restart-window-ms",
    "restart-backoff-ms",
];

pub(super) const SCHEDULERS: &[(&str, &str)] = &[("round-robin", "round-robin")];
pub(super) const PRIVILEGES: &[(&str, Privilege)] =
    &[("el0", Privilege::El0), ("el1", Privilege::El1)];
pub(super) const KINDS: &[(&str, VmKind)] = &[
    ("guest", VmKind::Guest),
    ("device", VmKind::Device),
    ("real-time", VmKind::RealTime),
];
pub(super) const RESTARTS: &[(&str, Restart)] = &[
    ("never", Restart::Never),
    ("on-failure", Restart::OnFailure),
    ("always", Restart::Always),
];
pub(super) const VIRTIO_KINDS: &[(&str, VirtioKind)] = &[
    (VirtioKind::Block.name(), VirtioKind::Block),
    (VirtioKind::Net.name(), VirtioKind::Net),
    (VirtioKind::Console.name(), VirtioKind::Console),
    (VirtioKind::Random.name(), VirtioKind::Random),
];
pub(super) const GIC_MODES: &[(&str, GicMode)] = &[
    ("emulated", GicMode::Emulated),
    ("pass-through", GicMode::PassThrough),
];
