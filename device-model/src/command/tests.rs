//! Tests of gearctl, from the command line to the text, over a socket of GDM's server.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gear1_abi::call::VmState;
use gear2_protocol::Region;
use vmm_sys_util::eventfd::EventFd;

use super::answer::{Percent, State};
use super::{Command, Console, Line, Parsed, parse, run};
use crate::board::{DeviceKind, DeviceNode};
use crate::client::Vm;
use crate::control::{Mailbox, Server};
use crate::error::{Error, ErrorKind};
use crate::frame::{self, Frame};
use crate::order::{Answer, Order};
use crate::orders::{Desk, Inbox, way};
use crate::testing::{Directory, Stop, doorbell, fake_gear2, region};

/// Reads a command line that is one of a command.
pub(super) fn line(words: &[&str]) -> Result<Line, Error> {
    match parse(words, None)? {
        Parsed::Run(line) => Ok(line),
        Parsed::Print(text) => panic!("{text}"),
    }
}

/// Runs `gearctl` with these words. Returns its output, or its error message.
pub(super) fn gearctl(words: &[&str]) -> Result<String, String> {
    attempt(words).map_err(|error| error.sentence)
}

/// Runs `gearctl` with these words. Returns its output, or its error.
pub(super) fn attempt(words: &[&str]) -> Result<String, Error> {
    let mut out = Vec::new();
    gearctl_to(words, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// Runs `gearctl` with each of these lines against one Gear2. Returns the output of the last one,
/// or its error message; the others succeed.
pub(super) fn gearctl_lines(lines: &[&str]) -> Result<String, String> {
    let region = region();
    region.header.vm_count.store(3, Ordering::Relaxed);
    let mut last = Ok(String::new());
    with_gdm(region, |run_directory| {
        for text in lines {
            if last.is_err() {
                return;
            }
            let words: Vec<&str> = ["--run", run_directory]
                .into_iter()
                .chain(text.split(' '))
                .collect();
            let mut out = Vec::new();
            let done = line(&words).and_then(|line| run(&line, &mut out));
            let done = done.map_err(|error| error.sentence);
            last = done.map(|()| String::from_utf8(out).unwrap());
        }
    });
    last
}

/// Accepts a number of writes, then fails like a closed pipe.
pub(super) struct Few(pub(super) usize, pub(super) Vec<u8>);

impl Write for Few {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `gearctl` with these words, and prints to `out`, which is no terminal.
pub(super) fn gearctl_to(words: &[&str], out: &mut dyn Write) -> Result<(), Error> {
    gearctl_with(words, None, out)
}

/// Runs `gearctl` with these words, and prints to `out`, a terminal of this width.
fn gearctl_with(words: &[&str], width: Option<usize>, out: &mut dyn Write) -> Result<(), Error> {
    let region = region();
    region.header.vm_count.store(3, Ordering::Relaxed);
    let version = &region.header.version;
    version.store(gear2_protocol::PROTOCOL_VERSION, Ordering::Relaxed);
    gearctl_in(region, words, width, out)
}

/// Runs `gearctl` with a GDM over this region.
fn gearctl_in(
    region: &'static Region,
    words: &[&str],
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut done = Ok(());
    with_gdm(region, |run_directory| {
        let words = [&["--run", run_directory], words].concat();
        done = line(&words).and_then(|line| run(&Line { width, ..line }, out));
    });
    done
}

/// Runs `gearctl` with a GDM that serves these devices, each of which answers orders by `obey`.
pub(super) fn gearctl_beside(
    region: &'static Region,
    devices: Vec<DeviceNode>,
    words: &[&str],
    obey: impl Fn(Order) -> Answer + Sync,
) -> Result<String, String> {
    region.header.vm_count.store(3, Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let kick = EventFd::new(0).unwrap();
    let ways = devices
        .iter()
        .map(|node| (node.channel, way(&kick).unwrap()));
    let (desks, inboxes): (BTreeMap<usize, Desk>, Vec<Inbox>) = ways
        .map(|(channel, (desk, inbox))| ((channel, desk), inbox))
        .unzip();
    let mut out = Vec::new();
    let mut done = Ok(());
    let (stopped, obey) = (&stop, &obey);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                inboxes
                    .iter()
                    .for_each(|inbox| inbox.each(|order, _| obey(order)));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        with_gdm_of(region, devices, desks, |run_directory| {
            let words = [&["--run", run_directory], words].concat();
            done = line(&words).and_then(|line| run(&line, &mut out));
        });
    });
    done.map(|()| String::from_utf8(out).unwrap())
        .map_err(|error| error.sentence)
}

/// Does something while a GDM serves this region, with the directory of its sockets.
pub(super) fn with_gdm(region: &'static Region, what: impl FnMut(&str)) {
    with_gdm_of(region, Vec::new(), BTreeMap::new(), what);
}

/// Does something while a GDM serves this region and these devices.
fn with_gdm_of(
    region: &'static Region,
    devices: Vec<DeviceNode>,
    desks: BTreeMap<usize, Desk>,
    mut what: impl FnMut(&str),
) {
    let directory = Directory::new("gearctl");
    region.header.counter_hz.store(1000, Ordering::Relaxed);
    let path = format!("{}/control", directory.text());
    let mailbox = Mailbox::new(region, doorbell());
    let screens = devices.iter();
    let screens = screens.filter(|node| matches!(node.kind, DeviceKind::VhostUser(_)));
    let screens: Vec<u64> = screens.map(|node| node.channel as u64).collect();
    let mut server = Server::bind(&path, region, &mailbox, devices).unwrap();
    server.order_by(desks, Arc::default());
    let stop = AtomicBool::new(false);
    // The picture of a screen, as its graphics card's thread draws it.
    for node in screens {
        let path = frame::path(directory.text(), node);
        let mut frame = Frame::of(frame::create(&path).unwrap()).unwrap();
        frame.resize(2, 1).unwrap();
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| fake_gear2(region, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                server.turn(10);
            }
        });
        what(directory.text());
    });
}

