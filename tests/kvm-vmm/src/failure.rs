//! Where the VMM failed, and why.

use std::fmt::{self, Display};

/// Failed step, and the error.
pub(crate) struct Failure {
    place: String,
    why: String,
}

impl Failure {
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
