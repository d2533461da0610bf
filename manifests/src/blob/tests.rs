//! Tests of the safe layer over fdt-rs: navigation, and that nothing damaged gets through.

use std::string::String;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, proptest};
use proptest::sample::Index;

use super::{Blob, BlobError, FDT_NOP, Node, Texts};
use crate::testing::{Aligned, Tree, cells, smallest, text};
use crate::{Board, Privilege, Region, Severity, VmKind, validate};

fn sample() -> Aligned {
    Tree::default()
        .set("/", "a", cells(&[1, 2]))
        .set("/x/y", "name", text("deep"))
        .set("/x", "empty", Vec::new())
        .node("/x/z")
        .set("/w", "odd", std::vec![1, 2, 3])
        .flatten()
}

fn sample_with(path: &str) -> Aligned {
    Tree::default()
        .set("/", "p", Vec::new())
        .node(path)
        .flatten()
}

/// Visits all that navigation can reach and returns how much that is.
fn visit(node: &Node<'_>) -> usize {
    let own = node.properties().map(|property| {
        let cells = property.cells().map_or(0, |cells| cells.count());
        property.name().len() + property.value.len() + cells + property.text().map_or(0, str::len)
    });
    1 + own.sum::<usize>() + node.children().map(|child| visit(&child)).sum::<usize>()
}

/// Returns the names of a node, of its properties, and of all nodes below.
fn names_of(node: &Node<'_>) -> Vec<String> {
    let properties = node.properties().map(|property| property.name().into());
    let own = core::iter::once(node.name().into()).chain(properties);
    own.chain(node.children().flat_map(|child| names_of(&child)))
        .collect()
}

/// `FDT_NOP` over a node's or a property's tokens takes out that and nothing else.
#[test]
fn tokens_are_all_of_a_node_or_of_a_property() {
    let bytes = sample();
    let root = Blob::new(bytes.as_slice()).unwrap().root();
    assert_eq!(
        names_of(&root),
        ["", "a", "x", "empty", "y", "name", "z", "w", "odd"]
    );
    let [x, w] = ["x", "w"].map(|name| root.child(name).unwrap());
    let property = |node: Node<'_>, name| node.property(name).unwrap().tokens();
    let cases: [(_, &[&str]); 7] = [
        (x.tokens(), &["", "a", "w", "odd"]),
        (w.tokens(), &["", "a", "x", "empty", "y", "name", "z"]),
        (
            x.child("y").unwrap().tokens(),
            &["", "a", "x", "empty", "z", "w", "odd"],
        ),
        (
            x.child("z").unwrap().tokens(),
            &["", "a", "x", "empty", "y", "name", "w", "odd"],
        ),
        (
            property(root, "a"),
            &["", "x", "empty", "y", "name", "z", "w", "odd"],
        ),
        (
            property(x, "empty"),
            &["", "a", "x", "y", "name", "z", "w", "odd"],
        ),
        (
            property(w, "odd"),
            &["", "a", "x", "empty", "y", "name", "z", "w"],
        ),
    ];
    for (tokens, left) in cases {
        let mut without = bytes.as_slice().to_vec();
        let nops = std::vec![super::FDT_NOP.to_be_bytes(); tokens.len() / 4].concat();
        without[tokens].copy_from_slice(&nops);
        let without = Aligned::new(&without);
        assert_eq!(
            names_of(&Blob::new(without.as_slice()).unwrap().root()),
            left
        );
    }
}

#[test]
fn navigates() {
    let bytes = sample();
    let blob = Blob::new(bytes.as_slice()).unwrap();
    let root = blob.root();
    let names = |node: &Node<'_>| {
        node.children()
            .map(|c| c.name().into())
            .collect::<Vec<String>>()
    };
    assert_eq!(
        (root.name(), names(&root)),
        ("", std::vec!["x".into(), "w".into()])
    );
    let x = root.child("x").unwrap();
    assert_eq!(names(&x), ["y", "z"]);
    assert_eq!(
        x.child("y").unwrap().property("name").unwrap().text(),
        Some("deep")
    );
    assert!(root.property("a").unwrap().cells().unwrap().eq([1, 2]));
    assert!(
        root.child("w")
            .unwrap()
            .property("odd")
            .unwrap()
            .cells()
            .is_none()
    );
    assert!(root.child("y").is_none() && root.property("name").is_none());
    assert_eq!(blob.bytes(), bytes.as_slice());
}

/// A list of strings may lack its last NUL; a string is not the end of another one.
#[test]
fn finds_a_string_in_a_list() {
    let bytes = Tree::default()
        .set("/", "compatible", b"arm,gic-v3\0other".to_vec())
        .flatten();
    let list = Blob::new(bytes.as_slice()).unwrap().root();
    let list = list.property("compatible").unwrap();
    assert!(
        list.has_text_of(&Texts::new(&["arm,gic-v3"]))
            && list.has_text_of(&Texts::new(&["none", "other"]))
    );
    assert!(
        !list.has_text_of(&Texts::new(&["gic-v3", "oth", "arm,gic-v"]))
            && !list.has_text_of(&Texts::new(&[]))
    );
}

