//! Signals that end a program, put off until it has cleaned up.

use std::io;
use std::mem::MaybeUninit;

use super::checked;

/// By a person, a supervisor, and a terminal that is gone.
const ENDS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// As long as this lives, these signals wait; one that came ends the program when this is dropped.
#[derive(Debug)]
pub(crate) struct Deferred {
    before: libc::sigset_t,
}

impl Deferred {
    /// Begins to put signals off, for the calling thread.
    pub(crate) fn begin() -> io::Result<Self> {
        let ends = ends()?;
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which fills in the second one.
        checked(unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &raw const ends, before.as_mut_ptr())
        })?;
        // SAFETY: the call succeeded.
        let before = unsafe { before.assume_init() };
        Ok(Self { before })
    }

    /// Tells whether one came.
    pub(crate) fn came(&self) -> bool {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the call fills the set in.
        if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: the call succeeded.
        let pending = unsafe { pending.assume_init() };
        // SAFETY: the set is valid, and the numbers are those of signals.
        ENDS.into_iter()
            .any(|end| unsafe { libc::sigismember(&raw const pending, end) } == 1)
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        // SAFETY: the set is the one of before; a set to be filled in is not asked for.
        unsafe {
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

/// Returns the set of the signals.
fn ends() -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call fills the set in.
    checked(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: the call succeeded.
    let mut set = unsafe { set.assume_init() };
    for end in ENDS {
        // SAFETY: the set is valid, and the number is that of a signal.
        checked(unsafe { libc::sigaddset(&raw mut set, end) })?;
    }
    Ok(set)
}

/// Sends a signal to the calling thread (tests).
#[cfg(test)]
pub(crate) fn signal_this_thread(signal: libc::c_int) {
    // SAFETY: a number of a signal, and no memory.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Takes a signal that waits (tests).
#[cfg(test)]
pub(crate) fn forget_signal(signal: libc::c_int) {
    let ends = ends().unwrap();
    let mut got = 0;
    // SAFETY: both are valid for the call.
    assert_eq!(unsafe { libc::sigwait(&raw const ends, &raw mut got) }, 0);
    assert_eq!(got, signal);
}
