//! A halt of Gear1: its dump, made readable, leads to the function that failed.
//!
//! Nothing that a guest or Gear2 can do halts Gear1 by an exception, so its image is spoilt: the
//! handler of synchronous exceptions begins with an undefined instruction.
//!
//! Requirements: G1-RUN-002.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, symbolize, workspace};

use crate::part::{Part, Tally};

/// The boot to Gear1's first exit, no more.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Function that the test spoils: Gear2's first call ends there.
const FUNCTION: &str = "gear1_svc";
/// Permanently undefined instruction. `udf #0`.
const UDF: [u8; 4] = [0; 4];

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("halt", halt)]
}

/// Registers of the dump are what a report from a user has; `symbolize` makes a place of them.
fn halt(tally: &mut Tally) -> Result<()> {
    let mut images = build_images::build(&build_images::smallest_manifest())?;
    let spoilt = workspace::output_dir().join("halt.img");
    spoil(3, &images.gear1, &spoilt)?;
    images.gear1 = spoilt;
    let log = workspace::output_dir().join("halt.log");
    let mut session = images.start(&Qemu::prepare(10)?, &Machine::default(), &log)?;
    session.give_up_on(&[]);
    let dump = session
        .expect("gear1: HALT: exception inside EL2", TIMEOUT)
        .and_then(|_| session.expect("gear1: machine stopped", TIMEOUT));
    let dump = dump.map_err(|error| anyhow!("{error:#}\n{}", session.tail(60)))?;
    for register in ["esr=", "elr=", "far=", "spsr=", "x00=", "x30="] {
        ensure!(dump.contains(register), "the dump lacks {register}\n{dump}");
    }
    tally.pass(1);
    names_place(&dump)?;
    tally.pass(1);
    Ok(())
}

/// Checks that the explanation of a dump names the function and the line of the exception.
fn names_place(dump: &str) -> Result<()> {
    let explained = symbolize::explain(dump)?;
    let place = explained.lines().find(|line| line.contains(FUNCTION));
    let named = place.is_some_and(|line| line.contains("exit.rs:"));
    ensure!(named, "{FUNCTION} and its line are not named:\n{explained}");
    Ok(())
}

/// Copies Gear1's image with the first instruction of its handler undefined, in the runtime for
/// `gic_version`. The flat image of the runtime is embedded in init's, and found there by its
/// bytes.
pub(super) fn spoil(gic_version: u32, gear1: &Path, spoilt: &Path) -> Result<()> {
    let directory = if gic_version == 2 { "gicv2" } else { "" };
    let elf = workspace::bare_elf_in(directory, "gear1-runtime");
    let offset = offset_in_runtime(&elf, FUNCTION)?;
    let runtime = fs::read(build_images::runtime(gic_version)?)?;
    let mut image = fs::read(gear1)?;
    let embedded = image
        .windows(runtime.len())
        .position(|window| window == runtime);
    let start = embedded.context("Gear1's image does not hold the runtime")? + offset;
    let instruction = image.get_mut(start..start + UDF.len());
    instruction
        .context("the function lies outside of the image")?
        .copy_from_slice(&UDF);
    fs::write(spoilt, image)?;
    Ok(())
}

/// Returns the address of a function in the runtime's image.
pub(super) fn address_in_runtime(elf: &Path, function: &str) -> Result<u64> {
    let elf = fs::read(elf)?;
    let file = object::File::parse(&*elf)?;
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function));
    let symbol = symbol.with_context(|| format!("the runtime has no {function}"))?;
    Ok(symbol.address())
}

/// Returns where a function begins in the runtime's flat image. The flat image begins with the
/// lowest segment.
fn offset_in_runtime(elf: &Path, function: &str) -> Result<usize> {
    let address = address_in_runtime(elf, function)?;
    let elf = fs::read(elf)?;
    let file = object::File::parse(&*elf)?;
    let base = file.segments().map(|segment| segment.address()).min();
    Ok(usize::try_from(
        address - base.context("the runtime is empty")?,
    )?)
}
