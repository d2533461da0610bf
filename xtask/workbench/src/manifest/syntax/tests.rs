//! Tests of the faults: dtc refuses each text, the place is the mistake's, and dtc takes what the
//! repairs make of it.

use std::fs;
use std::path::Path;

use super::{faults, surprises};
use crate::manifest::compile_source;
use crate::tools::Tools;
use crate::workspace::scratch;

mod cases;

use cases::CASES;

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

/// A text that dtc takes has no fault: the examples, and the manifests that break a rule.
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
    let cases: [(&[u8], &str); 7] = [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"// nothing\n", "the file has comments alone"),
        (
            b"\xd0\x0d\xfe\xed\0\0\0\x48",
            "this is a compiled device tree",
        ),
        (b"\xff\xfe/\0d\0", "this is no text"),
        (b"/dts-v1/;\n/ {\0 };\n", "no byte of value 0"),
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
        (
            "memory-mib = <256>",
            "memory-mib: 256",
            "stands behind =, not behind a colon",
        ),
        ("<256>", "<256>; kernel2 = <&{/vms}>", "refers to a node"),
        (
            "<256>;",
            "<256>; /* one;\n/* two */",
            "the comment has no end before the next one",
        ),
        (
            "/dts-v1/;",
            "/dts-v1/;\n/plugin/;",
            "/plugin/ has no effect",
        ),
        (
            "/dts-v1/;",
            "/dts-v1/;\n/memreserve/ 0x60000000 0x1000;",
            "/memreserve/ has no effect",
        ),
        (
            "\t\ta {",
            "b { }; /delete-node/ c; a {",
            "no node c stands before it",
        ),
        ("\t\ta {", "b { }; /delete-node/ b; a {", ""),
        (
            "<256>;",
            "<256>; /delete-property/ kernal;",
            "no property kernal stands before it",
        ),
        ("<256>;", "<256>; pmu; /delete-property/ pmu;", ""),
        (
            "<256>;",
            "<256>; memory-address = <0x1 60000000>;",
            "is decimal: 60000000 is 0x3938700",
        ),
        ("<256>;", "<256>; memory-address = <1610612736>;", ""),
        ("<256>;", "<256>; iops-limit = <10000000>;", ""),
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
