//! Configuration space of a PCI function that a VM owns apart from its host bridge.
//!
//! The bridge and the bus are several VMs', so a VM decides only what concerns its function. Where
//! the function answers is init's choice: a base address register (BAR) that a VM moved would take
//! accesses of another VM, or give the VM's own to another function. Extended configuration space
//! is not there for VMs: address translation services would pass the SMMU by, SR-IOV would add
//! functions with requester IDs that nobody owns, and resizable BARs would grow over others.
//!
//! Section numbers are those of the PCI Local Bus Specification 3.0 (PCI) and of the PCI Express
//! Base Specification (PCIe).
//!
//! Requirements: G1-DMA-007.

use gear1_abi::boot::{BARS, BootFunction, MAX_FUNCTIONS, MAX_PCI_FUNCTIONS};

#[cfg(test)]
mod tests;

/// Bytes of a function's configuration space in ECAM (PCIe 7.2.2).
pub const FUNCTION_SIZE: u64 = 0x1000;
/// Bytes of a bus's configuration space.
pub const BUS_SIZE: u64 = FUNCTION_SIZE * MAX_FUNCTIONS as u64;
/// Value of the word with vendor and device where no function is (PCI 6.1).
pub const NO_FUNCTION: u32 = u32::MAX;

/// Offset of the command register, and its bits: the function answers in I/O space, in memory
/// space, and masters the bus (PCI 6.2.2).
pub const COMMAND: u64 = 0x4;
/// Memory Space Enable.
pub const MEMORY: u32 = 1 << 1;
const IO: u32 = 1 << 0;
/// Offset of the first BAR (PCI 6.2.5.1).
pub const FIRST_BAR: u64 = 0x10;
/// Offset of the expansion ROM's BAR (PCI 6.2.5.2).
pub const ROM: u64 = 0x30;
/// Offset behind the header, where capabilities begin, and behind the space that conventional PCI
/// has as well.
const HEADER_SIZE: u64 = 0x40;
const CONVENTIONAL_SIZE: u64 = 0x100;

/// Bits of each word of the header that a VM writes, BARs apart. The self test of BIST may keep the
/// function from its bus for seconds (PCI 6.2.4); nobody maps I/O space.
const WRITABLE: [u32; 16] = {
    let mut words = [0; 16];
    words[1] = !IO;
    // Cache line size and latency timer.
    words[3] = 0xffff;
    // Interrupt line, which only software reads.
    words[15] = 0xff;
    words
};

/// The configuration space of a function, as the bus has it.
pub trait ConfigSpace {
    /// Reads 1, 2 or 4 bytes.
    fn read(&self, access: Access) -> u32;
    /// Writes 1, 2 or 4 bytes.
    fn write(&mut self, access: Access, value: u32);
}

/// Place and size of an access to configuration space, which is aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    offset: u64,
    size_log2: u8,
}

/// Register that an access reaches.
enum Target {
    /// A register of the function's own.
    Function,
    /// The BAR with this number.
    Bar(usize),
    /// A register that reads as zero.
    Zero,
    /// A register that is not there, and reads as all ones.
    Absent,
}

impl Access {
    /// Returns an access of 2^`size_log2` bytes at an offset; `None`: configuration space has no
    /// such access (PCIe 7.2.2).
    #[must_use]
    pub const fn new(offset: u64, size_log2: u8) -> Option<Self> {
        let last = 1_u64.wrapping_shl(size_log2 as u32).wrapping_sub(1);
        if size_log2 <= 2 && offset < FUNCTION_SIZE && offset & last == 0 {
            Some(Self { offset, size_log2 })
        } else {
            None
        }
    }

    /// Returns an access of four bytes at the word of an offset.
    #[must_use]
    pub const fn word(offset: u64) -> Self {
        Self {
            offset: offset & (FUNCTION_SIZE - 4),
            size_log2: 2,
        }
    }

    /// Returns the offset in the function's configuration space, in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the base-2 logarithm of the size in bytes.
    #[must_use]
    pub const fn size_log2(self) -> u8 {
        self.size_log2
    }

    /// Returns the bytes of a word that the access reaches.
    const fn part(self, word: u32) -> u32 {
        let bits = 8_u32.wrapping_shl(self.size_log2 as u32);
        let unused = 32_u32.wrapping_sub(bits);
        let shifted = word.wrapping_shr((self.offset as u32 & 3).wrapping_mul(8));
        shifted.wrapping_shl(unused).wrapping_shr(unused)
    }

