//! Requests to tap devices (Linux, include/uapi/linux/if_tun.h).
//!
//! A tap device has a queue for each descriptor that is attached to it. The kernel spreads frames
//! over the queues that are attached, by flow: an answer comes by the queue by which the flow's last
//! frame was sent.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use vmm_sys_util::ioctl::{ioctl_with_mut_ref, ioctl_with_ref, ioctl_with_val};
use vmm_sys_util::ioctl_iow_nr;

use super::checked;

#[cfg(test)]
pub(crate) mod testing;

/// Type of the requests.
const TUN: u32 = b'T' as u32;
ioctl_iow_nr!(TUNSETIFF, TUN, 202, libc::c_int);
ioctl_iow_nr!(TUNSETPERSIST, TUN, 203, libc::c_int);
ioctl_iow_nr!(TUNSETOFFLOAD, TUN, 208, libc::c_uint);
ioctl_iow_nr!(TUNSETVNETHDRSZ, TUN, 216, libc::c_int);
ioctl_iow_nr!(TUNSETQUEUE, TUN, 217, libc::c_int);

/// Most characters of a network device's name (`IFNAMSIZ` less its end).
const NAME: usize = 15;
/// Request for a network device's MTU (include/uapi/linux/sockios.h).
const SIOCSIFMTU: libc::c_ulong = 0x8922;

/// `struct ifreq`: the name, then what is asked.
type Request = [u8; 40];

/// Makes a request about the network device `name`.
fn request<const N: usize>(name: &str, asked: [u8; N]) -> Request {
    let mut request = [0; 40];
    for (to, from) in request.iter_mut().zip(name.bytes().take(NAME)) {
        *to = from;
    }
    let tail = request.iter_mut().skip(NAME + 1);
    for (to, from) in tail.zip(asked) {
        *to = from;
    }
    request
}

/// Opens queues of the tap device `name`, as many as asked, making the device if need be; each frame
/// is preceded by a virtio-net header of `header` bytes. The first queue alone is attached.
///
/// A device of several queues that was made before serves one that has one.
pub(crate) fn open(name: &str, queues: usize, header: usize) -> Result<Vec<File>, String> {
    let in_words = |error: io::Error| format!("tap device {name}: {error}");
    let several = queues > 1;
    let first = match open_queue(name, several, header) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && several => {
            return Err(format!(
                "tap device {name}: it was made without several queues (`multi_queue`), or is no tap device"
            ));
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            open_queue(name, true, header).map_err(in_words)?
        }
        first => first.map_err(in_words)?,
    };
    let mut all = vec![first];
    for _ in 1..queues {
        let queue = open_queue(name, several, header).map_err(in_words)?;
        // Nobody reads there until the guest's driver asks for it.
        detach(&queue).map_err(in_words)?;
        all.push(queue);
    }
    Ok(all)
}

/// Opens a queue. Reads and writes return at once: a thread that serves a guest waits by `epoll`
/// alone.
fn open_queue(name: &str, several: bool, header: usize) -> io::Result<File> {
    check_name(name)?;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let tun = options.open("/dev/net/tun");
    let tun =
        tun.map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
    let multi = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | multi;
    let mut request = request(name, (flags as u16).to_ne_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq`, which is not larger.
    checked(unsafe { ioctl_with_mut_ref(&tun, TUNSETIFF(), &mut request) })?;
    let header = header as libc::c_int;
    // SAFETY: the kernel reads one `int`.
    checked(unsafe { ioctl_with_ref(&tun, TUNSETVNETHDRSZ(), &header) })?;
    Ok(tun)
}

/// Refuses a name that the kernel would cut.
fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() > NAME {
        let message = format!("its name has {} characters, not 1 to {NAME}", name.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Has the tap device outlive the descriptor.
pub(crate) fn persist(tap: &File) -> io::Result<()> {
    // SAFETY: the argument is a number, not an address.
    checked(unsafe { ioctl_with_val(tap, TUNSETPERSIST(), 1) })?;
    Ok(())
}

/// Has the kernel put frames into a queue that was detached, behind the queues that are attached.
pub(crate) fn attach(queue: &File) -> io::Result<()> {
    change(queue, libc::IFF_ATTACH_QUEUE)
}

/// Has the kernel put no frames into a queue. Those that wait there are lost.
pub(crate) fn detach(queue: &File) -> io::Result<()> {
    change(queue, libc::IFF_DETACH_QUEUE)
}

fn change(queue: &File, flag: libc::c_int) -> io::Result<()> {
    let request = request("", (flag as u16).to_ne_bytes());
    // SAFETY: the kernel reads a `struct ifreq`, which is not larger.
    checked(unsafe { ioctl_with_ref(queue, TUNSETQUEUE(), &request) })?;
    Ok(())
}

/// Sets the longest packet of the network device `name`.
pub(crate) fn set_mtu(name: &str, mtu: u16) -> io::Result<()> {
    let request = request(name, libc::c_int::from(mtu).to_ne_bytes());
    // Any socket leads to the devices of the network namespace.
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: the kernel reads a `struct ifreq`, which is not larger.
    checked(unsafe { ioctl_with_ref(&socket, SIOCSIFMTU, &request) })?;
    Ok(())
}

/// Configures the offloads that the guest accepts for received packets, for all queues of a tap
/// device.
pub(crate) fn set_offload(tap: &File, flags: u32) -> io::Result<()> {
    let flags = flags as libc::c_ulong;
    // SAFETY: the argument is a number, not an address.
    checked(unsafe { ioctl_with_val(tap, TUNSETOFFLOAD(), flags) })?;
    Ok(())
}
