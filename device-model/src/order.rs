//! Orders that a person gives a device by `gearctl device`, and their answers: plain numbers and
//! text, as they are typed, cross processes and are logged.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that a device is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Look at the size of the disk, and tell the guest of another one. The answer is the size in
    /// bytes.
    Resize,
    /// Have the link of a network card be as its tap device's, or down. The answer is 1 for a link
    /// that is up then.
    Link(bool),
    /// Take the medium out of a disk. The answer is 0.
    Detach,
    /// Put the file or the block device at this path into a disk, in the place of what is there;
    /// empty: the manifest's. The answer is the size in bytes. The path ends in GDM.
    Attach(String),
    /// Press and release the power button of an input device: the guest's system does what it is
    /// set up to do, which is mostly to shut down. The answer is 1.
    Power,
}

impl Order {
    /// Reads the words of an order.
    pub fn parse(words: &[&str]) -> Option<Self> {
        match words {
            ["detach"] => Some(Self::Detach),
            // A path may have blanks.
            ["attach", path @ ..] => Some(Self::Attach(path.join(" "))),
            ["power"] => Some(Self::Power),
            ["resize"] => Some(Self::Resize),
            ["link", "up"] => Some(Self::Link(true)),
            ["link", "down"] => Some(Self::Link(false)),
            _ => None,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detach => "detach",
            Self::Attach(path) if path.is_empty() => "attach",
            Self::Attach(path) => return write!(f, "attach {path}"),
            Self::Power => "power",
            Self::Resize => "resize",
            Self::Link(true) => "link up",
            Self::Link(false) => "link down",
        })
    }
}

/// Result of an order: a number that the order's description explains, or a sentence.
pub type Answer = Result<u64, String>;
