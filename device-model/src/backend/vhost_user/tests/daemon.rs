//! A disk served by Debian's qemu-storage-daemon, unmodified: a part of the suite says where that
//! program is, by `GEARV_STORAGE_DAEMON`.

use std::fs;
use std::process::{Child, Command};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};

use super::super::session::Bounds;
use super::debian::{self, Daemon, guest_within};
use super::{LONG, arrivals, bounds, node, until};
use crate::board::DeviceKind;
use crate::sandbox::{self, Role};
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest};
use crate::transport::register;

const SECTORS: u64 = 2048;
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
/// VIRTIO_BLK_F_FLUSH.
const FLUSH: u64 = 1 << 9;
/// Memory of a request: header, status, data.
const ROOM: u64 = 0x4000;

/// Requests a second of a disk that is limited.
const LIMIT: u16 = 40;

/// Returns a program of the package, by its name.
fn program(name: &str) -> Command {
    debian::command(debian::path("GEARV_STORAGE_DAEMON").with_file_name(name))
}

mod hostile;

impl Daemon {
    /// Starts one with a disk of zeroes.
    fn with_disk() -> Self {
        let directory = Directory::new("daemon");
        directory.file("disk", &vec![0; (SECTORS * SECTOR) as usize]);
        Self::start(directory, run)
    }

    /// Starts one whose image is qcow2, at [`LIMIT`] requests a second.
    fn with_limit() -> Self {
        let directory = Directory::new("qcow2");
        let image = directory.path().join("disk");
        let mut command = program("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]).arg(&image);
        let made = command.arg((SECTORS * SECTOR).to_string()).status();
        assert!(made.unwrap().success());
        Self::start(directory, run_with_limit)
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.directory.path().join("disk")).unwrap()
    }
}

fn run(directory: &Directory) -> Child {
    let mut command = program("qemu-storage-daemon");
    command.arg("--blockdev");
    let folder = directory.text();
    command.arg(format!("driver=file,node-name=disk,filename={folder}/disk"));
    export(command, directory)
}

fn run_with_limit(directory: &Directory) -> Child {
    let mut command = program("qemu-storage-daemon");
    let group = format!("throttle-group,id=limit,limits.iops-total={LIMIT}");
    command.args(["--object", &group]);
    let folder = directory.text();
    let image = format!("driver=file,node-name=file,filename={folder}/disk");
    command.args(["--blockdev", &image]);
    command.args(["--blockdev", "driver=qcow2,node-name=image,file=file"]);
    let limited = "driver=throttle,node-name=disk,throttle-group=limit,file=image";
    command.args(["--blockdev", limited]);
    export(command, directory)
}

fn export(mut command: Command, directory: &Directory) -> Child {
    let folder = directory.text();
    command.arg("--export").arg(format!(
        "type=vhost-user-blk,id=disk,node-name=disk,writable=on,\
         addr.type=unix,addr.path={folder}/socket"
    ));
    command.spawn().unwrap()
}

/// A guest with the daemon's disk, whose driver is ready.
fn start(daemon: &Daemon) -> Guest {
    start_within(daemon, bounds(LONG))
}

/// A guest as [`start`] makes it, whose GDM waits no longer than this for the daemon.
fn start_within(daemon: &Daemon, bounds: Bounds) -> Guest {
    let mut guest = guest_within(node(&daemon.socket()), 2, bounds);
    assert_eq!(u64::from(guest.read(register::CONFIG)), SECTORS);
    guest.initialise(FLUSH, 1);
    guest
}

/// Offers a request of a block whose memory is the `slot`th.
fn offer(guest: &mut Guest, slot: u16, kind: u32, block: u64, fill: Option<u8>) {
    let room = DATA + ROOM * u64::from(slot);
    guest.put(room, &u64::from(kind).to_le_bytes());
    guest.put(room + 8, &(block * BLOCK / SECTOR).to_le_bytes());
    guest.put(room + 16, &[0xff]);
    let data = room + BLOCK;
    if let Some(byte) = fill {
        guest.put(data, &[byte; BLOCK as usize]);
    }
    let is_read = kind == VIRTIO_BLK_T_IN;
    let mut pieces = vec![(room, 16, false), (room + 16, 1, true)];
    if kind != VIRTIO_BLK_T_FLUSH {
        pieces.insert(1, (data, BLOCK as u32, is_read));
    }
    guest.request(0, 3 * slot, &pieces);
}

