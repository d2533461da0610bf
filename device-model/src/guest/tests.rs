//! Tests of a process's own thread: what it takes from GDM, and when it ends itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, mpsc};

use super::*;
use crate::backend::rng::Rng;
use crate::hub::eventfd;
use crate::order::Order;
use crate::orders::{Inbox, way};
use crate::testing::{self, region};
use crate::worker::Away;

/// Returns a process's own thread with one device of channel 3, GDM's end of its link, and where
/// the descriptors of the backend and the
/// device's orders arrive.
fn guest() -> (Guest, Link, Receiver<Parts>, Inbox) {
    let (ours, theirs) = Link::pair().unwrap();
    let (backends, parts) = mpsc::channel();
    let (desk, inbox) = way(&eventfd().unwrap()).unwrap();
    let device = Device {
        state: DeviceState::new(&region().devices[3]),
        parts: Parts::default(),
        backends,
        runs: Arc::new(AtomicBool::new(true)),
        desk,
        answer: None,
    };
    let guest = Guest {
        link: Arc::new(Link::of(theirs)),
        devices: BTreeMap::from([(3, device)]),
        watch: Watch::default(),
    };
    (guest, ours, parts, inbox)
}

/// Returns a backend on its way, and its way.
fn coming(runs: bool) -> (Sender<Box<dyn Backend>>, Coming) {
    let (sender, arrival) = mpsc::channel();
    let runs = Arc::new(AtomicBool::new(runs));
    (sender, Coming { arrival, runs })
}

/// A guest passes over a device that is not there at its start.
#[test]
fn a_program_that_runs_is_waited_for() {
    let (usual, longest) = (2 * STEP, 20 * STEP);
    let (sender, slow) = coming(true);
    thread::spawn(move || {
        thread::sleep(2 * usual);
        sender.send(Box::new(Rng)).unwrap();
    });
    assert!(slow.wait("linux/fs3", [usual, longest]).is_some());
    let time_of = |coming: &Coming, longest| {
        let begin = Instant::now();
        assert!(coming.wait("linux/fs3", [usual, longest]).is_none());
        begin.elapsed()
    };
    // A program that never serves, and a device that is in use.
    let (_sender, never) = coming(true);
    assert!(time_of(&never, longest) >= longest);
    assert!(time_of(&never, usual) < longest);
    // One that GDM does not start, or that has ended.
    let (_sender, none) = coming(false);
    assert!((usual..longest).contains(&time_of(&none, longest)));
}

#[test]
fn a_process_hears_whether_a_program_runs() {
    let (mut guest, gdm, _parts, _inbox) = guest();
    gdm.send(Message::Runs(3, false), None).unwrap();
    assert!(guest.take_message());
    assert!(!guest.devices[&3].runs.load(Ordering::Relaxed));
}

/// A device's thread may wait for its disk for minutes: it is the process's end that makes requests
/// late.
#[test]
fn a_long_stall_is_no_absence() {
    let (mut guest, gdm, _parts, _inbox) = guest();
    let region = region();
    let state = DeviceState::new(&region.devices[3]);
    guest.devices.get_mut(&3).unwrap().state = state;
    state.set(Word::LastSeen, counter() - 31_000_000_000);
    assert!(Away::now(region, state).seconds >= 31);
    guest.live();
    assert_eq!(Away::now(region, state).seconds, 0);
    assert_eq!(gdm.receive().unwrap().unwrap().0, Message::Beat);
}

#[test]
fn a_process_shows_life_only_while_all_threads_get_on() {
    let (mut guest, gdm, _parts, _inbox) = guest();
    let late = guest.watch.add("linux/block3");
    late.set_late(true);
    guest.live();
    late.set_late(false);
    drop(late);
    guest.live();
    drop(guest);
    assert_eq!(gdm.receive().unwrap().unwrap().0, Message::Beat);
    assert!(gdm.receive().unwrap().is_none(), "more than one");
}

#[test]
fn a_backend_is_made_of_what_came_for_its_device() {
    let (mut guest, gdm, parts, _inbox) = guest();
    let file = File::open("/dev/zero").unwrap();
    gdm.send(Message::Part(3), Some(&file)).unwrap();
    gdm.send(Message::Part(3), Some(&file)).unwrap();
    gdm.send(Message::Backend(3), None).unwrap();
    for _ in 0..3 {
        assert!(guest.take_message());
    }
    assert!(
        format!("{:?}", parts.recv().unwrap())
            .matches("OwnedFd")
            .count()
            == 2
    );
    for message in [Message::Backend(4), Message::Beat] {
        gdm.send(message.clone(), None).unwrap();
        assert!(!guest.take_message(), "{message:?}");
    }
    drop(gdm);
    assert!(!guest.take_message(), "the end of gdm");
}

/// A device whose set-up fails must not stay dead beside a process that lives: the next one tries
/// again.
#[test]
fn a_device_that_cannot_be_set_up_ends_the_process() {
    let node = testing::node();
    let wiring = Wiring {
        channel: usize::MAX,
        ..testing::Guest::new(Box::new(Rng)).wiring()
    };
    let mut watch = Watch::default();
    let progress = watch.add("linux/rng0");
    let (_sender, coming) = coming(false);
    let serve = move || serve_device(&Options::default(), &node, wiring, coming, &progress);
    thread::spawn(serve).join().unwrap();
    assert_eq!(watch.look(), Health::Stuck("linux/rng0".into()));
}

#[test]
fn an_order_reaches_its_device_and_its_answer_gdm() {
    let (mut guest, gdm, _parts, inbox) = guest();
    gdm.send(Message::Order(3, Order::Resize), None).unwrap();
    assert!(guest.take_message());
    assert!(guest.pass_answers(), "it is awaited");
    inbox.each(|order, _| match order {
        Order::Resize => Ok(4096),
        _ => Err("it has none".into()),
    });
    assert!(!guest.pass_answers());
    let (answer, _) = gdm.receive().unwrap().unwrap();
    assert_eq!(answer, Message::Answer(3, Ok(4096)));
    // A thread that has ended answers nothing.
    drop(inbox);
    gdm.send(Message::Order(3, Order::Link(true)), None)
        .unwrap();
    assert!(guest.take_message() && !guest.pass_answers());
    let (answer, _) = gdm.receive().unwrap().unwrap();
    assert!(matches!(answer, Message::Answer(3, Err(_))));
}
