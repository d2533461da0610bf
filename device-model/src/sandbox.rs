//! Rights that a thread or a process gives up: user, capabilities, namespaces, system calls.
//!
//! A thread that a guest has subverted must not open files, make processes, end others or change
//! mappings of devices; any call outside the list ends the process. The thread runs as a user that
//! owns nothing, without capabilities: all descriptors are open by then. The process of a guest has
//! a user of its own, and sees no file, network or process of others. Each of these layers holds
//! without the others.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::sys::{self, confine};

#[cfg(test)]
mod tests;

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Wakes the others.
    Hub,
    /// Every thread of a guest's process, from before the first device is served on. The filter of
    /// the thread's own role comes on top.
    Guest,
    /// Serves a device.
    Device,
    /// Serves a device whose function is another program.
    FrontEnd,
    /// Serves an input device.
    Input,
    /// Serves a guest's sockets, which the broker connects.
    Vsock,
    /// Connects to sockets at the word of the thread that serves a guest's.
    Broker,
    /// Serves sockets.
    Sockets,
    /// Keeps the frames of a guest's screen.
    Screen,
}

/// Memory, locks, time, the end of a thread or of GDM.
const COMMON: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_futex,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    // planted: a thread may open files
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Connections to sockets that are there: no socket can be made or connected.
const SOCKETS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];

/// Messages with descriptors, to and from another program.
const MESSAGES: &[libc::c_long] = &[libc::SYS_sendmsg, libc::SYS_recvmsg];

/// Stores to a file that is open; what is read from a socket comes by `read`, without descriptors.
const FRAMES: &[libc::c_long] = &[libc::SYS_pwrite64];

/// Descriptors from the broker. The thread cannot send any.
const DESCRIPTORS: &[libc::c_long] = &[libc::SYS_recvmsg];

/// Connections to sockets of the device VM, for the thread that may make none.
const CONNECTING: &[libc::c_long] = &[libc::SYS_connect, libc::SYS_recvfrom, libc::SYS_sendmsg];

/// Waiting for several descriptors.
const WAITING: &[libc::c_long] = &[
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_ctl,
];

/// Transfers on descriptors that are open. `io_uring_enter` submits what the ring's
/// restrictions let through (see [`Overlap`](crate::overlap::Overlap)).
const DEVICE: &[libc::c_long] = &[
    // A network card alone sleeps for less than a millisecond.
    libc::SYS_epoll_pwait2,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_pwrite64,
    libc::SYS_fdatasync,
    libc::SYS_lseek,
    libc::SYS_io_uring_enter,
    libc::SYS_fallocate,
    libc::SYS_getrandom,
];

/// Threads, and what backends are made of: all descriptors are there, or of the process's own
/// making. Filters for the threads can be added.
const MAKING: &[libc::c_long] = &[
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_pipe2,
    libc::SYS_socketpair,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    // The C library makes threads by `clone` where this one is not known (see `without_clone3`).
    libc::SYS_clone3,
];

/// `FIONBIO`, by which the standard library makes an accepted socket non-blocking.
const SOCKET_IOCTLS: &[u64] = &[0x5421];
/// `BLKDISCARD`, `BLKZEROOUT`, `TUNSETOFFLOAD`, `TUNSETQUEUE`.
const DEVICE_IOCTLS: &[u64] = &[0x1277, 0x127f, 0x4004_54d0, 0x4004_54d9];
/// `BLKSSZGET`.
const MAKING_IOCTLS: &[u64] = &[0x1268];
/// Direction and type of a request that reads from an input device (`_IOC_READ`, 'E'), and the bits
/// of direction and type.
const INPUT_ASKS: u64 = 0x8000_4500;
const INPUT_MASK: u64 = 0xc000_ff00;
/// Requests of `prctl`: the name of a thread, a filter, and that no program gives rights.
const MAKING_PRCTLS: &[libc::c_int] = &[
    libc::PR_SET_NAME,
    libc::PR_SET_SECCOMP,
    libc::PR_SET_NO_NEW_PRIVS,
];
/// `SECCOMP_SET_MODE_FILTER`.
const SET_FILTER: u64 = 1;

