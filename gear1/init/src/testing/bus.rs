//! The first bus of a PCI host bridge: functions that answer to configuration space alone.
//!
//! Requirements: G1-DMA-007.

use std::collections::BTreeMap;

const FUNCTION_SIZE: u64 = 0x1000;
const BUS_SIZE: u64 = FUNCTION_SIZE * 256;
const COMMAND: u64 = 4;
const FIRST_BAR: u64 = 0x10;
const ROM: u64 = 0x30;

/// A function as its reset leaves it.
#[derive(Clone, Default)]
pub(crate) struct FakeFunction {
    /// Words that only read, by offset; others read as zero.
    pub(crate) words: BTreeMap<u64, u32>,
    /// Of each BAR the bits that can be set, and the flags.
    pub(crate) bars: [(u32, u32); 6],
    /// BARs keep what is written to them.
    pub(crate) keeps_address: bool,
    /// Words that were written: the command, BARs and the ROM's.
    written: BTreeMap<u64, u32>,
}

impl FakeFunction {
    /// Returns a function with an identity, a class, a header type and a line.
    pub(crate) fn new(class: u32, header_type: u32, pin: u32) -> Self {
        let words = [
            (0, 0x1001_1af4),
            (8, class << 16),
            (0xc, header_type << 16),
            (0x3c, pin << 8),
        ];
        Self {
            words: words.into(),
            keeps_address: true,
            ..Self::default()
        }
    }

    /// Returns the function with a memory BAR of 32 bits.
    pub(crate) fn with_bar(mut self, bar: usize, size: u32) -> Self {
        self.bars[bar] = (!(size - 1), 0);
        self
    }

    /// Returns the function with a prefetchable BAR of 64 bits.
    pub(crate) fn with_long_bar(mut self, bar: usize, size: u64) -> Self {
        let mask = !(size - 1);
        self.bars[bar] = (mask as u32, 0xc);
        self.bars[bar + 1] = ((mask >> 32) as u32, 0);
        self
    }

    /// Returns the function with a BAR in I/O space.
    pub(crate) fn with_io_bar(mut self, bar: usize, size: u32) -> Self {
        self.bars[bar] = (!(size - 1), 1);
        self
    }

    fn bar(&self, offset: u64) -> Option<(u32, u32)> {
        let index = offset.checked_sub(FIRST_BAR)? / 4;
        self.bars.get(index as usize).copied()
    }

    pub(crate) fn write(&mut self, offset: u64, value: u32) {
        self.written.insert(offset, value);
    }

    pub(crate) fn read(&self, offset: u64) -> u32 {
        let written = self.written.get(&offset).copied().unwrap_or(0);
        match self.bar(offset) {
            Some((mask, flags)) if self.keeps_address || written == u32::MAX => {
                written & mask | flags
            }
            Some((_, flags)) => flags,
            None if offset == COMMAND => written | self.words.get(&COMMAND).unwrap_or(&0),
            None if offset == ROM => written,
            None => {
                let word = self
                    .written
                    .get(&offset)
                    .or_else(|| self.words.get(&offset));
                word.copied().unwrap_or(0)
            }
        }
    }
}

/// A bus, with its functions by device and function number.
#[derive(Clone, Default)]
pub(crate) struct FakeBus {
    pub(crate) functions: BTreeMap<u64, FakeFunction>,
}

impl FakeBus {
    /// Where QEMU's `virt` has configuration space.
    pub(crate) const BASE: u64 = 0x40_1000_0000;

    /// Returns a bus as QEMU's: a host bridge, and these functions behind it.
    pub(crate) fn new(functions: impl IntoIterator<Item = (u64, FakeFunction)>) -> Self {
        let mut bus = Self {
            functions: functions.into_iter().collect(),
        };
        bus.functions.insert(0, FakeFunction::new(0x0600, 0, 0));
        bus
    }

    pub(super) fn has(&self, at: u64) -> bool {
        (Self::BASE..Self::BASE + BUS_SIZE).contains(&at)
    }

    pub(super) fn read(&self, at: u64) -> u32 {
        let offset = at - Self::BASE;
        let function = self.functions.get(&(offset / FUNCTION_SIZE));
        function.map_or(u32::MAX, |function| function.read(offset % FUNCTION_SIZE))
    }

    pub(super) fn write(&mut self, at: u64, value: u32) {
        let offset = at - Self::BASE;
        let function = self.functions.get_mut(&(offset / FUNCTION_SIZE));
        let function = function.expect("a function that is not there is written");
        function.write(offset % FUNCTION_SIZE, value);
    }
}
