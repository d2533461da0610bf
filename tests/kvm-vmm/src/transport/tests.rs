use virtio_queue::QueueT as _;
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::{DRIVER_OK, Event, NEEDS_RESET, Transport, register};

/// Guest-physical address of the memory, in which the queue lies.
const RAM: u64 = 0x1_4000_0000;

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(RAM), 0x1_0000)]).unwrap()
}

fn disk() -> Transport {
    Transport::new(2, 128, 1 << 9, vec![1, 2, 3, 4, 5, 6])
}

fn load(transport: &Transport, offset: u32) -> u32 {
    let mut word = [0xff; 4];
    transport.read(offset.into(), &mut word);
    u32::from_le_bytes(word)
}

/// Stores words; returns what the last one has done.
fn store(transport: &mut Transport, words: &[(u32, u32)]) -> Option<Event> {
    let memory = memory();
    let stored = words
        .iter()
        .map(|&(offset, value)| transport.write(offset.into(), value, &memory));
    stored.last().flatten()
}

/// What a driver says of a queue of so many entries in its memory.
fn queue(size: u32) -> [(u32, u32); 8] {
    let upper = (RAM >> 32) as u32;
    [
        (register::QUEUE_NUM, size),
        (register::QUEUE_DESC_LOW, RAM as u32),
        (register::QUEUE_DESC_HIGH, upper),
        (register::QUEUE_DRIVER_LOW, RAM as u32 + 0x1000),
        (register::QUEUE_DRIVER_HIGH, upper),
        (register::QUEUE_DEVICE_LOW, RAM as u32 + 0x2000),
        (register::QUEUE_DEVICE_HIGH, upper),
        (register::QUEUE_READY, 1),
    ]
}

#[test]
fn a_driver_recognises_the_device() {
    let disk = disk();
    assert_eq!(load(&disk, register::MAGIC), 0x7472_6976);
    assert_eq!(load(&disk, register::VERSION), 2);
    assert_eq!(load(&disk, register::DEVICE_ID), 2);
    assert_eq!(load(&disk, register::QUEUE_NUM_MAX), 128);
}

#[test]
fn there_is_one_queue() {
    let mut disk = disk();
    store(&mut disk, &[(register::QUEUE_SEL, 1)]);
    assert_eq!(load(&disk, register::QUEUE_NUM_MAX), 0);
    store(&mut disk, &queue(8));
    store(&mut disk, &[(register::QUEUE_SEL, 0)]);
    assert_eq!(load(&disk, register::QUEUE_READY), 0);
}

#[test]
fn features_are_offered_in_halves() {
    let mut disk = disk();
    let lower = load(&disk, register::DEVICE_FEATURES);
    assert_eq!(lower, 1 << 9 | 1 << 28 | 1 << 29);
    store(&mut disk, &[(register::DEVICE_FEATURES_SEL, 1)]);
    assert_eq!(load(&disk, register::DEVICE_FEATURES), 1);
    store(&mut disk, &[(register::DEVICE_FEATURES_SEL, 7)]);
    assert_eq!(load(&disk, register::DEVICE_FEATURES), 0);
}

#[test]
fn the_configuration_is_read_in_any_part() {
    let disk = disk();
    let mut byte = [0];
    disk.read(u64::from(register::CONFIG) + 4, &mut byte);
    assert_eq!(byte, [5]);
    assert_eq!(load(&disk, register::CONFIG + 4), 0x0605);
    assert_eq!(load(&disk, register::CONFIG + 64), 0);
}

#[test]
fn a_ready_driver_starts_the_device_with_its_queue() {
    for (accepted, event_idx) in [(0, false), (u32::MAX, true)] {
        let mut disk = disk();
        store(&mut disk, &[(register::DRIVER_FEATURES, accepted)]);
        store(&mut disk, &queue(64));
        let started = store(&mut disk, &[(register::STATUS, DRIVER_OK)]);
        let Some(Event::Started(queues)) = started else {
            panic!("{started:?}");
        };
        let [queue] = &queues[..] else {
            panic!("{queues:?}");
        };
        assert_eq!((queue.size(), queue.desc_table()), (64, RAM));
        assert_eq!(queue.avail_ring(), RAM + 0x1000);
        assert_eq!(queue.used_ring(), RAM + 0x2000);
        assert_eq!(queue.event_idx_enabled(), event_idx);
        // Ready already: the device goes on.
        assert!(store(&mut disk, &[(register::STATUS, DRIVER_OK | 1)]).is_none());
    }
}

#[test]
fn a_queue_that_cannot_be_one_needs_a_reset() {
    let wrong = [
        (register::QUEUE_NUM, 256),
        (register::QUEUE_NUM, 3),
        (register::QUEUE_DESC_LOW, RAM as u32 + 8),
        (register::QUEUE_DEVICE_HIGH, 0),
        (register::QUEUE_READY, 0),
    ];
    for word in wrong {
        let mut disk = disk();
        store(&mut disk, &queue(64));
        let started = store(&mut disk, &[word, (register::STATUS, DRIVER_OK)]);
        assert!(started.is_none(), "{word:?}");
        assert_eq!(load(&disk, register::STATUS), DRIVER_OK | NEEDS_RESET);
    }
}

#[test]
fn a_reset_forgets_the_driver() {
    let mut disk = disk();
    store(&mut disk, &queue(64));
    store(&mut disk, &[(register::STATUS, DRIVER_OK)]);
    disk.interrupt_status().set();
    let reset = store(&mut disk, &[(register::STATUS, 0)]);
    assert!(matches!(reset, Some(Event::Reset)));
    for offset in [
        register::STATUS,
        register::QUEUE_READY,
        register::INTERRUPT_STATUS,
    ] {
        assert_eq!(load(&disk, offset), 0);
    }
}

#[test]
fn an_interrupt_stays_until_it_is_acknowledged() {
    let mut disk = disk();
    disk.interrupt_status().set();
    assert_eq!(load(&disk, register::INTERRUPT_STATUS), 1);
    store(&mut disk, &[(register::INTERRUPT_ACK, 2)]);
    assert_eq!(load(&disk, register::INTERRUPT_STATUS), 1);
    store(&mut disk, &[(register::INTERRUPT_ACK, 1)]);
    assert_eq!(load(&disk, register::INTERRUPT_STATUS), 0);
}

#[test]
fn a_card_has_queues_whose_interrupts_are_the_kernels() {
    let mut card = Transport::new(1, 256, 0, Vec::new()).with_kernel_queues(2);
    assert_eq!(load(&card, register::INTERRUPT_STATUS), 1);
    store(&mut card, &[(register::INTERRUPT_ACK, 1)]);
    assert_eq!(load(&card, register::INTERRUPT_STATUS), 1);
    store(&mut card, &queue(64));
    // The second queue is none yet.
    let half = store(&mut card, &[(register::STATUS, DRIVER_OK)]);
    assert!(half.is_none(), "{half:?}");
    store(&mut card, &[(register::STATUS, 0)]);
    for (number, size) in [(0, 64), (1, 128)] {
        store(&mut card, &[(register::QUEUE_SEL, number)]);
        store(&mut card, &queue(size));
    }
    let started = store(&mut card, &[(register::STATUS, DRIVER_OK)]);
    let Some(Event::Started(queues)) = started else {
        panic!("{started:?}");
    };
    let sizes: Vec<u16> = queues.iter().map(|queue| queue.size()).collect();
    assert_eq!(sizes, [64, 128]);
    store(&mut card, &[(register::QUEUE_SEL, 2)]);
    assert_eq!(load(&card, register::QUEUE_NUM_MAX), 0);
}
