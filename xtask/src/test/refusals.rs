//! Bad input that only the machine can see: Gear1 must name it and start nothing.
//!
//! What needs no machine is refused when the image is built (`manifest.rs` tests that); here the
//! images are spoilt after that check, as a person with another tool might do.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::{Part, Tally};
use crate::build_images::{self, Parts};
use crate::manifest;
use crate::qemu::{Machine, Qemu};
use crate::tools::Tools;
use crate::workspace;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Init's last words; the message stands before them.
const STOPPED: &str = "no guest was started";

/// One way to spoil an image.
struct Refusal {
    /// What is wrong.
    name: &'static str,
    /// The manifest that is spoilt.
    manifest: &'static str,
    spoil: fn(&mut Parts, &Tools) -> Result<()>,
    /// What the message must name.
    says: &'static [&'static str],
}

/// The line of the example manifests that others are put after.
const MEMORY: &str = "memory-mib = <256>;";

const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "overlapping memory",
        manifest: "two-guests",
        spoil: |parts, tools| add(parts, tools, "memory-address = <0x60000000>;"),
        says: &["M-MEM-003", "/vms/guest1"],
    },
    Refusal {
        name: "memory that the machine lacks",
        manifest: "minimal",
        spoil: |parts, tools| add(parts, tools, "memory-address = <0x1 0x0>;"),
        says: &["M-MEM-005", "/vms/linux", "memory-address"],
    },
    Refusal {
        name: "an unknown CPU",
        manifest: "minimal",
        spoil: |parts, tools| add(parts, tools, "cpus = <0 6>;"),
        says: &["M-CPU-003", "/vms/linux", "cpus"],
    },
    Refusal {
        name: "a missing payload",
        manifest: "minimal",
        spoil: |parts, _| {
            parts
                .manifest
                .files
                .retain(|file| !file.name_in_archive.contains("kernel"));
            Ok(())
        },
        says: &["/vms/linux", "kernel", "artifact:debian-kernel"],
    },
    Refusal {
        name: "a truncated manifest",
        manifest: "minimal",
        spoil: |parts, _| {
            parts.manifest.blob.truncate(32);
            Ok(())
        },
        says: &["M-BLB-001"],
    },
    Refusal {
        name: "another ABI",
        manifest: "minimal",
        spoil: another_abi,
        says: &["gear2.bin", "ABI"],
    },
];

pub(super) fn parts() -> Vec<Part> {
    let parts = REFUSALS.iter().map(|refusal| {
        Part::new(format!("refusal of {}", refusal.name), |tally| {
            boot(refusal, tally)
        })
    });
    parts.collect()
}

/// Adds a property to every VM in the manifest's source, and compiles it without judging it.
fn add(parts: &mut Parts, tools: &Tools, property: &str) -> Result<()> {
    let text = fs::read_to_string(parts.out_dir.join(SOURCE))?;
    ensure!(text.contains(MEMORY), "no VM has {MEMORY}");
    let text = text.replace(MEMORY, &format!("{MEMORY} {property}"));
    let scratch = parts.out_dir.join("spoilt.dtb");
    parts.manifest.blob = manifest::compile_text(&text, tools, &scratch)?;
    Ok(())
}

/// Where the manifest's source is copied to.
const SOURCE: &str = "source.dts";

/// Makes Gear2 claim the next major version of the ABI.
fn another_abi(parts: &mut Parts, _: &Tools) -> Result<()> {
    /// Where the upper half of the image header's `abi_version` lies.
    const MAJOR: usize = 10;
    let mut image = fs::read(&parts.gear2)?;
    *image
        .get_mut(MAJOR)
        .context("Gear2's image has no header")? += 1;
    parts.gear2 = parts.out_dir.join("gear2.bin");
    fs::write(&parts.gear2, image)?;
    Ok(())
}

fn boot(refusal: &Refusal, tally: &mut Tally) -> Result<()> {
    let name = refusal.name.replace(' ', "-");
    let manifest = workspace::root().join(format!("manifests/{}.dts", refusal.manifest));
    let images = build_images::build_edited(&manifest, name.as_ref(), |parts, tools| {
        fs::copy(&manifest, parts.out_dir.join(SOURCE))?;
        (refusal.spoil)(parts, tools)
    })?;
    let log = workspace::output_dir().join(format!("{name}/boot.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &Machine::default(), &log)?;
    let message = session.expect(STOPPED, TIMEOUT);
    let last_words = || build_images::last_words(&session);
    let message = message.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    for expected in refusal.says {
        ensure!(
            message.contains(expected),
            "{expected} is not named:\n{message}"
        );
    }
    ensure!(
        !message.contains("gear2: "),
        "Gear2 was started:\n{message}"
    );
    tally.pass(1);
    Ok(())
}
