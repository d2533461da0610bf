//! Set-up of a virtio device by its driver (virtio 1.2, 3.1.1 and 4.2): the writes of registers that
//! need no backend.
//!
//! Owns: what such a write changes in the device's page, and what the registers show afterwards.
//! Gear2 and GDM both do these writes, by this code, so that a driver cannot tell who did one. Gear2
//! does them while GDM sleeps ([`device_word::SET_UP`](crate::device_word::SET_UP)), and hands over
//! all others: FEATURES_OK, DRIVER_OK, the reset of a device that is in use, a queue that cannot be
//! one, acknowledgements, the configuration.
//!
//! The page holds the state itself, not a list of writes to be repeated: a write is done when its
//! word is stored. A GDM or Gear2 that ends therefore leaves nothing behind that the next one would
//! have to do, and to do once.
//!
//! Both sides may use any content of the page: a selector or an address is a guest's number, and
//! whatever GDM lays down is an allegation to Gear2.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, fence};

use crate::device_word::{
    CONFIGURED, FEATURES, RAM_END, RAM_START, RESET_ASKED, RESET_SEEN, SET_UP, SET_UP_HERE, SIZES,
    WRITES,
};
use crate::offset::DEVICE_SIZE;

/// Most queues of a device: those of a network card with four pairs and a control queue.
pub const MAX_QUEUES: usize = 9;
/// Index of the first queue's words in a device's page.
pub const QUEUES: usize = 32;
/// Number of words of each queue.
pub const QUEUE_WORDS: usize = 8;
const _: () = assert!(SIZES + MAX_QUEUES <= FEATURES);

/// Words of a device's page that the driver's writes change, by number.
pub mod word {
    /// Status register.
    pub const STATUS: usize = 2;
    /// DeviceFeaturesSel.
    pub const DEVICE_FEATURES_SEL: usize = 3;
    /// DriverFeaturesSel.
    pub const DRIVER_FEATURES_SEL: usize = 4;
    /// QueueSel.
    pub const QUEUE_SEL: usize = 5;
    /// Features that the driver accepted.
    pub const DRIVER_FEATURES: usize = 7;
}

/// Words of a queue, by number from the queue's first one.
pub mod queue_word {
    /// QueueNum.
    pub const SIZE: usize = 0;
    /// QueueReady.
    pub const READY: usize = 1;
    /// QueueDesc.
    pub const DESCRIPTORS: usize = 2;
    /// QueueDriver.
    pub const AVAILABLE: usize = 3;
    /// QueueDevice.
    pub const USED: usize = 4;
}

/// Bits of the status register (virtio 1.2, 2.1).
pub mod status {
    /// The driver has seen the device.
    pub const ACKNOWLEDGE: u64 = 1;
    /// The driver knows how to drive the device.
    pub const DRIVER: u64 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u64 = 4;
    /// The features are agreed on.
    pub const FEATURES_OK: u64 = 8;
    /// The device needs a reset.
    pub const NEEDS_RESET: u64 = 64;
    /// The driver has given the device up.
    pub const FAILED: u64 = 128;
    /// Bits that a driver sets.
    pub const OF_DRIVER: u64 = ACKNOWLEDGE | DRIVER | DRIVER_OK | FEATURES_OK | FAILED;
}

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

/// A device's page, as far as its driver sets the device up.
#[derive(Clone, Copy, Debug)]
pub struct SetUp<'a>(&'a [AtomicU64; DEVICE_SIZE / 8]);

impl<'a> SetUp<'a> {
    /// Takes the page as it is.
    #[must_use]
    pub const fn new(page: &'a [AtomicU64; DEVICE_SIZE / 8]) -> Self {
        Self(page)
    }

    /// Tells whether Gear2 does writes of the device: GDM has laid down what it takes, and has no
    /// reset to answer, by which it forgets what the driver writes.
    #[inline]
    #[must_use]
    pub fn is_gear2s(self) -> bool {
        // planted: a driver's writes overtake the reset of its VM
        self.0[SET_UP].load(Acquire) == SET_UP_HERE
            && self.0[RESET_SEEN].load(Acquire) == self.get(RESET_ASKED)
    }

    /// Does a write as [`Self::write`] does it, and counts it if it is done.
    #[inline]
    #[must_use]
    pub fn write_by_gear2(self, register: usize, value: u32, show: &impl Fn(usize, u32)) -> bool {
        let is_done = self.is_gear2s() && self.write(register, value, show);
        if is_done {
            // Gear2 does one at a time.
            let count = self.get(WRITES).wrapping_add(1);
            self.0[WRITES].store(count, Relaxed);
        }
        is_done
    }

