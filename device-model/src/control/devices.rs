//! Devices as `gearctl device` sees them: what each is and who serves it, and orders to them.

use std::collections::BTreeMap;
use std::fmt;

use gear2_protocol::Region;

use crate::board::{DeviceKind, DeviceNode};
use crate::order::{Answer, Order};
use crate::orders::Desk;
use crate::state::{DeviceState, Serves, Word};

/// A device, as a line of the `nodes` answer: the numbers in this order, then the texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLine {
    /// Channel, a number of [`Serves`], bytes of a disk, and the limits of requests and bytes a
    /// second, 0 for none.
    pub numbers: [u64; 5],
    /// VM, name in the manifest, type, backend. The backend alone may have blanks.
    pub texts: [String; 4],
}

impl NodeLine {
    /// Reads what the manifest says of a device and what its page shows.
    fn of(region: &'static Region, node: &DeviceNode) -> Option<Self> {
        let state = DeviceState::new(region.devices.get(node.channel)?);
        let [iops, bytes, _] = node.limits;
        let kind = node.kind.name().to_owned();
        // An init that gives no names is older than this GDM.
        let label = match node.label.is_empty() {
            true => format!("{kind}{}", node.channel),
            false => node.label.clone(),
        };
        Some(Self {
            numbers: [
                node.channel as u64,
                state.get(Word::Serves),
                state.get(Word::Capacity),
                iops.into(),
                bytes.into(),
            ],
            texts: [node.vm.clone(), label, kind, node.backend.clone()],
        })
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(9, ' ');
        let mut result = Self::default();
        for number in &mut result.numbers {
            *number = words.next()?.parse().ok()?;
        }
        for text in &mut result.texts {
            words.next()?.clone_into(text);
        }
        Some(result)
    }

    /// Says who serves the device. A number that this gearctl does not know is shown as it is: GDM
    /// may be newer.
    pub fn state(&self) -> String {
        let [_, serves, ..] = self.numbers;
        let [_, _, kind, backend] = &self.texts;
        match serves {
            serves
                if serves == Serves::Backend as u64
                    && kind == DeviceKind::Block.name()
                    && backend.is_empty() =>
            {
                "no medium".into()
            }
            serves if serves == Serves::Nothing as u64 => "awaits its backend".into(),
            serves if serves == Serves::Backend as u64 => "served".into(),
            other => format!("state {other}"),
        }
    }
}

impl fmt::Display for NodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.numbers {
            write!(f, "{number} ")?;
        }
        write!(f, "{}", self.texts.join(" "))
    }
}

/// Returns the answer to `nodes`. The number of lines comes first, for an answer has no other end.
pub(super) fn node_lines(region: &'static Region, nodes: &[DeviceNode]) -> String {
    let lines = nodes.iter().filter_map(|node| NodeLine::of(region, node));
    let lines: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
    format!("ok {}\n{}", lines.len(), lines.concat())
}

/// Returns the answer to `order`: has the device do what the words say.
pub(super) fn order<'w>(
    desks: &BTreeMap<usize, Desk>,
    mut words: impl Iterator<Item = &'w str>,
) -> String {
    let channel = words.next().and_then(|word| word.parse().ok());
    let desk = channel.and_then(|channel: usize| desks.get(&channel));
    let words: Vec<&str> = words.collect();
    let order = Order::parse(&words);
    let answer: Answer = match (desk, order) {
        (Some(desk), Some(order)) => desk.give(order),
        (None, _) => Err("there is no such device".into()),
        (_, None) => Err("no device takes such an order".into()),
    };
    match answer {
        Ok(number) => format!("ok {number}\n"),
        Err(sentence) => format!("error {sentence}\n"),
    }
}
