//! Stage 2: what a VM, or Gear2, sees of physical memory (Arm ARM D8.3.2, VTCR_EL2).
//!
//! Owns the choice of VTCR_EL2 and the attributes of stage-2 leaves, the sharing state in their
//! software bits included. Invariants: output addresses have at most 48 bits, whatever
//! the CPU offers; stage 2 is never laxer than what the caller named; memory is write-back
//! inner-shareable, so that Gear2 with `HCR_EL2.DC` is coherent with its owner.
//!
//! Requirements: G1-MEM-002, G1-CPU-004.

use crate::addr::{Ipa, Pa};
use crate::table::{
    Descriptors, Level, LiveTables, MapError, Span, TABLE_SIZE, TableMemory, Tables,
};

/// The largest PARange that is used: 48 bits.
// planted: stage 2 has addresses of 52 bits
const PA_RANGE_48: u64 = 5;

const READ: u64 = 1 << 6;
const WRITE: u64 = 1 << 7;
const MEMORY_TYPE: u64 = 0b1111 << 2;
const NORMAL: u64 = 0b1111 << 2;
const NORMAL_UNCACHED: u64 = 0b0101 << 2;
const DEVICE_NGNRE: u64 = 0b0001 << 2;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NEVER_EXECUTE: u64 = 1 << 54;
const STATE_SHIFT: u32 = 55;
const STATE_MASK: u64 = 0xf;
/// In descriptors that are not valid: which transaction the page belongs to.
const TAG_SHIFT: u32 = 59;
const VALID: u64 = 1;
const PAGE: u64 = 0b11;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Descriptor bits that an edit keeps.
const ADDRESS_AND_RIGHTS: u64 = !(STATE_MASK << STATE_SHIFT | 0x1f << TAG_SHIFT | VALID);

/// VTCR_EL2 beside T0SZ, SL0 and PS: RES1, write-back inner-shareable walks, 4 KiB granule, 8-bit
/// VMIDs.
const VTCR: u64 = 1 << 31 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8;

/// Returns ID_AA64MMFR0_EL1.PARange cut to what Gear1 uses; 52 bits and reserved values are 48.
pub(crate) const fn clamped_pa_range(pa_range: u64) -> u64 {
    let pa_range = pa_range & 0xf;
    if pa_range < PA_RANGE_48 {
        pa_range
    } else {
        PA_RANGE_48
    }
}

/// The shape of every stage-2 tree of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pa_range: u64,
    bits: u64,
    start: Level,
    root_tables: u64,
}

impl Geometry {
    /// Returns the geometry for a CPU with this ID_AA64MMFR0_EL1.PARange and for addresses below
    /// `limit`; `None` if the CPU has no such addresses.
    ///
    /// Machines that need no more than 40 bits get 40 (two concatenated root tables at level 1):
    /// every walk is one level shorter, and all CPUs of an A53 and A57 system support 40 bits.
    #[must_use]
    pub fn choose(pa_range: u64, limit: u64) -> Option<Self> {
        let widest = clamped_pa_range(pa_range);
        let shape = |pa_range: u64| {
            let (bits, start, root_tables) = match pa_range {
                0 => (32, Level::L1, 1),
                1 => (36, Level::L1, 1),
                2 => (40, Level::L1, 2),
                3 => (42, Level::L1, 8),
                4 => (44, Level::L0, 1),
                _ => (48, Level::L0, 1),
            };
            Self {
                pa_range,
                bits,
                start,
                root_tables,
            }
        };
        let narrow = shape(widest.min(2));
        let geometry = if limit <= narrow.limit() {
            narrow
        } else {
            shape(widest)
        };
        (limit <= geometry.limit()).then_some(geometry)
    }

    /// Returns the shape that this VTCR_EL2, which [`vtcr`](Self::vtcr) returned, describes.
    #[must_use]
    pub const fn from_vtcr(vtcr: u64) -> Self {
        let bits = 64_u64.wrapping_sub(vtcr & 0x3f);
        let (start, root_tables) = if vtcr >> 6 & 0b11 == 2 {
            (Level::L0, 1)
        } else {
            // 39 bits are one table at level 1.
            let roots = 1_u64.wrapping_shl(bits.saturating_sub(39) as u32);
            (Level::L1, roots)
        };
        Self {
            pa_range: vtcr >> 16 & 7,
            bits,
            start,
            root_tables,
        }
    }

