//! Trapped system registers of guests.
//!
//! Identification is filtered; the EL1 physical timer is emulated; SGIs are generated in the
//! virtual GIC; debug and OS-lock registers read as zero and ignore writes; set/way maintenance is
//! done by address, on caches that are shown with one set and one way; IC IALLUIS is done by the
//! CPUs of the VM alone; the rest is UNDEFINED.
//!
//! Requirements: G1-CPU-002, G1-CPU-003, G1-CPU-006, G1-CPU-010, G1-CPU-011, G1-RT-010.

use gear1_abi::boot::RealTime;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::VcpuId;
use gear1_abi::layout::el2::PIECE;
use gear1_abi::record::RecordId;
use gear1_arch::entry::Resume;
use gear1_arch::exception::{self, ELR_EL2};
use gear1_arch::regs::{self, CNTFRQ_EL0, ELR_EL1, Readable as _, Writeable as _};
use gear1_arch::window::clean_piece;
use gear1_arch::{barrier, cpu};
use gear1_core::idregs::{self};
use gear1_core::set_way::{Step, Time};
use gear1_core::syndrome::{SysregAccess, SysregId};
use gear1_core::timer::PhysicalReg;
use gear1_core::vcpu::VcpuShared;
use gear1_core::vgic::{ICC_SRE_EL1, SRE_EL1};

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, Guest, Loaded, Machine};
use crate::vgic::{SGI_EXIT, Sent};
use crate::{inject, kick, log, monitors, passthrough, timer, vcpu, vgic};

const ICC_SGI1R_EL1: SysregId = SysregId::new(3, 0, 12, 11, 5);
const ICC_ASGI1R_EL1: SysregId = SysregId::new(3, 0, 12, 11, 6);
const ICC_SGI0R_EL1: SysregId = SysregId::new(3, 0, 12, 11, 7);
const ICC_DIR_EL1: SysregId = SysregId::new(3, 0, 12, 11, 1);
const CCSIDR_EL1: SysregId = SysregId::new(3, 1, 0, 0, 0);
const CLIDR_EL1: SysregId = SysregId::new(3, 1, 0, 0, 1);
const CSSELR_EL1: SysregId = SysregId::new(3, 2, 0, 0, 0);
const CTR_EL0: SysregId = SysregId::new(3, 3, 0, 0, 1);
/// CCSIDR_EL1.LineSize. Number of sets and associativity, less one each, are above.
const LINE_SIZE: u64 = 7;
/// CSSELR_EL1.Level and InD.
const SELECTED: u64 = 0xf;
/// The longest pause inside a walk over sets and ways, in parts of a second.
const WALK_PAUSE: u64 = 1_000;
const REVIDR_EL1: SysregId = SysregId::new(3, 0, 0, 0, 6);
const AIDR_EL1: SysregId = SysregId::new(3, 1, 0, 0, 7);
const ACTLR_EL1: SysregId = SysregId::new(3, 0, 1, 0, 1);
const DC_ISW: SysregId = SysregId::new(1, 0, 7, 6, 2);
const DC_CSW: SysregId = SysregId::new(1, 0, 7, 10, 2);
const DC_CISW: SysregId = SysregId::new(1, 0, 7, 14, 2);
const IC_IALLUIS: SysregId = SysregId::new(1, 0, 7, 1, 0);

/// Answers a read of an identification register at once.
#[inline(always)]
pub(crate) fn identification(
    cpu: &mut Cpu,
    access: SysregAccess,
    shared: &VcpuShared,
) -> Option<Resume> {
    let value = idregs::value_of(access.id(), &cpu.data.id_registers)?;
    Some(answer(cpu, access, shared, value))
}

/// Tells whether a write is one of ICC_SGI1R_EL1.
#[inline(always)]
pub(crate) fn is_sgi1r(access: SysregAccess) -> bool {
    access.id() == ICC_SGI1R_EL1
}

/// Sends an SGI at once, if it is for one vCPU: for the sender, if it is the same as the last one;
/// or for another one that is on.
#[inline(always)]
pub(crate) fn sgi_at_once(cpu: &mut Cpu, access: SysregAccess, shared: &VcpuShared) -> Sent {
    let value = cpu.frame().reg(access.register());
    let sent = vgic::sgi_at_once(cpu, shared, value);
    if !matches!(sent, Sent::No) {
        shared.count(SGI_EXIT);
        exception::skip_instruction();
    }
    sent
}

/// Ends such an SGI that has woken a vCPU.
#[inline(always)]
pub(crate) fn sgi_woke(mut guest: Guest<'_>, id: VcpuId) -> Resume {
    kick::wake(guest.cpu, guest.loaded.machine, id);
    vcpu::woke_somebody(guest.reborrow(), SGI_EXIT)
}