/// Positions of arguments: `socket`'s family, `ioctl`'s request, `fcntl`'s command, and of `mmap`
/// and `mprotect` the protection and the flags.
const ARGUMENT_FAMILY: u8 = 0;
const ARGUMENT_REQUEST: u8 = 1;
const ARGUMENT_COMMAND: u8 = 1;
const ARGUMENT_PROTECTION: u8 = 2;
const ARGUMENT_MAP_FLAGS: u8 = 3;

/// User and group of all threads of GDM's own process that are set up. Nothing has it: it is one of
/// those that Debian and systemd give to nobody.
pub const ACCOUNT: u32 = 60_578;
/// User and group of the process of VM 0; the others follow. They are as free, and behind those of
/// the programs that serve devices.
const FIRST_GUEST: u32 = 60_620;
/// Accounts of programs end before those of guests begin: a program with the account of a
/// guest's process could signal that process.
const _: () = assert!(ACCOUNT + 1 + (gear2_protocol::MAX_DEVICES as u32) <= FIRST_GUEST);

/// Returns user and group of the process of a VM.
pub const fn account_of_guest(vm: usize) -> u32 {
    FIRST_GUEST + vm as u32
}

/// Why a thread could not be restricted.
#[derive(Debug)]
pub enum Error {
    /// The thread could not drop its user and capabilities.
    Rights(io::Error),
    /// The thread could not drop capabilities.
    Capabilities(io::Error),
    /// The process could not leave what it shares with others; the step that failed.
    Confinement(&'static str, io::Error),
    /// The kernel refused the system call filter.
    Filter(seccompiler::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rights(error) => write!(
                f,
                "cannot become user {ACCOUNT} without capabilities: {error}"
            ),
            Self::Capabilities(error) => write!(f, "cannot give up capabilities: {error}"),
            Self::Confinement(step, error) => write!(f, "cannot leave {step}: {error}"),
            Self::Filter(error) => write!(f, "no seccomp filter: {error}"),
        }
    }
}

/// Takes user and capabilities from the calling thread. The broker stays root, whose programs
/// listen on sockets of their own, and keeps the one capability that reaches those of others.
pub fn give_up_rights(role: Role) -> Result<(), Error> {
    sys::forbid_new_privileges().map_err(Error::Rights)?;
    match role {
        // planted: the broker keeps all capabilities
        Role::Broker => sys::keep_access_to_files().map_err(Error::Capabilities),
        _ => sys::become_user(ACCOUNT).map_err(Error::Rights),
    }
}

/// Takes from the process, which has no thread but the calling one yet, all that it shares with
/// others: files, network, System V objects, the user, capabilities. `place` is any folder.
///
/// The process ends with the thread of GDM's that has started it.
pub fn confine(account: u32, place: &str) -> Result<(), Error> {
    let step = |step| move |error| Error::Confinement(step, error);
    let folder = CString::new(place).map_err(|error| step("files")(io::Error::other(error)))?;
    confine::leave_namespaces().map_err(step("namespaces"))?;
    // planted: a process of a guest sees the device VM's files
    confine::leave_files(&folder).map_err(step("files"))?;
    // planted: a process of a guest keeps its capabilities in the bounding set
    confine::bound_capabilities().map_err(step("capabilities"))?;
    sys::forbid_new_privileges().map_err(step("privileges"))?;
    sys::become_user(account).map_err(step("the user"))?;
    // A change of the user undoes this.
    sys::end_with_parent().map_err(step("gdm alone"))
}

