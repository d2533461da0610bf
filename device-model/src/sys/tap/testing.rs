//! A tap device in a network of the test's own, and the wire behind it: frames as the device VM's
//! bridge sees them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use super::{NAME, open, request};
use crate::sys::{Wait, checked, result, wait};

/// Longest time until a frame has crossed the kernel.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time in which a frame that is under way arrives as a rule.
const SOON: Duration = Duration::from_millis(200);
const HEADER: usize = 12;
const TAP: &str = "tap0";
const SIOCSIFFLAGS: libc::c_ulong = 0x8914;

/// The end of the wire.
pub(crate) struct Wire {
    socket: OwnedFd,
}

/// Gives the calling thread a network of its own; false, and a word why, where that is not
/// permitted.
pub(crate) fn leave_network() -> bool {
    // SAFETY: no memory is involved.
    let left = checked(unsafe { libc::unshare(libc::CLONE_NEWNET) });
    // The kernel's own frames would be taken for others.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    if let Err(error) = &left {
        eprintln!("no network of its own ({error}): this test shows nothing");
    }
    left.is_ok()
}

/// Opens queues of a tap device, which is up as soon as it is there, and the wire behind it.
pub(crate) fn opened(queues: usize) -> (Vec<File>, Wire) {
    let taps = open(TAP, queues, HEADER).unwrap();
    (taps, Wire::new(TAP).unwrap())
}

impl Wire {
    /// Takes the network device up.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let (family, all) = (libc::AF_PACKET, (libc::ETH_P_ALL as u16).to_be());
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let socket = checked(unsafe { libc::socket(family, kind, all.into()) })?;
        // SAFETY: the descriptor was made just now, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let up = request(name, (libc::IFF_UP as u16).to_ne_bytes());
        // SAFETY: the kernel reads a `struct ifreq`, which is not larger.
        let set = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS as _, &raw const up) };
        checked(set)?;
        let mut text = [0_u8; NAME + 1];
        text[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the name ends with a zero.
        let index = unsafe { libc::if_nametoindex(text.as_ptr().cast()) };
        let address = libc::sockaddr_ll {
            sll_family: family as u16,
            sll_protocol: all,
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let (at, size) = ((&raw const address).cast(), size_of_val(&address));
        // SAFETY: the kernel reads the address, whose size is given.
        checked(unsafe { libc::bind(socket.as_raw_fd(), at, size as u32) })?;
        Ok(Self { socket })
    }

    /// Puts a frame on the wire.
    pub(crate) fn send(&self, frame: &[u8]) {
        let (fd, at) = (self.socket.as_raw_fd(), frame.as_ptr().cast());
        // SAFETY: the pointer and the length are those of a slice.
        let sent = unsafe { libc::send(fd, at, frame.len(), 0) };
        assert_eq!(result(sent).unwrap(), frame.len());
    }

    /// Returns the next frame with this type that comes out of the tap device, if one does soon.
    pub(crate) fn next(&self, kind: u16) -> Option<Vec<u8>> {
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            let frame = self.receive();
            if frame.get(12..14) == Some(&kind.to_be_bytes()) {
                return Some(frame);
            }
        }
        None
    }

    /// Returns a frame of any kind, empty if there is none for a while.
    fn receive(&self) -> Vec<u8> {
        let fd = self.socket.as_raw_fd();
        let waits = Wait {
            fd,
            read: true,
            write: false,
        };
        wait(&[waits], SOON.as_millis() as i32);
        let mut bytes = vec![0; 4096];
        // SAFETY: the pointer and the length are those of an exclusive slice.
        let got = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        bytes.truncate(result(got).unwrap_or(0));
        bytes
    }
}

/// Waits until something is true that the kernel brings about.
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "it does not come about");
    }
}

/// A tap device that was made with one queue has no more, and the error says so; one that was made
/// with several serves a card with one.
#[test]
fn a_tap_device_has_the_queues_that_it_was_made_with() {
    if !leave_network() {
        return;
    }
    let one = open("one", 1, HEADER).unwrap();
    super::persist(&one[0]).unwrap();
    drop(one);
    let refused = open("one", 2, HEADER).unwrap_err();
    assert!(refused.contains("tap device one: it was made without several queues"));
    let two = open("two", 2, HEADER).unwrap();
    super::persist(&two[0]).unwrap();
    drop(two);
    assert_eq!(open("two", 1, HEADER).unwrap().len(), 1);
    assert_eq!(open("two", 4, HEADER).unwrap().len(), 4);
    assert!(open("a-name-too-long-", 1, HEADER).is_err());
}

/// A queue that is detached reads nothing, and is attached again.
#[test]
fn queues_are_attached_and_detached() {
    if !leave_network() {
        return;
    }
    let (taps, _wire) = opened(2);
    assert!(super::detach(&taps[1]).is_err(), "it is detached already");
    super::attach(&taps[1]).unwrap();
    assert!(super::attach(&taps[1]).is_err());
    super::detach(&taps[1]).unwrap();
}
