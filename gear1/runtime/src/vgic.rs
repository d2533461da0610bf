//! The virtual GICs of VMs, loaded here or not: every change, and what follows
//! from it (list registers, physical interrupts that ended, other vCPUs).

use core::cell::Cell;

use gear1_abi::boot::{BootVm, RealTime};
use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{VcpuId, VmId};
use gear1_arch::monitors;
use gear1_arch::regs::{CNTV_CTL_EL0, Readable as _};
use gear1_core::monitors::PMU_INTID;
use gear1_core::vcpu::{Notify, Requests, VcpuShared};
use gear1_core::vgic::{
    IntId, Kicks, LrReplay, VcpuIndex, VmGic, only_target, only_target_of_sgir, sgir_to_itself,
};

use crate::gic::{Gic, HostGic, ListRegisters};
use crate::kick;
use crate::machine::{self, Cpu, CpuData, Loaded, Machine};

pub(crate) mod doorbell;

/// The PMU's interrupt.
pub(crate) const PMU_IRQ: IntId = IntId::private(PMU_INTID);
/// Size of a distributor's registers: GICv2's has one page, and other devices follow.
const GICD_SIZE: u64 = if Gic::VERSION == 2 { 0x1000 } else { 0x1_0000 };
/// Size of a vCPU's redistributor frames.
const GICR_SIZE: u64 = 0x2_0000;
/// Offset of the page of GICC_DIR, then the size of that page.
const GICC_DIR: u64 = 0x1000;
const GICC_DIR_SIZE: u64 = 0x1000;

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
pub(crate) fn gic_frame(boot: &BootVm, ipa: u64) -> Option<(GicFrame, u64)> {
    let distributor = ipa.wrapping_sub(boot.gicd_ipa);
    if distributor < GICD_SIZE {
        return Some((GicFrame::Distributor, distributor));
    }
    let other = ipa.wrapping_sub(boot.gicr_ipa);
    if Gic::VERSION == 2 {
        let offset = other.wrapping_sub(GICC_DIR);
        return (offset < GICC_DIR_SIZE).then_some((GicFrame::Deactivate, offset));
    }
    let target = VcpuIndex::from_low_bits((other / GICR_SIZE) as usize);
    let frames = GICR_SIZE.wrapping_mul(u64::from(boot.vcpu_count));
    (other < frames).then_some((GicFrame::Redistributor(target), other % GICR_SIZE))
}

/// Returns the HPFAR_EL2 of a fault in the distributor's first page, or an impossible value where
/// `abort::distributor_read` must not be used: on CPUs that may report a wrong HPFAR_EL2, and for
/// VMs that have the physical distributor.
#[inline(always)]
pub(crate) fn gicd_hpfar(data: &CpuData, loaded: &Loaded) -> u64 {
    if data.misreports_stage2 {
        machine::NO_HPFAR
    } else {
        loaded.gicd_hpfar
    }
}

impl Loaded {
    /// Runs `read` on the VM's virtual GIC; nothing pending changes.
    pub(crate) fn read_gic<R>(&self, read: impl FnOnce(&VmGic, VcpuIndex) -> R) -> R {
        read(&machine::lock_vm(self.vm).gic, self.index)
    }
}

/// Changes the virtual GIC of the vCPU loaded on `cpu`, and carries out what
/// follows: physical interrupts that ended, other vCPUs that must hear of it.
#[inline]
pub(crate) fn change_gic(
    cpu: &Cpu,
    machine: &Machine,
    loaded: &Loaded,
    change: impl FnOnce(&mut VmGic, VcpuIndex, &mut ListRegisters) -> Kicks,
) {
    let mut vm = machine::lock_vm(loaded.vm);
    let index = loaded.index;
    let mut lrs = Gic::list_registers(cpu.data.list_registers);
    let kicks = change(&mut vm.gic, index, &mut lrs);
    follow_rarely(cpu, machine, loaded, &mut vm.gic, kicks);
}

/// Takes what the list registers of the vCPU that this CPU unloads hold into its virtual GIC, and
/// empties them.
pub(crate) fn empty_unloaded(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    drop_replays(cpu);
    let mut vm = loaded.inner.lock();
    let index = loaded.index;
    let mut lrs = Gic::list_registers(cpu.data.list_registers);
    let kicks = vm.gic.save(index, &mut lrs);
    follow_switch(cpu, machine, loaded, &mut vm.gic, kicks);
}

