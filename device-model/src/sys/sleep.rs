//! Sleeping for events, for less than a millisecond too.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use vmm_sys_util::epoll::{Epoll, EpollEvent};

/// Waits for events, for ever without a `time`. Returns how many came; a signal is none.
///
/// `epoll_wait` counts milliseconds. Linux before 5.11 has nothing finer, and sleeps until the end
/// of the millisecond there.
pub(crate) fn wait(
    epoll: &Epoll,
    time: Option<Duration>,
    events: &mut [EpollEvent],
) -> io::Result<usize> {
    let result = match time {
        None => epoll.wait(-1, events),
        Some(time) if time.subsec_nanos().is_multiple_of(1_000_000) => {
            epoll.wait(milliseconds(time), events)
        }
        Some(time) => match wait_finely(epoll, time, events) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                epoll.wait(milliseconds(time), events)
            }
            result => result,
        },
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        result => result,
    }
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

    #[test]
    fn a_time_is_rounded_up_to_milliseconds() {
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(7)), 7);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
