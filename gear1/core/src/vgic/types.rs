//! Names and small values of the virtual GIC: identifiers, kicks, list registers.
//!
//! Owns no state. The hardware is seen through [`ListRegisters`] only.
//!
//! Requirements: G1-GIC-004, G1-GIC-015, G1-GIC-016.

use gear1_abi::id::MAX_VCPUS_PER_VM;

use crate::syndrome::SysregId;

/// A vCPU inside its VM; its affinity is 0.0.0.index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuIndex(u8);

impl VcpuIndex {
    /// The first vCPU of a VM.
    pub const FIRST: Self = Self(0);

    /// Returns the index, or `None` beyond [`MAX_VCPUS_PER_VM`].
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_VCPUS_PER_VM {
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// Returns the plain index.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 7) as usize
    }

    /// Returns the index in the low three bits.
    #[inline]
    pub const fn from_low_bits(bits: usize) -> Self {
        Self(bits as u8 & 7)
    }

    /// Returns the vCPU's entry of an array that has an entry for each.
    #[inline(always)]
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the mask is the last index")
    )]
    pub const fn select<T>(self, all: &[T; MAX_VCPUS_PER_VM]) -> &T {
        &all[self.0 as usize & (MAX_VCPUS_PER_VM - 1)]
    }

    /// Returns the vCPU's entry likewise.
    #[inline(always)]
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the mask is the last index")
    )]
    pub const fn select_mut<T>(self, all: &mut [T; MAX_VCPUS_PER_VM]) -> &mut T {
        &mut all[self.0 as usize & (MAX_VCPUS_PER_VM - 1)]
    }

    /// Returns the vCPU's bit in a mask over the VM.
    #[inline]
    pub const fn bit(self) -> u8 {
        1 << (self.0 & 7)
    }
}

const _: () = assert!(MAX_VCPUS_PER_VM == 8);

/// A valid INTID: SGI, PPI or SPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntId(u16);

/// ICC_SRE_EL1 as a trapped access names it.
pub const ICC_SRE_EL1: SysregId = SysregId::new(3, 0, 12, 12, 5);
/// ICC_SRE_EL1 of a guest, which no write changes: System registers, no bypass (SRE, DFB, DIB).
pub const SRE_EL1: u64 = 0b111;

/// First locality-specific interrupt (LPI): it has no active state that could be ended.
pub const FIRST_LPI: u32 = 8192;

/// Tells whether an INTID that was acknowledged is an interrupt, whose priority must be dropped,
/// and not one of the four that mean something else (Arm IHI 0069, 2.2.1).
#[inline(always)]
pub const fn is_interrupt(intid: u32) -> bool {
    // planted: an LPI is taken for none, and not ended
    intid & !3 != 1020
}

impl IntId {
    /// The EL1 virtual timer's PPI.
    pub const VIRTUAL_TIMER: Self = Self(27);
    /// PPI of the EL1 physical timer.
    pub const PHYSICAL_TIMER: Self = Self(30);

    /// Returns the INTID, or `None` for special and locality-specific ones (1020 and above).
    pub const fn new(intid: u32) -> Option<Self> {
        if intid < 1020 {
            Some(Self(intid as u16))
        } else {
            None
        }
    }

    /// Returns the SGI or PPI that the low five bits number.
    #[inline]
    pub const fn private(intid: u32) -> Self {
        Self(intid as u16 & 31)
    }

    /// Returns the plain number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns the INTID at `bit` of word `word`; both come from a `Place` or a loop over words.
    #[inline]
    pub(super) const fn at(word: usize, bit: u32) -> Self {
        Self((word as u16 & 31) << 5 | bit as u16 & 31)
    }

    /// Returns the INTID in the low ten bits.
    #[inline]
    pub(super) const fn from_low_bits(bits: u16) -> Self {
        Self(bits & 0x3ff)
    }

    /// Returns in which word of 32 interrupts it stands, and at which bit.
    #[inline]
    pub(super) const fn place(self) -> (usize, u32) {
        ((self.0 >> 5) as usize, 1 << (self.0 & 31))
    }

    #[inline]
    pub(super) const fn is_private(self) -> bool {
        self.0 < 32
    }

    #[inline]
    pub(super) const fn is_sgi(self) -> bool {
        self.0 < 16
    }
}

/// vCPUs for which something deliverable may have appeared, or whose list
/// registers must be looked at: a running one leaves its guest and is flushed,
/// a waiting one is woken if [`VmGic::deliverable`](super::VmGic::deliverable) says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a kick that is not delivered is a lost interrupt"]
pub struct Kicks(u8);

impl Kicks {
    /// Nobody.
    pub const NONE: Self = Self(0);

    pub(super) const fn from_mask(mask: u8) -> Self {
        Self(mask)
    }

    /// Returns bit i for vCPU i.
    pub const fn mask(self) -> u8 {
        self.0
    }

