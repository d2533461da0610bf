//! Manifest compilation: from the source a person writes to the blob that boots.
//!
//! dtc compiles, `gearv-manifest` judges; this file adds where in the source each error is.

pub mod diagnostic;
mod expected;
mod files;
mod repair;
mod spans;
mod syntax;
mod userland;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs};

use anyhow::{Context, anyhow, bail};
use gearv_manifest::{
    CpuList, CpuSet, GEAR2_MEMBER, MEMORY_ALIGN, Manifest, Payload, Privilege, VirtioKind, Vm,
    VmKind,
};

use crate::artifact::Artifact;
use crate::tools::Tools;
use crate::{guest_dt, network, output};
use diagnostic::{Diagnostic, Sources, error_count};
use spans::Spans;

pub use userland::warn as warn_of_userlands;

#[cfg(test)]
pub mod tests;

/// Prefix of file names for files that xtask makes or downloads. No file name has a colon, so the
/// two cannot be confused.
const ARTIFACT_PREFIX: &str = "artifact:";

/// A manifest that keeps all rules that need no machine. Read from the blob once, for commands that
/// ask for little and must not parse again.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Exception level of Gear2.
    pub privilege: Privilege,
    /// Path of the source, as messages show it.
    pub dts: PathBuf,
    /// The manifest as a device tree blob.
    pub blob: Vec<u8>,
    /// VMs, in the order of the file.
    pub vms: Vec<VmSummary>,
    /// Files that the manifest names, each once.
    pub files: Vec<FileRef>,
    /// Number of CPUs that a machine must have for the CPUs that the manifest names.
    pub cpu_count: usize,
    /// Whether a VM owns the second UART of QEMU's `virt`, which exists on demand.
    pub second_uart: bool,
    /// Number of the VM that owns the boot UART of QEMU's `virt`, if it is not Gear2's.
    pub boot_uart_owner: Option<usize>,
    /// Number of the VM that owns the disks and the network card of QEMU's `virt`.
    pub virtio_owner: Option<usize>,
}

/// The UARTs of QEMU's `virt`. The paths are QEMU's (hw/arm/virt.c).
const BOOT_UART: &str = "/pl011@9000000";
/// The second one exists on demand.
pub const SECOND_UART: &str = "/pl011@9040000";
/// The transport that QEMU's `virt` gives the first virtio device of the command line. QEMU fills
/// the transports from the highest address down.
const FIRST_TRANSPORT: &str = "/virtio_mmio@a003e00";

impl Compiled {
    /// Refuses files that are absent, are not what their property needs, or are not those which the
    /// manifest was written for; `resolve` finds what `artifact:` names. Called before a build: an
    /// archive with a wrong kernel would be found at the boot.
    pub fn check_files(
        &self,
        tools: &Tools,
        resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<()> {
        self.refuse(&judge_files(&self.blob, &self.dts, resolve)?, tools)
    }

    /// Refuses entry points behind the end of images that xtask makes: `resolve` makes them.
    pub fn check_entries(
        &self,
        tools: &Tools,
        resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<()> {
        let bytes = Aligned::new(&self.blob);
        let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
        let mut list = Vec::new();
        if let Some(manifest) = &judged.manifest {
            let mut sink = |error: &gearv_manifest::ManifestError<'_>| {
                list.push(Diagnostic::new(error));
            };
            files::judge_made(manifest, &self.dts, resolve, &mut sink)?;
        }
        self.refuse(&list, tools)
    }

    /// Refuses the manifest if there is a reason.
    fn refuse(&self, list: &[Diagnostic], tools: &Tools) -> anyhow::Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let drawn = sources(&self.dts, tools).draw(list, output::styles_errors());
        bail!("{}\n\n{drawn}", refusal(&self.dts, list.len()))
    }

    /// Returns the VM that owns the machine's devices, if there is one, and its number. The binding
    /// allows one.
    pub fn device_vm(&self) -> Option<(usize, &VmSummary)> {
        let mut vms = self.vms.iter().enumerate();
        vms.find(|(_, vm)| vm.kind == VmKind::Device)
    }
}

