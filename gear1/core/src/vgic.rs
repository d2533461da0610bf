//! The virtual interrupt controller of one VM (Arm IHI 0069 for GICv3, IHI 0048 for GICv2).
//!
//! Owns every virtual interrupt's state: the registers of the guest's distributor and
//! redistributors, the pending interrupts, and the list register of the vCPU that holds each. One
//! security state (GICD_CTLR.DS = 1), no LPIs. A GICv3 guest gets Group 1 as IRQ; its Group 0 is
//! stored and never delivered.
//!
//! The caller holds one lock per VM around every call, names the vCPU that an access comes through,
//! and carries out the returned [`Kicks`]. A CPU reaches only the list registers of the vCPU that
//! is loaded on it: a change for another CPU's list registers results in a kick, upon which that
//! CPU calls [`VmGic::flush`].
//!
//! Invariants: an interrupt stands in at most one list register; state that a register write
//! changed wins over later contents of a list register; a vCPU's `pending_words` has the bit of
//! every word with an interrupt that waits for a list register.
//!
//! Requirements: `docs/requirements/gic.md`.

mod distributor;
mod fields;
mod list_registers;
pub mod passthrough;
mod redistributor;
mod sgi;
mod types;
mod v2;
mod word;

#[cfg(test)]
mod tests;

use gear1_abi::id::MAX_VCPUS_PER_VM;

pub use fields::shows_list_registers;
pub use list_registers::{LrReplay, is_quiet};
pub use sgi::only_target;
pub use types::{
    FIRST_LPI, GicVersion, ICC_SRE_EL1, IntId, Kicks, ListRegisters, Lr, LrState, Maintenance,
    SRE_EL1, VcpuIndex, is_interrupt,
};
pub use v2::{SGIR, only_target_of_sgir, sgir_to_itself};

use types::{Bits, Change};
use word::{Gate, Spi, Word};

/// Most SPIs of one VM: INTIDs 32 to 511.
pub const MAX_SPIS: usize = 480;
const SPI_WORDS: usize = MAX_SPIS / 32;
/// Bit n for each SPI word n.
const ALL_SPI_WORDS: u32 = (1 << (SPI_WORDS + 1)) - 2;
/// Most list registers that the architecture allows.
const MAX_LRS: usize = 16;

/// Contents written to a list register in use: INTID (9:0), sender of a GICv2 SGI (12:10), HW link
/// (13), EOI flag (14), Group 1 (15), priority (23:16).
#[derive(Clone, Copy, Debug)]
struct Slot(u32);

impl Slot {
    const FREE: Self = Self(0);
    const SOURCE: u32 = 10;
    const HW: u32 = 13;
    const EOI: u32 = 14;
    const GROUP1: u32 = 15;
    const PRIORITY: u32 = 16;

    #[inline]
    const fn new(lr: &Lr) -> Self {
        let flags = (lr.hw as u32) << Self::HW
            | (lr.eoi as u32) << Self::EOI
            | (lr.group1 as u32) << Self::GROUP1;
        let source = (lr.source as u32 & 7) << Self::SOURCE;
        Self(lr.intid.number() | source | flags | (lr.priority as u32) << Self::PRIORITY)
    }

    #[inline]
    const fn intid(self) -> IntId {
        IntId::from_low_bits(self.0 as u16)
    }

    const fn source(self) -> u8 {
        (self.0 >> Self::SOURCE & 7) as u8
    }

    #[inline]
    const fn linked(self) -> bool {
        self.0 >> Self::HW & 1 != 0
    }

    /// Returns whether the slot holds this interrupt, linked or not as given, without EOI flag, of
    /// whatever sender.
    #[inline]
    const fn is_plain(self, intid: IntId, hw: bool) -> bool {
        self.0 & 0x7fff & !(7 << Self::SOURCE) == intid.number() | (hw as u32) << Self::HW
    }

    #[inline]
    const fn priority(self) -> u8 {
        (self.0 >> Self::PRIORITY) as u8
    }

    #[inline]
    const fn group1(self) -> bool {
        self.0 >> Self::GROUP1 & 1 != 0
    }

    /// Returns what makes the same interrupt pending again.
    #[inline]
    const fn pending_lr(self, hw: bool) -> Lr {
        Lr {
            intid: self.intid(),
            priority: self.priority(),
            state: LrState::Pending,
            hw,
            eoi: false,
            group1: self.group1(),
            source: self.source(),
        }
    }
}

