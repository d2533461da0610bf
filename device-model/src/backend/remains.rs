//! The traces of a backend that is lost, until that backend is certainly gone.

use std::fs::File;
use std::sync::Arc;

use crate::state::DeviceState;

/// Memory that a lost backend had beside the guest's, for as long as it may have both.
///
/// A backend maps both at once and gives both up at once. The kernel tells of the rings' memory
/// whether a process can write to it, which it does not tell of a dax device.
#[derive(Debug)]
pub struct Remains {
    /// The memory of the rings, which this process no longer maps.
    pub rings: Arc<File>,
    /// The device's page.
    pub state: DeviceState,
}
