//! Tests of the transport: initialisation, refusals, random register writes.

use gear2_protocol::slot;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::{Identity, register};
use crate::backend::rng::Rng;
use crate::backend::{Backend, Progress, net};
use crate::testing::{DATA, Guest, RAM, RAM_SIZE};
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
        guest.region.slots[0]
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

proptest! {
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
