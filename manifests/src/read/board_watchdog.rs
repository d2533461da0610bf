//! Outputs that Gear1 feeds (`/board-watchdog`, `/gpio-heartbeat`).

use super::Section;
use super::binding::{BOARD_WATCHDOG_PROPERTIES, GPIO_HEARTBEAT_PROPERTIES};
use crate::error::{Found, ManifestError, Report, Rule};
use crate::model::{BoardWatchdog, Fed, GpioHeartbeat};

/// Reads both nodes, as far as they are there. What the board has, only the board tells.
pub(super) fn read<'a>(root: &Section<'a>, report: &mut Report<'_, 'a>) -> Fed<'a> {
    let watchdog = root.child("board-watchdog");
    let heartbeat = root.child("gpio-heartbeat");
    Fed {
        watchdog: watchdog.and_then(|node| read_watchdog(&node, report)),
        heartbeat: heartbeat.and_then(|node| read_heartbeat(&node, report)),
    }
}

fn read_watchdog<'a>(node: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<BoardWatchdog<'a>> {
    check(node, BOARD_WATCHDOG_PROPERTIES, report);
    Some(BoardWatchdog {
        device: node.text("device", report)?,
        timeout_ms: node.number("timeout-ms", report)?,
    })
}

fn read_heartbeat<'a>(
    node: &Section<'a>,
    report: &mut Report<'_, 'a>,
) -> Option<GpioHeartbeat<'a>> {
    check(node, GPIO_HEARTBEAT_PROPERTIES, report);
    let (device, line) = (node.text("device", report), node.number("line", report));
    let period_ms = node.number("period-ms", report);
    let lines = 0..=GpioHeartbeat::LINES - 1;
    let checked = [
        ("line", line, lines),
        ("period-ms", period_ms, GpioHeartbeat::PERIODS_MS),
    ];
    for (name, value, range) in checked {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let place = ManifestError::at_property(Rule::OutOfRange, node.path, name);
            report.error(place.found(Found::Number(value.into())));
        }
    }
    Some(GpioHeartbeat {
        device: device?,
        line: line?,
        period_ms: period_ms?,
    })
}

/// Reports names that the node must not have, and those that it lacks: nothing has a default,
/// because no two boards are alike.
fn check<'a>(node: &Section<'a>, names: &'static [&'static str], report: &mut Report<'_, 'a>) {
    node.check_names(names, &[], report);
    for name in names
        .iter()
        .filter(|name| node.node.property(name).is_none())
    {
        report.error(ManifestError::at_property(
            Rule::FedIncomplete,
            node.path,
            name,
        ));
    }
}
