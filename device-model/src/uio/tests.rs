use super::*;

/// Makes a folder as the kernel's, with two devices.
fn class(test: &str) -> PathBuf {
    let class = std::env::temp_dir().join(format!("gearv-{}-{test}", std::process::id()));
    let files = [
        ("uio0/name", "ask\n"),
        ("uio0/maps/map0/name", "doorbell\n"),
        ("uio0/maps/map0/size", "0x0000000000001000\n"),
        ("uio0/maps/map1/name", "memory\n"),
        ("uio0/maps/map1/size", "0x0000000000200000\n"),
        ("uio1/name", "tell\n"),
    ];
    for (path, text) in files {
        let path = class.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    class
}

#[test]
fn devices_are_found_by_the_channels_name() {
    let class = class("uio-devices");
    assert_eq!(folder_of(&class, "tell").unwrap(), class.join("uio1"));
    let error = folder_of(&class, "tel").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().ends_with("has the name tel"), "{error}");
    fs::remove_dir_all(class).unwrap();
}

#[test]
fn ranges_are_found_by_their_names() {
    let class = class("uio-ranges");
    let folder = class.join("uio0");
    assert_eq!(range_of(&folder, "doorbell").unwrap(), (0, 0x1000));
    assert_eq!(range_of(&folder, "memory").unwrap(), (1, 0x20_0000));
    let error = range_of(&class.join("uio1"), "memory").unwrap_err();
    assert!(
        error.to_string().ends_with("has no range memory"),
        "{error}"
    );
    fs::remove_dir_all(class).unwrap();
}

#[test]
fn a_wrong_number_is_told() {
    assert!(expect("round 3", "interrupts", 1, 1).is_ok());
    let error = expect("round 3", "interrupts", 2, 1).unwrap_err();
    assert_eq!(error.to_string(), "round 3: 2 interrupts instead of 1");
}
