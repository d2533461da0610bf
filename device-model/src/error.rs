//! Errors of `gearctl`: a sentence for a person, and a kind for a program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of an error. The number is the exit status of `gearctl`.
///
/// 141 is the status of a program whose reader has left ([`crate::output`]), and no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ErrorKind {
    /// A file, a terminal or a program of the device VM fails.
    Failed = 1,
    /// The command line is none of `gearctl`'s.
    Usage = 2,
    /// There is no such VM, vCPU, CPU, pool, device or console.
    NotFound = 3,
    /// Gear2, GDM or a device refuses: a state, a rule or a limit does not allow the change.
    Refused = 4,
    /// Nothing answers: GDM does not run, or Gear2 is silent.
    Unreachable = 5,
    /// The time is over before the wait has ended. What was begun goes on.
    TimedOut = 6,
    /// The programs are of versions that do not understand each other.
    Version = 7,
}

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Unreachable,
        Self::TimedOut,
        Self::Version,
    ];

    /// Returns the exit status.
    pub const fn status(self) -> u8 {
        self as u8
    }

    /// Says what the kind means, for the help and the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Failed => "a file, a terminal or a program fails",
            Self::Usage => "the command line is wrong",
            Self::NotFound => "no such VM, vCPU, CPU, pool, device or console",
            Self::Refused => "a state, a rule or a limit does not allow it",
            Self::Unreachable => "GDM or Gear2 does not answer",
            Self::TimedOut => "the time is over; what was begun goes on",
            Self::Version => "the versions of the programs do not fit",
        }
    }
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Decides on the exit status.
    pub kind: ErrorKind,
    /// Says what failed, and why.
    pub sentence: String,
}

impl Error {
    /// Makes an error of a kind.
    pub fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        Self { kind, sentence }
    }

    /// Says that a file, a terminal or a program fails.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, sentence)
    }

    /// Says that something does not exist.
    pub fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, sentence)
    }

    /// Says why something is not done.
    pub fn refused(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, sentence)
    }

    /// Says that nothing answers.
    pub fn unreachable(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unreachable, sentence)
    }

    /// Puts the sentence into another one, which names what is asked for.
    pub fn within(self, sentence: impl FnOnce(String) -> String) -> Self {
        Self::new(self.kind, sentence(self.sentence))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
