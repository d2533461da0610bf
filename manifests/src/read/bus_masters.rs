//! How bus masters are stopped (`/bus-masters`).

use super::Section;
use super::binding::BUS_MASTER_PROPERTIES;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{BusMaster, Manifest};

/// Reads the kinds of devices. One with an error is reported, and left out: no device is judged by
/// it.
pub(super) fn read<'a>(
    all: &Section<'a>,
    manifest: &mut Manifest<'a>,
    report: &mut Report<'_, 'a>,
) {
    all.check_properties(&[], report);
    for (place, node) in all.children().enumerate() {
        node.check_names(BUS_MASTER_PROPERTIES, &[], report);
        all.check_repeated(place, &node, report);
        let Some(read) = read_one(&node, report) else {
            continue;
        };
        if is_refused(&node, &read, manifest, report) {
            continue;
        }
        if manifest.bus_masters.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyKinds, node.path));
            break;
        }
    }
}

/// Reads a kind of device. Nothing has a default: a value that nobody chose would leave the device
/// running.
fn read_one<'a>(node: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<BusMaster<'a>> {
    let missing = BUS_MASTER_PROPERTIES.iter();
    for name in missing.filter(|name| node.node.property(name).is_none()) {
        let rule = Rule::MasterIncomplete;
        report.error(ManifestError::at_property(rule, node.path, name));
    }
    let compatible = node.text("compatible", report);
    let [offset, value, busy] = ["offset", "value", "busy"].map(|name| node.number(name, report));
    Some(BusMaster {
        name: node.node.name(),
        compatible: compatible?,
        offset: offset?,
        value: value?,
        busy: busy?,
    })
}

/// Judges the place of the register, and whether the kind is said before. Reports what is wrong,
/// and tells whether anything is.
fn is_refused<'a>(
    node: &Section<'a>,
    read: &BusMaster<'a>,
    manifest: &Manifest<'a>,
    report: &mut Report<'_, 'a>,
) -> bool {
    let before = report.error_count;
    let is_aligned = read.offset.is_multiple_of(BusMaster::REGISTER_BYTES);
    if !is_aligned || read.offset >= BusMaster::MAX_OFFSET {
        let error = ManifestError::at_property(Rule::MasterRegister, node.path, "offset");
        report.error(error.found(Found::Number(read.offset.into())));
    }
    let mut others = manifest.bus_masters.iter();
    if let Some(other) = others.find(|other| other.compatible == read.compatible) {
        let error = ManifestError::at_property(Rule::MasterTwice, node.path, "compatible");
        let other = NodePath::ROOT.child("bus-masters").child(other.name);
        report.error(error.found(Found::Text(read.compatible)).conflicts(other));
    }
    before != report.error_count
}
