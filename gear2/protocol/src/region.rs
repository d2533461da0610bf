//! The region as one structure, so that a mapping of it is one reference.
//!
//! Owns nothing but the places: they are those of [`offset`], which is asserted.

use core::mem::offset_of;
use core::ops::Deref;

use crate::{
    AtomicU8, AtomicU32, AtomicU64, ConsoleRing, Control, Header, MAX_CONSOLES, MAX_DEVICES,
    MmioSlot, Ordering, REGION_SIZE, TRACE_RECORDS, TRACE_WORDS, VIRTIO_STRIDE, offset,
};

/// Slots in a VM's page: one for each vCPU that there can be.
const SLOTS: usize = 32;
/// Bytes between the control mailbox and the devices' pages.
const BEFORE_DEVICES: usize = offset::DEVICES - offset::CONTROL - 0x1000;
/// Bytes between the devices' pages and the consoles.
const BEFORE_CONSOLES: usize =
    offset::CONSOLES - offset::DEVICES - MAX_DEVICES * offset::DEVICE_SIZE;
/// Bytes between the header and the control mailbox.
const BEFORE_CONTROL: usize = offset::CONTROL - 0x1000;
/// Bytes behind the pages of slots.
const BEHIND_SLOTS: usize = offset::TRACE - offset::MMIO - MAX_CONSOLES * 0x1000;
/// Words for records, and bytes behind them.
const TRACE_AREA: usize = TRACE_RECORDS * TRACE_WORDS;
const BEHIND_TRACE: usize = REGION_SIZE - offset::TRACE - TRACE_AREA * 8;

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

/// Registers of a VM's virtio devices, [`VIRTIO_STRIDE`] bytes each. The guest reads them without an
/// exit. GDM and Gear2 write them, whole words only.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct RegisterPage {
    /// Words of each device.
    pub devices: [DeviceRegisters; PAGE_DEVICES],
}

/// Registers that a guest reads of a device, in its VM's register page.
pub type DeviceRegisters = [AtomicU32; DEVICE_WORDS];

/// Words of a device in its VM's register page, and devices in a page.
const DEVICE_WORDS: usize = VIRTIO_STRIDE as usize / 4;
const PAGE_DEVICES: usize = 4096 / VIRTIO_STRIDE as usize;

impl RegisterPage {
    /// Makes a page of zeroes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            devices: [const { [const { word() }; DEVICE_WORDS] }; PAGE_DEVICES],
        }
    }
}

impl Default for RegisterPage {
    fn default() -> Self {
        Self::new()
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
    reserved: [AtomicU8; BEFORE_CONTROL],
    /// The control mailbox.
    pub control: Page<Control>,
    reserved_too: [AtomicU8; BEFORE_DEVICES],
    /// GDM's own page for each virtio device.
    pub devices: [[AtomicU64; offset::DEVICE_SIZE / 8]; MAX_DEVICES],
    reserved_also: [AtomicU8; BEFORE_CONSOLES],
    /// The console of each VM.
    pub consoles: [ConsoleBlock; MAX_CONSOLES],
    /// By VM, the slots of its vCPUs, each at the vCPU's number.
    pub slots: [Page<[MmioSlot; SLOTS]>; MAX_CONSOLES],
    reserved_then: [AtomicU8; BEHIND_SLOTS],
    /// Answers of more words than the mailbox has.
    pub trace: [AtomicU64; TRACE_AREA],
    reserved_last: [AtomicU8; BEHIND_TRACE],
}

const _: () = {
    assert!(size_of::<Region>() == REGION_SIZE);
    assert!(size_of::<RegisterPage>() == 4096);
    assert!(offset_of!(Region, slots) == offset::MMIO);
    assert!(offset_of!(Region, trace) == offset::TRACE);
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
            reserved: bytes(),
            control: Page(Control {
                asked: word(),
                answered: word(),
                op: word(),
                outcome: word(),
                arguments: words(),
                results: words(),
            }),
            reserved_too: bytes(),
            devices: [const { words() }; MAX_DEVICES],
            reserved_also: bytes(),
            consoles: [const { ConsoleBlock::new() }; MAX_CONSOLES],
            slots: [const { Page([const { MmioSlot::new() }; SLOTS]) }; MAX_CONSOLES],
            reserved_then: bytes(),
            trace: words(),
            reserved_last: bytes(),
        }
    }

    /// Zeroes all that has a meaning, the magic number first.
    pub fn clear(&self) {
        self.header.clear();
        self.slots
            .iter()
            .flat_map(|page| page.iter())
            .for_each(MmioSlot::clear);
        self.control.clear();
        self.devices.iter().for_each(|page| zero(page));
        self.consoles.iter().for_each(ConsoleBlock::clear);
        zero(&self.trace);
    }
}

impl Region {
    /// Returns the slot of the vCPU numbered `vcpu` among all VMs', which is one of the VM `vm`.
    #[must_use]
    pub fn slot(&self, vm: usize, vcpu: usize) -> Option<&MmioSlot> {
        self.slots.get(vm)?.get(vcpu)
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
