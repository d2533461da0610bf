//! Exceptions that Gear1 gives a guest: aborts, undefined instructions; and the guest that cannot
//! go on.
//!
//! Requirements: G1-FLT-001 to G1-FLT-005.

use gear1_abi::event::{Event, Fault};
use gear1_abi::exit::ExitReason;
use gear1_abi::record::RecordId;
use gear1_arch::regs::{
    ELR_EL1, ELR_EL2, ESR_EL1, ESR_EL2, FAR_EL1, FAR_EL2, Readable as _, SCTLR_EL1, SPSR_EL1,
    SPSR_EL2, TCR_EL1, TTBR0_EL1, TTBR1_EL1, VBAR_EL1, Writeable as _,
};
use gear1_core::fault::walk_level;
use gear1_core::syndrome::{Entry, Syndrome, ec};

use crate::machine::{Cpu, Machine};
use crate::vcpu::Handled;
use crate::{lifecycle, log};

/// Reflects a fault as an external abort inside the guest (G1-FLT-001).
#[inline(never)]
pub(crate) fn abort(cpu: &mut Cpu, machine: &Machine, syndrome: Syndrome, ipa: u64) -> Handled {
    let abort = syndrome.data_abort();
    let fetch = syndrome.class() == ec::INSTRUCTION_ABORT;
    let id = if !fetch && abort.lacks_syndrome() {
        RecordId::NoSyndrome
    } else {
        RecordId::GuestAbort
    };
    if let Some(loaded) = cpu.data.loaded.as_ref() {
        // planted: an abort is not counted
        loaded.shared.count(ExitReason::Abort);
        log::log(cpu.index(), id, [loaded.id.reg(), syndrome.0, ipa]);
    }
    let entry = Entry::synchronous(SPSR_EL2.get(), SCTLR_EL1.get(), cpu.data.has_pan);
    let far = FAR_EL2.get();
    let level = abort.on_table_walk().then(|| {
        let ttbr = [TTBR0_EL1.get(), TTBR1_EL1.get()];
        walk_level(TCR_EL1.get(), ttbr, far, ipa)
    });
    if is_stuck(cpu, entry, fetch) {
        return stop(cpu, machine, ExitReason::Abort, ipa);
    }
    FAR_EL1.set(far);
    enter(entry, entry.external_abort(syndrome, level));
    Handled::Same
}

/// Injects an undefined-instruction exception for a feature that a guest's CPU does not have:
/// AArch32 traps, pointer authentication, SVE, SME, MTE and everything later.
#[inline(never)]
pub(crate) fn undefined(cpu: &mut Cpu, machine: &Machine) -> Handled {
    if let Some(loaded) = cpu.data.loaded.as_ref() {
        loaded.shared.count(ExitReason::Undefined);
    }
    let entry = Entry::synchronous(SPSR_EL2.get(), SCTLR_EL1.get(), cpu.data.has_pan);
    if is_stuck(cpu, entry, false) {
        return stop(cpu, machine, ExitReason::Undefined, 0);
    }
    enter(entry, Entry::undefined());
    Handled::Same
}

/// Notes an exception that the running guest is about to be given, and tells whether it cannot go
/// on.
fn is_stuck(cpu: &mut Cpu, entry: Entry, fetch: bool) -> bool {
    let (pc, vbar) = (ELR_EL2.get(), VBAR_EL1.get());
    cpu.context()
        .is_some_and(|context| context.nesting.note(pc, vbar, entry, fetch))
}

/// Ends the VM of a guest that cannot go on (G1-FLT-004).
#[inline(never)]
pub(crate) fn stop(cpu: &mut Cpu, machine: &Machine, reason: ExitReason, ipa: u64) -> Handled {
    let fault = Fault {
        esr: ESR_EL2.get(),
        far: FAR_EL2.get(),
        ipa,
        pc: ELR_EL2.get(),
        pstate: SPSR_EL2.get(),
    };
    let Some(id) = cpu.data.loaded.as_ref().map(|loaded| loaded.id) else {
        return Handled::Same;
    };
    let values = [id.reg(), fault.esr, fault.pc];
    log::log(cpu.index(), RecordId::VcpuFault, values);
    lifecycle::end_with(cpu, machine, reason, Event::Fault(id, fault))
}

/// Enters EL1 of the running guest at its synchronous vector.
fn enter(entry: Entry, esr: u64) {
    ESR_EL1.set(esr);
    ELR_EL1.set(ELR_EL2.get());
    SPSR_EL1.set(SPSR_EL2.get());
    ELR_EL2.set(VBAR_EL1.get().wrapping_add(entry.vector_offset));
    SPSR_EL2.set(entry.pstate);
}
