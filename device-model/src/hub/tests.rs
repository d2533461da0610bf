//! Tests of the handshake, the lock, and who is woken.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gear2_protocol::device_word::RESET_ASKED;
use gear2_protocol::{ARMING_VERSION, DOORBELL_GEAR2, MAGIC, PROTOCOL_VERSION, doorbell_arm, slot};
use vmm_sys_util::eventfd::EventFd;

use super::{
    BEAT, EFD_NONBLOCK, Health, Hub, Options, Watch, handshake, lock, open_patiently, pace,
    progress, serve_device, serve_serials,
};
use crate::address::Mac;
use crate::backend::rng::Rng;
use crate::board::{DeviceKind, DeviceNode};
use crate::mapping::{Doorbell, counter};
use crate::serial::Serials;
use crate::state::{DeviceState, Word};
use crate::testing::{Directory, Guest, line, page, region};
use crate::worker::{Away, Wiring};

#[test]
fn another_major_version_is_refused_and_another_minor_is_not() {
    let region = region();
    region.header.magic.store(MAGIC, Ordering::Relaxed);
    let version = &region.header.version;
    for minor in [0, 1, 7] {
        version.store((PROTOCOL_VERSION & !0xffff) + minor, Ordering::Relaxed);
        assert_eq!(handshake(region), Ok(()));
    }
    version.store(PROTOCOL_VERSION + 0x1_0000, Ordering::Relaxed);
    let error = handshake(region).unwrap_err();
    let [ours, theirs] =
        [PROTOCOL_VERSION, PROTOCOL_VERSION + 0x1_0000].map(|version| version >> 16);
    let minor = PROTOCOL_VERSION & 0xffff;
    let expected =
        format!("Gear2 speaks protocol version {theirs}.{minor}, this gdm {ours}.{minor}: ");
    assert!(error.contains(&expected), "{error}");
}

/// A Gear1 of version 2.0 has nothing at the address that arms a line.
#[test]
fn lines_are_armed_only_where_gear1_knows_of_it() {
    for (version, expected) in [(0x2_0000, 0), (ARMING_VERSION, 8), (PROTOCOL_VERSION, 8)] {
        let (region, doorbells) = (region(), page());
        region.header.version.store(version, Ordering::Relaxed);
        let doorbell = Doorbell {
            page: doorbells,
            offset: doorbell_arm(1),
        };
        pace(line(), region, doorbell, 3).arm();
        assert_eq!(doorbells.load(doorbell.offset), expected, "{version:#x}");
    }
}

#[test]
fn a_second_gdm_is_refused() {
    let directory = Directory::new("lock");
    let first = lock(directory.text()).unwrap();
    let error = lock(directory.text()).unwrap_err();
    assert!(error.contains("another gdm runs"), "{error}");
    drop(first);
    assert!(lock(directory.text()).is_ok());
}

#[test]
fn each_wish_of_gear2_wakes_whom_it_is_for() {
    let region = region();
    region.header.vcpu_count.store(3, Ordering::Relaxed);
    let doorbells = page();
    let event = || EventFd::new(EFD_NONBLOCK).unwrap();
    let hub = Hub {
        region,
        line: line(),
        answer: Doorbell {
            page: doorbells,
            offset: DOORBELL_GEAR2,
        },
        devices: BTreeMap::from([(0, event()), (1, event()), (2, event())]),
        serials: event(),
        watch: Watch::default(),
    };
    let woken = |hub: &Hub| -> Vec<bool> {
        hub.devices
            .values()
            .map(|kick| kick.read().is_ok())
            .collect()
    };
    hub.turn();
    assert_eq!(woken(&hub), [false; 3]);
    region.slots[1].device.store(1, Ordering::Relaxed);
    region.slots[1].set_state(slot::POSTED);
    region.devices[2][RESET_ASKED].store(1, Ordering::Relaxed);
    hub.turn();
    assert_eq!(woken(&hub), [false, true, true]);
    assert_eq!(doorbells.load(DOORBELL_GEAR2), 0);
    // A device that nobody serves must not hold its guest for ever.
    region.slots[2].device.store(31, Ordering::Relaxed);
    region.slots[2].set_state(slot::POSTED);
    hub.turn();
    assert_eq!(region.slots[2].state(), slot::ABORT);
    assert_eq!(doorbells.load(DOORBELL_GEAR2), 1);
}