/// Summary of a VM for xtask's output, and the source of its device tree.
#[derive(Clone, Debug)]
pub struct VmSummary {
    /// Name of the VM.
    pub name: String,
    /// Role of the VM.
    pub kind: VmKind,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Size of the memory.
    pub memory_bytes: u64,
    /// Whether the VM's SYSTEM_OFF powers the machine off.
    pub may_power_off: bool,
    /// Console that Gear2 or the device VM shows, if the VM has one.
    pub console: Option<VmConsole>,
    /// Address on the network of the device VM, unless the VM's own system chooses another one.
    pub address: Option<String>,
    /// Source of the device tree; `None` for the device VM, whose tree init makes.
    pub device_tree: Option<String>,
}

/// Console of a VM that is no device of the board. Decides which command reaches the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmConsole {
    /// Gear2's emulated PL011.
    Uart,
    /// A virtio console, and no PL011.
    Virtio,
}

impl VmSummary {
    /// Returns what connects a terminal of the device VM with this VM's console: the emulated
    /// UART's, or the virtio console's if there is no other. For messages and for tests, which type
    /// it.
    pub fn console_command(&self) -> String {
        let option = match self.console {
            Some(VmConsole::Virtio) => " --virtio",
            Some(VmConsole::Uart) | None => "",
        };
        format!("gearctl console {}{option}", self.name)
    }
}

/// A file of the archive. Names are kept as written: the archive's reader compares them with the
/// manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// Name in the archive, which is exactly the name in the manifest.
    pub name_in_archive: String,
    /// Origin of the file.
    pub source: Source,
}

/// Origin of a file. Told apart once, here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file beside the manifest.
    Path(PathBuf),
    /// Something that xtask makes or downloads, by the name after `artifact:`.
    Artifact(String),
}

/// Compiles the manifest `dts` into `out_dir`, and refuses it with all errors if there are any.
/// Warnings are shown once in a process, however many commands compile the manifest.
pub fn compile(dts: &Path, tools: &Tools, out_dir: &Path) -> anyhow::Result<Compiled> {
    let (dts, blob) = compile_source(dts, tools, out_dir)?;
    let bytes = Aligned::new(&blob);
    let mut list = Vec::new();
    let mut sink = |error: gearv_manifest::ManifestError<'_>| list.push(Diagnostic::new(&error));
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut sink);
    if let Some(manifest) = &judged.manifest {
        gearv_manifest::warn(manifest, None, &mut sink);
        userland::warn(manifest, &mut sink);
    }
    let sources = judge_source(&dts, tools, &mut list);
    let styled = output::styles_errors();
    match (error_count(&list), &judged.manifest) {
        (0, Some(manifest)) => {
            let new = sources.draw_new(&list, styled);
            if !new.is_empty() {
                eprintln!("{new}");
            }
            Ok(summarize(manifest, &dts, blob.clone()))
        }
        (errors, _) => {
            let drawn = sources.draw(&list, styled);
            bail!("{}\n\n{drawn}", refusal(&dts, errors))
        }
    }
}

