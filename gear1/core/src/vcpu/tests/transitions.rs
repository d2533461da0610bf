//! Every state of a vCPU, with every set of requests, against every step of the protocol: the
//! resulting state and requests are those of the table in `vcpu.rs`; a step that does not apply
//! changes nothing.

use std::vec::Vec;

use gear1_abi::call::VcpuState;
use gear1_abi::call::VcpuState::{AwaitsHypercall, AwaitsMmio, Off, Ready, Running, Wfi};

use crate::vcpu::{IcacheRequests, Notify, Requests, VcpuShared};

const STATES: [VcpuState; 6] = [Off, Ready, Running, Wfi, AwaitsMmio, AwaitsHypercall];
const ASKED: [Requests; 8] = [
    Requests::IRQ,
    Requests::STOP,
    Requests::RESET,
    Requests::REPLY,
    Requests::WARM,
    Requests::AWAITS,
    Requests::MESSAGE,
    Requests::ICACHE,
];

/// Returns each set of what a vCPU can be asked for.
fn sets() -> impl Iterator<Item = Requests> {
    (0_u32..1 << ASKED.len()).map(|set| {
        let each = ASKED.into_iter().enumerate();
        let asked = each.filter(|(number, _)| set >> number & 1 != 0);
        asked.fold(Requests::NONE, |all, (_, one)| all.union(one))
    })
}

fn vcpu(state: VcpuState, asked: Requests) -> VcpuShared {
    let vcpu = VcpuShared::new();
    vcpu.set_state(state);
    vcpu.raise(asked);
    vcpu
}

/// All state that a step can change, except for the words that come with a request.
type Whole = (VcpuState, Requests, u16, (u64, u64));

fn whole(vcpu: &VcpuShared) -> Whole {
    let owner_cpu = vcpu.owner_cpu().reg() as u16;
    (vcpu.state(), vcpu.requests(), owner_cpu, vcpu.awaited())
}

/// Makes a step in each state with each set, and compares all with what must be then. `after`: the
/// state, the requests, and what the step says.
fn step<R: PartialEq + core::fmt::Debug>(
    make: impl Fn(&VcpuShared) -> R,
    after: impl Fn(VcpuState, Requests) -> (VcpuState, Requests, R),
) {
    for (state, asked) in STATES.into_iter().flat_map(|s| sets().map(move |a| (s, a))) {
        let vcpu = vcpu(state, asked);
        let said = make(&vcpu);
        let (state_then, asked_then, says) = after(state, asked);
        assert_eq!(said, says, "{state:?} {asked:?}");
        let then = (state_then, asked_then, 0, (0, 0));
        assert_eq!(whole(&vcpu), then, "{state:?} {asked:?}");
    }
}

#[test]
fn it_is_claimed_when_it_may_run() {
    step(VcpuShared::claim, |state, asked| match state {
        Ready | Wfi => (Running, asked, true),
        Off | Running | AwaitsMmio | AwaitsHypercall => (state, asked, false),
    });
}

#[test]
fn only_who_waits_is_woken() {
    step(VcpuShared::wake_up, |state, asked| match state {
        Wfi => (Ready, asked, true),
        Off | Ready | Running | AwaitsMmio | AwaitsHypercall => (state, asked, false),
    });
}

#[test]
fn who_is_asked_hears_of_it() {
    for what in ASKED {
        step(
            |vcpu| vcpu.request(what),
            |state, asked| match state {
                Running => (Running, asked.union(what), Notify::Kick),
                Wfi => (Ready, asked.union(what), Notify::Wake),
                Off | Ready | AwaitsMmio | AwaitsHypercall => {
                    (state, asked.union(what), Notify::Nobody)
                }
            },
        );
    }
}

/// An owner CPU makes these two steps while the vCPU is Running, and in no other state.
#[test]
fn it_waits_unless_it_is_asked() {
    let expected = [
        Requests::NONE,
        Requests::ICACHE,
        Requests::AWAITS.union(Requests::ICACHE),
        Requests::RESET
            .union(Requests::WARM)
            .union(Requests::ICACHE),
    ];
    for (expected, asked) in expected
        .into_iter()
        .flat_map(|e| sets().map(move |a| (e, a)))
    {
        let is_asked = !asked.without(expected).is_none();
        let quiet = vcpu(Running, asked);
        assert_eq!(quiet.wait_quiet(expected), !is_asked, "{asked:?}");
        let then = if is_asked { Running } else { Wfi };
        assert_eq!(whole(&quiet), (then, asked, 0, (0, 0)));
        for due in [false, true] {
            let locked = vcpu(Running, asked);
            let waits = !is_asked && !due;
            assert_eq!(
                locked.wait_locked(expected, || due),
                waits,
                "{asked:?} {due}"
            );
            let then = if waits { Wfi } else { Running };
            assert_eq!(whole(&locked), (then, asked, 0, (0, 0)));
        }
    }
}

