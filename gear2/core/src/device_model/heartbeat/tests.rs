use super::*;

#[test]
fn it_is_gone_when_no_sign_comes_for_long_enough() {
    let mut heartbeat = Heartbeat::begin(7, 1000);
    assert_eq!(heartbeat.look(7, 1400, 100), Pulse::Lives(1412));
    assert_eq!(heartbeat.look(7, 1401, 100), Pulse::Gone, "it never came");
    let mut heartbeat = Heartbeat::begin(7, 1000);
    assert_eq!(heartbeat.look(8, 1300, 100), Pulse::Lives(1312));
    assert_eq!(heartbeat.look(8, 1400, 100), Pulse::Lives(1412));
    assert_eq!(heartbeat.look(8, 1401, 100), Pulse::Gone);
    assert_eq!(
        heartbeat.look(u32::MAX, 1500, 100),
        Pulse::Lives(1512),
        "any change is one"
    );
    assert_eq!(heartbeat.look(0, 1600, 100), Pulse::Lives(1612));
}

#[test]
fn the_longest_patience_and_the_end_of_time_are_no_trouble() {
    let mut heartbeat = Heartbeat::begin(0, 0);
    let pulse = heartbeat.look(0, u64::MAX, u64::MAX);
    assert_eq!(pulse, Pulse::Lives(u64::MAX));
}