/// Fills the list registers of the vCPU that this CPU loads, with the SGIs that were `posted`.
#[inline(always)]
pub(crate) fn fill_loaded(
    cpu: &Cpu,
    machine: &Machine,
    loaded: &Loaded,
    posted: u32,
    timer_due: bool,
) {
    let (index, timer) = (loaded.index, IntId::VIRTUAL_TIMER);
    let mut vm = loaded.inner.lock();
    let gic = &mut vm.gic;
    let mut lrs = Gic::list_registers(cpu.data.list_registers);
    let mut kicks = gic.resume(index, &mut lrs);
    // The kick for this vCPU needs no SGI: the flush is next.
    let mut _flushed = Kicks::NONE;
    if posted != 0 {
        // Bound: 16 SGIs.
        _flushed = post_sgis(gic, index, loaded.shared, posted);
    }
    // The physical interrupt of a timer that is due would end the vCPU's run at once: it counts as
    // acknowledged.
    if timer_due && !gic.hw_active(index, timer) {
        _flushed = gic.inject_hw(index, timer);
    }
    // The physical timer interrupt is active exactly while the vCPU owes its end: of the vCPU
    // before, the unload has left it inactive.
    if gic.hw_active(index, timer) {
        Gic::set_ppi_active(cpu.local(), timer.number(), true);
    }
    if gic.has_waiting(index) {
        kicks = kicks.union(gic.flush(index, &mut lrs));
    }
    follow_switch(cpu, machine, loaded, gic, kicks);
}

/// Carries out what follows from a load or an unload, which is nothing most often.
#[inline(always)]
fn follow_switch(cpu: &Cpu, machine: &Machine, loaded: &Loaded, gic: &mut VmGic, kicks: Kicks) {
    if !kicks.is_empty() || gic.has_ended(loaded.index) {
        follow_rarely(cpu, machine, loaded, gic, kicks);
    }
}

/// Drops what is kept for the vCPU that was loaded until now.
#[inline(always)]
pub(crate) fn drop_replays(cpu: &Cpu) {
    cpu.data.timer_interrupt.set(LrReplay::NONE);
    cpu.data.posted_sgi.set(LrReplay::NONE);
}

/// Does what [`follow`] does, in one copy for all changes but those of the shortest paths.
#[inline(never)]
fn follow_rarely(cpu: &Cpu, machine: &Machine, loaded: &Loaded, gic: &mut VmGic, kicks: Kicks) {
    follow(cpu, machine, loaded, gic, kicks);
}

/// Carries out what follows from a change. The VM's lock is held.
#[inline(always)]
fn follow(cpu: &Cpu, machine: &Machine, loaded: &Loaded, gic: &mut VmGic, mut kicks: Kicks) {
    let index = loaded.index;
    if kicks.contains(index) {
        let mut lrs = Gic::list_registers(cpu.data.list_registers);
        kicks = kicks.union(gic.flush(index, &mut lrs));
    }
    if gic.has_ended(index) {
        deactivate_ended(gic, index);
    }
    revalidate_replays(cpu, gic, index);
    let others = without_awake(kicks, loaded);
    if !others.is_empty() {
        kick::kick_vcpus(cpu, machine, loaded.vm, others);
    }
}

/// Changes the virtual GIC of a VM of which a vCPU may or may not be loaded on `cpu`, and
/// carries out what follows. Tells whether the VM runs; if not, nothing is done.
pub(crate) fn change_vm_gic(
    cpu: &Cpu,
    machine: &Machine,
    id: VmId,
    change: impl FnOnce(&mut VmGic) -> Kicks,
) -> bool {
    let mut vm = machine::vm(id).lock();
    let runs = vm.state == VmState::Running;
    if runs {
        change_locked(cpu, machine, id, &mut vm.gic, change);
    }
    runs
}

/// Pulses an interrupt of a VM. The guest configures it as edge-triggered, so it stays pending when
/// the line is low again.
#[inline(always)]
pub(crate) fn pulse(cpu: &Cpu, machine: &Machine, vm: u32, intid: u32) {
    let (Some(vm), Some(intid)) = (VmId::from_reg(u64::from(vm)), IntId::new(intid)) else {
        return;
    };
    change_vm_gic(cpu, machine, vm, |gic| gic.pulse(VcpuIndex::FIRST, intid));
}

/// Makes a physical interrupt pending in the VM that owns its device, whether it runs or not.
/// Tells whether it went to the vCPU that is loaded on `cpu`.
pub(crate) fn inject_external(cpu: &Cpu, machine: &Machine, id: VmId, intid: IntId) -> bool {
    let mut vm = machine::vm(id).lock();
    let mut kicks = Kicks::NONE;
    let is_here = change_locked(cpu, machine, id, &mut vm.gic, |gic| {
        kicks = gic.inject_hw(VcpuIndex::FIRST, intid);
        kicks
    });
    if !is_here {
        follow_target(cpu, machine, id, intid, kicks);
    }
    is_here
}

