//! The report: one line a check.

use core::fmt;

use crate::say;

/// Reports a check that held. The suite counts these lines as its checks.
pub fn pass(name: &str) {
    say!("PASS {name}");
}

/// Reports a check that did not hold, and why.
pub fn fail(name: &str, why: fmt::Arguments<'_>) {
    say!("FAIL {name}: {why}");
}

/// Reports whether `result` equals `expected`. Hexadecimal, as most values are registers; the text
/// is the suite's to find a failure by.
pub fn equal<T: PartialEq + fmt::Debug>(name: &str, result: T, expected: T) {
    if result == expected {
        pass(name);
    } else {
        fail(name, format_args!("{result:x?} instead of {expected:x?}"));
    }
}

/// Reports a condition; the rest of the arguments tell why it failed.
#[macro_export]
macro_rules! check {
    ($name:expr, $condition:expr, $($why:tt)+) => {
        if $condition {
            $crate::report::pass($name);
        } else {
            $crate::report::fail($name, format_args!($($why)+));
        }
    };
}
