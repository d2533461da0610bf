//! IPMMU-VMSA: the driver of the MMU that an R-Car Gen3 has in front of its bus masters.
//!
//! A main unit (IPMMU-MM) has eight contexts and walks their tables. Each bus master comes in by a
//! micro-TLB of a cache unit (IPMMU-DS0, -HC, ...), whose register names the master's context, and
//! caches what the main unit has walked. A micro-TLB that is off lets its master pass, so that all
//! of them are on: those without an owner lead to a context with an empty table.
//!
//! Owns the use of the registers. Init starts the IPMMU; the runtime reads faults ([`fault`]), has
//! the units forget what they have cached ([`flush`]), and leads a VM's micro-TLBs to an empty
//! table while the VM is stopped.
//!
//! Invariant: a register with the address of a table changes only while no micro-TLB of a VM leads
//! to the context.
//!
//! **The SoC's manual is not public.** Registers and bits are those that the drivers of Linux 6.12
//! and of Xen use (`ipmmu-vmsa` in both); `docs/boards/rcar-h3.md` has what is whose. No
//! machine with an IPMMU has run this: the tests have a model, written from the same facts.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003, G1-DMA-006, G1-DMA-008.

pub mod fault;
pub mod flush;
#[cfg(test)]
mod tests;

use gear1_abi::boot::BootStreams;
use tock_registers::register_bitfields;

use super::stream::Stage2;
use super::v2::Device;
use super::{Stuck, Unfit};

/// Bytes of a unit's registers.
pub const UNIT_SIZE: u64 = 0x1000;
/// Streams that a unit has numbers for: micro-TLB *n* of unit *u* is stream 64 *u* + *n*. The main
/// unit is unit 0 and has no master: its numbers are those of the contexts, as a fault tells no
/// more.
pub const UNIT_STREAMS: u32 = 64;
/// Micro-TLBs of a unit at most.
pub const MICRO_TLBS: u32 = 48;
/// Units at most, the main one included.
pub const MAX_UNITS: u32 = 32;
/// Bytes of the root of an empty table, which are also its alignment: two tables at level 1.
pub const EMPTY_ROOT_SIZE: u64 = 0x2000;
/// Contexts of the main unit. Linux and Xen turn context 0 off and give it to nobody, as this driver
/// does.
const CONTEXTS: u32 = 8;
/// Context of micro-TLBs that no VM owns: its faults are events.
pub(super) const NOBODYS: u32 = 1;
/// Context of the micro-TLBs of stopped VMs: its faults are none.
const STOPPED: u32 = 2;
/// The first context of a VM.
pub const FIRST_OWN: u32 = 3;
/// Most VMs that own micro-TLBs.
pub const MAX_OWN: u32 = CONTEXTS - FIRST_OWN;
/// Reads of a register that the IPMMU changes, before it is taken as stuck, as `PATIENCE` in
/// [`super`].
const PATIENCE: u32 = 10_000_000;

/// Registers of each context, in the main unit; a cache unit has IMCTR alone.
const IMCTR: usize = 0x0;
const IMTTBCR: usize = 0x8;
const IMTTLBR0: usize = 0x10;
const IMTTUBR0: usize = 0x14;
const IMSTR: usize = 0x20;
/// Distance between the registers of two contexts.
const CONTEXT_STRIDE: usize = 0x40;
/// Registers of each micro-TLB, in a cache unit: of the first 32, and of the others.
const IMUCTR0: usize = 0x300;
const IMUCTR32: usize = 0x600;
/// ASIDs of a micro-TLB, behind its IMUCTR.
const IMUASID: usize = 0x8;
/// Control of a unit.
const IMSCTLR: usize = 0x500;
const IMSAUXCTLR: usize = 0x504;

/// Fields of VTCR_EL2 that IMTTBCR has in the same places: T0SZ without its highest bit, and SL0.
const SHAPE: u64 = 0xdf;
/// [`SHAPE`] of an empty table: 40 bits, from level 1 on.
const EMPTY_SHAPE: u64 = 1 << 6 | 24;

register_bitfields! { u32,
    /// IMCTR.
    CONTROL [
        /// Tables of AArch64. In the main unit alone.
        VA64 OFFSET(29) NUMBITS(1) [],
        /// Faults interrupt.
        INTEN OFFSET(2) NUMBITS(1) [],
        /// Written as 1: forget what is cached. Reads as 1 until that is done.
        FLUSH OFFSET(1) NUMBITS(1) [],
        MMUEN OFFSET(0) NUMBITS(1) [],
    ],
    /// IMTTBCR.
    TRANSLATION [
        /// Long descriptors.
        EAE OFFSET(31) NUMBITS(1) [],
        /// No stage 1.
        PMB OFFSET(30) NUMBITS(1) [],
    ],
    /// IMUCTR.
    MICRO [
        /// Context.
        TTSEL OFFSET(4) NUMBITS(4) [],
        FLUSH OFFSET(1) NUMBITS(1) [],
        MMUEN OFFSET(0) NUMBITS(1) [],
    ],
    /// IMSCTLR.
    UNIT [
        /// Accesses are judged by security groups, beside contexts.
        USE_SECGRP OFFSET(28) NUMBITS(1) [],
    ],
    /// IMSAUXCTLR of the main unit.
    AUX [
        /// Descriptors have stage 2's format.
        S2PTE OFFSET(3) NUMBITS(1) [],
    ],
    /// The SoC's product register (PRR).
    PRODUCT [
        NAME OFFSET(8) NUMBITS(7) [H3 = 0x4f, M3W = 0x52, M3N = 0x55],
        /// Revision; 0x20 is ES3.0.
        CUT OFFSET(0) NUMBITS(8) [],
    ],
}

