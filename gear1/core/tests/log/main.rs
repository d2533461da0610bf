//! The log ring under all that the memory model allows: `src/log/shared.rs` as it ships, with
//! atomics that hand a load every value that release and acquire leave possible.
//!
//! Requirements: G1-RUN-008.

mod atomic;
#[expect(unreachable_pub, reason = "the file is a module of the library")]
#[path = "../../src/log/shared.rs"]
mod log;

use gear1_abi::record::Record;

use atomic::{Choices, become_another_thread};
use log::{LogRing, RING_RECORDS};

/// A record whose words belong to no other.
fn record(number: u64) -> Record {
    let word = |place| number << 8 | place;
    Record {
        time: word(1),
        id_and_cpu: word(2),
        values: [word(3), word(4), word(5)],
    }
}

/// The writer ignores the reader's stores, so all of its stores come first: each order of the two
/// CPUs is a choice of the values that the reader's loads return.
#[test]
fn no_reader_gets_a_torn_record() {
    const WRITTEN: u64 = RING_RECORDS as u64 + 2;
    let (mut choices, mut read) = (Choices::first(), 0);
    loop {
        let ring = Box::new(LogRing::new());
        (0..WRITTEN).for_each(|number| ring.push(&record(number)));
        become_another_thread(choices);
        if let Some((number, found)) = ring.read(0) {
            assert_eq!(found, record(number), "record {number}");
            read += 1;
        }
        match atomic::next_choices() {
            Some(next) => choices = next,
            None => break,
        }
    }
    assert!(read > 100, "{read} records were read");
}