fn status(guest: &Guest, slot: u16) -> u8 {
    guest.get(DATA + ROOM * u64::from(slot) + 16, 1)[0]
}

fn done(count: u16) -> impl Fn(&Guest) -> bool {
    move |guest| guest.used_index(0) == count
}

/// Writes, flushes and reads back; the file has the data, and a reset leaves the device usable.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_disk_is_written_and_read() {
    let daemon = Daemon::with_disk();
    let mut guest = start(&daemon);
    for round in 0..2 {
        let fill = 0x51 + round;
        offer(&mut guest, 0, VIRTIO_BLK_T_OUT, 5, Some(fill));
        until(&mut guest, "a write", done(1));
        offer(&mut guest, 1, VIRTIO_BLK_T_FLUSH, 0, None);
        until(&mut guest, "a flush", done(2));
        offer(&mut guest, 2, VIRTIO_BLK_T_IN, 5, None);
        until(&mut guest, "a read", done(3));
        assert!(guest.interrupted());
        assert_eq!([0, 1, 2].map(|slot| status(&guest, slot)), [0; 3]);
        let read = guest.get(DATA + 2 * ROOM + BLOCK, BLOCK as usize);
        assert_eq!(read, [fill; BLOCK as usize]);
        assert_eq!(daemon.content()[5 * BLOCK as usize], fill);
        reset(&mut guest);
    }
    assert_eq!(guest.state().get(Word::Breaks), 0);
}

/// A disk whose image is qcow2 and whose requests are limited: the image has the data, and takes no
/// more of them than it may.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_disk_may_be_an_image_with_a_limit() {
    const WRITES: u16 = 20;
    let daemon = Daemon::with_limit();
    let mut guest = start(&daemon);
    let begin = Instant::now();
    for count in 1..=WRITES {
        let block = u64::from(count);
        offer(&mut guest, 0, VIRTIO_BLK_T_OUT, block, Some(count as u8));
        until(&mut guest, "a write", done(count));
        assert_eq!(status(&guest, 0), 0);
    }
    // A tenth of a second's requests may come at once.
    let at_once = LIMIT / 10;
    let least = Duration::from_secs((WRITES - at_once - 1).into()) / LIMIT.into();
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    offer(&mut guest, 1, VIRTIO_BLK_T_IN, WRITES.into(), None);
    until(&mut guest, "a read", done(WRITES + 1));
    let read = guest.get(DATA + ROOM + BLOCK, BLOCK as usize);
    assert_eq!(read, [WRITES as u8; BLOCK as usize]);
    let image = daemon.content();
    assert!(image.starts_with(b"QFI\xfb"));
    assert!(
        image.len() < (SECTORS * SECTOR) as usize,
        "clusters that nobody wrote are there"
    );
}

/// Resets the device as its driver does, with rings as new for the next use.
fn reset(guest: &mut Guest) {
    guest.write(register::STATUS, 0);
    assert_eq!(guest.state().get(Word::InKernel), 0);
    guest.rings[0].added = 0;
    guest.put(guest.rings[0].available(), &[0; 0x20]);
    guest.put(guest.rings[0].used(), &[0; 0x20]);
    guest.initialise(FLUSH, 1);
}

