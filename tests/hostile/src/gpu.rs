//! Commands of a graphics card in two dimensions (virtio 1.2, 5.7) that say what is not so: sizes,
//! formats, rectangles, resources and the memory behind them.
//!
//! The card is served by a program that is not GearV's (docs/device-model.md), and that ends at
//! some of these attacks. So the verdict is on memory and on service: nothing outside of the arena
//! changes, and the next program serves the next honest request.

use crate::Platform;
use crate::arena::{BUFFER_SIZE, buffer};
use crate::device::{Device, Expect, register, status};
use crate::offers::{DATA, HEADER, Piece, segments};

/// Types of commands and answers (virtio 1.2, 5.7.6.7).
mod command {
    /// Asks for the screens and their sizes.
    pub(super) const GET_DISPLAY_INFO: u32 = 0x100;
    /// Makes a picture without memory behind it.
    pub(super) const RESOURCE_CREATE_2D: u32 = 0x101;
    /// Ends a picture.
    pub(super) const RESOURCE_UNREF: u32 = 0x102;
    /// Shows a rectangle of a picture on a screen.
    pub(super) const SET_SCANOUT: u32 = 0x103;
    /// Has a rectangle drawn anew.
    pub(super) const RESOURCE_FLUSH: u32 = 0x104;
    /// Copies from the guest's memory into the picture.
    pub(super) const TRANSFER_TO_HOST_2D: u32 = 0x105;
    /// Gives a picture the guest's memory, in pieces.
    pub(super) const RESOURCE_ATTACH_BACKING: u32 = 0x106;
    /// Takes that memory back.
    pub(super) const RESOURCE_DETACH_BACKING: u32 = 0x107;
    /// The last one of the control queue that a card without a third dimension may know.
    pub(super) const SET_SCANOUT_BLOB: u32 = 0x10d;
    /// Of those in three dimensions, the first and the last one.
    pub(super) const CTX_CREATE: u32 = 0x200;
    pub(super) const UNMAP_BLOB: u32 = 0x209;
    /// By the queue of the cursor: another picture, and a place.
    pub(super) const UPDATE_CURSOR: u32 = 0x300;
    /// By the same queue: a place alone.
    pub(super) const MOVE_CURSOR: u32 = 0x301;
    /// An answer, and so no command.
    pub(super) const OK_DISPLAY_INFO: u32 = 0x1101;
}

/// Bytes of the header of a command. Type, flags, fence, context and ring (struct
/// virtio_gpu_ctrl_hdr).
const IN_HEADER: usize = 24;
/// Room for an answer: that about displays has 408 bytes.
const ROOM: u32 = 0x1000;
/// Most words behind the header of a command by hand. Enough for the largest fixed command and for
/// some pieces of memory.
const WORDS: usize = 16;
/// VIRTIO_GPU_FORMAT_B8G8R8A8_UNORM. Four bytes for a pixel, as all formats of the specification.
const FORMAT: u32 = 1;
/// A picture of the attacks, of so many pixels in each direction, and bytes of one. A resource's
/// number, which is the driver's choice.
const PICTURE: u32 = 7;
const SIDE: u32 = 64;
const PIXEL: u32 = 4;
/// Every number that a field may have and be wrong. None, one that is there, and both ends of what
/// a signed number would be.
const NUMBERS: [u32; 4] = [0, PICTURE, 0x8000_0000, u32::MAX];
/// All of the picture.
const ALL: [u32; 4] = [0, 0, SIDE, SIDE];

