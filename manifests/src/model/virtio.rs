//! The virtio devices of a VM, which the device VM serves.

use super::Names;
use crate::VmId;

/// A virtio device of a VM, served by the device VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioDevice<'a> {
    /// VM that uses the device.
    pub vm: VmId,
    /// Position among the virtio devices of that VM.
    pub index: usize,
    /// Name of the device's node.
    pub name: &'a str,
    /// Type of the device; `None` only until the rules have judged the manifest.
    pub kind: Option<VirtioKind>,
    /// Backend, in the device model's syntax.
    pub backend: Option<&'a str>,
    /// Whether a block device refuses writes.
    pub read_only: bool,
    /// MAC address of a network card, as the manifest writes it; the device model generates one if
    /// there is none.
    pub mac: Option<&'a str>,
    /// Properties of a disk or a network card that the device model serves itself.
    pub service: Service<'a>,
    /// Path of the socket by which programs reach the device, or the device its program.
    pub socket: Option<&'a str>,
    /// Identifier of the VM among those that have sockets to the device VM.
    pub cid: Option<u32>,
    /// Properties of a device whose function is another program.
    pub vhost_user: VhostUser<'a>,
}

/// Properties of a disk or a network card that the device model serves itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service<'a> {
    /// Serial number of a disk; none: the end of the backend's path.
    pub serial: Option<&'a str>,
    /// Longest packet that a network card announces, in bytes.
    pub mtu: Option<u32>,
    /// Most requests or frames a second; none: no limit.
    pub iops: Option<u32>,
    /// Most bytes a second; none: no limit.
    pub bytes_per_second: Option<u32>,
    /// Time whose share of the limits may pass at once, in milliseconds.
    pub burst_ms: Option<u32>,
}

impl Service<'_> {
    /// Usual value of `burst-ms`: short enough for a real-time neighbour's disk, long enough for a
    /// boot loader's reads.
    const BURST_MS: u32 = 100;

    /// Returns the limits that the device model keeps: requests and bytes a second, 0 for none, and
    /// the burst in milliseconds. `None`: nothing is limited.
    #[must_use]
    pub fn limits(&self) -> Option<[u32; 3]> {
        let (iops, bytes) = (self.iops, self.bytes_per_second);
        (iops.is_some() || bytes.is_some()).then(|| {
            let burst = self.burst_ms.unwrap_or(Self::BURST_MS);
            [iops.unwrap_or(0), bytes.unwrap_or(0), burst]
        })
    }
}

/// A device whose function is another program, which the device model reaches by a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostUser<'a> {
    /// Function, by name.
    pub function: Option<VhostFunction>,
    /// Function, by the number of the device type.
    pub device_id: Option<u32>,
    /// Number of queues.
    pub queues: Option<u32>,
    /// Bytes of the configuration.
    pub config_size: Option<u32>,
    /// Name of a file system.
    pub tag: Option<&'a str>,
    /// Time after which requests fail that wait for the program, in milliseconds; none: they wait.
    pub timeout_ms: Option<u32>,
    /// Command that starts the program, with its arguments; none: the device model does not start
    /// it.
    pub command: Names<'a>,
    /// Files that the program is given.
    pub files: Names<'a>,
}

impl VhostUser<'_> {
    /// Returns the number of queues that the guest sees.
    #[must_use]
    pub fn queue_count(&self) -> u32 {
        let usual = || self.function.map_or(1, |function| function.facts().1);
        self.queues.unwrap_or_else(usual)
    }

    /// Returns the bytes of the configuration that the guest sees.
    #[must_use]
    pub fn config_bytes(&self) -> u32 {
        let usual = || self.function.map_or(0, |function| function.facts().2);
        self.config_size.unwrap_or_else(usual)
    }
}

/// Device types whose requests the device model can fail: a block device, a file system, a graphics
/// card, a sound card, an I2C adapter and general purpose lines (virtio 1.2, chapter 5). Other types
/// have no answer that says so.
const CAN_FAIL: [u32; 6] = [2, 16, 25, 26, 34, 41];