/// The pieces are the properties that are kept, each with its token, and the nodes below as they
/// are; NOPs between them do not matter.
#[test]
fn gives_tokens_as_they_are() {
    let bytes = Tree::default()
        .set("/", "a", std::vec![1, 2, 3, 4])
        .set("/", "b", std::vec![5])
        .set("/", "c", std::vec![6])
        .set("/n", "a", std::vec![7])
        .flatten();
    let tokens = |bytes: &Aligned, without: &str| {
        let root = Blob::new(bytes.as_slice()).unwrap().root();
        let pieces = root.property_tokens(|property| !property.is_called(without));
        (
            pieces.collect::<Vec<_>>().concat(),
            root.child_tokens().to_vec(),
        )
    };
    let (all, below) = tokens(&bytes, "none");
    assert_eq!(all.len(), 3 * 16);
    let [a, b, c] = [&all[..16], &all[16..32], &all[32..]];
    assert_eq!(tokens(&bytes, "a").0, [b, c].concat());
    assert_eq!(tokens(&bytes, "b").0, [a, c].concat());
    assert_eq!(tokens(&bytes, "c").0, [a, b].concat());
    // The token, the name, the property and the end.
    assert_eq!(below.len(), 4 + 4 + 16 + 4);
    assert_eq!(below[..8], *b"\0\0\0\x01n\0\0\0");
    let root = Blob::new(bytes.as_slice()).unwrap().root();
    assert!(root.child("n").unwrap().child_tokens().is_empty());
    let gone = root.property("b").unwrap().tokens();
    let mut patched = bytes.as_slice().to_vec();
    for cell in patched[gone].chunks_mut(4) {
        cell.copy_from_slice(&FDT_NOP.to_be_bytes());
    }
    let bytes = Aligned::new(&patched);
    let (rest, same) = tokens(&bytes, "none");
    assert_eq!(rest.len(), 3 * 16);
    assert_eq!(tokens(&bytes, "a").0, rest[16..]);
    assert_eq!(same, below);
}

#[test]
fn says_where_values_lie() {
    let bytes = sample();
    let blob = Blob::new(bytes.as_slice()).unwrap();
    for property in blob
        .root()
        .properties()
        .chain(blob.root().child("w").unwrap().properties())
    {
        let at = property.offset..property.offset + property.value.len();
        assert_eq!(&bytes.as_slice()[at], property.value);
    }
}

#[test]
fn takes_bytes_behind_the_tree() {
    let bytes = sample();
    let longer = Aligned::new(&[bytes.as_slice(), &[0xaa; 7]].concat());
    assert_eq!(
        Blob::new(longer.as_slice()).unwrap().bytes(),
        bytes.as_slice()
    );
}

fn with_field(index: usize, value: u32) -> Result<(), BlobError> {
    let mut bytes = sample().as_slice().to_vec();
    bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
    Blob::new(Aligned::new(&bytes).as_slice()).map(drop)
}

#[test]
fn refuses_damaged_headers() {
    let total = u32::try_from(sample().as_slice().len()).unwrap();
    let cases = [
        (0, 0xd00d_feee, BlobError::Magic),
        (1, total + 1, BlobError::Short),
        (1, u32::MAX, BlobError::Short),
        (1, 8, BlobError::Layout),
        (2, 0, BlobError::Layout),
        (2, 58, BlobError::Layout),
        (2, u32::MAX, BlobError::Layout),
        (3, total, BlobError::Layout),
        (3, 60, BlobError::Layout),
        (3, 0, BlobError::Layout),
        (4, total, BlobError::Layout),
        (4, 41, BlobError::Layout),
        (5, 16, BlobError::Version),
        (6, 18, BlobError::Version),
        (8, u32::MAX, BlobError::Layout),
        (8, 1, BlobError::Structure { offset: 64 }),
        (9, u32::MAX, BlobError::Layout),
        (9, 8, BlobError::Structure { offset: 64 }),
    ];
    for (index, value, error) in cases {
        assert_eq!(
            with_field(index, value),
            Err(error),
            "header word {index} = {value:#x}"
        );
    }
}

#[test]
fn refuses_misaligned_bytes() {
    let bytes = sample();
    let shifted = Aligned::new(&[&[0], bytes.as_slice()].concat());
    assert_eq!(
        Blob::new(&shifted.as_slice()[1..]).map(drop),
        Err(BlobError::Alignment)
    );
}

