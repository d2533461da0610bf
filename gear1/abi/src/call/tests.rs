use super::*;

const WAITS: [Waits; 4] = [Waits::Leaves, Waits::GivesWay, Waits::Stays, Waits::Alone];

/// Calls `check` with each word of a decision, also those that no decision has, and some registers.
fn each_decision(mut check: impl FnMut(&Regs, VcpuId)) {
    let loaded = VcpuId::new(5).expect("it can exist");
    for kind in 0..=0xff {
        for reply in 0..=0xff {
            for named in [0, 5, 31, 32, NO_VCPU, 5 | 1 << 32] {
                for waits in (0..9).chain([1 << 16, 1 << 55]) {
                    let word = kind | reply << REPLY_SHIFT | waits << 8;
                    check(&[word, named, 7, 9, 0, 0, 0, 0], loaded);
                }
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
        for expected in WAITS {
            let of_loaded = match whole {
                Some(Decision::Run {
                    vcpu,
                    deadline,
                    reply,
                    value,
                    waits,
                }) if (vcpu, waits) == (loaded, expected) => match reply {
                    Reply::None => Some((deadline, None)),
                    Reply::Value => Some((deadline, Some(value))),
                    Reply::Abort => None,
                },
                _ => None,
            };
            assert_eq!(
                Decision::decode_run_of(regs, loaded, expected),
                of_loaded,
                "{regs:#x?}"
            );
            runs += u32::from(of_loaded.is_some());
        }
    });
    assert_eq!(runs, 8, "two replies, and four ways to wait");
}

/// A word whose waits are none of these is no decision: Gear1 would guess.
#[test]
fn waits_that_do_not_exist_are_no_decision() {
    for waits in [3, 5, 6, 7, 8, 1 << 16, 1 << 55] {
        let regs = [waits << 8, 5, 7, 9, 0, 0, 0, 0];
        assert_eq!(Decision::decode(&regs), None, "{waits:#x}");
    }
}

#[test]
fn a_decision_is_read_as_it_was_written() {
    each_decision(|regs, _| {
        if let Some(decision) = Decision::decode(regs) {
            assert_eq!(Decision::decode(&decision.encode()), Some(decision));
        }
    });
}
