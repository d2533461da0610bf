//! Channels: stores of one VM that become an interrupt of another without Gear2,
//! and the emulated PL061 blocks by which the device VM's userspace hears of them.
//!
//! Lock order: a PL061's lock, then its VM's. No lock of the storing VM is held. A doorbell of a VM
//! with pass-through takes no lock.
//!
//! The storing CPU may be any: a served guest's or the device VM's own. The target VM may stop or
//! be loaded at the same moment. A store that comes too late is lost with the VM's life, as a line
//! to a device without power is.
//!
//! Requirements: G1-CHN-001 (only the addresses of the manifest), G1-CHN-002, G1-CHN-003,
//! G1-CHN-004, G1-CHN-008.

use gear1_abi::boot::{BootChannel, BootPl061, ChannelKind, MAX_PL061};
use gear1_abi::exit::ExitReason;
use gear1_abi::id::VmId;
use gear1_arch::entry::Resume;
use gear1_arch::exception;
use gear1_arch::sync::TicketLock;
use gear1_core::pl061::Pl061;
use gear1_core::syndrome::DataAbort;
use gear1_core::vgic::{IntId, VcpuIndex};

use crate::machine::{self, Cpu, Guest, Loaded, Machine};
use crate::vgic::doorbell;
use crate::{timer, vcpu, vgic};

/// Size of a PL061's registers in a guest's address space.
const PAGE: u64 = 0x1000;

static PL061: [TicketLock<Pl061>; MAX_PL061] = [const { TicketLock::new(Pl061::new()) }; MAX_PL061];

/// Tells whether an access may be to a channel or to a PL061 of the VM's: most accesses are to
/// neither, and a search would cost each of them the length of both lists.
#[inline(always)]
pub(crate) fn may_be_at(loaded: &Loaded, ipa: u64) -> bool {
    loaded.channels.may_have(ipa) || loaded.has_pl061
}

/// Handles an access to a channel or to a PL061 of the VM's; `None`: it is neither.
#[inline(never)]
pub(crate) fn access(mut guest: Guest<'_>, abort: DataAbort, ipa: u64) -> Option<Resume> {
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(abort.register()));
        if let Some(resume) = store(guest.reborrow(), ipa, value) {
            return Some(resume);
        }
    }
    pl061(guest.reborrow(), abort, ipa)
}

/// Handles a store of `value` at `ipa` if a channel of the VM's begins there.
///
/// An acknowledgement with another value than 1 is no channel and goes to Gear2: the guest's driver
/// acknowledges a change of the device's configuration, which the device model has to see.
fn store(mut guest: Guest<'_>, ipa: u64, value: u64) -> Option<Resume> {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let mut own = machine::channels_of(machine, loaded.vm).iter();
    // Bound: the VM's channels, at most `MAX_CHANNELS`.
    let channel = own.find(|channel| channel.ipa == ipa)?;
    if channel.kind == ChannelKind::Acknowledge && value != 1 {
        return None;
    }
    loaded.shared.count(ExitReason::Channel);
    fire(&mut *guest.cpu, machine, channel, value);
    exception::skip_instruction();
    Some(vcpu::woke_somebody(guest.reborrow(), ExitReason::Channel))
}

/// Does what a store to the channel means. The manifest has chosen kind and target; the guest's
/// value matters to `Arm` alone.
fn fire(cpu: &mut Cpu, machine: &Machine, channel: &BootChannel, value: u64) {
    match channel.kind {
        ChannelKind::None | ChannelKind::Acknowledge => {}
        ChannelKind::Pl061 => raise(cpu, machine, channel.target as usize, channel.number),
        ChannelKind::Interrupt => vgic::pulse(cpu, machine, channel.target, channel.number),
        ChannelKind::Gear2 => machine::cpu_shared(cpu.index()).ring(),
        ChannelKind::Arm => {
            let lines = value as u32 & channel.number;
            arm(cpu, machine, channel.target as usize, lines as u8);
        }
        ChannelKind::Doorbell => ring(cpu, machine, channel.target as usize),
    }
}

/// Rings a doorbell. A ring that has to wait is kept in this CPU's timer, whatever becomes of the
/// VM that rang.
fn ring(cpu: &mut Cpu, machine: &Machine, number: usize) {
    if let Some(due) = doorbell::ring(cpu, machine, number) {
        timer::watch_doorbell(&mut cpu.data, number, due);
    }
}

