//! The virtio-mmio transport, version 2 (virtio 1.2, 4.2), of one device.
//!
//! The guest reads the register page without leaving. Gear2 does most writes of a driver that sets
//! the device up ([`SetUp`]); each other write that is not a queue notification comes here as
//! `(register, size, value)`. Owns: the register page and the driver's side of the device's state.
//!
//! Invariants: after each write the page shows what the specification demands,
//! before the write is answered; a driver that breaks the order of initialisation
//! is ignored or gets DEVICE_NEEDS_RESET; a queue is used only between DRIVER_OK
//! and the next reset, and only if it passed [`Vring::new`].
//!
//! Gear2 does no write while one is here, or a reset waits. At other times only what Gear2 never
//! stores is stored here: InterruptStatus and the configuration, and of the status NEEDS_RESET.

pub use gear2_protocol::virtio::register;
use gear2_protocol::virtio::status::{DRIVER_OK, FAILED, FEATURES_OK, NEEDS_RESET, OF_DRIVER};
use gear2_protocol::virtio::{MAX_QUEUES, SetUp};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::mapping::{Registers, finish_stores};
use crate::memory::Memory;
use crate::state::{DeviceState, QueueWord, Word};
use crate::vring::{Broken, Setup, Vring};

#[cfg(test)]
mod tests;

