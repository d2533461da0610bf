//! The watchdog as Linux's `sbsa_gwdt` uses it, and as hostile guests do.

use proptest::prelude::*;

use super::*;

const WORD: u8 = 2;
const PERIOD: u64 = 10_000;
const STAGE: u64 = PERIOD / 2;
const ORIGIN: u64 = 1_000_000;

fn started() -> Watchdog {
    let mut watchdog = Watchdog::new(PERIOD);
    watchdog.reset();
    watchdog.begin(ORIGIN, ORIGIN);
    watchdog
}

fn status(watchdog: &Watchdog) -> u32 {
    u32::try_from(watchdog.read(WCS, WORD)).unwrap()
}

/// Looks when a look is due until the VM has to end, and returns when.
fn end(watchdog: &mut Watchdog) -> Option<u64> {
    let mut now = watchdog.due()?;
    loop {
        match watchdog.look(false, now) {
            Signal::Second => return Some(now),
            Signal::None(due) => now = due?,
        }
    }
}

#[test]
fn a_guest_without_a_driver_ends_after_four_periods() {
    let mut watchdog = started();
    assert_eq!(status(&watchdog), WCS_EN);
    assert_eq!(end(&mut watchdog), Some(ORIGIN + 4 * PERIOD));
    assert!(!watchdog.is_touched());
    assert_eq!(status(&watchdog), WCS_WS0 | WCS_WS1);
}

#[test]
fn a_guest_that_refreshes_in_time_goes_on() {
    let mut watchdog = started();
    let mut now = ORIGIN;
    for _ in 0..100 {
        now += STAGE - 1;
        watchdog.write(WRR, WORD, 0, now);
        assert_eq!(watchdog.look(false, now), Signal::None(Some(now + STAGE)));
        assert_eq!(watchdog.level_change(), None);
    }
    assert_eq!(end(&mut watchdog), Some(now + PERIOD));
}

/// `action=1` of the driver: the first signal is an interrupt, and a refresh takes it back.
#[test]
fn the_first_signal_is_an_interrupt_until_the_next_refresh() {
    let mut watchdog = started();
    watchdog.write(WRR, WORD, 0, ORIGIN);
    let late = ORIGIN + STAGE;
    assert_eq!(watchdog.look(false, late), Signal::None(Some(late + STAGE)));
    assert_eq!(status(&watchdog), WCS_EN | WCS_WS0);
    assert_eq!(watchdog.level_change(), Some(true));
    assert_eq!(watchdog.level_change(), None);
    watchdog.write(WRR, WORD, 0, late + 1);
    assert_eq!(status(&watchdog), WCS_EN);
    assert_eq!(watchdog.level_change(), Some(false));
}

/// The next kernel sees why it starts, and only the next one: `WDIOF_CARDRESET`.
#[test]
fn the_second_signal_is_seen_in_the_next_life() {
    let mut watchdog = started();
    end(&mut watchdog).unwrap();
    watchdog.reset();
    watchdog.begin(ORIGIN, ORIGIN);
    assert_eq!(status(&watchdog), WCS_EN | WCS_WS1);
    // The VM ends for another reason, untouched.
    watchdog.reset();
    assert_eq!(status(&watchdog), WCS_EN);
}

#[test]
fn a_guest_may_turn_the_watchdog_off_and_on() {
    let mut watchdog = started();
    watchdog.write(WCS, WORD, 0, ORIGIN);
    assert_eq!(watchdog.due(), None);
    assert_eq!(watchdog.look(false, u64::MAX), Signal::None(None));
    let now = ORIGIN + 10 * PERIOD;
    watchdog.write(WCS, WORD, u64::from(WCS_EN), now);
    assert_eq!(end(&mut watchdog), Some(now + PERIOD));
}

