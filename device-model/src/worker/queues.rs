//! A turn of a device's queues.

use crate::backend::{Backend, Progress};
use crate::state::Word;
use crate::vring::{Broken, Vring};

/// Result of a turn of the queues.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// There is more to do at once.
    pub(super) more: bool,
    /// The guest wants an interrupt now.
    pub(super) interrupt: bool,
    /// The guest wants an interrupt that may wait.
    pub(super) late: bool,
    /// Queue whose guest broke a rule, and the rule.
    pub(super) broken: Option<(usize, Broken)>,
}

/// Result of a turn of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// The queue has more work at once.
    pub(super) more: bool,
    /// The driver wants an interrupt.
    pub(super) interrupt: bool,
    /// Requests that were completed.
    pub(super) completed: u16,
}

/// Serves a queue for one turn, marked in the device's page: a GDM that starts while the mark is
/// set knows that the one before ended during work on this device.
pub(super) fn serve_at_work(
    backend: &mut dyn Backend,
    index: usize,
    ring: &mut Vring,
    is_silent: bool,
) -> Result<Served, Broken> {
    if ring.pending() > 0 || ring.has_taken() {
        ring.state().set(Word::AtWork, 1);
    }
    let served = serve_queue(backend, index, ring, is_silent);
    ring.state().set(Word::AtWork, 0);
    served
}

/// Serves a queue for one turn. With `is_silent` a drained queue asks for no notification.
fn serve_queue(
    backend: &mut dyn Backend,
    index: usize,
    ring: &mut Vring,
    is_silent: bool,
) -> Result<Served, Broken> {
    ring.silence()?;
    let used = ring.used();
    let progress = backend.process(index, ring)?;
    let more = match progress {
        Progress::More => true,
        Progress::Waits => false,
        Progress::Drained => !is_silent && ring.listen()?,
    };
    let interrupt = ring.wants_interrupt()?;
    Ok(Served {
        more,
        interrupt,
        completed: ring.used().wrapping_sub(used),
    })
}
