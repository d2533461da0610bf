//! Devices that their VM uses as firmware has left them, as the manifest says it.

use crate::blob::Property;

/// A device whose clocks, resets, power and pins stay as they were at Gear1's boot.
#[derive(Clone, Copy, Debug)]
pub struct AsBooted<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Path of the device's node in the board's device tree.
    pub device: &'a str,
    /// `clocks-hz`: whole cells.
    pub(crate) rates: Option<Property<'a>>,
}

impl<'a> AsBooted<'a> {
    /// Iterates over the rates of the device's clocks in Hz, in the order of its `clocks`.
    pub fn rates(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.rates
            .and_then(|rates| rates.cells())
            .into_iter()
            .flatten()
    }
}
