//! A graphics card served by Debian's vhost-user-gpu, unmodified: a part of the suite says where
//! that program is, by `GEARV_GRAPHICS`.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hostile_driver::Kind;

use super::debian::{self, Daemon, guest_of, guest_within};
use super::impatient;
use super::{node, until};
use crate::board::{DeviceKind, DeviceNode};
use crate::frame::{self, Picture};
use crate::state::Word;
use crate::testing::{CHANNEL, DATA, Directory, Guest};
use crate::transport::register;
use crate::worker::tests::hostile::Attacked;

/// Device type of a graphics card.
const GPU: u32 = 16;
/// Requests (virtio 1.2, 5.7.6.7).
const GET_DISPLAY_INFO: u32 = 0x100;
const CREATE_2D: u32 = 0x101;
const SET_SCANOUT: u32 = 0x103;
const FLUSH: u32 = 0x104;
const TRANSFER_TO_HOST_2D: u32 = 0x105;
const ATTACH_BACKING: u32 = 0x106;
/// Answers.
const OK: u32 = 0x1100;
const OK_DISPLAY_INFO: u32 = 0x1101;
const INVALID_RESOURCE: u32 = 0x1203;
/// `VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM`.
const FORMAT: u32 = 2;
/// Size of the frame, and place of its pixels.
const WIDTH: u32 = 32;
const HEIGHT: u32 = 16;
const PIXELS: u64 = DATA + 0x1_0000;
const ANSWER: u64 = DATA + 0x4000;
const ROOM: u32 = 512;
/// Random attacks beside the listed ones.
const ATTACKS: u64 = 60;
/// Words of a request's header.
const HEADER: usize = 6;

fn start() -> Daemon {
    Daemon::start(Directory::new("gpu"), run)
}

fn run(directory: &Directory) -> Child {
    let mut command = debian::command(debian::path("GEARV_GRAPHICS"));
    let socket = format!("{}/socket", directory.text());
    let _ = std::fs::remove_file(&socket);
    command.args(["--socket-path", &socket]);
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn card(program: &Daemon) -> DeviceNode {
    let mut node = node(&program.socket());
    node.kind = DeviceKind::VhostUser(GPU);
    (node.queues, node.config_size) = (2, 16);
    node
}

/// Reads the screen that GDM keeps beside the socket.
fn picture(program: &Daemon) -> Picture {
    let path = frame::path(program.directory.text(), CHANNEL as u64);
    Picture::read(Path::new(&path)).unwrap()
}

/// A guest whose driver draws.
struct Card {
    guest: Guest,
    asked: u16,
}

impl Card {
    fn start(program: &Daemon) -> Self {
        let mut guest = guest_of(card(program), GPU);
        let screens = register::CONFIG + 8;
        assert_eq!(guest.read(screens), 1);
        guest.initialise(0, 2);
        Self { guest, asked: 0 }
    }

    /// Asks, and returns the words of the answer.
    fn ask(&mut self, request: u32, body: &[u32]) -> Vec<u32> {
        let mut words = vec![request];
        words.resize(HEADER, 0);
        words.extend(body);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.guest.put(DATA, &bytes);
        let pieces = [(DATA, bytes.len() as u32, false), (ANSWER, ROOM, true)];
        self.guest.request(0, 0, &pieces);
        self.asked += 1;
        let asked = self.asked;
        until(&mut self.guest, "an answer", |guest| {
            guest.used_index(0) == asked
        });
        let answer = self.guest.get(ANSWER, ROOM as usize);
        let (words, _) = answer.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// Makes a frame of the guest's memory and shows it.
    fn show(&mut self) -> [u32; 4] {
        let bytes = WIDTH * HEIGHT * 4;
        let place = [PIXELS as u32, (PIXELS >> 32) as u32, bytes, 0];
        let whole = [0, 0, WIDTH, HEIGHT];
        let create = self.ask(CREATE_2D, &[1, FORMAT, WIDTH, HEIGHT]);
        let attach = self.ask(ATTACH_BACKING, &[&[1, 1], &place[..]].concat());
        let scanout = self.ask(SET_SCANOUT, &[&whole[..], &[0, 1]].concat());
        let flush = self.draw();
        [create, attach, scanout, flush].map(|answer| answer[0])
    }

    /// Draws the frame, and tells the device to show it.
    fn draw(&mut self) -> Vec<u32> {
        let pixels = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| [x as u8, y as u8, 0x77, 0]));
        let bytes: Vec<u8> = pixels.flatten().collect();
        self.guest.put(PIXELS, &bytes);
        let whole = [0, 0, WIDTH, HEIGHT];
        self.ask(TRANSFER_TO_HOST_2D, &[&whole[..], &[0, 0, 1, 0]].concat());
        self.ask(FLUSH, &[&whole[..], &[1, 0]].concat())
    }
}

