//! Backends of virtio devices: disk, network card, console, and programs of their own.
//!
//! A backend is added by a type that implements [`Backend`] and a line in
//! [`open`]; `docs/device-model.md` walks through one.

use std::convert::Infallible;
use std::os::fd::RawFd;
use std::sync::mpsc::Sender;

use crate::board::{DeviceKind, DeviceNode};
use crate::state::MAX_QUEUES;
use crate::transport::{Dependency, Identity};
use crate::vring::{Broken, Vring};

pub mod block;
pub mod console;
pub mod net;
pub mod rng;
pub mod vhost_user;

/// State of a queue after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All requests are completed: the guest shall notify the next one.
    Drained,
    /// Requests are left until something happens on the host's side.
    Waits,
    /// The turn is over; there is more to do at once.
    More,
}

/// Requests that a backend completes in a turn, so that queues share a device's thread.
pub const TURN: usize = 32;

/// A device behind the transport. All calls come from its own thread.
pub trait Backend: Send {
    /// Returns the properties that the guest sees. Called once.
    fn identity(&self) -> Identity;

    /// The driver is ready and accepted `features`. The error is a sentence for the log.
    fn activate(&mut self, features: u64) -> Result<(), String> {
        let _ = features;
        Ok(())
    }

    /// Resets the device at the driver's request: the backend no longer uses the guest's memory.
    fn reset(&mut self) {}

    /// GDM was away for longer than a guest should wait: the oldest `pending` requests of a
    /// queue are to fail.
    fn expire(&mut self, queue: usize, pending: u16) {
        let _ = (queue, pending);
    }

    /// The guest wrote `bytes` of the configuration at `offset`.
    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        let _ = (offset, bytes);
    }

    /// Returns the configuration if it is another one since the last call, and whether the guest is
    /// to be told.
    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        None
    }

    /// Returns why the backend serves no longer. Another one takes over what the driver set up, and
    /// the requests that wait.
    fn lost(&mut self) -> Option<String> {
        None
    }

    /// Keeps `lease` for as long as the backend serves, if another one can follow; false if none
    /// does. The end of the lease has the next backend opened.
    fn hold(&mut self, lease: Sender<Infallible>) -> bool {
        let _ = lease;
        false
    }

    /// Descriptors that the thread watches, edge-triggered: when one is ready, all
    /// queues get a turn. Asked again after each turn in which [`Self::watch_changed`].
    fn watch(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Tells whether [`Self::watch`] has something new, and forgets that it has.
    fn watch_changed(&mut self) -> bool {
        false
    }

    /// Something may have happened on the host's side; called before each turn.
    fn poll(&mut self) {}

    /// Serves queue `queue`, for at most [`TURN`] requests.
    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken>;
}

/// The device that is shown where there is no backend yet and no driver uses the device: type 0,
/// which drivers pass over.
#[derive(Debug)]
pub struct Absent;

impl Backend for Absent {
    fn identity(&self) -> Identity {
        Identity {
            device_id: 0,
            features: 0,
            dependencies: &[],
            queue_sizes: Vec::new(),
            config: Vec::new(),
        }
    }

    fn process(&mut self, _queue: usize, _ring: &mut Vring) -> Result<Progress, Broken> {
        Ok(Progress::Waits)
    }
}

/// A stand-in for a backend that is missing: the driver's setup is kept, register writes are
/// answered, requests wait.
#[derive(Debug)]
pub struct Awaited(Identity);

impl Awaited {
    /// Makes one that looks as the device did: `features` and `config` are those that were shown
    /// last.
    pub fn new(kind: DeviceKind, features: u64, config: Vec<u8>) -> Self {
        let (device_id, queue_sizes, dependencies) = match kind {
            DeviceKind::Block => (block::DEVICE_ID, vec![block::QUEUE_SIZE], NONE),
            DeviceKind::Rng => (rng::DEVICE_ID, vec![rng::QUEUE_SIZE], NONE),
            DeviceKind::Console => (console::DEVICE_ID, vec![console::QUEUE_SIZE; 2], NONE),
            DeviceKind::Net => (net::DEVICE_ID, vec![net::QUEUE_SIZE; 2], net::DEPENDENCIES),
            DeviceKind::VhostUser(device_id) => {
                (device_id, vec![vhost_user::QUEUE_SIZE; MAX_QUEUES], NONE)
            }
        };
        Self(Identity {
            device_id,
            features,
            dependencies,
            queue_sizes,
            config,
        })
    }

    /// Makes one that looks as a backend does that is lost.
    pub const fn of(identity: Identity) -> Self {
        Self(identity)
    }
}

const NONE: &[Dependency] = &[];

impl Backend for Awaited {
    fn identity(&self) -> Identity {
        self.0.clone()
    }

    fn process(&mut self, _queue: usize, _ring: &mut Vring) -> Result<Progress, Broken> {
        Ok(Progress::Waits)
    }
}

/// Opens the backend that the manifest names. The error is a sentence for the log. `confine` takes
/// rights from a thread that the backend starts.
pub fn open(
    node: &DeviceNode,
    run_directory: &str,
    confine: fn(),
) -> Result<Box<dyn Backend>, String> {
    Ok(match node.kind {
        DeviceKind::Block => Box::new(block::Block::open(&node.backend, node.read_only)?),
        DeviceKind::Rng => Box::new(rng::Rng),
        DeviceKind::Console => Box::new(console::Console::open(node, run_directory)?),
        DeviceKind::Net => Box::new(net::Net::open(&node.backend, node.mac)?),
        DeviceKind::VhostUser(_) => Box::new(vhost_user::VhostUser::open(node, confine)?),
    })
}
