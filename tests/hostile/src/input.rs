//! Attacks with the configuration and the events of an input device (virtio 1.2, 5.8).
//!
//! Selections are two bytes that decide what the configuration shows; a bitmap or a name of 128
//! bytes at most (virtio 1.2, 5.8.4). Events from the guest are lights, and are written to a device
//! of the board.

use crate::Platform;
use crate::arena::BUFFER_SIZE;
use crate::device::{Device, Expect, Link, WRITE, register};
use crate::offers::{DATA, offer_receive_buffers, segments};

/// An event that lights a light: of type EV_LED (0x11). Type and code have two bytes each, and the
/// value four.
pub(crate) const LIGHT: [u8; 8] = [0x11, 0, 0, 0, 1, 0, 0, 0];

/// Makes all attacks.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    selections(device);
    for length in [0, 1, 7, 8, 9, 0x1000, BUFFER_SIZE as u32 - 0x1000] {
        let pieces = [(DATA, length, false)];
        device.odd("an event of any length", &pieces, Expect::Served(1));
    }
    for byte in [0, 1, 0x11, 0x15, 0x7f, 0xff] {
        device.store(DATA, &[byte; 8]);
        device.odd(
            "an event of nonsense",
            &[(DATA, 8, false)],
            Expect::Served(1),
        );
    }
    device.odd("a writable event", &[(DATA, 8, true)], Expect::Served(1));
    segments(device);
    for (length, flags) in [(0, WRITE), (1, WRITE), (7, WRITE), (8, WRITE), (8, 0)] {
        let name = "a buffer for events without room";
        let link = Link::new(device.at(DATA), length, flags, 0);
        offer_receive_buffers(device, link);
        device.recover_all(name);
    }
}

/// Selects every property, with accesses of every size: what is shown never exceeds its place. The
/// size of what is shown is the device's word, which a driver copies by.
fn selections<P: Platform>(device: &mut Device<'_, P>) {
    for select in 0..=u8::MAX {
        for subselect in [0, 1, 2, 3, 0x11, 0x14, 0xff] {
            let both = u64::from(subselect) << 8 | u64::from(select);
            device.platform.write(register::CONFIG, 2, both);
            let shown = device.read(register::CONFIG).to_le_bytes();
            if shown[0] != select || shown[1] != subselect || shown[2] > 128 {
                device.mistake("a selection", format_args!("{both:#x} shows {shown:x?}"));
            }
            device.counts.operations += 1;
        }
    }
    for at in (0..0x88).step_by(4) {
        device.platform.write(register::CONFIG + at, 4, u64::MAX);
    }
    device.honest_request("selections");
}
