//! A connection to a backend: its negotiation, and the messages of the protocol.
//!
//! Invariant: each call ends within the deadline, and an error names the message.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost::vhost_user::{
    Frontend, FrontendReqHandler, HandlerResult, VhostUserFrontend, VhostUserFrontendReqHandler,
    VhostUserProtocolFeatures as Protocol, VhostUserVirtioFeatures,
};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

use super::deadline::Deadline;
use crate::progress;
use crate::sandbox::Role;
use crate::state::NOTED_QUEUES;
use crate::sys::{self, Wait};

/// `VHOST_USER_F_PROTOCOL_FEATURES`, beside the features of virtio.
const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
/// Features that GDM shows to every driver and that the backend has to understand: descriptors are
/// read by the backend.
const NEEDED: u64 = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_INDIRECT_DESC;
/// `VHOST_USER_GPU_SET_SOCKET`, which the crate `vhost` has no function for, with the version of
/// the protocol and without a body.
const GPU_SET_SOCKET: [u32; 3] = [33, 1, 0];
/// Features of device types (virtio 1.2, 2.2). The rings and the transport are GDM's.
const OF_DEVICE_TYPES: u64 = (1 << 24) - 1;
/// Features of the protocol that GDM has a use for. `INFLIGHT_SHMFD` is none: GDM notes requests in
/// flight by itself, which works with every backend.
const WANTED: Protocol = Protocol::MQ
    .union(Protocol::REPLY_ACK)
    .union(Protocol::CONFIG)
    .union(Protocol::BACKEND_REQ)
    .union(Protocol::RESET_DEVICE);

/// News by the backend's own channel.
#[derive(Debug, Default)]
struct Changes {
    config: AtomicBool,
}

impl VhostUserFrontendReqHandler for Changes {
    fn handle_config_change(&self) -> HandlerResult<u64> {
        self.config.store(true, Ordering::Relaxed);
        Ok(0)
    }
}

/// How the calls of a connection are bounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Longest time of a call.
    pub(super) patience: Duration,
    /// Longest time from the stop of a queue until the backend has finished its requests.
    pub(super) finish: Duration,
    /// Takes rights from the thread that watches the time.
    pub(super) confine: fn(Role),
}

/// A connection to a backend.
pub(super) struct Session {
    front: Frontend,
    /// The main socket once more, to look for its end. As a file: reads of a socket are another
    /// system call.
    socket: File,
    channel: Option<FrontendReqHandler<Changes>>,
    changes: Arc<Changes>,
    deadline: Deadline,
    /// Features of the device type that the backend offers.
    pub(super) features: u64,
    /// Features of the protocol that both sides have: a message of another one has no answer.
    protocol: Protocol,
}

impl Session {
    /// Negotiates with the backend. The error does not name its path.
    pub(super) fn open(socket: UnixStream, bounds: Bounds) -> Result<Self, String> {
        let changes = Arc::new(Changes::default());
        let channel = FrontendReqHandler::new(Arc::clone(&changes)).map_err(in_words)?;
        let copies = [sys::same_socket(&socket), sys::same_socket(&channel)];
        let copies: Result<Vec<UnixStream>, _> = copies.into_iter().collect();
        let copies = copies.map_err(in_words)?;
        let deadline = Deadline::start(copies, bounds.patience, bounds.confine);
        let mut session = Self {
            socket: File::from(OwnedFd::from(socket.try_clone().map_err(in_words)?)),
            front: Frontend::from_stream(socket, NOTED_QUEUES as u64),
            channel: Some(channel),
            changes,
            deadline: deadline.map_err(in_words)?,
            features: 0,
            protocol: Protocol::empty(),
        };
        session.negotiate()?;
        Ok(session)
    }

