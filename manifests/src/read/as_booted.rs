//! Devices that are used as firmware has left them (`/as-booted`).

use super::Section;
use super::binding::AS_BOOTED_PROPERTIES;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{AsBooted, Manifest};

/// Reads the devices. One with an error is reported, and left out.
pub(super) fn read<'a>(
    all: &Section<'a>,
    manifest: &mut Manifest<'a>,
    report: &mut Report<'_, 'a>,
) {
    all.check_properties(&[], report);
    for (place, node) in all.children().enumerate() {
        node.check_names(AS_BOOTED_PROPERTIES, &[], report);
        all.check_repeated(place, &node, report);
        let Some(read) = read_one(&node, manifest, report) else {
            continue;
        };
        if manifest.as_booted.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyAsBooted, node.path));
            break;
        }
    }
}

/// Reads a device, unless a node before this one has it.
fn read_one<'a>(
    node: &Section<'a>,
    manifest: &Manifest<'a>,
    report: &mut Report<'_, 'a>,
) -> Option<AsBooted<'a>> {
    if node.node.property("device").is_none() {
        let rule = Rule::AsBootedIncomplete;
        report.error(ManifestError::at_property(rule, node.path, "device"));
    }
    let read = AsBooted {
        name: node.node.name(),
        device: node.text("device", report)?,
        rates: node.typed("clocks-hz", report, |rates| rates.cells().map(|_| *rates)),
    };
    // A driver divides by the rate.
    if read.rates().any(|rate| rate == 0) {
        let place = ManifestError::at_property(Rule::OutOfRange, node.path, "clocks-hz");
        report.error(place.found(Found::Number(0)));
    }
    let mut others = manifest.as_booted.iter();
    if let Some(other) = others.find(|other| other.device == read.device) {
        let error = ManifestError::at_property(Rule::AsBootedTwice, node.path, "device");
        let other = NodePath::ROOT.child("as-booted").child(other.name);
        report.error(error.found(Found::Text(read.device)).conflicts(other));
        return None;
    }
    Some(read)
}
