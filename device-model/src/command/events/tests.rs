use gear1_abi::call::VmState;
use gear1_abi::record::Record;

use super::*;
use crate::command::tests::{Few, attempt, gearctl, gearctl_to};

fn vm(state: VmState) -> Vm {
    Vm {
        name: "x".into(),
        vcpus: 2,
        state: state as u64,
        ..Vm::default()
    }
}

#[test]
fn changes_of_states_are_events() {
    let running = vm(VmState::Running);
    let stopped = vm(VmState::Stopped);
    let paused = Vm {
        paused: true,
        ..running.clone()
    };
    let given_up = Vm {
        given_up: true,
        failed_over: true,
        ..stopped.clone()
    };
    let waits = Vm {
        waits: true,
        ..stopped.clone()
    };
    let kinds = |then: &Vm, now: &Vm| {
        let kinds = changes(then, now).into_iter();
        kinds.map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&running, &running), []);
    assert_eq!(kinds(&running, &paused), [EventKind::Paused]);
    assert_eq!(kinds(&paused, &running), [EventKind::Resumed]);
    // A paused VM that is stopped is not resumed by that.
    assert_eq!(kinds(&paused, &stopped), [EventKind::Stopped]);
    assert_eq!(kinds(&stopped, &waits), [EventKind::Waits]);
    assert_eq!(kinds(&waits, &running), []);
    let ends = [
        EventKind::Stopped,
        EventKind::GivenUp,
        EventKind::FailedOver,
    ];
    assert_eq!(kinds(&running, &given_up), ends);
}

#[test]
fn aborted_accesses_are_events() {
    let of = |health: Option<u64>| Vm {
        health: health.map(|aborted| [9, 9, 9, 9, 9, aborted]),
        ..vm(VmState::Running)
    };
    let all = |then, now| changes(&of(then), &of(now));
    let told = |new: u64, count: u64| {
        let what = format!("has devices whose accesses were aborted: {new} more, {count} in all");
        vec![(EventKind::Aborted, what)]
    };
    assert_eq!(all(Some(3), Some(3)), []);
    assert_eq!(all(Some(3), Some(8)), told(5, 8));
    // Gear2 was restarted, or another one came.
    assert_eq!(all(Some(8), Some(2)), told(2, 2));
    assert_eq!(all(Some(8), Some(0)), []);
    assert_eq!(all(None, None), []);
    assert_eq!(all(None, Some(1)), told(1, 1));
    assert_eq!(all(Some(1), None), []);
}

#[test]
fn looks_are_compared_by_vm() {
    let look = |starts, paused| Look {
        counter: 2500,
        hz: 1000,
        starts,
        vms: vec![
            vm(VmState::Running),
            Vm {
                name: "y".into(),
                paused,
                ..vm(VmState::Running)
            },
        ],
    };
    let events = look(2, true).since(&look(1, false));
    let all: Vec<_> = events
        .iter()
        .map(|event| (event.time.as_str(), event.event, event.vm.as_deref()))
        .collect();
    let expected = [
        ("2.500000", EventKind::Paused, Some("y")),
        ("2.500000", EventKind::GdmStarted, None),
    ];
    assert_eq!(all, expected);
    assert_eq!(events[0].message, "VM y is paused");
}

#[test]
fn records_of_lives_are_events_and_others_are_not() {
    let names = Names::of(&[vm(VmState::Running)]);
    let of = |id: RecordId, value, lost| {
        let record = Record {
            time: 1500,
            id_and_cpu: id as u64,
            values: [value, 0, 0],
        };
        let events = of_record(&Logged { record, lost }, &names, 1000).into_iter();
        events
            .map(|event| (event.event, event.vm))
            .collect::<Vec<_>>()
    };
    let x = || Some("x".to_owned());
    assert_eq!(of(RecordId::VmStart, 0, 0), [(EventKind::Started, x())]);
    assert_eq!(of(RecordId::VmStop, 0, 0), [(EventKind::Stops, x())]);
    assert_eq!(of(RecordId::VmSilent, 0, 0), [(EventKind::Hung, x())]);
    assert_eq!(of(RecordId::VcpuFault, 1, 0), [(EventKind::Faulted, x())]);
    assert_eq!(of(RecordId::VcpuFault, 9, 0), [(EventKind::Faulted, None)]);
    let restart = [(EventKind::Gear2Restarted, None)];
    assert_eq!(of(RecordId::Gear2Restart, 1, 0), restart);
    assert_eq!(of(RecordId::GuestAbort, 0, 0), []);
    assert_eq!(of(RecordId::GuestAbort, 0, 3), [(EventKind::Lost, None)]);
}

#[test]
fn events_are_of_the_past_or_go_on() {
    let text = gearctl(&["events"]).unwrap();
    assert!(
        text.contains("1.500000  started  linux  VM linux started at 0x80"),
        "{text}"
    );
    let mut out = Few(4, Vec::new());
    let error = gearctl_to(&["events", "--follow", "--json"], &mut out).unwrap_err();
    assert!(error.sentence.starts_with("cannot print"), "{error}");
    let text = String::from_utf8(out.1).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains(r#""event":"lost""#), "{text}");
    assert!(attempt(&["events", "all"]).is_err());
}
