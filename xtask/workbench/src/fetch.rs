//! Debian packages, downloaded and unpacked into the cache; the system is left alone.
//!
//! apt runs on a private state below the cache, so one path serves root, sudo and neither. apt
//! checks signatures; each package then lies under its SHA-256 until it is unpacked, and a set's
//! index lists what the set was unpacked from. A set that is unpacked never touches the network.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::apt_sources;
use crate::cache::{Cache, sha256};
use crate::progress::Step;

/// Architecture of the packages of a set. apt keeps the two apart, with a state for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Architecture of this machine: installed packages are not downloaded. Programs that run here:
    /// QEMU, dtc, file-system tools.
    Host,
    /// Architecture of the guests. Kernels and programs that run in VMs. Nothing of it is installed
    /// here.
    Arm64,
}

/// Packages of a set. Names and no versions, but for QEMU: Debian's releases decide.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Named packages and those dependencies that the system lacks.
    Closure(&'a [&'a str]),
    /// QEMU for Arm, of the lowest major version in the range, with its dependencies.
    Qemu {
        /// Least major version.
        from: u32,
        /// Least major version that is too new.
        below: u32,
    },
    /// Named package without its dependencies.
    Alone(&'a str),
    /// Named packages without their dependencies.
    Each(&'a [&'a str]),
    /// Newest kernel image of a series, as `linux-image-<series>.*-<flavour>`.
    Kernel {
        /// Series, as in `6.12`.
        series: &'a str,
        /// Flavour, as in `rt-arm64`.
        flavour: &'a str,
    },
    /// Newest package whose name has a version between these, without its dependencies, as
    /// `xen-hypervisor-<version>-arm64`.
    Newest {
        /// Start of the name, as in `xen-hypervisor-`.
        prefix: &'a str,
        /// Last word of the name, as in `arm64`.
        suffix: &'a str,
    },
}

/// A set of packages that is unpacked into one directory. A set is downloaded and unpacked as a
/// whole, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct PackageSet<'a> {
    /// Name in messages, and of the directory.
    pub name: &'a str,
    /// Architecture of the packages.
    pub architecture: Architecture,
    /// The packages.
    pub wanted: Wanted<'a>,
    /// Command that gets the packages where this program cannot. Shown where apt or the network is
    /// missing.
    pub by_hand: &'a str,
}

/// A package version to download. apt's own answer, so that what is downloaded is what was
/// resolved.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    /// `name=version`, as apt takes it.
    spec: String,
    /// Size of the download.
    bytes: u64,
}

/// Returns where `set` is unpacked, after downloading it if it is not cached. The check comes
/// twice: another process may have unpacked it while this one waited for the lock.
pub fn unpacked(cache: &Cache, set: &PackageSet<'_>) -> Result<PathBuf> {
    let root = cache.path("sets").join(set.name);
    let index = cache.path(format!("sets/{}.index", set.name));
    if root.is_dir() {
        return Ok(root);
    }
    let _lock = cache.lock()?;
    if !root.is_dir() && !has_packages(cache, &index) {
        download(cache, set, &index).with_context(|| {
            format!(
                "cannot get {} (it takes apt and, once, the network; by hand: {})",
                set.name, set.by_hand
            )
        })?;
    }
    if !root.is_dir() {
        unpack(cache, &index, &root).with_context(|| format!("cannot unpack {}", set.name))?;
    }
    Ok(root)
}

/// Tells whether all packages of an index are still there; they are deleted once they are unpacked.
/// An index without its packages is of a set that was unpacked and deleted. A download is needed
/// then, although the versions are known.
fn has_packages(cache: &Cache, index: &Path) -> bool {
    let names = fs::read_to_string(index).unwrap_or_default();
    let mut hashes = names
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.0));
    let is_there = |hash| package(cache, hash).is_file();
    index.is_file() && hashes.all(is_there)
}

/// Returns the path of a package by its hash. Named by hash, so that two sets share a package.
fn package(cache: &Cache, hash: &str) -> PathBuf {
    cache.path(format!("packages/{hash}.deb"))
}

/// Downloads the set's packages into the hash store and writes its index. apt prints progress for
/// terminals alone, so the sizes of files tell it. The index is written last: a download that was
/// cut off has none, and begins anew.
fn download(cache: &Cache, set: &PackageSet<'_>, index: &Path) -> Result<()> {
    let apt = Apt::prepare(cache, set.architecture)?;
    apt.update_once();
    let packages = apt
        .resolve(set.wanted)
        .map_err(|error| match apt.update_error() {
            Some(update) => error.context(update),
            None => error,
        })?;
    let incoming = cache.path("incoming");
    remove_dir_if_there(&incoming)?;
    fs::create_dir_all(&incoming)?;
    fs::create_dir_all(index.parent().context("an index lies in a directory")?)?;
    apt.download(set.name, &packages, &incoming)?;
    let lines = store(cache, &incoming)?;
    ensure!(
        lines.len() == packages.len(),
        "apt downloaded {} of {} packages",
        lines.len(),
        packages.len()
    );
    fs::write(index, lines.concat())?;
    Ok(())
}

