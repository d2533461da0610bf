//! The corpus, and 30,000 mutations of it for each target. A failure names the number that `run`
//! in a debugger can start from: the bytes follow from it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::TARGETS;
use super::mutate::{Random, mutated};

const MUTATIONS: u64 = 30_000;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let corpus = corpus(name);
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|bytes| (target.run)(bytes));
    for number in 0..MUTATIONS {
        let mut random = Random::new(number);
        let bytes = mutated(&corpus[random.below(corpus.len())], &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
        assert!(outcome.is_ok(), "{name}: mutation {number} of the corpus");
    }
    let files = corpus.len();
    println!("figure: {name}: a corpus of {files} and {MUTATIONS} mutations, nothing found");
}

/// G1-BOOT-001.
#[test]
fn tree() {
    replay("tree");
}

/// G1-BOOT-002.
#[test]
fn manifest() {
    replay("manifest");
}

#[test]
fn archive() {
    replay("archive");
}

/// G1-MEM-012.
#[test]
fn ffa() {
    replay("ffa");
}

#[test]
fn region() {
    replay("region");
}

#[test]
fn every_target_has_its_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/src");
    for target in TARGETS {
        let file = folder.join(target.name).with_extension("rs");
        let text = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            text.contains(&format!("\"{}\"", target.name)),
            "{}",
            file.display()
        );
    }
}
