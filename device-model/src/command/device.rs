//! `gearctl device`: the devices that GDM serves, and changes of them at run time.

use clap::{Args, Subcommand, ValueHint};

use super::answer::{Answer, Change, Device, DeviceChanged, Link};
use crate::client::Client;
use crate::control::NodeLine;
use crate::error::Error;
use crate::order::Order;

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
    let nodes = client.nodes()?.into_iter();
    let nodes = nodes.filter(|node| {
        let [vm, ..] = &node.texts;
        name.as_ref().is_none_or(|wanted| wanted.name == *vm)
    });
    Ok(nodes.map(|node| row(&node)).collect())
}

/// Returns a device's row. A size or a limit that a device does not have is null: a program that
/// reads JSON would take 0 for a number.
fn row(node: &NodeLine) -> Device {
    let [channel, _, bytes, iops, bytes_per_second] = node.numbers;
    let [vm, label, kind, backend] = node.texts.clone();
    let known = |number: u64| (number > 0).then_some(number);
    Device {
        vm,
        device: label,
        r#type: kind,
        channel,
        state: node.state(),
        bytes: known(bytes),
        iops_limit: known(iops),
        bytes_per_second_limit: known(bytes_per_second),
        backend,
    }
}

/// Gives an order, and returns what came of it. GDM knows devices by their channels: messages have
/// the user's names before its words.
fn give(client: &mut Client, name: &Name, order: Order) -> Result<DeviceChanged, Error> {
    let order = with_whole_path(order)?;
    let vm = client.find(&name.vm)?.name;
    let node = find(client, &vm, &name.device)?;
    let [channel, ..] = node.numbers;
    let [_, label, ..] = node.texts;
    let named = |error: Error| error.within(|why| format!("device {label} of VM {vm}: {why}"));
    let number = client.order(channel, &order).map_err(named)?;
    let change = match order {
        Order::Resize | Order::Attach(_) => Change::Bytes(Some(number)),
        Order::Detach => Change::Bytes(None),
        Order::Link(_) if number == 0 => Change::Link(Link::Down),
        Order::Link(_) => Change::Link(Link::Up),
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
fn find(client: &mut Client, vm: &str, device: &str) -> Result<NodeLine, Error> {
    let mut nodes = client.nodes()?;
    nodes.retain(|node| node.texts.first().is_some_and(|name| name == vm));
    let label = |node: &NodeLine| {
        let [_, label, ..] = &node.texts;
        label.clone()
    };
    let number = device.parse().ok();
    let found = nodes.iter().find(|node| label(node) == device);
    let found = found.or_else(|| {
        nodes
            .iter()
            .find(|node| node.numbers.first() == number.as_ref())
    });
    found.cloned().ok_or_else(|| {
        let labels: Vec<String> = nodes.iter().map(label).collect();
        let labels = labels.join(", ");
        Error::not_found(format!(
            "VM {vm} has no device `{device}`; it has: {labels}"
        ))
    })
}
