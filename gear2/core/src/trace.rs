//! Traces: what each CPU traps for, and what its loop decides.
//!
//! Owns Gear2's rings, the notes of counters, and the order in which the loops stand. Gear1 writes a
//! ring for each CPU, which Gear2 reads here. Gear2 has one for each CPU, too, with what its policy is
//! told and chooses. A policy that is recorded is another policy around it ([`Recorded`]), so that a
//! loop which does not trace executes no instruction more.
//!
//! At the beginning and at the end of a trace each loop notes the counters of its vCPUs. Between two
//! events of the loop its vCPUs do not run, so a vCPU's counters and the records of its exits are of
//! one moment, whatever other vCPUs do meanwhile: as many records have a time between the two notes as
//! its counters have grown. A real-time VM runs meanwhile, on a CPU without a loop: its counters are
//! noted when they have not changed for some time, between two of its exits.
//!
//! Requirements: G1-TRC-001.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use gear1_abi::exit::ExitReason;
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VcpuId};
use gear1_abi::trace::{HEADER_SIZE, Header, RECORD_SIZE, RECORD_WORDS, readable};
use gear2_protocol::traced;
use gearv_manifest::CpuSet;
use spin::mutex::TicketMutex;

use crate::gear1::Gear1;
use crate::platform::{Lock, Platform};
use crate::scheduler::{Choice, Policy, Refused, Share};

#[cfg(test)]
mod tests;

/// Words of a record.
type Words = [u64; RECORD_WORDS];
/// Words of Gear1's header.
const HEADER_WORDS: usize = HEADER_SIZE as usize / 8;
/// Records that a ring of Gear2's holds; a power of two, so that a place in it is a mask away.
const RECORDS: usize = 2048;
/// Looks at the counters of a vCPU that runs until they stand still; one that exits all the time has
/// no note.
const LOOKS: usize = 4;
/// Mode of [`Trace::order`] while the loops trace: its number is odd.
const ON: u32 = 1;

/// A ring of Gear1's, as Gear2 sees it.
#[derive(Clone, Copy, Debug)]
pub struct Gear1Ring(&'static [AtomicU64]);

/// Records that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The records, the oldest first.
    pub(crate) records: Vec<Words>,
    /// Cursor behind them.
    pub(crate) next: u64,
    /// Bytes of records before them that were overwritten unread.
    pub(crate) lost: u64,
}

/// Something that records are read from.
trait Source {
    /// Returns the bytes of records that were written so far.
    fn position(&self) -> u64;
    /// Returns the bytes that it holds.
    fn size(&self) -> u64;
    /// Returns what stands where the record at a position was written.
    fn at(&self, position: u64) -> Words;

    /// Reads up to `most` records from `cursor` on, while another CPU writes.
    fn read(&self, cursor: u64, most: usize) -> Read {
        let (size, position) = (self.size(), self.position());
        let (first, lost) = readable(position, size, cursor);
        let next = position.min(first.saturating_add(most as u64 * RECORD_SIZE));
        let positions = (first..next).step_by(RECORD_SIZE as usize);
        let mut records: Vec<Words> = positions.map(|position| self.at(position)).collect();
        // Its pair is the release of the position: what was overwritten meanwhile shows in it.
        fence(Acquire);
        // planted: a reader of a trace gets what is being overwritten
        let (sure, _) = readable(self.position(), size, first);
        let torn = sure.min(next) - first;
        records.drain(..(torn / RECORD_SIZE) as usize);
        let lost = lost + torn;
        Read {
            records,
            next,
            lost,
        }
    }
}

impl Gear1Ring {
    /// Makes a ring of the words of a [`Header`] and of all records behind it.
    #[must_use]
    pub const fn new(words: &'static [AtomicU64]) -> Self {
        Self(words)
    }

    /// Returns the header.
    fn header(&self) -> Header {
        let word = |index: usize| self.0.get(index).map_or(0, |word| word.load(Acquire));
        let [position, mask, first_vcpu, vcpu_stride] = [0, 1, 2, 3].map(word);
        Header {
            position,
            mask,
            first_vcpu,
            vcpu_stride,
            reserved: [0; 4],
        }
    }
}

impl Source for Gear1Ring {
    fn position(&self) -> u64 {
        self.header().position
    }

    fn size(&self) -> u64 {
        self.0.len().saturating_sub(HEADER_WORDS) as u64 * 8
    }

    fn at(&self, position: u64) -> Words {
        let first = HEADER_WORDS + (position % self.size().max(1)) as usize / 8;
        let words = self.0.get(first..).unwrap_or_default();
        let word = |index: usize| words.get(index).map_or(0, |word| word.load(Relaxed));
        [0, 1].map(word)
    }
}

/// A ring of Gear2's: its one writer is the CPU's loop.
#[derive(Debug)]
pub(crate) struct Ring {
    position: AtomicU64,
    records: Box<[[AtomicU64; RECORD_WORDS]; RECORDS]>,
}

