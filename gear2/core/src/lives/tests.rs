//! Histories that are looked at rarely.

use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::event::{Ended, Ends};
use proptest::prelude::*;

use super::*;

/// Gear1's side, and all that happened.
#[derive(Debug)]
struct Vm {
    history: VmHistory,
    happened: Vec<News>,
}

impl Vm {
    fn new() -> Self {
        let history = VmHistory {
            starts: 0,
            end: Ended::No,
            ends: Ends(0),
            silent: 0,
        };
        let happened = vec![];
        Self { history, happened }
    }

    fn starts(&mut self) {
        self.history.starts += 1;
        self.history.ends = self.history.ends.begin_life();
        self.happened.push(News::Started);
    }

    fn ends(&mut self, how: Ended) {
        self.history.ends = self.history.ends.end_life(how);
        self.happened.push(News::Ended(how));
    }
}

fn all(reported: &mut Reported, history: &VmHistory) -> Vec<News> {
    core::iter::from_fn(|| reported.next(history)).collect()
}

#[test]
fn a_start_and_an_end_between_two_looks_are_both_told() {
    let (mut vm, mut reported) = (Vm::new(), Reported::default());
    vm.starts();
    assert_eq!(all(&mut reported, &vm.history), [News::Started]);
    vm.ends(Ended::Reset);
    vm.starts();
    vm.ends(Ended::Off);
    let expected = [
        News::Ended(Ended::Reset),
        News::Started,
        News::Ended(Ended::Off),
    ];
    assert_eq!(all(&mut reported, &vm.history), expected);
    assert_eq!(all(&mut reported, &vm.history), [], "once");
}

#[test]
fn what_is_too_long_ago_is_counted() {
    let (mut vm, mut reported) = (Vm::new(), Reported::default());
    vm.starts();
    assert_eq!(all(&mut reported, &vm.history), [News::Started]);
    for _ in 0..100 {
        vm.ends(Ended::Reset);
        vm.starts();
    }
    let news = all(&mut reported, &vm.history);
    assert_eq!(news[0], News::Forgotten(100 - 31));
    assert_eq!(news.len(), 1 + 2 * 31);
    assert_eq!(reported.starts(), 101);
}

#[test]
fn words_of_a_gear2_that_failed_may_be_any() {
    let mut vm = Vm::new();
    vm.starts();
    vm.ends(Ended::Fault);
    let mut reported = Reported::from_words([u32::MAX, 7], &vm.history);
    assert_eq!(all(&mut reported, &vm.history), [News::Ended(Ended::Fault)]);
    let again = Reported::from_words(reported.words(), &vm.history);
    assert_eq!(again, reported);
}

proptest! {
    /// Up to 31 lives begin between two looks: everything is reported, once and in order.
    #[test]
    fn everything_is_told_once_and_in_order(
        lives in proptest::collection::vec((0..4_u64, 0..32_usize), 1..200),
    ) {
        let (mut vm, mut reported) = (Vm::new(), Reported::default());
        let (mut news, mut since) = (vec![], 0);
        for (end, pause) in lives {
            vm.starts();
            // Not by itself: somebody stops it.
            if let Some(how) = Ended::from_reg(end).filter(|how| *how != Ended::No) {
                vm.ends(how);
            }
            since += 1;
            if since > pause {
                news.extend(all(&mut reported, &vm.history));
                since = 0;
            }
        }
        news.extend(all(&mut reported, &vm.history));
        prop_assert_eq!(news, vm.happened);
    }
}