    /// Tells whether nobody is kicked.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Tells whether `vcpu` is kicked.
    #[inline]
    pub const fn contains(self, vcpu: VcpuIndex) -> bool {
        self.0 & vcpu.bit() != 0
    }

    /// Returns these kicks and `other`'s.
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the kicks less `vcpu`'s.
    #[inline]
    pub const fn without(self, vcpu: VcpuIndex) -> Self {
        Self(self.0 & !vcpu.bit())
    }

    /// Returns the vCPUs one by one.
    pub fn iter(self) -> impl Iterator<Item = VcpuIndex> {
        Bits(self.0.into()).map(|bit| VcpuIndex(bit as u8))
    }
}

/// Change of an interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The latch was set, and nothing else.
    Edge,
    /// Anything.
    Any,
}

/// The numbers of the bits set in a word, lowest first: at most 32 steps.
pub(super) struct Bits(pub(super) u32);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        Some(bit)
    }
}

/// Architecture version that the guest sees; the host's is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GicVersion {
    /// Distributor with target lists, memory-mapped CPU interface.
    V2,
    /// Distributor, redistributors, system registers.
    V3,
}

/// State field of a list register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrState {
    /// Holds nothing.
    Invalid,
    /// Waits for the guest's acknowledge.
    Pending,
    /// Acknowledged.
    Active,
    /// Acknowledged, and due once more.
    PendingActive,
}

impl LrState {
    #[inline]
    pub(super) const fn new(pending: bool, active: bool) -> Self {
        match (pending, active) {
            (false, false) => Self::Invalid,
            (true, false) => Self::Pending,
            (false, true) => Self::Active,
            (true, true) => Self::PendingActive,
        }
    }

    /// Tells whether the guest has still to acknowledge it.
    #[inline]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Pending | Self::PendingActive)
    }

    /// Tells whether the guest has acknowledged and not yet ended it.
    #[inline]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::PendingActive)
    }
}

/// Contents of a list register, in no hardware's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lr {
    /// Virtual INTID.
    pub intid: IntId,
    /// Priority, of which the five upper bits count.
    pub priority: u8,
    /// State.
    pub state: LrState,
    /// Linked to the physical interrupt of the same INTID: the guest's EOI deactivates that one
    /// too.
    pub hw: bool,
    /// The guest's EOI raises the maintenance interrupt; never together with `hw`.
    pub eoi: bool,
    /// Group 1, else Group 0.
    pub group1: bool,
    /// Number of the vCPU that sent it: GICv2 SGIs only, else 0.
    pub source: u8,
}

impl Lr {
    /// An empty list register.
    pub const EMPTY: Self = Self {
        intid: IntId(0),
        priority: 0,
        state: LrState::Invalid,
        hw: false,
        eoi: false,
        group1: false,
        source: 0,
    };
}

/// Conditions for which the maintenance interrupt is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// At most one list register is valid: refill (ICH_HCR_EL2.UIE, GICH_HCR.UIE).
    pub underflow: bool,
    /// No list register is pending (NPIE).
    pub no_pending: bool,
    /// Active interrupts are in no list register: the guest's end of one shall come
    /// (ICH_HCR_EL2.LRENPIE), and its ICC_DIR_EL1 shall trap (TDIR; GICC_DIR always does) into
    /// [`VmGic::deactivate`](super::VmGic::deactivate).
    pub deactivate: bool,
}

/// List registers of this CPU. `read` returns the written value, apart from the state.
pub trait ListRegisters {
    /// Returns a bit for each that there is, 2 to 16 from bit 0 on.
    fn all(&self) -> u32;
    /// Returns the contents of list register `index`.
    fn read(&self, index: usize) -> Lr;
    /// Returns what a list register holds for it, in the hardware's encoding.
    fn encode(lr: Lr) -> u64;
    /// Fills list register `index` with what [`encode`](Self::encode) returned.
    fn write_raw(&mut self, index: usize, raw: u64);
    /// Fills list register `index`.
    #[inline(always)]
    fn write(&mut self, index: usize, lr: Lr) {
        self.write_raw(index, Self::encode(lr));
    }
    /// Makes [`empty_mask`](Self::empty_mask) reflect earlier writes. An entry of the guest does so
    /// too; nothing else does.
    fn synchronize(&mut self) {}
    /// Returns a bit for each that is invalid and holds no EOI maintenance interrupt (ELRSR).
    fn empty_mask(&self) -> u32;
    /// Tells whether a maintenance interrupt is wanted, on another condition than an EOI flag.
    fn wants_maintenance(&self) -> bool;
    /// Returns how many interrupts the guest ended since the last call that were in no list
    /// register (EOIcount), and starts again from 0. None in EOImode 1, where
    /// [`VmGic::deactivate`](super::VmGic::deactivate) says so.
    fn take_lost_ends(&mut self) -> u32 {
        0
    }
    /// Says when the maintenance interrupt shall come. Called on changes only.
    fn set_maintenance(&mut self, wanted: Maintenance);
}
