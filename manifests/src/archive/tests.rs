//! Tests of the archive reader, with an archive written the plain way.

use std::format;
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::Index;

use super::{Archive, ArchiveError, HEADER_BYTES};

fn member(name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = b"070701".to_vec();
    for field in [
        1,
        0o100_644,
        0,
        0,
        1,
        0,
        data.len(),
        0,
        0,
        0,
        0,
        name.len(),
        0,
    ] {
        bytes.extend(format!("{field:08X}").bytes());
    }
    bytes.extend(name);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn sample() -> Vec<u8> {
    [
        member(b"manifest.dtb\0", b"blob"),
        member(b"artifact:debian-kernel\0\0\0\0\0", b"kernel"),
        member(b"empty\0", b""),
        member(b"dtb/linux\0", b"tree"),
        member(b"TRAILER!!!\0", b""),
    ]
    .concat()
}

#[test]
fn finds_members() {
    let bytes = sample();
    let archive = Archive::new(&bytes).unwrap();
    assert_eq!(archive.members().count(), 4);
    let kernel = archive.find("artifact:debian-kernel").unwrap();
    assert_eq!(kernel.data, b"kernel");
    assert_eq!(&bytes[kernel.offset..kernel.offset + 6], b"kernel");
    assert_eq!(archive.find("empty").unwrap().data, b"");
    assert_eq!(archive.guest_dtb("linux").unwrap().data, b"tree");
    assert!(archive.find("kernel").is_none() && archive.guest_dtb("").is_none());
    assert!(archive.find("TRAILER!!!").is_none());
    assert_eq!(archive.end() + HEADER_BYTES + 11, bytes.len() - 3);
}

#[test]
fn takes_what_follows_the_trailer() {
    let bytes = [sample(), [0xff; 100].to_vec()].concat();
    assert_eq!(Archive::new(&bytes).unwrap().members().count(), 4);
}

#[test]
fn refuses_every_truncation() {
    let bytes = sample();
    let whole = Archive::new(&bytes).unwrap().end() + HEADER_BYTES + 11;
    for count in 0..whole {
        let outcome = Archive::new(&bytes[..count]);
        assert!(
            matches!(outcome, Err(ArchiveError::Truncated { .. })),
            "{count}: {outcome:?}"
        );
    }
}

#[test]
fn refuses_damaged_headers() {
    let cases: [(&str, Vec<u8>); 6] = [
        (
            "crc format",
            b"070702"
                .iter()
                .copied()
                .chain(sample()[6..].to_vec())
                .collect(),
        ),
        ("compressed", std::vec![0x1f; 200]),
        ("no name", member(b"\0", b"")),
        ("unterminated name", member(b"name", b"")),
        ("text behind the name", member(b"name\0x", b"")),
        ("not UTF-8", member(b"\xff\0", b"")),
    ];
    for (what, bytes) in cases {
        let outcome = Archive::new(&bytes);
        assert!(
            matches!(outcome, Err(ArchiveError::Header { offset: 0 })),
            "{what}: {outcome:?}"
        );
    }
    let mut digits = sample();
    digits[60] = b'g';
    assert!(matches!(
        Archive::new(&digits),
        Err(ArchiveError::Header { offset: 0 })
    ));
}

#[test]
fn refuses_sizes_that_overflow() {
    for field in [54, 94] {
        let mut bytes = sample();
        bytes[field..field + 8].copy_from_slice(b"ffffffff");
        assert!(matches!(
            Archive::new(&bytes),
            Err(ArchiveError::Truncated { offset: 0 })
        ));
    }
}

proptest! {
    #[test]
    fn mutated_archives_never_panic(
        changes in vec((any::<Index>(), any::<u8>()), 1..8),
        cut in any::<Index>(),
    ) {
        let mut bytes = sample();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok(archive) = Archive::new(&bytes) {
            archive.members().for_each(|member| assert!(!member.name.is_empty()));
        }
    }
}
