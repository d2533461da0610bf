//! Events in words, a line each, as a person or a script types them:
//!
//! | line | events |
//! |---|---|
//! | `key NAME VALUE` | a key or button: 1 pressed, 0 released, 2 repeated |
//! | `rel NAME VALUE` | a move by so much |
//! | `abs NAME VALUE` | a place on an axis |
//! | `syn` | the end of a report: the guest gets what was typed since the last |
//! | `tap NAME` | a key pressed, and released, in a report each |
//!
//! NAME is Linux's (`KEY_A`, `BTN_LEFT`, `REL_X`, `ABS_Y`) or a number.

use evdev::{AbsoluteAxisCode, EventType, KeyCode, RelativeAxisCode};

use super::event::Event;
use super::profile::Profile;

/// Returns the events of a line; the error is a sentence for who typed the line.
pub(super) fn events_of(line: &str, profile: &Profile) -> Result<Vec<Event>, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        [] => Ok(Vec::new()),
        [first, ..] if first.starts_with('#') => Ok(Vec::new()),
        ["syn"] => Ok(vec![Event::END]),
        ["tap", name] => {
            let press = event(EventType::KEY, name, "1", profile)?;
            let release = Event { value: 0, ..press };
            Ok(vec![press, Event::END, release, Event::END])
        }
        ["key", name, value] => Ok(vec![event(EventType::KEY, name, value, profile)?]),
        ["rel", name, value] => Ok(vec![event(EventType::RELATIVE, name, value, profile)?]),
        ["abs", name, value] => Ok(vec![event(EventType::ABSOLUTE, name, value, profile)?]),
        _ => Err("a line is: key|rel|abs NAME VALUE, tap NAME, or syn".into()),
    }
}

/// Returns an event that the device has.
fn event(kind: EventType, name: &str, value: &str, profile: &Profile) -> Result<Event, String> {
    let code = code(kind, name).filter(|code| profile.has(kind, *code));
    let code = code.ok_or_else(|| format!("the device has no {name}"))?;
    let event = Event {
        kind: kind.0,
        code,
        value: value.parse().map_err(|_| format!("{value} is no number"))?,
    };
    // planted: a typed event has any value
    let allowed = profile.allows(event).then_some(event);
    allowed.ok_or_else(|| format!("{name} has no value {value}"))
}

/// Returns the code of a name of this type, or of a number.
fn code(kind: EventType, name: &str) -> Option<u16> {
    let named = match kind {
        EventType::KEY => name.parse().ok().map(|key: KeyCode| key.0),
        EventType::RELATIVE => name.parse().ok().map(|axis: RelativeAxisCode| axis.0),
        _ => name.parse().ok().map(|axis: AbsoluteAxisCode| axis.0),
    };
    named.or_else(|| name.parse().ok())
}
