//! The seam to the physical SMMU: what an SMMUv2, an SMMUv3 and an IPMMU each do for the
//! runtime.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use super::event::Event;

/// An SMMU that init has started.
pub trait HostSmmu {
    /// State that the users of the SMMU share, under a lock.
    type Queue;
    /// Names what the SMMU was told, for the question whether it has done that.
    type Ticket: Copy;
    /// The queue before the first call.
    const EMPTY: Self::Queue;

    /// Shuts the streams of a VM, or opens them. [`forget`](Self::forget) makes it so, with
    /// `has_switched`.
    fn switch(&mut self, vmid: u16, opens: bool);
    /// Has the SMMU forget the translations of a VM, and, if a VM's streams were switched, what it
    /// has cached of streams. `None`: there is no room now, and the SMMU was told nothing.
    fn forget(
        &mut self,
        queue: &mut Self::Queue,
        vmid: u16,
        has_switched: bool,
    ) -> Option<Self::Ticket>;
    /// Tells whether the SMMU has done what it was told: no access uses any longer what it was to
    /// forget.
    fn is_done(&mut self, queue: &mut Self::Queue, ticket: Self::Ticket) -> bool;
    /// Takes the next event. `is_owned` tells whether a VM owns a stream. Calls do not overlap.
    fn take_event(&mut self, is_owned: impl Fn(u32) -> bool) -> Option<Event>;
    /// Makes every later access of every device abort, or has asked for that: an SMMU that does not
    /// answer is not waited for.
    fn shut(&mut self);
}

/// Whether a VM's devices reach its memory, as far as the SMMU has been told.
#[derive(Debug)]
pub struct Streams<T> {
    are_open: bool,
    /// The SMMU has not yet done the last change.
    ticket: Option<T>,
}

impl<T: Copy> Streams<T> {
    /// Streams as init left them.
    #[must_use]
    pub const fn new(are_open: bool) -> Self {
        Self {
            are_open,
            ticket: None,
        }
    }

    /// Tells whether the SMMU has yet to be told that the streams are open, or shut.
    #[must_use]
    pub const fn differ(&self, are_open: bool) -> bool {
        self.are_open != are_open
    }

    /// Notes what the SMMU was told.
    pub const fn told(&mut self, are_open: bool, ticket: T) {
        (self.are_open, self.ticket) = (are_open, Some(ticket));
    }

    /// Tells whether the SMMU has done what it was told last.
    pub fn are_done<S>(&mut self, queue: &mut S::Queue, device: &mut S) -> bool
    where
        S: HostSmmu<Ticket = T>,
    {
        let is_open = |ticket: &mut T| !device.is_done(queue, *ticket);
        self.ticket = self.ticket.take_if(is_open);
        self.ticket.is_none()
    }
}