    /// Does a write of a whole register, and has `show` store what registers show then, each at its
    /// offset; false: the write has changed nothing, and is GDM's to do.
    ///
    /// The caller makes sure that nobody else does a write or a reset of the device meanwhile. GDM
    /// may find at any time that the device needs a reset, by [`Self::needs_reset`].
    #[inline]
    #[must_use]
    pub fn write(self, register: usize, value: u32, show: &impl Fn(usize, u32)) -> bool {
        match register {
            register::DEVICE_FEATURES_SEL => {
                self.set(word::DEVICE_FEATURES_SEL, value);
                self.show_features(show);
            }
            register::DRIVER_FEATURES_SEL => self.set(word::DRIVER_FEATURES_SEL, value),
            register::DRIVER_FEATURES => self.accept_features(value),
            register::QUEUE_SEL => {
                self.set(word::QUEUE_SEL, value);
                self.show_queue(show);
            }
            register::STATUS => return self.set_status(value, show),
            register::QUEUE_READY => return self.set_ready(value, show),
            _ => return self.set_queue(register, value),
        }
        true
    }

    /// Has all registers shown that such writes change.
    pub fn show(self, show: &impl Fn(usize, u32)) {
        self.show_features(show);
        self.show_queue(show);
        self.show_status(show);
    }

    /// Has the status shown. Gear2 and GDM may both be here, each after a change of its own: who
    /// stores last has seen both, because each looks again behind its store.
    pub fn show_status(self, show: &impl Fn(usize, u32)) {
        // Relaxed: one word, and the fences are between it and the register.
        let mut status = self.get(word::STATUS);
        // The status has eight bits that are only ever added while both are here.
        for _ in 0..8 {
            show(register::STATUS, status as u32);
            fence(SeqCst);
            let now = self.get(word::STATUS);
            if now == status {
                return;
            }
            status = now;
        }
    }

    /// Notes that the device needs a reset; false: it did already.
    #[must_use]
    pub fn needs_reset(self) -> bool {
        let old = self.0[word::STATUS].fetch_or(status::NEEDS_RESET, SeqCst);
        old & status::NEEDS_RESET == 0
    }

    /// Does a write about the size or a ring of the queue that is selected. A queue that is not
    /// there, or is in use, takes none.
    fn set_queue(self, register: usize, value: u32) -> bool {
        use queue_word::{AVAILABLE, DESCRIPTORS, SIZE, USED};
        let (place, half) = match register {
            register::QUEUE_NUM => (SIZE, None),
            register::QUEUE_DESC => (DESCRIPTORS, Some(false)),
            register::QUEUE_DESC_HIGH => (DESCRIPTORS, Some(true)),
            register::QUEUE_DRIVER => (AVAILABLE, Some(false)),
            register::QUEUE_DRIVER_HIGH => (AVAILABLE, Some(true)),
            register::QUEUE_DEVICE => (USED, Some(false)),
            register::QUEUE_DEVICE_HIGH => (USED, Some(true)),
            _ => return false,
        };
        if let Some((queue, _)) = self.selected()
            && !self.is_in_use(queue)
        {
            let word = self.queue(queue, place);
            let wide = u64::from(value);
            let new = half.map_or(wide, |high| with_half(word.load(Relaxed), high, value));
            word.store(new, Relaxed);
        }
        true
    }

    /// Tells whether a queue may not be changed: the driver has said that it is ready.
    fn is_in_use(self, queue: usize) -> bool {
        self.has(status::DRIVER_OK) || self.queue(queue, queue_word::READY).load(Relaxed) != 0
    }

    /// Makes the selected queue ready, or takes it back. A queue that the device uses, and one that
    /// cannot be one, is GDM's affair. The queue is checked as a whole here, because its addresses
    /// are halves of a driver's numbers before that.
    fn set_ready(self, value: u32, show: &impl Fn(usize, u32)) -> bool {
        let Some((queue, max_size)) = self.selected() else {
            return true;
        };
        let ready = self.queue(queue, queue_word::READY);
        match value {
            0 if self.has(status::DRIVER_OK) => return false,
            0 => ready.store(0, Relaxed),
            _ if self.is_in_use(queue) => {}
            // planted: a queue is ready before the features
            _ if !self.has(status::FEATURES_OK) || !self.fits(queue, max_size) => return false,
            _ => ready.store(1, Relaxed),
        }
        self.show_queue(show);
        true
    }

