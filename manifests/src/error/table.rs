//! The macro that makes the rules out of their table, and how much a rule matters.
//!
//! One row is all that there is of a rule: an id, a statement and a repair that stand in separate
//! lists would come apart. Everything is a constant, so that init's image holds the texts once and
//! a boot allocates nothing for them.

use super::Rule;

/// Makes [`Rule`] out of rows of a variant, its id, what is wrong, and how to repair it. The
/// comment of a row says why there is the rule.
macro_rules! rules {
    ($($(#[$why:meta])* $name:ident = $id:literal, $what:literal, $repair:literal;)+) => {
        /// A rule that a manifest must keep.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $(
                #[doc = concat!("`", $id, "`: ", $what, ".\n\n")]
                $(#[$why])*
                $name,
            )+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the rule's id, which never changes.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)+ }
            }

            /// Returns the statement that is violated.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }

            /// Says how to repair it.
            #[must_use]
            pub const fn repair(self) -> &'static str {
                match self { $(Self::$name => $repair,)+ }
            }
        }
    };
}

pub(super) use rules;

/// Severity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The manifest is refused.
    Error,
    /// The manifest runs, and exposes more than it might, or runs worse.
    Warning,
}

/// Beginning of the ids of warnings.
const WARNINGS: &str = "M-WRN-";

impl Rule {
    /// Returns how much the rule matters, which its id says.
    #[must_use]
    pub fn severity(self) -> Severity {
        if self.id().starts_with(WARNINGS) {
            Severity::Warning
        } else {
            Severity::Error
        }
    }
}
