//! Requests of a disk under way: each goes from step to step by itself, and is completed when it
//! has ended, whatever was taken before it.
//!
//! Owns: the table of these requests. Invariants: a request is noted in the device's page before it
//! begins, and until the used ring names it; what a step needs of it stays where it is until the
//! step has ended; nothing begins or is completed once the guest was stopped.

use std::io::{self, ErrorKind};
use std::time::Duration;

use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_T_FLUSH;

use super::media::{Media, Piece, Work};
use super::request::{Request, Status};
use super::{Block, QUEUES, SECTOR, TURN};
use crate::backend::Progress;
use crate::in_flight::InFlight;
use crate::overlap::{Ended, Overlap};
use crate::state::Word;
use crate::sys::Direction;
use crate::vring::{Broken, Vring};

/// Longest time for which the thread waits for what it has just begun, before it sleeps: fast disks
/// end in it, and their guests are interrupted once for all that ended together.
#[cfg(not(test))]
const LINGER: Duration = Duration::from_micros(200);
/// Tests have no thread that a descriptor wakes.
#[cfg(test)]
const LINGER: Duration = Duration::from_secs(20);

/// Step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Data is moved; `buffered`: through the page cache.
    Moves { buffered: bool },
    /// Written data is made durable, or a flush is done.
    Syncs,
    /// The request has ended so, and has written so many bytes of data to the guest.
    Ended(Status, u64),
}

/// A request under way.
#[derive(Debug)]
struct Flight {
    /// The request with its buffers, of which some may have been moved.
    request: Request,
    /// Queue whose used ring gets the request.
    queue: usize,
    /// Step that the kernel is about, or the end.
    step: Step,
    /// Some of the data went through the page cache.
    is_buffered: bool,
}

/// The requests under way.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// By number; boxed, so that what the kernel was told of stays in its place.
    table: Vec<Option<Box<Flight>>>,
    /// Numbers of requests that have ended, in that order.
    ended: Vec<u64>,
    /// Requests whose memory is used again.
    spare: Vec<Request>,
    /// Queues whose requests of an earlier GDM have begun again.
    resumed: [bool; QUEUES],
}

impl Flights {
    /// Returns a request to be filled in.
    pub(super) fn blank(&mut self) -> Request {
        self.spare.pop().unwrap_or_default()
    }

    /// Tells whether another request of a queue can begin. Each queue has its part of the room: one
    /// that is always full keeps none from the others.
    fn has_room(&self, queue: usize, queues: usize) -> bool {
        let requests = self.table.iter().flatten();
        let count = requests.filter(|flight| flight.queue == queue).count();
        // planted: one queue takes the room of all
        count < Overlap::MOST / queues.max(1)
    }

