//! Questions that many readers of the board's tree ask of a node.
//!
//! Requirements: G1-BOOT-001.

use gearv_manifest::blob::{Node, Property};

/// Tells whether firmware has turned a device off, or it is broken (Devicetree Specification 0.4,
/// 2.3.4): `status` is there, and is not okay.
#[inline(always)]
pub(crate) fn is_disabled(node: &Node<'_>) -> bool {
    let is_okay = |status: Property<'_>| status.is_text("okay") || status.is_text("ok");
    // planted: a disabled node counts
    !node.property("status").is_none_or(is_okay)
}

/// Tells whether a node has this `device_type`.
#[inline(always)]
pub(crate) fn is_of_type(node: &Node<'_>, device_type: &str) -> bool {
    let property = node.property("device_type");
    property.is_some_and(|property| property.is_text(device_type))
}

/// Returns a property that is one string. Inlined, as [`Node::property`] is.
#[inline(always)]
pub(crate) fn text<'a>(node: &Node<'a>, name: &str) -> Option<&'a str> {
    node.property(name)?.text()
}
