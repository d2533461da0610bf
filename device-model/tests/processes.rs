//! GDM as it runs in the device VM, with a process a guest, on files in place of memory, registers
//! and lines. One guest has subverted its process (`src/bin/gdm_hostile`). The other one is served
//! all the time.
//!
//! Starts programs as root, in namespaces of their own. Where that is not permitted, the tests say
//! so and show nothing.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use device_model::client::Client;
use device_model::mapping::Mapping;
use device_model::order::Order;
use gear2_protocol::{
    MAGIC, PROTOCOL_VERSION, REGION_SIZE, Region, VIRTIO_STRIDE, doorbell_page, line_of_channel,
    offset, slot,
};

/// Addresses of the region and of the window, and of the RAM of the first VM.
const CONTROL: u64 = 0x1_0000_0000;
const WINDOW: u64 = 0xc00_0000;
const RAM: u64 = 0x2_0000_0000;
const RAM_SIZE: u64 = 0x20_0000;
const PAGE: u64 = 0x1000;
const DOORBELLS: u64 = 0x8_0000;
const REGISTERS: u64 = 0x9_0000;

/// Number of attacks in `src/bin/gdm_hostile/attacks.rs`.
const ATTACKS: usize = 28;
/// Of them, those that need no system call: under seccomp they are refused all the same.
const WITHOUT_CALLS: usize = 2;
/// Longest time until something comes about.
const PATIENCE: Duration = Duration::from_secs(300);
/// Register of virtio-mmio: Status. Access word of a store of 4 bytes.
const STATUS: u32 = 0x70;
const STORE: u32 = 0b110;

