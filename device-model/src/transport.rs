//! The virtio-mmio transport, version 2 (virtio 1.2, 4.2), of one device.
//!
//! The guest reads the register page without leaving; each write that is not a queue
//! notification comes here as `(register, size, value)`. Owns: the register page
//! and the driver's side of the device's state.
//!
//! Invariants: after each write the page shows what the specification demands,
//! before the write is answered; a driver that breaks the order of initialisation
//! is ignored or gets DEVICE_NEEDS_RESET; a queue is used only between DRIVER_OK
//! and the next reset, and only if it passed [`Vring::new`].

use virtio_bindings::bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};

use crate::mapping::{Memory, Registers, finish_stores};
use crate::state::{DeviceState, MAX_QUEUES, QueueWord, Word};
use crate::vring::{Broken, Setup, Vring};

#[cfg(test)]
mod tests;

/// Offsets of the registers (virtio 1.2, table 4.1).
pub mod register {
    /// "virt".
    pub const MAGIC_VALUE: usize = 0x000;
    /// 2.
    pub const VERSION: usize = 0x004;
    /// Device type.
    pub const DEVICE_ID: usize = 0x008;
    /// Vendor.
    pub const VENDOR_ID: usize = 0x00c;
    /// Features offered, half named by the selector.
    pub const DEVICE_FEATURES: usize = 0x010;
    /// Selector.
    pub const DEVICE_FEATURES_SEL: usize = 0x014;
    /// Features accepted, half named by the selector.
    pub const DRIVER_FEATURES: usize = 0x020;
    /// Selector.
    pub const DRIVER_FEATURES_SEL: usize = 0x024;
    /// Queue that the registers up to `QUEUE_DEVICE_HIGH` are about.
    pub const QUEUE_SEL: usize = 0x030;
    /// Longest size.
    pub const QUEUE_NUM_MAX: usize = 0x034;
    /// Size.
    pub const QUEUE_NUM: usize = 0x038;
    /// Ready.
    pub const QUEUE_READY: usize = 0x044;
    /// Notification; a channel, forwarded only when there is none.
    pub const QUEUE_NOTIFY: usize = 0x050;
    /// Why the device interrupts.
    pub const INTERRUPT_STATUS: usize = 0x060;
    /// Acknowledges.
    pub const INTERRUPT_ACK: usize = 0x064;
    /// Status; 0 resets.
    pub const STATUS: usize = 0x070;
    /// Descriptor table.
    pub const QUEUE_DESC: usize = 0x080;
    /// Descriptor table, upper half.
    pub const QUEUE_DESC_HIGH: usize = 0x084;
    /// Available ring.
    pub const QUEUE_DRIVER: usize = 0x090;
    /// Available ring, upper half.
    pub const QUEUE_DRIVER_HIGH: usize = 0x094;
    /// Used ring.
    pub const QUEUE_DEVICE: usize = 0x0a0;
    /// Used ring, upper half.
    pub const QUEUE_DEVICE_HIGH: usize = 0x0a4;
    /// Length and base of a shared memory region: all ones, there is none.
    pub const SHM: [usize; 4] = [0x0b0, 0x0b4, 0x0b8, 0x0bc];
    /// Reset of one queue; not offered.
    pub const QUEUE_RESET: usize = 0x0c0;
    /// Changes with the configuration.
    pub const CONFIG_GENERATION: usize = 0x0fc;
    /// Configuration of the device type.
    pub const CONFIG: usize = 0x100;
    /// End.
    pub const END: usize = 0x200;
}

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Of the register layout; 1 is the legacy one, whose queues are given by page numbers.
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"GEAR");
/// Bit 0 of InterruptStatus shows from the first used buffer until a reset: the interrupt is an
/// edge, and the guest acknowledges it without leaving.
const INTERRUPT_USED: u32 = 1;
/// Bit 1 shows from a change of the configuration, here a break-down, until it is acknowledged.
const INTERRUPT_CONFIG: u32 = 2;

const ACKNOWLEDGE: u64 = VIRTIO_CONFIG_S_ACKNOWLEDGE as u64;
const DRIVER: u64 = VIRTIO_CONFIG_S_DRIVER as u64;
const DRIVER_OK: u64 = VIRTIO_CONFIG_S_DRIVER_OK as u64;
const FEATURES_OK: u64 = VIRTIO_CONFIG_S_FEATURES_OK as u64;
const NEEDS_RESET: u64 = VIRTIO_CONFIG_S_NEEDS_RESET as u64;
const FAILED: u64 = VIRTIO_CONFIG_S_FAILED as u64;

