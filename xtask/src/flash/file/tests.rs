//! Tests of files that are not overwritten.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;

use workbench::workspace::scratch;

use super::{check_folder, check_image, write};
use crate::flash::{card, u_boot};

/// Makes a node of a disk that no driver has (240 is for local use): an open fails.
fn disk(path: &Path) -> bool {
    let made = Command::new("mknod")
        .arg(path)
        .args(["b", "240", "250"])
        .output();
    made.is_ok_and(|made| made.status.success())
}

fn refused(path: &Path) -> String {
    let checked = check_image(path, true).unwrap_err();
    let written = write(path, b"x").unwrap_err();
    assert_eq!(format!("{written:#}"), checked.to_string());
    assert!(check_folder(path, &[], true).is_err());
    checked.to_string()
}

#[test]
fn a_disk_is_not_written_as_a_file() {
    let folder = scratch("flash-disk");
    let [node, link] = ["disk", "link"].map(|name| folder.join(name));
    // Only root makes a node, and every machine has one of the other kind.
    if disk(&node) {
        assert!(fs::metadata(&node).unwrap().file_type().is_block_device());
        symlink(&node, &link).unwrap();
        for path in [&node, &link] {
            let why = refused(path);
            assert!(
                why.contains("is a disk") && why.contains("--device"),
                "{why}"
            );
        }
        fs::remove_file(&link).unwrap();
    }
    symlink("/dev/null", &link).unwrap();
    assert!(refused(&link).ends_with("is no file"));
    let why = check_image(&folder, true).unwrap_err().to_string();
    assert!(why.contains("is a folder: name a file in it"), "{why}");
    fs::remove_dir_all(folder).unwrap();
}

/// The paths are looked at only.
#[test]
fn a_card_that_is_not_there_is_no_file() {
    let folder = scratch("flash-absent");
    let link = folder.join("link");
    symlink("/dev", &link).unwrap();
    for path in [Path::new("/dev/gearv-no-card"), &link.join("gearv-no-card")] {
        let image = check_image(path, true).unwrap_err().to_string();
        let files = check_folder(path, &[], true).unwrap_err().to_string();
        assert!(image.contains("there is no device"), "{image}");
        assert_eq!(image, files);
    }
    fs::remove_dir_all(folder).unwrap();
    if Path::new("/dev/shm").is_dir() {
        check_image(Path::new("/dev/shm/gearv-no-card.img"), false).unwrap();
    }
}

/// The disks of this machine, which are looked at only.
#[test]
fn no_disk_of_this_machine_is_taken() {
    for entry in fs::read_dir("/dev").unwrap().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
            let why = check_image(&entry.path(), true).unwrap_err();
            assert!(why.to_string().contains("is a disk"), "{why}");
        }
    }
}

#[test]
fn a_file_of_somebody_elses_stays() {
    let folder = scratch("flash-file");
    let path = folder.join("card.img");
    check_image(&path, false).unwrap();
    write(&path, &card::image(&[], &[]).unwrap()).unwrap();
    check_image(&path, false).unwrap();
    fs::write(&path, "").unwrap();
    check_image(&path, false).unwrap();
    let other = [&[0; 510], &[0x55, 0xaa][..], &[0; 512]].concat();
    for content in [&b"/dts-v1/;"[..], &other] {
        fs::write(&path, content).unwrap();
        let why = check_image(&path, false).unwrap_err().to_string();
        assert!(why.contains("remove it"), "{why}");
        check_image(&path, true).unwrap();
    }
    // A longer earlier file leaves nothing behind.
    write(&path, b"short").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short");
    assert!(check_folder(&path, &[], true).is_err());
    check_folder(&folder, &[], false).unwrap();
    let why = check_image(&folder.join("new/"), false).unwrap_err();
    assert!(
        why.to_string()
            .ends_with("new/ names a folder: name a file"),
        "{why}"
    );
    check_folder(&folder.join("new"), &[], false).unwrap();
    for (path, what) in [("no/card.img", "no"), ("no/where/card.img", "no/where")] {
        let why = check_image(&folder.join(path), false)
            .unwrap_err()
            .to_string();
        let missing = format!("there is no folder {}", folder.join(what).display());
        assert!(why.contains(&missing), "{why}");
        assert!(check_folder(&folder.join(path), &[], false).is_err());
    }
    assert!(check_image(&folder, true).is_err());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_boot_script_of_somebody_elses_stays() {
    let folder = scratch("flash-folder");
    let names = ["gear1.img", "boot.scr", "overlays/x.dtbo"];
    let script = folder.join("boot.scr");
    let refused = |text: &str| {
        let why = check_folder(&folder, &names, false)
            .unwrap_err()
            .to_string();
        assert!(why.contains(text) && why.contains("--force"), "{why}");
        check_folder(&folder, &names, true).unwrap();
    };
    fs::write(folder.join("kernel.img"), "x").unwrap();
    check_folder(&folder, &names, false).unwrap();
    fs::write(&script, "somebody's").unwrap();
    refused("holds boot.scr, which may be somebody else's");
    fs::write(folder.join("gear1.img"), "x").unwrap();
    refused("holds gear1.img, boot.scr, which");
    fs::write(&script, u_boot::script("echo\n")).unwrap();
    check_folder(&folder, &names, false).unwrap();
    fs::remove_file(&script).unwrap();
    refused("holds gear1.img, which");
    fs::remove_dir_all(folder).unwrap();
}
