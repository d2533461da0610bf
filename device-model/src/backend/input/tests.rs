//! Input devices: what a driver reads of the configuration, typed events, and a guest that does not
//! keep up.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use proptest::prelude::{any, proptest};

use super::event::{EVENT, Event, MOST_OF_REPORT, MOST_WAITING, Reports};
use super::profile::Profile;
use super::{EVENTS, Input, Parts, QUEUES};
use crate::backend::Backend as _;
use crate::order::Order;
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest, RAM, WRITE};
use crate::transport::register;

const STATUS: usize = 1;
const BUFFERS: u64 = RAM + 0x20_0000;
const NEEDS_RESET: u32 = 0x40;
/// Types of events, and codes.
const KEY: u16 = 1;
const REL: u16 = 2;
const ABS: u16 = 3;
const KEY_A: u16 = 30;

/// A guest with an input device, and who types.
struct Typed {
    guest: Guest,
    typist: UnixStream,
    /// Number of events that the guest has looked at.
    seen: u16,
    _directory: Directory,
}

impl Typed {
    /// Makes a guest whose driver is ready and has this number of buffers.
    fn new(buffers: u16) -> Self {
        let directory = Directory::new("input");
        let path = format!("{}/input", directory.text());
        let backend = format!("socket:{path}");
        let mut parts = Parts::from(Input::claim(&backend).unwrap());
        let input = Input::of(&mut parts, &backend).unwrap();
        let mut guest = Guest::new(Box::new(input));
        guest.initialise(0, QUEUES);
        let typist = UnixStream::connect(&path).unwrap();
        typist.set_nonblocking(true).unwrap();
        let mut typed = Self {
            guest,
            typist,
            seen: 0,
            _directory: directory,
        };
        (0..buffers).for_each(|head| typed.offer(head));
        typed.guest.work();
        typed
    }

    fn offer(&mut self, head: u16) {
        let table = self.guest.rings[EVENTS].descriptors();
        let address = BUFFERS + 64 * u64::from(head);
        self.guest.put(address, &[0xee; 64]);
        let descriptor = (address, EVENT as u32, WRITE, 0);
        self.guest.describe(table, head, descriptor);
        self.guest.offer(EVENTS, head);
    }

    fn type_lines(&mut self, lines: &str) {
        self.typist.write_all(lines.as_bytes()).unwrap();
        self.guest.work();
    }

    /// Returns what the device answers.
    fn said(&mut self) -> String {
        let mut bytes = [0; 1024];
        match self.typist.read(&mut bytes) {
            Ok(length) => String::from_utf8_lossy(&bytes[..length]).into_owned(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                String::new()
            }
        }
    }

    /// Returns the events that came, and offers their buffers again.
    fn events(&mut self) -> Vec<(u16, u16, i32)> {
        let mut events = Vec::new();
        self.guest.work();
        while self.guest.used_index(EVENTS) != self.seen {
            let (head, written) = self.guest.used(EVENTS, self.seen);
            assert_eq!(written as usize, EVENT);
            self.seen = self.seen.wrapping_add(1);
            let bytes = self.guest.get(BUFFERS + 64 * u64::from(head), EVENT + 1);
            assert_eq!(bytes[EVENT], 0xee, "more than an event was written");
            let event = Event::from_bytes(bytes[..EVENT].try_into().unwrap());
            events.push((event.kind, event.code, event.value));
            self.offer(head as u16);
            self.guest.work();
        }
        events
    }

    /// Selects a property as a driver does; returns it.
    fn property(&mut self, select: u8, subselect: u8) -> Vec<u8> {
        for (at, value) in [(0, select), (1, subselect)] {
            let state = self.guest.access(register::CONFIG + at, 4, value.into());
            assert_eq!(state, gear2_protocol::slot::DONE);
        }
        let words = (0..34).map(|word| self.guest.read(register::CONFIG + 4 * word));
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        assert_eq!(bytes[..2], [select, subselect]);
        assert_eq!(bytes[3..8], [0; 5]);
        let (property, rest) = bytes[8..].split_at(usize::from(bytes[2]));
        assert!(rest.iter().all(|byte| *byte == 0));
        property.to_vec()
    }
}

const SYN: (u16, u16, i32) = (0, 0, 0);

