//! Digests: whether a file is the one that the manifest was written for.
//!
//! A digest detects a mistake, not an attack: a person who can change the archive can change the
//! manifest in it too, unless the boot loader has checked both.

use sha2::{Digest as _, Sha256};

use crate::error::{Found, ManifestError, Rule};
use crate::model::Manifest;

#[cfg(test)]
mod tests;

/// Digits of a SHA-256.
const DIGITS: usize = 64;

/// Compares each file that has a digest with it, and reports those that differ. `find` returns a
/// file's bytes; one that it does not find is not judged.
pub fn check_digests<'a, 'f>(
    manifest: &Manifest<'a>,
    mut find: impl FnMut(&'a str) -> Option<&'f [u8]>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) {
    for file in manifest.files() {
        let Some((text, bytes)) = file.digest.zip(file.digest.and_then(|_| find(file.name))) else {
            continue;
        };
        let found: [u8; 32] = Sha256::digest(bytes).into();
        if !is_of(text, &found) {
            let error = ManifestError::at_property(Rule::DigestDiffers, file.node, file.property);
            sink(error.found(Found::Digest(found)));
        }
    }
}

/// Tells whether this is a SHA-256 in hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Tells whether `text` writes `digest`.
fn is_of(text: &str, digest: &[u8; 32]) -> bool {
    let nibbles = digest.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = text.chars().map(|digit| digit.to_digit(16));
    digits.eq(nibbles.map(|nibble| Some(nibble.into())))
}