/// Features of every device.
pub const COMMON_FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;

/// Properties of a backend that the transport shows to the driver.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Virtio device type.
    pub device_id: u32,
    /// Features offered besides [`COMMON_FEATURES`].
    pub features: u64,
    /// Features that a driver may accept only with another one (as virtio 1.2, 5.1.3.1).
    pub dependencies: &'static [Dependency],
    /// Longest size of each queue.
    pub queue_sizes: Vec<u16>,
    /// Configuration space.
    pub config: Vec<u8>,
}

/// A feature that needs another one.
#[derive(Clone, Copy, Debug)]
pub struct Dependency {
    /// Number of the feature's bit.
    pub feature: u32,
    /// Bits of which the feature needs one.
    pub needs_one_of: u64,
}

/// A write, as the guest made it.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Offset of the register.
    pub register: usize,
    /// Bytes.
    pub size: usize,
    /// Value.
    pub value: u64,
}

/// Work for the backend that follows from a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// There is no such register: the guest gets an abort.
    Abort,
    /// The driver is ready; the queues may be used.
    Activated,
    /// The driver reset the device.
    Reset,
    /// A queue was notified.
    Notified,
    /// Configuration was written at this offset.
    Config(usize),
}

/// A device's registers and queues.
#[derive(Debug)]
pub struct Transport {
    /// The registers, which the guest reads without an exit. Only GDM writes the page.
    page: Registers,
    /// Words that the driver wrote, in the region shared with Gear2: a restarted GDM finds them.
    state: DeviceState,
    /// The guest's RAM, in which the rings lie.
    memory: Memory,
    identity: Identity,
    /// The queues that are ready.
    rings: [Option<Vring>; MAX_QUEUES],
}

impl Transport {
    /// Makes the transport and fills in its page. A device that an earlier GDM left active
    /// continues; the second result tells whether its driver is active.
    pub fn new(
        page: Registers,
        state: DeviceState,
        memory: Memory,
        identity: Identity,
    ) -> (Self, bool) {
        let rings = [const { None }; MAX_QUEUES];
        let mut transport = Self {
            page,
            state,
            memory,
            identity,
            rings,
        };
        let mut active = false;
        if state.resumable(transport.identity.device_id) && state.reset_asked().is_none() {
            active = transport.resume();
        } else {
            // A reset that is asked for is answered when the worker knows that it may be.
            state.start_anew(transport.identity.device_id);
        }
        state.set(Word::Offered, transport.identity.features);
        transport.publish_all();
        (transport, active)
    }

    /// Shows a device of this type to a driver that comes before its backend: its first write
    /// waits.
    pub fn announce(page: &Registers, device_id: u32) {
        page.store(register::VERSION, VERSION);
        page.store(register::DEVICE_ID, device_id);
        page.store(register::VENDOR_ID, VENDOR);
        page.store(register::STATUS, 0);
        page.store(register::MAGIC_VALUE, MAGIC);
    }

    /// Returns the configuration that a page shows.
    pub fn shown_config(page: &Registers) -> Vec<u8> {
        let words = (register::CONFIG..register::END).step_by(4);
        words.flat_map(|at| page.load(at).to_le_bytes()).collect()
    }

    /// Returns the queues that can be used, if the driver is ready and nothing is broken.
    pub fn rings(&mut self) -> &mut [Option<Vring>] {
        if self.active() {
            &mut self.rings
        } else {
            &mut []
        }
    }

    /// Tells whether the driver is ready and nothing is broken.
    pub fn active(&self) -> bool {
        let status = self.status();
        status & DRIVER_OK != 0 && status & (NEEDS_RESET | FAILED) == 0
    }

    /// Returns the features in use.
    pub fn features(&self) -> u64 {
        self.state.get(Word::DriverFeatures)
    }

    /// Stops the device until the driver resets it. Returns whether to interrupt the guest.
    pub fn break_down(&mut self) -> bool {
        if self.status() & NEEDS_RESET != 0 {
            return false;
        }
        self.state.count(Word::Breaks, 1);
        let status = self.status() | NEEDS_RESET;
        self.state.set(Word::Status, status);
        let active = status & DRIVER_OK != 0;
        if active {
            self.state.set(Word::ConfigPending, 1);
        }
        self.publish();
        active
    }