/// Rings a doorbell for Gear2, as a store of the doorbell's VM would. `None`: there is none, or the
/// manifest does not let Gear2 ring it.
pub(crate) fn ring_for_gear2(cpu: &mut Cpu, machine: &Machine, number: u64) -> Option<()> {
    let number = number as usize;
    // planted: Gear2 rings every doorbell
    if machine.boot.doorbells.get(number)?.gear2 == 0 {
        return None;
    }
    ring(cpu, machine, number);
    Some(())
}

/// Raises a line of a PL061.
pub(crate) fn raise(cpu: &Cpu, machine: &Machine, index: usize, line: u32) {
    let (Some(block), Some(lock)) = (machine.boot.pl061.get(index), PL061.get(index)) else {
        return;
    };
    let mut state = lock.lock();
    if state.raise(line) {
        drive(cpu, machine, block, state.interrupt());
    }
}

/// Arms lines of a PL061, a bit each.
fn arm(cpu: &Cpu, machine: &Machine, index: usize, lines: u8) {
    let (Some(block), Some(lock)) = (machine.boot.pl061.get(index), PL061.get(index)) else {
        return;
    };
    let mut state = lock.lock();
    // Most armings find nothing held back: the VM's interrupt controller is left alone.
    if state.arm(lines) {
        drive(cpu, machine, block, state.interrupt());
    }
}

/// Tells whether there is a PL061 with this index and line.
pub(crate) fn exists(machine: &Machine, index: usize, line: u32) -> bool {
    machine
        .boot
        .pl061
        .get(index)
        .is_some_and(|block| block.ipa != 0)
        && line < gear1_core::pl061::LINES
}

/// Sets the level of a PL061's interrupt in its VM. The block's lock is held, so
/// that two changes arrive in the order they were made.
fn drive(cpu: &Cpu, machine: &Machine, block: &BootPl061, level: bool) {
    let (Some(vm), Some(intid)) = (VmId::from_reg(u64::from(block.vm)), IntId::new(block.intid))
    else {
        return;
    };
    vgic::change_vm_gic(cpu, machine, vm, |gic| {
        gic.set_line(VcpuIndex::FIRST, intid, level)
    });
}

/// Returns the VM's PL061 block whose registers are at `ipa`, with its state. A block of another VM
/// may have the same IPA.
fn pl061_at(
    machine: &Machine,
    vm: VmId,
    ipa: u64,
) -> Option<(&BootPl061, &'static TicketLock<Pl061>)> {
    let mut blocks = machine.boot.pl061.iter().zip(&PL061);
    // Bound: `MAX_PL061`.
    blocks.find(|(block, _)| {
        block.ipa != 0 && u64::from(block.vm) == vm.reg() && ipa.wrapping_sub(block.ipa) < PAGE
    })
}

/// Handles an access at `ipa` if one of the VM's PL061 blocks is there.
fn pl061(mut guest: Guest<'_>, abort: DataAbort, ipa: u64) -> Option<Resume> {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let (block, lock) = pl061_at(machine, loaded.vm, ipa)?;
    let (offset, register) = (ipa.wrapping_sub(block.ipa), abort.register());
    loaded.shared.count(ExitReason::MmioPl061);
    exception::skip_instruction();
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(register));
        let mut state = lock.lock();
        state.write(offset, value as u32);
        drive(guest.cpu, machine, block, state.interrupt());
        drop(state);
        return Some(vcpu::woke_somebody(guest.reborrow(), ExitReason::MmioPl061));
    }
    let value = abort.extend(u64::from(lock.lock().read(offset)));
    guest.cpu.frame().set_reg(register, value);
    Some(Resume::with_register(register))
}

/// Puts the PL061 blocks of a VM into their reset state: the VM is loaded anew.
pub(crate) fn reset(machine: &Machine, vm: VmId) {
    // Bound: MAX_VMS (16).
    for (block, lock) in machine.boot.pl061.iter().zip(&PL061) {
        if block.ipa != 0 && u64::from(block.vm) == vm.reg() {
            *lock.lock() = Pl061::new();
        }
    }
}
