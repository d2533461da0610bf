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
fn newest_kernel_is_no_variant() {
    let names = "linux-image-6.12.9+deb12-arm64\nlinux-image-6.12.90+deb12.1-arm64\n\
        linux-image-6.12.90+deb12-arm64\nlinux-image-6.12.95+deb12-rt-arm64\n\
        linux-image-6.12.95+deb12-arm64-unsigned\nlinux-image-6.12.95+deb12-arm64-16k";
    let newest = newest_kernel(names, "linux-image-6.12.", "arm64");
    assert_eq!(newest, Some("linux-image-6.12.90+deb12.1-arm64"));
    let realtime = newest_kernel(names, "linux-image-6.12.", "rt-arm64");
    assert_eq!(realtime, Some("linux-image-6.12.95+deb12-rt-arm64"));
    assert_eq!(newest_kernel(names, "linux-image-7.", "arm64"), None);
    let numbered = "linux-image-6.1.0-9-arm64\nlinux-image-6.1.0-47-arm64\n\
        linux-image-6.1.0-54-rt-arm64\nlinux-image-6.1.0-49-cloud-arm64\n\
        linux-image-6.1.0-54-arm64-dbg";
    let newest = newest_kernel(numbered, "linux-image-6.1.", "arm64");
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
