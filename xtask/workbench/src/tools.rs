//! The outside programs that building and running GearV takes.
//!
//! Each is taken from the cache, where it is downloaded on first use, or, where that cannot
//! be, from the system.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::fetch::{self, Architecture, PackageSet, Wanted};
use crate::output;

/// The device-tree compiler. Debian 12's version is new enough.
const DTC: PackageSet<'_> = PackageSet {
    name: "device-tree-compiler",
    architecture: Architecture::Host,
    wanted: Wanted::Closure(&["device-tree-compiler"]),
    by_hand: "sudo apt-get install device-tree-compiler",
};

/// Programs that make a guest's disk without root. Part of every Debian, but not of every
/// container.
const E2FSPROGS: PackageSet<'_> = PackageSet {
    name: "e2fsprogs",
    architecture: Architecture::Host,
    wanted: Wanted::Closure(&["e2fsprogs"]),
    by_hand: "sudo apt-get install e2fsprogs",
};

/// QEMU of Debian 13, or of Debian 12's backports: boards and CPUs that QEMU 7 lacks.
const QEMU_10: PackageSet<'_> = PackageSet {
    name: "qemu-10",
    architecture: Architecture::Host,
    wanted: Wanted::Qemu {
        from: 10,
        below: u32::MAX,
    },
    by_hand: "sudo apt-get install qemu-system-arm (on Debian 12 from bookworm-backports)",
};

/// QEMU of Debian 12 itself, on which GearV runs as well. Users of Debian 12 have this one.
const QEMU_7: PackageSet<'_> = PackageSet {
    name: "qemu-7",
    architecture: Architecture::Host,
    wanted: Wanted::Qemu { from: 7, below: 8 },
    by_hand: "sudo apt-get install qemu-system-arm, on Debian 12",
};

/// QEMU's programs for images of disks: on Debian 12 in the first package, later in the second. For
/// tests of vhost-user backends on the host.
const STORAGE: PackageSet<'_> = PackageSet {
    name: "qemu-storage",
    architecture: Architecture::Host,
    wanted: Wanted::Closure(&["qemu-system-common", "qemu-utils"]),
    by_hand: "sudo apt-get install qemu-system-common qemu-utils",
};

/// The program that serves graphics cards.
const GRAPHICS: PackageSet<'_> = PackageSet {
    name: "qemu-graphics",
    architecture: Architecture::Host,
    wanted: Wanted::Closure(&["qemu-system-gui"]),
    by_hand: "sudo apt-get install qemu-system-gui",
};

/// Directories of programs in packages, from the root. Also where helpers of QEMU lie, which no
/// PATH has.
pub(crate) const DIRECTORIES: [&str; 5] = ["usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/qemu"];

/// A program and the libraries it needs, installed or unpacked in the cache. Unpacked programs find
/// neither libraries nor data without help.
#[derive(Clone, Debug)]
pub struct Program {
    /// The binary.
    path: PathBuf,
    /// Root of an unpacked program's libraries and data.
    root: Option<PathBuf>,
}

impl Program {
    /// Finds a program in the set, or on the system when the set cannot be had. The set comes
    /// first: a version that all users share is worth a download.
    fn find(cache: &Cache, set: &PackageSet<'_>, name: &str) -> Result<Program> {
        let unpacked = fetch::unpacked(cache, set);
        let in_set = unpacked.as_ref().ok();
        if let Some(program) = in_set.and_then(|root| Self::below(root, name)) {
            return Ok(program);
        }
        match (on_path(name), unpacked) {
            (Some(path), Ok(_)) => Ok(Program { path, root: None }),
            (Some(path), Err(error)) => {
                let text = format!("using {} of the system: {error:#}", path.display());
                if output::is_new(&text) {
                    eprintln!("{text}");
                }
                Ok(Program { path, root: None })
            }
            (None, Ok(root)) => bail!("{} does not hold {name}", root.display()),
            (None, Err(error)) => Err(error),
        }
    }

    /// Finds a program in an unpacked set. The merge of /usr moved programs, hence the list.
    fn below(root: &Path, name: &str) -> Option<Program> {
        let mut paths = DIRECTORIES.iter().map(|dir| root.join(dir).join(name));
        let path = paths.find(|path| path.is_file())?;
        let root = Some(root.to_owned());
        Some(Program { path, root })
    }