impl<P: Platform> Device<'_, P> {
    /// Puts a command into the tables; returns its bytes. Flags and the other fields of the header
    /// stay 0: no fence is asked for.
    fn put_graphics(&mut self, kind: u32, words: &[u32]) -> u32 {
        let mut bytes = [0; IN_HEADER + 4 * WORDS];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        let body = bytes[IN_HEADER..].chunks_exact_mut(4);
        for (place, word) in body.zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let length = IN_HEADER + 4 * words.len();
        self.store(HEADER, &bytes[..length]);
        length as u32
    }

    /// Offers what a driver begins with: the question for the displays.
    pub(crate) fn offer_displays(&mut self) {
        let length = self.put_graphics(command::GET_DISPLAY_INFO, &[]);
        self.store(DATA, &[0; 4]);
        self.offer_pieces(&[(HEADER, length, false), (DATA, ROOM, true)]);
    }

    /// Tells whether the program has told of its displays.
    pub(crate) fn has_displays(&mut self) -> bool {
        self.load::<4>(DATA) == command::OK_DISPLAY_INFO.to_le_bytes()
    }

    /// Offers a move of the cursor, which has no answer.
    pub(crate) fn offer_cursor(&mut self) {
        let length = self.put_graphics(command::MOVE_CURSOR, &[0; 8]);
        self.offer_pieces(&[(HEADER, length, false)]);
    }

    /// Shows that the card works. A reset of a card has its program end, so that a card that needs
    /// none has none.
    fn goes_on(&mut self, name: &str) {
        self.settle();
        let is_well = self.read(register::STATUS) == status::DRIVER_OK;
        if is_well && self.used() == self.added() {
            self.honest_request(name);
        } else {
            self.recover(name);
        }
    }

    /// Offers a request of any shape, and shows that the card works afterwards.
    fn shape(&mut self, name: &str, pieces: &[Piece]) {
        let before = self.used();
        self.offer_pieces(pieces);
        self.conclude(name, before, Expect::Any);
        self.goes_on(name);
    }

    /// Gives a command to a card that goes on with what it has. Answers are not compared: which
    /// error a program gives is its own affair.
    fn command(&mut self, name: &str, kind: u32, words: &[u32]) {
        let length = self.put_graphics(kind, words);
        let before = self.used();
        self.offer_pieces(&[(HEADER, length, false), (DATA, ROOM, true)]);
        self.conclude(name, before, Expect::Any);
    }

    /// Has the card make the picture anew, without memory. The old one goes first, in case that an
    /// attack has left it.
    fn canvas(&mut self, name: &str) {
        self.command(name, command::RESOURCE_UNREF, &[PICTURE, 0]);
        let size = [PICTURE, FORMAT, SIDE, SIDE];
        self.command(name, command::RESOURCE_CREATE_2D, &size);
    }

    /// Has the card make the picture anew, with memory behind it.
    fn picture(&mut self, name: &str) {
        self.canvas(name);
        let memory = self.at(buffer(0));
        self.back(name, &[(memory, SIDE * SIDE * PIXEL)], 1);
    }

    /// Gives memory to the picture, and says that there is so much of it. The number is told apart
    /// from the list, so that it can say more than is there.
    fn back(&mut self, name: &str, pieces: &[(u64, u32)], count: u32) {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (PICTURE, count);
        let places = words[2..].chunks_exact_mut(4);
        for (place, (address, length)) in places.zip(pieces) {
            place.copy_from_slice(&[*address as u32, (*address >> 32) as u32, *length, 0]);
        }
        let words = &words[..2 + 4 * pieces.len()];
        self.command(name, command::RESOURCE_ATTACH_BACKING, words);
    }
}

/// Makes all attacks by the control queue.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    numbers(device);
    sizes(device);
    memory(device);
    rectangles(device);
    orders(device);
    shapes(device);
    segments(device);
    device.goes_on("1024 pieces");
}

/// Makes all attacks by the queue of the cursor. Lists are thinned by `one_in`: each loss of the
/// program costs its restart.
pub(crate) fn cursors<P: Platform>(device: &mut Device<'_, P>) {
    let kinds = [command::UPDATE_CURSOR, command::MOVE_CURSOR, 0, u32::MAX];
    for kind in kinds {
        for number in NUMBERS.into_iter().step_by(device.one_in) {
            let length = device.put_graphics(kind, &[number; 8]);
            let name = "a cursor";
            device.shape(name, &[(HEADER, length, false)]);
        }
    }
    let lengths = [0, 1, IN_HEADER as u32, 55, 57, 0x4_0000];
    for length in lengths.into_iter().step_by(device.one_in) {
        device.put_graphics(command::UPDATE_CURSOR, &[0; 8]);
        let name = "a cursor of another length";
        device.shape(name, &[(HEADER, length, false)]);
    }
    device.shape("a writable cursor", &[(DATA, 56, true)]);
}