/// Moves packages into the hash store. Returns the index's lines, in order of the packages' names.
/// Sorted by name, which makes an index comparable. The lines are those of `sha256sum`, which can
/// check them.
fn store(cache: &Cache, incoming: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(cache.path("packages"))?;
    let mut lines = Vec::new();
    for entry in fs::read_dir(incoming)? {
        let entry = entry?;
        let hash = sha256(&entry.path())?;
        fs::rename(entry.path(), package(cache, &hash))?;
        lines.push(format!("{hash}  {}\n", entry.file_name().to_string_lossy()));
    }
    // The hash has 64 digits.
    lines.sort_by(|a, b| a[64..].cmp(&b[64..]));
    Ok(lines)
}

/// Unpacks a package. Scripts of the package do not run: nothing is installed. `-x` alone:
/// maintainer scripts would change the system and need root.
fn unpack_package(package: &Path, root: &Path) -> Result<()> {
    let output = Command::new("dpkg-deb")
        .arg("-x")
        .arg(package)
        .arg(root)
        .output();
    check(output.context("dpkg-deb")?, "dpkg-deb -x")?;
    Ok(())
}

/// Unpacks what the index lists, from the hash store, into `root`, and deletes the packages: a set
/// that is lost is downloaded again. The rename at the end makes a set appear at once and whole.
fn unpack(cache: &Cache, index: &Path, root: &Path) -> Result<()> {
    let text = fs::read_to_string(index)?;
    let name = root.file_name().unwrap_or_default();
    let step = Step::start(&format!("unpacking {}", name.display()));
    let partial = cache.path("unpacking");
    remove_dir_if_there(&partial)?;
    fs::create_dir_all(&partial)?;
    let mut unpacked = Vec::new();
    for line in text.lines() {
        let (hash, name) = line
            .split_once("  ")
            .context("a line of the index has no hash")?;
        let package = package(cache, hash);
        if !package.is_file() || sha256(&package)? != hash {
            fs::remove_file(index)?;
            bail!("{name} in the cache is damaged; run the command again to download it anew");
        }
        unpack_package(&package, &partial)?;
        unpacked.push(package);
    }
    fs::rename(&partial, root)?;
    for package in unpacked {
        fs::remove_file(package)?;
    }
    step.clear();
    Ok(())
}

/// Remains of an interrupted run are deleted, never used. Half of a set looks like a set.
fn remove_dir_if_there(path: &Path) -> Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// apt with a private state for one architecture. apt of the system, with files of its own: neither
/// root nor the system's lists are touched.
struct Apt {
    /// File that keeps state, cache and sources of apt away from the system's.
    config: PathBuf,
    /// Decides which of two states apt uses.
    architecture: Architecture,
}

/// Whether the package lists were refreshed in this run, and what went wrong, by architecture. Once
/// a process is enough: a release's lists change a few times a day.
static UPDATED: [OnceLock<Option<String>>; 2] = [OnceLock::new(), OnceLock::new()];

