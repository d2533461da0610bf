//! ESR_EL2 decoded (Arm ARM D24.2.40), and the syndromes reflected to a guest.

use tock_registers::register_bitfields;

register_bitfields! { u64,
    /// ESR_ELx.
    ESR [
        /// Exception class: a constant of [`ec`](crate::syndrome::ec).
        EC OFFSET(26) NUMBITS(6) [],
        /// Instruction length: a 32-bit instruction trapped.
        IL OFFSET(25) NUMBITS(1) [],
    ],
    /// ISS of SVC, HVC and SMC.
    CALL [
        IMM16 OFFSET(0) NUMBITS(16) [],
    ],
    /// ISS of WFI and WFE.
    WFX [
        /// TI, upper bit: with a timeout (FEAT_WFxT).
        TIMEOUT OFFSET(1) NUMBITS(1) [],
        /// TI, lower bit: WFE, else WFI.
        WFE OFFSET(0) NUMBITS(1) [],
    ],
    /// ISS of instruction and data aborts.
    ABORT [
        /// SAS to SF are valid.
        ISV OFFSET(24) NUMBITS(1) [],
        /// Log2 of the access size in bytes.
        SAS OFFSET(22) NUMBITS(2) [Byte = 0, Halfword = 1, Word = 2, Doubleword = 3],
        /// The load sign-extends.
        SSE OFFSET(21) NUMBITS(1) [],
        /// Register transferred.
        SRT OFFSET(16) NUMBITS(5) [],
        /// The register has 64 bits.
        SF OFFSET(15) NUMBITS(1) [],
        /// Cache maintenance.
        CM OFFSET(8) NUMBITS(1) [],
        /// Stage-2 fault of a stage-1 table walk.
        S1PTW OFFSET(7) NUMBITS(1) [],
        /// Write, not read.
        WnR OFFSET(6) NUMBITS(1) [],
        /// Fault status code without its level.
        FAULT OFFSET(2) NUMBITS(4) [
            Translation = 0b0001,
            Permission = 0b0011,
            External = 0b0100,
            ExternalOnWalk = 0b0101,
        ],
        /// Level of the fault status code.
        LEVEL OFFSET(0) NUMBITS(2) [],
    ],
    /// ISS of MSR, MRS and system instructions.
    SYSREG [
        OP0 OFFSET(20) NUMBITS(2) [],
        OP2 OFFSET(17) NUMBITS(3) [],
        OP1 OFFSET(14) NUMBITS(3) [],
        CRN OFFSET(10) NUMBITS(4) [],
        /// General register of the instruction.
        RT OFFSET(5) NUMBITS(5) [],
        CRM OFFSET(1) NUMBITS(4) [],
        /// MRS, not MSR.
        READ OFFSET(0) NUMBITS(1) [],
    ],
    /// SPSR_ELx (Arm ARM C5.2.19).
    PSTATE [
        NZCV OFFSET(28) NUMBITS(4) [],
        DIT OFFSET(24) NUMBITS(1) [],
        PAN OFFSET(22) NUMBITS(1) [],
        SS OFFSET(21) NUMBITS(1) [],
        SSBS OFFSET(12) NUMBITS(1) [],
        BTYPE OFFSET(10) NUMBITS(2) [],
        DAIF OFFSET(6) NUMBITS(4) [],
        /// M[4]: AArch32.
        AARCH32 OFFSET(4) NUMBITS(1) [],
        /// M[3:0].
        MODE OFFSET(0) NUMBITS(4) [EL0t = 0b0000, EL1t = 0b0100, EL1h = 0b0101],
    ],
    /// SCTLR_EL1.
    SCTLR [
        /// PSTATE.SSBS of a handler.
        DSSBS OFFSET(44) NUMBITS(1) [],
        /// PSTATE.PAN of a handler is the interrupted code's.
        SPAN OFFSET(23) NUMBITS(1) [],
    ],
}

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
    /// SVE access trapped.
    pub const SVE: u64 = 0x19;
    /// Instruction abort from a lower EL.
    pub const INSTRUCTION_ABORT: u64 = 0x20;
    /// Instruction abort at the current EL.
    pub const INSTRUCTION_ABORT_SAME: u64 = 0x21;
    /// Data abort from a lower EL.
    pub const DATA_ABORT: u64 = 0x24;
    /// Data abort at the current EL.
    pub const DATA_ABORT_SAME: u64 = 0x25;
}

/// A syndrome register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u64);

impl Syndrome {
    /// Returns the exception class.
    #[inline]
    pub fn class(self) -> u64 {
        ESR::EC.read(self.0)
    }

    /// Tells whether the exception is the SVC with this immediate, from AArch64.
    #[inline(always)]
    pub const fn is_svc(self, immediate: u16) -> bool {
        /// IL: the instruction has 32 bits.
        const LONG: u64 = 1 << 25;
        self.0 == ec::SVC64 << 26 | LONG | immediate as u64
    }