/// G1-GIC-018: routes a device's interrupt, which has come to this CPU, to the owner CPU of a vCPU
/// that it is for, so that the next one costs that CPU one exit, and this one nothing. A vCPU that
/// has moved, or that the guest has chosen, is thereby found by its first interrupt.
///
/// The interrupt is active, and an active one is presented to no CPU: a new route cannot lose it
/// (Arm IHI 0069, GICD_IROUTER; Arm IHI 0048, 4.3.12).
#[inline(never)]
fn follow_target(cpu: &Cpu, machine: &Machine, id: VmId, intid: IntId, kicks: Kicks) {
    let mut target = None;
    // Bound: 8 vCPUs.
    for index in kicks.iter() {
        let vcpu = machine::vcpu_of(machine, id, index.index());
        let owner = vcpu.map(|vcpu| machine::vcpu(vcpu).owner_cpu());
        if owner == Some(cpu.index()) {
            return;
        }
        target = target.or(owner);
    }
    // planted: a device's interrupt stays with the CPU of the first vCPU
    if let Some(target) = target {
        let other = target.select(&machine.boot.cpus);
        Gic::route_spi(target, other.mpidr, intid.number());
    }
}

/// Changes a virtual GIC whose VM's lock is held, and sends the kicks that follow. Returns whether
/// the vCPU that is loaded on `cpu` has a new entry in its list registers.
fn change_locked(
    cpu: &Cpu,
    machine: &Machine,
    id: VmId,
    gic: &mut VmGic,
    change: impl FnOnce(&mut VmGic) -> Kicks,
) -> bool {
    let kicks = change(gic);
    if let Some(loaded) = cpu.data.loaded.filter(|loaded| loaded.vm == id) {
        follow_rarely(cpu, machine, loaded, gic, kicks);
        kicks.contains(loaded.index)
    } else {
        kick::kick_vcpus(cpu, machine, id, kicks);
        false
    }
}

/// Moves interrupts that became pending into the list registers of the loaded vCPU.
pub(crate) fn flush_gic(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    if replay_posted(cpu, loaded.shared) {
        return;
    }
    let sgis = loaded.shared.take_each(Requests::INTERRUPTS).sgis();
    let index = loaded.index;
    let mut vm = loaded.inner.lock();
    let mut lrs = Gic::list_registers(cpu.data.list_registers);
    // The kick for this vCPU needs no SGI: the flush is next.
    let _flushed = post_sgis(&mut vm.gic, index, loaded.shared, sgis);
    let kicks = vm.gic.flush(index, &mut lrs);
    follow(cpu, machine, loaded, &mut vm.gic, kicks);
    if sgis.is_power_of_two()
        && let Some(sgi) = IntId::new(sgis.trailing_zeros())
    {
        let how = vm.gic.replay_of::<ListRegisters>(index, sgi, false);
        cpu.data.posted_sgi.set(how);
    }
}

/// Fast path: if the only pending request is the SGI delivered last, rewrites its list register
/// without the VM's lock, as [`replay`] does.
#[inline(always)]
pub(crate) fn replay_posted(cpu: &Cpu, shared: &VcpuShared) -> bool {
    let last = cpu.data.posted_sgi.get();
    let sgi = Requests::sgi(last.number());
    if shared.requests() != sgi {
        return false;
    }
    let apply = || last.apply(&mut Gic::list_registers(cpu.data.list_registers));
    match Gic::VERSION {
        2 => shared.take_sgi_of(last.number(), last.sender(), apply),
        _ => apply() && shared.take(sgi),
    }
}

/// Makes SGIs that were posted to a vCPU pending, after they were taken from its requests.
#[inline]
pub(crate) fn post_sgis(
    gic: &mut VmGic,
    target: VcpuIndex,
    shared: &VcpuShared,
    sgis: u32,
) -> Kicks {
    match Gic::VERSION {
        2 => gic.post_sgis_of(target, sgis, |sgi| shared.take_senders(sgi)),
        _ => gic.post_sgis(target, sgis),
    }
}

/// Reason of an exit by which a guest sends an SGI: a store to the distributor of a GICv2 is a data
/// abort, and a trace tells groups of reasons apart by their syndromes.
pub(crate) const SGI_EXIT: ExitReason = if Gic::VERSION == 2 {
    ExitReason::MmioGic
} else {
    ExitReason::Sgi
};

