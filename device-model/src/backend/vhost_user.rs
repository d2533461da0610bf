//! Devices whose function is a program of its own: GDM is the front end of the vhost-user protocol,
//! and any back end serves.
//!
//! GDM keeps the transport: registers, notifications, interrupts, and all that outlives a kill. The
//! backend maps the RAM of its guest, and the rings of `relay.rs`, and nothing else of GDM's.
//!
//! Invariants: a backend that ends, or does not keep to the protocol, costs its own device alone,
//! and no request: the requests that it had are given to the next one. A reset is answered when the
//! backend has finished with the guest's memory, or is gone.

use std::convert::Infallible;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use virtio_bindings::virtio_ids::{VIRTIO_ID_BLOCK, VIRTIO_ID_GPU};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{Backend, Opened, Parts, Progress, Remains, TURN};
use crate::board::{DeviceKind, DeviceNode};
use crate::frame;
use crate::in_flight::{InFlight, MAX_REQUESTS};
use crate::progress;
use crate::sandbox::Role;
use crate::state::{DeviceState, NOTED_QUEUES, Word};
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Used, Vring};
use relay::Relay;
use screen::Screen;
use session::{Bounds, Session};

mod deadline;
pub(crate) mod program;
mod relay;
mod screen;
mod session;
#[cfg(test)]
mod tests;

/// Bounds of a connection outside tests. A backend that does not finish within 5 s costs its guest
/// a new connection; a shorter time would cost that to a disk that is merely slow.
const BOUNDS: Bounds = Bounds {
    patience: Duration::from_secs(5),
    finish: Duration::from_secs(5),
    confine: |_| {},
};
/// Between two looks at a backend that finishes what it has.
const STEP: Duration = Duration::from_millis(1);
/// Longest queue that a driver may choose: what can be noted, and what Debian's backends expect.
pub(super) const QUEUE_SIZE: u16 = MAX_REQUESTS;
/// Place of `num_queues` in `struct virtio_blk_config` (virtio 1.2, 5.2.4).
const BLOCK_QUEUES: usize = 34;
/// Place of `num_scanouts` in `struct virtio_gpu_config` (virtio 1.2, 5.7.4).
const GPU_SCANOUTS: usize = 8;
/// Place and length of the tag in `struct virtio_fs_config` (virtio 1.2, 5.11.4).
const TAG_LENGTH: usize = 36;

/// Descriptors of a queue.
struct Events {
    /// Tells the backend of requests.
    kick: EventFd,
    /// Tells of completions. Never read: each store is an edge for whoever waits.
    call: EventFd,
}

/// Why requests are not passed on.
/// The two are told apart, since a mistake of the guest breaks the device, and one of the backend
/// leaves the device to the next backend.
enum Fault {
    /// The guest broke a rule.
    Guest(Broken),
    /// The backend did, or is gone.
    Backend(String),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Guest(broken)
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Backend(why)
    }
}

/// A device whose function is another program.
pub struct VhostUser {
    /// Path of the socket, for messages.
    socket: String,
    /// The connection, on which each call has a deadline.
    session: Session,
    /// Longest time from the stop of a queue until the backend has finished its requests.
    finish: Duration,
    /// Identity that the driver sees; the backend has chosen features and configuration.
    identity: Identity,
    /// Memory of the rings between GDM and the backend.
    rings: crate::memory::Memory,
    /// The file of `rings`, which tells whether the backend maps the memory.
    shared: Arc<File>,
    /// By queue. The next backend gets new ones: the old backend may still signal those it has.
    events: Vec<Events>,
    /// Tells of an error of the backend's.
    error: EventFd,
    /// The queues that the backend serves.
    relays: [Option<Relay>; NOTED_QUEUES],
    /// The device's page, once the backend has the guest's memory.
    state: Option<DeviceState>,
    /// Features that the driver accepted.
    features: u64,
    /// The configuration is another one; whether the guest is to be told.
    news: Option<bool>,
    /// Why the backend serves no longer.
    lost: Option<String>,
    /// The thread that opens backends waits for the end of this.
    lease: Option<Sender<Infallible>>,
    /// The screen of a graphics card, which lasts as long as the connection.
    _screen: Option<Screen>,
}

