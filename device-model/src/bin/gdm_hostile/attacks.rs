//! Code of a guest that has subverted the process of its devices, and reaches for what is not the
//! guest's.
//!
//! Each attack says by what it was refused, or that it went through. Under seccomp an attack ends
//! the process instead, and the next process goes on with the next attack: the count is in the
//! device's page, which outlives the process.

use std::ffi::CString;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use device_model::board::DeviceNode;
use device_model::options::Options;
use device_model::state::{DeviceState, Word};
use gear2_protocol::{Region, slot};

/// Count the attacks, with the filter of system calls and without. Nothing else counts there until
/// the device is served, and an honest driver counts nothing there.
const COUNTS: [Word; 2] = [Word::Breaks, Word::Errors];
/// Bytes of the honest guest's memory and disk.
const SECRET: &[u8] = b"secret of the honest guest";
/// Processes around the one that attacks: GDM, and those of other guests.
const NEIGHBOURS: libc::pid_t = 40;
/// Descriptors that are looked at.
const DESCRIPTORS: RawFd = 1024;
/// Key of a System V object that the test makes.
const KEY: libc::key_t = 0x6764_6d31;

/// Directory of GDM's sockets, and where the attacks are counted.
static AIM: OnceLock<(String, Word)> = OnceLock::new();

/// Result of an attack: how it was refused, or `None` if it went through.
type Refusal = Option<String>;

/// An attack, and its name.
type Attack = (&'static str, fn(&DeviceNode, &'static Region) -> Refusal);

/// Each is tried once in the process of the hostile guest, after its filter is on.
const ATTACKS: &[Attack] = &[
    ("opens disks, devices and /proc by path", |_, _| {
        open_paths()
    }),
    ("makes a device of its own", |_, _| make_device()),
    ("mounts", |_, _| mount()),
    ("traces other processes", |_, _| neighbours(trace)),
    ("reads memory of other processes", |_, _| {
        neighbours(|pid| peek(pid, libc::SYS_process_vm_readv))
    }),
    ("writes memory of other processes", |_, _| {
        neighbours(|pid| peek(pid, libc::SYS_process_vm_writev))
    }),
    ("signals other processes", |_, _| {
        neighbours(|pid| call(libc::SYS_kill, [pid, 0, 0, 0]))
    }),
    ("takes descriptors of other processes", |_, _| {
        neighbours(take_descriptor)
    }),
    ("limits other processes", |_, _| neighbours(limit)),
    ("slows other processes down", |_, _| {
        neighbours(|pid| call(libc::SYS_setpriority, [0, pid, 19, 0]))
    }),
    ("counts events of other processes", |_, _| {
        neighbours(count_events)
    }),
    ("connects to the sockets of gdm", |_, _| {
        connect_path("control")
    }),
    ("types on the keyboard of another guest", |_, _| {
        connect_path("honest.input")
    }),
    ("connects to a nameless socket", |_, _| connect_abstract()),
    ("reaches a network", |_, _| reach_network()),
    ("makes frames of its own", |_, _| raw_socket()),
    ("takes objects of System V", |_, _| {
        call_one(libc::SYS_shmget, [KEY.into(), 4096, 0o600, 0])
    }),
    ("becomes root", |_, _| call_one(libc::SYS_setresuid, [0; 4])),
    ("joins the group of root", |_, _| {
        call_one(libc::SYS_setresgid, [0; 4])
    }),
    ("becomes the user of another guest", |_, _| {
        become_neighbour()
    }),
    ("takes capabilities", |_, _| take_capabilities()),
    ("makes a user namespace", |_, _| make_user_namespace()),
    ("leaves its root", |_, _| leave_root()),
    ("loads a program into the kernel", |_, _| load_program()),
    ("finds descriptors of others", |_, _| inherited()),
    ("finds words of others in the shared region", others_words),
    ("has another guest's device woken", wake_other),
    ("sends rubbish to gdm", |_, _| send_rubbish()),
];

/// Says where GDM's sockets are, and whether there is a filter.
pub(crate) fn aim(options: &Options) {
    let [filtered, free] = COUNTS;
    let count = if options.sandbox { filtered } else { free };
    let _ = AIM.set((options.run_directory.clone(), count));
}

/// Returns the directory of GDM's sockets.
fn run_directory() -> &'static str {
    AIM.get().map_or("", |(run, _)| run.as_str())
}

