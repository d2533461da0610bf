//! Tests of what keeps a disk from being written, with the kernel's files made up in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use workbench::workspace::scratch;

use super::{Disk, describe, used};

/// Makes a disk with one partition, and nothing mounted.
fn machine(test: &str) -> PathBuf {
    let root = scratch(test);
    let disk = root.join("sys/block/sdx");
    fs::create_dir_all(disk.join("sdx1")).unwrap();
    fs::create_dir_all(disk.join("device")).unwrap();
    fs::write(disk.join("size"), "2048\n").unwrap();
    fs::write(disk.join("removable"), "1\n").unwrap();
    fs::write(disk.join("device/model"), "Card Reader \n").unwrap();
    fs::write(disk.join("sdx1/partition"), "1\n").unwrap();
    for (name, number) in [("sdx", "8:0"), ("sdx1", "8:1")] {
        let class = root.join("sys/class/block").join(name);
        fs::create_dir_all(class.join("holders")).unwrap();
        fs::write(class.join("dev"), number).unwrap();
    }
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::write(
        root.join("proc/self/mountinfo"),
        "22 1 0:5 / / rw - tmpfs none rw\n",
    )
    .unwrap();
    fs::write(
        root.join("proc/swaps"),
        "Filename Type Size Used Priority\n",
    )
    .unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    fs::write(root.join("dev/sdx"), "").unwrap();
    root
}

fn disk(root: &Path) -> Disk {
    describe(&root.join("sys"), &root.join("dev/sdx")).unwrap()
}

fn why(root: &Path) -> Option<String> {
    used(&disk(root), &root.join("proc"), &root.join("sys")).unwrap()
}

#[test]
fn a_disk_is_described() {
    let root = machine("describe");
    let expected = Disk {
        name: "sdx".to_owned(),
        bytes: 1 << 20,
        removable: true,
        model: "Card Reader".to_owned(),
        parts: vec!["sdx".to_owned(), "sdx1".to_owned()],
    };
    assert_eq!(disk(&root), expected);
    fs::write(root.join("dev/sdx1"), "").unwrap();
    let part = describe(&root.join("sys"), &root.join("dev/sdx1"));
    assert!(part.unwrap_err().to_string().contains("no whole disk"));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_disk_in_use_is_refused() {
    let root = machine("used");
    assert_eq!(why(&root), None);
    let mounts = root.join("proc/self/mountinfo");
    let nothing = fs::read_to_string(&mounts).unwrap();
    for line in [
        "30 1 8:1 / /media rw shared:1 - ext4 /dev/disk/by-id/x rw\n",
        "30 1 0:40 / /media rw - btrfs /dev/sdx1 rw\n",
    ] {
        fs::write(&mounts, format!("{nothing}{line}")).unwrap();
        assert_eq!(why(&root).as_deref(), Some("it is mounted on /media"));
    }
    fs::write(&mounts, nothing).unwrap();
    fs::write(
        root.join("proc/swaps"),
        "Filename\n/dev/sdx1 partition 1 0 -2\n",
    )
    .unwrap();
    assert_eq!(why(&root).as_deref(), Some("it is used for swapping"));
    fs::write(root.join("proc/swaps"), "Filename\n").unwrap();
    fs::create_dir(root.join("sys/class/block/sdx1/holders/dm-0")).unwrap();
    assert_eq!(why(&root).as_deref(), Some("sdx1 is part of another disk"));
    fs::remove_dir_all(root).unwrap();
}
