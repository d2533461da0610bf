//! Requests that end in another order than they were taken in: on a disk that does what the test
//! lets it do, and over kills of GDM.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gear2_protocol::device_word::RESET_ASKED;

use super::*;
use crate::backend::block::media::{Geometry, Media, Work};
use crate::in_flight::InFlight;
use crate::order::Order;
use crate::overlap::Ended;
use crate::rate::Shared;
use crate::sys;
use crate::testing::CHANNEL;

mod events;

/// Calls that a disk has begun, and calls that it was let do.
#[derive(Debug, Default)]
struct Desk {
    /// Numbers of what is under way: those of reads and writes with their sector, those of syncs
    /// without.
    begun: Vec<(u64, Option<u64>)>,
    /// All that ever began, by sector.
    history: Vec<Option<u64>>,
    ended: Vec<Ended>,
    /// Times that the device waited for everything.
    settled: usize,
}

/// A disk that ends nothing by itself.
#[derive(Debug)]
struct Patient {
    desk: Arc<Mutex<Desk>>,
    file: fs::File,
}

impl Patient {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap()
    }
}

impl Media for Patient {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: SECTORS as u64 * 512,
            block_size: 512,
            is_device: true,
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.geometry().bytes)
    }

    fn is_direct(&self) -> bool {
        true
    }

    /// Moves the data at once, and says so when the test lets it.
    fn begin(&mut self, number: u64, work: Work<'_>) {
        let sector = match work {
            Work::Direct(piece) | Work::Buffered(piece) => {
                let moved = sys::transfer(&self.file, piece.direction, piece.vectors, piece.offset);
                assert_eq!(moved.unwrap(), 512);
                Some(piece.offset / 512)
            }
            Work::Sync => None,
        };
        self.desk().begun.push((number, sector));
        self.desk().history.push(sector);
    }

    fn ended(&mut self, _patience: Duration) -> Vec<Ended> {
        std::mem::take(&mut self.desk().ended)
    }

    fn settle(&mut self) -> Vec<Ended> {
        let mut desk = self.desk();
        desk.settled += 1;
        let begun = std::mem::take(&mut desk.begun);
        let mut ended = std::mem::take(&mut desk.ended);
        ended.extend(
            begun
                .into_iter()
                .map(|(number, sector)| (number, bytes(sector))),
        );
        ended
    }

    fn is_fresh(&self) -> bool {
        !self.desk().ended.is_empty()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, _offset: u64, _length: u64, _unmap: bool) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Ok(())
    }
}

fn bytes(sector: Option<u64>) -> io::Result<u64> {
    Ok(sector.map_or(0, |_| 512))
}

/// A guest with such a disk.
struct Slow {
    guest: Guest,
    desk: Arc<Mutex<Desk>>,
    path: String,
    queues: usize,
    _directory: Directory,
}

impl Slow {
    fn new() -> Self {
        Self::with(1)
    }

    /// Makes a disk of so many queues.
    fn with(queues: usize) -> Self {
        let directory = Directory::new("disk");
        let content: Vec<u8> = (0..SECTORS * 512).map(|i| (i / 512) as u8).collect();
        let path = directory.file("disk", &content);
        let (block, desk) = patient(&path, queues);
        let mut guest = Guest::new(block);
        let features = if queues > 1 { FLUSH | MQ } else { FLUSH };
        guest.initialise(features, queues);
        Self {
            guest,
            desk,
            path,
            queues,
            _directory: directory,
        }
    }

    /// Kills GDM and starts the next one; what the kernel had has ended.
    fn restart(&mut self) {
        self.guest.kill_gdm();
        let (block, desk) = patient(&self.path, self.queues);
        self.desk = desk;
        self.guest.start_gdm(block);
        self.guest.work();
    }

    /// Offers request `number`: a read (0), a write (1) or a flush (4).
    fn offer(&mut self, number: u16, kind: u32, sector: u64) {
        self.offer_to(0, number, kind, sector);
    }

    fn offer_to(&mut self, queue: usize, number: u16, kind: u32, sector: u64) {
        let at = u64::from(number);
        let header = HEADER + 16 * at;
        self.guest.put(header, &u64::from(kind).to_le_bytes());
        self.guest.put(header + 8, &sector.to_le_bytes());
        self.guest.put(STATUS + at, &[0xff]);
        let mut pieces = vec![(header, 16, false)];
        if kind < 2 {
            pieces.push((BUFFER + 512 * at, 512, kind == 0));
        }
        pieces.push((STATUS + at, 1, true));
        self.guest.request(queue, 3 * number, &pieces);
    }