/// Private interrupts and list registers of one vCPU.
#[derive(Clone, Copy)]
struct Vcpu {
    word: Word,
    /// Words (0: private, n: SPIs from 32 n) that may hold an interrupt waiting for a list
    /// register.
    pending_words: u32,
    /// Words in which an interrupt of a list register was changed since the last fill.
    stale: u32,
    /// List registers in use.
    used: u32,
    /// List registers of private interrupts that only the guest has changed: once empty, each can
    /// be refilled with its interrupt without a look at anything else.
    replayable: u32,
    /// List registers with the EOI flag: the end of their interrupt shows in their state only, not
    /// in the mask of empty ones.
    silent: u32,
    slots: [Slot; MAX_LRS],
    /// The list register in use, a bit, that an SPI was put into last, if nobody has changed the
    /// SPI since in another way than by an edge; 0: none.
    repeatable: u32,
    /// Encoding that was written to that list register.
    repeated: u64,
    maintenance: Maintenance,
    /// GICR_WAKER.ProcessorSleep.
    asleep: bool,
    /// GICv2: for each SGI the vCPUs whose requests are in the latch.
    sgi_sources: [u8; 16],
    /// GICv2: for each SGI the vCPU whose request a list register took last. As long as the SGI is
    /// active, the guest's end of it names that vCPU, in a list register or not.
    sgi_senders: [u8; 16],
}

impl Vcpu {
    const NEW: Self = Self {
        // SGIs are edge-triggered; PPIs start as level-sensitive.
        word: Word::new(0xffff),
        asleep: true,
        ..Self::ZERO
    };

    /// All bits zero, so that VMs that do not exist take no room in the image.
    const ZERO: Self = Self {
        word: Word::new(0),
        pending_words: 0,
        stale: 0,
        used: 0,
        replayable: 0,
        silent: 0,
        slots: [Slot::FREE; MAX_LRS],
        repeatable: 0,
        repeated: 0,
        maintenance: Maintenance {
            underflow: false,
            no_pending: false,
            deactivate: false,
        },
        asleep: false,
        sgi_sources: [0; 16],
        sgi_senders: [0; 16],
    };

    /// Notes a change of the private interrupts `changed`; tells whether it concerns the vCPU now.
    #[inline]
    fn touch(&mut self, gate: Gate, changed: u32) -> bool {
        let due = (self.word.waiting(gate) | self.word.unlisted_active()) & changed;
        let listed = self.word.listed & changed;
        if due != 0 {
            self.pending_words |= 1;
        }
        if listed != 0 {
            self.stale |= 1;
            self.replayable = 0;
        }
        (due | listed) != 0
    }

    #[inline]
    fn slot(&self, index: u32) -> Slot {
        self.slots
            .get(index as usize & 15)
            .copied()
            .unwrap_or(Slot::FREE)
    }
}

/// Returns a mask over the vCPUs of a VM, 1 to 8.
fn everybody(vcpu_count: u8) -> u8 {
    // planted: an SGI reaches vCPUs that the VM does not have
    (0xff_u16 >> (8_u8.wrapping_sub(vcpu_count) & 7)) as u8
}

/// The virtual GIC of one VM.
pub struct VmGic {
    version: GicVersion,
    vcpu_count: u8,
    spi_words: u8,
    /// GICD_TYPER.
    typer: u32,
    /// Group enables of GICD_CTLR.
    enables: u32,
    gate: Gate,
    /// SPI words with something in [`Word::ended`].
    ended_spis: u32,
    vcpus: [Vcpu; MAX_VCPUS_PER_VM],
    spis: [Spi; SPI_WORDS],
}

impl Default for VmGic {
    fn default() -> Self {
        Self::new()
    }
}

impl VmGic {
    /// Creates the GIC of a VM that does not exist yet.
    pub const fn new() -> Self {
        Self {
            version: GicVersion::V2,
            vcpu_count: 0,
            spi_words: 0,
            typer: 0,
            enables: 0,
            gate: Gate::SHUT,
            ended_spis: 0,
            vcpus: [Vcpu::ZERO; MAX_VCPUS_PER_VM],
            spis: [Spi::NEW; SPI_WORDS],
        }
    }

    /// Sets what the guest finds: number of vCPUs (1 to 8) and of SPIs (rounded up to a
    /// multiple of 32, at most [`MAX_SPIS`]); resets everything.
    pub fn configure(&mut self, version: GicVersion, vcpu_count: usize, spi_count: usize) {
        self.version = version;
        self.vcpu_count = vcpu_count.clamp(1, MAX_VCPUS_PER_VM) as u8;
        self.spi_words = spi_count.div_ceil(32).min(SPI_WORDS) as u8;
        self.typer = self.compute_typer();
        self.reset();
    }

