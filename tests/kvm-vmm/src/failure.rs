//! Where the VMM failed, and why.

use std::fmt::{self, Display};

/// Failed step, and the error. Texts, because the step tells the reader more than the kind of the
/// error does, and errors of five crates have no type in common.
pub(crate) struct Failure {
    place: String,
    why: String,
}

impl Failure {
    /// Makes the failure of a step. The step is named by the call or the file that failed.
    pub(crate) fn new(place: impl Into<String>, why: impl Display) -> Failure {
        Failure {
            place: place.into(),
            why: why.to_string(),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}