/// The daemon is killed in the middle of writes, many times. No write is lost and none fails.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_daemon_that_dies_loses_nothing() {
    const KILLS: u8 = 12;
    const BATCH: u16 = 5;
    let mut daemon = Daemon::with_disk();
    let mut guest = start(&daemon);
    let mut last = [0; BATCH as usize];
    for round in 0..KILLS {
        let before = guest.used_index(0);
        for slot in 0..BATCH {
            let fill = 16 * (round % 15) + slot as u8 + 1;
            offer(
                &mut guest,
                slot,
                VIRTIO_BLK_T_OUT,
                u64::from(slot),
                Some(fill),
            );
            last[usize::from(slot)] = fill;
        }
        // From no request at all in the daemon's hands to all of them done.
        for _ in 0..round {
            guest.turn();
        }
        daemon.kill();
        guest.turn();
        daemon.restart();
        until(&mut guest, "all writes", done(before.wrapping_add(BATCH)));
        for slot in 0..BATCH {
            assert_eq!(status(&guest, slot), 0, "write {slot} of round {round}");
        }
    }
    let content = daemon.content();
    for (block, fill) in last.iter().enumerate() {
        let from = block * BLOCK as usize;
        let there = &content[from..from + BLOCK as usize];
        assert!(there.iter().all(|byte| byte == fill), "block {block}");
    }
    assert_eq!(
        guest.state().get(Word::Requests),
        u64::from(BATCH) * u64::from(KILLS)
    );
}

/// The thread of the device loses its backend and takes up the next one under its filter, which
/// ends the whole process for any other call.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_thread_that_is_restricted_takes_up_the_next_daemon() {
    let mut daemon = Daemon::with_disk();
    let mut guest = start(&daemon);
    let (kill, killed) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sandbox::enter(Role::FrontEnd).unwrap();
            offer(&mut guest, 0, VIRTIO_BLK_T_OUT, 1, Some(0x11));
            until(&mut guest, "a write", done(1));
            kill.wait();
            until(&mut guest, "the end", |_| killed.load(Ordering::Relaxed));
            offer(&mut guest, 1, VIRTIO_BLK_T_OUT, 2, Some(0x22));
            until(&mut guest, "a write", done(2));
            guest.write(register::STATUS, 0);
        });
        kill.wait();
        daemon.kill();
        daemon.restart();
        killed.store(true, Ordering::Relaxed);
    });
    let content = daemon.content();
    assert_eq!([1, 2].map(|block| content[block * 4096]), [0x11, 0x22]);
}

/// GDM is killed with requests in the daemon's hands: the next GDM goes on with them.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_gdm_that_dies_loses_nothing() {
    const BATCH: u16 = 5;
    let daemon = Daemon::with_disk();
    let mut guest = start(&daemon);
    for round in 0..8 {
        let before = guest.used_index(0);
        for slot in 0..BATCH {
            let fill = 16 * round + slot as u8 + 1;
            offer(
                &mut guest,
                slot,
                VIRTIO_BLK_T_OUT,
                u64::from(slot),
                Some(fill),
            );
        }
        for _ in 0..=round % 3 {
            guest.turn();
        }
        guest.kill_gdm();
        guest.start_gdm_of(arrivals(node(&daemon.socket()), bounds(LONG)));
        until(&mut guest, "all writes", done(before.wrapping_add(BATCH)));
        let content = daemon.content();
        for slot in 0..BATCH {
            assert_eq!(status(&guest, slot), 0);
            let fill = 16 * round + slot as u8 + 1;
            assert_eq!(content[usize::from(slot) * BLOCK as usize], fill);
        }
    }
}

/// A daemon that comes late is waited for, and what is there instead is named.
#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_daemon_may_come_late() {
    let mut daemon = Daemon::with_disk();
    let mut guest = start(&daemon);
    daemon.kill();
    guest.kill_gdm();
    let kind = DeviceKind::VhostUser(2);
    let later = guest.start_gdm_without(kind);
    offer(&mut guest, 0, VIRTIO_BLK_T_OUT, 7, Some(0x77));
    guest.work();
    assert_eq!((guest.used_index(0), guest.status()), (0, 0xf));
    daemon.restart();
    let arrival = arrivals(node(&daemon.socket()), bounds(LONG));
    later.send(arrival.recv().unwrap()).unwrap();
    until(&mut guest, "the write", done(1));
    assert_eq!(daemon.content()[7 * BLOCK as usize], 0x77);
}
