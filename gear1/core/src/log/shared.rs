//! The ring itself: what its one writer stores, and what a reader loads.
//!
//! Requirements: G1-RUN-008.

use gear1_abi::record::{RECORD_WORDS, Record};

use crate::atomic::{AtomicU64, Ordering, fence};

/// Records one ring keeps.
pub const RING_RECORDS: usize = 32;
/// Records that can be read while one more is being written.
// planted: a reader of the log gets what is being overwritten
const KEPT: u64 = RING_RECORDS as u64 - 1;
const WORDS: usize = RING_RECORDS * RECORD_WORDS;

/// A ring of the newest [`RING_RECORDS`] records with one writer.
///
/// A reader that is overtaken while it reads notices, because the number of
/// records written is read before and after.
pub struct LogRing {
    written: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for LogRing {
    fn default() -> Self {
        Self::new()
    }
}

impl LogRing {
    /// An empty ring.
    pub const fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn slot(&self, sequence: u64) -> &[AtomicU64] {
        let start = (sequence as usize % RING_RECORDS).wrapping_mul(RECORD_WORDS);
        self.words
            .get(start..start.wrapping_add(RECORD_WORDS))
            .unwrap_or(&[])
    }

    /// Adds a record. Called by the ring's one writer only.
    pub fn push(&self, record: &Record) {
        let sequence = self.written.load(Ordering::Relaxed);
        let [a, b, c] = record.values;
        // A reader that finds a word of this record finds the count that the last one left as well,
        // and so that it was overtaken: the stores below stay behind that of `written`.
        fence(Ordering::Release);
        let words = [record.time, record.id_and_cpu, a, b, c];
        // Bound: words of a record.
        for (cell, word) in self.slot(sequence).iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.written
            .store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// Returns the oldest record that is kept and not older than `sequence`,
    /// with its sequence number.
    pub fn read(&self, sequence: u64) -> Option<(u64, Record)> {
        let written = self.written.load(Ordering::Acquire);
        // The slot of the record `RING_RECORDS` back may be being overwritten.
        let oldest = written.saturating_sub(KEPT);
        let sequence = sequence.max(oldest);
        if sequence >= written {
            return None;
        }
        let mut words = [0; RECORD_WORDS];
        // Bound: words of a record.
        for (word, cell) in words.iter_mut().zip(self.slot(sequence)) {
            *word = cell.load(Ordering::Relaxed);
        }
        // The writer's fence has its pair here: the count is read behind the words.
        fence(Ordering::Acquire);
        let overtaken =
            self.written.load(Ordering::Relaxed).wrapping_sub(sequence) >= RING_RECORDS as u64;
        if overtaken {
            return None;
        }
        let [time, id_and_cpu, a, b, c] = words;
        Some((
            sequence,
            Record {
                time,
                id_and_cpu,
                values: [a, b, c],
            },
        ))
    }
}