/// Makes the attacks, if the device is the hostile guest's.
pub(crate) fn run(node: &DeviceNode, region: &'static Region) {
    if node.vm != "hostile" || node.kind.name() != "block" {
        return;
    }
    let Some(page) = region.devices.get(node.channel) else {
        return;
    };
    let (state, count) = (DeviceState::new(page), AIM.get().map(|(_, count)| *count));
    let count = count.unwrap_or(Word::Breaks);
    while let Some((name, attack)) = ATTACKS.get(state.get(count) as usize) {
        state.set(count, state.get(count) + 1);
        eprintln!("hostile: tries: {name}");
        match attack(node, region) {
            Some(refusal) => eprintln!("hostile: refused: {name}: {refusal}"),
            None => eprintln!("hostile: WENT THROUGH: {name}"),
        }
    }
    eprintln!("hostile: made all of {} attacks", ATTACKS.len());
}

/// Returns the error of a call that must fail.
fn refusal(value: i64) -> Refusal {
    (value < 0).then(|| io::Error::last_os_error().to_string())
}

/// Makes a system call.
fn call(number: libc::c_long, arguments: [i64; 4]) -> i64 {
    let [a, b, c, d] = arguments;
    // SAFETY: no argument is an address of this process that the call could write to.
    unsafe { libc::syscall(number, a, b, c, d) }
}

/// Makes a system call that must be refused.
fn call_one(number: libc::c_long, arguments: [i64; 4]) -> Refusal {
    refusal(call(number, arguments))
}

/// Attacks GDM and the processes around: refused if each is.
fn neighbours(attack: impl Fn(i64) -> i64) -> Refusal {
    // SAFETY: no memory is involved.
    let gdm = unsafe { libc::getppid() };
    // SAFETY: as above.
    let own = unsafe { libc::getpid() };
    // SAFETY: no memory is involved; nothing is signalled.
    let is_own = |pid: &libc::pid_t| unsafe { libc::syscall(libc::SYS_tgkill, own, *pid, 0) } == 0;
    let others = (gdm..gdm + NEIGHBOURS).filter(|pid| *pid != own && !is_own(pid));
    let mut said = None;
    for pid in others {
        let value = attack(pid.into());
        let error = io::Error::last_os_error();
        // A bad address was looked at, so the process was within reach.
        if value >= 0 || error.raw_os_error() == Some(libc::EFAULT) {
            eprintln!("hostile: reaches process {pid}");
            return None;
        }
        // The first is GDM itself, which exists.
        said.get_or_insert(error.to_string());
    }
    said
}

/// Attaches to a process as a debugger does, without stopping it.
fn trace(pid: i64) -> i64 {
    call(libc::SYS_ptrace, [libc::PTRACE_SEIZE.into(), pid, 0, 0])
}

/// Moves bytes from or to an address that no process has.
fn peek(pid: i64, number: libc::c_long) -> i64 {
    let mut bytes = [0_u8; 8];
    let own = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let other = libc::iovec {
        iov_base: ptr::without_provenance_mut(0x1000),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes into `bytes` at most.
    unsafe {
        libc::syscall(
            number,
            pid,
            &raw const own,
            1_i64,
            &raw const other,
            1_i64,
            0_i64,
        )
    }
}

/// Copies descriptor 3 of another process: the first behind the standard ones, which any has.
fn take_descriptor(pid: i64) -> i64 {
    let process = call(libc::SYS_pidfd_open, [pid, 0, 0, 0]);
    if process < 0 {
        return process;
    }
    call(libc::SYS_pidfd_getfd, [process, 3, 0, 0])
}

/// Takes all memory from another process by its limit of address space.
fn limit(pid: i64) -> i64 {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let nothing: *mut libc::rlimit = ptr::null_mut();
    let what = libc::RLIMIT_AS;
    // SAFETY: the kernel reads one `rlimit`.
    unsafe { libc::syscall(libc::SYS_prlimit64, pid, what, &raw const none, nothing) }
}

/// Counts the CPU time of another process, from which what it does can be told.
fn count_events(pid: i64) -> i64 {
    // `struct perf_event_attr`: type 1 (software), its size, the CPU clock.
    let mut attributes = [0_u32; 32];
    attributes[..2].copy_from_slice(&[1, size_of::<[u32; 32]>() as u32]);
    // SAFETY: the kernel reads the attributes.
    unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            pid,
            -1,
            -1,
            0,
        )
    }
}

