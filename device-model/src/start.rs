//! Start of a process of GDM: the hub's, or that of a guest.
//!
//! Both are the same program, because the hub starts each guest's process from its own file. The
//! choice is apart from both, so that neither knows the other's start.

use std::convert::Infallible;

use crate::backend::net;
use crate::board::{Board, DeviceKind};
use crate::options::Options;
use crate::{guest, hub, output};

/// Serves the devices of the guest that the options name, or all as the hub; returns only when that
/// cannot be begun. The error is a sentence for the log.
pub fn run(options: &Options) -> Result<Infallible, String> {
    hub::limit_panic_messages();
    match options.guest {
        Some(vm) => guest::run(options, vm),
        None => hub::run(options),
    }
}

/// Makes the tap devices of all network cards, with a queue for each pair of a card, and prints the
/// names of those that are there: a bridge takes them before anybody serves the cards. One that
/// cannot be made leaves the others. The error is a sentence for the log.
pub fn make_taps(options: &Options) -> Result<(), String> {
    let board = Board::read(&options.tree)?;
    let cards = board.devices.iter();
    let cards = cards.filter(|device| device.kind == DeviceKind::Net);
    let mut result = Ok(());
    for card in cards {
        match net::make_tap(card) {
            Ok(()) => output::line(&card.backend),
            Err(error) => {
                eprintln!("gdm: {error}");
                result = Err("a tap device is missing".to_owned());
            }
        }
    }
    result
}
