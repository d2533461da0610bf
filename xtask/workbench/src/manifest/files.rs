//! Files that a manifest names: whether each is there, and is what its property needs.
//!
//! Owns the rules M-PAY-009 to M-PAY-016, by which `check`, `build`, `run` and `flash` judge alike
//! before anything is built. A file that xtask makes or downloads is judged by its name alone,
//! since a check fetches nothing.
//!
//! Contents are judged by their first bytes, as init and Linux do, and never by a name's ending: a
//! kernel is called `Image`, `vmlinuz` or `linux`, and means three formats.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use gearv_manifest::{
    Found, GEAR2_MEMBER, Manifest, ManifestError, NamedFile, NodePath, Payload, Rule, Vm, nearest,
};

use super::{ARTIFACT_PREFIX, Source, source};
use crate::artifact::{Artifact, Use};
use content::Content;

mod archive;
mod content;
#[cfg(test)]
mod tests;

/// Bytes at the start of a file that tell what the file is. The farthest mark lies at 0x438, that
/// of an ext file system.
const HEAD_BYTES: u64 = 0x800;
/// Messages count memory as manifests do.
const MIB: u64 = 1 << 20;
/// Bytes that each of Debian's arm64 kernels takes at least. The exact size is known once one is
/// downloaded. A VM with less memory never boots, so it can be told without a download.
const LEAST_KERNEL_BYTES: u64 = 32 * MIB;

/// A rule that a file breaks, and why. The text goes behind the rule's statement.
type Fault = (Rule, String);

/// Judges the files that `manifest`, whose source is `dts`, names. All files are judged, each by
/// itself; sizes come last, since they need files that are right.
pub(super) fn judge(manifest: &Manifest<'_>, dts: &Path, sink: &mut dyn FnMut(&ManifestError<'_>)) {
    for file in manifest.files().filter(|file| file.name != GEAR2_MEMBER) {
        let judged = judge_file(&file, dts);
        let judged = judged.or_else(|fault| match takes_anything(manifest, &file) {
            true if fault.0 == Rule::NotAnInitrd => Ok(()),
            _ => Err(fault),
        });
        if let Err((rule, why)) = judged {
            report(&file, rule, &why, sink);
        }
    }
    judge_sizes(manifest, dts, sink);
}

/// Judges whether the memory of each VM holds the files that it starts from. init refuses the same
/// at boot, where the repair takes another build. Both sizes are in the message, since only the
/// author knows which of the two is wrong.
fn judge_sizes(manifest: &Manifest<'_>, dts: &Path, sink: &mut dyn FnMut(&ManifestError<'_>)) {
    for vm in manifest.vms.iter() {
        judge_file_system(vm, dts, sink);
        if let Some((property, needed)) = too_large(vm, dts) {
            let has = vm.memory.bytes / MIB;
            let why = format!("it needs {} MiB of {has} MiB", needed.div_ceil(MIB));
            let node = NodePath::vm(vm.name);
            let error = ManifestError::at_property(Rule::PayloadTooLarge, node, property);
            sink(&error.found(Found::Reason(&why)));
        }
        if let Payload::Flat { image, .. } = vm.payload
            && let Some(path) = path_of(image, dts)
        {
            judge_entry(vm, &path, sink);
        }
    }
}

/// Warns of an initial RAM disk that is a file system, where the command line names another root:
/// Linux frees the memory, and looks for a root elsewhere.
fn judge_file_system(vm: &Vm<'_>, dts: &Path, sink: &mut dyn FnMut(&ManifestError<'_>)) {
    let Payload::Linux {
        initrd: Some(initrd),
        cmdline,
        ..
    } = vm.payload
    else {
        return;
    };
    let content = path_of(initrd, dts).and_then(|path| Some(Content::of(&head(&path).ok()?)));
    let has_root = cmdline
        .split_whitespace()
        .any(|word| word.starts_with("root=/dev/ram"));
    if let Some(content @ Content::FileSystem(_)) = content
        && !has_root
    {
        let what = content.text(&[]);
        let why = format!("{initrd}: {what}, which Linux mounts with root=/dev/ram0 alone");
        let place = ManifestError::at_property(Rule::NoRoot, NodePath::vm(vm.name), "initrd");
        sink(&place.found(Found::Reason(&why)));
    }
}

