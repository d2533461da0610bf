//! Devices of the board that Gear1 can feed: watchdogs, and controllers of a line that a
//! microcontroller watches.
//!
//! Only the page of a node's first registers counts, and only where the registers begin it: the
//! runtime maps that page at a fixed address. A node that is somewhere else is one that Gear1 does
//! not drive.
//!
//! Requirements: G1-SUP-005.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::board_watchdog::Watchdog;
use gearv_manifest::blob::Node;

use super::bus::Bus;

/// Names of Linux's bindings.
const IMX2: &[u8] = b"fsl,imx21-wdt";
const RWDT: &[u8] = b"renesas,rcar-gen3-wdt";
const BCM2835: &[u8] = b"brcm,bcm2835-pm-wdt";
const PL061: &[u8] = b"arm,pl061";

/// A device that Gear1 can feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedable {
    /// Path of the node.
    pub path: String,
    /// Kind of the device; of a PL061, line 0.
    pub watchdog: Watchdog,
    /// Page of its registers.
    pub page: u64,
}

/// Tells whether Gear1 can feed devices that are compatible with `name`.
pub(super) fn is_known(name: &[u8]) -> bool {
    [IMX2, RWDT, BCM2835, PL061].contains(&name)
}

/// Notes the device of a node that is compatible with `name`.
pub(super) fn add(
    node: &Node<'_>,
    name: &[u8],
    path: &str,
    bus: &Bus<'_, '_>,
    list: &mut Vec<Feedable>,
) {
    // A damaged node is no reason to refuse the board: most manifests name no watchdog.
    let regions = bus.regions(node, path).unwrap_or_default();
    let first = regions.first().map(|region| region.start);
    if let Some(page) = first.filter(|start| start.is_multiple_of(PAGE_SIZE)) {
        list.push(Feedable {
            path: path.to_string(),
            watchdog: kind(node, name),
            page,
        });
    }
}

/// Returns the kind of a device that is compatible with `name`, one of those that are known.
fn kind(node: &Node<'_>, name: &[u8]) -> Watchdog {
    match name {
        IMX2 => Watchdog::Imx2 {
            asserts_pin: node.property("fsl,ext-reset-output").is_some(),
        },
        RWDT => Watchdog::Rwdt,
        BCM2835 => Watchdog::Bcm2835,
        _ => Watchdog::Pl061 { line: 0 },
    }
}
