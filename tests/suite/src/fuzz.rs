//! Robustness of the checker: manifests damaged at random are refused or accepted, and nothing
//! crashes.
//!
//! The corpus is in the repository: all manifests, the invalid ones included, and the boards. Every
//! run makes the same damage. A finding names the number for `GEARV_FUZZ_FIRST`, which starts
//! there.
//!
//! Init runs the same rules at boot, at EL2, on blobs that a board's user supplies: a panic there
//! is a board that does not start and does not say why. `tests/fuzz` has the parsers alone; here
//! whole manifests go through all rules, which a mutation of bytes from nothing rarely reaches.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Result, ensure};
use gear1_init::fdt;
use gear1_init::prepare;
use workbench::board::{self, BoardTree};
use workbench::manifest::{self, Aligned};
use workbench::tools::Tools;
use workbench::workspace;
use xtask::check;

use crate::invalid;
use crate::part::{Part, Tally};

/// Damaged blobs, half of them manifests and half boards. A blob is judged in microseconds, within
/// this process.
const BLOBS: u64 = 100_000;
/// Damaged sources; each takes dtc twice. Sources are slower for that, and reach the parts that
/// blobs do not: places in lines, and drawing them.
const TEXTS: u64 = 2_000;
/// Words that mean something in a device tree blob or in an address, and their neighbours. Tokens
/// of the structure block (1 to 4, 9), the magic, a start of memory, and numbers at which sums wrap
/// or a sign changes.
const WORDS: [u32; 14] = [
    0,
    1,
    2,
    3,
    4,
    9,
    16,
    17,
    0xd00d_feed,
    0x4000_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff8,
    u32::MAX,
];
/// Pieces that a source is damaged with. Each is legal somewhere and wrong elsewhere. A letter
/// outside of ASCII makes columns and bytes differ.
const PIECES: [&str; 16] = [
    "{",
    "};",
    ";",
    "<0xffffffff 0xffffffff>",
    "<>",
    "\"\"",
    "\"\\0\"",
    "[ff 00]",
    "/*",
    "&x",
    "vms {",
    "real-time",
    "cpus = <0 0>;",
    "\u{e9}",
    "/include/ \"none\"",
    "/delete-node/ vms;",
];

/// The parts compute, so they need no attention of the host.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("fuzzed blobs", blobs).beside(),
        Part::new("fuzzed sources", sources).beside(),
    ]
}

/// A source of numbers that look random and are the same in every run (xorshift64*). Numbers of a
/// damage come from its own number alone, so that a finding is repeated without those before it.
struct Random(u64);

impl Random {
    /// Neighbouring seeds would make alike numbers at first, and zero would make zeroes for ever.
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The upper bits are the better ones of this generator.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Invalid manifests are the better half: damage starts near the edge of a rule. Sorted, because a
/// folder's order differs from machine to machine.
fn manifests() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in [invalid::folder(), workspace::root().join("manifests")] {
        for entry in fs::read_dir(folder)? {
            files.push(entry?.path());
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "dts"));
    files.sort();
    Ok(files)
}

fn first() -> u64 {
    let first = env::var("GEARV_FUZZ_FIRST");
    first.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Does `body`, and says which damage it was that crashed it. A panic is the finding, so one is
/// caught and named here instead of ending the run without a number.
fn survive(number: u64, what: &str, body: impl FnOnce()) -> Result<()> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(body));
    ensure!(
        outcome.is_ok(),
        "{what}: damage number {number} crashes the checker"
    );
    Ok(())
}

/// The Raspberry Pi has two banks of memory and the R-Car four, each in a node of its own.
fn blobs(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let compiled = compiled(&tools)?;
    let boards =
        [board::Name::Rpi4, board::Name::RcarH3].map(|name| BoardTree::named(name, &tools));
    let boards: Vec<BoardTree> = boards.into_iter().collect::<Result<_>>()?;
    // Facts of a good board, on which damaged manifests are judged.
    let facts = boards[0].read()?;
    for number in first()..BLOBS {
        let mut random = Random::new(number);
        let (name, blob) = &compiled[random.below(compiled.len())];
        // Damage to a blob and to a board would hide each other: most damaged boards are refused
        // before a rule runs.
        if number % 2 == 0 {
            let blob = Aligned::new(&damaged(blob, &mut random));
            survive(number, name, || {
                let _ = prepare::judge(blob.as_slice(), &facts, boards[0].bytes(), &mut |_| {});
            })?;
        } else {
            let board = &boards[random.below(boards.len())];
            let tree = damaged(board.bytes(), &mut random);
            survive(number, &board.name, || judge_on(&tree, blob))?;
        }
    }
    tally.pass(1);
    Ok(())
}

