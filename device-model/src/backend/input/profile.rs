//! Properties of an input device, as its configuration shows them (virtio 1.2, 5.8.4): the driver
//! selects one, and reads it.

use std::collections::{BTreeMap, BTreeSet};

use evdev::raw_stream::RawDevice;
use evdev::{
    AbsoluteAxisCode, BusType, EventType, KeyCode, MiscCode, RelativeAxisCode, SwitchCode,
};

use super::event::Event;

/// Values of `select`.
mod select {
    pub(super) const NAME: u8 = 0x01;
    pub(super) const SERIAL: u8 = 0x02;
    pub(super) const IDS: u8 = 0x03;
    pub(super) const PROPERTIES: u8 = 0x10;
    pub(super) const EVENTS: u8 = 0x11;
    pub(super) const AXIS: u8 = 0x12;
}

/// Bytes of a property at most, and of what stands before it in the configuration.
const MOST: usize = 128;
const BEFORE: usize = 8;
/// Bytes of the configuration.
pub(super) const CONFIG: usize = BEFORE + MOST;
/// Last value of an axis of the profile for typed events.
const LAST: i32 = 0x7fff;

/// An axis: least and greatest value, noise, dead zone, units a millimetre.
type Axis = [i32; 5];

/// The properties of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    name: String,
    serial: String,
    /// Bus, vendor, product, version.
    ids: [u16; 4],
    properties: BTreeSet<u16>,
    /// Codes of each type of event.
    codes: BTreeMap<u16, BTreeSet<u16>>,
    axes: BTreeMap<u16, Axis>,
}

impl Profile {
    /// Returns the profile for typed events: a keyboard, a mouse with wheels, and a tablet.
    pub(super) fn keyboard_and_tablet() -> Self {
        let mut profile = Self {
            name: "GearV keyboard and tablet".into(),
            ids: [BusType::BUS_VIRTUAL.0, 0, 0, 1],
            ..Self::default()
        };
        let buttons = [KeyCode::BTN_LEFT, KeyCode::BTN_RIGHT, KeyCode::BTN_MIDDLE];
        let buttons = buttons.map(|button| button.0);
        // The codes of keyboards lie below those of buttons. 0 is no key.
        profile.add(EventType::KEY, (1..256).chain(buttons));
        let wheels = [RelativeAxisCode::REL_WHEEL, RelativeAxisCode::REL_HWHEEL];
        let moves = [RelativeAxisCode::REL_X, RelativeAxisCode::REL_Y];
        let relative = moves.into_iter().chain(wheels).map(|axis| axis.0);
        profile.add(EventType::RELATIVE, relative);
        let absolute = [AbsoluteAxisCode::ABS_X, AbsoluteAxisCode::ABS_Y].map(|axis| axis.0);
        profile.add(EventType::ABSOLUTE, absolute);
        profile.axes = absolute.map(|axis| (axis, [0, LAST, 0, 0, 0])).into();
        profile
    }

    /// Returns the profile of a device of the device VM.
    pub(super) fn of_device(device: &RawDevice) -> std::io::Result<Self> {
        let id = device.input_id();
        let mut profile = Self {
            name: device.name().unwrap_or_default().to_owned(),
            serial: device.unique_name().unwrap_or_default().to_owned(),
            ids: [id.bus_type().0, id.vendor(), id.product(), id.version()],
            properties: device
                .properties()
                .iter()
                .map(|property| property.0)
                .collect(),
            ..Self::default()
        };
        let keys = device.supported_keys().into_iter().flatten();
        profile.add(EventType::KEY, keys.map(|key: KeyCode| key.0));
        let axes = device.supported_relative_axes().into_iter().flatten();
        profile.add(
            EventType::RELATIVE,
            axes.map(|axis: RelativeAxisCode| axis.0),
        );
        let switches = device.supported_switches().into_iter().flatten();
        profile.add(
            EventType::SWITCH,
            switches.map(|switch: SwitchCode| switch.0),
        );
        let others = device.misc_properties().into_iter().flatten();
        profile.add(EventType::MISC, others.map(|code: MiscCode| code.0));
        let lights = device.supported_leds().into_iter().flatten();
        profile.add(EventType::LED, lights.map(|light| light.0));
        for (axis, info) in device.get_absinfo()? {
            profile.add(EventType::ABSOLUTE, [axis.0]);
            let range = [info.minimum(), info.maximum()];
            let rest = [info.fuzz(), info.flat(), info.resolution()];
            let [minimum, maximum] = range;
            let [fuzz, flat, resolution] = rest;
            let axes = &mut profile.axes;
            axes.insert(axis.0, [minimum, maximum, fuzz, flat, resolution]);
        }
        Ok(profile)
    }

    fn add(&mut self, kind: EventType, codes: impl IntoIterator<Item = u16>) {
        let mut codes = codes.into_iter().peekable();
        if codes.peek().is_some() {
            self.codes.entry(kind.0).or_default().extend(codes);
        }
    }

    /// Tells whether events of this type and code are among the device's.
    pub(super) fn has(&self, kind: EventType, code: u16) -> bool {
        let codes = self.codes.get(&kind.0);
        codes.is_some_and(|codes| codes.contains(&code))
    }

    /// Tells whether an event is one of the device's, with a value that there is.
    pub(super) fn allows(&self, event: Event) -> bool {
        let is_on_axis = |axis: &Axis| {
            let [minimum, maximum, ..] = *axis;
            (minimum..=maximum).contains(&event.value)
        };
        let kind = EventType(event.kind);
        let is_value = match kind {
            EventType::KEY => (0..=2).contains(&event.value),
            EventType::ABSOLUTE => self.axes.get(&event.code).is_some_and(is_on_axis),
            _ => true,
        };
        is_value && self.has(kind, event.code)
    }

    /// Returns the configuration after a selection.
    pub(super) fn config(&self, select: u8, subselect: u8) -> Vec<u8> {
        let mut property = self.property(select, subselect);
        property.truncate(MOST);
        let mut config = vec![select, subselect, property.len() as u8, 0, 0, 0, 0, 0];
        config.append(&mut property);
        config.resize(CONFIG, 0);
        config
    }

    /// Returns what is selected; nothing if there is no such property. Numbers are little-endian.
    fn property(&self, select: u8, subselect: u8) -> Vec<u8> {
        let code = u16::from(subselect);
        match (select, subselect) {
            (select::NAME, 0) => self.name.clone().into_bytes(),
            (select::SERIAL, 0) => self.serial.clone().into_bytes(),
            (select::IDS, 0) => self.ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
            (select::PROPERTIES, 0) => bits(&self.properties),
            (select::EVENTS, _) => self.codes.get(&code).map(bits).unwrap_or_default(),
            (select::AXIS, _) => {
                let words = self.axes.get(&code).into_iter().flatten();
                words.flat_map(|word| word.to_le_bytes()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns a bitmap of numbers, without zeroes at its end.
fn bits(numbers: &BTreeSet<u16>) -> Vec<u8> {
    let bytes = numbers.last().map_or(0, |last| usize::from(*last) / 8 + 1);
    let mut bits = vec![0; bytes];
    for number in numbers {
        if let Some(byte) = bits.get_mut(usize::from(*number) / 8) {
            *byte |= 1 << (number % 8);
        }
    }
    bits
}
