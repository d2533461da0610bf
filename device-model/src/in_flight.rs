//! Requests that a disk or a backend in another process has: taken from a queue, and not in its used
//! ring.
//!
//! Requests complete in any order, so the used index alone does not tell which requests
//! are done. Each request that is handed over is noted in the device's page before the hand-over,
//! with its place in the order of the queue. The next backend, or the next GDM, hands over again
//! what is noted.
//!
//! Invariant: the queue's position is the used index plus the number of noted requests. A GDM that
//! is killed between completions and the end of their notes leaves [`InFlight::published`] behind
//! the used index, and the used ring names the requests in between.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::{DeviceState, QUEUE_NOTES};
use crate::vring::{Broken, Vring};

#[cfg(test)]
mod tests;

/// Notes of a word.
const LANES: usize = 4;
/// Bits of a note.
const LANE_BITS: u32 = 16;
/// Longest queue whose requests can be noted.
pub(crate) const MAX_REQUESTS: u16 = (QUEUE_NOTES * LANES) as u16;
/// A note that is there; the rest of the note is the request's position, cut to 15 bits.
const IS_THERE: u64 = 0x8000;
/// Positions wrap at 2^15: no queue is longer than [`MAX_REQUESTS`], so the order stays clear.
const POSITION: u64 = 0x7fff;

/// Notes of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// The device's page, which outlives this GDM.
    state: DeviceState,
    queue: usize,
}

impl InFlight {
    /// Returns the notes of a queue.
    pub(crate) const fn of(state: DeviceState, queue: usize) -> Self {
        Self { state, queue }
    }

    /// Notes a request at `position` of the available ring; false if it is noted already, which is
    /// a driver's error.
    pub(crate) fn add(&self, head: u16, position: u16) -> bool {
        // planted: a request is handed over twice at once
        let is_new = self.note(head) == Some(0);
        if is_new {
            self.set(head, IS_THERE | u64::from(position) & POSITION);
        }
        is_new
    }

    /// Tells whether a request is noted.
    pub(crate) fn has(&self, head: u16) -> bool {
        self.note(head).is_some_and(|note| note != 0)
    }

    /// Ends the note of a request.
    pub(crate) fn remove(&self, head: u16) {
        self.set(head, 0);
    }

    /// Returns the requests noted, the oldest first. `used` is the used index that the notes match.
    pub(crate) fn in_order(&self, used: u16) -> Vec<u16> {
        let notes = (0..MAX_REQUESTS).filter_map(|head| Some((head, self.note(head)?)));
        let mut heads: Vec<(u16, u64)> = notes.filter(|(_, note)| *note != 0).collect();
        let next = u64::from(used.wrapping_add(heads.len() as u16));
        // planted: requests are handed over again in the order of their numbers
        heads.sort_by_key(|(_, note)| note.wrapping_sub(next) & POSITION);
        heads.into_iter().map(|(head, _)| head).collect()
    }

    /// Returns the requests that whoever had the queue before has not completed, and passes over
    /// them in the guest's ring. The notes of the last completions may lack their end, if GDM was
    /// killed there.
    pub(crate) fn resume(&self, ring: &mut Vring) -> Result<Vec<u16>, Broken> {
        let used = ring.used();
        let behind = used.wrapping_sub(self.published());
        if behind > ring.size() {
            return Err(Broken::Ring);
        }
        for back in 1..=behind {
            // planted: a request whose completion was the last act of a gdm is done again
            self.remove(ring.completed_at(used.wrapping_sub(back))?);
        }
        self.publish(used);
        let heads = self.in_order(used);
        ring.pass_over(heads.len() as u16);
        Ok(heads)
    }

    /// Returns the requests noted, the oldest first, in the process that noted them or in the next
    /// one, which has not passed over them.
    pub(crate) fn take_over(&self, ring: &mut Vring) -> Result<Vec<u16>, Broken> {
        match ring.next() == ring.used() {
            true => self.resume(ring),
            false => Ok(self.in_order(ring.used())),
        }
    }

    /// Ends the notes of the requests that the used ring names last. The completion comes first: a
    /// GDM that is killed in between leaves notes too many, never one too few.
    pub(crate) fn end(&self, heads: impl IntoIterator<Item = u16>, ring: &Vring) {
        heads.into_iter().for_each(|head| self.remove(head));
        self.publish(ring.used());
    }

    /// Returns the used index that the notes match.
    pub(crate) fn published(&self) -> u16 {
        self.state.published(self.queue).load(Ordering::Relaxed) as u16
    }

    /// Says that the notes match a used index.
    pub(crate) fn publish(&self, used: u16) {
        let word = self.state.published(self.queue);
        word.store(u64::from(used), Ordering::Relaxed);
    }

    /// Returns the word of a note, and by how many bits the note is shifted.
    fn place(&self, head: u16) -> Option<(&'static AtomicU64, u32)> {
        let lane = LANE_BITS * (u32::from(head) % LANES as u32);
        let word = self.state.notes(self.queue, usize::from(head) / LANES);
        (head < MAX_REQUESTS).then_some((word, lane))
    }

    /// Returns the note of a request, 0 if there is none; `None`: no queue has such a request.
    fn note(&self, head: u16) -> Option<u64> {
        let (word, lane) = self.place(head)?;
        let word = word.load(Ordering::Relaxed);
        Some(word >> lane & (IS_THERE | POSITION))
    }

    /// Replaces a note. GDM alone writes the word, so a load and a store will do.
    fn set(&self, head: u16, note: u64) {
        if let Some((word, lane)) = self.place(head) {
            let others = word.load(Ordering::Relaxed) & !((IS_THERE | POSITION) << lane);
            word.store(others | note << lane, Ordering::Relaxed);
        }
    }
}
