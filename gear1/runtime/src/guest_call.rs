//! Calls and waits of guests: HVC, SMC, WFI and WFE.
//!
//! A call of PSCI or FF-A reaches vCPUs of the caller's VM alone: targets are looked up by their
//! index in that VM. Off and On of a vCPU are decided under the VM's lock, so that a CPU_ON and a
//! CPU_OFF of two vCPUs, or the end of the VM, come one after the other.
//!
//! Requirements: G1-PSCI-002, G1-PSCI-005, G1-PSCI-008, G1-CPU-012.

use gear1_abi::ABI_VERSION;
use gear1_abi::boot::{BootRegion, RealTime};
use gear1_abi::call::{VcpuState, VmState, Waits};
use gear1_abi::event::{Event, VmEnd};
use gear1_abi::exit::ExitReason;
use gear1_abi::guest::{self, NOT_SUPPORTED};
use gear1_abi::id::{VcpuId, VmId};
use gear1_arch::entry::Resume;
use gear1_arch::{exception, firmware};
use gear1_core::context::Frame;
use gear1_core::ffa::is_ffa;
use gear1_core::mitigations::{answer, function};
use gear1_core::psci::{self, Call, affinity, ret};
use gear1_core::syndrome::Syndrome;
use gear1_core::vcpu::{Requests, VcpuShared};

use crate::machine::{self, Cpu, Guest, Loaded, Machine};
use crate::vcpu::{NextPc, ShortExit};
use crate::{ffa, kick, lifecycle, messages, realtime, trng, vcpu, vm_state, wait};

/// Size of a vCPU's structure in the VM's page of stolen time; the next vCPU's follows.
const STOLEN_TIME_SIZE: u64 = size_of::<guest::StolenTime>() as u64;

/// Answers PSCI_VERSION at once, and tells whether that is the function, X0, that is called.
#[inline(always)]
pub(crate) fn version(cpu: &mut Cpu, function: u64, shared: &VcpuShared) -> bool {
    let Some(version) = psci::version(function) else {
        return false;
    };
    shared.count(ExitReason::Hvc);
    cpu.frame().set_reg(0, version);
    true
}

/// Answers a call by SMCCC: the function in W0, arguments in X1 and on, the result in X0.
#[inline(always)]
pub(crate) fn call(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let [x0, x1, x2, x3, ..] = guest.cpu.frame().x;
    let decoded = psci::decode(x0, x1, x2, x3);
    if decoded != Call::Other {
        loaded.shared.count(reason);
    }
    let result = match decoded {
        Call::Constant(value) => value,
        Call::Other if is_ffa(x0 as u32) => {
            loaded.shared.count(reason);
            match ffa::call(guest.reborrow(), reason) {
                Some(resume) => return resume,
                None => NOT_SUPPORTED,
            }
        }
        Call::Other => return vendor(guest.reborrow(), reason),
        Call::On {
            target,
            entry,
            context,
        } => {
            let result = cpu_on(guest.cpu, machine, loaded, target, (entry, context));
            guest.cpu.frame().set_reg(0, result);
            return vcpu::woke_somebody(guest.reborrow(), reason);
        }
        Call::AffinityInfo { target } => affinity_info(machine, loaded, target),
        Call::NodeState { target, level } => node_state(machine, loaded, target, level),
        Call::Feature(id) => feature(guest.cpu, machine, id),
        Call::StolenTime { address } => stolen_time(machine, loaded, address),
        Call::Off => return cpu_off(guest.reborrow(), reason),
        Call::Standby => {
            guest.cpu.frame().set_reg(0, ret::SUCCESS);
            return realtime::suspend(guest.cpu).unwrap_or_else(|| block(guest.reborrow(), reason));
        }
        Call::PowerDown {
            entry,
            context,
            system,
        } if guest.cpu.data.real_time != RealTime::PassThrough => {
            return match may_power_down(machine, loaded, entry, system) {
                ret::SUCCESS => power_down(guest.reborrow(), reason, (entry, context)),
                error => {
                    guest.cpu.frame().set_reg(0, error);
                    Resume::Same
                }
            };
        }
        // The interface's state would be lost: only standby is offered.
        Call::PowerDown { .. } => ret::DENIED,
        Call::SystemOff => return lifecycle::end(guest.reborrow(), reason, VmEnd::Off),
        Call::SystemReset => return lifecycle::end(guest.reborrow(), reason, VmEnd::Reset),
    };
    guest.cpu.frame().set_reg(0, result);
    Resume::Same
}

/// Tells whether a vCPU can start at `ipa`: an instruction in the VM's memory.
fn is_entry(machine: &Machine, vm: VmId, ipa: u64) -> bool {
    let regions = &machine::boot_vm(machine, vm).regions;
    let inside = |region: &BootRegion| ipa.wrapping_sub(region.ipa) < region.size;
    // planted: a guest's call starts a vCPU anywhere
    // Bound: MAX_REGIONS (4).
    ipa & 3 == 0 && regions.iter().any(inside)
}

