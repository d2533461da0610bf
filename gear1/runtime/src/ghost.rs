//! The checking image (feature `check-ghost`): the executable specification of page ownership
//! stands beside Gear1 and looks at all stage-2 tables before and after each call that concerns
//! them. Where the two differ, the machine halts and both opinions are printed.
//!
//! The lock is taken while that over shared memory is held, and by nobody else.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-016, G1-MEM-017.

use core::panic::PanicInfo;

use gear1_abi::boot::{BootInfo, BootVm, RealTime};
use gear1_abi::id::{MAX_VMS, VmId};
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;
use gear1_arch::pool::Pool;
use gear1_arch::sync::TicketLock;
use gear1_core::addr::Pa;
use gear1_core::ffa::{End, Outcome, function};
use gear1_ghost::walk::Tree;
use gear1_ghost::{Ghost, Wrong};

use crate::halt::{self, HaltReason};
use crate::machine::{self, Loaded, Machine};

/// The words of a page.
const WORDS: usize = PAGE_SIZE as usize / 8;
/// Number of checks between two full checks of all mappings.
const SELDOM: u64 = 16;

struct Checker {
    ghost: Ghost,
    /// The caller's TX buffer: as it was, and where Gear1 read it, what Gear1 read.
    said: [u64; WORDS],
    /// Number of checks so far.
    looks: u64,
}

static CHECKER: TicketLock<Checker> = TicketLock::new(Checker {
    ghost: Ghost::new(),
    said: [0; WORDS],
    looks: 0,
});

/// Tells the ghost who has which memory. Called once, by the boot CPU.
pub(crate) fn init(boot: &BootInfo) {
    let mut checker = CHECKER.lock();
    let tree = |root| Tree {
        vtcr: boot.vtcr_el2,
        root,
    };
    // The device VM sees the memory of those that it serves.
    let device_vms = boot.pl061.iter().filter(|block| block.ipa != 0);
    let device_vms = device_vms.fold(0, |vms, block| vms | 1 << block.vm);
    for (index, vm) in boot.vms.iter().take(boot.vm_count as usize).enumerate() {
        add(&mut checker.ghost, index, vm, tree(vm.root), device_vms).unwrap_or_else(halt_with);
    }
    checker.ghost.add_stranger(tree(boot.gear2.root));
}

fn add(
    ghost: &mut Ghost,
    index: usize,
    vm: &BootVm,
    tree: Tree,
    device_vms: u16,
) -> Result<(), Wrong> {
    for region in vm.regions.iter().filter(|region| region.size != 0) {
        if vm.peers != 0 {
            ghost.add(index, tree, region.ipa, region.pa, region.size)?;
        } else {
            let place = (region.ipa, region.pa, region.size);
            let shown = device_vms & !(1 << index);
            let withdrawn = vm.real_time == RealTime::PassThrough;
            ghost.add_kept(index, tree, place, shown, withdrawn)?;
        }
    }
    Ok(())
}

/// Looks at all tables. The lock over shared memory is held.
pub(crate) fn look(machine: &Machine) {
    CHECKER.lock().look(machine, false);
}

impl Checker {
    /// Looks at what the tables say of all memory; and seldom, or if `all`, at all that they map.
    fn look(&mut self, machine: &Machine, all: bool) {
        let pool = Pool::new(machine.handover);
        let mut read = |_, at: u64| pool.read(Pa::new(at), (at % PAGE_SIZE / 8) as usize);
        self.ghost.check(&mut read).unwrap_or_else(halt_with);
        self.looks = self.looks.wrapping_add(1);
        if all || self.looks.is_multiple_of(SELDOM) {
            let looked = self.ghost.check_aliases(&mut read);
            looked.unwrap_or_else(halt_with);
        }
    }
}

/// A VM is going to make a call; `read` reads its TX buffer. The lock over shared memory is held.
pub(crate) fn before(machine: &Machine, read: impl FnOnce(&mut [u64])) {
    let mut checker = CHECKER.lock();
    checker.look(machine, false);
    checker.said = [0; WORDS];
    read(&mut checker.said);
}

/// Gear1 has read words of the caller's TX buffer, which the guest may have changed since.
pub(crate) fn was_read(offset: u64, words: &[u64]) {
    let mut checker = CHECKER.lock();
    let said = checker.said.iter_mut().skip(offset as usize / 8);
    said.zip(words).for_each(|(said, word)| *said = *word);
}

/// A vCPU has made a call; `running`: who runs, bit per VM.
pub(crate) fn after(
    machine: &Machine,
    loaded: &Loaded,
    regs: &Regs,
    outcome: &Outcome,
    running: u16,
) {
    let vm = loaded.vm;
    let first = usize::from(machine::boot_vm(machine, vm).first_vcpu);
    let vcpu = loaded.id.index() - first;
    let mut checker = CHECKER.lock();
    let Checker { ghost, said, .. } = &mut *checker;
    let answer = match outcome {
        Outcome::Return(answer) => Some(answer),
        Outcome::Again => None,
    };
    let followed = ghost.call(vm.index(), vcpu, regs, said, answer, running);
    followed.unwrap_or_else(halt_with);
    let is_refused = answer.is_some_and(|x| x[0] == u64::from(function::ERROR));
    checker.look(machine, !is_refused);
}

/// A step of a VM's end follows. The lock over shared memory is held.
pub(crate) fn before_end(machine: &Machine) {
    look(machine);
}

/// A step of a VM's end was made, unless the VM runs.
pub(crate) fn after_end(machine: &Machine, vm: VmId, end: End) {
    let mut checker = CHECKER.lock();
    match end {
        End::Runs => {}
        End::More => checker.ghost.begin_end(vm.index()),
        End::Done => checker.ghost.end(vm.index()).unwrap_or_else(halt_with),
    }
    checker.look(machine, end != End::Runs);
}

/// All VMs that there can be.
pub(crate) fn each_vm() -> impl Iterator<Item = VmId> {
    (0..MAX_VMS).filter_map(VmId::new)
}

/// Halts, and prints the difference between the ghost and the tables.
fn halt_with(wrong: Wrong) {
    let out = halt::console();
    halt::header(out, HaltReason::Ghost);
    let (text, numbers) = wrong.words();
    out.text("gear1: ghost: ");
    out.text(text);
    for (name, value) in numbers {
        if !name.is_empty() {
            halt::line(out, name, value);
        }
    }
    out.text("\n");
    halt::finish(out)
}

/// The ghost itself failed, or Gear1 has done what the ghost cannot follow.
pub(crate) fn panicked(info: &PanicInfo<'_>) -> ! {
    let out = halt::console();
    halt::header(out, HaltReason::Ghost);
    out.text("gear1: ghost: ");
    if let Some(place) = info.location() {
        out.text(place.file());
        halt::line(out, "line", place.line().into());
    }
    out.text("\n");
    halt::finish(out)
}
