//! `gearctl device`: the devices that GDM serves, and changes of them at run time.

use crate::client::Client;
use crate::control::NodeLine;
use crate::json::Json;
use crate::order::Order;

#[cfg(test)]
mod tests;

/// Most bytes of a medium's path.
const MAX_PATH: usize = 200;

/// Request of a `device` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Show the devices of a VM, or of all.
    List(Option<String>),
    /// Give a device of a VM an order.
    Order {
        /// The VM.
        vm: String,
        /// Name of the device in the manifest, or its channel.
        device: String,
        /// The order.
        order: Order,
    },
}

/// Reads the words behind `device`.
pub(super) fn parse(words: &[&str]) -> Option<Ask> {
    match *words {
        ["list"] => Some(Ask::List(None)),
        ["list", vm] => Some(Ask::List(Some(vm.into()))),
        // A path is one word, whatever blanks it has.
        ["attach", _, _, _, _, ..] => None,
        [verb, vm, device, ref rest @ ..] => {
            let words: Vec<&str> = std::iter::once(verb).chain(rest.iter().copied()).collect();
            Some(Ask::Order {
                vm: vm.into(),
                device: device.into(),
                order: Order::parse(&words)?,
            })
        }
        _ => None,
    }
}

/// Does what is asked for.
pub(super) fn run(client: &mut Client, ask: &Ask) -> Result<Json, String> {
    match ask {
        Ask::List(vm) => list(client, vm.as_deref()),
        Ask::Order { vm, device, order } => give(client, vm, device, order.clone()),
    }
}

/// Returns the devices of a VM, or of all.
fn list(client: &mut Client, vm: Option<&str>) -> Result<Json, String> {
    let name = vm.map(|vm| client.find(vm)).transpose()?;
    let nodes = client.nodes()?.into_iter();
    let nodes = nodes.filter(|node| {
        let [vm, ..] = &node.texts;
        name.as_ref().is_none_or(|wanted| wanted.name == *vm)
    });
    Ok(Json::List(nodes.map(|node| row(&node)).collect()))
}

/// Returns a device's row. A size or a limit that a device does not have is null: a program that
/// reads JSON would take 0 for a number.
fn row(node: &NodeLine) -> Json {
    let [channel, _, bytes, iops, bytes_per_second] = node.numbers;
    let [vm, label, kind, backend] = &node.texts;
    let known = |number: u64| match number {
        0 => Json::Null,
        number => number.into(),
    };
    Json::Object(vec![
        ("vm", vm.as_str().into()),
        ("device", label.as_str().into()),
        ("type", kind.as_str().into()),
        ("channel", channel.into()),
        ("state", node.state().as_str().into()),
        ("bytes", known(bytes)),
        ("iops_limit", known(iops)),
        ("bytes_per_second_limit", known(bytes_per_second)),
        ("backend", backend.as_str().into()),
    ])
}

/// Gives an order, and returns what came of it. GDM knows devices by their channels: messages have
/// the user's names before its words.
fn give(client: &mut Client, vm: &str, device: &str, order: Order) -> Result<Json, String> {
    let order = with_whole_path(order)?;
    let vm = client.find(vm)?.name;
    let node = find(client, &vm, device)?;
    let [channel, ..] = node.numbers;
    let [_, label, ..] = &node.texts;
    let number = client
        .order(channel, &order)
        .map_err(|error| format!("device {label} of VM {vm}: {error}"))?;
    let (name, value) = match order {
        Order::Resize | Order::Attach(_) => ("bytes", number.into()),
        Order::Detach => ("bytes", Json::Null),
        Order::Link(_) => ("link", (if number == 0 { "down" } else { "up" }).into()),
    };
    Ok(Json::Object(vec![
        ("vm", vm.as_str().into()),
        ("device", label.as_str().into()),
        (name, value),
    ]))
}

/// Has an order name its file from the root on: GDM works in another directory. A line of the
/// control socket has room for so long a path.
fn with_whole_path(order: Order) -> Result<Order, String> {
    let Order::Attach(path) = order else {
        return Ok(order);
    };
    if path.is_empty() {
        return Ok(Order::Attach(path));
    }
    let whole = std::path::absolute(&path).map_err(|error| format!("{path}: {error}"))?;
    let whole = whole.into_os_string().into_string();
    let whole = whole.map_err(|_| format!("{path}: its directory has no name in UTF-8"))?;
    if whole.len() > MAX_PATH {
        return Err(format!("{whole}: the path has more than {MAX_PATH} bytes"));
    }
    if whole.trim() != whole || whole.chars().any(char::is_control) {
        return Err(format!(
            "{whole:?}: a path neither ends with a blank nor has control characters"
        ));
    }
    Ok(Order::Attach(whole))
}

/// Finds a device of a VM by its name or its channel. A name comes first: a device may be named
/// `1`.
fn find(client: &mut Client, vm: &str, device: &str) -> Result<NodeLine, String> {
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
        format!(
            "VM {vm} has no device `{device}`; it has: {}",
            labels.join(", ")
        )
    })
}
