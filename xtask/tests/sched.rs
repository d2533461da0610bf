//! The example of `cargo xtask sched` in docs/schedulers.md prints what the page says.
//! `BLESS=1` writes the output into the page.

use std::fs;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schedulers.md");

fn sched(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.current_dir(ROOT).arg("sched").args(arguments);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_of_the_page_prints_what_the_page_says() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once("$ cargo xtask sched ").unwrap();
    let (block, after) = rest.split_once("```\n").unwrap();
    // The options go on in lines that begin with spaces; the output begins with "Times".
    let output_at = block.find("Times ").unwrap_or(block.len());
    let (options, expected) = block.split_at(output_at);
    let printed = sched(&options.split_whitespace().collect::<Vec<_>>());
    if std::env::var_os("BLESS").is_some() {
        let text = format!("{before}$ cargo xtask sched {options}{printed}```\n{after}");
        fs::write(PAGE, text).unwrap();
        return;
    }
    assert_eq!(printed, expected);
}

#[test]
fn pictures_and_traces_are_written() {
    let folder = std::env::temp_dir().join(format!("gearv-sched-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (svg, trace) = (folder.join("time.svg"), folder.join("time.json"));
    let printed = sched(&[
        "--manifest",
        "manifests/two-guests.dts",
        "--load",
        "guest0=spin",
        "--seconds",
        "0.1",
        "--json",
        "--svg",
        svg.to_str().unwrap(),
        "--trace",
        trace.to_str().unwrap(),
    ]);
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["cpus"][0]["policy"], "round-robin");
    assert!(fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].is_array());
    fs::remove_dir_all(folder).unwrap();
}

/// A VM whose vCPUs stand on several CPUs is named once.
#[test]
fn a_load_of_no_vm_is_refused_with_the_vms() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let arguments = ["sched", "--manifest", "manifests/two-guests.dts", "--load"];
    let command = command.current_dir(ROOT).args(arguments);
    let output = command.arg("nobody=spin").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("schedules no nobody, but guest0, guest1\n"),
        "{said}"
    );
}