/// Returns the vCPU of the caller's VM that `mpidr` names.
fn target_of(machine: &Machine, caller: &Loaded, mpidr: u64) -> Option<VcpuId> {
    let count = usize::from(machine::boot_vm(machine, caller.vm).vcpu_count);
    // planted: a call reaches the vCPUs of the next VM
    psci::target_index(mpidr, count).and_then(|index| machine::vcpu_of(machine, caller.vm, index))
}

/// CPU_ON: checks the arguments before anything changes.
#[inline(never)]
fn cpu_on(cpu: &Cpu, machine: &Machine, caller: &Loaded, target: u64, start: (u64, u64)) -> u64 {
    let Some(id) = target_of(machine, caller, target) else {
        return ret::INVALID_PARAMETERS;
    };
    let (entry, context) = start;
    if !is_entry(machine, caller.vm, entry) {
        return ret::INVALID_ADDRESS;
    }
    turn_on(cpu, machine, caller.vm, id, (entry, context))
}

/// Makes a vCPU that is off ready to start, and tells its owner CPU's loop. Another vCPU of the VM
/// may ask for the same one at this moment: the VM's lock lets one of them succeed.
fn turn_on(cpu: &Cpu, machine: &Machine, vm_id: VmId, id: VcpuId, start: (u64, u64)) -> u64 {
    let (entry, context) = start;
    let vm = machine::lock_vm(vm_id);
    if vm.state != VmState::Running {
        return ret::DENIED;
    }
    let shared = machine::vcpu(id);
    if shared.state() != VcpuState::Off {
        // G1-PSCI-004: a CPU_ON is complete when it returns, so none is pending, as under KVM.
        // planted: who was turned on and has not run yet is pending
        // planted: CPU_ON starts a vCPU that is on
        return ret::ALREADY_ON;
    }
    shared.request_reset(entry, context);
    shared.set_state(VcpuState::Ready);
    // planted: no longer: who is started waits for its kick
    // planted: late: who turns a CPU on kicks it
    kick::wake(cpu, machine, id);
    ret::SUCCESS
}

/// AFFINITY_INFO. The state may change as soon as it is read, as on hardware: a caller that waits
/// for OFF asks again.
// planted: late: how late
#[inline(never)]
fn affinity_info(machine: &Machine, caller: &Loaded, target: u64) -> u64 {
    let Some(id) = target_of(machine, caller, target) else {
        return ret::INVALID_PARAMETERS;
    };
    match machine::vcpu(id).state() {
        // planted: a suspended vCPU is off
        VcpuState::Off => affinity::OFF,
        VcpuState::Ready
        | VcpuState::Running
        | VcpuState::Wfi
        | VcpuState::AwaitsMmio
        | VcpuState::AwaitsHypercall => affinity::ON,
    }
}

/// Answers PV_TIME_ST, and PV_TIME_FEATURES about it (G1-TIM-007).
#[inline(never)]
fn stolen_time(machine: &Machine, caller: &Loaded, address: bool) -> u64 {
    let ipa = machine::boot_vm(machine, caller.vm).stolen_time_ipa;
    match (ipa, address) {
        (0, _) => ret::NOT_SUPPORTED,
        (_, false) => ret::SUCCESS,
        (_, true) => ipa.wrapping_add(STOLEN_TIME_SIZE.wrapping_mul(caller.index.index() as u64)),
    }
}

/// Answers SMCCC_ARCH_FEATURES where the CPU or its firmware decides (G1-CPU-012).
#[inline(never)]
fn feature(cpu: &Cpu, machine: &Machine, id: u32) -> u64 {
    let offered = match id {
        function::SOC_ID => machine.soc_id.feature(),
        _ => cpu.data.mitigations.feature(id),
    };
    i64::from(offered) as u64
}

/// Passes workaround 1 or 3 to firmware where this CPU needs it, and answers SMCCC_ARCH_SOC_ID. On
/// a CPU that needs no workaround the call does nothing, and none is refused that
/// SMCCC_ARCH_FEATURES has offered on another CPU. There is no other call but those of random
/// numbers.
#[inline(never)]
fn architecture(cpu: &mut Cpu, loaded: &Loaded) {
    let [x0, x1, ..] = cpu.frame().x;
    let (id, machine) = (x0 as u32, loaded.machine);
    let result = match id {
        function::SOC_ID => machine.soc_id.answer(x1 as u32),
        function::WORKAROUND_1 | function::WORKAROUND_3 => {
            let offered = cpu.data.mitigations.feature(id);
            if offered == answer::NEEDED {
                firmware::work_around(machine.boot.enable_method, id);
            }
            // Not needed here is success, too.
            offered.min(0)
        }
        _ if trng::answer(cpu, loaded) => return,
        _ => answer::NOT_SUPPORTED,
    };
    cpu.frame().set_reg(0, i64::from(result) as u64);
}

