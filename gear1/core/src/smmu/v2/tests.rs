//! The driver on a model of an SMMUv2 with 4 KiB pages, written from Arm IHI 0062 and the MMU-500's
//! manual: what a stream reaches follows from the registers alone.

use std::collections::HashMap;
use std::vec::Vec;

use super::{
    Device, Match, Needs, Shape, fault, forget, is_done, seize, shut, start, switch, unfit,
};
use crate::smmu::event::{Access, Event};
use crate::smmu::stream::Stage2;
use crate::smmu::{Stuck, Unfit};

/// Stage 2, stream matching, 15 bits of StreamIDs, 48 register groups.
const IDR0: u32 = 1 << 29 | 1 << 27 | 15 << 9 | 48;
/// 4 KiB pages, two halves of 16 of them, 16 context banks.
const IDR1: u32 = 3 << 28 | 16;
/// 4 KiB tables, 48 bits of addresses on either side of stage 2.
const IDR2: u32 = 1 << 12 | 5 << 4 | 5;
/// Context bank 0.
const BANKS: usize = 0x1_0000;
/// Registers whose bits are cleared by ones: SMMU_sGFSR, and SMMU_CBn_FSR in its page.
const GFSR: usize = 0x48;
const FSR: usize = 0x58;
/// Bytes of all registers: two halves of 16 pages.
const SIZE: u64 = 0x2_0000;
/// VTCR_EL2 with more than an SMMU has: VS, bits 27 to 25, and RES1.
const VTCR: u64 = 0x8e09_3558;

/// Where an access of a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Aborts,
    Passes,
    /// Root, VMID and shape of the stage 2.
    Translated(u64, u32, u32),
}

/// Registers as they were written.
struct Model {
    registers: HashMap<usize, u32>,
    /// Writes since the model was made.
    writes: Vec<(usize, u32)>,
    /// A synchronization is never done.
    hangs: bool,
}

impl Default for Model {
    /// As firmware may leave the SMMU: on, a stream of its own bypassing, all others passing.
    fn default() -> Self {
        let registers = [
            (0x0, 0),
            (0x10, u32::MAX),
            (0x20, IDR0),
            (0x24, IDR1),
            (0x28, IDR2),
            (0x800, 1 << 31 | 7),
            (0xc00, 1 << 16),
            (0x1_0004, u32::MAX),
            (GFSR, 2),
            (BANKS + FSR, 2),
        ];
        Self {
            registers: registers.into(),
            writes: Vec::new(),
            hangs: false,
        }
    }
}

/// Tells whether a VM owns the stream.
fn is_owned(stream: u32) -> bool {
    let one = |one: &Match| (one.id ^ stream) & !one.mask == 0;
    MATCHES.iter().any(one)
}

impl Model {
    fn get(&self, offset: usize) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    /// An SMMU for two VMs: streams 0x80 to 0x8f and 0x100 are the first one's, 0x200 the second's.
    fn started() -> Self {
        let mut model = Self::default();
        seize(&mut model, SIZE).unwrap();
        start(&mut model, &STAGES, &MATCHES, true).unwrap();
        model.writes.clear();
        model
    }

    /// Follows an access of a stream through the registers (2.3, and 3.3 of stream matching).
    fn route(&self, stream: u32) -> Route {
        let control = self.get(0);
        if control & 1 != 0 {
            return Route::Passes;
        }
        let matches = (0..48).filter(|group| {
            let pattern = self.get(0x800 + group * 4);
            let mask = pattern >> 16 & 0x7fff;
            pattern >> 31 != 0 && (pattern ^ stream) & 0x7fff & !mask == 0
        });
        let groups: Vec<usize> = matches.collect();
        let [group] = groups[..] else {
            let faults = match groups.len() {
                0 => control >> 10 & 1 != 0,
                _ => control >> 21 & 1 != 0,
            };
            return if faults { Route::Aborts } else { Route::Passes };
        };
        let context = self.get(0xc00 + group * 4);
        match context >> 16 & 3 {
            0 => self.through((context & 0xff) as usize),
            1 => Route::Passes,
            _ => Route::Aborts,
        }
    }