impl VhostUser {
    /// Connects to the backend, for the process that is its front end. A graphics card has the file
    /// of its screen besides.
    pub(super) fn connect(node: &DeviceNode, run_directory: &str) -> Result<Opened, String> {
        let socket = session::connect(&node.backend);
        let socket = socket.map_err(|error| format!("{}: {error}", node.backend))?;
        let mut parts = vec![socket.into()];
        if device_id(node) == VIRTIO_ID_GPU {
            let path = frame::path(run_directory, node.channel as u64);
            let file = frame::create(&path).map_err(|error| format!("screen {path}: {error}"))?;
            parts.push(file.into());
        }
        Ok(Opened { parts, claim: None })
    }

    /// Makes the device of a connection. `confine` takes rights from a thread.
    pub(super) fn of(
        node: &DeviceNode,
        parts: &mut Parts,
        confine: fn(Role),
    ) -> Result<Self, String> {
        let bounds = Bounds { confine, ..BOUNDS };
        Self::within(node, parts, bounds).map_err(|error| format!("{}: {error}", node.backend))
    }

    /// Connects to the backend in the process that is its front end.
    #[cfg(test)]
    fn open_within(node: &DeviceNode, run_directory: &str, bounds: Bounds) -> Result<Self, String> {
        let opened = Self::connect(node, run_directory)?;
        Self::within(node, &mut opened.into(), bounds)
    }

    /// Opens the session and makes the device. Features, number of queues and configuration of the
    /// backend are judged here, before a driver sees the device. `parts` are the socket and, of a
    /// graphics card, the file of its frame.
    fn within(node: &DeviceNode, parts: &mut Parts, bounds: Bounds) -> Result<Self, String> {
        let mut session = Session::open(parts.take()?.into(), bounds)?;
        let count = node.queues.min(NOTED_QUEUES);
        session.check_queues(count)?;
        let config = first_config(&mut session, node)?;
        let events: Result<Vec<Events>, String> = (0..count).map(|_| Events::new()).collect();
        let screen = match device_id(node) {
            VIRTIO_ID_GPU => Some(open_screen(&session, node, parts.take()?.into(), bounds)?),
            _ => None,
        };
        let (rings, shared) = relay::memory()?;
        Ok(Self {
            socket: node.backend.clone(),
            identity: Identity {
                device_id: device_id(node),
                features: session.features,
                dependencies: &[],
                queue_sizes: vec![QUEUE_SIZE; count],
                config,
            },
            session,
            finish: bounds.finish,
            rings,
            shared,
            events: events?,
            error: eventfd()?,
            relays: [const { None }; NOTED_QUEUES],
            state: None,
            features: 0,
            news: None,
            lost: None,
            lease: None,
            _screen: screen,
        })
    }

    /// Ends the use of the backend. The first reason is kept, since later ones follow from it.
    fn lose(&mut self, why: String) {
        self.lost.get_or_insert(why);
    }

