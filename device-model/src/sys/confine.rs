//! System calls by which the process of a guest gives its rights up.

use std::ffi::CStr;
use std::io;

use super::checked;

/// Namespaces that the process gets of its own: mounts, network, System V objects and host name.
const NAMESPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
/// Last capability that a kernel may know; one that it does not know is an error, which ends the
/// list.
const CAPABILITIES: libc::c_ulong = 63;
/// Size and mode of the root: nothing is ever in it but an empty folder.
const ROOT_OPTIONS: &CStr = c"size=4k,nr_inodes=2,mode=0555";
/// The folder in the root that becomes the process's own root.
const EMPTY: &CStr = c"/empty";

/// First descriptor behind standard input, output and error.
const FIRST_OTHER: libc::c_uint = 3;

/// Has the kernel close all descriptors but standard input, output and error when the process
/// starts a program. The program then has no moment in which it holds them.
pub(crate) fn leave_descriptors() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: no memory is involved, and nothing is closed before the program replaces all that
    // could use a descriptor.
    // planted: a process of a guest has descriptors of others
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, flags) };
    checked(libc::c_int::try_from(done).unwrap_or(-1))?;
    Ok(())
}

/// Gives the process mounts, a network, System V objects and a host name of its own.
pub(crate) fn leave_namespaces() -> io::Result<()> {
    // SAFETY: no memory is involved.
    // planted: a process of a guest shares the device VM's network
    checked(unsafe { libc::unshare(NAMESPACES) })?;
    Ok(())
}

/// Makes an empty read-only folder the root of the process. `place` is any folder.
///
/// The process's root becomes a file system without a file: no path leads anywhere, whatever rights
/// the process has. The root is a folder below that of the namespace, as the kernel then refuses
/// the process a user namespace, in which it would have capabilities.
pub(crate) fn leave_files(place: &CStr) -> io::Result<()> {
    // Nothing that is done here reaches the mounts of others.
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
    let plain = libc::MS_NODEV | libc::MS_NOSUID | libc::MS_NOEXEC;
    mount(
        Some(c"none"),
        place,
        Some(c"tmpfs"),
        plain,
        Some(ROOT_OPTIONS),
    )?;
    // SAFETY: the kernel reads a string that ends with a zero.
    checked(unsafe { libc::chdir(place.as_ptr()) })?;
    replace_root()?;
    // SAFETY: as above.
    checked(unsafe { libc::mkdir(EMPTY.as_ptr(), 0o555) })?;
    let read_only = libc::MS_REMOUNT | libc::MS_RDONLY | plain;
    mount(None, c"/", None, read_only, None)?;
    change_root(EMPTY)
}

/// Makes the current folder, which is a mount, the root of the namespace.
fn replace_root() -> io::Result<()> {
    let here = c".".as_ptr();
    // The old root lands on the new one.
    // SAFETY: the kernel reads two strings that end with a zero.
    let pivoted = unsafe { libc::syscall(libc::SYS_pivot_root, here, here) };
    if pivoted == 0 {
        // SAFETY: the kernel reads a string that ends with a zero.
        checked(unsafe { libc::umount2(here, libc::MNT_DETACH) })?;
        return Ok(());
    }
    // The root of an initramfs cannot be replaced, but covered (kernel,
    // Documentation/filesystems/ramfs-rootfs-initramfs.rst).
    mount(Some(c"."), c"/", None, libc::MS_MOVE, None)?;
    change_root(c".")
}

/// Makes a folder the root of the process, and its current one.
fn change_root(folder: &CStr) -> io::Result<()> {
    // SAFETY: the kernel reads a string that ends with a zero.
    checked(unsafe { libc::chroot(folder.as_ptr()) })?;
    // SAFETY: as above.
    checked(unsafe { libc::chdir(c"/".as_ptr()) })?;
    Ok(())
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    let (source, kind, options) = (pointer(source), pointer(kind), pointer(options));
    // SAFETY: the kernel reads strings that end with a zero, or nothing.
    checked(unsafe { libc::mount(source, target.as_ptr(), kind, flags, options.cast()) })?;
    Ok(())
}

/// Takes all capabilities from the bounding set of the calling thread: no program and no change of
/// the user brings one back.
pub(crate) fn bound_capabilities() -> io::Result<()> {
    for capability in 0..=CAPABILITIES {
        // SAFETY: no memory is involved.
        let dropped = checked(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) });
        match dropped {
            Ok(_) => {}
            // The kernel knows no more.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
