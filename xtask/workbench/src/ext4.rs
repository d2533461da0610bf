//! ext4 images, made without root and looked into without mounting.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::sha256;
use crate::progress::Step;
use crate::tools;
use crate::tree::{Tree, partial};

/// Values that would differ from one image to the next: the time, and random numbers. 2026-01-01,
/// in seconds since 1970.
const TIME: &str = "1767225600";
/// Like [`TIME`], in debugfs's syntax.
const TIME_FIELD: &str = "@1767225600";
/// Identifiers of the file system that mke2fs would make up. Any fixed value serves: a guest has
/// one such disk.
const UUID: &str = "67656172-5620-4000-8000-6469736b0000";
/// Directories are hashed by it, so a random one would change their blocks.
const HASH_SEED: &str = "67656172-5620-4000-8000-686173687365";

/// Writes an image of the tree; all is root's, and the same tree gives the same bytes. The image
/// appears by a rename, so that a cut-off run leaves none that looks whole.
pub fn write(tree: &Tree, mib: u64, image: &Path) -> Result<PathBuf> {
    let step = Step::start("making the guest's disk");
    let partial = partial(image)?;
    let staging = partial.with_added_extension("tree");
    tree.write_directory(&staging)?;
    let made = make(&staging, mib, &partial).and_then(|()| give_to_root(tree, &partial));
    fs::remove_dir_all(&staging)?;
    step.clear();
    made.with_context(|| format!("{} cannot be made", image.display()))?;
    fs::rename(partial, image)?;
    Ok(image.to_owned())
}

/// Makes the file system from a directory. `mke2fs -d` fills it without a mount, for which root
/// would be needed.
fn make(directory: &Path, mib: u64, image: &Path) -> Result<()> {
    File::create(image)?.set_len(mib << 20)?;
    let mut command = tools::e2fsprogs("mke2fs")?.command();
    command.args(["-q", "-F", "-t", "ext4", "-L", "gearv", "-U", UUID]);
    command.args(["-E", &format!("hash_seed={HASH_SEED},root_owner=0:0")]);
    command.arg("-d").arg(directory).arg(image);
    run(&mut command)?;
    Ok(())
}

/// Makes all files root's, and of one time. `mke2fs -d` copies the owner of each file, which is
/// whoever runs xtask.
fn give_to_root(tree: &Tree, image: &Path) -> Result<()> {
    let mut command = tools::e2fsprogs("debugfs")?.command();
    command.args(["-w", "-f", "-"]).arg(image);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.env("E2FSPROGS_FAKE_TIME", TIME).spawn()?;
    let mut input = child.stdin.take().context("debugfs has no input")?;
    input.write_all(ownership(tree).as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "debugfs: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns debugfs's commands that set the owner and the times of all files. `sif` sets a field of
/// an inode (debugfs(8)).
fn ownership(tree: &Tree) -> String {
    let fields = [
        ("uid", "0"),
        ("gid", "0"),
        ("atime", TIME_FIELD),
        ("ctime", TIME_FIELD),
        ("mtime", TIME_FIELD),
        ("crtime", TIME_FIELD),
    ];
    let mut script = String::new();
    for path in ["", "lost+found"].into_iter().chain(tree.paths()) {
        for (field, value) in fields {
            script += &format!("sif \"/{path}\" {field} {value}\n");
        }
    }
    script
}

/// Copies an image, holes and all. A fresh disk has mostly holes; copying them would take its size.
pub fn copy(image: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.arg("--sparse=always").args([image, to]);
    run(&mut command)?;
    Ok(())
}

/// Checks that a file system that nobody uses is without fault, and changes nothing. `-n` opens it
/// for reading, so a journal to be replayed is a fault as well.
pub fn check(image: &Path) -> Result<()> {
    let mut command = tools::e2fsprogs("e2fsck")?.command();
    run(command.args(["-f", "-n"]).arg(image))?;
    Ok(())
}

/// Returns the SHA-256 of a file in an image. debugfs reads it without the kernel, of the host or
/// of the guest.
pub fn hash_of(image: &Path, file: &str) -> Result<String> {
    let copy = image.with_extension("file");
    let mut command = tools::e2fsprogs("debugfs")?.command();
    command.args(["-R", &format!("dump {file} {}", copy.display())]);
    let complaint = run(command.arg(image))?;
    ensure!(copy.is_file(), "debugfs: {complaint}");
    let hash = sha256(&copy)?;
    fs::remove_file(copy)?;
    Ok(hash)
}

/// Runs a program with the one time and returns all that it printed. The fake time keeps tools from
/// writing today's.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.env("E2FSPROGS_FAKE_TIME", TIME).output();
    let output = output.with_context(|| format!("{program} cannot be run"))?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    ensure!(
        output.status.success(),
        "{program}: {}\n{printed}",
        output.status
    );
    Ok(printed)
}

#[cfg(test)]
mod tests;
