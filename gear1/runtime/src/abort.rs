//! Memory aborts of guests: emulated devices, or an abort inside the guest; and the guest that
//! cannot go on.
//!
//! Requirements: G1-FLT-001 to G1-FLT-005.

use gear1_abi::boot::{BootVm, RealTime};
use gear1_abi::call::VcpuState;
use gear1_abi::event::{Event, Fault, Mmio};
use gear1_abi::exit::ExitReason;
use gear1_abi::record::RecordId;
use gear1_arch::entry::Resume;
use gear1_arch::regs::{
    ELR_EL1, ELR_EL2, ESR_EL1, ESR_EL2, FAR_EL1, FAR_EL2, HPFAR_EL2, Readable as _, SCTLR_EL1,
    SPSR_EL1, SPSR_EL2, TCR_EL1, TTBR0_EL1, TTBR1_EL1, VBAR_EL1, Writeable as _,
};
use gear1_arch::translate;
use gear1_core::fault::walk_level;
use gear1_core::syndrome::{DataAbort, Entry, FaultKind, Syndrome, ec};
use gear1_core::vcpu::VcpuShared;
use gear1_core::vgic::{Kicks, VcpuIndex, shows_list_registers};

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, CpuData, Loaded, Machine};
use crate::{channel, ffa, lifecycle, log, passthrough, realtime, vcpu, vgic};

/// Size of a distributor's registers: GICv2's has one page, and other devices follow.
const GICD_SIZE: u64 = if Gic::VERSION == 2 { 0x1000 } else { 0x1_0000 };
/// Size of a vCPU's redistributor frames.
const GICR_SIZE: u64 = 0x2_0000;
/// Offset of the page of GICC_DIR, then the size of that page.
const GICC_DIR: u64 = 0x1000;
const GICC_DIR_SIZE: u64 = 0x1000;
/// INTID in GICC_DIR.
const GICC_DIR_INTID: u32 = 0x3ff;
/// PSTATE.EL and, with AArch32, a mode that is EL0's only when zero below.
const PSTATE_EL: u64 = 0xc;

/// A data abort of a guest.
#[inline(never)]
pub(crate) fn data(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    let abort = syndrome.data_abort();
    if abort.is_word_load()
        && HPFAR_EL2.get() == cpu.data.gicd_hpfar
        && let Some(loaded) = &cpu.data.loaded
        && let Some(value) = loaded.inner.lock().gic.control_read(FAR_EL2.get() & 0xfff)
    {
        shared.count(ExitReason::MmioGic);
        vcpu::skip_instruction();
        cpu.frame().set_reg(abort.register(), value.into());
        return Resume::with_register(abort.register());
    }
    data_other(cpu, syndrome)
}

#[inline(never)]
fn data_other(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        return Resume::Same;
    };
    if let Some(resume) = realtime::stop(cpu, machine) {
        return resume;
    }
    let abort = syndrome.data_abort();
    let Some(ipa) = faulting_ipa(cpu, abort) else {
        return Resume::Same;
    };
    if is_allowed_now(cpu, machine, abort, ipa) {
        return Resume::Same;
    }
    let emulated = abort.kind() != FaultKind::Other && !abort.on_table_walk();
    if !emulated || !abort.is_decoded() {
        return reflect(cpu, machine, syndrome, ipa);
    }
    let Some(loaded) = cpu.data.loaded else {
        return Resume::Same;
    };
    let boot = machine::boot_vm(machine, loaded.vm);
    if let Some((frame, offset)) = gic_frame(boot, ipa) {
        return gic(cpu, machine, abort, frame, offset);
    }
    if loaded.channels != 0
        && let Some(resume) = channel::access(cpu, machine, &loaded, abort, ipa)
    {
        return resume;
    }
    if cpu.data.real_time != RealTime::No {
        // Nobody emulates devices for it.
        return reflect(cpu, machine, syndrome, ipa);
    }
    forward(cpu, machine, abort, ipa)
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
    Some((HPFAR_EL2.get() & 0xfff_ffff_fff0) << 8 | far & 0xfff)
}

/// Returns the HPFAR_EL2 of a fault in the distributor's first page, or an impossible value where
/// [`data`] must not take its fast path: on CPUs that may report a wrong HPFAR_EL2, and for VMs that
/// have the physical distributor.
pub(crate) fn gicd_hpfar(data: &CpuData, boot: &BootVm) -> u64 {
    if data.misreports_stage2 || boot.real_time == RealTime::PassThrough {
        u64::MAX
    } else {
        boot.gicd_ipa >> 8
    }
}