/// The first revision of H3 and M3-W whose IPMMU has stage 2's format.
const CUT_3_0: u32 = 0x20;

/// Tells by the SoC's product register whether its IPMMU can walk the CPUs' stage 2: H3 and M3-W
/// from ES3.0 on (M3-W+), and M3-N.
#[must_use]
pub fn has_stage2(product: u32) -> bool {
    let is_late = PRODUCT::CUT.read(product) >= CUT_3_0;
    match PRODUCT::NAME.read_as_enum(product) {
        // planted: an IPMMU without stage 2 is taken for one with it
        Some(PRODUCT::NAME::Value::H3 | PRODUCT::NAME::Value::M3W) => is_late,
        Some(PRODUCT::NAME::Value::M3N) => true,
        None => false,
    }
}

/// Returns the offset of a context's register in a unit.
const fn of_context(unit: u32, context: u32, register: usize) -> usize {
    let at = (context as usize).wrapping_mul(CONTEXT_STRIDE);
    of_unit(unit, at.wrapping_add(register))
}

/// Returns the offset of a unit's register: units have a page each, side by side.
const fn of_unit(unit: u32, register: usize) -> usize {
    let at = (unit as usize).wrapping_mul(UNIT_SIZE as usize);
    at.wrapping_add(register)
}

/// Returns the offset of IMUCTR of a stream's micro-TLB.
const fn micro_tlb(stream: u32) -> usize {
    let (unit, number) = (stream / UNIT_STREAMS, (stream % UNIT_STREAMS) as usize);
    let first = if number < 32 { IMUCTR0 } else { IMUCTR32 };
    of_unit(unit, first.wrapping_add((number % 32).wrapping_mul(16)))
}

/// Returns what keeps the IPMMU from translating by the CPUs' tables, for `vms` that own streams.
/// [`seize`] came first. `pa_range`: size of stage 2's addresses, as ID_AA64MMFR0_EL1.PARange.
pub fn unfit(device: &impl Device, pa_range: u64, vms: usize) -> Option<Unfit> {
    if !AUX::S2PTE.is_set(device.read32(of_unit(0, IMSAUXCTLR))) {
        Some(Unfit::Stage2)
    } else if !(1..=2).contains(&pa_range) {
        // Of 36 or 40 bits, from level 1 on: no source has other tables.
        Some(Unfit::Addresses)
    } else if vms > MAX_OWN as usize {
        Some(Unfit::Contexts)
    } else {
        None
    }
}

/// Makes every later access of every device behind the `units` abort, without interrupts, whatever
/// firmware has left. `empty`: address of [`EMPTY_ROOT_SIZE`] bytes of zeroes, in memory.
/// [`forget_empty`] comes next.
pub fn seize(device: &mut impl Device, units: u32, empty: u64) -> Result<(), Stuck> {
    for unit in 0..units {
        change(
            device,
            of_unit(unit, IMSCTLR),
            UNIT::USE_SECGRP::SET.value,
            0,
        );
    }
    // planted: an IPMMU takes stage 2 for stage 1
    change(device, of_unit(0, IMSAUXCTLR), 0, AUX::S2PTE::SET.value);
    let empty = Stage2 {
        root: empty,
        vmid: 0,
        vtcr: EMPTY_SHAPE,
    };
    for context in [NOBODYS, STOPPED] {
        set_up(device, units, (context, &empty), 0)?;
    }
    shut(device, units);
    // Nothing leads to the others any longer. One that firmware left with a fault would interrupt.
    let others = || [0].into_iter().chain(FIRST_OWN..CONTEXTS);
    for (unit, context) in (0..units).flat_map(|unit| others().map(move |of| (unit, of))) {
        device.write32(of_context(unit, context, IMCTR), 0);
    }
    Ok(())
}

/// Has the units forget what they have walked of the empty table. [`seize`] came before, and the
/// table was zeroed since: until a device was shut it could write there.
pub fn forget_empty(device: &mut impl Device, units: u32) -> Result<(), Stuck> {
    flush::flush(device, units, NOBODYS)?;
    flush::flush(device, units, STOPPED)
}

