//! Registers that only a GICv2 distributor has: GICD_SGIR and SGIs by sender (IHI 0048, 4.3.15 to
//! 4.3.17).
//!
//! Invariants: an SGI's latch is set iff its `sgi_sources` is not 0. The vCPU that an SGI's list
//! register names is the one in `sgi_senders`.
//!
//! Requirements: G1-GIC-004, G1-GIC-013, G1-GIC-017.

use super::VmGic;
use super::fields::{BYTE, WORD, pack, unpack};
use super::types::{Bits, IntId, Kicks, VcpuIndex};
use super::word::with;

/// GICD_SGIR.
pub const SGIR: u64 = 0xf00;
const CPENDSGIR: u64 = 0xf10;
const SPENDSGIR: u64 = 0xf20;
pub(super) const SPENDSGIR_END: u64 = 0xf2f;
/// Part number, low byte, of the distributor.
pub(super) const PART: u32 = 0x90;

impl VmGic {
    /// Reads GICD_SGIR (WO), GICD_CPENDSGIR or GICD_SPENDSGIR of `vcpu`.
    pub(super) fn v2_sgi_read(&self, vcpu: VcpuIndex, offset: u64, size_log2: u8) -> u32 {
        if offset < CPENDSGIR || !is_byte_field(offset, size_log2) {
            return 0;
        }
        let first = offset as usize & 15;
        pack(size_log2, |at| {
            let sgi = first.wrapping_add(at) & 15;
            let waiting = self.vcpu(vcpu).sgi_sources.get(sgi).copied().unwrap_or(0);
            waiting | self.listed_source(vcpu, sgi)
        })
    }

    /// Writes GICD_SGIR, GICD_CPENDSGIR or GICD_SPENDSGIR as `vcpu`.
    pub(super) fn v2_sgi_write(
        &mut self,
        vcpu: VcpuIndex,
        offset: u64,
        size_log2: u8,
        value: u32,
    ) -> Kicks {
        if offset == SGIR && size_log2 == WORD {
            return self.sgir(vcpu, value);
        }
        if offset < CPENDSGIR || !is_byte_field(offset, size_log2) {
            return Kicks::NONE;
        }
        let first = offset as usize & 15;
        let mut kicks = Kicks::NONE;
        // Bound: 4 bytes of a word.
        for (at, sources) in unpack(size_log2, value) {
            let sgi = first.wrapping_add(at) & 15;
            let sources = sources & self.everybody();
            kicks = kicks.union(if offset < SPENDSGIR {
                self.clear_sgi(vcpu, sgi, sources)
            } else {
                self.add_sgi(vcpu, sgi, sources)
            });
        }
        kicks
    }

    /// Emulates a write to GICD_SGIR by `from`: to the list, to all but the sender, or to the
    /// sender.
    ///
    /// G1-GIC-004: an SGI reaches vCPUs of the sender's own VM only.
    pub fn sgir(&mut self, from: VcpuIndex, value: u32) -> Kicks {
        let targets = sgir_targets(self.everybody(), from, value);
        let sgi = value as usize & 15;
        let mut kicks = Kicks::NONE;
        // Bound: 8 vCPUs.
        for target in Kicks::from_mask(targets).iter() {
            kicks = kicks.union(self.add_sgi(target, sgi, from.bit()));
        }
        kicks
    }

    /// Makes SGIs, a bit each, pending on a vCPU, with the requests of the senders that `senders`
    /// takes, a bit each.
    pub fn post_sgis_of(
        &mut self,
        target: VcpuIndex,
        sgis: u32,
        mut senders: impl FnMut(u32) -> u8,
    ) -> Kicks {
        // Bound: 16 SGIs.
        Bits(sgis).fold(Kicks::NONE, |kicks, sgi| {
            kicks.union(self.add_sgi(target, sgi as usize & 15, senders(sgi)))
        })
    }

    fn add_sgi(&mut self, vcpu: VcpuIndex, sgi: usize, sources: u8) -> Kicks {
        self.change_sources(vcpu, sgi, |waiting| waiting | sources);
        let waiting = if sources == 0 { 0 } else { vcpu.bit() };
        self.post_sgi(waiting, IntId::at(0, sgi as u32 & 15))
    }

