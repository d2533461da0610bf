//! The region as one structure, so that a mapping of it is one reference.
//!
//! Owns nothing but the places: they are those of [`offset`], which is asserted.

use core::mem::offset_of;
use core::ops::Deref;

use crate::{
    AtomicU8, AtomicU32, AtomicU64, ConsoleRing, Control, Header, MAX_CONSOLES, MAX_DEVICES,
    MmioSlot, Ordering, REGION_SIZE, offset,
};

/// Slots in the region: one for each vCPU that there can be.
const SLOTS: usize = 32;
/// Bytes between the control mailbox and the devices' pages.
const BEFORE_DEVICES: usize = offset::DEVICES - offset::CONTROL - 0x1000;
/// Bytes between the devices' pages and the consoles.
const BEFORE_CONSOLES: usize =
    offset::CONSOLES - offset::DEVICES - MAX_DEVICES * offset::DEVICE_SIZE;
const BEHIND_CONSOLES: usize = REGION_SIZE - offset::CONSOLES - MAX_CONSOLES * offset::CONSOLE_SIZE;

/// Something that has pages of its own.
#[derive(Debug, Default)]
#[repr(C, align(4096))]
pub struct Page<T>(T);

impl<T> Deref for Page<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A VM's console: indices and bytes.
#[derive(Debug)]
#[repr(C)]
pub struct ConsoleBlock {
    /// The indices.
    pub ring: Page<ConsoleRing>,
    /// Input bytes.
    pub input: [AtomicU8; offset::INPUT_SIZE],
    /// Output bytes.
    pub output: [AtomicU8; offset::OUTPUT_SIZE],
}

/// The shared region.
#[derive(Debug)]
#[repr(C)]
pub struct Region {
    /// Layout and the signs of life of both sides.
    pub header: Page<Header>,
    /// The slot of each vCPU.
    pub slots: Page<[MmioSlot; SLOTS]>,
    /// The control mailbox.
    pub control: Page<Control>,
    reserved: [AtomicU8; BEFORE_DEVICES],
    /// GDM's own page for each virtio device.
    pub devices: [[AtomicU64; offset::DEVICE_SIZE / 8]; MAX_DEVICES],
    reserved_too: [AtomicU8; BEFORE_CONSOLES],
    /// The console of each VM.
    pub consoles: [ConsoleBlock; MAX_CONSOLES],
    reserved_last: [AtomicU8; BEHIND_CONSOLES],
}

const _: () = {
    assert!(size_of::<Region>() == REGION_SIZE);
    assert!(offset_of!(Region, slots) == offset::MMIO);
    assert!(offset_of!(Region, control) == offset::CONTROL);
    assert!(offset_of!(Region, devices) == offset::DEVICES);
    assert!(offset_of!(Region, consoles) == offset::CONSOLES);
    assert!(size_of::<ConsoleBlock>() == offset::CONSOLE_SIZE);
    assert!(offset_of!(ConsoleBlock, input) == offset::INPUT);
    assert!(offset_of!(ConsoleBlock, output) == offset::OUTPUT);
};

const fn bytes<const N: usize>() -> [AtomicU8; N] {
    [const { AtomicU8::new(0) }; N]
}

const fn words<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

const fn word() -> AtomicU32 {
    AtomicU32::new(0)
}

impl Region {
    /// Makes a region of zeroes, 2 MiB of them: for a `static` or a heap.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            header: Page(Header {
                magic: AtomicU64::new(0),
                version: word(),
                vcpu_count: word(),
                vm_count: word(),
                gdm_starts: word(),
                gdm_beats: word(),
                counter_hz: word(),
            }),
            slots: Page([const { MmioSlot::new() }; SLOTS]),
            control: Page(Control {
                asked: word(),
                answered: word(),
                op: word(),
                outcome: word(),
                arguments: words(),
                results: words(),
            }),
            reserved: bytes(),
            devices: [const { words() }; MAX_DEVICES],
            reserved_too: bytes(),
            consoles: [const { ConsoleBlock::new() }; MAX_CONSOLES],
            reserved_last: bytes(),
        }
    }

    /// Zeroes all that has a meaning, the magic number first.
    pub fn clear(&self) {
        self.header.clear();
        self.slots.iter().for_each(MmioSlot::clear);
        self.control.clear();
        self.devices.iter().for_each(|page| zero(page));
        self.consoles.iter().for_each(ConsoleBlock::clear);
    }
}

impl Default for Region {
    fn default() -> Self {
        Self::new()
    }
}

impl Header {
    fn clear(&self) {
        self.magic.store(0, Ordering::SeqCst);
        let words = [
            &self.version,
            &self.vcpu_count,
            &self.vm_count,
            &self.gdm_starts,
            &self.gdm_beats,
            &self.counter_hz,
        ];
        zero_halves(words);
    }
}

impl MmioSlot {
    const fn new() -> Self {
        Self {
            state: word(),
            device: word(),
            register: word(),
            access: word(),
            value: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
        }
    }

    fn clear(&self) {
        let words = [&self.state, &self.device, &self.register, &self.access];
        zero_halves(words);
        self.value.store(0, Ordering::Relaxed);
        self.sequence.store(0, Ordering::Relaxed);
    }
}

impl Control {
    fn clear(&self) {
        let words = [&self.asked, &self.answered, &self.op, &self.outcome];
        zero_halves(words);
        zero(&self.arguments);
        zero(&self.results);
    }
}

impl ConsoleBlock {
    const fn new() -> Self {
        Self {
            ring: Page(ConsoleRing {
                output_written: word(),
                output_read: word(),
                input_written: word(),
                input_read: word(),
            }),
            input: bytes(),
            output: bytes(),
        }
    }

    fn clear(&self) {
        let words = [
            &self.ring.output_written,
            &self.ring.output_read,
            &self.ring.input_written,
            &self.ring.input_read,
        ];
        zero_halves(words);
        let bytes = self.input.iter().chain(&self.output);
        bytes.for_each(|byte| byte.store(0, Ordering::Relaxed));
    }
}

fn zero_halves<const N: usize>(words: [&AtomicU32; N]) {
    words
        .into_iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
}

fn zero(words: &[AtomicU64]) {
    words
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
}
