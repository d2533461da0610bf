//! Seccomp filters: the system calls that a thread may make once it is set up.
//!
//! A thread that a guest has subverted must not open files, make processes, end others or change
//! mappings of devices; any call outside the list ends GDM. The thread runs as a user that owns
//! nothing, without capabilities: all descriptors are open by then.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::sys;

#[cfg(test)]
mod tests;

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Wakes the others.
    Hub,
    /// Serves a device.
    Device,
    /// Serves a device whose function is another program.
    FrontEnd,
    /// Serves sockets.
    Sockets,
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
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_pwrite64,
    libc::SYS_fdatasync,
    libc::SYS_io_uring_enter,
    libc::SYS_fallocate,
    libc::SYS_getrandom,
];

/// `FIONBIO`, by which the standard library makes an accepted socket non-blocking.
const SOCKET_IOCTLS: &[u64] = &[0x5421];
/// `BLKDISCARD`, `BLKZEROOUT`, `TUNSETOFFLOAD`.
const DEVICE_IOCTLS: &[u64] = &[0x1277, 0x127f, 0x4004_54d0];

/// Positions of arguments: `ioctl`'s request, `fcntl`'s command, and of `mmap` and `mprotect` the
/// protection and the flags.
const ARGUMENT_REQUEST: u8 = 1;
const ARGUMENT_COMMAND: u8 = 1;
const ARGUMENT_PROTECTION: u8 = 2;
const ARGUMENT_MAP_FLAGS: u8 = 3;

/// User and group of all threads that are set up. Nothing has it: it is one of those that Debian
/// and systemd give to nobody.
pub const ACCOUNT: u32 = 60_578;

/// Why a thread could not be restricted.
#[derive(Debug)]
pub enum Error {
    /// The thread could not drop its user and capabilities.
    Rights(io::Error),
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
            Self::Filter(error) => write!(f, "no seccomp filter: {error}"),
        }
    }
}

/// Takes user and capabilities from the calling thread.
pub fn give_up_rights() -> Result<(), Error> {
    sys::forbid_new_privileges().map_err(Error::Rights)?;
    sys::become_user(ACCOUNT).map_err(Error::Rights)
}

/// Restricts the calling thread's system calls from here on.
pub fn enter(role: Role) -> Result<(), Error> {
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
    allow_abort(&mut rules, ids)?;
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

impl Role {
    /// Returns the calls that a thread of this role may make with any arguments.
    const fn calls(self) -> &'static [&'static [libc::c_long]] {
        match self {
            Self::Hub => &[COMMON],
            Self::Sockets => &[COMMON, SOCKETS],
            Self::Device => &[COMMON, SOCKETS, WAITING, DEVICE],
            Self::FrontEnd => &[COMMON, MESSAGES, WAITING],
        }
    }

    /// Returns the requests of `ioctl` that a thread of this role may make.
    const fn requests(self) -> &'static [&'static [u64]] {
        match self {
            Self::Hub | Self::FrontEnd => &[],
            Self::Sockets => &[SOCKET_IOCTLS],
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
    if cfg!(debug_assertions) {
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