    /// Agrees with the backend on features. A backend that misses one that GDM builds on is refused
    /// here, by name: later it would fail at the guest's first request, with no reason to show.
    ///
    /// Answers are asked for as soon as both sides have `REPLY_ACK`: without it a message that the
    /// backend refuses, such as a memory table that it cannot map, fails in silence.
    fn negotiate(&mut self) -> Result<(), String> {
        self.call("SET_OWNER", |front| front.set_owner())?;
        let features = self.call("GET_FEATURES", |front| front.get_features())?;
        for (bits, name) in [
            (PROTOCOL_FEATURES, "VHOST_USER_F_PROTOCOL_FEATURES"),
            (1 << VIRTIO_F_VERSION_1, "VIRTIO_F_VERSION_1"),
            (1 << VIRTIO_RING_F_INDIRECT_DESC, "VIRTIO_F_INDIRECT_DESC"),
        ] {
            if features & bits != bits {
                return Err(format!("the backend does not offer {name}"));
            }
        }
        self.features = features & OF_DEVICE_TYPES;
        let offered = self.call("GET_PROTOCOL_FEATURES", |front| {
            front.get_protocol_features()
        })?;
        self.protocol = offered & WANTED;
        let accepted = self.protocol;
        self.call("SET_PROTOCOL_FEATURES", |front| {
            front.set_protocol_features(accepted)
        })?;
        if accepted.contains(Protocol::REPLY_ACK) {
            let flags = vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY;
            self.front.set_hdr_flags(flags);
        }
        self.open_channel()
    }

    /// Gives the backend its channel for news, if the backend has a use for it.
    fn open_channel(&mut self) -> Result<(), String> {
        if !self.protocol.contains(Protocol::BACKEND_REQ) {
            self.channel = None;
            return Ok(());
        }
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        channel.set_reply_ack_flag(self.protocol.contains(Protocol::REPLY_ACK));
        let theirs = channel.get_tx_raw_fd();
        self.call("SET_BACKEND_REQ_FD", |front| {
            front.set_backend_request_fd(&theirs)
        })
    }

    /// Gives the backend of a graphics card the socket of its screen. The message has no answer.
    pub(super) fn set_screen(&self, screen: &UnixStream) -> Result<(), String> {
        let message: Vec<u8> = GPU_SET_SOCKET
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let socket = sys::same_socket(&self.socket).map_err(in_words)?;
        let sent = socket.send_with_fd(&*message, screen.as_raw_fd());
        let sent = sent.map_err(|error| format!("VHOST_USER_GPU_SET_SOCKET: {error}"))?;
        match sent == message.len() {
            true => Ok(()),
            false => Err("VHOST_USER_GPU_SET_SOCKET: the socket is full".into()),
        }
    }

    /// Refuses a backend that has fewer queues than the manifest says. A backend without `MQ` does
    /// not tell their number; a queue that it lacks fails when the driver starts it.
    pub(super) fn check_queues(&mut self, wanted: usize) -> Result<(), String> {
        if !self.protocol.contains(Protocol::MQ) {
            return Ok(());
        }
        let count = self.call("GET_QUEUE_NUM", |front| front.get_queue_num())?;
        // planted: a backend with too few queues is accepted
        if count < wanted as u64 {
            return Err(format!(
                "the backend has {count} queues and the manifest says {wanted} (queues)"
            ));
        }
        Ok(())
    }

    /// Tells whether the backend has the configuration.
    pub(super) fn has_config(&self) -> bool {
        self.protocol.contains(Protocol::CONFIG)
    }

    /// Reads the configuration, as far as the device type defines it: `size` bytes. A backend that
    /// has fewer answers with another size, which the crate refuses.
    pub(super) fn config(&mut self, size: usize) -> Result<Vec<u8>, String> {
        let (length, flags) = (size as u32, VhostUserConfigFlags::empty());
        let room = vec![0; size];
        let answer = self.call("GET_CONFIG", |front| {
            front.get_config(0, length, flags, &room)
        });
        let (_, config) =
            answer.map_err(|error| format!("{error} (the manifest's config-size is {size})"))?;
        Ok(config)
    }

    /// Writes to the configuration.
    pub(super) fn set_config(&mut self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        let offset = offset as u32;
        let flags = VhostUserConfigFlags::WRITABLE;
        self.call("SET_CONFIG", |front| front.set_config(offset, flags, bytes))
    }

    /// Tells the backend of the driver's features and of the memory.
    pub(super) fn begin(
        &mut self,
        features: u64,
        regions: &[VhostUserMemoryRegionInfo],
    ) -> Result<(), String> {
        let features = features & (OF_DEVICE_TYPES | NEEDED) | PROTOCOL_FEATURES;
        self.call("SET_FEATURES", |front| front.set_features(features))?;
        self.call("SET_MEM_TABLE", |front| front.set_mem_table(regions))
            .map(drop)
    }