/// Restricts the calling thread's system calls from here on.
pub fn enter(role: Role) -> Result<(), Error> {
    if role == Role::Guest {
        let filter = without_clone3().map_err(Error::Filter)?;
        seccompiler::apply_filter(&filter).map_err(Error::Filter)?;
    }
    // planted: only the thread that breaks out ends
    let filter = program(role, sys::own_ids(), SeccompAction::KillProcess);
    let filter = filter.map_err(Error::Filter)?;
    seccompiler::apply_filter(&filter).map_err(Error::Filter)
}

/// Makes the filter of the thread with these numbers of process and thread.
fn program(
    role: Role,
    ids: [u32; 2],
    otherwise: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules = Rules::new();
    for call in role.calls().iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    allow_requests(&mut rules, role.requests())?;
    allow_memory(&mut rules)?;
    // Behind the rules for all: a guest's process maps rings of the kernel too, and the rule of
    // that takes the place of the narrower one.
    allow_of_role(&mut rules, role)?;
    allow_abort(&mut rules, ids)?;
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

/// Allows calls that one role alone needs, each with the arguments of that need: a role that is
/// subverted must not have the others' calls.
fn allow_of_role(rules: &mut Rules, role: Role) -> Result<(), seccompiler::Error> {
    if role == Role::FrontEnd {
        // Whether a backend that is lost has left its memory.
        let seals = rule([equals(ARGUMENT_COMMAND, libc::F_ADD_SEALS as u64)])?;
        rules.entry(libc::SYS_fcntl).or_default().push(seals);
    }
    if role == Role::Broker {
        let is_unix = equals(ARGUMENT_FAMILY, libc::AF_UNIX as u64);
        // planted: the broker makes sockets of any family
        rules.insert(libc::SYS_socket, vec![rule([is_unix])?]);
    }
    if role == Role::Guest {
        allow_making(rules)?;
    }
    Ok(())
}

impl Role {
    /// Returns the calls that a thread of this role may make with any arguments.
    const fn calls(self) -> &'static [&'static [libc::c_long]] {
        match self {
            Self::Hub => &[COMMON],
            Self::Guest => &[COMMON, SOCKETS, MESSAGES, WAITING, DEVICE, MAKING],
            Self::Sockets => &[COMMON, SOCKETS],
            Self::Device => &[COMMON, SOCKETS, WAITING, DEVICE],
            Self::FrontEnd => &[COMMON, MESSAGES, WAITING],
            Self::Screen => &[COMMON, FRAMES],
            Self::Input => &[COMMON, SOCKETS, WAITING],
            Self::Vsock => &[COMMON, SOCKETS, WAITING, DESCRIPTORS],
            Self::Broker => &[COMMON, CONNECTING],
        }
    }

    /// Returns the requests of `ioctl` that a thread of this role may make.
    const fn requests(self) -> &'static [&'static [u64]] {
        match self {
            Self::Hub | Self::FrontEnd | Self::Broker | Self::Screen => &[],
            Self::Guest => &[SOCKET_IOCTLS, DEVICE_IOCTLS, MAKING_IOCTLS],
            Self::Sockets | Self::Input | Self::Vsock => &[SOCKET_IOCTLS],
            Self::Device => &[SOCKET_IOCTLS, DEVICE_IOCTLS],
        }
    }
}

/// By system call, the rules of which one must hold; without any, all calls are allowed.
type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Allows these requests of `ioctl`, and of `fcntl` one that only debug builds make.
fn allow_requests(rules: &mut Rules, ioctls: &[&[u64]]) -> Result<(), seccompiler::Error> {
    let mut requests = Vec::new();
    for request in ioctls.iter().copied().flatten() {
        requests.push(rule([equals(ARGUMENT_REQUEST, *request)])?);
    }
    // An empty list would allow all requests.
    if !requests.is_empty() {
        // planted: a thread may make any request of a device
        rules.insert(libc::SYS_ioctl, requests);
    }
    // A role may make any request.
    if cfg!(debug_assertions) && !rules.contains_key(&libc::SYS_fcntl) {
        // The standard library looks whether a descriptor that it closes is open.
        let looks = rule([equals(ARGUMENT_COMMAND, libc::F_GETFD as u64)])?;
        rules.insert(libc::SYS_fcntl, vec![looks]);
    }
    Ok(())
}