/// Returns what `gearctl` prints on a terminal of this width.
fn gearctl_on(width: usize, words: &[&str]) -> String {
    let mut out = Vec::new();
    gearctl_with(words, Some(width), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn list_shows_all_vms() {
    let text = gearctl(&["list"]).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "ID  NAME    STATE            VCPUS  RESTARTS  FAULTS  HANGS  SLOW  LAST_FAULT"
    );
    assert_eq!(
        lines[1],
        "0   device  running          2      0         0       -      -     none"
    );
    assert_eq!(
        lines[2],
        "1   linux   running, paused  2      5         1       4      3     \
         vCPU 1: PC 0x400, SPSR 0x3c5, ESR 0x82000007, FAR 0x200, IPA 0x300"
    );
}

#[test]
fn json_is_one_line() {
    let text = gearctl(&["list", "--json"]).unwrap();
    assert!(text.starts_with(
        r#"{"version":1,"kind":"vms","answer":[{"id":0,"name":"device","state":"running","paused""#
    ));
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn stats_count_exits_by_reason() {
    let text = gearctl(&["stats", "linux", "--json"]).unwrap();
    let row = r#"{"vcpu":3,"vm":"linux","reason":"hvc","exits":3,"ticks":30}"#;
    assert!(text.contains(row), "{text}");
    assert!(!text.contains(r#""vm":"device""#), "{text}");
    assert!(text.contains(r#""mmio_events":77"#), "{text}");
    assert!(gearctl(&["stats"]).unwrap().contains("wfi"));
}

#[test]
fn changes_succeed_or_say_why_not() {
    let text = gearctl(&["restart", "linux"]).unwrap();
    assert_eq!(text, "vm: linux\noutcome: begun\n");
    assert!(gearctl(&["pause", "1"]).is_ok());
    let error = gearctl(&["start", "linux"]).unwrap_err();
    assert_eq!(
        error,
        "VM linux is not started: it runs already, and is paused; `gearctl resume linux` lets it go on"
    );
    let error = gearctl(&["pause", "rt"]).unwrap_err();
    assert!(
        error.starts_with("VM rt is not paused: it is real-time"),
        "{error}"
    );
    let error = gearctl(&["stop", "device"]).unwrap_err();
    assert!(
        error.starts_with(
            "VM device is not stopped: nobody could start it again from here; restart it"
        ),
        "{error}"
    );
    assert!(gearctl(&["stop", "--force", "device"]).is_ok());
    assert!(gearctl(&["stop", "linux"]).is_ok());
    let error = gearctl(&["stop", "nobody"]).unwrap_err();
    assert_eq!(
        error,
        "there is no VM `nobody`; there are: device, linux, rt"
    );
}

/// A program decides by the kind; the sentences are for people.
#[test]
fn errors_have_kinds() {
    for (words, kind) in [
        ("stop nobody", ErrorKind::NotFound),
        ("stats nobody", ErrorKind::NotFound),
        ("console nobody", ErrorKind::NotFound),
        ("console rt", ErrorKind::NotFound),
        ("console linux", ErrorKind::Unreachable),
        ("screenshot linux /dev/null", ErrorKind::NotFound),
        ("device resize linux system", ErrorKind::NotFound),
        ("sched pin linux 2 1", ErrorKind::NotFound),
        ("sched pool linux play", ErrorKind::NotFound),
        ("sched cpu 7 off", ErrorKind::NotFound),
        ("start linux", ErrorKind::Refused),
        ("pause rt", ErrorKind::Refused),
        ("dump device /dev/null", ErrorKind::Refused),
        ("dump rt /dev/null", ErrorKind::Refused),
        ("dump nobody /dev/null", ErrorKind::NotFound),
        ("stop device", ErrorKind::Refused),
        ("sched pin rt 0 1", ErrorKind::Refused),
        ("sched set linux weight 1001", ErrorKind::Refused),
        ("sched cpu 0 off", ErrorKind::Refused),
        ("sched pool device work", ErrorKind::Refused),
        ("sched set linux budget-us 2000", ErrorKind::Usage),
        ("man --directory /nonexistent", ErrorKind::Failed),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let error = attempt(&words).unwrap_err();
        assert_eq!(error.kind, kind, "{words:?}: {error}");
    }
}

#[test]
fn the_log_is_text_with_values() {
    let text = gearctl(&["log"]).unwrap();
    assert!(
        text.contains("1.500000  1    VmStart  VM linux started at 0x80"),
        "{text}"
    );
}

#[test]
fn a_followed_log_tells_of_all_cpus_and_of_what_it_missed() {
    let mut out = Few(4, Vec::new());
    let error = gearctl_to(&["log", "-f", "--json"], &mut out).unwrap_err();
    assert!(error.sentence.starts_with("cannot print"), "{error}");
    let text = String::from_utf8(out.1).unwrap();
    let times: Vec<&str> = text.split("\"time\":\"").skip(1).collect();
    let times: Vec<&str> = times.iter().map(|rest| &rest[..8]).collect();
    assert_eq!(
        times,
        [
            "1.500000", "1.550000", "1.700000", "1.600000", "1.800000", "1.800000"
        ]
    );
    assert!(
        text.contains("39 records of this CPU were overwritten"),
        "{text}"
    );
}

#[test]
fn version_names_all_parts() {
    let text = gearctl(&["version"]).unwrap();
    assert!(
        text.contains("gear1_abi: 1.9\ngear2_protocol: 3.9\n"),
        "{text}"
    );
}

#[test]
fn without_gdm_there_is_a_sentence() {
    let line = line(&["--run", "/nonexistent", "list"]).unwrap();
    let error = run(&line, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    let text = error.sentence;
    assert!(
        text.starts_with("no gdm answers at /nonexistent/control: "),
        "{text}"
    );
}

#[test]
fn a_vm_that_does_not_run_says_why() {
    let stopped = Vm {
        state: VmState::Stopped as u64,
        ..Vm::default()
    };
    let state = |waits, given_up| {
        let vm = Vm {
            waits,
            given_up,
            ..stopped.clone()
        };
        super::vm_row(&vm).state_text()
    };
    assert_eq!(state(false, false), "stopped");
    assert_eq!(state(true, false), "stopped, waits");
    assert_eq!(state(false, true), "stopped, given up");
    let failed_over = Vm {
        given_up: true,
        failed_over: true,
        ..stopped.clone()
    };
    assert_eq!(
        super::vm_row(&failed_over).state_text(),
        "stopped, given up, failed over"
    );
}

/// Returns what a wrong command line is told.
fn misused(words: &[&str]) -> String {
    let error = line(words).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage, "{words:?}");
    error.sentence
}

#[test]
fn consoles_are_read() {
    let console = |all, virtio, messages| {
        let vm = "a".into();
        Command::Console(Console {
            vm,
            all,
            virtio,
            messages,
        })
    };
    for (words, expected) in [
        (&["console", "a"][..], console(false, false, false)),
        (&["console", "--all", "a"], console(true, false, false)),
        (&["console", "--virtio", "a"], console(false, true, false)),
        (&["console", "a", "--virtio"], console(false, true, false)),
        (
            &["console", "--all", "a", "--messages"],
            console(true, false, true),
        ),
    ] {
        assert_eq!(line(words).unwrap().command, expected);
    }
    for words in [
        &["console"][..],
        &["console", "a", "b"],
        &["console", "--both", "a"],
        &["console", "a", "--virtio", "--messages"],
        &["console", "--all", "--all", "a"],
    ] {
        let said = misused(words);
        assert!(said.contains("Usage: gearctl console"), "{words:?}: {said}");
    }
}

#[test]
fn command_lines_are_read() {
    let command = |words: &[&str]| line(words).unwrap().command;
    for word in ["-f", "--follow"] {
        assert_eq!(command(&["log", word]), Command::Log { follow: true });
    }
    let top = |vcpus, count| Command::Top {
        vcpus,
        lines: false,
        count,
    };
    assert_eq!(command(&["top"]), top(false, None));
    assert_eq!(command(&["top", "3"]), top(false, Some(3)));
    assert_eq!(command(&["top", "--vcpus", "3"]), top(true, Some(3)));
    assert_eq!(command(&["top", "3", "--vcpus"]), top(true, Some(3)));
    let screenshot = |channel| Command::Screenshot {
        vm: "a".into(),
        channel,
        file: "b".into(),
    };
    assert_eq!(command(&["screenshot", "a", "b"]), screenshot(None));
    assert_eq!(command(&["screenshot", "a", "3", "b"]), screenshot(Some(3)));
    // Options may stand anywhere: a person adds `--json` at the end.
    for words in [["--json", "list"], ["list", "--json"]] {
        assert!(line(&words).unwrap().json);
    }
    for words in [
        &["log", "all"][..],
        &["top", "x"],
        &["top", "--vms"],
        &["top", "1", "2"],
        &["screenshot", "a"],
        &["screenshot", "a", "x", "b"],
        &["stop"],
        &["--run"],
    ] {
        misused(words);
    }
}

#[test]
fn who_mistypes_a_command_finds_it() {
    let said = misused(&["reboot", "linux"]);
    assert!(
        said.starts_with("unrecognized subcommand 'reboot'")
            && said.contains(
                "Commands: list, info, last-words, vcpu, start, shutdown, stop, restart, wait, events,"
            ),
        "{said}"
    );
    let said = misused(&["sched", "swap", "linux"]);
    assert!(
        said.ends_with("Commands: set, move, pin, unpin, cpu, pool"),
        "{said}"
    );
    let said = misused(&["pause"]);
    assert!(
        said.starts_with("the following required arguments were not provided:\n  <VM>")
            && said.contains("Usage: gearctl pause <VM>"),
        "{said}"
    );
    assert!(misused(&[]).contains("Usage: gearctl"));
}

#[test]
fn help_and_version_are_printed() {
    let printed = |words: &[&str], width| match parse(words, width) {
        Ok(Parsed::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    let version = printed(&["--version"], None);
    assert_eq!(
        version,
        concat!("gearctl ", env!("CARGO_PKG_VERSION"), "\n")
    );
    for words in [&["--help"][..], &["-h"], &["help"]] {
        let help = printed(words, None);
        assert!(help.contains("  4  a state, a rule or a limit"), "{help}");
    }
    let pause = printed(&["pause", "--help"], None);
    assert!(pause.contains("not a real-time VM's"), "{pause}");
    // The help fits into an ordinary terminal, and into this one.
    let everything = super::line::description();
    let names = everything.get_subcommands().map(|one| one.get_name());
    for name in names.filter(|name| *name != "help") {
        for (width, most) in [(None, 80), (Some(60), 60)] {
            let help = printed(&[name, "--help"], width);
            let widest = help.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(most), "{name}: {widest:?}\n{help}");
        }
    }
}

#[test]
fn shares_have_a_tenth() {
    assert_eq!(Percent::of(1, 3).number(), 33.3);
    assert_eq!(Percent::of(u64::MAX, u64::MAX).number(), 100.0);
    assert_eq!(super::vm_state(99), State::Unknown);
}

#[test]
fn a_real_time_vm_has_a_cpu_of_its_own() {
    let text = gearctl(&["stats", "rt"]).unwrap();
    let row = text.lines().nth(2).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..7], ["4", "rt", "4", "wfi", "-", "own", "CPU"]);
    let json = gearctl(&["stats", "rt", "--json"]).unwrap();
    assert!(
        json.contains(r#""ran_ticks":null,"share_percent":null"#),
        "{json}"
    );
}

#[test]
fn consoles_that_do_not_exist_are_refused_with_those_that_do() {
    let refused = |words: &[&str]| gearctl(words).unwrap_err();
    assert_eq!(
        refused(&["console", "rt"]),
        "VM rt has no serial console: it is real-time, and its serial port is the machine's; \
         `gearctl console --messages rt` shows what Gear2 says of it; VMs with a serial console: linux"
    );
    assert_eq!(
        refused(&["console", "device"]),
        "VM device has no serial console: `gearctl` runs in it, and its serial port is the machine's; \
         `gearctl console --messages device` shows what Gear2 says of it; VMs with a serial console: linux"
    );
    assert_eq!(
        refused(&["console", "linux", "--virtio"]),
        "VM linux has no virtio console: its manifest gives it no virtio device of the type \
         `console`; `gearctl console linux` is its serial one; no VM has a virtio console"
    );
    assert_eq!(
        refused(&["console", "nobody"]),
        "there is no VM `nobody`; there are: device, linux, rt"
    );
    // One that exists is connected with, here without a socket.
    let error = refused(&["console", "linux"]);
    assert!(
        error.starts_with("VM linux has no serial console at /"),
        "{error}"
    );
    let error = refused(&["console", "--messages", "rt"]);
    assert!(
        error.starts_with("VM rt has no socket of messages at /"),
        "{error}"
    );
}

#[test]
fn a_table_is_as_wide_as_the_terminal() {
    let list = gearctl_on(80, &["list"]);
    let widest = list.lines().map(|line| line.chars().count()).max();
    assert!(list.starts_with("ID  NAME") && widest <= Some(80), "{list}");
    for text in ["0x400,", "0x3c5,", "0x300"] {
        assert!(list.contains(text), "{list}");
    }
    assert_eq!(gearctl_on(500, &["list"]), gearctl(&["list"]).unwrap());
    // A program gets one line, whatever the terminal.
    let json = gearctl_on(80, &["list", "--json"]);
    assert_eq!(json.lines().count(), 1);
}

#[test]
fn an_answer_that_gear2_lacks_is_named() {
    let lacks = |vm_count: u32| {
        let region = region();
        region.header.vm_count.store(vm_count, Ordering::Relaxed);
        gearctl_in(region, &["list"], None, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(
        lacks(5).sentence,
        "Gear2 does not tell the state of VM 4: it does not exist"
    );
}
