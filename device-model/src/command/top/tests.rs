use super::*;
use crate::command::tests::gearctl;

#[test]
fn top_compares_two_moments() {
    let vcpus = gearctl(&["--json", "top", "--vcpus", "1"]).unwrap();
    let quiet =
        r#""share_percent":0.0,"wait_percent":0.0,"steal_percent":0.0,"preemptions":0,"exits":0"#;
    let first = format!(r#"{{"vcpu":0,"vm":"device",{quiet}}}"#);
    assert!(vcpus.contains(&first), "{vcpus}");
    let vms = gearctl(&["--json", "top", "1"]).unwrap();
    let first = format!(r#""answer":[{{"vcpu":null,"vm":"device",{quiet}}}"#);
    assert!(vms.contains(&first), "{vms}");
}

#[test]
fn a_real_time_vm_waits_for_nobody() {
    let top = gearctl(&["--json", "top", "1"]).unwrap();
    let own = concat!(
        r#""vm":"rt","share_percent":null,"wait_percent":null,"#,
        r#""steal_percent":null,"preemptions":null"#
    );
    assert!(top.contains(own), "{top}");
    assert!(top.contains(r#""vm":"linux","share_percent":0.0"#), "{top}");
}

fn sample(vcpus: &[(u64, Sums)]) -> Sample {
    let vcpus = vcpus.iter().copied().collect();
    Sample { vcpus }
}

/// Figures are those of the time between, and a VM's are the sums of its vCPUs'. A VM that began
/// anew has figures that are smaller than before. The moments of two vCPUs may be apart.
#[test]
fn figures_are_of_the_time_between() {
    let old = sample(&[
        (2, [1_000, 100, 200, 150, 7, 40]),
        (3, [1_400, 10, 500, 500, 9, 50]),
    ]);
    let new = sample(&[
        (2, [2_000, 600, 650, 550, 10, 42]),
        (3, [2_400, 260, 100, 0, 1, 51]),
    ]);
    let vm = Vm {
        name: "a".into(),
        vcpus: 2,
        first_vcpu: 2,
        ..Vm::default()
    };
    let passed = Passed {
        old: &old,
        new: &new,
    };
    let rows = |by_vcpu| crate::json::line(&passed.rows(std::slice::from_ref(&vm), by_vcpu));
    assert_eq!(
        rows(true),
        concat!(
            r#"[{"vcpu":2,"vm":"a","share_percent":50.0,"wait_percent":45.0,"steal_percent":40.0,"#,
            r#""preemptions":3,"exits":2},"#,
            r#"{"vcpu":3,"vm":"a","share_percent":25.0,"wait_percent":0.0,"steal_percent":0.0,"#,
            r#""preemptions":0,"exits":1}]"#
        )
    );
    assert_eq!(
        rows(false),
        concat!(
            r#"[{"vcpu":null,"vm":"a","share_percent":75.0,"wait_percent":45.0,"steal_percent":40.0,"#,
            r#""preemptions":3,"exits":3}]"#
        )
    );
}
