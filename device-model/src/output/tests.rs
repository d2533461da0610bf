use std::fs::File;

use super::*;

#[test]
fn a_pipe_has_no_width_and_a_terminal_has_one() {
    let file = File::open("/dev/null").unwrap();
    assert_eq!(width(&file), None);
    let (terminal, _) = sys::open_pty().unwrap();
    assert!(width(&terminal).is_some_and(|width| width > 0));
}

#[test]
fn a_serial_port_has_the_usual_width_or_what_a_person_sets() {
    assert_eq!(length_of(0, None, 80), 80);
    assert_eq!(length_of(0, Some(132), 80), 132);
    assert_eq!(length_of(0, Some(0), 80), 80);
    assert_eq!(length_of(100, Some(132), 80), 100);
}
