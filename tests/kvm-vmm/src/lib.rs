//! Parts of the VMM that need no KVM: options, the guest's memory layout, image headers, the device
//! tree and the PL011.

pub mod device_tree;
pub mod image;
pub mod layout;
pub mod options;
pub mod pl011;
