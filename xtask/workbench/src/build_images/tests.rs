//! Tests of the places of images.

use std::fs;

use super::output_name;
use crate::workspace::{root, scratch};

#[test]
fn manifests_of_one_name_have_folders_of_their_own() {
    let folder = scratch("output-names");
    let mut names = Vec::new();
    for below in ["one", "two"] {
        fs::create_dir_all(folder.join(below)).unwrap();
        let manifest = folder.join(below).join("qemu-virt.dts");
        fs::write(&manifest, "").unwrap();
        let name = output_name(&manifest).unwrap();
        assert_eq!(name, output_name(&manifest).unwrap());
        names.push(name.into_string().unwrap());
    }
    assert_ne!(names[0], names[1]);
    for name in &names {
        assert_eq!(name.len(), "qemu-virt-01234567".len(), "{name}");
        assert!(name.starts_with("qemu-virt-"), "{name}");
    }
    let missing = output_name(&folder.join("none.dts")).unwrap_err();
    assert!(missing.to_string().starts_with("there is no manifest "));
    fs::remove_dir_all(folder).unwrap();
    let ours = output_name(&root().join("manifests/qemu-virt.dts")).unwrap();
    assert_eq!(ours, "qemu-virt");
}

/// cargo keeps the program of a build script when the tree moves, or is copied with its target
/// directory: a folder that was compiled in would be the old one.
#[test]
fn build_scripts_ask_where_the_tree_is() {
    for package in ["gear1/init", "gear1/runtime", "gear2/image", "tests/guests"] {
        let script = root().join(package).join("build.rs");
        let text = fs::read_to_string(&script).unwrap();
        assert!(!text.contains("env!(\"CARGO_MANIFEST_DIR"), "{package}");
        let asks = text.contains("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
        assert!(asks, "{package}");
    }
}
