//! Back ends that go and do not come again: what a guest gets after the time of the manifest, and
//! when a reset is answered.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gear2_protocol::slot;

use super::super::relay;
use super::fake::{self, Act, serve};
use super::{LONG, arrivals, bounds, node, until};
use crate::backend::Absent;
use crate::board::DeviceKind;
use crate::state::Word;
use crate::sys;
use crate::testing::{DATA, Directory, Guest};
use crate::transport::register;

const SHORT: Duration = Duration::from_millis(300);
const STATUS: u64 = DATA + 16;

/// Makes a guest whose driver is ready, with a disk by a back end that acts so.
fn guest(directory: &Directory, limit: Option<Duration>, act: fn(u32) -> Act) -> Guest {
    let node = node(&serve(directory, act));
    let mut guest = Guest::new(Box::new(Absent));
    guest.limit = limit;
    guest.kill_gdm();
    guest.start_gdm_of(arrivals(node, bounds(SHORT)));
    guest.initialise(0, 1);
    guest
}

/// Offers a request at these descriptors.
fn offer(guest: &mut Guest, head: u16) {
    guest.put(STATUS, &[0xff]);
    guest.request(0, head, &[(DATA, 16, false), (STATUS, 1, true)]);
}

fn fails(guest: &mut Guest, count: u16) {
    until(guest, "the failure", |guest| guest.used_index(0) == count);
    assert_eq!(guest.get(STATUS, 1), [1], "VIRTIO_BLK_S_IOERR");
}

/// A request that a dead back end had, one that waits and one that comes later fail; what comes
/// when the next back end is there does not.
#[test]
fn requests_fail_after_a_time_until_a_backend_comes() {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let directory = Directory::new("absence");
    // The back end is lost while the driver sets up its queue: the time runs from there.
    let begin = Instant::now();
    let mut guest = guest(&directory, Some(SHORT), |request| match request {
        fake::GET_FEATURES if CONNECTIONS.fetch_add(1, Ordering::Relaxed) > 0 => {
            match MAY_COME.load(Ordering::Relaxed) {
                true => Act::Well,
                false => Act::Close,
            }
        }
        fake::SET_VRING_ENABLE if MAY_COME.load(Ordering::Relaxed) => Act::Use(vec![[6, 1]], 1),
        fake::SET_VRING_ENABLE => Act::Close,
        _ => Act::Well,
    });
    offer(&mut guest, 0);
    until(&mut guest, "the end", |guest| {
        guest.state().get(Word::Messages) > 0
    });
    offer(&mut guest, 2);
    fails(&mut guest, 2);
    assert!(begin.elapsed() >= SHORT, "they wait");
    offer(&mut guest, 4);
    guest.turn();
    assert_eq!(guest.used_index(0), 3, "it does not wait");
    assert_eq!(guest.state().get(Word::Errors), 3);
    MAY_COME.store(true, Ordering::Relaxed);
    offer_until_served(&mut guest);
    assert_eq!(guest.state().get(Word::Errors), 3);
    assert_eq!(guest.state().get(Word::MissingSince), 0);
}

/// The time runs on over a kill of GDM: a backend that ends GDM each time gives no request more.
#[test]
fn the_time_runs_on_over_a_kill() {
    let directory = Directory::new("absence");
    let mut guest = guest(&directory, Some(LONG), |request| match request {
        fake::SET_VRING_ENABLE => Act::Close,
        _ => Act::Well,
    });
    offer(&mut guest, 0);
    until(&mut guest, "the end", |guest| {
        guest.state().get(Word::Messages) > 0
    });
    guest.kill_gdm();
    // A count of a nanosecond; the whole time passes while no GDM is there.
    let since = guest.state().get(Word::MissingSince);
    let long = LONG.as_nanos() as u64;
    guest.state().set(Word::MissingSince, since - long);
    let later = guest.start_gdm_without(DeviceKind::VhostUser(2));
    fails(&mut guest, 1);
    // A device VM that was booted since begins anew.
    guest.kill_gdm();
    guest.state().set(Word::MissingSince, 1);
    drop(later);
    let _later = guest.start_gdm_without(DeviceKind::VhostUser(2));
    offer(&mut guest, 2);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
    assert!(guest.state().get(Word::MissingSince) > 1);
}

/// Waits for the next back end, and offers a request that it completes.
fn offer_until_served(guest: &mut Guest) {
    until(guest, "the next back end", |guest| {
        guest.state().get(Word::Serves) == crate::state::Serves::Backend as u64
    });
    offer(guest, 6);
    until(guest, "its completion", |guest| guest.used_index(0) == 4);
}

/// The next GDM does not know for how long the last one waited, and begins anew.
#[test]
fn requests_of_an_earlier_gdm_fail_too() {
    let directory = Directory::new("absence");
    let mut guest = guest(&directory, Some(SHORT), |_| Act::Well);
    offer(&mut guest, 0);
    guest.turn();
    guest.kill_gdm();
    guest.state().set(Word::InKernel, 0);
    let begin = Instant::now();
    let _sender = guest.start_gdm_without(DeviceKind::VhostUser(super::VIRTIO_ID_BLOCK));
    offer(&mut guest, 2);
    fails(&mut guest, 2);
    assert!(begin.elapsed() >= SHORT);
}

/// A back end that hangs may still write to memory: its request does not fail, and no reset is
/// answered, until it is gone. No next connection is needed.
#[test]
fn a_backend_that_hangs_is_waited_for_until_it_is_gone() {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
    static HANGS: AtomicBool = AtomicBool::new(true);
    let directory = Directory::new("absence");
    let mut guest = guest(&directory, Some(SHORT), |request| match request {
        fake::GET_FEATURES if CONNECTIONS.fetch_add(1, Ordering::Relaxed) > 0 => Act::Close,
        fake::GET_VRING_BASE => {
            while HANGS.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            Act::Close
        }
        _ => Act::Well,
    });
    offer(&mut guest, 0);
    guest.turn();
    let reset = |guest: &mut Guest| guest.access(register::STATUS, 6, 0);
    assert_eq!(reset(&mut guest), slot::POSTED);
    offer(&mut guest, 2);
    fails(&mut guest, 1);
    let begin = Instant::now();
    while begin.elapsed() < 2 * SHORT {
        guest.turn();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((guest.used_index(0), guest.status()), (1, 0xf));
    assert_eq!(guest.state().get(Word::InKernel), 1);
    HANGS.store(false, Ordering::Relaxed);
    let begin = Instant::now();
    while reset(&mut guest) != slot::DONE {
        assert!(begin.elapsed() < LONG, "the reset is not answered");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(guest.status(), 0);
}

#[test]
fn memory_is_seen_to_be_mapped() {
    let (rings, file) = relay::memory().unwrap();
    assert!(!sys::is_mapped_by_none(&file));
    let (theirs, copy) = (rings.clone(), file.try_clone().unwrap());
    drop(rings);
    assert!(!sys::is_mapped_by_none(&file), "the other one maps it");
    drop(theirs);
    assert!(sys::is_mapped_by_none(&file));
    assert!(sys::is_mapped_by_none(&copy), "nobody can map it again");
}
