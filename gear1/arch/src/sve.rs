//! SVE registers beside FP's: Z0 to Z31 beyond 128 bits, P0 to P15, FFR and ZCR_EL1 (Arm ARM B1.2).
//! The registers move with those of FP ([`fp`](crate::fp)), for VMs that the manifest gives SVE to.
//!
//! ZCR_EL2 is the VM's length while its vCPU's values are in the registers. What another VM has left
//! in longer vectors stays there unread: no length that this VM reaches has it, and a load at the
//! next VM's own length overwrites all that it reaches. A VM without SVE reaches none of it, since
//! CPTR_EL2.TZ stays set.
//!
//! Requirements: G1-CPU-018.

use core::arch::asm;
use core::ptr;

use gear1_abi::id::VcpuId;
use gear1_abi::layout::el2;
use gear1_core::sve::{LONGEST, Lengths, VECTORS_OFFSET, size, zcr};

use crate::barrier;
use crate::cpu::{FpAccess, has_sve, set_fp_access};
use crate::regs::{Writeable as _, ZCR_EL2};

const _: () = assert!(size(LONGEST) <= el2::SVE_STRIDE);
const _: () = assert!(VECTORS_OFFSET == 16);

/// Returns the lengths of vectors that this CPU has, as far as firmware lets EL2 use them
/// (ZCR_EL3.LEN). FP traps from here on.
///
/// With CPTR_EL3.EZ = 0 the first access is firmware's to answer.
#[inline(never)]
#[must_use]
pub fn lengths() -> Lengths {
    if !has_sve() {
        return Lengths::NONE;
    }
    set_fp_access(FpAccess::SVE);
    barrier::isb();
    let mut word = 0_u16;
    // Bound: 16 lengths.
    for len in 0..16 {
        ZCR_EL2.set(len);
        barrier::isb();
        // A length that the CPU has not becomes a shorter one.
        word |= 1_u16.wrapping_shl(quadwords().wrapping_sub(1));
    }
    set_fp_access(FpAccess::NONE);
    Lengths::from_bits(word)
}

/// Returns the length of EL2's vectors in units of 128 bits.
fn quadwords() -> u32 {
    let bytes: u32;
    // SAFETY: reads a number that depends on ZCR_EL2 and ZCR_EL3 alone; SVE is open.
    unsafe {
        asm!(
            ".arch_extension sve",
            "rdvl {:x}, #1",
            out(reg) bytes,
            options(nostack, preserves_flags),
        );
    }
    bytes / 16
}

/// Returns the address of a vCPU's registers (EL2 VA).
fn memory(vcpu: VcpuId) -> u64 {
    el2::SVE.wrapping_add(vcpu.reg().wrapping_mul(el2::SVE_STRIDE))
}

/// Opens SVE to EL2 with vectors of a length in bits.
#[inline(always)]
fn open(length: u32) {
    set_fp_access(FpAccess::SVE);
    barrier::isb();
    // planted: a VM has the vectors of the one before
    ZCR_EL2.set(zcr(length));
    // The length of the accesses that follow.
    barrier::isb();
}

/// Stores the SVE registers of this CPU, behind [`fp::save`](crate::fp::save). FP traps from here on.
///
/// # Safety
///
/// The registers hold the values of `vcpu`, whose context the caller has, at `length`: else one guest
/// reads another one's. The VM's `sve_bits` in the hand-over is `length`, and not 0.
#[inline(never)]
pub unsafe fn save(vcpu: VcpuId, length: u32) {
    open(length);
    // SAFETY: stores `size(length)` bytes at the vCPU's memory, which init has mapped for good and
    // whoever has the vCPU's context has alone; SVE is open; no such register is live in this image.
    unsafe {
        asm!(
            ".arch_extension sve",
            "mrs {t}, S3_0_C1_C2_0",
            "str {t}, [{z}], #16",
            "rdvl {t}, #16",
            "add {p}, {z}, {t}, lsl #1",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,\
             17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "str z\\n, [{z}, #\\n, mul vl]",
            ".endr",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "str p\\n, [{p}, #\\n, mul vl]",
            ".endr",
            "rdffr p0.b",
            // planted: the first-fault register is not saved
            "str p0, [{p}, #16, mul vl]",
            z = inout(reg) memory(vcpu) => _,
            p = out(reg) _,
            t = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    set_fp_access(FpAccess::NONE);
}

/// Loads the SVE registers of this CPU, behind [`fp::restore`](crate::fp::restore), and opens SVE to
/// what runs next.
///
/// # Safety
///
/// `vcpu` trapped and runs next, and the values that the registers held are saved. The VM's
/// `sve_bits` in the hand-over is `length`, and not 0.
#[inline(never)]
pub unsafe fn restore(vcpu: VcpuId, length: u32) {
    open(length);
    // SAFETY: loads `size(length)` bytes from the vCPU's memory, which init has mapped for good and
    // whoever has the vCPU's context has alone; SVE is open; no such register is live in this image.
    unsafe {
        asm!(
            ".arch_extension sve",
            "ldr {t}, [{z}], #16",
            "msr S3_0_C1_C2_0, {t}",
            "rdvl {t}, #16",
            "add {p}, {z}, {t}, lsl #1",
            "ldr p0, [{p}, #16, mul vl]",
            "wrffr p0.b",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "ldr p\\n, [{p}, #\\n, mul vl]",
            ".endr",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,\
             17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "ldr z\\n, [{z}, #\\n, mul vl]",
            ".endr",
            z = inout(reg) memory(vcpu) => _,
            p = out(reg) _,
            t = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Sets the registers of a vCPU to what they are at its reset: zero. They are in memory.
///
/// # Safety
///
/// The caller has the vCPU's context. The VM's `sve_bits` in the hand-over is `length`, and not 0.
#[inline(never)]
pub unsafe fn reset(vcpu: VcpuId, length: u32) {
    let memory = memory(vcpu) as *mut u8;
    // SAFETY: init has mapped `size(length)` bytes there for good, which whoever has the vCPU's
    // context has alone.
    unsafe { ptr::write_bytes(memory, 0, size(length) as usize) };
}
