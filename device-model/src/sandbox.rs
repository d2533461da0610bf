//! What a thread may ask the kernel for once it is set up (seccomp).
//!
//! A thread that a guest has subverted must not open files, make processes or
//! change mappings of devices; any other call than those listed ends GDM.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

#[cfg(test)]
mod tests;

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Wakes the others.
    Hub,
    /// Serves a device.
    Device,
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
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

const SOCKETS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];

const DEVICE: &[libc::c_long] = &[
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_ctl,
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

const ARGUMENT_REQUEST: u8 = 1;
const ARGUMENT_PROTECTION: u8 = 2;

/// Restricts the calling thread from here on.
pub fn enter(role: Role) -> Result<(), seccompiler::Error> {
    let filter = program(role, SeccompAction::KillProcess)?;
    seccompiler::apply_filter(&filter)
}

fn program(role: Role, otherwise: SeccompAction) -> Result<BpfProgram, seccompiler::Error> {
    let (lists, ioctls): (&[&[libc::c_long]], &[&[u64]]) = match role {
        Role::Hub => (&[COMMON], &[]),
        Role::Sockets => (&[COMMON, SOCKETS], &[SOCKET_IOCTLS]),
        Role::Device => (&[COMMON, SOCKETS, DEVICE], &[SOCKET_IOCTLS, DEVICE_IOCTLS]),
    };
    let mut rules = BTreeMap::new();
    for call in lists.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    let mut requests = Vec::new();
    for request in ioctls.iter().copied().flatten() {
        requests.push(equals(ARGUMENT_REQUEST, *request)?);
    }
    if !requests.is_empty() {
        rules.insert(libc::SYS_ioctl, requests);
    }
    // Memory for the allocator, never to be executed.
    let executable = SeccompCondition::new(
        ARGUMENT_PROTECTION,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
        0,
    )?;
    let no_code = SeccompRule::new(vec![executable])?;
    rules.insert(libc::SYS_mmap, vec![no_code.clone()]);
    rules.insert(libc::SYS_mprotect, vec![no_code]);
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

fn equals(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition =
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
