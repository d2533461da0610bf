//! Back ends that break the rules: each costs its device alone, and is named with what it did.

use std::time::{Duration, Instant};

use gear2_protocol::slot;

use super::fake::{self, Act, message, news, serve};
use super::{LONG, VhostUser, arrivals, bounds, node, until};
use crate::backend::{Absent, Backend};
use crate::in_flight::InFlight;
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest};
use crate::transport::register;

/// Longest answer of a back end that does answer.
const SHORT: Duration = Duration::from_millis(300);

/// A back end, and what is said of it.
type Case = (fn(u32) -> Act, &'static str);

/// Opens a back end that acts so, for a device with this many queues; returns the error.
fn refusal(queues: usize, act: fn(u32) -> Act) -> String {
    let directory = Directory::new("fault");
    let mut node = node(&serve(&directory, act));
    node.queues = queues;
    match VhostUser::open_within(&node, directory.text(), bounds(SHORT)) {
        Ok(_) => panic!("it is accepted"),
        Err(error) => error,
    }
}

#[test]
fn what_is_no_backend_is_named() {
    let directory = Directory::new("none");
    let open = |path: &str| {
        VhostUser::connect(&node(path), directory.text())
            .err()
            .unwrap()
    };
    let file = directory.file("file", b"");
    assert_eq!(open(&file), format!("{file}: is no socket"));
    let nothing = format!("{}/nothing", directory.text());
    let error = open(&nothing);
    assert!(
        error.starts_with(&format!("{nothing}: no backend: No such file")),
        "{error}"
    );
}

#[test]
fn a_backend_that_negotiates_wrongly_is_refused() {
    let cases: [Case; 9] = [
        (
            |request| match request {
                fake::GET_FEATURES => Act::Body((1_u64 << 32).to_le_bytes().to_vec()),
                _ => Act::Well,
            },
            "does not offer VHOST_USER_F_PROTOCOL_FEATURES",
        ),
        (
            |request| match request {
                fake::GET_FEATURES => Act::Body((1_u64 << 30).to_le_bytes().to_vec()),
                _ => Act::Well,
            },
            "does not offer VIRTIO_F_VERSION_1",
        ),
        (
            |request| match request {
                fake::GET_FEATURES => Act::Body(vec![0; 4]),
                _ => Act::Well,
            },
            "GET_FEATURES: ",
        ),
        (
            |request| match request {
                fake::GET_FEATURES => Act::Bytes(message(fake::GET_CONFIG, &[0; 8])),
                _ => Act::Well,
            },
            "GET_FEATURES: ",
        ),
        (
            |request| match request {
                fake::GET_FEATURES => Act::Close,
                _ => Act::Well,
            },
            "GET_FEATURES: ",
        ),
        (
            |request| match request {
                fake::GET_QUEUE_NUM => Act::Body(u64::MAX.to_le_bytes().to_vec()),
                _ => Act::Well,
            },
            "GET_QUEUE_NUM: ",
        ),
        (
            |request| match request {
                fake::GET_QUEUE_NUM => Act::Body(1_u64.to_le_bytes().to_vec()),
                _ => Act::Well,
            },
            "the backend has 1 queues and the manifest says 2",
        ),
        (
            |request| match request {
                fake::GET_CONFIG => Act::Body(vec![0; 12 + 40]),
                _ => Act::Well,
            },
            "GET_CONFIG: ",
        ),
        (
            |request| match request {
                fake::GET_PROTOCOL_FEATURES => Act::Body(0_u64.to_le_bytes().to_vec()),
                _ => Act::Well,
            },
            "does not offer VHOST_USER_PROTOCOL_F_CONFIG, and the manifest's config-size is 60",
        ),
    ];
    for (act, expected) in cases {
        let error = refusal(2, act);
        assert!(error.contains(expected), "{error:?}, not {expected:?}");
    }
}

/// An answer that does not come, or only in part, ends after a time. The thread that waits is not
/// hung.
#[test]
fn a_backend_that_never_answers_is_given_up() {
    let silent: fn(u32) -> Act = |request| match request {
        fake::GET_QUEUE_NUM => Act::Nothing,
        _ => Act::Well,
    };
    let in_part: fn(u32) -> Act = |request| match request {
        fake::GET_QUEUE_NUM => Act::Bytes(vec![17, 0, 0]),
        _ => Act::Well,
    };
    for act in [silent, in_part] {
        assert!(refusal(1, act).contains("GET_QUEUE_NUM: no answer for 300ms"));
    }
}

/// A guest whose driver is ready, with a back end that acts so.
struct Bad {
    guest: Guest,
    directory: Directory,
}

impl Bad {
    fn new(act: fn(u32) -> Act) -> Self {
        let directory = Directory::new("bad");
        let node = node(&serve(&directory, act));
        let mut guest = Guest::new(Box::new(Absent));
        guest.kill_gdm();
        guest.start_gdm_of(arrivals(node, bounds(SHORT)));
        guest.initialise(0, 1);
        Self { guest, directory }
    }

    fn offer(&mut self) {
        self.guest
            .request(0, 0, &[(DATA, 16, false), (DATA + 16, 1, true)]);
    }

    /// Waits until the device's backend is given up.
    fn is_lost(&mut self) {
        until(&mut self.guest, "the end of the backend", |guest| {
            guest.state().get(Word::Messages) > 0
        });
        assert_eq!(self.guest.used_index(0), 0, "the guest sees none of it");
        assert_eq!(self.guest.state().get(Word::Breaks), 0);
        assert_eq!(self.guest.status(), 0xf);
    }
}

/// Expects that each of these faults costs the guest the backend.
fn all_are_lost(cases: &[fn(u32) -> Act]) {
    for act in cases {
        let mut bad = Bad::new(*act);
        bad.offer();
        bad.is_lost();
    }
}

#[test]
fn a_backend_that_completes_what_it_has_not_is_given_up() {
    let cases: [fn(u32) -> Act; 4] = [
        // More than there is.
        |request| match request {
            fake::SET_VRING_ENABLE => Act::Use(vec![[0, 1]], 9),
            _ => Act::Well,
        },
        // Another one than there is.
        |request| match request {
            fake::SET_VRING_ENABLE => Act::Use(vec![[3, 1]], 1),
            _ => Act::Well,
        },
        // None that can be.
        |request| match request {
            fake::SET_VRING_ENABLE => Act::Use(vec![[0x1_0000, 1]], 1),
            _ => Act::Well,
        },
        // An index that goes back.
        |request| match request {
            fake::SET_VRING_ENABLE => Act::Use(Vec::new(), u16::MAX),
            _ => Act::Well,
        },
    ];
    all_are_lost(&cases);
}

/// A request that the backend completes twice was completed once for the guest.
#[test]
fn a_request_completes_once() {
    let mut bad = Bad::new(|request| match request {
        fake::SET_VRING_ENABLE => Act::Use(vec![[0, 1], [0, 1]], 2),
        _ => Act::Well,
    });
    bad.offer();
    bad.guest
        .request(0, 2, &[(DATA, 16, false), (DATA + 16, 1, true)]);
    until(&mut bad.guest, "the end of the backend", |guest| {
        guest.state().get(Word::Messages) > 0
    });
    assert_eq!(bad.guest.used_index(0), 1);
}

/// A GDM that was killed between two completions and the ends of their notes: these requests are
/// not handed over again, and the third one is.
#[test]
fn what_a_killed_gdm_completed_last_is_not_done_again() {
    let mut bad = Bad::new(|_| Act::Well);
    bad.offer();
    for head in [2, 4] {
        bad.guest
            .request(0, head, &[(DATA, 16, false), (DATA + 16, 1, true)]);
    }
    bad.guest.turn();
    let notes = InFlight::of(bad.guest.state(), 0);
    assert_eq!((notes.in_order(0), notes.published()), (vec![0, 2, 4], 0));
    bad.guest.kill_gdm();
    let used = bad.guest.rings[0].used();
    let index = [0, 0, 2, 0];
    let entries = [[4, 0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0]];
    bad.guest
        .put(used, &[&index[..], &entries.concat()].concat());
    let socket = format!("{}/socket", bad.directory.text());
    bad.guest
        .start_gdm_of(arrivals(node(&socket), bounds(SHORT)));
    until(&mut bad.guest, "the start", |_| notes.published() == 2);
    assert_eq!(notes.in_order(2), [2]);
}

#[test]
fn a_backend_cannot_take_the_rings_away() {
    let mut bad = Bad::new(|request| match request {
        fake::SET_MEM_TABLE => Act::Cut,
        fake::SET_VRING_ENABLE => Act::Use(vec![[0, 1]], 1),
        _ => Act::Well,
    });
    bad.offer();
    until(&mut bad.guest, "the completion", |guest| {
        guest.used_index(0) == 1
    });
}

/// Another thread of GDM's is not kept: the device's thread comes back within the deadline.
#[test]
fn a_backend_that_stops_answering_is_given_up() {
    let mut bad = Bad::new(|request| match request {
        fake::SET_MEM_TABLE => Act::Nothing,
        _ => Act::Well,
    });
    bad.offer();
    let begin = Instant::now();
    bad.is_lost();
    assert!(begin.elapsed() < LONG);
    // The backend may still have the guest's memory.
    assert_eq!(bad.guest.state().get(Word::InKernel), 1);
}

/// A backend that keeps a request after its queue was stopped has not finished with the guest's
/// memory: Gear2 does not get an answer.
#[test]
fn a_reset_is_answered_when_the_memory_is_at_rest() {
    use gear2_protocol::device_word::{RESET_ASKED, RESET_SEEN};
    use std::sync::atomic::Ordering;
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Nothing,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    let page = &bad.guest.region.devices[crate::testing::CHANNEL];
    page[RESET_ASKED].store(1, Ordering::Relaxed);
    bad.guest.turn();
    assert_eq!(bad.guest.state().get(Word::Messages), 1);
    assert_eq!(page[RESET_SEEN].load(Ordering::Relaxed), 0);
    // The next connection: the one before has ended for the backend.
    until(&mut bad.guest, "the answer", |_| {
        page[RESET_SEEN].load(Ordering::Relaxed) == 1
    });
}

/// A driver's own reset is not answered either, as long as the backend may have the memory.
#[test]
fn a_drivers_reset_waits_for_the_memory() {
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Nothing,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    let reset = |guest: &mut Guest| guest.access(register::STATUS, 6, 0);
    assert_eq!(reset(&mut bad.guest), slot::POSTED);
    assert_eq!(
        (bad.guest.status(), bad.guest.state().get(Word::Messages)),
        (0xf, 1)
    );
    // The next connection: the one before has ended for the backend.
    let begin = Instant::now();
    while reset(&mut bad.guest) != slot::DONE {
        assert!(begin.elapsed() < LONG, "the reset is not answered");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bad.guest.status(), 0);
}

/// Completions of a backend are passed on while its queue is closed, and none later.
#[test]
fn a_closed_queue_has_the_completions_of_its_last_moment() {
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Last,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    bad.guest.interrupted();
    assert_eq!(bad.guest.used_index(0), 0);
    bad.guest.write(register::QUEUE_SEL, 0);
    bad.guest.write(register::QUEUE_READY, 0);
    assert!(bad.guest.interrupted());
    assert_eq!(bad.guest.used_index(0), 1);
    assert_eq!(bad.guest.state().get(Word::Messages), 0);
    bad.offer();
    bad.guest.turn();
    let notes = InFlight::of(bad.guest.state(), 0);
    assert_eq!((bad.guest.used_index(0), notes.in_order(1)), (1, vec![]));
}

/// A backend that does not stop a queue has the guest's memory: the driver is not answered.
#[test]
fn a_closed_queue_waits_for_the_memory() {
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Nothing,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    bad.guest.write(register::QUEUE_SEL, 0);
    let close = |guest: &mut Guest| guest.access(register::QUEUE_READY, 6, 0);
    assert_eq!(close(&mut bad.guest), slot::POSTED);
    assert_eq!(bad.guest.read(register::QUEUE_READY), 1);
    assert_eq!(bad.guest.state().get(Word::Messages), 1);
    // The next connection: the one before has ended for the backend.
    let begin = Instant::now();
    while close(&mut bad.guest) != slot::DONE {
        assert!(begin.elapsed() < LONG, "the driver is not answered");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bad.guest.read(register::QUEUE_READY), 0);
    assert_eq!(bad.guest.status(), 0xf);
}

/// Pauses the VM, or resumes it, as Gear2 does, and returns what the device has answered.
fn hold(guest: &mut Guest, number: u64) -> u64 {
    use gear2_protocol::device_word::{HOLD_ASKED, HOLD_SEEN};
    use std::sync::atomic::Ordering;
    let words = guest.state().words();
    words[HOLD_ASKED].store(number, Ordering::Relaxed);
    guest.turn();
    words[HOLD_SEEN].load(Ordering::Relaxed)
}

/// A paused VM's queue is stopped, has the completions of its last moment, and is served again.
#[test]
fn a_paused_queue_has_the_completions_of_its_last_moment() {
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Last,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    bad.guest.interrupted();
    assert_eq!(bad.guest.used_index(0), 0);
    assert_eq!(hold(&mut bad.guest, 1), 1);
    assert!(bad.guest.interrupted());
    assert_eq!(bad.guest.used_index(0), 1);
    bad.offer();
    bad.guest.turn();
    let notes = || InFlight::of(bad.guest.state(), 0).in_order(2);
    assert_eq!((bad.guest.used_index(0), notes()), (1, vec![]));
    assert_eq!(hold(&mut bad.guest, 2), 2);
    let notes = || InFlight::of(bad.guest.state(), 0).in_order(2);
    assert_eq!(notes().len(), 1);
    assert_eq!(bad.guest.state().get(Word::Messages), 0);
}

/// A backend that does not stop a queue has the guest's memory: the pause is not answered.
#[test]
fn a_pause_waits_for_the_memory() {
    let mut bad = Bad::new(|request| match request {
        fake::GET_VRING_BASE => Act::Nothing,
        _ => Act::Well,
    });
    bad.offer();
    bad.guest.turn();
    assert_eq!(hold(&mut bad.guest, 1), 0);
    // The next connection: the one before has ended for the backend.
    let begin = Instant::now();
    while hold(&mut bad.guest, 1) != 1 {
        assert!(begin.elapsed() < LONG, "the pause is not answered");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bad.guest.status(), 0xf);
}

#[test]
fn news_of_a_backend_are_told_or_end_it() {
    const CONFIG_CHANGE: u32 = 2;
    let mut bad = Bad::new(|request| match request {
        fake::SET_VRING_ENABLE => Act::News(news(CONFIG_CHANGE, 0)),
        _ => Act::Well,
    });
    let generation = bad.guest.read(register::CONFIG_GENERATION);
    bad.guest.interrupted();
    bad.offer();
    until(&mut bad.guest, "the news", |guest| {
        guest.read(register::INTERRUPT_STATUS) & 2 != 0
    });
    assert!(bad.guest.interrupted());
    assert_ne!(bad.guest.read(register::CONFIG_GENERATION), generation);
    let cases: [fn(u32) -> Act; 2] = [
        |request| match request {
            fake::SET_VRING_ENABLE => Act::News(news(99, 0)),
            _ => Act::Well,
        },
        // A body that never comes.
        |request| match request {
            fake::SET_VRING_ENABLE => Act::News(news(CONFIG_CHANGE, 8)),
            _ => Act::Well,
        },
    ];
    all_are_lost(&cases);
}

/// The tag of a file system is the manifest's where the backend has no configuration.
#[test]
fn a_file_system_without_a_configuration_has_its_tag() {
    let directory = Directory::new("tag");
    let socket = serve(&directory, |request| match request {
        fake::GET_PROTOCOL_FEATURES => Act::Body(0_u64.to_le_bytes().to_vec()),
        _ => Act::Well,
    });
    let mut node = node(&socket);
    node.kind = crate::board::DeviceKind::VhostUser(26);
    (node.queues, node.config_size, node.tag) = (2, 40, "shared".into());
    let backend = VhostUser::open_within(&node, directory.text(), bounds(LONG)).unwrap();
    let identity = backend.identity();
    assert_eq!((identity.device_id, identity.config.len()), (26, 40));
    assert!(identity.config.starts_with(b"shared\0"));
    assert!(identity.config.ends_with(&[1, 0, 0, 0]));
}
