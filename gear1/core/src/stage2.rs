//! Stage 2: what a VM, or Gear2, sees of physical memory (Arm ARM D8.3.2, VTCR_EL2).
//!
//! Owns the choice of VTCR_EL2 and the attributes of stage-2 leaves, the sharing state in their
//! software bits included. Invariants: output addresses have at most 48 bits, whatever
//! the CPU offers; stage 2 is never laxer than what the caller named; memory is write-back
//! inner-shareable, so that Gear2 with `HCR_EL2.DC` is coherent with its owner.
//!
//! Requirements: G1-MEM-002, G1-CPU-004, G1-DMA-004.

use tock_registers::register_bitfields;

use crate::addr::{Ipa, Pa};
use crate::table::{
    Descriptors, Level, LiveTables, MapError, Span, TABLE_SIZE, TableMemory, Tables,
};

/// The largest PARange that is used: 48 bits.
// planted: stage 2 has addresses of 52 bits
const PA_RANGE_48: u64 = 5;

register_bitfields! { u64,
    /// VTCR_EL2 (Arm ARM D24.2.208). VS is 0: VMIDs have 8 bits.
    VTCR [
        RES1 OFFSET(31) NUMBITS(1) [],
        /// Physical address size, as ID_AA64MMFR0_EL1.PARange.
        PS OFFSET(16) NUMBITS(3) [],
        TG0 OFFSET(14) NUMBITS(2) [Granule4K = 0],
        /// Shareability of table walks.
        SH0 OFFSET(12) NUMBITS(2) [Inner = 0b11],
        /// Outer cacheability of table walks.
        ORGN0 OFFSET(10) NUMBITS(2) [WriteBack = 0b01],
        /// Inner cacheability of table walks.
        IRGN0 OFFSET(8) NUMBITS(2) [WriteBack = 0b01],
        /// Level that walks start at.
        SL0 OFFSET(6) NUMBITS(2) [Level2 = 0, Level1 = 1, Level0 = 2],
        /// 64 less the bits of an IPA.
        T0SZ OFFSET(0) NUMBITS(6) [],
    ],
    /// Descriptor of a block or page (Arm ARM D8.3.2), and of a page that is not valid but has an
    /// owner.
    LEAF [
        /// In descriptors that are not valid: the transaction that the page belongs to.
        TAG OFFSET(59) NUMBITS(5) [],
        /// A [`PageState`](crate::stage2::PageState), in bits that hardware ignores.
        STATE OFFSET(55) NUMBITS(4) [],
        /// XN[1]: never execute.
        XN OFFSET(54) NUMBITS(1) [],
        /// Bits 47:12 of the output address.
        ADDRESS OFFSET(12) NUMBITS(36) [],
        /// Accessed.
        AF OFFSET(10) NUMBITS(1) [],
        SH OFFSET(8) NUMBITS(2) [Inner = 0b11],
        WRITE OFFSET(7) NUMBITS(1) [],
        READ OFFSET(6) NUMBITS(1) [],
        MEMATTR OFFSET(2) NUMBITS(4) [DeviceNGnRE = 0b0001, Uncached = 0b0101, WriteBack = 0b1111],
        /// A page at level 3, not a block.
        PAGE OFFSET(1) NUMBITS(1) [],
        VALID OFFSET(0) NUMBITS(1) [],
    ],
}

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
    pub fn from_vtcr(vtcr: u64) -> Self {
        let bits = 64_u64.wrapping_sub(VTCR::T0SZ.read(vtcr));
        let (start, root_tables) = if VTCR::SL0::Level0.matches_all(vtcr) {
            (Level::L0, 1)
        } else {
            // 39 bits are one table at level 1.
            let roots = 1_u64.wrapping_shl(bits.saturating_sub(39) as u32);
            (Level::L1, roots)
        };
        Self {
            pa_range: VTCR::PS.read(vtcr),
            bits,
            start,
            root_tables,
        }
    }

    /// Returns VTCR_EL2.
    #[must_use]
    pub fn vtcr(&self) -> u64 {
        let start = match self.start {
            Level::L0 => VTCR::SL0::Level0,
            Level::L1 => VTCR::SL0::Level1,
            Level::L2 | Level::L3 => VTCR::SL0::Level2,
        };
        let walks = VTCR::SH0::Inner + VTCR::ORGN0::WriteBack + VTCR::IRGN0::WriteBack;
        let t0sz = VTCR::T0SZ.val(64_u64.wrapping_sub(self.bits));
        let size = VTCR::PS.val(self.pa_range) + start + t0sz;
        (VTCR::RES1::SET + VTCR::TG0::Granule4K + walks + size).value
    }

    /// Returns the PARange that limits output addresses.
    #[must_use]
    pub const fn pa_range(&self) -> u64 {
        self.pa_range
    }

    /// Returns the first address that is too large.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        1_u64.wrapping_shl(self.bits as u32)
    }

    /// Returns the level that walks start at.
    #[must_use]
    pub const fn start(&self) -> Level {
        self.start
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
    pub(crate) fn of(descriptor: u64) -> Option<Self> {
        Self::from_bits(LEAF::STATE.read(descriptor))
    }

    /// Tells whether pages of this state are kept in blocks. Only those that are their owner's
    /// alone: a page that is out, or another's, has a descriptor of its own until it is back, so to
    /// bring it back takes no table.
    fn is_kept_in_blocks(descriptor: u64) -> bool {
        // planted: what somebody else sees is kept in blocks, which take a table to be taken away
        LEAF::STATE.read(descriptor) == Self::Owned as u64
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
    fn describes(self, descriptor: u64, tag: u8) -> bool {
        let state = LEAF::STATE.read(descriptor);
        let valid = LEAF::VALID.is_set(descriptor);
        // planted: a share takes what the sender does not own
        state == self as u64
            && valid == self.is_mapped()
            && (valid || LEAF::TAG.read(descriptor) == u64::from(tag))
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
        let page = LEAF::PAGE::SET + LEAF::VALID::SET;
        let is_at_pa = old & LEAF::ADDRESS::SET.mask() == pa.get();
        let base = match self.from {
            None if old == 0 => pa.get() | self.rights.bits() | page.value,
            Some(from) if is_at_pa && from.describes(old, self.tag) => old,
            None | Some(_) => return None,
        };
        let Some(to) = self.to else {
            return Some(0);
        };
        // Address and rights stay.
        let state = LEAF::STATE.val(to as u64);
        let change = if to.is_mapped() {
            state + LEAF::VALID::SET + LEAF::TAG::CLEAR
        } else {
            state + LEAF::VALID::CLEAR + LEAF::TAG.val(self.tag.into())
        };
        Some(change.modify(base))
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
    /// Page in which a VM tells Gear1 something.
    pub const WRITTEN_UNOWNED: Self = Self {
        write: true,
        ..Self::READ_ONLY_UNOWNED
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

    fn bits(self) -> u64 {
        let memory = match self.memory {
            Memory::Normal => LEAF::MEMATTR::WriteBack + LEAF::SH::Inner,
            Memory::Uncached => LEAF::MEMATTR::Uncached + LEAF::SH::Inner,
            // planted: a device's registers are memory to stage 2
            Memory::Device => LEAF::MEMATTR::DeviceNGnRE,
        };
        let write = LEAF::WRITE.val(self.write.into());
        let never_execute = LEAF::XN.val((!self.execute).into());
        let state = LEAF::STATE.val(self.state.map_or(0, |state| state as u64));
        (memory + LEAF::READ::SET + write + never_execute + state + LEAF::AF::SET).value
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            memory: match LEAF::MEMATTR.read_as_enum(bits) {
                Some(LEAF::MEMATTR::Value::WriteBack) => Memory::Normal,
                Some(LEAF::MEMATTR::Value::Uncached) => Memory::Uncached,
                Some(LEAF::MEMATTR::Value::DeviceNGnRE) | None => Memory::Device,
            },
            write: LEAF::WRITE.is_set(bits),
            execute: !LEAF::XN.is_set(bits),
            state: PageState::from_bits(LEAF::STATE.read(bits)),
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
    /// own, and those of a VM with devices as well ([`LiveTables::keeps_pages`]). Returns whether
    /// it did, so that the table above may be the next.
    pub fn tidy<T: LiveTables>(&self, memory: &mut T, ipa: Ipa) -> bool {
        let merges = PageState::is_kept_in_blocks;
        self.0.tidy(memory, ipa.get(), merges)
    }

    /// Returns the transaction that the page at `ipa` belongs to, if it is in `state`, which is
    /// one of those that are not mapped.
    #[must_use]
    pub fn tag<T: Descriptors>(&self, memory: &T, ipa: Ipa, state: PageState) -> Option<u8> {
        let descriptor = self.0.slot(memory, ipa.get()).descriptor;
        let tag = LEAF::TAG.read(descriptor) as u8;
        (!LEAF::VALID.is_set(descriptor) && state.describes(descriptor, tag)).then_some(tag)
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
