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
}

impl ChannelEnd<'_> {
    /// Linux's code of the key that stands for an interrupt: BTN_0.
    pub const KEY: u32 = 0x100;
    /// Name of the node of that key, below the channel's.
    pub const KEY_NODE: &'static str = "ring";

    /// Returns the values of `compatible`. Linux's `uio_pdrv_genirq` is told to look for the
    /// second. The third is for kernels without that driver: to `gpio-keys` an interrupt is a key
    /// that is pressed and released. Linux gives a node to one driver only.
    #[must_use]
    pub const fn compatible(&self) -> &'static [&'static str] {
        match self.intid {
            Some(_) => &["gearv,channel", "generic-uio", "gpio-keys"],
            None => &["gearv,channel", "generic-uio"],
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
