use super::*;

#[test]
fn a_vm_is_started_in_its_group() {
    let vm = Vm::new("role=spin")
        .with_vcpus(2)
        .treated("ignored;", "nice=-20")
        .grouped("max", "2500 10000");
    assert_eq!(
        command(1, &vm, 5000),
        "( group 1 cpu.max \"2500 10000\"; exec kvm-vmm kernel=/guest/kernel memory=16 gic=$gic \
         cpus=0,0 \"cmdline=role=spin id=1 start-ms=$start ms=5000\" nice=-20 ) &\n"
    );
}

#[test]
fn runs_count_from_the_release_of_the_last_vm() {
    let printed = "CASE 0 start_ms=2\nFREED at=2000100\nFREED at=2000400\n\
                   SCHED id=0 units=1\nTRACE id=0 cpu=0 from=0 to=300\n\
                   TRACE id=0 cpu=0 from=350 to=500\n";
    let run = crate::bench::sched::guest::tests::run(&[1]);
    let mut reports = guest::reports(&run, printed).unwrap();
    from_release(&mut reports, printed);
    assert_eq!(reports[0].runs, [[0, 100]]);
}