/// Another trapped MSR, MRS or system instruction: the frequent ones first, since each comparison
/// is on the path of all that follow.
#[inline(always)]
pub(crate) fn access(mut guest: Guest<'_>, access: SysregAccess) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let shared = loaded.shared;
    let id = access.id();
    if Gic::VERSION == 3 && matches!(id, ICC_ASGI1R_EL1 | ICC_SGI0R_EL1) && !access.is_read() {
        return sgi(guest.reborrow(), access);
    }
    if id == ICC_DIR_EL1 && !access.is_read() {
        return deactivate(guest.reborrow(), access);
    }
    // EL0 gets here as far as CNTKCTL_EL1 lets it.
    if let Some(reg) = PhysicalReg::from_id(id) {
        let written = (!access.is_read()).then(|| guest.cpu.frame().reg(access.register()));
        let value = timer::access_physical(guest.cpu, machine, reg, written);
        let resume = answer(guest.cpu, access, shared, value);
        return vcpu::woke_somebody_or(guest.reborrow(), ExitReason::Sysreg, resume);
    }
    if matches!(id, DC_ISW | DC_CSW | DC_CISW) && !access.is_read() {
        return set_way(guest.reborrow(), access);
    }
    if let Some(value) = rare_register(guest.cpu, access) {
        return answer(guest.cpu, access, shared, value);
    }
    // Last: no other access takes longer because of this one.
    if id == IC_IALLUIS {
        return invalidate_icaches(guest.reborrow());
    }
    log::log(
        guest.cpu.index(),
        RecordId::UnknownSysreg,
        [loaded.id.reg(), u64::from(id.0), ELR_EL2.get()],
    );
    inject::undefined(guest.reborrow(), ExitReason::Undefined)
}

/// Emulates registers that guests seldom access: returns the value of a read, or `None` if there is
/// no such register.
#[inline(never)]
fn rare_register(cpu: &mut Cpu, access: SysregAccess) -> Option<u64> {
    match access.id() {
        REVIDR_EL1 if access.is_read() => return Some(regs::REVIDR_EL1.get()),
        AIDR_EL1 if access.is_read() => return Some(regs::AIDR_EL1.get()),
        ICC_SRE_EL1 if Gic::VERSION == 3 => return Some(SRE_EL1),
        CTR_EL0 if access.is_read() => return Some(regs::CTR_EL0.get()),
        CLIDR_EL1 if access.is_read() => return Some(regs::CLIDR_EL1.get()),
        // Neither sets nor ways have a meaning for the guest: it may clean them all with one
        // instruction.
        // planted: a guest is shown the sets of the machine's caches
        CCSIDR_EL1 if access.is_read() => return Some(regs::CCSIDR_EL1.get() & LINE_SIZE),
        CSSELR_EL1 if access.is_read() => return Some(regs::CSSELR_EL1.get()),
        CSSELR_EL1 => {
            let selected = cpu.frame().reg(access.register()) & SELECTED;
            regs::CSSELR_EL1.set(selected);
            // A later read of CCSIDR_EL1 traps, too, and must see this selection.
            barrier::isb();
            return Some(0);
        }
        _ => {}
    }
    let value = monitors::access(cpu, access);
    value.or(is_zero(access).then_some(0))
}

/// Reads as zero, ignores writes: debug registers (Op0 = 2, but not the trace
/// registers, Op1 = 1), ACTLR_EL1 and the ID registers of AArch32.
fn is_zero(access: SysregAccess) -> bool {
    let id = access.id();
    let (op0, op1, ..) = id.fields();
    // planted: ACTLR_EL1 is undefined
    (op0 == 2 && op1 != 1) || id == ACTLR_EL1 || (idregs::is_one(id) && access.is_read())
}

/// Set/way cache maintenance: the VM's memory by address, a piece each time.
///
/// The instruction itself would reach one CPU's caches only. [`gear1_core::set_way`] tells which
/// instruction of the guest's walk cleans the memory; it runs again after each piece, so that
/// interrupts arrive in between.
#[inline(never)]
fn set_way(guest: Guest<'_>, access: SysregAccess) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let operand = guest.cpu.frame().reg(access.register());
    loaded.shared.count(ExitReason::Sysreg);
    let total = machine::memory_size(machine::boot_vm(machine, loaded.vm));
    let context = guest.cpu.context();
    match context.map(|context| context.set_way.step(operand, walk_time(), total, PIECE)) {
        Some(Step::Piece(progress)) => {
            // SAFETY: FF-A unmaps a guest's page before it returns.
            unsafe { clean_piece(guest.cpu.local(), machine.handover, loaded.vm, progress) };
        }
        Some(Step::Done) | None => exception::skip_instruction(),
    }
    Resume::Same
}

