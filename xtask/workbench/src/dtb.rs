//! Mark by which a compiled device tree is told from its source, and from other files. People take
//! one for the other; neither manifests nor boards may depend on each other for it.

/// First bytes of a device tree blob (Devicetree Specification 0.4, 5.2).
pub(crate) const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];
