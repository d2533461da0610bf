//! Progress of the threads that serve guests.
//!
//! Owns: a count of steps of each such thread, and the hub's judgement of them. A working thread
//! takes a step with each turn; a waiting thread takes at least one step a second, because its
//! waits end after that. A thread without a step therefore spins or waits for another thread, and
//! will serve no guest any longer. A thread that waits for a transfer by the kernel may wait as
//! long as the disk takes: it announces the wait, and is not judged meanwhile.
//!
//! Time is counted in checks by the hub, a thread beside those that it judges: a machine that is
//! short of CPU time delays both.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys;

#[cfg(test)]
mod tests;

/// Looks without a step that make a thread late: the heartbeat waits for it.
pub(crate) const LATE_LOOKS: u32 = 4;
/// Looks without a step that make a thread stuck: no return is expected.
pub(crate) const STUCK_LOOKS: u32 = 20;

/// Progress of a thread.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of steps; 0 before the thread serves a guest.
    steps: AtomicU64,
    /// The thread waits for the kernel, as long as that takes.
    waits_for_kernel: AtomicBool,
    /// The thread has ended: nobody serves its guest.
    has_ended: AtomicBool,
    /// The process that the thread keeps is late.
    is_late: AtomicBool,
}

impl Progress {
    /// Says whether the process that the thread keeps is late. GDM is late with it, and never
    /// stuck: the thread ends such a process.
    pub(crate) fn set_late(&self, is_late: bool) {
        self.is_late.store(is_late, Ordering::Relaxed);
    }
}

/// The calling thread's own, until the thread ends.
struct Own(Arc<Progress>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Does something with the calling thread's progress; a thread without one is watched by nobody.
fn with_own(act: impl FnOnce(&Progress)) {
    OWN.with_borrow(|own| {
        if let Some(Own(progress)) = own {
            act(progress);
        }
    });
}

/// Prepares to serve guests: an end of the calling thread is noticed from here on, however it comes
/// about. The thread may take its time until its first [`step`].
pub(crate) fn prepare(progress: &Arc<Progress>) {
    OWN.set(Some(Own(Arc::clone(progress))));
}

/// Serves guests from here on: the calling thread has to get on.
pub(crate) fn begin(progress: &Arc<Progress>) {
    prepare(progress);
    step();
}

/// Takes a step: the calling thread is about to look for something to do, or gets on with a request
/// that has many parts.
pub(crate) fn step() {
    with_own(|progress| {
        progress.steps.fetch_add(1, Ordering::Relaxed);
    });
}

/// Calls the kernel, which may take as long as a disk does.
pub(crate) fn in_kernel<T>(call: impl FnOnce() -> T) -> T {
    with_own(|progress| progress.waits_for_kernel.store(true, Ordering::Relaxed));
    let _back = BackFromKernel;
    call()
}

/// Ends a wait for the kernel, also where the call panics: the thread is judged again.
struct BackFromKernel;

impl Drop for BackFromKernel {
    fn drop(&mut self) {
        with_own(|progress| progress.waits_for_kernel.store(false, Ordering::Relaxed));
    }
}

/// A thread as the hub sees it.
#[derive(Debug)]
struct Watched {
    /// For the message that gives the thread up.
    name: String,
    progress: Arc<Progress>,
    /// Steps at the hub's last look.
    steps: u64,
    /// Looks since the last step.
    looks: u32,
}

impl Watched {
    /// Looks at the thread, and returns how many looks it is behind.
    fn look(&mut self) -> u32 {
        let steps = self.progress.steps.load(Ordering::Relaxed);
        let waits = self.progress.waits_for_kernel.load(Ordering::Relaxed);
        if self.progress.has_ended.load(Ordering::Relaxed) {
            // planted: a thread that ended is forgotten
            self.looks = STUCK_LOOKS;
        } else if steps == 0 || steps != self.steps || waits {
            self.looks = 0;
        } else {
            self.looks = self.looks.saturating_add(1);
        }
        self.steps = steps;
        match self.progress.is_late.load(Ordering::Relaxed) {
            true => self.looks.max(LATE_LOOKS),
            false => self.looks,
        }
    }
}

/// State of the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// All threads serve their guests.
    Well,
    /// A thread is late, and may come back.
    Late,
    /// The thread with this name is stuck.
    Stuck(String),
}

/// The threads that serve guests, as the hub sees them.
#[derive(Debug, Default)]
pub(crate) struct Watch(Vec<Watched>);

impl Watch {
    /// Watches a thread from its [`prepare`] or [`begin`] on.
    pub(crate) fn add(&mut self, name: &str) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        self.0.push(Watched {
            name: name.to_owned(),
            progress: Arc::clone(&progress),
            steps: 0,
            looks: 0,
        });
        progress
    }

    /// Looks at all threads; to be called at even intervals, of half a second.
    pub(crate) fn look(&mut self) -> Health {
        let mut health = Health::Well;
        for thread in &mut self.0 {
            match thread.look() {
                STUCK_LOOKS.. => return Health::Stuck(thread.name.clone()),
                LATE_LOOKS.. => health = Health::Late,
                _ => {}
            }
        }
        health
    }
}

/// Ends GDM. The stuck thread may hold any lock, standard error's among them, so the message goes
/// to the descriptor by one system call that takes no lock.
pub(crate) fn give_up(name: &str) -> ! {
    let message = format!(
        "gdm: the thread {name} does not get on: gdm ends, so that another one can serve\n"
    );
    sys::complain_at_once(message.as_bytes());
    sys::exit_at_once(1)
}
