//! Requirements: G1-BOOT-007.

use alloc::string::ToString;
use alloc::vec;

use super::{GuestFacts, patch};
use crate::region::Region;
use crate::testing::{guest_tree, tree};
use crate::trees::{Aligned, Tree, cells};

fn facts(gic_version: u32) -> GuestFacts {
    GuestFacts {
        memory: Region::new(0x4000_0000, 0x5000_0000),
        initrd: Region::new(0x4300_0000, 0x4300_1234),
        seed: core::array::from_fn(|at| at as u8),
        gic_version,
        gic: [
            Region::new(0x800_0000, 0x801_0000),
            Region::new(0x80a_0000, 0x80e_0000),
        ],
    }
}

fn value(tree: &mut Tree, path: &str, name: &str) -> vec::Vec<u8> {
    let node = tree.at(path);
    node.properties
        .iter()
        .find(|(known, _)| known == name)
        .unwrap()
        .1
        .clone()
}

#[test]
fn all_that_the_boot_knows_is_written() {
    let template = guest_tree().flatten();
    let patched = patch(template.as_slice(), "dtb/linux", &facts(3)).unwrap();
    assert_eq!(patched.len(), template.as_slice().len());
    let mut tree = tree(&patched);
    assert_eq!(value(&mut tree, "/", "interrupt-parent"), cells(&[1]));
    assert_eq!(
        value(&mut tree, "/memory@0", "reg"),
        cells(&[0, 0x4000_0000, 0, 0x1000_0000])
    );
    assert_eq!(
        value(&mut tree, "/chosen", "linux,initrd-start"),
        cells(&[0, 0x4300_0000])
    );
    assert_eq!(
        value(&mut tree, "/chosen", "linux,initrd-end"),
        cells(&[0, 0x4300_1234])
    );
    assert_eq!(value(&mut tree, "/chosen", "rng-seed")[31], 31);
    assert_eq!(
        value(&mut tree, "/chosen", "kaslr-seed"),
        (32..40).collect::<vec::Vec<u8>>()
    );
    let gic = "/interrupt-controller-v3";
    assert_eq!(
        value(&mut tree, gic, "reg"),
        cells(&[0, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0x4_0000])
    );
}

/// Whatever this boot has, the tree has that and nothing else that stands for it, and its size.
#[test]
fn what_this_boot_lacks_is_not_in_the_tree() {
    let template = guest_tree().flatten();
    let some = facts(3).initrd;
    let none = [Region::new(0, 0), Region::new(0x4300_0000, 0x4300_0000)];
    for (version, phandle) in [(2, 2), (3, 1)] {
        for initrd in [some, none[0], none[1]] {
            let facts = GuestFacts {
                initrd,
                ..facts(version)
            };
            let patched = patch(template.as_slice(), "dtb/linux", &facts).unwrap();
            assert_eq!(patched.len(), template.as_slice().len());
            let mut tree = tree(&patched);
            assert_eq!(value(&mut tree, "/", "interrupt-parent"), cells(&[phandle]));
            let names = tree.children.iter().map(|(name, _)| name.to_string());
            let gics: vec::Vec<_> = names
                .filter(|name| name.starts_with("interrupt-controller"))
                .collect();
            assert_eq!(gics, [std::format!("interrupt-controller-v{version}")]);
            let chosen = tree.at("/chosen").properties.iter();
            let initrds = chosen.filter(|(name, _)| name.contains("initrd")).count();
            assert_eq!(initrds, if initrd.bytes() == 0 { 0 } else { 2 });
            assert_eq!(value(&mut tree, "/chosen", "rng-seed")[31], 31);
        }
    }
}

#[test]
fn another_shape_is_refused() {
    let cases = [
        (
            guest_tree().unset("/chosen", "rng-seed"),
            "dtb/x: /chosen: rng-seed: missing",
        ),
        (
            guest_tree().set("/memory@0", "reg", cells(&[0, 0])),
            "dtb/x: /memory@0: reg: not 16 bytes",
        ),
        (
            guest_tree().unset("/memory@0", "device_type"),
            "dtb/x: /: no memory node",
        ),
        (
            Tree::default().set("/", "x", vec![]),
            "dtb/x: /: no node \"chosen\"",
        ),
    ];
    for (tree, message) in cases {
        let refused = patch(tree.flatten().as_slice(), "dtb/x", &facts(3)).unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    let refused = patch(Aligned::new(&[0; 64]).as_slice(), "dtb/x", &facts(3)).unwrap_err();
    assert_eq!(refused.to_string(), "dtb/x: no device tree magic");
}
