//! Bad input that only the machine can see: Gear1 must name it and start nothing.
//!
//! What needs no machine is refused when the image is built (`manifest.rs` tests that); here the
//! images are spoilt after that check, as a person with another tool might do.
//!
//! Requirements: G1-BOOT-002, G1-BOOT-008, G1-BOOT-009, G1-BOOT-012.
//!
//! An error at boot is read on a serial console by someone who has no debugger: rule, VM and
//! property must stand there.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use workbench::build_images::{self, Parts};
use workbench::manifest::{self, FileRef, Source};
use workbench::qemu::{Machine, Qemu};
use workbench::tools::Tools;
use workbench::workspace;

use crate::invalid;
use crate::part::{Part, Tally};

/// Nothing but init runs in that time.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A way to spoil an image. Each is a defect of another kind, for another place in init.
struct Refusal {
    /// Defect.
    name: &'static str,
    spoil: fn(&mut Parts, &Tools) -> Result<()>,
    /// Texts that the message must contain.
    says: &'static [&'static str],
}

/// The manifests are those of `manifests/invalid`, where `check` refuses them with the same rule.
const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "overlapping memory",
        spoil: |parts, tools| replace(parts, tools, "M-MEM-003"),
        says: &["M-MEM-003", "/vms/other"],
    },
    Refusal {
        name: "an unknown CPU",
        spoil: |parts, tools| replace(parts, tools, "M-CPU-003"),
        says: &["M-CPU-003", "/vms/linux", "cpus"],
    },
    Refusal {
        name: "a device that the machine lacks",
        spoil: |parts, tools| replace(parts, tools, "M-DEV-007"),
        says: &["M-DEV-007", "/vms/device", "devices"],
    },
    Refusal {
        name: "one disk for two guests",
        spoil: |parts, tools| replace(parts, tools, "M-VIO-011"),
        says: &["M-VIO-011", "/vms/other/virtio/disk", "backend"],
    },
    Refusal {
        name: "a missing payload",
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
        name: "a wrong file",
        spoil: |parts, tools| {
            replace(parts, tools, "M-PAY-007")?;
            let name = "M-PAY-007.bin";
            parts.manifest.files.push(FileRef {
                name_in_archive: name.to_owned(),
                source: Source::Path(invalid::folder().join(name)),
            });
            Ok(())
        },
        says: &["M-PAY-007", "/vms/flat", "image-sha256"],
    },
    Refusal {
        name: "a truncated manifest",
        spoil: |parts, _| {
            parts.manifest.blob.truncate(32);
            Ok(())
        },
        says: &["M-BLB-001"],
    },
    Refusal {
        name: "another ABI",
        spoil: another_abi,
        says: &["gear2.bin", "ABI"],
    },
];

/// A part each, so that planted bugs can name the one that must fail.
pub(super) fn parts() -> Vec<Part> {
    let parts = REFUSALS.iter().map(|refusal| {
        Part::new(format!("refusal of {}", refusal.name), |tally| {
            boot(refusal, None, tally)
        })
    });
    parts.collect()
}

/// Puts one of the invalid manifests in the place of the one that was judged. The blob is exchanged
/// behind the compiler's back; everything else is good.
fn replace(parts: &mut Parts, tools: &Tools, name: &str) -> Result<()> {
    let dts = invalid::folder().join(name).with_extension("dts");
    let scratch = parts.out_dir.join("spoilt");
    (_, parts.manifest.blob) = manifest::compile_source(&dts, tools, &scratch)?;
    Ok(())
}

/// Makes Gear2 claim the next major version of the ABI. Gear1 must refuse a Gear2 that it cannot
/// understand.
fn another_abi(parts: &mut Parts, _: &Tools) -> Result<()> {
    /// Offset of the upper half of the image header's `abi_version`.
    const MAJOR: usize = 10;
    let mut image = fs::read(&parts.gear2)?;
    *image
        .get_mut(MAJOR)
        .context("Gear2's image has no header")? += 1;
    parts.gear2 = parts.out_dir.join("gear2.bin");
    fs::write(&parts.gear2, image)?;
    Ok(())
}

/// Checks that another Gear1 refuses the spoilt image `name`. A planted bug leaves one check of
/// init out.
pub(super) fn refuse_other(gear1: PathBuf, name: &str, tally: &mut Tally) -> Result<()> {
    let refusal = REFUSALS.iter().find(|refusal| refusal.name == name);
    let refusal = refusal.with_context(|| format!("no refusal of {name}"))?;
    boot(refusal, Some(gear1), tally)
}

/// The text must come before Gear2's first word: a refusal after a start would be too late.
fn boot(refusal: &Refusal, gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    let name = refusal.name.replace(' ', "-");
    let manifest = build_images::smallest_manifest();
    let mut images = build_images::build_edited(&manifest, name.as_ref(), refusal.spoil)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    let log = workspace::output_dir().join(format!("{name}/boot.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &Machine::default(), &log)?;
    let message = session.expect(build_images::STOPPED, TIMEOUT);
    let last_words = || build_images::last_words(&session);
    let message = message.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    for expected in refusal.says {
        let is_said = message.contains(expected);
        ensure!(is_said, "{expected} is not named:\n{message}");
    }
    let is_started = message.contains("gear2: ");
    ensure!(!is_started, "Gear2 was started:\n{message}");
    tally.pass(1);
    Ok(())
}
