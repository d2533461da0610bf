//! Tests of the transport: initialisation, refusals, random register writes.

use gear2_protocol::{device_word, slot};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::{Identity, register};
use crate::backend::rng::Rng;
use crate::backend::{Absent, Backend, Progress, net};
use crate::state::{WORDS, Word};
use crate::testing::{CHANNEL, DATA, Guest, RAM, RAM_SIZE};
use crate::vring::{Broken, Vring};

const NEEDS_RESET: u32 = 0x40;

fn guest() -> Guest {
    Guest::new(Box::new(Rng))
}

#[test]
fn the_page_shows_the_device_without_an_access() {
    let guest = guest();
    assert_eq!(guest.read(register::MAGIC_VALUE), 0x7472_6976);
    assert_eq!(guest.read(register::VERSION), 2);
    assert_eq!(guest.read(register::DEVICE_ID), 4);
    assert_eq!(guest.read(register::QUEUE_NUM_MAX), 64);
    assert_eq!(guest.read(register::INTERRUPT_STATUS), 0);
    assert!(register::SHM.iter().all(|at| guest.read(*at) == u32::MAX));
}

#[test]
fn selectors_choose_what_the_page_shows() {
    let mut guest = guest();
    guest.write(register::DEVICE_FEATURES_SEL, 1);
    assert_eq!(guest.read(register::DEVICE_FEATURES), 1);
    guest.write(register::DEVICE_FEATURES_SEL, 0);
    assert_eq!(guest.read(register::DEVICE_FEATURES), 3 << 28);
    guest.write(register::DEVICE_FEATURES_SEL, 2);
    assert_eq!(guest.read(register::DEVICE_FEATURES), 0);
    guest.write(register::QUEUE_SEL, 1);
    assert_eq!(guest.read(register::QUEUE_NUM_MAX), 0);
}

#[test]
fn a_driver_gets_its_random_bytes_and_an_interrupt() {
    let mut guest = guest();
    guest.initialise(0, 1);
    assert_eq!(guest.status(), 0xf);
    guest.interrupted();
    guest.request(0, 3, &[(DATA, 32, true), (DATA + 0x1000, 32, true)]);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
    assert_eq!(guest.used(0, 0), (3, 64));
    assert_ne!(guest.get(DATA, 32), [0; 32]);
    assert_ne!(guest.get(DATA + 0x1000, 32), [0; 32]);
    assert!(guest.interrupted());
}

#[test]
fn a_guest_that_wants_no_interrupt_gets_none() {
    let mut guest = guest();
    guest.initialise(0, 1);
    guest.interrupted();
    guest.put(guest.rings[0].available(), &1_u16.to_le_bytes());
    guest.request(0, 0, &[(DATA, 32, true)]);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
    assert!(!guest.interrupted());
}

#[test]
fn with_event_index_the_guest_says_when() {
    let mut guest = guest();
    guest.initialise(1 << 29, 1);
    guest.interrupted();
    let ring = guest.rings[0];
    let used_event = ring.available() + 4 + 2 * u64::from(ring.size);
    guest.put(used_event, &1_u16.to_le_bytes());
    guest.request(0, 0, &[(DATA, 32, true)]);
    guest.work();
    assert!(!guest.interrupted());
    guest.request(0, 1, &[(DATA, 32, true)]);
    guest.work();
    assert!(guest.interrupted());
    // The device asks to be told of the third request.
    let available_event = ring.used() + 4 + 8 * u64::from(ring.size);
    assert_eq!(guest.get(available_event, 2), [2, 0]);
}

#[test]
fn features_not_offered_are_refused() {
    let mut guest = guest();
    guest.write(register::STATUS, 3);
    guest.write(register::DRIVER_FEATURES_SEL, 1);
    guest.write(register::DRIVER_FEATURES, 3);
    guest.write(register::STATUS, 0xb);
    assert_eq!(guest.status(), 3);
    // A legacy driver, without VERSION_1.
    guest.write(register::DRIVER_FEATURES, 0);
    guest.write(register::STATUS, 0xb);
    assert_eq!(guest.status(), 3);
}

/// Offers what a network card does, without one.
struct Dependent;

impl Backend for Dependent {
    fn identity(&self) -> Identity {
        Identity {
            device_id: 42,
            features: 0x1fff,
            dependencies: net::DEPENDENCIES,
            queue_sizes: vec![16],
            config: Vec::new(),
        }
    }

