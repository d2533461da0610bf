//! A virtio driver that breaks every rule: the same attacks for a bare-metal guest under GearV and
//! for the device model's own tests on the host.
//!
//! An attack writes hostile values into rings or registers, notifies the device, waits until the
//! device has reacted, and judges the reaction. A violated rule must break the device, odd but
//! allowed requests must be served, and no memory outside of the arena may change. After each
//! attack the device is reset and must do an honest request. The listed attacks come first, then
//! random ones from a seed, so that a failure can be repeated.
//!
//! Invariant: of the guest's own memory, the attacks hand over the *arena* and nothing else; all
//! other addresses that they name lie, wholly or with their last byte, outside of the guest's
//! memory. Any other change of memory is therefore the device's fault. Memory for a device's writes
//! and memory for structures are different parts of the arena, unless an attack mixes them.
#![no_std]
#![forbid(unsafe_code)]

mod arena;
mod chains;
mod device;
mod fs;
mod gpu;
mod input;
mod net;
mod offers;
pub mod pattern;
mod random;
mod registers;
mod requests;
mod rings;
mod vsock;

use core::fmt;
use core::ops::Range;

pub use arena::ARENA_SIZE;
use device::Device;
pub use net::ARP;
use random::Random;

/// Bytes of a sector, which is also what [`sector_byte`] is about.
pub const SECTOR: u64 = 512;
/// The hostile driver writes to sectors below this one only.
pub const WRITTEN_SECTORS: u64 = 8192;

/// The machine that the attacks run on, with one device.
pub trait Platform {
    /// Reads a 32-bit register of the device.
    fn read(&mut self, register: u64) -> u32;
    /// Writes a register of the device with an access of `size` bytes; false if that ended in
    /// an abort.
    fn write(&mut self, register: u64, size: u64, value: u64) -> bool;
    /// Reads the guest's memory.
    fn load(&mut self, address: u64, bytes: &mut [u8]);
    /// Writes the guest's memory.
    fn store(&mut self, address: u64, bytes: &[u8]);
    /// Returns a byte of the guest's memory outside of the arena that has changed, if there is one.
    fn changed(&mut self) -> Option<u64>;
    /// Lets the program that serves the device get on, for about so many milliseconds.
    fn pause(&mut self, ms: u64);
    /// Records a violation of the requirements.
    fn violation(&mut self, what: fmt::Arguments<'_>);
}

/// Type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A disk, whose sectors from [`WRITTEN_SECTORS`] on hold [`sector_byte`] all over.
    Block,
    /// A network card.
    Net,
    /// The control queue of a network card with two pairs of queues.
    Control,
    /// A console.
    Console,
    /// A source of entropy.
    Rng,
    /// Keyboard, mouse and the like.
    Input,
    /// Sockets to the device VM.
    Vsock,
    /// A file system.
    Fs,
    /// A graphics card.
    Gpu,
    /// The queue of a graphics card's cursor.
    Cursor,
}

impl Kind {
    /// Returns the kind of a virtio device type.
    #[must_use]
    pub const fn of(device_id: u32) -> Option<Kind> {
        Some(match device_id {
            1 => Kind::Net,
            2 => Kind::Block,
            3 => Kind::Console,
            4 => Kind::Rng,
            16 => Kind::Gpu,
            18 => Kind::Input,
            19 => Kind::Vsock,
            26 => Kind::Fs,
            _ => return None,
        })
    }

    /// Returns the queue by which the guest asks for something.
    const fn request_queue(self) -> u16 {
        match self {
            Kind::Block | Kind::Rng | Kind::Gpu => 0,
            Kind::Net | Kind::Console | Kind::Input | Kind::Vsock | Kind::Fs | Kind::Cursor => 1,
            Kind::Control => 4,
        }
    }

    /// All up to the one with requests are set up, as a driver has to.
    pub(crate) const fn queues(self) -> u16 {
        match self {
            Kind::Vsock => 3,
            Kind::Gpu => 2,
            _ => self.request_queue() + 1,
        }
    }
}

/// Addresses in the guest.
#[derive(Clone, Debug)]
pub struct Layout {
    /// RAM of the guest.
    pub ram: Range<u64>,
    /// Address of the [`ARENA_SIZE`] bytes of RAM that the driver hands over to the device, aligned
    /// to a page.
    pub arena: u64,
    /// The device's registers.
    pub registers: u64,
}

/// Number of attacks beside the listed ones.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to make also the listed attacks that are common to all types of device.
    pub common: bool,
    /// Whether another program than the device model serves the device. Such a program may end
    /// during an attack: what it does is judged by memory alone, and the device has to work as soon
    /// as the next program is there.
    pub elsewhere: bool,
    /// Of the lists of attacks on a graphics card one entry in so many is tried, from the first on.
    pub one_in: usize,
    /// Random attacks.
    pub operations: u64,
    /// Seed of the random attacks.
    pub seed: u64,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attacks made.
    pub operations: u64,
    /// Attacks after which the device asked for a reset.
    pub broken: u64,
    /// Honest requests done in between.
    pub honest: u64,
    /// Violations of the requirements.
    pub violations: u64,
}

impl core::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            broken: self.broken + other.broken,
            honest: self.honest + other.honest,
            violations: self.violations + other.violations,
        }
    }
}

/// Returns what each byte of a sector is before the first attack. A prime number of contents:
/// neighbours differ, and so do sectors a power of two apart.
#[must_use]
pub const fn sector_byte(sector: u64) -> u8 {
    (sector % 251) as u8 + 1
}

/// Attacks the device in all ways, and leaves it reset. A network card is attacked by its control
/// queue as well, if it has one, and a graphics card by that of its cursor.
pub fn attack(
    platform: &mut impl Platform,
    layout: Layout,
    kind: Kind,
    options: Options,
) -> Counts {
    let mut device = Device::new(platform, layout.clone(), kind, options);
    let other = match kind {
        Kind::Net if net::queues(&mut device) > 2 => Some(Kind::Control),
        Kind::Gpu => Some(Kind::Cursor),
        _ => None,
    };
    let counts = attack_queue(&mut device, options);
    let Some(other) = other else {
        return counts;
    };
    let mut device = Device::new(platform, layout, other, options);
    counts + attack_queue(&mut device, options)
}

/// Tells whether a device does an honest request, which is waited for however long that takes.
pub fn serves(platform: &mut impl Platform, layout: Layout, kind: Kind) -> bool {
    let options = Options {
        common: false,
        elsewhere: true,
        one_in: 1,
        operations: 0,
        seed: 0,
    };
    let mut device = Device::new(platform, layout, kind, options);
    device.initialise();
    let serves = device.is_honest("service");
    device.reset();
    serves
}

/// The common attacks first: with a broken queue no request would be judged.
fn attack_queue<P: Platform>(device: &mut Device<'_, P>, options: Options) -> Counts {
    device.initialise();
    device.honest_request("before the attacks");
    if options.common {
        chains::all(device);
        rings::all(device);
        registers::all(device);
    }
    requests::all(device);
    random::all(device, Random::new(options.seed), options.operations);
    device.reset();
    device.look_at_memory("all attacks");
    device.counts
}
