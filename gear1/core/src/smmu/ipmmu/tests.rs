//! The driver on a model of an IPMMU with three cache units, written from the same facts as the
//! driver: what a micro-TLB reaches follows from the registers alone.

use std::collections::{HashMap, HashSet};
use std::vec::Vec;

use gear1_abi::boot::BootStreams;

use super::flush::Flushes;
use super::{
    FIRST_OWN, MAX_OWN, MICRO_TLBS, UNIT_STREAMS, fault, forget_empty, has_stage2, seize, shut,
    start, switch, unfit,
};
use crate::smmu::event::Event;
use crate::smmu::stream::Stage2;
use crate::smmu::v2::Device;
use crate::smmu::{Stuck, Unfit};

/// The main unit and three cache units.
const UNITS: u32 = 4;
/// Bytes of a unit's registers.
const UNIT: usize = 0x1000;
/// IMSTR of a context in the main unit.
const IMSTR: usize = 0x20;
const EMPTY: u64 = 0x4810_2000;
/// VTCR_EL2 of 40 bits from level 1 on, with more than an IPMMU has.
const VTCR: u64 = 0x8002_3558;

/// Where an access by a micro-TLB goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Passes,
    /// Root, and IMTTBCR.
    Translated(u64, u32),
}

/// Registers as they were written.
struct Model {
    registers: HashMap<usize, u32>,
    /// Writes since the model was made.
    writes: Vec<(usize, u32)>,
    /// Contexts that a unit has been told to forget, and has not.
    flushing: HashSet<(usize, usize)>,
    /// Units do at once what they are told.
    is_prompt: bool,
    /// IMCTR of a cache unit reads as it was written, and not as 0.
    caches_read: bool,
}

impl Default for Model {
    /// As firmware may leave the IPMMU: security groups in use, a fault, a micro-TLB that leads to
    /// a context of firmware's, all others off.
    fn default() -> Self {
        let registers = [
            (0x500, 0xf000_0000),
            (0x504, 0x0100_0000),
            (UNIT + 0x500, 0xd000_0000),
            (UNIT + 0x300, 5 << 4 | 1),
            (0, 1 << 2 | 1),
            (IMSTR, 1),
            (5 * 0x40, 1 << 2 | 1),
            (5 * 0x40 + IMSTR, 1),
            (0x40 + IMSTR, 1),
        ];
        Self {
            registers: registers.into(),
            writes: Vec::new(),
            flushing: HashSet::new(),
            is_prompt: true,
            caches_read: true,
        }
    }
}

impl Model {
    fn get(&self, offset: usize) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn seized() -> Self {
        let mut model = Self::default();
        seize(&mut model, UNITS, EMPTY).unwrap();
        forget_empty(&mut model, UNITS).unwrap();
        model
    }

    /// An IPMMU for two VMs, 0 and 4: streams 64 to 79 and 200 are the first one's, 130 the other's.
    fn started() -> Self {
        let mut model = Self::seized();
        start(&mut model, UNITS, &STAGES, &STREAMS, |vm| vm == 0).unwrap();
        model.writes.clear();
        model
    }

    /// Follows an access by a micro-TLB through the registers.
    fn route(&self, stream: u32) -> Route {
        let (unit, number) = ((stream / 64) as usize, (stream % 64) as usize);
        assert!(unit != 0 && number < 48, "{stream} is no micro-TLB");
        let first = if number < 32 { 0x300 } else { 0x600 };
        let control = self.get(unit * UNIT + first + number % 32 * 16);
        if control & 1 == 0 {
            return Route::Passes;
        }
        let context = (control >> 4 & 0xf) as usize * 0x40;
        let main = self.get(context);
        if main & 1 == 0 || self.get(unit * UNIT + context) & 1 == 0 {
            return Route::Passes;
        }
        // AArch64 tables of stage 2's format; no security groups.
        assert_ne!(main & 1 << 29, 0);
        assert_ne!(self.get(0x504) & 1 << 3, 0);
        assert_eq!(
            (self.get(0x500) | self.get(unit * UNIT + 0x500)) & 1 << 28,
            0
        );
        let root = u64::from(self.get(context + 0x14)) << 32 | u64::from(self.get(context + 0x10));
        Route::Translated(root, self.get(context + 8))
    }

    /// All micro-TLBs of the cache units.
    fn streams() -> impl Iterator<Item = u32> {
        (1..UNITS).flat_map(|unit| (0..MICRO_TLBS).map(move |number| unit * UNIT_STREAMS + number))
    }