/// A device VM made of files, and GDM in it.
struct Rig {
    directory: PathBuf,
    gdm: Child,
    region: &'static Region,
    /// A nameless socket of the machine's network.
    _nameless: UnixListener,
    /// One GDM at a time: two would have the same users.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// Devices: channel, VM, number of the VM, type, backend.
fn devices(
    directory: &Path,
    neighbour: &'static str,
) -> [(usize, &'static str, u32, &'static str, String); 4] {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let keys = format!("socket:{}", path("run/honest.input"));
    [
        (0, neighbour, 1, "block", path("hostile.disk")),
        (1, "honest", 2, "block", path("honest.disk")),
        (2, "honest", 2, "rng", String::new()),
        (3, "honest", 2, "input", keys),
    ]
}

fn cells(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

fn wide(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// Tells whether this machine lets the test make namespaces.
fn is_permitted() -> bool {
    let mut command = Command::new("unshare");
    command.args([
        "--mount", "--net", "--ipc", "--uts", "mount", "-t", "tmpfs", "none", "/tmp",
    ]);
    let is_permitted = command.output().is_ok_and(|output| output.status.success());
    if !is_permitted {
        println!("SKIP: no namespaces here");
    }
    is_permitted
}

/// Makes a file of zeroes, of which the beginning is `content`.
fn file(path: &Path, size: u64, content: &[u8]) {
    fs::write(path, content).unwrap();
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(size)
        .unwrap();
}

/// Makes what the device tree and the kernel of a device VM show. The guest beside the honest one
/// attacks if its name is `hostile`.
fn furnish(directory: &Path, neighbour: &'static str) {
    let (tree, hardware) = (directory.join("tree"), directory.join("hardware"));
    fs::create_dir_all(&hardware).unwrap();
    fs::create_dir_all(tree.join("gearv")).unwrap();
    let gearv = tree.join("gearv");
    fs::write(gearv.join("control"), wide(&[CONTROL, REGION_SIZE as u64])).unwrap();
    fs::write(gearv.join("window"), wide(&[WINDOW, 0x10_0000])).unwrap();
    file(
        &hardware.join(format!("memory-{CONTROL:x}")),
        REGION_SIZE as u64,
        b"",
    );
    line(&hardware, WINDOW, 0);
    page(&hardware, DOORBELLS);
    file(&directory.join("hostile.disk"), 0x1_0000, b"own disk");
    let secret: &[u8] = b"secret of the honest guest";
    file(&directory.join("honest.disk"), 0x1_0000, secret);
    for (channel, vm, id, kind, backend) in devices(directory, neighbour) {
        let node = gearv.join(format!("device@{channel}"));
        fs::create_dir(&node).unwrap();
        let memory = RAM + RAM_SIZE * u64::from(id);
        let registers = id - 1;
        let place = channel as u32 * VIRTIO_STRIDE as u32;
        for (name, value) in [
            ("channel", cells(&[channel as u32])),
            ("vm", format!("{vm}\0").into_bytes()),
            ("vm-id", cells(&[id])),
            ("type", format!("{kind}\0").into_bytes()),
            ("backend", format!("{backend}\0").into_bytes()),
            ("guest-memory", wide(&[0x4000_0000, memory, RAM_SIZE])),
            ("register-page", cells(&[registers, place])),
        ] {
            fs::write(node.join(name), value).unwrap();
        }
        file(
            &hardware.join(format!("memory-{memory:x}")),
            RAM_SIZE,
            if vm == "honest" {
                secret
            } else {
                b"own memory"
            },
        );
        page(&hardware, REGISTERS + PAGE * u64::from(registers));
        page(
            &hardware,
            DOORBELLS + PAGE * u64::from(doorbell_page(registers)),
        );
        let (block, number) = line_of_channel(channel);
        line(&hardware, WINDOW + PAGE * block as u64, number);
    }
}

/// Makes a page of the window.
fn page(hardware: &Path, place: u64) {
    file(
        &hardware.join(format!("page-{:x}", WINDOW + place)),
        PAGE,
        b"",
    );
}

/// Makes a line, which never rises.
fn line(hardware: &Path, block: u64, number: u32) {
    let path = hardware.join(format!("line-{block:x}-{number}"));
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the kernel reads a string that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

impl Rig {
    fn start(options: &[&str]) -> Self {
        Self::beside("hostile", options)
    }

    fn beside(neighbour: &'static str, options: &[&str]) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gdm-processes-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        furnish(&directory, neighbour);
        let control = directory.join(format!("hardware/memory-{CONTROL:x}"));
        let control = File::options()
            .read(true)
            .write(true)
            .open(control)
            .unwrap();
        let region = Mapping::of_file(&control, 0, REGION_SIZE)
            .unwrap()
            .region()
            .unwrap();
        let header = &region.header;
        header.version.store(PROTOCOL_VERSION, Ordering::Relaxed);
        header.vcpu_count.store(32, Ordering::Relaxed);
        header.vm_count.store(3, Ordering::Relaxed);
        header.counter_hz.store(1_000_000_000, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        // Before GDM is started: a panic here would leave a process that nobody ends.
        let nameless = nameless();
        let log = File::create(directory.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdm_hostile"));
        command.arg("--run").arg(directory.join("run"));
        command
            .arg("--device-tree")
            .arg(directory.join("tree"))
            .args(options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Self {
            gdm: command.spawn().unwrap(),
            directory,
            region,
            _nameless: nameless,
            _alone: alone,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Waits until the log has a text, and returns the log.
    fn expect(&self, text: &str) -> String {
        self.wait(text, || self.log().contains(text));
        self.log()
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of the process of a VM, which has none for a moment after an end.
    fn process(&self, vm: u32) -> u32 {
        let mut found = 0;
        self.wait("a process", || {
            found = self.find(vm).unwrap_or(0);
            found != 0
        });
        found
    }

    fn find(&self, vm: u32) -> Option<u32> {
        let id = self.gdm.id();
        let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
        let children = tasks.flatten().flat_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let wanted = format!("--guest\0{vm}\0");
        let mut children = children.filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).ends_with(&wanted))
        });
        children.next()?.parse().ok()
    }

    /// Returns lines of a process's status that say what it may do.
    fn rights(&self, pid: u32) -> Vec<String> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let names = [
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "NoNewPrivs",
        ];
        let lines = status.lines().filter_map(|line| line.split_once(':'));
        let lines = lines.filter(|(name, _)| names.contains(name));
        lines
            .map(|(name, value)| format!("{name} {}", value.trim().replace('\t', " ")))
            .collect()
    }

    /// Has the honest guest's vCPU store to a register of its device; true if that is done.
    fn is_served(&self, channel: u32) -> bool {
        let Some(slot) = self.region.slot(2, 5) else {
            return false;
        };
        slot.device.store(channel, Ordering::Relaxed);
        slot.register.store(STATUS, Ordering::Relaxed);
        slot.access.store(STORE, Ordering::Relaxed);
        slot.value.store(0, Ordering::Relaxed);
        slot.set_state(slot::POSTED);
        self.wait("an answer", || slot.state() != slot::POSTED);
        slot.state() == slot::DONE
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.gdm.kill();
        let _ = self.gdm.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Tells whether a process has a file open.
fn has_open(process: u32, path: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = descriptors.into_iter().flatten().flatten();
    links.any(|link| fs::read_link(link.path()).is_ok_and(|to| to == path))
}

/// Gives GDM an order for a device, as `gearctl` does; the error is the sentence.
fn order(rig: &Rig, channel: u64, order: Order) -> Result<u64, String> {
    let run_directory = rig.directory.join("run");
    let mut client = Client::connect(run_directory.to_str().unwrap()).unwrap();
    let answer = client.order(channel, order);
    answer.map_err(|error| error.sentence)
}

/// Returns the order to put a file into a disk.
fn attach(path: &Path) -> Order {
    Order::Attach(path.to_str().unwrap().into())
}

/// Makes a nameless socket. Its name is one for the whole machine: another run of this test, of
/// another copy of the sources, may have the name, and gives it back at its end.
fn nameless() -> UnixListener {
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::os::unix::net::SocketAddr::from_abstract_name("gdm-hostile").unwrap();
    let start = Instant::now();
    loop {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(100));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// The honest guest has its process and its devices, whatever the hostile guest does.
fn is_untouched(rig: &Rig, process: u32) {
    assert_eq!(rig.process(2), process, "{}", rig.log());
    assert!(rig.is_served(1) && rig.is_served(2));
    let header = &rig.region.header;
    assert!(
        header.gdm_starts.load(Ordering::Relaxed) == 1,
        "gdm was started again"
    );
    // What the hostile guest stored in its own copies.
    assert_ne!(rig.region.control.op.load(Ordering::Relaxed), 0x666);
    assert_eq!(
        rig.region.slot(2, 1).unwrap().value.load(Ordering::Relaxed),
        0
    );
    let disk = fs::read(rig.directory.join("honest.disk")).unwrap();
    assert!(disk.starts_with(b"secret of the honest guest"));
}

#[test]
fn hostile_code_in_a_process_reaches_no_other_guest() {
    if !is_permitted() {
        return;
    }
    for (options, is_filtered) in [(&[][..], true), (&["--no-seccomp"][..], false)] {
        let rig = Rig::start(options);
        rig.expect("gdm: serves 4 devices");
        let honest = rig.process(2);
        assert!(rig.is_served(1) && rig.is_served(2));
        let log = rig.expect(&format!("hostile: made all of {ATTACKS} attacks"));
        println!("{log}");
        assert!(!log.contains("WENT THROUGH"), "{log}");
        let count = |text: &str| log.matches(text).count();
        assert_eq!(count("hostile: tries: "), ATTACKS);
        let (refused, killed) = (count("hostile: refused: "), count("signal: 31"));
        // The last attack ends the process by itself.
        assert_eq!(refused + killed, ATTACKS - 1, "{log}");
        assert_eq!(killed > 0, is_filtered, "{log}");
        assert!(!is_filtered || refused <= WITHOUT_CALLS, "{log}");
        // The rubbish is read alone, or before a heartbeat of the same process: the link is a stream.
        let ends = ["a message came in part", "no such message"];
        let ends = ends.map(|why| count(&format!("its process was ended: {why}")));
        assert_eq!(ends[0] + ends[1], 1, "{log}");
        is_untouched(&rig, honest);
    }
}

#[test]
fn a_process_has_what_is_its_guests_and_no_right() {
    if !is_permitted() {
        return;
    }
    let rig = Rig::start(&["--no-seccomp"]);
    rig.expect("gdm: serves 4 devices");
    assert!(rig.is_served(1) && rig.is_served(2));
    let process = rig.process(2);
    let four = ["60622"; 4].join(" ");
    let none = "0000000000000000";
    let expected = [
        format!("Uid {four}"),
        format!("Gid {four}"),
        "Groups ".to_owned(),
        format!("CapInh {none}"),
        format!("CapPrm {none}"),
        format!("CapEff {none}"),
        format!("CapBnd {none}"),
        "NoNewPrivs 1".to_owned(),
    ];
    assert_eq!(rig.rights(process), expected);
    for space in ["mnt", "net", "ipc", "uts"] {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{space}")).unwrap();
        let (own, others) = (of(&process.to_string()), of("self"));
        assert_ne!(own, others, "{space}");
        assert_ne!(own, of(&rig.process(1).to_string()), "{space}");
    }
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let slack = Path::new("/proc").join(thread.unwrap().file_name());
        let slack = fs::read_to_string(slack.join("timerslack_ns"));
        assert_eq!(slack.unwrap(), "1\n");
    }
    let root = fs::read_dir(format!("/proc/{process}/root")).unwrap();
    assert_eq!(root.count(), 0, "files");
    assert_eq!(mapped(process, &rig.directory), own_pages());
    let (own, others) = (events(process), events(rig.process(1)));
    assert!(
        !own.is_empty() && own.is_disjoint(&others),
        "{own:?} {others:?}"
    );
}

/// Returns the identities of the events that a process has.
fn events(process: u32) -> BTreeSet<String> {
    let infos = fs::read_dir(format!("/proc/{process}/fdinfo"));
    let texts = infos
        .into_iter()
        .flatten()
        .flatten()
        .map(|info| fs::read_to_string(info.path()).unwrap_or_default());
    let ids = texts.filter_map(|text| {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("eventfd-id:"));
        id.map(|id| id.trim().to_owned())
    });
    ids.collect()
}

/// Returns the parts of the rig's files that a process has mapped: name and offset.
fn mapped(process: u32, directory: &Path) -> BTreeSet<(String, u64)> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let hardware = directory.join("hardware");
    let lines = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (range, offset) = (words.next()?, words.nth(1)?);
        let path = Path::new(words.nth(2)?);
        let name = path.strip_prefix(&hardware).ok()?.to_str()?.to_owned();
        let (start, end) = range.split_once('-')?;
        let [start, end, offset] =
            [start, end, offset].map(|text| u64::from_str_radix(text, 16).unwrap());
        Some(
            (start..end)
                .step_by(PAGE as usize)
                .map(move |at| (name.clone(), offset + at - start)),
        )
    });
    lines
        .flatten()
        .filter(|(name, offset)| !name.starts_with("memory-2") || *offset == 0)
        .collect()
}

/// Returns what the process of VM 2 may map.
fn own_pages() -> BTreeSet<(String, u64)> {
    let region = format!("memory-{CONTROL:x}");
    let devices = [1, 2, 3].map(|channel| offset::DEVICES + channel * offset::DEVICE_SIZE);
    let slots = offset::MMIO + 2 * PAGE as usize;
    let shared = devices.into_iter().chain([slots]);
    let pages = [REGISTERS + PAGE, DOORBELLS + 2 * PAGE];
    let pages = pages.map(|place| (format!("page-{:x}", WINDOW + place), 0));
    let ram = (format!("memory-{:x}", RAM + 2 * RAM_SIZE), 0);
    let shared = shared.map(|at| (region.clone(), at as u64));
    shared.chain(pages).chain([ram]).collect()
}

#[test]
fn the_end_of_a_process_costs_its_guest_alone() {
    if !is_permitted() {
        return;
    }
    // A neighbour that keeps its process, in place of one whose process ends by each attack and is
    // started again a second later.
    let rig = Rig::beside("neighbour", &[]);
    rig.expect("gdm: serves 4 devices");
    assert!(rig.is_served(1) && rig.is_served(2));
    let (neighbour, honest) = (rig.process(1), rig.process(2));
    // SAFETY: no memory is involved.
    let signal = |pid: u32, signal| unsafe { libc::kill(pid as libc::pid_t, signal) };
    assert_eq!(signal(honest, libc::SIGKILL), 0);
    rig.expect("gdm: honest: its process ended with signal: 9");
    rig.wait("another process", || rig.process(2) != honest);
    assert!(rig.is_served(1) && rig.is_served(2));
    // A process that hangs as a whole is ended.
    let next = rig.process(2);
    assert_eq!(signal(next, libc::SIGSTOP), 0);
    // The heartbeat waits for the process, and comes back behind its end.
    let beats = || rig.region.header.gdm_beats.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs(4));
    let late = beats();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(beats(), late, "it beats beside a process that hangs");
    rig.expect("gdm: honest: its process was ended: it shows no sign of life");
    rig.wait("another process", || rig.process(2) != next);
    assert!(rig.is_served(1) && rig.is_served(2));
    rig.wait("a heartbeat", || beats() > late);
    let process = rig.process(2);
    rig.wait("the disk", || {
        has_open(process, &rig.directory.join("honest.disk"))
    });
    assert_eq!(rig.process(1), neighbour);
    assert_eq!(rig.region.header.gdm_starts.load(Ordering::Relaxed), 1);
    // No process outlives gdm.
    let last = [neighbour, rig.process(2)];
    let gdm = rig.gdm.id();
    assert_eq!(signal(gdm, libc::SIGKILL), 0);
    for pid in last {
        rig.wait("the end of a process", || {
            let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            status.is_empty() || status.contains(") Z ")
        });
    }
}

/// The process loses its disk and gets another one, under its filter and without a right to open
/// anything. The next process has the same.
#[test]
fn a_process_gets_another_medium() {
    if !is_permitted() {
        return;
    }
    let rig = Rig::start(&[]);
    rig.expect("gdm: serves 4 devices");
    let process = rig.process(2);
    let first = rig.directory.join("honest.disk");
    let other = rig.directory.join("other.disk");
    file(&other, 0x2000, b"other");
    let has = |process, path: &Path| has_open(process, path);
    rig.wait("the disk", || has(process, &first));
    // A machine that is busy may take longer than an order waits; the order is done all the same.
    let is_done = |answer: Result<u64, String>| {
        let is_late = |why: &String| why.contains("obeys when that answers");
        assert!(
            answer.is_ok() || answer.as_ref().is_err_and(is_late),
            "{answer:?}"
        );
    };
    is_done(order(&rig, 1, Order::Detach));
    rig.wait("no disk", || !has(process, &first));
    for (channel, what, sentence) in [
        (1, Order::Detach, "the disk has no medium"),
        (1, attach(Path::new("/nowhere")), "/nowhere: "),
        (2, Order::Detach, "only a disk"),
    ] {
        let error = order(&rig, channel, what).unwrap_err();
        assert!(error.starts_with(sentence), "{error}");
    }
    let hostile = rig.directory.join("hostile.disk");
    let error = order(&rig, 1, attach(&hostile)).unwrap_err();
    assert!(error.contains("is the disk of another guest"), "{error}");
    is_done(order(&rig, 1, attach(&other)));
    rig.wait("the other disk", || has(process, &other));
    assert!(rig.is_served(1) && rig.process(2) == process);
    // SAFETY: no memory is involved.
    let killed = unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
    assert_eq!(killed, 0);
    rig.wait("another process", || rig.process(2) != process);
    let next = rig.process(2);
    rig.wait("the other disk again", || has(next, &other));
    assert!(!has(next, &first));
    is_done(order(&rig, 1, attach(Path::new(""))));
    rig.wait("the first disk", || has(next, &first) && !has(next, &other));
    assert!(rig.is_served(1) && rig.process(2) == next);
}
