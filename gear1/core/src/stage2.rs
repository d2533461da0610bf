//! Stage 2: what a VM, or Gear2, sees of physical memory (Arm ARM D8.3.2, VTCR_EL2).
//!
//! Owns the choice of VTCR_EL2 and the attributes of stage-2 leaves, the sharing state in their
//! software bits included (DESIGN 4). Invariants: output addresses have at most 48 bits, whatever
//! the CPU offers; stage 2 is never laxer than what the caller named; memory is write-back
//! inner-shareable, so that Gear2 with `HCR_EL2.DC` is coherent with its owner.

use crate::addr::{Ipa, Pa};
use crate::table::{Level, MapError, Span, TABLE_SIZE, TableMemory, Tables};

/// The largest PARange that is used: 48 bits.
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
    /// Chooses the shape for a CPU with this ID_AA64MMFR0_EL1.PARange and for addresses below
    /// `limit`; `None` if the CPU has no such addresses.
    ///
    /// Machines that need no more than 40 bits get 40 (two concatenated root tables at level 1):
    /// it saves a level of every walk, and suits all CPUs of an A53 and A57 system.
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

/// What kind of memory a VM sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Write-back memory; the VM's stage 1 may make it less.
    Normal,
    /// Memory that no alias caches: what one VM sees as registers, and another fills in.
    Uncached,
    /// Device-nGnRE registers.
    Device,
}

/// Who else may use a page (DESIGN 4). Kept in bits 58:55 of its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PageState {
    /// Only the VM that it is mapped in.
    Owned = 1,
    /// The VM that it is mapped in, its owner, has shared it.
    SharedOwned = 2,
    /// Its owner has shared it with the VM that it is mapped in.
    SharedBorrowed = 3,
}

impl PageState {
    const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1 => Some(Self::Owned),
            2 => Some(Self::SharedOwned),
            3 => Some(Self::SharedBorrowed),
            _ => None,
        }
    }
}

/// What a VM may do with a page. All of them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The kind of memory.
    pub memory: Memory,
    /// Whether it can be written.
    pub write: bool,
    /// Whether it can be executed.
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

/// What maps an IPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The physical address of the IPA that was asked for.
    pub pa: Pa,
    /// What may be done there.
    pub attributes: Attributes,
    /// The size of the leaf: 1 GiB, 2 MiB or 4 KiB.
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

    /// Returns what maps `ipa`.
    #[must_use]
    pub fn walk<T: TableMemory>(&self, memory: &T, ipa: Ipa) -> Option<Leaf> {
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
