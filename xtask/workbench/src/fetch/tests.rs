use super::*;

#[test]
fn uris_give_versions_and_sizes() {
    let line =
        "'http://m.example/b.deb' busybox-static_1%3a1.35.0-4+b1_arm64.deb 822236 MD5Sum:49b1\n";
    let expected = Package {
        spec: "busybox-static=1:1.35.0-4+b1".to_owned(),
        bytes: 822236,
    };
    assert_eq!(parse_uris(line).unwrap(), [expected]);
    assert!(parse_uris("NOTE: nothing to do\n").unwrap().is_empty());
    assert!(parse_uris("'http://m.example/b.deb' name\n").is_err());
}

#[test]
fn newest_name_is_no_variant() {
    let names = "linux-image-6.12.9+deb12-arm64\nlinux-image-6.12.90+deb12.1-arm64\n\
        linux-image-6.12.90+deb12-arm64\nlinux-image-6.12.95+deb12-rt-arm64\n\
        linux-image-6.12.95+deb12-arm64-unsigned\nlinux-image-6.12.95+deb12-arm64-16k";
    let newest = newest_name(names, "linux-image-6.12.", "arm64");
    assert_eq!(newest, Some("linux-image-6.12.90+deb12.1-arm64"));
    let realtime = newest_name(names, "linux-image-6.12.", "rt-arm64");
    assert_eq!(realtime, Some("linux-image-6.12.95+deb12-rt-arm64"));
    assert_eq!(newest_name(names, "linux-image-7.", "arm64"), None);
    let numbered = "linux-image-6.1.0-9-arm64\nlinux-image-6.1.0-47-arm64\n\
        linux-image-6.1.0-54-rt-arm64\nlinux-image-6.1.0-49-cloud-arm64\n\
        linux-image-6.1.0-54-arm64-dbg";
    let xen = "xen-hypervisor-common\nxen-hypervisor-4.17-arm64-dbg\n\
        xen-hypervisor-4.9-arm64\nxen-hypervisor-4.17-arm64";
    let newest = newest_name(xen, "xen-hypervisor-", "arm64");
    assert_eq!(newest, Some("xen-hypervisor-4.17-arm64"));
    let newest = newest_name(numbered, "linux-image-6.1.", "arm64");
    assert_eq!(newest, Some("linux-image-6.1.0-47-arm64"));
}

#[test]
fn madison_gives_versions_by_suite() {
    let table = "q | 1:10.0.2+ds-2 | http://m.example/debian bookworm-backports/main amd64 Packages\n\
         q | 1:7.2+dfsg-7 | http://m.example/debian bookworm/main amd64 Packages\n";
    let rows: Vec<_> = madison(table).collect();
    assert_eq!(
        rows[0],
        ("1:10.0.2+ds-2".to_owned(), "bookworm-backports".to_owned())
    );
    assert_eq!(rows[1].1, "bookworm");
    assert_eq!(
        rows.iter()
            .map(|(version, _)| major(version))
            .collect::<Vec<_>>(),
        [Some(10), Some(7)]
    );
    assert_eq!(major("7.2"), Some(7));
}

/// Makes a package in the hash store, and returns its line of an index.
fn stored_package(cache: &Cache, folder: &Path) -> String {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("usr/bin")).unwrap();
    fs::write(tree.join("usr/bin/hello"), "hello").unwrap();
    let control = "Package: hello\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y>\n\
                   Description: x\n";
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let incoming = folder.join("incoming");
    fs::create_dir_all(&incoming).unwrap();
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group"]).arg(&tree);
    let built = build.arg(incoming.join("hello.deb")).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    store(cache, &incoming).unwrap().concat()
}

#[test]
fn packages_are_deleted_once_they_are_unpacked() {
    let folder = crate::workspace::scratch("unpack");
    let cache = Cache::at(folder.join("cache"));
    let lines = stored_package(&cache, &folder);
    let (hash, _) = lines.split_once("  ").unwrap();
    let index = folder.join("hello.index");
    assert!(!has_packages(&cache, &index));
    fs::write(&index, &lines).unwrap();
    assert!(has_packages(&cache, &index));
    let root = folder.join("hello");
    unpack(&cache, &index, &root).unwrap();
    let content = fs::read_to_string(root.join("usr/bin/hello")).unwrap();
    assert_eq!(content, "hello");
    // A set that is lost is downloaded again.
    assert!(!package(&cache, hash).exists() && !has_packages(&cache, &index));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_damaged_package_is_named_and_deletes_nothing_else() {
    let folder = crate::workspace::scratch("damaged");
    let cache = Cache::at(folder.join("cache"));
    let lines = stored_package(&cache, &folder);
    let (hash, _) = lines.split_once("  ").unwrap();
    fs::write(package(&cache, hash), "damaged").unwrap();
    let index = folder.join("hello.index");
    fs::write(&index, &lines).unwrap();
    let refused = unpack(&cache, &index, &folder.join("hello")).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("hello.deb in the cache is damaged"),
        "{refused}"
    );
    assert!(!index.exists() && !folder.join("hello").exists());
    fs::remove_dir_all(folder).unwrap();
}