/// NODE_HW_STATE. The one power domain with a state of its own is a vCPU.
#[inline(never)]
fn node_state(machine: &Machine, caller: &Loaded, target: u64, level: u64) -> u64 {
    match (target_of(machine, caller, target), level) {
        (Some(id), 0) if machine::vcpu(id).state() == VcpuState::Off => psci::node::HW_OFF,
        (Some(_), 0) => psci::node::HW_ON,
        (Some(_) | None, _) => ret::INVALID_PARAMETERS,
    }
}

/// Checks a power-down request (G1-PSCI-006, G1-PSCI-007). The caller itself is not off, so a
/// SYSTEM_SUSPEND of the last vCPU finds one that is alive.
#[inline(never)]
fn may_power_down(machine: &Machine, caller: &Loaded, entry: u64, system: bool) -> u64 {
    if !is_entry(machine, caller.vm, entry) {
        // planted: SYSTEM_SUSPEND does not look at the others
        ret::INVALID_ADDRESS
    } else if system && vm_state::alive(machine, caller.vm) > 1 {
        ret::DENIED
    } else {
        ret::SUCCESS
    }
}

/// CPU_OFF. Gear2 hears of it, and chooses another vCPU for this CPU.
#[inline(never)]
fn cpu_off(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let id = loaded.id;
    // Under the VM's lock, so that a CPU_ON for it comes wholly before or after.
    let vm = machine::lock_vm(loaded.vm);
    loaded.shared.set_state(VcpuState::Off);
    messages::end(
        guest.cpu,
        machine,
        loaded.vm,
        1_u32.wrapping_shl(id.reg() as u32),
    );
    drop(vm);
    vcpu::leave_as_is(guest.reborrow(), reason, &Event::Off(id))
}

/// The architecture's workarounds, random numbers, the vendor-specific hypervisor services of
/// [`guest`], and what does not exist. The functions that Gear1 knows are answered here; the rest of
/// the vendor's range is Gear2's, which a real-time VM's CPU does not have.
#[inline(never)]
pub(crate) fn vendor(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let [x0, x1, ..] = guest.cpu.frame().x;
    let to_gear2 = guest::is_vendor(x0) && guest.cpu.data.real_time == RealTime::No;
    let shared = guest.loaded.shared;
    match x0 as u32 {
        guest::EXIT_STATS => exit_stats(guest.cpu, shared, x1),
        guest::GEARV_VERSION => guest.cpu.frame().set_reg(0, u64::from(ABI_VERSION)),
        guest::CALL_UID => call_uid(guest.cpu),
        _ if to_gear2 => return hypercall(guest.reborrow()),
        _ => architecture(guest.cpu, guest.loaded),
    }
    shared.count(reason);
    Resume::Same
}

/// Answers `EXIT_STATS` with the vCPU's own counts: X0 the number of exits, X1 their ticks. The
/// call itself is not among them yet.
#[inline(always)]
fn exit_stats(cpu: &mut Cpu, shared: &VcpuShared, reason: u64) {
    let stats = ExitReason::from_index(reason as usize).map(|reason| shared.stats(reason));
    let (count, ticks) = stats.unwrap_or((guest::INVALID_PARAMETERS, 0));
    cpu.frame().set_reg(0, count);
    cpu.frame().set_reg(1, ticks);
}

/// Answers SMCCC's Call UID Query: the four words of the identifier in W0 to W3.
#[inline(always)]
fn call_uid(cpu: &mut Cpu) {
    // Bound: 4 words.
    let [a, b, c, d] = guest::UID.map(u64::from);
    let frame = cpu.frame();
    frame.set_reg(0, a);
    frame.set_reg(1, b);
    frame.set_reg(2, c);
    frame.set_reg(3, d);
}

/// Hands a call to Gear2 and waits for its reply.
#[inline(always)]
fn hypercall(mut guest: Guest<'_>) -> Resume {
    let event = hypercall_event(guest.cpu.frame(), guest.loaded.shared, guest.loaded.id);
    let (state, reason) = (VcpuState::AwaitsHypercall, ExitReason::HypercallGear2);
    vcpu::leave(guest.reborrow(), state, reason, &event)
}

