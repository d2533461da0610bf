//! Tests of the real-time clock.

use std::time::Duration;

use super::*;

fn posted(device: u32, register: u32, access: u32) -> MmioSlot {
    let slot = MmioSlot::default();
    slot.device.store(device, Ordering::Relaxed);
    slot.register.store(register, Ordering::Relaxed);
    slot.access.store(access, Ordering::Relaxed);
    slot.value.store(77, Ordering::Relaxed);
    slot.set_state(slot::POSTED);
    slot
}

#[test]
fn the_clock_shows_seconds_since_1970() {
    let at = |secs: u64| read(DATA, UNIX_EPOCH + Duration::from_millis(secs * 1000 + 999));
    assert_eq!(at(0), 0);
    assert_eq!(at(1_795_000_000), 1_795_000_000);
    assert_eq!(at((1 << 32) + 5), 5);
    // A device VM without a clock of its own may be set to a time before.
    assert_eq!(read(DATA, UNIX_EPOCH - Duration::from_secs(1)), 0);
}

#[test]
fn a_driver_finds_a_pl031() {
    let byte = |register| read(register, UNIX_EPOCH);
    let word = |first: u32| {
        (0..4).fold(0, |word, index| {
            word | byte(first + 4 * index) << (8 * index)
        })
    };
    assert_eq!(word(0xfe0), 0x0004_1031);
    assert_eq!(word(0xff0), 0xb105_f00d);
    assert_eq!(byte(CONTROL), 1);
    assert_eq!(byte(0xfdc), 0);
}

#[test]
fn an_access_is_answered_once_and_a_store_changes_nothing() {
    let load = posted(RTC_DEVICE, CONTROL, 2);
    assert!(answer(&load));
    assert_eq!(
        (load.state(), load.value.load(Ordering::Relaxed)),
        (slot::DONE, 1)
    );
    let store = posted(RTC_DEVICE, DATA, 2 | STORE);
    assert!(answer(&store));
    assert_eq!(
        (store.state(), store.value.load(Ordering::Relaxed)),
        (slot::DONE, 77)
    );
    let other = posted(RTC_DEVICE - 1, DATA, 2);
    assert!(!answer(&other));
    assert_eq!(other.state(), slot::POSTED);
}
