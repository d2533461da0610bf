//! Channels by UIO, as a program of a guest uses them: the program `uio_ring` of the tests, and an
//! example of what docs/doorbells.md describes.
//!
//! The other VM is the bare-metal guest `uio_peer` (`tests/guests/src/bin/uio_peer.rs`). It answers
//! each ring of this program by as many rings as the shared memory asks for.
//!
//! Linux' `uio_pdrv_genirq` disables an interrupt when it comes, until a program writes a 1 to the
//! device. The kernel keeps one that comes meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use crate::mapping::{Doorbell, Mapping, Registers};
use crate::sys::{self, Wait};

#[cfg(test)]
mod tests;

/// Folder of the UIO devices.
const CLASS: &str = "/sys/class/uio";
/// Words of the shared memory: the rings that a question asks for, the number of the last ring of
/// the other VM, and how many questions the other VM was interrupted by.
const WANTED: usize = 0;
const ANSWER: usize = 4;
const HEARD: usize = 8;
/// Longest time until an interrupt, also on an emulated machine with other work.
const PATIENCE_MS: i32 = 20_000;
/// Time in which an interrupt that is not to come would have come.
const SILENCE_MS: i32 = 300;
/// Unit of the offset by which UIO's `mmap` takes the number of a range.
const PAGE: u64 = 4096;

/// A UIO device: a channel's end.
#[derive(Debug)]
pub struct Uio {
    /// `/dev/uioN`.
    file: File,
    /// `/sys/class/uio/uioN`.
    folder: PathBuf,
}

impl Uio {
    /// Opens the device whose name is that of a channel.
    pub fn named(name: &str) -> io::Result<Self> {
        let folder = folder_of(Path::new(CLASS), name)?;
        let device = folder.file_name().unwrap_or_default();
        let path = Path::new("/dev").join(device);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, folder })
    }

    /// Maps the range of this name, `doorbell` or `memory`, as Device memory.
    pub fn registers(&self, range: &str) -> io::Result<Registers> {
        let (number, size) = range_of(&self.folder, range)?;
        let mapping = Mapping::of_file(&self.file, number * PAGE, size)?;
        let registers = mapping.registers(0, size);
        registers.ok_or_else(|| io::Error::other(format!("{range}: {size:#x} bytes")))
    }

    /// Waits until an interrupt has come since the last [`Uio::count`]; tells whether one has.
    fn wait(&self, milliseconds: i32) -> bool {
        let wait = Wait {
            fd: self.file.as_raw_fd(),
            write: false,
            read: true,
        };
        sys::wait(&[wait], milliseconds) == [true]
    }

    /// Returns the number of interrupts since the driver was loaded, modulo 2^32; waits for one if
    /// none has come since the last call.
    fn count(&mut self) -> io::Result<u32> {
        let mut count = [0; 4];
        self.file.read_exact(&mut count)?;
        Ok(u32::from_ne_bytes(count))
    }

    /// Enables the interrupt, which the kernel disables each time it comes.
    fn enable(&mut self) -> io::Result<()> {
        self.file.write_all(&1_u32.to_ne_bytes())
    }
}