    /// Returns VTCR_EL2.
    #[must_use]
    pub const fn vtcr(&self) -> u64 {
        let t0sz = 64_u64.wrapping_sub(self.bits);
        let sl0 = match self.start {
            Level::L0 => 2,
            Level::L1 => 1,
            Level::L2 | Level::L3 => 0,
        };
        VTCR | self.pa_range << 16 | sl0 << 6 | t0sz
    }

    /// Returns the first address that is too large.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        1_u64.wrapping_shl(self.bits as u32)
    }

    /// Returns the bytes of a root, which is also its alignment.
    #[must_use]
    pub const fn root_size(&self) -> u64 {
        TABLE_SIZE.wrapping_mul(self.root_tables)
    }

    /// Returns the tree with its root at `root`.
    #[must_use]
    pub const fn stage2(&self, root: Pa) -> Stage2 {
        Stage2(Tables::new(root, self.start, self.limit()))
    }
}

/// Type of memory that a VM sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Write-back memory; the VM's stage 1 may make it less.
    Normal,
    /// Memory that no alias caches: what one VM sees as registers, and another fills in.
    Uncached,
    /// Device-nGnRE registers.
    Device,
}

/// Ownership of a page from the view of the VM whose descriptor holds the state, in bits 58:55.
/// [`crate::ownership`] has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PageState {
    /// Mapped; only this VM uses the page.
    Owned = 1,
    /// Mapped; this VM owns the page and has shared it.
    SharedOwned = 2,
    /// Mapped; the owner has shared the page with this VM, or lent it.
    SharedBorrowed = 3,
    /// Not mapped; this VM owns the page and has lent it.
    Lent = 4,
    /// Not mapped; this VM has donated the page.
    Donated = 5,
    /// Mapped; the page was donated to this VM.
    Received = 6,
    /// Mapped; this VM owns the page and uses it as one of its two FF-A buffers.
    Buffer = 7,
    /// Mapped; this VM owns the page, or received it, and a call that is not done is about to send
    /// it. The VM uses the page as before.
    Claimed = 8,
}

impl PageState {
    const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1 => Some(Self::Owned),
            2 => Some(Self::SharedOwned),
            3 => Some(Self::SharedBorrowed),
            4 => Some(Self::Lent),
            5 => Some(Self::Donated),
            6 => Some(Self::Received),
            7 => Some(Self::Buffer),
            8 => Some(Self::Claimed),
            _ => None,
        }
    }

    /// Returns the state that a descriptor says.
    #[cfg(test)]
    pub(crate) const fn of(descriptor: u64) -> Option<Self> {
        Self::from_bits(descriptor >> STATE_SHIFT & STATE_MASK)
    }

    /// Tells whether pages of this state are kept in blocks. Only those that are their owner's
    /// alone: a page that is out, or another's, has a descriptor of its own until it is back, so to
    /// bring it back takes no table.
    const fn is_kept_in_blocks(descriptor: u64) -> bool {
        // planted: what somebody else sees is kept in blocks, which take a table to be taken away
        descriptor >> STATE_SHIFT & STATE_MASK == Self::Owned as u64
    }

    /// Tells whether the VM can use the page.
    const fn is_mapped(self) -> bool {
        match self {
            // planted: a lent page stays mapped in its owner
            Self::Lent | Self::Donated => false,
            Self::Owned
            | Self::SharedOwned
            | Self::SharedBorrowed
            | Self::Received
            | Self::Buffer
            | Self::Claimed => true,
        }
    }

    /// Tells whether this is the state of the page `descriptor`, and if it is not mapped, whether
    /// it belongs to the transaction `tag`.
    const fn describes(self, descriptor: u64, tag: u8) -> bool {
        let state = descriptor >> STATE_SHIFT & STATE_MASK;
        let valid = descriptor & VALID != 0;
        // planted: a share takes what the sender does not own
        state == self as u64
            && valid == self.is_mapped()
            && (valid || descriptor >> TAG_SHIFT == tag as u64)
    }
}

