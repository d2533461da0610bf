//! ELF to flat binary: the loadable segments as they lie in memory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSegment as _};

/// No image of ours comes near this; a larger one is a linker script gone wrong.
const MAX_BYTES: u64 = 64 << 20;

/// Writes the loadable segments of `elf` to `out`, from the lowest virtual address on, gaps
/// zero, without the zeroes that follow the last file byte.
pub(crate) fn flatten(elf: &Path, out: &Path) -> Result<()> {
    let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
    let flat = flat_bytes(&bytes).with_context(|| format!("flattening {}", elf.display()))?;
    replace(out, &flat)
}

/// Gives `file` these contents. A file that has them is left alone, so that cargo does not rebuild
/// what embeds the file. Another one changes whole at once: another xtask may read the file.
pub(crate) fn replace(file: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    fs::write(&new, contents).with_context(|| new.display().to_string())?;
    fs::rename(&new, file).with_context(|| file.display().to_string())
}

/// Returns address and data of each segment that has data; `.bss` has none in a flat file. Debug
/// information is in no segment, and is left out with everything else that is not loaded.
fn loaded_segments(elf: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let file = object::File::parse(elf)?;
    let mut segments = Vec::new();
    for segment in file.segments() {
        let data = segment.data()?;
        if !data.is_empty() {
            segments.push((segment.address(), data));
        }
    }
    Ok(segments)
}

/// Segments lie at their addresses from the image's base on, with zeros between. A gap is a part of
/// the file, since a boot loader copies the file in one piece.
fn flat_bytes(elf: &[u8]) -> Result<Vec<u8>> {
    let segments = loaded_segments(elf)?;
    let base = segments.iter().map(|(address, _)| *address).min();
    let base = base.context("nothing to load")?;
    let mut flat = Vec::new();
    for (address, data) in segments {
        let offset = address - base;
        ensure!(
            offset < MAX_BYTES,
            "a segment lies {offset:#x} bytes after the first"
        );
        let offset = usize::try_from(offset)?;
        flat.resize(flat.len().max(offset + data.len()), 0);
        flat[offset..offset + data.len()].copy_from_slice(data);
    }
    Ok(flat)
}

#[cfg(test)]
mod tests;