    /// G1-GIC-014: puts everything into its reset state. No vCPU is loaded; the caller then takes
    /// what [`take_ended`](Self::take_ended) has.
    pub fn reset(&mut self) {
        self.enables = 0;
        self.gate = Gate::SHUT;
        // Bound: 8 vCPUs.
        // planted: a reset keeps the private interrupts of vCPUs
        self.vcpus.fill(Vcpu::NEW);
        let all_to_first = self.version == GicVersion::V3 || self.vcpu_count == 1;
        // Any word may have some; the summary is made exact by taking them.
        self.ended_spis = ALL_SPI_WORDS;
        // Bound: 16 words of SPIs.
        for spi in &mut self.spis {
            let physical = spi.word.hw | spi.word.ended;
            *spi = Spi::NEW;
            spi.word.ended = physical;
            if all_to_first {
                let [first, ..] = &mut spi.targets;
                *first = u32::MAX;
            }
        }
    }

    /// Drives an emulated device's interrupt line. A PPI is `vcpu`'s; for an SPI it does not
    /// matter.
    ///
    /// G1-GIC-005: a rising edge of an edge-triggered interrupt is latched; a level-sensitive
    /// interrupt is pending as long as its line is high.
    pub fn set_line(&mut self, vcpu: VcpuIndex, intid: IntId, high: bool) -> Kicks {
        let (index, bit) = intid.place();
        if !self.exists(index) {
            return Kicks::NONE;
        }
        let word = self.word_mut(vcpu, index);
        if (word.line & bit != 0) == high {
            return Kicks::NONE;
        }
        word.line ^= bit;
        // planted: an edge is lost
        word.latch |= word.line & word.edge & bit;
        self.touch(vcpu, index, bit)
    }

    /// Drives a line whose level nothing holds: the line rises and falls at once. Only an
    /// edge-triggered interrupt is pending afterwards; a vCPU that waits for another one wakes, as
    /// that was pending for a moment.
    pub fn pulse(&mut self, vcpu: VcpuIndex, intid: IntId) -> Kicks {
        let (index, bit) = intid.place();
        if !self.exists(index) {
            return Kicks::NONE;
        }
        let word = self.word_mut(vcpu, index);
        match word.edge & bit {
            0 => {
                let kicks = self.set_line(vcpu, intid, true);
                kicks.union(self.set_line(vcpu, intid, false))
            }
            edge => self.set_pending(vcpu, index, edge),
        }
    }

    /// Makes an interrupt pending that stands for the physical one of the same INTID, which was
    /// acknowledged and stays active until the guest ends it.
    ///
    /// G1-GIC-006: the physical interrupt is deactivated when the virtual one has ended, by the
    /// guest's EOI or through [`take_ended`](Self::take_ended).
    pub fn inject_hw(&mut self, vcpu: VcpuIndex, intid: IntId) -> Kicks {
        let (index, bit) = intid.place();
        if !self.exists(index) {
            return Kicks::NONE;
        }
        let word = self.word_mut(vcpu, index);
        word.latch |= bit;
        word.again |= word.listed & word.hw & bit;
        word.hw |= bit;
        word.ended &= !bit;
        self.touch(vcpu, index, bit)
    }

    /// Takes back an interrupt of [`inject_hw`](Self::inject_hw) that the guest has not
    /// acknowledged, because the physical line is low again (the guest turned its timer off).
    pub fn retract_hw(&mut self, vcpu: VcpuIndex, intid: IntId) -> Kicks {
        let (index, bit) = intid.place();
        let bits = self.word(vcpu, index).hw & bit;
        // planted: a timer whose line is low stays pending
        self.clear_pending(vcpu, index, bits)
    }

    /// Returns whether the physical interrupt belongs to the vCPU: its physical active state must
    /// be set when the vCPU is loaded, and cleared when it is unloaded.
    pub fn hw_active(&self, vcpu: VcpuIndex, intid: IntId) -> bool {
        let (index, bit) = intid.place();
        self.word(vcpu, index).hw & bit != 0
    }

