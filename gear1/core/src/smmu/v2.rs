//! SMMUv2: the driver of a System MMU whose streams and contexts are registers (Arm IHI 0062).
//!
//! Owns the use of the registers. Init starts the SMMU with a context bank for each VM that owns
//! streams; the runtime reads faults ([`fault`]), has the SMMU forget what it has cached, and shuts
//! a VM's streams while the VM is stopped. A stream that no register matches aborts
//! (SMMU_sCR0.USFCFG). Sections are those of IHI 0062.
//!
//! Invariants: an access that a device without an owner begins after [`seize`] aborts; a register
//! with the address of a table changes only while its context bank has no stream.
//!
//! No machine with an SMMUv2 has run this: the tests have a model, written from the manual.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003, G1-DMA-006.

pub mod fault;
#[cfg(test)]
mod tests;

use tock_registers::register_bitfields;

use super::stream::Stage2;
use super::{Stuck, Unfit};

/// Bytes of registers that every SMMU has: two halves of two pages with 4 KiB.
pub const LEAST_SIZE: u64 = 0x4000;
/// Bits of a StreamID that a stream match register has, without extended matching.
pub const STREAM_BITS: u32 = 15;
/// Reads of a register that the SMMU changes, before the SMMU is taken as stuck, as
/// `PATIENCE` in [`super`].
const PATIENCE: u32 = 10_000_000;
/// Stream mapping register groups at most (SMMU_IDR0.NUMSMRG has 8 bits, the map 128 registers).
const MAX_GROUPS: u32 = 128;

/// Global register space 0 (chapter 9).
const CR0: usize = 0x0;
/// Auxiliary control, which an MMU-500 gives a meaning.
const ACR: usize = 0x10;
const IDR0: usize = 0x20;
const IDR1: usize = 0x24;
const IDR2: usize = 0x28;
pub(super) const GFAR: usize = 0x40;
pub(super) const GFSR: usize = 0x48;
pub(super) const GFSYNR0: usize = 0x50;
pub(super) const GFSYNR1: usize = 0x54;
const TLBIVMID: usize = 0x64;
const TLBIALLNSNH: usize = 0x68;
const TLBGSYNC: usize = 0x70;
const TLBGSTATUS: usize = 0x74;
const SMR: usize = 0x800;
const S2CR: usize = 0xc00;
/// Global register space 1, the second page (chapter 10).
const CBAR: usize = 0x0;
pub(super) const CBFRSYNRA: usize = 0x400;
const CBA2R: usize = 0x800;
/// A context bank's page (chapter 16).
const SCTLR: usize = 0x0;
/// Auxiliary control, which an MMU-500 gives a meaning.
const ACTLR: usize = 0x4;
const TTBR0: usize = 0x20;
const TCR: usize = 0x30;
pub(super) const FSR: usize = 0x58;
pub(super) const FAR: usize = 0x60;
pub(super) const FSYNR0: usize = 0x68;

/// Fields of VTCR_EL2 that SMMU_CBn_TCR has in the same places: T0SZ, SL0, IRGN0, ORGN0, SH0, TG0
/// and PASize.
const SHAPE: u64 = 0x7_ffff;
/// SMMU_CBn_TCR bit 31, which is RES1 for stage 2.
const TCR_RES1: u32 = 1 << 31;

