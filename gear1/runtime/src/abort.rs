//! Memory aborts of guests: emulated devices, or an abort inside the guest.
//!
//! Requirements: G1-FLT-001, G1-FLT-005.

use gear1_abi::boot::RealTime;
use gear1_abi::call::VcpuState;
use gear1_abi::event::{Event, Mmio};
use gear1_abi::exit::ExitReason;
use gear1_arch::entry::Resume;
use gear1_arch::exception::{self, ELR_EL2, FAR_EL2, HPFAR_EL2, SPSR_EL2};
use gear1_arch::translate;
use gear1_core::context::{Frame, VcpuContext};
use gear1_core::syndrome::{DataAbort, FaultKind, Syndrome};
use gear1_core::vcpu::VcpuShared;
use gear1_core::vgic::SGIR;

use crate::machine::{Cpu, Guest, Loaded};
use crate::vcpu::{NextPc, ShortExit};
use crate::vgic::{SGI_EXIT, Sent};
use crate::{channel, ffa, inject, pci, vcpu, vgic, vgic_mmio};

/// PSTATE.EL and, with AArch32, a mode that is EL0's only when zero below.
const PSTATE_EL: u64 = 0xc;

/// Answers a read of the distributor's control registers at once.
#[inline(always)]
pub(crate) fn distributor_read(
    cpu: &mut Cpu,
    syndrome: Syndrome,
    shared: &VcpuShared,
) -> Option<Resume> {
    let abort = syndrome.data_abort();
    if !abort.is_word_load() || HPFAR_EL2.get() != cpu.data.gicd_hpfar {
        return None;
    }
    let loaded = cpu.data.loaded.as_ref()?;
    let value = loaded
        .inner
        .lock()
        .gic
        .control_read(FAR_EL2.get() & 0xfff)?;
    shared.count(ExitReason::MmioGic);
    exception::skip_instruction();
    cpu.frame().set_reg(abort.register(), value.into());
    Some(Resume::with_register(abort.register()))
}