impl Apt {
    /// Writes the private configuration. Packages of arm64 are resolved against an empty status
    /// file, for none is installed there.
    fn prepare(cache: &Cache, architecture: Architecture) -> Result<Apt> {
        let (name, status) = match architecture {
            Architecture::Host => (debian_architecture(), PathBuf::from("/var/lib/dpkg/status")),
            Architecture::Arm64 => ("arm64", cache.path("apt/arm64/status")),
        };
        let directory = match architecture {
            Architecture::Host => cache.path("apt/host"),
            Architecture::Arm64 => cache.path("apt/arm64"),
        };
        for needed in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(needed))?;
        }
        if architecture == Architecture::Arm64 {
            fs::write(&status, "")?;
        }
        fs::write(directory.join("release.sources"), release_sources(name)?)?;
        let config = directory.join("apt.conf");
        fs::write(&config, private_config(&directory, &status, name))?;
        Ok(Apt {
            config,
            architecture,
        })
    }

    /// Runs one of apt's programs and returns its output. apt's messages are parsed, hence the C
    /// locale.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&self.config)
            .args(arguments)
            .env("LC_ALL", "C");
        let output = command
            .output()
            .with_context(|| format!("{program} cannot be run"))?;
        check(output, &format!("{program} {}", arguments.join(" ")))
    }

    /// Returns the mark of the lists' refresh for this architecture. Two statics instead of a map:
    /// there are two architectures.
    fn updated(&self) -> &'static OnceLock<Option<String>> {
        match self.architecture {
            Architecture::Host => &UPDATED[0],
            Architecture::Arm64 => &UPDATED[1],
        }
    }

    /// Refreshes the package lists. A source that fails (a third party without backports, say)
    /// matters only if the packages cannot be resolved then. `--error-on=any` tells a source that
    /// failed, which apt only warns of.
    fn update_once(&self) {
        self.updated().get_or_init(|| {
            let step = Step::start("reading Debian's package lists");
            let result = self.run("apt-get", &["update", "-q", "--error-on=any"]);
            step.clear();
            result.err().map(|error| format!("{error:#}"))
        });
    }

    /// Returns why the refresh of the lists failed, for an error that may follow from that. "Unable
    /// to locate package" would hide that the lists are old.
    fn update_error(&self) -> Option<String> {
        self.updated().get().cloned().flatten()
    }

    /// Returns the packages, with versions, that a set consists of on this Debian. apt resolves, by
    /// the same rules as for an installation.
    fn resolve(&self, wanted: Wanted<'_>) -> Result<Vec<Package>> {
        match wanted {
            Wanted::Closure(names) => self.closure(names, None),
            Wanted::Qemu { from, below } => {
                let (version, suite) = self.qemu_version(from, below)?;
                self.closure(&[&format!("qemu-system-arm={version}")], Some(&suite))
            }
            Wanted::Alone(name) => self.alone(&[name]),
            Wanted::Each(names) => self.alone(names),
            Wanted::Kernel { series, flavour } => {
                self.newest(&format!("linux-image-{series}."), flavour)
            }
            Wanted::Newest { prefix, suffix } => self.newest(prefix, suffix),
        }
    }

    /// Returns the newest package whose name has a version between these.
    fn newest(&self, prefix: &str, suffix: &str) -> Result<Vec<Package>> {
        let names = self.run("apt-cache", &["pkgnames", prefix])?;
        let newest = newest_name(&names, prefix, suffix);
        self.alone(&[newest.with_context(|| format!("no package {prefix}…-{suffix}"))?])
    }

    /// Returns the version and suite of the lowest QEMU in the range. The lowest in the range is
    /// the release's own where it has one; backports come second.
    fn qemu_version(&self, from: u32, below: u32) -> Result<(String, String)> {
        let table = self.run("apt-cache", &["madison", "qemu-system-arm"])?;
        let in_range = madison(&table)
            .filter_map(|(version, suite)| Some((major(&version)?, version, suite)))
            .filter(|(major, _, _)| (from..below).contains(major));
        let lowest = in_range.min_by_key(|(major, _, _)| *major);
        let (_, version, suite) =
            lowest.with_context(|| format!("this Debian has no QEMU {from}, nor its backports"))?;
        Ok((version, suite))
    }

    /// Returns packages with all that they depend on, as apt would install them on a system that
    /// has none. Older versions than installed ones are allowed, as nothing is installed.
    /// Recommended packages are left out: programs run without them.
    fn closure(&self, specs: &[&str], suite: Option<&str>) -> Result<Vec<Package>> {
        let mut arguments = vec![
            "install",
            "-qq",
            "-y",
            "--print-uris",
            "--no-install-recommends",
        ];
        arguments.extend(["--allow-downgrades"]);
        arguments.extend(suite.iter().flat_map(|suite| ["-t", suite]));
        arguments.extend(specs);
        parse_uris(&self.run("apt-get", &arguments)?)
    }

    /// Returns packages without what they depend on. For programs whose package depends on much
    /// that they do not use.
    fn alone(&self, names: &[&str]) -> Result<Vec<Package>> {
        let arguments = [&["download", "-qq", "--print-uris"], names].concat();
        parse_uris(&self.run("apt-get", &arguments)?)
    }

    /// Starts a download, which apt checks by its own signatures and hashes. apt verifies each file
    /// against the signed lists; nothing is trusted by its name.
    fn start_download(&self, packages: &[Package], directory: &Path) -> Result<Child> {
        Command::new("apt-get")
            .arg("-c")
            .arg(&self.config)
            .args(["download", "-q"])
            .args(packages.iter().map(|package| &package.spec))
            .current_dir(directory)
            .env("LC_ALL", "C")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("apt-get cannot be run")
    }

    /// Downloads into `directory`, which is empty, and shows how far it is.
    fn download(&self, what: &str, packages: &[Package], directory: &Path) -> Result<()> {
        let total = packages.iter().map(|package| package.bytes).sum();
        let step = Step::bytes(&format!("downloading {what}"), total);
        let mut child = self.start_download(packages, directory)?;
        while child.try_wait()?.is_none() {
            step.set_position(size_of_files(directory));
            std::thread::sleep(Duration::from_millis(100));
        }
        let output = child.wait_with_output()?;
        if let Err(error) = check(output, "apt-get download") {
            step.clear();
            return Err(error);
        }
        let megabytes = total as f64 / 1e6;
        step.done(&format!(
            "downloaded {what}: {} packages, {megabytes:.0} MB",
            packages.len()
        ));
        Ok(())
    }
}

