//! What the linked images must be: free of panics, and within their budgets.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSymbol as _};

use super::{Part, Tally};
use crate::{build_images, workspace};

/// The limit of the runtime image (docs: budgets); its goal is 64 KiB.
const RUNTIME_LIMIT: u64 = 96 << 10;

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("images", images)]
}

/// The runtime links only if no panic survives in it; that its symbols hold none is seen too.
fn images(tally: &mut Tally) -> Result<()> {
    build_images::gears()?;
    tally.pass(1);
    let runtime = workspace::output_dir().join("gear1-runtime.bin");
    tally.check("size of the runtime", within(&runtime, RUNTIME_LIMIT));
    let elf = workspace::bare_elf("gear1-runtime");
    tally.check("no panic in the runtime", no_panic(&elf));
    Ok(())
}

fn within(image: &Path, limit: u64) -> Result<()> {
    let bytes = fs::metadata(image)
        .with_context(|| image.display().to_string())?
        .len();
    ensure!(bytes <= limit, "{bytes} bytes, and {limit} is the limit");
    Ok(())
}

fn no_panic(elf: &Path) -> Result<()> {
    let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
    let file = object::File::parse(&*bytes)?;
    ensure!(
        file.symbols().count() > 0,
        "{} has no symbols to look at",
        elf.display()
    );
    let panics: Vec<&str> = file
        .symbols()
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| name.contains("panic") || name.contains("4core3fmt"))
        .collect();
    ensure!(panics.is_empty(), "{panics:?}");
    Ok(())
}
