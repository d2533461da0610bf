use std::path::PathBuf;

use super::{Class, Gic, Options};

fn parse(line: &str) -> Result<Vec<Options>, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Options::parse(&words)
}

#[test]
fn what_is_not_given_has_a_default() {
    let vms = parse("kernel=/k").unwrap();
    let [vm] = &vms[..] else { panic!("{vms:?}") };
    assert_eq!(vm.kernel, PathBuf::from("/k"));
    assert_eq!((vm.memory_mib, vm.gic), (512, Gic::V3));
    assert_eq!(vm.class, Class::Other(0));
    assert_eq!(vm.cpus, [0]);
}

#[test]
fn all_options_are_taken() {
    let seed = "0f".repeat(32);
    let line = format!(
        "kernel=/k initrd=/i disk=/d net=tap0 cmdline=quiet=1 memory=64 cpus=1,3 gic=2 seed={seed} fifo=50 free=7"
    );
    let vms = parse(&line).unwrap();
    let expected = Options {
        kernel: "/k".into(),
        initrd: Some("/i".into()),
        disk: Some("/d".into()),
        net: Some("tap0".to_owned()),
        cmdline: "quiet=1".to_owned(),
        memory_mib: 64,
        cpus: vec![1, 3],
        gic: Gic::V2,
        seed: [15; 32],
        class: Class::Fifo(50),
        free_ms: Some(7),
    };
    assert_eq!(vms, [expected]);
}

#[test]
fn a_class_has_its_parameters() {
    let class = |word: &str| parse(&format!("kernel=/k {word}")).unwrap()[0].class;
    assert_eq!(class("nice=-20"), Class::Other(-20));
    assert_eq!(
        class("deadline=200,1000,1000"),
        Class::Deadline([200, 1000, 1000])
    );
}

#[test]
fn two_vms_have_a_group_each() {
    let vms = parse("kernel=/a and kernel=/b gic=2").unwrap();
    assert_eq!(vms.len(), 2);
    assert_eq!(vms[1].gic, Gic::V2);
    assert!(parse("kernel=/a and kernel=/b and kernel=/c").is_err());
}

#[test]
fn what_is_wrong_is_named() {
    for (line, named) in [
        ("", "kernel"),
        ("kernel=/a and", "kernel"),
        ("kernel", "OPTION=VALUE"),
        ("kernel=/k gic=4", "gic=4"),
        ("kernel=/k cpus=1,", "cpus=1,"),
        ("kernel=/k cpus=0,0,0,0,0,0,0,0,0", "8 vCPUs"),
        ("kernel=/k memory=1", "memory=1"),
        ("kernel=/k net=a-name-of-16-abc", "1 to 15 characters"),
        ("kernel=/k seed=00", "64 hexadecimal digits"),
        ("kernel=/k fifo=0", "1 to 99"),
        ("kernel=/k nice=20", "-20 to 19"),
        ("kernel=/k deadline=1,2", "RUNTIME"),
        ("kernel=/k deadline=3,2,4", "in this order"),
        ("kernel=/k deadline=0,2,4", "1 to 1000000"),
        ("kernel=/k colour=blue", "no such option"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(named), "{line:?}: {error}");
    }
}