/// Commands of every kind, and of none, all of whose fields say one thing. Each field is each kind
/// of number: width, resource, offset and count are 32 bits alike.
fn numbers<P: Platform>(device: &mut Device<'_, P>) {
    let known = command::GET_DISPLAY_INFO..=command::SET_SCANOUT_BLOB;
    let others = [
        command::CTX_CREATE,
        command::UNMAP_BLOB,
        0,
        0xff,
        command::UPDATE_CURSOR,
        command::OK_DISPLAY_INFO,
        u32::MAX,
    ];
    for kind in known.chain(others).step_by(device.one_in) {
        for number in NUMBERS {
            device.command("a number", kind, &[number; WORDS]);
        }
        device.goes_on("a number");
    }
}

/// Pictures of no size, of more than there can be, and of formats that there are not. None of them
/// has memory of the card's that is written. Width times height times four overflows 32 bits at
/// some of them.
fn sizes<P: Platform>(device: &mut Device<'_, P>) {
    let sizes = [
        [0, 0],
        [0, SIDE],
        [1, u32::MAX],
        [u32::MAX, 1],
        [u32::MAX; 2],
        [0x1_0000; 2],
        [0x8000_0000, 2],
        [0x4000_0000, 4],
        [0x4000_0001, 1],
    ];
    for [width, height] in sizes.into_iter().step_by(device.one_in) {
        device.command("a size", command::RESOURCE_UNREF, &[PICTURE, 0]);
        let words = [PICTURE, FORMAT, width, height];
        device.command("a size", command::RESOURCE_CREATE_2D, &words);
        let rectangle = [0, 0, width, height, 0, 0, PICTURE, 0];
        device.command("a size", command::TRANSFER_TO_HOST_2D, &rectangle);
        device.goes_on("a size");
    }
    for format in [0, 5, 99, u32::MAX] {
        device.command("a format", command::RESOURCE_UNREF, &[PICTURE, 0]);
        let words = [PICTURE, format, SIDE, SIDE];
        device.command("a format", command::RESOURCE_CREATE_2D, &words);
    }
    device.goes_on("a format");
}

/// Memory that is not the guest's, or is less than the picture needs or the command says. A piece
/// of the list is an address of the guest, which the program maps or copies from by its own check.
fn memory<P: Platform>(device: &mut Device<'_, P>) {
    let name = "memory of a picture";
    let (start, end) = (device.layout.ram.start, device.layout.ram.end);
    let bytes = SIDE * SIDE * PIXEL;
    let pieces = [
        (end, bytes),
        (end - 16, bytes),
        (start - 16, bytes),
        (0, bytes),
        (u64::MAX, bytes),
        (u64::MAX - 15, 32),
        (device.at(buffer(0)), u32::MAX),
        (device.at(buffer(0)), 0),
        (device.at(buffer(0)), 1),
        (device.layout.registers & !0xfff, bytes),
    ];
    for piece in pieces.into_iter().step_by(device.one_in) {
        device.canvas(name);
        device.back(name, &[piece], 1);
        transfer(device, name, ALL, 0);
        show(device, name, ALL);
        device.goes_on(name);
    }
    let counts = [0, 2, 3, 0x4001, 0x1000_0000, 0x1000_0001, u32::MAX];
    for count in counts.into_iter().step_by(device.one_in) {
        device.canvas(name);
        let piece = (device.at(buffer(0)), bytes);
        device.back(name, &[piece], count);
        transfer(device, name, ALL, 0);
        device.goes_on(name);
    }
}

/// Copies a rectangle from the guest's memory into the picture.
fn transfer<P: Platform>(device: &mut Device<'_, P>, name: &str, at: [u32; 4], offset: u64) {
    let [x, y, width, height] = at;
    let (low, high) = (offset as u32, (offset >> 32) as u32);
    let words = [x, y, width, height, low, high, PICTURE, 0];
    device.command(name, command::TRANSFER_TO_HOST_2D, &words);
}