    /// Lets what is under way for this sector end, or a flush.
    fn end(&mut self, sector: Option<u64>) {
        {
            let mut desk = self.desk.lock().unwrap();
            let place = desk.begun.iter().position(|(_, begun)| *begun == sector);
            let (number, sector) = desk
                .begun
                .remove(place.expect("nothing of it is under way"));
            desk.ended.push((number, bytes(sector)));
        }
        self.guest.work();
    }

    /// Returns the requests in the used ring.
    fn used(&self) -> Vec<u32> {
        let count = self.guest.used_index(0);
        (0..count)
            .map(|index| self.guest.used(0, index).0 / 3)
            .collect()
    }

    fn history(&self) -> Vec<Option<u64>> {
        self.desk.lock().unwrap().history.clone()
    }

    fn noted(&self) -> usize {
        let notes = InFlight::of(self.guest.state(), 0);
        notes.in_order(self.guest.used_index(0)).len()
    }
}

fn patient(path: &str, queues: usize) -> (Box<Block>, Arc<Mutex<Desk>>) {
    let desk = Arc::new(Mutex::new(Desk::default()));
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let media = Patient {
        desk: Arc::clone(&desk),
        file: file.unwrap(),
    };
    let mut block = Block::new(Box::new(media), path, false);
    block.queues = queues;
    (Box::new(block), desk)
}

#[test]
fn a_slow_request_holds_no_other_back() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.offer(1, 0, 8);
    disk.guest.work();
    assert!(disk.used().is_empty());
    disk.end(Some(8));
    assert_eq!(disk.used(), [1]);
    assert!(disk.guest.interrupted());
    // Others come and go; the flush does not wait for the first either.
    disk.offer(2, 1, 9);
    disk.offer(3, 4, 0);
    disk.guest.work();
    disk.end(Some(9));
    disk.end(None);
    assert_eq!(disk.used(), [1, 2, 3]);
    assert_eq!(disk.noted(), 1);
    assert_eq!(disk.guest.state().get(Word::InKernel), 1);
    disk.end(Some(7));
    assert_eq!(disk.used(), [1, 2, 3, 0]);
    assert_eq!(
        (disk.noted(), disk.guest.state().get(Word::InKernel)),
        (0, 0)
    );
    assert_eq!(disk.guest.get(STATUS, 4), [0; 4]);
    assert_eq!(disk.guest.get(BUFFER, 1), [7]);
}

/// The next GDM does what was under way again, and nothing else, although later requests are done.
#[test]
fn what_was_under_way_is_done_again_after_a_kill() {
    let mut disk = Slow::new();
    for (number, sector) in [(0, 7), (1, 8), (2, 9)] {
        disk.offer(number, 0, sector);
    }
    disk.guest.work();
    disk.end(Some(8));
    disk.restart();
    assert_eq!(disk.history(), [Some(7), Some(9)]);
    assert_eq!(disk.guest.status(), 0xf);
    disk.end(Some(9));
    disk.offer(3, 0, 1);
    disk.guest.work();
    disk.restart();
    assert_eq!(disk.history(), [Some(7), Some(1)]);
    disk.end(Some(7));
    disk.end(Some(1));
    assert_eq!(disk.used(), [1, 2, 0, 3]);
    assert_eq!((disk.guest.get(STATUS, 4), disk.noted()), (vec![0; 4], 0));
}

/// The available ring has been written over meanwhile: a driver reuses its entries.
#[test]
fn a_request_is_found_again_whose_place_is_another_ones() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.guest.work();
    for round in 0..20 {
        disk.offer(1, 0, 8 + round);
        disk.guest.work();
        disk.end(Some(8 + round));
    }
    disk.restart();
    assert_eq!(disk.history(), [Some(7)]);
    disk.end(Some(7));
    assert_eq!(disk.guest.used_index(0), 21);
    assert_eq!(disk.guest.used(0, 20).0, 0);
}

/// GDM is killed between a completion and the end of its note.
#[test]
fn a_completion_that_was_the_last_act_of_a_gdm_counts() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.offer(1, 0, 8);
    disk.guest.work();
    disk.end(Some(8));
    let notes = InFlight::of(disk.guest.state(), 0);
    assert!(notes.add(3, 1));
    notes.publish(0);
    disk.restart();
    assert_eq!(disk.history(), [Some(7)]);
    disk.end(Some(7));
    assert_eq!(disk.used(), [1, 0]);
}

