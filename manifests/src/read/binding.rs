//! Names of binding v1: nodes, properties, and the words that are values.

use crate::model::{
    Balancer, GicMode, OnGiveUp, Privilege, Restart, Scheduler, VhostFunction, VirtioKind, VmKind,
};

/// Properties of the root node.
pub const ROOT_PROPERTIES: &[&str] = &["compatible", "version"];
/// Nodes below the root node.
pub const ROOT_NODES: &[&str] = &[
    "gear2",
    "vms",
    "shared-memory",
    "channels",
    "bus-masters",
    "as-booted",
    "board-watchdog",
    "gpio-heartbeat",
];
/// Properties of `/board-watchdog`, all of which have to be there.
pub const BOARD_WATCHDOG_PROPERTIES: &[&str] = &["device", "timeout-ms"];
/// Properties of `/gpio-heartbeat`, all of which have to be there.
pub const GPIO_HEARTBEAT_PROPERTIES: &[&str] = &["device", "line", "period-ms"];
/// Properties of `/shared-memory/NAME`.
pub const SHARED_PROPERTIES: &[&str] = &["address", "size-mib", "vms", "readers"];
/// Properties of `/bus-masters/NAME`, all of which have to be there.
pub const BUS_MASTER_PROPERTIES: &[&str] = &["compatible", "offset", "value", "busy"];
/// Properties of `/as-booted/NAME`.
pub const AS_BOOTED_PROPERTIES: &[&str] = &["device", "clocks-hz"];
/// Properties of `/channels/NAME`.
pub const CHANNEL_PROPERTIES: &[&str] = &[
    "from",
    "to",
    "memory",
    "min-interval-us",
    "address",
    "interrupt",
    "power-button",
];
/// Properties of `/gear2`.
pub const GEAR2_PROPERTIES: &[&str] = &[
    "image",
    "memory-mib",
    "cpus",
    "scheduler",
    "slice-us",
    "ceiling-us",
    "balancer",
    "frame-us",
    "privilege",
    "watchdog-ms",
    "restart-limit",
    "restart-window-ms",
    "boot-order-timeout-ms",
    "trace-kib",
    "trace-from-boot",
    "image-sha256",
];
/// Nodes below `/gear2`.
pub const GEAR2_NODES: &[&str] = &["pools", "windows"];
/// Properties of `/gear2/pools/NAME`.
pub const POOL_PROPERTIES: &[&str] = &[
    "cpus",
    "scheduler",
    "slice-us",
    "ceiling-us",
    "balancer",
    "frame-us",
];
/// Nodes below `/gear2/pools/NAME`.
pub const POOL_NODES: &[&str] = &["windows"];
/// Properties of `/gear2/windows/NAME` and `/gear2/pools/NAME/windows/NAME`.
pub const WINDOW_PROPERTIES: &[&str] = &["vm", "start-us", "length-us"];
// In the order of the manual: identity, CPUs, scheduling, memory, payload, life, devices.
/// Properties of `/vms/NAME`.
pub const VM_PROPERTIES: &[&str] = &[
    "kind",
    "vcpus",
    "cpus",
    "pool",
    "weight",
    "cap-percent",
    "budget-us",
    "period-us",
    "priority",
    "latency-us",
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
    "pointer-authentication",
    "sve-bits",
    "firmware-trng",
    "last-words",
    "dump",
    "no-autostart",
    "boot-order",
    "restart",
    "restart-limit",
    "restart-window-ms",
    "restart-backoff-ms",
    "on-give-up",
    "standby",
    "tells",
    "watchdog-ms",
    "progress-ms",
    "dma-fault-limit",
    "watchdog-address",
    "gic",
    "devices",
    "trusts-dma",
    "window-address",
    "virtio-address",
    "ffa-peers",
];
/// Properties of [`crate::model::RestartLimit`], in the order of its fields.
pub const RESTART_LIMITS: [&str; 3] = ["restart-limit", "restart-window-ms", "restart-backoff-ms"];
/// Nodes below `/vms/NAME`.
pub const VM_NODES: &[&str] = &["console", "rtc", "virtio"];
/// Properties of `/vms/NAME/virtio/DEVICE`.
pub const VIRTIO_PROPERTIES: &[&str] = &[
    "type",
    "backend",
    "read-only",
    "mac",
    "serial",
    "mtu",
    "iops-limit",
    "bytes-per-second-limit",
    "burst-ms",
    "device",
    "socket",
    "device-id",
    "queues",
    "config-size",
    "tag",
    "timeout-ms",
    "command",
    "files",
    "cid",
];
/// Properties of `/vms/NAME/console`.
pub const CONSOLE_PROPERTIES: &[&str] = &["address", "interrupt"];
/// Properties of `/vms/NAME/rtc`.
pub const RTC_PROPERTIES: &[&str] = &["address"];

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
    "offset",
    "value",
    "busy",
    "clocks-hz",
    "address",
    "interrupt",
    "window-address",
    "watchdog-address",
    "virtio-address",
    "load-offset",
    "entry-offset",
    "slice-us",
    "ceiling-us",
    "frame-us",
    "start-us",
    "length-us",
    "weight",
    "cap-percent",
    "budget-us",
    "period-us",
    "priority",
    "latency-us",
    "min-interval-us",
    "watchdog-ms",
    "progress-ms",
    "dma-fault-limit",
    "sve-bits",
    "boot-order",
    "boot-order-timeout-ms",
    "restart-limit",
    "trace-kib",
    "restart-window-ms",
    "restart-backoff-ms",
    "device-id",
    "queues",
    "config-size",
    "timeout-ms",
    "line",
    "period-ms",
    "mtu",
    "iops-limit",
    "bytes-per-second-limit",
    "burst-ms",
    "cid",
];

