//! Deadlines of calls to a backend in another process.
//!
//! Owns: a thread for each connection that ends calls without an answer. The crate `vhost` waits
//! for an answer without limit, and tries again after a time-out of the socket. A socket that is
//! shut down ends each wait at once, whatever part of an answer is there.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sandbox::Role;

/// State that a call and the thread share.
#[derive(Debug, Default)]
struct State {
    /// End of the call in progress.
    until: Option<Instant>,
    /// A call took too long: the sockets are shut down.
    is_expired: bool,
    /// The connection is given up.
    has_ended: bool,
}

/// State with its lock, and the signal of a change.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Locks the state. A panic elsewhere leaves no half-written state: each change is one store.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deadline of the calls of a connection.
#[derive(Debug)]
pub(super) struct Deadline {
    /// State that the thread looks at.
    shared: Arc<Shared>,
    /// Longest time of a call.
    patience: Duration,
}

impl Deadline {
    /// Starts the thread, which first gives up its rights by `confine`. A call that takes longer
    /// than `patience` shuts the sockets down.
    pub(super) fn start(
        sockets: Vec<UnixStream>,
        patience: Duration,
        confine: fn(Role),
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let builder = thread::Builder::new().name("deadline".into());
        builder.spawn(move || {
            confine(Role::Sockets);
            watch(&watched, &sockets);
        })?;
        Ok(Self { shared, patience })
    }

    /// Does a call, for as long as the deadline allows.
    pub(super) fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        self.set(Instant::now().checked_add(self.patience));
        let done = call();
        self.set(None);
        done
    }

    /// Tells whether a call took too long.
    pub(super) fn is_expired(&self) -> bool {
        self.shared.lock().is_expired
    }

    /// Returns for how long a call may take.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Sets the end of the call in progress, or that there is none, and wakes the thread for it.
    fn set(&self, until: Option<Instant>) {
        self.shared.lock().until = until;
        self.shared.changed.notify_one();
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_one();
    }
}

/// Shuts the sockets down when a call takes too long, until the connection is given up.
fn watch(shared: &Shared, sockets: &[UnixStream]) {
    let mut state = shared.lock();
    while !state.has_ended {
        let Some(until) = state.until else {
            let waited = shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            state.until = None;
            state.is_expired = true;
            for socket in sockets {
                let _ = socket.shutdown(Shutdown::Both);
            }
        } else {
            let waited = shared.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