    /// Has a unit do what it was told.
    fn finish(&mut self, unit: usize) {
        self.flushing.retain(|(of, _)| *of != unit);
    }
}

impl Device for Model {
    fn read32(&self, offset: usize) -> u32 {
        let place = (offset / UNIT, offset % UNIT);
        if place.1 >= 0x200 || !place.1.is_multiple_of(0x40) {
            return self.get(offset);
        }
        if place.0 != 0 && !self.caches_read {
            return 0;
        }
        let is_flushing = u32::from(self.flushing.contains(&place));
        self.get(offset) & !2 | is_flushing << 1
    }

    fn write32(&mut self, offset: usize, value: u32) {
        let (unit, register) = (offset / UNIT, offset % UNIT);
        assert!(unit < UNITS as usize);
        if register < 0x200 {
            // Cache units have IMCTR alone, without VA64; context 0 is turned off and not used.
            assert!(register >= 0x40 || (register, value) == (0, 0), "context 0");
            assert!(unit == 0 || register % 0x40 == 0 && value & !7 == 0);
            let is_status = register % 0x40 == IMSTR;
            if is_status {
                assert_eq!(value, 0, "zeroes clear a status");
            }
            if register % 0x40 == 0 && value & 2 != 0 && !self.is_prompt {
                self.flushing.insert((unit, register));
            }
        }
        self.writes.push((offset, value));
        self.registers.insert(offset, value);
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

const fn range(first: u32, count: u32, vm: u32) -> BootStreams {
    BootStreams { first, count, vm }
}

const STAGES: [Stage2; 2] = [stage(0x7_7654_2000, 3), stage(0x4800_4000, 7)];
const STREAMS: [BootStreams; 6] = [
    range(FIRST_OWN, 1, 0),
    range(64, 16, 0),
    range(200, 1, 0),
    range(FIRST_OWN + 1, 1, 4),
    range(130, 1, 4),
    range(0, 0, 0),
];
/// IMTTBCR of all tables here: long descriptors, no stage 1, level 1, 40 bits.
const SHAPE: u32 = 1 << 31 | 1 << 30 | 1 << 6 | 24;
const ABORTS: Route = Route::Translated(EMPTY, SHAPE);

/// Requirements: G1-DMA-001, G1-DMA-008.
#[test]
fn an_ipmmu_that_firmware_left_open_is_closed() {
    let model = Model::default();
    assert!(Model::streams().all(|stream| model.route(stream) == Route::Passes));
    let model = Model::seized();
    for stream in Model::streams() {
        assert_eq!(model.route(stream), ABORTS, "{stream}");
    }
    // Firmware's other bits stay: caches off, 40-bit merging.
    assert_eq!(model.get(0x500), 0xe000_0000);
    assert_eq!(model.get(UNIT + 0x500), 0xc000_0000);
    assert_eq!(model.get(0x504), 0x0100_0008);
    // No interrupt, and no context of firmware's.
    for context in 0..8 {
        for unit in 0..UNITS as usize {
            assert_eq!(model.get(unit * UNIT + context * 0x40) & 4, 0);
        }
    }
    assert_eq!([model.get(0), model.get(5 * 0x40)], [0, 0]);
}

/// Replays writes on these registers, and returns the micro-TLB, the register and the route where
/// `is_right` is not so.
fn replay(
    from: &HashMap<usize, u32>,
    writes: &[(usize, u32)],
    mut is_right: impl FnMut(u32, Route) -> bool,
) -> Option<(u32, usize, Route)> {
    let mut model = Model {
        registers: from.clone(),
        ..Model::default()
    };
    for (offset, value) in writes {
        model.write32(*offset, *value);
        for stream in [64, 130, 131, 200] {
            let route = model.route(stream);
            if !is_right(stream, route) {
                return Some((stream, *offset, route));
            }
        }
    }
    None
}

/// A micro-TLB that was closed once stays closed, whatever is written next.
///
/// Requirement: G1-DMA-001.
#[test]
fn nothing_passes_again_while_an_ipmmu_is_seized() {
    let model = Model::seized();
    let mut closed = HashSet::new();
    let wrong = replay(
        &Model::default().registers,
        &model.writes,
        |stream, route| {
            if route == ABORTS {
                closed.insert(stream);
            }
            route == ABORTS || !closed.contains(&stream)
        },
    );
    assert_eq!(wrong, None);
    assert_eq!(closed.len(), 4);
}

/// The end of a cache unit's flush is read in a register that no source reads.
///
/// Requirement: G1-DMA-002.
#[test]
fn cache_units_whose_flush_cannot_be_seen_are_refused() {
    let mut model = Model {
        caches_read: false,
        ..Model::default()
    };
    assert_eq!(seize(&mut model, UNITS, EMPTY), Err(Stuck));
}

/// The tables of a context are there before a micro-TLB leads to it, and nothing passes in between.
///
/// Requirement: G1-DMA-008.
#[test]
fn nothing_passes_while_an_ipmmu_is_started() {
    let mut model = Model::seized();
    let before: HashMap<usize, u32> = model.registers.clone();
    model.writes.clear();
    start(&mut model, UNITS, &STAGES, &STREAMS, |_| true).unwrap();
    let wrong = replay(&before, &model.writes, |stream, route| match stream {
        64 | 200 => [ABORTS, through(0)].contains(&route),
        130 => [ABORTS, through(1)].contains(&route),
        _ => route == ABORTS,
    });
    assert_eq!(wrong, None);
}

/// Returns where accesses of a VM's micro-TLBs go.
fn through(stage: usize) -> Route {
    Route::Translated(STAGES[stage].root, SHAPE)
}

/// Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-008.
#[test]
fn a_micro_tlb_has_the_stage_2_of_its_vm_or_an_empty_one() {
    let mut model = Model::started();
    let routes = |model: &Model, open: [bool; 2]| {
        for stream in Model::streams() {
            let expected = match stream {
                64..=79 | 200 if open[0] => through(0),
                130 if open[1] => through(1),
                _ => ABORTS,
            };
            assert_eq!(model.route(stream), expected, "{stream}");
        }
    };
    routes(&model, [true, false]);
    switch(&mut model, &STREAMS, 4, true);
    routes(&model, [true, true]);
    switch(&mut model, &STREAMS, 0, false);
    routes(&model, [false, true]);
    // A VM without streams, and one that there is not.
    switch(&mut model, &STREAMS, 1, true);
    switch(&mut model, &STREAMS, 99, true);
    routes(&model, [false, true]);
    switch(&mut model, &STREAMS, 0, true);
    shut(&mut model, UNITS);
    routes(&model, [false, false]);
    // What the micro-TLBs have cached of before goes with each change.
    let micro = |(offset, _): &&(usize, u32)| {
        let register = *offset % UNIT;
        (0x300..0x800).contains(&register)
            && register.is_multiple_of(16)
            && !(0x500..0x600).contains(&register)
    };
    assert!(
        model
            .writes
            .iter()
            .filter(micro)
            .all(|(_, value)| value & 3 == 3)
    );
}

/// The fault of a stopped VM's device is no event, and does not interrupt.
///
/// Requirement: G1-DMA-003.
#[test]
fn a_stopped_vms_micro_tlbs_are_quiet() {
    let mut model = Model::started();
    let context = |model: &Model, stream: usize| {
        let control = model.get(stream / 64 * UNIT + 0x300 + stream % 64 * 16);
        (control >> 4 & 0xf) as usize
    };
    let [nobodys, stopped] = [131, 130].map(|stream| context(&model, stream));
    assert_ne!(nobodys, stopped);
    for unit in 0..UNITS as usize {
        let interrupts = |context: usize| model.get(unit * UNIT + context * 0x40) & 4;
        assert_eq!([interrupts(nobodys), interrupts(stopped)], [4, 0]);
        assert_eq!(interrupts(FIRST_OWN as usize), 4);
    }
    model.registers.insert(stopped * 0x40 + IMSTR, 1);
    assert_eq!(fault::take(&mut model, 2), None);
}

/// Requirement: G1-DMA-003.
#[test]
fn a_fault_is_taken_once_and_names_its_context() {
    let mut model = Model::started();
    assert_eq!(fault::take(&mut model, 2), None);
    let cases: [(usize, u32, u8); 6] = [
        (1, 1, 0x10),
        (3, 2, 0x13),
        (4, 4, 0x0b),
        (4, 1 << 4, 0x20),
        (3, 0x17, 0x13),
        (4, 1 << 8 | 1, 0x10),
    ];
    for (context, status, number) in cases {
        model.registers.insert(context * 0x40 + IMSTR, status);
        let expected = Event {
            number,
            stream: context as u32,
            access: None,
            is_overflow: true,
        };
        assert_eq!(fault::take(&mut model, 2), Some(expected));
        assert_eq!(fault::take(&mut model, 2), None, "{context} is told again");
    }
    // A device without an owner faults all the time.
    model.registers.insert(0x40 + IMSTR, 1);
    model.registers.insert(4 * 0x40 + IMSTR, 1);
    let streams = [(); 2].map(|()| fault::take(&mut model, 2).map(|event| event.stream));
    assert_eq!(streams, [Some(4), Some(1)]);
    // Contexts that no VM has, and bits that tell of no fault.
    model.registers.insert(5 * 0x40 + IMSTR, 1);
    model.registers.insert(3 * 0x40 + IMSTR, 1 << 8);
    assert_eq!(fault::take(&mut model, 2), None);
}

/// The main unit forgets before the cache units do: they could fetch again what it still has.
///
/// Requirement: G1-DMA-002.
#[test]
fn a_context_is_forgotten_by_the_main_unit_first() {
    let mut model = Model::started();
    model.is_prompt = false;
    let mut flushes = Flushes::new();
    let own = FIRST_OWN as usize * 0x40;
    let ticket = flushes.begin(&mut model, UNITS, FIRST_OWN).unwrap();
    assert_eq!(model.flushing, HashSet::from([(0, own)]));
    assert!(!flushes.is_done(&mut model, UNITS, ticket));
    assert_eq!(model.flushing, HashSet::from([(0, own)]));
    model.finish(0);
    assert!(!flushes.is_done(&mut model, UNITS, ticket));
    assert_eq!(
        model.flushing,
        HashSet::from([(1, own), (2, own), (3, own)])
    );
    // Another waits for it, whoever asks.
    assert_eq!(flushes.begin(&mut model, UNITS, FIRST_OWN + 1), None);
    for unit in [2, 1] {
        model.finish(unit);
        assert!(!flushes.is_done(&mut model, UNITS, ticket));
    }
    model.finish(3);
    let second = flushes.begin(&mut model, UNITS, FIRST_OWN + 1).unwrap();
    assert!(
        flushes.is_done(&mut model, UNITS, ticket),
        "once done, always done"
    );
    assert!(!flushes.is_done(&mut model, UNITS, second));
    // What a context is does not change with it.
    assert_eq!(model.get(own) & !2, 1 << 29 | 1 << 2 | 1);
}

/// Requirement: G1-DMA-002.
#[test]
fn an_ipmmu_that_does_not_answer_is_stuck() {
    let mut model = Model {
        is_prompt: false,
        ..Model::default()
    };
    assert_eq!(seize(&mut model, UNITS, EMPTY), Err(Stuck));
}

/// Requirement: G1-DMA-008.
#[test]
fn an_ipmmu_that_cannot_walk_the_tables_is_unfit() {
    let mut model = Model::seized();
    assert_eq!(unfit(&model, 2, MAX_OWN as usize), None);
    assert_eq!(unfit(&model, 1, 1), None);
    let addresses = Some(Unfit::Addresses);
    assert_eq!(
        [0, 3, 4, 5].map(|size| unfit(&model, size, 1)),
        [addresses; 4]
    );
    let vms = MAX_OWN as usize + 1;
    assert_eq!(unfit(&model, 2, vms), Some(Unfit::Contexts));
    // The bit does not stay where the revision has no such format.
    model.registers.insert(0x504, 0x0100_0000);
    assert_eq!(unfit(&model, 2, 1), Some(Unfit::Stage2));
}

/// Requirement: G1-DMA-008.
#[test]
fn the_socs_revision_tells_whether_there_is_stage_2() {
    // H3 ES1.0, ES2.0 and ES3.0; M3-W ES1.0 and ES1.3, M3-W+; M3-N ES1.0.
    let with = [0x4f20, 0x5220, 0x5500, 0x5511, 0x8000_4f20, 0x4f21];
    let without = [0x4f00, 0x4f01, 0x4f10, 0x5200, 0x5210, 0x521f];
    assert!(with.into_iter().all(has_stage2));
    assert!(!without.into_iter().any(has_stage2));
    // E3, D3, an unknown one, and a register that is not there.
    assert!(
        ![0x5720, 0x5820, 0x0020, u32::MAX]
            .into_iter()
            .any(has_stage2)
    );
}
