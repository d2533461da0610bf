//! Shows that the hostile driver's attacks find what they look for: each bug planted here into a
//! copy of the device model makes its tests under attack fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Part, Tally};
use crate::workspace;

/// A bug: in a file of the device model, what is replaced by what.
struct Bug {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const BUGS: &[Bug] = &[
    Bug {
        name: "a buffer's end is not checked",
        file: "buffers.rs",
        from: "!memory.check_range(address, length as usize)",
        to: "!memory.check_range(address, 1)",
    },
    Bug {
        name: "a request has as many segments as it likes",
        file: "buffers.rs",
        from: "self.segments.len() < MAX_SEGMENTS",
        to: "self.segments.len() < usize::MAX",
    },
    Bug {
        name: "a loop or a next outside of the table ends a chain well",
        file: "vring.rs",
        from: "if more { Err(Broken::Chain) }",
        to: "if more && chain.readable.is_empty() && chain.writable.is_empty() { Err(Broken::Chain) }",
    },
    Bug {
        name: "readable behind writable is taken",
        file: "vring.rs",
        from: "} else if chain.writable.is_empty() {",
        to: "} else if true {",
    },
    Bug {
        name: "an index that jumps is nothing to do",
        file: "vring.rs",
        from: ".map_err(|_| Broken::AvailableIndex)?;",
        to: ".map_err(|_| Broken::AvailableIndex);\n        let Ok(available) = &mut available else { return Ok(false) };",
    },
    Bug {
        name: "sectors beyond the disk are accepted",
        file: "backend/block.rs",
        from: "end <= self.bytes && length",
        to: "end <= self.bytes + 512 && length",
    },
    Bug {
        name: "rings outside of memory are accepted",
        file: "vring.rs",
        from: "queue.is_valid(memory.as_ref()).then(|| Self",
        to: "Some(Self",
    },
    Bug {
        name: "a size is cut to 16 bits",
        file: "vring.rs",
        from: "u16::try_from(setup.size).ok()?",
        to: "setup.size as u16",
    },
    Bug {
        name: "a reset leaves the rings",
        file: "transport.rs",
        from: "        self.rings = [const { None }; MAX_QUEUES];\n        self.state.reset();",
        to: "        self.state.reset();\n        self.state.set(Word::Status, DRIVER_OK);",
    },
    Bug {
        name: "a broken device is well without a reset",
        file: "transport.rs",
        from: " || old & NEEDS_RESET != 0 {",
        to: " {",
    },
    Bug {
        name: "features that are not offered are accepted",
        file: "transport.rs",
        from: "features & !self.offered() == 0 && ",
        to: "",
    },
];

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("bugs planted in the device model", all).slow(true)]
}

fn all(tally: &mut Tally) -> Result<()> {
    let copy = copy()?;
    run(&copy)?
        .0
        .then_some(())
        .context("it fails without a bug")?;
    for bug in BUGS {
        tally.check(bug.name, plant(bug, &copy));
    }
    Ok(())
}

/// Copies the device model, and what it and its tests need, into a workspace of their own.
fn copy() -> Result<PathBuf> {
    const MEMBERS: [&str; 4] = [
        "device-model",
        "gear1/abi",
        "gear2/protocol",
        "tests/hostile",
    ];
    let copy = workspace::output_dir().join("planted");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for member in MEMBERS {
        let to = copy.join(member);
        fs::create_dir_all(to.parent().context("it has a parent")?)?;
        let mut command = Command::new("cp");
        command
            .arg("-r")
            .arg(workspace::root().join(member))
            .arg(to);
        ensure!(command.status()?.success(), "{member} cannot be copied");
    }
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        fs::copy(workspace::root().join(file), copy.join(file))?;
    }
    let manifest = fs::read_to_string(workspace::root().join("Cargo.toml"))?;
    let (_, package) = manifest
        .split_once("[workspace.package]")
        .context("no package")?;
    let (package, _) = package
        .split_once("\n# What runs on the target")
        .context("no profiles")?;
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = {MEMBERS:?}\n[workspace.package]{package}"
    );
    fs::write(copy.join("Cargo.toml"), manifest)?;
    Ok(copy)
}

/// Plants a bug, sees whether it is found, and takes it out again.
fn plant(bug: &Bug, copy: &Path) -> Result<()> {
    let path = copy.join("device-model/src").join(bug.file);
    let good = fs::read_to_string(&path)?;
    let count = good.matches(bug.from).count();
    ensure!(
        count == 1,
        "{} holds {:?} {count} times",
        bug.file,
        bug.from
    );
    fs::write(&path, good.replace(bug.from, bug.to))?;
    let (passes, printed) = run(copy)?;
    fs::write(&path, good)?;
    ensure!(!printed.contains("could not compile"), "\n{printed}");
    ensure!(!passes, "the attacks do not find it");
    Ok(())
}

/// Runs the tests under attack; returns whether they pass, and what they print.
fn run(copy: &Path) -> Result<(bool, String)> {
    let mut command = workspace::cargo();
    command
        .current_dir(copy)
        .arg("test")
        .args(["-q", "--offline"]);
    command.args(["--package", "device-model", "--lib", "hostile"]);
    command
        .arg("--target-dir")
        .arg(copy.with_file_name("planted-target"));
    let output = command.output().context("cargo cannot be run")?;
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.success(), printed))
}
