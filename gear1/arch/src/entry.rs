//! Exception vectors of EL2, and the way back.
//!
//! While a guest or Gear2 runs, SP_EL2 points at its [`Frame`], so that entry
//! needs no scratch register. Stored there are X0 to X18 and X30, since X19 to X29
//! survive the handler by AAPCS64: these at entry only if the syndrome may name one
//! of them, else when the handler switches. An SVC, a call of Gear2's at EL0, does not
//! store X10 to X18, which the call loses: restored are older values of Gear2's own. Then
//! the image's handler runs on the CPU's stack and answers what is restored: X0 to X18 and
//! X30 ([`Resume::Same`]) or everything, from `current` ([`Resume::Switch`]).
//!
//! The image defines, with C linkage: `gear1_hvc` and `gear1_svc` (the calls of guests, and of a
//! Gear2 at EL1, and those of a Gear2 at EL0), `gear1_sync` (other synchronous exceptions),
//! `gear1_irq`, `gear1_serror` (`extern "C" fn(&mut ThisCpu<T>, esr: u64) -> Resume`), `gear1_left`
//! (`extern "C" fn(&mut ThisCpu<T>) -> Resume`, for [`Resume::Left`]) and
//! `gear1_halted(&HaltFrame, stack: u64) -> !`.
//!
//! Requirements: G1-RUN-002, G1-RUN-003, G1-TRC-001.

use core::arch::global_asm;
use core::mem::offset_of;

use gear1_abi::trace;
use gear1_core::context::Frame;

use crate::this_cpu::{CURRENT, ENTERED, GEAR2, RUNNING, STACK_TOP, TRACE, ThisCpu};

/// Registers that the exception return restores.
#[must_use = "a handler that returns another one restores another context's registers"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Resume {
    /// X0 to X18 and X30 of the context that trapped; the rest did not change.
    Same = 0,
    /// All registers of the current context, which may be another one.
    Switch = 1,
    /// The vCPU of a CPU without Gear2 has left its guest. Its X19 to X29 are stored, and `gear1_left`
    /// says what is restored: [`Resume::Switch`], or [`Resume::Same`] if nothing was left.
    Left = 2,
}

impl Resume {
    /// Returns what restores a general register that the handler of a
    /// synchronous exception changed.
    #[inline(always)]
    pub const fn with_register(number: u8) -> Self {
        if matches!(number, 19..=29) {
            Self::Switch
        } else {
            Self::Same
        }
    }
}

/// Registers at an exception inside EL2, as `gear1_halted` gets them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HaltFrame {
    /// X0 to X30.
    pub x: [u64; 31],
    /// SP at the exception.
    pub sp: u64,
    /// Vector, 0 to 7 (offset from VBAR_EL2 / 0x80).
    pub vector: u64,
    /// ESR_EL2.
    pub esr: u64,
    /// ELR_EL2.
    pub elr: u64,
    /// FAR_EL2.
    pub far: u64,
    /// SPSR_EL2.
    pub spsr: u64,
}

// AAPCS64 wants SP 16-byte aligned, and SP_EL2 points at frames.
const _: () = assert!(align_of::<Frame>() == 16 && offset_of!(Frame, x) == 0);