/// Returns the time that a walk over sets and ways looks at: an instruction after a longer pause
/// begins another walk.
#[inline(always)]
fn walk_time() -> Time {
    Time {
        now: cpu::now(),
        pause: CNTFRQ_EL0.get() / WALK_PAUSE,
    }
}

/// IC IALLUIS, which would reach all CPUs of the machine: this CPU invalidates its own instruction
/// cache, and the VM's other vCPUs are asked to. Nobody waits at EL2: the instruction runs again
/// until all have. Each sibling that runs is kicked, so it answers within one exit.
#[inline(never)]
fn invalidate_icaches(guest: Guest<'_>) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    loaded.shared.count(ExitReason::Sysreg);
    let Some(mut state) = guest.cpu.context().map(|context| context.icache) else {
        return Resume::Same;
    };
    let elr = ELR_EL1.get();
    let number = match state.repeated(elr) {
        Some(number) => number,
        None => ask_siblings(guest.cpu, machine, loaded),
    };
    // Bound: MAX_VCPUS_PER_VM (8).
    let is_complete =
        siblings(machine, loaded).all(|id| machine::vcpu(id).has_served_icache(number));
    ELR_EL1.set(state.tried(number, elr, is_complete));
    if let Some(context) = guest.cpu.context() {
        context.icache = state;
    }
    if is_complete {
        exception::skip_instruction();
    } else {
        barrier::yield_hint();
    }
    Resume::Same
}

/// Asks the VM's other vCPUs to invalidate instruction caches, and returns the request's number.
fn ask_siblings(cpu: &Cpu, machine: &Machine, loaded: &Loaded) -> u64 {
    let number = machine::icache_requests(loaded.vm).add();
    vcpu::serve_icache(loaded);
    // Bound: MAX_VCPUS_PER_VM (8).
    for id in siblings(machine, loaded) {
        kick::notify(cpu, machine, id, machine::vcpu(id).request_icache());
    }
    number
}

/// Returns the other vCPUs of the loaded one's VM.
fn siblings(machine: &Machine, loaded: &Loaded) -> impl Iterator<Item = VcpuId> {
    let (vm, own) = (loaded.vm, loaded.id);
    let count = usize::from(machine::boot_vm(machine, vm).vcpu_count);
    (0..count)
        .filter_map(move |index| machine::vcpu_of(machine, vm, index))
        .filter(move |id| *id != own)
}

/// Completes an access with `value` for a read; a write is ignored.
#[inline]
fn answer(cpu: &mut Cpu, access: SysregAccess, shared: &VcpuShared, value: u64) -> Resume {
    shared.count(ExitReason::Sysreg);
    exception::skip_instruction();
    if !access.is_read() {
        return Resume::Same;
    }
    cpu.frame().set_reg(access.register(), value);
    Resume::with_register(access.register())
}

/// Sends SGIs inside the VM. With pass-through the physical SGIs are the guest's, but a write of
/// ICC_SGI1R_EL1 could name any CPU of the machine, so Gear1 replays it (G1-RT-004).
#[inline(always)]
pub(crate) fn sgi(mut guest: Guest<'_>, access: SysregAccess) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let id = access.id();
    let value = guest.cpu.frame().reg(access.register());
    exception::skip_instruction();
    loaded.shared.count(ExitReason::Sgi);
    if guest.cpu.data.real_time == RealTime::PassThrough {
        if id == ICC_SGI1R_EL1 {
            passthrough::sgi1r(machine, loaded, value);
        }
        return Resume::Same;
    }
    if id == ICC_SGI1R_EL1 {
        vgic::send_sgi(guest.cpu, machine, loaded, value);
    } else {
        // The GIC has one security state: both registers name Group 0.
        vgic::change_gic(guest.cpu, machine, loaded, |gic, index, _| {
            gic.sgi0r(index, value)
        });
    }
    vcpu::woke_somebody(guest.reborrow(), ExitReason::Sgi)
}

/// ICC_DIR_EL1, trapped while an active interrupt is in no list register: the hardware knows
/// nothing of that interrupt, and the virtual GIC ends its active state instead.
#[inline(never)]
fn deactivate(mut guest: Guest<'_>, access: SysregAccess) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let intid = guest.cpu.frame().reg(access.register()) as u32 & 0xff_ffff;
    exception::skip_instruction();
    loaded.shared.count(ExitReason::Sysreg);
    vgic::deactivate(guest.cpu, machine, loaded, intid);
    vcpu::woke_somebody(guest.reborrow(), ExitReason::Sysreg)
}
