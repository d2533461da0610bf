//! Linux' driver `uio_pdrv_genirq`, which Debian's kernels do not have, as a module for Debian's
//! 6.12 kernel.
//!
//! The source is Debian's, unchanged, and so are the headers, the compiler and the programs of the
//! kernel's build: all are downloaded, and nothing is installed. docs/doorbells.md tells a user how
//! to build the same module on a Debian system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::progress::Step;
use crate::{payloads, tools, tree};

/// Name of the module.
const NAME: &str = "uio_pdrv_genirq";
/// Folder of its source in Linux.
const FOLDER: &str = "drivers/uio";
/// Lines of make's output that are shown of a build that failed.
const TAIL: usize = 20;

/// Returns the module, which is built below `out_dir` if no build of this kernel is there.
pub fn build(out_dir: &Path) -> Result<PathBuf> {
    let release = payloads::kernel_release()?;
    let module = out_dir.join(format!("{NAME}-{release}.ko"));
    if module.is_file() {
        return Ok(module);
    }
    let headers = payloads::kernel_headers()?;
    let compiler = payloads::compiler()?;
    let folder = tree::partial(&out_dir.join(format!("{NAME}-{release}")))?;
    fs::create_dir_all(&folder)?;
    payloads::kernel_source_file(&format!("{FOLDER}/{NAME}.c"), &folder)?;
    fs::write(folder.join("Kbuild"), format!("obj-m := {NAME}.o\n"))?;
    let step = Step::start(&format!("compiling {NAME}"));
    let made = make(&release, &headers, &compiler, &folder);
    step.clear();
    made.with_context(|| format!("cannot build {NAME} for {release}"))?;
    fs::rename(folder.join(format!("{NAME}.ko")), &module)?;
    fs::remove_dir_all(&folder)?;
    Ok(module)
}

/// Runs the kernel's build on the module in `folder`. The Makefile in the folder of a flavour names
/// the common one by its installed path, so that the common one is named here.
fn make(release: &str, headers: &Path, compiler: &Path, folder: &Path) -> Result<()> {
    let version = release.strip_suffix("-arm64").unwrap_or(release);
    let mut make = Command::new("make");
    tools::use_unpacked(&mut make, compiler)?;
    make.arg("-C")
        .arg(headers.join(format!("linux-headers-{release}")));
    make.arg("-f")
        .arg(headers.join(format!("linux-headers-{version}-common/Makefile")));
    make.arg(format!("M={}", folder.display()));
    // Types for BPF take another program, and no module needs them.
    make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]);
    // The build is not part of a `make` that may have started this program.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let output = make.output().context("make cannot be run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        bail!("make ended with {}:\n{tail}", output.status);
    }
    Ok(())
}
