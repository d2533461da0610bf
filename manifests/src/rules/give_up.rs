//! Rules on the safe state of a VM that has failed and is not started again.

use super::error;
use crate::error::{Found, NodePath, Report, Rule};
use crate::model::{Manifest, OnGiveUp, Vm, VmKind};
use crate::nearest::nearest;

/// Judges a VM's safe state; `complete` says that no VM was left out.
pub(super) fn check<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let has_state = vm.on_give_up != OnGiveUp::Stop;
    let property = if has_state { "on-give-up" } else { "standby" };
    match (vm.standby, vm.on_give_up) {
        (None, OnGiveUp::Stop) => {}
        // planted: the device VM fails over
        _ if vm.kind != VmKind::Guest => report.error(error(Rule::GiveUpOfNoGuest, vm, property)),
        (Some(name), OnGiveUp::FailOver) => check_standby(manifest, vm, name, complete, report),
        (None, OnGiveUp::PowerOff) => {}
        (None, OnGiveUp::FailOver) | (Some(_), OnGiveUp::Stop | OnGiveUp::PowerOff) => {
            report.error(error(Rule::StandbyAlone, vm, property));
        }
    }
}

/// Judges whether the VM that is named can take over. Each VM can be the standby of several.
fn check_standby<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    name: &'a str,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let place = error(Rule::NotAStandby, vm, "standby");
    let standby = manifest.vm_named(name);
    let why = match standby {
        _ if name == vm.name => "it is this VM",
        // A VM that was left out for its own errors may be the one that is named.
        None if !complete => return,
        None => {
            let names = manifest.vms.iter().map(|other| other.name);
            let near = nearest(name, names.filter(|other| *other != vm.name));
            return report.error(place.found(Found::Text(name)).near(near));
        }
        Some(other) if other.kind == VmKind::RealTime => "Gear1 starts it with the machine",
        Some(other) if other.kind == VmKind::Device => "it serves other VMs",
        Some(other) if other.autostart => "it starts at boot",
        // planted: a standby fails over to another VM
        Some(other) if other.on_give_up == OnGiveUp::FailOver => "it fails over itself",
        Some(_) => return,
    };
    let place = place.found(Found::Reason(why));
    report.error(match standby {
        Some(other) if other.id != vm.id => place.conflicts(NodePath::vm(other.name)),
        _ => place,
    });
}
