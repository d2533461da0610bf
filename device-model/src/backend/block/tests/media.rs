//! A disk that loses power, one that is slow, and what may be left of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gear2_protocol::Region;
use gear2_protocol::device_word::RESET_ASKED;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::super::media::{Geometry, Media, Piece, Work};
use super::super::{Block, RANGE_PIECE};
use super::{BUFFER, FLUSH, HEADER, STATUS};
use crate::overlap::Ended;
use crate::progress::{self, Health, STUCK_LOOKS, Watch};
use crate::sys::{self, Direction};
use crate::testing::{CHANNEL, Directory, Guest};

const SECTORS: usize = 64;
const SECTOR: usize = 512;

/// Sectors that are written but not durable.
type Cache = BTreeMap<usize, [u8; SECTOR]>;

/// Contents of the disk and of the caches in front of it.
#[derive(Debug)]
struct Platter {
    durable: Vec<[u8; SECTOR]>,
    /// Cache of the disk, lost with power.
    disk_cache: Cache,
    /// Page cache of the device VM's kernel, lost with that kernel.
    page_cache: Cache,
    /// Whether the disk can zero ranges.
    zeroes: bool,
    /// Number of operations before the guest's VM is stopped.
    stop_in: Option<(usize, &'static Region)>,
    /// Operations since the stop.
    after_stop: usize,
    /// Each operation takes this many looks of the hub.
    stall: Option<(u32, Watch)>,
    /// Result of the last look that found a thread not well.
    health: Health,
}

impl Platter {
    fn note(&mut self) {
        if let Some((looks, watch)) = &mut self.stall {
            for _ in 0..*looks {
                match watch.look() {
                    Health::Well => {}
                    health => self.health = health,
                }
            }
        }
        let Some((left, region)) = &mut self.stop_in else {
            return;
        };
        if *left == 0 {
            self.after_stop += 1;
            return;
        }
        *left -= 1;
        if *left == 0 {
            region.devices[CHANNEL][RESET_ASKED].store(1, Ordering::Relaxed);
        }
    }

    fn read(&self, sector: usize) -> [u8; SECTOR] {
        let cached = self.page_cache.get(&sector);
        let cached = cached.or_else(|| self.disk_cache.get(&sector));
        cached.copied().unwrap_or(self.durable[sector])
    }

    fn write(&mut self, offset: u64, bytes: &[u8], through_page_cache: bool) {
        let first = offset as usize / SECTOR;
        for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR)) {
            let bytes: [u8; SECTOR] = bytes.try_into().unwrap();
            if through_page_cache {
                self.page_cache.insert(sector, bytes);
            } else {
                self.page_cache.remove(&sector);
                self.disk_cache.insert(sector, bytes);
            }
        }
    }

    fn sync(&mut self) {
        let cached = std::mem::take(&mut self.disk_cache);
        let cached = cached
            .into_iter()
            .chain(std::mem::take(&mut self.page_cache));
        for (sector, bytes) in cached {
            self.durable[sector] = bytes;
        }
    }

    /// The device VM's kernel ends.
    fn crash(&mut self) {
        self.page_cache.clear();
    }

    fn lose_power(&mut self) {
        self.page_cache.clear();
        self.disk_cache.clear();
    }
}

/// The disk as the backend sees it.
#[derive(Debug)]
struct Volatile {
    platter: Arc<Mutex<Platter>>,
    /// Data goes from and to guests' memory by the kernel.
    scratch: File,
    /// Requests done that nobody is told of yet.
    done: Vec<Ended>,
}

