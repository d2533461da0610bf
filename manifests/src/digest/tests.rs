//! Tests of digests.

use std::string::{String, ToString};
use std::vec::Vec;

use super::{check_digests, is_digest};
use crate::error::Rule;
use crate::testing::{Tree, cells, smallest, text};

/// The digests of no bytes and of "abc" (FIPS 180-4, and the examples published with it).
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn differing(manifest: &Tree, files: &[(&str, &[u8])]) -> Vec<(Rule, String)> {
    let blob = manifest.flatten();
    let judged = crate::judge(blob.as_slice(), None, &mut |_| {});
    let manifest = judged.manifest.unwrap();
    let mut found = Vec::new();
    let find = |name: &str| files.iter().find(|file| file.0 == name).map(|file| file.1);
    check_digests(&manifest, find, &mut |error| {
        found.push((error.rule, error.to_string()));
    });
    found
}

#[test]
fn a_digest_is_that_of_its_file_alone() {
    let vm = "/vms/linux";
    let manifest = smallest()
        .set(vm, "kernel-sha256", text(ABC))
        .set(vm, "initrd", text("empty"))
        .set(vm, "initrd-sha256", text(&EMPTY.to_uppercase()));
    let kernel = "artifact:debian-kernel";
    assert_eq!(
        differing(&manifest, &[(kernel, b"abc"), ("empty", b"")]),
        []
    );
    // Another rule reports missing files.
    assert_eq!(differing(&manifest, &[]), []);
    let swapped = differing(&manifest, &[(kernel, b""), ("empty", b"abc")]);
    assert!(swapped.iter().all(|(rule, _)| *rule == Rule::DigestDiffers));
    assert!(swapped[0].1.contains(EMPTY) && swapped[0].1.contains("kernel-sha256"));
    assert!(swapped[1].1.contains(ABC) && swapped[1].1.contains("initrd-sha256"));
}

#[test]
fn gear2_and_flat_images_have_digests_too() {
    let manifest = smallest()
        .set("/gear2", "image", text("mine.bin"))
        .set("/gear2", "image-sha256", text(ABC))
        .set("/vms/flat", "memory-mib", cells(&[2]))
        .set("/vms/flat", "image", text("flat.bin"))
        .set("/vms/flat", "image-sha256", text(ABC));
    let good: [(&str, &[u8]); 2] = [("mine.bin", b"abc"), ("flat.bin", b"abc")];
    assert_eq!(differing(&manifest, &good), []);
    for (place, node) in ["/gear2: ", "/vms/flat: "].into_iter().enumerate() {
        let mut files = good;
        files[place].1 = b"abd";
        let found = differing(&manifest, &files);
        assert!(found.len() == 1 && found[0].1.contains(node), "{found:?}");
    }
}

#[test]
fn a_digest_has_64_hexadecimal_digits() {
    assert!(is_digest(ABC) && is_digest(&ABC.to_uppercase()));
    assert!(!is_digest(&ABC[1..]) && !is_digest("") && !is_digest(&ABC.replace('b', "g")));
}