    /// Returns the 16-bit immediate of SVC, HVC or SMC.
    #[inline]
    pub fn immediate(self) -> u16 {
        CALL::IMM16.read(self.0) as u16
    }

    /// Tells whether a trapped WFx was WFE (otherwise WFI).
    pub fn is_wfe(self) -> bool {
        WFX::WFE.is_set(self.0)
    }

    /// Tells whether a trapped WFx was one with a timeout (FEAT_WFxT), which guests do not have.
    pub fn is_wfxt(self) -> bool {
        WFX::TIMEOUT.is_set(self.0)
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
    pub fn kind(self) -> FaultKind {
        match ABORT::FAULT.read_as_enum(self.0) {
            Some(ABORT::FAULT::Value::Translation) => FaultKind::Translation,
            Some(ABORT::FAULT::Value::Permission) => FaultKind::Permission,
            Some(ABORT::FAULT::Value::External | ABORT::FAULT::Value::ExternalOnWalk) | None => {
                FaultKind::Other
            }
        }
    }

    /// Tells whether size, register and direction are valid (ISV).
    #[inline]
    pub fn is_decoded(self) -> bool {
        ABORT::ISV.is_set(self.0)
    }

    /// Returns whether the syndrome describes an access that stage 2 denies and that Gear1 cannot
    /// emulate, because the syndrome does not describe the instruction (G1-FLT-005). A syndrome of
    /// a walk never does.
    pub fn lacks_syndrome(self) -> bool {
        // planted: the log calls a decoded access one without syndrome
        !self.is_decoded()
            && !self.on_table_walk()
            && matches!(self.kind(), FaultKind::Translation | FaultKind::Permission)
    }

    /// Returns whether the abort came from a stage-1 table walk (S1PTW).
    #[inline]
    pub fn on_table_walk(self) -> bool {
        ABORT::S1PTW.is_set(self.0)
    }

    /// Returns whether the access was a write (WnR). Cache maintenance counts as a write.
    #[inline]
    pub fn is_write(self) -> bool {
        ABORT::WnR.is_set(self.0)
    }

    /// Returns whether the access is a 32-bit load, zero-extended, from an unmapped address.
    #[inline]
    pub fn is_word_load(self) -> bool {
        let word_load = ABORT::ISV::SET
            + ABORT::SAS::Word
            + ABORT::SSE::CLEAR
            + ABORT::S1PTW::CLEAR
            + ABORT::WnR::CLEAR
            + ABORT::FAULT::Translation;
        word_load.matches_all(self.0)
    }

    /// Returns whether the access is a 32-bit store to an unmapped address.
    #[inline]
    pub fn is_word_store(self) -> bool {
        let word_store = ABORT::ISV::SET
            + ABORT::SAS::Word
            // Of a store this bit is clear. It is looked at as that of a load is, so that both
            // questions look at the same bits.
            + ABORT::SSE::CLEAR
            + ABORT::S1PTW::CLEAR
            + ABORT::WnR::SET
            + ABORT::FAULT::Translation;
        word_store.matches_all(self.0)
    }

    /// Returns whether the access is one to an unmapped address that the syndrome describes: size,
    /// register and direction.
    #[inline]
    pub fn is_device_access(self) -> bool {
        let access = ABORT::ISV::SET + ABORT::S1PTW::CLEAR + ABORT::FAULT::Translation;
        access.matches_all(self.0)
    }

    /// Returns log2 of the access size in bytes (SAS).
    #[inline]
    pub fn size_log2(self) -> u8 {
        ABORT::SAS.read(self.0) as u8
    }

    /// Returns the register transferred (SRT).
    #[inline]
    pub fn register(self) -> u8 {
        ABORT::SRT.read(self.0) as u8
    }

    /// Returns the whole syndrome.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the bytes that a store of `value` writes.
    #[inline]
    pub fn truncate(self, value: u64) -> u64 {
        let unused = 64_u32.saturating_sub(8 << self.size_log2());
        (value << unused) >> unused
    }

    /// Returns what a load puts into its register when memory holds `value`:
    /// truncated to the access size, sign-extended (SSE) to the register's width (SF).
    #[inline]
    pub fn extend(self, value: u64) -> u64 {
        let unused = 64_u32.saturating_sub(8 << self.size_log2());
        let zeroed = (value << unused) >> unused;
        if !ABORT::SSE.is_set(self.0) {
            return zeroed;
        }
        let signed = (((value << unused) as i64) >> unused) as u64;
        if ABORT::SF.is_set(self.0) {
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
    /// Returns the identifier of the register `S<op0>_<op1>_C<crn>_C<crm>_<op2>`.
    pub const fn new(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> Self {
        let op = SYSREG::OP0.val(op0 as u64).value
            | SYSREG::OP1.val(op1 as u64).value
            | SYSREG::OP2.val(op2 as u64).value;
        let register = SYSREG::CRN.val(crn as u64).value | SYSREG::CRM.val(crm as u64).value;
        Self((op | register) as u32)
    }

    /// Returns (op0, op1, CRn, CRm, op2).
    pub fn fields(self) -> (u32, u32, u32, u32, u32) {
        let id = u64::from(self.0);
        (
            SYSREG::OP0.read(id) as u32,
            SYSREG::OP1.read(id) as u32,
            SYSREG::CRN.read(id) as u32,
            SYSREG::CRM.read(id) as u32,
            SYSREG::OP2.read(id) as u32,
        )
    }
}

impl SysregAccess {
    /// Returns the register of the access.
    #[inline]
    pub const fn id(self) -> SysregId {
        const ALL: SysregId = SysregId::new(3, 7, 15, 15, 7);
        SysregId(self.0 as u32 & ALL.0)
    }

    /// Returns whether the access is a read (MRS).
    #[inline]
    pub fn is_read(self) -> bool {
        SYSREG::READ.is_set(self.0)
    }

    /// Returns the general register of the instruction (Rt).
    #[inline]
    pub fn register(self) -> u8 {
        SYSREG::RT.read(self.0) as u8
    }
}

/// Length of a trapped instruction in bytes: AArch64, or the AArch32 ones that trap.
pub const INSTRUCTION: u64 = 4;

/// Returns PSTATE behind an instruction that was carried out for the guest: without what the
/// instruction would have cleared, had the CPU executed it (G1-CPU-009). BTYPE left set makes the
/// next one a branch target exception, SS left set makes two instructions one step. AArch32, which
/// guests are not shown, has the IT state where BTYPE is.
#[inline(always)]
pub fn stepped_over(pstate: u64) -> u64 {
    // planted: the next instruction is a branch target
    let cleared = PSTATE::BTYPE::CLEAR + PSTATE::SS::CLEAR;
    cleared.modify(pstate)
}

/// Entry of an exception taken to a guest's EL1: the vector's offset from VBAR_EL1 and the PSTATE
/// of its handler (Arm ARM D1.3.1 and D1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    vector_offset: u64,
    pstate: u64,
    from_el0: bool,
}

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
    pub fn synchronous(pstate: u64, sctlr: u64, has_pan: bool) -> Self {
        let is_aarch32 = PSTATE::AARCH32.is_set(pstate);
        let (vector_offset, from_el0) = if is_aarch32 {
            (0x600, true)
        } else if PSTATE::MODE::EL0t.matches_all(pstate) {
            (0x400, true)
        } else if PSTATE::MODE::EL1t.matches_all(pstate) {
            // planted: a fault at EL1t enters the vector of EL1h
            (0x000, false)
        } else {
            (0x200, false)
        };
        let pan = if has_pan && !SCTLR::SPAN.is_set(sctlr) {
            PSTATE::PAN::SET.value
        } else {
            0
        };
        // Both bits are RES0 without FEAT_SSBS.
        let ssbs = if SCTLR::DSSBS.is_set(sctlr) {
            PSTATE::SSBS::SET.value
        } else {
            0
        };
        // A handler inherits NZCV, DIT and PAN; UAO is cleared.
        let inherited = if is_aarch32 {
            PSTATE::NZCV::SET
        } else {
            PSTATE::NZCV::SET + PSTATE::DIT::SET + PSTATE::PAN::SET
        };
        // planted: a handler runs with interrupts
        let handler = PSTATE::DAIF::SET + PSTATE::MODE::EL1h;
        Self {
            vector_offset,
            pstate: pstate & inherited.mask() | pan | ssbs | handler.value,
            from_el0,
        }
    }

    /// Returns ESR_EL1 for an undefined instruction.
    pub const fn undefined() -> u64 {
        ESR::EC.val(ec::UNKNOWN).value | ESR::IL::SET.value
    }

    /// Returns ESR_EL1 for the external abort that stands for an access nobody answers.
    /// `walk_level`: it was the guest's own table walk that nobody answered, at this level. EA, FnV
    /// and SET are zero: the kind is unspecified, FAR_EL1 valid, the abort recoverable
    /// (G1-FLT-001).
    pub fn external_abort(self, taken: Syndrome, walk_level: Option<u8>) -> u64 {
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
            taken.0 & (ABORT::WnR::SET + ABORT::CM::SET).mask()
        };
        let status = match walk_level {
            Some(level) => ABORT::FAULT::ExternalOnWalk + ABORT::LEVEL.val(level.into()),
            None => ABORT::FAULT::External,
        };
        ESR::EC.val(class).value | taken.0 & ESR::IL::SET.mask() | kept | status.value
    }
}

#[cfg(test)]
mod tests;
