//! Tests of the index: a tree answers the same with it and without it.

use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::Index;

use super::{RecordRoom, WORDS};
use crate::blob::names::{Texts, name_bit};
use crate::blob::{Blob, FDT_NOP, Node, Property};
use crate::testing::{Aligned, Tree, cells, smallest, text};

/// Names that trees here have, and others with their bits.
const NAMES: &[&str] = &[
    "compatible",
    "version",
    "vcpus",
    "memory-mib",
    "kernel",
    "a",
    "b",
    "empty",
    "",
    "none",
    "z",
    "phandle",
    "linux,phandle",
];

/// Lists of compatible strings, of which trees here have some.
static COMPATIBLE: [Texts; 4] = [
    Texts::new(&["arm,gic"]),
    Texts::new(&["x", "gearv,manifest"]),
    Texts::new(&["none", "last"]),
    Texts::new(&[]),
];

/// Returns all that can be asked of a node and of those below.
fn answers(node: &Node<'_>) -> Vec<String> {
    let range = |range: core::ops::Range<usize>| std::format!("{range:?}");
    let mut list = vec![node.name().into(), range(node.tokens())];
    list.push(std::format!("{:?}", node.phandle()));
    list.push(std::format!("{}", node.highest_phandle()));
    let place = node.compatible().map(|one| one.offset);
    list.push(std::format!("{place:?} {}", node.has_compatible()));
    list.push(std::format!("{:x?}", node.all_property_tokens()));
    for texts in &COMPATIBLE {
        let found = node.all_compatible(texts).map(|one| range(one.tokens()));
        list.push(found.collect::<Vec<_>>().join(" "));
    }
    let compatible = COMPATIBLE.each_ref().map(|texts| node.is_compatible(texts));
    list.push(std::format!("{compatible:?}"));
    list.extend(node.properties().map(|one| range(one.tokens())));
    let named = NAMES.iter().map(|name| node.property(name));
    list.extend(named.map(|found| std::format!("{:?}", found.map(|one| one.offset))));
    let kept = node.property_tokens(|one| !one.is_called("a"));
    list.extend(kept.map(|tokens| std::format!("{tokens:x?}")));
    list.push(std::format!("{:x?}", node.child_tokens()));
    let all = node.all().map(|one| range(one.tokens()));
    list.push(all.collect::<Vec<_>>().join(" "));
    for child in node.children() {
        let found = node.child(child.name()).map(|found| found.tokens());
        list.push(std::format!("{found:?}"));
        list.extend(answers(&child));
    }
    list
}

/// Compares the answers with an index, and with too few words for one.
fn compare(bytes: &[u8]) {
    let mut records = [RecordRoom::default(); 8];
    let Ok(tree) = Blob::new(bytes) else {
        assert!(Blob::indexed(bytes, &mut records, &mut [0; 8]).is_err());
        return;
    };
    let expected = answers(&tree.root());
    let (count, names) = (tree.root().all().count(), tree.strings().len());
    let size = Blob::index_size(bytes).unwrap();
    assert!(size.records >= count && size.names == names);
    for (count, names) in [
        (count, names),
        (count, 0),
        (count - 1, names),
        (count + 5, names),
    ] {
        // What was in the words before does not matter: here what leads to another cell.
        for before in [0, 9] {
            let mut records = vec![[before; WORDS]; count];
            let indexed =
                Blob::indexed(bytes, &mut records, &mut vec![before as u8; names]).unwrap();
            assert_eq!(answers(&indexed.root()), expected);
        }
    }
}

/// Tells whether an index says that the node has no property with this name.
fn lacks(node: &Node<'_>, name: &str) -> bool {
    node.lacks_name(name_bit(name.as_bytes()))
}

fn sample() -> Tree {
    Tree::default()
        .set("/", "a", cells(&[1, 2]))
        .set("/", "b", Vec::new())
        .set("/x/y", "a", text("deep"))
        .set("/x", "empty", Vec::new())
        .node("/x/z")
        .node("/long-name-of-several-cells@1000/b")
        .set("/w", "z", vec![1, 2, 3])
        .set("/w", "phandle", vec![1, 2, 3])
        .set("/w", "linux,phandle", cells(&[9]))
        .set("/x", "phandle", cells(&[0, 5]))
        .set("/x/y", "linux,phandle", cells(&[7]))
        .set("/x/z", "phandle", cells(&[8]))
        .set("/x/z", "linux,phandle", cells(&[7]))
        .set("/x", "compatible", text("a\0arm,gic\0last"))
}

#[test]
fn a_tree_answers_the_same_with_an_index() {
    let bytes = sample().flatten();
    compare(bytes.as_slice());
    compare(smallest().flatten().as_slice());
    let tree = Blob::new(bytes.as_slice()).unwrap();
    let size = Blob::index_size(bytes.as_slice()).unwrap();
    let mut records = vec![RecordRoom::default(); size.records];
    let mut names = vec![0; size.names];
    let indexed = Blob::indexed(bytes.as_slice(), &mut records, &mut names).unwrap();
    let x = indexed.root().child("x").unwrap();
    // The index is used: it knows what the node has not.
    assert!(x.property("empty").is_some() && lacks(&x, "b") && !lacks(&x, "empty"));
    assert!(!lacks(&tree.root().child("x").unwrap(), "b"));
}

/// A tree of the compiler's has no name twice. Here other names of the same length are changed in
/// the strings block.
#[test]
fn the_first_of_two_phandles_counts_with_an_index() {
    let tree =
        sample()
            .set("/x/z", "phandl2", cells(&[3]))
            .set("/x/y", "linux,phandl2", cells(&[4]));
    let mut bytes = tree.flatten().as_slice().to_vec();
    let mut changed = 0;
    for place in 0..bytes.len() - 8 {
        if bytes[place..place + 8] == *b"phandl2\0" {
            bytes[place + 6] = b'e';
            changed += 1;
        }
    }
    assert_eq!(changed, 2);
    let bytes = Aligned::new(&bytes);
    compare(bytes.as_slice());
    let tree = Blob::new(bytes.as_slice()).unwrap();
    for (node, values) in [("y", [4, 7]), ("z", [3, 8])] {
        let node = tree.root().child("x").unwrap().child(node).unwrap();
        let of_name = |one: &Property<'_>| one.name().ends_with("phandle");
        let all: Vec<u32> = (node.properties().filter(of_name))
            .filter_map(|one| one.cells()?.next())
            .filter(|value| values.contains(value))
            .collect();
        assert_eq!(all.len(), 2);
        assert_eq!(node.phandle(), all.first().copied());
    }
}

#[test]
fn names_of_a_node_have_bits_of_their_own() {
    let names = [
        "compatible",
        "reg",
        "interrupts",
        "status",
        "phandle",
        "ranges",
    ];
    let bits = names.map(|name| name_bit(name.as_bytes()));
    assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones(), 6);
    assert_ne!(name_bit(b"interrupts"), name_bit(b"interrupt-parent"));
}

proptest! {
    #[test]
    fn damaged_trees_answer_the_same(
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        nops in vec(any::<Index>(), 0..4),
    ) {
        let mut bytes = sample().flatten().as_slice().to_vec();
        for place in nops {
            let place = place.index(bytes.len() / 4) * 4;
            bytes[place..place + 4].copy_from_slice(&FDT_NOP.to_be_bytes());
        }
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        compare(Aligned::new(&bytes).as_slice());
    }
}
