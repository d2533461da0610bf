//! System calls that the standard library has no safe form of.
//!
//! Owns: this crate's `unsafe` besides the mappings.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::{ioctl_with_mut_ref, ioctl_with_ref};
use vmm_sys_util::{ioctl_io_nr, ioctl_ior_nr, ioctl_iowr_nr};

pub(crate) mod confine;
mod deferred;
mod receive;
pub(crate) mod sleep;
pub(crate) mod tap;

pub(crate) use deferred::Deferred;
#[cfg(test)]
pub(crate) use deferred::{forget_signal, signal_this_thread};
pub(crate) use receive::receive;
pub(crate) use sleep::end_sleeps_in_time;

/// Direction of a vectored transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
}

/// Returns a count of bytes, or the error of the call before.
fn result(value: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// Returns the result of a call that is negative after an error.
fn checked(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

/// Returns how many seconds ago this kernel was started; one that does not tell was always there.
pub(crate) fn uptime() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.parse().unwrap_or(u64::MAX)
}

/// Moves bytes between a file at `offset` and guest RAM, once; may move fewer.
///
/// The vectors must come from [`Buffers`](crate::buffers::Buffers), or name memory of the caller's
/// that nothing else uses meanwhile.
pub(crate) fn transfer(
    file: &File,
    direction: Direction,
    vectors: &[libc::iovec],
    offset: u64,
) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let count = vectors.len() as libc::c_int;
    let (fd, vectors) = (file.as_raw_fd(), vectors.as_ptr());
    result(match direction {
        // SAFETY: the vectors lie in a guest's RAM, which stays mapped and which Rust holds no
        // reference to, or in memory of the caller's.
        Direction::Read => unsafe { libc::preadv(fd, vectors, count, offset) },
        // SAFETY: as above.
        Direction::Write => unsafe { libc::pwritev(fd, vectors, count, offset) },
    })
}

/// Moves bytes between a tap device or the like and guest RAM, once.
///
/// The vectors must come from [`Buffers`](crate::buffers::Buffers), or name memory of the caller's
/// that nothing else uses meanwhile.
pub(crate) fn stream(
    file: &File,
    direction: Direction,
    vectors: &[libc::iovec],
) -> io::Result<usize> {
    let count = vectors.len() as libc::c_int;
    let (fd, vectors) = (file.as_raw_fd(), vectors.as_ptr());
    result(match direction {
        // SAFETY: the vectors lie in a guest's RAM, which stays mapped and which Rust holds no
        // reference to, or in memory of the caller's.
        Direction::Read => unsafe { libc::readv(fd, vectors, count) },
        // SAFETY: as above.
        Direction::Write => unsafe { libc::writev(fd, vectors, count) },
    })
}

/// Fills `bytes` with random ones; returns how many.
pub(crate) fn random(bytes: &mut [u8]) -> usize {
    // SAFETY: the pointer and the length are those of an exclusive slice.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    result(got).unwrap_or(0)
}

/// Makes a range of a file zero, or gives it back.
pub(crate) fn allocate(file: &File, mode: i32, offset: u64, length: u64) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })?;
    Ok(())
}

/// Type of the requests to block devices (Linux, include/uapi/linux/fs.h).
const BLK: u32 = 0x12;
ioctl_io_nr!(BLKSSZGET, BLK, 104);
ioctl_io_nr!(BLKDISCARD, BLK, 119);
ioctl_io_nr!(BLKZEROOUT, BLK, 127);

