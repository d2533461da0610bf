//! ESR_EL2 decoded (Arm ARM D24.2.40), and the syndromes reflected to a guest.

/// Exception classes that reach EL2 from a guest or from Gear2.
pub mod ec {
    /// Unknown reason.
    pub const UNKNOWN: u64 = 0x00;
    /// WFI or WFE.
    pub const WFX: u64 = 0x01;
    /// FP/SIMD access trapped.
    pub const FP: u64 = 0x07;
    /// SVC from AArch64.
    pub const SVC64: u64 = 0x15;
    /// HVC from AArch64.
    pub const HVC64: u64 = 0x16;
    /// SMC from AArch64.
    pub const SMC64: u64 = 0x17;
    /// MSR, MRS or system instruction from AArch64.
    pub const SYSREG: u64 = 0x18;
    /// Instruction abort from a lower EL.
    pub const INSTRUCTION_ABORT: u64 = 0x20;
    /// Instruction abort at the current EL.
    pub const INSTRUCTION_ABORT_SAME: u64 = 0x21;
    /// Data abort from a lower EL.
    pub const DATA_ABORT: u64 = 0x24;
    /// Data abort at the current EL.
    pub const DATA_ABORT_SAME: u64 = 0x25;
}

/// Instruction length bit: a 32-bit instruction trapped.
pub const IL: u64 = 1 << 25;
const EC_SHIFT: u32 = 26;
/// Synchronous external abort, not on a table walk.
const FSC_EXTERNAL: u64 = 0x10;
/// Synchronous external abort on a table walk, plus the level.
const FSC_EXTERNAL_WALK: u64 = 0x14;

/// A syndrome register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u64);

impl Syndrome {
    /// Returns the exception class.
    #[inline]
    pub const fn class(self) -> u64 {
        (self.0 >> EC_SHIFT) & 0x3f
    }

    /// Returns the 16-bit immediate of SVC, HVC or SMC.
    #[inline]
    pub const fn immediate(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    /// Tells whether a trapped WFx was WFE (otherwise WFI).
    pub const fn is_wfe(self) -> bool {
        self.0 & 1 != 0
    }

    /// Tells whether a trapped WFx was one with a timeout (FEAT_WFxT), which guests do not have.
    pub const fn is_wfxt(self) -> bool {
        self.0 & 2 != 0
    }

    /// Reads the syndrome as that of a data abort.
    #[inline]
    pub const fn data_abort(self) -> DataAbort {
        DataAbort(self.0)
    }

    /// Reads the syndrome as that of a system register access.
    #[inline]
    pub const fn sysreg(self) -> SysregAccess {
        SysregAccess(self.0)
    }
}

/// Meaning of a fault status code for a stage-2 fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No translation.
    Translation,
    /// Translated, access not allowed.
    Permission,
    /// Everything else (address size, access flag, external, alignment...).
    Other,
}

/// Syndrome of an instruction or data abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAbort(u64);

impl DataAbort {
    /// Returns the kind of fault.
    #[inline]
    pub const fn kind(self) -> FaultKind {
        match self.0 & 0x3c {
            0x04 => FaultKind::Translation,
            0x0c => FaultKind::Permission,
            _ => FaultKind::Other,
        }
    }

    /// Tells whether size, register and direction are valid (ISV).
    #[inline]
    pub const fn is_decoded(self) -> bool {
        self.0 & 1 << 24 != 0
    }

    /// Returns whether the syndrome describes an access that stage 2 denies and that Gear1 cannot
    /// emulate, because the syndrome does not describe the instruction (G1-FLT-005). A syndrome of
    /// a walk never does.
    pub const fn lacks_syndrome(self) -> bool {
        // planted: the log calls a decoded access one without syndrome
        !self.is_decoded()
            && !self.on_table_walk()
            && matches!(self.kind(), FaultKind::Translation | FaultKind::Permission)
    }