impl Volatile {
    fn platter(&self) -> MutexGuard<'_, Platter> {
        let mut platter = self.platter.lock().unwrap();
        platter.note();
        platter
    }

    fn transfer(&self, piece: Piece<'_>, through_page_cache: bool) -> io::Result<usize> {
        let mut platter = self.platter();
        let length = piece.vectors.iter().map(|v| v.iov_len).sum();
        let mut bytes = vec![0; length];
        if piece.direction == Direction::Write {
            sys::transfer(&self.scratch, piece.direction, piece.vectors, 0)?;
            self.scratch.read_exact_at(&mut bytes, 0)?;
            platter.write(piece.offset, &bytes, through_page_cache);
            return Ok(length);
        }
        let first = piece.offset as usize / SECTOR;
        for (sector, bytes) in (first..).zip(bytes.chunks_mut(SECTOR)) {
            bytes.copy_from_slice(&platter.read(sector));
        }
        self.scratch.write_all_at(&bytes, 0)?;
        sys::transfer(&self.scratch, piece.direction, piece.vectors, 0)
    }
}

impl Media for Volatile {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: (SECTORS * SECTOR) as u64,
            block_size: SECTOR as u32,
            is_device: true,
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.geometry().bytes)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn begin(&mut self, number: u64, work: Work<'_>) {
        let result = match work {
            Work::Direct(piece) => self.transfer(piece, false),
            Work::Buffered(piece) => self.transfer(piece, true),
            Work::Sync => self.sync().map(|()| 0),
        };
        self.done.push((number, result.map(|moved| moved as u64)));
    }

    fn ended(&mut self, _patience: Duration) -> Vec<Ended> {
        std::mem::take(&mut self.done)
    }

    fn settle(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.done)
    }

    fn is_fresh(&self) -> bool {
        !self.done.is_empty()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn sync(&self) -> io::Result<()> {
        self.platter().sync();
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        drop(self.platter());
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _unmap: bool) -> io::Result<()> {
        let mut platter = self.platter();
        if !platter.zeroes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        platter.write(offset, &vec![0; length as usize], false);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.platter().write(offset, bytes, true);
        Ok(())
    }
}

/// A guest with such a disk.
struct Powered {
    guest: Guest,
    platter: Arc<Mutex<Platter>>,
    _directory: Directory,
}

impl Powered {
    fn new(features: u64, zeroes: bool) -> Self {
        let directory = Directory::new("power");
        let path = directory.file("scratch", &[]);
        let scratch = File::options().read(true).write(true).open(path).unwrap();
        let platter = Arc::new(Mutex::new(Platter {
            durable: vec![[0; SECTOR]; SECTORS],
            disk_cache: Cache::new(),
            page_cache: Cache::new(),
            zeroes,
            stop_in: None,
            after_stop: 0,
            stall: None,
            health: Health::Well,
        }));
        let media = Volatile {
            platter: Arc::clone(&platter),
            scratch,
            done: Vec::new(),
        };
        let mut guest = Guest::new(Box::new(Block::new(Box::new(media), "volatile", false)));
        guest.initialise(features, 1);
        Self {
            guest,
            platter,
            _directory: directory,
        }
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().unwrap()
    }

    fn offer(&mut self, number: u16, kind: u32, sector: u64, data: Option<(u64, u32)>) {
        let header = HEADER + 16 * u64::from(number);
        self.guest.put(header, &u64::from(kind).to_le_bytes());
        self.guest.put(header + 8, &sector.to_le_bytes());
        let status = STATUS + u64::from(number);
        self.guest.put(status, &[0xff]);
        let mut pieces = vec![(header, 16, false)];
        pieces.extend(data.map(|(address, length)| (address, length, kind == 0)));
        pieces.push((status, 1, true));
        self.guest.request(0, 3 * number, &pieces);
    }

    fn request(&mut self, kind: u32, sector: u64, data: Option<(u64, u32)>) {
        self.offer(0, kind, sector, data);
        self.guest.work();
        assert_eq!(self.guest.get(STATUS, 1), [0]);
    }

    fn write(&mut self, sector: usize, value: u8, aligned: bool) {
        let at = if aligned { BUFFER } else { BUFFER + 4 };
        self.guest.put(at, &[value; SECTOR]);
        self.request(1, sector as u64, Some((at, SECTOR as u32)));
    }