/// After a reset nothing moves a guest's data.
#[test]
fn a_reset_waits_for_what_the_kernel_has() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.guest.work();
    disk.guest.write(register::STATUS, 0);
    assert!(disk.desk.lock().unwrap().begun.is_empty());
    assert_eq!((disk.used(), disk.noted()), (vec![], 0));
    assert_eq!(disk.guest.get(STATUS, 1), [0xff]);
    // The same at Gear2's wish.
    disk.guest.put(disk.guest.rings[0].available(), &[0; 4]);
    disk.guest.rings[0].added = 0;
    disk.guest.initialise(FLUSH, 1);
    disk.offer(0, 0, 7);
    disk.guest.work();
    disk.guest.region.devices[CHANNEL][RESET_ASKED].store(1, std::sync::atomic::Ordering::Relaxed);
    disk.guest.work();
    assert_eq!(disk.guest.state().reset_asked(), None);
    assert!(disk.desk.lock().unwrap().begun.is_empty());
    assert_eq!(disk.guest.get(STATUS, 1), [0xff]);
}

/// A driver that closes a queue has the requests of that queue completed before it is answered, and
/// nothing moves its data afterwards. Requests of another queue go on.
#[test]
fn a_closed_queue_waits_for_what_the_kernel_has() {
    let mut disk = Slow::with(2);
    disk.offer(0, 0, 7);
    disk.offer_to(1, 2, 0, 9);
    disk.guest.work();
    assert_eq!((disk.noted(), disk.guest.used_index(0)), (1, 0));
    disk.guest.interrupted();
    disk.guest.write(register::QUEUE_SEL, 0);
    disk.guest.write(register::QUEUE_READY, 0);
    assert!(disk.guest.interrupted());
    assert!(disk.desk.lock().unwrap().begun.is_empty());
    assert_eq!((disk.used(), disk.noted()), (vec![0], 0));
    assert_eq!(disk.guest.get(STATUS, 1), [0]);
    // The ring is the driver's from here on.
    disk.offer(1, 0, 8);
    disk.guest.work();
    assert_eq!((disk.used(), disk.noted()), (vec![0], 0));
    assert_eq!(disk.guest.used_index(1), 1);
    disk.offer_to(1, 3, 0, 10);
    disk.guest.work();
    disk.end(Some(10));
    assert_eq!(disk.guest.used_index(1), 2);
    assert_eq!(disk.guest.state().get(Word::InKernel), 0);
}

/// A device that is broken completes nothing, and moves nothing once its queue is closed.
#[test]
fn a_closed_queue_of_a_broken_disk_is_at_rest() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.guest.work();
    disk.guest.write(register::STATUS, 0x8f);
    disk.guest.write(register::QUEUE_SEL, 0);
    disk.guest.write(register::QUEUE_READY, 0);
    assert!(disk.desk.lock().unwrap().begun.is_empty());
    assert_eq!(
        (disk.used(), disk.guest.get(STATUS, 1)),
        (vec![], vec![0xff])
    );
    disk.guest.work();
    assert!(disk.used().is_empty());
}

/// A driver that offers a request which is under way breaks its own device.
#[test]
fn a_request_is_under_way_once() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.guest.work();
    disk.offer(0, 0, 7);
    disk.guest.work();
    assert_eq!(disk.guest.status() & NEEDS_RESET, NEEDS_RESET);
    // What was under way is waited for, and done.
    assert_eq!(disk.used(), [0]);
}

/// Requests that waited too long fail, also those that an earlier GDM had begun.
#[test]
fn what_was_under_way_fails_after_half_a_minute() {
    let mut disk = Slow::new();
    disk.offer(0, 0, 7);
    disk.guest.work();
    disk.guest.kill_gdm();
    disk.offer(1, 0, 8);
    let long_ago = crate::mapping::counter() - 31_000_000_000;
    disk.guest.state().set(Word::LastSeen, long_ago);
    let (block, desk) = patient(&disk.path, 1);
    disk.desk = desk;
    disk.guest.start_gdm(block);
    disk.guest.work();
    assert_eq!(
        (disk.used(), disk.guest.get(STATUS, 2)),
        (vec![0, 1], vec![1, 1])
    );
    assert!(disk.history().is_empty());
}

