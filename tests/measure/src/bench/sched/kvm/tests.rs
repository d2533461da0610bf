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