/// Returns a path as the kernel reads it.
fn text(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

/// Opens what a process without a root of its own could reach: disks, memory, GDM's sockets.
fn open_paths() -> Refusal {
    let run = run_directory();
    let mut said = None;
    for path in [
        &format!("{run}/../honest.disk"),
        &format!("{run}/control"),
        &format!("{run}/gdm.lock"),
        "/dev/mem",
        "/dev/vda",
        "/dev/dax0.0",
        "/proc/self/mem",
        "/proc/1/environ",
        "/sys/kernel",
        "/etc/passwd",
        "/..",
        "/init",
    ] {
        let path = text(path);
        // SAFETY: the kernel reads a string that ends with a zero.
        let opened = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) };
        // The folder above the root is the root, which is empty.
        let is_root = path.to_bytes() == b"/..";
        if opened >= 0 && !(is_root && is_empty(opened)) {
            eprintln!("hostile: opens {path:?}");
            return None;
        }
        if opened < 0 {
            said = Some(io::Error::last_os_error().to_string());
        } else {
            // SAFETY: nobody else knows the descriptor.
            unsafe { libc::close(opened) };
        }
    }
    said
}

/// Tells whether a folder has no file.
fn is_empty(folder: RawFd) -> bool {
    let mut entries = [0_u8; 1024];
    let room = entries.len();
    // SAFETY: the kernel writes into `entries`.
    let length = unsafe { libc::syscall(libc::SYS_getdents64, folder, entries.as_mut_ptr(), room) };
    // Its own entry and the one above have 24 bytes each.
    length <= 48
}

/// Makes the node of `/dev/mem`, device 1:1, in the root that the process has.
fn make_device() -> Refusal {
    let path = text("/mem");
    // SAFETY: the kernel reads a string that ends with a zero.
    refusal(
        unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 1)) }.into(),
    )
}

/// Mounts procfs, by which all processes can be reached.
fn mount() -> Refusal {
    let (kind, place) = (text("proc"), text("/"));
    // SAFETY: the kernel reads strings that end with a zero.
    let done = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
    refusal(done.into())
}

/// Connects to a unix socket of these bytes.
fn connect(name: &[u8]) -> Refusal {
    // SAFETY: no memory is involved.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
    // SAFETY: all fields are numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + name.len();
    // SAFETY: the kernel reads the address.
    let done = unsafe { libc::connect(socket, (&raw const address).cast(), length as u32) };
    refusal(done.into())
}

/// Connects to a socket of GDM's, which would obey.
fn connect_path(name: &str) -> Refusal {
    let run = run_directory();
    connect(format!("{run}/{name}").as_bytes())
}

/// Connects to a socket without a file, which a folder for the root does not keep away.
fn connect_abstract() -> Refusal {
    connect(b"\0gdm-hostile")
}

/// Connects to this machine and to a neighbour. That a port is closed would say that there is a
/// network.
fn reach_network() -> Refusal {
    let mut said = None;
    for address in [[127, 0, 0, 1], [10, 0, 2, 100]] {
        // SAFETY: no memory is involved.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 7_u16.to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(address),
            },
            sin_zero: [0; 8],
        };
        let length = size_of::<libc::sockaddr_in>() as u32;
        // SAFETY: the kernel reads the address.
        let done = unsafe { libc::connect(socket, (&raw const address).cast(), length) };
        let error = io::Error::last_os_error();
        if done >= 0 || error.raw_os_error() == Some(libc::ECONNREFUSED) {
            return None;
        }
        said = Some(error.to_string());
    }
    said
}

/// Makes a socket that sees all frames of the network, 0x300 is ETH_P_ALL in network order.
fn raw_socket() -> Refusal {
    // SAFETY: no memory is involved.
    refusal(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0x300) }.into())
}

/// Takes all capabilities back.
fn take_capabilities() -> Refusal {
    // `_LINUX_CAPABILITY_VERSION_3`, this thread; all capabilities.
    let (mut header, sets) = ([0x2008_0522_u32, 0], [u32::MAX; 6]);
    // SAFETY: the kernel reads a header of two words and sets of six.
    refusal(unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) })
}

/// Becomes the user of the next guest's process.
fn become_neighbour() -> Refusal {
    // SAFETY: no memory is involved.
    let next = i64::from(unsafe { libc::getuid() }) + 1;
    call_one(libc::SYS_setresuid, [next; 4])
}

/// Makes a user namespace, in which a process has all capabilities. A process with threads can make
/// none: a new one tries.
fn make_user_namespace() -> Refusal {
    // SAFETY: the child makes system calls and nothing else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is involved.
        let done = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if done == 0 { 0 } else { error }) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one `int`.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let error = libc::WEXITSTATUS(status);
    (error != 0).then(|| io::Error::from_raw_os_error(error).to_string())
}

/// Changes the root once more, which is how a process with rights leaves one.
fn leave_root() -> Refusal {
    let place = text("/");
    // SAFETY: the kernel reads a string that ends with a zero.
    refusal(unsafe { libc::chroot(place.as_ptr()) }.into())
}

