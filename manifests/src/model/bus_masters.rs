//! How bus masters are stopped that GearV does not know, as the manifest says it.

/// How a kind of device that masters the bus is stopped when its VM has stopped: by a value in a
/// register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusMaster<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// One of the words of the device's `compatible` in the board's device tree.
    pub compatible: &'a str,
    /// Offset of the register in the device's first registers, in bytes.
    pub offset: u32,
    /// Value that stops the device.
    pub value: u32,
    /// Bits of the register that are set until the device has stopped; 0: it stops at once.
    pub busy: u32,
}

impl BusMaster<'_> {
    /// Bytes of a register.
    pub const REGISTER_BYTES: u32 = 4;
    /// The first offset behind those that are allowed: no device's registers are larger.
    pub const MAX_OFFSET: u32 = 1 << 24;
}
