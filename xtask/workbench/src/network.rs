//! Addresses on the network that the device VM and its guests share.
//!
//! The scripts of the userlands set them; messages and tests name them.

/// Address of the device VM.
pub const DEVICE_VM: &str = "10.0.2.100";
/// Address of a guest, unless its command line names another one.
pub const GUEST: &str = "10.0.2.101";
/// Start of the word of a command line that names the address, with the length of its prefix.
pub const ADDRESS_OPTION: &str = "gearv.ip=";
