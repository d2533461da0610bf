//! The runtime image's header, its first instructions, and the boot page.
//!
//! The image defines `gear1_main(index: u64) -> !`, which every
//! CPU reaches on its own stack: the boot CPU from init, with index 0, the
//! others from the boot page.
//!
//! Requirements: G1-BOOT-009.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use gear1_abi::boot::{BOOT_MAGIC, BootInfo};
use gear1_abi::id::CpuIndex;
use gear1_abi::image::RUNTIME_MAGIC;
use gear1_abi::layout::el2;
use gear1_abi::{ABI_VERSION, abi_compatible};

use crate::cache;

global_asm!(
    r#"
    .section .head, "a"
    .quad {magic}
    .quad {abi}
    .quad __image_start
    .quad gear1_start
    .quad __text_end
    .quad __rodata_end
    .quad __data_end
    .quad __bss_end
    .quad gear1_boot_page

    // Inputs: X0 = BootInfo (VA, fixed), X1 = TTBR0_EL2 of the runtime. This code
    // is mapped at the same VA by init's tables and by the runtime's.
    .section .text.start, "ax"
    .global gear1_start
gear1_start:
    dsb ish
    msr ttbr0_el2, x1
    isb
    tlbi alle2
    dsb nsh
    ic iallu
    dsb nsh
    isb
    ldr x1, ={stack_top}
    mov sp, x1
    mov x0, #0
    mov x29, #0
    mov x30, #0
    b gear1_main
    .ltorg

    // Inputs: X0 = physical address of this CPU's SecondaryArgs. MMU off. This
    // page is mapped at its physical address too, so that turning the MMU on
    // does not pull the ground away. HCR_EL2.E2H = 0 before anything else.
    .section .text.boot_page, "ax"
    .balign 4096
    .global gear1_boot_page
gear1_boot_page:
    mov x9, #(1 << 31)
    msr hcr_el2, x9
    isb
    ldp x1, x2, [x0, #0]
    ldp x3, x4, [x0, #16]
    ldp x5, x6, [x0, #32]
    ldr x7, [x0, #48]
    msr ttbr0_el2, x1
    msr mair_el2, x2
    msr tcr_el2, x3
    tlbi alle2
    ic iallu
    dsb nsh
    isb
    msr sctlr_el2, x4
    isb
    mov sp, x5
    mov x0, x6
    mov x29, #0
    mov x30, #0
    br x7
    .balign 4096
    "#,
    magic = const RUNTIME_MAGIC,
    abi = const ABI_VERSION as u64,
    stack_top = const el2::STACKS + el2::STACK_STRIDE,
);

/// What a secondary CPU loads with its MMU off; offsets are used above.
#[repr(C, align(64))]
struct SecondaryArgs {
    ttbr0: AtomicU64,
    mair: AtomicU64,
    tcr: AtomicU64,
    sctlr: AtomicU64,
    stack_top: AtomicU64,
    index: AtomicU64,
    entry: AtomicU64,
}

static SECONDARY: [SecondaryArgs; gear1_abi::id::MAX_CPUS] = [const {
    SecondaryArgs {
        ttbr0: AtomicU64::new(0),
        mair: AtomicU64::new(0),
        tcr: AtomicU64::new(0),
        sctlr: AtomicU64::new(0),
        stack_top: AtomicU64::new(0),
        index: AtomicU64::new(0),
        entry: AtomicU64::new(0),
    }
}; gear1_abi::id::MAX_CPUS];

unsafe extern "C" {
    fn gear1_main(index: u64) -> !;
}

/// Why the hand-over cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// Another magic number.
    Magic,
    /// Built for an incompatible ABI version.
    AbiVersion,
}

/// Returns what init handed over.
pub fn boot_info() -> Result<&'static BootInfo, BootError> {
    let words = el2::BOOT_INFO as *const [u64; 2];
    // SAFETY: init maps the structure read-only at this address for good; its first
    // word is the magic number and the second holds the version in its low half,
    // whatever the version.
    let [magic, version] = unsafe { words.read() };
    let version = version as u32;
    if magic != BOOT_MAGIC {
        return Err(BootError::Magic);
    }
    if !abi_compatible(version) {
        return Err(BootError::AbiVersion);
    }
    // SAFETY: magic and version say that init wrote this very structure; nobody
    // writes it again.
    Ok(unsafe { &*words.cast::<BootInfo>() })
}

/// Turns on the CPU with `index`. It reaches `gear1_main` on its own stack.
pub fn start_secondary(info: &BootInfo, index: CpuIndex) -> Result<(), i64> {
    let (Some(cpu), Some(args)) = (info.cpus.get(index.index()), SECONDARY.get(index.index()))
    else {
        return Err(-1);
    };
    let stack_top =
        el2::STACKS.wrapping_add(index.reg().wrapping_add(1).wrapping_mul(el2::STACK_STRIDE));
    args.ttbr0.store(info.ttbr0_el2, Ordering::Relaxed);
    args.mair.store(info.mair_el2, Ordering::Relaxed);
    args.tcr.store(info.tcr_el2, Ordering::Relaxed);
    args.sctlr.store(
        aarch64_cpu::registers::Readable::get(&aarch64_cpu::registers::SCTLR_EL2),
        Ordering::Relaxed,
    );
    args.stack_top.store(stack_top, Ordering::Relaxed);
    args.index.store(index.reg(), Ordering::Relaxed);
    args.entry
        .store((gear1_main as *const ()).addr() as u64, Ordering::Relaxed);
    let va = core::ptr::from_ref(args).addr() as u64;
    // The CPU reads it with caches off.
    cache::clean_invalidate_range(va, size_of::<SecondaryArgs>() as u64);
    let pa = va.wrapping_sub(el2::RUNTIME).wrapping_add(info.image);
    crate::firmware::cpu_on(info.enable_method, cpu.mpidr, info.boot_page, pa)
}
