use clap::ValueEnum as _;

use super::*;
use crate::testing::Directory;

#[test]
fn shells_complete_commands_options_and_states() {
    for shell in Shell::value_variants() {
        let text = completions(*shell);
        for word in ["screenshot", "cap-percent", "json", "messages"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
}

/// A page a command, and all of them as one.
#[test]
fn the_manual_has_all_commands() {
    let directory = Directory::new("man");
    man(Some(directory.text()), &mut Vec::new()).unwrap();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let main = read("gearctl.1");
    assert!(
        main.starts_with(".ie") && main.contains(".TH gearctl 1"),
        "{main}"
    );
    for name in [
        "list",
        "sched",
        "sched-set",
        "sched-set-weight",
        "device-link",
    ] {
        let page = read(&format!("gearctl-{name}.1"));
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let mut whole = Vec::new();
    man(None, &mut whole).unwrap();
    let whole = String::from_utf8(whole).unwrap();
    for title in [
        ".SH GEARCTL PAUSE",
        ".SH GEARCTL SCHED SET WEIGHT",
        "Exit status",
    ] {
        assert!(whole.contains(title), "{title}: {whole}");
    }
    assert_eq!(whole.matches(".TH ").count(), 1);
    let error = man(Some("/nonexistent"), &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind.status(), 1);
}