    fn process(&mut self, _queue: usize, _ring: &mut Vring) -> Result<Progress, Broken> {
        Ok(Progress::Waits)
    }
}

/// Virtio 1.2, 5.1.3.1, and 3.1.1: a device may refuse what depends on something that was not
/// accepted.
#[test]
fn features_without_those_that_they_depend_on_are_refused() {
    const CSUM: u64 = 1 << 0;
    const GUEST_CSUM: u64 = 1 << 1;
    const GUEST_TSO: [u64; 2] = [1 << 7, 1 << 8];
    const HOST_TSO: [u64; 2] = [1 << 11, 1 << 12];
    let pairs = GUEST_TSO.map(|tso| (tso, GUEST_CSUM, CSUM));
    let pairs = pairs
        .into_iter()
        .chain(HOST_TSO.map(|tso| (tso, CSUM, GUEST_CSUM)));
    for (feature, needed, other) in pairs {
        for (accepted, fits) in [
            (feature, false),
            (feature | other, false),
            (feature | needed, true),
            (needed, true),
        ] {
            let mut guest = Guest::new(Box::new(Dependent));
            guest.write(register::STATUS, 3);
            guest.write(register::DRIVER_FEATURES, accepted as u32);
            guest.write(register::DRIVER_FEATURES_SEL, 1);
            guest.write(register::DRIVER_FEATURES, 1);
            guest.write(register::STATUS, 0xb);
            let status = if fits { 0xb } else { 3 };
            assert_eq!(guest.status(), status, "{accepted:#x}");
        }
    }
}

/// Before FEATURES_OK nobody knows what the rings look like (virtio 1.2, 3.1.1).
#[test]
fn a_queue_that_is_ready_before_the_features_breaks_the_device() {
    for status in [0, 1, 3] {
        let mut guest = guest();
        guest.write(register::STATUS, status);
        guest.set_up(0);
        assert_eq!(guest.read(register::QUEUE_READY), 0, "status {status}");
        assert_eq!(guest.status() & NEEDS_RESET, NEEDS_RESET, "status {status}");
    }
}

#[test]
fn driver_ok_without_features_ok_needs_a_reset() {
    let mut guest = guest();
    guest.write(register::STATUS, 7);
    assert_eq!(guest.status() & NEEDS_RESET, NEEDS_RESET);
    guest.write(register::STATUS, 0);
    assert_eq!(guest.status(), 0);
}

#[test]
fn status_bits_do_not_go_away_but_by_reset() {
    let mut guest = guest();
    guest.initialise(0, 1);
    guest.write(register::STATUS, 3);
    assert_eq!(guest.status(), 0xf);
    guest.write(register::STATUS, 0);
    assert_eq!((guest.status(), guest.read(register::QUEUE_READY)), (0, 0));
}

#[test]
fn queues_that_cannot_be_break_the_device() {
    let sizes = [0, 3, 128, 65535, 0x1_0001];
    for size in sizes {
        refused(|guest| guest.write(register::QUEUE_NUM, size));
    }
    let end = (RAM + RAM_SIZE as u64) as u32;
    let addresses = [
        (register::QUEUE_DESC, end),
        (register::QUEUE_DESC, RAM as u32 + 8),
        (register::QUEUE_DESC_HIGH, u32::MAX),
        (register::QUEUE_DRIVER, end - 4),
        (register::QUEUE_DRIVER_HIGH, 1),
        (register::QUEUE_DEVICE, end - 4),
        (register::QUEUE_DEVICE, 0),
    ];
    for (register, value) in addresses {
        refused(|guest| guest.write(register, value));
    }
}

fn refused(spoil: impl Fn(&mut Guest)) {
    let mut guest = guest();
    guest.initialise(0, 0);
    guest.write(register::STATUS, 0);
    guest.write(register::STATUS, 3);
    guest.write(register::DRIVER_FEATURES_SEL, 1);
    guest.write(register::DRIVER_FEATURES, 1);
    guest.write(register::STATUS, 0xb);
    guest.set_up(0);
    assert_eq!(guest.read(register::QUEUE_READY), 1);
    guest.write(register::QUEUE_READY, 0);
    spoil(&mut guest);
    guest.write(register::QUEUE_READY, 1);
    assert_eq!(guest.read(register::QUEUE_READY), 0);
    assert_eq!(guest.status() & NEEDS_RESET, NEEDS_RESET);
}

