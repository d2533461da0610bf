//! `cargo xtask symbolize`: turns the addresses of a halt dump into functions and lines.
//!
//! A dump is any text with hexadecimal words; each that lies in the code of one of our images
//! is explained below its line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use addr2line::gimli::Reader;
use addr2line::{Frame, Loader};
use anyhow::{Context, Result, anyhow, ensure};
use object::{Object as _, ObjectSection as _, SectionKind};

use crate::workspace;

/// The images with symbols, in the order in which `symbolize` looks an address up. An address may
/// lie in two images, and then both are shown: init is gone when the runtime halts.
const BARE_BINS: [&str; 3] = ["gear1-runtime", "gear1-init", "gear2"];

/// Reads the dump from a file or from standard input and prints it, explained. Standard input, for
/// a dump that was copied from a terminal.
pub fn command(file: Option<PathBuf>) -> Result<()> {
    let text = match file {
        Some(path) => fs::read_to_string(&path).with_context(|| path.display().to_string())?,
        None => io::read_to_string(io::stdin())?,
    };
    print!("{}", explain(&text)?);
    Ok(())
}

/// Returns the text with an explanation below each line that has an address of ours. Lines without
/// addresses pass through, so that the text stays a log.
pub fn explain(text: &str) -> Result<String> {
    let images = Image::load_all()?;
    let mut explained = String::new();
    for line in text.lines() {
        explained += &format!("{line}\n");
        for address in addresses(line) {
            for place in images.iter().filter_map(|image| image.explain(address)) {
                explained += &format!("    {address:#x} is {place}\n");
            }
        }
    }
    Ok(explained)
}

/// An image of the project with its symbols. Debug information is in the ELF file alone; what boots
/// has none.
struct Image {
    /// Name of the binary, such as `gear1-runtime`.
    name: &'static str,
    /// Lines and functions of DWARF.
    loader: Loader,
    /// Addresses of the instructions; the image explains no other.
    code: Vec<std::ops::Range<u64>>,
}

impl Image {
    /// Loads the images that were built. The images that were built last: a dump of older ones is
    /// explained wrongly, which nothing can tell.
    fn load_all() -> Result<Vec<Image>> {
        let built = BARE_BINS
            .map(|name| (name, workspace::bare_elf(name)))
            .into_iter()
            .filter(|(_, elf)| elf.is_file());
        let images: Vec<Image> = built
            .map(|(name, elf)| Image::load(name, &elf))
            .collect::<Result<_>>()?;
        ensure!(
            !images.is_empty(),
            "nothing was built yet: cargo xtask build"
        );
        Ok(images)
    }

    /// Loads an image; fails for a file that is no ELF with debug information.
    fn load(name: &'static str, elf: &Path) -> Result<Image> {
        let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
        let file = object::File::parse(&*bytes)?;
        let code = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| section.address()..section.address() + section.size())
            .collect();
        let loader = Loader::new(elf).map_err(|error| anyhow!("{}: {error}", elf.display()))?;
        Ok(Image { name, loader, code })
    }

    /// Says where in this image's source an address is, innermost inlined function first. Inlining
    /// is frequent in Gear1, and the innermost frame alone often names a helper.
    fn explain(&self, address: u64) -> Option<String> {
        if !self.code.iter().any(|range| range.contains(&address)) {
            return None;
        }
        let mut places = Vec::new();
        let mut frames = self.loader.find_frames(address).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            places.push(place(frame));
        }
        if places.is_empty() {
            places.push(self.loader.find_symbol(address)?.to_owned());
        }
        Some(format!(
            "{} in {}",
            places.join(", inlined into "),
            self.name
        ))
    }
}

/// Returns function and line of a frame, with `?` for what the debug information lacks. Assembly
/// has a line and no function.
fn place<R: Reader>(frame: Frame<'_, R>) -> String {
    let function = frame
        .function
        .and_then(|f| Some(f.demangle().ok()?.into_owned()));
    let location = frame
        .location
        .and_then(|l| Some(format!("{}:{}", short(l.file?), l.line?)));
    let [function, location] = [function, location].map(|text| text.unwrap_or("?".to_owned()));
    format!("{function} at {location}")
}

/// Returns a source path relative to the workspace. Paths of the build are absolute.
pub fn short(file: &str) -> &str {
    let relative = Path::new(file).strip_prefix(workspace::root()).ok();
    relative.and_then(Path::to_str).unwrap_or(file)
}

/// Returns the hexadecimal words of a line. Dumps write `0x` before each word; other digits are
/// values.
fn addresses(line: &str) -> impl Iterator<Item = u64> + '_ {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter_map(|word| word.strip_prefix("0x"))
        .filter_map(|digits| u64::from_str_radix(&digits.replace('_', ""), 16).ok())
}

#[cfg(test)]
mod tests;
