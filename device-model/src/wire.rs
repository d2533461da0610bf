//! Messages of the control socket: lines of JSON, which docs/gearctl.md describes.
//!
//! Owns: the names and types of all fields. `docs/control.schema.json` is made of these types by a
//! test. A version adds requests and fields, and changes none.

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::order::Order;

/// Version of the messages.
pub const VERSION: u32 = 1;

/// The field of each message that is read before the others: another version may have others.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Head {
    /// [`VERSION`] of the sender.
    pub version: u32,
}

/// A line to GDM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Asked {
    /// 1. GDM refuses another number.
    pub version: u32,
    /// The order that is asked for.
    #[serde(flatten)]
    pub request: Request,
}

/// A request to GDM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// GDM's versions and figures.
    About,
    /// Figures of all devices.
    Figures,
    /// All devices: what each is, and who serves it.
    Devices,
    /// Has a device do something.
    Order {
        /// Channel of the device.
        channel: usize,
        /// The operation.
        order: Order,
    },
    /// Has Gear2 do an operation of its protocol, by number.
    Call {
        /// The operation.
        operation: u32,
        /// Arguments of the operation.
        arguments: [u64; 4],
    },
    /// Has Gear2 do an operation that answers with more words than six.
    Words {
        /// The operation.
        operation: u32,
        /// Arguments of the operation.
        arguments: [u64; 4],
    },
}

/// A line of GDM's: one for each line to GDM, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answered {
    /// 1.
    pub version: u32,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// An answer of GDM's, by the name of its request, or an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "answer", content = "value", rename_all = "kebab-case")]
pub enum Answer {
    /// Versions and figures.
    About(About),
    /// Figures of all devices.
    Figures(Vec<Figures>),
    /// All devices.
    Devices(Vec<Device>),
    /// The order is done. The number depends on the order: the size of a disk in bytes, 1 or 0 for
    /// a link that is up or down, 0.
    Order(u64),
    /// Gear2's answer.
    Call(Called),
    /// Gear2's answer, and its further words.
    Words(Words),
    /// The request is not done.
    Error(Refusal),
}

/// Versions and figures of GDM and of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct About {
    /// Version of Gear2's protocol that Gear2 speaks: major in the upper 16 bits, minor below.
    pub protocol: u64,
    /// vCPUs of all VMs.
    pub vcpus: u64,
    /// VMs.
    pub vms: u64,
    /// Starts of GDM.
    pub starts: u64,
    /// Heartbeats of GDM.
    pub beats: u64,
    /// Ticks of the counter a second.
    pub hz: u64,
}

/// Figures of a device, of which docs/device-model.md tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the names are those of the counters")]
pub struct Figures {
    pub vm: String,
    pub r#type: String,
    pub backend: String,
    pub channel: u64,
    pub status: u64,
    pub requests: u64,
    pub errors: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub wakeups: u64,
    pub interrupts: u64,
    pub breaks: u64,
    pub registers: u64,
    pub set_up: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Device {
    /// Name of the VM.
    pub vm: String,
    /// Name in the manifest.
    pub device: String,
    /// Type in the manifest.
    pub r#type: String,
    /// Number over all VMs.
    pub channel: u64,
    /// State of its server: 0 nobody yet, 1 its backend.
    pub serves: u64,
    /// Size of a disk, 0 without a medium.
    pub bytes: u64,
    /// Most requests a second, 0 for no limit.
    pub iops_limit: u64,
    /// Most bytes a second, 0 for no limit.
    pub bytes_per_second_limit: u64,
    /// File, device or socket behind it.
    pub backend: String,
}

/// Answer of Gear2 to an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Called {
    /// Outcome: a constant of [`gear2_protocol::outcome`].
    pub outcome: u32,
    /// Result words.
    pub results: [u64; 6],
}

/// Answer of Gear2 to an operation with more words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Words {
    /// Outcome and result words.
    pub called: Called,
    /// Further words.
    pub words: Vec<u64>,
}

/// Why a request is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Kind.
    pub kind: ErrorKind,
    /// Sentence for a person.
    pub message: String,
}

impl Answer {
    /// Returns an error.
    pub fn error(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Error(Refusal { kind, message })
    }

    /// Returns the name of the kind of answer, for a message about one of another kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::About(_) => "about",
            Self::Figures(_) => "figures",
            Self::Devices(_) => "devices",
            Self::Order(_) => "order",
            Self::Call(_) => "call",
            Self::Words(_) => "words",
            Self::Error(_) => "error",
        }
    }
}

#[cfg(test)]
mod tests;
