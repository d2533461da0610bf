//! Watch over the heartbeat of the device model.
//!
//! Owns the time of the last heartbeat. A heartbeat is a change of the word in the shared region.
//! An attacker in the device VM can fake it without serving a guest, as it can serve a guest
//! wrongly.

#[cfg(test)]
mod tests;

/// The first sign comes when the device VM has booted: that takes longer.
const BOOT_FACTOR: u64 = 4;
/// Checks within the time without a heartbeat that is tolerated.
const LOOKS: u64 = 8;

/// Last known heartbeat of the device model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    beats: u32,
    /// Counter value at which the last heartbeat was seen, or the watch began.
    since: u64,
    /// Whether a heartbeat was seen since the watch began.
    seen: bool,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// The device model may be alive; the next check is due at this time.
    Lives(u64),
    /// The time without a heartbeat is over.
    Gone,
}

impl Heartbeat {
    /// Begins to watch, when the device VM starts.
    pub(crate) const fn begin(beats: u32, now: u64) -> Self {
        Self {
            beats,
            since: now,
            seen: false,
        }
    }

    /// Looks whether there was one since the last time.
    pub(crate) fn look(&mut self, beats: u32, now: u64, patience: u64) -> Pulse {
        if beats != self.beats {
            *self = Self {
                beats,
                since: now,
                seen: true,
            };
        }
        let factor = if self.seen { 1 } else { BOOT_FACTOR };
        if now.saturating_sub(self.since) > patience.saturating_mul(factor) {
            return Pulse::Gone;
        }
        Pulse::Lives(now.saturating_add((patience / LOOKS).max(1)))
    }
}