/// The power button, which a person presses by `gearctl shutdown`, is a key in reports of its own.
#[test]
fn a_power_button_is_pressed_for_a_driver_that_listens() {
    let directory = Directory::new("input-power");
    let backend = format!("socket:{}/input", directory.text());
    let mut parts = Parts::from(Input::claim(&backend).unwrap());
    let mut input = Input::of(&mut parts, &backend).unwrap();
    let press = |input: &mut Input| input.obey(Order::Power);
    let error = press(&mut input).unwrap_err();
    assert_eq!(error, "no driver of the guest uses the device");
    assert!(!input.reports.has_news());
    input.activate(0).unwrap();
    // A report that a typist has begun goes on behind the button's.
    let held = Event {
        kind: KEY,
        code: KEY_A,
        value: 1,
    };
    input.reports.push(held);
    assert_eq!(press(&mut input), Ok(1));
    input.reports.push(Event::END);
    let mut events = Vec::new();
    while let Some(event) = input.reports.next() {
        events.push((event.kind, event.code, event.value));
    }
    const POWER: u16 = 116;
    let expected = [
        (KEY, POWER, 1),
        SYN,
        (KEY, POWER, 0),
        SYN,
        (KEY, KEY_A, 1),
        SYN,
    ];
    assert_eq!(events, expected);
    assert!(input.obey(Order::Resize).is_err());
    // A guest that takes nothing has a bounded number of presses waiting.
    let pressed = (0..MOST_WAITING).take_while(|_| press(&mut input).is_ok());
    let pressed = pressed.count();
    assert!((1..MOST_WAITING).contains(&pressed), "{pressed}");
    // Without the key there is no button.
    input.profile = Profile::default();
    assert_eq!(press(&mut input).unwrap_err(), "it has no power button");
}

#[test]
fn a_driver_reads_what_the_device_is() {
    let mut typed = Typed::new(0);
    assert_eq!(typed.guest.read(register::DEVICE_ID), 18);
    assert_eq!(typed.property(1, 0), b"GearV keyboard and tablet");
    assert_eq!(typed.property(2, 0), b"");
    assert_eq!(typed.property(3, 0), [6, 0, 0, 0, 0, 0, 1, 0]);
    assert!(typed.property(0x10, 0).is_empty());
    let keys = typed.property(0x11, KEY as u8);
    // Keys from 1 to 255, and three buttons from 0x110 on.
    assert_eq!(
        (keys.len(), keys[0], keys[31], keys[34]),
        (35, 0xfe, 0xff, 7)
    );
    assert!(keys[1..32].iter().all(|byte| *byte == 0xff));
    assert_eq!(typed.property(0x11, REL as u8), [0x43, 1]);
    assert_eq!(typed.property(0x11, ABS as u8), [3]);
    let axis = [0, 0x7fff, 0, 0, 0].map(i32::to_le_bytes).concat();
    assert_eq!(typed.property(0x12, 0), axis);
    assert_eq!(typed.property(0x12, 1), axis);
}

#[test]
fn properties_that_there_are_not_have_no_bytes() {
    let mut typed = Typed::new(0);
    for (select, subselect) in [(0, 0), (1, 1), (2, 9), (3, 1), (4, 0), (0x10, 1)] {
        assert!(
            typed.property(select, subselect).is_empty(),
            "{select} {subselect}"
        );
    }
    for (select, subselect) in [
        (0x11, 0),
        (0x11, 0x14),
        (0x11, 255),
        (0x12, 2),
        (0xff, 0xff),
    ] {
        assert!(
            typed.property(select, subselect).is_empty(),
            "{select} {subselect}"
        );
    }
    // Nothing but the selection can be written.
    let state = typed.guest.access(register::CONFIG + 2, 4, 0xff);
    assert_eq!(state, gear2_protocol::slot::DONE);
    assert!(typed.property(0, 0).is_empty());
}

#[test]
fn typed_events_reach_the_guest_at_the_end_of_their_report() {
    let mut typed = Typed::new(16);
    typed.type_lines("key KEY_A 1\nrel REL_X -5\nabs ABS_Y 100\nkey 0");
    assert_eq!(typed.events(), []);
    typed.type_lines("x\nkey 272 1\nsyn\n");
    let said = "error: the device has no 0x\n";
    // The piece of a line that came before is a line with what came behind.
    assert_eq!(
        typed.said(),
        "error: a line is: key|rel|abs NAME VALUE, tap NAME, or syn\n"
    );
    let _ = said;
    let expected = [
        (KEY, KEY_A, 1),
        (REL, 0, -5),
        (ABS, 1, 100),
        (KEY, 272, 1),
        SYN,
    ];
    assert_eq!(typed.events(), expected);
    typed.type_lines("tap KEY_B\n# a remark\n\nsyn\n");
    assert_eq!(typed.events(), [(KEY, 48, 1), SYN, (KEY, 48, 0), SYN]);
    assert_eq!(typed.said(), "");
}