/// A change of one page's descriptor: the required state, and the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// State that the page must be in; `None`: no descriptor.
    pub from: Option<PageState>,
    /// State that the page gets; `None`: the descriptor is removed.
    pub to: Option<PageState>,
    /// Attributes of a page that is mapped where no page was.
    pub rights: Attributes,
    /// Transaction that a page without a mapping belongs to, below 32.
    pub tag: u8,
}

impl Edit {
    /// Returns the edit that undoes this one.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..self
        }
    }

    /// Tells whether the edit leaves what may be cached in TLBs.
    #[must_use]
    pub const fn takes_rights(&self) -> bool {
        let was = match self.from {
            Some(from) => from.is_mapped(),
            None => false,
        };
        let is = match self.to {
            Some(to) => to.is_mapped(),
            None => false,
        };
        was && !is
    }

    /// Returns the new descriptor of the page at `pa`, or `None` if `old` is not the required one.
    fn apply(&self, old: u64, pa: Pa) -> Option<u64> {
        let base = match self.from {
            None if old == 0 => pa.get() | self.rights.bits() | PAGE,
            Some(from) if old & ADDRESS == pa.get() && from.describes(old, self.tag) => old,
            None | Some(_) => return None,
        };
        let Some(to) = self.to else {
            return Some(0);
        };
        let base = base & ADDRESS_AND_RIGHTS | (to as u64) << STATE_SHIFT;
        Some(if to.is_mapped() {
            base | VALID
        } else {
            base | u64::from(self.tag) << TAG_SHIFT
        })
    }
}

/// Result of an [`Edit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The page is changed.
    Done,
    /// The page is not in the state that the edit starts from.
    Refused,
    /// One of the tables on the way to the page was made. The caller asks again.
    TableMade,
}

/// Attributes of a VM's mapping. Every mapping can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The kind of memory.
    pub memory: Memory,
    /// Whether the VM may write.
    pub write: bool,
    /// Whether the VM may execute.
    pub execute: bool,
    /// The sharing state; `None` for what has no owner among the VMs.
    pub state: Option<PageState>,
}

impl Attributes {
    /// A VM's RAM.
    pub const RAM: Self = Self {
        memory: Memory::Normal,
        write: true,
        execute: true,
        state: Some(PageState::Owned),
    };
    /// Gear2's code.
    pub const CODE: Self = Self {
        write: false,
        ..Self::RAM
    };
    /// Gear2's constants.
    pub const CONSTANTS: Self = Self {
        execute: false,
        ..Self::CODE
    };
    /// Gear2's data.
    pub const DATA: Self = Self {
        execute: false,
        ..Self::RAM
    };
    /// Registers that are memory: the VM reads what its device model filled in.
    pub const REGISTERS: Self = Self {
        memory: Memory::Uncached,
        state: Some(PageState::SharedBorrowed),
        ..Self::CONSTANTS
    };
    /// Page in which Gear1 publishes data to a VM.
    pub const READ_ONLY_UNOWNED: Self = Self {
        state: None,
        ..Self::CONSTANTS
    };
    /// Registers of a device.
    pub const DEVICE: Self = Self {
        memory: Memory::Device,
        write: true,
        execute: false,
        state: None,
    };

    /// Returns the same with another sharing state.
    #[must_use]
    pub const fn with_state(self, state: PageState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    const fn bits(self) -> u64 {
        let memory = match self.memory {
            Memory::Normal => NORMAL | INNER_SHAREABLE,
            Memory::Uncached => NORMAL_UNCACHED | INNER_SHAREABLE,
            // planted: a device's registers are memory to stage 2
            Memory::Device => DEVICE_NGNRE,
        };
        let write = if self.write { WRITE } else { 0 };
        let execute = if self.execute { 0 } else { NEVER_EXECUTE };
        let state = match self.state {
            Some(state) => (state as u64) << STATE_SHIFT,
            None => 0,
        };
        memory | READ | write | execute | state | ACCESSED
    }

    const fn from_bits(bits: u64) -> Self {
        Self {
            memory: match bits & MEMORY_TYPE {
                NORMAL => Memory::Normal,
                NORMAL_UNCACHED => Memory::Uncached,
                _ => Memory::Device,
            },
            write: bits & WRITE != 0,
            execute: bits & NEVER_EXECUTE == 0,
            state: PageState::from_bits(bits >> STATE_SHIFT & STATE_MASK),
        }
    }
}

/// Mapping of an IPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Physical address of the IPA.
    pub pa: Pa,
    /// Attributes of the mapping.
    pub attributes: Attributes,
    /// Size of the leaf: 1 GiB, 2 MiB or 4 KiB.
    pub level: Level,
}

