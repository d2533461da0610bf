//! How the units of an IPMMU forget a context: the main unit first, and the cache units when that
//! is done. In another order a cache unit could fetch again what the main unit still has.
//!
//! Nobody waits for a unit with the lock of [`Flushes`] held: whoever asks takes the flush on by as
//! far as the units are.
//!
//! Requirements: G1-DMA-002.

use super::{CONTROL, IMCTR, PATIENCE, of_context};
use crate::smmu::Stuck;
use crate::smmu::v2::Device;

/// Bits of IMCTR that cache units have too: INTEN, FLUSH and MMUEN.
const IN_CACHES: u32 = 0b111;

/// Names a flush: how many flushes are done when it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(u32);

/// Flushes of all contexts, one after the other.
#[derive(Debug, Default)]
pub struct Flushes {
    /// Flushes that are done.
    done: u32,
    under_way: Option<UnderWay>,
}

/// A flush that is not done.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    context: u32,
    /// The main unit is done, and the cache units have been told.
    is_in_caches: bool,
}

impl Flushes {
    /// No flush was asked for yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            done: 0,
            under_way: None,
        }
    }

    /// Begins to have the `units` forget a context; `None`: another flush is under way.
    pub fn begin(&mut self, device: &mut impl Device, units: u32, context: u32) -> Option<Ticket> {
        self.advance(device, units);
        if self.under_way.is_some() {
            return None;
        }
        // Tables and registers as they are now, before what was before is forgotten.
        device.order();
        ask(device, 0, context);
        self.under_way = Some(UnderWay {
            context,
            is_in_caches: false,
        });
        Some(Ticket(self.done.wrapping_add(1)))
    }

    /// Tells whether the flush is done.
    pub fn is_done(&mut self, device: &mut impl Device, units: u32, ticket: Ticket) -> bool {
        self.advance(device, units);
        // Fewer than 2^31 flushes lie between a ticket and the question for it.
        self.done.wrapping_sub(ticket.0).cast_signed() >= 0
    }

    /// Takes the flush that is under way on.
    fn advance(&mut self, device: &mut impl Device, units: u32) {
        let Some(UnderWay {
            context,
            is_in_caches,
        }) = self.under_way
        else {
            return;
        };
        let (first, end) = if is_in_caches { (1, units) } else { (0, 1) };
        // Bound: MAX_UNITS (32).
        // planted: an IPMMU is not waited for
        if (first..end).any(|unit| is_flushing(device, unit, context)) {
            return;
        }
        device.order();
        if is_in_caches {
            self.done = self.done.wrapping_add(1);
            self.under_way = None;
            return;
        }
        // Bound: MAX_UNITS (32).
        for unit in 1..units {
            // planted: cache units keep what a VM has lost
            ask(device, unit, context);
        }
        self.under_way = Some(UnderWay {
            context,
            is_in_caches: true,
        });
    }
}

/// Has a unit forget a context. A cache unit has the main unit's control, without what it lacks.
fn ask(device: &mut impl Device, unit: u32, context: u32) {
    let control = device.read32(of_context(0, context, IMCTR));
    let kept = if unit == 0 { u32::MAX } else { IN_CACHES };
    let asked = control & kept | CONTROL::FLUSH::SET.value;
    device.write32(of_context(unit, context, IMCTR), asked);
}

/// Tells whether a unit has yet to forget a context.
fn is_flushing(device: &impl Device, unit: u32, context: u32) -> bool {
    CONTROL::FLUSH.is_set(device.read32(of_context(unit, context, IMCTR)))
}

/// Has the `units` forget a context, and waits until they have.
pub(super) fn flush(device: &mut impl Device, units: u32, context: u32) -> Result<(), Stuck> {
    let mut flushes = Flushes::new();
    let ticket = flushes.begin(device, units, context).ok_or(Stuck)?;
    for _ in 0..PATIENCE {
        if flushes.is_done(device, units, ticket) {
            return Ok(());
        }
    }
    Err(Stuck)
}