/// Function of a device that another program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VhostFunction {
    /// A disk.
    Block,
    /// A file system.
    Fs,
    /// A graphics card.
    Gpu,
    /// A keyboard, a mouse and the like.
    Input,
    /// Sockets to the device VM.
    Vsock,
    /// A sound card.
    Sound,
    /// An I2C adapter.
    I2c,
    /// General purpose lines.
    Gpio,
    /// A system control and management interface.
    Scmi,
}

impl VhostFunction {
    /// Returns the name in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Fs => "fs",
            Self::Gpu => "gpu",
            Self::Input => "input",
            Self::Vsock => "vsock",
            Self::Sound => "sound",
            Self::I2c => "i2c",
            Self::Gpio => "gpio",
            Self::Scmi => "scmi",
        }
    }

    /// Returns the device type, the usual number of queues, and the bytes of the configuration
    /// (virtio 1.2, chapter 5).
    const fn facts(self) -> (u32, u32, u32) {
        match self {
            Self::Block => (2, 1, 60),
            Self::Fs => (26, 2, 40),
            Self::Gpu => (16, 2, 16),
            Self::Input => (18, 2, 136),
            Self::Vsock => (19, 3, 8),
            Self::Sound => (25, 4, 12),
            Self::I2c => (34, 1, 0),
            Self::Gpio => (41, 2, 8),
            Self::Scmi => (32, 2, 0),
        }
    }
}

impl VirtioDevice<'_> {
    /// Returns the address of a network card; `None`: the manifest gives none, or none of one
    /// station.
    #[must_use]
    pub fn mac_bytes(&self) -> Option<[u8; 6]> {
        let text = self.mac?;
        let mut bytes = [0; 6];
        let mut pairs = text.split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2)?;
            let is_digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| is_digits)?;
        }
        // The lowest bit of the first byte stands for several stations.
        let is_of_one = bytes.first().is_some_and(|first| first & 1 == 0) && bytes != [0; 6];
        (is_of_one && pairs.next().is_none()).then_some(bytes)
    }

    /// Returns the device type that the guest sees (virtio 1.2, chapter 5); 0: none.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        let vhost_user = &self.vhost_user;
        match self.kind {
            None => 0,
            Some(VirtioKind::VhostUser) => {
                let by_name = vhost_user.function.map(|function| function.facts().0);
                by_name.or(vhost_user.device_id).unwrap_or(0)
            }
            Some(kind) => kind.device_id(),
        }
    }

    /// Tells whether requests of the device can fail while the program is not there.
    #[must_use]
    pub fn can_fail(&self) -> bool {
        CAN_FAIL.contains(&self.device_id())
    }

    /// Tells whether the guest sees what a device of this kind is, whatever serves it.
    #[must_use]
    pub fn is_seen_as(&self, kind: VirtioKind) -> bool {
        self.device_id() == kind.device_id()
    }

    /// Bytes between two devices in the VM's register page.
    pub const STRIDE: u64 = 0x200;
    const FIRST_INTID: u32 = 48;

    /// Returns the offset of the device's registers in the VM's register page.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        Self::STRIDE * self.index as u64
    }

    /// Returns the INTID of the device's edge-triggered interrupt in the VM.
    #[must_use]
    pub const fn intid(&self) -> u32 {
        Self::FIRST_INTID + self.index as u32
    }
}

/// Type of a virtio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioKind {
    /// A disk.
    Block,
    /// A network card.
    Net,
    /// A console.
    Console,
    /// A source of random numbers.
    Random,
    /// A keyboard, a mouse and the like.
    Input,
    /// Sockets to the device VM.
    Vsock,
    /// A device whose function is another program of the device VM.
    VhostUser,
}

impl VirtioKind {
    /// Returns the name in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Net => "net",
            Self::Console => "console",
            Self::Random => "rng",
            Self::Input => "input",
            Self::Vsock => "vsock",
            Self::VhostUser => "vhost-user",
        }
    }

    /// Returns the device type (virtio 1.2, chapter 5); 0 where the kind alone does not tell.
    #[must_use]
    pub const fn device_id(self) -> u32 {
        match self {
            Self::Net => 1,
            Self::Block => 2,
            Self::Console => 3,
            Self::Random => 4,
            Self::Input => 18,
            Self::Vsock => 19,
            Self::VhostUser => 0,
        }
    }
}