/// Makes every later access of every device abort: all micro-TLBs lead to an empty table.
pub fn shut(device: &mut impl Device, units: u32) {
    // Bound: MAX_UNITS (32).
    for unit in 1..units {
        // Bound: MICRO_TLBS (48).
        for number in 0..MICRO_TLBS {
            let stream = unit.wrapping_mul(UNIT_STREAMS).wrapping_add(number);
            // planted: a micro-TLB that no VM owns passes
            lead(device, stream, NOBODYS);
        }
    }
    device.order();
}

/// Starts translation: context [`FIRST_OWN`] + *i* has stage 2 `stages[i]`, and the VMs of
/// `streams` that `is_open` names reach memory. [`seize`] came first, and [`unfit`] has found all
/// that is needed.
pub fn start(
    device: &mut impl Device,
    units: u32,
    stages: &[Stage2],
    streams: &[BootStreams],
    is_open: impl Fn(u32) -> bool,
) -> Result<(), Stuck> {
    let interrupts = CONTROL::INTEN::SET.value;
    for own in (FIRST_OWN..CONTEXTS).zip(stages) {
        set_up(device, units, own, interrupts)?;
    }
    // What firmware's devices have tried since the IPMMU was seized is no event.
    device.write32(of_context(0, NOBODYS, IMSTR), 0);
    change(device, of_context(0, NOBODYS, IMCTR), 0, interrupts);
    for unit in 1..units {
        let common = CONTROL::MMUEN::SET.value | interrupts;
        device.write32(of_context(unit, NOBODYS, IMCTR), common);
    }
    for range in streams {
        if context_of(streams, range.vm) == Some(range.first) {
            switch(device, streams, range.vm, is_open(range.vm));
        }
    }
    Ok(())
}

/// Sets a context up, and waits until no unit has anything cached of what it was. `interrupts` has
/// INTEN, or nothing.
fn set_up(
    device: &mut impl Device,
    units: u32,
    (context, stage2): (u32, &Stage2),
    interrupts: u32,
) -> Result<(), Stuck> {
    let at = |register| of_context(0, context, register);
    let [low, high] = [stage2.root, stage2.root.wrapping_shr(32)].map(|half| half as u32);
    device.write32(at(IMTTLBR0), low);
    device.write32(at(IMTTUBR0), high);
    let tables = TRANSLATION::EAE::SET + TRANSLATION::PMB::SET;
    // planted: an IPMMU walks tables of another shape than the CPUs'
    device.write32(at(IMTTBCR), tables.value | (stage2.vtcr & SHAPE) as u32);
    // Zeroes clear a status, and not ones.
    device.write32(at(IMSTR), 0);
    let common = CONTROL::MMUEN::SET.value | interrupts;
    device.write32(at(IMCTR), common | CONTROL::VA64::SET.value);
    for unit in 1..units {
        let at = of_context(unit, context, IMCTR);
        device.write32(at, common);
        // No source reads IMCTR of a cache unit, where the end of that unit's flush is to be read.
        // planted: a cache unit whose flush cannot be seen is driven
        if !CONTROL::MMUEN.is_set(device.read32(at)) {
            return Err(Stuck);
        }
    }
    flush::flush(device, units, context)
}

/// Changes bits of a register, and leaves the others as firmware has set them.
fn change(device: &mut impl Device, register: usize, clear: u32, set: u32) {
    let value = device.read32(register);
    device.write32(register, value & !clear | set);
}

/// Returns the context of a VM that owns streams.
#[must_use]
pub fn context_of(streams: &[BootStreams], vm: u32) -> Option<u32> {
    let is_context =
        |one: &&BootStreams| one.vm == vm && one.count != 0 && one.first < UNIT_STREAMS;
    // Bound: MAX_STREAM_RANGES (16).
    streams.iter().find(is_context).map(|one| one.first)
}

/// Shuts the streams of a VM, or opens them. What the units have cached of its context is to be
/// forgotten next.
pub fn switch(device: &mut impl Device, streams: &[BootStreams], vm: u32, opens: bool) {
    let Some(own) = context_of(streams, vm) else {
        return;
    };
    let context = if opens { own } else { STOPPED };
    // Bound: MAX_STREAM_RANGES (16).
    for range in streams {
        // planted: an IPMMU shuts every VM's micro-TLBs
        if range.vm != vm || range.first < UNIT_STREAMS {
            continue;
        }
        // Bound: micro-TLBs of all units, MAX_UNITS (32) x MICRO_TLBS (48).
        for stream in range.first..range.first.wrapping_add(range.count) {
            lead(device, stream, context);
        }
    }
    device.order();
}

/// Leads a micro-TLB to a context. It is on, so that nothing passes beside.
fn lead(device: &mut impl Device, stream: u32, context: u32) {
    let at = micro_tlb(stream);
    let on = MICRO::MMUEN::SET + MICRO::FLUSH::SET;
    device.write32(at.wrapping_add(IMUASID), 0);
    device.write32(at, (MICRO::TTSEL.val(context) + on).value);
}