/// Returns the folder below `class` of the device with a name.
fn folder_of(class: &Path, name: &str) -> io::Result<PathBuf> {
    for entry in fs::read_dir(class)? {
        let folder = entry?.path();
        if fs::read_to_string(folder.join("name"))?.trim_end() == name {
            return Ok(folder);
        }
    }
    let message = format!("no device in {} has the name {name}", class.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Returns the number and the bytes of a device's range.
fn range_of(folder: &Path, range: &str) -> io::Result<(u64, usize)> {
    for number in 0.. {
        let map = folder.join(format!("maps/map{number}"));
        let Ok(name) = fs::read_to_string(map.join("name")) else {
            break;
        };
        if name.trim_end() == range {
            let size = fs::read_to_string(map.join("size"))?;
            let digits = size.trim_end().trim_start_matches("0x");
            let size = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
            return Ok((number, size));
        }
    }
    let message = format!("{} has no range {range}", folder.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// The two channels and the memory between this program and the other VM.
#[derive(Debug)]
struct Pair {
    doorbell: Doorbell,
    memory: Registers,
    /// Channel of the answers.
    tell: Uio,
    /// Number of questions so far.
    asked: u32,
    /// Number of rings that were asked for so far.
    wanted: u32,
    /// Interrupts so far, as the kernel counts them.
    interrupts: u32,
}

impl Pair {
    /// Opens the two channels. Counts begin with those in the memory: an earlier program may have
    /// rung, and the peer goes on counting.
    fn open(ask: &str, tell: &str) -> io::Result<Self> {
        let asked = Uio::named(ask)?;
        let mut tell = Uio::named(tell)?;
        // A ring that came before this program has left the interrupt disabled.
        tell.enable()?;
        let doorbell = Doorbell {
            page: asked.registers("doorbell")?,
            offset: 0,
        };
        let memory = tell.registers("memory")?;
        Ok(Self {
            doorbell,
            memory,
            tell,
            asked: memory.load(HEARD),
            wanted: memory.load(ANSWER),
            interrupts: 0,
        })
    }

    /// Asks for some rings.
    fn ask(&mut self, rings: u32) {
        self.asked = self.asked.wrapping_add(1);
        self.wanted = self.wanted.wrapping_add(rings);
        self.memory.store(WANTED, rings);
        self.doorbell.ring();
    }

    /// Waits for the next interrupt; returns how many have come since the last one that this
    /// program saw.
    fn next(&mut self, what: &str) -> io::Result<u32> {
        if !self.tell.wait(PATIENCE_MS) {
            let (answer, wanted) = (self.memory.load(ANSWER), self.wanted);
            let message = format!("{what}: no interrupt, at ring {answer} of {wanted}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        let count = self.tell.count()?;
        let new = count.wrapping_sub(self.interrupts);
        self.interrupts = count;
        Ok(new)
    }

    /// Checks that one interrupt has come, and that the other VM has rung as often as it was asked.
    fn expect_one(&mut self, what: &str) -> io::Result<()> {
        let new = self.next(what)?;
        expect(what, "interrupts", new, 1)?;
        expect(what, "rings", self.memory.load(ANSWER), self.wanted)
    }

    /// Asks once and takes the kernel's count: `/dev/uioN` tells it with an interrupt only.
    fn first_count(&mut self) -> io::Result<u32> {
        self.ask(1);
        self.next("first ring")?;
        expect("first ring", "rings", self.memory.load(ANSWER), self.wanted)?;
        self.tell.enable()?;
        Ok(self.interrupts.wrapping_sub(1))
    }

    /// Takes an answer to each of `rounds` questions: one interrupt each, none lost and none twice.
    fn take_turns(&mut self, rounds: u32) -> io::Result<()> {
        for round in 1..=rounds {
            self.ask(1);
            self.expect_one(&format!("round {round}"))?;
            self.tell.enable()?;
        }
        Ok(())
    }

    /// Leaves the interrupt disabled while the other VM rings: it comes when it is enabled.
    fn ring_while_disabled(&mut self) -> io::Result<()> {
        self.ask(1);
        self.expect_one("before the disabled interrupt")?;
        self.ask(1);
        if self.tell.wait(SILENCE_MS) {
            return Err(io::Error::other("an interrupt that is disabled came"));
        }
        expect(
            "a disabled interrupt",
            "rings",
            self.memory.load(ANSWER),
            self.wanted,
        )?;
        self.tell.enable()?;
        self.expect_one("an interrupt that came while it was disabled")?;
        self.tell.enable()
    }

    /// Takes `rings` that nobody waits between; returns the number of interrupts. Rings may join,
    /// but the last one is seen.
    fn take_burst(&mut self, rings: u32) -> io::Result<u32> {
        self.ask(rings);
        let mut interrupts = 0;
        while self.memory.load(ANSWER) != self.wanted || interrupts == 0 {
            interrupts += self.next("burst")?;
            self.tell.enable()?;
        }
        // The last ring may have come behind the look at the memory.
        while self.tell.wait(SILENCE_MS) {
            interrupts += self.next("end of the burst")?;
            self.tell.enable()?;
        }
        Ok(interrupts)
    }
}

/// Refuses a number that is not the wanted one.
fn expect(at: &str, what: &str, got: u32, wanted: u32) -> io::Result<()> {
    if got == wanted {
        return Ok(());
    }
    let message = format!("{at}: {got} {what} instead of {wanted}");
    Err(io::Error::other(message))
}

/// Rings by the channel `ask` and takes the answers by the channel `tell`: one at a time, one while
/// the interrupt is disabled, and a burst. Returns a line of figures.
pub fn ring(ask: &str, tell: &str, rounds: u32, burst: u32) -> io::Result<String> {
    let mut pair = Pair::open(ask, tell)?;
    let first = pair.first_count()?;
    pair.take_turns(rounds)?;
    pair.ring_while_disabled()?;
    let joined = pair.take_burst(burst)?;
    expect(
        "end",
        "questions heard",
        pair.memory.load(HEARD),
        pair.asked,
    )?;
    let all = pair.interrupts.wrapping_sub(first);
    let last = pair.memory.load(ANSWER);
    Ok(format!(
        "UIO {rounds} rounds, {burst} rings in a burst by {joined} interrupts, {all} interrupts in \
         all, last ring {last}"
    ))
}