/// Returns the blobs of all manifests, with their files. dtc runs once per file here, instead of
/// once per damage.
fn compiled(tools: &Tools) -> Result<Vec<(String, Vec<u8>)>> {
    let scratch = scratch("blobs")?;
    let compiled = manifests()?.into_iter().map(|file| {
        let (_, blob) = manifest::compile_source(&file, tools, &scratch)?;
        Ok((file.display().to_string(), blob))
    });
    let compiled = compiled.collect();
    fs::remove_dir_all(scratch)?;
    compiled
}

/// Judges a manifest on the board of a device tree, if the tree can be read. A tree that cannot be
/// read is refused by init before any rule. Alignment is what a boot loader guarantees.
fn judge_on(tree: &[u8], blob: &[u8]) {
    let (tree, blob) = (Aligned::new(tree), Aligned::new(blob));
    if let Ok(facts) = fdt::read(tree.as_slice()).board {
        let _ = prepare::judge(blob.as_slice(), &facts, tree.as_slice(), &mut |_| {});
    }
}

/// Returns the blob with some words or bytes replaced, and sometimes its end cut off. Few changes,
/// so that most of the blob is still what a rule expects.
fn damaged(blob: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = blob.to_vec();
    for _ in 0..=random.below(6) {
        if random.below(2) == 0 {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        } else {
            let at = random.below(bytes.len() / 4) * 4;
            let word = WORDS[random.below(WORDS.len())];
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
    }
    if random.below(16) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

fn sources(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let scratch = scratch("sources")?;
    let texts = manifests()?.into_iter().map(fs::read_to_string);
    let texts: Vec<String> = texts.collect::<std::io::Result<_>>()?;
    let board = BoardTree::named(board::Name::Rpi4, &tools)?;
    let file = scratch.join("fuzzed.dts");
    let mut judged = 0;
    for number in first()..TEXTS {
        let mut random = Random::new(number);
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(3) {
            damage(&mut text, &texts, &mut random);
        }
        // `check` reads a file, as a user's editor has left it.
        fs::write(&file, &text)?;
        let outcome = survive(number, "source", || {
            judged += usize::from(show(&file, &board, &tools))
        });
        outcome?;
    }
    fs::remove_dir_all(scratch)?;
    tally.pass(1);
    // Otherwise nothing was fuzzed but dtc.
    ensure!(
        first() != 0 || judged as u64 > TEXTS / 10,
        "dtc took only {judged} sources"
    );
    Ok(())
}

/// Checks a source and shows the findings. Returns whether dtc accepted it. Drawing marks columns
/// of lines, where odd text is likely to panic.
fn show(file: &Path, board: &BoardTree, tools: &Tools) -> bool {
    let Ok(findings) = check::check(file, board, tools) else {
        return false;
    };
    let drawn = findings.sources.draw(&findings.list, true);
    let json = findings.sources.json(&findings.list);
    assert_eq!(json.len(), findings.list.len());
    assert_eq!(drawn.is_empty(), findings.list.is_empty());
    true
}

/// Removes, repeats or exchanges a line or a word, or puts a piece somewhere. Lines of other
/// manifests bring in properties that this manifest does not have, in a place that knows them or
/// does not.
fn damage(text: &mut String, texts: &[String], random: &mut Random) {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = random.below(lines.len());
    // Earlier damage may have left no line at all.
    let Some(line) = lines.get(at) else { return };
    let other = &texts[random.below(texts.len())];
    let other: Vec<&str> = other.lines().collect();
    let new = match random.below(5) {
        0 => String::new(),
        1 => format!("{line}\n{line}"),
        2 => other[random.below(other.len())].to_owned(),
        3 => with_piece(line, random),
        _ => without_letter(line, random),
    };
    lines[at] = &new;
    *text = lines.join("\n") + "\n";
}

/// By characters: a place inside of one would leave no text.
fn with_piece(line: &str, random: &mut Random) -> String {
    let piece = PIECES[random.below(PIECES.len())];
    let mut letters: Vec<char> = line.chars().collect();
    let place = random.below(letters.len() + 1);
    letters.splice(place..place, piece.chars());
    letters.into_iter().collect()
}

fn without_letter(line: &str, random: &mut Random) -> String {
    let mut letters: Vec<char> = line.chars().collect();
    if !letters.is_empty() {
        letters.remove(random.below(letters.len()));
    }
    letters.into_iter().collect()
}

/// The process's number keeps two runs on one machine apart.
fn scratch(name: &str) -> Result<PathBuf> {
    let folder = workspace::output_dir().join(format!("fuzz-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
