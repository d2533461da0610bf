//! Requests to a tap device (Linux, include/uapi/linux/if_tun.h).

use std::fs::{File, OpenOptions};
use std::io;

use virtio_bindings::bindings::virtio_net::{
    VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
};
use vmm_sys_util::ioctl::{ioctl_with_mut_ref, ioctl_with_ref, ioctl_with_val};
use vmm_sys_util::ioctl_iow_nr;

/// Type of the requests.
const TUN: u32 = b'T' as u32;
ioctl_iow_nr!(TUNSETIFF, TUN, 202, libc::c_int);
ioctl_iow_nr!(TUNSETOFFLOAD, TUN, 208, libc::c_uint);
ioctl_iow_nr!(TUNSETVNETHDRSZ, TUN, 216, libc::c_int);

/// Bytes before each frame: `struct virtio_net_hdr_mrg_rxbuf`.
const HEADER: libc::c_int = 12;
/// Offset of the flags in `struct ifreq`, behind the name, and the structure's size.
const FLAGS: usize = libc::IFNAMSIZ;
const REQUEST: usize = 40;
/// Offloads of TUNSETOFFLOAD, by the features that allow the tap device to leave the work to the
/// guest.
const OFFLOADS: [(u32, libc::c_ulong); 3] = [
    (VIRTIO_NET_F_GUEST_CSUM, 1),
    (VIRTIO_NET_F_GUEST_TSO4, 2),
    (VIRTIO_NET_F_GUEST_TSO6, 4),
];

/// Opens the tap device of this name, and makes it if there is none.
pub(super) fn open(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let tap = options.read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; REQUEST];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    request[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq`, which is not larger.
    checked(unsafe { ioctl_with_mut_ref(&tap, TUNSETIFF(), &mut request) })?;
    Ok(tap)
}

/// Sets the length of headers, and the offloads that the guest's driver accepts for frames to it.
pub(super) fn set_up(tap: &File, accepted: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one `int`.
    checked(unsafe { ioctl_with_ref(tap, TUNSETVNETHDRSZ(), &HEADER) })?;
    let offloads = OFFLOADS.iter().filter(|(bit, _)| accepted & 1 << bit != 0);
    let offloads = offloads.fold(0, |all, (_, offload)| all | offload);
    // SAFETY: the argument is a number, not an address.
    checked(unsafe { ioctl_with_val(tap, TUNSETOFFLOAD(), offloads) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