    fn zero(&mut self, sector: usize, count: u32) {
        let range = (sector as u64).to_le_bytes();
        self.guest.put(BUFFER, &range);
        self.guest.put(BUFFER + 8, &u64::from(count).to_le_bytes());
        self.request(13, 0, Some((BUFFER, 16)));
    }

    fn flush(&mut self) {
        self.request(4, 0, None);
    }
}

#[test]
fn what_was_flushed_survives_a_loss_of_power() {
    let mut disk = Powered::new(FLUSH, true);
    disk.write(3, 0xa5, true);
    disk.flush();
    disk.write(4, 0xa6, true);
    disk.platter().lose_power();
    assert_eq!(disk.platter().read(3), [0xa5; SECTOR]);
    assert_eq!(disk.platter().read(4), [0; SECTOR], "the model loses it");
}

/// No message tells the guest that the page cache is gone, so acknowledged data must not depend on
/// it.
#[test]
fn what_was_written_survives_a_crash_of_the_device_vm() {
    for zeroes in [true, false] {
        let mut disk = Powered::new(FLUSH, zeroes);
        disk.write(3, 0xa5, true);
        disk.write(4, 0xa6, false);
        disk.write(5, 0xa7, false);
        disk.zero(5, 1);
        disk.platter().crash();
        assert_eq!(disk.platter().read(3), [0xa5; SECTOR]);
        assert_eq!(disk.platter().read(4), [0xa6; SECTOR]);
        assert_eq!(disk.platter().read(5), [0; SECTOR]);
    }
}

#[test]
fn a_driver_that_knows_no_flush_gets_a_disk_without_a_cache() {
    for zeroes in [true, false] {
        let mut disk = Powered::new(0, zeroes);
        disk.write(3, 0xa5, true);
        disk.write(4, 0xa6, false);
        disk.write(5, 0xa7, true);
        disk.zero(5, 1);
        disk.platter().lose_power();
        assert_eq!(disk.platter().read(3), [0xa5; SECTOR]);
        assert_eq!(disk.platter().read(4), [0xa6; SECTOR]);
        assert_eq!(disk.platter().read(5), [0; SECTOR]);
    }
}

/// A disk may stall for minutes: the device's thread is not stuck meanwhile.
#[test]
fn a_thread_that_waits_for_its_disk_is_well() {
    let mut disk = Powered::new(FLUSH, true);
    let mut watch = Watch::default();
    progress::begin(&watch.add("linux/block0"));
    disk.platter().stall = Some((2 * STUCK_LOOKS, watch));
    disk.write(1, 0xaa, true);
    disk.write(2, 0xbb, false);
    disk.zero(3, 4);
    disk.flush();
    for number in 0..4 {
        let data = Some((BUFFER + 0x400 * u64::from(number), SECTOR as u32));
        disk.offer(number, 0, number.into(), data);
    }
    disk.guest.work();
    assert_eq!(disk.platter().health, Health::Well);
    let stall = disk.platter().stall.take();
    let (looks, mut watch) = stall.unwrap();
    let last = (0..looks).map(|_| watch.look()).last();
    assert_eq!(last, Some(Health::Stuck("linux/block0".into())));
}

/// A turn of a guest that was stopped begins nothing more, and tells it nothing.
#[test]
fn a_stopped_guest_is_left_alone_in_the_middle_of_a_turn() {
    for stop_in in 1..6 {
        let mut disk = Powered::new(FLUSH, false);
        let region = disk.guest.region;
        // Not aligned: one after the other, and then a flush.
        for number in 0..4 {
            let data = Some((BUFFER + 4 + 0x400 * u64::from(number), SECTOR as u32));
            disk.offer(number, 0, number.into(), data);
        }
        disk.offer(4, 4, 0, None);
        disk.platter().stop_in = Some((stop_in, region));
        assert!(disk.guest.turn(), "it looks again at once");
        assert_eq!(disk.platter().after_stop, 0);
        // What had ended by then may be completed, and the one that was under way is not.
        assert!(usize::from(disk.guest.used_index(0)) < stop_in);
        disk.guest.work();
        assert_eq!(disk.guest.state().reset_asked(), None);
        assert_eq!(disk.platter().after_stop, 0);
    }
}

