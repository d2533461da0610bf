use super::*;

const DEB822: &str = "\
# made by the installer
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://mirror.example/off
Suites: bookworm
Components: main
";

#[test]
fn deb822_release_gets_backports_of_the_same_mirror() {
    let text = release_with_backports(&parse_deb822(DEB822), "bookworm", "arm64").unwrap();
    assert_eq!(
        text,
        "Types: deb\nURIs: http://mirror.example/debian\n\
         Suites: bookworm bookworm-updates bookworm-backports\nComponents: main\n\
         signed-by: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    );
}

#[test]
fn one_line_options_are_read() {
    let line = "deb [arch=amd64,i386 signed-by=/k.gpg] https://m.example/debian trixie main # x";
    let source = parse_one_line(line).unwrap();
    assert_eq!(source.uris, ["https://m.example/debian"]);
    assert_eq!(source.suites, ["trixie"]);
    assert_eq!(source.architectures, ["amd64", "i386"]);
    assert_eq!(
        source.trust,
        [("signed-by".to_owned(), "/k.gpg".to_owned())]
    );
    assert!(!source.serves("arm64"));
    let bare = parse_one_line("deb\thttp://m.example/debian trixie main contrib").unwrap();
    assert_eq!(bare.components, ["main", "contrib"]);
}

#[test]
fn comments_sources_and_others_are_not_binary_sources() {
    for line in [
        "",
        "# deb http://m trixie main",
        "deb-src http://m trixie main",
        "deb",
        "deb http://m",
    ] {
        assert_eq!(parse_one_line(line), None, "{line}");
    }
}

#[test]
fn foreign_suites_are_left_out() {
    let lines = [
        "deb http://m.example/debian bookworm main",
        "deb http://v.example cloud-bookworm main",
    ];
    let sources: Vec<_> = lines.into_iter().filter_map(parse_one_line).collect();
    let text = release_with_backports(&sources, "bookworm", "amd64").unwrap();
    assert!(!text.contains("v.example"));
    assert_eq!(text.matches("Types:").count(), 1);
    assert_eq!(release_with_backports(&sources, "forky", "amd64"), None);
}

#[test]
fn multi_line_keys_are_carried_over() {
    let stanza = "Types: deb\nURIs: http://m\nSuites: trixie\nComponents: main\nSigned-By:\n -----BEGIN\n .\n x";
    let text = release_with_backports(&parse_deb822(stanza), "trixie", "arm64").unwrap();
    assert!(
        text.ends_with("signed-by: \n -----BEGIN\n .\n x\n"),
        "{text}"
    );
}
