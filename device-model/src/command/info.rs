//! `gearctl info` and `gearctl vcpu`: all that is known of a VM, and of its vCPUs.

use gear1_abi::exit::ExitReason;

use super::answer::{ConsoleKind, Vcpu, VmInfo};
use super::{device, last_words, sched, vcpu_state, vm_row};
use crate::client::{Client, Vm};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Returns all that is known of a VM.
pub(super) fn of(client: &mut Client, name: &str) -> Result<VmInfo, Error> {
    let vm = client.find(name)?;
    let scheduling = match vm.real_time {
        true => None,
        false => Some(sched::parameters(client, &vm)?),
    };
    let devices = device::list(client, Some(name))?;
    let has_virtio = devices.iter().any(|device| device.r#type == "console");
    let consoles = [
        (vm.console, ConsoleKind::Serial),
        (has_virtio, ConsoleKind::Virtio),
        (true, ConsoleKind::Messages),
    ];
    let consoles = consoles.into_iter().filter(|(is_there, _)| *is_there);
    let [.., watchdog, progress, _] = vm.health.unwrap_or_default();
    let limit = |ticks: u64| (ticks != 0).then_some(ticks);
    Ok(VmInfo {
        watchdog_ticks: limit(watchdog),
        progress_ticks: limit(progress),
        last_end: last_words::last_end(client, &vm)?,
        vcpus: vcpus_of(client, &vm)?,
        vm: vm_row(&vm),
        consoles: consoles.map(|(_, kind)| kind).collect(),
        scheduling,
        devices,
    })
}

/// Returns the vCPUs of a VM, or of all.
pub(super) fn vcpus(client: &mut Client, name: Option<&str>) -> Result<Vec<Vcpu>, Error> {
    let vms = match name {
        Some(name) => vec![client.find(name)?],
        None => client.vms()?,
    };
    let mut rows = Vec::new();
    for vm in &vms {
        rows.extend(vcpus_of(client, vm)?);
    }
    Ok(rows)
}

fn vcpus_of(client: &mut Client, vm: &Vm) -> Result<Vec<Vcpu>, Error> {
    let numbers = (0..).zip(vm.numbers());
    numbers
        .map(|(index, number)| vcpu(client, vm, index, number))
        .collect()
}

fn vcpu(client: &mut Client, vm: &Vm, index: u64, number: u64) -> Result<Vcpu, Error> {
    let [ran, cpu, state, waited, stolen, preemptions] = client.vcpu(number)?;
    let mut exits = 0;
    for reason in ExitReason::ALL {
        exits += client.exits(number, *reason as u64)?[0];
    }
    // Gear2 knows no place of a vCPU that it does not schedule, and nobody counts its time.
    let place = match vm.real_time {
        true => None,
        false => Some(sched::place(vm, index, client, number)?),
    };
    let counted = |figure: u64| (!vm.real_time).then_some(figure);
    let may_have_idled = client.may_have_idled(number)?.filter(|_| !vm.real_time);
    Ok(Vcpu {
        vm: vm.name.clone(),
        index,
        vcpu: number,
        state: vcpu_state(state),
        cpu,
        pinned: place.as_ref().map(|place| place.pinned),
        allowed: place.map(|place| place.allowed),
        ran_ticks: counted(ran),
        may_have_idled,
        waited_ticks: counted(waited),
        stolen_ticks: counted(stolen),
        preemptions: counted(preemptions),
        exits,
    })
}
