//! The last frame of a guest's screen: a file that the process of the guest writes and
//! `gearctl screenshot` reads.
//!
//! The file has a header of little-endian words (magic, sequence, width, height), and from byte
//! 4096 on the pixels, row by row, each as the bytes blue, green, red and one that is unused. The
//! sequence is odd while a part of the frame changes. The last frame can be looked at until the next
//! program draws, whatever ended the program that drew it.
//!
//! Invariant: the file takes 34 MiB of memory at most, whatever the process of the guest
//! does with its descriptor. The file is one in memory whose size nobody can change: a file in
//! `/run/gearv` could be made longer, and a limit of the process (RLIMIT_FSIZE) would hold for its
//! disks, too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

#[cfg(test)]
mod tests;

/// First word of the file.
const MAGIC: u32 = u32::from_le_bytes(*b"GVF1");
/// Bytes in front of the pixels that are used: magic, sequence, width and height, 32 bits each.
const HEADER: usize = 16;
/// Place of the sequence.
const SEQUENCE: u64 = 4;
/// Place of the first pixel.
const PIXELS: u64 = 4096;
/// Bytes of a pixel: blue, green, red, and one that is not used.
const PIXEL: u64 = 4;
/// Most pixels of a frame: it bounds the memory that a guest makes the device VM take, 34 MiB.
const MOST_PIXELS: u64 = 4096 * 2160;
/// Bytes of each file. Those that were never written take no memory.
const LONGEST: u64 = PIXELS + PIXEL * MOST_PIXELS;
/// Longest time for which a reader waits for the end of a change.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks of a reader at the sequence.
const STEP: Duration = Duration::from_millis(5);

/// Returns the file of the screen of a channel.
pub fn path(run_directory: &str, channel: u64) -> String {
    format!("{run_directory}/screen{channel}")
}

/// A frame that is written.
#[derive(Debug)]
pub struct Frame {
    file: File,
    /// Odd while the frame changes, as in a sequence lock: a reader that sees two different or odd
    /// values reads again.
    sequence: u32,
    /// Size in pixels; 0 by 0 while the screen is off.
    width: u32,
    height: u32,
}

/// The last file of each path. The link at the path leads to a descriptor of this process.
static KEPT: Mutex<BTreeMap<String, File>> = Mutex::new(BTreeMap::new());

/// Makes the file, and a link to it at `path`. One that is there belongs to an earlier writer, who
/// may still write to it.
pub fn create(path: &str) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let kept = sys::shared_memory(c"gdm-screen", LONGEST)?;
    let file = kept.try_clone()?;
    let (process, fd) = (std::process::id(), kept.as_raw_fd());
    symlink(format!("/proc/{process}/fd/{fd}"), path)?;
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(path.to_owned(), kept);
    Ok(file)
}

impl Frame {
    /// Makes a frame in a new file.
    pub fn of(file: File) -> io::Result<Self> {
        let mut frame = Self {
            file,
            sequence: 0,
            width: 0,
            height: 0,
        };
        frame.resize(0, 0)?;
        Ok(frame)
    }

    /// Gives the frame another size, and makes it black. A frame without a pixel has neither width
    /// nor height: a row of 2^32 pixels would be memory for nothing.
    pub fn resize(&mut self, width: u32, height: u32) -> io::Result<()> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels > MOST_PIXELS {
            let message = format!("a frame of {width} x {height} is too large");
            return Err(io::Error::other(message));
        }
        // planted: a screen that is off has rows of any length
        let (width, height) = if pixels == 0 { (0, 0) } else { (width, height) };
        self.sequence |= 1;
        (self.width, self.height) = (width, height);
        self.write_header()?;
        let black = vec![0; (PIXEL * u64::from(width)) as usize];
        for row in 0..height {
            self.write_row(0, row, &black)?;
        }
        self.end_change()
    }

    /// Tells whether a rectangle lies within the frame.
    pub fn contains(&self, x: u32, y: u32, width: u32, height: u32) -> bool {
        let is_within = |from: u32, length: u32, end: u32| {
            from.checked_add(length).is_some_and(|last| last <= end)
        };
        is_within(x, width, self.width) && is_within(y, height, self.height)
    }

    /// Says that parts of the frame change from here on.
    pub fn begin_change(&mut self) -> io::Result<()> {
        self.sequence |= 1;
        self.write_sequence()
    }

    /// Says that the frame is whole again.
    pub fn end_change(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.write_sequence()
    }

    /// Writes pixels of a row, which [`Self::contains`] has found to be within the frame.
    pub fn write_row(&self, x: u32, y: u32, pixels: &[u8]) -> io::Result<()> {
        let place = u64::from(y) * u64::from(self.width) + u64::from(x);
        self.file.write_all_at(pixels, PIXELS + PIXEL * place)
    }

    /// Writes the words in front of the pixels, after a change of the size.
    fn write_header(&self) -> io::Result<()> {
        let words = [MAGIC, self.sequence, self.width, self.height];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, 0)
    }

    /// Writes the sequence alone: a reader compares it before and after it reads pixels.
    fn write_sequence(&self) -> io::Result<()> {
        self.file
            .write_all_at(&self.sequence.to_le_bytes(), SEQUENCE)
    }
}

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green and blue of each pixel, row by row.
    pub colours: Vec<u8>,
}

impl Picture {
    /// Reads the frame at `path`, as a whole if its changes end within a second.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| named(&error))?;
        let begin = Instant::now();
        loop {
            let (sequence, picture) = Self::attempt(&file).map_err(|error| named(&error))?;
            let is_whole =
                sequence & 1 == 0 && header(&file).is_ok_and(|[_, again, ..]| again == sequence);
            if is_whole || begin.elapsed() >= PATIENCE {
                return Ok(picture);
            }
            thread::sleep(STEP);
        }
    }

    /// Reads the frame as it is; also returns its sequence. The size is judged before memory is
    /// taken for it.
    fn attempt(file: &File) -> io::Result<(u32, Self)> {
        let [magic, sequence, width, height] = header(file)?;
        let pixels = u64::from(width) * u64::from(height);
        if magic != MAGIC || pixels > MOST_PIXELS {
            return Err(io::Error::other("is no frame"));
        }
        let mut bytes = vec![0; (PIXEL * pixels) as usize];
        file.read_exact_at(&mut bytes, PIXELS)?;
        let (pixels, _) = bytes.as_chunks::<4>();
        let colours = pixels
            .iter()
            .flat_map(|[blue, green, red, _]| [*red, *green, *blue]);
        let picture = Self {
            width,
            height,
            colours: colours.collect(),
        };
        Ok((sequence, picture))
    }
}

/// Reads the header's words.
fn header(file: &File) -> io::Result<[u32; 4]> {
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, 0)?;
    let (words, _) = bytes.as_chunks::<4>();
    let mut header = [0; 4];
    for (to, from) in header.iter_mut().zip(words) {
        *to = u32::from_le_bytes(*from);
    }
    Ok(header)
}
