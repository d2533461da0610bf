//! Parts of the VMM that need no KVM: options, the guest's memory layout, image headers, the device
//! tree, the PL011, and the registers and requests of a virtio disk.

pub mod block;
pub mod device_tree;
pub mod image;
pub mod layout;
pub mod options;
pub mod pl011;
pub mod transport;