/// Judges the entry points of images that xtask makes, whose sizes a check does not know; `resolve`
/// makes them.
pub(super) fn judge_made(
    manifest: &Manifest<'_>,
    dts: &Path,
    resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
    sink: &mut dyn FnMut(&ManifestError<'_>),
) -> anyhow::Result<()> {
    for vm in manifest.vms.iter() {
        // The first instruction is the entry of most, and of every image that is not empty.
        if let Payload::Flat {
            image,
            entry_offset: 1..,
            ..
        } = vm.payload
            && let Source::Artifact(name) = source(image, dts)
        {
            judge_entry(vm, &resolve(&name)?, sink);
        }
    }
    Ok(())
}

/// Judges the entry point of a flat image, which is at `path`: memory behind the image is zeros,
/// which are no instruction. A jump into zeros is an undefined instruction in the first cycle.
fn judge_entry(vm: &Vm<'_>, path: &Path, sink: &mut dyn FnMut(&ManifestError<'_>)) {
    let Payload::Flat {
        image,
        entry_offset,
        ..
    } = vm.payload
    else {
        return;
    };
    let bytes = fs::metadata(path).map_or(0, |data| data.len());
    let node = NodePath::vm(vm.name);
    // An empty file is a fault of its own.
    if bytes != 0 && entry_offset >= bytes {
        let why = format!("{entry_offset:#x}, and {image} has {bytes:#x} bytes");
        let place = ManifestError::at_property(Rule::EntryBehindImage, node, "entry-offset");
        sink(&place.found(Found::Reason(&why)));
    } else if let Some(what) = word_at(path, entry_offset).and_then(content::entry_fault) {
        let why = format!("{image}: at its entry point, {entry_offset:#x}, are {what}");
        let place = ManifestError::at_property(Rule::NotAFlatBinary, node, "image");
        sink(&place.found(Found::Reason(&why)));
    }
}

/// Reads an instruction of a file, which [`head`] has taken for one. Instructions are little-endian
/// whatever the data's order is.
fn word_at(path: &Path, offset: u64) -> Option<u32> {
    let mut file = File::open(path).ok().filter(|_| path.is_file())?;
    let mut word = [0; 4];
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(&mut word).ok()?;
    Some(u32::from_le_bytes(word))
}

/// Returns the file that a manifest names, unless xtask makes or downloads it. What does not exist
/// yet has no size.
fn path_of(name: &str, dts: &Path) -> Option<PathBuf> {
    match source(name, dts) {
        Source::Path(path) => Some(path),
        Source::Artifact(_) => None,
    }
}

/// Reports a file that breaks a rule; of an artifact that does not exist, with the nearest that
/// does. Names of artifacts are few, so the nearest is mostly meant.
fn report(file: &NamedFile<'_>, rule: Rule, why: &str, sink: &mut dyn FnMut(&ManifestError<'_>)) {
    let names = Artifact::names();
    let names = names.iter().map(|name| format!("{ARTIFACT_PREFIX}{name}"));
    let names: Vec<String> = names.collect();
    let error = ManifestError::at_property(rule, file.node, property(file));
    let all = names.iter().map(String::as_str);
    sink(&match rule {
        // No program's name is like none.
        Rule::UnknownArtifact if file.name.ends_with(':') => error.found(Found::Text(file.name)),
        Rule::UnknownArtifact => error
            .found(Found::Text(file.name))
            .near(nearest(file.name, all)),
        Rule::FileMissing => error
            .found(Found::Reason(why))
            .near(artifact_meant(file.name, all)),
        _ => error.found(Found::Reason(why)),
    });
}

