use gear1_abi::call::VmState;

use super::*;
use crate::board::DeviceNode;
use crate::command::tests::{gearctl, gearctl_beside};
use crate::testing::{self, region};

fn input(channel: usize, vm: &str) -> DeviceNode {
    DeviceNode {
        channel,
        vm: vm.into(),
        kind: DeviceKind::Input,
        label: format!("keys{channel}"),
        ..testing::node()
    }
}

/// Runs `gearctl shutdown rt` beside devices whose buttons can be pressed.
fn shutdown(devices: Vec<DeviceNode>, words: &[&str]) -> Result<String, String> {
    let words = [&["shutdown", "rt"], words].concat();
    gearctl_beside(region(), devices, &words, |order| match order {
        Order::Power => Ok(1),
        other => panic!("{other}"),
    })
}

#[test]
fn a_button_is_pressed() {
    let disk = DeviceNode {
        vm: "rt".into(),
        ..testing::node()
    };
    let said = shutdown(vec![disk, input(3, "rt")], &[]);
    assert_eq!(said.unwrap(), "vm: rt\noutcome: begun\n");
    let late = ["--wait", "--timeout", "0.1"];
    let error = shutdown(vec![input(3, "rt")], &late).unwrap_err();
    assert_eq!(error, "VM rt is running after 0.1 s, and was to be stopped");
}

#[test]
fn a_vm_without_a_button_is_told_what_else_stops_it() {
    for devices in [vec![], vec![input(3, "linux")]] {
        assert_eq!(
            shutdown(devices, &[]).unwrap_err(),
            "VM rt is not shut down: it has no power button: its manifest gives it neither a virtio \
             device of the type `input` nor a channel with `power-button`; `gearctl stop rt` stops \
             it at once"
        );
    }
    let words = ["shutdown", "rt"];
    let refuse = |_| Err("no driver of the guest uses the device".to_owned());
    let devices = vec![input(3, "rt"), input(4, "rt")];
    assert_eq!(
        gearctl_beside(region(), devices, &words, refuse).unwrap_err(),
        "VM rt is not shut down: device keys4: no driver of the guest uses the device; \
         `gearctl stop rt` stops it at once"
    );
}

#[test]
fn a_vm_that_hears_of_no_button_says_why() {
    assert_eq!(
        gearctl(&["shutdown", "linux"]).unwrap_err(),
        "VM linux is not shut down: it is paused, and hears of no button; `gearctl resume linux` \
         lets it go on"
    );
    let error = gearctl(&["shutdown", "device"]).unwrap_err();
    assert!(error.contains("`poweroff` at this prompt"), "{error}");
    let stopped = Vm {
        state: VmState::Stopped as u64,
        waits: true,
        ..Vm::default()
    };
    let why = "it does not run, it is stopped, waits";
    assert_eq!(hindrance(&stopped).as_deref(), Some(why));
}