    /// Follows an access through a context bank.
    fn through(&self, bank: usize) -> Route {
        let page = BANKS + bank * 0x1000;
        let context = self.get(0x1000 + bank * 4);
        assert_eq!(context >> 16 & 3, 0, "stage 2 alone");
        assert_eq!(self.get(0x1800 + bank * 4), 1, "tables of AArch64");
        let control = self.get(page);
        if control & 1 == 0 {
            return Route::Passes;
        }
        // Aborts and interrupts, no stalls, and no access that waits for another's fault.
        assert_eq!(control, 0b1_0110_0001);
        let root = u64::from(self.get(page + 0x24)) << 32 | u64::from(self.get(page + 0x20));
        Route::Translated(root, context & 0xff, self.get(page + 0x30))
    }
}

impl Device for Model {
    fn read32(&self, offset: usize) -> u32 {
        match offset {
            0x74 => u32::from(self.hangs),
            0x60 | 0x64 | 0x68 | 0x70 => panic!("register {offset:#x} is only written"),
            _ => self.get(offset),
        }
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.writes.push((offset, value));
        let is_status = offset == GFSR || offset >= BANKS && offset % 0x1000 == FSR;
        match offset {
            0x20..=0x3c => panic!("register {offset:#x} is only read"),
            _ if is_status => {
                let faults = self.get(offset) & !value;
                self.registers.insert(offset, faults);
            }
            _ => {
                self.registers.insert(offset, value);
            }
        }
    }

    fn order(&self) {}
}

const fn stage(root: u64, vmid: u16) -> Stage2 {
    Stage2 {
        root,
        vmid,
        vtcr: VTCR,
    }
}

const STAGES: [Stage2; 2] = [stage(0x8_7654_2000, 3), stage(0x4000_4000, 5)];
const MATCHES: [Match; 3] = [
    Match {
        id: 0x80,
        mask: 0xf,
        bank: 0,
        is_open: true,
    },
    Match {
        id: 0x100,
        mask: 0,
        bank: 0,
        is_open: true,
    },
    Match {
        id: 0x200,
        mask: 0,
        bank: 1,
        is_open: false,
    },
];

