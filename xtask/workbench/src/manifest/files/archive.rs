//! Archives that were cut off: Linux unpacks what is there, and misses the rest at run time.
//!
//! Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst, "newc" archives.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Bytes of the header of a member.
const HEADER_BYTES: usize = 110;
/// Where the header has the size of the member's data, and of its name.
const SIZE: (usize, usize) = (54, 94);
/// Name of the last member.
const LAST: &[u8] = b"TRAILER!!!\0";
/// Most members that are looked at: an archive of a whole system has some ten thousand.
const MOST_MEMBERS: usize = 1 << 20;

/// Says why an archive is none. What is behind its last member may be another archive, packed or
/// not, and is Linux's affair.
pub(super) fn fault(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut file = BufReader::new(file);
    let mut at = 0;
    for _ in 0..MOST_MEMBERS {
        let Some(member) = member(&mut file, at) else {
            return Some(cut(bytes));
        };
        if member.is_last {
            return None;
        }
        if member.end > bytes {
            return Some(cut(bytes));
        }
        at = member.end;
    }
    None
}

/// The usual case is a download, or a copy, that was cut off.
fn cut(bytes: u64) -> String {
    format!("a cpio archive that ends within a member, at byte {bytes}; copy or make it once more")
}

/// A member of an archive.
struct Member {
    /// Where the next one begins.
    end: u64,
    is_last: bool,
}

/// Reads the member at an offset; `None`: there is none.
fn member(file: &mut BufReader<File>, at: u64) -> Option<Member> {
    file.seek(SeekFrom::Start(at)).ok()?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    let number = |at: usize| {
        let digits = str::from_utf8(header.get(at..at + 8)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (size, name_bytes) = (number(SIZE.0)?, number(SIZE.1)?);
    let mut name = [0; LAST.len()];
    let is_short = name_bytes < LAST.len() as u64;
    let is_last = !is_short && file.read_exact(&mut name).is_ok() && name.as_slice() == LAST;
    // Header with name, and data, are padded to multiples of four.
    let data = at + (HEADER_BYTES as u64 + name_bytes).next_multiple_of(4);
    Some(Member {
        end: data + size.next_multiple_of(4),
        is_last,
    })
}
