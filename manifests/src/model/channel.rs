//! Doorbells between VMs, as the manifest says them.

use super::Region;

/// A doorbell: a store of one VM that interrupts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// VM that rings.
    pub from: &'a str,
    /// VM that is interrupted.
    pub to: &'a str,
    /// Shared memory that both VMs are told of.
    pub memory: Option<&'a str>,
    /// Least microseconds between two interrupts; `None`: the manifest does not say.
    pub min_interval_us: Option<u32>,
    /// Address of the doorbell's page in `from`.
    pub ipa: u64,
    /// INTID of the edge-triggered interrupt of `to`.
    pub intid: u32,
    /// The channel is the power button of `to`: Gear2 presses it, and no VM rings it.
    pub power_button: bool,
}

impl Channel<'_> {
    /// Bytes of a doorbell's page.
    pub const PAGE: u64 = 0x1000;
    const FIRST_PAGE: u64 = 0x0b00_0000;
    const FIRST_INTID: u32 = 240;

    /// Returns the address and the INTID of a channel that gives none, by its place in the file.
    #[must_use]
    pub const fn defaults(place: usize) -> (u64, u32) {
        let ipa = Self::FIRST_PAGE + Self::PAGE * place as u64;
        (ipa, Self::FIRST_INTID + place as u32)
    }

    /// Returns the page in `from` at whose first address a store rings.
    #[must_use]
    pub const fn doorbell(&self) -> Region {
        Region::new(self.ipa, self.ipa.saturating_add(Self::PAGE))
    }
}

/// View of a channel by one of its two VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEnd<'a> {
    /// Name of the channel.
    pub name: &'a str,
    /// Page of the doorbell, in the VM that rings.
    pub doorbell: Option<Region>,
    /// INTID of the edge-triggered interrupt, in the VM that is interrupted.
    pub intid: Option<u32>,
    /// Memory that both VMs have.
    pub memory: Option<Region>,
    /// The interrupt is a press of the VM's power button.
    pub power_button: bool,
}

impl ChannelEnd<'_> {
    /// Linux's code of the key that stands for an interrupt: BTN_0.
    const KEY: u32 = 0x100;
    /// KEY_POWER, at which systemd's logind and ACPI-like daemons shut a system down.
    const POWER_KEY: u32 = 116;
    /// Name of the node of that key, below the channel's.
    pub const KEY_NODE: &'static str = "ring";

    /// Property that has the name of Linux' UIO device, which is the channel's.
    pub const UIO_NAME: &'static str = "linux,uio-name";

    /// Returns the values of `compatible`. Linux's `uio_pdrv_genirq` is told to look for the
    /// second. The third is for kernels without that driver: to `gpio-keys` an interrupt is a key
    /// that is pressed and released. Linux gives a node to one driver only, so that a power button
    /// is offered to that driver alone.
    #[must_use]
    pub const fn compatible(&self) -> &'static [&'static str] {
        match self.intid {
            _ if self.power_button => &["gearv,power-button", "gpio-keys"],
            Some(_) => &["gearv,channel", "generic-uio", "gpio-keys"],
            None => &["gearv,channel", "generic-uio"],
        }
    }

    /// Returns Linux's code of the key that stands for the interrupt.
    #[must_use]
    pub const fn key(&self) -> u32 {
        if self.power_button {
            Self::POWER_KEY
        } else {
            Self::KEY
        }
    }

    /// Returns the ranges of `reg`, with their names.
    pub fn registers(&self) -> impl Iterator<Item = (&'static str, Region)> {
        let doorbell = self.doorbell.map(|page| ("doorbell", page));
        let memory = self.memory.map(|memory| ("memory", memory));
        doorbell.into_iter().chain(memory)
    }

    /// Returns the address in the name of the node: that of the first range.
    #[must_use]
    pub fn unit_address(&self) -> Option<u64> {
        Some(self.registers().next()?.1.start)
    }
}
