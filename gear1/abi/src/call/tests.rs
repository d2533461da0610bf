use super::*;

/// Calls `check` with each word of a decision, also those that no decision has, and some registers.
fn each_decision(mut check: impl FnMut(&Regs, VcpuId)) {
    let loaded = VcpuId::new(5).expect("it can exist");
    for kind in 0..=0xff {
        for reply in 0..=0xff {
            for named in [0, 5, 31, 32, NO_VCPU, 5 | 1 << 32] {
                let word = kind | reply << REPLY_SHIFT;
                check(&[word, named, 7, 9, 0, 0, 0, 0], loaded);
                check(&[word | TRAP_WFE, named, 7, 9, 0, 0, 0, 0], loaded);
            }
        }
    }
}

/// The short way of Gear1 takes the decisions for the loaded vCPU as the long one reads them, and no
/// other.
#[test]
fn a_decision_for_one_vcpu_is_the_decision() {
    let mut runs = 0;
    each_decision(|regs, loaded| {
        let whole = Decision::decode(regs);
        let of_loaded = match whole {
            Some(Decision::Run { vcpu, .. }) if vcpu == loaded => whole,
            _ => None,
        };
        assert_eq!(
            Decision::decode_run_of(regs, loaded),
            of_loaded,
            "{regs:#x?}"
        );
        runs += u32::from(of_loaded.is_some());
    });
    assert_eq!(runs, 6, "three replies, with and without WFE trapped");
}

#[test]
fn a_decision_is_read_as_it_was_written() {
    each_decision(|regs, _| {
        if let Some(decision) = Decision::decode(regs) {
            assert_eq!(Decision::decode(&decision.encode()), Some(decision));
        }
    });
}