/// Does so for the call of the vendor's range with this function without a stack frame. `None`: the
/// call is Gear1's, or the way is a longer one, and nothing has been done.
///
/// # Safety
///
/// The loaded guest has trapped on this CPU.
#[inline(always)]
pub(crate) unsafe fn vendor_at_once(
    cpu: &mut Cpu,
    function: u64,
    shared: &'static VcpuShared,
) -> Option<Resume> {
    let loaded = cpu.data.loaded?;
    if guest::may_be_gear1s(function) {
        return None;
    }
    let exit = ShortExit::of(cpu)?;
    let event = hypercall_event(&exit.context.frame, shared, loaded.id);
    shared.set_state(VcpuState::AwaitsHypercall);
    let reason = ExitReason::HypercallGear2;
    // SAFETY: the caller's condition.
    Some(unsafe { exit.leave((shared, reason), NextPc::Kept, &event) })
}

/// Counts a call that goes to Gear2, and returns its event: X0 to X4 and no other register, as Gear2
/// never sees a guest's.
#[inline(always)]
fn hypercall_event(frame: &Frame, shared: &VcpuShared, id: VcpuId) -> Event {
    let [x0, x1, x2, x3, x4, ..] = frame.x;
    shared.count(ExitReason::HypercallGear2);
    Event::Hypercall(id, [x0, x1, x2, x3, x4])
}

/// WFI and WFE. The PC moves first: whatever ends the wait, the guest continues behind it.
#[inline(never)]
pub(crate) fn wait(mut guest: Guest<'_>, syndrome: Syndrome) -> Resume {
    exception::skip_instruction();
    let loaded = guest.loaded;
    if syndrome.is_wfe() {
        let id = loaded.id;
        loaded.shared.count(ExitReason::Wfe);
        return vcpu::leave(
            guest.reborrow(),
            VcpuState::Ready,
            ExitReason::Wfe,
            &Event::Wfe(id),
        );
    }
    // planted: exits by WFI are not counted
    loaded.shared.count(ExitReason::Wfi);
    block_at_once(guest.reborrow(), ExitReason::Wfi)
}

/// Carries out a WFI of a vCPU that leaves for Gear2 and for which nothing is due, without a stack
/// frame. `None`: the way is a longer one, or something is due. The vCPU is Running then, and the exit
/// is not counted yet.
///
/// # Safety
///
/// The loaded guest, whose shared part `shared` is, has trapped on this CPU.
#[inline(always)]
pub(crate) unsafe fn wfi_at_once(cpu: &mut Cpu, shared: &'static VcpuShared) -> Option<Resume> {
    let loaded = cpu.data.loaded?;
    match cpu.data.waits {
        Waits::Stays | Waits::Alone => return None,
        Waits::Leaves | Waits::GivesWay => {}
    }
    let exit = ShortExit::of(cpu)?;
    if !vcpu::waits_at_once(exit.data, shared, Requests::ICACHE) {
        return None;
    }
    let reason = ExitReason::Wfi;
    shared.count(reason);
    let event = Event::Wfi(loaded.id);
    // SAFETY: the caller's condition.
    Some(unsafe { exit.leave((shared, reason), NextPc::SteppedOver, &event) })
}

/// Blocks the running vCPU until something wakes it, unless something is due.
#[inline(never)]
fn block(guest: Guest<'_>, reason: ExitReason) -> Resume {
    block_at_once(guest, reason)
}

/// Blocks the running vCPU likewise, inside the function that calls this one.
#[inline(always)]
fn block_at_once(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    if !vcpu::waits_at_once(&guest.cpu.data, loaded.shared, Requests::ICACHE)
        && vcpu::is_due(guest.cpu, machine, loaded, Requests::ICACHE)
    {
        // The request may be a stop, which this CPU is not told of again. Without a request, the
        // list registers hold what is due, or the maintenance interrupt brings it.
        return vcpu::after_interrupt(guest.reborrow(), reason);
    }
    match guest.cpu.data.waits {
        // Counters of performance monitors stop on the way to Gear2 alone.
        Waits::Stays | Waits::Alone if guest.cpu.data.monitors == 0 => {
            wait::stay(guest.reborrow(), reason)
        }
        _ => wait::leave(guest.reborrow(), reason),
    }
}

/// Blocks the running vCPU likewise; it starts anew as was requested once it wakes, which is at
/// once if something is due.
#[inline(never)]
fn power_down(mut guest: Guest<'_>, reason: ExitReason, (entry, context): (u64, u64)) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    loaded.shared.request_resume(entry, context);
    let asked = Requests::RESET
        .union(Requests::WARM)
        .union(Requests::ICACHE);
    if vcpu::is_due(guest.cpu, machine, loaded, asked) {
        // Nobody but this CPU takes it out of Running.
        loaded.shared.set_state(VcpuState::Ready);
        kick::wake(guest.cpu, machine, loaded.id);
    }
    vcpu::leave_as_is(guest.reborrow(), reason, &Event::Wfi(loaded.id))
}
