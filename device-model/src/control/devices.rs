//! Devices as `gearctl` sees them: what each is and who serves it, its figures, and orders to it.

use std::collections::BTreeMap;

use gear2_protocol::Region;

use crate::board::DeviceNode;
use crate::error::ErrorKind;
use crate::order::Order;
use crate::orders::Desk;
use crate::state::{DeviceState, Word};
use crate::wire::{Answer, Device, Figures};

/// Reads a device's page. The thread of the device goes on meanwhile, so the figures are each of
/// their own moment.
fn figures_of(region: &'static Region, node: &DeviceNode) -> Option<Figures> {
    let state = DeviceState::new(region.devices.get(node.channel)?);
    Some(Figures {
        vm: node.vm.clone(),
        r#type: node.kind.name().to_owned(),
        backend: node.backend.clone(),
        channel: node.channel as u64,
        status: state.get(Word::Status),
        requests: state.get(Word::Requests),
        errors: state.get(Word::Errors),
        bytes_out: state.get(Word::BytesOut),
        bytes_in: state.get(Word::BytesIn),
        wakeups: state.get(Word::Wakeups),
        interrupts: state.get(Word::Interrupts),
        breaks: state.get(Word::Breaks),
        registers: state.get(Word::Registers),
        set_up: state.get(Word::SetUpWrites),
    })
}

/// Reads what the manifest says of a device and what its page shows.
fn device_of(region: &'static Region, node: &DeviceNode) -> Option<Device> {
    let state = DeviceState::new(region.devices.get(node.channel)?);
    let [iops, bytes, _] = node.limits;
    Some(Device {
        vm: node.vm.clone(),
        device: label_of(node),
        r#type: node.kind.name().to_owned(),
        channel: node.channel as u64,
        serves: state.get(Word::Serves),
        bytes: state.get(Word::Capacity),
        iops_limit: iops.into(),
        bytes_per_second_limit: bytes.into(),
        backend: node.backend.clone(),
    })
}

/// Returns the name of a device. An init that gives no names is older than this GDM.
fn label_of(node: &DeviceNode) -> String {
    match node.label.is_empty() {
        true => format!("{}{}", node.kind.name(), node.channel),
        false => node.label.clone(),
    }
}

/// Returns the figures of all devices.
pub(super) fn figures(region: &'static Region, nodes: &[DeviceNode]) -> Answer {
    let nodes = nodes.iter();
    Answer::Figures(nodes.filter_map(|node| figures_of(region, node)).collect())
}

/// Returns all devices.
pub(super) fn all(region: &'static Region, nodes: &[DeviceNode]) -> Answer {
    let nodes = nodes.iter();
    Answer::Devices(nodes.filter_map(|node| device_of(region, node)).collect())
}

/// Has a device do something.
pub(super) fn order(desks: &BTreeMap<usize, Desk>, channel: usize, order: Order) -> Answer {
    let Some(desk) = desks.get(&channel) else {
        return Answer::error(ErrorKind::NotFound, "there is no such device");
    };
    match desk.give(order) {
        Ok(number) => Answer::Order(number),
        Err(sentence) => Answer::error(ErrorKind::Refused, sentence),
    }
}