/// Returns the one of `all` artifacts that a file's name is, but for the prefix. `Artifact:kernel`
/// and `kernel` are meant for `artifact:kernel`, and are paths as they stand.
fn artifact_meant<'n>(name: &str, mut all: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let bare = match name.split_once(':') {
        Some((prefix, name)) if prefix.eq_ignore_ascii_case("artifact") => name,
        _ => name,
    };
    all.find(|one| one.strip_prefix(ARTIFACT_PREFIX) == Some(bare))
}

/// Returns the property that names the file. A digest's fault is shown at the file: the digest is
/// right more often.
fn property(file: &NamedFile<'_>) -> &'static str {
    file.property
        .strip_suffix("-sha256")
        .unwrap_or(file.property)
}

/// A truncated kernel has the mark and not the bytes. The message then names what the file is,
/// which says more than what it is not.
fn judge_file(file: &NamedFile<'_>, dts: &Path) -> Result<(), Fault> {
    let path = match source(file.name, dts) {
        Source::Path(path) => path,
        Source::Artifact(artifact) => return judge_artifact(file, &artifact),
    };
    let head = head(&path).map_err(|(rule, why)| (rule, format!("{}: {why}", file.name)))?;
    let content = Content::of(&head);
    let (fits, rule) = judge_content(file, &content);
    let is_kernel = rule == Rule::NotAKernel;
    let bytes = fs::metadata(&path).map_or(0, |data| data.len());
    let why = match fits {
        true if is_kernel => content::image_fault(&head, bytes),
        true if matches!(content, Content::Packed("gzip", _)) => content::packed_fault(&head),
        true if content == Content::Cpio => archive::fault(&path),
        true => None,
        false => Some(content.text(&head)),
    };
    why.map_or(Ok(()), |why| Err((rule, format!("{}: {why}", file.name))))
}

/// Tells whether a file may be what its property needs, and which rule it breaks otherwise. An
/// unknown format is no fault for a flat binary, which has none.
fn judge_content(file: &NamedFile<'_>, content: &Content) -> (bool, Rule) {
    match property(file) {
        "kernel" => (*content == Content::Image, Rule::NotAKernel),
        "initrd" => (content.may_be_initrd(), Rule::NotAnInitrd),
        // Gear2's own image, and a guest's flat binary, have no mark of their own.
        _ => (content.may_be_flat(), Rule::NotAFlatBinary),
    }
}

/// Judges a file that xtask makes or downloads: what it is for is known by its name. Downloads are
/// not read here, as `check` runs without the network.
fn judge_artifact(file: &NamedFile<'_>, artifact: &str) -> Result<(), Fault> {
    let unknown = || (Rule::UnknownArtifact, file.name.to_owned());
    let used = Artifact::named(artifact).ok_or_else(unknown)?.used_as();
    let is_gear2 = file.node == NodePath::ROOT.child("gear2");
    let (fits, rule) = match property(file) {
        // The programs for VMs have a kernel's header too.
        "kernel" => (matches!(used, Use::Kernel | Use::Flat), Rule::NotAKernel),
        "initrd" => (
            matches!(
                used,
                Use::Initrd | Use::AnyInitrd | Use::DeviceInitrd | Use::DiskInitrd
            ),
            Rule::NotAnInitrd,
        ),
        _ if is_gear2 => (used == Use::Gear2, Rule::NotAFlatBinary),
        _ => (used == Use::Flat, Rule::NotAFlatBinary),
    };
    match fits {
        true => Ok(()),
        false => Err((rule, format!("{}: {}", file.name, used.text()))),
    }
}

/// Tells whether the file is the initial RAM disk of a program that is no Linux: what the program
/// finds there is its own affair. Test programs take their data by the way of an initrd. Everything
/// else would be refused as an initial RAM disk that Linux cannot unpack.
fn takes_anything(manifest: &Manifest<'_>, file: &NamedFile<'_>) -> bool {
    let mut vms = manifest.vms.iter();
    let vm = vms.find(|vm| NodePath::vm(vm.name) == file.node);
    vm.is_some_and(|vm| match vm.payload {
        Payload::Linux { kernel, .. } => used_as(kernel) == Some(Use::Flat),
        Payload::Flat { .. } => false,
    })
}

/// Returns what an artifact is for; `None`: the name is none of an artifact. Told by the name's
/// table, not by its spelling.
fn used_as(name: &str) -> Option<Use> {
    let artifact = Artifact::named(name.strip_prefix(ARTIFACT_PREFIX)?)?;
    Some(artifact.used_as())
}

/// Reads the start of a file that has to be one, and to hold something. Devices and pipes were
/// refused before, so that the read ends.
fn head(path: &Path) -> Result<Vec<u8>, Fault> {
    let unreadable = |error| unreadable(path, &error);
    ensure_file(&fs::metadata(path).map_err(unreadable)?)?;
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(HEAD_BYTES)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.is_empty() {
        true => Err((Rule::FileEmpty, "0 bytes".to_owned())),
        false => Ok(bytes),
    }
}

/// Makes the fault of a file that cannot be read. A missing one is told with the whole path, which
/// is relative to the manifest and not to the user's shell; `~` and `$` stand in it as they are.
fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    if error.kind() != ErrorKind::NotFound {
        return (Rule::FileEmpty, error.to_string());
    }
    let place = format!("looked for at {}", path.display());
    let is_shells = path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.starts_with(['~', '$'])
    });
    let why = match is_shells {
        true => format!("{place}: no shell expands ~ and $"),
        false => place,
    };
    (Rule::FileMissing, why)
}