/// Returns where accesses of a VM's streams go: VTCR_EL2's low 19 bits are the shape.
fn through(stage2: &Stage2) -> Route {
    let shape = 1 << 31 | (VTCR as u32 & 0x7_ffff);
    Route::Translated(stage2.root, stage2.vmid.into(), shape)
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_firmware_left_open_is_closed() {
    let mut model = Model::default();
    assert_eq!([7, 8].map(|stream| model.route(stream)), [Route::Passes; 2]);
    seize(&mut model, SIZE).unwrap();
    for stream in 0..0x8000 {
        assert_eq!(model.route(stream), Route::Aborts, "{stream:#x}");
    }
    // Streams without a register abort from the first write on.
    assert_eq!(model.writes[0].0, 0);
    // No interrupt; VMIDs and TLBs are the SMMU's own; no stall.
    assert_eq!(
        model.get(0),
        1 << 21 | 1 << 12 | 1 << 11 | 1 << 10 | 1 << 8 | 0b1_0010
    );
    // All that is cached goes: TLBIALLNSNH, then the synchronization.
    let last = model.writes.len() - 2;
    assert_eq!(model.writes[last..], [(0x68, 0), (0x70, 0)]);
}

/// Requirement: G1-DMA-001.
#[test]
fn a_stream_has_the_stage_2_of_its_vm_or_aborts() {
    let mut model = Model::started();
    for stream in 0..0x8000 {
        let expected = match stream {
            0x80..=0x8f | 0x100 => through(&STAGES[0]),
            _ => Route::Aborts,
        };
        assert_eq!(model.route(stream), expected, "{stream:#x}");
    }
    switch(&mut model, 5, true);
    assert_eq!(model.route(0x200), through(&STAGES[1]));
    // Faults interrupt, and firmware's are gone.
    assert_eq!(model.get(0) & 0x24, 0x24);
    assert_eq!((model.get(GFSR), model.get(BANKS + FSR)), (0, 0));
}

/// No register leads to a context bank that is not whole, and all that firmware had cached is
/// forgotten before.
///
/// Requirement: G1-DMA-001.
#[test]
fn streams_are_let_in_last() {
    let mut model = Model::default();
    seize(&mut model, SIZE).unwrap();
    model.writes.clear();
    start(&mut model, &STAGES, &MATCHES, true).unwrap();
    let is_stream = |(offset, _): &(usize, u32)| (0x800..0x1000).contains(offset);
    let first = model.writes.iter().position(is_stream).unwrap();
    let behind = &model.writes[first..];
    assert!(behind.iter().all(|write| is_stream(write) || write.0 == 0));
    assert_eq!(model.writes[first - 1], (0x70, 0));
    // Of a group, the pattern comes before what it leads to.
    assert_eq!((behind[0].0, behind[1].0), (0x800, 0xc00));
}

/// Errata 826419 and 841119 of the MMU-500: nothing is fetched ahead, which the lock of the
/// registers would keep from being set. Other SMMUs have something else there.
///
/// Requirement: G1-DMA-002.
#[test]
fn an_mmu_500_fetches_nothing_ahead() {
    let with = |is_mmu500: bool| {
        let mut model = Model::default();
        seize(&mut model, SIZE).unwrap();
        model.writes.clear();
        start(&mut model, &STAGES, &MATCHES, is_mmu500).unwrap();
        let at = |offset: usize| model.writes.iter().position(|(one, _)| *one == offset);
        if is_mmu500 {
            assert!(at(0x10) < at(0x1_0004), "the lock is opened first");
        }
        [0x10, 0x1_0004, 0x1_1004].map(|offset| model.get(offset))
    };
    let unlocked = !(1 << 26 | 1 << 10 | 1 << 8);
    assert_eq!(with(true), [unlocked, !2, 0]);
    assert_eq!(with(false), [u32::MAX, u32::MAX, 0]);
}

/// Requirement: G1-DMA-002.
#[test]
fn the_streams_of_a_vm_are_shut_and_opened_alone() {
    let mut model = Model::started();
    switch(&mut model, 5, true);
    switch(&mut model, 3, false);
    let routes = |model: &Model| [0x80, 0x8f, 0x100, 0x200].map(|stream| model.route(stream));
    let [own, other] = [through(&STAGES[0]), through(&STAGES[1])];
    assert_eq!(
        routes(&model),
        [Route::Aborts, Route::Aborts, Route::Aborts, other]
    );
    switch(&mut model, 3, true);
    assert_eq!(routes(&model), [own, own, own, other]);
    shut(&mut model);
    assert_eq!(routes(&model), [Route::Aborts; 4]);
    // Nobody's register opens by a VM's number, as the unused ones have the number 0.
    switch(&mut model, 0, true);
    assert_eq!(model.route(0), Route::Aborts);
}

/// Requirement: G1-DMA-002.
#[test]
fn an_invalidation_names_the_vm_and_is_done_when_the_smmu_says_so() {
    let mut model = Model::started();
    model.hangs = true;
    forget(&mut model, 5);
    assert_eq!(model.writes, [(0x64, 5), (0x70, 0)]);
    assert!(!is_done(&model));
    model.hangs = false;
    assert!(is_done(&model));
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_does_not_answer_is_told() {
    let mut model = Model {
        hangs: true,
        ..Model::default()
    };
    assert_eq!(seize(&mut model, SIZE), Err(Stuck));
    // Nothing passes, all the same.
    assert_eq!(model.route(7), Route::Aborts);
    assert_eq!(start(&mut model, &STAGES, &MATCHES, false), Err(Stuck));
    assert_eq!(model.route(0x80), Route::Aborts);
}

/// Requirement: G1-DMA-003.
#[test]
fn a_fault_tells_who_did_what_once() {
    let mut model = Model::started();
    assert_eq!(fault::take(&mut model, 2, is_owned), None);
    // A translation fault of a write, in context bank 1, and more of them behind it.
    let bank = BANKS + 0x1000;
    for (offset, value) in [
        (FSR, 1 << 31 | 2),
        (0x60, 0x4321_0040),
        (0x64, 8),
        (0x68, 1 << 4),
    ] {
        model.registers.insert(bank + offset, value);
    }
    model.registers.insert(0x1404, 0x200);
    // A stream that matches nothing, which reads.
    for (offset, value) in [(GFSR, 2), (0x40, 0x1000), (0x54, 0x333)] {
        model.registers.insert(offset, value);
    }
    let access = |address, is_write| Some(Access { address, is_write });
    let unknown = Event {
        number: 0x02,
        stream: 0x333,
        access: access(0x1000, false),
        is_overflow: false,
    };
    let own = Event {
        number: 0x10,
        stream: 0x200,
        access: access(0x8_4321_0040, true),
        is_overflow: true,
    };
    let mut events = Vec::new();
    // Bound: as many as were put there, and one.
    for _ in 0..3 {
        events.push(fault::take(&mut model, 2, is_owned));
    }
    assert_eq!(events, [Some(unknown), Some(own), None]);
    // Of a fault that came while another was cleared, nothing else is known.
    model.registers.insert(bank + FSR, 1 << 31);
    let lost = fault::take(&mut model, 2, is_owned).unwrap();
    assert_eq!((lost.access, lost.is_overflow), (None, true));
    // A bank that nobody uses is not looked at.
    model.registers.insert(BANKS + 0x2000 + FSR, 2);
    assert_eq!(fault::take(&mut model, 2, is_owned), None);
}

/// Requirement: G1-DMA-003.
#[test]
fn a_vm_that_is_stopped_has_no_events() {
    let mut model = Model::started();
    let mut take = |stream: u32| {
        model.registers.insert(GFSR, 2);
        model.registers.insert(0x54, stream);
        // A fault of a VM that runs comes behind it.
        model.registers.insert(BANKS + FSR, 2);
        model.registers.insert(0x1400, 0x80);
        let event = fault::take(&mut model, 2, is_owned).map(|event| event.stream);
        assert_eq!(model.get(GFSR), 0, "there is room for the next");
        event
    };
    // The second VM's, which is shut, and nobody's.
    assert_eq!([0x200, 0x201].map(&mut take), [Some(0x80), Some(0x201)]);
    // A fault of the configuration is told, whoever owns the stream.
    model.registers.insert(GFSR, 4);
    model.registers.insert(0x54, 0x80);
    let event = fault::take(&mut model, 2, is_owned);
    assert_eq!(event.map(|event| event.number), Some(0x04));
}

/// An SMMU without stream matching has a group for each StreamID.
///
/// Requirement: G1-DMA-001.
#[test]
fn streams_that_are_indexed_are_shut_as_well() {
    let mut model = Model::default();
    model.registers.insert(0x20, 1 << 29 | 6 << 9);
    for stream in 0..64 {
        model.registers.insert(0xc00 + stream * 4, 1 << 16);
    }
    seize(&mut model, SIZE).unwrap();
    let are_shut = (0..64).all(|stream| model.get(0xc00 + stream * 4) >> 16 & 3 == 2);
    assert!(are_shut);
}

/// A context bank that no VM gets holds no interrupt. Banks beyond the registers are not touched.
///
/// Requirement: G1-DMA-003.
#[test]
fn banks_that_firmware_has_used_are_turned_off() {
    let mut model = Model::default();
    for bank in [0, 5, 15] {
        model.registers.insert(BANKS + bank * 0x1000, 1 << 6 | 1);
        model.registers.insert(BANKS + bank * 0x1000 + FSR, 2);
    }
    seize(&mut model, SIZE - 0x1000).unwrap();
    let left = |bank: usize| {
        let page = BANKS + bank * 0x1000;
        (model.get(page), model.get(page + FSR))
    };
    assert_eq!([0, 5, 15].map(left), [(0, 0), (0, 0), (1 << 6 | 1, 2)]);
}

/// Faults have the numbers of an SMMUv3's events that say the same (Arm IHI 0070, 7.3).
///
/// Requirement: G1-DMA-003.
#[test]
fn faults_have_the_numbers_of_an_smmuv3s_events() {
    let number = |offset: usize, status: u32| {
        let mut model = Model::started();
        model.registers.insert(offset, status);
        fault::take(&mut model, 1, is_owned).map(|event| event.number)
    };
    let bank = BANKS + FSR;
    let contexts = [
        (1, 0x10),
        (2, 0x12),
        (3, 0x13),
        (4, 0x0b),
        (7, 0x11),
        (8, 0x01),
    ];
    for (bit, expected) in contexts {
        assert_eq!(number(bank, 1 << bit), Some(expected), "FSR bit {bit}");
    }
    assert_eq!(number(bank, 1 << 5), Some(0x04), "a conflict in the TLB");
    assert_eq!(number(bank, 2 << 9), None, "the format of tables alone");
    assert_eq!(
        [0, 1, 2].map(|bit| number(GFSR, 1 << bit)),
        [0x04, 0x02, 0x04].map(Some)
    );
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_cannot_do_what_is_needed_is_named() {
    let needs = Needs {
        pa_range: 2,
        banks: 3,
        matches: 40,
        stream_bits: 15,
    };
    let of = |offset: usize, change: fn(u32) -> u32| {
        let mut model = Model::default();
        let id = change(model.get(offset));
        model.registers.insert(offset, id);
        unfit(&model, &needs)
    };
    assert_eq!(of(0x20, |id| id), None);
    assert_eq!(of(0x20, |id| id & !(1 << 29)), Some(Unfit::Stage2));
    assert_eq!(of(0x28, |id| id & !(1 << 12)), Some(Unfit::Stage2));
    assert_eq!(of(0x20, |id| id & !(1 << 27)), Some(Unfit::Streams));
    // 14 bits are too few, and with 16 a register does not compare the last one.
    assert_eq!(of(0x20, |id| id - (1 << 9)), Some(Unfit::Streams));
    assert_eq!(of(0x20, |id| id - 9), Some(Unfit::Matches));
    assert_eq!(of(0x24, |id| id - 14), Some(Unfit::Contexts));
    assert_eq!(
        of(0x28, |id| id & !(0xf << 4) | 1 << 4),
        Some(Unfit::Addresses)
    );
    assert_eq!(of(0x28, |id| id & !0xf | 1), Some(Unfit::Addresses));
}

/// Requirement: G1-DMA-001.
#[test]
fn registers_lie_where_their_pages_say() {
    let of = |id1: u32| {
        let mut model = Model::default();
        model.registers.insert(0x24, id1);
        Shape::of(&model)
    };
    let small = of(IDR1);
    assert_eq!((small.size(2), small.bank(1, 0x58)), (0x1_2000, 0x1_1058));
    assert_eq!(small.of_bank(2, 0x400), 0x1408);
    // 64 KiB pages, two halves of 128 of them.
    let large = of(1 << 31 | 6 << 28 | 128);
    assert_eq!((large.size(1), large.bank(0, 0)), (0x81_0000, 0x80_0000));
    assert_eq!((large.of_bank(1, 0), large.bank_count), (0x1_0004, 128));
    let mut model = Model::default();
    model.registers.insert(0x20, IDR0 | 0xff);
    assert_eq!(Shape::of(&model).group_count, 128);
}
