//! Values that a property takes, in the words of a message.
//!
//! A message says by itself what to write: type, unit, range or list of values, and an example. The
//! reader of manifests (`gearv-manifest`) judges; a test compares this table with its names and
//! limits, and with the tables of docs/manifest.md.

use gearv_manifest::binding::{
    BOARD_WATCHDOG_PROPERTIES, CHANNEL_PROPERTIES, CONSOLE_PROPERTIES, GEAR2_NODES,
    GEAR2_PROPERTIES, GPIO_HEARTBEAT_PROPERTIES, POOL_NODES, POOL_PROPERTIES, ROOT_NODES,
    ROOT_PROPERTIES, RTC_PROPERTIES, SHARED_PROPERTIES, VIRTIO_PROPERTIES, VM_NODES, VM_PROPERTIES,
    WINDOW_PROPERTIES,
};

/// Property, what it takes, and an example of its value; a switch has none.
type Row = (&'static str, &'static str, &'static str);

/// A list and no code: a property is one row, and the row is what people read.
const TABLE: &[Row] = &[
    // A range of a number is a constant of the reader, and the test compares the two: a text that
    // allowed more than the reader would send its reader from one error to the next.
    //
    // Of the root and of schedules. Examples are values that a working manifest could have, because
    // people copy them: a slice of 100 us would be taken, and would cost a switch in each.
    ("compatible", "a string", "\"gearv,manifest\""),
    ("version", "the version of the binding, which is 1", "<1>"),
    ("cpus", "numbers of CPUs, from 0 to 7", "<0 1>"),
    // Stage 2 maps memory in blocks of 2 MiB.
    ("memory-mib", "a number of MiB, a multiple of 2", "<512>"),
    (
        "scheduler",
        "\"round-robin\", \"fair\", \"bvt\", \"edf\", \"arinc653\", \"priority\" or \"null\"",
        "\"fair\"",
    ),
    (
        "slice-us",
        "a number of microseconds from 100 to 1000000",
        "<5000>",
    ),
    (
        "ceiling-us",
        "a number of microseconds from 100 to 60000000",
        "<50000>",
    ),
    (
        "frame-us",
        "a number of microseconds from 100 to 60000000",
        "<10000>",
    ),
    (
        "start-us",
        "a number of microseconds from 0 to 60000000",
        "<2000>",
    ),
    (
        "length-us",
        "a number of microseconds from 50 to 60000000",
        "<1000>",
    ),
    ("pool", "the name of a pool in a string", "\"control\""),
    ("vm", "the name of a VM in a string", "\"planner\""),
    // Parameters of a vCPU's share. A budget of the example is a fifth of its period, so that five
    // VMs with it fill a CPU.
    ("weight", "a number from 1 to 1000", "<200>"),
    ("cap-percent", "a number from 1 to 100", "<25>"),
    (
        "budget-us",
        "a number of microseconds from 1 to 10000000",
        "<2000>",
    ),
    (
        "period-us",
        "a number of microseconds from 100 to 10000000",
        "<10000>",
    ),
    ("priority", "a number from 0 to 31", "<20>"),
    (
        "latency-us",
        "a number of microseconds from 0 to 1000000",
        "<500>",
    ),
    // Of Gear2 itself, and times after which it gives something up.
    ("balancer", "\"none\" or \"load\"", "\"load\""),
    ("privilege", "\"el0\" or \"el1\"", "\"el0\""),
    (
        "watchdog-ms",
        "a number of milliseconds from 0 to 3600000, 0 for none",
        "<60000>",
    ),
    (
        "progress-ms",
        "a number of milliseconds from 0 to 3600000, 0 for none",
        "<10000>",
    ),
    (
        "dma-fault-limit",
        "a number from 0 to 1000000, 0 for none",
        "<100>",
    ),
    (
        // A wait for a VM that never comes up holds back all VMs behind it.
        "boot-order-timeout-ms",
        "a number of milliseconds from 0 to 3600000, 0 for ever",
        "<120000>",
    ),
    // Of VMs. A path is relative to the manifest; digests are written out by `sha256sum`, so that
    // the example shows their beginning alone.
    ("image", "a path in a string", "\"blinker.bin\""),
    (
        "image-sha256",
        "64 hexadecimal digits in a string",
        "\"e3b0c442...\"",
    ),
    (
        "kind",
        "\"guest\", \"device\" or \"real-time\"",
        "\"real-time\"",
    ),
    ("vcpus", "a number from 1 to 8", "<2>"),
    // The one example in two cells, for an address that needs them: in RAM above 4 GiB.
    ("memory-address", ADDRESS, "<0x1 0x40000000>"),
    ("memory-ipa", ADDRESS, "<0x40000000>"),
    (
        "memory-align-mib",
        "a number of MiB, a power of two from 2 on",
        "<64>",
    ),
    ("kernel", "a path in a string", "\"Image\""),
    (
        "kernel-sha256",
        "64 hexadecimal digits in a string",
        "\"e3b0c442...\"",
    ),
    ("initrd", "a path in a string", "\"rootfs.cpio\""),
    (
        "initrd-sha256",
        "64 hexadecimal digits in a string",
        "\"e3b0c442...\"",
    ),
    ("cmdline", "one string", "\"console=ttyAMA0\""),
    // Offsets in the VM's memory, and no addresses: the same image runs wherever the memory lies.
    ("load-offset", ADDRESS, "<0x80000>"),
    ("entry-offset", ADDRESS, "<0x40>"),
    // Switches: an empty text has the message say that there is no value to write.
    ("may-power-off", "", ""),
    ("trusts-dma", "", ""),
    ("no-autostart", "", ""),
    ("boot-order", "a number from 0 to 1000", "<1>"),
    ("debug", "", ""),
    ("pmu", "", ""),
    ("pointer-authentication", "", ""),
    (
        // The rule says that the lengths are multiples, since a range cannot.
        "sve-bits",
        "a number of bits from 128 to 2048, or 0 for none",
        "<512>",
    ),
    ("firmware-trng", "", ""),
    ("last-words", "", ""),
    ("dump", "", ""),
    ("power-button", "", ""),
    (
        "restart",
        "\"never\", \"on-failure\" or \"always\"",
        "\"on-failure\"",
    ),
    (
        // A ring's size is a power of two; the rule says so, since a range cannot.
        "trace-kib",
        "a number from 16 to 8192, or 0 for none",
        "<256>",
    ),
    ("trace-from-boot", "", ""),
    // Restarts that nobody asks for. The limit counts those within a window.
    ("restart-limit", "a number from 0 to 16", "<10>"),
    (
        "restart-window-ms",
        "a number of milliseconds from 1 to 3600000",
        "<60000>",
    ),
    (
        "restart-backoff-ms",
        "a number of milliseconds from 0 to 3600000",
        "<100>",
    ),
    (
        "on-give-up",
        "\"stop\", \"power-off\" or \"fail-over\"",
        "\"fail-over\"",
    ),
    (
        "standby",
        "the name of a guest in a string",
        "\"limp-home\"",
    ),
    (
        "tells",
        "the name of a channel of the VM's in a string",
        "\"alarm\"",
    ),
    (
        "gic",
        "\"emulated\" or \"pass-through\"",
        "\"pass-through\"",
    ),
    ("devices", "paths in strings", "\"/pl011@9000000\""),
    // Places in the VM's own address space, where its memory does not lie.
    ("window-address", ADDRESS, "<0x0c000000>"),
    ("virtio-address", ADDRESS, "<0x0a000000>"),
    ("watchdog-address", ADDRESS, "<0x09020000>"),
    (
        "ffa-peers",
        "names of VMs in strings",
        "\"logger\", \"camera\"",
    ),
    // Of shared memory and channels.
    ("address", ADDRESS, "<0x70000000>"),
    ("size-mib", "a number of MiB, a multiple of 2", "<4>"),
    ("vms", "names of VMs in strings", "\"camera\", \"planner\""),
    ("readers", "names of VMs in strings", "\"logger\""),
    // INTIDs below 32 are each CPU's own, so none of them can be shared.
    ("interrupt", "a number from 32 to 511", "<33>"),
    ("from", "the name of a VM in a string", "\"camera\""),
    ("to", "the name of a VM in a string", "\"display\""),
    (
        "memory",
        "the name of a node of /shared-memory in a string",
        "\"frames\"",
    ),
    (
        // The receiver's protection: a sender cannot ring it more often.
        "min-interval-us",
        "a number of microseconds from 0 to 60000000",
        "<1000>",
    ),
    (
        "type",
        "\"block\", \"net\", \"console\", \"rng\", \"input\", \"vsock\" or \"vhost-user\"",
        "\"block\"",
    ),
    // Of virtio devices. Limits of the device model, which would refuse them at its start, in the
    // device VM, where nobody looks.
    (
        "backend",
        "a file, a device or \"pty\" in a string",
        "\"/dev/vda\"",
    ),
    ("read-only", "", ""),
    (
        "mac",
        "six pairs of hexadecimal digits in a string",
        "\"02:00:00:00:00:01\"",
    ),
    (
        // VIRTIO_BLK_T_GET_ID answers with 20 bytes (virtio 1.2, 5.2.6).
        "serial",
        "1 to 20 characters in a string",
        "\"system-disk-1\"",
    ),
    // What Linux takes for an Ethernet card and for a tap device.
    ("mtu", "a number of bytes from 68 to 65521", "<1500>"),
    (
        // Limits of a disk or a card, and how much of one second may come at once.
        "iops-limit",
        "a number a second from 1 to 10000000",
        "<500>",
    ),
    (
        "bytes-per-second-limit",
        "a number of bytes a second from 65536 to 4294967295",
        "<20000000>",
    ),
    (
        "burst-ms",
        "a number of milliseconds from 1 to 10000",
        "<100>",
    ),
    (
        "device",
        "\"block\", \"fs\", \"gpu\", \"input\", \"vsock\", \"sound\", \"i2c\", \"gpio\" or \"scmi\"",
        "\"block\"",
    ),
    (
        "socket",
        "an absolute path in a string",
        "\"/run/disk.socket\"",
    ),
    // Device types of the specification (virtio 1.2, 5) that have no name above.
    ("device-id", "a number from 1 to 63", "<26>"),
    ("queues", "a number from 1 to 4", "<1>"),
    ("config-size", "a number of bytes from 0 to 256", "<60>"),
    (
        "timeout-ms",
        "a number of milliseconds from 100 to 3600000",
        "<30000>",
    ),
    // 0 to 2 are reserved, and so is the largest number (virtio 1.2, 5.10.4).
    ("cid", "a number from 3 to 4294967294", "<3>"),
    // The field of a file system's tag has 36 bytes (virtio 1.2, 5.11.4).
    ("tag", "a name of 1 to 36 bytes in a string", "\"shared\""),
    (
        // No shell reads it, so that each word is a string of its own.
        "command",
        "the path of a program and its arguments in strings",
        "\"/usr/bin/daemon\", \"--verbose\"",
    ),
    ("files", "absolute paths in strings", "\"/dev/vdb\""),
];

/// Node, and rows for its properties that the table above has not, or for other nodes.
const OF_NODES: &[(&str, &[Row])] = &[
    (
        // The range depends on the device, and the rule on the board names it.
        "/board-watchdog",
        &[
            (
                "device",
                "the path of the watchdog's node in the board's device tree in a string",
                "\"/soc/watchdog@7e100000\"",
            ),
            (
                "timeout-ms",
                "a number of milliseconds in the range of the watchdog",
                "<10000>",
            ),
        ],
    ),
    (
        // A PL061 has eight lines.
        "/gpio-heartbeat",
        &[
            (
                "device",
                "the path of a PL061's node in the board's device tree in a string",
                "\"/pl061@9030000\"",
            ),
            ("line", "a number from 0 to 7", "<5>"),
            (
                "period-ms",
                "a number of milliseconds from 10 to 10000",
                "<100>",
            ),
        ],
    ),
];

/// The binding has no #address-cells: one cell or two, by what the address needs.
const ADDRESS: &str = "an address in one cell, or in two of which the first is the upper half";

/// Says what a property of a node takes, with an example. The example is a line to copy. A switch
/// is told by its empty text: the repair of a switch with a value is to take the value away.
pub(super) fn value(node: &str, property: &str) -> Option<String> {
    let own = OF_NODES.iter().find(|(name, _)| *name == node);
    let rows = own.map_or(TABLE, |(_, rows)| *rows);
    let (name, takes, example) = rows.iter().find(|(name, ..)| *name == property)?;
    Some(match takes.is_empty() {
        true => format!("a switch has no value: write {name}; or remove it"),
        false => format!("write {takes}: {name} = {example};"),
    })
}

/// Returns the unit of a property's number. The units of the binding stand at the ends of the
/// names, so that no number is without one.
pub(super) fn unit(property: &str) -> Option<&'static str> {
    match property.rsplit('-').next() {
        Some("ms") => Some("milliseconds"),
        Some("us") => Some("microseconds"),
        Some("mib") => Some("MiB"),
        _ => None,
    }
}

