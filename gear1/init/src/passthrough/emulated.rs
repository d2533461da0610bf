//! Conflicts of a VM's own devices with those that the gears and the device model emulate for it.
//!
//! Registers of the board's devices have their physical addresses in the VM, and their interrupts
//! their physical INTIDs. The manifest chooses those of the emulated devices, or leaves them where
//! QEMU's `virt` has a device of that kind. The emulated console's page is compared where the
//! board's UARTs are (`devices/conflicts.rs`).
//!
//! Requirements: G1-BOOT-005.

use alloc::string::String;
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gearv_manifest::{Rule, VirtioDevice, Vm};

use crate::devices::Owned;
use crate::refusal::Fault;
use crate::region::Region;

/// Refuses devices of the board in the place of an emulated one, and with the interrupt of one: the
/// VM's interrupt controller has each INTID once. Returns the virtio devices, which are the VM's.
pub(super) fn checked<'a>(
    vm: &Vm<'_>,
    virtio: Vec<VirtioDevice<'a>>,
    owned: &Owned<'_>,
    faults: &mut Vec<Fault>,
) -> Vec<VirtioDevice<'a>> {
    let places = regions(vm, &virtio).into_iter();
    let places = places.filter_map(|(region, what)| in_place(owned, &region, what));
    let intids = intids(vm, &virtio).into_iter();
    let intids = intids.filter_map(|(intid, what)| with_interrupt(owned, intid, what));
    let refuse = |why| Fault::new(Rule::DeviceStays, vm.name, "devices", why);
    faults.extend(places.chain(intids).map(refuse));
    virtio
}

/// Says which device of the board lies in the place of an emulated one.
fn in_place(owned: &Owned<'_>, region: &Region, what: &str) -> Option<String> {
    let page = owned.pages.iter().find(|page| page.overlaps(region))?;
    let at = page.start.max(region.start);
    let why = alloc::format!("the device at {at:#x} lies where this VM has its emulated {what}");
    Some(why)
}

/// Says that a device of the board has the interrupt of an emulated one.
fn with_interrupt(owned: &Owned<'_>, intid: u32, what: &str) -> Option<String> {
    let why = || alloc::format!("interrupt {intid} is also that of this VM's emulated {what}");
    // planted: a guest's device has the interrupt of an emulated one
    owned.may_have_interrupt(intid).then(why)
}

/// Returns where the VM sees registers of emulated devices.
fn regions(vm: &Vm<'_>, virtio: &[VirtioDevice<'_>]) -> Vec<(Region, &'static str)> {
    let page = |start| Region::new(start, start + PAGE_SIZE);
    let clock = vm.rtc.map(|rtc| (page(rtc.ipa), "real-time clock"));
    let watchdog = vm.watchdog_region().map(|region| (region, "watchdog"));
    let served = (!virtio.is_empty()).then(|| (page(vm.virtio_ipa), "virtio devices"));
    clock.into_iter().chain(watchdog).chain(served).collect()
}

/// Returns the interrupts of emulated devices.
fn intids(vm: &Vm<'_>, virtio: &[VirtioDevice<'_>]) -> Vec<(u32, &'static str)> {
    let console = vm.console.map(|console| (console.intid, "console"));
    let watchdog = vm.watchdog().map(|watchdog| (watchdog.intid, "watchdog"));
    let served = virtio
        .iter()
        .map(|device| (device.intid(), "virtio device"));
    console.into_iter().chain(watchdog).chain(served).collect()
}