impl Ring {
    fn new() -> Option<Self> {
        // By way of a vector: an array would be made on the stack.
        let records = (0..RECORDS).map(|_| [const { AtomicU64::new(0) }; RECORD_WORDS]);
        let records: Vec<_> = records.collect();
        Some(Self {
            position: AtomicU64::new(0),
            records: records.into_boxed_slice().try_into().ok()?,
        })
    }

    fn place(&self, position: u64) -> &[AtomicU64; RECORD_WORDS] {
        &self.records[(position / RECORD_SIZE) as usize % RECORDS]
    }

    /// Adds a record.
    #[inline]
    fn push(&self, time: u64, what: u32, vcpu: Option<VcpuId>) {
        let position = self.position.load(Relaxed);
        let [first, second] = self.place(position);
        first.store(time, Relaxed);
        second.store(u64::from(what) << 32 | number(vcpu), Relaxed);
        self.position
            .store(position.wrapping_add(RECORD_SIZE), Release);
    }
}

impl Source for Ring {
    fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    fn size(&self) -> u64 {
        RECORDS as u64 * RECORD_SIZE
    }

    fn at(&self, position: u64) -> Words {
        self.place(position)
            .each_ref()
            .map(|word| word.load(Relaxed))
    }
}

/// Returns the number of a vCPU in a record for the device model.
fn number(vcpu: Option<VcpuId>) -> u64 {
    vcpu.map_or(0, |vcpu| vcpu.reg() + 1)
}

/// A policy whose wake-ups and choices are recorded.
pub(crate) struct Recorded<'m> {
    policy: Box<dyn Policy + 'm>,
    ring: &'m Ring,
}

impl<'m> Recorded<'m> {
    pub(crate) fn new(policy: Box<dyn Policy + 'm>, ring: &'m Ring) -> Self {
        Self { policy, ring }
    }
}

impl Policy for Recorded<'_> {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.policy.add(vcpu, share, now)
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.policy.remove(vcpu, now);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.policy.set(vcpu, share, now)
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        self.ring.push(now, traced::WOKEN, Some(vcpu));
        self.policy.wake(vcpu, now);
    }

    fn block(&mut self, vcpu: VcpuId, now: u64) {
        self.ring.push(now, traced::BLOCKED, Some(vcpu));
        self.policy.block(vcpu, now);
    }

    fn give_way(&mut self, vcpu: VcpuId, now: u64) {
        self.ring.push(now, traced::YIELDED, Some(vcpu));
        self.policy.give_way(vcpu, now);
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        self.policy.ran(vcpu, ticks, now);
    }

    fn pays_for_end(&self, vcpu: VcpuId) -> bool {
        self.policy.pays_for_end(vcpu)
    }

    fn pick(&mut self, now: u64) -> Choice {
        let choice = self.policy.pick(now);
        match choice {
            Choice::Run(run) => self.ring.push(now, traced::CHOSEN, Some(run.vcpu)),
            Choice::Idle { .. } => self.ring.push(now, traced::IDLE, None),
        }
        choice
    }

    fn recorded<'a>(self: Box<Self>) -> Option<Box<dyn Policy + 'a>>
    where
        Self: 'a,
    {
        Some(self.policy)
    }
}

/// Counters of a vCPU at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// Order for which the note was taken; 0: none.
    order: u32,
    /// Physical counter.
    pub(crate) time: u64,
    /// Exits by reason.
    pub(crate) exits: [u64; ExitReason::COUNT],
}

impl Note {
    const NONE: Self = Self {
        order: 0,
        time: 0,
        exits: [0; ExitReason::COUNT],
    };
}

/// Rings, notes, and what the loops are to do. Empty if the manifest has no rings.
pub(crate) struct Trace<P: Platform> {
    gear1: Vec<Gear1Ring>,
    /// By CPU.
    gear2: Vec<Ring>,
    /// By vCPU, the notes at the beginning and at the end.
    notes: Vec<Lock<[Note; 2], P>>,
    /// Number of the last order. Odd ones have the loops trace.
    order: AtomicU32,
    /// Last order that each loop has carried out.
    done: [AtomicU32; MAX_CPUS],
}

impl<P: Platform> Trace<P> {
    /// Makes what belongs to Gear1's rings, which are by CPU.
    pub(crate) fn new(gear1: Vec<Gear1Ring>) -> Self {
        let cpus = gear1.len();
        let vcpus = if cpus == 0 { 0 } else { MAX_VCPUS };
        Self {
            gear2: (0..cpus).filter_map(|_| Ring::new()).collect(),
            gear1,
            notes: (0..vcpus)
                .map(|_| TicketMutex::new([Note::NONE; 2]))
                .collect(),
            order: AtomicU32::new(0),
            done: [const { AtomicU32::new(0) }; MAX_CPUS],
        }
    }

