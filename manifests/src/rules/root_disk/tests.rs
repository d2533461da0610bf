//! Tests of the warnings on `root=`.

use std::string::String;
use std::vec::Vec;

use crate::rules::tests::{DISK, VM, served, warnings};
use crate::testing::{Tree, smallest, text};

/// Returns the ids of the warnings on the command line.
fn warned(tree: &Tree, cmdline: &str) -> Vec<String> {
    let warned = warnings(&tree.clone().set(VM, "cmdline", text(cmdline)));
    let of_root = warned.iter().filter(|one| one.contains(": cmdline: "));
    of_root.map(|one| one[..9].into()).collect()
}

#[test]
fn a_guests_root_is_a_disk_that_it_has() {
    let missing = [
        "root=/dev/vdb",
        "root=/dev/vdaa",
        "root=/dev/vda1 root=/dev/vdz",
        "root=/dev/vd",
        "root=/dev/sda1 rw",
        "root=/dev/mmcblk0p2",
        "root=/dev/nvme0n1p1",
        "root=/dev/nfs ip=dhcp",
        "root=dev/vda",
        "root=vda",
        "root=mmcblk0p2",
    ];
    for cmdline in missing {
        assert_eq!(warned(&served(), cmdline), ["M-WRN-011"], "{cmdline}");
    }
    let known = [
        "root=/dev/vda rw",
        "root=/dev/vda2",
        "root=\"/dev/vda\"",
        "root=/dev/vdb root=/dev/vda",
        "root=PARTUUID=1234-02",
        "root=/dev/mapper/system",
        "root=/dev/ram0",
        "quiet -- root=/dev/vdb",
    ];
    for cmdline in known {
        assert_eq!(warned(&served(), cmdline), [""; 0], "{cmdline}");
    }
    assert_eq!(warned(&smallest(), "root=/dev/vda"), ["M-WRN-011"]);
}

/// A guest sees a whole disk, whatever its backend is.
#[test]
fn a_backend_that_is_a_partition_has_none() {
    let tree = served().set(DISK, "backend", text("/dev/vda2"));
    assert_eq!(warned(&tree, "root=/dev/vda2"), ["M-WRN-011"]);
    assert_eq!(warned(&tree, "root=/dev/vda"), [""; 0]);
}

#[test]
fn a_root_that_is_written_has_a_disk_that_is_written() {
    let tree = served().set(DISK, "read-only", Vec::new());
    let cases = [
        ("root=/dev/vda rw", 1),
        ("root=/dev/vda ro", 0),
        ("root=/dev/vda rw ro", 0),
        ("root=/dev/vda", 0),
    ];
    for (cmdline, count) in cases {
        assert_eq!(warned(&tree, cmdline), ["M-WRN-012"][..count], "{cmdline}");
    }
}