register_bitfields! { u32,
    /// SMMU_sCR0.
    CONTROL [
        /// A stream that matches several registers faults.
        SMCFCFG OFFSET(21) NUMBITS(1) [],
        /// The SMMU takes no part in the CPUs' broadcast TLB maintenance.
        PTM OFFSET(12) NUMBITS(1) [],
        /// VMIDs are not those of broadcast TLB maintenance.
        VMIDPNE OFFSET(11) NUMBITS(1) [],
        /// A stream that matches no register faults, rather than passing.
        USFCFG OFFSET(10) NUMBITS(1) [],
        /// Accesses that fault never stall.
        STALLD OFFSET(8) NUMBITS(1) [],
        /// Faults of the configuration are aborts, and interrupt.
        GCFGFIE OFFSET(5) NUMBITS(1) [],
        GCFGFRE OFFSET(4) NUMBITS(1) [],
        /// Global faults are aborts, and interrupt.
        GFIE OFFSET(2) NUMBITS(1) [],
        GFRE OFFSET(1) NUMBITS(1) [],
        /// The SMMU is off: every access passes.
        CLIENTPD OFFSET(0) NUMBITS(1) [],
    ],
    /// SMMU_sACR of an MMU-500.
    AUX [
        /// SMMU_CBn_ACTLR cannot be written.
        CACHE_LOCK OFFSET(26) NUMBITS(1) [],
        /// The TLBs cache bypasses, and that a stream matches nothing.
        S2CRB_TLBEN OFFSET(10) NUMBITS(1) [],
        SMTNMB_TLBEN OFFSET(8) NUMBITS(1) [],
    ],
    /// SMMU_IDR0.
    ID0 [
        S2TS OFFSET(29) NUMBITS(1) [],
        /// Stream matching.
        SMS OFFSET(27) NUMBITS(1) [],
        NUMSIDB OFFSET(9) NUMBITS(4) [],
        NUMSMRG OFFSET(0) NUMBITS(8) [],
    ],
    /// SMMU_IDR1.
    ID1 [
        /// Pages of 64 KiB.
        PAGESIZE OFFSET(31) NUMBITS(1) [],
        /// One less than the power of 2 that is the number of pages in half of the registers.
        NUMPAGENDXB OFFSET(28) NUMBITS(3) [],
        NUMCB OFFSET(0) NUMBITS(8) [],
    ],
    /// SMMU_IDR2.
    ID2 [
        /// AArch64 tables with pages of 4 KiB.
        PTFS_4K OFFSET(12) NUMBITS(1) [],
        /// Sizes of addresses behind stage 2 and before it, as ID_AA64MMFR0_EL1.PARange.
        OAS OFFSET(4) NUMBITS(4) [],
        IAS OFFSET(0) NUMBITS(4) [],
    ],
    /// SMMU_SMRn.
    MATCH [
        VALID OFFSET(31) NUMBITS(1) [],
        /// Bits of the StreamID that are not compared.
        MASK OFFSET(16) NUMBITS(15) [],
        ID OFFSET(0) NUMBITS(15) [],
    ],
    /// SMMU_S2CRn.
    TO_CONTEXT [
        TYPE OFFSET(16) NUMBITS(2) [Translation = 0, Bypass = 1, Fault = 2],
        CBNDX OFFSET(0) NUMBITS(8) [],
    ],
    /// SMMU_CBARn of a context with stage 2 alone.
    CONTEXT [
        TYPE OFFSET(16) NUMBITS(2) [Stage2 = 0],
        VMID OFFSET(0) NUMBITS(8) [],
    ],
    /// SMMU_CBA2Rn.
    CONTEXT2 [
        /// Tables of AArch64.
        VA64 OFFSET(0) NUMBITS(1) [],
    ],
    /// SMMU_CBn_SCTLR.
    BANK [
        /// An access is translated although an earlier one has faulted and nobody has looked.
        HUPCF OFFSET(8) NUMBITS(1) [],
        /// Accesses that fault stall.
        CFCFG OFFSET(7) NUMBITS(1) [],
        CFIE OFFSET(6) NUMBITS(1) [],
        CFRE OFFSET(5) NUMBITS(1) [],
        M OFFSET(0) NUMBITS(1) [],
    ],
    /// SMMU_CBn_ACTLR of an MMU-500.
    BANK_AUX [
        /// Translations are fetched ahead.
        CPRE OFFSET(1) NUMBITS(1) [],
    ],
    /// SMMU_sTLBGSTATUS.
    SYNC [
        GSACTIVE OFFSET(0) NUMBITS(1) [],
    ],
}

