use super::*;

#[test]
fn exits_are_those_since_then_and_sgis_are_apart() {
    let before = Exits::parse(" hvc 15 mmio-gic 725 wfi 3 (250 ns)");
    let after = Exits::parse(" hvc 15 sgi 2 mmio-gic 728 wfi 3 (260 ns)");
    let counted = after.since(&before, 2);
    assert_eq!((counted.others, counted.sgis, counted.own), (3, 2, 2));
    assert_eq!(before.since(&before, 0).others, 0);
}
