//! The consoles of the guests' emulated serial ports: the rings in the shared region,
//! each on a unix socket `<run>/<vm>.serial`.
//!
//! A client that connects is sent what the ring still holds, then what comes. Input goes to
//! the input ring as far as it has room, when half of it is free; the rest stays in the
//! socket, also when its client leaves. Gear2 raises the line, so that `kick` is written,
//! when that much is free again.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use gear2_protocol::{ConsoleBlock, Region, offset};
use vmm_sys_util::eventfd::EventFd;

use crate::mapping::Doorbell;
use crate::progress;
use crate::socket::{Feed, Port};
use crate::sys::{self, Wait};

#[cfg(test)]
mod tests;

/// Bytes of the rings, powers of two: an index wraps at 2^32 to the place behind the last one.
const OUTPUT: u32 = offset::OUTPUT_SIZE as u32;
const INPUT: u32 = offset::INPUT_SIZE as u32;

/// Returns a VM's name as a file name.
pub fn file_name(vm: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    vm.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// A guest's serial console.
#[derive(Debug)]
struct Serial {
    /// Socket at which a person, or a program, sees the console.
    port: Port,
    /// How far the client has the output.
    feed: Feed,
    /// The rings, in the region shared with Gear2, which is the guest's UART.
    block: &'static ConsoleBlock,
}

impl Serial {
    /// Returns the number of bytes that the guest has put out. Acquire: the bytes themselves are
    /// read after it.
    fn written(&self) -> u32 {
        self.block.ring.output_written.load(Ordering::Acquire)
    }

    /// Returns how many bytes of input fit. Only this thread adds input, so the room can only grow.
    fn room(&self) -> u32 {
        let ring = &self.block.ring;
        let read = ring.input_read.load(Ordering::Acquire);
        let used = ring
            .input_written
            .load(Ordering::Relaxed)
            .wrapping_sub(read);
        INPUT.saturating_sub(used)
    }

    /// Tells whether input may be added. A guest takes 16 bytes at a time: what is pasted would
    /// wake this thread for each of them.
    fn takes_input(&self) -> bool {
        // planted: input is added by a few bytes
        self.room() >= INPUT - offset::INPUT_LOW as u32
    }

    /// Returns what to wait for. A client is read only if its input fits, and waited for as a
    /// writer only if there is output: either would end each wait at once.
    fn waits(&self) -> [Wait; 2] {
        let (listener, client) = self.port.descriptors();
        [
            Wait {
                fd: listener,
                read: true,
                write: false,
            },
            Wait {
                // A negative descriptor is passed over (poll(2)).
                fd: client.unwrap_or(-1),
                read: self.takes_input(),
                write: self.port.listens() && self.feed.behind(self.written()),
            },
        ]
    }

    /// Moves bytes both ways; true if the guest has new input.
    fn turn(&mut self) -> bool {
        if self.port.accept() {
            self.feed = Feed::from_oldest(self.written(), OUTPUT);
        }
        self.output();
        self.input()
    }

    /// Sends output. All of it counts as read, whatever the client took: a slow client loses
    /// output, and never holds the guest up.
    fn output(&mut self) {
        let block = self.block;
        let written = || block.ring.output_written.load(Ordering::Acquire);
        self.feed
            .send(&mut self.port, OUTPUT, written, |start, bytes| {
                let start = (start % OUTPUT) as usize;
                let from = block.output.iter().cycle().skip(start);
                for (to, from) in bytes.iter_mut().zip(from) {
                    *to = from.load(Ordering::Relaxed);
                }
            });
        block.ring.output_read.store(written(), Ordering::Relaxed);
    }

    /// Takes input; true if there was any. Release: the guest's UART sees the bytes before their
    /// number.
    fn input(&mut self) -> bool {
        let mut bytes = [0; offset::INPUT_SIZE];
        if !self.takes_input() {
            return false;
        }
        let room = (self.room() as usize).min(bytes.len());
        let length = self.port.read(bytes.get_mut(..room).unwrap_or_default());
        let ring = &self.block.ring;
        let mut written = ring.input_written.load(Ordering::Relaxed);
        for byte in bytes.iter().take(length) {
            // A power of two divides 2^32: the places go on in order where the count wraps.
            if let Some(place) = self.block.input.get((written % INPUT) as usize) {
                place.store(*byte, Ordering::Relaxed);
            }
            written = written.wrapping_add(1);
        }
        ring.input_written.store(written, Ordering::Release);
        length > 0
    }
}

/// All serial consoles.
#[derive(Debug)]
pub struct Serials {
    /// One for each VM, in the order of the manifest.
    serials: Vec<Serial>,
    /// Written by the hub when Gear2's line rose.
    kick: EventFd,
    /// Tells Gear2 of input.
    doorbell: Doorbell,
}

impl Serials {
    /// Makes a socket for each VM. `kick` is written when there may be output.
    pub fn open(
        region: &'static Region,
        names: &[String],
        run_directory: &str,
        kick: EventFd,
        doorbell: Doorbell,
    ) -> io::Result<Self> {
        let mut serials = Vec::new();
        for (name, block) in names.iter().zip(&region.consoles) {
            let port = Port::bind(&format!("{run_directory}/{}.serial", file_name(name)))?;
            let feed = Feed::default();
            serials.push(Serial { port, feed, block });
        }
        Ok(Self {
            serials,
            kick,
            doorbell,
        })
    }

    /// Serves for ever.
    pub fn run(&mut self) {
        loop {
            self.turn(1000);
        }
    }

    /// Waits for something to do, and does it; true if something came before the time was over.
    pub fn turn(&mut self, milliseconds: i32) -> bool {
        let kick = Wait {
            fd: self.kick.as_raw_fd(),
            read: true,
            write: false,
        };
        let waits = self.serials.iter().flat_map(Serial::waits);
        let waits: Vec<Wait> = std::iter::once(kick).chain(waits).collect();
        let ready = sys::wait(&waits, milliseconds);
        progress::step();
        if ready.first() == Some(&true) {
            let _ = self.kick.read();
        }
        // One ring for all: Gear2 looks at the input of every VM.
        let turns = self.serials.iter_mut().map(Serial::turn);
        if turns.fold(false, |any, new| any | new) {
            self.doorbell.ring();
        }
        ready.contains(&true)
    }
}