/// Refuses folders, and the devices and pipes on which a read may wait for ever. `/dev/zero` as a
/// kernel would fill the memory.
fn ensure_file(metadata: &Metadata) -> Result<(), Fault> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() {
        "a folder"
    } else {
        "a device or a pipe"
    };
    Err((Rule::FileEmpty, what.to_owned()))
}

/// Returns how many bytes of memory a kernel takes. From the header, as init computes it. The
/// file's own length is less: bss has no bytes in it.
fn kernel_extent(kernel: &Path) -> Option<u64> {
    let bytes = fs::metadata(kernel).map_or(0, |data| data.len());
    content::image_extent(&head(kernel).ok()?, bytes)
}

/// Returns the property of the first file that ends beyond the VM's memory, and where it ends, in
/// bytes from the start of the memory. The device tree, whose size the board decides, comes on top
/// and takes a byte at least. The order is that of loading: kernel, then initrd.
fn too_large(vm: &Vm<'_>, dts: &Path) -> Option<(&'static str, u64)> {
    let file = |name: &str| path_of(name, dts);
    let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
    let ends = match vm.payload {
        Payload::Linux { kernel, initrd, .. } => {
            let extent = match file(kernel) {
                Some(kernel) => kernel_extent(&kernel)?,
                // Not downloaded yet.
                None if used_as(kernel) == Some(Use::Kernel) => LEAST_KERNEL_BYTES,
                None => return None,
            };
            let initrd = initrd.and_then(file).map_or(0, |initrd| bytes(&initrd));
            [
                ("kernel", extent),
                ("initrd", extent.saturating_add(initrd)),
            ]
        }
        Payload::Flat {
            image, load_offset, ..
        } => {
            let end = load_offset.saturating_add(bytes(&file(image)?));
            [("image", end); 2]
        }
    };
    // The device tree lies behind, so that memory which ends with the payload is too small.
    let needed = ends.map(|(property, end)| (property, end.saturating_add(1)));
    needed.into_iter().find(|(_, end)| *end > vm.memory.bytes)
}
