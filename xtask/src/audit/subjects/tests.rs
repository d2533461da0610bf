//! Counts of texts by subject, and the rules of the workspace.

use std::collections::BTreeMap;

use super::{Image, NONE, Rules, Tally, count, files, subject};

const TEXT: &str = "const A: u8 = 1;
fn linked() {
    f();
}
fn inlined_nowhere() {
    g();
    h();
}
#[cfg(test)]
mod tests;
";

#[test]
fn what_is_resident_is_told_from_boot_and_from_what_is_not_linked() {
    let rules = Rules::read().unwrap();
    let files: BTreeMap<String, String> = [
        "gear1/core/src/vgic/word.rs",
        "gear1/arch/src/gicv2.rs",
        "gear1/init/src/fdt.rs",
    ]
    .map(|file| (file.to_owned(), TEXT.to_owned()))
    .into();
    let mut image = Image::default();
    let word = "gear1/core/src/vgic/word.rs".to_owned();
    image.lines.insert(word.clone(), [3].into());
    image.bytes.insert(word, 8);
    let tallies = count(&rules, &files, &image);
    let tally = |resident, bytes, boot, others| Tally {
        resident,
        bytes,
        boot,
        others,
    };
    assert_eq!(tallies["vGIC"], tally(4, 8, 0, 4));
    assert_eq!(tallies["physical GIC"], tally(0, 0, 0, 8));
    assert_eq!(tallies["device trees"], tally(0, 0, 8, 0));
}

#[test]
fn every_prefix_of_a_subject_has_a_file() {
    let rules = Rules::read().unwrap();
    let files = files().unwrap();
    for prefix in rules.subjects.values().flatten() {
        let is_used = files.keys().any(|file| file.starts_with(prefix.as_str()));
        assert!(is_used, "gear1/audit.toml: {prefix}: no such source");
    }
}

#[test]
fn the_longest_prefix_is_the_subject() {
    let rules = Rules::read().unwrap();
    assert_eq!(subject(&rules, "gear1/arch/src/gicv3.rs"), "physical GIC");
    assert_eq!(
        subject(&rules, "gear1/arch/src/new.rs"),
        "start and machine"
    );
    assert_eq!(subject(&rules, "gear1/core/src/new.rs"), NONE);
}
