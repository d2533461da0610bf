//! VMCOREINFO: what a Linux kernel tells of itself to who reads its memory: where it lies, sizes and
//! offsets of its structures.
//!
//! A kernel that can dump itself (CONFIG_VMCORE_INFO, or CONFIG_CRASH_CORE before 6.9) keeps the note
//! complete, in pages of its own, from boot on. Nobody is told where: the note is looked for at the
//! start of each page.

use vm_memory::{Bytes, GuestAddress};

use super::PAGE;
use crate::memory::Memory;

/// Name of the note.
pub const NAME: &[u8] = b"VMCOREINFO\0";
/// Type of the note.
pub const TYPE: u32 = 0;

/// Beginning of the note's text.
const BEGINNING: &[u8] = b"OSRELEASE=";
/// Bytes of the header and of the padded name.
const HEADER: usize = 24;
/// Longest text. A kernel has one page for it.
const LONGEST: u32 = PAGE as u32;

/// Finds the text of the note in a guest's RAM.
pub fn find(memory: &Memory, (ipa, size): (u64, u64)) -> Option<Vec<u8>> {
    let pages = (0..size).step_by(PAGE as usize);
    pages.into_iter().find_map(|at| text(memory, ipa + at))
}

/// Returns the text of the note that is at an address, if one is.
fn text(memory: &Memory, at: u64) -> Option<Vec<u8>> {
    let mut begin = [0; HEADER + BEGINNING.len()];
    memory.read_slice(&mut begin, GuestAddress(at)).ok()?;
    let (header, first) = begin.split_at(HEADER);
    let length = u32::from_le_bytes(*header.get(4..)?.first_chunk()?);
    let expected = [NAME.len() as u32, length, TYPE].map(u32::to_le_bytes);
    let is_note = header.starts_with(&expected.concat()) && header.get(12..)?.starts_with(NAME);
    if !is_note || first != BEGINNING || length > LONGEST {
        return None;
    }
    let mut text = vec![0; length as usize];
    let from = GuestAddress(at + HEADER as u64);
    memory.read_slice(&mut text, from).ok()?;
    Some(text)
}
