use super::*;

fn vm(state: VmState) -> Vm {
    Vm {
        name: "x".into(),
        state: state as u64,
        ..Vm::default()
    }
}

#[test]
fn every_refusal_says_why() {
    let running = vm(VmState::Running);
    let stopped = vm(VmState::Stopped);
    let paused = Vm {
        paused: true,
        ..running.clone()
    };
    let real_time = Vm {
        real_time: true,
        ..running.clone()
    };
    let device = Vm {
        device_model: true,
        ..running.clone()
    };
    let cases = [
        (
            op::VM_START,
            &running,
            "is not started: it runs already; `gearctl restart x` begins it anew",
        ),
        (
            op::VM_START,
            &paused,
            "is not started: it runs already, and is paused; `gearctl resume x` lets it go on",
        ),
        (
            op::VM_STOP,
            &stopped,
            "is not stopped: it is stopped already",
        ),
        (
            op::VM_PAUSE,
            &real_time,
            "is not paused: it is real-time, with CPUs of its own on which Gear2 does not \
            schedule it; it can be stopped (`gearctl stop x`)",
        ),
        (
            op::VM_RESUME,
            &real_time,
            "is not resumed: it is real-time, and never paused",
        ),
        (
            op::VM_RESUME,
            &device,
            "is not resumed: the device model and gearctl run in it, so that it is never paused",
        ),
        (
            op::VM_PAUSE,
            &device,
            "is not paused: the device model and gearctl run in it, and nobody could resume it",
        ),
        (
            op::VM_PAUSE,
            &stopped,
            "is not paused: it does not run, it is stopped",
        ),
        (
            op::VM_RESUME,
            &stopped,
            "is not resumed: it does not run, it is stopped",
        ),
        (
            op::VM_PAUSE,
            &paused,
            "is not paused: it is paused already; `gearctl resume x` lets it go on",
        ),
        (op::VM_RESUME, &running, "is not resumed: it is not paused"),
        // The VM has changed between the two questions.
        (
            op::VM_PAUSE,
            &running,
            "is not paused: it was running and has changed meanwhile; see `gearctl list`, and try again",
        ),
        (
            op::VM_START,
            &stopped,
            "is not started: it was stopped and has changed meanwhile; see `gearctl list`, and try again",
        ),
    ];
    for (op, vm, expected) in cases {
        assert_eq!(
            of(op, vm, outcome::WRONG_STATE).sentence,
            format!("VM x {expected}")
        );
    }
}

#[test]
fn outcomes_other_than_the_state_have_their_own_words() {
    let vm = vm(VmState::Running);
    for (outcome, expected) in [
        (outcome::NOT_FOUND, "Gear2 knows it no longer"),
        (outcome::UNKNOWN, "this Gear2 knows no such operation"),
        (
            outcome::NEEDED,
            "nobody could start it again from here; restart it",
        ),
        (77, "outcome 77"),
    ] {
        let text = of(op::VM_STOP, &vm, outcome).sentence;
        assert!(
            text.starts_with(&format!("VM x is not stopped: {expected}")),
            "{text}"
        );
    }
}
