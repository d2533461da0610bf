//! The numbers of the contract, beside the version that they are of.
//!
//! A change of a number is a change of the contract: it needs another [`PROTOCOL_VERSION`], a minor
//! one if a side of the version before can do without, and a row in that constant's table.

use core::mem::size_of;

use super::*;

#[test]
fn the_version_says_which_numbers_hold() {
    let doorbells = [
        doorbell_device(0),
        doorbell_device(1),
        DOORBELL_GEAR2,
        doorbell_arm(0),
        doorbell_arm(1),
    ];
    let words = [
        device_word::HOLD_ASKED,
        device_word::HOLD_SEEN,
        device_word::SIZES,
        device_word::FEATURES,
        device_word::RAM_START,
        device_word::RAM_END,
        device_word::WRITES,
        device_word::SET_UP,
        device_word::CONFIGURED,
        device_word::LOOKING,
        device_word::RESET_ASKED,
        device_word::RESET_SEEN,
    ];
    let set_up = [device_word::SET_UP_HERE, virtio::MAX_QUEUES as u64];
    let parts = [
        offset::HEADER,
        offset::MMIO,
        offset::TRACE,
        offset::CONTROL,
        offset::DEVICES,
        offset::CONSOLES,
        offset::OUTPUT,
        offset::INPUT,
    ];
    let sizes = [
        offset::DEVICE_SIZE,
        offset::CONSOLE_SIZE,
        offset::OUTPUT_SIZE,
        offset::INPUT_SIZE,
        offset::INPUT_LOW,
        REGION_SIZE,
        size_of::<Header>(),
        size_of::<MmioSlot>(),
        size_of::<Control>(),
        size_of::<ConsoleRing>(),
    ];
    let operations = [
        op::NONE,
        op::VM_INFO,
        op::VM_START,
        op::VM_STOP,
        op::VM_RESTART,
        op::VM_PAUSE,
        op::VM_RESUME,
        op::EXIT_STATS,
        op::VCPU_INFO,
        op::LOG_READ,
        op::VERSION,
        op::VM_NAME,
        op::VM_FAULT,
        op::SCHED_CPU,
        op::SCHED_VCPU,
        op::SCHED_MOVE,
        op::SCHED_PIN,
        op::SCHED_CLOSE,
        op::SCHED_SHARE,
        op::SCHED_SET,
        op::SCHED_POOL,
        op::SCHED_SET_POOL,
        op::VM_HEALTH,
        op::LAST_WORDS,
        op::LAST_REGISTERS,
        op::LAST_CONSOLE,
        op::VCPU_REGISTERS,
        op::VM_POWER_BUTTON,
        op::TRACE,
        op::TRACE_READ,
        op::TRACE_NOTE,
        op::VCPU_UNSEEN,
    ];
    let states = [slot::IDLE, slot::POSTED, slot::DONE, slot::ABORT];
    assert_eq!(
        (
            PROTOCOL_VERSION,
            doorbells,
            words,
            set_up,
            parts,
            sizes,
            states
        ),
        (
            0x0003_000a,
            [0, 8, 0x800, 0x900, 0x908],
            [462, 463, 464, 503, 504, 505, 506, 507, 508, 509, 510, 511],
            [2, 9],
            [
                0, 0x16_0000, 0x17_0000, 0x2000, 0x1_0000, 0x4_0000, 0x2000, 0x1000
            ],
            [
                0x1000, 0x1_2000, 0x1_0000, 0x1000, 0x800, 0x20_0000, 32, 32, 96, 16
            ],
            [0, 1, 2, 3],
        )
    );
    assert!(operations.into_iter().eq(0..32));
    assert_eq!([TRACE_RECORDS, TRACE_WORDS], [512, 2]);
    let events = [
        traced::WOKEN,
        traced::BLOCKED,
        traced::YIELDED,
        traced::CHOSEN,
        traced::IDLE,
    ];
    assert!(events.into_iter().eq(0..5));
    assert_eq!(LINE_REQUEST, 0);
    assert_eq!(
        [0, 7, 8, 31].map(line_of_channel),
        [(1, 0), (1, 7), (2, 0), (4, 7)]
    );
    assert_eq!([0, 14].map(doorbell_page), [1, 15]);
}
