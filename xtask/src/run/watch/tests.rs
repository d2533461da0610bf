//! Tests of what ends a machine, and of what only looks so.

use super::{End, Watch};

const REFUSAL: &str = "gearv: Gear1 0.1.0 on 1 CPUs\r\ngearv: error: manifest: M-CPU-003: no\r\n\
                       gearv: the machine is stopped; no guest was started\r\n";
const HALT: &str = "gear2: on 2 CPUs\r\n\r\ngear1: HALT: fault in Gear2\r\ngear1: mpidr=0x80000000\r\n\
                    gear1: machine stopped\r\n";

fn end(text: &str) -> Option<End> {
    let whole = Watch::default().take(text.as_bytes());
    let mut watch = Watch::default();
    let bytewise = text.bytes().find_map(|byte| watch.take(&[byte]));
    assert_eq!(whole, bytewise);
    whole
}

#[test]
fn a_refusal_and_a_halt_end_the_machine() {
    assert_eq!(end(REFUSAL), Some(End::Refused));
    assert_eq!(end(HALT), Some(End::Halted));
    let unfinished = REFUSAL.trim_end();
    assert_eq!(end(unfinished), None);
}

#[test]
fn what_a_guest_prints_does_not() {
    let guest = format!("gear2: on 2 CPUs\r\n{REFUSAL}");
    assert_eq!(end(&guest), None);
    assert_eq!(end(&format!("[linux] {REFUSAL}").replace("\r\n", "")), None);
    assert_eq!(end("gear1: machine stopped\r\n"), None);
    assert_eq!(
        end("linux: gear1: HALT: x\r\ngear1: machine stopped\r\n"),
        None
    );
    let long = "x".repeat(1 << 20);
    assert_eq!(end(&format!("{long}\n{HALT}")), Some(End::Halted));
}
