//! Backends of virtio devices: disk, network card, console, and programs of their own.
//!
//! A backend is added by a type that implements [`Backend`] and a line each in [`open`] and in
//! [`make`]; `docs/device-model.md` walks through one.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Debug;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

pub use self::awaited::Awaited;
pub use self::remains::Remains;
use crate::board::{DeviceKind, DeviceNode};
use crate::order::{Answer, Order};
use crate::sandbox::Role;
use crate::state::DeviceState;
use crate::transport::Identity;
use crate::vring::{Broken, Vring};
use block::Medium;

pub mod awaited;
pub mod block;
pub mod console;
pub mod input;
pub mod net;
mod remains;
pub mod rng;
pub mod vhost_user;
pub mod vsock;

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
    /// Returns the properties that the guest sees.
    fn identity(&self) -> Identity;

    /// Takes the device's page, in which the backend keeps what must outlive this GDM. Called before
    /// [`Self::identity`].
    fn keep(&mut self, state: DeviceState) {
        let _ = state;
    }

    /// The driver is ready and accepted `features`. The error is a sentence for the log.
    fn activate(&mut self, features: u64) -> Result<(), String> {
        let _ = features;
        Ok(())
    }

    /// The driver was set up, and served, by an earlier GDM; called behind [`Self::activate`].
    fn take_over(&mut self) {}

    /// Resets the device at the driver's request: the backend no longer uses the guest's memory.
    fn reset(&mut self) {}

    /// The driver closes a queue, which has no turn from here on until the next
    /// [`Self::activate`]. Requests of the queue that are under way end and are completed here, or
    /// the backend is [`Self::lost`]: the driver uses the memory for something else afterwards.
    /// Nothing that waits for its turn may hold other queues back. A device that is broken
    /// completes nothing: there is no `ring`.
    fn close(&mut self, queue: usize, ring: Option<&mut Vring>) -> Result<(), Broken> {
        let _ = (queue, ring);
        Ok(())
    }

    /// The VM was paused: requests of the queue that are under way end and are completed here, or the
    /// backend is [`Self::lost`]. What waits for its turn goes on to wait, and the queue has turns
    /// again when the VM is resumed. A backend that has nothing under way between two turns need not
    /// do anything.
    fn finish(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        let _ = (queue, ring);
        Ok(())
    }

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

    /// Returns what tells when a backend that is lost has left the guest's memory, if it may still
    /// have that.
    fn remains(&mut self) -> Option<Remains> {
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

    /// Says which descriptors ended the thread's sleep, among them those of [`Self::watch`] that
    /// have news; none: a second was over. A thread that polls says nothing.
    fn woken(&mut self, by: &[RawFd]) {
        let _ = by;
    }

    /// Tells whether [`Self::watch`] has something new, and forgets that it has.
    fn watch_changed(&mut self) -> bool {
        false
    }

    /// Returns for how long requests of the guest have to wait until the backend is due by itself,
    /// whatever the guest and the host do.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// Does what a person orders.
    fn obey(&mut self, order: Order) -> Answer {
        Err(match order {
            Order::Detach | Order::Attach(_) => NO_MEDIUM.into(),
            Order::Resize => "only a disk of the device model's own has a size".into(),
            Order::Link(_) => "only a network card of the device model's own has a link".into(),
            Order::Power => "only an input device has a power button".into(),
        })
    }

    /// Puts a medium into a disk, in the place of what is there; returns its size in bytes.
    fn insert(&mut self, medium: Medium) -> Answer {
        drop(medium);
        Err(NO_MEDIUM.into())
    }

    /// Tells whether a driver's next request is likely to follow soon after a completion: the thread
    /// looks for it by itself for a while.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Tells whether the driver waits for no completion of a queue, so that the interrupt for one may
    /// wait for a while. The driver of a small system may wait for what Linux does not wait for:
    /// asked only for one that has accepted VIRTIO_F_EVENT_IDX and VIRTIO_F_INDIRECT_DESC.
    fn may_tell_late(&self, queue: usize) -> bool {
        let _ = queue;
        false
    }

    /// Tells whether nothing is under way between two turns. Asked if [`Self::looks_ahead`].
    fn is_at_rest(&self) -> bool {
        true
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

/// Answer of a device whose medium cannot be another one.
pub(crate) const NO_MEDIUM: &str = "only a disk of the device model's own has a medium, \
    and once it is served";

/// A backend that is open: descriptors for the process of its guest, which may open nothing.
#[derive(Debug, Default)]
pub struct Opened {
    /// In the order in which the backend takes them.
    pub parts: Vec<OwnedFd>,
    /// Kept by GDM for as long as the process has the descriptors: the claim on a disk.
    pub claim: Option<Box<dyn Claim>>,
}

/// A thing that GDM keeps for a backend that a process serves; the thing's end frees the backend.
pub trait Claim: Debug + Send {}

/// Descriptors that a process of a guest was given, and takes in their order.
#[derive(Debug, Default)]
pub struct Parts {
    /// Entries that nobody has taken yet.
    descriptors: VecDeque<OwnedFd>,
    /// The claim, in a process that opens for itself what it serves.
    claim: Option<Box<dyn Claim>>,
}

impl Parts {
    /// Adds the next one.
    pub fn push(&mut self, part: OwnedFd) {
        self.descriptors.push_back(part);
    }

    /// Takes the next one.
    fn take(&mut self) -> Result<OwnedFd, String> {
        let part = self.descriptors.pop_front();
        part.ok_or("a descriptor is missing".into())
    }

    /// Takes the next one, if there is one.
    fn take_last(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Tells whether none is left.
    fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Takes the claim, if this process has it.
    fn take_claim(&mut self) -> Option<Box<dyn Claim>> {
        self.claim.take()
    }
}

impl From<Opened> for Parts {
    fn from(opened: Opened) -> Self {
        Self {
            descriptors: opened.parts.into(),
            claim: opened.claim,
        }
    }
}

/// Takes rights from a thread that a backend starts.
pub type Confine = fn(Role);

/// Opens the backend that the manifest names, which needs rights that the process of a guest does
/// not have. The error is a sentence for the log.
pub fn open(node: &DeviceNode, run_directory: &str, confine: Confine) -> Result<Opened, String> {
    match node.kind {
        DeviceKind::Block => block::Block::claim(&node.backend, node.read_only),
        DeviceKind::Rng => Ok(Opened::default()),
        DeviceKind::Console => console::Console::claim(node, run_directory),
        DeviceKind::Net => net::Net::claim(node),
        DeviceKind::Input => input::Input::claim(&node.backend),
        DeviceKind::Vsock => vsock::Vsock::claim(&node.backend, confine),
        DeviceKind::VhostUser(_) => vhost_user::VhostUser::connect(node, run_directory),
    }
}

/// Makes the backend of the descriptors that [`open`] has opened, in the process of the guest. The
/// error is a sentence for the log. `confine` takes rights from a thread that the backend starts.
pub fn make(
    node: &DeviceNode,
    mut parts: Parts,
    confine: Confine,
) -> Result<Box<dyn Backend>, String> {
    let parts = &mut parts;
    Ok(match node.kind {
        DeviceKind::Block => Box::new(block::Block::of_node(parts, node)?),
        DeviceKind::Rng => Box::new(rng::Rng),
        DeviceKind::Console => Box::new(console::Console::of(parts)?),
        DeviceKind::Net => Box::new(net::Net::of(parts, node)?),
        DeviceKind::Input => Box::new(input::Input::of(parts, &node.backend)?),
        DeviceKind::Vsock => Box::new(vsock::Vsock::of(parts, node)?),
        DeviceKind::VhostUser(_) => Box::new(vhost_user::VhostUser::of(node, parts, confine)?),
    })
}
