//! The drivers on models of the devices, written from their manuals.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.

use core::cell::{Cell, RefCell};

use super::{Cause, Registers, Status, Watchdog};

/// Accesses in their order, and words that reads give.
struct Recorded {
    words: RefCell<[u32; 0x110]>,
    written: RefCell<std::vec::Vec<(usize, u32)>>,
    settled: Cell<usize>,
}

impl Default for Recorded {
    fn default() -> Self {
        Self {
            words: RefCell::new([0; 0x110]),
            written: RefCell::default(),
            settled: Cell::new(0),
        }
    }
}

impl Recorded {
    fn with(offset: usize, value: u32) -> Self {
        let recorded = Self::default();
        recorded.words.borrow_mut()[offset / 4] = value;
        recorded
    }

    fn word(&self, offset: usize) -> u32 {
        self.words.borrow()[offset / 4]
    }

    fn take(&self) -> std::vec::Vec<(usize, u32)> {
        self.written.take()
    }
}

impl Status for Recorded {
    fn read8(&self, offset: usize) -> u8 {
        self.word(offset) as u8
    }

    fn read16(&self, offset: usize) -> u16 {
        (self.word(offset) >> (offset % 4 * 8)) as u16
    }

    fn read32(&self, offset: usize) -> u32 {
        self.word(offset)
    }
}

impl Registers for Recorded {
    fn write16(&self, offset: usize, value: u16) {
        self.written.borrow_mut().push((offset, value.into()));
    }

    fn write32(&self, offset: usize, value: u32) {
        self.written.borrow_mut().push((offset, value));
    }

    fn settle(&self) {
        self.settled.set(self.settled.get() + 1);
    }
}

const IMX2: Watchdog = Watchdog::Imx2 { asserts_pin: false };

/// The reset value of WCR: WDA and SRS, which are active low.
const WCR_AT_RESET: u32 = 0x30;

#[test]
fn imx2_counts_half_seconds_and_begins_with_one() {
    for (ms, count) in [(500, 0), (1000, 1), (1001, 2), (10_000, 19), (128_000, 255)] {
        let registers = Recorded::default();
        IMX2.start(&registers, ms);
        let [pde, prepared, enabled, ..] = registers.take()[..] else {
            panic!("less than three writes");
        };
        assert_eq!(pde, (8, 0));
        assert_eq!(prepared, (0, count << 8 | WCR_AT_RESET), "{ms} ms");
        assert_eq!(enabled, (0, count << 8 | WCR_AT_RESET | 4), "{ms} ms");
    }
}

#[test]
fn imx2_asserts_its_pin_only_where_the_board_has_it() {
    let firmwares = WCR_AT_RESET | 0xff00 | 1 << 3 | 1 << 7 | 1;
    for (asserts_pin, pin) in [(false, 0), (true, 1 << 3)] {
        let registers = Recorded::with(0, firmwares);
        Watchdog::Imx2 { asserts_pin }.start(&registers, 1000);
        assert_eq!(registers.take()[2], (0, 0x100 | WCR_AT_RESET | pin | 4));
    }
}

#[test]
fn imx2_is_fed_by_two_words() {
    let registers = Recorded::default();
    IMX2.feed(&registers, 1000);
    assert_eq!(registers.take(), [(2, 0x5555), (2, 0xaaaa)]);
}

#[test]
fn imx2_tells_the_resets_cause() {
    let cause = |wrsr: u32| IMX2.cause(&Recorded::with(4, wrsr));
    assert_eq!(cause(0), Cause::Unknown);
    assert_eq!(cause(1), Cause::Software);
    assert_eq!(cause(2), Cause::Watchdog);
    assert_eq!(cause(1 << 4), Cause::PowerOn);
    assert_eq!(cause(1 << 4 | 2), Cause::Watchdog);
}

#[test]
fn rwdt_is_stopped_set_and_started() {
    let registers = Recorded::with(4, 0x80 | 6);
    Watchdog::Rwdt.start(&registers, 10_000);
    let counter = 0x5a5a_0000 | (0x1_0000 - 5120);
    assert_eq!(
        registers.take(),
        [
            (4, 0xa5a5_a506),
            (4, 0xa5a5_a504),
            (8, 0xa5a5_a500),
            (0, counter),
            (4, 0xa5a5_a584),
        ]
    );
    assert_eq!(registers.settled.get(), 1);
    Watchdog::Rwdt.feed(&registers, 10_000);
    assert_eq!(registers.take(), [(0, counter)]);
}