/// Part of the virtual GIC that an access reaches.
#[derive(Clone, Copy)]
pub(crate) enum GicFrame {
    Distributor,
    Redistributor(VcpuIndex),
    /// The page of GICC_DIR, the only register there (Arm IHI 0048, 4.4.15).
    Deactivate,
}

/// Finds the part of the virtual GIC at `ipa`, and the offset there.
#[inline]
fn gic_frame(boot: &BootVm, ipa: u64) -> Option<(GicFrame, u64)> {
    let distributor = ipa.wrapping_sub(boot.gicd_ipa);
    if distributor < GICD_SIZE {
        return Some((GicFrame::Distributor, distributor));
    }
    let other = ipa.wrapping_sub(boot.gicr_ipa);
    if Gic::VERSION == 2 {
        let offset = other.wrapping_sub(GICC_DIR);
        return (offset < GICC_DIR_SIZE).then_some((GicFrame::Deactivate, offset));
    }
    let target = vgic::gic_index((other / GICR_SIZE) as usize);
    let frames = GICR_SIZE.wrapping_mul(u64::from(boot.vcpu_count));
    (other < frames).then_some((GicFrame::Redistributor(target), other % GICR_SIZE))
}

/// Emulates an access to the virtual GIC.
#[inline]
fn gic(cpu: &mut Cpu, machine: &Machine, abort: DataAbort, frame: GicFrame, offset: u64) -> Resume {
    if cpu.data.real_time == RealTime::PassThrough {
        return passthrough::access(cpu, machine, abort, frame, offset);
    }
    let size = abort.size_log2();
    let register = abort.register();
    vcpu::skip_instruction();
    if abort.is_write() {
        let value = abort.truncate(cpu.frame().reg(register));
        return gic_write(cpu, machine, frame, offset, size, value);
    }
    let Some(loaded) = cpu.data.loaded else {
        return Resume::Same;
    };
    loaded.shared.count(ExitReason::MmioGic);
    if shows_list_registers(offset) {
        look(cpu, machine, &loaded, frame);
    }
    let value = loaded.look_at_gic(|gic, index| match frame {
        GicFrame::Distributor => gic.distributor_read(index, offset, size),
        GicFrame::Redistributor(target) => gic.redistributor_read(target, offset, size),
        GicFrame::Deactivate => 0,
    });
    cpu.frame().set_reg(register, abort.extend(value));
    let resume = Resume::with_register(register);
    if shows_list_registers(offset) {
        return vcpu::woke_somebody_or(cpu, machine, ExitReason::MmioGic, resume);
    }
    resume
}

/// Takes over what the access may show: the list registers, the timer's line, and SGIs that were left for
/// a vCPU and are pending at its redistributor.
#[inline(never)]
fn look(cpu: &Cpu, machine: &Machine, loaded: &Loaded, frame: GicFrame) {
    vgic::change_gic(cpu, machine, loaded, |gic, index, lrs| {
        let seen = gic.sync(index, lrs).and(vgic::sample_timer(gic, index));
        match frame {
            GicFrame::Redistributor(target) => {
                seen.and(vgic::take_in(machine, loaded, gic, target))
            }
            GicFrame::Distributor | GicFrame::Deactivate => seen,
        }
    });
}

#[inline(never)]
fn gic_write(
    cpu: &mut Cpu,
    machine: &Machine,
    frame: GicFrame,
    offset: u64,
    size: u8,
    value: u64,
) -> Resume {
    let Some(loaded) = cpu.data.loaded else {
        return Resume::Same;
    };
    loaded.shared.count(ExitReason::MmioGic);
    if let (GicFrame::Deactivate, 0) = (frame, offset) {
        vgic::deactivate(cpu, machine, &loaded, value as u32 & GICC_DIR_INTID);
    }
    if shows_list_registers(offset) {
        look(cpu, machine, &loaded, frame);
    }
    vgic::change_gic(cpu, machine, &loaded, |gic, index, _| {
        vgic::sample_timer(gic, index).and(match frame {
            GicFrame::Distributor => gic.distributor_write(index, offset, size, value),
            GicFrame::Redistributor(target) => gic.redistributor_write(target, offset, size, value),
            GicFrame::Deactivate => Kicks::NONE,
        })
    });
    vcpu::woke_somebody(cpu, machine, ExitReason::MmioGic)
}

