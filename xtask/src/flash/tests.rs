//! Tests of the files that are written for a board.

use std::fs;

use workbench::workspace::scratch;

use super::{add_folder, card};

#[test]
fn a_card_holds_its_files_and_is_the_same_each_time() {
    let files = vec![
        ("config.txt".to_owned(), b"arm_64bit=1\n".to_vec()),
        ("overlays/disable-bt.dtbo".to_owned(), vec![0x5a; 100_000]),
        ("a-rather-long-name-of-a-file.bin".to_owned(), vec![1; 513]),
    ];
    let image = card::image(&files).unwrap();
    assert_eq!(image[510..512], [0x55, 0xaa]);
    assert_eq!(image[450], 0x0c);
    let sectors = u32::from_le_bytes(*image[458..].first_chunk().unwrap());
    assert_eq!(image.len(), (2048 + sectors as usize) * 512);
    for (name, bytes) in &files {
        assert_eq!(card::read(&image, name).unwrap(), *bytes, "{name}");
    }
    assert_eq!(image, card::image(&files).unwrap());
}

#[test]
fn firmware_is_added_and_replaces_nothing() {
    let folder = scratch("firmware");
    fs::create_dir_all(folder.join("overlays")).unwrap();
    fs::write(folder.join("overlays/x.dtbo"), "x").unwrap();
    fs::write(folder.join("start4.elf"), "elf").unwrap();
    let mut files = vec![("config.txt".to_owned(), Vec::new())];
    add_folder(&folder, "", &mut files).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["config.txt", "overlays/x.dtbo", "start4.elf"]);
    fs::write(folder.join("config.txt"), "").unwrap();
    let clash = add_folder(
        &folder,
        "",
        &mut vec![("config.txt".to_owned(), Vec::new())],
    );
    assert!(clash.unwrap_err().to_string().contains("GearV's own"));
    fs::remove_dir_all(folder).unwrap();
}
