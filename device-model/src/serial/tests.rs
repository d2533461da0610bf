//! Tests of the serial consoles on rings that a test writes as Gear2 does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

use gear2_protocol::{ConsoleBlock, DOORBELL_GEAR2, offset};
use vmm_sys_util::eventfd::EventFd;

use super::{Serials, file_name};
use crate::mapping::{Doorbell, Registers};
use crate::testing::{Directory, page, region};

struct Setup {
    serials: Serials,
    block: &'static ConsoleBlock,
    doorbells: Registers,
    directory: Directory,
}

fn setup() -> Setup {
    let directory = Directory::new("serial");
    let region = region();
    let doorbells = page();
    let doorbell = Doorbell {
        page: doorbells,
        offset: DOORBELL_GEAR2,
    };
    let names = ["linux".to_owned(), "../evil".to_owned()];
    let kick = EventFd::new(0).unwrap();
    let serials = Serials::open(region, &names, directory.text(), kick, doorbell).unwrap();
    Setup {
        serials,
        block: &region.consoles[0],
        doorbells,
        directory,
    }
}

impl Setup {
    fn connect(&mut self) -> UnixStream {
        let client = UnixStream::connect(self.directory.path().join("linux.serial")).unwrap();
        self.serials.turn(0);
        client
    }

    fn print(&self, bytes: &[u8]) {
        let ring = &self.block.ring;
        for byte in bytes {
            let at = ring.output_written.load(Relaxed);
            self.block.output[at as usize % offset::OUTPUT_SIZE].store(*byte, Relaxed);
            ring.output_written.store(at.wrapping_add(1), Relaxed);
        }
    }
}

fn read(client: &mut UnixStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_the_ring_holds_is_replayed_and_the_rest_follows() {
    let mut setup = setup();
    setup.print(b"boot\n");
    let mut client = setup.connect();
    assert_eq!(read(&mut client, 5), b"boot\n");
    setup.print(b"login:");
    setup.serials.turn(0);
    assert_eq!(read(&mut client, 6), b"login:");
}

#[test]
fn only_the_newest_bytes_are_kept_and_indices_wrap() {
    let mut setup = setup();
    let start = u32::MAX - 100;
    setup.block.ring.output_written.store(start, Relaxed);
    let text: Vec<u8> = (0..offset::OUTPUT_SIZE + 1000).map(|i| i as u8).collect();
    setup.print(&text);
    let mut client = UnixStream::connect(setup.directory.path().join("linux.serial")).unwrap();
    let mut got = Vec::new();
    while got.len() < offset::OUTPUT_SIZE {
        setup.serials.turn(0);
        // After the wrap the number of bytes ever written is not known; at least the newest come.
        let mut bytes = vec![0; 0x8000];
        client.set_nonblocking(true).unwrap();
        match client.read(&mut bytes) {
            Ok(length) => got.extend(&bytes[..length]),
            Err(_) => break,
        }
    }
    assert!(text.ends_with(&got) && got.len() > 1000, "{}", got.len());
}

#[test]
fn input_goes_as_far_as_there_is_room_and_rings() {
    let mut setup = setup();
    let mut client = setup.connect();
    setup.doorbells.store(DOORBELL_GEAR2, 0);
    client.write_all(&[b'x'; 5000]).unwrap();
    setup.serials.turn(0);
    let ring = &setup.block.ring;
    assert_eq!(ring.input_written.load(Relaxed), 4096);
    assert_eq!(setup.doorbells.load(DOORBELL_GEAR2), 1);
    setup.serials.turn(0);
    assert_eq!(ring.input_written.load(Relaxed), 4096);
    ring.input_read.store(4000, Relaxed);
    setup.serials.turn(0);
    assert_eq!(ring.input_written.load(Relaxed), 5000);
    assert_eq!(setup.block.input[0].load(Relaxed), b'x');
}

/// Turns until no event wakes the thread any longer, which must be soon: a descriptor that stays
/// ready would make the thread spin.
fn settle(setup: &mut Setup) {
    let woken = (0..20).take_while(|_| setup.serials.turn(0)).count();
    assert!(woken < 20, "the thread spins");
}

/// Turns until the client that has left is forgotten. A program that another test starts has its
/// descriptor for a moment.
fn forgets_its_client(setup: &mut Setup) -> bool {
    (0..10).any(|_| {
        setup.serials.turn(1000);
        setup.serials.serials[0].port.descriptors().1.is_none()
    })
}

#[test]
fn a_client_that_left_while_the_guest_does_not_read_wakes_nobody() {
    let mut setup = setup();
    let mut client = setup.connect();
    client.write_all(&[b'x'; 5000]).unwrap();
    drop(client);
    settle(&mut setup);
    let ring = &setup.block.ring;
    assert_eq!(ring.input_written.load(Relaxed), 4096);
    // Bytes sent before the client left still become input once the ring has room; then the client
    // is forgotten.
    ring.input_read.store(4096, Relaxed);
    setup.serials.turn(0);
    assert_eq!(ring.input_written.load(Relaxed), 5000);
    settle(&mut setup);
    assert!(forgets_its_client(&mut setup));
}

#[test]
fn what_was_typed_before_the_client_left_is_input_though_the_guest_prints() {
    let mut setup = setup();
    let mut client = setup.connect();
    client.write_all(&[b'x'; 5000]).unwrap();
    setup.serials.turn(0);
    drop(client);
    setup.print(b"an echo for nobody");
    settle(&mut setup);
    setup.block.ring.input_read.store(4096, Relaxed);
    settle(&mut setup);
    assert_eq!(setup.block.ring.input_written.load(Relaxed), 5000);
    assert!(forgets_its_client(&mut setup));
}

#[test]
fn clients_that_send_junk_and_leave_wake_nobody() {
    let mut setup = setup();
    for _ in 0..40 {
        let mut client = setup.connect();
        client.write_all(&[b'x'; 1000]).unwrap();
        setup.serials.turn(0);
    }
    settle(&mut setup);
}

#[test]
fn a_name_stays_in_the_directory() {
    assert_eq!(file_name("../e vil"), "___e_vil");
    let setup = setup();
    assert!(setup.directory.path().join("___evil.serial").exists());
}

/// A guest takes a FIFO of 16 bytes at a time from a full ring, and GDM's thread is woken for
/// output meanwhile: what was pasted moves on by the half ring.
#[test]
fn pasted_input_rings_for_half_a_ring() {
    const PASTED: u32 = 40_000;
    let mut setup = setup();
    let mut client = setup.connect();
    // The socket has room for all of it.
    client.write_all(&[b'x'; PASTED as usize]).unwrap();
    let ring = &setup.block.ring;
    let mut rings = 0;
    while ring.input_read.load(Relaxed) < PASTED {
        setup.doorbells.store(DOORBELL_GEAR2, 0);
        setup.serials.turn(0);
        rings += setup.doorbells.load(DOORBELL_GEAR2);
        let (read, written) = (ring.input_read.load(Relaxed), &ring.input_written);
        let taken = 16.min(written.load(Relaxed) - read);
        ring.input_read.store(read + taken, Relaxed);
    }
    assert!(
        rings <= 1 + 2 * PASTED / offset::INPUT_SIZE as u32,
        "{rings}"
    );
}