global_asm!(
    r#"
    // Inputs: SP_EL2 = frame of the context that ran.
    // Clobbers: nothing of the context; X0 to X18 and X30 are stored first.
    .macro SAVE_CALLER_SAVED
    SAVE_ARGUMENTS
    SAVE_OTHER_CALLER_SAVED
    .endm
    .macro SAVE_ARGUMENTS
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    .endm
    .macro SAVE_OTHER_CALLER_SAVED
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    str x18, [sp, #144]
    str x30, [sp, #240]
    .endm

    // The frame is `at` bytes behind `base`. The handler has left X19 to X29 as they were.
    .macro SAVE_CALLEE_SAVED base, at=0
    stp x19, x20, [\base, #152 + \at]
    stp x21, x22, [\base, #168 + \at]
    stp x23, x24, [\base, #184 + \at]
    stp x25, x26, [\base, #200 + \at]
    stp x27, x28, [\base, #216 + \at]
    str x29, [\base, #232 + \at]
    .endm

    // X0 = &mut ThisCpu, SP = the CPU's stack; X1 = ESR_EL2 for synchronous exceptions.
    .macro CALL handler
    mrs x0, tpidr_el2
    CALL_FROM_X0 \handler
    .endm
    .macro CALL_FROM_X0 handler
    ldr x2, [x0, #{stack_top}]
    mov sp, x2
    bl \handler
    .endm

    // Writes a record into the CPU's ring. W1 = syndrome. Out: X0 = &mut ThisCpu. Clobbers X2 to X6,
    // which are stored. Twelve instructions at most with what sets W1. The position is released behind
    // the record, so that a reader on another CPU never counts a record that it does not see.
    .macro RECORD
    mrs x0, tpidr_el2
    ldr x2, [x0, #{trace}]
    ldp x3, x4, [x2, #{position}]
    mrs x5, cntpct_el0
    ldr x6, [x0, #{running}]
    bfi x6, x1, #32, #32
    and x4, x3, x4
    add x4, x2, x4
    stp x5, x6, [x4, #{header_size}]
    // planted: each record is written over the last one
    add x3, x3, #{record_size}
    stlr x3, [x2]
    .endm

    // An interrupt, with its INTID as far as the interrupt controller tells it in one instruction.
    .macro TRACED_IRQ
    .balign 128
    SAVE_CALLER_SAVED
    .if {gicv2}
    mov w1, #-1
    .else
    mrs x1, icc_hppir1_el1
    orr w1, w1, #{interrupt}
    .endif
    RECORD
    CALL_FROM_X0 gear1_irq
    b resume_in_place
    .endm

    // An exception inside EL2 ends in a halt: nothing is resumed, so TPIDR_EL0
    // may hold X0 while the halt frame is found. Two places are excepted, see RECOVERABLE.
    .macro FATAL number
    .balign 128
    msr tpidr_el0, x0
    mov x0, #\number
    b fatal
    .endm

    // Like the entry above, but for a range of code that expects exceptions: between the two
    // labels, execution continues at the third one with X0 = 1. That code saves TPIDR_EL0 and
    // TPIDRRO_EL0 itself.
    .macro RECOVERABLE number, first, last, after
    .balign 128
    msr tpidr_el0, x0
    msr tpidrro_el0, x1
    mrs x0, elr_el2
    adr x1, \first
    cmp x0, x1
    b.lo 8f
    adr x1, \last
    cmp x0, x1
    b.hs 8f
    adr x1, \after
    msr elr_el2, x1
    mrs x1, tpidrro_el0
    mov x0, #1
    eret
    dsb nsh
    isb
8:  mrs x1, tpidrro_el0
    mov x0, #\number
    b fatal
    .endm

    // Saves in X2 to X7 the System registers that an exception at EL2 changes, and restores them.
    .macro KEEP
    mrs x2, tpidr_el0
    mrs x3, tpidrro_el0
    mrs x4, elr_el2
    mrs x5, spsr_el2
    mrs x6, esr_el2
    mrs x7, far_el2
    .endm
    .macro PUT_BACK
    msr tpidr_el0, x2
    msr tpidrro_el0, x3
    msr elr_el2, x4
    msr spsr_el2, x5
    msr esr_el2, x6
    msr far_el2, x7
    .endm

    .section .text.recoverable, "ax"
    // In: X0 = address, X1 = 0 for EL1's rights, else EL0's. Out: X0 = 1 if the walk took an
    // external abort, else 0, with the result in PAR_EL1. Clobbers X2 to X7.
    // planted: a walk that aborts halts the machine
    .global gear1_translate
gear1_translate:
    KEEP
    .global gear1_translate_first
gear1_translate_first:
    cbnz x1, 1f
    at s1e1r, x0
    b 2f
1:  at s1e0r, x0
2:  isb
    mov x0, #0
    .global gear1_translate_last
gear1_translate_last:
    PUT_BACK
    ret

    // Takes a physical SError that is pending. Out: X0 = 1 if there was one. Clobbers X2 to X7.
    .global gear1_take_serror
gear1_take_serror:
    KEEP
    mov x0, #0
    .global gear1_take_serror_first
gear1_take_serror_first:
    msr daifclr, #4
    isb
    // Within: the exception returns with PSTATE.A = 0.
take_serror_after:
    msr daifset, #4
    .global gear1_take_serror_last
gear1_take_serror_last:
    PUT_BACK
    ret

    // The first half of a table of vectors.
    .macro FROM_EL2
    FATAL 0
    FATAL 1
    FATAL 2
    FATAL 3
    RECOVERABLE 4, gear1_translate_first, gear1_translate_last, gear1_translate_last
    FATAL 5
    FATAL 6
    RECOVERABLE 7, gear1_take_serror_first, gear1_take_serror_last, take_serror_after
    .endm

    // planted: instructions on the way of calls
    .section .text.vectors, "ax"
    .balign 2048
    .global gear1_vectors
gear1_vectors:
    FROM_EL2
    .balign 128
    // planted: a branch on the way of calls
    SAVE_ARGUMENTS
    mrs x1, esr_el2
    // EC 0x10 to 0x17 (bits 31:26) are calls, of which SVC is 0x15, HVC 0x16 and SMC 0x17. Bit 31
    // is not looked at: 0x30 to 0x37 are debug exceptions, which come to EL2 by MDCR_EL2.TDE, which
    // is 0, or while Gear2 runs, when MDSCR_EL1 is 0.
classify:
    tbz x1, #30, no_call
    tbnz x1, #29, register_access
    tbz x1, #27, svc_or_reserved
    SAVE_OTHER_CALLER_SAVED
    tbnz x1, #26, sync_in_place
    CALL gear1_hvc
    mrs x1, tpidr_el2
    cbz x0, restore_same
    b switch_in_place
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_irq
    b resume_in_place
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_irq
    b resume_in_place
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_serror
    b resume_in_place
    // AArch32 EL0 of a guest: the same, its registers are X0 to X14.
    .balign 128
    SAVE_CALLER_SAVED
    mrs x1, esr_el2
    SAVE_CALLEE_SAVED sp
    CALL gear1_sync
    b resume
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_irq
    b resume_in_place
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_irq
    b resume_in_place
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_serror
    b resume_in_place
    .balign 128

    // The same while the CPU traces. SErrors are no exits that are counted, and have no record.
    .if {traced}
    .global gear1_traced_vectors
gear1_traced_vectors:
    FROM_EL2
    .balign 128
    SAVE_ARGUMENTS
    mrs x1, esr_el2
    RECORD
    b classify
    TRACED_IRQ
    TRACED_IRQ
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_serror
    b resume_in_place
    .balign 128
    SAVE_CALLER_SAVED
    mrs x1, esr_el2
    RECORD
    b sync_with_all
    TRACED_IRQ
    TRACED_IRQ
    .balign 128
    SAVE_CALLER_SAVED
    CALL gear1_serror
    b resume_in_place
    .endif

    // The classes of synchronous exceptions, all of which come with X1 = ESR_EL2: EC 0x18 to 0x1f
    // name a register in ISS bits 9:5, and all others that name one, in bits 20:16. X19 to X29 are
    // stored for number 16 and on.
register_access:
    SAVE_OTHER_CALLER_SAVED
    // planted: a System register is read into a register that nobody loads
    tbz x1, #9, sync_in_place
    b sync_with_all
no_call:
    SAVE_OTHER_CALLER_SAVED
    // planted: an access is answered in a register that nobody loads
    tbz x1, #20, sync_in_place
sync_with_all:
    SAVE_CALLEE_SAVED sp
    CALL gear1_sync
    b resume

    // EC 0x15, and 0x10 and 0x14, which a guest may have from a feature that this CPU's architecture
    // has and GearV does not know. SVC is Gear2's: HCR_EL2.TGE, which routes it here, is set while
    // Gear2 runs at EL0 alone (Arm ARM, HCR_EL2.TGE), and HFGITR_EL2 traps no SVC (`init_traps`).
svc_or_reserved:
    tbnz x1, #26, svc
    SAVE_OTHER_CALLER_SAVED
    b sync_in_place
svc:
    stp x8, x9, [sp, #64]
    str x30, [sp, #240]
    CALL gear1_svc
    mrs x1, tpidr_el2
    cbz x0, restore_same
    SAVE_CALLEE_SAVED x1, {gear2}
    b restore_all

sync_in_place:
    CALL gear1_sync
    // X0 = Resume; X19 to X29 are those of who trapped, and stored nowhere.
resume_in_place:
    mrs x1, tpidr_el2
    cbz x0, restore_same
switch_in_place:
    ldr x2, [x1, #{entered}]
    SAVE_CALLEE_SAVED x2
    tbnz x0, #1, left
restore_all:
    ldr x3, [x1, #{current}]
    str x3, [x1, #{entered}]
    mov sp, x3
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x19, [sp, #144]
    ldp x20, x21, [sp, #160]
    ldp x22, x23, [sp, #176]
    ldp x24, x25, [sp, #192]
    ldp x26, x27, [sp, #208]
    ldp x28, x29, [sp, #224]
    ldr x30, [sp, #240]
    ldp x0, x1, [sp, #0]
    eret
    // Speculation past ERET is stopped (Spectre variant, Arm advisory on straight-line
    // speculation).
    dsb nsh
    isb
    .global gear1_resume
gear1_resume:
resume:
    mrs x1, tpidr_el2
    tbnz x0, #1, left
    cbnz x0, restore_all
restore_same:
    ldr x2, [x1, #{current}]
    mov sp, x2
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldr x18, [sp, #144]
    ldr x30, [sp, #240]
    ldp x0, x1, [sp, #0]
    eret
    dsb nsh
    isb

    // X19 to X29 are in the frame of the guest that was left.
left:
    CALL gear1_left
    mrs x1, tpidr_el2
    cbz x0, restore_same
    b restore_all

    // X0 = vector number, TPIDR_EL0 = X0 of the interrupted code.
    // The stack may be what faulted: use the halt stack (one for all CPUs; the
    // first to halt keeps it, the others stop here).
fatal:
    msr tpidrro_el0, x1
    adrp x1, halt_taken
    add x1, x1, :lo12:halt_taken
    str x2, [x1, #16]
    str x3, [x1, #24]
4:  ldaxr w2, [x1]
    cbnz w2, 3f
    mov w2, #1
    stlxr w3, w2, [x1]
    cbnz w3, 4b
    ldr x2, [x1, #16]
    ldr x3, [x1, #24]
    adrp x1, halt_stack_top
    add x1, x1, :lo12:halt_stack_top
    sub x1, x1, #{halt_size}
    str x0, [x1, #{vector}]
    mov x0, sp
    str x0, [x1, #{sp}]
    stp x2, x3, [x1, #16]
    stp x4, x5, [x1, #32]
    stp x6, x7, [x1, #48]
    stp x8, x9, [x1, #64]
    stp x10, x11, [x1, #80]
    stp x12, x13, [x1, #96]
    stp x14, x15, [x1, #112]
    stp x16, x17, [x1, #128]
    stp x18, x19, [x1, #144]
    stp x20, x21, [x1, #160]
    stp x22, x23, [x1, #176]
    stp x24, x25, [x1, #192]
    stp x26, x27, [x1, #208]
    stp x28, x29, [x1, #224]
    str x30, [x1, #240]
    mrs x2, tpidr_el0
    mrs x3, tpidrro_el0
    stp x2, x3, [x1, #0]
    mrs x2, esr_el2
    mrs x3, elr_el2
    stp x2, x3, [x1, #{esr}]
    mrs x2, far_el2
    mrs x3, spsr_el2
    stp x2, x3, [x1, #{far}]
    mov x0, x1
    mov sp, x1
    bl gear1_halted
3:  wfi
    b 3b

    .section .bss.halt, "aw", %nobits
    .balign 16
halt_taken:
    .skip 32
    .skip 2048
    .balign 16
halt_stack_top:
    // For `cargo xtask audit`.
    .global halt_stack_size
    .set halt_stack_size, 2048 - {halt_size}
    "#,
    stack_top = const STACK_TOP,
    current = const CURRENT,
    entered = const ENTERED,
    gear2 = const GEAR2,
    trace = const TRACE,
    running = const RUNNING,
    position = const offset_of!(trace::Header, position),
    header_size = const trace::HEADER_SIZE,
    record_size = const trace::RECORD_SIZE,
    interrupt = const trace::INTERRUPT,
    traced = const cfg!(feature = "trace") as u64,
    gicv2 = const cfg!(feature = "gicv2") as u64,
    halt_size = const (size_of::<HaltFrame>() + 15) & !15,
    vector = const offset_of!(HaltFrame, vector),
    sp = const offset_of!(HaltFrame, sp),
    esr = const offset_of!(HaltFrame, esr),
    far = const offset_of!(HaltFrame, far),
);
const _: () = assert!(offset_of!(HaltFrame, elr) == offset_of!(HaltFrame, esr) + 8);
// STLR has no offset, and LDP loads both words.
const _: () = assert!(offset_of!(trace::Header, position) == 0);
const _: () = assert!(offset_of!(trace::Header, mask) == 8);
const _: () = assert!(offset_of!(HaltFrame, spsr) == offset_of!(HaltFrame, far) + 8);

unsafe extern "C" {
    static gear1_vectors: [u8; 0];
    #[cfg(feature = "trace")]
    static gear1_traced_vectors: [u8; 0];
    fn gear1_resume(resume: Resume) -> !;
    pub(crate) safe fn gear1_translate(address: u64, from_el0: u64) -> u64;
    pub(crate) safe fn gear1_take_serror() -> u64;
}

/// Installs the exception vectors on this CPU.
pub fn install_vectors() {
    install((&raw const gear1_vectors).addr() as u64);
}

/// Installs the vectors that write the CPU's ring of trace records, or those that do not. Tells
/// whether the CPU has a ring; without one nothing changes.
#[cfg(feature = "trace")]
pub fn set_tracing<T>(cpu: &ThisCpu<T>, on: bool) -> bool {
    let has_ring = cpu.trace != 0;
    if has_ring && on {
        install((&raw const gear1_traced_vectors).addr() as u64);
    } else if has_ring {
        install_vectors();
    }
    has_ring
}

/// Makes a table above the one of this CPU.
fn install(address: u64) {
    // SAFETY: both tables above are 2 KiB aligned, mapped executable for good, and hold a handler for
    // every vector. The one that records is installed only where the CPU has a ring.
    unsafe {
        core::arch::asm!("msr vbar_el2, {}", "isb", in(reg) address, options(nostack, preserves_flags))
    };
}

/// Leaves EL2 for the first time on this CPU, into the current context.
///
/// # Safety
///
/// `World::start_gear2` or `World::enter_guest` has prepared the CPU for the current context. The
/// CPU's stack holds nothing that is still needed: the next exception starts again at its top.
pub unsafe fn enter<T>(_cpu: &'static mut ThisCpu<T>) -> ! {
    // SAFETY: `gear1_resume` reads the current frame of this CPU through TPIDR_EL2, which
    // `Cpus::attach` set when it gave `_cpu` out.
    unsafe { gear1_resume(Resume::Switch) }
}
