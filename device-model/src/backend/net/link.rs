//! State of a network card's link: the tap device's, unless a person has ordered it down.

use std::fs::File;
use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use crate::state::{self, DeviceState, Word};

/// Between two looks at the tap device: the kernel tells an unprivileged thread of no change.
const LOOK: Duration = Duration::from_secs(1);
/// `IFF_UP`.
const UP: u32 = 1;

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    /// The tap device's flags in sysfs, opened before the thread lost its rights; none: the link is
    /// always up.
    flags: Option<File>,
    /// The tap device was up at the last look.
    tap_is_up: bool,
    /// Time of that look.
    looked: Instant,
    /// The device's page, which keeps a person's order.
    state: Option<DeviceState>,
    /// State that the driver was shown last.
    shown: Option<bool>,
}

/// Opens the flags of the tap device of this name, if the kernel shows them.
pub(super) fn flags_of(name: &str) -> Option<File> {
    File::open(format!("/sys/class/net/{name}/flags")).ok()
}

impl Link {
    /// Makes a link that is up as these flags say.
    pub(super) fn by(flags: Option<File>) -> Self {
        let mut link = Self {
            flags,
            tap_is_up: true,
            looked: Instant::now(),
            state: None,
            shown: None,
        };
        link.look();
        link
    }

    /// Takes the device's page. What an earlier GDM was ordered holds.
    pub(super) fn keep(&mut self, state: DeviceState) {
        self.state = Some(state);
        self.shown = Some(self.is_up());
    }

    /// Tells whether frames pass.
    pub(super) fn is_up(&self) -> bool {
        let down = state::Link::Down as u64;
        let is_ordered_down = |state: DeviceState| state.get(Word::Link) == down;
        self.tap_is_up && !self.state.is_some_and(is_ordered_down)
    }

    /// Has the link be down, or as the tap device is; returns the state that follows.
    pub(super) fn order(&mut self, is_up: bool) -> bool {
        let word = if is_up {
            state::Link::AsTap
        } else {
            state::Link::Down
        };
        if let Some(state) = self.state {
            state.set(Word::Link, word as u64);
        }
        self.look();
        self.is_up()
    }

    /// Looks at the tap device now and then.
    pub(super) fn poll(&mut self) {
        // planted: a link stays as it was at first
        if self.looked.elapsed() >= LOOK {
            self.look();
        }
    }

    /// Returns the state if the driver was shown another one.
    pub(super) fn news(&mut self) -> Option<bool> {
        let is_up = self.is_up();
        (self.shown.replace(is_up) != Some(is_up)).then_some(is_up)
    }

    /// Looks at the tap device. One that is gone is down.
    fn look(&mut self) {
        self.looked = Instant::now();
        if let Some(file) = &mut self.flags {
            self.tap_is_up = read_flags(file).is_some_and(|flags| flags & UP != 0);
        }
    }
}

/// Reads the flags of a network device, in hexadecimal digits. One read suffices, and the thread
/// may not ask for the file's length as the library's longer forms of reading do.
fn read_flags(file: &mut File) -> Option<u32> {
    let mut bytes = [0; 32];
    file.rewind().ok()?;
    let length = file.read(&mut bytes).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}
