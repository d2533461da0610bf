//! Threads and processes: which are made, and whom they signal.

use super::*;

/// A process of a guest has threads, and makes no process.
#[test]
fn threads_are_made_and_processes_are_not() {
    if !is_alone("processes::threads_are_made_and_processes_are_not") {
        return;
    }
    let child = i64::from(libc::SIGCHLD);
    assert_eq!(ends(Role::Guest, libc::SYS_clone, &[child, 0]), REFUSED);
    let by_thread = in_child(|| {
        enter_or_give_up(Role::Guest);
        let sum = std::thread::spawn(|| 40 + 2).join();
        give_up(i32::from(!matches!(sum, Ok(42))));
    });
    assert_eq!(by_thread, WENT_THROUGH);
    let roles_on_top = in_child(|| {
        enter_or_give_up(Role::Guest);
        enter_or_give_up(Role::Device);
        call(libc::SYS_memfd_create, [0; 6]);
    });
    assert_eq!(roles_on_top, REFUSED);
}

#[test]
fn a_thread_aborts_itself_and_signals_nobody_else() {
    if !is_alone("processes::a_thread_aborts_itself_and_signals_nobody_else") {
        return;
    }
    let parent = i64::from(std::process::id());
    let abort = i64::from(libc::SIGABRT);
    for role in ROLES {
        let itself = |signal: i32, by_thread: bool| {
            in_child(|| {
                enter_or_give_up(role);
                let [process, thread] = sys::own_ids().map(i64::from);
                match by_thread {
                    true => call(libc::SYS_tkill, [thread, signal.into(), 0, 0, 0, 0]),
                    false => call(libc::SYS_tgkill, [process, thread, signal.into(), 0, 0, 0]),
                }
            })
        };
        for by_thread in [true, false] {
            assert_eq!(itself(libc::SIGABRT, by_thread), End::Signal(libc::SIGABRT));
            assert_eq!(itself(libc::SIGSTOP, by_thread), REFUSED, "{role:?}");
        }
        for call in [libc::SYS_tkill, libc::SYS_tgkill] {
            // The other process is one that nobody misses.
            let other_process = in_child(|| {
                let [other, _] = sys::own_ids().map(i64::from);
                let arguments = match call {
                    libc::SYS_tkill => [other, abort, 0],
                    _ => [other, other, abort],
                };
                give_up(i32::from(ends(role, call, &arguments) != REFUSED));
            });
            assert_eq!(other_process, WENT_THROUGH, "{role:?}");
        }
        let other_thread = in_child(|| {
            enter_or_give_up(role);
            let [process, _] = sys::own_ids().map(i64::from);
            call(libc::SYS_tgkill, [process, parent, abort, 0, 0, 0]);
        });
        assert_eq!(other_thread, REFUSED, "{role:?}");
    }
    let libc_abort = in_child(|| {
        enter_or_give_up(Role::Device);
        std::process::abort();
    });
    assert_eq!(libc_abort, End::Signal(libc::SIGABRT));
}
