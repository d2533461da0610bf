//! Accesses of a VM to configuration space of a PCI bus of which the VM owns functions.
//!
//! Each VM sees its own functions at the board's addresses, and no other function on the bus. No
//! page of configuration space is in a VM's stage 2, so each access exits: drivers set a device up
//! there and never look again. The VM's lock makes one write of what several stores do.
//!
//! Requirements: G1-DMA-007.

use gear1_abi::boot::BootFunction;
use gear1_abi::exit::ExitReason;
use gear1_arch::entry::Resume;
use gear1_arch::exception;
use gear1_arch::window::FunctionSpace;
use gear1_core::pci::{self, Access, Asked, BUS_SIZE, FUNCTION_SIZE, SizedBars};
use gear1_core::syndrome::DataAbort;

use crate::machine::{Guest, Loaded};

/// Tells whether an address (IPA) is in the bus's configuration space that the VM sees.
#[inline(always)]
pub(crate) fn is_at(loaded: &Loaded, ipa: u64) -> bool {
    let space = loaded.boot.pci_space;
    space != 0 && ipa.wrapping_sub(space) < BUS_SIZE
}

/// Carries out an access to configuration space. A function that is not the VM's reads as one that
/// is not there.
#[inline(never)]
pub(crate) fn access(guest: Guest<'_>, abort: DataAbort, ipa: u64) -> Resume {
    let loaded = guest.loaded;
    let register = abort.register();
    loaded.shared.count(ExitReason::PciConfig);
    exception::skip_instruction();
    let mut vm = loaded.inner.lock();
    let found = function_at(loaded, &mut vm.asked, ipa).and_then(|(function, sized)| {
        let place = Access::new(ipa % FUNCTION_SIZE, abort.size_log2())?;
        // SAFETY: `function` is of the hand-over, and handlers of aborts have no page mapped.
        let space = unsafe { FunctionSpace::map(guest.cpu.local(), function) };
        Some((function, sized, place, space))
    });
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(register)) as u32;
        if let Some((function, sized, place, mut space)) = found {
            pci::write(function, sized, place, value, &mut space);
        }
        return Resume::Same;
    }
    let value = found.map_or(u64::MAX, |(function, sized, place, space)| {
        pci::read(function, *sized, place, &space).into()
    });
    drop(vm);
    guest.cpu.frame().set_reg(register, abort.extend(value));
    Resume::with_register(register)
}

/// Returns the VM's function whose configuration space has an address, with what the VM has asked
/// of its BARs.
fn function_at<'s>(
    loaded: &Loaded,
    asked: &'s mut Asked,
    ipa: u64,
) -> Option<(&'static BootFunction, &'s mut SizedBars)> {
    let space = ipa & !FUNCTION_SIZE.wrapping_sub(1);
    let mut functions = loaded.machine.boot.functions.iter().zip(asked);
    // Bound: MAX_PCI_FUNCTIONS (16).
    // planted: a VM has the configuration space of other VMs' functions
    functions.find(|(one, _)| one.space == space && u64::from(one.vm) == loaded.vm.reg())
}
