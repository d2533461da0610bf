use super::*;

fn seen(events: u64, done: u64) -> Seen {
    Seen { events, done }
}

#[test]
fn attacks_that_go_on_are_waited_for() {
    let mut watch = Watch::default();
    for look in 1..10 * u64::from(QUIET) {
        watch.look(seen(look, look)).expect("both go on");
    }
    assert_eq!(watch.longest, 1);
}

#[test]
fn attacks_that_stop_are_given_up() {
    let mut watch = Watch::default();
    let mut looks = (0..).map(|look| watch.look(seen(7, look)));
    assert_eq!(looks.position(|look| look.is_err()), Some(QUIET as usize));
}

#[test]
fn attacks_without_an_end_are_given_up() {
    let mut watch = Watch::default();
    let step = STALL / 2;
    let mut looks = (1..).map(|look| watch.look(seen(look * step, look)));
    let end = looks.position(|look| look.is_err());
    assert_eq!(end.map(|end| end as u64 + 1), Some(MOST_EVENTS / step));
}

#[test]
fn an_honest_guest_that_waits_too_long_is_found() {
    let mut watch = Watch::default();
    watch.look(seen(10, 1)).expect("it is served");
    watch.look(seen(10 + STALL, 1)).expect("just in time");
    assert!(watch.look(seen(11 + STALL, 1)).is_err());
}