// A row is what a manifest says and what it means; the words are the model's own, so that `gearctl`
// and the manual show the same ones.
/// Values of `scheduler`.
pub const SCHEDULERS: &[(&str, Scheduler)] = &[
    (Scheduler::RoundRobin.name(), Scheduler::RoundRobin),
    (Scheduler::Fair.name(), Scheduler::Fair),
    (Scheduler::Bvt.name(), Scheduler::Bvt),
    (Scheduler::Edf.name(), Scheduler::Edf),
    (Scheduler::Arinc653.name(), Scheduler::Arinc653),
    (Scheduler::Priority.name(), Scheduler::Priority),
    (Scheduler::Null.name(), Scheduler::Null),
];
/// Values of `balancer`.
pub const BALANCERS: &[(&str, Balancer)] = &[
    (Balancer::None.name(), Balancer::None),
    (Balancer::Load.name(), Balancer::Load),
];
/// Values of `privilege`.
pub const PRIVILEGES: &[(&str, Privilege)] = &[("el0", Privilege::El0), ("el1", Privilege::El1)];
/// Values of `kind`.
pub const KINDS: &[(&str, VmKind)] = &[
    ("guest", VmKind::Guest),
    ("device", VmKind::Device),
    ("real-time", VmKind::RealTime),
];
/// Values of `restart`.
pub const RESTARTS: &[(&str, Restart)] = &[
    ("never", Restart::Never),
    ("on-failure", Restart::OnFailure),
    ("always", Restart::Always),
];
/// Values of `on-give-up`.
pub const GIVE_UPS: &[(&str, OnGiveUp)] = &[
    ("stop", OnGiveUp::Stop),
    ("power-off", OnGiveUp::PowerOff),
    ("fail-over", OnGiveUp::FailOver),
];
/// Values of `type`.
pub const VIRTIO_KINDS: &[(&str, VirtioKind)] = &[
    (VirtioKind::Block.name(), VirtioKind::Block),
    (VirtioKind::Net.name(), VirtioKind::Net),
    (VirtioKind::Console.name(), VirtioKind::Console),
    (VirtioKind::Random.name(), VirtioKind::Random),
    (VirtioKind::Input.name(), VirtioKind::Input),
    (VirtioKind::Vsock.name(), VirtioKind::Vsock),
    (VirtioKind::VhostUser.name(), VirtioKind::VhostUser),
];
/// Values of `device`.
pub const VHOST_FUNCTIONS: &[(&str, VhostFunction)] = &[
    (VhostFunction::Block.name(), VhostFunction::Block),
    (VhostFunction::Fs.name(), VhostFunction::Fs),
    (VhostFunction::Gpu.name(), VhostFunction::Gpu),
    (VhostFunction::Input.name(), VhostFunction::Input),
    (VhostFunction::Vsock.name(), VhostFunction::Vsock),
    (VhostFunction::Sound.name(), VhostFunction::Sound),
    (VhostFunction::I2c.name(), VhostFunction::I2c),
    (VhostFunction::Gpio.name(), VhostFunction::Gpio),
    (VhostFunction::Scmi.name(), VhostFunction::Scmi),
];
/// Values of `gic`.
pub const GIC_MODES: &[(&str, GicMode)] = &[
    ("emulated", GicMode::Emulated),
    ("pass-through", GicMode::PassThrough),
];