/// Hands an access to Gear2 and waits for its reply.
#[inline(never)]
fn forward(cpu: &mut Cpu, machine: &Machine, abort: DataAbort, ipa: u64) -> Resume {
    let store = abort
        .is_write()
        .then(|| abort.truncate(cpu.frame().reg(abort.register())));
    let mmio = Mmio {
        ipa,
        size_log2: abort.size_log2(),
        store,
    };
    let (Some(context), _, data) = cpu.parts() else {
        return Resume::Same;
    };
    // Gear2 has answered this very access of the handler with an abort again and again.
    if context.nesting.is_stuck(ELR_EL2.get()) {
        return stop(cpu, machine, ExitReason::MmioGear2, ipa);
    }
    context.awaited_esr = abort.raw();
    context.awaited_far = FAR_EL2.get();
    let Some(loaded) = data.loaded.as_ref() else {
        return Resume::Same;
    };
    loaded.shared.count(ExitReason::MmioGear2);
    loaded.shared.set_awaited(ipa, mmio.access_word());
    let id = loaded.id;
    vcpu::leave(
        cpu,
        VcpuState::AwaitsMmio,
        ExitReason::MmioGear2,
        Event::Mmio(id, mmio),
    )
}

/// An instruction fetch from where nothing is.
#[inline(never)]
pub(crate) fn instruction(cpu: &mut Cpu, machine: &Machine, syndrome: Syndrome) -> Resume {
    if let Some(resume) = realtime::stop(cpu, machine) {
        return resume;
    }
    match faulting_ipa(cpu, syndrome.data_abort()) {
        Some(ipa) if !is_allowed_now(cpu, machine, syndrome.data_abort(), ipa) => {
            reflect(cpu, machine, syndrome, ipa)
        }
        Some(_) | None => Resume::Same,
    }
}

/// Returns whether the access that faulted is allowed by now, so that the guest can repeat it.
fn is_allowed_now(cpu: &Cpu, machine: &Machine, abort: DataAbort, ipa: u64) -> bool {
    let vm = cpu.data.loaded.map(|loaded| loaded.vm);
    vm.is_some_and(|vm| ffa::is_allowed_now(machine, vm, abort, ipa))
}

/// Reflects a fault as an external abort inside the guest (G1-FLT-001).
#[inline(never)]
fn reflect(cpu: &mut Cpu, machine: &Machine, syndrome: Syndrome, ipa: u64) -> Resume {
    let abort = syndrome.data_abort();
    let fetch = syndrome.class() == ec::INSTRUCTION_ABORT;
    let id = if !fetch && abort.lacks_syndrome() {
        RecordId::NoSyndrome
    } else {
        RecordId::GuestAbort
    };
    if let Some(loaded) = cpu.data.loaded.as_ref() {
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
    inject(entry, entry.external_abort(syndrome, level));
    Resume::Same
}

/// Injects an undefined-instruction exception for a feature that a guest's CPU does not have:
/// AArch32 traps, pointer authentication, SVE, SME, MTE and everything later.
#[inline(never)]
pub(crate) fn undefined(cpu: &mut Cpu, machine: &Machine) -> Resume {
    if let Some(loaded) = cpu.data.loaded.as_ref() {
        loaded.shared.count(ExitReason::Undefined);
    }
    let entry = Entry::synchronous(SPSR_EL2.get(), SCTLR_EL1.get(), cpu.data.has_pan);
    if is_stuck(cpu, entry, false) {
        return stop(cpu, machine, ExitReason::Undefined, 0);
    }
    inject(entry, Entry::undefined());
    Resume::Same
}

/// Notes an exception that the running guest is about to be given, and tells whether it cannot go on.
fn is_stuck(cpu: &mut Cpu, entry: Entry, fetch: bool) -> bool {
    let (pc, vbar) = (ELR_EL2.get(), VBAR_EL1.get());
    cpu.context()
        .is_some_and(|context| context.nesting.note(pc, vbar, entry, fetch))
}

/// Ends the VM of a guest that cannot go on (G1-FLT-004).
#[inline(never)]
fn stop(cpu: &mut Cpu, machine: &Machine, reason: ExitReason, ipa: u64) -> Resume {
    let fault = Fault {
        esr: ESR_EL2.get(),
        far: FAR_EL2.get(),
        ipa,
        pc: ELR_EL2.get(),
        pstate: SPSR_EL2.get(),
    };
    let Some(id) = cpu.data.loaded.as_ref().map(|loaded| loaded.id) else {
        return Resume::Same;
    };
    let values = [id.reg(), fault.esr, fault.pc];
    log::log(cpu.index(), RecordId::VcpuFault, values);
    lifecycle::end_with(cpu, machine, reason, Event::Fault(id, fault))
}

/// Enters EL1 of the running guest at its synchronous vector.
fn inject(entry: Entry, esr: u64) {
    ESR_EL1.set(esr);
    ELR_EL1.set(ELR_EL2.get());
    SPSR_EL1.set(SPSR_EL2.get());
    ELR_EL2.set(VBAR_EL1.get().wrapping_add(entry.vector_offset));
    SPSR_EL2.set(entry.pstate);
}
