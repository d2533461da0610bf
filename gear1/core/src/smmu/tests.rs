//! The driver on a model of an SMMUv3, written from Arm IHI 0070.

use std::vec::Vec;

use super::command::{Command, Queue, Ticket};
use super::event::{Access, Event};
use super::stream::{self, Stage2, Tables};
use super::{Device, Memory, Stuck, Unfit, seize, shut, start, take_event, unfit};

const MEMORY: Memory = Memory {
    streams: 0x4000_0000,
    stream_bits: 16,
    commands: 0x4010_0000,
    events: 0x4010_1000,
};
const IDR0: u32 = 1 << 27 | 1 << 24 | 0b10 << 21 | 1 << 13 | 1 << 10 | 1 << 4 | 0b10 << 2 | 0b11;
const IDR1: u32 = 19 << 21 | 19 << 16 | 16;
const IDR5: u32 = 1 << 4 | 4;

/// An SMMU that carries out commands when they are published, unless it is slow or hangs.
struct Model {
    id: [u32; 3],
    cr0: u32,
    gbpa: u32,
    irq_ctrl: u32,
    command: [u32; 2],
    event: [u32; 2],
    bases: Vec<(usize, u64)>,
    commands: [[u64; 2]; 256],
    events: [[u64; 4]; 128],
    done: Vec<[u64; 2]>,
    /// Accesses in their order: what lets devices through, and what aborts.
    open: bool,
    /// Registers do not change.
    hangs: bool,
    /// Commands wait until [`Model::carry_out`].
    is_slow: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            id: [IDR0, IDR1, IDR5],
            // As firmware may leave it.
            cr0: 1,
            gbpa: 0,
            irq_ctrl: 0b101,
            command: [0; 2],
            event: [0; 2],
            bases: Vec::new(),
            commands: [[0; 2]; 256],
            events: [[0; 4]; 128],
            done: Vec::new(),
            open: true,
            hangs: false,
            is_slow: false,
        }
    }
}

impl Model {
    fn started() -> Self {
        let mut model = Self::default();
        seize(&mut model).unwrap();
        start(&mut model, &MEMORY).unwrap();
        model.done.clear();
        model
    }

    fn carry_out(&mut self) {
        while !self.hangs && self.cr0 & 8 != 0 && self.command[1] != self.command[0] {
            let slot = self.command[1] as usize % 256;
            self.done.push(self.commands[slot]);
            self.command[1] = (self.command[1] + 1) % 512;
        }
    }

    /// Records an event as the SMMU does: one that has no room sets the overflow flag (7.4).
    fn record(&mut self, record: [u64; 4]) {
        let [producer, consumer] = self.event;
        if (producer ^ consumer) & 0xff == 0x80 {
            if (producer ^ consumer) >> 31 == 0 {
                self.event[0] ^= 1 << 31;
            }
            return;
        }
        self.events[producer as usize % 128] = record;
        self.event[0] = producer & 1 << 31 | (producer + 1) & 0xff;
    }
}

impl Device for Model {
    fn read32(&self, offset: usize) -> u32 {
        match offset {
            0 => self.id[0],
            4 => self.id[1],
            0x14 => self.id[2],
            0x20 | 0x24 => self.cr0,
            0x44 => self.gbpa,
            0x50 | 0x54 => self.irq_ctrl,
            0x60 => 1,
            0x98 => self.command[0],
            0x9c => self.command[1],
            0x1_00a8 => self.event[0],
            0x1_00ac => self.event[1],
            _ => panic!("register {offset:#x} has no use"),
        }
    }

    fn write32(&mut self, offset: usize, value: u32) {
        match offset {
            0x20 if !self.hangs => self.cr0 = value,
            0x20 => {}
            0x28 => assert_eq!(value, 0b11_0101 << 6 | 0b11_0101),
            0x2c => assert_eq!(value, 0b110),
            0x44 => self.gbpa = value & !(1 << 31),
            0x50 if !self.hangs => self.irq_ctrl = value,
            0x50 => {}
            0x64 => assert_eq!(value, 1, "the error is acknowledged"),
            0x88 => self.bases.push((offset, value.into())),
            0x98 => {
                self.command[0] = value;
                if !self.is_slow {
                    self.carry_out();
                }
            }
            0x9c => self.command[1] = value,
            0x1_00a8 => self.event[0] = value,
            0x1_00ac => self.event[1] = value,
            _ => panic!("register {offset:#x} has no use"),
        }
        self.open = if self.cr0 & 1 == 0 {
            self.gbpa >> 20 & 1 == 0
        } else {
            self.open
        };
    }

    fn write64(&mut self, offset: usize, value: u64) {
        assert_eq!(self.cr0 & 1, 0, "tables change while the SMMU translates");
        assert_eq!(self.irq_ctrl, 0, "an interrupt changes while it is on");
        self.bases.push((offset, value));
    }

    fn put_command(&mut self, slot: u32, command: [u64; 2]) {
        self.commands[slot as usize] = command;
    }

