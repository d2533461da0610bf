//! Checks of the linked images: no panics, and sizes within their budgets.
//!
//! Requirements: G1-RUN-001.
//!
//! Properties of the code that ships are looked for in the linked file. A review of source cannot
//! see what the compiler and the linker made of it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSymbol as _};
use workbench::{build_images, workspace};
use xtask::audit;

use crate::part::{Part, Tally};
use crate::requirements::Requirements;
use crate::{architecture, errata};

/// The limit of the runtime image (docs: budgets); its goal is 64 KiB. docs/budgets.md compares it
/// with other hypervisors.
const RUNTIME_LIMIT: u64 = 140 << 10;

/// Everything that runs at EL2, and Gear2: the directory below the target directory, and the file.
/// Errata concern whatever runs on a Cortex-A53, at any exception level.
const IMAGES: [(&str, &str); 5] = [
    ("", "gear1-runtime"),
    ("gicv2", "gear1-runtime"),
    ("", "gear1-init"),
    ("", "gear2"),
    ("el1", "gear2"),
];

/// None of them needs a machine.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("images", images),
        Part::new("rules of the architecture", rules),
        Part::new("audit", audit),
        Part::new("requirements", requirements),
    ]
}

/// Runs the checks of `cargo xtask audit`. Each statement that holds counts as a test.
fn audit(tally: &mut Tally) -> Result<()> {
    let findings = audit::run()?;
    tally.pass(findings.holds.len());
    findings.fails.into_iter().for_each(|why| tally.fail(why));
    Ok(())
}

/// The runtime links only if no panic survives in it; that its symbols hold none is seen too. Gear2
/// for EL1 is built here, so that a change that breaks only that build is seen in each run.
fn images(tally: &mut Tally) -> Result<()> {
    build_images::gears()?;
    build_images::build_gear2("el1")?;
    tally.pass(1);
    for gicv2 in ["", "gicv2"] {
        let runtime = workspace::bare_elf_in(gicv2, "gear1-runtime");
        let flat = match gicv2 {
            "" => "gear1-runtime.bin",
            _ => "gear1-runtime-gicv2.bin",
        };
        let flat = workspace::output_dir().join(flat);
        let name = runtime.display();
        tally.check(&format!("size of {name}"), within(&flat, RUNTIME_LIMIT));
        tally.check(&format!("no panic in {name}"), no_panic(&runtime));
    }
    check_errata(tally);
    Ok(())
}

/// The linked code is judged, since assembly and linker add code of their own.
fn check_errata(tally: &mut Tally) {
    for (directory, bin) in IMAGES {
        let elf = workspace::bare_elf_in(directory, bin);
        let name = format!("errata of the Cortex-A53 in {}", elf.display());
        tally.check(&name, errata::check(&elf));
    }
}

/// Checks rules of the linked code that QEMU does not enforce. Both runtimes, since the code for
/// each GIC differs.
fn rules(tally: &mut Tally) -> Result<()> {
    build_images::gears()?;
    for (gic, directory) in [(3, ""), (2, "gicv2")] {
        let runtime = workspace::bare_elf_in(directory, "gear1-runtime");
        architecture::check(&runtime, gic, tally)?;
    }
    Ok(())
}

/// Requirements, code and tests name each other. The matrix must be the one that the sources give.
fn requirements(tally: &mut Tally) -> Result<()> {
    let requirements = Requirements::read()?;
    tally.pass(requirements.count());
    let faults = requirements.faults();
    faults.into_iter().for_each(|why| tally.fail(why));
    tally.check("the matrix", requirements.is_written());
    Ok(())
}

/// The flat file is judged, as it has code and data without symbols.
fn within(image: &Path, limit: u64) -> Result<()> {
    let bytes = fs::metadata(image)
        .with_context(|| image.display().to_string())?
        .len();
    ensure!(bytes <= limit, "{bytes} bytes, and {limit} is the limit");
    Ok(())
}

/// Without symbols the search would find nothing and pass. `4core3fmt` is the mangled path of
/// Rust's text formatting.
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
