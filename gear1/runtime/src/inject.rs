//! Exceptions that Gear1 gives a guest: aborts, undefined instructions; and the guest that cannot
//! go on.
//!
//! Requirements: G1-FLT-001 to G1-FLT-005.

use gear1_abi::event::{Event, Fault};
use gear1_abi::exit::ExitReason;
use gear1_abi::record::RecordId;
use gear1_arch::entry::Resume;
use gear1_arch::exception::{self, ELR_EL2, ESR_EL2, FAR_EL2, SPSR_EL2};
use gear1_arch::regs::{
    FAR_EL1, Readable as _, SCTLR_EL1, TCR_EL1, TTBR0_EL1, TTBR1_EL1, VBAR_EL1, Writeable as _,
};
use gear1_core::fault::walk_level;
use gear1_core::syndrome::{Entry, Syndrome, ec};

use crate::machine::Guest;
use crate::{lifecycle, log};

/// Reflects a fault as an external abort inside the guest (G1-FLT-001).
#[inline(never)]
pub(crate) fn abort(mut guest: Guest<'_>, syndrome: Syndrome, ipa: u64) -> Resume {
    let abort = syndrome.data_abort();
    let fetch = syndrome.class() == ec::INSTRUCTION_ABORT;
    let id = match !fetch && abort.lacks_syndrome() {
        true => RecordId::NoSyndrome,
        false => RecordId::GuestAbort,
    };
    let loaded = guest.loaded;
    // planted: an abort is not counted
    loaded.shared.count(ExitReason::Abort);
    log::log(guest.cpu.index(), id, [loaded.id.reg(), syndrome.0, ipa]);
    let entry = Entry::synchronous(SPSR_EL2.get(), SCTLR_EL1.get(), guest.cpu.data.has_pan);
    if is_stuck(guest.reborrow(), entry, fetch) {
        return stop(guest.reborrow(), ExitReason::Abort, ipa);
    }
    let far = FAR_EL2.get();
    let level = abort.on_table_walk().then(|| level_of_walk(far, ipa));
    FAR_EL1.set(far);
    exception::take_at_el1(entry, entry.external_abort(syndrome, level));
    Resume::Same
}

/// Returns the level of the guest's own table that lies at `ipa`, where the walk for `far` faulted.
/// ESR_EL2 tells the level of stage 2 instead, which means nothing to the guest.
#[inline(always)]
fn level_of_walk(far: u64, ipa: u64) -> u8 {
    let ttbr = [TTBR0_EL1.get(), TTBR1_EL1.get()];
    walk_level(TCR_EL1.get(), ttbr, far, ipa)
}

/// Injects an undefined-instruction exception for a feature that a guest's CPU does not have:
/// AArch32 traps, pointer authentication, SVE, SME, MTE and everything later. The exit counts as
/// `reason`.
#[inline(never)]
pub(crate) fn undefined(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    guest.loaded.shared.count(reason);
    let entry = Entry::synchronous(SPSR_EL2.get(), SCTLR_EL1.get(), guest.cpu.data.has_pan);
    if is_stuck(guest.reborrow(), entry, false) {
        return stop(guest.reborrow(), reason, 0);
    }
    exception::take_at_el1(entry, Entry::undefined());
    Resume::Same
}

/// Notes an exception that the running guest is about to be given, and tells whether it cannot go
/// on.
fn is_stuck(guest: Guest<'_>, entry: Entry, fetch: bool) -> bool {
    let (pc, vbar) = (ELR_EL2.get(), VBAR_EL1.get());
    guest
        .cpu
        .context()
        .is_some_and(|context| context.nesting.note(pc, vbar, entry, fetch))
}

/// Ends the VM of a guest that cannot go on (G1-FLT-004). Gear2 gets the registers of the
/// exception, so that a person can tell what the guest did; they are EL2's, as the guest took no
/// exception.
#[inline(never)]
pub(crate) fn stop(mut guest: Guest<'_>, reason: ExitReason, ipa: u64) -> Resume {
    let fault = Fault {
        esr: ESR_EL2.get(),
        far: FAR_EL2.get(),
        ipa,
        pc: ELR_EL2.get(),
        pstate: SPSR_EL2.get(),
    };
    let id = guest.loaded.id;
    let values = [id.reg(), fault.esr, fault.pc];
    log::log(guest.cpu.index(), RecordId::VcpuFault, values);
    lifecycle::end_with(guest.reborrow(), reason, Event::Fault(id, fault))
}
