//! Interrupts for userspace: line events of the emulated PL061s.
//!
//! Owns: finding the GPIO chip of a PL061 by its address, and its lines.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::mapping::Doorbell;
use crate::sys;

#[cfg(test)]
mod tests;

/// Events that stay in the queue of a line's request until they are thrown away together, as each
/// look is a call of the kernel. Linux' queue has room for sixteen, and Linux wakes nobody for an
/// event that finds no room (drivers/gpio/gpiolib-cdev.c).
const KEPT: u8 = 8;

/// A line whose rising edges wake this process.
#[derive(Debug)]
pub struct Line {
    /// Descriptor of the line's request: an event for each rising edge.
    events: File,
    /// Where the line is armed, and its bit there.
    arm: Option<(Doorbell, u32)>,
    /// Waits that told of an edge since the queue was emptied. The queue has an event more at most
    /// for each arming in vain.
    kept: u8,
}

impl Line {
    /// Takes the line `line` of the PL061 at physical address `address`.
    pub fn open(address: u64, line: u32) -> io::Result<Self> {
        let chip = find(address)?;
        Ok(Self::of_file(sys::gpio_line(&chip, line)?))
    }

    /// Has the line rise once for each time that it is armed at `doorbell`, where it is number
    /// `line`.
    #[must_use]
    pub fn paced(self, doorbell: Doorbell, line: u32) -> Self {
        Self {
            arm: Some((doorbell, 1 << line)),
            ..self
        }
    }

    /// Lets the line rise again; at once if it is to since it did the last time.
    pub fn arm(&self) {
        if let Some((doorbell, bit)) = &self.arm {
            doorbell.store(*bit);
        }
    }

    /// Takes any descriptor that becomes readable (tests).
    pub fn of_file(file: File) -> Self {
        Self {
            events: file,
            arm: None,
            kept: 0,
        }
    }

    /// Returns the descriptor to wait for.
    pub fn file(&self) -> &File {
        &self.events
    }

    /// Takes in that an edge-triggered wait has told of an edge. Each event of a line follows an
    /// arming of its own from the first arming on, until the line's interrupt is masked, as in a
    /// suspended device VM. So many events fit into the queue that only now and then one call throws
    /// them away.
    pub fn heard(&mut self) {
        self.kept += 1;
        // planted: events of a line stay until there is no room
        if self.arm.is_none() || self.kept >= KEPT {
            self.forget();
        }
    }

    /// Throws all events away, and tells whether there was one. A wait that has not told of an event
    /// yet never does.
    pub fn forget(&mut self) -> bool {
        self.kept = 0;
        self.drain()
    }

    /// Throws the events away: they only say "look". Tells whether there was one.
    pub fn drain(&self) -> bool {
        // Sixteen events of 48 bytes.
        let mut events = [0; 768];
        let mut had_some = false;
        // The descriptor does not block: an error says that no event is left, as do fewer than fit.
        while let Ok(length) = (&self.events).read(&mut events) {
            had_some |= length > 0;
            if length < events.len() {
                break;
            }
        }
        had_some
    }
}

/// Returns the `reg` property of a chip's node in the device tree.
fn register(chip: &Path) -> Option<Vec<u8>> {
    let mut places = ["of_node/reg", "device/of_node/reg"].iter();
    places.find_map(|place| fs::read(chip.join(place)).ok())
}

/// Finds the chip whose device node has `address` as its first register, or whose
/// label is the node's name on the bus (`c000000.pl061`).
fn find(address: u64) -> io::Result<File> {
    let prefix = format!("{address:x}.");
    for entry in fs::read_dir("/sys/bus/gpio/devices")?.flatten() {
        let name = entry.file_name();
        let Ok(chip) = File::open(Path::new("/dev").join(&name)) else {
            continue;
        };
        let register = register(&entry.path());
        let here = register.is_some_and(|bytes| bytes.starts_with(&address.to_be_bytes()));
        if here || sys::gpio_label(&chip)?.starts_with(&prefix) {
            return Ok(chip);
        }
    }
    let message = format!("no GPIO chip at {address:#x}");
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}
