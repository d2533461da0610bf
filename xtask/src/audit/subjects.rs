//! Gear1 by subject: lines and bytes of what stays at EL2, and lines of what is gone before a guest
//! runs.
//!
//! A function is *resident* if the runtime for GICv3 has an instruction of the function. A
//! declaration is resident if its file has a resident function, or if its file has no functions and
//! no part in init. Everything else that ships is *boot*: init, the manifests' reader, the protocol
//! with Gear2, and what init alone links of the crates that both link; or it is *not linked*.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::code::Program;
use super::places::{Frame, frames};
use super::rules::Rules;
use super::rust::Linked;
use super::source::is_test;

/// The crates that the runtime is linked from.
const RESIDENT: [&str; 4] = ["gear1/abi/", "gear1/arch/", "gear1/core/", "gear1/runtime/"];
/// The crates and modules that only init is linked from.
const BOOT: [&str; 4] = [
    "gear1/arch/src/boot",
    "gear1/init/",
    "gear2/protocol/",
    "manifests/",
];
/// All of them.
pub(super) const DIRECTORIES: [&str; 3] = ["gear1", "gear2/protocol", "manifests"];
/// Subject of the bytes that no file of ours makes: assembly without lines, libraries, padding.
const LIBRARIES: &str = "libraries and assembly";
/// Bytes of an A64 instruction.
const INSTRUCTION_BYTES: u64 = 4;
/// The subject of a file that `gear1/audit.toml` does not name.
const NONE: &str = "no subject";

/// Lines and bytes of one subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) resident: u64,
    /// Bytes of instructions in the runtime for GICv3.
    pub(super) bytes: u64,
    pub(super) boot: u64,
    /// Lines that neither the runtime for GICv3 nor init links, as of the other GIC.
    pub(super) others: u64,
}

/// Share of each file in an image.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// By file, the lines that instructions come from.
    lines: BTreeMap<String, BTreeSet<u32>>,
    /// By file, the bytes of instructions.
    bytes: BTreeMap<String, u64>,
}

impl Image {
    /// An image says by its debug information which lines it has instructions of.
    pub(super) fn of(program: &Program) -> Result<Image> {
        let mut image = Image::default();
        for function in program.functions.0.values() {
            for address in function.instructions.keys() {
                image.add(&frames(program, *address)?);
            }
        }
        Ok(image)
    }

    /// Adds an instruction: its lines of all our functions that it belongs to, and its bytes to the
    /// file of the innermost one.
    fn add(&mut self, frames: &[Frame]) {
        let places = frames.iter().filter_map(|frame| frame.place.as_ref());
        let is_ours = |file: &str| !file.starts_with('/') && file.contains('/');
        let mut innermost = String::new();
        for place in places.filter(|place| is_ours(&place.file)) {
            let lines = self.lines.entry(place.file.clone()).or_default();
            lines.insert(place.line);
            innermost.clone_from(&place.file);
        }
        *self.bytes.entry(innermost).or_default() += INSTRUCTION_BYTES;
    }
}

/// Returns the subject of a file: that of the longest beginning of its path.
pub(super) fn subject<'r>(rules: &'r Rules, file: &str) -> &'r str {
    let all = rules.subjects.iter();
    let prefixes = all.flat_map(|(subject, prefixes)| prefixes.iter().map(move |p| (p, subject)));
    let fitting = prefixes.filter(|(prefix, _)| file.starts_with(prefix.as_str()));
    let longest = fitting.max_by_key(|(prefix, _)| prefix.len());
    longest.map_or(NONE, |(_, subject)| subject)
}

/// Returns the sources that count, by path, without tests.
pub(super) fn files() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        for path in source::files(&workspace::root().join(directory), "rs")? {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.insert(source::relative(&path)?, text);
        }
    }
    files.retain(|file, _| !is_test(file));
    Ok(files)
}

/// Returns what each subject has.
pub(super) fn count(
    rules: &Rules,
    files: &BTreeMap<String, String>,
    image: &Image,
) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let none = BTreeSet::new();
    for (file, text) in files {
        let linked = Linked::of(text, image.lines.get(file).unwrap_or(&none));
        let tally = tallies.entry(subject(rules, file).to_owned()).or_default();
        tally.add(file, &linked);
    }
    for (file, bytes) in &image.bytes {
        let subject = match file.is_empty() {
            true => LIBRARIES,
            false => subject(rules, file),
        };
        tallies.entry(subject.to_owned()).or_default().bytes += bytes;
    }
    tallies
}

impl Tally {
    /// Adds the lines of a file, by the crate that the file is of.
    fn add(&mut self, file: &str, linked: &Linked) {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| file.starts_with(prefix));
        if begins(&BOOT) {
            self.boot += linked.all();
        } else if begins(&RESIDENT) && (linked.functions > 0 || linked.not_linked == 0) {
            self.resident += linked.functions + linked.declarations;
            self.others += linked.not_linked;
        } else {
            self.others += linked.all();
        }
    }
}

#[cfg(test)]
mod tests;