/// Carries out a 32-bit store at once if it is one to GICD_SGIR and its SGI is for one vCPU: for the sender, if it is
/// the same as the last one; or for another one that is on.
#[inline(always)]
pub(crate) fn sgir_at_once(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Sent {
    let abort = syndrome.data_abort();
    if HPFAR_EL2.get() != cpu.data.gicd_hpfar || FAR_EL2.get() & 0xfff != SGIR {
        return Sent::No;
    }
    let value = cpu.frame().reg(abort.register());
    let sent = vgic::sgi_at_once(cpu, shared, value);
    if !matches!(sent, Sent::No) {
        shared.count(SGI_EXIT);
        exception::skip_instruction();
    }
    sent
}

/// A data abort of a guest: an access to an emulated device, or one that runs again, or an abort
/// inside the guest.
#[inline(always)]
pub(crate) fn data(mut guest: Guest<'_>, syndrome: Syndrome) -> Resume {
    if let Some(resume) = vcpu::exit_if_frozen(guest.reborrow()) {
        return resume;
    }
    let abort = syndrome.data_abort();
    let Some(ipa) = faulting_ipa(guest.cpu, abort) else {
        return gone(guest.loaded);
    };
    if ffa::is_allowed_now(guest.loaded, abort, ipa) {
        return Resume::Same;
    }
    let emulated = abort.kind() != FaultKind::Other && !abort.on_table_walk();
    // planted: Gear1 halts where an access has no syndrome
    // planted: Gear1 halts where a guest has no translation tables
    if !emulated || !abort.is_decoded() {
        return inject::abort(guest.reborrow(), syndrome, ipa);
    }
    emulate(guest.reborrow(), syndrome, ipa)
}

/// Has an access run again whose translation is gone.
#[cold]
#[inline(never)]
fn gone(loaded: &Loaded) -> Resume {
    loaded.shared.count(ExitReason::Again);
    Resume::Same
}

/// Answers an access to a device that Gear1 or Gear2 emulates. The most frequent comes first: the
/// virtual GIC, then doorbells, then configuration space of PCI functions, then all that Gear2
/// knows.
#[inline(always)]
fn emulate(mut guest: Guest<'_>, syndrome: Syndrome, ipa: u64) -> Resume {
    let loaded = guest.loaded;
    let abort = syndrome.data_abort();
    if let Some((frame, offset)) = vgic::gic_frame(loaded.boot, ipa) {
        return vgic_mmio::access(guest.reborrow(), abort, frame, offset);
    }
    if channel::may_be_at(loaded, ipa)
        && let Some(resume) = channel::access(guest.reborrow(), abort, ipa)
    {
        return resume;
    }
    if pci::is_at(loaded, ipa) {
        return pci::access(guest, abort, ipa);
    }
    if guest.cpu.data.real_time != RealTime::No {
        // Nobody emulates devices for it.
        return inject::abort(guest.reborrow(), syndrome, ipa);
    }
    forward(guest.reborrow(), abort, ipa)
}

/// Returns the address that faulted at stage 2. HPFAR_EL2 holds the address after a translation
/// fault and after a fault on a walk. After a permission fault (and, with erratum 834220, after
/// every fault that is not on a walk), Gear1 repeats the guest's own translation. `None` means that
/// the translation is gone: the access runs again.
fn faulting_ipa(cpu: &Cpu, abort: DataAbort) -> Option<u64> {
    let far = FAR_EL2.get();
    let unsure = abort.kind() == FaultKind::Permission || cpu.data.misreports_stage2;
    if unsure && !abort.on_table_walk() {
        let from_el0 = SPSR_EL2.get() & PSTATE_EL == 0;
        return translate::stage1(far, from_el0);
    }
    Some(reported_ipa(far))
}

/// Returns the address that HPFAR_EL2 and FAR_EL2 report.
#[inline(always)]
fn reported_ipa(far: u64) -> u64 {
    (HPFAR_EL2.get() & 0xfff_ffff_fff0) << 8 | far & 0xfff
}

/// Hands an access to Gear2 without a stack frame: a translation fault of a VM that Gear2 runs, at
/// an address that no device of Gear1's has. `None`: it is another one, and nothing has been done.
///
/// # Safety
///
/// The loaded guest has trapped on this CPU.
#[inline(always)]
pub(crate) unsafe fn forward_at_once(cpu: &mut Cpu, syndrome: Syndrome) -> Option<Resume> {
    let loaded = cpu.data.loaded?;
    let abort = syndrome.data_abort();
    if !abort.is_device_access() || !loaded.is_plain || cpu.data.misreports_stage2 {
        return None;
    }
    let ipa = reported_ipa(FAR_EL2.get());
    if loaded.channels.may_have(ipa) || vgic::gic_frame(loaded.boot, ipa).is_some() {
        return None;
    }
    let exit = ShortExit::of(cpu)?;
    let context = &mut *exit.context;
    if context.nesting.is_stuck(ELR_EL2.get()) {
        return None;
    }
    let mmio = described(&context.frame, abort, ipa);
    await_reply(context, loaded.shared, abort, &mmio);
    loaded.shared.set_state(VcpuState::AwaitsMmio);
    let event = Event::Mmio(loaded.id, mmio);
    let reason = ExitReason::MmioGear2;
    // SAFETY: the caller's condition.
    Some(unsafe { exit.leave((loaded.shared, reason), NextPc::Kept, &event) })
}

/// Keeps what the reply to an access needs: the vCPU may be unloaded and the registers of EL2 be
/// another's when the reply comes.
#[inline(always)]
fn await_reply(context: &mut VcpuContext, shared: &VcpuShared, abort: DataAbort, mmio: &Mmio) {
    context.awaited_esr = abort.raw();
    context.awaited_far = FAR_EL2.get();
    shared.count(ExitReason::MmioGear2);
    shared.set_awaited(mmio.ipa, mmio.access_word());
}

/// Hands an access to Gear2 and waits for its reply.
#[inline(never)]
fn forward(mut guest: Guest<'_>, abort: DataAbort, ipa: u64) -> Resume {
    let mmio = described(guest.cpu.frame(), abort, ipa);
    let loaded = guest.loaded;
    if let Some(context) = guest.cpu.context() {
        if context.nesting.is_stuck(ELR_EL2.get()) {
            loaded.shared.count(ExitReason::MmioGear2);
            // Gear2 has answered this very access of the handler with an abort again and again.
            return inject::stop(guest.reborrow(), ExitReason::MmioGear2, ipa);
        }
        await_reply(context, loaded.shared, abort, &mmio);
    }
    vcpu::leave(
        guest.reborrow(),
        VcpuState::AwaitsMmio,
        ExitReason::MmioGear2,
        &Event::Mmio(loaded.id, mmio),
    )
}

/// Describes an access to Gear2: address, size, and of a store the bytes that it stores, no more of
/// the register.
#[inline(always)]
fn described(frame: &Frame, abort: DataAbort, ipa: u64) -> Mmio {
    let store = abort
        .is_write()
        // planted: Gear2 is told more than a store stores
        .then(|| abort.truncate(frame.reg(abort.register())));
    Mmio {
        ipa,
        size_log2: abort.size_log2(),
        store,
    }
}

/// An instruction fetch from where nothing is: no device is executed from, so the guest gets the
/// abort.
#[inline(never)]
pub(crate) fn instruction(mut guest: Guest<'_>, syndrome: Syndrome) -> Resume {
    if let Some(resume) = vcpu::exit_if_frozen(guest.reborrow()) {
        return resume;
    }
    let abort = syndrome.data_abort();
    match faulting_ipa(guest.cpu, abort) {
        Some(ipa) if !ffa::is_allowed_now(guest.loaded, abort, ipa) => {
            inject::abort(guest.reborrow(), syndrome, ipa)
        }
        Some(_) => Resume::Same,
        None => gone(guest.loaded),
    }
}
