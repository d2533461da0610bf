//! Doorbells between VMs (`/channels`).

use super::Section;
use super::binding::CHANNEL_PROPERTIES;
use crate::error::{ManifestError, Report, Rule};
use crate::model::{Channel, Manifest};

/// Reads the channels; one without a name of its own or a property of the right type is reported,
/// and left out: what rules would say of it follows from that.
pub(super) fn read<'a>(
    all: &Section<'a>,
    manifest: &mut Manifest<'a>,
    report: &mut Report<'_, 'a>,
) {
    all.check_properties(&[], report);
    for (place, channel) in all.children().enumerate() {
        let before = report.error_count;
        channel.check_names(CHANNEL_PROPERTIES, &[], report);
        all.check_repeated(place, &channel, report);
        let read = read_channel(place, &channel, report);
        // The rest is not read: each further channel would be one more message of the same.
        if before == report.error_count && manifest.channels.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyChannels, channel.path));
            break;
        }
    }
}

/// Reads a channel. Addresses and interrupts that are left out follow from its place in the file,
/// so that a manifest of some channels names none of them.
fn read_channel<'a>(
    place: usize,
    channel: &Section<'a>,
    report: &mut Report<'_, 'a>,
) -> Channel<'a> {
    let (ipa, intid) = Channel::defaults(place);
    let power_button = channel.switch("power-button", report);
    if power_button {
        check_alone(channel, report);
    }
    Channel {
        name: channel.node.name(),
        // A missing end is an empty name, which no VM has; the rules say which of the two is
        // missing.
        from: channel.text("from", report).unwrap_or(""),
        to: channel.text("to", report).unwrap_or(""),
        memory: channel.text("memory", report),
        min_interval_us: channel.number("min-interval-us", report),
        ipa: channel.long("address", report).unwrap_or(ipa),
        intid: channel.number("interrupt", report).unwrap_or(intid),
        power_button,
    }
}

/// Refuses what belongs to the sender of a channel that has none.
fn check_alone<'a>(channel: &Section<'a>, report: &mut Report<'_, 'a>) {
    for property in ["from", "memory", "address"] {
        if channel.node.property(property).is_some() {
            let rule = Rule::ButtonOfAVm;
            report.error(ManifestError::at_property(rule, channel.path, property));
        }
    }
}
