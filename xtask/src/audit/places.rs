//! Where in the source the instructions of an image come from.
//!
//! One instruction has several places, one for each function that was inlined around it. The
//! innermost that is ours counts, since code of `core` is written nowhere here.

use std::path::Path;

use addr2line::Location;
use anyhow::{Result, anyhow};
use workbench::workspace;

use super::code::Program;

/// A function in the source. Rules and bounds name functions by file and last name, since paths
/// change with a move.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    /// The source file, relative to the workspace, or the name of the library.
    pub(super) file: String,
    /// The function's name without its path.
    pub(super) function: String,
}

impl Owner {
    /// For owners outside of the sources, such as assembly.
    pub(super) fn of(file: &str, function: &str) -> Owner {
        Owner {
            file: file.to_owned(),
            function: function.to_owned(),
        }
    }
}

/// A function in the source that an instruction comes from, and the place in that function.
/// Inlining puts several at one instruction.
pub(super) struct Frame {
    /// The function's name with its path.
    pub(super) name: String,
    /// Without a place, the file is that of something else.
    pub(super) owner: Owner,
    /// The call, of an outer frame; the instruction's own place, of the innermost.
    pub(super) place: Option<Place>,
}

/// A place in a function of the source. Ordered by file, line and column, so that a set has its
/// ends first and last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Relative to the workspace, as a message shows it.
    pub(super) file: String,
    pub(super) line: u32,
    /// Tells two loops of one line apart.
    pub(super) column: u32,
}

/// Returns the functions that an instruction belongs to, the outermost first. DWARF has the
/// innermost first.
pub(super) fn frames(program: &Program, address: u64) -> Result<Vec<Frame>> {
    let mut found = Vec::new();
    let fail = |error| anyhow!("{address:#x}: {error}");
    let mut frames = program.lines.find_frames(address).map_err(fail)?;
    while let Some(frame) = frames.next().map_err(|error| anyhow!("{error}"))? {
        let name = frame.function;
        let name = name.and_then(|f| Some(f.demangle().ok()?.into_owned()));
        let name = name.unwrap_or_default();
        let file = frame.location.as_ref().and_then(|location| location.file);
        let file = relative(file.unwrap_or_default());
        let function = short(&name);
        found.push(Frame {
            name,
            place: frame.location.and_then(|location| place(&file, &location)),
            owner: Owner { file, function },
        });
    }
    found.reverse();
    Ok(found)
}

/// Returns a location in a file, if the line is known: 0 stands for code of no line (DWARF 5,
/// 6.2.2).
/// Such code is the compiler's own: a copy, or what was merged from several lines.
fn place(file: &str, location: &Location<'_>) -> Option<Place> {
    let line = location.line.filter(|line| *line != 0)?;
    Some(Place {
        file: file.to_owned(),
        line,
        column: location.column.unwrap_or(0),
    })
}

/// Returns a source path of ours relative to the workspace; of others, the library's name. Paths of
/// libraries have versions and hashes of the registry in them.
fn relative(file: &str) -> String {
    let ours = Path::new(file).strip_prefix(workspace::root()).ok();
    if let Some(ours) = ours.and_then(Path::to_str) {
        return ours.to_owned();
    }
    let library = ["compiler-builtins", "core", "spin", "tock-registers"];
    let known = library.iter().find(|name| file.contains(*name));
    known.map_or_else(|| file.to_owned(), |name| (*name).to_owned())
}

/// Returns the last part of a path, without generic arguments, hash and closures. Monomorphized
/// functions of one source function are one owner.
fn short(name: &str) -> String {
    let mut flat = String::new();
    let mut depth = 0;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
    }
    let parts = flat.split("::").filter(|part| !part.is_empty());
    let is_hash = |part: &&str| part.len() == 17 && part.starts_with('h');
    let parts = parts.filter(|part| !is_hash(part) && !part.starts_with("{{closure"));
    parts.last().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests;
