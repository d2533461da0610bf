//! Paths of nodes, as messages show them.

use core::fmt;

/// Nodes of a manifest are at most this deep.
const MAX_DEPTH: usize = 5;

/// The path of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePath<'a> {
    pub(crate) names: [Option<&'a str>; MAX_DEPTH],
}

impl<'a> NodePath<'a> {
    /// The root node.
    pub const ROOT: Self = Self {
        names: [None; MAX_DEPTH],
    };

    /// Returns the path of the node `name` below this one.
    #[must_use]
    pub fn child(mut self, name: &'a str) -> Self {
        // A deeper node has the path of the one above it: a message loses a name, and no node is
        // lost.
        if let Some(free) = self.names.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(name);
        }
        self
    }

    /// Returns the path of the VM `name`.
    #[must_use]
    pub fn vm(name: &'a str) -> Self {
        Self::ROOT.child("vms").child(name)
    }
}

impl fmt::Display for NodePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ROOT {
            return f.write_str("/");
        }
        self.names
            .iter()
            .flatten()
            .try_for_each(|name| write!(f, "/{name}"))
    }
}
