use gear1_abi::call::VmState;

use super::*;
use crate::command::tests::{attempt, gearctl};

#[test]
fn a_state_is_one_of_several() {
    let vm = |state: VmState| Vm {
        state: state as u64,
        ..Vm::default()
    };
    let running = vm(VmState::Running);
    let paused = Vm {
        paused: true,
        ..running.clone()
    };
    let stopped = vm(VmState::Stopped);
    let waits = Vm {
        waits: true,
        ..stopped.clone()
    };
    let given_up = Vm {
        given_up: true,
        failed_over: true,
        ..stopped.clone()
    };
    let states = |vm: &Vm| {
        [
            Wanted::Running,
            Wanted::Paused,
            Wanted::Stopped,
            Wanted::GivenUp,
            Wanted::FailedOver,
        ]
        .map(|wanted| is(vm, wanted))
    };
    assert_eq!(states(&running), [true, false, false, false, false]);
    assert_eq!(states(&paused), [false, true, false, false, false]);
    assert_eq!(states(&stopped), [false, false, true, false, false]);
    assert_eq!(states(&waits), [false; 5]);
    assert_eq!(states(&given_up), [false, false, true, true, true]);
    for state in [VmState::Loading, VmState::Loaded, VmState::Stopping] {
        assert_eq!(states(&vm(state)), [false; 5]);
    }
}

#[test]
fn a_wait_ends_with_the_state_or_with_the_time() {
    let text = gearctl(&["wait", "device", "running"]).unwrap();
    assert!(
        text.starts_with("vm: device\nstate: running\nwaited_ms: "),
        "{text}"
    );
    assert!(gearctl(&["wait", "linux", "paused", "--timeout", "5"]).is_ok());
    let error = attempt(&["wait", "linux", "stopped", "--timeout", "0.1"]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    let expected = "VM linux is running, paused after 0.1 s, and was to be stopped";
    assert_eq!(error.sentence, expected);
    for wrong in [
        &["wait", "linux"][..],
        &["wait", "linux", "happy"],
        &["wait", "linux", "running", "--timeout", "-1"],
        &["wait", "linux", "running", "--timeout", "soon"],
        &["wait", "linux", "running", "--timeout", "NaN"],
        &["restart", "linux", "--timeout", "1"],
    ] {
        let error = attempt(wrong).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage, "{wrong:?}: {error}");
    }
}

/// The VMs of this Gear2 never change: what was asked for has not come when the time is over.
#[test]
fn changes_are_waited_for() {
    let kind = |words: &[&str]| attempt(words).unwrap_err().kind;
    let late = ["--wait", "--timeout", "0.1"];
    let words = |words: &[&'static str]| [words, &late].concat();
    assert_eq!(kind(&words(&["restart", "linux"])), ErrorKind::TimedOut);
    assert_eq!(kind(&words(&["stop", "rt"])), ErrorKind::TimedOut);
    let text = gearctl(&words(&["start", "rt"])).unwrap();
    assert_eq!(text, "vm: rt\noutcome: done\n");
    // A refusal is not waited for.
    assert_eq!(kind(&words(&["start", "linux"])), ErrorKind::Refused);
}
