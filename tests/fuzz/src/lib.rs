//! Every parser of foreign bytes, as a fuzz target: a function that takes any bytes and panics if
//! the parser breaks a promise.
//!
//! `cargo xtask fuzz` runs the targets under libFuzzer (`libfuzzer/`), which starts from the files
//! in `corpus/`; the tests here replay the corpus with seeded mutations on stable Rust. A new
//! target is a row in [`TARGETS`], a directory in `corpus/`, and a binary in `libfuzzer/`.
//!
//! A parser that panics at EL2 would be no crash of a process but a halt of the machine, and one of
//! Gear2's a failure that Gear1 counts. Therefore a target checks more than the absence of panics:
//! what was accepted keeps every promise that the code behind the parser relies on.
//!
//! The bytes come from whoever could write them on a machine:
//!
//! | target | writer | reader |
//! |---|---|---|
//! | `tree` | firmware, a boot loader | init, at EL2 |
//! | `manifest`, `archive` | whoever writes the boot medium | init, and Gear2 |
//! | `ffa` | any VM | the runtime, at EL2 |
//! | `region` | the device VM | Gear2 |

mod archive;
mod ffa;
mod manifest;
#[cfg(test)]
mod mutate;
mod region;
mod tree;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, of its directory in `corpus/` and of its binary in `libfuzzer/`.
    pub name: &'static str,
    /// Entry point, which accepts any bytes.
    pub run: fn(&[u8]),
}

/// All targets. One list, so that the replay of the corpus and libFuzzer cannot differ.
pub const TARGETS: &[Target] = &[
    Target {
        name: "tree",
        run: tree::run,
    },
    Target {
        name: "manifest",
        run: manifest::run,
    },
    Target {
        name: "archive",
        run: archive::run,
    },
    Target {
        name: "ffa",
        run: ffa::run,
    },
    Target {
        name: "region",
        run: region::run,
    },
];

/// Runs the target with this name on bytes.
///
/// # Panics
///
/// If there is no such target, or its parser breaks a promise.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target has this name").run)(bytes);
}

/// Copies bytes to a place on a multiple of four, as device trees lie in memory. The reader of
/// device trees refuses others, and would then be tried with nothing.
fn aligned(bytes: &[u8]) -> Vec<u32> {
    let chunks = bytes.chunks(4);
    let words = chunks.map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(word)
    });
    words.collect()
}

#[cfg(test)]
mod tests;