/// Judges the files that the manifest names, and compares those that have a digest with it.
/// `resolve` finds files for `artifact:` names; it is asked for those with a digest alone. The
/// digests are judged by the code that init uses.
pub fn judge_files(
    blob: &[u8],
    dts: &Path,
    resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<Vec<Diagnostic>> {
    let bytes = Aligned::new(blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
    let Some(manifest) = judged.manifest else {
        return Ok(Vec::new());
    };
    let mut list = Vec::new();
    files::judge(&manifest, dts, &mut |error| {
        list.push(Diagnostic::new(error))
    });
    let contents = digested(&manifest, dts, resolve)?;
    let find = |name: &str| contents.get(name).map(Vec::as_slice);
    let mut sink = |error: gearv_manifest::ManifestError<'_>| list.push(Diagnostic::new(&error));
    gearv_manifest::check_digests(&manifest, find, &mut sink);
    Ok(list)
}

/// Reads the files that have a digest and are there, by the names that the manifest gives them.
/// Only files with a digest are read: kernels are large.
fn digested<'m>(
    manifest: &Manifest<'m>,
    dts: &Path,
    resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<HashMap<&'m str, Vec<u8>>> {
    let mut contents = HashMap::new();
    for file in manifest.files().filter(|file| file.digest.is_some()) {
        let path = match source(file.name, dts) {
            Source::Path(path) => path,
            Source::Artifact(name) if Artifact::named(&name).is_some() => resolve(&name)?,
            Source::Artifact(_) => continue,
        };
        if path.is_file() {
            let bytes = fs::read(&path);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            contents.insert(file.name, bytes);
        }
    }
    Ok(contents)
}

/// Returns how large the archive is at least: the files beside the manifest, each once. What xtask
/// makes or downloads comes on top. A lower limit is enough to find memory that cannot be had.
pub fn least_archive_bytes(blob: &[u8], dts: &Path) -> u64 {
    let bytes = Aligned::new(blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
    let files = judged.manifest.iter().flat_map(|one| file_refs(one, dts));
    let paths = files.filter_map(|file| match file.source {
        Source::Path(path) => fs::metadata(path).ok(),
        Source::Artifact(_) => None,
    });
    paths
        .map(|data| data.len())
        .fold(MEMORY_ALIGN, u64::saturating_add)
}

/// Says that a manifest is refused. The first line of every refusal, so that tests and people know
/// it.
pub fn refusal(dts: &Path, count: usize) -> String {
    format!(
        "{} is refused: {count} error{}",
        dts.display(),
        plural(count)
    )
}

/// Returns the error of a manifest that does not exist, in the form of all diagnostics. The form of
/// all other findings, so that `--format json` has it too.
fn not_there(dts: &Path) -> anyhow::Error {
    let file = dts.display().to_string();
    let sources = Sources::new(&file, Spans::default());
    let found = Diagnostic::without_file(&file, dts.is_dir());
    refused_source(dts, sources, vec![found])
}

/// Compiles without judging; returns the path as messages show it, and the blob. The blob comes by
/// a pipe; the folder is for what dtc is given later.
pub fn compile_source(
    dts: &Path,
    tools: &Tools,
    out_dir: &Path,
) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    fs::create_dir_all(out_dir).with_context(|| format!("cannot make {}", out_dir.display()))?;
    let dts = short(dts);
    if !dts.is_file() {
        return Err(not_there(&dts));
    }
    // Not by a file: two commands at a time on one manifest would write the same one.
    match try_dtc(tools, &["-q", "-I", "dts", "-O", "dtb"], &[&dts])? {
        Ok(blob) => Ok((dts, blob)),
        Err(message) => Err(explain(&dts, &message)),
    }
}

/// Judges the source of a manifest by what its blob does not tell, and returns the source for the
/// display of `list`. dtc drops comments and types, which only the text has.
pub fn judge_source(dts: &Path, tools: &Tools, list: &mut Vec<Diagnostic>) -> Sources {
    let sources = sources(dts, tools);
    sources.judge_strings(list);
    let (texts, odd) = syntax::surprises(dts);
    // Ahead of the rest, which follows from it where a comment has taken in a part of the manifest.
    let odd = odd.into_iter();
    list.splice(0..0, odd.map(|fault| Diagnostic::warning(fault, &texts)));
    sources
}

/// Returns the source, and where its nodes and properties are as far as dtc can say. `-T -T` makes
/// dtc annotate its output with the places in the source.
pub fn sources(dts: &Path, tools: &Tools) -> Sources {
    let text = run_dtc(tools, &["-q", "-T", "-T", "-I", "dts", "-O", "dts"], &[dts]);
    let spans = Spans::parse(&String::from_utf8_lossy(&text.unwrap_or_default()));
    Sources::new(&dts.display().to_string(), spans)
}

/// Returns the path as a person would write it here, so that messages are short. Absolute paths of
/// a workspace are longer than most lines.
fn short(path: &Path) -> PathBuf {
    let here = env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_path_buf()
}

/// Runs dtc, whose refusal is an error. For sources that xtask wrote: a refusal is a fault of ours.
fn run_dtc(tools: &Tools, options: &[&str], paths: &[&Path]) -> anyhow::Result<Vec<u8>> {
    try_dtc(tools, options, paths)?.map_err(|message| {
        let path = paths.last().map_or(Path::new(""), |path| path);
        anyhow!("dtc refuses {}:\n{}", path.display(), message.trim_end())
    })
}

/// Runs dtc, and returns what it makes or what it says against the source. Warnings are turned off
/// (`-q`): the rules say more, and in the manifest's words.
fn try_dtc(
    tools: &Tools,
    options: &[&str],
    paths: &[&Path],
) -> anyhow::Result<Result<Vec<u8>, String>> {
    let mut command: Command = tools.dtc();
    let output = command.args(options).args(paths).output();
    let output = output.context("cannot run dtc")?;
    Ok(match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    })
}