/// Puts the picture on the screen, and has a rectangle of it drawn.
fn show<P: Platform>(device: &mut Device<'_, P>, name: &str, at: [u32; 4]) {
    let [x, y, width, height] = at;
    let words = [x, y, width, height, 0, PICTURE];
    device.command(name, command::SET_SCANOUT, &words);
    let words = [x, y, width, height, PICTURE, 0];
    device.command(name, command::RESOURCE_FLUSH, &words);
}

/// Rectangles and offsets that leave the picture. Corner and side are added, and the sum is
/// compared with the picture's.
fn rectangles<P: Platform>(device: &mut Device<'_, P>) {
    let name = "a rectangle";
    let rectangles = [
        [0, 0, SIDE + 1, 1],
        [0, 0, 1, SIDE + 1],
        [SIDE, SIDE, 1, 1],
        [1, 1, SIDE, SIDE],
        [u32::MAX, 0, 2, 1],
        [0, u32::MAX, 1, 2],
        [0x8000_0000, 0x8000_0000, 0x8000_0000, 0x8000_0000],
        [0, 0, u32::MAX, u32::MAX],
        [0; 4],
    ];
    for at in rectangles.into_iter().step_by(device.one_in) {
        device.picture(name);
        transfer(device, name, at, 0);
        show(device, name, ALL);
        show(device, name, at);
        device.goes_on(name);
    }
    device.picture(name);
    for offset in [
        1,
        u64::from(SIDE * SIDE * PIXEL),
        1 << 32,
        u64::MAX - 3,
        u64::MAX,
    ] {
        transfer(device, "an offset", ALL, offset);
    }
    device.goes_on("an offset");
}

/// Commands in an order that no driver gives them. What is on the screen, and was given back, must
/// not be drawn from.
fn orders<P: Platform>(device: &mut Device<'_, P>) {
    let name = "an order";
    let gone = [PICTURE, 0];
    let both = [command::RESOURCE_DETACH_BACKING, command::RESOURCE_UNREF];
    for takes in both {
        device.picture(name);
        show(device, name, ALL);
        device.command(name, takes, &gone);
        device.command(name, takes, &gone);
        transfer(device, name, ALL, 0);
        show(device, name, ALL);
        device.goes_on(name);
    }
    device.picture(name);
    let again = [PICTURE, FORMAT, 1, 1];
    device.command(name, command::RESOURCE_CREATE_2D, &again);
    for screen in [1, 15, 16, 17, u32::MAX] {
        let words = [0, 0, SIDE, SIDE, screen, PICTURE];
        device.command("a screen", command::SET_SCANOUT, &words);
    }
    device.goes_on(name);
}

/// Commands that are cut, in crumbs, or without room for their answers. An answer needs its header
/// at least; the program decides what it does with less.
fn shapes<P: Platform>(device: &mut Device<'_, P>) {
    for length in [0, 1, 23, 25, 39].into_iter().step_by(device.one_in) {
        device.put_graphics(command::RESOURCE_CREATE_2D, &[PICTURE, FORMAT, SIDE, SIDE]);
        let pieces = [(HEADER, length, false), (DATA, ROOM, true)];
        device.shape("a command that is cut", &pieces);
    }
    let answer = (DATA, ROOM, true);
    let shapes: [(&str, &[Piece]); 6] = [
        ("no answer", &[(HEADER, 24, false)]),
        ("no command", &[answer]),
        ("no room", &[(HEADER, 24, false), (DATA, 0, true)]),
        ("little room", &[(HEADER, 24, false), (DATA, 23, true)]),
        ("half an answer", &[(HEADER, 24, false), (DATA, 100, true)]),
        (
            "in crumbs",
            &[(HEADER, 3, false), (HEADER + 3, 21, false), (DATA, 5, true)],
        ),
    ];
    for (name, pieces) in shapes.into_iter().step_by(device.one_in) {
        device.put_graphics(command::GET_DISPLAY_INFO, &[]);
        device.shape(name, pieces);
    }
    let rest = BUFFER_SIZE as u32 - 0x1000;
    device.put_graphics(command::RESOURCE_ATTACH_BACKING, &[PICTURE, u32::MAX]);
    let long = [(HEADER, 32, false), (DATA, rest, false)];
    device.shape("a command of all memory", &long);
}
