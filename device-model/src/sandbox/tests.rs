//! Tests of the filters: each call that a thread needs is allowed, and every other call ends GDM,
//! seen in child processes under the filter as GDM loads it.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use seccompiler::SeccompAction;

use super::{ACCOUNT, Role, enter, give_up_rights, program};
use crate::backend::block::Block;
use crate::board::DeviceKind;
use crate::testing::{DATA, Directory, Guest};
use crate::{hub, sys};

mod sockets;

const ROLES: [Role; 9] = [
    Role::Hub,
    Role::Guest,
    Role::Device,
    Role::FrontEnd,
    Role::Input,
    Role::Vsock,
    Role::Broker,
    Role::Sockets,
    Role::Screen,
];
/// Argument that is no valid address, descriptor or number for any call.
const NOTHING: i64 = -1;
/// Seconds after which a waiting child is ended; a refused call ends the child at once.
const PATIENCE: u32 = 60;

/// End of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Exit of the child: with 0 if its call came back.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

const REFUSED: End = End::Signal(libc::SIGSYS);
const WENT_THROUGH: End = End::Exit(0);

mod processes;

/// Returns whether this process runs only the test of this name; if not, starts one that does, and
/// sees it pass. A child that a test forks inherits all descriptors of its process: other tests
/// would wait for their ends.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "GDM_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("sandbox::tests::{name}")]);
    let output = command.env(ALONE, "yes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    false
}

/// Runs in a child process, and tells how that ended.
fn in_child(body: impl FnOnce()) -> End {
    // SAFETY: the child runs `body` and ends. It has this thread alone, and the process no
    // other that runs a test; the C library makes the allocator usable again.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(PATIENCE) };
        let done = catch_unwind(AssertUnwindSafe(body));
        give_up(if done.is_ok() { 0 } else { 101 });
    }
    let mut status = 0;
    // SAFETY: the kernel writes one `int`.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    }
}

/// Ends the child.
fn give_up(code: i32) -> ! {
    // SAFETY: ends the process without what the test's process has to do at its end.
    unsafe { libc::_exit(code) }
}

fn enter_or_give_up(role: Role) {
    if enter(role).is_err() {
        give_up(2);
    }
}

fn call(number: libc::c_long, arguments: [i64; 6]) {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the child that this is ends right afterwards, whatever the call did to its memory.
    unsafe { libc::syscall(number, a, b, c, d, e, f) };
}

/// Makes a system call under a role's filter.
fn ends(role: Role, number: libc::c_long, arguments: &[i64]) -> End {
    let mut all = [NOTHING; 6];
    for (to, from) in all.iter_mut().zip(arguments) {
        *to = *from;
    }
    in_child(|| {
        enter_or_give_up(role);
        call(number, all);
    })
}

/// Calls that each thread may make with any arguments. The list repeats the filters' on purpose: a
/// call added there by mistake must not appear here.
const ALL_ROLES: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];
const THOSE_WITH_SOCKETS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];
const FRONT_ENDS: &[libc::c_long] = &[libc::SYS_recvmsg, libc::SYS_sendmsg];
const BROKERS: &[libc::c_long] = &[libc::SYS_connect, libc::SYS_recvfrom, libc::SYS_sendmsg];
const THOSE_THAT_WAIT: &[libc::c_long] = &[
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];
const DEVICES: &[libc::c_long] = &[
    libc::SYS_epoll_pwait2,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_getrandom,
    libc::SYS_io_uring_enter,
    libc::SYS_lseek,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_readv,
];
/// `clone` is limited by its flags, of which [`NOTHING`] has all.
const THOSE_THAT_MAKE: &[libc::c_long] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_pipe2,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_socketpair,
    libc::SYS_statx,
];
/// Calls of the kernel's own probes (`uretprobe`, `uprobe`), past all filters; others' end a program.
const PROBES: &[libc::c_long] = match cfg!(target_arch = "x86_64") {
    true => &[335, 336],
    false => &[],
};
/// Calls are numbered up to less than this.
const LAST: libc::c_long = 480;

