//! The guest's side of `cargo xtask bench --wake`: stores to its virtio device, as a program in the
//! device VM asks for it in this guest's memory, and notes what the counter was.
//!
//! The layout of that memory is also `device-model/src/measure.rs`'s. Between two samples the guest
//! sleeps, so that everybody else does; while it waits for a store of the program it executes
//! YIELD.
#![no_std]
#![no_main]

use test_guests::mmio::{read32, write32};
use test_guests::{Machine, cpu, gic, guest, timer};

guest!(main);

/// Offset of the shared words in memory, and the offsets of the words. The image ends below it.
const SHARED: u64 = 8 << 20;
/// The program polls for it, as it may start before the guest.
const READY: u64 = 0;
/// A command is new if it differs from the last one, hence the number in the upper bits.
const COMMAND: u64 = 4;
/// Echo of the command, behind all samples.
const DONE: u64 = 8;
/// The counter's lower half: the program subtracts modulo 2^32.
const KICKED: u64 = 12;
const WOKEN: u64 = 16;
const SAMPLES: u64 = 64;
/// Value of `READY` when the guest is ready. Memory of the guest's former life is wiped, so no
/// older word passes for it.
const MAGIC: u32 = u32::from_le_bytes(*b"wake");
/// Lower bits of a command; the upper bits count.
const LINE: u32 = 1;
const REQUEST: u32 = 2;

/// As many as the program takes: both count the same samples.
const ITERATIONS: u32 = 200;
/// Long enough for all others to fall asleep.
const PAUSE_US: u64 = 2_000;

/// The virtio device: `manifests/src/model.rs`, and registers of virtio 1.2, 4.2.2.
const DEVICE: u64 = 0x0a00_0000;
/// The manifest's first virtio device has SPI 16.
const DEVICE_INTID: u32 = 48;
const DRIVER_FEATURES: u64 = 0x20;
const DRIVER_FEATURES_SEL: u64 = 0x24;
const QUEUE_SEL: u64 = 0x30;
const QUEUE_NUM: u64 = 0x38;
const QUEUE_READY: u64 = 0x44;
const QUEUE_NOTIFY: u64 = 0x50;
const STATUS: u64 = 0x70;
const QUEUE_ADDRESSES: [u64; 3] = [0x80, 0x90, 0xa0];
/// ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK, each with those before it. The order is that of
/// virtio 1.2, 3.1.1; each value keeps the bits of the ones before.
const STATUSES: [u32; 4] = [1, 3, 11, 15];
/// VIRTIO_F_VERSION_1, in the upper half. Without it the device would be a legacy one, with other
/// registers.
const VERSION_1: u32 = 1;
/// VIRTQ_DESC_F_WRITE, at the upper half of a descriptor's last word but one. The device writes the
/// buffer, so a request has one descriptor.
const WRITE: u32 = 2;
/// Number of entries of the queue; its parts and the buffer lie behind the shared words.
const ENTRIES: u32 = 4;
/// The parts have pages of their own, which is more than virtio asks for (alignments of 16, 2 and
/// 4).
const DESCRIPTORS: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x1_1000;
const USED: u64 = 0x1_2000;
/// Nobody reads what the device puts there.
const BUFFER: u64 = 0x1_3000;
const BUFFER_SIZE: u32 = 8;

/// All words are cleared before the magic number: the program writes a command as soon as it sees
/// that.
fn main(machine: &Machine) {
    let shared = machine.ram.start + SHARED;
    for word in (shared..shared + BUFFER).step_by(4) {
        write32(word, 0);
    }
    cpu::dsb();
    write32(shared + READY, MAGIC);
    let mut last = 0;
    let mut queue = None;
    loop {
        let command = read32(shared + COMMAND);
        if command == last {
            timer::sleep_us(PAUSE_US);
            continue;
        }
        last = command;
        match command & 0xff {
            LINE => kick_program(shared),
            REQUEST => {
                let queue = queue.get_or_insert_with(|| Queue::new(shared));
                sample(shared, || queue.request());
            }
            _ => {}
        }
        cpu::dsb();
        write32(shared + DONE, command);
    }
}

