//! The device under attack: registers, rings made by hand, and the verdict after each attack.

use crate::arena::{self, BUFFER_SIZE};
use crate::{Counts, Kind, Layout, Options, Platform};

/// Features of a network card: a control queue, several pairs (virtio 1.2, 5.1.3).
const SEVERAL_PAIRS: u32 = 1 << 17 | 1 << 22;

/// Offsets of registers (virtio 1.2, table 4.1).
pub(crate) mod register {
    /// Reads `virt`.
    pub(crate) const MAGIC: u64 = 0x000;
    /// Chooses the half of the features that the device shows.
    pub(crate) const DEVICE_FEATURES_SEL: u64 = 0x014;
    /// Takes the half of the features that the driver selects.
    pub(crate) const DRIVER_FEATURES: u64 = 0x020;
    /// Chooses that half.
    pub(crate) const DRIVER_FEATURES_SEL: u64 = 0x024;
    /// Chooses the queue of the registers that follow.
    pub(crate) const QUEUE_SEL: u64 = 0x030;
    /// Shows the most entries of the queue; 0: there is no such queue.
    pub(crate) const QUEUE_NUM_MAX: u64 = 0x034;
    /// Takes the number of entries.
    pub(crate) const QUEUE_NUM: u64 = 0x038;
    /// 1: the rings are set up, and the device may use them.
    pub(crate) const QUEUE_READY: u64 = 0x044;
    /// Takes the number of a queue that has something new. A channel here: no exit to Gear2.
    pub(crate) const QUEUE_NOTIFY: u64 = 0x050;
    /// Shows why there was an interrupt: bit 0 for queues, bit 1 for the configuration.
    pub(crate) const INTERRUPT_STATUS: u64 = 0x060;
    /// Takes bits of that back.
    pub(crate) const INTERRUPT_ACK: u64 = 0x064;
    /// Status; 0 resets.
    pub(crate) const STATUS: u64 = 0x070;
    /// Lower half of the descriptor table's address; the upper one is behind it.
    pub(crate) const DESCRIPTORS: u64 = 0x080;
    /// Of the ring that the driver writes.
    pub(crate) const AVAILABLE: u64 = 0x090;
    /// Of the ring that the device writes.
    pub(crate) const USED: u64 = 0x0a0;
    /// Begin of the configuration, which depends on the device's type.
    pub(crate) const CONFIG: u64 = 0x100;
    /// End of a device's registers here.
    pub(crate) const END: u64 = 0x200;
}

/// Bits of the status register (virtio 1.2, 2.1). Each value has all bits up to its own, as a
/// driver reaches it.
pub(crate) mod status {
    /// The guest has seen the device, and knows how to drive it.
    pub(crate) const DRIVER: u32 = 3;
    /// Features are agreed on; a device that does not agree clears the bit.
    pub(crate) const FEATURES_OK: u32 = 0xb;
    /// The device works.
    pub(crate) const DRIVER_OK: u32 = 0xf;
    /// Set by the device alone.
    pub(crate) const NEEDS_RESET: u32 = 0x40;
}

/// Flags of a descriptor (virtio 1.2, 2.7.5). The chain goes on at `next`.
pub(crate) const NEXT: u16 = 1;
/// The device writes the buffer; without it, the device reads.
pub(crate) const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(crate) const INDIRECT: u16 = 4;

/// Most queues of a device that is attacked. Two pairs of a network card, and the queue that
/// controls them.
const QUEUES: usize = 5;
/// Entries of the queues, if an attack does not say otherwise. Small, so that it wraps often.
pub(crate) const QUEUE_SIZE: u16 = 16;

/// A descriptor. Every field may lie, so none has a type that would forbid it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Link {
    pub(crate) const fn new(address: u64, length: u32, flags: u16, next: u16) -> Link {
        Link {
            address,
            length,
            flags,
            next,
        }
    }
}

/// Required outcome of an attack. Four outcomes are allowed by the specification, depending on the
/// attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The device needs a reset, and has completed nothing.
    Broken,
    /// The device completes this number of requests and continues to work.
    Served(u16),
    /// The device has not seen a request that was withdrawn, and continues to work. One that looks
    /// for requests without a notification may have seen it: then the index went back, and the
    /// device needs a reset.
    Withdrawn,
    /// Any outcome.
    Any,
}

