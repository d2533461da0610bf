//! Requirements: G1-RUN-008.

use gear1_abi::record::Record;

use super::{LogRing, RING_RECORDS};

fn record(number: u64) -> Record {
    Record {
        time: number,
        id_and_cpu: number << 32,
        values: [number, number + 1, number + 2],
    }
}

#[test]
fn an_empty_ring_has_nothing_to_read() {
    assert_eq!(LogRing::new().read(0), None);
}

#[test]
fn records_come_in_order_with_their_numbers() {
    let ring = LogRing::new();
    for number in 0..3 {
        ring.push(&record(number));
    }
    for number in 0..3 {
        assert_eq!(ring.read(number), Some((number, record(number))));
    }
    assert_eq!(ring.read(3), None);
}

#[test]
fn a_reader_that_is_behind_goes_on_with_the_oldest_kept() {
    let ring = LogRing::new();
    let written = 3 * RING_RECORDS as u64 + 5;
    for number in 0..written {
        ring.push(&record(number));
    }
    let oldest = written - (RING_RECORDS as u64 - 1);
    assert_eq!(ring.read(0), Some((oldest, record(oldest))));
    assert_eq!(
        ring.read(written - 1),
        Some((written - 1, record(written - 1)))
    );
    assert_eq!(ring.read(written), None);
}

/// A record read while the writer laps the reader is whole or not there.
#[test]
fn a_record_is_never_torn() {
    let ring = std::sync::Arc::new(LogRing::new());
    let writer = {
        let ring = ring.clone();
        std::thread::spawn(move || (0..200_000).for_each(|number| ring.push(&record(number))))
    };
    let mut next = 0;
    while !writer.is_finished() {
        if let Some((number, read)) = ring.read(next) {
            assert_eq!(read, record(number));
            next = number + 1;
        }
    }
    writer.join().unwrap();
}
