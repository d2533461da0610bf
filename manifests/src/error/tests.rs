//! Tests of the rules' ids and of what messages look like.

use std::collections::BTreeSet;
use std::string::ToString;
use std::vec::Vec;

use super::{Found, ManifestError, NodePath, Rule, Severity};
use crate::judge;
use crate::testing::{cells, smallest, text};

#[test]
fn ids_are_unique_and_documented() {
    let ids: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    assert_eq!(ids.len(), Rule::ALL.len());
    let document = include_str!("../../../docs/manifest.md");
    for rule in Rule::ALL {
        assert!(
            document.contains(&std::format!("`{}`", rule.id())),
            "{rule:?} is not documented"
        );
        assert!(!rule.what().is_empty() && !rule.repair().is_empty());
    }
}

/// The id says that a rule only warns.
#[test]
fn warnings_refuse_nothing() {
    assert_eq!(Rule::NoSuchConsole.severity(), Severity::Warning);
    assert_eq!(Rule::UnusedPool.severity(), Severity::Warning);
    assert_eq!(Rule::BadBlob.severity(), Severity::Error);
    assert_eq!(Rule::DeviceStarved.severity(), Severity::Error);
}

#[test]
fn messages_name_rule_node_property_value_conflict_and_repair() {
    let error =
        ManifestError::at_property(Rule::MemoryOverlap, NodePath::vm("b"), "memory-address")
            .found(Found::Range(0x4000_0000, 0x4020_0000))
            .conflicts(NodePath::vm("a"));
    assert_eq!(
        error.to_string(),
        "M-MEM-003: /vms/b: memory-address: the memory of two VMs overlaps (0x40000000 to \
         0x40200000), in conflict with /vms/a; move one of them, or leave memory-address out of one"
    );
}

#[test]
fn paths_too_deep_are_cut() {
    let path = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .fold(NodePath::ROOT, |path, name| path.child(name));
    assert_eq!(
        (path.to_string(), NodePath::ROOT.to_string()),
        ("/a/b/c/d/e".into(), "/".into())
    );
}

/// A VM with more errors than a manifest can have VMs leaves room for the others' errors.
#[test]
fn each_vm_with_an_error_is_left_out() {
    let many = (0..20).fold(smallest(), |tree, number| {
        tree.set("/vms/linux", &std::format!("unknown-{number}"), cells(&[1]))
    });
    let tree = many
        .set("/vms/odd", "memory-mib", cells(&[3]))
        .set("/vms/odd", "image", text("flat"))
        .set("/vms/good", "memory-mib", cells(&[2]))
        .set("/vms/good", "image", text("flat"));
    let blob = tree.flatten();
    let judged = judge(blob.as_slice(), None, &mut |_| {});
    assert_eq!(judged.error_count, 21);
    let manifest = judged.manifest.unwrap();
    let names: Vec<_> = manifest.vms.iter().map(|vm| vm.name).collect();
    assert_eq!(names, ["good"]);
}
