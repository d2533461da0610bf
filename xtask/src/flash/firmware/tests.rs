//! Tests of the folder with a board's firmware.

use std::fs;
use std::os::unix::fs::symlink;

use workbench::board::Name;
use workbench::workspace::scratch;

use super::{ensure_apart, read};

const OWN: &[&str] = &["config.txt", "overlays/gearv.dtbo"];

#[test]
fn firmware_is_added_and_replaces_nothing() {
    let folder = scratch("firmware");
    let refused = || read(&folder, Name::Rpi4, OWN).unwrap_err().to_string();
    assert!(
        refused().contains("has no start4.elf and no fixup4.dat: name the folder that holds them")
    );
    let empty = read(&folder, Name::QemuVirt, OWN).unwrap_err().to_string();
    assert!(empty.contains("holds no file: name the folder"), "{empty}");
    fs::create_dir_all(folder.join("overlays")).unwrap();
    fs::write(folder.join("overlays/x.dtbo"), "x").unwrap();
    fs::write(folder.join("start4.elf"), "elf").unwrap();
    assert!(refused().contains("has no fixup4.dat: name the folder that holds it,"));
    fs::write(folder.join("fixup4.dat"), "").unwrap();
    assert!(
        refused().contains("fixup4.dat is empty: copy it again"),
        "{}",
        refused()
    );
    fs::write(folder.join("fixup4.dat"), "dat").unwrap();
    let files = read(&folder, Name::Rpi4, OWN).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fixup4.dat", "overlays/x.dtbo", "start4.elf"]);
    for (clash, message) in [
        (
            "CONFIG.txt",
            "CONFIG.txt is GearV's own on the card: take it out",
        ),
        ("overlays/gearv.dtbo", "overlays/gearv.dtbo is GearV's own"),
        (
            "Start4.ELF",
            "Start4.ELF is there too, and a card has one of them only",
        ),
    ] {
        fs::write(folder.join(clash), "").unwrap();
        assert!(refused().contains(message), "{}", refused());
        fs::remove_file(folder.join(clash)).unwrap();
    }
    for name in ["a:b", "what?", "tab\t"] {
        fs::write(folder.join(name), "").unwrap();
        assert!(
            refused().contains("has no such name: rename the file"),
            "{}",
            refused()
        );
        fs::remove_file(folder.join(name)).unwrap();
    }
    // What is no file could be read for ever.
    symlink("/dev/zero", folder.join("zero")).unwrap();
    assert!(
        refused().contains("zero is no file: take it out"),
        "{}",
        refused()
    );
    fs::remove_file(folder.join("zero")).unwrap();
    let file = folder.join("start4.elf");
    let no_folder = read(&file, Name::Rpi4, OWN).unwrap_err().to_string();
    assert!(no_folder.contains("start4.elf is no folder"), "{no_folder}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_output_lies_elsewhere() {
    let folder = scratch("firmware-out");
    fs::create_dir_all(folder.join("below")).unwrap();
    for inside in ["card.img", "below/card.img", "."] {
        let refused = ensure_apart(&folder, &folder.join(inside))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("lies in the folder of --firmware"),
            "{refused}"
        );
    }
    ensure_apart(&folder.join("below"), &folder.join("card.img")).unwrap();
    fs::remove_dir_all(folder).unwrap();
}
