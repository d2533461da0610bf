//! `check --dtb` with a tree whose memory the firmware fills in, as in a kernel's package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use workbench::board::{self, Name};
use workbench::manifest::compile_text;
use workbench::tools::Tools;
use workbench::workspace;

const MEMORY: &str = "<0x0 0x00000000 0x3b400000>, <0x0 0x40000000 0xbc000000>";

/// Compiles the Raspberry Pi's tree with this memory.
fn tree(folder: &Path, name: &str, memory: &str) -> PathBuf {
    let source = fs::read_to_string(board::source(Name::Rpi4)).unwrap();
    assert!(source.contains(MEMORY));
    let file = folder.join(name);
    let source = source.replace(MEMORY, memory);
    let blob = compile_text(&source, &Tools::prepare().unwrap(), &file).unwrap();
    fs::write(&file, blob).unwrap();
    file
}

/// Checks the Raspberry Pi's manifest with a tree, and returns whether it is good and what is said.
fn check(tree: &Path, options: &[&str]) -> (bool, String) {
    let options = [&["--dtb", tree.to_str().unwrap()], options].concat();
    run("manifests/rpi4.dts", &options)
}

fn run(manifest: &str, options: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("check").args(options);
    let output = command
        .arg(workspace::root().join(manifest))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn memory_that_the_firmware_fills_in_is_said() {
    let folder = workspace::scratch("check-tree");
    let empty = tree(&folder, "empty.dtb", "<0x0 0x0 0x0>");
    let (good, said) = check(&empty, &[]);
    assert!(
        !good && said.contains("empty.dtb: the tree's memory has no size"),
        "{said}"
    );
    assert!(
        said.contains("--memory") && said.contains("/sys/firmware/fdt"),
        "{said}"
    );
    let (good, said) = check(&empty, &["--memory", "948"]);
    assert!(good && said.contains("good for"), "{said}");
    // The manifest's VMs have 528 MiB.
    let (good, said) = check(&empty, &["--memory", "512"]);
    assert!(!good && said.contains("M-MEM-007"), "{said}");
    let whole = tree(&folder, "whole.dtb", MEMORY);
    let (good, said) = check(&whole, &[]);
    assert!(good, "{said}");
    let (good, said) = check(&whole, &["--memory", "512"]);
    assert!(!good && said.contains("M-MEM-007"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

/// What is no tree, and a drawing that cannot be written, are refused before anything is built.
#[test]
fn files_are_judged_first() {
    let readme = workspace::root().join("README.md");
    let (good, said) = run(
        "manifests/minimal.dts",
        &["--dtb", readme.to_str().unwrap()],
    );
    let text = "README.md: this is no compiled device tree";
    assert!(!good && said.contains(text), "{said}");
    let svg = ["--svg", "/nowhere/at/all.svg"];
    let (good, said) = run("manifests/minimal.dts", &svg);
    let text = "--svg /nowhere/at/all.svg: there is no folder /nowhere/at";
    assert!(!good && said.contains(text), "{said}");
    let folder = workspace::root().to_str().unwrap();
    let (good, said) = run("manifests/minimal.dts", &["--svg", folder]);
    assert!(!good && said.contains("this is a folder"), "{said}");
}

/// A board may have less memory than the usual one; the R-Car's has a node for each bank.
#[test]
fn memory_of_a_known_board_is_said() {
    for (name, enough) in [("rpi4", "948"), ("rcar-h3", "1920")] {
        let manifest = format!("manifests/{name}.dts");
        let (good, said) = run(&manifest, &["--board", name, "--memory", enough]);
        assert!(good, "{said}");
        let (good, said) = run(&manifest, &["--board", name, "--memory", "256"]);
        assert!(!good && said.contains("M-MEM-007"), "{said}");
    }
    let (good, said) = run("manifests/rpi4.dts", &["--board", "rpi4", "--memory", "0"]);
    assert!(
        !good && said.contains("no whole number from 1 to"),
        "{said}"
    );
    let (good, said) = run(
        "manifests/rpi4.dts",
        &["--board", "rpi4", "--memory", "4096"],
    );
    assert!(
        !good && said.contains("rpi4: a tree like this has at most 4095 MiB"),
        "{said}"
    );
}