/// A device's thread may wait for its disk for minutes: it is GDM's end that makes requests late.
#[test]
fn a_long_stall_is_no_absence() {
    let region = region();
    let hub = Hub {
        region,
        line: line(),
        answer: Doorbell {
            page: page(),
            offset: DOORBELL_GEAR2,
        },
        devices: BTreeMap::from([(3, EventFd::new(EFD_NONBLOCK).unwrap())]),
        serials: EventFd::new(EFD_NONBLOCK).unwrap(),
        watch: Watch::default(),
    };
    let state = DeviceState::new(&region.devices[3]);
    state.set(Word::LastSeen, counter() - 31_000_000_000);
    assert!(Away::now(region, state).seconds >= 31);
    hub.beat();
    assert_eq!(Away::now(region, state).seconds, 0);
    assert_eq!(region.header.gdm_beats.load(Ordering::Relaxed), 1);
}

#[test]
fn a_backend_is_opened_as_soon_as_it_can_be() {
    let tries = std::cell::Cell::new(0);
    let backend = open_patiently("test", || {
        tries.set(tries.get() + 1);
        match tries.get() {
            3 => Ok(Box::new(Rng)),
            _ => Err("is not there".into()),
        }
    });
    assert_eq!((tries.get(), backend.identity().device_id), (3, 4));
}

/// The shortest watchdog that `check` accepts without a warning leaves the next GDM time to begin.
#[test]
fn gdm_ends_itself_before_a_watchdog_does() {
    let silent = BEAT * (progress::STUCK_LOOKS - progress::LATE_LOOKS + 1);
    let least = Duration::from_millis(gearv_manifest::Vm::LEAST_WATCHDOG_MS.into());
    assert!(silent + Duration::from_secs(3) <= least);
}

/// A device whose set-up fails must not stay dead beside a GDM that lives: the next GDM tries
/// again.
#[test]
fn a_device_that_cannot_be_set_up_ends_gdm() {
    let node = DeviceNode {
        channel: 0,
        vm: "linux".into(),
        kind: DeviceKind::Rng,
        backend: String::new(),
        queues: 0,
        config_size: 0,
        command: Vec::new(),
        files: Vec::new(),
        tag: String::new(),
        read_only: false,
        mac: Mac::default(),
        memory: [0; 3],
        registers: [0; 2],
    };
    let wiring = Wiring {
        channel: usize::MAX,
        ..Guest::new(Box::new(Rng)).wiring()
    };
    let mut watch = Watch::default();
    let progress = watch.add("linux/rng0");
    let serve = move || serve_device(&Options::default(), &node, wiring, &progress);
    std::thread::spawn(serve).join().unwrap();
    assert_eq!(watch.look(), Health::Stuck("linux/rng0".into()));
}

/// The guests' serial consoles must not stay dead beside a GDM that lives.
#[test]
fn consoles_that_cannot_be_set_up_end_gdm() {
    let mut watch = Watch::default();
    let progress = watch.add("serial");
    let directory = Directory::new("consoles");
    let absent = format!("{}/absent", directory.text());
    let serve = move || {
        let kick = EventFd::new(EFD_NONBLOCK).unwrap();
        let doorbell = Doorbell {
            page: page(),
            offset: DOORBELL_GEAR2,
        };
        let names = ["linux".to_string()];
        let open = || Serials::open(region(), &names, &absent, kick, doorbell);
        serve_serials(open, false, &progress);
    };
    std::thread::spawn(serve).join().unwrap();
    assert_eq!(watch.look(), Health::Stuck("serial".into()));
}

/// Gear2 watches the heartbeat alone: it stops as soon as one thread does not get on.
#[test]
fn the_heart_beats_only_while_all_threads_get_on() {
    let region = region();
    let mut hub = Hub {
        region,
        line: line(),
        answer: Doorbell {
            page: page(),
            offset: DOORBELL_GEAR2,
        },
        devices: BTreeMap::from([(3, EventFd::new(EFD_NONBLOCK).unwrap())]),
        serials: EventFd::new(EFD_NONBLOCK).unwrap(),
        watch: Watch::default(),
    };
    let [good, bad] = ["linux/block0", "linux/net1"].map(|name| hub.watch.add(name));
    let beats = || region.header.gdm_beats.load(Ordering::Relaxed);
    // One thread serves and looks in turn with the hub; the other one hangs after its first step.
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (_end, ends) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        progress::begin(&bad);
        begun.send(()).unwrap();
        let _ = ends.recv();
    });
    has_begun.recv().unwrap();
    progress::begin(&good);
    assert_eq!(hub.live(), Health::Well);
    let before = beats();
    let mut last = Health::Well;
    for _ in 0..progress::STUCK_LOOKS {
        progress::step();
        last = hub.live();
    }
    assert_eq!(last, Health::Stuck("linux/net1".into()));
    let late = progress::LATE_LOOKS - 1;
    assert_eq!(beats() - before, late, "none once it is late");
    assert_eq!(
        DeviceState::new(&region.devices[3]).get(Word::LastSeen) > 0,
        late > 0
    );
}