#[test]
fn a_line_that_is_none_is_refused_and_the_next_one_is_taken() {
    let lines = [
        (
            "hello",
            "a line is: key|rel|abs NAME VALUE, tap NAME, or syn",
        ),
        (
            "key KEY_A",
            "a line is: key|rel|abs NAME VALUE, tap NAME, or syn",
        ),
        ("key KEY_NONE 1", "the device has no KEY_NONE"),
        ("key REL_X 1", "the device has no REL_X"),
        ("key 0 1", "the device has no 0"),
        ("key 767 1", "the device has no 767"),
        ("key 65536 1", "the device has no 65536"),
        ("key KEY_A x", "x is no number"),
        ("key KEY_A 3", "KEY_A has no value 3"),
        ("key KEY_A -1", "KEY_A has no value -1"),
        ("abs ABS_X 32768", "ABS_X has no value 32768"),
        ("abs ABS_X -1", "ABS_X has no value -1"),
        ("abs ABS_Z 1", "the device has no ABS_Z"),
        ("rel REL_X 2147483648", "2147483648 is no number"),
        ("tap BTN_SIDE", "the device has no BTN_SIDE"),
    ];
    let mut typed = Typed::new(16);
    for (line, error) in lines {
        typed.type_lines(&format!("{line}\ntap KEY_A\n"));
        assert_eq!(typed.said(), format!("error: {error}\n"), "{line}");
        assert_eq!(typed.events(), [(KEY, KEY_A, 1), SYN, (KEY, KEY_A, 0), SYN]);
    }
    typed.type_lines(&format!("{}\ntap KEY_A\n", "x".repeat(5000)));
    assert_eq!(typed.said(), "error: the line is too long\n");
    assert_eq!(typed.events().len(), 4);
}

