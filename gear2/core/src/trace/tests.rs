//! Requirements: G1-TRC-001.

use alloc::vec;

use gear1_abi::call::{Status, number};
use gear1_abi::regs::Regs;

use super::*;
use crate::gear1::Conduit;
use crate::scheduler::{Null, Run};

/// Words of a ring of Gear1's with 256 records.
const WORDS: usize = HEADER_WORDS + 512;
const SIZE: u64 = 512 * 8;
const FIRST_VCPU: u64 = 0x1000;
const STRIDE: u64 = 0x40;

fn vcpu(number: usize) -> VcpuId {
    VcpuId::new(number).unwrap()
}

/// A ring into which Gear1 has written records of vCPU 1, one a tick, up to `count`.
fn written(count: u64) -> Gear1Ring {
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let header = [count * RECORD_SIZE, SIZE - 1, FIRST_VCPU, STRIDE];
    for (word, value) in words.iter().zip(header) {
        word.store(value, Relaxed);
    }
    for record in 0..count {
        let place = HEADER_WORDS + (record * RECORD_SIZE % SIZE) as usize / 8;
        words[place].store(record, Relaxed);
        words[place + 1].store(0x16 << 58 | (FIRST_VCPU + STRIDE), Relaxed);
    }
    Gear1Ring::new(Vec::leak(words))
}

fn times(read: &Read) -> Vec<u64> {
    read.records.iter().map(|[time, _]| *time).collect()
}

#[test]
fn the_device_model_gets_vcpus_by_their_numbers() {
    let trace = Trace::<crate::simulator::Simulated>::new(vec![written(3)]);
    let read = trace.read(0, 0, 512).unwrap();
    let call = 0x16 << 58 | 2;
    assert_eq!(read.records, [[0, call], [1, call], [2, call]]);
    assert_eq!((read.next, read.lost), (48, 0));
    assert_eq!(trace.sizes(), [SIZE, RECORDS as u64 * RECORD_SIZE]);
    // Behind the newest record there is none.
    let newest = trace.read(0, u64::MAX, 512).unwrap();
    assert_eq!((newest.records.len(), newest.next), (0, 48));
    assert!(
        [1, 7, 9, 16, u64::MAX]
            .map(|ring| trace.read(ring, 0, 1))
            .iter()
            .all(Option::is_none)
    );
}

#[test]
fn a_full_ring_tells_what_it_has_lost() {
    let ring = written(1000);
    let read = ring.read(0, 512);
    // 64 of the 256 places may be about to be written.
    assert!(times(&read).into_iter().eq(808..1000));
    assert_eq!(read.lost, 808 * RECORD_SIZE);
    let part = ring.read(900 * RECORD_SIZE, 10);
    assert!(times(&part).into_iter().eq(900..910));
    assert_eq!((part.next, part.lost), (910 * RECORD_SIZE, 0));
}

/// A source that is written while it is read.
struct Hasty {
    positions: core::cell::Cell<[u64; 2]>,
}

impl Source for Hasty {
    fn position(&self) -> u64 {
        let [now, later] = self.positions.get();
        self.positions.set([later, later]);
        now
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn at(&self, position: u64) -> Words {
        [position / RECORD_SIZE, 0]
    }
}

#[test]
fn what_is_overwritten_while_it_is_read_is_lost() {
    let ring = |later: u64| Hasty {
        positions: core::cell::Cell::new([256, later].map(|count| count * RECORD_SIZE)),
    };
    let read = ring(300).read(100 * RECORD_SIZE, 50);
    // 300 records were written at the end of the read: those before 108 may be torn.
    assert!(times(&read).into_iter().eq(108..150));
    assert_eq!((read.next, read.lost), (150 * RECORD_SIZE, 8 * RECORD_SIZE));
    let all = ring(1000).read(100 * RECORD_SIZE, 50);
    assert_eq!((all.records.len(), all.lost), (0, 50 * RECORD_SIZE));
}

#[test]
fn a_recorded_policy_does_what_the_policy_does() {
    let ring = Ring::new().unwrap();
    let one = vcpu(3);
    let mut policy: Box<dyn Policy> = Box::new(Recorded::new(Box::new(Null::default()), &ring));
    let share = Share::of(gear1_abi::id::VmId::FIRST);
    policy.add(one, &share, 1).unwrap();
    assert!(policy.add(vcpu(4), &share, 1).is_err());
    let is_idle = |choice| matches!(choice, Choice::Idle { .. });
    assert!(is_idle(policy.pick(2)));
    policy.wake(one, 3);
    assert!(matches!(policy.pick(4), Choice::Run(Run { vcpu, .. }) if vcpu == one));
    policy.give_way(one, 5);
    policy.block(one, 6);
    policy.remove(one, 7);
    let what = |event: u32, vcpu: u64| u64::from(event) << 32 | vcpu;
    let expected = [
        [2, what(traced::IDLE, 0)],
        [3, what(traced::WOKEN, 4)],
        [4, what(traced::CHOSEN, 4)],
        [5, what(traced::YIELDED, 4)],
        [6, what(traced::BLOCKED, 4)],
    ];
    assert_eq!(ring.read(0, 512).records, expected);
    let mut policy = policy.recorded().expect("it records");
    policy.pick(8);
    assert_eq!(ring.read(0, 512).records.len(), expected.len());
    assert!(policy.recorded().is_none());
}

/// A Gear1 whose counters depend on how often it was asked for one.
struct Exiting {
    questions: u64,
    exits: fn(u64) -> u64,
}

impl Conduit for Exiting {
    fn svc<const NUMBER: u16>(&mut self, [_, reason, ..]: Regs) -> Regs {
        let [count, time] = match NUMBER {
            number::EXIT_STATS => {
                self.questions += 1;
                [reason + (self.exits)(self.questions), 0]
            }
            _ => [0, self.questions],
        };
        [Status::Ok as u64, count, time, 0, 0, 0, 0, 0]
    }
}

/// The counters of a vCPU that runs are noted when they stand still, and those of one that exits all
/// the time never.
#[test]
fn counters_of_a_vcpu_that_runs_are_noted_between_two_exits() {
    const LOOK: u64 = ExitReason::COUNT as u64;
    let noted = |exits: fn(u64) -> u64| {
        let trace = Trace::<crate::simulator::Simulated>::new(vec![written(0)]);
        for _ in 0..2 {
            trace.set_order(!is_on(trace.order()));
            let questions = 0;
            trace.note_running(&mut Exiting { questions, exits }, vcpu(3), trace.order());
        }
        trace.notes(vcpu(3)).map(|notes| notes[1])
    };
    // Exits in the first, the second and the third look.
    let cases: [fn(u64) -> u64; 3] = [
        |questions| (questions > 1).into(),
        |questions| (questions > LOOK).into(),
        |questions| (questions > 3 * LOOK - 1).into(),
    ];
    for exits in cases {
        let note = noted(exits).unwrap();
        assert_eq!(note.time, 4 * LOOK);
        assert_eq!(note.exits, core::array::from_fn(|n| n as u64 + 1));
    }
    assert_eq!(noted(|_| 0).unwrap().time, LOOK);
    assert!(noted(|questions| questions).is_none());
}
