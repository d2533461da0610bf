//! Tests of the faults: dtc refuses each text, the place is the mistake's, and dtc takes what the
//! repairs make of it.

use std::fs;
use std::path::Path;

use super::{faults, surprises};
use crate::manifest::compile_source;
use crate::tools::Tools;
use crate::workspace::scratch;

/// A good manifest; each case changes a piece of it.
const GOOD: &str = "/dts-v1/;
/ {
\tcompatible = \"gearv,manifest\";
\tversion = <1>;
\tvms {
\t\ta {
\t\t\tmemory-mib = <256>;
\t\t\tkernel = \"k\";
\t\t};
\t};
};
";

/// Piece of the good manifest, what stands there instead, line and column, what is said, and
/// whether the repair is complete.
type Case = (
    &'static str,
    &'static str,
    (usize, usize),
    &'static str,
    bool,
);

const CASES: &[Case] = &[
    (
        "<256>",
        "256",
        (7, 17),
        "numbers stand in angle brackets",
        true,
    ),
    ("<256>", "<256", (7, 17), "the < is never closed", false),
    (
        "<256>",
        "<256, 3>",
        (7, 18),
        "cells are separated by blanks",
        true,
    ),
    ("<256>", "<256M>", (7, 18), "a number has no unit", true),
    ("<256>", "<1GiB>", (7, 18), "a number has no unit", true),
    ("<256>", "<1_000>", (7, 18), "a number has no _", true),
    ("<256>", "<25.6>", (7, 18), "a cell has no fraction", false),
    ("<256>", "<-1>", (7, 18), "a cell is never negative", false),
    (
        "<256>",
        "<0x1ffffffff>",
        (7, 18),
        "does not fit into a cell of 32 bits",
        true,
    ),
    ("<256>", "<0x12g>", (7, 18), "no hexadecimal number", false),
    ("<256>", "<08>", (7, 18), "no octal number", true),
    ("<256>", "<0-3>", (7, 18), "cells have no ranges", true),
    ("<256>", "<0..3>", (7, 18), "cells have no ranges", true),
    ("<256>", "<3-0>", (7, 18), "cells have no ranges", false),
    ("<256>", "<0-99999>", (7, 18), "cells have no ranges", false),
    ("<256>", "<&cpu0>", (7, 18), "refers to a node", false),
    ("<256>", "&cpu0", (7, 17), "refers to a node", false),
    ("= <256>", "== <256>", (7, 16), "one = stands before", true),
    ("\t\ta {", "\t\ta {{", (6, 6), "no name before it", false),
    ("\t\ta {", "\t\t{", (6, 3), "no name before it", false),
    (
        "<256>;",
        "<256>; /* one /* two */ three */",
        (7, 24),
        "comments do not nest",
        false,
    ),
    (
        "<256>;",
        "<256>; /* one\nkernel = \"k\";\n/* two */ three",
        (7, 24),
        "the comment has no end before the next one",
        false,
    ),
    ("<256>", "<1 + 2>", (7, 20), "arithmetic", false),
    ("<256>", "<128*2>", (7, 18), "arithmetic", true),
    ("<256>", "(256)", (7, 17), "numbers stand in angle", true),
    (
        "<256>",
        "[1 2]",
        (7, 17),
        "square brackets hold bytes",
        true,
    ),
    ("<256>", "<60,000>", (7, 18), "a number has no commas", true),
    (
        "memory-mib = <256>",
        "memory-ipa = <4000F000>",
        (7, 18),
        "a hexadecimal number begins with 0x",
        true,
    ),
    ("<256>", "<1 | 2>", (7, 20), "arithmetic", false),
    (
        "<256>",
        "<SIZE>",
        (7, 18),
        "a cell is a number, and this is a name",
        false,
    ),
    (
        "<256>",
        "<\"256\">",
        (7, 18),
        "a string stands without angle brackets",
        false,
    ),
    (
        "<256>;",
        "<256>",
        (7, 22),
        "a ; is missing behind the value",
        true,
    ),
    ("<256>", "", (7, 15), "memory-mib has = and no value", false),
    (
        "memory-mib = <",
        "memory-mib <",
        (7, 14),
        "a = is missing",
        true,
    ),
    (
        "memory-mib =",
        "memory-mib:",
        (7, 14),
        "not behind a colon",
        true,
    ),
    (
        "memory-mib",
        "memory mib",
        (7, 4),
        "a name has no blanks",
        true,
    ),
    (
        "memory-mib",
        "\"memory-mib\"",
        (7, 4),
        "a name has no quotes",
        true,
    ),
    (
        "memory-mib",
        "1m: memory-mib",
        (7, 4),
        "1m is no label",
        false,
    ),
    (
        "memory-mib",
        "pmu\n\t\t\tmemory-mib",
        (7, 7),
        "a ; is missing behind the property",
        true,
    ),
    (
        "kernel = ",
        "pmu = true; kernel = ",
        (8, 10),
        "no words for on and off",
        false,
    ),
    (
        "kernel = ",
        "pmu = off; kernel = ",
        (8, 10),
        "no words for on and off",
        false,
    ),
    (
        "\"k\"",
        "k",
        (8, 13),
        "strings stand in double quotes",
        true,
    ),
    (
        "\"k\"",
        "'k'",
        (8, 13),
        "strings stand in double quotes",
        true,
    ),
    (
        "\"k\"",
        "'Image'",
        (8, 13),
        "a string stands in double quotes",
        true,
    ),
    ("\"k\"", "'k", (8, 13), "the quote has no partner", false),
    (
        "\"k\"",
        "\u{201c}k\u{201d}",
        (8, 13),
        "these quotes are typographic",
        true,
    ),
    (
        "\"k\"",
        "`k`",
        (8, 13),
        "these quotes are typographic",
        true,
    ),
    (
        "\"k\"",
        "\"k",
        (8, 13),
        "no closing quote on its line",
        true,
    ),
    (
        "\"k\"",
        "\"k\nkernel = \"l\"",
        (8, 13),
        "no closing quote on its line",
        false,
    ),
    (
        "\"k\"",
        "\"k \\\n\t\tl\"",
        (8, 13),
        "does not join the lines",
        true,
    ),
    (
        "\"k\"",
        "\"k=\"l\"\"",
        (8, 16),
        "this quote ends the string",
        false,
    ),
    ("\"k\"", "\"k\" \"l\"", (8, 16), "a comma is missing", true),
    (
        "\"k\";",
        "\"k\"; kernel = \"z\";",
        (8, 18),
        "the property kernel stands twice",
        false,
    ),
    ("\"k\";", "\"k\";;", (8, 17), "this ; ends nothing", true),
    (
        "kernel",
        "sub { }; kernel",
        (8, 13),
        "the property kernel stands behind a node",
        false,
    ),
    (
        "kernel =",
        "kernel\u{a0}=",
        (8, 10),
        "U+00A0 has no place",
        true,
    ),
    (
        "memory-mib",
        "memory\u{2013}mib",
        (7, 10),
        "U+2013 has no place",
        true,
    ),
    (
        "kernel",
        "\u{200b}kernel",
        (8, 4),
        "U+200B has no place",
        true,
    ),
    (
        "kernel",
        "k\u{e9}rnel",
        (8, 5),
        "U+00E9 has no place",
        false,
    ),
    (
        "a {",
        "a { # first",
        (6, 7),
        "comments do not begin with #",
        true,
    ),
    (
        "a {",
        "a { /* first",
        (6, 7),
        "the comment has no end",
        false,
    ),
    (
        "a {",
        "a { }; a {",
        (6, 10),
        "the node a stands twice",
        false,
    ),
    ("a {", "a = {", (6, 5), "a node has no =", true),
    ("a {", "b { }; a = {", (6, 12), "a node has no =", true),
    (
        "a {",
        "a\n",
        (6, 4),
        "a { or a ; is missing behind a",
        false,
    ),
    (
        "a {",
        "-- the first\na {",
        (6, 3),
        "comments do not begin with --",
        true,
    ),
    (
        "a {",
        "/skip/ a {",
        (6, 3),
        "there is no directive /skip/",
        false,
    ),
    (
        "a {",
        "<<<<<<< HEAD\na {",
        (6, 3),
        "a merge left its conflict here",
        false,
    ),
    (
        "\t\t};\n\t};",
        "\t\t}\n\t};",
        (9, 4),
        "a ; is missing behind the node's closing",
        true,
    ),
    (
        "\t\t};\n\t};",
        "\t};",
        (6, 5),
        "the brace of a is never closed",
        false,
    ),
    (
        "\t\t};\n\t};\n};",
        "\t\t};\n\t};",
        (2, 3),
        "the brace of / is never closed",
        false,
    ),
    (
        "\t\t};\n\t};",
        "\t\t};\n\t};\n\t};",
        (11, 2),
        "this brace closes /, and is one too many",
        true,
    ),
    (
        "\t\t};\n\t};",
        "\t\t};\n\t\t};\n\tb {\n\t};\n\t};",
        (10, 3),
        "this brace closes vms, and is one too many",
        true,
    ),
    (
        "\t\t};\n\t};\n};",
        "\t\t};\n\t};\n};\n};",
        (12, 1),
        "this brace closes nothing",
        true,
    ),
    (
        "/dts-v1/;",
        "/dts-v1/",
        (1, 9),
        "a ; is missing behind /dts-v1/",
        true,
    ),
    ("/dts-v1/;\n", "", (1, 1), "begins with /dts-v1/;", true),
    (
        "/dts-v1/;",
        "#include \"x.dtsi\"",
        (1, 1),
        "the C preprocessor does not run",
        false,
    ),
    (
        "/dts-v1/;",
        "/dts-v1/;\n#define SIZE 3",
        (2, 1),
        "the C preprocessor does not run",
        false,
    ),
    (
        "/dts-v1/;",
        "# manifest\n/dts-v1/;",
        (1, 1),
        "comments do not begin with #",
        true,
    ),
    (
        "/dts-v1/;",
        "\u{feff}/dts-v1/;",
        (1, 1),
        "byte order mark",
        false,
    ),
    (
        "/dts-v1/;",
        "/dts-v1/;\n/include/ \"none.dtsi\"",
        (2, 11),
        "cannot be read",
        false,
    ),
    (
        "/dts-v1/;",
        "/dts-v1/;\n/include/ \"system.dts\"",
        (2, 11),
        "a file includes itself",
        false,
    ),
    (
        "/ {",
        "<<<<<<< HEAD\n/ {",
        (2, 1),
        "a merge left its conflict here",
        false,
    ),
    (
        "/ {",
        "a {",
        (2, 1),
        "a node stands outside of the root node",
        false,
    ),
    (
        "/ {",
        "",
        (3, 2),
        "a property stands outside of the root node",
        false,
    ),
    (
        "/ {",
        "and\n/ {",
        (2, 1),
        "a word stands outside of the root node",
        false,
    ),
];