/// Each queue has its requests for itself, over a kill too.
#[test]
fn queues_go_on_beside_each_other() {
    let mut disk = Slow::with(3);
    assert_eq!(disk.guest.read(register::CONFIG + 32) >> 16, 3);
    for (queue, number, sector) in [(0, 0, 7), (1, 1, 8), (2, 2, 9), (1, 3, 10)] {
        disk.offer_to(queue, number, 0, sector);
    }
    disk.guest.work();
    disk.end(Some(10));
    let used = |disk: &Slow| [0, 1, 2].map(|queue| disk.guest.used_index(queue));
    assert_eq!((used(&disk), disk.guest.used(1, 0).0), ([0, 1, 0], 9));
    disk.restart();
    assert_eq!(disk.history(), [Some(7), Some(8), Some(9)]);
    for sector in [9, 8, 7] {
        disk.end(Some(sector));
    }
    assert_eq!((used(&disk), disk.guest.used(1, 1).0), ([1, 2, 1], 3));
    assert_eq!(disk.guest.get(STATUS, 4), [0; 4]);
}

/// Requests that are under way when the medium changes are the old medium's, and have ended.
#[test]
fn a_medium_is_taken_out_when_its_requests_have_ended() {
    let directory = Directory::new("disk");
    let path = directory.file("disk", &[7; SECTORS * 512]);
    let (block, desk) = patient(&path, 1);
    let mut guest = Guest::new(Box::new(crate::backend::rng::Rng));
    guest.kill_gdm();
    let orders = guest.start_gdm_with_orders(block);
    guest.initialise(FLUSH, 1);
    let mut disk = Slow {
        guest,
        desk,
        path,
        queues: 1,
        _directory: directory,
    };
    disk.offer(0, 0, 5);
    disk.offer(1, 4, 0);
    disk.guest.work();
    assert!(disk.used().is_empty());
    let answered = orders.ask(Order::Detach);
    disk.guest.work();
    assert_eq!(answered.try_recv(), Ok(Ok(0)));
    // Both were done, and those that follow fail.
    assert_eq!(
        (disk.used(), disk.guest.get(STATUS, 2)),
        (vec![0, 1], vec![0; 2])
    );
    disk.offer(2, 0, 5);
    disk.offer(3, 4, 0);
    disk.guest.work();
    assert_eq!(disk.guest.get(STATUS, 4), [0, 0, 1, 1]);
}

/// A queue whose requests are all slow leaves room for the others.
#[test]
fn a_full_queue_takes_no_room_of_others() {
    let mut disk = Slow::with(4);
    disk.guest.write(register::STATUS, 0);
    for queue in 0..4 {
        disk.guest.put(disk.guest.rings[queue].available(), &[0; 4]);
        disk.guest.rings[queue].size = 128;
    }
    disk.guest.initialise(FLUSH | MQ, 4);
    for number in 0..40 {
        disk.offer_to(0, number, 4, 0);
    }
    disk.guest.work();
    assert_eq!(disk.history().len(), 32);
    disk.offer_to(3, 41, 0, 5);
    disk.guest.work();
    assert_eq!(disk.history().len(), 33);
    // Each end makes room for one that waits.
    disk.end(None);
    assert_eq!(disk.history().len(), 34);
}

/// A queue that is always full keeps the limits' share from no other: requests pass in the order in
/// which they began to wait.
#[test]
fn a_full_queue_leaves_others_their_share_of_the_limits() {
    let mut disk = limited();
    for number in 0..4 {
        disk.offer_to(0, number, 0, 1);
    }
    disk.offer_to(1, 4, 0, 1);
    let begin = Instant::now();
    while disk.guest.used_index(1) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it starves");
        disk.guest.work();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(disk.guest.used_index(0) < 4);
}

/// A queue that its driver closes while a request of it waits for the limits keeps the limits' share
/// from no other.
#[test]
fn a_closed_queue_keeps_no_place_in_line() {
    let mut disk = limited();
    disk.offer_to(1, 0, 0, 1);
    disk.offer_to(1, 1, 0, 1);
    disk.guest.turn();
    disk.guest.write(register::QUEUE_SEL, 1);
    disk.guest.write(register::QUEUE_READY, 0);
    disk.offer_to(0, 2, 0, 1);
    let begin = Instant::now();
    while disk.guest.used_index(0) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it starves");
        disk.guest.work();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(disk.guest.status(), 0xf);
}

/// Returns a disk with two queues that does 100 requests a second for both together.
fn limited() -> Slow {
    let directory = Directory::new("disk");
    let path = directory.file("disk", &[0; SECTORS * 512]);
    let mut block = Block::open(&path, false).unwrap();
    block.queues = 2;
    block.limits = Shared::new([100, 0, 1]);
    let mut guest = Guest::new(Box::new(block));
    guest.initialise(FLUSH | MQ, 2);
    Slow {
        guest,
        desk: Arc::default(),
        path,
        queues: 2,
        _directory: directory,
    }
}
