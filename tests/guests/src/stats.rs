//! Exits of the calling vCPU, as GearV counts them.

use gear1_abi::exit::ExitReason;
use gear1_abi::guest;

use crate::psci::hvc;

/// Returns the number of exits for `reason`, this call not counted.
pub fn exits(reason: ExitReason) -> u64 {
    hvc(guest::EXIT_STATS, [reason as u64, 0, 0])[0]
}

/// Returns the ticks that those of them took that went to Gear2: 0 if none did.
pub fn ticks_in_gear2(reason: ExitReason) -> u64 {
    hvc(guest::EXIT_STATS, [reason as u64, 0, 0])[1]
}
