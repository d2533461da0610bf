//! The memory that several VMs have from boot on, as the manifest says it.

use super::{Names, Region};

/// Memory that several VMs have from boot on, each at its physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The VMs that read and write it.
    pub vms: Names<'a>,
    /// The VMs that only read it.
    pub readers: Names<'a>,
}

impl SharedMemory<'_> {
    /// Bytes before the memory that describe it to Linux. They are not shared: each VM only reads
    /// them.
    pub const LEAD: u64 = crate::MEMORY_ALIGN;

    /// Returns the physical range.
    #[must_use]
    pub const fn region(&self) -> Region {
        Region::new(self.address, self.address.saturating_add(self.bytes))
    }

    /// Returns the same with what describes it.
    #[must_use]
    pub const fn with_lead(&self) -> Region {
        let region = self.region();
        Region::new(region.start.saturating_sub(Self::LEAD), region.end)
    }

    /// Tells whether the VM `name` may write it; `None`: it does not have it.
    #[must_use]
    pub fn access(&self, name: &str) -> Option<bool> {
        let among = |names: &Names<'_>| names.iter().any(|other| other == name);
        if among(&self.vms) {
            Some(true)
        } else {
            among(&self.readers).then_some(false)
        }
    }
}