#[test]
fn a_queue_in_use_cannot_be_moved() {
    let mut guest = guest();
    guest.initialise(0, 1);
    guest.write(register::QUEUE_NUM, 65535);
    guest.write(register::QUEUE_DEVICE, 0);
    guest.request(0, 0, &[(DATA, 16, true)]);
    guest.work();
    assert_eq!((guest.used_index(0), guest.status()), (1, 0xf));
}

#[test]
fn a_config_change_shows_until_it_is_acknowledged() {
    let mut guest = guest();
    guest.initialise(0, 1);
    // Too far ahead.
    guest.rings[0].added = 100;
    guest.offer(0, 0);
    guest.interrupted();
    guest.work();
    assert_eq!(guest.status() & NEEDS_RESET, NEEDS_RESET);
    assert_eq!(guest.read(register::INTERRUPT_STATUS), 2);
    assert!(guest.interrupted());
    guest.write(register::INTERRUPT_ACK, 2);
    assert_eq!(guest.read(register::INTERRUPT_STATUS), 0);
}

/// A driver that finds a bit set takes it for an interrupt of what it has set up itself. A reset
/// clears all of them (virtio 1.2, 4.2.2.1).
#[test]
fn used_buffers_show_from_the_first_one_until_a_reset() {
    let mut guest = guest();
    for _ in 0..2 {
        guest.initialise(0, 1);
        assert_eq!(guest.read(register::INTERRUPT_STATUS), 0);
        guest.request(0, 0, &[(DATA, 8, true)]);
        guest.work();
        assert_eq!(guest.read(register::INTERRUPT_STATUS), 1);
        // Another GDM goes on, as does what the driver sees.
        guest.kill_gdm();
        guest.start_gdm(Box::new(Rng));
        assert_eq!(guest.read(register::INTERRUPT_STATUS), 1);
        guest.write(register::STATUS, 0);
        assert_eq!(guest.read(register::INTERRUPT_STATUS), 0);
        guest.put(guest.rings[0].available(), &[0; 4]);
        guest.put(guest.rings[0].used(), &[0; 4]);
        guest.rings[0].added = 0;
    }
}

#[test]
fn accesses_that_no_register_takes_are_aborted() {
    let mut guest = guest();
    assert_eq!(guest.access(0x200, 6, 0), slot::ABORT);
    assert_eq!(guest.access(register::STATUS, 4, 0), slot::ABORT);
    assert_eq!(guest.access(register::STATUS + 2, 6, 0), slot::ABORT);
    assert_eq!(guest.access(register::STATUS, 7, 0), slot::ABORT);
    // Read-only registers and configuration ignore writes; reads are answered from the page.
    assert_eq!(guest.access(register::MAGIC_VALUE, 6, 0), slot::DONE);
    assert_eq!(guest.access(register::CONFIG, 4, 0), slot::DONE);
    assert_eq!(guest.access(register::MAGIC_VALUE + 1, 0, 0), slot::DONE);
    assert_eq!(
        guest.region.slots[0][0]
            .value
            .load(std::sync::atomic::Ordering::Relaxed),
        u64::from(b'i')
    );
}

fn writes() -> impl Strategy<Value = (usize, u32, u64)> {
    let register = prop_oneof![
        8 => select(vec![
            register::STATUS, register::QUEUE_READY, register::QUEUE_SEL, register::QUEUE_NUM,
            register::QUEUE_DESC, register::QUEUE_DRIVER, register::QUEUE_DEVICE,
            register::DRIVER_FEATURES, register::DRIVER_FEATURES_SEL, register::QUEUE_NOTIFY,
        ]),
        1 => 0..0x400_usize,
        1 => any::<usize>(),
    ];
    let value = prop_oneof![
        4 => select(vec![0, 1, 3, 0xb, 0xf, 16, 0x80, RAM, RAM + 0x4000, RAM + 0x8000]),
        1 => any::<u64>(),
    ];
    let access = prop_oneof![9 => select(vec![6_u32]), 1 => any::<u32>()];
    (register, access, value)
}

