use crate::command::tests::{attempt, gearctl};
use crate::error::ErrorKind;

#[test]
fn last_words_are_registers_and_console() {
    let text = gearctl(&["last-words", "linux"]).unwrap();
    let head = "vm: linux\nlife: 5\ncause: hang\ntime: 1.500000\nregisters:\n\
        VCPU  REGISTER   VALUE\n1     pc         0xc\n";
    assert!(text.starts_with(head), "{text}");
    // The second of the six registers that each answer has.
    assert!(text.contains("\n1     x1         0xb\n"), "{text}");
    assert!(!text.contains("\n0 "), "{text}");
    let lines = "console:\nLINE\nling\nwatchdog: BUG: soft lockup - CPU#1 stuck for 26s!\n[1mend\n";
    assert!(text.contains(lines), "{text}");
    let json = gearctl(&["last-words", "linux", "--json"]).unwrap();
    let row = r#"{"vcpu":1,"register":"pc","value":"0xc"}"#;
    assert!(json.contains(row), "{json}");
    let error = attempt(&["last-words", "rt"]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let sentence = "VM rt has no last words: it has not ended since Gear2's start";
    assert_eq!(error.sentence, sentence);
}