#[test]
fn a_second_typist_takes_over_and_continues_no_line() {
    let mut typed = Typed::new(16);
    typed.type_lines("tap KEY");
    let path = typed.typist.peer_addr().unwrap();
    let second = UnixStream::connect(path.as_pathname().unwrap()).unwrap();
    let mut first = std::mem::replace(&mut typed.typist, second);
    typed.guest.work();
    typed.typist.set_nonblocking(true).unwrap();
    typed.type_lines("_A\ntap KEY_A\n");
    assert!(typed.said().starts_with("error: a line is"));
    assert_eq!(typed.events().len(), 4);
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_guest_without_a_driver_gets_nothing_later() {
    let mut typed = Typed::new(16);
    typed.type_lines("key KEY_A 1\n");
    typed.guest.write(register::STATUS, 0);
    typed.type_lines("tap KEY_A\n");
    assert_eq!(
        typed.said(),
        "error: no driver of the guest uses the device\n"
    );
    for queue in 0..QUEUES {
        typed.guest.rings[queue].added = 0;
        let ring = typed.guest.rings[queue];
        for place in [ring.available(), ring.used()] {
            typed.guest.put(place, &[0; 4]);
        }
    }
    typed.seen = 0;
    typed.guest.initialise(0, QUEUES);
    (0..16).for_each(|head| typed.offer(head));
    typed.type_lines("syn\n");
    assert_eq!(typed.events(), []);
}

/// A typist notices that the guest does not keep up, and nothing is lost.
#[test]
fn typing_waits_for_a_guest_that_does_not_keep_up() {
    let mut typed = Typed::new(0);
    let mut lines = 0;
    while lines < 100_000
        && typed
            .typist
            .write(b"tap KEY_A\n")
            .is_ok_and(|sent| sent == 10)
    {
        lines += 1;
        typed.guest.work();
    }
    assert!(lines < 100_000);
    (0..16).for_each(|head| typed.offer(head));
    let mut events = 0;
    loop {
        let got = typed.events().len();
        events += got;
        if got == 0 {
            break;
        }
    }
    assert_eq!(events, 4 * lines);
    assert_eq!(typed.guest.state().get(Word::Errors), 0);
}

#[test]
fn a_buffer_without_room_breaks_the_device() {
    for length in [0, 1, 7] {
        let mut typed = Typed::new(0);
        typed.guest.request(EVENTS, 0, &[(BUFFERS, length, true)]);
        typed.type_lines("tap KEY_A\n");
        assert_eq!(typed.guest.status() & NEEDS_RESET, NEEDS_RESET, "{length}");
    }
    let mut typed = Typed::new(0);
    let pieces = [(BUFFERS, 3, true), (BUFFERS + 64, 100, true)];
    typed.guest.request(EVENTS, 0, &pieces);
    typed.type_lines("tap KEY_A\n");
    assert_eq!(typed.guest.used(EVENTS, 0), (0, 8));
}

#[test]
fn lights_of_a_guest_are_taken_whatever_they_are() {
    let mut typed = Typed::new(16);
    let sent = [(8_u32, 0_u64), (7, 1), (0, 2), (0x4000, 2)];
    for (number, (length, errors)) in sent.into_iter().enumerate() {
        typed.guest.put(DATA, &[0xff; 8]);
        typed.guest.request(STATUS, 0, &[(DATA, length, false)]);
        typed.guest.work();
        assert_eq!(usize::from(typed.guest.used_index(STATUS)), number + 1);
        assert_eq!(typed.guest.state().get(Word::Errors), errors);
    }
    typed.type_lines("tap KEY_A\n");
    assert_eq!(typed.events().len(), 4);
}

fn event(kind: u16, code: u16, value: i32) -> Event {
    Event { kind, code, value }
}

fn taken(reports: &mut Reports) -> Vec<(u16, u16, i32)> {
    let mut events = Vec::new();
    while reports.has_news() {
        let event = reports.next().unwrap();
        events.push((event.kind, event.code, event.value));
    }
    events
}

/// A key whose release is lost is released all the same, behind the reports that are whole.
#[test]
fn a_guest_that_lost_reports_is_told_how_things_are() {
    let mut reports = Reports::default();
    reports.push(event(KEY, KEY_A, 1));
    reports.push(Event::END);
    for step in 0..MOST_WAITING as i32 {
        reports.push(event(REL, 0, step));
        reports.push(Event::END);
    }
    let lost = reports.lost;
    assert!(lost > 0);
    for (kind, code, value) in [
        (KEY, KEY_A, 0),
        (KEY, 31, 1),
        (KEY, 31, 2),
        (ABS, 0, 77),
        (5, 1, 1),
    ] {
        reports.push(event(kind, code, value));
        reports.push(Event::END);
    }
    assert_eq!(reports.lost, lost + 5);
    let events = taken(&mut reports);
    assert!(events.len() < MOST_WAITING + 8);
    let (whole, last) = events.split_at(events.len() - 5);
    assert_eq!(whole[..2], [(KEY, KEY_A, 1), SYN]);
    assert!(
        whole[2..]
            .chunks(2)
            .all(|two| two[0].0 == REL && two[1] == SYN)
    );
    assert_eq!(
        last,
        [(KEY, KEY_A, 0), (KEY, 31, 1), (ABS, 0, 77), (5, 1, 1), SYN]
    );
    reports.push(event(KEY, 31, 0));
    reports.push(Event::END);
    assert_eq!(taken(&mut reports), [(KEY, 31, 0), SYN]);
}

/// The kernel says that it dropped events: the rest of the report is none.
#[test]
fn a_report_of_which_events_are_lost_is_lost() {
    let mut reports = Reports::default();
    reports.push(event(REL, 0, 1));
    reports.push(event(0, 3, 0));
    reports.push(event(KEY, KEY_A, 1));
    reports.push(Event::END);
    assert_eq!(reports.lost, 1);
    assert_eq!(taken(&mut reports), [(KEY, KEY_A, 1), SYN]);
    for _ in 0..=MOST_OF_REPORT {
        reports.push(event(REL, 0, 1));
    }
    reports.push(Event::END);
    assert_eq!((reports.lost, taken(&mut reports)), (2, Vec::new()));
}

proptest! {
    /// However a guest keeps up: it gets whole reports, and in the end knows which keys are pressed.
    #[test]
    fn reports_are_whole(
        events in proptest::collection::vec((0..4_u16, 0..4_u16, 0..3_i32, any::<u8>()), 0..3000),
    ) {
        let mut reports = Reports::default();
        let mut got = Vec::new();
        let mut pressed = [0; 4];
        for (kind, code, value, takes) in events {
            let event = event(kind, if kind == 0 { 0 } else { code }, if kind == 0 { 0 } else { value });
            reports.push(event);
            if kind == KEY {
                pressed[usize::from(code)] = value.min(1);
            }
            if takes < 20 {
                while reports.has_news() {
                    got.extend(reports.next());
                }
            }
        }
        reports.push(event(REL, 0, 1));
        reports.push(Event::END);
        while reports.has_news() {
            got.extend(reports.next());
        }
        let mut known = [0; 4];
        for event in &got {
            if event.kind == KEY {
                known[usize::from(event.code)] = event.value.min(1);
            }
        }
        assert_eq!(known, pressed);
        assert!(got.last().is_none_or(|last| *last == Event::END));
    }
}
