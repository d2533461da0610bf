//! Common parts of Gear2's devices and loops: the services of the machine layer,
//! the type of their locks, and the answer to a guest's access.

use gear1_abi::call::Reply;
use spin::RelaxStrategy;
use spin::mutex::{TicketMutex, TicketMutexGuard};

use crate::console::Uart;

/// Services of the machine layer.
pub trait Platform {
    /// The boot UART.
    type Uart: Uart;
    /// Action of a loop that waits for a lock: on the target it must yield.
    type Relax: RelaxStrategy;

    /// Answers a guest's call (function and X1 to X4) that Gear2 does not know, if it is the
    /// machine layer's.
    fn call(_call: [u64; 5]) -> Option<u64> {
        None
    }
}

/// A lock whose waiters yield.
pub(crate) type Lock<T, P> = TicketMutex<T, <P as Platform>::Relax>;
/// Holds a [`Lock`].
pub(crate) type Guard<'a, T, P> = TicketMutexGuard<'a, T, <P as Platform>::Relax>;

/// Completion of a vCPU's access or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With a value.
    Value(u64),
    /// With an external abort.
    Abort,
}

impl Answer {
    pub(crate) const fn words(self) -> (Reply, u64) {
        match self {
            Self::Value(value) => (Reply::Value, value),
            Self::Abort => (Reply::Abort, 0),
        }
    }
}