/// Outcome of an SGI.
pub(crate) enum Sent {
    /// The SGI is sent.
    Done,
    /// The SGI is posted, and this vCPU is Ready by it: the loop of its owner CPU must be told.
    Woke(VcpuId),
    /// Nothing is done: the SGI is of another kind.
    No,
}

/// Returns the vCPU and the SGI if `value`, which the vCPU `from` writes into the register that
/// sends SGIs, addresses one vCPU alone.
#[inline(always)]
fn only_target_of(from: VcpuIndex, value: u64) -> Option<(usize, u32)> {
    match Gic::VERSION {
        2 => only_target_of_sgir(from, value as u32),
        _ => only_target(value),
    }
}

/// Returns the SGI if `value`, written as above, addresses the writer alone.
#[inline(always)]
fn own_sgi(from: VcpuIndex, value: u64) -> Option<u32> {
    match Gic::VERSION {
        2 => sgir_to_itself(from, value as u32),
        _ => only_target(value).and_then(|(index, sgi)| (index == from.index()).then_some(sgi)),
    }
}

/// Carries out the running vCPU's write of ICC_SGI1R_EL1, or of GICD_SGIR of a GICv2, without a
/// stack frame, if the SGI is for one vCPU: for the writer, if it is the SGI that came last, or for
/// another one that is on.
#[inline(always)]
pub(crate) fn sgi_at_once(cpu: &Cpu, shared: &VcpuShared, value: u64) -> Sent {
    let Some(loaded) = cpu.data.loaded else {
        return Sent::No;
    };
    let own = loaded.index;
    if let Some(sgi) = own_sgi(own, value) {
        let last = cpu.data.posted_sgi.get();
        let sender = if Gic::VERSION == 2 {
            own.index() as u32
        } else {
            0
        };
        return match last.is_sgi_of(sgi, sender) && replay(cpu, shared, last) {
            true => Sent::Done,
            false => Sent::No,
        };
    }
    let Some((index, sgi)) = only_target_of(own, value) else {
        return Sent::No;
    };
    if cpu.data.real_time != RealTime::No {
        return Sent::No;
    }
    let Some(id) = machine::vcpu_of(loaded.machine, loaded.vm, index) else {
        return Sent::No;
    };
    let target = machine::vcpu(id);
    if target.is(VcpuState::Off) {
        return Sent::No;
    }
    match request_sgi(target, own, sgi) {
        Notify::Kick => kick::kick_running(loaded.machine, target),
        Notify::Wake => return Sent::Woke(id),
        Notify::Nobody => {}
    }
    Sent::Done
}

/// Posts an SGI of `from` to a vCPU, and returns the CPU that the caller must notify.
#[inline(always)]
fn request_sgi(target: &VcpuShared, from: VcpuIndex, sgi: u32) -> Notify {
    match Gic::VERSION {
        2 => target.request_sgi_of(sgi, from.bit()),
        _ => target.request(Requests::sgi(sgi)),
    }
}

/// Makes the posted SGIs of a vCPU of the VM pending.
#[inline(never)]
pub(crate) fn drain_posted(
    machine: &Machine,
    loaded: &Loaded,
    gic: &mut VmGic,
    target: VcpuIndex,
) -> Kicks {
    let Some(id) = machine::vcpu_of(machine, loaded.vm, target.index()) else {
        return Kicks::NONE;
    };
    let shared = machine::vcpu(id);
    let posted = shared.take_each(Requests::SGIS).sgis();
    post_sgis(gic, target, shared, posted)
}

/// Rewrites the list register of an interrupt of the loaded vCPU, which must not be off, without
/// the VM's lock. Returns `false` if another change of the list registers came in between, or a
/// request is raised: the caller then takes the slow path. Another CPU that changes
/// the virtual GIC at this moment kicks this one, which then handles both changes.
#[inline(always)]
pub(crate) fn replay(cpu: &Cpu, shared: &VcpuShared, replay: LrReplay) -> bool {
    shared.requests().is_none() && replay.apply(&mut Gic::list_registers(cpu.data.list_registers))
}

/// Makes the virtual timer interrupt of the loaded vCPU pending.
pub(crate) fn inject_timer(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    let shared = loaded.shared;
    if !shared.is(VcpuState::Off) && replay(cpu, shared, cpu.data.timer_interrupt.get()) {
        return;
    }
    let timer = IntId::VIRTUAL_TIMER;
    let mut next = LrReplay::NONE;
    change_gic(cpu, machine, loaded, |gic, index, lrs| {
        let kicks = gic.inject_hw(index, timer).union(gic.flush(index, lrs));
        next = gic.replay_of::<ListRegisters>(index, timer, true);
        kicks.without(index)
    });
    cpu.data.timer_interrupt.set(next);
}

