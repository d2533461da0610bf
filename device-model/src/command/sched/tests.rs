//! Words of `gearctl sched`, and what they do with a Gear2 that refuses some of it.

use super::super::Command;
use super::super::tests::{gearctl, gearctl_lines, line};
use super::*;

/// Returns the numbers of a setting, or whether it is none.
fn setting(text: &str) -> Result<[u64; 3], Error> {
    let words = ["sched", "set", "linux"].into_iter();
    let words: Vec<&str> = words.chain(text.split(' ')).collect();
    match line(&words)?.command {
        Command::Sched {
            ask: Some(Ask::Set { setting, .. }),
        } => setting.numbers(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_read_as_the_manifest_has_them() {
    for (text, numbers) in [
        ("weight 300", [share::WEIGHT, 300, 0]),
        ("priority 31", [share::PRIORITY, 31, 0]),
        ("latency-us 250", [share::LATENCY, 250, 0]),
        ("cap-percent 25", [share::CAP, 2_500, 10_000]),
        ("cap-percent 50 period-us 1000", [share::CAP, 500, 1_000]),
        ("cap-percent none", [share::CAP, 0, 0]),
        (
            "budget-us 2000 period-us 5000",
            [share::BUDGET, 2_000, 5_000],
        ),
        ("budget-us none", [share::BUDGET, 0, 0]),
    ] {
        assert_eq!(setting(text), Ok(numbers), "{text}");
    }
    for bad in [
        "weight",
        "weight -1",
        "weight 1 2",
        "cap-percent 101",
        "cap-percent 0",
        "cap-percent 20 period-us",
        "budget-us 2000",
        "budget-us 2000 5000",
        "budget-us 0 period-us 100",
        "colour 3",
    ] {
        let error = setting(bad).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage, "{bad}: {error}");
    }
}

#[test]
fn command_lines_are_read() {
    let ask = |text: &str| match line(&text.split(' ').collect::<Vec<_>>())?.command {
        Command::Sched { ask } => Ok::<_, Error>(ask),
        other => panic!("{other:?}"),
    };
    assert_eq!(ask("sched"), Ok(None));
    let to = || Move {
        vm: "linux".into(),
        vcpu: 1,
        cpu: 2,
    };
    assert_eq!(ask("sched move linux 1 2"), Ok(Some(Ask::Move(to()))));
    assert_eq!(ask("sched pin linux 1 2"), Ok(Some(Ask::Pin(to()))));
    let (cpu, state) = (2, Switch::Off);
    assert_eq!(ask("sched cpu 2 off"), Ok(Some(Ask::Cpu { cpu, state })));
    for bad in [
        "sched pin linux 1",
        "sched pin linux x 2",
        "sched cpu 2",
        "sched cpu off",
        "sched pool linux",
        "sched set linux",
    ] {
        assert_eq!(ask(bad).unwrap_err().kind, ErrorKind::Usage, "{bad}");
    }
}

#[test]
fn all_is_shown() {
    let text = gearctl(&["sched"]).unwrap();
    let expected = "\
pools:
POOL     CPUS  POLICY  SLICE_US  BALANCER  VMS
default  0     edf     2500      load      device
work     1     edf     2500      load      linux

cpus:
CPU  CLUSTER  POOL     POLICY  SLICE_US  BALANCER  VCPUS  STATE
0    0        default  edf     2500      load      4      on
1    1        work     edf     2500      load      0      on

vcpus:
VM      INDEX  CPU  PINNED  ALLOWED
device  0      0    no      0 1
device  1      0    no      0 1
linux   0      0    no      0 1
linux   1      0    no      0 1

vms:
VM      WEIGHT  CAP_US  BUDGET_US  PRIORITY  LATENCY_US
device  100     -       -          16        0
linux   100     -       -          16        0

moves: 9
";
    assert_eq!(text, expected);
}

/// Runs commands one after the other. Returns what the last one prints or says.
fn after(words: &[&str]) -> Result<String, String> {
    gearctl_lines(words)
}

#[test]
fn vcpus_move_and_are_pinned_or_say_why_not() {
    let text = after(&["sched move linux 0 1"]).unwrap();
    assert_eq!(
        text,
        "vm: linux\nindex: 0\ncpu: 1\npinned: no\nallowed: 0 1\n"
    );
    let text = after(&["sched pin linux 0 1"]).unwrap();
    assert!(text.contains("cpu: 1\npinned: yes"), "{text}");
    let text = after(&["sched pin linux 0 1", "sched unpin linux 0"]).unwrap();
    assert!(text.contains("cpu: 1\npinned: no"), "{text}");
    assert_eq!(
        after(&["sched move linux 1 1"]).unwrap_err(),
        "vCPU 1 of linux does not move to CPU 1: the policy of a CPU takes one vCPU, and has it"
    );
    assert_eq!(
        after(&["sched pin linux 2 1"]).unwrap_err(),
        "VM linux has vCPUs 0 to 1"
    );
    let error = after(&["sched pin rt 0 1"]).unwrap_err();
    assert!(
        error.starts_with("VM rt is real-time, with CPUs"),
        "{error}"
    );
}

#[test]
fn a_cpu_leaves_and_comes_back_or_says_why_not() {
    assert_eq!(
        after(&["sched cpu 1 off"]).unwrap(),
        "cpu: 1\nscheduler: off\n"
    );
    assert_eq!(
        after(&["sched cpu 1 off", "sched move linux 0 1"]).unwrap_err(),
        "vCPU 0 of linux does not move to CPU 1: \
         the CPU is off for the scheduler; `gearctl sched cpu` turns it on"
    );
    assert!(after(&["sched cpu 1 off", "sched cpu 1 on"]).is_ok());
    assert_eq!(
        after(&["sched cpu 0 off"]).unwrap_err(),
        "CPU 0 is not turned off: vCPU 1 of linux stays there: \
         the budgets on a CPU would exceed its time"
    );
    assert_eq!(
        after(&["sched pin linux 0 1", "sched cpu 1 off"]).unwrap_err(),
        "CPU 1 is not turned off: \
         a vCPU is pinned there or to another CPU; see `gearctl sched`"
    );
    assert_eq!(
        after(&["sched cpu 7 off"]).unwrap_err(),
        "CPU 7 is not turned off: it does not exist"
    );
}

#[test]
fn parameters_are_set_or_stay_what_they_are() {
    let text = after(&["sched set linux weight 300"]).unwrap();
    assert!(text.starts_with("vm: linux\nweight: 300\n"), "{text}");
    let text = after(&["sched set linux budget-us 2000 period-us 10000"]).unwrap();
    assert!(text.contains("budget_us: 2000 of 10000\n"), "{text}");
    assert_eq!(
        after(&["sched set linux budget-us 9000 period-us 10000"]).unwrap_err(),
        "VM linux keeps its parameters: the budgets on a CPU would exceed its time"
    );
    assert_eq!(
        after(&["sched set linux weight 1001"]).unwrap_err(),
        "VM linux keeps its parameters: the value is out of the range that docs/manifest.md gives"
    );
    let error = after(&["sched set linux colour 3"]).unwrap_err();
    assert!(
        error.starts_with("unexpected argument 'colour'")
            && error.ends_with("Commands: weight, priority, latency-us, cap-percent, budget-us"),
        "{error}"
    );
}

#[test]
fn a_vm_changes_its_pool_or_stays() {
    assert_eq!(
        after(&["sched pool linux default"]).unwrap(),
        "vm: linux\npool: default\ncpus: 0\n"
    );
    let text = after(&["sched pool linux default", "sched"]).unwrap();
    assert!(text.contains("load      device linux\n"), "{text}");
    let text = after(&["sched pool linux default", "sched pool linux work", "sched"]).unwrap();
    assert!(text.contains("load      linux\n"), "{text}");
    assert_eq!(
        after(&["sched pool device work"]).unwrap_err(),
        "VM device stays in its pool: the budgets on a CPU would exceed its time"
    );
    let error = after(&["sched pin linux 0 1", "sched pool linux default"]).unwrap_err();
    assert!(
        error.starts_with("VM linux stays in its pool: a vCPU is pinned"),
        "{error}"
    );
    assert_eq!(
        after(&["sched pool linux play"]).unwrap_err(),
        "there is no pool play with CPUs, there are: default, work"
    );
    let error = after(&["sched pool rt work"]).unwrap_err();
    assert!(error.starts_with("VM rt is real-time"), "{error}");
}