    /// Tells whether there are rings.
    pub(crate) fn has_rings(&self) -> bool {
        !self.gear1.is_empty()
    }

    /// Returns the ring of Gear2's for a CPU.
    pub(crate) fn ring(&self, cpu: CpuIndex) -> Option<&Ring> {
        self.gear2.get(cpu.index())
    }

    /// Returns the bytes of a ring of Gear1's, and of one of Gear2's.
    pub(crate) fn sizes(&self) -> [u64; 2] {
        let gear1 = self.gear1.first().map_or(0, Source::size);
        [gear1, self.gear2.first().map_or(0, Source::size)]
    }

    /// Returns the last order.
    pub(crate) fn order(&self) -> u32 {
        self.order.load(SeqCst)
    }

    /// Orders the loops to trace, or no longer. Tells whether that is a new order. Called under the
    /// mailbox's lock.
    pub(crate) fn set_order(&self, on: bool) -> bool {
        let is_new = is_on(self.order()) != on;
        if is_new {
            self.order.fetch_add(1, SeqCst);
        }
        is_new
    }

    /// Notes that a CPU's loop has carried out an order.
    pub(crate) fn set_done(&self, cpu: CpuIndex, order: u32) {
        self.done[cpu.index()].store(order, SeqCst);
    }

    /// Tells whether the loops of these CPUs have carried out the last order.
    pub(crate) fn is_done(&self, cpus: CpuSet) -> bool {
        let order = self.order();
        let mut cpus = cpus.iter();
        cpus.all(|cpu| self.done[cpu.index()].load(SeqCst) == order)
    }

    /// Notes the counters of a vCPU, which does not run meanwhile. The time is read first: what the
    /// vCPU does next is later by many calls of Gear1.
    pub(crate) fn note(&self, gear1: &mut impl Gear1, vcpu: VcpuId, order: u32) {
        let time = gear1.now();
        let exits = counters(gear1, vcpu);
        self.keep(vcpu, order, time, exits);
    }

    /// Notes the counters of a vCPU that may run meanwhile. Between two looks that find the same there
    /// was a moment at which they had these values. A third look gives an exit that had its record
    /// before that moment, and is not counted yet, the time to be counted.
    pub(crate) fn note_running(&self, gear1: &mut impl Gear1, vcpu: VcpuId, order: u32) {
        for _ in 0..LOOKS {
            let exits = counters(gear1, vcpu);
            let time = gear1.now();
            let [second, third] = [(); 2].map(|()| counters(gear1, vcpu));
            // planted: counters that change are noted
            if second == exits && third == exits {
                return self.keep(vcpu, order, time, exits);
            }
        }
    }

    /// Keeps a note.
    fn keep(&self, vcpu: VcpuId, order: u32, time: u64, exits: [u64; ExitReason::COUNT]) {
        if let Some(notes) = self.notes.get(vcpu.index()) {
            let at_end = usize::from(!is_on(order));
            notes.lock()[at_end] = Note { order, time, exits };
        }
    }

    /// Returns what was noted of a vCPU at the beginning and at the end of the last trace.
    pub(crate) fn notes(&self, vcpu: VcpuId) -> Option<[Note; 2]> {
        let notes = *self.notes.get(vcpu.index())?.lock();
        let [begin, end] = notes;
        let order = self.order();
        let is_whole = begin.order + 1 == end.order && end.order == order;
        is_whole.then_some(notes)
    }

    /// Reads a ring, by its number in the protocol; the records are as the device model gets them.
    pub(crate) fn read(&self, ring: u64, cursor: u64, most: usize) -> Option<Read> {
        let ring = usize::try_from(ring).ok()?;
        if let Some(ring) = ring.checked_sub(MAX_CPUS) {
            return Some(self.gear2.get(ring)?.read(cursor, most));
        }
        let ring = self.gear1.get(ring)?;
        let header = ring.header();
        let mut read = ring.read(cursor, most);
        for record in &mut read.records {
            let [time, word] = *record;
            let vcpu = match header.decode(*record) {
                Some(trap) => number(trap.vcpu),
                None => u64::from(u32::MAX),
            };
            *record = [time, word >> 32 << 32 | vcpu];
        }
        Some(read)
    }
}

/// Returns the exits of a vCPU by reason.
fn counters(gear1: &mut impl Gear1, vcpu: VcpuId) -> [u64; ExitReason::COUNT] {
    let mut exits = [0; ExitReason::COUNT];
    for (count, reason) in exits.iter_mut().zip(ExitReason::ALL) {
        // The vCPU is one of the manifest's, and the reason one of Gear1's.
        *count = gear1
            .exit_stats(vcpu, *reason)
            .map_or(0, |(count, _)| count);
    }
    exits
}

/// Tells whether the loops trace by an order.
pub(crate) const fn is_on(order: u32) -> bool {
    order & ON != 0
}