    /// Shows that buffers were used, as the guest is interrupted for that.
    pub fn show_used(&self) {
        if self.state.get(Word::UsedShown) == 0 {
            self.state.set(Word::UsedShown, 1);
            self.publish();
        }
    }

    /// Shows another configuration. A driver that reads meanwhile reads again, because the
    /// generation changes before and after (virtio 1.2, 2.5). Returns whether to interrupt the
    /// guest, which is told if `is_news`.
    pub fn change_config(&mut self, config: Vec<u8>, is_news: bool) -> bool {
        let generation = self.page.load(register::CONFIG_GENERATION);
        let store = |add| {
            // planted: a configuration changes without its generation
            let value = generation.wrapping_add(add);
            self.page.store(register::CONFIG_GENERATION, value);
        };
        store(1);
        finish_stores();
        self.identity.config = config;
        self.publish_config();
        finish_stores();
        store(2);
        let tells = is_news && self.status() & DRIVER_OK != 0;
        if tells {
            self.state.set(Word::ConfigPending, 1);
            self.publish();
        }
        tells
    }

    /// Resets the device if Gear2 asks, because the VM was stopped. Returns whether it did.
    pub fn answer_reset(&mut self) -> bool {
        let Some(asked) = self.state.reset_asked() else {
            return false;
        };
        self.reset();
        self.publish();
        self.state.answer_reset(asked);
        true
    }

    /// Returns the value of a register, for a read that left the guest.
    pub fn read(&self, register: usize, size: usize) -> Option<u64> {
        if register >= register::END || !register.is_multiple_of(size.max(1)) || size > 4 {
            return None;
        }
        let word = self.page.load(register & !3);
        // A narrow read of the configuration takes its bytes out of the word.
        let shifted = u64::from(word) >> (8 * (register & 3));
        Some(shifted & ((1 << (8 * size)) - 1))
    }

    /// Does what a write asks for.
    pub fn write(&mut self, write: Write) -> Effect {
        self.state.count(Word::Registers, 1);
        if write.register >= register::END || !write.register.is_multiple_of(write.size.max(1)) {
            return Effect::Abort;
        }
        if write.register >= register::CONFIG {
            return Effect::Config(write.register - register::CONFIG);
        }
        // Only the configuration has registers of other widths (virtio 1.2, 4.2.2.2).
        if write.size != 4 {
            return Effect::Abort;
        }
        let effect = self.write_register(write.register, write.value as u32);
        self.publish();
        effect
    }

    /// Does what a write of a whole register asks for.
    fn write_register(&mut self, register: usize, value: u32) -> Effect {
        let wide = u64::from(value);
        match register {
            register::DEVICE_FEATURES_SEL => self.state.set(Word::DeviceFeaturesSel, wide),
            register::DRIVER_FEATURES_SEL => self.state.set(Word::DriverFeaturesSel, wide),
            register::DRIVER_FEATURES => self.accept_features(value),
            register::QUEUE_SEL => self.state.set(Word::QueueSel, wide),
            register::QUEUE_NUM => self.set_queue(QueueWord::Size, None, value),
            register::QUEUE_READY => self.set_ready(value),
            register::QUEUE_NOTIFY => return Effect::Notified,
            register::INTERRUPT_ACK if value & INTERRUPT_CONFIG != 0 => {
                self.state.set(Word::ConfigPending, 0);
            }
            register::STATUS => return self.set_status(wide),
            register::QUEUE_DESC => self.set_queue(QueueWord::Descriptors, Some(false), value),
            register::QUEUE_DESC_HIGH => self.set_queue(QueueWord::Descriptors, Some(true), value),
            register::QUEUE_DRIVER => self.set_queue(QueueWord::Available, Some(false), value),
            register::QUEUE_DRIVER_HIGH => self.set_queue(QueueWord::Available, Some(true), value),
            register::QUEUE_DEVICE => self.set_queue(QueueWord::Used, Some(false), value),
            register::QUEUE_DEVICE_HIGH => self.set_queue(QueueWord::Used, Some(true), value),
            // Read-only or reserved: ignored.
            _ => {}
        }
        Effect::None
    }

