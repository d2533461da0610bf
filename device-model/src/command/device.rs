//! `gearctl device`: the devices that GDM serves, and changes of them at run time.

use clap::{Args, Subcommand, ValueHint};

use super::answer::{Answer, Change, Device, DeviceChanged, Link};
use crate::board::DeviceKind;
use crate::client::Client;
use crate::error::Error;
use crate::order::Order;
use crate::state::Serves;
use crate::wire;

#[cfg(test)]
mod tests;

/// Most bytes of a medium's path.
const MAX_PATH: usize = 200;

/// Request of a `device` command.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Ask {
    /// The devices: who serves them, sizes, limits
    List {
        /// Name or number of the VM; all without
        vm: Option<String>,
    },
    /// Have a disk look at its size
    Resize(Name),
    /// Take a disk's medium out: no sectors, requests fail
    Detach(Name),
    /// Put a medium into a disk
    Attach {
        /// The disk.
        #[command(flatten)]
        name: Name,
        /// File or block device; the manifest's without
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<String>,
    },
    /// Have a card's link be as its tap device's (up), or down
    Link {
        /// The card.
        #[command(flatten)]
        name: Name,
        /// The new state
        state: Link,
    },
}

/// A device.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Name or number of the VM
    pub vm: String,
    /// Name of the device in the manifest, or its channel
    pub device: String,
}

/// Does what is asked for.
pub(super) fn run(client: &mut Client, ask: &Ask) -> Result<Answer, Error> {
    let (name, order) = match ask {
        Ask::List { vm } => return list(client, vm.as_deref()).map(Answer::Devices),
        Ask::Resize(name) => (name, Order::Resize),
        Ask::Detach(name) => (name, Order::Detach),
        Ask::Attach { name, file } => (name, Order::Attach(file.clone().unwrap_or_default())),
        Ask::Link { name, state } => (name, Order::Link(*state == Link::Up)),
    };
    give(client, name, order).map(Answer::DeviceChanged)
}

/// Returns the devices of a VM, or of all.
pub(super) fn list(client: &mut Client, vm: Option<&str>) -> Result<Vec<Device>, Error> {
    let name = vm.map(|vm| client.find(vm)).transpose()?;
    let devices = client.devices()?.into_iter();
    let devices =
        devices.filter(|device| name.as_ref().is_none_or(|wanted| wanted.name == device.vm));
    Ok(devices.map(row).collect())
}

/// Returns a device's row. A size or a limit that a device does not have is null: a program that
/// reads JSON would take 0 for a number.
fn row(device: wire::Device) -> Device {
    let known = |number: u64| (number > 0).then_some(number);
    Device {
        state: state(&device),
        vm: device.vm,
        device: device.device,
        r#type: device.r#type,
        channel: device.channel,
        bytes: known(device.bytes),
        iops_limit: known(device.iops_limit),
        bytes_per_second_limit: known(device.bytes_per_second_limit),
        backend: device.backend,
    }
}

/// Says who serves a device. A number that this gearctl does not know is shown as it is: GDM may be
/// newer.
fn state(device: &wire::Device) -> String {
    let is_disk = device.r#type == DeviceKind::Block.name();
    match device.serves {
        serves if serves == Serves::Backend as u64 && is_disk && device.backend.is_empty() => {
            "no medium".into()
        }
        serves if serves == Serves::Nothing as u64 => "awaits its backend".into(),
        serves if serves == Serves::Backend as u64 => "served".into(),
        other => format!("state {other}"),
    }
}

/// Gives an order, and returns what came of it. GDM knows devices by their channels: messages have
/// the user's names before its words.
fn give(client: &mut Client, name: &Name, order: Order) -> Result<DeviceChanged, Error> {
    let order = with_whole_path(order)?;
    let vm = client.find(&name.vm)?.name;
    let found = find(client, &vm, &name.device)?;
    let label = found.device;
    let named = |error: Error| error.within(|why| format!("device {label} of VM {vm}: {why}"));
    let number = client.order(found.channel, order.clone()).map_err(named)?;
    let change = match order {
        Order::Resize | Order::Attach(_) => Change::Bytes(Some(number)),
        Order::Detach => Change::Bytes(None),
        Order::Link(_) if number == 0 => Change::Link(Link::Down),
        Order::Link(_) | Order::Power => Change::Link(Link::Up),
    };
    Ok(DeviceChanged {
        vm,
        device: label,
        change,
    })
}

/// Has an order name its file from the root on: GDM works in another directory. A line of the
/// control socket has room for so long a path.
fn with_whole_path(order: Order) -> Result<Order, Error> {
    let Order::Attach(path) = order else {
        return Ok(order);
    };
    if path.is_empty() {
        return Ok(Order::Attach(path));
    }
    let whole = std::path::absolute(&path);
    let whole = whole.map_err(|error| Error::failed(format!("{path}: {error}")))?;
    let whole = whole
        .into_os_string()
        .into_string()
        .map_err(|_| Error::refused(format!("{path}: its directory has no name in UTF-8")))?;
    if whole.len() > MAX_PATH {
        let sentence = format!("{whole}: the path has more than {MAX_PATH} bytes");
        return Err(Error::refused(sentence));
    }
    if whole.trim() != whole || whole.chars().any(char::is_control) {
        return Err(Error::refused(format!(
            "{whole:?}: a path neither ends with a blank nor has control characters"
        )));
    }
    Ok(Order::Attach(whole))
}

/// Finds a device of a VM by its name or its channel. A name comes first: a device may be named
/// `1`.
fn find(client: &mut Client, vm: &str, device: &str) -> Result<wire::Device, Error> {
    let mut devices = client.devices()?;
    devices.retain(|one| one.vm == vm);
    let number: Option<u64> = device.parse().ok();
    let found = devices.iter().find(|one| one.device == device);
    let found = found.or_else(|| devices.iter().find(|one| Some(one.channel) == number));
    found.cloned().ok_or_else(|| {
        let labels: Vec<&str> = devices.iter().map(|one| one.device.as_str()).collect();
        let labels = labels.join(", ");
        Error::not_found(format!(
            "VM {vm} has no device `{device}`; it has: {labels}"
        ))
    })
}
