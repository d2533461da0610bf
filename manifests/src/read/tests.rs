//! Tests of binding v1: every refusal of the reader, and what a good manifest becomes.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::testing::{Tree, cells, text};
use crate::{Console, Manifest, Payload, Restart, VmKind, read};

/// Returns a manifest of one guest that says only what it must.
pub(crate) fn smallest() -> Tree {
    Tree::default()
        .set("/", "compatible", text("gearv,manifest"))
        .set("/", "version", cells(&[1]))
        .set("/vms/linux", "memory-mib", cells(&[256]))
        .set("/vms/linux", "kernel", text("artifact:debian-kernel"))
}

/// Reads `tree` and returns the errors as they are shown.
fn errors(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    let blob = tree.flatten();
    let outcome = read(blob.as_slice(), &mut |error| errors.push(error.to_string()));
    assert_eq!(
        outcome.err().map_or(0, |refused| refused.error_count),
        errors.len()
    );
    errors
}

/// Asserts that `tree` is refused with exactly these beginnings of messages.
#[track_caller]
fn refuses(tree: &Tree, expected: &[&str]) {
    let errors = errors(tree);
    let fits = errors.len() == expected.len()
        && errors
            .iter()
            .zip(expected)
            .all(|(error, start)| error.starts_with(start));
    assert!(fits, "{errors:#?} instead of {expected:#?}");
}

#[track_caller]
fn accepts(tree: &Tree, check: impl FnOnce(&Manifest<'_>)) {
    let blob = tree.flatten();
    let manifest = read(blob.as_slice(), &mut |error| panic!("{error}"));
    check(&manifest.expect("no error was reported"));
}

#[test]
fn gives_defaults() {
    accepts(&smallest(), |manifest| {
        assert_eq!((manifest.version, manifest.vms.len()), (1, 1));
        assert_eq!(manifest.gear2, crate::Gear2Config::DEFAULT);
        let vm = manifest.vms.get(0).unwrap();
        assert_eq!((vm.name, vm.id.index(), vm.vcpu_count), ("linux", 0, 1));
        assert_eq!((vm.kind, vm.restart), (VmKind::Guest, Restart::Never));
        assert!(vm.autostart && !vm.may_power_off && vm.console.is_none());
        assert_eq!(vm.memory.bytes, 256 << 20);
        let kernel = "artifact:debian-kernel";
        assert_eq!(
            vm.payload,
            Payload::Linux {
                kernel,
                initrd: None,
                cmdline: ""
            }
        );
    });
    accepts(&smallest().node("/vms/linux/console"), |manifest| {
        assert_eq!(manifest.vms.get(0).unwrap().console, Some(Console::DEFAULT));
    });
}

#[test]
fn helps_with_typos() {
    refuses(
        &smallest().set("/vms/linux", "vcpu", cells(&[1])),
        &[
            "M-SYN-001: /vms/linux: vcpu: the binding has no such property here; did you mean vcpus?",
        ],
    );
}