    /// Returns the status as the driver set it, with NEEDS_RESET where the device did.
    fn status(&self) -> u64 {
        self.state.get(Word::Status)
    }

    /// Returns the features that a driver may accept: the type's and those of every device.
    fn offered(&self) -> u64 {
        self.identity.features | COMMON_FEATURES
    }

    /// Takes half of the driver's features. They are fixed once FEATURES_OK is set (virtio 1.2,
    /// 3.1.1).
    fn accept_features(&self, value: u32) {
        let high = match self.state.get(Word::DriverFeaturesSel) {
            0 => false,
            1 => true,
            _ => return,
        };
        if self.status() & (DRIVER | FEATURES_OK) != DRIVER {
            return;
        }
        let old = self.features();
        let new = if high {
            (old & 0xffff_ffff) | u64::from(value) << 32
        } else {
            (old & !0xffff_ffff) | u64::from(value)
        };
        self.state.set(Word::DriverFeatures, new);
    }

    /// Returns the queue selected, if there is one.
    fn selected(&self) -> Option<(usize, u16)> {
        let queue = usize::try_from(self.state.get(Word::QueueSel)).ok()?;
        let sizes = self.identity.queue_sizes.iter().take(MAX_QUEUES);
        sizes
            .copied()
            .enumerate()
            .find(|(index, _)| *index == queue)
    }

    /// Stores a word or half of one of the selected queue.
    fn set_queue(&self, word: QueueWord, high: Option<bool>, value: u32) {
        let Some((queue, _)) = self.selected() else {
            return;
        };
        // The driver must not touch a queue that is in use.
        if self.status() & DRIVER_OK != 0 || self.state.queue(queue, QueueWord::Ready) != 0 {
            return;
        }
        match high {
            None => self.state.set_queue(queue, word, u64::from(value)),
            Some(high) => self.state.set_queue_half(queue, word, high, value),
        }
    }

    /// Opens or closes the selected queue. A queue is checked as a whole when it is opened: before
    /// that its addresses are halves of a driver's numbers.
    fn set_ready(&mut self, value: u32) {
        let Some((queue, max_size)) = self.selected() else {
            return;
        };
        if value == 0 {
            self.state.set_queue(queue, QueueWord::Ready, 0);
            self.forget(queue);
            return;
        }
        if self.status() & DRIVER_OK != 0 || self.state.queue(queue, QueueWord::Ready) != 0 {
            return;
        }
        // planted: a queue is ready before the features
        if self.status() & FEATURES_OK == 0 || !self.open_ring(queue, max_size) {
            self.break_down();
            return;
        }
        self.state.set_queue(queue, QueueWord::Ready, 1);
    }

    /// Closes a queue: the device accesses its rings no longer.
    fn forget(&mut self, queue: usize) {
        if let Some(ring) = self.rings.get_mut(queue) {
            *ring = None;
        }
    }

    /// Opens a queue as the driver set it up; false if that cannot be a queue.
    fn open_ring(&mut self, queue: usize, max_size: u16) -> bool {
        let setup = Setup {
            size: self.state.queue(queue, QueueWord::Size),
            descriptors: self.state.queue(queue, QueueWord::Descriptors),
            available: self.state.queue(queue, QueueWord::Available),
            used: self.state.queue(queue, QueueWord::Used),
        };
        let event_index = self.features() & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let ring = Vring::new(&self.memory, self.state, max_size, setup, event_index);
        let Some(ring) = ring else {
            return false;
        };
        if let Some(place) = self.rings.get_mut(queue) {
            *place = Some(ring);
        }
        true
    }

    /// Does a write of the status (virtio 1.2, 2.1). Where the features do not fit, FEATURES_OK
    /// does not stay set, which the driver reads back (3.1.1, step 6).
    fn set_status(&mut self, value: u64) -> Effect {
        if value == 0 {
            self.reset();
            return Effect::Reset;
        }
        let old = self.status();
        // Reserved bits are dropped: a driver that reads them back sees zeroes.
        let known = ACKNOWLEDGE | DRIVER | DRIVER_OK | FEATURES_OK | FAILED;
        let mut new = value & known;
        // Bits are only ever added, and NEEDS_RESET is the device's own.
        // planted: a broken device is well without a reset
        if old & known & !new != 0 || old & NEEDS_RESET != 0 {
            return Effect::None;
        }
        if new & !old & FEATURES_OK != 0 && !self.features_fit() {
            new &= !FEATURES_OK;
        }
        let starts = new & !old & DRIVER_OK != 0;
        if starts && new & FEATURES_OK == 0 {
            self.break_down();
            return Effect::None;
        }
        self.state.set(Word::Status, new);
        if starts && self.active() {
            Effect::Activated
        } else {
            Effect::None
        }
    }