/// A device and its driver's view of it. No driver of any system: those would not do what is done
/// here.
pub(crate) struct Device<'a, P> {
    pub(crate) platform: &'a mut P,
    pub(crate) layout: Layout,
    pub(crate) kind: Kind,
    pub(crate) counts: Counts,
    /// Another program than the device model serves the device.
    pub(crate) is_elsewhere: bool,
    /// Of a list one entry in so many is tried.
    pub(crate) one_in: usize,
    /// Entries made available, by queue.
    added: [u16; QUEUES],
}

/// Looks of a device within which all that an attack may have offered has ended as a rule. What is
/// left is waited for before the next honest request.
const A_FEW_LOOKS: u32 = 16;
/// Looks of a device that another program serves, with a pause before each, in which it completes
/// what it does not die of.
const LOOKS_ELSEWHERE: u32 = 100;
/// Pause between two looks for a program that is started again, which takes a second and more.
const AWAY_MS: u64 = 20;
/// Looks of a disk in which it completes what it ever completes: a second and more.
const MANY_LOOKS: u32 = 4096;

impl<'a, P: Platform> Device<'a, P> {
    /// Nothing is read before the first attack.
    pub(crate) fn new(platform: &'a mut P, layout: Layout, kind: Kind, options: Options) -> Self {
        Self {
            platform,
            layout,
            kind,
            counts: Counts::default(),
            is_elsewhere: options.elsewhere,
            one_in: options.one_in,
            added: [0; QUEUES],
        }
    }

    /// Returns the address of a place in the arena.
    pub(crate) fn at(&self, place: u64) -> u64 {
        self.layout.arena + place
    }

    /// Attacks go to the queue with requests.
    pub(crate) fn queue(&self) -> u16 {
        self.kind.request_queue()
    }

    /// By the platform, since the tests run on the host as well.
    pub(crate) fn read(&mut self, register: u64) -> u32 {
        self.platform.read(register)
    }

    /// Writes a 32-bit register, which must not abort.
    pub(crate) fn write(&mut self, register: u64, value: u32) {
        if !self.platform.write(register, 4, value.into()) {
            self.mistake("a write", format_args!("{register:#x} aborts"));
        }
    }

    /// Into the arena, which is all that a device may touch.
    pub(crate) fn store(&mut self, place: u64, bytes: &[u8]) {
        let address = self.at(place);
        self.platform.store(address, bytes);
    }

    /// Copies out: the device may write meanwhile.
    pub(crate) fn load<const N: usize>(&mut self, place: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let address = self.at(place);
        self.platform.load(address, &mut bytes);
        bytes
    }

    /// Writing 0 resets, and reading 0 tells that it is done (virtio 1.2, 4.2.2).
    pub(crate) fn reset(&mut self) {
        self.write(register::STATUS, 0);
        if self.read(register::STATUS) != 0 {
            self.mistake("reset", format_args!("it does not take effect"));
        }
        if self.read(register::INTERRUPT_STATUS) != 0 {
            self.mistake("reset", format_args!("an interrupt is left"));
        }
    }

    /// Does the first steps of an initialisation, until features are agreed on.
    pub(crate) fn negotiate(&mut self) {
        self.reset();
        for queue in 0..self.kind.queues() {
            self.store(arena::available(queue), &[0; 4]);
            self.store(arena::used(queue), &[0; 4]);
        }
        self.added = [0; QUEUES];
        self.write(register::STATUS, status::DRIVER);
        if self.kind == Kind::Control {
            self.write(register::DRIVER_FEATURES_SEL, 0);
            self.write(register::DRIVER_FEATURES, SEVERAL_PAIRS);
        }
        // VIRTIO_F_VERSION_1 and, of most devices, nothing else.
        self.write(register::DRIVER_FEATURES_SEL, 1);
        self.write(register::DRIVER_FEATURES, 1);
        self.write(register::STATUS, status::FEATURES_OK);
    }

    /// Names the size and the rings of a queue, whose addresses have no upper halves as a rule.
    pub(crate) fn set_up(&mut self, queue: u16, size: u32, rings: [u64; 3]) {
        self.write(register::QUEUE_SEL, queue.into());
        self.write(register::QUEUE_NUM, size);
        let registers = [register::DESCRIPTORS, register::AVAILABLE, register::USED];
        for (register, address) in registers.into_iter().zip(rings) {
            self.write(register, address as u32);
            if address >> 32 != 0 {
                self.write(register + 4, (address >> 32) as u32);
            }
        }
    }