/// Registers of an SMMUv2.
pub trait Device {
    /// Reads a register of 32 bits.
    fn read32(&self, offset: usize) -> u32;
    /// Writes a register of 32 bits.
    fn write32(&mut self, offset: usize, value: u32);
    /// Completes earlier accesses to memory and registers before later ones.
    fn order(&self);
}

/// Where an SMMU's registers are, and how many there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page of registers.
    page: usize,
    /// Offset of context bank 0.
    banks: usize,
    /// Context banks.
    pub bank_count: u32,
    /// Stream mapping register groups.
    pub group_count: u32,
}

impl Shape {
    /// Reads the SMMU's shape.
    #[must_use]
    pub fn of(device: &impl Device) -> Self {
        let (id0, id1) = (device.read32(IDR0), device.read32(IDR1));
        let log2 = if ID1::PAGESIZE.is_set(id1) { 16 } else { 12 };
        let page = 1_usize.wrapping_shl(log2);
        let half = ID1::NUMPAGENDXB.read(id1).wrapping_add(1);
        Self {
            page,
            banks: page.wrapping_shl(half),
            bank_count: ID1::NUMCB.read(id1),
            group_count: group_count(id0).min(MAX_GROUPS),
        }
    }

    /// Returns the bytes of the registers up to the end of so many context banks.
    #[must_use]
    pub const fn size(&self, banks: u32) -> u64 {
        self.bank(banks, 0) as u64
    }

    /// Returns the offset of a context bank's register.
    pub(super) const fn bank(&self, bank: u32, register: usize) -> usize {
        let at = self.page.wrapping_mul(bank as usize);
        self.banks.wrapping_add(at).wrapping_add(register)
    }

    /// Returns the offset of a register in global space 1 that each context bank has.
    pub(super) const fn of_bank(&self, bank: u32, register: usize) -> usize {
        self.page.wrapping_add(numbered(register, bank))
    }
}

/// Returns how many stream mapping register groups there are. Without stream matching each StreamID
/// has a group of its own (2.4).
fn group_count(id0: u32) -> u32 {
    if ID0::SMS.is_set(id0) {
        ID0::NUMSMRG.read(id0)
    } else {
        1_u32.wrapping_shl(ID0::NUMSIDB.read(id0))
    }
}

/// Returns the offset of a register of which there is one for each number.
const fn numbered(register: usize, number: u32) -> usize {
    register.wrapping_add((number as usize).wrapping_mul(4))
}

/// Streams that one register group matches: those whose IDs differ from `id` in bits of `mask` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// StreamID.
    pub id: u32,
    /// Bits that do not count.
    pub mask: u32,
    /// Context bank of the streams' owner.
    pub bank: u32,
    /// Whether the streams reach memory.
    pub is_open: bool,
}

/// Needs of the VMs that an SMMU has to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Size of the CPUs' physical addresses (ID_AA64MMFR0_EL1.PARange).
    pub pa_range: u64,
    /// VMs that own streams.
    pub banks: usize,
    /// Matches for their streams.
    pub matches: usize,
    /// Bits of their StreamIDs.
    pub stream_bits: u32,
}

/// Returns what keeps the SMMU from translating by the CPUs' tables.
pub fn unfit(device: &impl Device, needs: &Needs) -> Option<Unfit> {
    let [id0, id2] = [IDR0, IDR2].map(|offset| device.read32(offset));
    let shape = Shape::of(device);
    let stream_bits = ID0::NUMSIDB.read(id0);
    if !ID0::S2TS.is_set(id0) || !ID2::PTFS_4K.is_set(id2) {
        Some(Unfit::Stage2)
    } else if !ID0::SMS.is_set(id0) || !(needs.stream_bits..=STREAM_BITS).contains(&stream_bits) {
        // Wider StreamIDs would have bits that no register compares.
        Some(Unfit::Streams)
    } else if (shape.group_count as usize) < needs.matches {
        Some(Unfit::Matches)
    } else if (shape.bank_count as usize) < needs.banks {
        Some(Unfit::Contexts)
    } else if u64::from(ID2::OAS.read(id2).min(ID2::IAS.read(id2))) < needs.pa_range {
        Some(Unfit::Addresses)
    } else {
        None
    }
}