    /// Tells whether the driver's features are offered and complete. VERSION_1 must be among them:
    /// the device has no legacy interface.
    fn features_fit(&self) -> bool {
        let features = self.features();
        let mut dependencies = self.identity.dependencies.iter();
        // planted: features that are not offered are accepted
        features & !self.offered() == 0
            && features & 1 << VIRTIO_F_VERSION_1 != 0
            && dependencies.all(|dependency| {
                // planted: features without those that they depend on are accepted
                features & 1 << dependency.feature == 0 || features & dependency.needs_one_of != 0
            })
    }

    /// Forgets all that the driver set up.
    fn reset(&mut self) {
        // planted: a reset leaves the rings
        self.rings = [const { None }; MAX_QUEUES];
        self.state.reset();
    }

    /// Takes over what the driver set up with an earlier GDM.
    fn resume(&mut self) -> bool {
        if self.status() & FEATURES_OK != 0 && !self.features_fit() {
            self.break_down();
        }
        let sizes = self.identity.queue_sizes.clone();
        for (queue, max_size) in sizes.into_iter().take(MAX_QUEUES).enumerate() {
            let ready = self.state.queue(queue, QueueWord::Ready) != 0;
            if ready && self.resume_ring(queue, max_size).is_err() {
                self.forget(queue);
                self.break_down();
            }
        }
        self.active()
    }

    /// Opens a queue that an earlier GDM served, where that GDM stopped.
    fn resume_ring(&mut self, queue: usize, max_size: u16) -> Result<(), Broken> {
        if !self.open_ring(queue, max_size) {
            return Err(Broken::Ring);
        }
        match self.rings.get_mut(queue) {
            Some(Some(ring)) => ring.resume(),
            Some(None) | None => Err(Broken::Ring),
        }
    }

    /// Fills in the page. The magic comes last: a driver that comes meanwhile sees no device.
    fn publish_all(&self) {
        let page = &self.page;
        page.store(register::VERSION, VERSION);
        page.store(register::DEVICE_ID, self.identity.device_id);
        page.store(register::VENDOR_ID, VENDOR);
        page.store(register::CONFIG_GENERATION, 0);
        page.store(register::QUEUE_RESET, 0);
        for offset in register::SHM {
            page.store(offset, u32::MAX);
        }
        self.publish_config();
        self.publish();
        page.store(register::MAGIC_VALUE, MAGIC);
    }

    /// Stores the configuration of the device type.
    fn publish_config(&self) {
        for (index, word) in self.identity.config.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            for (to, from) in bytes.iter_mut().zip(word) {
                *to = *from;
            }
            let at = register::CONFIG + 4 * index;
            self.page.store(at, u32::from_le_bytes(bytes));
        }
    }

    /// Stores the registers that writes change.
    fn publish(&self) {
        let features = match self.state.get(Word::DeviceFeaturesSel) {
            0 => self.offered() as u32,
            1 => (self.offered() >> 32) as u32,
            _ => 0,
        };
        let (ready, max_size) = match self.selected() {
            Some((queue, size)) => (self.state.queue(queue, QueueWord::Ready), size),
            None => (0, 0),
        };
        let page = &self.page;
        page.store(register::DEVICE_FEATURES, features);
        page.store(register::QUEUE_NUM_MAX, u32::from(max_size));
        page.store(register::QUEUE_READY, ready as u32);
        page.store(register::INTERRUPT_STATUS, self.interrupt_status());
        page.store(register::STATUS, self.status() as u32);
    }

    /// Returns the causes of interrupts that InterruptStatus shows.
    fn interrupt_status(&self) -> u32 {
        let causes = [
            (Word::UsedShown, INTERRUPT_USED),
            (Word::ConfigPending, INTERRUPT_CONFIG),
        ];
        causes
            .iter()
            .filter(|(word, _)| self.state.get(*word) != 0)
            .fold(0, |shown, (_, bit)| shown | bit)
    }
}