fn is_allowed(role: Role, number: libc::c_long) -> bool {
    let others: &[&[libc::c_long]] = match role {
        Role::Hub => &[],
        Role::Guest => &[
            THOSE_WITH_SOCKETS,
            THOSE_THAT_WAIT,
            DEVICES,
            FRONT_ENDS,
            THOSE_THAT_MAKE,
        ],
        Role::Sockets => &[THOSE_WITH_SOCKETS],
        Role::Device => &[THOSE_WITH_SOCKETS, THOSE_THAT_WAIT, DEVICES],
        Role::FrontEnd => &[THOSE_THAT_WAIT, FRONT_ENDS],
        Role::Screen => &[&[libc::SYS_pwrite64]],
        Role::Input => &[THOSE_WITH_SOCKETS, THOSE_THAT_WAIT],
        Role::Vsock => &[THOSE_WITH_SOCKETS, THOSE_THAT_WAIT, &[libc::SYS_recvmsg]],
        Role::Broker => &[BROKERS],
    };
    ALL_ROLES.contains(&number) || others.iter().any(|calls| calls.contains(&number))
}

/// Whatever is limited by its arguments is refused with those that are nothing.
#[test]
fn every_call_that_a_role_does_not_need_ends_gdm() {
    if !is_alone("every_call_that_a_role_does_not_need_ends_gdm") {
        return;
    }
    for role in ROLES {
        let through: Vec<libc::c_long> = (0..=LAST)
            .filter(|number| !is_allowed(role, *number) && !PROBES.contains(number))
            .filter(|number| ends(role, *number, &[]) != REFUSED)
            .collect();
        assert!(
            through.is_empty(),
            "{role:?} may make the calls {through:?}"
        );
    }
}

#[test]
fn memory_is_never_executable_and_of_no_file() {
    if !is_alone("memory_is_never_executable_and_of_no_file") {
        return;
    }
    let (read, write, code) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    let (private, shared, anonymous) = (libc::MAP_PRIVATE, libc::MAP_SHARED, libc::MAP_ANONYMOUS);
    let page = vec![0_u8; 0x2000];
    let page = (page.as_ptr().addr() as i64 + 0xfff) & !0xfff;
    for role in ROLES {
        let map = |protection: i32, flags: i32| {
            ends(
                role,
                libc::SYS_mmap,
                &[0, 4096, protection.into(), flags.into(), -1, 0],
            )
        };
        assert_eq!(map(read | write, private | anonymous), WENT_THROUGH);
        for protection in [code, read | code, write | code, read | write | code] {
            assert_eq!(map(protection, private | anonymous), REFUSED, "{role:?}");
        }
        // Backends are made under the filter of the process: of a ring that the kernel offers.
        if role != Role::Guest {
            assert_eq!(map(read | write, private), REFUSED, "{role:?} maps a file");
            assert_eq!(map(read | write, shared), REFUSED, "{role:?} maps a device");
        }
        let protect =
            |protection: i32| ends(role, libc::SYS_mprotect, &[page, 4096, protection.into()]);
        assert_eq!(protect(read | write), WENT_THROUGH);
        for protection in [code, read | code, read | write | code] {
            assert_eq!(protect(protection), REFUSED, "{role:?}");
        }
    }
}

#[test]
fn requests_of_devices_are_limited_by_number() {
    if !is_alone("requests_of_devices_are_limited_by_number") {
        return;
    }
    // Non-blocking, discard, zero, offloads, queues.
    let (sockets, devices) = ([0x5421], [0x1277, 0x127f, 0x4004_54d0, 0x4004_54d9]);
    // Of a block device: the size of its blocks. Of an input device: its types of events, its name,
    // an axis.
    let making = [0x1268, 0x8004_4520, 0x8100_4506, 0x8018_4540];
    // Of a terminal: input in its reader's name. Of a block device: its size. Of a tap: its name. Of
    // an input device: a grab, an axis.
    let others = [0x5412, 0x1272, 0x400_454ca, 0x4004_4590, 0x4018_45c0];
    for role in ROLES {
        let of = |request: i64| ends(role, libc::SYS_ioctl, &[NOTHING, request, 0]);
        let expect = |allowed| if allowed { WENT_THROUGH } else { REFUSED };
        for request in sockets {
            assert_eq!(
                of(request),
                expect(matches!(
                    role,
                    Role::Device | Role::Sockets | Role::Input | Role::Vsock | Role::Guest
                )),
                "{role:?} {request:#x}"
            );
        }
        for request in devices {
            assert_eq!(
                of(request),
                expect(matches!(role, Role::Device | Role::Guest)),
                "{role:?} {request:#x}"
            );
        }
        for request in making {
            assert_eq!(of(request), expect(role == Role::Guest), "{role:?}");
        }
        for request in others {
            assert_eq!(of(request), REFUSED, "{role:?} {request:#x}");
        }
    }
}

