//! What `cargo xtask check` prints for programs and editors: one JSON document whatever happens,
//! and one line for each finding.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const GOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/minimal.dts");
const REFUSED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../manifests/invalid/M-SYN-001.dts"
);

fn check(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("check").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

/// Writes a manifest that dtc refuses.
fn torn(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gearv-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("torn.dts");
    fs::write(&file, "/dts-v1/;\n/ {\n\tversion = <1M>;\n};\n").unwrap();
    file
}

#[test]
fn json_is_one_document_with_each_file() {
    let torn = torn("json");
    let files = [GOOD, torn.to_str().unwrap(), "nowhere.dts", REFUSED];
    let (output, text) = check(&[&["--format", "json"], &files[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["board"], "qemu-virt");
    assert_eq!(document["error"], Value::Null);
    let told = document["files"].as_array().unwrap();
    let verdicts: Vec<&str> = told
        .iter()
        .map(|one| one["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["good", "refused", "refused", "refused"]);
    for (one, file) in told.iter().zip(files) {
        assert_eq!(one["file"], file);
    }
    let finding = &told[1]["findings"][0];
    assert_eq!(finding["id"], "syntax");
    assert_eq!(
        (&finding["place"]["line"], &finding["place"]["column"]),
        (&3.into(), &13.into())
    );
    assert_eq!(told[2]["findings"][0]["id"], "file");
    assert_eq!(told[3]["findings"][0]["id"], "M-SYN-001");
    fs::remove_dir_all(torn.parent().unwrap()).unwrap();
}

#[test]
fn json_tells_what_ends_the_command_early() {
    let (output, text) = check(&["--format", "json", "--dtb", GOOD, GOOD]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_str(&text).unwrap();
    let error = document["error"].as_str().unwrap();
    assert!(error.contains("minimal.dts"), "{error}");
    assert_eq!(document["files"], Value::Array(Vec::new()));
}

#[test]
fn short_is_a_line_for_each_finding() {
    let torn = torn("short");
    let (output, text) = check(&["--format", "short", REFUSED, torn.to_str().unwrap(), GOOD]);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<&str> = text.lines().collect();
    let [first, second] = lines[..] else {
        panic!("{text}");
    };
    assert!(first.contains("/M-SYN-001.dts:"), "{first}");
    assert!(first.contains(": error: the binding has no such property here [M-SYN-001]; "));
    assert!(second.contains("torn.dts:3:13: error: a number has no unit behind it [syntax]; "));
    fs::remove_dir_all(torn.parent().unwrap()).unwrap();
}
