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

/// Checks the board's manifest, and returns whether it is good and what is said.
fn check(tree: &Path, options: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("check").arg("--dtb").arg(tree).args(options);
    let manifest = workspace::root().join("manifests/rpi4.dts");
    let output = command.arg(manifest).output().unwrap();
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
        said.contains("--memory-mib") && said.contains("/sys/firmware/fdt"),
        "{said}"
    );
    let (good, said) = check(&empty, &["--memory-mib", "948"]);
    assert!(good && said.contains("good for"), "{said}");
    // The manifest's VMs have 528 MiB.
    let (good, said) = check(&empty, &["--memory-mib", "512"]);
    assert!(!good && said.contains("M-MEM-007"), "{said}");
    let whole = tree(&folder, "whole.dtb", MEMORY);
    let (good, said) = check(&whole, &[]);
    assert!(good, "{said}");
    let (good, said) = check(&whole, &["--memory-mib", "512"]);
    assert!(!good && said.contains("M-MEM-007"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}