    fn event(&self, slot: u32) -> [u64; 4] {
        self.events[slot as usize]
    }

    fn order(&self) {}
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_firmware_left_open_is_closed_before_it_translates() {
    let mut model = Model::default();
    seize(&mut model).unwrap();
    assert!(!model.open);
    assert_eq!((model.cr0, model.gbpa, model.irq_ctrl), (0, 1 << 20, 0));
    start(&mut model, &MEMORY).unwrap();
    // Checks of translated addresses, commands, events, translation; the event queue interrupts.
    assert_eq!((model.cr0, model.irq_ctrl), (0b1_1101, 0b100));
    let bases = [
        (0x80, 1 << 62 | MEMORY.streams),
        (0x88, 1 << 16 | 8 << 6 | 16),
        (0x90, 1 << 62 | MEMORY.commands | 8),
        (0xa0, 1 << 62 | MEMORY.events | 7),
        (0xb0, 0),
    ];
    assert_eq!(model.bases, bases);
    // CFGI_ALL, TLBI_NSNH_ALL and SYNC: nothing that firmware left is used.
    assert_eq!(model.done, [[0x04, 31], [0x30, 0], [0x46, 0]]);
}

/// CR0.ATSCHK is reserved where the SMMU has no ATS (6.3.9.4).
///
/// Requirement: G1-DMA-001.
#[test]
fn addresses_that_devices_translated_are_checked_where_they_can_come() {
    let mut model = Model::default();
    model.id[0] &= !(1 << 10);
    seize(&mut model).unwrap();
    start(&mut model, &MEMORY).unwrap();
    assert_eq!(model.cr0, 0b1101);
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_cannot_do_what_is_needed_is_named() {
    let of = |change: fn(&mut [u32; 3])| {
        let mut model = Model::default();
        change(&mut model.id);
        unfit(&model, 16, 4)
    };
    assert_eq!(of(|_| {}), None);
    assert_eq!(of(|id| id[0] &= !1), Some(Unfit::Stage2));
    assert_eq!(of(|id| id[0] &= !(1 << 3)), Some(Unfit::Stage2));
    assert_eq!(of(|id| id[2] &= !(1 << 4)), Some(Unfit::Stage2));
    assert_eq!(of(|id| id[0] |= 0b11 << 21), Some(Unfit::Stage2));
    assert_eq!(of(|id| id[0] ^= 0b11 << 24), Some(Unfit::Stalls));
    assert_eq!(of(|id| id[0] &= !(1 << 4)), Some(Unfit::Coherency));
    assert_eq!(of(|id| id[0] &= !(1 << 27)), Some(Unfit::Streams));
    assert_eq!(of(|id| id[1] -= 1), Some(Unfit::Streams));
    assert_eq!(of(|id| id[2] -= 1), Some(Unfit::Addresses));
    assert_eq!(of(|id| id[1] |= 1 << 30), Some(Unfit::Queues));
    assert_eq!(of(|id| id[1] -= 12 << 21), Some(Unfit::Queues));
    assert_eq!(of(|id| id[1] -= 13 << 16), Some(Unfit::Queues));
}

/// Requirement: G1-DMA-002.
#[test]
fn an_invalidation_names_the_vm_and_is_done_when_the_smmu_says_so() {
    let (mut model, mut queue) = (Model::started(), Queue::new());
    model.is_slow = true;
    // More often than the queue has entries.
    for round in 0..300 {
        let ticket = queue.issue(&mut model, &[Command::forget(0x1234)]).unwrap();
        assert!(!queue.is_done(&model, ticket), "round {round}");
        model.carry_out();
        assert!(queue.is_done(&model, ticket), "round {round}");
        let done = [[0x1234_0000_0028, 0], [0x46, 0]];
        assert_eq!(model.done, done, "round {round}");
        model.done.clear();
    }
}

/// Requirement: G1-DMA-002.
#[test]
fn invalidations_of_several_cpus_are_done_in_their_order_and_stay_done() {
    let (mut model, mut queue) = (Model::started(), Queue::new());
    model.is_slow = true;
    let tell = |model: &mut Model, queue: &mut Queue| queue.issue(model, &[Command::forget(7)]);
    let first = tell(&mut model, &mut queue).unwrap();
    model.carry_out();
    let second = tell(&mut model, &mut queue).unwrap();
    assert!(queue.is_done(&model, first) && !queue.is_done(&model, second));
    // Two commands each, of 256, with those of `second`.
    let more: Vec<Ticket> = (0..127)
        .map(|_| tell(&mut model, &mut queue).unwrap())
        .collect();
    assert_eq!(tell(&mut model, &mut queue), None, "the queue is full");
    model.carry_out();
    for ticket in [first, second].iter().chain(&more) {
        assert!(queue.is_done(&model, *ticket));
    }
    for _ in 0..1_000 {
        tell(&mut model, &mut queue).unwrap();
        model.carry_out();
        assert!(queue.is_done(&model, first), "once done, always done");
    }
}

/// Requirement: G1-DMA-002.
#[test]
fn an_smmu_that_does_not_answer_is_told_and_can_be_shut() {
    let mut model = Model {
        hangs: true,
        ..Model::default()
    };
    assert_eq!(seize(&mut model), Err(Stuck));
    let mut model = Model::started();
    model.hangs = true;
    assert_eq!(shut(&mut model), Err(Stuck));
    model.hangs = false;
    assert_eq!(shut(&mut model), Ok(()));
    assert!(!model.open, "nothing passes once translation is off");
}

/// Tables of the second level as words.
struct Entries(Vec<[u64; 8]>);

impl Tables for Entries {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn read(&self, entry: usize, word: usize) -> u64 {
        self.0[entry][word]
    }

    fn write_first(&mut self, entry: usize, value: u64) {
        self.0[entry][0] = value;
    }
}

/// Requirement: G1-DMA-002.
#[test]
fn the_streams_of_a_vm_are_shut_and_opened_alone() {
    let of = |vmid| {
        let stage2 = Stage2 {
            root: 0x4020_0000,
            vmid,
            vtcr: 0,
        };
        stream::entry(&stage2, true)
    };
    let open = [of(5), [0; 8], of(6), of(5)];
    let mut tables = Entries(open.to_vec());
    stream::switch(&mut tables, 5, false);
    // Valid, and aborts; what else an entry says is left.
    let shut = |mut entry: [u64; 8]| {
        entry[0] = 1;
        entry
    };
    assert_eq!(tables.0, [shut(of(5)), [0; 8], of(6), shut(of(5))]);
    stream::switch(&mut tables, 0, true);
    assert_eq!(tables.0[1], [0; 8], "a stream without an owner stays shut");
    stream::switch(&mut tables, 5, true);
    assert_eq!(tables.0, open);
}

/// Requirement: G1-DMA-003.
#[test]
fn events_are_told_in_order_and_lost_ones_are_known() {
    let mut model = Model::started();
    assert_eq!(take_event(&mut model), None);
    let record = |number: u64| [7 << 32 | 0x10, 0, number, 0];
    // Fifteen laps: both halves of the index.
    for lap in 0..15 {
        for number in 0..100 {
            model.record(record(lap * 100 + number));
        }
        for number in 0..100 {
            let event = take_event(&mut model).unwrap();
            assert_eq!(event.access.unwrap().address, lap * 100 + number);
            assert!(!event.is_overflow);
        }
    }
    for number in 0..130 {
        model.record(record(number));
    }
    let taken: Vec<Event> = core::iter::from_fn(|| take_event(&mut model)).collect();
    assert_eq!(taken.len(), 128);
    assert!(taken[0].is_overflow, "two were lost");
    assert!(taken[1..].iter().all(|event| !event.is_overflow));
    model.record(record(1));
    assert!(!take_event(&mut model).unwrap().is_overflow);
}

/// Requirement: G1-DMA-003.
#[test]
fn an_event_tells_who_did_what() {
    let write = Event::of([0x0008_0000_0010, 0, 0x4123_4000, 0x4123_4000], false);
    let expected = Event {
        number: 0x10,
        stream: 8,
        access: Some(Access {
            address: 0x4123_4000,
            is_write: true,
        }),
        is_overflow: false,
    };
    assert_eq!(write, expected);
    let read = Event::of([0x0008_0000_0010, 1 << 35, 0x4123_4000, 0], true);
    assert!(read.is_overflow && !read.access.unwrap().is_write);
    // C_BAD_STE: the record has no address.
    let of_nobody = Event::of([0x0008_0000_0004, 0, 0x4123_4000, 0], false);
    assert_eq!((of_nobody.number, of_nobody.access), (4, None));
}

/// Requirement: G1-DMA-001.
#[test]
fn a_stream_has_the_stage_2_of_the_cpus() {
    // 40 bits in two tables at level 1, 4 KiB, write-back inner-shareable.
    let vtcr = 0x8000_0000 | 2 << 16 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | 1 << 6 | 24;
    let stage2 = Stage2 {
        root: 0x4020_0000,
        vmid: 5,
        vtcr,
    };
    let entry = stream::entry(&stage2, true);
    // Valid, stage 1 is bypassed, stage 2 translates.
    assert_eq!(entry[0], 0b1101);
    assert_eq!(entry[1], 1 << 44, "shareability as the device says");
    assert_eq!(entry[2] & 0xffff, 5);
    assert_eq!(entry[2] >> 32 & 0x7_ffff, vtcr & 0x7_ffff);
    assert_eq!(entry[2] >> 51, 0b1000_0101, "S2R, S2AFFD, S2AA64; no S2S");
    assert_eq!(entry[3], 0x4020_0000);
    assert_eq!(entry[4..], [0; 4]);
    assert_eq!(stream::first_level(0x4030_0000), 0x4030_0009);
}
