//! Tests of repairs: each name of the tables leads to one that the binding has.

use gearv_manifest::binding::{
    CONSOLE_PROPERTIES, GEAR2_PROPERTIES, ROOT_NODES, ROOT_PROPERTIES, SHARED_PROPERTIES,
    VIRTIO_PROPERTIES, VM_PROPERTIES,
};
use gearv_manifest::{Found, ManifestError, NodePath, Rule};

use super::{HABITS, MISPLACED, SYNONYMS, nearest, text};

#[test]
fn synonyms_lead_to_names_of_the_binding() {
    let known = [
        ROOT_PROPERTIES,
        GEAR2_PROPERTIES,
        VM_PROPERTIES,
        CONSOLE_PROPERTIES,
        VIRTIO_PROPERTIES,
        SHARED_PROPERTIES,
    ];
    for (other, name) in SYNONYMS {
        assert!(known.concat().contains(name), "{other}: {name}");
        let is_habit = HABITS.iter().any(|(habit, _)| habit == other);
        assert!(!is_habit, "{other} has two repairs");
    }
    // A property of VMs that stands as a node in a VM has a repair of its own.
    for (name, _) in MISPLACED {
        let is_taken = VM_PROPERTIES.contains(name) && !ROOT_NODES.contains(name);
        assert!(!is_taken || *name == "pool", "{name}");
    }
}

/// Returns what is said of an unknown property of a VM: the name that is meant, or the repair.
fn of_property(property: &str, near: Option<&'static str>) -> String {
    let place = ManifestError::at_property(Rule::UnknownProperty, NodePath::vm("one"), property);
    let place = place.near(near);
    nearest(&place).map_or_else(|| text(&place), str::to_owned)
}

#[test]
fn names_of_other_formats_have_repairs() {
    let cases = [
        ("bootargs", "cmdline"),
        ("memory", "memory-mib"),
        ("peers", "ffa-peers"),
        ("console", "console is a node: write console { };"),
        ("virtio", "virtio is a node: write virtio { };"),
    ];
    for (property, said) in cases {
        assert_eq!(of_property(property, None), said, "{property}");
    }
    // A VM has no `interrupt`, whatever else means that elsewhere.
    assert!(of_property("irq", None).starts_with("the properties of /vms/one are kind, "));
    assert_eq!(of_property("vcpu", Some("vcpus")), "vcpus");
    // What is no misspelling is not taken for one.
    assert!(of_property("status", Some("gic")).contains("no-autostart;"));
}

#[test]
fn a_node_that_is_a_property_is_told() {
    let path = NodePath::vm("one").child("devices");
    let said = text(&ManifestError::at(Rule::UnknownNode, path));
    assert!(
        said.starts_with("devices is a property: write paths in strings"),
        "{said}"
    );
    let said = text(&ManifestError::at(
        Rule::UnknownNode,
        NodePath::ROOT.child("other"),
    ));
    assert_eq!(
        said,
        "the nodes of / are gear2, vms, shared-memory, channels, bus-masters, as-booted, board-watchdog, gpio-heartbeat"
    );
}

#[test]
fn several_names_in_one_string_are_told() {
    let node = NodePath::vm("one");
    let place = ManifestError::at_property(Rule::UnknownPeer, node, "ffa-peers");
    let place = place.found(Found::Text("alpha, beta")).near(Some("alpha"));
    assert_eq!(nearest(&place), None);
    assert_eq!(
        text(&place),
        "write one string for each: \"alpha\", \"beta\""
    );
}

#[test]
fn a_node_among_the_vms_is_told_where_it_belongs() {
    let of = |name: &'static str| {
        let place = ManifestError::at_property(Rule::NoPayload, NodePath::vm(name), "kernel");
        text(&place)
    };
    assert!(of("console").starts_with("console is a node of a VM: "));
    assert!(of("gear2").starts_with("write it below the root, beside vms; "));
    assert_eq!(of("linux"), Rule::NoPayload.repair());
    let below = NodePath::vm("virtio").child("disk");
    let said = text(&ManifestError::at(Rule::UnknownNode, below));
    assert!(said.starts_with("virtio is a node of a VM: "), "{said}");
}

#[test]
fn lists_and_paths_have_the_form_that_is_meant() {
    let at = |rule, property, found| {
        let node = NodePath::vm("one");
        text(&ManifestError::at_property(rule, node, property).found(Found::Text(found)))
    };
    let path = at(Rule::DevicePath, "devices", "pl011@9000000");
    assert_eq!(
        path,
        "write the whole path, from the root on: \"/pl011@9000000\""
    );
    let both = at(Rule::NoSuchDevice, "devices", "/a@1, /b@2");
    assert_eq!(both, "write one string for each: \"/a@1\", \"/b@2\"");
    // The type of a device has a comma, and is no list.
    let kind = at(Rule::DevicePath, "devices", "arm,pl011");
    assert_eq!(kind, Rule::DevicePath.repair());
    let command = at(Rule::VhostCommand, "command", "/bin/x --fd 3");
    assert_eq!(
        command,
        "write a string for each word: \"/bin/x\", \"--fd\", \"3\""
    );
    assert_eq!(
        at(Rule::VhostCommand, "command", "x"),
        Rule::VhostCommand.repair()
    );
}