/// A source that is no device tree, with the reasons. An error type of its own, because callers
/// print it in three formats.
#[derive(Debug)]
pub struct SourceRefused {
    /// Reasons for a person.
    text: String,
    /// Reasons for an editor, one a line.
    pub lines: String,
    /// Reasons for a program.
    pub json: Vec<serde_json::Value>,
}

impl fmt::Display for SourceRefused {
    /// With colours where standard error is a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SourceRefused {}

/// Explains why dtc refuses a source: by the faults in its text, or in dtc's own words. dtc stops
/// at the first fault and calls most of them "syntax error"; ours are all told.
fn explain(dts: &Path, message: &str) -> anyhow::Error {
    let (texts, faults) = syntax::faults(dts);
    let (sources, list) = match faults.is_empty() {
        false => {
            let list = faults.into_iter();
            let list = list
                .map(|fault| Diagnostic::of_fault(fault, &texts))
                .collect();
            (Sources::of_texts(texts), list)
        }
        true => {
            let (sources, diagnostic) = diagnostic::refused_by_dtc(message);
            (sources, vec![diagnostic])
        }
    };
    refused_source(dts, sources, list)
}

/// Returns the error of a manifest that is refused, in all forms that a caller may print.
fn refused_source(dts: &Path, sources: Sources, list: Vec<Diagnostic>) -> anyhow::Error {
    let drawn = sources.draw(&list, output::styles_errors());
    anyhow::Error::new(SourceRefused {
        text: format!("{}\n\n{drawn}", refusal(dts, list.len())),
        lines: sources.lines(&list),
        json: sources.json(&list),
    })
}

/// English's regular plural.
const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Returns what the other commands need of a manifest. The number of CPUs is that of the highest
/// one that is named. Of CPUs that nobody names, the machine needs none.
fn summarize(manifest: &Manifest<'_>, dts: &Path, blob: Vec<u8>) -> Compiled {
    let vms = manifest.vms.iter();
    let cpus = manifest.gear2.cpus.map_or(CpuSet::EMPTY, CpuList::set);
    let cpus = vms.fold(cpus, |cpus, vm| cpus.with_all(vm.cpus.set()));
    let pools = manifest.pools.iter();
    let cpus = pools.fold(cpus, |cpus, pool| cpus.with_all(pool.cpus.set()));
    let vms = manifest.vms.iter();
    Compiled {
        privilege: manifest.gear2.privilege,
        dts: dts.to_path_buf(),
        blob,
        vms: vms.map(|vm| summary(manifest, vm)).collect(),
        files: file_refs(manifest, dts),
        second_uart: owner(manifest, SECOND_UART).is_some(),
        boot_uart_owner: owner(manifest, BOOT_UART),
        virtio_owner: owner(manifest, FIRST_TRANSPORT),
        cpu_count: cpus.iter().last().map_or(1, |cpu| cpu.index() + 1),
    }
}

/// Returns the number of the VM that owns the device at `path` of the machine's device tree. By
/// pattern, as init assigns devices.
fn owner(manifest: &Manifest<'_>, path: &str) -> Option<usize> {
    manifest.vms.iter().position(|vm| vm.devices.owns(path))
}

/// The device VM's tree comes from the board's, hence there is none here.
fn summary(manifest: &Manifest<'_>, vm: &Vm<'_>) -> VmSummary {
    VmSummary {
        name: vm.name.to_owned(),
        kind: vm.kind,
        vcpus: vm.vcpu_count,
        memory_bytes: vm.memory.bytes,
        may_power_off: vm.may_power_off,
        console: console(manifest, vm),
        address: address(manifest, vm),
        device_tree: match vm.kind {
            VmKind::Guest | VmKind::RealTime => Some(guest_dt::source(manifest, vm)),
            VmKind::Device => None,
        },
    }
}

/// A vhost-user device counts as what its guest sees.
fn has_virtio(manifest: &Manifest<'_>, vm: &Vm<'_>, kind: VirtioKind) -> bool {
    let mut devices = manifest.virtio_of(vm.id);
    devices.any(|(_, device)| device.is_seen_as(kind))
}

/// Returns the console on which a VM shows its prompt: its UART, or a virtio console without one.
/// The UART wins, since a kernel's first messages appear there.
fn console(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<VmConsole> {
    let virtio = has_virtio(manifest, vm, VirtioKind::Console).then_some(VmConsole::Virtio);
    vm.console.map(|_| VmConsole::Uart).or(virtio)
}

/// Returns the address that the userland of the device VM, or of a guest, takes. The rules are
/// those of the scripts of the userlands.
fn address(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<String> {
    if vm.kind == VmKind::Device {
        return Some(network::DEVICE_VM.to_owned());
    }
    let (Payload::Linux { cmdline, .. } | Payload::Flat { cmdline, .. }) = vm.payload;
    let mut words = cmdline.split_whitespace();
    let named = words.find_map(|word| word.strip_prefix(network::ADDRESS_OPTION));
    let address = named.map_or(network::GUEST, |named| {
        named.split_once('/').map_or(named, |(address, _)| address)
    });
    has_virtio(manifest, vm, VirtioKind::Net).then(|| address.to_owned())
}

/// Returns the files that the manifest names, each once, but for Gear2, which xtask builds. Several
/// VMs may boot one kernel, which the archive has once.
fn file_refs(manifest: &Manifest<'_>, dts: &Path) -> Vec<FileRef> {
    let mut files: Vec<FileRef> = Vec::new();
    let names = manifest.files().map(|file| file.name);
    for name in names.filter(|name| *name != GEAR2_MEMBER) {
        if !files.iter().any(|file| file.name_in_archive == name) {
            files.push(FileRef {
                name_in_archive: name.to_owned(),
                source: source(name, dts),
            });
        }
    }
    files
}

/// Returns where a file comes from. A path is relative to the manifest. Paths are relative to the
/// manifest and not to the folder of the command.
fn source(name: &str, dts: &Path) -> Source {
    match name.strip_prefix(ARTIFACT_PREFIX) {
        Some(artifact) => Source::Artifact(artifact.to_owned()),
        None => Source::Path(dts.parent().unwrap_or(Path::new("")).join(name)),
    }
}

/// Compiles device tree source that xtask wrote itself. The text stays beside the blob, for whoever
/// wants to read what a guest gets.
pub fn compile_text(source: &str, tools: &Tools, out: &Path) -> anyhow::Result<Vec<u8>> {
    let dts = out.with_extension("dts");
    fs::write(&dts, source).with_context(|| format!("cannot write {}", dts.display()))?;
    run_dtc(tools, &["-q", "-I", "dts", "-O", "dtb"], &[&dts])
}

/// Returns the source of a device tree blob. For changes of a board's tree, which are text that is
/// added behind.
pub fn decompile(blob: &[u8], tools: &Tools, scratch: &Path) -> anyhow::Result<String> {
    fs::write(scratch, blob).with_context(|| format!("cannot write {}", scratch.display()))?;
    let text = run_dtc(tools, &["-q", "-I", "dtb", "-O", "dts"], &[scratch])?;
    String::from_utf8(text).context("the device tree holds what is no text")
}

/// Bytes on a multiple of four, where the reader wants them. A `Vec<u8>` may begin anywhere, and
/// boot loaders align a blob to eight bytes.
#[derive(Debug)]
pub struct Aligned {
    /// Three bytes longer than the copy, for the worst alignment.
    bytes: Vec<u8>,
    /// Offset of the first byte that is aligned, and number of the bytes from there.
    start: usize,
    /// The copy alone, without what fills up.
    count: usize,
}

impl Clone for Aligned {
    /// A derived clone would keep the offset and lose the alignment.
    fn clone(&self) -> Self {
        Self::new(self.as_slice())
    }
}

impl Aligned {
    /// Copies `bytes` to an aligned place. Copies: blobs have a few KiB.
    pub fn new(bytes: &[u8]) -> Self {
        let mut copy = vec![0; bytes.len() + 3];
        let start = copy.as_ptr().align_offset(4);
        copy[start..start + bytes.len()].copy_from_slice(bytes);
        Self {
            bytes: copy,
            start,
            count: bytes.len(),
        }
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.count]
    }
}
