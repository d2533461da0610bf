//! Why the machine does not start: one message, printed before any guest runs.
//!
//! A message names where the error is, in the words of its input: node and property of a device
//! tree, property of the manifest, or file of the archive. A broken rule of the manifest is kept
//! beside its message, so that `cargo xtask check` can show the place in the source.
//!
//! Requirements: G1-BOOT-008.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

use gearv_manifest::{Found, ManifestError, NodePath, Rule};

/// Origin of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The board's device tree, or the firmware that passed it.
    Board,
    /// The manifest.
    Manifest,
    /// The boot archive, or a file in it.
    Archive,
    /// The machine lacks something that it takes.
    Machine,
}

impl Culprit {
    /// Returns the beginning of a message.
    const fn text(self) -> &'static str {
        match self {
            Self::Board => "device tree: ",
            Self::Manifest => "manifest: ",
            // An archive error names the file by itself.
            Self::Archive => "",
            Self::Machine => "machine: ",
        }
    }
}

/// An error of the boot's inputs, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Input that is at fault.
    pub culprit: Culprit,
    /// Message, with the node and property or the file where the error is.
    pub message: String,
    /// Broken rule of the manifest, if there is one, and its place.
    pub fault: Option<Box<Fault>>,
}

/// A broken rule of the manifest, for front ends that show it in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule.
    pub rule: Rule,
    /// Node that the VM's, or the channel's, is below.
    pub parent: &'static str,
    /// The VM or the channel; empty: the node is the parent itself, which is the root's.
    pub vm: String,
    /// The property.
    pub property: &'static str,
    /// Detail of the property, or the reason.
    pub found: String,
    /// Other VM in the conflict.
    pub other: Option<String>,
    /// Nearest valid name or value.
    pub nearest: Option<String>,
}

impl Fault {
    /// Makes a fault of a VM's property.
    #[must_use]
    pub fn new(rule: Rule, vm: &str, property: &'static str, found: impl ToString) -> Self {
        Self {
            rule,
            parent: "vms",
            vm: vm.to_string(),
            property,
            found: found.to_string(),
            other: None,
            nearest: None,
        }
    }

    /// Makes a fault of a property of a node that the root has.
    #[must_use]
    pub fn of_node(
        rule: Rule,
        node: &'static str,
        property: &'static str,
        found: impl ToString,
    ) -> Self {
        Self {
            parent: node,
            ..Self::new(rule, "", property, found)
        }
    }

    /// Returns the fault as an error of the manifest's reader.
    #[must_use]
    pub fn error(&self) -> ManifestError<'_> {
        let parent = NodePath::ROOT.child(self.parent);
        let node = match self.vm.as_str() {
            "" => parent,
            name => parent.child(name),
        };
        let place = ManifestError::at_property(self.rule, node, self.property);
        let by_text = [
            Rule::NoSuchDevice,
            Rule::NoSuchMaster,
            Rule::NoSuchAsBooted,
            Rule::NotFeedable,
        ];
        let found = if by_text.contains(&self.rule) {
            Found::Text(&self.found)
        } else {
            Found::Reason(&self.found)
        };
        ManifestError {
            other: self.other.as_deref().map(NodePath::vm),
            nearest: self.nearest.as_deref(),
            ..place.found(found)
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self {
            culprit: Culprit::Manifest,
            message: fault.error().to_string(),
            fault: Some(Box::new(fault)),
        }
    }
}

/// Returns the first of the faults, if there is one.
pub(crate) fn none_of(faults: &[Fault]) -> Result<(), Refusal> {
    match faults {
        [] => Ok(()),
        [fault] => Err(fault.clone().into()),
        [fault, ..] => {
            let refusal = Refusal::from(fault.clone());
            let (message, count) = (&refusal.message, faults.len());
            Err(Refusal {
                message: alloc::format!("{message} (the first of {count} errors)"),
                ..refusal
            })
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.culprit.text(), self.message)
    }
}

impl core::error::Error for Refusal {}

/// Makes a [`Refusal`] from a [`Culprit`]'s name and a formatted message.
macro_rules! refusal {
    ($culprit:ident, $($message:tt)+) => {
        $crate::refusal::Refusal {
            culprit: $crate::refusal::Culprit::$culprit,
            message: alloc::format!($($message)+),
            fault: None,
        }
    };
}

pub(crate) use refusal;