#[test]
fn a_transition_is_made_from_its_origin_only() {
    for (from, to) in STATES
        .into_iter()
        .flat_map(|from| STATES.map(|to| (from, to)))
    {
        step(
            |vcpu| vcpu.transition(from, to),
            |state, asked| match state == from {
                true => (to, asked, true),
                false => (state, asked, false),
            },
        );
    }
}

#[test]
fn what_is_asked_is_taken_once() {
    for what in ASKED {
        step(
            |vcpu| (vcpu.take(what), vcpu.take(what)),
            |state, asked| (state, asked.without(what), (asked.intersects(what), false)),
        );
    }
}

/// G1-CPU-011: who does not run is asked without being woken.
#[test]
fn a_request_for_the_instruction_cache_wakes_nobody() {
    step(VcpuShared::request_icache, |state, asked| {
        let notify = match state {
            Running => Notify::Kick,
            Off | Ready | Wfi | AwaitsMmio | AwaitsHypercall => Notify::Nobody,
        };
        (state, asked.union(Requests::ICACHE), notify)
    });
}

/// G1-CPU-011: what is served is what was asked before the instruction cache was invalidated.
#[test]
fn a_request_for_the_instruction_cache_is_served() {
    for (state, asked) in STATES.into_iter().flat_map(|s| sets().map(move |a| (s, a))) {
        let (vcpu, requests) = (vcpu(state, asked), IcacheRequests::new());
        let first = requests.add();
        assert_eq!(vcpu.has_served_icache(first), state != Running);
        let mut second = 0;
        vcpu.serve_icache(&requests, || {
            assert_eq!(vcpu.has_served_icache(first), state != Running);
            second = requests.add();
        });
        assert!(vcpu.has_served_icache(first));
        assert_eq!(vcpu.has_served_icache(second), state != Running);
        let then = asked.without(Requests::ICACHE);
        assert_eq!(whole(&vcpu), (state, then, 0, (0, 0)));
    }
}

/// A start makes void what was asked of the former life, but not what its CPU's instruction cache
/// holds; a wake from power-down voids nothing.
#[test]
fn a_start_is_asked_for_and_taken() {
    let start = Requests::RESET.union(Requests::IRQ);
    step(
        |vcpu| vcpu.request_reset(0x4000, 7),
        |state, asked| {
            let voided = asked.without(Requests::ICACHE);
            (state, asked.without(voided).union(start), ())
        },
    );
    let warm = Requests::RESET.union(Requests::WARM);
    step(
        |vcpu| vcpu.request_resume(0x4000, 7),
        |state, asked| (state, asked.union(warm), ()),
    );
    step(
        |vcpu| {
            vcpu.take_reset()
                .map(|start| (start.pc, start.argument, start.warm))
        },
        |state, asked| match asked.intersects(Requests::RESET) {
            true => (
                state,
                asked.without(warm),
                Some((0, 0, asked.intersects(Requests::WARM))),
            ),
            false => (state, asked, None),
        },
    );
}

#[test]
fn a_reply_is_left_and_taken() {
    step(
        |vcpu| vcpu.post_reply(1, 2),
        |state, asked| (state, asked.union(Requests::REPLY), ()),
    );
    step(
        |vcpu| {
            let reply = vcpu.take_reply();
            (reply, vcpu.take_reply())
        },
        |state, asked| {
            let reply = asked.intersects(Requests::REPLY).then_some((0, 0));
            (state, asked.without(Requests::REPLY), (reply, None))
        },
    );
}

#[test]
fn a_stop_turns_off_who_does_not_run() {
    step(VcpuShared::stop, |state, asked| match state {
        Running => (Running, asked.union(Requests::STOP), Notify::Kick),
        // Its CPU may wait with it.
        Wfi => (Off, asked, Notify::Kick),
        Off | Ready | AwaitsMmio | AwaitsHypercall => (Off, asked, Notify::Nobody),
    });
}

/// Time begins to be stolen, and a vCPU is preempted, when it is unloaded ready, and in no other
/// state.
#[test]
fn only_who_is_ready_is_stolen_from() {
    step(
        |vcpu| {
            vcpu.unload(10);
            (vcpu.waits_for(15), vcpu.preemptions(), vcpu.end_stolen(30))
        },
        |state, asked| match state {
            Ready => (state, asked, (5, 1, Some(20))),
            Off | Running | Wfi | AwaitsMmio | AwaitsHypercall => (state, asked, (0, 0, None)),
        },
    );
}

#[test]
fn all_states_and_sets_were_looked_at() {
    let sets: Vec<Requests> = sets().collect();
    assert_eq!(sets.len(), 256);
    assert!(
        sets.iter()
            .all(|set| sets.iter().filter(|other| *other == set).count() == 1)
    );
    assert!(
        STATES
            .into_iter()
            .all(|state| VcpuState::from_reg(state as u64) == Some(state))
    );
    assert_eq!(VcpuState::from_reg(STATES.len() as u64), None);
}
