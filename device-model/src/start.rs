//! Start of a process of GDM: the hub's, that of a guest, or one that makes tap devices and ends.
//!
//! All are the same program, because the hub starts each guest's process from its own file. The
//! choice is apart from all, so that none knows another's start.

use crate::backend::net;
use crate::board::{Board, DeviceKind};
use crate::options::Options;
use crate::{guest, hub, output};

/// Makes tap devices, or serves the devices of the guest that the options name, or all as the hub,
/// which returns only when it cannot be begun. The error is a sentence for the log.
pub fn run(options: &Options) -> Result<(), String> {
    hub::limit_panic_messages();
    let never = match options.guest {
        _ if options.makes_taps => return make_taps(options),
        Some(vm) => guest::run(options, vm),
        None => hub::run(options),
    };
    never.map(|never| match never {})
}

/// Makes the tap devices of all network cards, with a queue for each pair of a card, and prints the
/// names of those that are there: a bridge takes them before anybody serves the cards. One that
/// cannot be made leaves the others. The error is a sentence for the log.
fn make_taps(options: &Options) -> Result<(), String> {
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