    /// Returns an INTID that the caller must deactivate physically, because the guest ended or
    /// cleared the virtual interrupt by a register write. Ask until there is none. PPIs are those
    /// of `vcpu`, which must be loaded here; SPIs are any.
    pub fn take_ended(&mut self, vcpu: VcpuIndex) -> Option<IntId> {
        if let Some(bit) = self.vcpu_mut(vcpu).word.take_ended() {
            return Some(IntId::at(0, bit));
        }
        // Bound: 16 words of SPIs.
        for index in Bits(self.ended_spis) {
            if let Some(bit) = self.spi_mut(index as usize).word.take_ended() {
                return Some(IntId::at(index as usize, bit));
            }
            self.ended_spis &= !(1 << (index & 31));
        }
        None
    }

    /// Tells whether [`take_ended`](Self::take_ended) may have one.
    #[inline(always)]
    pub fn has_ended(&self, vcpu: VcpuIndex) -> bool {
        (self.vcpu(vcpu).word.ended | self.ended_spis) != 0
    }

    /// Ends the active state of an interrupt: the guest's trapped ICC_DIR_EL1 (EOImode 1).
    pub fn deactivate(&mut self, vcpu: VcpuIndex, intid: IntId) -> Kicks {
        let (index, bit) = intid.place();
        if !self.exists(index) {
            return Kicks::NONE;
        }
        self.clear_active(vcpu, index, bit)
    }

    /// Tells whether an interrupt is due that wakes the vCPU from WFI, given its priority mask.
    /// For a loaded vCPU, [`sync`](Self::sync) comes first.
    ///
    /// G1-GIC-009: pending, enabled, its group enabled, its priority above the mask, not active.
    pub fn deliverable(&self, vcpu: VcpuIndex, pmr: u8) -> bool {
        // Bound: 16 words of 32 interrupts.
        Bits(self.vcpu(vcpu).words()).any(|index| {
            let word = self.word(vcpu, index as usize);
            let (routed, held) = self.relation(vcpu, index as usize);
            let here = word.listed & held | !word.listed & routed;
            let due = word.pending() & word.open(self.gate) & !word.active & here;
            // planted: WFI ends whatever the priority mask is
            word.best(due)
                .is_some_and(|bit| word.priority_at(bit) < pmr)
        })
    }

    fn is_v2(&self) -> bool {
        self.version == GicVersion::V2
    }

    /// Returns all vCPUs.
    fn everybody(&self) -> u8 {
        everybody(self.vcpu_count)
    }

    fn exists(&self, index: usize) -> bool {
        index <= usize::from(self.spi_words)
    }

    #[inline]
    fn vcpu(&self, vcpu: VcpuIndex) -> &Vcpu {
        vcpu.select(&self.vcpus)
    }

    #[inline]
    fn vcpu_mut(&mut self, vcpu: VcpuIndex) -> &mut Vcpu {
        vcpu.select_mut(&mut self.vcpus)
    }

    // The accessors are total: a word that does not exist, which the places of INTIDs rule out,
    // means the last one, so that no panicking path is linked.

    /// Returns the SPIs of word `index`, which is not 0.
    #[inline]
    fn spi(&self, index: usize) -> &Spi {
        let [rest @ .., last] = &self.spis;
        rest.get(index.wrapping_sub(1)).unwrap_or(last)
    }

    #[inline]
    fn spi_mut(&mut self, index: usize) -> &mut Spi {
        let [rest @ .., last] = &mut self.spis;
        rest.get_mut(index.wrapping_sub(1)).unwrap_or(last)
    }

    /// Returns word `index` as `vcpu` sees it.
    #[inline]
    fn word(&self, vcpu: VcpuIndex, index: usize) -> &Word {
        if index == 0 {
            &self.vcpu(vcpu).word
        } else {
            &self.spi(index).word
        }
    }

    #[inline]
    fn word_mut(&mut self, vcpu: VcpuIndex, index: usize) -> &mut Word {
        if index == 0 {
            &mut self.vcpu_mut(vcpu).word
        } else {
            &mut self.spi_mut(index).word
        }
    }

    /// Returns which interrupts of word `index` are routed to `vcpu`, and which it holds.
    #[inline]
    fn relation(&self, vcpu: VcpuIndex, index: usize) -> (u32, u32) {
        if index == 0 {
            (u32::MAX, u32::MAX)
        } else {
            let spi = self.spi(index);
            (spi.targets(vcpu), spi.held(vcpu))
        }
    }

    /// Finds who is concerned by a change of the interrupts `changed` of word `index`: where one
    /// can be delivered now, and in whose list registers one stands.
    #[inline]
    fn touch(&mut self, vcpu: VcpuIndex, index: usize, changed: u32) -> Kicks {
        self.touch_by(vcpu, index, changed, Change::Any)
    }

