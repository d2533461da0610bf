//! All policies under calls at random: what the loop relies on, whoever decides.
//!
//! The reference is the set of known vCPUs and that of ready ones.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gear1_abi::regs::NO_DEADLINE;
use proptest::prelude::*;

use super::*;

mod gears;

/// vCPUs that calls are about, whether they were added or not.
const VCPUS: usize = 8;
const SLICE: u64 = 2_500;

#[derive(Clone, Copy, Debug)]
enum Call {
    Add(usize, Share),
    Remove(usize),
    Set(usize, Share),
    Wake(usize),
    Block(usize),
    GiveWay(usize),
    /// A charge to whichever vCPU, however long.
    Ran(usize, u64),
    /// A choice that holds for so long, at most.
    Pick(u64),
    /// Time that passes while the loop does something else.
    Pass(u64),
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..3 * SLICE,
        2 => 1..30_u64,
        1 => 1..1_000 * SLICE,
        1 => Just(1 << 50),
    ]
}

fn budget() -> impl Strategy<Value = Option<Budget>> {
    let budget = (0..4_000_u64, 0..20_000_u64);
    proptest::option::of(budget.prop_map(|(ticks, period)| Budget { ticks, period }))
}

fn share() -> impl Strategy<Value = Share> {
    let latency = prop_oneof![Just(0), 0..50_000_u64, Just(u64::MAX)];
    let numbers = (
        0..=MAX_WEIGHT,
        any::<u8>(),
        latency,
        0..4_usize,
        any::<bool>(),
    );
    let all = (numbers, budget(), budget());
    all.prop_map(
        |((weight, priority, latency, vm, needed), cap, server)| Share {
            vm: VmId::from_low_bits(vm),
            weight,
            cap,
            server,
            priority,
            latency,
            needed,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let vcpu = 0..VCPUS;
    prop_oneof![
        2 => (vcpu.clone(), share()).prop_map(|(vcpu, share)| Call::Add(vcpu, share)),
        1 => vcpu.clone().prop_map(Call::Remove),
        2 => (vcpu.clone(), share()).prop_map(|(vcpu, share)| Call::Set(vcpu, share)),
        6 => vcpu.clone().prop_map(Call::Wake),
        4 => vcpu.clone().prop_map(Call::Block),
        1 => vcpu.clone().prop_map(Call::GiveWay),
        1 => (vcpu, length()).prop_map(|(vcpu, ticks)| Call::Ran(vcpu, ticks)),
        8 => length().prop_map(Call::Pick),
        1 => length().prop_map(Call::Pass),
    ]
}

fn plan() -> Plan {
    let window = |start, length, vm| Window { start, length, vm };
    Plan {
        slice: SLICE,
        ceiling: 0,
        frame: 20_000,
        windows: [
            window(0, 4_000, VmId::new(0)),
            window(5_000, 7_000, None),
            window(12_000, 3_000, VmId::new(1)),
        ]
        .into(),
        admission: Admission::default(),
    }
}

/// A policy and what is known about its vCPUs.
struct Subject {
    policy: Box<dyn Policy>,
    now: u64,
    known: [Option<Share>; VCPUS],
    ready: [bool; VCPUS],
}

impl Subject {
    fn new(name: &str, plan: &Plan, now: u64) -> Self {
        Self {
            policy: (PolicyKind::named(name).unwrap().make)(plan),
            now,
            known: [None; VCPUS],
            ready: [false; VCPUS],
        }
    }

    fn call(&mut self, call: Call) {
        let now = self.now;
        match call {
            Call::Add(index, share) => {
                if self.policy.add(vcpu(index), &share, now).is_ok() {
                    (self.known[index], self.ready[index]) = (Some(share), false);
                }
            }
            Call::Remove(index) => {
                self.policy.remove(vcpu(index), now);
                (self.known[index], self.ready[index]) = (None, false);
            }
            Call::Set(index, share) => {
                let taken = self.policy.set(vcpu(index), &share, now).is_ok();
                if let Some(known) = self.known[index].as_mut().filter(|_| taken) {
                    *known = share;
                }
            }
            Call::Wake(index) => {
                self.policy.wake(vcpu(index), now);
                self.ready[index] = self.known[index].is_some();
            }
            Call::Block(index) => {
                self.policy.block(vcpu(index), now);
                self.ready[index] = false;
            }
            Call::GiveWay(index) => self.policy.give_way(vcpu(index), now),
            Call::Ran(index, ticks) => self.policy.ran(vcpu(index), ticks, now),
            Call::Pick(ticks) => {
                self.pick(ticks);
            }
            Call::Pass(ticks) => self.now += ticks,
        }
    }

    /// Judges the choice, and lets time pass until it ends or `ticks` have passed. Returns what
    /// runs.
    fn pick(&mut self, ticks: u64) -> Option<usize> {
        let (now, ready) = (self.now, self.ready.iter().filter(|ready| **ready).count());
        let choice = self.policy.pick(now);
        let again = self.policy.pick(now);
        match (choice, again) {
            (Choice::Run(run), Choice::Run(same)) => {
                assert_eq!(run.vcpu, same.vcpu, "a choice holds until the next call");
                assert!(self.ready[run.vcpu.index()], "not ready: {run:?}");
                assert!(run.until > now, "no time to run: {run:?} at {now}");
                assert!(!run.contended || ready > 1, "nobody waits: {run:?}");
                self.now = run.until.min(now.saturating_add(ticks));
                self.policy.ran(run.vcpu, self.now - now, self.now);
                Some(run.vcpu.index())
            }
            (Choice::Idle { until }, Choice::Idle { .. }) => {
                assert!(until > now, "no time to wait: {until} at {now}");
                assert!(ready == 0 || until < NO_DEADLINE, "a lost vCPU");
                self.now = until.min(now.saturating_add(ticks));
                None
            }
            _ => panic!("{choice:?}, then {again:?}"),
        }
    }

    fn is_ready(&self) -> bool {
        self.ready.contains(&true)
    }
}

fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

/// Runs a policy through calls, and judges each choice beside the general rules.
fn play(
    name: &str,
    plan: &Plan,
    start: u64,
    calls: &[Call],
    judge: impl Fn(&Subject, Option<usize>),
) {
    let mut subject = Subject::new(name, plan, start);
    for call in calls {
        match call {
            Call::Pick(ticks) => {
                let runs = subject.pick(*ticks);
                judge(&subject, runs);
            }
            call => subject.call(*call),
        }
    }
}

/// Lets everybody who is ready run, while nothing else happens.
fn all_run(name: &str, calls: &[Call]) {
    let mut subject = Subject::new(name, &plan(), 0);
    // A debt of ages takes ages.
    let calls = calls.iter().filter(|call| !matches!(call, Call::Ran(..)));
    calls.for_each(|call| subject.call(*call));
    let mut missing: Vec<_> = (0..VCPUS).filter(|index| subject.ready[*index]).collect();
    for _ in 0..200_000 {
        if missing.is_empty() || !starves_nobody(name, &subject) {
            return;
        }
        let runs = subject.pick(NO_DEADLINE);
        missing.retain(|index| Some(*index) != runs);
    }
    panic!("{name}: {missing:?} never run");
}

/// Tells whether a policy promises that every ready vCPU runs: deadlines, windows and priorities
/// may starve some. A policy that is not named here has to keep the promise.
fn starves_nobody(name: &str, subject: &Subject) -> bool {
    let shares = || subject.known.iter().flatten();
    match name {
        "fair" => shares().all(|share| share.cap.is_none()),
        "edf" | "arinc653" | "priority" => false,
        _ => true,
    }
}

/// Tells whether a policy runs somebody whenever somebody is ready: caps, budgets and windows may
/// leave the CPU idle. A policy that is not named here has to conserve work.
fn conserves_work(name: &str) -> bool {
    !matches!(name, "fair" | "edf" | "arinc653")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn only_the_ready_run_and_nobody_is_lost(
        calls in proptest::collection::vec(call(), 1..150),
        start in prop_oneof![Just(0), 0..1_u64 << 60],
    ) {
        for policy in POLICIES {
            play(policy.name, &plan(), start, &calls, |subject, runs| {
                if conserves_work(policy.name) {
                    assert_eq!(runs.is_some(), subject.is_ready(), "{}: idle", policy.name);
                }
            });
        }
    }

    #[test]
    fn whoever_is_ready_runs_in_time(calls in proptest::collection::vec(call(), 1..150)) {
        for policy in POLICIES {
            all_run(policy.name, &calls);
        }
    }

    /// Without a ceiling, nobody runs while a higher priority is ready.
    #[test]
    fn a_lower_priority_never_runs_before_a_higher_one(
        calls in proptest::collection::vec(call(), 1..150),
    ) {
        play("priority", &plan(), 0, &calls, |subject, runs| {
            let level = |index: usize| subject.known[index].map(|share| share.priority.min(31));
            let ready = (0..VCPUS).filter(|index| subject.ready[*index]);
            assert_eq!(runs.and_then(level), ready.filter_map(level).max());
        });
    }

    /// A vCPU of a VM with windows runs in them alone, and all others in the windows of nobody.
    #[test]
    fn windows_hold_whatever_is_called(
        calls in proptest::collection::vec(call(), 1..150),
    ) {
        let plan = plan();
        let own = |vm| plan.windows.iter().any(|window| window.vm == Some(vm));
        let mut subject = Subject::new("arinc653", &plan, 0);
        // `set` moves no vCPU to another VM.
        let calls = calls.iter().filter(|call| !matches!(call, Call::Set(..)));
        for call in calls {
            let Call::Pick(ticks) = call else {
                subject.call(*call);
                continue;
            };
            let begin = subject.now;
            let Some(runs) = subject.pick(*ticks) else { continue };
            let vm = subject.known[runs].map(|share| share.vm).filter(|vm| own(*vm));
            let (start, end) = (begin % plan.frame, (subject.now - 1) % plan.frame);
            let window = plan.windows.iter().find(|window| {
                window.start <= start && end < window.start + window.length && window.vm == vm
            });
            prop_assert!(window.is_some(), "{runs} runs from {begin} to {}", subject.now);
            prop_assert!(subject.now - begin <= plan.frame);
        }
    }
}

/// The rest of a turn that is not worth a run of its own: equal vCPUs take turns after all but a
/// 512th of a slice, under each policy without virtual times.
#[test]
fn a_turn_ends_at_an_event_that_finds_little_of_it_left() {
    const LONG: u64 = 512 * 100;
    for name in ["round-robin", "priority"] {
        let plan = Plan {
            slice: LONG,
            ..Plan::default()
        };
        for (left, goes_on) in [(100, false), (101, true)] {
            let mut policy = (PolicyKind::named(name).unwrap().make)(&plan);
            for index in 0..2 {
                policy.add(vcpu(index), &Share::of(VmId::FIRST), 0).unwrap();
                policy.wake(vcpu(index), 0);
            }
            let Choice::Run(run) = policy.pick(0) else {
                panic!("{name}: two are ready");
            };
            assert_eq!(run.until, LONG, "{name}");
            // The work for another one's wake-up was between the event and the entry.
            policy.ran(run.vcpu, LONG - left, LONG);
            let Choice::Run(next) = policy.pick(LONG) else {
                panic!("{name}: two are ready");
            };
            assert_eq!(next.vcpu == run.vcpu, goes_on, "{name}: {left} left");
        }
    }
}
