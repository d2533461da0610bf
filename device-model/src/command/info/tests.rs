use crate::board::{DeviceKind, DeviceNode};
use crate::command::tests::{attempt, gearctl, gearctl_beside};
use crate::error::ErrorKind;
use crate::testing::{self, region};

#[test]
fn vcpus_have_places_and_figures() {
    let text = gearctl(&["vcpu", "linux"]).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert_eq!(
        rows[0][..6],
        ["VM", "INDEX", "VCPU", "STATE", "CPU", "PINNED"]
    );
    assert_eq!(
        rows[1][..8],
        ["linux", "0", "2", "wfi", "2", "no", "0", "1"]
    );
    assert_eq!(gearctl(&["vcpu"]).unwrap().lines().count(), 6);
    // Gear2 has no account of a real-time VM.
    let json = gearctl(&["vcpu", "rt", "--json"]).unwrap();
    let nothing = r#""pinned":null,"allowed":null,"ran_ticks":null,"may_have_idled":null,"waited_ticks":null"#;
    assert!(json.contains(nothing), "{json}");
    let error = attempt(&["vcpu", "nobody"]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

/// Gear2 sees nothing of the idle time of a vCPU whose WFI does not trap.
#[test]
fn a_share_that_may_be_idle_time_is_the_most() {
    let shares = |vm| {
        let text = gearctl(&["stats", vm]).unwrap();
        text.matches("at most ").count()
    };
    let all: usize = ["linux", "rt"].into_iter().map(shares).sum();
    assert_eq!(all, 1);
    let json = gearctl(&["stats", "--json"]).unwrap();
    assert_eq!(
        json.matches(r#""may_have_idled":true"#).count(),
        1,
        "{json}"
    );
    assert_eq!(
        json.matches(r#""may_have_idled":null"#).count(),
        1,
        "{json}"
    );
}

#[test]
fn a_vm_has_all_its_parts() {
    let console = DeviceNode {
        kind: DeviceKind::Console,
        label: "tty".into(),
        ..testing::node()
    };
    let words = ["info", "linux"];
    let text = gearctl_beside(region(), vec![console], &words, |_| Ok(0)).unwrap();
    for part in [
        "name: linux\nstate: running, paused\n",
        "last_fault: vCPU 1: PC 0x400, ",
        "hangs: 4\nslow: 3\n",
        "late_refreshes: 2\nstarvations: 1\naborted_accesses: 0\nwatchdog_ticks: 30000\nprogress_ticks: -\n\
         last_end: life 5: hang at 1.500000\n",
        "consoles: serial virtio messages\n",
        "weight: 100\n",
        "\nvcpus:\nVM     INDEX",
        "\ndevices:\nVM     DEVICE",
        "linux  tty",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = gearctl(&["info", "rt"]).unwrap();
    assert!(
        text.contains("consoles: messages\nscheduling: -\n"),
        "{text}"
    );
    assert!(text.contains("devices: -\n"), "{text}");
    assert!(text.contains("\nlast_end: none\n"), "{text}");
}
