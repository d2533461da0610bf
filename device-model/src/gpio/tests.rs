use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::*;
use crate::testing::{doorbell, line_and_writer};

/// Has a line rise so many times, each of which ends a wait, and returns how many events are in
/// the queue then.
fn left(is_paced: bool, times: u8) -> usize {
    let (mut line, mut writer) = line_and_writer();
    if is_paced {
        line = line.paced(doorbell(), 3);
    }
    let epoll = Epoll::new().unwrap();
    let edges = EventSet::IN | EventSet::EDGE_TRIGGERED;
    let event = EpollEvent::new(edges, 0);
    let descriptor = line.file().as_raw_fd();
    epoll.ctl(ControlOperation::Add, descriptor, event).unwrap();
    for _ in 0..times {
        writer.write_all(&[0]).unwrap();
        let events = &mut [EpollEvent::default(); 2];
        assert_eq!(epoll.wait(0, events).unwrap(), 1);
        line.heard();
        // An event that stays ends no other wait.
        assert_eq!(epoll.wait(0, events).unwrap(), 0);
    }
    line.file().read(&mut [0; 256]).unwrap_or(0)
}

#[test]
fn events_of_a_paced_line_are_thrown_away_before_their_queue_is_full() {
    let all: Vec<usize> = (0..=24).map(|times| left(true, times)).collect();
    let expected: Vec<usize> = (0..=24).map(|times| times % usize::from(KEPT)).collect();
    assert_eq!(all, expected);
}

#[test]
fn events_of_another_line_are_thrown_away_at_once() {
    assert_eq!([1, 5].map(|times| left(false, times)), [0, 0]);
}
