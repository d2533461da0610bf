//! Start of a process of GDM: the hub's, or that of a guest.
//!
//! Both are the same program, because the hub starts each guest's process from its own file. The
//! choice is apart from both, so that neither knows the other's start.

use std::convert::Infallible;

use crate::options::Options;
use crate::{guest, hub};

/// Serves the devices of the guest that the options name, or all as the hub; returns only when that
/// cannot be begun. The error is a sentence for the log.
pub fn run(options: &Options) -> Result<Infallible, String> {
    hub::limit_panic_messages();
    match options.guest {
        Some(vm) => guest::run(options, vm),
        None => hub::run(options),
    }
}
