//! Looks through linked images for instruction sequences that errata of the Cortex-A53 concern.
//!
//! Invariant: a sequence that the erratum's notice names is found; some that it excepts (since a
//! register depends on the first access) are found too, and none of our images has them.
//!
//! QEMU has no errata. Compiler and linker have workarounds of their own; the linked code is what
//! counts.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _, SectionKind};

/// Checks the code of an ELF file. An image without code would pass for nothing.
pub(super) fn check(elf: &Path) -> Result<()> {
    let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
    let file = object::File::parse(&*bytes)?;
    let mut code_bytes = 0;
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let data = section.data()?;
        code_bytes += data.len();
        let code = data.as_chunks().0.iter().copied().map(u32::from_le_bytes);
        let code: Vec<u32> = code.collect();
        let found = affected(section.address(), &code);
        ensure!(found.is_empty(), "{}: {found:x?}", elf.display());
    }
    ensure!(code_bytes > 0, "{} has no code", elf.display());
    Ok(())
}

/// Returns each affected sequence's address and erratum in code that begins at `base`. Each place
/// in the code may begin a sequence.
fn affected(base: u64, code: &[u32]) -> Vec<(u64, &'static str)> {
    let addresses = (base..).step_by(4);
    let windows = addresses.zip(0..code.len());
    let found = windows.filter_map(|(address, at)| {
        let rest = &code[at..];
        if is_835769(rest) {
            return Some((address, "835769"));
        }
        is_843419(address, rest).then_some((address, "843419"))
    });
    found.collect()
}

/// A 64-bit multiply-accumulate right behind a memory access.
fn is_835769(code: &[u32]) -> bool {
    let [access, accumulate, ..] = code else {
        return false;
    };
    is_memory_access(*access) && is_multiply_accumulate(*accumulate)
}

/// An ADRP in the last two words of a page, a memory access, perhaps one instruction more that is
/// no branch, and an access with an unsigned offset from ADRP's register.
fn is_843419(address: u64, code: &[u32]) -> bool {
    let [adrp, access, rest @ ..] = code else {
        return false;
    };
    let is_adrp = adrp & 0x9f00_0000 == 0x9000_0000;
    if !is_adrp || address & 0xfff < 0xff8 || !is_memory_access(*access) {
        return false;
    }
    let uses = |word: &u32| is_unsigned_offset(*word) && (word >> 5) & 31 == adrp & 31;
    match rest {
        [third, ..] if uses(third) => true,
        [third, fourth, ..] => !is_branch(*third) && uses(fourth),
        _ => false,
    }
}

/// Loads, stores and prefetches (Arm ARM C4.1, op0 = x1x0).
fn is_memory_access(word: u32) -> bool {
    word & 0x0a00_0000 == 0x0800_0000
}

/// MADD, MSUB and the long forms of 64 bits, that accumulate (Ra is not XZR).
fn is_multiply_accumulate(word: u32) -> bool {
    word & 0xff00_0000 == 0x9b00_0000
        && matches!((word >> 21) & 7, 0 | 1 | 5)
        && (word >> 10) & 31 != 31
}

/// Loads and stores of a register with an unsigned immediate offset.
fn is_unsigned_offset(word: u32) -> bool {
    word & 0x3b00_0000 == 0x3900_0000
}

/// B, BL, CBZ and TBZ with their twins; B.cond; BR and its like. A branch in third place ends the
/// sequence, as the erratum needs all four in order.
fn is_branch(word: u32) -> bool {
    matches!(word & 0x7c00_0000, 0x1400_0000 | 0x3400_0000)
        || word & 0xff00_0000 == 0x5400_0000
        || word & 0xfe00_0000 == 0xd600_0000
}

#[cfg(test)]
mod tests;