/// Makes every later access of every device abort, without interrupts, whatever firmware has left.
/// `size`: bytes of the registers.
pub fn seize(device: &mut impl Device, size: u64) -> Result<(), Stuck> {
    // planted: a stream that matches nothing passes
    let aborts = CONTROL::USFCFG::SET + CONTROL::SMCFCFG::SET + CONTROL::STALLD::SET;
    let reports = CONTROL::GFRE::SET + CONTROL::GCFGFRE::SET;
    let private = CONTROL::VMIDPNE::SET + CONTROL::PTM::SET;
    // Before the streams: one that has lost its register must not pass.
    device.write32(CR0, (aborts + reports + private).value);
    shut(device);
    turn_banks_off(device, size);
    forget_all(device)
}

/// Turns all context banks off. A fault that firmware has left in one that no VM gets would hold the
/// interrupt for ever.
fn turn_banks_off(device: &mut impl Device, size: u64) {
    let shape = Shape::of(device);
    for bank in 0..shape.bank_count {
        if shape.size(bank.wrapping_add(1)) > size {
            break;
        }
        device.write32(shape.bank(bank, SCTLR), 0);
        clear(device, shape.bank(bank, FSR));
    }
}

/// Makes every later access of every device abort: no stream matches.
pub fn shut(device: &mut impl Device) {
    let groups = Shape::of(device).group_count;
    // Bound: MAX_GROUPS (128).
    for group in 0..groups {
        device.write32(numbered(SMR, group), 0);
        device.write32(numbered(S2CR, group), TO_CONTEXT::TYPE::Fault.value);
    }
    device.order();
}

/// Starts translation: context bank *i* has stage 2 `stages[i]`. [`seize`] came first, and
/// [`unfit`] has found all that is needed. `is_mmu500`: the SMMU is Arm's MMU-500.
pub fn start(
    device: &mut impl Device,
    stages: &[Stage2],
    matches: &[Match],
    is_mmu500: bool,
) -> Result<(), Stuck> {
    let shape = Shape::of(device);
    if is_mmu500 {
        // Else SMMU_CBn_ACTLR keeps firmware's value, and a change of a stream would have to reach
        // what the TLBs hold of bypasses.
        let kept = AUX::CACHE_LOCK::SET + AUX::S2CRB_TLBEN::SET + AUX::SMTNMB_TLBEN::SET;
        let aux = device.read32(ACR);
        device.write32(ACR, aux & !kept.value);
    }
    for (bank, stage2) in (0..shape.bank_count).zip(stages) {
        set_up(device, &shape, (bank, stage2), is_mmu500);
    }
    clear(device, GFSR);
    forget_all(device)?;
    for (group, one) in (0..shape.group_count).zip(matches) {
        // The group faults until it leads to its context.
        device.write32(numbered(SMR, group), pattern(one));
        device.write32(numbered(S2CR, group), TO_CONTEXT::CBNDX.val(one.bank).value);
    }
    let control = device.read32(CR0);
    let interrupts = CONTROL::GFIE::SET + CONTROL::GCFGFIE::SET;
    device.write32(CR0, control | interrupts.value);
    device.order();
    Ok(())
}

/// Returns the value of a stream match register. Its ID has zeroes where the mask has ones
/// (SMMU_SMRn).
fn pattern(one: &Match) -> u32 {
    let ids = MATCH::ID.val(one.id & !one.mask) + MATCH::MASK.val(one.mask);
    (ids + MATCH::VALID.val(one.is_open.into())).value
}

