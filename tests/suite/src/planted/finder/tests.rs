//! Tests of what finds the planted bugs.

use super::{Program, bugs, has_host_feature, packages};

/// Each test on the host is one of a package of the workspace, by the package's own name.
#[test]
fn packages_have_their_own_names() {
    let of = |source| Program::of(source).unwrap().0.package;
    assert_eq!(of("manifests/src/rules/tests.rs"), "gearv-manifest");
    assert_eq!(of("gear1/core/tests/protocol/doorbell.rs"), "gear1-core");
    assert_eq!(of("device-model/tests/processes.rs"), "device-model");
    for bug in bugs() {
        assert!(bug.finder.host_tests(bug).is_ok(), "{}", bug.name);
    }
}

/// The packages whose files stay apart are all that the copy can have in common with the workspace.
#[test]
fn all_packages_of_the_workspace_are_built_apart() {
    let packages = packages();
    for name in [
        "gear1-abi",
        "gear2-protocol",
        "gearv-manifest",
        "tests-suite",
    ] {
        assert!(packages.iter().any(|package| package == name), "{name}");
    }
}

/// Packages with such parts do not compile their tests without them: the build's failure finds
/// nothing.
#[test]
fn a_package_is_tested_with_its_parts_for_hosts() {
    let has_it = ["gear1-init", "gearv-manifest", "gear2-core"].map(has_host_feature);
    assert_eq!(has_it, [true; 3]);
    assert!(!has_host_feature("device-model") && !has_host_feature("nothing"));
}