/// Returns the line and column of a byte.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (
        before.matches('\n').count() + 1,
        before[start..].chars().count() + 1,
    )
}

fn is_taken(dts: &Path, text: &str) -> bool {
    fs::write(dts, text).unwrap();
    let out = dts.with_extension("out");
    compile_source(dts, &Tools::prepare().unwrap(), &out).is_ok()
}

#[test]
fn each_mistake_has_its_place_and_its_repair() {
    let folder = scratch("mistakes");
    let dts = folder.join("system.dts");
    for (piece, wrong, place, what, is_repaired) in CASES {
        let text = GOOD.replacen(piece, wrong, 1);
        assert!(!is_taken(&dts, &text), "dtc takes {wrong:?}");
        let (texts, found) = faults(&dts);
        let first = found
            .first()
            .unwrap_or_else(|| panic!("nothing found in {wrong:?}"));
        assert!(first.message.contains(what), "{wrong:?}: {first:?}");
        let source = &texts.files[first.file].1;
        assert_eq!(
            position(source, first.range.start),
            *place,
            "{wrong:?}: {first:?}"
        );
        let mut repaired = source.clone();
        for fault in found.iter().rev() {
            if let Some(repair) = &fault.repair {
                repaired.replace_range(fault.range.clone(), repair);
            }
        }
        assert_eq!(
            is_taken(&dts, &repaired),
            *is_repaired,
            "{wrong:?}: {found:?}\n{repaired}"
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

/// What dtc takes has no fault: the examples, and the manifests that break a rule.
#[test]
fn sound_texts_have_no_fault() {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
    let folders = ["", "invalid", "boards"].map(|name| manifests.join(name));
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let mut count = 0;
    // What a comment has taken in by mistake dtc does not miss.
    let is_sound = |file: &Path| {
        file.file_stem()
            .is_none_or(|name| name != "M-RTC-003-comment")
    };
    let files = files.filter(|file| is_sound(file));
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "dts")) {
        let (_, found) = faults(&file);
        assert!(found.is_empty(), "{}: {found:?}", file.display());
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn a_file_as_a_whole_is_no_source() {
    let folder = scratch("whole");
    let dts = folder.join("system.dts");
    let cases: [(&[u8], &str); 6] = [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"// nothing\n", "the file has comments alone"),
        (
            b"\xd0\x0d\xfe\xed\0\0\0\x48",
            "this is a compiled device tree",
        ),
        (b"\xff\xfe/\0d\0", "this is no text"),
        (b"{ \"vms\": 1 }", "this is no device tree source"),
    ];
    for (bytes, what) in cases {
        fs::write(&dts, bytes).unwrap();
        let (_, found) = faults(&dts);
        let first = found.first().unwrap_or_else(|| panic!("nothing: {what}"));
        assert!(first.message.contains(what), "{first:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// dtc takes any byte in a comment: the manifest is told of its encoding, and all else keeps its
/// place.
#[test]
fn another_encoding_is_told() {
    let folder = scratch("encoding");
    let dts = folder.join("system.dts");
    let text = GOOD.replacen("vms {", "/* G\u{e4}ste */ vms {", 1);
    let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap()).collect();
    fs::write(&dts, &bytes).unwrap();
    let (texts, found) = surprises(&dts);
    let at = bytes.iter().position(|byte| *byte == 0xe4).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].range, at..at + 1);
    assert_eq!(texts.files[0].1, text.replace('\u{e4}', "?"));
    fs::remove_dir_all(folder).unwrap();
}

/// Whatever stands in a file, the reading of faults ends, and each fault lies in its text.
#[test]
fn no_text_is_too_strange() {
    let folder = scratch("strange");
    let dts = folder.join("system.dts");
    let odd = [
        "", "\"", "'", "<", "[", "(", "{", "}", "/", "&", "&{", "#", "\u{201c}", "\\", "=",
    ];
    for cut in (0..GOOD.len()).step_by(3) {
        for odd in odd {
            fs::write(&dts, format!("{}{odd}", &GOOD[..cut])).unwrap();
            let (texts, found) = faults(&dts);
            for fault in found {
                let text = &texts.files[fault.file].1;
                assert!(text.get(fault.range.clone()).is_some(), "{fault:?}");
            }
        }
    }
    fs::write(&dts, format!("/dts-v1/;\n/ {{\n{}", "a {\n".repeat(10_000))).unwrap();
    faults(&dts);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_lines_of_an_include_are_counted_in_it() {
    let folder = scratch("include");
    let dts = folder.join("system.dts");
    fs::write(folder.join("part.dtsi"), "\nmemory-mib = <1M>;\n").unwrap();
    let text = GOOD.replace("memory-mib = <256>;", "/include/ \"part.dtsi\"");
    assert!(!is_taken(&dts, &text));
    let (texts, found) = faults(&dts);
    assert!(
        texts.name(found[0].file).ends_with("part.dtsi"),
        "{found:?}"
    );
    assert_eq!(position(&texts.files[1].1, found[0].range.start), (2, 15));
    fs::remove_dir_all(folder).unwrap();
}

/// Texts that dtc takes, and not as they are meant, each with the message about it.
#[test]
fn what_dtc_takes_otherwise_is_told() {
    let folder = scratch("surprises");
    let dts = folder.join("system.dts");
    let cases = [
        ("<256>", "<0400>", "is octal: 0400 is 256"),
        (
            "<256>",
            "<(0-3)>",
            "cells have no ranges: (0-3) is 0 less 3",
        ),
        ("vms {", "b: vms { a: c {}; }; vms {", ""),
        ("<256>", "<256>; kernel2 = <&{/vms}>", "refers to a node"),
        (
            "<256>;",
            "<256>; /* one;\n/* two */",
            "the comment has no end before the next one",
        ),
        ("<256>;", "<256>; /* all of /soc/* and more; */", ""),
        ("<256>;", "<256>; /* see /* below */", ""),
    ];
    for (piece, odd, what) in cases {
        let text = GOOD.replacen(piece, odd, 1);
        fs::write(&dts, &text).unwrap();
        let (texts, found) = surprises(&dts);
        let said = found.first().map_or("", |fault| fault.message.as_str());
        assert_eq!(said.is_empty(), what.is_empty(), "{odd:?}: {said}");
        assert!(said.contains(what), "{odd:?}: {said}");
        let text = &texts.files[0].1;
        assert!(
            found
                .iter()
                .all(|one| text.get(one.range.clone()).is_some())
        );
    }
    fs::remove_dir_all(folder).unwrap();
}
