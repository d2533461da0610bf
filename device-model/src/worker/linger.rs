//! Looking without being woken: for the register write that follows another one, and for the
//! request that follows a completion.
//!
//! A driver that waits for one request at a time makes the next one soon after the completion of
//! the last. A thread that sleeps meanwhile costs a notification, a line's interrupt with its two
//! accesses and its end, and the falling asleep and waking up of the device VM. A thread that looks
//! for a while costs that while, at most [`REQUEST_US`], and only as long as requests come that
//! soon.

use std::sync::atomic::Ordering;

use super::Worker;
use crate::mapping::{counter, relax};
use crate::state::Word;

/// Time for which a thread looks for the next request, in microseconds.
const REQUEST_US: u64 = 100;
/// Looks in vain, one after the other, after which a thread looks for no request for a while.
const TRIES: u8 = 4;
/// Turns for which it does not.
const REST: u8 = 64;

/// Whether it is worth looking for the next request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habit {
    /// Looks in vain since the last request that came in time.
    vain: u8,
    /// Turns that are left without a look.
    rest: u8,
}

impl Habit {
    /// Tells whether to look after this turn.
    fn is_worth_it(&mut self) -> bool {
        let is_worth_it = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        is_worth_it
    }

    /// Notes whether a request came while the thread looked. After a rest one more look in vain
    /// begins the next rest.
    fn note(&mut self, came: bool) {
        self.vain = if came { 0 } else { self.vain + 1 };
        if self.vain >= TRIES {
            self.vain = TRIES - 1;
            self.rest = REST;
        }
    }
}

impl Worker {
    /// Looks at everything, and for what is likely to follow; true if there is more to do at once.
    pub(crate) fn serve(&mut self) -> bool {
        // Decided ahead: a guest is not asked for a notification that nobody needs.
        self.is_silent = self.looks_for_requests();
        let requests = self.state.get(Word::Requests);
        let more = self.turn();
        let is_silent = core::mem::take(&mut self.is_silent);
        let lingers = core::mem::take(&mut self.lingers);
        if more {
            return true;
        }
        if !self.transport.active() {
            return lingers && self.linger();
        }
        if !is_silent {
            return false;
        }
        let completed = requests != self.state.get(Word::Requests);
        if completed && self.await_request() {
            return true;
        }
        // The last turn before a sleep asks for notifications.
        // planted: a thread that has looked in vain asks for no notification
        let more = self.turn();
        more | self.lingers
    }

    /// Tells whether to look for requests by itself after this turn.
    fn looks_for_requests(&mut self) -> bool {
        !self.wiring.spin
            && self.backend.looks_ahead()
            && self.transport.active()
            && self.habit.is_worth_it()
    }

    /// Looks for the next request for a while; true if there is one. A vCPU that waits for a
    /// register write ends the look. Requests that are under way do so too: their ends wake a thread
    /// that sleeps, and their driver has not waited for the one that is complete.
    fn await_request(&mut self) -> bool {
        let ticks = self.ticks(REQUEST_US);
        let begin = counter();
        // A rate may hold back a request of the turn that has just ended.
        let is_alone = self.backend.looks_ahead() && self.backend.is_at_rest();
        let mut came = false;
        while is_alone && !came && !self.is_asked() && counter().wrapping_sub(begin) < ticks {
            relax();
            let rings = self.transport.rings();
            came = rings.iter().flatten().any(|ring| ring.pending() != 0);
        }
        self.habit.note(came);
        came
    }

    /// Looks for register writes by itself until none has come for a while, or the driver is ready:
    /// its requests are told of by the line. Returns whether there is more to do at once.
    fn linger(&mut self) -> bool {
        let ticks = self.ticks(self.wiring.linger_us);
        self.state.set_looking(true);
        let mut more = false;
        let mut lingers = true;
        while lingers && !more && !self.transport.active() {
            let begin = counter();
            while !self.is_asked() && counter().wrapping_sub(begin) < ticks {
                relax();
            }
            more = self.turn();
            lingers = core::mem::take(&mut self.lingers);
        }
        self.state.set_looking(false);
        // Gear2 may have posted an access before it saw the flag. A whole turn follows, so that the
        // queues are served before the next access is answered.
        let last = self.turn();
        more | last | self.lingers
    }

    /// Tells whether there is an access to this device.
    fn is_asked(&self) -> bool {
        self.slots().any(|slot| self.is_ours(slot))
    }

    /// Returns a time in ticks of the counter.
    pub(super) fn ticks(&self, microseconds: u64) -> u64 {
        self.hz() * microseconds / 1_000_000
    }

    /// Returns the frequency of the counter.
    pub(super) fn hz(&self) -> u64 {
        let hz = self.wiring.region.header.counter_hz.load(Ordering::Relaxed);
        hz.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks in a row of turns, of which none is followed by a request in time.
    fn looks_in_vain(habit: &mut Habit, turns: u32) -> u32 {
        let mut looks = 0;
        for _ in 0..turns {
            if habit.is_worth_it() {
                habit.note(false);
                looks += 1;
            }
        }
        looks
    }

    #[test]
    fn a_thread_that_looks_in_vain_rests() {
        let mut habit = Habit::default();
        assert_eq!(looks_in_vain(&mut habit, 4), 4);
        assert_eq!(looks_in_vain(&mut habit, 64), 0);
        assert_eq!(looks_in_vain(&mut habit, 6500), 100);
        while !habit.is_worth_it() {}
        habit.note(true);
        assert_eq!(looks_in_vain(&mut habit, 5), 4);
    }

    #[test]
    fn a_thread_whose_requests_come_in_time_looks_each_time() {
        let mut habit = Habit::default();
        for _ in 0..1000 {
            assert!(habit.is_worth_it());
            habit.note(true);
        }
    }
}