/// Loads a program into the kernel.
fn load_program() -> Refusal {
    // BPF_PROG_LOAD with nothing in it.
    let attributes = [0_u8; 128];
    // SAFETY: the kernel reads the attributes.
    refusal(unsafe { libc::syscall(libc::SYS_bpf, 5, attributes.as_ptr(), attributes.len()) })
}

/// Looks at each descriptor that the process has: none leads to a folder, or to the honest guest's
/// disk or memory.
fn inherited() -> Refusal {
    let mut own = Vec::new();
    for descriptor in 0..DESCRIPTORS {
        // SAFETY: all fields are numbers.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `stat`.
        if unsafe { libc::fstat(descriptor, &raw mut found) } != 0 {
            continue;
        }
        let kind = match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => return None,
            libc::S_IFREG => "file",
            libc::S_IFSOCK => "socket",
            libc::S_IFIFO => "pipe",
            libc::S_IFBLK => "disk",
            libc::S_IFCHR => "device",
            _ => "event",
        };
        if shows_secret(descriptor) {
            return None;
        }
        own.push(format!("{descriptor} {kind}"));
    }
    Some(format!("all are its own: {}", own.join(", ")))
}

/// Tells whether a descriptor has the honest guest's secret, read or mapped.
fn shows_secret(descriptor: RawFd) -> bool {
    let mut bytes = vec![0_u8; SECRET.len()];
    // SAFETY: the kernel writes into `bytes`.
    unsafe { libc::pread(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if bytes == SECRET {
        return true;
    }
    let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: no mapping is replaced.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4096, read, shared, descriptor, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // The kernel copies: a page behind the end of a file is an error there, and a signal here.
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    unsafe { libc::pipe(ends.as_mut_ptr()) };
    let [from, to] = ends;
    // SAFETY: the page is mapped, and the kernel judges whether it can be read.
    unsafe { libc::write(to, page, bytes.len()) };
    // SAFETY: the kernel writes into `bytes`.
    let got = match unsafe { libc::fcntl(from, libc::F_SETFL, libc::O_NONBLOCK) } {
        // SAFETY: as above.
        0 => unsafe { libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()) },
        _ => 0,
    };
    for end in ends {
        // SAFETY: nobody else knows the descriptor.
        unsafe { libc::close(end) };
    }
    got > 0 && bytes == SECRET
}

/// Looks for words that GDM, Gear2 or other guests have stored in the region.
fn others_words(node: &DeviceNode, region: &'static Region) -> Refusal {
    let control = &region.control;
    let devices = region.devices.iter().enumerate();
    let others = devices.filter(|(channel, _)| *channel != node.channel);
    let words = others
        .flat_map(|(_, page)| page)
        .map(|word| word.load(Ordering::Relaxed));
    let slots = region
        .slots
        .iter()
        .enumerate()
        .filter(|(vm, _)| *vm != node.vm_id);
    let states = slots
        .flat_map(|(_, page)| page.iter())
        .map(|slot| slot.state());
    let consoles = region
        .consoles
        .iter()
        .map(|block| block.ring.output_written.load(Ordering::Relaxed));
    let found = u64::from(region.header.gdm_beats.load(Ordering::Relaxed))
        + u64::from(control.asked.load(Ordering::Relaxed))
        + words.filter(|word| *word != 0).count() as u64
        + states.filter(|state| *state != slot::IDLE).count() as u64
        + consoles.map(u64::from).sum::<u64>();
    // What is stored there reaches nobody; the test looks.
    control.op.store(0x666, Ordering::Relaxed);
    region.header.gdm_starts.store(0x666, Ordering::Relaxed);
    for page in region
        .slots
        .iter()
        .enumerate()
        .filter(|(vm, _)| *vm != node.vm_id)
    {
        page.1[1].value.store(0x666, Ordering::Relaxed);
    }
    (found == 0).then(|| "all but its own pages are zeroes".to_owned())
}

/// Posts an access to another guest's device in a slot of its own, by which GDM would wake that
/// device's thread.
fn wake_other(node: &DeviceNode, region: &'static Region) -> Refusal {
    let own = region.slot(node.vm_id, 31)?;
    let other = node.channel + 1;
    own.device.store(other as u32, Ordering::Relaxed);
    own.set_state(slot::POSTED);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if own.state() == slot::ABORT {
            return Some("gdm refuses the access".to_owned());
        }
    }
    None
}

/// Sends what is no message: GDM ends the process for it.
fn send_rubbish() -> Refusal {
    // SAFETY: the kernel reads three bytes.
    unsafe { libc::write(0, [1_u8, 2, 3].as_ptr().cast(), 3) };
    std::thread::sleep(std::time::Duration::from_secs(20));
    None
}