/// Notifies the device, which the program waits for, and lets it note the time. The time is noted
/// before the store, so the way to the device model and the wake-up are both in the sample. YIELD
/// in the wait keeps this CPU awake: the program's store costs no wake-up here.
fn kick_program(shared: u64) {
    for count in 1..=ITERATIONS {
        timer::sleep_us(PAUSE_US);
        write32(shared + KICKED, timer::now() as u32);
        cpu::dsb();
        write32(DEVICE + QUEUE_NOTIFY, 0);
        cpu::wait_until(|| read32(shared + WOKEN) == count);
    }
}

/// Notes how long `body` takes. The guest's own counter at both ends, so that no offset between VMs
/// is in the difference.
fn sample(shared: u64, mut body: impl FnMut()) {
    for index in 0..ITERATIONS {
        timer::sleep_us(PAUSE_US);
        let start = timer::now();
        body();
        let ticks = timer::now() - start;
        write32(shared + SAMPLES + 4 * u64::from(index), ticks as u32);
    }
}

/// The device's queue, of which one request is used at a time.
struct Queue {
    memory: u64,
    used: u16,
}

impl Queue {
    /// FEATURES_OK is not read back, as the driver asks for nothing but the version. The descriptor
    /// is visible before the queue is ready.
    fn new(memory: u64) -> Queue {
        gic::enable(DEVICE_INTID);
        let write = |register: u64, value: u32| write32(DEVICE + register, value);
        write(STATUS, 0);
        let [acknowledge, driver, features_ok, driver_ok] = STATUSES;
        write(STATUS, acknowledge);
        write(STATUS, driver);
        for (half, features) in [(0, 0), (1, VERSION_1)] {
            write(DRIVER_FEATURES_SEL, half);
            write(DRIVER_FEATURES, features);
        }
        write(STATUS, features_ok);
        write(QUEUE_SEL, 0);
        write(QUEUE_NUM, ENTRIES);
        for (register, part) in QUEUE_ADDRESSES
            .into_iter()
            .zip([DESCRIPTORS, AVAILABLE, USED])
        {
            let address = memory + part;
            write(register, address as u32);
            write(register + 4, (address >> 32) as u32);
        }
        write_descriptor(memory);
        cpu::dsb();
        write(QUEUE_READY, 1);
        write(STATUS, driver_ok);
        Queue { memory, used: 0 }
    }

    /// Makes a request and waits for its interrupt, asleep. A store to QueueNotify is an exit to
    /// the device model; the DSB has the index visible before. Interrupts are masked: WFI ends with
    /// the pending one, which is acknowledged by hand. Another interrupt than the device's lets the
    /// loop wait again.
    fn request(&mut self) {
        self.used = self.used.wrapping_add(1);
        // The flags are zero: interrupts are wanted. The ring names descriptor 0 everywhere.
        write32(self.memory + AVAILABLE, u32::from(self.used) << 16);
        cpu::dsb();
        write32(DEVICE + QUEUE_NOTIFY, 0);
        while read32(self.memory + USED) >> 16 != u32::from(self.used) {
            cpu::wfi();
            let intid = gic::acknowledge();
            if gic::is_real(intid) {
                gic::end(intid);
            }
        }
    }
}

/// Writes the only descriptor: a buffer that the device fills (virtio 1.2, 2.7.5). The last word
/// has the flags in its lower half, and no next descriptor above.
fn write_descriptor(memory: u64) {
    let buffer = memory + BUFFER;
    let descriptor = [buffer as u32, (buffer >> 32) as u32, BUFFER_SIZE, WRITE];
    for (word, at) in descriptor.into_iter().zip((0..).step_by(4)) {
        write32(memory + DESCRIPTORS + at, word);
    }
}
