//! The runtime image's header, its first instructions, and the boot page.
//!
//! The image defines `gear1_main(index: u64) -> !`, which every
//! CPU reaches on its own stack: the boot CPU from init, with index 0, the
//! others from the boot page.
//!
//! Requirements: G1-BOOT-009.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use gear1_abi::ABI_VERSION;
use gear1_abi::boot::EnableMethod;
use gear1_abi::id::CpuIndex;
use gear1_abi::image::RUNTIME_MAGIC;
use gear1_abi::layout::el2;

use crate::handover::Handover;
use crate::this_cpu::LocalCpu;
use crate::window::release_cpu;
use crate::{bulk, firmware};

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

    // MMU off. Finds this CPU's SecondaryArgs by its affinity: a spin-table has no argument. CPUs
    // may share a release address, so one may come before it is its turn, and waits for the next
    // SEV. This page, with what the linker puts behind, is mapped at its physical address too, so
    // that turning the MMU on does not pull the ground away. HCR_EL2.E2H = 0 before anything else.
    .section .text.boot_page, "ax"
    .balign 4096
    .global gear1_boot_page
gear1_boot_page:
    mov x9, #(1 << 31)
    msr hcr_el2, x9
    isb
    mrs x8, mpidr_el1
    ldr x9, ={affinity}
    and x8, x8, x9
    orr x8, x8, #{valid}
1:  adrp x0, {secondary}
    add x0, x0, :lo12:{secondary}
    mov x9, #{cpus}
2:  ldr x1, [x0, #56]
    cmp x1, x8
    b.eq 3f
    add x0, x0, #64
    subs x9, x9, #1
    b.ne 2b
    wfe
    b 1b
3:  ldp x1, x2, [x0, #0]
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
    .ltorg
    "#,
    magic = const RUNTIME_MAGIC,
    abi = const ABI_VERSION as u64,
    stack_top = const el2::STACKS + el2::STACK_STRIDE,
    affinity = const AFFINITY,
    valid = const VALID,
    cpus = const gear1_abi::id::MAX_CPUS,
    secondary = sym SECONDARY,
);

/// Affinity fields of MPIDR_EL1.
const AFFINITY: u64 = 0xff_00ff_ffff;
/// In `SecondaryArgs::owner`: the rest is there.
const VALID: u64 = 1 << 63;

/// Arguments of a secondary CPU, which loads them with the MMU off; the assembly above uses the
/// offsets.
#[repr(C, align(64))]
struct SecondaryArgs {
    ttbr0: AtomicU64,
    mair: AtomicU64,
    tcr: AtomicU64,
    sctlr: AtomicU64,
    stack_top: AtomicU64,
    index: AtomicU64,
    entry: AtomicU64,
    /// Affinity of the CPU, and [`VALID`].
    owner: AtomicU64,
}

const _: () = assert!(size_of::<SecondaryArgs>() == 64 && offset_of!(SecondaryArgs, owner) == 56);

static SECONDARY: [SecondaryArgs; gear1_abi::id::MAX_CPUS] = [const {
    SecondaryArgs {
        ttbr0: AtomicU64::new(0),
        mair: AtomicU64::new(0),
        tcr: AtomicU64::new(0),
        sctlr: AtomicU64::new(0),
        stack_top: AtomicU64::new(0),
        index: AtomicU64::new(0),
        entry: AtomicU64::new(0),
        owner: AtomicU64::new(0),
    }
}; gear1_abi::id::MAX_CPUS];

unsafe extern "C" {
    fn gear1_main(index: u64) -> !;
}

/// Turns on the CPU with `index`, which reaches `gear1_main` on its own stack.
///
/// # Safety
///
/// `index` is below the hand-over's number of CPUs. The CPU is off, or waits in firmware for its
/// release. No `GuestPage` is mapped on this CPU.
pub unsafe fn start_secondary(
    this: LocalCpu<'_>,
    info: Handover,
    index: CpuIndex,
) -> Result<(), i64> {
    let (cpu, args) = (index.select(&info.cpus), index.select(&SECONDARY));
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
    // Last in memory, too: the CPU, which looks at it with its caches off, may be waiting for it.
    // The CPU looks at those of the others too, which may be in caches alone so far.
    let all = (&raw const SECONDARY).cast_mut().cast::<u8>();
    // SAFETY: a static of this image, and so mapped.
    unsafe { bulk::clean(all, size_of_val(&SECONDARY)) };
    args.owner.store(cpu.mpidr | VALID, Ordering::Relaxed);
    let own = core::ptr::from_ref(args).cast_mut().cast::<u8>();
    // SAFETY: as above.
    unsafe { bulk::clean(own, size_of::<SecondaryArgs>()) };
    if info.enable_method == EnableMethod::SpinTable {
        // SAFETY: init took the release address of each CPU that there is from the board's device
        // tree, and no VM has that memory. The boot page begins with the entry of secondary CPUs,
        // whose arguments stand above. The caller has no window.
        unsafe { release_cpu(this, cpu.release_addr, info.boot_page) };
        return Ok(());
    }
    // SAFETY: as for the spin table: the CPU enters the boot page.
    unsafe { firmware::cpu_on(info.enable_method, cpu.mpidr, info.boot_page) }
}