/// Returns the logical block size of a block device.
pub(crate) fn block_size(file: &File) -> io::Result<u32> {
    let mut size: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`.
    checked(unsafe { ioctl_with_mut_ref(file, BLKSSZGET(), &mut size) })?;
    u32::try_from(size).map_err(io::Error::other)
}

/// Discards, or zeroes, a range of a block device.
pub(crate) fn block_range(file: &File, zero: bool, offset: u64, length: u64) -> io::Result<()> {
    let request = if zero { BLKZEROOUT() } else { BLKDISCARD() };
    let range: [u64; 2] = [offset, length];
    // SAFETY: the kernel reads two `u64`.
    checked(unsafe { ioctl_with_ref(file, request, &range) })?;
    Ok(())
}

/// Type of the requests to GPIO chips, and bytes of their texts (include/uapi/linux/gpio.h).
const GPIO: u32 = 0xb4;
/// `GPIO_MAX_NAME_SIZE`, with the zero at the end.
const GPIO_NAME: usize = 32;
/// `GPIO_V2_LINES_MAX`.
const LINES: usize = 64;
/// `GPIO_V2_LINE_FLAG_INPUT | GPIO_V2_LINE_FLAG_EDGE_RISING`.
const RISING: u64 = 1 << 2 | 1 << 4;

/// `struct gpiochip_info`.
#[repr(C)]
struct ChipInfo {
    name: [u8; GPIO_NAME],
    label: [u8; GPIO_NAME],
    lines: u32,
}

/// `struct gpio_v2_line_request`, with `struct gpio_v2_line_config` in it.
#[repr(C)]
struct LineRequest {
    offsets: [u32; LINES],
    consumer: [u8; GPIO_NAME],
    flags: u64,
    attribute_count: u32,
    padding: [u32; 5],
    attributes: [[u64; 3]; 10],
    line_count: u32,
    event_buffer_size: u32,
    padding_last: [u32; 5],
    fd: i32,
}

/// The number of an ioctl contains the size of its structure: with another one the kernel would
/// refuse the call.
const _: () = assert!(size_of::<ChipInfo>() == 68 && size_of::<LineRequest>() == 592);

ioctl_ior_nr!(GPIO_GET_CHIPINFO, GPIO, 0x01, ChipInfo);
ioctl_iowr_nr!(GPIO_V2_GET_LINE, GPIO, 0x07, LineRequest);

/// Returns the label of a GPIO chip.
pub(crate) fn gpio_label(chip: &File) -> io::Result<String> {
    let mut info = ChipInfo {
        name: [0; GPIO_NAME],
        label: [0; GPIO_NAME],
        lines: 0,
    };
    // SAFETY: the structure is the kernel's.
    checked(unsafe { ioctl_with_mut_ref(chip, GPIO_GET_CHIPINFO(), &mut info) })?;
    let end = info.label.iter().position(|byte| *byte == 0);
    let label = info.label.get(..end.unwrap_or(GPIO_NAME));
    Ok(String::from_utf8_lossy(label.unwrap_or_default()).into_owned())
}

/// Returns the request for one line, without debouncing or other attributes. The name shows in
/// `gpioinfo`.
fn rising_edges(line: u32) -> LineRequest {
    let mut request = LineRequest {
        offsets: [0; LINES],
        consumer: [0; GPIO_NAME],
        flags: RISING,
        attribute_count: 0,
        padding: [0; 5],
        attributes: [[0; 3]; 10],
        line_count: 1,
        event_buffer_size: 0,
        padding_last: [0; 5],
        fd: -1,
    };
    if let Some(offset) = request.offsets.first_mut() {
        *offset = line;
    }
    for (to, from) in request.consumer.iter_mut().zip(b"gdm") {
        *to = *from;
    }
    request
}

/// Asks for the rising edges of a line; each is an event to be read from the result.
pub(crate) fn gpio_line(chip: &File, line: u32) -> io::Result<File> {
    let mut request = rising_edges(line);
    // SAFETY: the structure is the kernel's.
    checked(unsafe { ioctl_with_mut_ref(chip, GPIO_V2_GET_LINE(), &mut request) })?;
    // SAFETY: the kernel made this descriptor for us, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(request.fd) };
    let file = File::from(fd);
    set_nonblocking(&file)?;
    Ok(file)
}

/// Makes reads and writes return at once.
pub(crate) fn set_nonblocking(file: &File) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let flags = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    let flags = flags | libc::O_NONBLOCK;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) })?;
    Ok(())
}

/// Makes a pseudo-terminal; returns our end and the path of the other.
pub(crate) fn open_pty() -> io::Result<(File, String)> {
    // SAFETY: no memory is involved.
    let fd = checked(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) })?;
    // SAFETY: the descriptor was made just now, and nobody else knows it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: no memory is involved.
    checked(unsafe { libc::unlockpt(fd) })?;
    let mut name = [0_u8; 64];
    // SAFETY: the pointer and the length are those of an exclusive array.
    let error = unsafe { libc::ptsname_r(fd, name.as_mut_ptr().cast(), name.len()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    set_nonblocking(&file)?;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    let name = name.get(..length).unwrap_or_default();
    Ok((file, String::from_utf8_lossy(name).into_owned()))
}

/// Puts a terminal into raw mode; returns the mode it was in.
pub(crate) fn set_raw(terminal: &impl AsRawFd) -> io::Result<libc::termios> {
    // SAFETY: all fields are numbers.
    let mut old: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the library writes one `termios`.
    checked(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &mut old) })?;
    let mut raw = old;
    // SAFETY: changes one `termios`.
    unsafe { libc::cfmakeraw(&mut raw) };
    set_mode(terminal, &raw)?;
    Ok(old)
}

/// Puts a terminal into a mode.
pub(crate) fn set_mode(terminal: &impl AsRawFd, mode: &libc::termios) -> io::Result<()> {
    // SAFETY: the library reads one `termios`.
    checked(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, mode) })?;
    Ok(())
}

/// Returns rows and columns of a terminal; 0 where it does not know them, as a serial port.
pub(crate) fn size(terminal: &impl AsRawFd) -> io::Result<(u16, u16)> {
    // SAFETY: all fields are numbers.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `winsize`.
    checked(unsafe { ioctl_with_mut_ref(terminal, libc::TIOCGWINSZ as _, &mut size) })?;
    Ok((size.ws_row, size.ws_col))
}

/// Makes memory that other processes can map by its descriptor. Nobody can make it shorter, as a
/// store behind its end would end this process, or longer.
pub(crate) fn shared_memory(name: &CStr, size: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the kernel reads a string that ends with a zero.
    let fd = checked(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    // SAFETY: the descriptor was made just now, and nobody else knows it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(size)?;
    // planted: a backend can cut the memory of its rings
    // planted: a process of a guest makes the file of its screen longer
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Tells whether no process can write to such memory by a mapping. If so, none ever will.
///
/// The kernel seals memory against writes only then (`fcntl(2)`, F_SEAL_WRITE). A process that was
/// killed counts until the kernel has ended its mappings.
pub(crate) fn is_mapped_by_none(memory: &File) -> bool {
    // SAFETY: no memory is involved.
    let sealed = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    // planted: a backend that hangs is taken for one that is gone
    checked(sealed).is_ok()
}

/// Makes a file, or a folder, that of a user and group.
pub(crate) fn give_file(path: &Path, account: u32) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(account), Some(account))
}

/// Has a program start with the standard descriptors alone.
pub(crate) fn inherit_none(command: &mut Command) {
    // SAFETY: the function makes one system call between the fork and the start.
    unsafe { command.pre_exec(confine::leave_descriptors) };
}

/// Has a program run as a user and group, without capabilities and without a way to gain any. The
/// program ends when the thread ends that starts it.
///
/// The program inherits `lock`, which must live until the program is started.
pub(crate) fn confine_program(command: &mut Command, account: u32, lock: &File) {
    // The user that is no longer root loses all capabilities.
    // planted: a backend runs as root
    command.uid(account).gid(account);
    let lock = lock.as_raw_fd();
    let give_up = move || {
        // Libraries copy descriptors that a program would inherit.
        confine::leave_descriptors()?;
        // SAFETY: no memory is involved.
        checked(unsafe { libc::fcntl(lock, libc::F_SETFD, 0) })?;
        forbid_new_privileges()?;
        end_with_parent()
    };
    // SAFETY: the closure makes system calls and nothing else between the fork and the start. It
    // runs after the change of the user, which would undo the last one.
    unsafe { command.pre_exec(give_up) };
}

/// Ends this process when the thread ends that started it.
pub(crate) fn end_with_parent() -> io::Result<()> {
    let signal = libc::SIGKILL as libc::c_ulong;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    Ok(())
}

/// Returns another descriptor of a socket that something else owns.
pub(crate) fn same_socket(socket: &impl AsRawFd) -> io::Result<UnixStream> {
    // SAFETY: no memory is involved.
    let fd = checked(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was made just now, and nobody else knows it.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Connects to a unix socket, or fails if that would take time. The result is non-blocking.
pub(crate) fn connect_at_once(path: &str) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the descriptor was made just now, and nobody else knows it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: all fields are numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // One byte stays zero: the end of the path.
    if path.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads one `sockaddr_un`.
    checked(unsafe { libc::connect(fd, (&raw const address).cast(), length) })?;
    Ok(stream)
}

/// Lets this process have as many descriptors as the system allows it.
pub(crate) fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one `rlimit`.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}

/// Keeps the calling thread on one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    CpuSet::of(cpu).give(0)
}

/// CPUs of this machine.
#[derive(Clone, Copy)]
pub(crate) struct CpuSet(libc::cpu_set_t);

impl CpuSet {
    /// No CPU.
    const fn none() -> Self {
        // SAFETY: all fields are numbers.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Makes a set of one CPU.
    pub(crate) fn of(cpu: usize) -> Self {
        let mut set = Self::none();
        // SAFETY: changes one `cpu_set_t`; a CPU beyond it is left out.
        unsafe { libc::CPU_SET(cpu, &mut set.0) };
        set
    }

    /// Returns the CPUs that the calling thread may run on; none if the kernel does not say.
    pub(crate) fn of_this_thread() -> Self {
        let mut set = Self::none();
        // SAFETY: the kernel writes one `cpu_set_t`.
        let asked = unsafe { libc::sched_getaffinity(0, size_of_val(&set.0), &raw mut set.0) };
        checked(asked).map_or(Self::none(), |_| set)
    }

    /// Tells whether the set has a CPU.
    pub(crate) fn has(&self, cpu: usize) -> bool {
        // SAFETY: reads one `cpu_set_t`, in which no CPU beyond it is.
        unsafe { libc::CPU_ISSET(cpu, &self.0) }
    }

    /// Returns the number of CPUs.
    pub(crate) fn count(&self) -> usize {
        // SAFETY: reads one `cpu_set_t`.
        let count = unsafe { libc::CPU_COUNT(&self.0) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Has a thread run on the CPUs of the set alone; 0 is the calling one.
    pub(crate) fn give(&self, thread: u64) -> io::Result<()> {
        let thread = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel reads one `cpu_set_t`.
        checked(unsafe {
            libc::sched_setaffinity(thread, size_of_val(&self.0), &raw const self.0)
        })?;
        Ok(())
    }
}

/// Returns the major and the minor number of a device.
pub(crate) fn device_numbers(device: u64) -> [u32; 2] {
    [libc::major(device), libc::minor(device)]
}

/// Events that `poll` waits for on one descriptor.
pub(crate) struct Wait {
    /// Descriptor; -1 is none.
    pub(crate) fd: i32,
    /// Whether to wait for writability.
    pub(crate) write: bool,
    /// Whether to wait for readability.
    pub(crate) read: bool,
}

/// Waits until one of the descriptors is ready, or the time is over; tells which are.
///
/// One that nothing is wanted of is left out: the kernel tells of an end or an error whether asked
/// or not, which would end the wait each time until somebody reads it.
pub(crate) fn wait(waits: &[Wait], milliseconds: i32) -> Vec<bool> {
    let mut polls = Vec::with_capacity(waits.len());
    for wait in waits {
        let read = if wait.read { libc::POLLIN } else { 0 };
        let write = if wait.write { libc::POLLOUT } else { 0 };
        polls.push(libc::pollfd {
            // planted: a client that left is waited for
            fd: if wait.read || wait.write { wait.fd } else { -1 },
            events: read | write,
            revents: 0,
        });
    }
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the pointer and the count are those of an exclusive vector.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), count, milliseconds) };
    polls
        .iter()
        .map(|poll| ready > 0 && poll.revents != 0)
        .collect()
}

/// Writes a short message to standard error if that takes bytes now. A message that would have to
/// wait is lost.
pub(crate) fn complain_at_once(message: &[u8]) {
    let stderr = Wait {
        fd: libc::STDERR_FILENO,
        write: true,
        read: false,
    };
    if wait(&[stderr], 0) == [true] {
        // SAFETY: `message` is readable for its length.
        unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
    }
}

/// Takes standard input.
///
/// # Safety
///
/// The process calls this once, and uses its standard input for nothing else.
pub(crate) unsafe fn own_input() -> OwnedFd {
    // SAFETY: the process was started with this descriptor; the caller's conditions.
    unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) }
}

/// Takes a descriptor of another process as what wakes a thread.
pub(crate) fn event_of(file: File) -> EventFd {
    // SAFETY: nobody else has the descriptor. One that is no eventfd fails at its first use.
    unsafe { EventFd::from_raw_fd(file.into_raw_fd()) }
}

/// Ends this process without waiting for any of its threads.
pub(crate) fn exit_at_once(status: i32) -> ! {
    // SAFETY: no memory is involved, and nothing of this process is used afterwards.
    unsafe { libc::_exit(status) }
}

/// Returns the numbers of this process and of the calling thread.
pub(crate) fn own_ids() -> [u32; 2] {
    // SAFETY: no memory is involved.
    let process = unsafe { libc::getpid() };
    // SAFETY: as above.
    let thread = unsafe { libc::gettid() };
    [process.unsigned_abs(), thread.unsigned_abs()]
}

/// Forbids the calling thread, and those that it starts, to gain rights by starting a program.
pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    let (yes, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: no memory is involved.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, none, none, none) })?;
    Ok(())
}

/// `_LINUX_CAPABILITY_VERSION_3`, and 0 for the calling thread.
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];
/// Effective, permitted and inheritable ones, 32 each, twice.
const NO_CAPABILITIES: [u32; 6] = [0; 6];

/// `CAP_DAC_OVERRIDE`, effective and permitted.
const ACCESS_TO_FILES: [u32; 6] = [1 << 1, 1 << 1, 0, 0, 0, 0];

/// Sets the capabilities of the calling thread, and of no other.
fn set_capabilities(sets: &[u32; 6]) -> io::Result<()> {
    let mut header = CAPABILITY_HEADER;
    // SAFETY: the kernel reads a header of two words and, for its version, sets of six; it writes
    // the header's first word if it does not know the version, which is a copy of ours.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    checked(libc::c_int::try_from(done).unwrap_or(-1))?;
    Ok(())
}

/// Takes all capabilities from the calling thread, except for access to files of other users.
pub(crate) fn keep_access_to_files() -> io::Result<()> {
    set_capabilities(&ACCESS_TO_FILES)
}

/// Makes the calling thread, and no other, one of a user and group `account`, without any
/// capability.
///
/// By the kernel's own calls: the C library's change all threads of the process.
pub(crate) fn become_user(account: u32) -> io::Result<()> {
    let called = |done: libc::c_long| {
        let done = libc::c_int::try_from(done).unwrap_or(-1);
        checked(done).map(drop)
    };
    let id = libc::c_ulong::from(account);
    let (none, nowhere): (libc::c_ulong, libc::c_ulong) = (0, 0);
    // SAFETY: the kernel reads no list of length 0.
    called(unsafe { libc::syscall(libc::SYS_setgroups, none, nowhere) })?;
    // SAFETY: no memory is involved.
    called(unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) })?;
    // SAFETY: no memory is involved.
    // planted: a thread stays root
    called(unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) })?;
    set_capabilities(&NO_CAPABILITIES)
}
