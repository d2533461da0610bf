//! State of a device that must survive a killed GDM: the device's page in the shared region, a word
//! for each value.
//!
//! Owns: the layout of that page. GDM alone reads and writes the page, except for the words in
//! `device_word` and, while Gear2 sets the device up for its driver, those of
//! `gear2_protocol::virtio`. A restarted GDM takes the positions of the queues from the used rings,
//! where the guest sees them too. Network cards, consoles and entropy complete requests in order, so
//! a request that is not in the used ring is not done. Disks and backends in other processes
//! complete in any order: `in_flight.rs` notes what they have.

use super::atomic::{AtomicU64, Ordering, fence};

use gear2_protocol::device_word::{
    CONFIGURED, FEATURES, HOLD_ASKED, HOLD_SEEN, LOOKING, RAM_END, RAM_START, RESET_ASKED,
    RESET_SEEN, SET_UP, SET_UP_HERE, SIZES, WRITES,
};
use gear2_protocol::offset::DEVICE_SIZE;
pub use gear2_protocol::virtio::MAX_QUEUES;
use gear2_protocol::virtio::{QUEUE_WORDS, QUEUES, queue_word, word};

/// Words of the page.
pub const WORDS: usize = DEVICE_SIZE / 8;
/// Changes when the meaning of a word changes: another layout is not resumed from.
const LAYOUT: u64 = 0x4744_4d00_0000_0003;

/// Words of the page, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Layout of the rest, stored last.
    Layout,
    /// Virtio device type.
    DeviceId,
    /// Status register.
    Status = word::STATUS,
    /// DeviceFeaturesSel.
    DeviceFeaturesSel = word::DEVICE_FEATURES_SEL,
    /// DriverFeaturesSel.
    DriverFeaturesSel = word::DRIVER_FEATURES_SEL,
    /// QueueSel.
    QueueSel = word::QUEUE_SEL,
    /// A configuration change was signalled and is not acknowledged.
    ConfigPending = 6,
    /// Features the driver accepted.
    DriverFeatures = word::DRIVER_FEATURES,
    /// Requests completed.
    Requests = 8,
    /// Requests completed with an error.
    Errors,
    /// Bytes moved from the guest.
    BytesOut,
    /// Bytes moved to the guest.
    BytesIn,
    /// Times the device's thread was woken by the guest.
    Wakeups,
    /// Interrupts sent to the guest.
    Interrupts,
    /// Times the device needed a reset because the guest broke a rule.
    Breaks,
    /// Register writes that Gear2 handed to GDM.
    Registers,
    /// Counter when GDM was last alive.
    LastSeen,
    /// [`Self::Requests`] when the device was last taken over.
    RequestsBefore,
    /// Number of consecutive starts of GDM that ended during work on this device, without a
    /// completed request in between.
    BarrenStarts,
    /// 1 while the device works on requests: what ends GDM then may be one of them.
    AtWork,
    /// 1 while the kernel may work on requests that outlive GDM.
    InKernel,
    /// Features that the backend offered last.
    Offered,
    /// Messages in the log about the device's guest.
    Messages,
    /// The guest was interrupted for used buffers since the last reset.
    UsedShown,
    /// 1: the driver chose that each completed write is durable (CONFIG_WCE).
    WriteThrough,
    /// Bytes of the disk.
    Capacity,
    /// Server of the device: a number of [`Serves`].
    Serves,
    /// The state of a network card's link: a number of [`Link`].
    Link,
    /// Pairs of queues that the driver of a network card has chosen; 0: it has chosen none, and uses
    /// one.
    Pairs,
    /// Counter when the device's backend was found missing; 0: the backend is there.
    MissingSince,
    /// Number of the thread that serves the device, by which GDM places it.
    Thread,
    /// The driver wrote the configuration: a reset is GDM's to do.
    Configured = CONFIGURED,
    /// Register writes that Gear2 did.
    SetUpWrites = WRITES,
}

/// Values of [`Word::Serves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Serves {
    /// Nobody: a backend is awaited.
    Nothing,
    /// A backend.
    Backend,
}

/// Values of [`Word::Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Link {
    /// As the tap device's.
    AsTap,
    /// Down, by a person's order.
    Down,
}