    /// Tells whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.table.iter().all(Option::is_none)
    }

    /// Adds a request; returns its number.
    fn add(&mut self, flight: Flight) -> u64 {
        let free = self.table.iter().position(Option::is_none);
        let number = free.unwrap_or(self.table.len());
        if free.is_none() {
            self.table.push(None);
        }
        if let Some(place) = self.table.get_mut(number) {
            *place = Some(Box::new(flight));
        }
        number as u64
    }

    /// Returns the request under way with this number.
    fn get(&mut self, number: u64) -> Option<&mut Flight> {
        let place = self.table.get_mut(usize::try_from(number).ok()?)?;
        place.as_deref_mut()
    }

    /// Ends a request.
    fn end(&mut self, number: u64, status: Status, written: u64) {
        if let Some(flight) = self.get(number) {
            flight.step = Step::Ended(status, written);
            self.ended.push(number);
        }
    }

    /// Takes the requests of a queue that have ended, in the order of their ends.
    fn take_ended(&mut self, queue: usize) -> Vec<Flight> {
        let numbers = std::mem::take(&mut self.ended);
        let mut taken = Vec::with_capacity(numbers.len());
        for number in numbers {
            match self.get(number) {
                Some(flight) if flight.queue == queue => {
                    let place = self.table.get_mut(number as usize);
                    taken.extend(place.and_then(Option::take).map(|flight| *flight));
                }
                Some(_) => self.ended.push(number),
                None => {}
            }
        }
        taken
    }

    /// Forgets the requests of a queue, all of which have ended.
    pub(super) fn forget(&mut self, queue: usize) {
        drop(self.take_ended(queue));
    }

    /// Forgets everything: the guest's queues are gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Block {
    /// Begins again what an earlier GDM has begun and not completed, in its order.
    pub(super) fn resume(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        let resumed = self.flights.resumed.get_mut(queue);
        if resumed.is_none_or(|resumed| std::mem::replace(resumed, true)) {
            return Ok(());
        }
        for head in InFlight::of(ring.state(), queue).resume(ring)? {
            let mut request = self.flights.blank();
            ring.take_again(head, &mut request.chain)?;
            request.read(ring)?;
            self.begin(queue, ring, request);
        }
        Ok(())
    }

    /// Takes requests and begins them.
    pub(super) fn take(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let notes = InFlight::of(ring.state(), queue);
        for _ in 0..TURN {
            // planted: a stopped guest's turn goes on
            if ring.is_withdrawn() {
                return Ok(Progress::More);
            }
            if !self.flights.has_room(queue, self.queues) {
                return Ok(Progress::Waits);
            }
            let Some((request, position)) = self.take_one(queue, ring)? else {
                let is_held = self.held.get(queue).is_some_and(Option::is_some);
                // Nobody asked the limits for it, if another queue came first.
                return Ok(match (is_held, self.limits.pause()) {
                    (false, _) => Progress::Drained,
                    (true, Some(_)) => Progress::Waits,
                    (true, None) => Progress::More,
                });
            };
            // A driver that offers a request again which is under way breaks a rule.
            // planted: a request begins without a note
            if !notes.add(request.chain.head, position) {
                return Err(Broken::Chain);
            }
            self.begin(queue, ring, request);
        }
        Ok(Progress::More)
    }

    /// Begins a request; one that fails, or that is done without the disk, ends at once.
    fn begin(&mut self, queue: usize, ring: &Vring, request: Request) {
        let step = self.first_step(queue, ring, &request);
        let number = self.flights.add(Flight {
            request,
            queue,
            step: Step::Syncs,
            is_buffered: false,
        });
        self.go(number, step);
    }

    /// Returns the first step of a request. What has no steps is done here.
    fn first_step(&mut self, queue: usize, ring: &Vring, request: &Request) -> io::Result<Step> {
        let expired = self.expired.get_mut(queue).filter(|left| **left > 0);
        if let Some(left) = expired {
            *left = left.saturating_sub(1);
            return Err(ErrorKind::TimedOut.into());
        }
        // A region that the guest shares with another VM, for example, is not mapped here.
        // planted: data that is not reachable is left out of a request
        if !request.chain.is_reachable() {
            return Err(ErrorKind::InvalidInput.into());
        }
        if let Some((direction, length)) = request.transfer() {
            self.place(request.sector, length)?;
            if direction == Direction::Write {
                self.writable()?;
            }
            return Ok(match length {
                0 => self.behind_data(direction, 0, false),
                _ => Step::Moves { buffered: false },
            });
        }
        if request.kind == VIRTIO_BLK_T_FLUSH {
            // planted: a flush syncs nothing
            let syncs = !self.read_only;
            return Ok(match syncs {
                true => Step::Syncs,
                false => Step::Ended(Status::Ok, 0),
            });
        }
        let written = self.at_once(ring, request)?;
        Ok(Step::Ended(Status::Ok, written))
    }

    /// Returns the step behind the data of a request.
    fn behind_data(&self, direction: Direction, length: u64, is_buffered: bool) -> Step {
        // The page cache does not survive a crash of the device VM, whose guest would not learn of
        // the loss; the cache of a disk does.
        let buffered = is_buffered && self.geometry.is_device;
        match direction {
            Direction::Read => Step::Ended(Status::Ok, length),
            // planted: a write of a driver without FLUSH is not synced
            // planted: what went through the page cache is left there
            Direction::Write if self.write_through || buffered => Step::Syncs,
            Direction::Write => Step::Ended(Status::Ok, 0),
        }
    }

    /// Begins a step of a request, or ends the request.
    fn go(&mut self, number: u64, step: io::Result<Step>) {
        match step {
            Ok(Step::Ended(status, written)) => self.flights.end(number, status, written),
            Ok(Step::Moves { buffered }) => self.begin_move(number, buffered),
            Ok(Step::Syncs) => {
                self.mark(Word::InKernel);
                if let Some(flight) = self.flights.get(number) {
                    flight.step = Step::Syncs;
                }
                self.media.begin(number, Work::Sync);
            }
            Err(error) => self.flights.end(number, Status::of(&error), 0),
        }
    }

    /// Begins to move what is left of a request's data, past the page cache where that can be.
    fn begin_move(&mut self, number: u64, buffered: bool) {
        // The next GDM must know what a killed one has left to the kernel.
        self.mark(Word::InKernel);
        let (geometry, can_be_direct) = (self.geometry, self.media.is_direct());
        let Some(flight) = self.flights.get(number) else {
            return;
        };
        let request = &mut flight.request;
        let Some((direction, length)) = request.transfer() else {
            return;
        };
        request.find(direction, request.moved, length);
        // The first step has checked that the disk has this place.
        let offset = request
            .sector
            .wrapping_mul(SECTOR)
            .wrapping_add(request.moved);
        let is_direct =
            !buffered && can_be_direct && is_aligned(geometry.block_size, &request.vectors, offset);
        flight.is_buffered |= !is_direct;
        flight.step = Step::Moves {
            buffered: !is_direct,
        };
        let piece = Piece {
            direction,
            vectors: &flight.request.vectors,
            offset,
        };
        self.media.begin(
            number,
            match is_direct {
                true => Work::Direct(piece),
                false => Work::Buffered(piece),
            },
        );
    }

    /// Takes in what has ended, and begins what follows from it.
    pub(super) fn advance_all(&mut self, ended: Vec<Ended>) {
        for (number, result) in ended {
            // planted: a stopped guest's request goes on
            if self.is_withdrawn() {
                return;
            }
            if let Some(step) = self.next_step(number, result) {
                self.go(number, step);
            }
        }
    }

    /// Returns the step that follows from a result.
    fn next_step(&mut self, number: u64, result: io::Result<u64>) -> Option<io::Result<Step>> {
        let flight = self.flights.get(number)?;
        let step = flight.step;
        let error = match (step, result) {
            (Step::Ended(..), _) => return None,
            (Step::Syncs, Ok(_)) => return Some(Ok(Step::Ended(Status::Ok, 0))),
            // The file is shorter than it was when it was opened.
            (Step::Moves { .. }, Ok(0)) => ErrorKind::UnexpectedEof.into(),
            (Step::Moves { .. }, Ok(moved)) => {
                flight.request.moved = flight.request.moved.saturating_add(moved);
                let (direction, length) = flight.request.transfer()?;
                if flight.request.moved < length {
                    return Some(Ok(step));
                }
                let is_buffered = flight.is_buffered;
                return Some(Ok(self.behind_data(direction, length, is_buffered)));
            }
            (_, Err(error)) => error,
        };
        Some(match (step, error.kind()) {
            // A file system may want more alignment than it says.
            (Step::Moves { buffered: false }, ErrorKind::InvalidInput) => {
                Ok(Step::Moves { buffered: true })
            }
            (step, ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(step),
            _ => Err(error),
        })
    }

    /// Completes the requests of a queue that have ended.
    pub(super) fn complete(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        let notes = InFlight::of(ring.state(), queue);
        for flight in self.flights.take_ended(queue) {
            let (Step::Ended(status, written), request) = (flight.step, flight.request) else {
                continue;
            };
            // The memory with the status and the ring of a stopped guest is Gear2's by then.
            if ring.is_withdrawn() {
                continue;
            }
            count(ring, &request, status);
            ring.answer(&request.chain, request.room, status.byte(), written)?;
            // planted: a completed request stays noted
            notes.end([request.chain.head], ring);
            self.flights.spare.push(request);
        }
        if self.flights.is_empty() {
            ring.state().set(Word::InKernel, 0);
        }
        Ok(())
    }

    /// Waits until nothing is under way.
    pub(super) fn settle(&mut self) {
        // Bound: each request has a few steps, and none is taken meanwhile.
        loop {
            let ended = self.media.settle();
            if ended.is_empty() {
                return;
            }
            self.advance_all(ended);
        }
    }

    /// Looks at what has ended, and waits a little for what was begun in the last turn.
    pub(super) fn harvest(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        // A GDM that ends here may have ended of one of these.
        self.mark(Word::AtWork);
        let ended = self.media.ended(LINGER);
        self.advance_all(ended);
        if let Some(state) = self.state {
            state.set(Word::AtWork, 0);
        }
    }

    /// Sets a word of the device's page for a GDM that finds it after a kill.
    fn mark(&self, word: Word) {
        if let Some(state) = self.state {
            state.set(word, 1);
        }
    }

    /// Tells whether Gear2 has stopped the guest and asks for its memory.
    fn is_withdrawn(&self) -> bool {
        self.state
            .is_some_and(|state| state.reset_asked().is_some())
    }
}

/// Counts a request that has ended.
fn count(ring: &Vring, request: &Request, status: Status) {
    let (word, count) = match (status, request.transfer()) {
        (Status::Ok, Some((Direction::Read, length))) => (Word::BytesIn, length),
        (Status::Ok, Some((Direction::Write, length))) => (Word::BytesOut, length),
        (Status::Ok, None) => return,
        (Status::IoError | Status::Unsupported, _) => (Word::Errors, 1),
    };
    ring.state().count(word, count);
}

/// Tells whether a transfer may pass the page cache by: the kernel wants place, memory and length
/// in whole logical blocks, which are powers of two.
fn is_aligned(block_size: u32, vectors: &[libc::iovec], offset: u64) -> bool {
    let mask = u64::from(block_size.max(1)).wrapping_sub(1);
    let aligned = |number: u64| number & mask == 0;
    let mut all = vectors.iter();
    aligned(offset) && all.all(|v| aligned(v.iov_base.addr() as u64) && aligned(v.iov_len as u64))
}
