//! Tests of the notes of requests that another process has.

use super::{InFlight, MAX_REQUESTS};
use crate::state::DeviceState;
use crate::testing::{CHANNEL, region};

fn state() -> DeviceState {
    DeviceState::new(&region().devices[CHANNEL])
}

#[test]
fn requests_are_noted_once_and_come_back_in_order() {
    let notes = InFlight::of(state(), 3);
    for (position, head) in [127, 0, 5, 1].into_iter().enumerate() {
        assert!(notes.add(head, position as u16));
    }
    assert!(!notes.add(5, 9), "the driver has offered it twice");
    assert!(notes.has(0));
    notes.remove(0);
    assert!(!notes.has(0));
    assert_eq!(notes.in_order(1), [127, 5, 1]);
    assert!(!notes.add(MAX_REQUESTS, 0) && !notes.has(MAX_REQUESTS));
}

/// Positions wrap: a request from before the wrap is older than one from behind it.
#[test]
fn the_order_holds_over_a_wrap() {
    let notes = InFlight::of(state(), 0);
    for (head, position) in [(7, u16::MAX - 1), (3, u16::MAX), (9, 0), (2, 1)] {
        assert!(notes.add(head, position));
    }
    assert_eq!(notes.in_order(u16::MAX - 1), [7, 3, 9, 2]);
}

#[test]
fn queues_have_notes_of_their_own_until_a_reset() {
    let state = state();
    assert!(InFlight::of(state, 0).add(4, 0) && InFlight::of(state, 1).add(4, 0));
    InFlight::of(state, 0).remove(4);
    InFlight::of(state, 1).publish(8);
    assert_eq!(InFlight::of(state, 1).in_order(0), [4]);
    assert_eq!(InFlight::of(state, 1).published(), 8);
    state.reset();
    assert!(InFlight::of(state, 1).in_order(0).is_empty());
    assert_eq!(InFlight::of(state, 1).published(), 0);
}