    /// Returns whether the abort came from a stage-1 table walk (S1PTW).
    #[inline]
    pub const fn on_table_walk(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Returns whether the access was a write (WnR). Cache maintenance counts as a write.
    #[inline]
    pub const fn is_write(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// Tells whether a cache maintenance instruction caused it (CM).
    #[inline]
    pub const fn is_cache_maintenance(self) -> bool {
        self.0 & 1 << 8 != 0
    }

    /// Returns whether the access is a 32-bit load, zero-extended, from an unmapped address.
    #[inline]
    pub const fn is_word_load(self) -> bool {
        const MASK: u64 = 1 << 24 | 3 << 22 | 1 << 21 | 1 << 7 | 1 << 6 | 0x3c;
        self.0 & MASK == 1 << 24 | 2 << 22 | 4
    }

    /// Returns log2 of the access size in bytes (SAS).
    #[inline]
    pub const fn size_log2(self) -> u8 {
        ((self.0 >> 22) & 3) as u8
    }

    /// Returns the register transferred (SRT).
    #[inline]
    pub const fn register(self) -> u8 {
        ((self.0 >> 16) & 31) as u8
    }

    /// Returns the whole syndrome.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the bytes that a store of `value` writes.
    #[inline]
    pub const fn truncate(self, value: u64) -> u64 {
        let unused = 64_u32.saturating_sub(8 << self.size_log2());
        (value << unused) >> unused
    }

    /// Returns what a load puts into its register when memory holds `value`:
    /// truncated to the access size, sign-extended (SSE) to the register's width (SF).
    #[inline]
    pub const fn extend(self, value: u64) -> u64 {
        let unused = 64_u32.saturating_sub(8 << self.size_log2());
        let zeroed = (value << unused) >> unused;
        if self.0 & 1 << 21 == 0 {
            return zeroed;
        }
        let signed = (((value << unused) as i64) >> unused) as u64;
        if self.0 & 1 << 15 != 0 {
            signed
        } else {
            signed & 0xffff_ffff
        }
    }
}

/// Syndrome of a trapped MSR, MRS or system instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysregAccess(u64);

/// Encoding of a system register as it stands in a syndrome: Op0, Op2, Op1, CRn, CRm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysregId(pub u32);

impl SysregId {
    const MASK: u64 = 0x3f_fc1e;

    /// Returns the identifier of the register `S<op0>_<op1>_C<crn>_C<crm>_<op2>`.
    pub const fn new(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> Self {
        Self(op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1)
    }

    /// Returns (op0, op1, CRn, CRm, op2).
    pub const fn fields(self) -> (u32, u32, u32, u32, u32) {
        let id = self.0;
        (
            (id >> 20) & 3,
            (id >> 14) & 7,
            (id >> 10) & 15,
            (id >> 1) & 15,
            (id >> 17) & 7,
        )
    }
}

impl SysregAccess {
    /// Returns the register of the access.
    #[inline]
    pub const fn id(self) -> SysregId {
        SysregId((self.0 & SysregId::MASK) as u32)
    }

    /// Returns whether the access is a read (MRS).
    #[inline]
    pub const fn is_read(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the general register of the instruction (Rt).
    #[inline]
    pub const fn register(self) -> u8 {
        ((self.0 >> 5) & 31) as u8
    }
}

/// Returns PSTATE behind an instruction that was carried out for the guest: without what the
/// instruction would have cleared, had the CPU executed it (G1-CPU-009). BTYPE left set makes the
/// next one a branch target exception, SS left set makes two instructions one step. AArch32, which
/// guests are not shown, has the IT state where BTYPE is.
#[inline(always)]
pub const fn stepped_over(pstate: u64) -> u64 {
    // planted: the next instruction is a branch target
    pstate & !PSTATE_BTYPE & !PSTATE_SS
}

/// Entry of an exception taken to a guest's EL1: the vector's offset from VBAR_EL1 and the PSTATE
/// of its handler (Arm ARM D1.3.1 and D1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    vector_offset: u64,
    pstate: u64,
    from_el0: bool,
}

const PSTATE_MODE: u64 = 0x1f;
const PSTATE_EL0: u64 = 0x0;
const PSTATE_EL1T: u64 = 0x4;
const PSTATE_AARCH32: u64 = 1 << 4;
const PSTATE_DAIF: u64 = 0xf << 6;
const PSTATE_EL1H: u64 = 0x5;
/// Bits a handler inherits: NZCV, DIT, PAN (raised below), UAO cleared.
const PSTATE_INHERITED: u64 = 0xf << 28 | 1 << 24 | 1 << 22;
const PSTATE_PAN: u64 = 1 << 22;
const PSTATE_SS: u64 = 1 << 21;
const PSTATE_BTYPE: u64 = 0b11 << 10;
const PSTATE_SSBS: u64 = 1 << 12;
const SCTLR_SPAN: u64 = 1 << 23;
const SCTLR_DSSBS: u64 = 1 << 44;

impl Entry {
    /// Returns the offset of the vector from VBAR_EL1.
    #[must_use]
    pub const fn vector_offset(self) -> u64 {
        self.vector_offset
    }

    /// Tells whether the exception came from EL0.
    #[must_use]
    pub const fn is_from_el0(self) -> bool {
        self.from_el0
    }

    /// Returns PSTATE of the handler, which is always EL1's.
    #[must_use]
    pub const fn pstate(self) -> u64 {
        self.pstate
    }

    /// Returns how a synchronous exception enters EL1 of a guest whose PSTATE is
    /// `pstate` and whose SCTLR_EL1 is `sctlr`. `has_pan`: the CPU has FEAT_PAN.
    pub const fn synchronous(pstate: u64, sctlr: u64, has_pan: bool) -> Self {
        let mode = pstate & PSTATE_MODE;
        let (vector_offset, from_el0) = if mode & PSTATE_AARCH32 != 0 {
            (0x600, true)
        } else if mode == PSTATE_EL0 {
            (0x400, true)
        } else if mode == PSTATE_EL1T {
            // planted: a fault at EL1t enters the vector of EL1h
            (0x000, false)
        } else {
            (0x200, false)
        };
        let pan = if has_pan && sctlr & SCTLR_SPAN == 0 {
            PSTATE_PAN
        } else {
            0
        };
        // Both bits are RES0 without FEAT_SSBS.
        let ssbs = if sctlr & SCTLR_DSSBS != 0 {
            PSTATE_SSBS
        } else {
            0
        };
        let inherited = if mode & PSTATE_AARCH32 != 0 {
            pstate & 0xf << 28
        } else {
            pstate & PSTATE_INHERITED
        };
        Self {
            vector_offset,
            // planted: a handler runs with interrupts
            pstate: inherited | pan | ssbs | PSTATE_DAIF | PSTATE_EL1H,
            from_el0,
        }
    }

    /// Returns ESR_EL1 for an undefined instruction.
    pub const fn undefined() -> u64 {
        ec::UNKNOWN << EC_SHIFT | IL
    }

    /// Returns ESR_EL1 for the external abort that stands for an access nobody answers.
    /// `walk_level`: it was the guest's own table walk that nobody answered, at this level. EA, FnV
    /// and SET are zero: the kind is unspecified, FAR_EL1 valid, the abort recoverable
    /// (G1-FLT-001).
    pub const fn external_abort(self, taken: Syndrome, walk_level: Option<u8>) -> u64 {
        let fetch = taken.class() == ec::INSTRUCTION_ABORT;
        let class = match (fetch, self.from_el0) {
            (true, true) => ec::INSTRUCTION_ABORT,
            (true, false) => ec::INSTRUCTION_ABORT_SAME,
            (false, true) => ec::DATA_ABORT,
            // planted: an abort comes from EL0 always
            (false, false) => ec::DATA_ABORT_SAME,
        };
        // WnR and CM describe the guest's own instruction; the rest would describe stage 2.
        let kept = if fetch {
            0
        } else {
            taken.0 & (1 << 6 | 1 << 8)
        };
        let status = match walk_level {
            Some(level) => FSC_EXTERNAL_WALK | level as u64 & 3,
            None => FSC_EXTERNAL,
        };
        class << EC_SHIFT | taken.0 & IL | kept | status
    }
}

#[cfg(test)]
mod tests;