    /// Starts a queue whose rings begin at index 0.
    ///
    /// A ring starts at its first kick (vhost-user, "Ring states"), so that the kick's descriptor
    /// comes behind size, index and addresses. With `VHOST_USER_F_PROTOCOL_FEATURES` a ring is
    /// disabled until it is enabled, which is last.
    pub(super) fn start(
        &mut self,
        queue: usize,
        rings: &VringConfigData,
        [kick, call, error]: [&EventFd; 3],
    ) -> Result<(), String> {
        self.call("SET_VRING_NUM", |front| {
            front.set_vring_num(queue, rings.queue_size)
        })?;
        self.call("SET_VRING_BASE", |front| front.set_vring_base(queue, 0))?;
        self.call("SET_VRING_ADDR", |front| front.set_vring_addr(queue, rings))?;
        self.call("SET_VRING_ERR", |front| front.set_vring_err(queue, error))?;
        self.call("SET_VRING_CALL", |front| front.set_vring_call(queue, call))?;
        self.call("SET_VRING_KICK", |front| front.set_vring_kick(queue, kick))?;
        self.call("SET_VRING_ENABLE", |front| {
            front.set_vring_enable(queue, true)
        })
    }

    /// Stops a queue; returns the index behind the last request that the backend has taken.
    /// Requests that it took may still be in progress: [`Relay::is_idle`](super::Relay::is_idle)
    /// tells.
    pub(super) fn stop(&mut self, queue: usize) -> Result<u16, String> {
        let base = self.call("GET_VRING_BASE", |front| front.get_vring_base(queue))?;
        u16::try_from(base).map_err(|_| format!("GET_VRING_BASE: {base} is no index of a ring"))
    }

    /// Resets the device, if the backend knows how; false if it does not.
    pub(super) fn reset(&mut self) -> Result<bool, String> {
        if !self.protocol.contains(Protocol::RESET_DEVICE) {
            return Ok(false);
        }
        self.call("RESET_DEVICE", |front| front.reset_device())?;
        Ok(true)
    }

    /// Returns the descriptors that have news, in the order in which [`Self::news`] looks at them.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let channel = self.channel.as_ref().map(AsRawFd::as_raw_fd);
        std::iter::once(self.socket.as_raw_fd()).chain(channel)
    }

    /// Takes the backend's news; true if the configuration has changed. `error` is what the backend
    /// tells of errors by. A backend sends nothing by the main socket that it is not asked for.
    pub(super) fn news(&mut self, error: RawFd) -> Result<bool, String> {
        let sources = std::iter::once(error).chain(self.descriptors());
        let ready = sys::wait(&sources.map(readable).collect::<Vec<Wait>>(), 0);
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            return Err("the backend reports an error of a queue".into());
        }
        if ready.next() == Some(true) {
            return Err(match self.has_ended() {
                true => "the backend closed the socket".into(),
                false => "the backend sends what it was not asked for".into(),
            });
        }
        if ready.next() == Some(true) {
            self.read_channel()?;
        }
        Ok(self.changes.config.swap(false, Ordering::Relaxed))
    }

    /// Tells whether the backend has closed the socket.
    pub(super) fn has_ended(&self) -> bool {
        // A socket that the deadline shut down looks the same.
        !self.deadline.is_expired()
            && sys::wait(&[readable(self.socket.as_raw_fd())], 0) == [true]
            && (&self.socket).read(&mut [0]).unwrap_or(0) == 0
    }

    fn read_channel(&mut self) -> Result<(), String> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        let deadline = &self.deadline;
        let read = progress::in_kernel(|| deadline.run(|| channel.handle_request()));
        match read {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the backend's own channel: {error}")),
        }
    }

    /// Does a call within the deadline.
    fn call<T>(
        &mut self,
        what: &str,
        call: impl FnOnce(&mut Frontend) -> vhost::Result<T>,
    ) -> Result<T, String> {
        let (front, deadline) = (&mut self.front, &self.deadline);
        let answer = progress::in_kernel(|| deadline.run(|| call(front)));
        answer.map_err(|error| match self.deadline.is_expired() {
            true => format!("{what}: no answer for {:?}", self.deadline.patience()),
            false => format!("{what}: {error}"),
        })
    }
}

/// Connects, and says what is there instead of a backend.
pub(super) fn connect(path: &str) -> Result<UnixStream, String> {
    let is_other = fs::metadata(path).is_ok_and(|file| !file.file_type().is_socket());
    match UnixStream::connect(path) {
        Ok(socket) => Ok(socket),
        Err(_) if is_other => Err("is no socket".into()),
        Err(error) => Err(format!("no backend: {error}")),
    }
}

fn readable(fd: RawFd) -> Wait {
    Wait {
        fd,
        read: true,
        write: false,
    }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