#[test]
fn rwdt_that_is_never_ready_is_given_up() {
    let registers = Recorded::with(4, 1 << 5);
    Watchdog::Rwdt.start(&registers, 1000);
    assert_eq!(registers.take().len(), 5);
}

#[test]
fn rwdt_tells_its_own_reset() {
    let cause = |csra| Watchdog::Rwdt.cause(&Recorded::with(4, csra));
    assert_eq!(cause(1 << 4), Cause::Watchdog);
    assert_eq!(cause(0x80 | 7), Cause::Unknown);
}

#[test]
fn bcm2835_is_started_by_what_feeds_it() {
    let expected = [(0x24, 0x5a0a_0000), (0x1c, 0x5a00_0122)];
    for feed in [Watchdog::start, Watchdog::feed] {
        // The password reads back; the kind of reset is another one.
        let registers = Recorded::with(0x1c, 0x5a00_0112);
        feed(Watchdog::Bcm2835, &registers, 10_000);
        assert_eq!(registers.take(), expected);
    }
}

#[test]
fn bcm2835_tells_the_resets_cause_beside_the_partition() {
    let cause = |rsts| Watchdog::Bcm2835.cause(&Recorded::with(0x20, rsts));
    // Partition 63: bits 0, 2, 4, 6, 8 and 10.
    assert_eq!(cause(0x555), Cause::Unknown);
    assert_eq!(cause(0x1000), Cause::PowerOn);
    assert_eq!(cause(0x200), Cause::Software);
    assert_eq!(cause(0x1000 | 0x20 | 0x555), Cause::Watchdog);
}

#[test]
fn a_line_becomes_an_output_and_turns_over() {
    for line in 0..8 {
        let bit = 1 << line;
        let registers = Recorded::with(0x420, 0xff);
        registers.words.borrow_mut()[0x400 / 4] = 1;
        let watchdog = Watchdog::Pl061 { line };
        watchdog.start(&registers, 0);
        assert_eq!(registers.take(), [(0x420, 0xff & !bit), (0x400, 1 | bit)]);
        watchdog.feed(&registers, 0);
        registers.words.borrow_mut()[1 << line] = bit;
        watchdog.feed(&registers, 0);
        let data = 4 << line;
        assert_eq!(registers.take(), [(data, bit), (data, 0)]);
        assert_eq!(watchdog.cause(&registers), Cause::Unknown);
    }
}

/// A counter never ends before the timeout less one of its units: the feeder comes after a quarter.
#[test]
fn no_counter_is_shorter_than_asked() {
    for watchdog in [IMX2, Watchdog::Rwdt, Watchdog::Bcm2835] {
        let timeouts = watchdog.timeouts().unwrap();
        for ms in [
            *timeouts.start(),
            777.max(*timeouts.start()),
            *timeouts.end(),
        ] {
            let registers = Recorded::with(0, WCR_AT_RESET);
            watchdog.start(&registers, ms);
            let written = registers.take();
            let value = |offset| written.iter().rev().find(|one| one.0 == offset).unwrap().1;
            let counted = match watchdog {
                Watchdog::Imx2 { .. } => ((value(0) >> 8) + 1) * 500,
                Watchdog::Rwdt => (0x1_0000 - (value(0) & 0xffff)) * 1000 / 512,
                _ => ((u64::from(value(0x24) & 0xf_ffff) * 1000) >> 16) as u32,
            };
            assert!(
                (ms - 2..ms + 500).contains(&counted),
                "{watchdog:?} {ms}: {counted}"
            );
        }
    }
}

#[test]
fn the_hand_overs_numbers_come_back() {
    let all = [
        IMX2,
        Watchdog::Imx2 { asserts_pin: true },
        Watchdog::Rwdt,
        Watchdog::Bcm2835,
        Watchdog::Pl061 { line: 7 },
    ];
    for watchdog in all {
        let (kind, parameter) = watchdog.numbers();
        assert_eq!(Watchdog::of(kind, parameter), Some(watchdog));
    }
    assert_eq!(Watchdog::of(0, 0), None);
    assert_eq!(
        Watchdog::of(Watchdog::Pl061 { line: 0 }.numbers().0, 8),
        None
    );
}
