use super::*;

#[test]
fn exits_are_those_since_then_and_sgis_are_apart() {
    let before = Exits::parse(" hvc 15 mmio-gic 725 wfi 3 (250 ns)");
    let after = Exits::parse(" hvc 15 sgi 2 mmio-gic 728 wfi 3 (260 ns)");
    let counted = after.since(&before, 2);
    assert_eq!((counted.others, counted.sgis, counted.own), (3, 2, 2));
    assert_eq!(before.since(&before, 0).others, 0);
}

#[test]
fn a_log_holds_the_counts_of_one_vm() {
    let log = "gear2: rt vCPU 0: hvc 3 wfi 1 (250 ns)\n[guest] x\ngear2: rt vCPU 1: hvc 9\n\
        gear2: guest vCPU 0: hvc 7\nnoise gear2: rt vCPU 0: hvc 5 sgi 1\n";
    let counts = Exits::all_in(log, "rt");
    let [before, after] = counts.as_slice() else {
        panic!("{counts:?}");
    };
    let counted = after.since(before, 1);
    assert_eq!((counted.others, counted.sgis, counted.own), (2, 1, 1));
    assert_eq!(counted.facts()[fact::EXITS], "2");
}