/// Words of a queue, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum QueueWord {
    /// QueueNum.
    Size = queue_word::SIZE,
    /// QueueReady.
    Ready = queue_word::READY,
    /// QueueDesc.
    Descriptors = queue_word::DESCRIPTORS,
    /// QueueDriver.
    Available = queue_word::AVAILABLE,
    /// QueueDevice.
    Used = queue_word::USED,
}

/// Word of a queue with the used index that the notes of its requests match.
const PUBLISHED: usize = 5;
/// First word of the notes of requests under way, and number of a queue's.
const NOTES: usize = QUEUES + MAX_QUEUES * QUEUE_WORDS;
/// Words of a queue's notes: four notes of 16 bits in each.
pub(crate) const QUEUE_NOTES: usize = 32;
/// Queues whose requests can be noted: those of a disk, or of a device that another program serves.
/// A network card completes requests in order.
pub(crate) const NOTED_QUEUES: usize = 4;
/// First word behind the notes, which must end before the words that Gear2 has in the page.
const NOTES_END: usize = NOTES + NOTED_QUEUES * QUEUE_NOTES;
const _: () = assert!(NOTES_END <= HOLD_ASKED && RESET_SEEN < WORDS);

/// A device's page.
#[derive(Clone, Copy, Debug)]
pub struct DeviceState(&'static [AtomicU64; WORDS]);

impl DeviceState {
    /// Takes the page as it is.
    pub const fn new(page: &'static [AtomicU64; WORDS]) -> Self {
        Self(page)
    }

    /// Returns all words.
    pub(crate) const fn words(&self) -> &'static [AtomicU64; WORDS] {
        self.0
    }

    /// Returns a word of the page.
    fn word(&self, index: usize) -> &'static AtomicU64 {
        // Every index is a constant of this file, or bounded by `MAX_QUEUES`.
        self.0.get(index).unwrap_or(&self.0[WORDS - 1])
    }

    /// Reads a word.
    /// Relaxed: one thread of a GDM has the device, and the next GDM begins when it has ended.
    pub fn get(&self, word: Word) -> u64 {
        self.word(word as usize).load(Ordering::Relaxed)
    }

    /// Writes a word.
    pub fn set(&self, word: Word, value: u64) {
        self.word(word as usize).store(value, Ordering::Relaxed);
    }

    /// Adds to a counter.
    pub fn count(&self, word: Word, add: u64) {
        self.word(word as usize).fetch_add(add, Ordering::Relaxed);
    }

    /// Returns a word of a queue. A queue that is not there has the last one's words: a damaged
    /// number stays within the device's own page.
    fn queue_word(&self, queue: usize, word: QueueWord) -> &'static AtomicU64 {
        let queue = queue.min(MAX_QUEUES - 1);
        self.word(QUEUES + queue * QUEUE_WORDS + word as usize)
    }

    /// Reads a word of a queue.
    pub fn queue(&self, queue: usize, word: QueueWord) -> u64 {
        self.queue_word(queue, word).load(Ordering::Relaxed)
    }

    /// Writes a word of a queue.
    pub fn set_queue(&self, queue: usize, word: QueueWord, value: u64) {
        self.queue_word(queue, word).store(value, Ordering::Relaxed);
    }

    /// Returns word `index` of the notes of a queue's requests.
    pub(crate) fn notes(&self, queue: usize, index: usize) -> &'static AtomicU64 {
        let queue = queue.min(NOTED_QUEUES - 1);
        self.word(NOTES + queue * QUEUE_NOTES + index.min(QUEUE_NOTES - 1))
    }

    /// Returns the word with the used index that the notes of a queue's requests match.
    pub(crate) fn published(&self, queue: usize) -> &'static AtomicU64 {
        let queue = queue.min(NOTED_QUEUES - 1);
        self.word(QUEUES + queue * QUEUE_WORDS + PUBLISHED)
    }

    /// Writes one half of an address of a queue.
    pub fn set_queue_half(&self, queue: usize, word: QueueWord, high: bool, half: u32) {
        let old = self.queue(queue, word);
        let value = if high {
            (old & 0xffff_ffff) | u64::from(half) << 32
        } else {
            (old & !0xffff_ffff) | u64::from(half)
        };
        self.set_queue(queue, word, value);
    }

    /// Forgets what the driver set up (a reset); counters stay.
    pub fn reset(&self) {
        let words = [
            Word::Status,
            Word::DeviceFeaturesSel,
            Word::DriverFeaturesSel,
            Word::QueueSel,
            Word::ConfigPending,
            Word::DriverFeatures,
            // planted: an interrupt is left over a reset
            Word::UsedShown,
            // planted: a choice of the cache is left over a reset
            Word::WriteThrough,
            // planted: a reset leaves several pairs
            Word::Pairs,
            Word::Configured,
        ];
        for word in words {
            self.set(word, 0);
        }
        for index in QUEUES..NOTES_END {
            self.word(index).store(0, Ordering::Relaxed);
        }
    }

    /// Tells whether the page holds what an earlier GDM left about a device of this type.
    pub fn resumable(&self, device_id: u32) -> bool {
        self.word(Word::Layout as usize).load(Ordering::Acquire) == LAYOUT
            && self.get(Word::DeviceId) == u64::from(device_id)
    }

    /// Makes the page an empty one for a device of this type.
    pub fn start_anew(&self, device_id: u32) {
        self.set(Word::Layout, 0);
        self.reset();
        self.set(Word::DeviceId, u64::from(device_id));
        self.word(Word::Layout as usize)
            .store(LAYOUT, Ordering::Release);
    }

    /// Tells whether Gear2 asked for a reset that is not answered yet.
    pub fn reset_asked(&self) -> Option<u64> {
        let asked = self.word(RESET_ASKED).load(Ordering::Acquire);
        (asked != self.word(RESET_SEEN).load(Ordering::Relaxed)).then_some(asked)
    }

    /// Tells whether Gear2 has paused the VM: no request is taken from the device's queues.
    pub fn is_held(&self) -> bool {
        self.word(HOLD_ASKED).load(Ordering::Acquire) & 1 != 0
    }

    /// Returns what Gear2 has asked for by pausing or resuming the VM, if that is not answered yet;
    /// an odd number holds the device.
    pub fn hold_asked(&self) -> Option<u64> {
        let asked = self.word(HOLD_ASKED).load(Ordering::Acquire);
        (asked != self.word(HOLD_SEEN).load(Ordering::Relaxed)).then_some(asked)
    }

    /// Answers [`Self::hold_asked`], when all that was done in the guest's memory before is visible.
    pub fn answer_hold(&self, asked: u64) {
        self.word(HOLD_SEEN).store(asked, Ordering::Release);
    }

    /// Tells whether Gear2 does the writes of a device with these queues, features and RAM.
    pub(crate) fn is_set_up_by_gear2(
        &self,
        sizes: [u16; MAX_QUEUES],
        features: u64,
        ram: [u64; 2],
    ) -> bool {
        let laid = laid(sizes, features, ram);
        self.word(SET_UP).load(Ordering::Acquire) == SET_UP_HERE
            && laid
                .into_iter()
                .all(|(index, value)| self.word(index).load(Ordering::Relaxed) == value)
    }

    /// Lays down what Gear2 needs to know of the device.
    pub(crate) fn lay_down(&self, sizes: [u16; MAX_QUEUES], features: u64, ram: [u64; 2]) {
        for (index, value) in laid(sizes, features, ram) {
            self.word(index).store(value, Ordering::Relaxed);
        }
    }

    /// Has Gear2 do writes of the driver's from now on: what it needs to know is laid down.
    pub(crate) fn begin_set_up(&self) {
        self.word(SET_UP).store(SET_UP_HERE, Ordering::Release);
    }

    /// Has Gear2 do no more writes. One that Gear2 is at may end behind this.
    pub(crate) fn end_set_up(&self) {
        self.word(SET_UP).store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Tells Gear2 whether the device's thread looks at the slots by itself. After `false` it has
    /// to look once more before it sleeps.
    pub fn set_looking(&self, looking: bool) {
        self.word(LOOKING)
            .store(u64::from(looking), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Forgets what the driver set up, then answers [`Self::reset_asked`]: the answer lets the
    /// memory be used for something else, and a GDM that is killed in between finds either both or
    /// no answer.
    pub fn answer_reset(&self, asked: u64) {
        // planted: a reset is answered before it is done
        self.reset();
        self.word(RESET_SEEN).store(asked, Ordering::Release);
    }
}

/// Returns the words that tell Gear2 of a device.
fn laid(
    sizes: [u16; MAX_QUEUES],
    features: u64,
    [start, end]: [u64; 2],
) -> impl Iterator<Item = (usize, u64)> {
    let sizes = (SIZES..).zip(sizes.map(u64::from));
    sizes.chain([(FEATURES, features), (RAM_START, start), (RAM_END, end)])
}
