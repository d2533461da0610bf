//! A node of a manifest, and its properties by their types.
//!
//! A blob has no types, so each reader of a value says what it expects; text where a number belongs
//! is found by its length only (M-SYN-003). A value that is wrong is reported and reads as if it
//! were not there: the reading goes on, and each further error is told in the same run.

use super::MIB;
use super::binding::CELL_PROPERTIES;
use crate::CpuIndex;
use crate::blob::{Node, Property};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::CpuList;
use crate::nearest::nearest;

/// A node with its path.
pub(super) struct Section<'a> {
    pub(super) node: Node<'a>,
    pub(super) path: NodePath<'a>,
}

impl<'a> Section<'a> {
    /// Iterates over the nodes below, with their paths.
    pub(super) fn children(&self) -> impl Iterator<Item = Self> {
        let path = self.path;
        self.node.children().map(move |node| Self {
            node,
            path: path.child(node.name()),
        })
    }

    /// Returns the first node below with this name; [`Self::check_repeated`] has refused a second.
    pub(super) fn child(&self, name: &str) -> Option<Self> {
        let node = self.node.child(name)?;
        let path = self.path.child(node.name());
        Some(Self { node, path })
    }

    /// Reports properties and nodes that are not in the lists, and those that stand twice. An unknown
    /// node is told with the nearest known one: "consol" is a console to the person who wrote it.
    pub(super) fn check_names(
        &self,
        properties: &[&'static str],
        nodes: &[&'static str],
        report: &mut Report<'_, 'a>,
    ) {
        self.check_properties(properties, report);
        for (index, child) in self.children().enumerate() {
            let name = child.node.name();
            if !nodes.contains(&name) {
                let error = ManifestError::at(Rule::UnknownNode, child.path);
                report.error(ManifestError {
                    nearest: nearest(name, nodes.iter().copied()),
                    ..error
                });
            } else {
                self.check_repeated(index, &child, report);
            }
        }
    }

    /// Refuses the node `index` if one before it has its name: [`Self::child`] would find the
    /// first, and the other would be ignored.
    pub(super) fn check_repeated(&self, index: usize, child: &Self, report: &mut Report<'_, 'a>) {
        let mut before = self.children().take(index);
        if before.any(|other| other.node.name() == child.node.name()) {
            report.error(ManifestError::at(Rule::DuplicateName, child.path));
        }
    }

    /// Reports properties that are not in the list, with the nearest one that is, and those that
    /// stand twice: the first would count, and a person may look at the other.
    pub(super) fn check_properties(&self, known: &[&'static str], report: &mut Report<'_, 'a>) {
        for property in self.node.properties() {
            let name = property.name();
            let first = self.node.property(name).map(|first| first.offset);
            if !known.contains(&name) {
                let error = self.error(Rule::UnknownProperty, &property);
                report.error(ManifestError {
                    nearest: nearest(name, known.iter().copied()),
                    ..error
                });
            } else if first != Some(property.offset) {
                report.error(self.error(Rule::DuplicateName, &property));
            }
        }
    }

    /// Reports each of the properties that is there.
    pub(super) fn refuse(&self, names: &[&str], rule: Rule, report: &mut Report<'_, 'a>) {
        for property in names.iter().filter_map(|name| self.node.property(name)) {
            report.error(self.error(rule, &property));
        }
    }

    /// Makes an error at a property of this node.
    pub(super) fn error(&self, rule: Rule, property: &Property<'a>) -> ManifestError<'a> {
        ManifestError::at_property(rule, self.path, property.name())
    }

    /// Reads a property with `read`, and reports the wrong type if that gives nothing.
    pub(super) fn typed<T>(
        &self,
        name: &str,
        report: &mut Report<'_, 'a>,
        read: impl FnOnce(&Property<'a>) -> Option<T>,
    ) -> Option<T> {
        let property = self.node.property(name)?;
        let value = read(&property);
        if value.is_none() {
            report.error(self.error(Rule::WrongType, &property));
        }
        value
    }

    /// Reads one cell.
    pub(super) fn number(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u32> {
        debug_assert!(CELL_PROPERTIES.contains(&name), "{name}");
        self.typed(name, report, |property| {
            let mut cells = property.cells()?;
            // Two cells are no number here: an upper half would be dropped.
            (cells.len() == 1).then(|| cells.next())?
        })
    }

    /// Reads one cell, or two of which the first is the upper half.
    pub(super) fn long(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u64> {
        debug_assert!(CELL_PROPERTIES.contains(&name), "{name}");
        self.typed(name, report, |property| {
            let cells = property.cells()?;
            let value = cells
                .clone()
                .fold(0, |value, cell| value << 32 | u64::from(cell));
            // With three cells the first would be shifted out, which no author means.
            matches!(cells.len(), 1 | 2).then_some(value)
        })
    }

    /// Reads a size in MiB as bytes.
    pub(super) fn mib(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u64> {
        Some(u64::from(self.number(name, report)?) * MIB)
    }

    /// Reads one string, without its NUL.
    pub(super) fn text(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<&'a str> {
        self.typed(name, report, Property::text)
    }

    /// Reads the digest of the file that `file` names, which must be there too.
    pub(super) fn digest(
        &self,
        file: &str,
        name: &'static str,
        report: &mut Report<'_, 'a>,
    ) -> Option<&'a str> {
        // A digest of a file that is not named is refused, not ignored: it was written to be
        // checked.
        if self.node.property(file).is_none() {
            self.refuse(&[name], Rule::DigestAlone, report);
            return None;
        }
        self.text(name, report)
    }

    /// Reads one or more strings, each with its end.
    pub(super) fn texts(&self, name: &str, report: &mut Report<'_, 'a>) -> &'a str {
        let value = self.typed(name, report, |property| {
            let text = core::str::from_utf8(property.value).ok()?;
            // A cell whose last byte is 0 would pass for a string. Names have no control characters.
            let is_cell = text.bytes().any(|byte| matches!(byte, 1..b' '));
            // Kept as one, each string with its NUL: `Names` takes them apart without a heap.
            (text.ends_with('\0') && !is_cell).then_some(text)
        });
        value.unwrap_or_default()
    }

    /// Reads a property that is either there, without a value, or not.
    pub(super) fn switch(&self, name: &str, report: &mut Report<'_, 'a>) -> bool {
        self.typed(name, report, |property| {
            property.value.is_empty().then_some(())
        })
        .is_some()
    }

    /// Reads one of several texts.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&'static str, T)],
        report: &mut Report<'_, 'a>,
    ) -> Option<T> {
        let text = self.text(name, report)?;
        let choice = choices.iter().find(|(choice, _)| *choice == text);
        if choice.is_none() {
            let property = self.node.property(name)?;
            let error = self
                .error(Rule::UnknownValue, &property)
                .found(Found::Text(text));
            // The list of values is the manual's; the nearest one is what a person wants to see
            // here.
            let names = choices.iter().map(|(choice, _)| *choice);
            report.error(error.near(nearest(text, names)));
        }
        choice.map(|(_, value)| *value)
    }

    /// Reads `cpus`: a list without repetition.
    pub(super) fn cpus(&self, report: &mut Report<'_, 'a>) -> Option<CpuList> {
        let cells = self.typed("cpus", report, |property| {
            property.cells().filter(|cells| cells.len() > 0)
        })?;
        let before = report.error_count;
        let mut list = CpuList::default();
        for cell in cells {
            let error = |rule| {
                ManifestError::at_property(rule, self.path, "cpus")
                    .found(Found::Number(cell.into()))
            };
            // Whether the machine has as many CPUs is judged with the board; here only what no
            // board has.
            match usize::try_from(cell).ok().and_then(CpuIndex::new) {
                None => report.error(error(Rule::UnknownCpu)),
                Some(cpu) if list.set().contains(cpu) => report.error(error(Rule::CpuTwice)),
                // A list without repetition has room for every CPU that has an index.
                Some(cpu) => drop(list.push(cpu)),
            }
        }
        // A list with an error is none: what is left of it may name other CPUs than are meant.
        (before == report.error_count).then_some(list)
    }
}