/// The front end learns by a seal whether a backend that is lost has left its memory.
#[test]
fn memory_is_sealed_by_front_ends_alone() {
    if !is_alone("memory_is_sealed_by_front_ends_alone") {
        return;
    }
    for role in ROLES {
        let end = ends(role, libc::SYS_fcntl, &[NOTHING, libc::F_ADD_SEALS.into()]);
        let expected = match role {
            Role::FrontEnd | Role::Guest => WENT_THROUGH,
            _ => REFUSED,
        };
        assert_eq!(end, expected, "{role:?}");
    }
}

#[test]
fn a_call_of_another_architecture_is_refused() {
    if !is_alone("a_call_of_another_architecture_is_refused") {
        return;
    }
    // Bit 30 is the x32 ABI of x86-64.
    for number in [0x4000_0000 | libc::SYS_read, 9_999, i64::from(u32::MAX)] {
        assert_eq!(ends(Role::Device, number, &[]), REFUSED, "{number:#x}");
    }
}

#[test]
fn one_thread_that_breaks_out_ends_the_whole_process() {
    if !is_alone("one_thread_that_breaks_out_ends_the_whole_process") {
        return;
    }
    let end = in_child(|| {
        let thread = std::thread::spawn(|| {
            enter_or_give_up(Role::Device);
            call(libc::SYS_getppid, [0; 6]);
        });
        let _ = thread.join();
    });
    assert_eq!(end, REFUSED);
}

/// Makes the kernel refuse filters to this thread from here on, as one without seccomp does.
fn refuse_filters() {
    let rules = [(libc::SYS_seccomp, Vec::new())].into_iter().collect();
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = seccompiler::SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let filter: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&filter).unwrap();
}

#[test]
fn a_filter_that_does_not_load_is_an_error() {
    if !is_alone("a_filter_that_does_not_load_is_an_error") {
        return;
    }
    let end = in_child(|| {
        refuse_filters();
        match enter(Role::Device) {
            Ok(()) => give_up(3),
            Err(error) => assert!(error.to_string().starts_with("no seccomp filter: ")),
        }
    });
    assert_eq!(end, WENT_THROUGH);
}

#[test]
fn gdm_does_not_start_unfiltered_unless_it_is_told_to() {
    if !is_alone("gdm_does_not_start_unfiltered_unless_it_is_told_to") {
        return;
    }
    // Without the filter no thread serves a guest.
    let threads_end = in_child(|| {
        refuse_filters();
        hub::enter(true, Role::Device);
    });
    assert_eq!(threads_end, End::Exit(1));
    let refused = in_child(|| {
        refuse_filters();
        let told = hub::try_restrictions(true).is_err_and(|error| !error.is_empty());
        give_up(i32::from(!told));
    });
    assert_eq!(refused, WENT_THROUGH, "it starts");
    let by_option = in_child(|| {
        refuse_filters();
        // A user that is not root has no rights to drop, and gets an error that says so.
        let told = hub::try_restrictions(false);
        let is_root = rights()["Uid"].starts_with("0 ");
        give_up(i32::from(told.is_ok() != is_root));
    });
    assert_eq!(by_option, WENT_THROUGH, "--no-seccomp does not go without");
}

/// Returns user and capabilities of the calling thread.
fn rights() -> BTreeMap<String, String> {
    const NAMES: [&str; 8] = [
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapAmb",
        "NoNewPrivs",
    ];
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| NAMES.contains(name))
        .map(|(name, value)| (name.to_owned(), value.trim().replace('\t', " ")))
        .collect()
}

#[test]
fn a_thread_gives_up_user_groups_and_capabilities_for_itself_alone() {
    let before = rights();
    let directory = Directory::new("rights");
    let secret = directory.file("secret", b"of root");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let (given_up, after, opened) = std::thread::scope(|scope| {
        let body = || {
            (
                give_up_rights(Role::Device),
                rights(),
                File::open(&secret).is_ok(),
            )
        };
        scope.spawn(body).join().unwrap()
    });
    assert_eq!(rights(), before, "another thread lost its rights");
    if !before["Uid"].starts_with("0 ") {
        let error = given_up.unwrap_err().to_string();
        assert!(error.starts_with("cannot become user 60578"), "{error}");
        return;
    }
    given_up.unwrap();
    let four = [ACCOUNT.to_string().as_str(); 4].join(" ");
    let none = "0000000000000000";
    let expected = [
        ("Uid", four.as_str()),
        ("Gid", &four),
        ("Groups", ""),
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapAmb", none),
        ("NoNewPrivs", "1"),
    ];
    assert_eq!(
        after,
        expected
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    );
    assert!(!opened, "a file of root's alone was opened");
}

