//! A turn of a device's queues.

use crate::backend::{Backend, Progress};
use crate::state::Word;
use crate::vring::{Broken, Vring};

/// Result of a turn of the queues.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// There is more to do at once.
    pub(super) more: bool,
    /// The guest wants an interrupt.
    pub(super) interrupt: bool,
    /// Queue whose guest broke a rule, and the rule.
    pub(super) broken: Option<(usize, Broken)>,
}

/// Serves a queue for one turn, marked in the device's page: a GDM that starts while the mark is
/// set knows that the one before ended during work on this device.
pub(super) fn serve_at_work(
    backend: &mut dyn Backend,
    index: usize,
    ring: &mut Vring,
    is_silent: bool,
) -> Result<(bool, bool), Broken> {
    if ring.pending() > 0 || ring.has_taken() {
        ring.state().set(Word::AtWork, 1);
    }
    let served = serve_queue(backend, index, ring, is_silent);
    ring.state().set(Word::AtWork, 0);
    served
}

/// Serves a queue for one turn. With `is_silent` a drained queue asks for no notification. Returns
/// whether the queue has more work at once, and whether to interrupt the guest.
fn serve_queue(
    backend: &mut dyn Backend,
    index: usize,
    ring: &mut Vring,
    is_silent: bool,
) -> Result<(bool, bool), Broken> {
    ring.silence()?;
    let progress = backend.process(index, ring)?;
    let more = match progress {
        Progress::More => true,
        Progress::Waits => false,
        Progress::Drained => !is_silent && ring.listen()?,
    };
    let interrupt = ring.wants_interrupt()?;
    Ok((more, interrupt))
}