/// Waits until the screen shows what [`Card::draw`] draws.
fn shows_the_drawing(card: &mut Card, program: &Daemon) {
    let pixels = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| [0x77, y as u8, x as u8]));
    let colours: Vec<u8> = pixels.flatten().collect();
    until(&mut card.guest, "the frame", |_| {
        picture(program).colours == colours
    });
    assert_eq!(picture(program).width, WIDTH);
}

/// A guest draws, and the screen has the frame. A program that is killed takes what the driver made
/// with it, which ends the requests with an error; a driver that sets the card up anew draws again.
#[test]
#[ignore = "needs vhost-user-gpu: a part of the suite runs it"]
fn a_screen_shows_what_a_guest_draws() {
    let mut program = start();
    let mut card = Card::start(&program);
    let answer = card.ask(GET_DISPLAY_INFO, &[]);
    assert_eq!(answer[0], OK_DISPLAY_INFO);
    assert_eq!(answer[HEADER..HEADER + 5], [0, 0, 1024, 768, 1]);
    assert_eq!(card.show(), [OK; 4]);
    shows_the_drawing(&mut card, &program);

    program.kill();
    program.restart();
    assert_eq!(card.draw()[0], INVALID_RESOURCE);
    assert!(
        picture(&program).colours.is_empty(),
        "the screen is another one"
    );
    assert_eq!(card.show(), [OK; 4]);
    shows_the_drawing(&mut card, &program);
    assert_eq!(card.guest.state().get(Word::Breaks), 0);
}

/// A driver that resets the card has forgotten what it made, and makes the same again.
#[test]
#[ignore = "needs vhost-user-gpu: a part of the suite runs it"]
fn a_reset_makes_the_card_as_new() {
    let mut program = start();
    let mut card = Card::start(&program);
    assert_eq!(card.show(), [OK; 4]);
    card.guest.write(register::STATUS, 0);
    // The program ends with its connection.
    program.child.wait().unwrap();
    program.restart();
    for ring in &mut card.guest.rings {
        ring.added = 0;
    }
    for queue in 0..2 {
        let ring = card.guest.rings[queue];
        card.guest.put(ring.available(), &[0; 0x30]);
        card.guest.put(ring.used(), &[0; 0x90]);
    }
    card.guest.initialise(0, 2);
    card.asked = 0;
    assert_eq!(card.show(), [OK; 4]);
    shows_the_drawing(&mut card, &program);
}

/// A guest that breaks every rule costs its own card alone: memory that it did not hand over stays,
/// and a driver that sets the card up anew draws.
#[test]
#[ignore = "needs vhost-user-gpu: a part of the suite runs it"]
fn a_hostile_guest_costs_its_own_card_alone() {
    let mut program = start();
    let guest = guest_within(card(&program), GPU, impatient());
    let is_over = AtomicBool::new(false);
    let mut guest = thread::scope(|scope| {
        let watch = scope.spawn(|| program.keep_alive(&is_over));
        let mut attacked = Attacked::over(guest);
        let counts = attacked.attack_elsewhere(Kind::Gpu, ATTACKS, 1);
        is_over.store(true, Ordering::Relaxed);
        println!(
            "{counts:?}; the program ended {} times",
            watch.join().unwrap()
        );
        assert_eq!(attacked.violations, [""; 0]);
        assert!(counts.operations > 400, "{counts:?}");
        attacked.guest
    });
    for ring in &mut guest.rings {
        ring.added = 0;
    }
    guest.write(register::STATUS, 0);
}
