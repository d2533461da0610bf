//! Source of events: a device of the device VM, or whoever connects to a socket and types.
//!
//! Invariant: a source of either kind is read without waiting. A device is read whether or not the
//! guest keeps up, since nobody could be held up; a socket is read as far as there is room, and its
//! writer notices.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;

use evdev::raw_stream::RawDevice;
use evdev::{EventType, InputEvent};

use super::event::{Event, MOST_OF_REPORT, MOST_WAITING, Reports};
use super::profile::Profile;
use super::words::events_of;
use crate::socket::{self, Port};

/// Beginning of a backend that is a socket.
const SOCKET: &str = "socket:";
/// Bytes of a line at most.
const LONGEST: usize = 128;
/// Bytes read from a socket at a time. The lines in them are no more events than there is room for:
/// the shortest of four events, `tap 1`, has six bytes.
const PIECE: usize = 256;
const _: () = assert!(PIECE / 6 * 4 + MOST_OF_REPORT < MOST_WAITING / 2);

/// Binds the socket, or grabs the device: the grab lasts until the last descriptor of this opening is
/// closed. Both are non-blocking.
pub(super) fn claim(backend: &str) -> io::Result<OwnedFd> {
    if let Some(path) = backend.strip_prefix(SOCKET) {
        return Ok(socket::listen(path)?.into());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options.custom_flags(libc::O_NONBLOCK).open(backend)?;
    // The crate closes its descriptor with the device.
    RawDevice::from_fd(file.try_clone()?.into())?.grab()?;
    Ok(file.into())
}

/// A source of events.
#[derive(Debug)]
pub(super) enum Source {
    /// A device, which no other program of the device VM hears while GDM has it.
    Device(RawDevice),
    /// A socket, and the beginning of a line from it.
    Socket(Port, Vec<u8>),
}

impl Source {
    /// Takes what [`claim`] has opened for this backend, and returns what the source can send.
    pub(super) fn of(opened: OwnedFd, backend: &str) -> io::Result<(Self, Profile)> {
        if backend.starts_with(SOCKET) {
            let port = Port::of(opened.into());
            let typed = Profile::keyboard_and_tablet();
            return Ok((Self::Socket(port, Vec::new()), typed));
        }
        let device = RawDevice::from_fd(opened)?;
        let profile = Profile::of_device(&device)?;
        Ok((Self::Device(device), profile))
    }

    /// Returns the descriptors that are ready when there are events.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Device(device) => vec![device.as_raw_fd()],
            Self::Socket(port, _) => {
                let (listener, client) = port.descriptors();
                [Some(listener), client].into_iter().flatten().collect()
            }
        }
    }

    /// Accepts who connects; true if there is another descriptor.
    pub(super) fn accept(&mut self) -> bool {
        match self {
            Self::Device(_) => false,
            Self::Socket(port, line) => {
                let accepted = port.accept();
                if accepted {
                    // The beginning of a line is not continued by somebody else.
                    line.clear();
                }
                accepted
            }
        }
    }

    /// Reads events; true if there may be more as soon as there is room. Without a driver they go
    /// nowhere. The error says that the device is gone.
    pub(super) fn read(
        &mut self,
        profile: &Profile,
        reports: Option<&mut Reports>,
    ) -> io::Result<bool> {
        match self {
            Self::Device(device) => read_device(device, reports).map(|()| false),
            Self::Socket(port, line) => Ok(read_socket(port, line, profile, reports)),
        }
    }

    /// Passes an event of the guest's on to the device: its lights.
    pub(super) fn send(&mut self, profile: &Profile, event: Event) {
        let is_light = event.kind == EventType::LED.0 && profile.has(EventType::LED, event.code);
        if let (Self::Device(device), true) = (self, is_light) {
            let event = InputEvent::new(event.kind, event.code, event.value);
            // A light that cannot be lit harms nobody.
            let _ = device.send_events(&[event]);
        }
    }
}

/// Reads all events of a device.
fn read_device(device: &mut RawDevice, mut reports: Option<&mut Reports>) -> io::Result<()> {
    loop {
        match device.fetch_events() {
            Ok(events) => {
                for event in events {
                    if let Some(reports) = &mut reports {
                        reports.push(event.into());
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads lines as far as there is room; true if the socket may have more.
fn read_socket(
    port: &mut Port,
    line: &mut Vec<u8>,
    profile: &Profile,
    mut reports: Option<&mut Reports>,
) -> bool {
    let mut bytes = [0; PIECE];
    loop {
        // planted: a socket is read without room
        if reports.as_ref().is_some_and(|reports| !reports.has_room()) {
            return true;
        }
        let length = port.read(&mut bytes);
        if length == 0 {
            return false;
        }
        for byte in bytes.iter().take(length) {
            // What is too long is refused at its end.
            match byte {
                b'\n' => take_line(port, line, profile, reports.as_deref_mut()),
                byte if line.len() <= LONGEST => line.push(*byte),
                _ => {}
            }
        }
    }
}

/// Takes a line, and tells who typed it what is wrong with it.
fn take_line(
    port: &mut Port,
    line: &mut Vec<u8>,
    profile: &Profile,
    reports: Option<&mut Reports>,
) {
    let text = String::from_utf8_lossy(line).into_owned();
    let is_long = line.len() > LONGEST;
    line.clear();
    let events = match (is_long, reports) {
        (true, _) => Err("the line is too long".to_owned()),
        (false, None) => Err("no driver of the guest uses the device".to_owned()),
        (false, Some(reports)) => events_of(&text, profile).map(|events| {
            for event in events {
                reports.push(event);
            }
        }),
    };
    if let Err(error) = events {
        port.write(format!("error: {error}\n").as_bytes());
    }
}
