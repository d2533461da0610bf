//! The boot archive: the manifest, Gear2, all payloads and the guests' device trees in one file.
//!
//! The format is cpio newc; `gearv_manifest::archive` reads it. Every member's data begins on a
//! page, so that Gear1 can map or copy it as it lies: the name field is filled up with NULs. The
//! same input gives the same bytes: no times, no owners, an order that the manifest fixes.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use anyhow::{Context, bail};
use gearv_manifest::archive::{ALIGN, HEADER_BYTES, MAGIC, TRAILER};
use gearv_manifest::{GEAR2_MEMBER, GUEST_DTB_PREFIX, MANIFEST_MEMBER};

use crate::manifest::{Compiled, FileRef, Source, compile_text};
use crate::tools::Tools;

#[cfg(test)]
mod tests;

/// Boundary at which the data of a member begins, in bytes.
/// Gear1 maps what it can, and page 0 of a member is page 0 of a mapping.
const PAGE: usize = 4096;
/// An ordinary file that all may read. Linux's own unpacker is never used on it; other tools can
/// list it.
const MODE: u32 = 0o100_644;

/// Writes the boot archive of a manifest to `out`; `resolve` finds what `artifact:` names. The
/// manifest comes first: init reads it before anything else.
pub fn build_archive(
    compiled: &Compiled,
    gear2_bin: &Path,
    resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
    tools: &Tools,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let mut writer = Writer::default();
    writer.add(MANIFEST_MEMBER, &compiled.blob)?;
    writer.add(GEAR2_MEMBER, &read(gear2_bin)?)?;
    for file in &compiled.files {
        writer.add(&file.name_in_archive, &payload(file, resolve)?)?;
    }
    for vm in &compiled.vms {
        let Some(source) = &vm.device_tree else {
            continue;
        };
        let scratch = out.with_file_name(format!("guest-{}.dtb", vm.name));
        let dtb = compile_text(source, tools, &scratch)?;
        writer.add(&format!("{GUEST_DTB_PREFIX}{}", vm.name), &dtb)?;
    }
    fs::write(out, writer.finish()?).with_context(|| format!("cannot write {}", out.display()))?;
    Ok(out.to_path_buf())
}

/// Reads a file that the manifest names, and says in an error that the manifest does. Without this,
/// the error would name a file in the cache that nobody wrote.
fn payload(
    file: &FileRef,
    resolve: &dyn Fn(&str) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<Vec<u8>> {
    let path = match &file.source {
        Source::Path(path) => path.clone(),
        Source::Artifact(name) => {
            resolve(name).with_context(|| format!("the manifest names {}", file.name_in_archive))?
        }
    };
    read(&path).with_context(|| format!("the manifest names {}", file.name_in_archive))
}

/// Reads a file; an empty one is an error here, and not a VM that starts with nothing. A build that
/// failed may leave an empty file.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.is_empty() {
        bail!("{} is empty", path.display());
    }
    Ok(bytes)
}

/// An archive in the making. In memory, since sizes are some hundred MiB at most and the reader
/// wants one piece.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The archive so far.
    bytes: Vec<u8>,
    /// Also the next inode number: members must differ there (cpio(5)).
    member_count: u32,
}

impl Writer {
    /// Appends a file whose data begins on a page. Names may be as long as newc's field, which
    /// holds the filling too.
    pub fn add(&mut self, name: &str, data: &[u8]) -> anyhow::Result<()> {
        let name_start = self.bytes.len() + HEADER_BYTES;
        let data_start = (name_start + name.len() + 1).next_multiple_of(PAGE);
        self.header(name, data_start - name_start, MODE, data)?;
        self.bytes.extend(data);
        self.pad();
        Ok(())
    }

    /// Ends the archive and returns its bytes. The trailer is part of the format (cpio(5)).
    pub fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        self.header(TRAILER, TRAILER.len() + 1, 0, &[])?;
        self.pad();
        Ok(self.bytes)
    }

    /// Appends the header of a member, in the format newc (cpio(5)): 13 fields of 8 hexadecimal
    /// digits. `name_size` may be more than the name has, which moves the data to a page. Times,
    /// owners and devices are 0, so that equal input gives equal bytes.
    fn header(
        &mut self,
        name: &str,
        name_size: usize,
        mode: u32,
        data: &[u8],
    ) -> anyhow::Result<()> {
        self.member_count += 1;
        let size = u32::try_from(data.len())
            .with_context(|| format!("{name} does not fit in the archive: it has 4 GiB or more"))?;
        let name_size = u32::try_from(name_size).context("a name is too long")?;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, check
        let fields = [
            self.member_count,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend(MAGIC);
        self.bytes.extend(
            fields
                .iter()
                .flat_map(|field| format!("{field:08x}").into_bytes()),
        );
        self.bytes.extend(name.bytes());
        let fill = usize::try_from(name_size)?.saturating_sub(name.len());
        self.bytes.extend(iter::repeat_n(0, fill));
        Ok(())
    }

    /// Appends zeroes up to the next multiple of 4, where newc has a header. Headers begin on
    /// multiples of four.
    fn pad(&mut self) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}
