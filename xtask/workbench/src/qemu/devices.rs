//! Disks and the network card of QEMU's `virt`, as arguments of QEMU.
//!
//! Linux names disks in the order of their addresses, and QEMU gives the first device of its
//! command line the highest address. Disks therefore stand in the reverse order of their names.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Arguments, Machine, option_path};

/// A disk beside the machine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The image, or a block device.
    pub file: PathBuf,
    /// Format of the image.
    pub format: Format,
}

/// Format of a disk's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The bytes of the disk.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl Format {
    /// First bytes of a qcow2 image (QEMU, docs/interop/qcow2.rst).
    const QCOW2: &[u8] = b"QFI\xfb";

    /// Returns the format of an image by its first bytes.
    pub fn of(image: &Path) -> Result<Format> {
        let file = File::open(image).with_context(|| format!("cannot read {}", image.display()))?;
        let mut start = Vec::new();
        file.take(Self::QCOW2.len() as u64)
            .read_to_end(&mut start)?;
        Ok(match start == Self::QCOW2 {
            true => Format::Qcow2,
            false => Format::Raw,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        }
    }
}

/// Reach of the machine's network card beyond the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether guests reach the host, and the networks behind the host.
    pub outside: bool,
    /// Ports of the host that lead to guests.
    pub forwards: Vec<Forward>,
}

/// A port of the host that leads to a port of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Protocol of both ports.
    pub protocol: Protocol,
    /// Port of the host, on the loopback address.
    pub host_port: u16,
    /// Address of the guest.
    pub address: String,
    /// Port of the guest.
    pub port: u16,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Returns the name in options of QEMU and of `run`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

impl Machine {
    /// The firmware's card, the disks and the network card.
    pub(super) fn add_drives(&self, arguments: &mut Arguments) {
        if let Some(card) = &self.card {
            arguments.add(["-drive", &drive(card, "card", Format::Raw)]);
            arguments.add(["-device", "nvme,drive=card,serial=card"]);
        }
        let disks: Vec<_> = self.disks().collect();
        for (index, (file, format)) in disks.iter().enumerate() {
            arguments.add(["-drive", &drive(file, &format!("d{index}"), *format)]);
        }
        if !disks.is_empty() || self.has_network() {
            arguments.add(["-global", "virtio-mmio.force-legacy=false"]);
        }
        for index in (0..disks.len()).rev() {
            arguments.add(["-device", &format!("virtio-blk-device,drive=d{index}")]);
        }
        if self.has_network() {
            arguments.add(["-netdev", &self.network.netdev()]);
            arguments.add(["-device", "virtio-net-device,netdev=n0"]);
        }
        if self.snapshot {
            arguments.add(["-snapshot"]);
        }
    }

    /// The order is that in which guests number them.
    fn disks(&self) -> impl Iterator<Item = (&Path, Format)> {
        let own = self.disk.as_deref().map(|file| (file, Format::Raw));
        let more = self.more_disks.iter();
        let more = more.map(|disk| (disk.file.as_path(), disk.format));
        own.into_iter().chain(more)
    }

    /// A device VM always has a card, for the guests behind it.
    fn has_network(&self) -> bool {
        self.disk.is_some() || self.network != Network::default()
    }
}

impl Network {
    /// QEMU's own network, with the host at 10.0.2.2.
    fn netdev(&self) -> String {
        let restrict = if self.outside { "off" } else { "on" };
        let mut netdev = format!("user,id=n0,restrict={restrict}");
        for forward in &self.forwards {
            let Forward {
                protocol,
                host_port,
                address,
                port,
            } = forward;
            let protocol = protocol.name();
            netdev += &format!(",hostfwd={protocol}:127.0.0.1:{host_port}-{address}:{port}");
        }
        netdev
    }
}

/// Describes a disk to QEMU. An error of the host, as a full disk, is the VM's to handle: by
/// default QEMU stops the whole machine without a word when the host has no room.
fn drive(image: &Path, id: &str, format: Format) -> String {
    let (file, format) = (option_path(image), format.name());
    format!("file={file},if=none,id={id},format={format},werror=report,rerror=report")
}

#[cfg(test)]
mod tests;