    fn clear_sgi(&mut self, vcpu: VcpuIndex, sgi: usize, sources: u8) -> Kicks {
        self.change_sources(vcpu, sgi, |waiting| waiting & !sources);
        if self.listed_source(vcpu, sgi) & sources != 0 {
            self.vcpu_mut(vcpu).word.in_list &= !(1 << (sgi & 15));
        }
        self.touch(vcpu, 0, 1 << (sgi & 15))
    }

    fn change_sources(&mut self, vcpu: VcpuIndex, sgi: usize, change: impl Fn(u8) -> u8) {
        let state = self.vcpu_mut(vcpu);
        let bit = 1 << (sgi & 15);
        if let Some(sources) = state.sgi_sources.get_mut(sgi) {
            *sources = change(*sources);
            state.word.latch = with(state.word.latch, bit, *sources != 0);
        }
    }

    /// Returns as a mask whose request of the SGI stands pending in a list register.
    fn listed_source(&self, vcpu: VcpuIndex, sgi: usize) -> u8 {
        let state = self.vcpu(vcpu);
        if state.word.in_list >> (sgi & 15) & 1 == 0 {
            return 0;
        }
        1 << (self.sgi_sender(vcpu, sgi) & 7)
    }

    /// Returns the vCPU that the SGI's list register names, or named last.
    pub(super) fn sgi_sender(&self, vcpu: VcpuIndex, sgi: usize) -> u8 {
        self.vcpu(vcpu).sgi_senders.get(sgi).copied().unwrap_or(0)
    }

    /// Takes the request of the lowest-numbered sender out of the latch, for a list register. The
    /// SGI is not active: no end of it is due that names another sender.
    pub(super) fn take_sgi_source(&mut self, vcpu: VcpuIndex, sgi: usize) {
        let state = self.vcpu_mut(vcpu);
        let sources = state.sgi_sources.get(sgi).copied().unwrap_or(0);
        if let Some(sender) = state.sgi_senders.get_mut(sgi) {
            *sender = sources.trailing_zeros() as u8 & 7;
        }
        self.change_sources(vcpu, sgi, |waiting| waiting & waiting.wrapping_sub(1));
    }

    /// Forgets a request whose like stands pending in a list register already.
    pub(super) fn drop_sgi_source(&mut self, vcpu: VcpuIndex, sgi: usize) {
        let sender = self.sgi_sender(vcpu, sgi);
        self.change_sources(vcpu, sgi, |waiting| waiting & !(1 << (sender & 7)));
    }

    /// Puts a request back that stood in a list register.
    pub(super) fn return_sgi_source(&mut self, vcpu: VcpuIndex, sgi: usize) {
        let sender = self.sgi_sender(vcpu, sgi);
        self.change_sources(vcpu, sgi, |waiting| waiting | 1 << (sender & 7));
    }
}

/// Returns a mask over the vCPUs, of `everybody`, that a write to GICD_SGIR addresses.
#[inline(always)]
pub(super) fn sgir_targets(everybody: u8, from: VcpuIndex, value: u32) -> u8 {
    match value >> 24 & 3 {
        0 => (value >> 16) as u8 & everybody,
        1 => everybody & !from.bit(),
        2 => from.bit(),
        _ => 0,
    }
}

/// Returns the index of the vCPU and the SGI if a write to GICD_SGIR by `from` addresses one vCPU
/// alone, which need not be one of the VM's.
#[inline]
pub fn only_target_of_sgir(from: VcpuIndex, value: u32) -> Option<(usize, u32)> {
    let targets = sgir_targets(u8::MAX, from, value);
    let is_one = targets.is_power_of_two();
    is_one.then_some((targets.trailing_zeros() as usize, value & 15))
}

/// Returns the SGI if a write to GICD_SGIR by `from` addresses the writer alone.
#[inline(always)]
pub fn sgir_to_itself(from: VcpuIndex, value: u32) -> Option<u32> {
    (sgir_targets(u8::MAX, from, value) == from.bit()).then_some(value & 15)
}

fn is_byte_field(offset: u64, size_log2: u8) -> bool {
    size_log2 == BYTE || size_log2 == WORD && offset & 3 == 0
}
