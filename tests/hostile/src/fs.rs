//! Requests of a file system (virtio 1.2, 5.11) that say what is not so: FUSE's own headers, names
//! and numbers.
//!
//! The device is served by virtiofsd, a program of its own. FUSE's messages pass the device model
//! unread, so the attacks are on that program, and on the device model's handling of its end.

use crate::Platform;
use crate::device::{Device, Expect};
use crate::offers::{DATA, HEADER, Piece, segments};

/// Operations of FUSE (`linux/fuse.h`). Those with a name, a node, a handle, or a list in their
/// body.
mod operation {
    /// A name in a folder.
    pub(super) const LOOKUP: u32 = 1;
    /// Lookups of a node that are given up; has no answer.
    pub(super) const FORGET: u32 = 2;
    /// Facts of a node, as stat(2) has them.
    pub(super) const GETATTR: u32 = 3;
    /// Two names.
    pub(super) const SYMLINK: u32 = 6;
    /// Gives a handle.
    pub(super) const OPEN: u32 = 14;
    /// A handle, an offset and a size.
    pub(super) const READ: u32 = 15;
    /// A handle, an offset, a size and the data.
    pub(super) const WRITE: u32 = 16;
    /// A name and a value, with the value's size.
    pub(super) const SETXATTR: u32 = 21;
    /// The first request: versions and features.
    pub(super) const INIT: u32 = 26;
    /// Fills as much as the caller says that it has room for.
    pub(super) const READDIR: u32 = 28;
    /// A list, with the number of its entries.
    pub(super) const BATCH_FORGET: u32 = 42;
    /// Two folders and two names.
    pub(super) const RENAME2: u32 = 45;
    /// Looks for holes in a file.
    pub(super) const LSEEK: u32 = 46;
}

/// Bytes of the header of a request, and room for an answer. `struct fuse_in_header` ends at byte
/// 40.
const IN_HEADER: usize = 40;
/// A page, which is more than any answer here takes.
const ROOM: u32 = 0x1000;
/// Most bytes of a request by hand.
const MOST: usize = IN_HEADER + 64;
/// Node of the root. FUSE_ROOT_ID: the one node that a driver knows without a lookup.
const ROOT: u64 = 1;
/// The `unique` of every request. Comes back in the answer, and so tells that one has come.
const UNIQUE: u64 = 0x7115;

/// A request of FUSE.
struct Request<'a> {
    operation: u32,
    node: u64,
    body: &'a [u8],
    /// The length that the header says, if it is another one.
    says: Option<u32>,
}

impl<P: Platform> Device<'_, P> {
    /// Puts a request into the tables; returns its bytes.
    fn put_fuse(&mut self, request: &Request<'_>) -> u32 {
        let length = IN_HEADER + request.body.len();
        let mut bytes = [0; MOST];
        bytes[..4].copy_from_slice(&request.says.unwrap_or(length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&request.operation.to_le_bytes());
        bytes[8..16].copy_from_slice(&UNIQUE.to_le_bytes());
        bytes[16..24].copy_from_slice(&request.node.to_le_bytes());
        bytes[IN_HEADER..length].copy_from_slice(request.body);
        self.store(HEADER, &bytes[..length]);
        length as u32
    }

    /// Offers what a driver begins with: FUSE_INIT.
    pub(crate) fn offer_mount(&mut self) {
        let length = self.put_fuse(&mount());
        self.store(DATA, &[0; 16]);
        self.offer_pieces(&[(HEADER, length, false), (DATA, ROOM, true)]);
    }

    /// Tells whether the program has answered the last request, be it with an error: a program that
    /// was asked before says so.
    pub(crate) fn has_answer(&mut self) -> bool {
        self.load::<8>(DATA + 8) == UNIQUE.to_le_bytes()
    }
}

/// Returns what a driver begins with: version 7.33 (`struct fuse_init_in`).
fn mount() -> Request<'static> {
    Request {
        operation: operation::INIT,
        node: 0,
        body: &[7, 0, 0, 0, 33, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        says: None,
    }
}

/// Makes all attacks.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    names(device);
    numbers(device);
    lengths(device);
    shapes(device);
    segments(device);
    device.recover("1024 pieces");
}

/// Offers a request with so much room for the answer. The answer may be an error of any kind.
fn odd<P: Platform>(device: &mut Device<'_, P>, name: &str, request: &Request<'_>, room: u32) {
    let length = device.put_fuse(request);
    device.odd(
        name,
        &[(HEADER, length, false), (DATA, room, true)],
        Expect::Any,
    );
}

/// Names that lead out of the folder, or are none. A file system that followed one would give the
/// guest files of the device VM.
const NAMES: [&[u8]; 6] = [
    b"..\0",
    b"../../etc/passwd\0",
    b"/\0",
    b"\0",
    b"",
    b"a name without an end",
];

/// Asks for what names mean that a driver never gives. A body of one name where two are wanted
/// makes the second one empty.
fn names<P: Platform>(device: &mut Device<'_, P>) {
    let operations = [operation::LOOKUP, operation::SYMLINK, operation::RENAME2];
    for operation in operations {
        for body in NAMES {
            let request = Request {
                operation,
                node: ROOT,
                body,
                says: None,
            };
            odd(device, "a name", &request, ROOM);
        }
    }
}

/// Nodes, handles, counts and operations that there are not. Ones in all bits are a handle, an
/// offset, a size and a count at once.
fn numbers<P: Platform>(device: &mut Device<'_, P>) {
    let operations = [
        operation::FORGET,
        operation::GETATTR,
        operation::OPEN,
        operation::READ,
        operation::WRITE,
        operation::SETXATTR,
        operation::READDIR,
        operation::BATCH_FORGET,
        operation::LSEEK,
        0,
        99,
        u32::MAX,
    ];
    for operation in operations {
        for node in [0, u64::MAX] {
            let request = Request {
                operation,
                node,
                body: &[0xff; 48],
                says: None,
            };
            odd(device, "a number", &request, ROOM);
        }
    }
}

/// Lengths that a header says. The true length is that of the descriptors, and the header's is the
/// guest's word.
fn lengths<P: Platform>(device: &mut Device<'_, P>) {
    for says in [0, 1, 39, 40, 57, 0x1000, u32::MAX] {
        let request = Request {
            says: Some(says),
            ..mount()
        };
        odd(device, "a length", &request, ROOM);
    }
    for room in [0, 1, 15, 16] {
        odd(device, "no room", &mount(), room);
    }
}

/// Requests without a header, or without a place for an answer.
fn shapes<P: Platform>(device: &mut Device<'_, P>) {
    let shapes: [(&str, &[Piece]); 4] = [
        ("half a header", &[(HEADER, 20, false), (DATA, ROOM, true)]),
        ("no answer", &[(HEADER, 56, false)]),
        ("no request", &[(DATA, ROOM, true)]),
        (
            "in pieces",
            &[(HEADER, 3, false), (HEADER, 53, false), (DATA, 5, true)],
        ),
    ];
    for (name, pieces) in shapes {
        device.put_fuse(&mount());
        device.odd(name, pieces, Expect::Any);
    }
}