/// Returns the properties and the nodes that a node may have; `None`: there is no such node, or one
/// with a name that the manifest chooses for each of its nodes. The lists are the reader's own, so
/// no message names a property that is refused.
fn known(node: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    let parts: Vec<&str> = node.split('/').filter(|part| !part.is_empty()).collect();
    Some(match parts.as_slice() {
        [] => (ROOT_PROPERTIES, ROOT_NODES),
        ["gear2"] => (GEAR2_PROPERTIES, GEAR2_NODES),
        ["gear2", "pools", _] => (POOL_PROPERTIES, POOL_NODES),
        ["gear2", "windows", _] | ["gear2", "pools", _, "windows", _] => (WINDOW_PROPERTIES, &[]),
        ["vms", _] => (VM_PROPERTIES, VM_NODES),
        ["vms", _, "console"] => (CONSOLE_PROPERTIES, &[]),
        ["vms", _, "rtc"] => (RTC_PROPERTIES, &[]),
        ["vms", _, "virtio", _] => (VIRTIO_PROPERTIES, &[]),
        ["shared-memory", _] => (SHARED_PROPERTIES, &[]),
        ["channels", _] => (CHANNEL_PROPERTIES, &[]),
        ["board-watchdog"] => (BOARD_WATCHDOG_PROPERTIES, &[]),
        ["gpio-heartbeat"] => (GPIO_HEARTBEAT_PROPERTIES, &[]),
        _ => return None,
    })
}

/// Tells whether a node may have a property. Asked before a name is suggested: a suggestion must be
/// allowed at that place.
pub(super) fn has_property(node: &str, property: &str) -> bool {
    known(node).is_some_and(|(properties, _)| properties.contains(&property))
}

/// Lists the properties that a node may have, or its nodes. Lists have nodes alone, whose names are
/// the manifest's choice.
pub(super) fn names(node: &str, of_nodes: bool) -> Option<String> {
    let node = if node.is_empty() { "/" } else { node };
    let is_list = matches!(
        node,
        "/vms" | "/shared-memory" | "/channels" | "/gear2/pools"
    ) || node.ends_with("/virtio")
        || node.ends_with("/windows");
    if is_list {
        return Some("this node has one node for each of its kind, and no properties".into());
    }
    let (properties, nodes) = known(node)?;
    let list = if of_nodes { nodes } else { properties };
    let what = if of_nodes { "nodes" } else { "properties" };
    Some(match list.is_empty() {
        true => format!("{node} has no {what}: remove it"),
        false => format!("the {what} of {node} are {}", list.join(", ")),
    })
}

#[cfg(test)]
mod tests;