/// A driver's set-up needs GDM for what it has to judge: the features and DRIVER_OK, and the reset
/// of a device that is in use.
#[test]
fn a_set_up_comes_to_gdm_three_times_at_most() {
    let mut guest = guest();
    for life in 0..3 {
        let before = guest.forwarded;
        guest.initialise(0, 1);
        assert_eq!(guest.forwarded - before, if life == 0 { 2 } else { 3 });
        guest.request(0, 0, &[(DATA, 8, true)]);
        guest.work();
        assert_eq!(guest.used_index(0), 1);
        guest.put(guest.rings[0].available(), &[0; 4]);
        guest.put(guest.rings[0].used(), &[0; 4]);
        guest.rings[0].added = 0;
    }
    let state = guest.state();
    let expected = (8, guest.forwarded);
    assert_eq!((state.get(Word::Registers), guest.forwarded), expected);
    assert_eq!(state.get(Word::SetUpWrites), 3 * 18 - 8);
}

/// Configuration that a driver has written is the backend's to forget.
#[test]
fn a_device_whose_configuration_was_written_is_reset_by_gdm() {
    let mut guest = guest();
    for expected in [2, 4] {
        assert_eq!(guest.access(register::CONFIG, 4, 0), slot::DONE);
        for _ in 0..2 {
            guest.write(register::STATUS, 0);
        }
        assert_eq!(guest.forwarded, expected, "the second reset is Gear2's");
    }
}

/// A driver goes on with a device whose GDM is away, and the next GDM serves what it has set up.
#[test]
fn a_set_up_goes_on_without_gdm() {
    let mut guest = guest();
    guest.initialise(0, 0);
    guest.write(register::STATUS, 0);
    for (register, value) in &SET_UP[..8] {
        guest.write(*register, *value);
    }
    guest.kill_gdm();
    let forwarded = guest.forwarded;
    for (register, value) in &SET_UP[8..15] {
        guest.write(*register, *value);
    }
    assert_eq!(guest.read(register::QUEUE_READY), 1);
    assert_eq!(guest.read(register::DEVICE_FEATURES), 1);
    guest.start_gdm(Box::new(Rng));
    assert_eq!(guest.read(register::QUEUE_READY), 1);
    assert_eq!(guest.read(register::DEVICE_FEATURES), 1);
    assert_eq!((guest.status(), guest.forwarded), (0xb, forwarded));
    guest.write(register::STATUS, 0xf);
    assert_eq!(guest.status(), 0xf);
    guest.request(0, 0, &[(DATA, 8, true)]);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
}

/// A stopped VM's device is reset before anything that the VM's next life writes.
#[test]
fn no_write_is_done_before_a_reset_that_waits() {
    let mut guest = guest();
    guest.initialise(0, 1);
    guest.region.devices[CHANNEL][device_word::RESET_ASKED]
        .store(1, std::sync::atomic::Ordering::Relaxed);
    let forwarded = guest.forwarded;
    guest.write(register::QUEUE_SEL, 1);
    assert_eq!(guest.forwarded, forwarded + 1);
    assert_eq!(
        (guest.status(), guest.read(register::QUEUE_NUM_MAX)),
        (0, 0)
    );
    guest.write(register::QUEUE_SEL, 0);
    assert_eq!(guest.forwarded, forwarded + 1);
}

/// A device that nobody serves, and one of another type, is not Gear2's to set up.
#[test]
fn gear2_does_no_write_of_a_device_that_is_not_there() {
    let mut guest = Guest::new(Box::new(Absent));
    guest.write(register::QUEUE_SEL, 1);
    assert_eq!(guest.forwarded, 1);
    guest.kill_gdm();
    guest.start_gdm(Box::new(Rng));
    guest.write(register::QUEUE_SEL, 1);
    assert_eq!(guest.forwarded, 1);
    guest.kill_gdm();
    guest.start_gdm(Box::new(Absent));
    guest.write(register::QUEUE_SEL, 1);
    assert_eq!((guest.forwarded, guest.read(register::DEVICE_ID)), (2, 0));
}