    /// Returns where the rings of a queue lie.
    pub(crate) fn rings(&self, queue: u16) -> [u64; 3] {
        [
            self.at(arena::descriptors(queue)),
            self.at(arena::available(queue)),
            self.at(arena::used(queue)),
        ]
    }

    /// Initialises the device as the specification says, with all queues.
    pub(crate) fn initialise(&mut self) {
        self.initialise_from(0);
    }

    /// Initialises the device with the queues from `first` on: each register write takes long.
    fn initialise_from(&mut self, first: u16) {
        self.negotiate();
        for queue in first..self.kind.queues() {
            self.set_up(queue, QUEUE_SIZE.into(), self.rings(queue));
            self.write(register::QUEUE_READY, 1);
        }
        self.write(register::STATUS, status::DRIVER_OK);
        let now = self.read(register::STATUS);
        if now != status::DRIVER_OK {
            self.mistake("initialisation", format_args!("ends with status {now:#x}"));
        }
    }

    /// Writes a descriptor into the table at a place of the arena.
    pub(crate) fn describe(&mut self, table: u64, index: u16, link: Link) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&link.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&link.length.to_le_bytes());
        bytes[12..14].copy_from_slice(&link.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&link.next.to_le_bytes());
        self.store(table + 16 * u64::from(index), &bytes);
    }

    /// Writes the first descriptors of the request queue.
    pub(crate) fn describe_all(&mut self, links: &[Link]) {
        let table = arena::descriptors(self.queue());
        for (index, link) in links.iter().enumerate() {
            self.describe(table, index as u16, *link);
        }
    }

    /// Makes a head available in the request queue, without a notification.
    pub(crate) fn offer(&mut self, head: u16) {
        let ring = arena::available(self.queue());
        let added = self.added[usize::from(self.queue())];
        let entry = ring + 4 + 2 * u64::from(added % QUEUE_SIZE);
        self.store(entry, &head.to_le_bytes());
        self.set_added(added.wrapping_add(1));
    }

    /// Sets the available index of the request queue.
    pub(crate) fn set_added(&mut self, index: u16) {
        let queue = self.queue();
        self.added[usize::from(queue)] = index;
        self.store(arena::available(queue) + 2, &index.to_le_bytes());
    }

    /// As the driver left it.
    pub(crate) fn added(&self) -> u16 {
        self.added[usize::from(self.queue())]
    }

    /// Returns the used index of the request queue.
    pub(crate) fn used(&mut self) -> u16 {
        u16::from_le_bytes(self.load(arena::used(self.queue()) + 2))
    }

    /// A store to QueueNotify, which wakes the device.
    pub(crate) fn notify(&mut self) {
        let queue = self.queue();
        self.write(register::QUEUE_NOTIFY, queue.into());
    }

    /// Returns when the device has looked at its queues since the call: it answers acknowledgements
    /// in order, and looks at all queues between two of them. Other writes may be done for it while
    /// it sleeps.
    pub(crate) fn wait(&mut self) {
        /// A cause of interrupts that there is not.
        const NOTHING: u32 = 4;
        for _ in 0..2 {
            self.write(register::INTERRUPT_ACK, NOTHING);
        }
    }

    /// Waits until the device has completed all that is offered, or is broken. A disk's transfers
    /// end later than the look that began them, and other devices leave some for their next turn.
    ///
    /// After as many looks as that may take, the caller judges what is there.
    pub(crate) fn settle(&mut self) {
        self.look(match self.kind {
            _ if self.is_elsewhere => LOOKS_ELSEWHERE,
            Kind::Block | Kind::Fs | Kind::Gpu | Kind::Cursor => MANY_LOOKS,
            Kind::Net | Kind::Control | Kind::Console | Kind::Rng | Kind::Input | Kind::Vsock => {
                A_FEW_LOOKS
            }
        });
    }

    /// Waits until the device has completed all that is offered, however long its program is away.
    /// Such requests are not lost, so that the wait ends.
    pub(crate) fn settle_patiently(&mut self) {
        match self.is_elsewhere {
            true => self.look(u32::MAX),
            false => self.settle(),
        }
    }

    /// Waits as [`Self::settle`] does, for at most so many looks.
    fn look(&mut self, looks: u32) {
        for look in 0..looks {
            self.wait();
            if self.is_elsewhere {
                // A program that has not answered by then has ended. Looks for it take the device
                // VM's time, in which the program is started again.
                let is_away = look > LOOKS_ELSEWHERE;
                self.platform.pause(if is_away { AWAY_MS } else { 1 });
            }
            let broken = self.read(register::STATUS) & status::NEEDS_RESET != 0;
            if broken || self.used() == self.added() {
                break;
            }
        }
    }

    /// Notifies, waits and judges the outcome of the requests offered since the used index was
    /// `before`.
    pub(crate) fn conclude(&mut self, name: &str, before: u16, expect: Expect) {
        self.notify();
        match expect {
            // Nothing is to come, so nothing tells when to end.
            Expect::Served(0) | Expect::Withdrawn => self.wait(),
            Expect::Any => self.look(A_FEW_LOOKS),
            Expect::Broken | Expect::Served(_) => self.settle(),
        }
        self.judge(name, before, expect);
    }

    /// Judges an attack, and makes the device work again.
    pub(crate) fn judge(&mut self, name: &str, before: u16, expect: Expect) {
        self.counts.operations += 1;
        let now = self.read(register::STATUS);
        let broken = is_broken(now);
        self.counts.broken += u64::from(broken);
        let done = self.used().wrapping_sub(before);
        let fits = match expect {
            Expect::Any => true,
            Expect::Broken => broken && done == 0,
            Expect::Served(count) => !broken && done == count,
            Expect::Withdrawn => done <= u16::from(broken),
        };
        if !fits {
            let seen = format_args!("status {now:#x}, {done} completed");
            self.mistake(name, format_args!("{seen}, not {expect:?}"));
        }
        if broken {
            self.stays_broken(name);
        }
    }

    /// Tells whether the device needs a reset.
    pub(crate) fn needs_reset(&mut self) -> bool {
        is_broken(self.read(register::STATUS))
    }

    /// Checks that a broken device says so, and that it does nothing until its reset.
    fn stays_broken(&mut self, name: &str) {
        let ok = self.read(register::STATUS) & 4 != 0;
        if ok && self.read(register::INTERRUPT_STATUS) & 2 == 0 {
            self.mistake(name, format_args!("no configuration interrupt"));
        }
        self.write(register::STATUS, status::DRIVER_OK);
        if self.read(register::STATUS) & status::NEEDS_RESET == 0 {
            self.mistake(name, format_args!("it is well without a reset"));
        }
    }

    /// Makes the device work again and, often, shows that it does.
    pub(crate) fn recover(&mut self, name: &str) {
        /// Number of honest requests after an attack: register writes dominate the time.
        const HONEST: u64 = 3;
        self.initialise_from(self.queue());
        // Each attack is to meet a program that is there.
        if self.is_elsewhere || self.counts.operations.is_multiple_of(HONEST) {
            self.honest_request(name);
        }
    }

    /// Makes the device work again with all queues, and shows that it does.
    pub(crate) fn recover_all(&mut self, name: &str) {
        self.initialise();
        self.honest_request(name);
    }

    /// Checks that nothing outside of the arena has changed.
    pub(crate) fn look_at_memory(&mut self, name: &str) {
        if let Some(address) = self.platform.changed() {
            self.violation(name, format_args!("memory at {address:#x} has changed"));
        }
    }

    /// Fills the buffers, and tells whether they are still the same when the device has looked.
    pub(crate) fn buffers_rest(&mut self, body: impl FnOnce(&mut Self)) -> bool {
        /// A mark in each page: a device writes whole sectors, frames or pages.
        const STEP: u64 = 0x1000;
        let marks = || (0..BUFFER_SIZE / STEP).map(|index| arena::buffer(STEP * index));
        for place in marks() {
            self.store(place, &[0x5a; 64]);
        }
        body(self);
        marks().all(|place| self.load::<64>(place) == [0x5a; 64])
    }

    /// Records a violation of a requirement on how a device works, which is its program's where
    /// that is another one.
    pub(crate) fn mistake(&mut self, name: &str, why: core::fmt::Arguments<'_>) {
        if !self.is_elsewhere {
            self.violation(name, why);
        }
    }

    /// Counted, and told with the operation's number, by which it can be repeated.
    pub(crate) fn violation(&mut self, name: &str, why: core::fmt::Arguments<'_>) {
        self.counts.violations += 1;
        let kind = self.kind;
        let number = self.counts.operations;
        self.platform
            .violation(format_args!("{kind:?}, operation {number}, {name}: {why}"));
    }
}

/// The one sign by which a device tells that it gives up (virtio 1.2, 2.1.2).
const fn is_broken(now: u32) -> bool {
    now & status::NEEDS_RESET != 0
}