#[test]
fn refuses_deep_nesting_and_takes_long_names() {
    let deep = |count: usize| sample_with(&"/n".repeat(count));
    assert!(Blob::new(deep(15).as_slice()).is_ok());
    assert_eq!(
        Blob::new(deep(16).as_slice()).map(drop),
        Err(BlobError::Depth)
    );
    let bytes = sample_with(&"n".repeat(300));
    let blob = Blob::new(bytes.as_slice()).unwrap();
    assert_eq!(blob.root().children().next().unwrap().name().len(), 300);
}

/// Returns a tree whose structure block is these words.
fn structure(words: &[u32]) -> Aligned {
    let mut bytes = Tree::default().flatten().as_slice().to_vec();
    bytes.truncate(56);
    bytes.extend(cells(words));
    let names = u32::try_from(bytes.len()).unwrap();
    bytes.extend(text("p"));
    for (index, value) in [(1, names + 2), (3, names), (8, 2), (9, names - 56)] {
        bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
    }
    Aligned::new(&bytes)
}

#[test]
fn refuses_structures_that_do_not_nest() {
    const BEGIN: u32 = 1;
    const END_NODE: u32 = 2;
    const PROPERTY: u32 = 3;
    const NOP: u32 = 4;
    const END: u32 = 9;
    let good = [NOP, BEGIN, 0, NOP, PROPERTY, 0, 0, NOP, END_NODE, NOP, END];
    assert_eq!(
        Blob::new(structure(&good).as_slice()).map(|blob| visit(&blob.root())),
        Ok(2)
    );
    let bad: [&[u32]; 16] = [
        &[BEGIN, u32::MAX],
        &[BEGIN, 0x8000_0000, END_NODE, END],
        &[],
        &[END],
        &[NOP],
        &[END_NODE, END],
        &[BEGIN],
        &[BEGIN, 0, END],
        &[BEGIN, 0, END_NODE],
        &[BEGIN, 0, END_NODE, END_NODE, END],
        &[BEGIN, 0, END_NODE, BEGIN, 0, END_NODE, END],
        &[PROPERTY, 0, 0, BEGIN, 0, END_NODE, END],
        &[
            BEGIN,
            0,
            BEGIN,
            0x6100_0000,
            END_NODE,
            PROPERTY,
            0,
            0,
            END_NODE,
            END,
        ],
        &[BEGIN, 0, PROPERTY, 0, 2, END_NODE, END],
        &[BEGIN, 0, PROPERTY, 1000, 0, END_NODE, END],
        &[BEGIN, 0, 5, END_NODE, END],
    ];
    for words in bad {
        let blob = structure(words);
        let outcome = Blob::new(blob.as_slice());
        assert!(
            matches!(outcome, Err(BlobError::Structure { .. })),
            "{words:?}: {outcome:?}"
        );
    }
}

/// Does all that any user does with a blob; only a panic is a failure.
fn exercise(bytes: &[u8]) {
    if let Ok(blob) = Blob::new(bytes) {
        visit(&blob.root());
    }
    let (kinds, privileges) = (&[VmKind::Guest], &[Privilege::El0]);
    let memory = &[Region::new(0x4000_0000, 0x8000_0000)];
    let board = Board {
        cpu_count: 4,
        memory,
        reserved: &[],
        devices: &[],
        pmu: false,
        lacks_sve: false,
        kinds,
        privileges,
    };
    let mut text = String::new();
    let read = validate(bytes, &board, &mut |error| {
        if error.rule.severity() == Severity::Error {
            text = std::format!("{error}");
        }
    });
    assert_eq!(read.is_err(), !text.is_empty());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        exercise(Aligned::new(&bytes).as_slice());
    }

    #[test]
    fn random_structures_never_panic(words in vec(0_u32..12, 0..60)) {
        exercise(structure(&words).as_slice());
    }

    #[test]
    fn mutated_manifests_never_panic(
        changes in vec((any::<Index>(), any::<u8>()), 1..8),
        cut in any::<Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = smallest()
            .set("/gear2", "cpus", cells(&[0, 1]))
            .set("/vms/linux/console", "interrupt", cells(&[33]))
            .flatten().as_slice().to_vec();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        exercise(Aligned::new(&bytes).as_slice());
    }

    #[test]
    fn mutated_headers_never_panic(index in 0_usize..10, value in 0_u32..600) {
        let mut bytes = sample().as_slice().to_vec();
        bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
        exercise(Aligned::new(&bytes).as_slice());
    }

    #[test]
    fn random_values_never_panic(value in vec(any::<u8>(), 0..16), name in 0_usize..20) {
        let names = ["vcpus", "cpus", "memory-mib", "memory-address", "memory-ipa", "kernel",
            "image", "load-offset", "kind", "gic"];
        let tree = smallest().set("/vms/linux", names[name % names.len()], value);
        prop_assert!(Blob::new(tree.flatten().as_slice()).is_ok());
        exercise(tree.flatten().as_slice());
    }
}