/// The driver writes WOR in halves, low then high, and computes the time left from WOR, WCV and the
/// count that it reads.
#[test]
fn the_driver_sets_a_time_and_reads_what_is_left() {
    let mut watchdog = started();
    let now = ORIGIN + 100;
    watchdog.write(WOR, WORD, 2_000, now);
    watchdog.write(WOR_HIGH, WORD, 0, now);
    assert_eq!(watchdog.read(WOR, WORD), 2_000);
    let compare = watchdog.read(WCV, WORD) | watchdog.read(WCV_HIGH, WORD) << 32;
    assert_eq!(compare, now + 2_000 - ORIGIN);
    assert_eq!(watchdog.read(WCV, 3), compare);
    assert_eq!(watchdog.read(W_IIDR, WORD) >> 16 & 0xf, 1);
    assert_eq!(watchdog.read(WRR + W_IIDR, WORD) >> 16 & 0xf, 1);
    assert_eq!(end(&mut watchdog), Some(now + 4_000));
}

#[test]
fn a_longer_time_than_the_manifests_is_cut() {
    let mut watchdog = started();
    watchdog.write(WOR, 3, 1 << 40, ORIGIN);
    assert_eq!(watchdog.read(WOR, 3), STAGE);
    watchdog.write(WCV, 3, u64::MAX, ORIGIN);
    assert_eq!(watchdog.due(), Some(ORIGIN + STAGE));
    assert_eq!(end(&mut watchdog), Some(ORIGIN + PERIOD));
}

/// A VM that is paused, or waits for the device model, is not at fault.
#[test]
fn who_is_excused_gets_both_stages_again() {
    let mut watchdog = started();
    watchdog.write(WRR, WORD, 0, ORIGIN);
    let mut now = ORIGIN + STAGE;
    watchdog.look(false, now);
    for _ in 0..10 {
        now += STAGE;
        assert_eq!(watchdog.look(true, now), Signal::None(Some(now + STAGE)));
        assert_eq!(status(&watchdog), WCS_EN);
    }
    assert_eq!(end(&mut watchdog), Some(now + PERIOD));
}

#[test]
fn the_next_gear2_goes_on_with_the_same_state() {
    let mut watchdog = started();
    watchdog.write(WOR, 3, 3_000, ORIGIN);
    watchdog.look(false, ORIGIN + 3_000);
    let mut next = Watchdog::new(PERIOD);
    let now = ORIGIN + 4_000;
    assert!(
        next.resume(watchdog.word(), ORIGIN, now),
        "the signal stays"
    );
    assert_eq!(status(&next), WCS_EN | WCS_WS0);
    assert_eq!(end(&mut next), Some(now + 3_000));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u8, u64),
    Look(bool),
    Resume,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..0x2000_u64 / 4, 2..4_u8, any::<u64>()).prop_map(|(word, size, value)| Step::Write(
            word * 4,
            size,
            value
        )),
        (
            prop::sample::select(std::vec![WCS, WOR, WOR_HIGH, WCV, WCV_HIGH, WRR]),
            2..4_u8,
            any::<u64>()
        )
            .prop_map(|(offset, size, value)| Step::Write(offset, size, value)),
        any::<bool>().prop_map(Step::Look),
        Just(Step::Resume),
    ]
}

proptest! {
    /// Whatever a guest writes, and whatever a Gear2 that failed has left: the guest ends within its
    /// period of its last touch unless it has turned the watchdog off, and no look asks for the
    /// next one at once for ever.
    #[test]
    fn no_guest_puts_its_watchdog_off(
        steps in prop::collection::vec((steps(), 0..2 * PERIOD), 0..60),
        word in any::<u64>(),
    ) {
        let mut watchdog = started();
        let mut now = ORIGIN;
        watchdog.resume(Word(word), ORIGIN, now);
        for (step, pause) in steps {
            now += pause;
            match step {
                Step::Write(offset, size, value) => watchdog.write(offset, size, value, now),
                Step::Look(excused) => {
                    if let Signal::None(Some(due)) = watchdog.look(excused, now) {
                        prop_assert!(due > now, "{watchdog:?}");
                    }
                }
                Step::Resume => {
                    let word = watchdog.word();
                    watchdog.resume(word, ORIGIN, now);
                    prop_assert_eq!(watchdog.word(), word);
                }
            }
            watchdog.read(WOR, 3);
        }
        if watchdog.due().is_some() {
            watchdog.write(WRR, WORD, 0, now);
            let over = end(&mut watchdog).unwrap();
            prop_assert!(over <= now + PERIOD, "{over} {now}");
        }
    }
}