    #[inline]
    fn touch_by(&mut self, vcpu: VcpuIndex, index: usize, changed: u32, how: Change) -> Kicks {
        let gate = self.gate;
        if index != 0 {
            self.touch_spis(index, changed, how)
        } else if self.vcpu_mut(vcpu).touch(gate, changed) {
            Kicks::from_mask(vcpu.bit())
        } else {
            Kicks::NONE
        }
    }

    fn touch_spis(&mut self, index: usize, changed: u32, how: Change) -> Kicks {
        let [rest @ .., last] = &self.spis;
        let spi = rest.get(index.wrapping_sub(1)).unwrap_or(last);
        let waiting = spi.word.waiting(self.gate) & changed;
        let unlisted_active = spi.word.unlisted_active() & changed;
        let listed = spi.word.listed & changed;
        let place = 1 << (index & 31);
        let mut kicks = 0;
        let vcpus = (0..self.vcpu_count).zip(&mut self.vcpus);
        let relations = spi.targets.iter().zip(&spi.held);
        // Bound: 8 vCPUs.
        for ((vcpu, state), (targets, held)) in vcpus.zip(relations) {
            let due = waiting & targets | unlisted_active & held;
            let changed_in_list = listed & held;
            if due != 0 {
                state.pending_words |= place;
            }
            if changed_in_list != 0 {
                state.stale |= place;
                if how == Change::Any {
                    state.repeatable = 0;
                }
            }
            if due | changed_in_list != 0 {
                kicks |= 1 << (vcpu & 7);
            }
        }
        Kicks::from_mask(kicks)
    }

    /// Touches everything of everybody: a group was enabled or disabled.
    fn touch_all(&mut self) -> Kicks {
        let mut kicks = Kicks::NONE;
        // Bound: 8 vCPUs.
        for vcpu in Kicks::from_mask(self.everybody()).iter() {
            kicks = kicks.union(self.touch(vcpu, 0, u32::MAX));
        }
        // Bound: 16 words of SPIs.
        for index in 1..=usize::from(self.spi_words) {
            kicks = kicks.union(self.touch_spis(index, u32::MAX, Change::Any));
        }
        kicks
    }

    fn set_pending(&mut self, vcpu: VcpuIndex, index: usize, bits: u32) -> Kicks {
        self.word_mut(vcpu, index).latch |= bits;
        self.touch_by(vcpu, index, bits, Change::Edge)
    }

    fn clear_pending(&mut self, vcpu: VcpuIndex, index: usize, bits: u32) -> Kicks {
        let word = self.word_mut(vcpu, index);
        word.latch &= !bits;
        word.in_list &= !bits;
        self.after_clear(vcpu, index, bits)
    }

    fn set_active(&mut self, vcpu: VcpuIndex, index: usize, bits: u32) -> Kicks {
        let word = self.word_mut(vcpu, index);
        let fresh = bits & !word.active & !word.listed;
        word.active |= bits;
        word.forced |= bits & word.listed;
        if index != 0 {
            self.adopt(index, fresh);
        }
        self.touch(vcpu, index, bits)
    }

    fn clear_active(&mut self, vcpu: VcpuIndex, index: usize, bits: u32) -> Kicks {
        let word = self.word_mut(vcpu, index);
        word.active &= !bits;
        word.forced |= bits & word.listed;
        let unheld = bits & !word.listed;
        if index != 0 {
            // Bound: 8 vCPUs.
            for held in &mut self.spi_mut(index).held {
                *held &= !unheld;
            }
        }
        self.after_clear(vcpu, index, bits)
    }

    /// Gives SPIs that a register write made active to the first vCPU each is routed to.
    fn adopt(&mut self, index: usize, mut bits: u32) {
        let spi = self.spi_mut(index);
        // Bound: 8 vCPUs.
        for (held, targets) in spi.held.iter_mut().zip(spi.targets.iter()) {
            *held |= bits & targets;
            bits &= !targets;
        }
    }

    /// Carries out what follows from a clear of pending or active bits.
    fn after_clear(&mut self, vcpu: VcpuIndex, index: usize, bits: u32) -> Kicks {
        self.word_mut(vcpu, index).release_unbacked(bits);
        self.note_ended(vcpu, index);
        self.touch(vcpu, index, bits)
    }

    /// Keeps the summary of SPIs that ended.
    #[inline]
    fn note_ended(&mut self, vcpu: VcpuIndex, index: usize) {
        if index != 0 && self.word(vcpu, index).ended != 0 {
            self.ended_spis |= 1 << (index & 31);
        }
    }
}