/// Returns apt's configuration: private state, no hooks of the system, one architecture. Hooks of a
/// system's apt.conf would run for our update too, hence the `#clear` lines.
fn private_config(directory: &Path, status: &Path, architecture: &str) -> String {
    let directory = directory.display();
    format!(
        r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Debug::NoLocking "true";
Dir::Cache "{directory}/cache";
Dir::Etc::SourceList "{directory}/release.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State "{directory}/state";
Dir::State::status "{status}";
"#,
        status = status.display(),
    )
}

/// Returns Debian's name for the architecture of this machine. Rust's names differ from Debian's.
/// The programs for this machine, such as QEMU, are of it; those for guests are always arm64.
fn debian_architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the name of this machine's release, such as `bookworm`. apt's sources name the release
/// by it.
fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let codename = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(codename
        .context("this is not Debian")?
        .trim_matches('"')
        .to_owned())
}

/// Returns the machine's own apt sources of its release, as a file of them for the architecture.
/// The user's own mirrors are taken, as a company's network may reach no other.
fn release_sources(architecture: &str) -> Result<String> {
    let codename = codename()?;
    let sources = apt_sources::configured(Path::new("/etc/apt"));
    apt_sources::release_with_backports(&sources, &codename, architecture)
        .with_context(|| format!("no apt source of {codename} is configured in /etc/apt"))
}

/// Returns how many bytes have arrived; a file that is renamed meanwhile may be missed. Only for
/// the bar on the terminal.
fn size_of_files(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|data| data.len())
        .sum()
}

/// Returns a program's output, or an error with the end of its messages. apt writes the cause last.
fn check(output: Output, what: &str) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = complaint.lines().collect();
    let tail = lines[lines.len().saturating_sub(6)..].join("\n");
    bail!("`{what}` failed:\n{tail}")
}

/// Parses `apt-get --print-uris`: `'URI' name_version_arch.deb bytes hash`, version with `%3a`. The
/// file's name has the version, with characters that URIs do not have escaped.
fn parse_uris(text: &str) -> Result<Vec<Package>> {
    let packages = text
        .lines()
        .filter(|line| line.starts_with('\''))
        .map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let file = words.next().context("no file name")?;
            let bytes = words.next().context("no size")?.parse()?;
            let mut parts = file.split('_');
            let name = parts.next().context("no package name")?;
            let version = parts.next().context("no version")?.replace("%3a", ":");
            Ok(Package {
                spec: format!("{name}={version}"),
                bytes,
            })
        });
    packages
        .collect::<Result<_>>()
        .with_context(|| format!("apt printed: {text}"))
}

/// Parses `apt-cache madison` into versions and their suites. Rows are `package | version | URI
/// suite/component arch Packages`.
fn madison(table: &str) -> impl Iterator<Item = (String, String)> + '_ {
    table.lines().filter_map(|line| {
        let mut columns = line.split('|').skip(1).map(str::trim);
        let version = columns.next()?.to_owned();
        let suite = columns
            .next()?
            .split_whitespace()
            .nth(1)?
            .split('/')
            .next()?
            .to_owned();
        Some((version, suite))
    })
}

/// Returns the major number of a Debian version, which may have an epoch. `1:10.0.2+ds-2` has the
/// epoch 1.
fn major(version: &str) -> Option<u32> {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    upstream.split('.').next()?.parse().ok()
}

/// Returns the newest of apt's package names that is `prefix…-suffix` and no variant of it.
/// Variants such as `-dbg` and `-unsigned` end in other words.
fn newest_name<'a>(names: &'a str, prefix: &str, suffix: &str) -> Option<&'a str> {
    let version = |name: &'a str| {
        let version = name
            .strip_prefix(prefix)?
            .strip_suffix(suffix)?
            .strip_suffix('-')?;
        // An ABI number (`6.1.0-54`) is no variant.
        let mut variants = version.split('-').skip(1);
        variants
            .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| numbers(version))
    };
    let candidates = names
        .lines()
        .filter_map(|name| Some((version(name)?, name)));
    Some(candidates.max()?.1)
}

/// Returns the numbers in a version, for comparing versions of one scheme. Debian's full order
/// (deb-version(7)) is not needed within one series.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests;