/// MagicValue (virtio 1.2, 4.2.2).
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Of the register layout; 1 is the legacy one, whose queues are given by page numbers.
const VERSION: u32 = 2;
/// VendorID, which no driver acts on.
const VENDOR: u32 = u32::from_le_bytes(*b"GEAR");
/// Bit 0 of InterruptStatus shows from the first used buffer until a reset: the interrupt is an
/// edge, and the guest acknowledges it without leaving.
const INTERRUPT_USED: u32 = 1;
/// Bit 1 shows from a change of the configuration, here a break-down, until it is acknowledged.
const INTERRUPT_CONFIG: u32 = 2;

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
    /// The registers, which the guest reads without an exit.
    page: Registers,
    /// Words that the driver wrote, in the region shared with Gear2: a restarted GDM finds them.
    state: DeviceState,
    /// Words that Gear2 writes as well.
    set_up: SetUp<'static>,
    /// The guest's RAM, in which the rings lie.
    memory: Memory,
    /// Properties that the driver is shown. A new backend may show others.
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
            set_up: SetUp::new(state.words()),
            memory,
            identity,
            rings,
        };
        let active = transport.resume_or_start();
        state.set(Word::Offered, transport.identity.features);
        transport.publish_all();
        (transport, active)
    }

    /// Continues a device that an earlier GDM left, if there is one and nobody asks for its reset.
    /// Returns whether its driver is active.
    fn resume_or_start(&mut self) -> bool {
        let device_id = self.identity.device_id;
        if self.state.resumable(device_id) && self.state.reset_asked().is_none() {
            return self.resume();
        }
        // A reset that is asked for is answered when the worker knows that it may be.
        self.state.end_set_up();
        self.state.start_anew(device_id);
        false
    }

    /// Shows a device of this type to a driver that comes before its backend: its first write
    /// waits.
    pub fn announce(page: &Registers, state: DeviceState, device_id: u32) {
        state.end_set_up();
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
        if !self.set_up.needs_reset() {
            return false;
        }
        self.state.count(Word::Breaks, 1);
        let active = self.status() & DRIVER_OK != 0;
        if active {
            self.state.set(Word::ConfigPending, 1);
        }
        self.publish_interrupts();
        self.set_up.show_status(&self.shower());
        active
    }

    /// Shows that buffers were used, as the guest is interrupted for that.
    pub fn show_used(&self) {
        if self.state.get(Word::UsedShown) == 0 {
            self.state.set(Word::UsedShown, 1);
            self.publish_interrupts();
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
            self.publish_interrupts();
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
            self.state.set(Word::Configured, 1);
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
        if self.set_up.write(register, value, &self.shower()) {
            return Effect::None;
        }
        match register {
            register::QUEUE_READY => self.set_ready(value),
            register::QUEUE_NOTIFY => return Effect::Notified,
            register::INTERRUPT_ACK if value & INTERRUPT_CONFIG != 0 => {
                self.state.set(Word::ConfigPending, 0);
            }
            register::STATUS => return self.set_status(value.into()),
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

    /// Returns the queue that a write closes (virtio 1.2, 4.2.2), if the device may be using that.
    pub fn closes(&self, write: Write) -> Option<usize> {
        let closes = write.register == register::QUEUE_READY && write.size == 4;
        let (queue, _) = self
            .set_up
            .selected()
            .filter(|_| closes && write.value as u32 == 0)?;
        let ring = self.rings.get(queue);
        ring.is_some_and(Option::is_some).then_some(queue)
    }

    /// Closes the selected queue, which no request uses any longer, or breaks down because the
    /// queue cannot be opened.
    fn set_ready(&mut self, value: u32) {
        let Some((queue, _)) = self.set_up.selected() else {
            return;
        };
        if value == 0 {
            self.state.set_queue(queue, QueueWord::Ready, 0);
            self.forget(queue);
            return;
        }
        self.break_down();
    }

    /// Opens all queues that the driver made ready; false if one cannot be a queue.
    fn open_rings(&mut self) -> bool {
        let sizes = self.identity.queue_sizes.clone();
        let mut queues = sizes.into_iter().take(MAX_QUEUES).enumerate();
        queues.all(|(queue, max_size)| {
            self.state.queue(queue, QueueWord::Ready) == 0 || self.open_ring(queue, max_size)
        })
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
        let mut new = value & OF_DRIVER;
        // Bits are only ever added, and NEEDS_RESET is the device's own.
        // planted: a broken device is well without a reset
        if old & OF_DRIVER & !new != 0 || old & NEEDS_RESET != 0 {
            return Effect::None;
        }
        if new & !old & FEATURES_OK != 0 && !self.features_fit() {
            new &= !FEATURES_OK;
        }
        let starts = new & !old & DRIVER_OK != 0;
        if starts && (new & FEATURES_OK == 0 || !self.open_rings()) {
            self.rings = [const { None }; MAX_QUEUES];
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
        // Queues are opened by DRIVER_OK.
        let is_ready = self.status() & DRIVER_OK != 0;
        let sizes = sizes.into_iter().filter(|_| is_ready);
        for (queue, max_size) in sizes.take(MAX_QUEUES).enumerate() {
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

    /// Fills in the page. The magic comes last: a driver that comes meanwhile sees no device. The
    /// configuration's generation goes on from an earlier GDM's, so that no two changes have one.
    fn publish_all(&self) {
        let page = &self.page;
        page.store(register::VERSION, VERSION);
        page.store(register::DEVICE_ID, self.identity.device_id);
        page.store(register::VENDOR_ID, VENDOR);
        page.store(register::QUEUE_RESET, 0);
        for offset in register::SHM {
            page.store(offset, u32::MAX);
        }
        self.publish_config();
        self.publish_interrupts();
        self.lay_down();
        page.store(register::MAGIC_VALUE, MAGIC);
    }

    /// Lays down what Gear2 needs to know of the device to do writes, and has Gear2 do them.
    ///
    /// An earlier GDM may have had Gear2 do them all the time. Then the registers are as Gear2 left
    /// them: a store here could undo a later one of Gear2's. What Gear2 knows is changed only if
    /// the backend is another one now. A driver that has read features before that sees the new
    /// ones when it selects them again.
    fn lay_down(&self) {
        let mut known = [0; MAX_QUEUES];
        for (known, size) in known.iter_mut().zip(&self.identity.queue_sizes) {
            *known = *size;
        }
        let ram = ram(&self.memory);
        if self.state.is_set_up_by_gear2(known, self.offered(), ram) {
            // An earlier GDM may have ended before it showed this; Gear2 adds no bit to it.
            if self.status() & NEEDS_RESET != 0 {
                self.set_up.show_status(&self.shower());
            }
            return;
        }
        self.state.end_set_up();
        self.state.lay_down(known, self.offered(), ram);
        self.publish();
        // A device that is not there has nothing to set up.
        // planted: Gear2 does the writes of a device that is not there
        if self.identity.device_id != 0 {
            self.state.begin_set_up();
        }
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
        self.set_up.show(&self.shower());
        self.publish_interrupts();
    }

    /// Stores InterruptStatus.
    fn publish_interrupts(&self) {
        let causes = self.interrupt_status();
        self.page.store(register::INTERRUPT_STATUS, causes);
    }

    /// Returns what stores a register.
    fn shower(&self) -> impl Fn(usize, u32) + use<> {
        let page = self.page;
        move |register, value| page.store(register, value)
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

/// Returns where the guest's RAM begins and ends.
fn ram(memory: &Memory) -> [u64; 2] {
    let regions = || {
        memory
            .iter()
            .map(|region| (region.start_addr().0, region.len()))
    };
    let first = regions().next().unwrap_or_default();
    [first.0, first.0.saturating_add(first.1)]
}
