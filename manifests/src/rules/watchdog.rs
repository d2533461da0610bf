//! Rules on a guest's emulated watchdog and a real-time VM's heartbeat: where their pages lie, and
//! whose the interrupt is; and on how long watchdogs and the order of boot wait.

use super::{PAGE, error, shared};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::LONGEST_MS;
use crate::model::{Manifest, Vm};
use crate::{ADDRESS_LIMIT, Region};

/// Judges a VM's watchdog.
pub(super) fn check<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let Some(region) = vm.watchdog_region() else {
        return;
    };
    if !region.start.is_multiple_of(PAGE) || region.end > ADDRESS_LIMIT {
        report.error(address(Rule::WatchdogAddress, vm));
    } else if hides_something(manifest, vm, region) {
        report.error(address(Rule::WatchdogOverMemory, vm));
    }
    let console = vm.console.as_ref();
    if let Some(watchdog) = vm.watchdog()
        && console.is_some_and(|console| console.intid == watchdog.intid)
    {
        let console = NodePath::vm(vm.name).child("console");
        let place = ManifestError::at_property(Rule::WatchdogInterrupt, console, "interrupt");
        report.error(place.found(Found::Number(watchdog.intid.into())));
    }
}

/// Judges the times that end a wait of Gear2's or of the whole boot. 0 stands for none.
pub(super) fn check_times<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    let gear2 = NodePath::ROOT.child("gear2");
    let config = &manifest.gear2;
    let timeout = ("boot-order-timeout-ms", config.boot_order_timeout_ms);
    let watchdog = config.watchdog_ms.map(|ms| ("watchdog-ms", ms));
    let of_gear2 = watchdog.into_iter().chain([timeout]);
    let of_gear2 = of_gear2.map(|(property, ms)| (gear2, property, ms));
    let vms = manifest.vms.iter();
    let of_vms = vms.flat_map(|vm| {
        let node = NodePath::vm(vm.name);
        let times = [
            ("watchdog-ms", vm.watchdog_ms),
            ("progress-ms", vm.progress_ms),
        ];
        times.map(|(property, ms)| (node, property, ms))
    });
    for (node, property, ms) in of_gear2.chain(of_vms) {
        if ms > LONGEST_MS {
            let place = ManifestError::at_property(Rule::OutOfRange, node, property);
            report.error(place.found(Found::Ms(ms)));
        }
    }
}

/// Returns an error at the watchdog's address.
pub(super) fn address<'a>(rule: Rule, vm: &Vm<'a>) -> ManifestError<'a> {
    error(rule, vm, "watchdog-address").found(Found::Number(vm.watchdog_ipa))
}

/// Tells whether the pages lie where the VM has memory or another emulated device.
fn hides_something(manifest: &Manifest<'_>, vm: &Vm<'_>, registers: Region) -> bool {
    // planted: the watchdog lies inside memory
    shared::others_seen_by(manifest, vm).any(|taken| taken.overlaps(&registers))
}
