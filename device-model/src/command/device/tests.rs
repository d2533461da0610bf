//! Tests of `gearctl device`, over a socket of GDM's server.

use crate::board::{DeviceKind, DeviceNode};
use crate::command::tests::{gearctl, gearctl_beside};
use crate::order::Order;
use crate::state::{DeviceState, Serves, Word};
use crate::testing::{self, CHANNEL, region};

fn disk() -> DeviceNode {
    DeviceNode {
        channel: CHANNEL,
        kind: DeviceKind::Block,
        backend: "/srv/a disk".into(),
        label: "system".into(),
        limits: [500, 0, 100],
        ..testing::node()
    }
}

/// Runs `gearctl` beside a disk whose thread answers each order with a number.
fn with_disk(words: &[&str]) -> Result<String, String> {
    let region = region();
    let state = DeviceState::new(&region.devices[CHANNEL]);
    state.set(Word::Capacity, 4096);
    state.set(Word::Serves, Serves::Backend as u64);
    gearctl_beside(region, vec![disk()], words, |order| match order {
        Order::Resize => Ok(8192),
        Order::Link(_) => Err("a disk has no link".into()),
        Order::Power => Err("a disk has no power button".into()),
        Order::Detach => Ok(0),
        Order::Attach(path) if path.is_empty() => Ok(4096),
        Order::Attach(path) if path == "/srv/b c" => Ok(512),
        Order::Attach(path) => Err(format!("{path}: no such file")),
    })
}

/// Returns the JSON of the disk with another size.
fn changed(bytes: &str) -> String {
    format!(
        "{{\"version\":1,\"kind\":\"device-changed\",\"answer\":\
         {{\"vm\":\"linux\",\"device\":\"system\",\"bytes\":{bytes}}}}}\n"
    )
}

#[test]
fn devices_are_listed() {
    let list = with_disk(&["device", "list", "--json"]).unwrap();
    assert_eq!(
        list,
        "{\"version\":1,\"kind\":\"devices\",\"answer\":[{\"vm\":\"linux\",\"device\":\"system\",\"type\":\"block\",\"channel\":2,\
         \"state\":\"served\",\"bytes\":4096,\"iops_limit\":500,\
         \"bytes_per_second_limit\":null,\"backend\":\"/srv/a disk\"}]}\n"
    );
    assert_eq!(
        with_disk(&["device", "list", "rt", "--json"]).unwrap(),
        "{\"version\":1,\"kind\":\"devices\",\"answer\":[]}\n"
    );
}

#[test]
fn an_order_names_its_device() {
    let done = changed("8192");
    for name in ["system", "2"] {
        let words = ["device", "resize", "linux", name, "--json"];
        assert_eq!(with_disk(&words).unwrap(), done);
    }
    assert_eq!(
        with_disk(&["device", "resize", "linux", "data"]).unwrap_err(),
        "VM linux has no device `data`; it has: system"
    );
    assert_eq!(
        with_disk(&["device", "link", "linux", "2", "down"]).unwrap_err(),
        "device system of VM linux: a disk has no link"
    );
    // A device that has no way for orders.
    let error = gearctl(&["device", "resize", "linux", "system"]).unwrap_err();
    assert_eq!(error, "VM linux has no device `system`; it has: ");
    for words in [
        vec!["device"],
        vec!["device", "resize", "linux"],
        vec!["device", "resize", "linux", "system", "8"],
        vec!["device", "explode", "linux", "system"],
        vec!["device", "detach", "linux", "system", "/srv/disk"],
        vec!["device", "attach", "linux", "system", "/srv/b", "c"],
        vec!["device", "attach", "linux"],
    ] {
        let error = gearctl(&words).unwrap_err();
        assert!(error.contains("Usage: gearctl device"), "{error}");
    }
}

#[test]
fn a_medium_is_named_from_the_root_on() {
    let attach = |path| with_disk(&["device", "attach", "linux", "system", path, "--json"]);
    assert_eq!(attach("/srv/b c").unwrap(), changed("512"));
    let manifests = ["device", "attach", "linux", "system", "--json"];
    assert_eq!(with_disk(&manifests).unwrap(), changed("4096"));
    let out = ["device", "detach", "linux", "system", "--json"];
    assert_eq!(with_disk(&out).unwrap(), changed("null"));
    let here = std::env::current_dir().unwrap();
    let here = here.display();
    assert_eq!(
        attach("disk").unwrap_err(),
        format!("device system of VM linux: {here}/disk: no such file")
    );
    let long = format!("/{}", "x".repeat(200));
    assert_eq!(
        attach(&long).unwrap_err(),
        format!("{long}: the path has more than 200 bytes")
    );
    assert!(
        attach("/srv/a\nb")
            .unwrap_err()
            .contains("control characters")
    );
}

#[test]
fn a_disk_without_a_medium_is_listed() {
    let region = region();
    let state = DeviceState::new(&region.devices[CHANNEL]);
    state.set(Word::Serves, Serves::Backend as u64);
    let node = DeviceNode {
        backend: String::new(),
        ..disk()
    };
    let words = ["device", "list", "--json"];
    let list = gearctl_beside(region, vec![node], &words, |_| Ok(0)).unwrap();
    assert!(
        list.contains("\"state\":\"no medium\",\"bytes\":null"),
        "{list}"
    );
}
