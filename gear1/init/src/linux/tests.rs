//! Requirements: G1-BOOT-004.

use alloc::string::{String, ToString};

use gearv_manifest::{Archive, Manifest, read};

use super::{Placed, place};
use crate::testing::{Files, kernel};
use crate::trees::{Tree, cells, smallest, text};

const MIB: u64 = 1 << 20;
const KERNEL: &str = "artifact:debian-kernel";

fn with_placed<R>(
    manifest: &Tree,
    files: &Files,
    then: impl Fn(Result<Placed<'_>, String>) -> R,
) -> R {
    let blob = manifest.flatten();
    let manifest: Manifest<'_> = read(blob.as_slice(), &mut |_| {}).unwrap();
    let bytes = files.pack();
    let archive = Archive::new(&bytes).unwrap();
    let vm = manifest.vms.get(0).unwrap();
    let tree_size = archive
        .guest_dtb(vm.name)
        .map(|tree| tree.data.len() as u64);
    then(place(vm, &archive, tree_size).map_err(|refusal| refusal.to_string()))
}

fn linux() -> Files {
    Files::default()
        .with("dtb/linux", &[0; 5000])
        .with(KERNEL, &kernel(0, 3 * MIB, 100))
}

fn flat(load_offset: u32, entry_offset: u32) -> Tree {
    smallest()
        .unset("/vms/linux", "kernel")
        .set("/vms/linux", "image", text("guest.bin"))
        .set("/vms/linux", "load-offset", cells(&[load_offset]))
        .set("/vms/linux", "entry-offset", cells(&[entry_offset]))
}

#[test]
fn kernel_initrd_and_tree_do_not_overlap() {
    let manifest = smallest().set("/vms/linux", "initrd", text("rd"));
    with_placed(&manifest, &linux().with("rd", &[0; 70_000]), |placed| {
        let placed = placed.unwrap();
        assert_eq!((placed.entry, placed.pieces[0].offset), (0, 0));
        assert_eq!(placed.initrd, 3 * MIB..3 * MIB + 70_000);
        assert_eq!(placed.pieces[1].offset, 3 * MIB);
        assert_eq!(placed.device_tree.unwrap(), 256 * MIB - 0x1_0000);
    });
}

#[test]
fn old_kernels_are_placed_by_their_file() {
    let files = linux().with(KERNEL, &kernel(7, 0, 5000));
    with_placed(&smallest(), &files, |placed| {
        assert_eq!(placed.unwrap().entry, 0x8_0000);
    });
}

#[test]
fn flat_images_go_where_the_manifest_says() {
    let files = Files::default().with("guest.bin", &[1; 100]);
    with_placed(&flat(0x8_0000, 0x40), &files, |placed| {
        let placed = placed.unwrap();
        assert_eq!(
            (placed.entry, placed.pieces[0].offset),
            (0x8_0040, 0x8_0000)
        );
        assert_eq!((placed.device_tree, placed.initrd), (None, 0..0));
    });
}

#[test]
fn refusals_name_the_file() {
    let big = smallest().set("/vms/linux", "memory-mib", cells(&[2]));
    let cases = [
        (
            smallest(),
            linux().without(KERNEL),
            "/vms/linux: kernel: no file \"artifact:debian-kernel\" in the boot archive",
        ),
        (
            smallest(),
            linux().without("dtb/linux"),
            "dtb/linux: missing in the boot archive: build the image again",
        ),
        (
            smallest(),
            linux().with(KERNEL, &[0; 9]),
            "/vms/linux: kernel: \"artifact:debian-kernel\" is no arm64 Linux Image: unpack it if it is compressed",
        ),
        (
            smallest(),
            linux().with(KERNEL, &kernel(u64::MAX, 1, 100)),
            "/vms/linux: kernel: \"artifact:debian-kernel\" has a damaged header",
        ),
        (
            big,
            linux(),
            "manifest: /vms/linux: kernel: needs memory up to 3 MiB and a device tree behind it; memory-mib is 2",
        ),
        (
            smallest().set("/vms/linux", "initrd", text("rd")),
            linux(),
            "/vms/linux: initrd: no file \"rd\" in the boot archive",
        ),
        (
            flat(0, 0),
            Files::default(),
            "/vms/linux: image: no file \"guest.bin\" in the boot archive",
        ),
    ];
    for (manifest, files, message) in cases {
        with_placed(&manifest, &files, |placed| {
            assert_eq!(placed.err().as_deref(), Some(message))
        });
    }
}
