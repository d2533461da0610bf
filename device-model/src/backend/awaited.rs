//! The stand-in for a backend that is missing: the driver's setup is kept, register writes are
//! answered, requests wait.
//!
//! Requests of a device with a time limit fail once the backend has been missing for so long, and
//! later ones at once, until the backend comes: as QEMU's `reconnect-delay` of NBD. A request fails
//! in the words of its device type (`failure.rs`), which drivers handle; Linux' drivers do not
//! handle DEVICE_NEEDS_RESET.
//!
//! Invariant: no request fails that a backend may still be at. The guest would use memory for
//! something else that the backend then writes.

use std::time::{Duration, Instant};

use super::{Backend, Progress, Remains, TURN, block, console, input, net, rng, vhost_user, vsock};
use crate::board::DeviceKind;
use crate::in_flight::InFlight;
use crate::state::{MAX_QUEUES, NOTED_QUEUES, Word};
use crate::sys;
use crate::transport::{Dependency, Identity};
use crate::vring::{Broken, Chain, Vring};

mod failure;

/// Between two looks whether a lost backend is gone.
const STEP: Duration = Duration::from_millis(100);
/// A stand-in repeats features that a driver accepted: what they depend on was judged then.
const NONE: &[Dependency] = &[];

/// A stand-in for a backend.
#[derive(Debug)]
pub struct Awaited {
    identity: Identity,
    /// Start of the wait.
    since: Instant,
    /// Time after which requests fail.
    limit: Option<Duration>,
    /// A backend that is lost may still be at requests.
    remains: Option<Remains>,
    /// Time of the last look whether the lost backend is gone.
    looked: Instant,
}

impl Awaited {
    /// Makes one that looks as the device did: `features` and `config` are those that were shown
    /// last.
    pub fn new(kind: DeviceKind, features: u64, config: Vec<u8>) -> Self {
        let (device_id, queue_sizes, dependencies) = match kind {
            DeviceKind::Block => (
                block::DEVICE_ID,
                vec![block::QUEUE_SIZE; NOTED_QUEUES],
                NONE,
            ),
            DeviceKind::Rng => (rng::DEVICE_ID, vec![rng::QUEUE_SIZE], NONE),
            DeviceKind::Console => (console::DEVICE_ID, vec![console::QUEUE_SIZE; 2], NONE),
            DeviceKind::Net => (
                net::DEVICE_ID,
                vec![net::QUEUE_SIZE; MAX_QUEUES],
                net::DEPENDENCIES,
            ),
            DeviceKind::Input => (
                input::DEVICE_ID,
                vec![input::QUEUE_SIZE; input::QUEUES],
                NONE,
            ),
            DeviceKind::Vsock => (
                vsock::DEVICE_ID,
                vec![vsock::QUEUE_SIZE; vsock::QUEUES],
                NONE,
            ),
            DeviceKind::VhostUser(device_id) => {
                (device_id, vec![vhost_user::QUEUE_SIZE; NOTED_QUEUES], NONE)
            }
        };
        let identity = Identity {
            device_id,
            features,
            dependencies,
            queue_sizes,
            config,
        };
        Self::of(identity, None)
    }

    /// Makes one that looks as a backend does that is lost.
    pub fn of(identity: Identity, remains: Option<Remains>) -> Self {
        let since = Instant::now();
        Self {
            identity,
            since,
            limit: None,
            remains,
            looked: since,
        }
    }

    /// Has requests fail after this time, of which `missing` has passed; `None`: they wait for as
    /// long as it takes.
    pub fn within(self, limit: Option<Duration>, missing: Duration) -> Self {
        let since = self.since.checked_sub(missing).unwrap_or(self.since);
        Self {
            since,
            limit,
            ..self
        }
    }

    /// Fails what waits in a queue, for a turn. A request may name memory that is not mapped here:
    /// its data is not looked at. Requests that a backend had taken come first.
    fn fail(&self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let notes = InFlight::of(ring.state(), queue);
        let mut chain = Chain::default();
        for head in notes.take_over(ring)? {
            // planted: a request fails that a backend may still be at
            if ring.state().get(Word::InKernel) == 0 {
                ring.take_again(head, &mut chain)?;
                self.fail_one(queue, ring, &chain, notes)?;
            }
        }
        for _ in 0..TURN {
            let position = ring.next();
            if !ring.take_any(&mut chain)? {
                return Ok(Progress::Drained);
            }
            if !notes.add(chain.head, position) {
                return Err(Broken::Chain);
            }
            self.fail_one(queue, ring, &chain, notes)?;
        }
        Ok(Progress::More)
    }

    /// Fails a request that is noted. An answer in part breaks the queue: a driver would read the
    /// rest as zeros, which are success.
    fn fail_one(
        &self,
        queue: usize,
        ring: &mut Vring,
        chain: &Chain,
        notes: InFlight,
    ) -> Result<(), Broken> {
        let memory = ring.memory().clone();
        let mut head = failure::Head::default();
        chain.readable.read(&memory, 0, &mut head);
        let room = chain.writable.length();
        let mut written = 0;
        if let Some((place, answer)) = failure::of(self.identity.device_id, queue, &head, room) {
            written = chain.writable.write(&memory, place, &answer);
            if written != answer.len() {
                return Err(Broken::Address);
            }
        }
        ring.state().count(Word::Errors, 1);
        ring.complete(chain.head, written as u64)?;
        notes.end([chain.head], ring);
        Ok(())
    }
}

impl Backend for Awaited {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn poll(&mut self) {
        let Some(remains) = &self.remains else {
            return;
        };
        if self.looked.elapsed() < STEP {
            return;
        }
        self.looked = Instant::now();
        if sys::is_mapped_by_none(&remains.rings) {
            remains.state.set(Word::InKernel, 0);
            self.remains = None;
        }
    }

    fn pause(&self) -> Option<Duration> {
        let due = self
            .limit
            .map(|limit| limit.saturating_sub(self.since.elapsed()));
        let due = due.filter(|left| !left.is_zero());
        let look = self.remains.as_ref().map(|_| STEP);
        due.into_iter().chain(look).min()
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let is_late = self
            .limit
            .is_some_and(|limit| self.since.elapsed() >= limit);
        if !is_late || ring.is_withdrawn() || !failure::is_known(self.identity.device_id, queue) {
            return Ok(Progress::Waits);
        }
        self.fail(queue, ring)
    }
}
