use super::*;

#[test]
fn the_same_tree_gives_the_same_image_and_its_files_can_be_read_back() {
    let directory = std::env::temp_dir().join(format!("gearv-ext4-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut tree = Tree::default();
    tree.file("etc/words", "some words\n");
    tree.program("bin/a program", vec![7; 10_000]);
    tree.link("etc/link", "words");
    let images = ["a.img", "b.img"].map(|name| write(&tree, 8, &directory.join(name)).unwrap());
    check(&images[0]).unwrap();
    let [first, second] = images.each_ref().map(|image| sha256(image).unwrap());
    assert_eq!(first, second);
    let words = directory.join("words");
    fs::write(&words, "some words\n").unwrap();
    assert_eq!(
        hash_of(&images[0], "/etc/words").unwrap(),
        sha256(&words).unwrap()
    );
    assert!(hash_of(&images[0], "/etc/other").is_err());
    fs::remove_dir_all(directory).unwrap();
}
