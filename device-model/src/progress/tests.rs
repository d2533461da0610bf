//! Threads that get on, that wait, that spin, that wait for each other, and that end.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Looks `count` times, and returns what the last look showed.
fn look(watch: &mut Watch, count: u32) -> Health {
    let looks = (0..count).map(|_| watch.look());
    looks.last().unwrap_or(Health::Well)
}

/// Lets a thread begin and do something until the returned sender is dropped.
fn thread(
    watch: &mut Watch,
    name: &str,
    body: impl FnOnce(mpsc::Receiver<()>) + Send + 'static,
) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let progress = watch.add(name);
    let (begun, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let handle = thread::spawn(move || {
        begin(&progress);
        begun.send(()).unwrap();
        body(ends);
    });
    has_begun.recv().unwrap();
    watch.look();
    (end, handle)
}

#[test]
fn a_thread_that_waits_for_another_one_is_late_and_then_stuck() {
    let mut watch = Watch::default();
    let _idle = watch.add("not begun");
    let (end, handle) = thread(&mut watch, "linux/block0", |ends| {
        let _ = ends.recv();
    });
    assert_eq!(look(&mut watch, LATE_LOOKS - 1), Health::Well);
    assert_eq!(look(&mut watch, 1), Health::Late);
    assert_eq!(look(&mut watch, STUCK_LOOKS - LATE_LOOKS - 1), Health::Late);
    let stuck = Health::Stuck("linux/block0".into());
    assert_eq!(look(&mut watch, 1), stuck);
    drop(end);
    handle.join().unwrap();
}

#[test]
fn a_thread_that_spins_is_stuck() {
    let mut watch = Watch::default();
    let (end, handle) = thread(&mut watch, "spins", |ends| {
        while ends.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
            std::hint::spin_loop();
        }
    });
    assert_eq!(look(&mut watch, STUCK_LOOKS), Health::Stuck("spins".into()));
    drop(end);
    handle.join().unwrap();
}

#[test]
fn a_thread_that_waits_for_a_disk_is_well_for_as_long_as_that_takes() {
    let mut watch = Watch::default();
    let (asked, is_asked) = mpsc::channel();
    let (end, handle) = thread(&mut watch, "linux/block0", move |ends| {
        in_kernel(|| {
            asked.send(()).unwrap();
            let _ = ends.recv();
        });
    });
    is_asked.recv().unwrap();
    assert_eq!(look(&mut watch, 1000), Health::Well);
    drop(end);
    handle.join().unwrap();
}

#[test]
fn a_thread_that_takes_steps_is_well() {
    let mut watch = Watch::default();
    let progress = watch.add("serves");
    thread::spawn(move || {
        begin(&progress);
        for _ in 0..100 {
            assert_eq!(look(&mut watch, LATE_LOOKS - 1), Health::Well);
            step();
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_that_ended_is_stuck() {
    let mut watch = Watch::default();
    let (end, handle) = thread(&mut watch, "serial", |ends| {
        let _ = ends.recv();
    });
    assert_eq!(watch.look(), Health::Well);
    drop(end);
    handle.join().unwrap();
    assert_eq!(watch.look(), Health::Stuck("serial".into()));
}
