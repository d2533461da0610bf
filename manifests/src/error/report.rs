//! A violation of a rule, and the way of violations to the caller.
//!
//! An error borrows from the blob and holds no text of its own: the reader has no heap, and a boot
//! reports errors before there is one to spare.

use core::fmt;

use super::{Found, NodePath, Rule, Severity};
use crate::MAX_VMS;
use crate::list::List;
use crate::model::Vm;

/// A violation of a rule in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestError<'a> {
    /// The rule that is broken.
    pub rule: Rule,
    /// Node with the error.
    pub node: NodePath<'a>,
    /// Property with the error, if the error is in one.
    pub property: Option<&'a str>,
    /// The value found.
    pub found: Found<'a>,
    /// The other node that this one conflicts with.
    pub other: Option<NodePath<'a>>,
    /// The known name that was probably meant.
    pub nearest: Option<&'a str>,
}

impl<'a> ManifestError<'a> {
    /// Makes an error at a node.
    #[must_use]
    pub const fn at(rule: Rule, node: NodePath<'a>) -> Self {
        Self {
            rule,
            node,
            property: None,
            found: Found::Nothing,
            other: None,
            nearest: None,
        }
    }

    /// Makes an error at a property.
    #[must_use]
    pub const fn at_property(rule: Rule, node: NodePath<'a>, property: &'a str) -> Self {
        Self {
            property: Some(property),
            ..Self::at(rule, node)
        }
    }

    /// Adds the value found.
    #[must_use]
    pub const fn found(self, found: Found<'a>) -> Self {
        Self { found, ..self }
    }

    /// Adds the known name that was probably meant.
    #[must_use]
    pub const fn near(self, nearest: Option<&'a str>) -> Self {
        Self { nearest, ..self }
    }

    /// Adds the other node in the conflict.
    #[must_use]
    pub const fn conflicts(self, other: NodePath<'a>) -> Self {
        Self {
            other: Some(other),
            ..self
        }
    }
}

impl fmt::Display for ManifestError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.rule.id(), self.node)?;
        if let Some(property) = self.property {
            write!(f, "{property}: ")?;
        }
        write!(f, "{}{}", self.rule.what(), self.found)?;
        if let Some(other) = self.other {
            write!(f, ", in conflict with {other}")?;
        }
        // A name that is nearly right needs no other repair.
        match self.nearest {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => write!(f, "; {}", self.rule.repair()),
        }
    }
}

impl core::error::Error for ManifestError<'_> {}

/// The manifest is refused; the errors have been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of errors.
    pub error_count: usize,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error_count {
            1 => f.write_str("the manifest is refused: 1 error"),
            count => write!(f, "the manifest is refused: {count} errors"),
        }
    }
}

impl core::error::Error for Refused {}

/// Counts errors on their way to the caller, and remembers their nodes.
pub(crate) struct Report<'r, 'a> {
    sink: &'r mut dyn FnMut(ManifestError<'a>),
    pub(crate) error_count: usize,
    /// Whether an error was at `/gear2`.
    pub(crate) gear2_is_faulty: bool,
    /// The VMs with errors.
    faulty: List<&'a str, MAX_VMS>,
}

impl<'r, 'a> Report<'r, 'a> {
    /// Begins a report. `sink` gets each error as soon as it is found, since nothing here could keep
    /// as many as a manifest can have.
    pub(crate) fn new(sink: &'r mut dyn FnMut(ManifestError<'a>)) -> Self {
        Self {
            sink,
            error_count: 0,
            gear2_is_faulty: false,
            faulty: List::new(),
        }
    }

    /// Passes an error, or a warning, on, and notes where an error is.
    pub(crate) fn error(&mut self, error: ManifestError<'a>) {
        if error.rule.severity() == Severity::Error {
            self.error_count += 1;
            match error.node.names {
                [Some("gear2"), ..] => self.gear2_is_faulty = true,
                // A VM stands here once, however many errors it has, so the list holds every VM that
                // a manifest can have; a rule of its own reports more.
                [Some("vms"), Some(vm), ..] if !self.is_faulty(vm) => _ = self.faulty.push(vm),
                _ => {}
            }
        }
        (self.sink)(error);
    }

    /// Tells whether no error was at the VM. Rules on what follows from a VM's values ask this first,
    /// so that one mistake is one message.
    pub(crate) fn is_sound(&self, vm: &Vm<'_>) -> bool {
        !self.is_faulty(vm.name)
    }

    fn is_faulty(&self, name: &str) -> bool {
        self.faulty.iter().any(|faulty| *faulty == name)
    }

    /// Returns whether the manifest may be used. Warnings do not count: what they say may be meant.
    pub(crate) fn outcome(&self) -> Result<(), Refused> {
        match self.error_count {
            0 => Ok(()),
            error_count => Err(Refused { error_count }),
        }
    }
}