    /// Tells whether a queue has a size (virtio 1.2, 2.7) and lies in the guest's RAM, each ring at
    /// its alignment (2.7).
    fn fits(self, queue: usize, max_size: u16) -> bool {
        use queue_word::{AVAILABLE, DESCRIPTORS, SIZE, USED};
        let word = |place| self.queue(queue, place).load(Relaxed);
        // planted: a size is cut to 16 bits
        let size = word(SIZE);
        let ram = self.get(RAM_START)..self.get(RAM_END);
        let lies = |start: u64, bytes: u64, alignment: u64| {
            let end = start.checked_add(bytes);
            // planted: rings outside of memory are accepted
            start.is_multiple_of(alignment)
                && ram.start <= start
                && end.is_some_and(|end| end <= ram.end)
        };
        size <= u64::from(max_size)
            && size.is_power_of_two()
            && lies(word(DESCRIPTORS), 16 * size, 16)
            && lies(word(AVAILABLE), 6 + 2 * size, 2)
            && lies(word(USED), 6 + 8 * size, 4)
    }

    /// Does a write of the status up to DRIVER, and a reset of a device that no driver has used since
    /// the last one. All else needs GDM.
    fn set_status(self, value: u32, show: &impl Fn(usize, u32)) -> bool {
        const EARLY: u64 = status::ACKNOWLEDGE | status::DRIVER;
        let old = self.get(word::STATUS);
        if value == 0 {
            // planted: a device in use is reset without its backend
            if old != 0 || self.get(CONFIGURED) != 0 {
                return false;
            }
            self.start_over();
            self.show(show);
            return true;
        }
        // Reserved bits are dropped: a driver that reads them back sees zeroes.
        let new = u64::from(value) & status::OF_DRIVER;
        if (old | new) & !EARLY != 0 {
            return false;
        }
        // Bits are only ever added.
        if old & !new == 0 {
            // GDM may find just now that the device needs a reset.
            let word = &self.0[word::STATUS];
            if word.compare_exchange(old, new, SeqCst, Relaxed).is_err() {
                return false;
            }
        }
        self.show_status(show);
        true
    }

    /// Forgets what the driver has written.
    fn start_over(self) {
        let words = [
            word::DEVICE_FEATURES_SEL,
            word::DRIVER_FEATURES_SEL,
            word::QUEUE_SEL,
            word::DRIVER_FEATURES,
        ];
        for word in words {
            self.set(word, 0);
        }
        for queue in 0..MAX_QUEUES {
            for place in queue_word::SIZE..=queue_word::USED {
                self.queue(queue, place).store(0, Relaxed);
            }
        }
    }

    /// Takes half of the driver's features. They are fixed once FEATURES_OK is set (virtio 1.2,
    /// 3.1.1).
    fn accept_features(self, value: u32) {
        const BOTH: u64 = status::DRIVER | status::FEATURES_OK;
        let high = match self.get(word::DRIVER_FEATURES_SEL) {
            0 => false,
            1 => true,
            _ => return,
        };
        if self.get(word::STATUS) & BOTH == status::DRIVER {
            let word = &self.0[word::DRIVER_FEATURES];
            word.store(with_half(word.load(Relaxed), high, value), Relaxed);
        }
    }

    /// Has the half of the offered features shown that the selector names.
    fn show_features(self, show: &impl Fn(usize, u32)) {
        let offered = self.get(FEATURES);
        let half = match self.get(word::DEVICE_FEATURES_SEL) {
            0 => offered as u32,
            1 => (offered >> 32) as u32,
            _ => 0,
        };
        show(register::DEVICE_FEATURES, half);
    }

    /// Has QueueNumMax and QueueReady of the selected queue shown, which is none if both are 0.
    fn show_queue(self, show: &impl Fn(usize, u32)) {
        let (max, ready) = self.selected().map_or((0, 0), |(queue, max)| {
            let ready = self.queue(queue, queue_word::READY).load(Relaxed);
            (u32::from(max), ready as u32)
        });
        show(register::QUEUE_NUM_MAX, max);
        show(register::QUEUE_READY, ready);
    }

    /// Returns the queue selected and its longest size, if there is one.
    #[must_use]
    pub fn selected(self) -> Option<(usize, u16)> {
        let queue = usize::try_from(self.get(word::QUEUE_SEL)).ok()?;
        // planted: a selector behind the last queue names one
        if queue >= MAX_QUEUES {
            return None;
        }
        let max = self.get(SIZES + queue) as u16;
        (max != 0).then_some((queue, max))
    }

    fn has(self, bits: u64) -> bool {
        self.get(word::STATUS) & bits != 0
    }

    fn get(self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    fn set(self, word: usize, value: u32) {
        self.0[word].store(value.into(), Relaxed);
    }

    /// Returns a word of a queue, of which there are `MAX_QUEUES`.
    fn queue(self, queue: usize, place: usize) -> &'a AtomicU64 {
        &self.0[QUEUES + queue.min(MAX_QUEUES - 1) * QUEUE_WORDS + place]
    }
}

/// Returns the word with one half replaced.
const fn with_half(word: u64, high: bool, half: u32) -> u64 {
    if high {
        (word & 0xffff_ffff) | (half as u64) << 32
    } else {
        (word & !0xffff_ffff) | half as u64
    }
}
