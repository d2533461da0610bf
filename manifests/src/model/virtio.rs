//! The virtio devices of a VM, which the device VM serves.

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
        }
    }

    /// Returns the device type (virtio 1.2, chapter 5).
    #[must_use]
    pub const fn device_id(self) -> u32 {
        match self {
            Self::Net => 1,
            Self::Block => 2,
            Self::Console => 3,
            Self::Random => 4,
        }
    }
}
