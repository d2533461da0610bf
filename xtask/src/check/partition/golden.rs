//! The lists of the example manifests, compared with `manifests/partitions/`.
//!
//! A partition is what isolation rests on, and no test of a boot sees a mapping that is too large
//! and never used. A change of the lists is therefore read by a person, in the commit that makes
//! it.
//!
//! Images have fixed sizes here, so that a list changes only with its manifest, its board, or what
//! init decides. `GEARV_WRITE=1 cargo test -p xtask golden` writes the files anew.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, anyhow, ensure};
use gear1_abi::image::{GEAR2_MAGIC, RUNTIME_MAGIC};
use gear1_abi::layout::{PAGE_SIZE, el2, gear2};

use workbench::archive::build_archive;
use workbench::board::{BoardTree, Name};
use workbench::manifest::{Aligned, Compiled, compile};
use workbench::tools::Tools;
use workbench::workspace::{self, scratch};

use crate::placement::{Gear1, place_with};

/// Each example with the board that it is for. A test compares the list with the folder, so that no
/// example is left out.
const EXAMPLES: &[(&str, Name)] = &[
    ("minimal", Name::QemuVirt),
    ("two-guests", Name::QemuVirt),
    ("qemu-virt", Name::QemuVirt),
    ("mixed-criticality", Name::QemuVirt),
    ("bare-metal-pair", Name::QemuVirt),
    ("pools", Name::QemuVirt),
    ("doorbells", Name::QemuVirt),
    ("rpi4", Name::Rpi4),
    ("rcar-h3", Name::RcarH3),
    ("rcar-h3-device-vm", Name::RcarH3),
    ("zcu102", Name::Zcu102),
    ("imx8mp-evk", Name::Imx8mpEvk),
];
/// Set: the files are written, not compared. The difference is read in the commit, where a change
/// of isolation shows by itself.
const WRITE: &str = "GEARV_WRITE";
/// Bytes of what stands for Gear1's image. Above what it has, so that growth of an image moves no
/// line.
const GEAR1_SIZE: u64 = 4 << 20;
/// Bytes that what stands for a kernel says it needs. Of the order of Debian's.
const KERNEL_SIZE: u64 = 32 << 20;

#[test]
fn the_examples_partitions_are_those_of_the_golden_files() {
    let folder = scratch("golden");
    for (name, board) in EXAMPLES {
        let list = list(name, *board, &folder).expect(name);
        let golden = workspace::root().join(format!("manifests/partitions/{name}.txt"));
        if env::var_os(WRITE).is_some() {
            fs::write(&golden, &list).expect(name);
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            list == expected,
            "the partition of manifests/{name}.dts is another one than {}:\n{}",
            golden.display(),
            difference(&expected, &list)
        );
    }
    fs::remove_dir_all(folder).expect("the scratch directory");
}

#[test]
fn each_example_has_a_golden_file() {
    let listed = |directory: &str, extension: &str| {
        let entries = fs::read_dir(workspace::root().join(directory)).expect(directory);
        let paths = entries.map(|entry| entry.expect(directory).path());
        let files = paths.filter(|path| path.extension().is_some_and(|one| one == extension));
        let mut stems: Vec<PathBuf> = files
            .filter_map(|path| path.file_stem().map(PathBuf::from))
            .collect();
        stems.sort();
        stems
    };
    assert_eq!(
        listed("manifests", "dts"),
        listed("manifests/partitions", "txt")
    );
}

/// Returns the lines that only one of the texts has. Enough for a person to see which mapping
/// moved; the order is that of the list.
fn difference(old: &str, new: &str) -> String {
    let only = |one: &str, other: &str, sign: char| -> String {
        let lines = one
            .lines()
            .filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("{sign}{line}\n")).collect()
    };
    only(old, new, '-') + &only(new, old, '+')
}

/// Returns the list of the example `name`. The rules, the placement and the list are those of a
/// boot: only the bytes of images differ. A list without mappings is an error, since it would agree
/// with an empty file.
fn list(name: &str, board: Name, folder: &Path) -> Result<String> {
    let tools = Tools::prepare()?;
    let manifest = workspace::root().join(format!("manifests/{name}.dts"));
    let compiled = compile(&manifest, &tools, folder)?;
    let archive = archive(&compiled, folder, &tools)?;
    let gear1 = Gear1 {
        size: GEAR1_SIZE,
        runtime: flat_image(RUNTIME_MAGIC, el2::RUNTIME),
    };
    let board = BoardTree::named(board, &tools)?;
    let placed = place_with(board, &fs::read(archive)?, &gear1, &tools)?;
    let placed = placed.map_err(|refusal| anyhow!("{name}: {refusal}"))?;
    let blob = Aligned::new(&compiled.blob);
    let judged = gearv_manifest::judge(blob.as_slice(), None, &mut |_| {});
    let manifest = judged.manifest.context("the manifest was judged before")?;
    let is_mapped = !placed.partition.mappings.is_empty();
    ensure!(is_mapped, "{name}: nothing is mapped");
    Ok(super::text(&placed.partition, &manifest))
}

/// Builds an archive whose files are stand-ins of fixed sizes. No artifact is built or downloaded,
/// which makes the test one of seconds.
fn archive(compiled: &Compiled, folder: &Path, tools: &Tools) -> Result<PathBuf> {
    let file = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
        let file = folder.join(name);
        fs::write(&file, bytes)?;
        Ok(file)
    };
    let kernel = file("kernel", &kernel_image())?;
    let payload = file("payload", &[0x33; 0x1_0000])?;
    let gear2 = file("gear2.bin", &flat_image(GEAR2_MAGIC, gear2::IMAGE))?;
    let resolve = |artifact: &str| -> Result<PathBuf> {
        let is_kernel = artifact.ends_with("kernel");
        Ok(if is_kernel {
            kernel.clone()
        } else {
            payload.clone()
        })
    };
    build_archive(
        compiled,
        &gear2,
        &resolve,
        tools,
        &folder.join("archive.cpio"),
    )
}

/// Returns a flat image with 16 pages each of text, constants, data and zeroes. The header is the
/// one that init checks (gear1/abi/src/image.rs).
fn flat_image(magic: u64, base: u64) -> Vec<u8> {
    let end = |segments: u64| base + segments * 16 * PAGE_SIZE;
    let boot_page = if magic == RUNTIME_MAGIC {
        base + PAGE_SIZE
    } else {
        0
    };
    let abi = u64::from(gear1_abi::ABI_VERSION);
    let header = [
        magic,
        abi,
        base,
        base,
        end(1),
        end(2),
        end(3),
        end(4),
        boot_page,
    ];
    let mut file: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
    file.resize(3 * 16 * PAGE_SIZE as usize, 0);
    file
}

/// Returns the header of a Linux kernel. Fields by Linux's Documentation/arch/arm64/booting.rst:
/// image_size at 16, magic at 56.
fn kernel_image() -> Vec<u8> {
    let mut file = vec![0; PAGE_SIZE as usize];
    file[16..24].copy_from_slice(&KERNEL_SIZE.to_le_bytes());
    file[56..60].copy_from_slice(b"ARM\x64");
    file
}
