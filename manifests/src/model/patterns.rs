//! Patterns of devices' paths: which nodes of the board's tree a VM owns.

use super::terminated;

/// Paths of nodes in the board's device tree; a `*` at the end stands for the rest of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePatterns<'a>(pub(crate) &'a str);

impl<'a> DevicePatterns<'a> {
    /// Iterates over the patterns.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        terminated(self.0)
    }

    /// Tells whether there is no pattern.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether the node at `path`, or one above it, is named.
    #[must_use]
    pub fn owns(&self, path: &str) -> bool {
        self.iter().any(|pattern| Self::covers(pattern, path))
    }

    /// Tells whether `pattern` stands for the node at `path`, or for one above it.
    #[must_use]
    pub fn covers(pattern: &str, path: &str) -> bool {
        let is_at_or_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        match pattern.strip_suffix('*') {
            // The name that begins so ends with the path or at the next slash.
            Some(start) => !start.is_empty() && path.starts_with(start),
            None => !pattern.is_empty() && path.strip_prefix(pattern).is_some_and(is_at_or_below),
        }
    }

    /// Tells whether a node below the one at `path` is named.
    #[must_use]
    pub fn owns_below(&self, path: &str) -> bool {
        self.iter().any(|pattern| Self::is_below(pattern, path))
    }

    /// Tells whether `pattern` stands for a node below the one at `path`.
    #[must_use]
    pub fn is_below(pattern: &str, path: &str) -> bool {
        let rest = pattern.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Iterates over the functions of the PCI host bridge at `path` that are named apart from the
    /// bridge: each path, and its unit address.
    pub fn functions_of(&self, path: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter_map(move |pattern| {
            let unit = pattern.strip_prefix(path)?.strip_prefix("/pci@")?;
            Some((pattern, unit))
        })
    }

    /// Tells whether `pattern` stands for the node at `path`.
    #[must_use]
    pub fn matches(pattern: &str, path: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(start) => path
                .strip_prefix(start)
                .is_some_and(|rest| !rest.contains('/')),
            None => path == pattern,
        }
    }
}