    /// Returns the register that the access reaches.
    const fn target(self) -> Target {
        // planted: a VM has its function's extended configuration space
        if self.offset >= CONVENTIONAL_SIZE {
            return Target::Absent;
        }
        let bar = (self.offset.wrapping_sub(FIRST_BAR) / 4) as usize;
        if bar < BARS {
            return Target::Bar(bar);
        }
        match self.offset & !3 {
            ROM => Target::Zero,
            _ => Target::Function,
        }
    }

    /// Returns which bits of the function the access may write.
    fn writable(self) -> u32 {
        if self.offset >= HEADER_SIZE {
            return u32::MAX;
        }
        let word = WRITABLE.get((self.offset / 4) as usize);
        self.part(word.copied().unwrap_or(0))
    }
}

/// The BARs of a function that show their size. A driver asks for the size by all ones, and reads
/// which bits have stayed zero (PCI 6.2.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizedBars(u8);

/// BARs that show their size to a VM, by their function's place in the hand-over.
pub type Asked = [SizedBars; MAX_PCI_FUNCTIONS];

/// A VM that has not asked yet.
pub const NOT_ASKED: Asked = [SizedBars(0); MAX_PCI_FUNCTIONS];

impl SizedBars {
    /// Takes in what a VM writes to a BAR: an address has no effect.
    const fn note(&mut self, bar: usize, value: u32) {
        /// Bits that are no address: kind, width, and prefetchable.
        const FLAGS: u32 = 0xf;
        let bit = 1_u8.wrapping_shl(bar as u32);
        if value | FLAGS == u32::MAX {
            self.0 |= bit;
        } else {
            self.0 &= !bit;
        }
    }

    /// Returns what a VM reads in a BAR.
    fn show(self, function: &BootFunction, bar: usize) -> u32 {
        let shows_size = self.0 & 1_u8.wrapping_shl(bar as u32) != 0;
        let words = if shows_size {
            &function.sizes
        } else {
            &function.bars
        };
        words.get(bar).copied().unwrap_or(0)
    }
}

/// Returns what a VM reads of its function's configuration space.
pub fn read(
    function: &BootFunction,
    sized: SizedBars,
    access: Access,
    space: &impl ConfigSpace,
) -> u32 {
    match access.target() {
        Target::Function => space.read(access),
        Target::Bar(bar) => access.part(sized.show(function, bar)),
        Target::Zero => 0,
        Target::Absent => access.part(u32::MAX),
    }
}

/// Carries out a VM's write to its function's configuration space.
pub fn write(
    function: &BootFunction,
    sized: &mut SizedBars,
    access: Access,
    value: u32,
    space: &mut impl ConfigSpace,
) {
    match access.target() {
        // planted: a VM moves its function's registers
        Target::Bar(bar) if access.size_log2 == 2 => sized.note(bar, value),
        Target::Function => {
            let (writable, value) = (access.writable(), value & access.writable());
            if access.offset == COMMAND && value & MEMORY != 0 {
                enable_memory(function, access, value, space);
            } else if writable != 0 {
                space.write(access, value);
            }
        }
        Target::Bar(_) | Target::Zero | Target::Absent => {}
    }
}

/// Has a function answer in memory space, where init has placed it.
///
/// A reset of the function, by itself (PCIe 6.6.2) or by a way back from D3hot, clears the command
/// and the BARs. So the BARs are written before the function answers. A reset that another vCPU of
/// the VM has begun may end in between: the BARs are read as well, and the function falls silent if
/// they are others.
fn enable_memory(
    function: &BootFunction,
    access: Access,
    value: u32,
    space: &mut impl ConfigSpace,
) {
    write_bars(function, space);
    space.write(access, value);
    // planted: a function answers where another VM's may be
    if !is_placed(function, space) {
        space.write(access, value & !MEMORY);
    }
}

/// Returns the words of the BARs: where each is, what init wrote there, and its size, 0 of one that
/// the function does not have.
fn words(function: &BootFunction) -> impl Iterator<Item = (Access, u32, u32)> {
    /// Offsets of the BARs.
    const OFFSETS: [u64; BARS] = [FIRST_BAR, 0x14, 0x18, 0x1c, 0x20, 0x24];
    let words = OFFSETS
        .iter()
        .zip(function.bars.iter().zip(&function.sizes));
    words.map(|(offset, (bar, size))| (Access::word(*offset), *bar, *size))
}

/// Writes the BARs.
fn write_bars(function: &BootFunction, space: &mut impl ConfigSpace) {
    // Bound: BARS (6).
    for (access, bar, size) in words(function) {
        if size != 0 {
            space.write(access, bar);
        }
    }
}

/// Tells whether the BARs are where init has placed them.
fn is_placed(function: &BootFunction, space: &impl ConfigSpace) -> bool {
    // Bound: BARS (6).
    for (access, bar, size) in words(function) {
        if size != 0 && space.read(access) != bar {
            return false;
        }
    }
    true
}
