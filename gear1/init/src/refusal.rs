//! Why the machine does not start: one message, printed before any guest runs.

use alloc::string::String;
use core::fmt;

/// Whose fault a refusal is.
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
    const fn text(self) -> &'static str {
        match self {
            Self::Board => "device tree: ",
            Self::Manifest => "manifest: ",
            // Its messages name the file.
            Self::Archive => "",
            Self::Machine => "machine: ",
        }
    }
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whose fault it is.
    pub culprit: Culprit,
    /// What is wrong, with the node and property or the file where it is.
    pub message: String,
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
        }
    };
}

pub(crate) use refusal;