/// A stage-2 tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage2(Tables);

impl Stage2 {
    /// Returns the root for VTTBR_EL2.
    #[must_use]
    pub const fn root(&self) -> Pa {
        self.0.root()
    }

    /// Maps `size` bytes at `ipa` to `pa`, or changes nothing.
    pub fn map<T: TableMemory>(
        &self,
        memory: &mut T,
        ipa: Ipa,
        pa: Pa,
        size: u64,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        let span = Span {
            input: ipa.get(),
            output: pa.get(),
            size,
        };
        self.0.map(memory, span, attributes.bits())
    }

    /// Changes the page at `ipa`, which is `pa`. What is refused changes no page, but may leave
    /// tables that [`tidy`](Self::tidy) takes away.
    pub fn edit<T: TableMemory + LiveTables>(
        &self,
        memory: &mut T,
        ipa: Ipa,
        pa: Pa,
        edit: &Edit,
    ) -> Result<Edited, MapError> {
        // A page without a descriptor is refused without a split, which would need a table.
        if edit.from.is_some() && self.0.slot(memory, ipa.get()).descriptor == 0 {
            return Ok(Edited::Refused);
        }
        let Some(slot) = self.0.page(memory, ipa.get())? else {
            return Ok(Edited::TableMade);
        };
        let Some(new) = edit.apply(slot.descriptor, pa) else {
            return Ok(Edited::Refused);
        };
        memory.write(slot.table, slot.index, new);
        Ok(Edited::Done)
    }

    /// Changes the page at `ipa`, which is `pa`, that an [`edit`](Self::edit) changed before:
    /// undoes that, or completes it. The page has a descriptor of its own since then, for
    /// [`tidy`](Self::tidy) leaves it one: so there is nothing to be made, and nothing that can be
    /// refused. A page that is not as `change` says was never edited, and stays. Tells whether it
    /// was changed.
    pub fn amend<T: Descriptors>(&self, memory: &mut T, ipa: Ipa, pa: Pa, change: &Edit) -> bool {
        let slot = self.0.slot(memory, ipa.get());
        let new = change.apply(slot.descriptor, pa);
        if slot.level == Level::L3
            && let Some(new) = new
        {
            memory.write(slot.table, slot.index, new);
            return true;
        }
        false
    }

    /// Returns the level of what stands for `ipa`, and its descriptor.
    #[cfg(test)]
    pub(crate) fn descriptor<T: Descriptors>(&self, memory: &T, ipa: Ipa) -> (u64, u64) {
        let slot = self.0.slot(memory, ipa.get());
        (slot.level.size(), slot.descriptor)
    }

    /// Frees the last table on the way to `ipa` if it is no longer needed: if it is empty, or maps
    /// the same as a block of the owner's own memory. All other pages keep descriptors of their
    /// own. Returns whether it did, so that the table above may be the next.
    pub fn tidy<T: LiveTables>(&self, memory: &mut T, ipa: Ipa) -> bool {
        let merges = PageState::is_kept_in_blocks;
        self.0.tidy(memory, ipa.get(), merges)
    }

    /// Returns the transaction that the page at `ipa` belongs to, if it is in `state`, which is
    /// one of those that are not mapped.
    #[must_use]
    pub fn tag<T: Descriptors>(&self, memory: &T, ipa: Ipa, state: PageState) -> Option<u8> {
        let descriptor = self.0.slot(memory, ipa.get()).descriptor;
        let tag = (descriptor >> TAG_SHIFT) as u8;
        (descriptor & VALID == 0 && state.describes(descriptor, tag)).then_some(tag)
    }

    /// Returns what maps `ipa`.
    #[must_use]
    pub fn walk<T: Descriptors>(&self, memory: &T, ipa: Ipa) -> Option<Leaf> {
        let leaf = self.0.walk(memory, ipa.get())?;
        let attributes = Attributes::from_bits(leaf.descriptor);
        Some(Leaf {
            pa: leaf.output,
            attributes,
            level: leaf.level,
        })
    }
}

#[cfg(test)]
mod tests;