/// Sets a context bank up. No stream leads to it yet.
fn set_up(
    device: &mut impl Device,
    shape: &Shape,
    (bank, stage2): (u32, &Stage2),
    is_mmu500: bool,
) {
    let at = |register| shape.bank(bank, register);
    device.write32(at(SCTLR), 0);
    let vmid = CONTEXT::VMID.val(stage2.vmid.into());
    device.write32(
        shape.of_bank(bank, CBAR),
        (CONTEXT::TYPE::Stage2 + vmid).value,
    );
    device.write32(shape.of_bank(bank, CBA2R), CONTEXT2::VA64::SET.value);
    // planted: a device walks tables of another shape than the CPUs'
    device.write32(at(TCR), (stage2.vtcr & SHAPE) as u32 | TCR_RES1);
    // A register of 64 bits may be written by halves (2.2): the bank translates nothing yet.
    device.write32(at(TTBR0), stage2.root as u32);
    let high = stage2.root.wrapping_shr(32) as u32;
    device.write32(at(TTBR0).wrapping_add(4), high);
    if is_mmu500 {
        // Errata 826419 and 841119: a page that was fetched ahead can outlive its invalidation.
        let aux = device.read32(at(ACTLR));
        // planted: an MMU-500 fetches translations ahead
        device.write32(at(ACTLR), aux & !BANK_AUX::CPRE::SET.value);
    }
    clear(device, at(FSR));
    // CFCFG is 0: accesses that fault are aborted at once, as by an SMMUv3. HUPCF: one device's
    // fault, until it is read, does not keep the VM's other devices from their memory.
    let faults = BANK::HUPCF::SET + BANK::CFIE::SET + BANK::CFRE::SET;
    device.write32(at(SCTLR), (faults + BANK::M::SET).value);
}

/// Clears a status, whose bits are cleared by ones: what firmware left as a fault would be told as a
/// device's.
fn clear(device: &mut impl Device, status: usize) {
    let faults = device.read32(status);
    device.write32(status, faults);
}

/// Shuts the streams of a VM, or opens them. What the SMMU has cached is to be forgotten next.
pub fn switch(device: &mut impl Device, vmid: u16, opens: bool) {
    let shape = Shape::of(device);
    // Bound: MAX_GROUPS (128).
    for group in 0..shape.group_count {
        let context = device.read32(numbered(S2CR, group));
        if !TO_CONTEXT::TYPE::Translation.matches_all(context) {
            continue;
        }
        let bank = TO_CONTEXT::CBNDX.read(context);
        let own = CONTEXT::VMID.read(device.read32(shape.of_bank(bank, CBAR)));
        // planted: an SMMUv2 shuts every VM's streams
        if own == u32::from(vmid) {
            let at = numbered(SMR, group);
            let shut = device.read32(at) & !MATCH::VALID::SET.value;
            device.write32(at, shut | MATCH::VALID.val(opens.into()).value);
        }
    }
}

/// Has the SMMU forget the translations of a VM, and of what came before. [`is_done`] tells when it
/// has.
pub fn forget(device: &mut impl Device, vmid: u16) {
    // Tables and registers as they are now, before translations of before are forgotten.
    device.order();
    // planted: an SMMUv2 keeps what a VM has lost
    device.write32(TLBIVMID, vmid.into());
    device.write32(TLBGSYNC, 0);
}

/// Tells whether all that [`forget`] was called for is done, by whichever CPU: no access uses it any
/// longer (SMMU_sTLBGSTATUS).
pub fn is_done(device: &impl Device) -> bool {
    // planted: an SMMUv2 is not waited for
    let is_done = !SYNC::GSACTIVE.is_set(device.read32(TLBGSTATUS));
    device.order();
    is_done
}

/// Makes the SMMU forget all that firmware had it cache, and waits until it has.
fn forget_all(device: &mut impl Device) -> Result<(), Stuck> {
    device.order();
    device.write32(TLBIALLNSNH, 0);
    device.write32(TLBGSYNC, 0);
    for _ in 0..PATIENCE {
        if is_done(device) {
            return Ok(());
        }
    }
    Err(Stuck)
}
