//! Sleeping for events, for less than a millisecond too, and without Linux's addition to it.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vmm_sys_util::epoll::{Epoll, EpollEvent};

use super::checked;

/// Shortest timer slack in nanoseconds: 0 stands for the one that Linux has from the start.
const LEAST_SLACK: libc::c_ulong = 1;

/// The kernel has no `epoll_pwait2`.
static IS_COARSE: AtomicBool = AtomicBool::new(false);

/// Has Linux end sleeps of the calling thread, and of threads that it starts from here on, at their
/// time. Linux adds up to 50 us to a sleep otherwise, so that one interrupt ends several sleeps.
pub(crate) fn end_sleeps_in_time() -> io::Result<()> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, LEAST_SLACK) })?;
    Ok(())
}

/// Waits for events, for ever without a `time`. Returns how many came; a signal is none.
///
/// `epoll_wait` counts milliseconds. Linux before 5.11 has nothing finer, and sleeps until the end
/// of the millisecond there.
pub(crate) fn wait(
    epoll: &Epoll,
    time: Option<Duration>,
    events: &mut [EpollEvent],
) -> io::Result<usize> {
    match wait_by(&IS_COARSE, epoll, time, events) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        result => result,
    }
}

/// As [`wait`]. A kernel is asked for `epoll_pwait2` until it is known to have none.
fn wait_by(
    is_coarse: &AtomicBool,
    epoll: &Epoll,
    time: Option<Duration>,
    events: &mut [EpollEvent],
) -> io::Result<usize> {
    let Some(time) = time else {
        return epoll.wait(-1, events);
    };
    let is_whole = time.subsec_nanos().is_multiple_of(1_000_000);
    if !is_whole && !is_coarse.load(Ordering::Relaxed) {
        match wait_finely(epoll, time, events) {
            Err(error) if is_unknown(&error) => is_coarse.store(true, Ordering::Relaxed),
            result => return result,
        }
    }
    epoll.wait(milliseconds(time), events)
}

/// Tells whether a call does not exist. The filter of a container may refuse what it does not know
/// (EPERM), which `epoll_pwait2` by itself never does.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Returns a time in milliseconds, rounded up.
fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// Waits by `epoll_pwait2`, which counts nanoseconds.
fn wait_finely(epoll: &Epoll, time: Duration, events: &mut [EpollEvent]) -> io::Result<usize> {
    let time = libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let count = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel writes at most `count` events, which have the layout of its own; the time
    // is valid for the call, and there is no set of signals, whose size is that of the kernel's.
    let came = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            count,
            &raw const time,
            std::ptr::null::<libc::sigset_t>(),
            8_usize,
        )
    };
    usize::try_from(came).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Instant;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use vmm_sys_util::epoll::{ControlOperation, EventSet};

    use super::*;

    #[test]
    fn a_sleep_ends_with_its_time_or_an_event() {
        let epoll = Epoll::new().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let event = EpollEvent::new(EventSet::IN, 42);
        let descriptor = reader.as_raw_fd();
        epoll.ctl(ControlOperation::Add, descriptor, event).unwrap();
        let mut events = [EpollEvent::default(); 8];
        for time in [150_500, 2_000_000].map(Duration::from_nanos) {
            let begin = Instant::now();
            assert_eq!(wait(&epoll, Some(time), &mut events).unwrap(), 0);
            assert!(begin.elapsed() >= time);
        }
        writer.write_all(&[0]).unwrap();
        let long = Duration::from_nanos(3_600_000_000_001);
        for time in [None, Some(long), Some(Duration::ZERO)] {
            let begin = Instant::now();
            assert_eq!(wait(&epoll, time, &mut events).unwrap(), 1);
            assert_eq!(events[0].data(), 42);
            assert!(begin.elapsed() < long);
        }
    }

    /// Has the kernel refuse `epoll_pwait2` to this thread.
    fn refuse(error: i32) {
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let rules = [(libc::SYS_epoll_pwait2, Vec::new())].into_iter().collect();
        let refused = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
        let filter: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&filter).unwrap();
    }

    #[test]
    fn a_kernel_without_short_sleeps_is_asked_once() {
        const SHORT: Option<Duration> = Some(Duration::from_micros(150));
        const MILLISECOND: Duration = Duration::from_millis(1);
        let epoll = &Epoll::new().unwrap();
        let sleep = |is_coarse: &AtomicBool| {
            let begin = Instant::now();
            let came = wait_by(is_coarse, epoll, SHORT, &mut [EpollEvent::default()]);
            assert_eq!(came.unwrap(), 0);
            begin.elapsed()
        };
        for error in [libc::ENOSYS, libc::EPERM] {
            let is_coarse = &AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    refuse(error);
                    assert!(sleep(is_coarse) >= MILLISECOND);
                });
            });
            // This thread's kernel would end the sleep after 150 us.
            assert!(is_coarse.load(Ordering::Relaxed) && sleep(is_coarse) >= MILLISECOND);
        }
        let is_coarse = &AtomicBool::new(false);
        sleep(is_coarse);
        assert!(!is_coarse.load(Ordering::Relaxed));
    }

    #[test]
    fn threads_inherit_that_sleeps_end_in_time() {
        // SAFETY: no memory is involved.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let thread = std::thread::spawn(move || {
            end_sleeps_in_time().unwrap();
            [slack(), std::thread::spawn(slack).join().unwrap()]
        });
        assert_eq!(thread.join().unwrap(), [1, 1]);
    }

    #[test]
    fn a_time_is_rounded_up_to_milliseconds() {
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(7)), 7);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