/// The next step of a request that moved its data does not begin either: writes that went through
/// the page cache are not synced any more.
#[test]
fn a_stopped_guests_requests_do_not_go_on() {
    for stop_in in 1..8 {
        let mut disk = Powered::new(FLUSH, false);
        let region = disk.guest.region;
        for number in 0..4 {
            let data = Some((BUFFER + 4 + 0x400 * u64::from(number), SECTOR as u32));
            disk.offer(number, 1, number.into(), data);
        }
        disk.platter().stop_in = Some((stop_in, region));
        disk.guest.work();
        assert_eq!(disk.guest.state().reset_asked(), None);
        assert_eq!(disk.platter().after_stop, 0);
    }
}

/// Neither does a long request: 16 ranges of 2 GiB are cut into pieces.
#[test]
fn a_stopped_guest_does_not_wait_for_a_long_request() {
    let mut disk = Powered::new(FLUSH, false);
    let region = disk.guest.region;
    let sectors = SECTORS as u64;
    for index in 0..16 {
        disk.guest.put(BUFFER + 16 * index, &[0; 8]);
        disk.guest
            .put(BUFFER + 16 * index + 8, &sectors.to_le_bytes());
    }
    disk.offer(0, 13, 0, Some((BUFFER, 256)));
    disk.platter().stop_in = Some((3, region));
    disk.guest.work();
    assert_eq!(disk.platter().after_stop, 0);
    assert_eq!((disk.guest.used_index(0), disk.guest.status()), (0, 0));
    const { assert!(RANGE_PIECE <= 64 << 20) };
}

/// A request to the disk, or an event that happens to it.
#[derive(Clone, Debug)]
enum Step {
    Write {
        sector: usize,
        value: u8,
        aligned: bool,
    },
    Zero(usize),
    Flush,
    Crash,
    LosePower,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..8_usize, any::<u8>(), any::<bool>());
    prop_oneof![
        6 => write.prop_map(|(sector, value, aligned)| Step::Write { sector, value, aligned }),
        1 => (0..8_usize).prop_map(Step::Zero),
        2 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => Just(Step::LosePower),
    ]
}

proptest! {
    /// After any history a sector holds the data acknowledged last. After a loss of power it holds
    /// data that was acknowledged at the last flush or since.
    #[test]
    fn no_history_loses_what_was_acknowledged(
        steps in vec(step(), 1..40),
        zeroes in any::<bool>(),
        write_through in any::<bool>(),
    ) {
        let features = if write_through { 0 } else { FLUSH };
        let mut disk = Powered::new(features, zeroes);
        // Values that each sector may hold after a loss of power; the last is the value without a
        // loss.
        let mut may_hold = vec![vec![0_u8]; 8];
        for step in steps {
            let mut settle = write_through;
            match step {
                Step::Write { sector, value, aligned } => {
                    disk.write(sector, value, aligned);
                    may_hold[sector].push(value);
                }
                Step::Zero(sector) => {
                    disk.zero(sector, 1);
                    may_hold[sector].push(0);
                }
                Step::Flush => {
                    disk.flush();
                    settle = true;
                }
                Step::Crash => disk.platter().crash(),
                Step::LosePower => {
                    disk.platter().lose_power();
                    for (sector, values) in may_hold.iter_mut().enumerate() {
                        let [left, ..] = disk.platter().read(sector);
                        assert!(values.contains(&left), "sector {sector}: {left} not of {values:?}");
                        *values = vec![left];
                    }
                }
            }
            for (sector, values) in may_hold.iter_mut().enumerate() {
                if settle {
                    *values = values.last().copied().into_iter().collect();
                }
                let held = disk.platter().read(sector);
                assert_eq!(held, [*values.last().unwrap(); SECTOR], "sector {sector}");
            }
        }
    }
}
