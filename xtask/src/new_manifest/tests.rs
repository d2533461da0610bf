//! Tests of the questions, and of the rules that each manifest keeps.

use clap::{Parser, ValueEnum as _};
use workbench::board::Name;

use super::{Choice, Options, ask, text};

#[derive(Parser, Debug)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn asked(board: Name, answers: &str) -> (Choice, String) {
    let mut said = Vec::new();
    let choice = ask(board, &mut answers.as_bytes(), &mut said).unwrap();
    (choice, String::from_utf8(said).unwrap())
}

fn choice(device_vm: bool, guest: bool, real_time: bool) -> Choice {
    Choice {
        device_vm,
        guest,
        real_time,
    }
}

#[test]
fn questions_follow_from_answers() {
    for (answers, expected) in [
        ("", choice(false, false, false)),
        ("\n\n", choice(false, false, false)),
        ("y\n", choice(true, true, false)),
        ("Yes\nn\nperhaps\ny\n", choice(true, false, true)),
        ("n\ny\n", choice(false, false, true)),
    ] {
        let (given, said) = asked(Name::QemuVirt, answers);
        assert_eq!(given, expected, "{answers:?}");
        let is_asked = said.contains("A Linux guest whose disk");
        assert_eq!(is_asked, expected.device_vm, "{said}");
    }
    let (given, said) = asked(Name::Imx8mpEvk, "y\n");
    assert_eq!(given, choice(false, false, true));
    assert!(!said.contains("device VM"), "{said}");
}

#[test]
fn options_name_vms() {
    let named = |words: &[&str]| {
        let all = ["new-manifest"].iter().chain(words);
        Cli::try_parse_from(all).unwrap().options.choice()
    };
    assert_eq!(named(&["--guest"]).unwrap(), choice(true, true, false));
    let both = named(&["--device-vm", "--real-time"]).unwrap();
    assert_eq!(both, choice(true, false, true));
    assert_eq!(named(&["--plain"]).unwrap(), Choice::default());
    assert!(named(&["--board", "rpi4", "--guest"]).unwrap().guest);
    let refused = named(&["--board", "imx8mp-evk", "--guest"]).unwrap_err();
    assert!(refused.to_string().contains("imx8mp-evk"), "{refused}");
    assert!(Cli::try_parse_from(["new-manifest", "--plain", "--guest"]).is_err());
}

/// CPUs are given away once, and every VM that is asked for is there.
#[test]
fn each_choice_has_its_vms() {
    assert_eq!(Choice::all(Name::QemuVirt).len(), 6);
    for board in Name::value_variants() {
        for choice in Choice::all(*board) {
            let text = text(*board, choice);
            let has = |node: &str| text.contains(&format!("\t\t{node} {{"));
            assert_eq!(has("device"), choice.device_vm, "{text}");
            assert_eq!(has("linux"), choice.guest || !choice.device_vm, "{text}");
            assert_eq!(has("control"), choice.real_time, "{text}");
            assert_eq!(text.contains("virtio {"), choice.guest, "{text}");
            assert!(text.lines().all(|line| line.len() <= 120), "{text}");
            let left = ["MEMORY", "CONSOLE", "DEVICES", "DISK", "COMMENT", "RTC"];
            assert!(left.iter().all(|word| !text.contains(word)), "{text}");
        }
    }
}
