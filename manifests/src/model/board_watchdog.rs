//! Outputs that Gear1 feeds beyond the VMs: the board's watchdog, and a line for a microcontroller.

/// Outputs that Gear1 feeds; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed<'a> {
    /// The board's watchdog.
    pub watchdog: Option<BoardWatchdog<'a>>,
    /// The line that a microcontroller outside of the SoC watches.
    pub heartbeat: Option<GpioHeartbeat<'a>>,
}

impl Fed<'_> {
    /// Nothing is fed.
    pub const NOTHING: Self = Self {
        watchdog: None,
        heartbeat: None,
    };
}

/// A watchdog of the board that resets the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardWatchdog<'a> {
    /// Path of its node in the board's device tree.
    pub device: &'a str,
    /// Time from the last feeding to the reset, in milliseconds.
    pub timeout_ms: u32,
}

/// A line of a GPIO controller that turns over with each feeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpioHeartbeat<'a> {
    /// Path of the controller's node in the board's device tree.
    pub device: &'a str,
    /// Number of the line.
    pub line: u32,
    /// Time from one turn to the next, in milliseconds.
    pub period_ms: u32,
}

impl GpioHeartbeat<'_> {
    /// Lines that the controller has.
    pub const LINES: u32 = 8;
    /// Periods that are neither a load for the machine nor slower than any supervisor.
    pub const PERIODS_MS: core::ops::RangeInclusive<u32> = 10..=10_000;
}
