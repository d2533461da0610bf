use super::super::vm::Vm;
use super::*;

/// Returns a run of VMs with so many vCPUs each.
pub(in crate::bench::sched) fn run(vcpus: &[usize]) -> Run {
    let vms = vcpus
        .iter()
        .map(|vcpus| Vm::new("role=spin").with_vcpus(*vcpus));
    Run {
        vms: vms.collect(),
        ms: 1,
    }
}

#[test]
fn consoles_of_both_systems_are_read() {
    let printed = "[vm0] SCHED role=periodic id=0 min=2 max=7\nSCHED role=spin id=1 cpu=0 units=3\n\
                   SCHED role=spin id=1 cpu=1 units=4\n";
    let reports = reports(&run(&[1, 2]), printed).unwrap();
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[0].get("max").unwrap(), 7);
    assert_eq!(reports[2].get("units").unwrap(), 4);
    let missing = reports[0].get("units").unwrap_err();
    assert!(missing.to_string().contains("VM 0 reports no units"));
}

#[test]
fn a_guest_that_says_nothing_is_named() {
    let printed = "SCHED role=spin id=0 units=3\nSCHED role=spin id=1 cpu=0 units=3\n";
    let error = reports(&run(&[1, 2]), printed).unwrap_err().to_string();
    assert!(error.contains("VM 1 has 2 vCPUs, and 1"), "{error}");
}

#[test]
fn a_guest_that_failed_is_quoted() {
    let printed = "[vm0] FAIL start: booted 7 us too late\n[vm0] SCHED role=spin id=0 units=0\n";
    let error = reports(&run(&[1]), printed).unwrap_err().to_string();
    assert!(error.contains("booted 7 us too late"), "{error}");
}

#[test]
fn traced_runs_are_those_of_their_vm() {
    let printed = "[vm1] SCHED id=1 units=3\n[vm1] TRACE id=1 cpu=0 from=5 to=9\nSCHED id=0 units=1\n\
                   [vm1] TRACE id=1 cpu=0 from=12 to=13\n";
    let reports = reports(&run(&[1, 1]), printed).unwrap();
    assert_eq!(
        (reports[0].id, &reports[0].runs[..]),
        (1, &[[5, 9], [12, 13]][..])
    );
    assert!(reports[1].runs.is_empty());
}
