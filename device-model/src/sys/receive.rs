//! Receiving descriptors by a socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use super::result;

/// Receives bytes, with the descriptor that came along. More than one is an error.
///
/// No program that this process starts inherits the descriptor: a socket that is closed here would
/// have no end for its other side before that program ends.
pub(crate) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // As aligned as a header, and long enough for one with a descriptor.
    let mut control = [0_u64; 3];
    // SAFETY: all fields are numbers, and pointers that may be null.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length alone.
    let room = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) };
    message.msg_controllen = room as _;
    // planted: programs inherit the descriptors that came
    let flags = libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes to `bytes` and `control`, and not beyond their lengths.
    let length = result(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    // SAFETY: the kernel has filled in `message`, and `control` lives.
    let descriptor = unsafe { descriptor_of(&message) };
    match message.msg_flags & libc::MSG_CTRUNC {
        0 => Ok((length, descriptor)),
        _ => Err(io::Error::other("more than one descriptor came")),
    }
}

/// Takes the first descriptor that came with a message.
///
/// # Safety
///
/// The kernel has filled in the message just now, and its control data lives.
unsafe fn descriptor_of(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the message has the address and the length of its control data.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header that the kernel has written.
    let found = unsafe { header.as_ref() }?;
    if (found.cmsg_level, found.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return None;
    }
    // SAFETY: the data of the header is behind it.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the kernel writes such a header with a whole descriptor at least.
    let fd = unsafe { data.cast::<RawFd>().read_unaligned() };
    // SAFETY: the kernel made the descriptor for this message, and nobody else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