/// Runs in a thread whose calls that the filter does not know fail.
fn inside<T: Send>(role: Role, body: impl FnOnce() -> T + Send) -> T {
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let body = || {
        let filter = program(role, sys::own_ids(), refuse).unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        body()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn a_device_reads_writes_and_allocates() {
    let directory = Directory::new("sandbox");
    let path = directory.file("disk", &[1; 4096]);
    let file = File::options().read(true).write(true).open(path).unwrap();
    inside(Role::Device, || {
        file.write_all_at(&[2; 16], 100).unwrap();
        file.sync_data().unwrap();
        crate::sys::allocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 8192).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(crate::sys::random(&mut bytes), 16);
        assert_eq!(vec![7_u8; 1 << 22].len(), 1 << 22);
        std::thread::yield_now();
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
}

/// The filter is active as GDM loads it: a refused call would end this process.
#[test]
fn a_disk_that_arrives_late_is_served_by_a_thread_that_is_restricted() {
    if !is_alone("a_disk_that_arrives_late_is_served_by_a_thread_that_is_restricted") {
        return;
    }
    const STATUS: u64 = DATA + 0x800;
    let directory = Directory::new("sandbox");
    let path = directory.file("disk", &[7; 0x1_0000]);
    let open = || Box::new(Block::open(&path, false).unwrap());
    let mut guest = Guest::new(open());
    guest.initialise(0, 1);
    guest.kill_gdm();
    let arrival = guest.start_gdm_without(DeviceKind::Block);
    let disk = open();
    let served = std::thread::spawn(move || {
        enter(Role::Device).unwrap();
        // Read, write, zero; the range of the last one is eight sectors.
        for (kind, sector) in [(0_u64, 1_u64), (1, 2), (13, 0)] {
            let at = DATA + 0x100 * kind;
            let header = [kind.to_le_bytes(), sector.to_le_bytes()].concat();
            guest.put(at, &header);
            let data = match kind {
                0 => (DATA + 0x1000, 4096, true),
                1 => (DATA + 0x2000, 4096, false),
                _ => {
                    let range = [0_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
                    guest.put(DATA + 0x3000, &range);
                    (DATA + 0x3000, 16, false)
                }
            };
            let head = 4 * guest.rings[0].added;
            let status = (STATUS + kind, 1, true);
            guest.put(status.0, &[0xff]);
            guest.request(0, head, &[(at, 16, false), data, status]);
        }
        guest.work();
        assert_eq!(guest.used_index(0), 0, "without its disk");
        assert!(arrival.send(disk).is_ok());
        guest.work();
        (
            guest.used_index(0),
            [0, 1, 13].map(|kind| guest.get(STATUS + kind, 1)[0]),
        )
    });
    assert_eq!(served.join().unwrap(), (3, [0; 3]));
}

#[test]
fn a_device_moves_several_pieces_at_once() {
    let Ok(mut overlap) = crate::overlap::Overlap::new() else {
        return;
    };
    let directory = Directory::new("sandbox");
    let file = File::open(directory.file("disk", &[1; 4096])).unwrap();
    let moved = inside(Role::Device, || {
        let transfer = || crate::overlap::Transfer {
            file: &file,
            direction: crate::sys::Direction::Read,
            vectors: &[],
            offset: 0,
        };
        overlap.begin(0, &transfer()).unwrap();
        overlap.begin(1, &transfer()).unwrap();
        overlap.begin_sync(2, &file).unwrap();
        let mut ended = overlap.ended(std::time::Duration::from_millis(1));
        ended.extend(overlap.settle());
        let moved = ended.into_iter().map(|(_, moved)| moved.unwrap());
        moved.collect::<Vec<u64>>()
    });
    assert_eq!(moved, [0; 3]);
}

#[test]
fn sockets_are_accepted_and_used() {
    let directory = Directory::new("sandbox");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"a").unwrap();
    inside(Role::Sockets, || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"a");
}
