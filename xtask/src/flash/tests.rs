//! Tests of the files that are written for a board.

use super::card;

#[test]
fn a_card_holds_its_files_and_is_the_same_each_time() {
    let files = vec![
        ("config.txt".to_owned(), b"arm_64bit=1\n".to_vec()),
        ("overlays/disable-bt.dtbo".to_owned(), vec![0x5a; 100_000]),
        ("a-rather-long-name-of-a-file.bin".to_owned(), vec![1; 513]),
    ];
    let image = card::image(&files, &[]).unwrap();
    assert_eq!(image[510..512], [0x55, 0xaa]);
    assert_eq!(image[450], 0x0c);
    let sectors = u32::from_le_bytes(*image[458..].first_chunk().unwrap());
    assert_eq!(image.len(), (2048 + sectors as usize) * 512);
    for (name, bytes) in &files {
        assert_eq!(card::read(&image, name).unwrap(), *bytes, "{name}");
    }
    assert_eq!(image, card::image(&files, &[]).unwrap());
}

#[test]
fn a_guests_disk_is_the_cards_second_partition() {
    let files = vec![("config.txt".to_owned(), b"arm_64bit=1\n".to_vec())];
    let disk = vec![0xa5; 3 * 512];
    let image = card::image(&files, &disk).unwrap();
    assert_eq!(image[466], 0x83);
    let number = |at: usize| u32::from_le_bytes(*image[at..].first_chunk().unwrap()) as usize;
    let (first, count) = (number(470), number(474));
    assert_eq!(count, 3);
    assert_eq!(first, number(454) + number(458), "behind the first");
    assert_eq!(image[first * 512..][..disk.len()], disk);
    assert_eq!(card::read(&image, "config.txt").unwrap(), files[0].1);
}