/// Carries out the running vCPU's write of ICC_SGI1R_EL1, or of GICD_SGIR of a GICv2. An SGI for one
/// vCPU that is on is posted without the VM's lock: it becomes pending when that vCPU's CPU handles
/// the vCPU's requests, or when a vCPU accesses the registers that show it.
///
/// G1-GIC-004: it is one of the sender's own VM.
pub(crate) fn send_sgi(cpu: &Cpu, machine: &Machine, loaded: &Loaded, value: u64) {
    if let Some((index, sgi)) = only_target_of(loaded.index, value)
        && let Some(id) = machine::vcpu_of(machine, loaded.vm, index)
        && !machine::vcpu(id).is(VcpuState::Off)
    {
        let notify = request_sgi(machine::vcpu(id), loaded.index, sgi);
        if id == loaded.id {
            flush_gic(cpu, machine, loaded);
        } else {
            kick::notify(cpu, machine, id, notify);
        }
        return;
    }
    change_gic(cpu, machine, loaded, |gic, index, _| match Gic::VERSION {
        2 => gic.sgir(index, value as u32),
        _ => gic.sgi1r(index, value),
    });
}

/// After a change of the loaded vCPU's virtual GIC: drops the replays that no longer
/// hold.
#[inline(always)]
fn revalidate_replays(cpu: &Cpu, gic: &VmGic, index: VcpuIndex) {
    let keep = |cell: &Cell<LrReplay>| {
        let before = cell.get();
        if !before.is_none() {
            cell.set(gic.revalidate(index, before));
        }
    };
    keep(&cpu.data.timer_interrupt);
    keep(&cpu.data.posted_sgi);
}

/// Takes back the loaded vCPU's virtual timer or PMU interrupt that it has not acknowledged, if the
/// line is low again: the guest turns its timer off without an exit (G1-TIM-003).
#[inline]
pub(crate) fn sample_timer(gic: &mut VmGic, index: VcpuIndex) -> Kicks {
    // ENABLE and ISTATUS, but not IMASK.
    const HIGH: u64 = 5;
    let timer = IntId::VIRTUAL_TIMER;
    if gic.hw_active(index, timer) && CNTV_CTL_EL0.get() & 7 != HIGH {
        gic.retract_hw(index, timer)
    } else if gic.hw_active(index, PMU_IRQ) && !monitors::wants_interrupt() {
        gic.retract_hw(index, PMU_IRQ)
    } else {
        Kicks::NONE
    }
}

/// Ends the active state of an interrupt: the trapped ICC_DIR_EL1 or GICC_DIR of the loaded vCPU.
pub(crate) fn deactivate(cpu: &Cpu, machine: &Machine, loaded: &Loaded, intid: u32) {
    if let Some(intid) = IntId::new(intid) {
        change_gic(cpu, machine, loaded, |gic, index, lrs| {
            gic.sync(index, lrs).union(gic.deactivate(index, intid))
        });
    }
}

/// Deactivates the physical interrupts whose virtual ones the guest ended by register writes.
#[inline(never)]
pub(crate) fn deactivate_ended(gic: &mut VmGic, index: VcpuIndex) {
    // Bound: 512 interrupts: each round takes one out.
    while let Some(intid) = gic.take_ended(index) {
        Gic::deactivate(intid.number());
    }
}

/// The most physical interrupts that are deactivated at a time when a VM is loaded anew.
const ENDED_AT_ONCE: usize = 64;

/// Deactivates some of the physical interrupts of a VM that is loaded anew; tells whether none is
/// left.
pub(crate) fn deactivate_some(gic: &mut VmGic, index: VcpuIndex) -> bool {
    // Bound: ENDED_AT_ONCE (64).
    for _ in 0..ENDED_AT_ONCE {
        let Some(intid) = gic.take_ended(index) else {
            return true;
        };
        Gic::deactivate(intid.number());
    }
    false
}

/// Returns the kicks without the one for the loaded vCPU, whose list registers
/// were filled here, unless it waits in WFI and must be woken.
pub(crate) fn without_awake(kicks: Kicks, loaded: &Loaded) -> Kicks {
    if loaded.shared.is(VcpuState::Wfi) {
        kicks
    } else {
        kicks.without(loaded.index)
    }
}