/// Allows memory for the allocator: of no file or device, never to be executed.
fn allow_memory(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    let no_code = || masked(ARGUMENT_PROTECTION, libc::PROT_EXEC, 0);
    let of_no_file = masked(ARGUMENT_MAP_FLAGS, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS);
    // planted: files and devices may be mapped
    rules.insert(libc::SYS_mmap, vec![rule([no_code(), of_no_file])?]);
    // planted: memory may become executable
    rules.insert(libc::SYS_mprotect, vec![rule([no_code()])?]);
    Ok(())
}

/// Allows threads, never processes; filters on top; and mappings of the descriptors that are there,
/// such as a ring of the kernel's.
fn allow_making(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    let is_thread = masked(0, libc::CLONE_THREAD, libc::CLONE_THREAD);
    allow_input(rules)?;
    // planted: a process of a guest starts others
    rules.insert(libc::SYS_clone, vec![rule([is_thread])?]);
    rules.insert(libc::SYS_seccomp, vec![rule([equals(0, SET_FILTER)])?]);
    let requests = MAKING_PRCTLS.iter().map(|request| request.unsigned_abs());
    let requests = requests.map(|request| rule([equals(0, request.into())]));
    rules.insert(libc::SYS_prctl, requests.collect::<Result<_, _>>()?);
    let no_code = masked(ARGUMENT_PROTECTION, libc::PROT_EXEC, 0);
    rules.insert(libc::SYS_mmap, vec![rule([no_code])?]);
    Ok(())
}

/// Allows to ask what an input device is and has: all requests of its kind by which it tells
/// something, none by which something is set. The length of the answer is part of the number.
fn allow_input(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    // planted: a process of a guest sets what an input device does
    let asks = SeccompCmpOp::MaskedEq(INPUT_MASK);
    let asks = SeccompCondition::new(ARGUMENT_REQUEST, SeccompCmpArgLen::Dword, asks, INPUT_ASKS);
    let requests = rules.entry(libc::SYS_ioctl).or_default();
    requests.push(rule([asks])?);
    Ok(())
}

/// Makes a filter for which the kernel knows no `clone3`, whose arguments no filter can judge.
fn without_clone3() -> Result<BpfProgram, seccompiler::Error> {
    let rules = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, arch)?;
    Ok(filter.try_into()?)
}

/// Allows the C library's `abort`: a thread ends itself, and with that GDM.
fn allow_abort(rules: &mut Rules, [process, thread]: [u32; 2]) -> Result<(), seccompiler::Error> {
    let (process, thread) = (u64::from(process), u64::from(thread));
    let abort = |argument| equals(argument, libc::SIGABRT as u64);
    // planted: a thread may end others
    let itself = rule([equals(0, process), equals(1, thread), abort(2)])?;
    rules.insert(libc::SYS_tgkill, vec![itself]);
    let itself = rule([equals(0, thread), abort(1)])?;
    rules.insert(libc::SYS_tkill, vec![itself]);
    Ok(())
}

/// A condition on one argument.
type Condition = Result<SeccompCondition, seccompiler::BackendError>;

/// A rule that all of the conditions make.
fn rule<const N: usize>(conditions: [Condition; N]) -> Result<SeccompRule, seccompiler::Error> {
    let conditions: Result<Vec<SeccompCondition>, _> = conditions.into_iter().collect();
    Ok(SeccompRule::new(conditions?)?)
}

/// Compares 32 bits: the kernel takes no more of these arguments, and a caller may leave rubbish in
/// the upper half.
fn equals(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// Compares some bits.
fn masked(argument: u8, mask: i32, value: i32) -> Condition {
    let compare = SeccompCmpOp::MaskedEq(u64::from(mask.unsigned_abs()));
    let value = u64::from(value.unsigned_abs());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}