/// Registers of a driver's set-up, with values that mean something and others.
fn set_up_writes() -> impl Strategy<Value = (usize, u32)> {
    let register = select(vec![
        register::STATUS,
        register::STATUS,
        register::DEVICE_FEATURES_SEL,
        register::DRIVER_FEATURES_SEL,
        register::DRIVER_FEATURES,
        register::QUEUE_SEL,
        register::QUEUE_NUM,
        register::QUEUE_DESC,
        register::QUEUE_DESC_HIGH,
        register::QUEUE_DRIVER,
        register::QUEUE_DRIVER_HIGH,
        register::QUEUE_DEVICE,
        register::QUEUE_DEVICE_HIGH,
        register::QUEUE_READY,
        register::QUEUE_READY,
        register::INTERRUPT_ACK,
        register::MAGIC_VALUE,
    ]);
    let ram = RAM as u32;
    let end = (RAM + RAM_SIZE as u64) as u32;
    let values = vec![
        0,
        1,
        1,
        2,
        3,
        4,
        7,
        8,
        0xb,
        0xf,
        16,
        64,
        0x40,
        0x80,
        1 << 28,
        3 << 28,
        ram,
        ram + 8,
        ram + 0x4000,
        ram + 0x8000,
        end - 16,
        end,
        u32::MAX,
    ];
    let value = prop_oneof![9 => select(values), 1 => any::<u32>()];
    (register, value)
}

/// A step of the comparison: a write, a correct set-up up to some step, or another GDM.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u32),
    SetUp(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = set_up_writes().prop_map(|(register, value)| Step::Write(register, value));
    let step = prop_oneof![
        16 => write,
        1 => (0..17_usize).prop_map(Step::SetUp),
        1 => proptest::strategy::Just(Step::Restart),
    ];
    vec(step, 1..80)
}

/// Writes of a correct set-up with one queue, in order.
const SET_UP: [(usize, u32); 16] = [
    (register::STATUS, 0),
    (register::STATUS, 1),
    (register::STATUS, 3),
    (register::DRIVER_FEATURES_SEL, 1),
    (register::DRIVER_FEATURES, 1),
    (register::DRIVER_FEATURES_SEL, 0),
    (register::DRIVER_FEATURES, 0),
    (register::STATUS, 0xb),
    (register::QUEUE_SEL, 0),
    (register::QUEUE_NUM, 16),
    (register::QUEUE_DESC, RAM as u32),
    (register::QUEUE_DRIVER, RAM as u32 + 0x4000),
    (register::QUEUE_DEVICE, RAM as u32 + 0x8000),
    (register::QUEUE_READY, 1),
    (register::DEVICE_FEATURES_SEL, 1),
    (register::STATUS, 0xf),
];

fn do_step(guest: &mut Guest, step: &Step) {
    match step {
        Step::Write(register, value) => guest.write(*register, *value),
        Step::SetUp(count) => {
            for (register, value) in SET_UP.iter().take(*count) {
                guest.write(*register, *value);
            }
        }
        Step::Restart => {
            guest.kill_gdm();
            guest.start_gdm(Box::new(Rng));
        }
    }
}

/// All that a driver reads, and what a restarted GDM goes on from.
fn seen(guest: &Guest) -> (Vec<u32>, Vec<u64>) {
    let page = (0..register::END).step_by(4).map(|at| guest.read(at));
    let words = guest.region.devices[CHANNEL][2..WORDS]
        .iter()
        .map(|word| word.load(std::sync::atomic::Ordering::Relaxed));
    let uncounted = |index: &usize| {
        let counts = [Word::Registers, Word::Interrupts, Word::Messages];
        let of_state = counts.iter().any(|word| *word as usize == *index);
        !of_state && *index != device_word::WRITES
    };
    let words = (2..).zip(words).filter(|(index, _)| uncounted(index));
    (page.collect(), words.map(|(_, word)| word).collect())
}

proptest! {
    /// A driver cannot tell who does its writes, whatever it writes, also when GDM is restarted in
    /// between.
    #[test]
    fn gear2_and_gdm_do_the_same_with_a_write(steps in steps()) {
        let (mut one, mut other) = (guest(), guest());
        other.gear2_writes = false;
        for (number, step) in steps.iter().enumerate() {
            do_step(&mut one, step);
            do_step(&mut other, step);
            let (seen, expected) = (seen(&one), seen(&other));
            assert_eq!(seen, expected, "step {number}: {step:x?}");
        }
        assert!(one.forwarded <= other.forwarded);
    }

    /// No sequence of accesses and ring contents is more than one guest's own trouble.
    #[test]
    fn no_sequence_of_accesses_panics(
        writes in vec(writes(), 1..60),
        noise in vec(any::<u8>(), 0x100),
    ) {
        let mut guest = guest();
        guest.put(RAM, &noise);
        guest.put(RAM + 0x4000, &noise);
        for (register, access, value) in writes {
            let state = guest.access(register, access, value);
            assert!(state == slot::DONE || state == slot::ABORT);
        }
        guest.initialise(0, 1);
    }
}
