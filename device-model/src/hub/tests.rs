//! Tests of the handshake, the lock, and who is woken.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gear2_protocol::device_word::RESET_ASKED;
use gear2_protocol::{DOORBELL_GEAR2, MAGIC, PROTOCOL_VERSION, slot};
use vmm_sys_util::eventfd::EventFd;

use super::{
    BEAT, EFD_NONBLOCK, Health, Hub, Watch, handshake, lock, open_patiently, progress,
    serve_serials,
};
use crate::backend::Backend as _;
use crate::backend::rng::Rng;
use crate::mapping::Doorbell;
use crate::serial::Serials;
use crate::testing::{Directory, line, page, region};

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
        devices: BTreeMap::from([(0, (0, event())), (1, (0, event())), (2, (1, event()))]),
        serials: event(),
        watch: Watch::default(),
    };
    let woken = |hub: &Hub| -> Vec<bool> {
        hub.devices
            .values()
            .map(|(_, kick)| kick.read().is_ok())
            .collect()
    };
    hub.turn();
    assert_eq!(woken(&hub), [false; 3]);
    region.slots[0][1].device.store(1, Ordering::Relaxed);
    region.slots[0][1].set_state(slot::POSTED);
    region.devices[2][RESET_ASKED].store(1, Ordering::Relaxed);
    hub.turn();
    assert_eq!(woken(&hub), [false, true, true]);
    assert_eq!(doorbells.load(DOORBELL_GEAR2), 0);
    // A device that nobody serves must not hold its guest for ever. Nor is one guest served by
    // another's device, whatever the first one's process writes into the first one's slots.
    for device in [31, 2] {
        region.slots[0][2].device.store(device, Ordering::Relaxed);
        region.slots[0][2].set_state(slot::POSTED);
        region.devices[2][RESET_ASKED].store(0, Ordering::Relaxed);
        doorbells.store(DOORBELL_GEAR2, 0);
        hub.turn();
        assert_eq!(region.slots[0][2].state(), slot::ABORT);
        assert_eq!(doorbells.load(DOORBELL_GEAR2), 1);
        assert_eq!(woken(&hub), [false, true, false]);
    }
}

#[test]
fn a_backend_is_opened_as_soon_as_it_can_be() {
    let tries = std::cell::Cell::new(0);
    let backend = open_patiently("test", || {
        tries.set(tries.get() + 1);
        match tries.get() {
            3 => Ok(Rng),
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

/// A process that is late holds the heartbeat back, and GDM, which ends it, is not stuck with it.
#[test]
fn the_heart_beats_only_while_all_processes_get_on() {
    let mut watch = Watch::default();
    let ward = watch.add("guest linux");
    progress::begin(&ward);
    for (is_late, expected) in [
        (false, Health::Well),
        (true, Health::Late),
        (false, Health::Well),
    ] {
        ward.set_late(is_late);
        for _ in 0..2 * progress::STUCK_LOOKS {
            progress::step();
            assert_eq!(watch.look(), expected);
        }
    }
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
        devices: BTreeMap::new(),
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
}