    /// Returns a command that runs the program with its own libraries. Nothing of the caller's
    /// environment is changed but the path of libraries.
    pub fn command(&self) -> Command {
        self.command_under(&[])
    }

    /// Returns a command that runs `wrapper` with the program as its argument. `setpriv` and `nice`
    /// take the program as an argument.
    pub fn command_under(&self, wrapper: &[&str]) -> Command {
        let mut command = match wrapper.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        if let Some(root) = &self.root {
            command.env("LD_LIBRARY_PATH", library_path(root));
        }
        command
    }

    /// Returns the program's own data directory below `usr/share`, if it was unpacked. QEMU looks
    /// for its ROMs at a path that was compiled in.
    pub fn data(&self, name: &str) -> Option<PathBuf> {
        self.root
            .as_ref()
            .map(|root| root.join("usr/share").join(name))
    }
}

/// Lets a command find the programs and libraries that are unpacked below `root`, before the
/// system's. For programs that run others by name, as `make` does.
pub(crate) fn use_unpacked(command: &mut Command, root: &Path) -> Result<()> {
    let system = env::var_os("PATH").unwrap_or_default();
    let own = ["usr/bin", "bin"].map(|directory| root.join(directory));
    let path = env::join_paths(own.into_iter().chain(env::split_paths(&system)))?;
    command.env("PATH", path);
    command.env("LD_LIBRARY_PATH", library_path(root));
    Ok(())
}

/// Returns the folders of an unpacked program's libraries, for LD_LIBRARY_PATH. Debian's multiarch
/// folders, which the loader does not search below another root.
fn library_path(root: &Path) -> OsString {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let directories = ["usr/lib", "lib"].map(|lib| root.join(lib).join(&triplet));
    // The paths come from the cache and hold no colon, or apt would have refused them before.
    env::join_paths(directories).unwrap_or_default()
}

/// Finds a program of the system, also where only root looks for one. `mke2fs` lies in /usr/sbin,
/// which a user's PATH lacks.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let system = DIRECTORIES.iter().map(|dir| Path::new("/").join(dir));
    env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The build tools; QEMU is apart, since most commands do not run it. Found once and passed on, so
/// that a missing tool is told before any work.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The one tool without which no manifest can be judged.
    dtc: Program,
}

impl Tools {
    /// Finds the build tools, and downloads missing ones. dtc of the system is taken first: any
    /// version serves.
    pub fn prepare() -> Result<Tools> {
        let dtc = match on_path("dtc") {
            Some(path) => Program { path, root: None },
            None => Program::find(&Cache::open()?, &DTC, "dtc")?,
        };
        Ok(Tools { dtc })
    }

    /// Returns the device tree compiler.
    pub fn dtc(&self) -> Command {
        self.dtc.command()
    }
}

/// Finds the program that applies overlays to a device tree, which comes with the compiler.
pub fn fdtoverlay() -> Result<Program> {
    match on_path("fdtoverlay") {
        Some(path) => Ok(Program { path, root: None }),
        None => Program::find(&Cache::open()?, &DTC, "fdtoverlay"),
    }
}

/// Finds a program of e2fsprogs, which every Debian has unless somebody took it away.
pub fn e2fsprogs(name: &str) -> Result<Program> {
    match on_path(name) {
        Some(path) => Ok(Program { path, root: None }),
        None => Program::find(&Cache::open()?, &E2FSPROGS, name),
    }
}

/// Finds one of QEMU's programs that serve or make disks and file systems: `qemu-storage-daemon`,
/// `qemu-img` or `virtiofsd`.
pub fn storage(name: &str) -> Result<Program> {
    Program::find(&Cache::open()?, &STORAGE, name)
}

/// Finds QEMU's program that serves graphics cards.
pub fn graphics() -> Result<Program> {
    Program::find(&Cache::open()?, &GRAPHICS, "vhost-user-gpu")
}

/// Finds QEMU for Arm of the wanted major version: 10 (or newer), or Debian 12's 7.
pub fn qemu(major: u32) -> Result<Program> {
    let set = match major {
        10 => &QEMU_10,
        7 => &QEMU_7,
        other => bail!("QEMU {other} is not supported: 10 or 7"),
    };
    Program::find(&Cache::open()?, set, "qemu-system-aarch64")
        .with_context(|| format!("QEMU {major} is needed to run the images"))
}
