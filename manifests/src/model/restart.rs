//! Consequences of the end of a VM that nobody asked for, as the manifest says them.

/// Policy for the automatic restart of a VM that has stopped. A guest's own reset request is always
/// honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Never.
    Never,
    /// After a fault, or when its watchdog bites.
    OnFailure,
    /// Restart after a SYSTEM_OFF, too.
    Always,
}

/// Consequence of a failure after which a VM is not started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGiveUp {
    /// The VM stays stopped.
    Stop,
    /// The machine is powered off.
    PowerOff,
    /// The standby is started.
    FailOver,
}

/// Limits of automatic restarts after a VM's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartLimit {
    /// Most restarts within the window, after which Gear2 gives the VM up; 0: no limit.
    pub limit: u32,
    /// Length of the window, in milliseconds.
    pub window_ms: u32,
    /// Pause before the second restart within the window, in milliseconds; each further restart
    /// doubles the pause.
    pub backoff_ms: u32,
}

impl RestartLimit {
    /// The largest limit that a manifest can name.
    pub const MOST: u32 = crate::limits::MOST_RESTARTS;

    /// Limit for a manifest that names none: a guest that crashes at once is given up after about a
    /// minute and 11 loads.
    pub const DEFAULT: Self = Self {
        limit: 10,
        window_ms: 60_000,
        backoff_ms: 100,
    };
}