    /// Passes completions and requests on, for a turn. Completions come first: each makes room for
    /// a note, and a driver may offer as many requests as there are notes.
    fn pass_on(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Fault> {
        self.start(queue, ring)?;
        let Some(Some(relay)) = self.relays.get_mut(queue) else {
            return Ok(Progress::Waits);
        };
        let notes = InFlight::of(ring.state(), queue);
        pass_completions(relay, notes, ring)?;
        let (progress, offered) = pass_requests(relay, notes, ring)?;
        if offered && relay.wants_kick()? {
            self.kick(queue);
        }
        Ok(progress)
    }

    /// Passes on what a backend completed before it was lost: the next one would do it again, which
    /// a request with an effect of its own, such as a message that was sent, does not bear.
    fn take_last(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        let Some(Some(relay)) = self.relays.get_mut(queue) else {
            return Ok(());
        };
        match pass_completions(relay, InFlight::of(ring.state(), queue), ring) {
            Err(Fault::Guest(broken)) => Err(broken),
            Ok(()) | Err(Fault::Backend(_)) => Ok(()),
        }
    }

    /// Tells the backend of requests.
    fn kick(&self, queue: usize) {
        if let Some(events) = self.events.get(queue) {
            // An overflow needs 2^64 requests that nobody looked at.
            let _ = events.kick.write(1);
        }
    }

    /// Has the backend serve a queue, from the requests on that an earlier backend had.
    fn start(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Fault> {
        if self.relays.get(queue).is_none_or(Option::is_some) {
            return Ok(());
        }
        self.begin(ring)?;
        let heads = InFlight::of(ring.state(), queue).resume(ring)?;
        let mut relay = Relay::new(&self.rings, queue, ring.size())?;
        for head in &heads {
            relay.offer(*head)?;
        }
        let Some(Events { kick, call }) = self.events.get(queue) else {
            return Ok(());
        };
        let rings = relay.rings(ring)?;
        self.session
            .start(queue, &rings, [kick, call, &self.error])?;
        if let Some(place) = self.relays.get_mut(queue) {
            *place = Some(relay);
        }
        if !heads.is_empty() {
            self.kick(queue);
        }
        Ok(())
    }

    /// Gives the backend the guest's memory, unless it has that. From here on the backend may have
    /// requests that outlive GDM.
    fn begin(&mut self, ring: &Vring) -> Result<(), Fault> {
        if self.state.is_some() {
            return Ok(());
        }
        let regions = relay::regions(ring.memory(), &self.rings)?;
        self.state = Some(ring.state());
        ring.state().set(Word::InKernel, 1);
        self.session.begin(self.features, &regions)?;
        Ok(())
    }

    /// Stops all queues, and waits until the backend has finished with the guest's memory: after
    /// the answer to a reset, the memory may be another program's. A backend that does not finish
    /// in time is lost, and with it all that it has mapped.
    fn stop(&mut self) -> Result<(), String> {
        if self.stop_queues(0..NOTED_QUEUES)? || self.session.reset()? {
            return Ok(());
        }
        Err(self.unfinished("its queues were stopped"))
    }

    /// Stops one queue, as [`Self::stop`] does all. The others go on, so that a backend that does
    /// not finish cannot be reset.
    fn stop_one(&mut self, queue: usize) -> Result<(), String> {
        match self.stop_queues(queue..queue + 1)? {
            true => Ok(()),
            false => Err(self.unfinished("a queue was stopped")),
        }
    }

    /// Stops queues, and tells whether the backend has finished their requests in time.
    fn stop_queues(&mut self, queues: Range<usize>) -> Result<bool, String> {
        let mut bases = Vec::new();
        for queue in queues {
            if let Some(Some(relay)) = self.relays.get(queue) {
                bases.push((relay, self.session.stop(queue)?));
            }
        }
        let begin = Instant::now();
        loop {
            let mut busy = 0;
            for (relay, base) in &bases {
                busy += usize::from(!relay.is_idle(*base)?);
            }
            if busy == 0 || begin.elapsed() >= self.finish {
                return Ok(busy == 0);
            }
            std::thread::sleep(STEP);
        }
    }

    /// Returns why the backend is given up, which has not finished in time.
    fn unfinished(&self, since: &str) -> String {
        let finish = self.finish;
        format!("the backend has not finished its requests {finish:?} after {since}")
    }

    /// Reads the configuration after a change, which is shown to the driver as a whole. `is_news`
    /// says that the driver has to be told, as it did not make the change itself.
    fn renew_config(&mut self, is_news: bool) {
        match self.session.config(self.identity.config.len()) {
            Ok(config) => {
                let queues = self.events.len();
                self.identity.config = adapt(config, self.identity.device_id, queues);
                self.news = Some(is_news || self.news == Some(true));
            }
            Err(why) => self.lose(why),
        }
    }

    /// Says that the backend no longer has the guest's memory.
    fn release_memory(&mut self) {
        if let Some(state) = self.state.take() {
            state.set(Word::InKernel, 0);
        }
    }
}

impl Events {
    /// Makes the descriptors of a queue, for VHOST_USER_SET_VRING_KICK and _CALL.
    fn new() -> Result<Self, String> {
        Ok(Self {
            kick: eventfd()?,
            call: eventfd()?,
        })
    }
}

/// Makes a descriptor that never blocks: the backend has it too, and could fill it up to stop this
/// thread in a write.
fn eventfd() -> Result<EventFd, String> {
    EventFd::new(EFD_NONBLOCK).map_err(|error| format!("eventfd: {error}"))
}

/// Returns the type that the guest sees.
const fn device_id(node: &DeviceNode) -> u32 {
    match node.kind {
        DeviceKind::VhostUser(device_id) => device_id,
        _ => 0,
    }
}

/// Returns the configuration, from the backend or, where a backend leaves it to the front end, from
/// the manifest: that of a file system is its tag and its number of queues.
fn first_config(session: &mut Session, node: &DeviceNode) -> Result<Vec<u8>, String> {
    if node.config_size == 0 {
        return Ok(Vec::new());
    }
    if session.has_config() {
        let config = session.config(node.config_size)?;
        return Ok(adapt(
            config,
            device_id(node),
            node.queues.min(NOTED_QUEUES),
        ));
    }
    if node.tag.is_empty() {
        return Err(format!(
            "the backend does not offer VHOST_USER_PROTOCOL_F_CONFIG, and the manifest's \
             config-size is {}",
            node.config_size
        ));
    }
    let mut config: Vec<u8> = node.tag.bytes().take(TAG_LENGTH).collect();
    config.resize(TAG_LENGTH, 0);
    // The first queue is for requests of high priority.
    let requests = node.queues.min(NOTED_QUEUES).saturating_sub(1) as u32;
    config.extend(requests.to_le_bytes());
    Ok(config)
}

/// Makes the configuration say what is GDM's to say: a disk has the queues that the guest sees,
/// since a driver sets up as many as the configuration names; a graphics card has one screen.
fn adapt(mut config: Vec<u8>, device_id: u32, queues: usize) -> Vec<u8> {
    let queues = (queues as u16).to_le_bytes();
    let (from, bytes): (usize, &[u8]) = match device_id {
        VIRTIO_ID_BLOCK => (BLOCK_QUEUES, &queues),
        VIRTIO_ID_GPU => (GPU_SCANOUTS, &[1, 0, 0, 0]),
        _ => return config,
    };
    if let Some(place) = config.get_mut(from..from + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    config
}

/// Gives the backend of a graphics card its screen.
fn open_screen(
    session: &Session,
    node: &DeviceNode,
    frame: File,
    bounds: Bounds,
) -> Result<Screen, String> {
    let (screen, theirs) = screen::start(frame, node.name(), bounds.confine)?;
    session.set_screen(&theirs)?;
    Ok(screen)
}

/// Passes what the backend has completed to the guest, at once: the buffers of a frame belong
/// together, and only the backend knows which these are.
fn pass_completions(relay: &mut Relay, notes: InFlight, ring: &mut Vring) -> Result<(), Fault> {
    let mut all = Vec::new();
    let taken = take_completions(relay, notes, &mut all);
    // Before a completion that cannot be, the backend may have completed others.
    if !all.is_empty() {
        let written = all.iter().map(|used| u64::from(used.written)).sum();
        ring.state().count(Word::BytesIn, written);
        ring.complete_all(&all)?;
        notes.end(all.iter().map(|used| used.head), ring);
    }
    taken
}

/// Takes all that the backend has completed.
///
/// Each head is looked up in the notes. A head that a backend completes twice would stand in the
/// used ring twice, and the driver may use that head for another request by then.
fn take_completions(relay: &mut Relay, notes: InFlight, all: &mut Vec<Used>) -> Result<(), Fault> {
    while let Some(used) = relay.complete()? {
        // planted: a backend completes a request twice
        if !notes.has(used.head) || all.iter().any(|other| other.head == used.head) {
            let head = used.head;
            let why = format!("the backend completes request {head}, which it does not have");
            return Err(Fault::Backend(why));
        }
        all.push(used);
    }
    Ok(())
}

/// Offers what the guest has made available; also returns whether anything was.
fn pass_requests(
    relay: &mut Relay,
    notes: InFlight,
    ring: &mut Vring,
) -> Result<(Progress, bool), Fault> {
    let mut chain = Chain::default();
    for count in 0..TURN {
        let position = ring.next();
        if !ring.take(&mut chain)? {
            return Ok((Progress::Drained, count > 0));
        }
        if !notes.add(chain.head, position) {
            return Err(Fault::Guest(Broken::Chain));
        }
        ring.state().count(Word::BytesOut, chain.readable.length());
        relay.offer(chain.head)?;
    }
    Ok((Progress::More, true))
}

impl Backend for VhostUser {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn activate(&mut self, features: u64) -> Result<(), String> {
        self.features = features;
        Ok(())
    }

    fn reset(&mut self) {
        if self.state.is_none() || self.lost.is_some() {
            return;
        }
        match progress::in_kernel(|| self.stop()) {
            Ok(()) => {
                self.release_memory();
                if self.identity.device_id == VIRTIO_ID_GPU {
                    self.lose(
                        "the driver reset the card, which the next backend begins anew".into(),
                    );
                }
            }
            Err(why) => self.lose(why),
        }
        self.relays = [const { None }; NOTED_QUEUES];
    }

    fn close(&mut self, queue: usize, ring: Option<&mut Vring>) -> Result<(), Broken> {
        if self.relays.get(queue).is_none_or(Option::is_none) || self.lost.is_some() {
            return Ok(());
        }
        // planted: a closed queue's requests are left to the backend
        if let Err(why) = progress::in_kernel(|| self.stop_one(queue)) {
            self.lose(why);
        }
        let completed = ring.map_or(Ok(()), |ring| self.take_last(queue, ring));
        if let Some(place) = self.relays.get_mut(queue) {
            *place = None;
        }
        completed
    }

    // The next turn has the backend serve the queue again, from the next request on.
    fn finish(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        self.close(queue, Some(ring))
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len());
        if !self.session.has_config() || end > self.identity.config.len() || self.lost.is_some() {
            return;
        }
        match self.session.set_config(offset, bytes) {
            Ok(()) => self.renew_config(false),
            Err(why) => self.lose(why),
        }
    }

    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        let is_news = self.news.take()?;
        Some((self.identity.config.clone(), is_news))
    }

    fn watch(&self) -> Vec<RawFd> {
        let calls = self.events.iter().map(|events| events.call.as_raw_fd());
        let others = self.session.descriptors().chain([self.error.as_raw_fd()]);
        calls.chain(others).collect()
    }

    fn poll(&mut self) {
        if self.lost.is_some() {
            return;
        }
        match self.session.news(self.error.as_raw_fd()) {
            Ok(true) => self.renew_config(true),
            Ok(false) => {}
            Err(why) => self.lose(why),
        }
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if ring.is_withdrawn() {
            return Ok(Progress::Waits);
        }
        if self.lost.is_some() {
            self.take_last(queue, ring)?;
            return Ok(Progress::Waits);
        }
        match self.pass_on(queue, ring) {
            Ok(progress) => Ok(progress),
            Err(Fault::Guest(broken)) => Err(broken),
            Err(Fault::Backend(why)) => {
                self.lose(why);
                Ok(Progress::Waits)
            }
        }
    }

    fn lost(&mut self) -> Option<String> {
        let why = self.lost.as_ref()?;
        let message = format!("{}: {why}", self.socket);
        if self.session.has_ended() {
            // A backend that closed its socket has finished with the guest's memory, or is dead.
            self.release_memory();
        }
        Some(message)
    }

    fn remains(&mut self) -> Option<Remains> {
        let rings = Arc::clone(&self.shared);
        self.state.map(|state| Remains { rings, state })
    }

    fn hold(&mut self, lease: Sender<Infallible>) -> bool {
        self.lease = Some(lease);
        true
    }
}
