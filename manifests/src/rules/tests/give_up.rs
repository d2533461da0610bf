//! Safe states that no VM can have, and VMs that cannot stand in.

use std::vec;
use std::vec::Vec;

use super::cases::Case;
use super::{DEVICE, VM, flat, real_time, served, two};
use crate::testing::{Tree, cells, text};

/// Returns a manifest whose first VM fails over to its second one, which may stand in.
fn fails_over() -> Tree {
    two()
        .set(VM, "on-give-up", text("fail-over"))
        .set(VM, "standby", text("other"))
        .set("/vms/other", "no-autostart", Vec::new())
}

pub(super) fn cases() -> Vec<Case> {
    let other = "/vms/other";
    let names = |name: &str| fails_over().set(VM, "standby", text(name));
    let as_standby = |property, value| fails_over().set(other, property, value);
    vec![
        (
            real_time().set("/vms/rt", "on-give-up", text("power-off")),
            "M-VM-009: /vms/rt: on-give-up: ",
        ),
        (
            served().set(DEVICE, "standby", text("linux")),
            "M-VM-009: /vms/device: standby: ",
        ),
        (
            fails_over().unset(VM, "standby"),
            "M-VM-010: /vms/linux: on-give-up: ",
        ),
        (
            fails_over().unset(VM, "on-give-up"),
            "M-VM-010: /vms/linux: standby: ",
        ),
        (
            fails_over().set(VM, "on-give-up", text("power-off")),
            "M-VM-010: /vms/linux: on-give-up: ",
        ),
        (
            names("linux"),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (it is this VM); ",
        ),
        (
            names("othr"),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (\"othr\"); did you mean other?",
        ),
        (
            fails_over().unset(other, "no-autostart"),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (it starts at boot), in \
            conflict with /vms/other; ",
        ),
        (
            as_standby("kind", text("device")),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (it serves other VMs)",
        ),
        (
            as_standby("kind", text("real-time")).set(other, "cpus", cells(&[1])),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (Gear1 starts it",
        ),
        (
            flat(fails_over(), "/vms/third")
                .set("/vms/third", "no-autostart", Vec::new())
                .set(other, "on-give-up", text("fail-over"))
                .set(other, "standby", text("third")),
            "M-VM-011: /vms/linux: standby: this VM cannot be the standby (it fails over itself)",
        ),
    ]
}

#[test]
fn a_vm_may_stand_in_for_two_and_have_a_safe_state_itself() {
    let tree = flat(fails_over(), "/vms/third")
        .set("/vms/third", "on-give-up", text("fail-over"))
        .set("/vms/third", "standby", text("other"))
        .set("/vms/other", "on-give-up", text("power-off"));
    let errors = super::errors(&tree.flatten());
    assert!(errors.is_empty(), "{errors:?}");
}
