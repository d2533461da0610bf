//! Requests and responses, every call in every role, circles, and random lives of vCPUs.

use std::vec::Vec;

use gear1_abi::id::{MAX_VCPUS, VcpuId, VmId};
use gear1_abi::regs::Regs;
use proptest::prelude::{any, prop, proptest};

use super::super::function;
use super::{Messages, Next, Places};
use crate::vgic::VcpuIndex;

/// Three VMs with two vCPUs each.
fn places() -> Places {
    let mut places = [(VmId::FIRST, VcpuIndex::FIRST); MAX_VCPUS];
    for (number, place) in places.iter_mut().enumerate().take(6) {
        *place = (
            VmId::new(number / 2).unwrap(),
            VcpuIndex::from_low_bits(number % 2),
        );
    }
    places
}

/// Nobody is the peer of VM 2 but VM 1.
const PEERS: [u16; 3] = [0b010, 0b101, 0b010];

fn vcpu(number: usize) -> VcpuId {
    VcpuId::new(number).unwrap()
}

fn endpoint(number: usize) -> u64 {
    number as u64 / 2 + 1
}

fn call(messages: &mut Messages, me: usize, regs: Regs) -> Next {
    messages.call(&places(), PEERS[me / 2], vcpu(me), &regs)
}

fn wait(messages: &mut Messages, me: usize) -> Next {
    call(
        messages,
        me,
        [function::MSG_WAIT.into(), 0, 0, 0, 0, 0, 0, 0],
    )
}

fn message(id: u32, from: usize, to: usize) -> Regs {
    let ends = endpoint(from) << 16 | endpoint(to);
    [id.into(), ends, 0, 0x1_0000_0003, 4, 5, 6, 7]
}

fn ask(messages: &mut Messages, me: usize, to: usize) -> Next {
    call(messages, me, message(function::DIRECT_REQ, me, to))
}

fn respond(messages: &mut Messages, me: usize, to: usize) -> Next {
    call(messages, me, message(function::DIRECT_RESP, me, to))
}

fn run(messages: &mut Messages, me: usize, whom: usize) -> Next {
    let name = endpoint(whom) << 16 | (whom as u64 % 2);
    call(messages, me, [function::RUN.into(), name, 0, 0, 0, 0, 0, 0])
}

fn refused(status: i32) -> Next {
    let status = u64::from(status as u32);
    Next::Return([function::ERROR.into(), 0, status, 0, 0, 0, 0, 0])
}

const INVALID: i32 = -2;
const BUSY: i32 = -4;
const DENIED: i32 = -6;

/// G1-MSG-001: a message arrives, cut to 32 bits if the convention is SMC32's, and so does the
/// response; the receiver waits again.
#[test]
fn there_and_back() {
    let mut messages = Messages::new();
    assert_eq!(wait(&mut messages, 2), Next::Block(None));
    assert_eq!(ask(&mut messages, 0, 2), Next::Block(Some(vcpu(2))));
    let request = messages.resume(&places(), vcpu(2));
    let ends = 1 << 16 | 2;
    let id = u64::from(function::DIRECT_REQ);
    assert_eq!(request, [id, ends, 0, 3, 4, 5, 6, 7]);
    let mut response = message(function::DIRECT_RESP | function::SMC64, 2, 0);
    response[3] = u64::MAX;
    assert_eq!(call(&mut messages, 2, response), Next::Block(Some(vcpu(0))));
    assert_eq!(messages.resume(&places(), vcpu(0)), response);
    assert_eq!(ask(&mut messages, 4, 2), Next::Block(Some(vcpu(2))));
}

/// G1-MSG-002: an interrupt ends a call. The sender continues to wait with FFA_RUN, and gets the
/// response that came meanwhile; a vCPU in FFA_MSG_WAIT stops waiting.
#[test]
fn an_interrupt_ends_a_call() {
    let mut messages = Messages::new();
    let interrupt = u64::from(function::INTERRUPT);
    wait(&mut messages, 3);
    assert_eq!(
        messages.resume(&places(), vcpu(3))[..2],
        [interrupt, 2 << 16 | 1]
    );
    assert_eq!(ask(&mut messages, 0, 3), refused(BUSY));
    wait(&mut messages, 3);
    ask(&mut messages, 0, 3);
    assert_eq!(
        messages.resume(&places(), vcpu(0))[..2],
        [interrupt, 2 << 16 | 1]
    );
    assert_eq!(ask(&mut messages, 0, 3), refused(BUSY));
    assert_eq!(wait(&mut messages, 0), refused(DENIED));
    assert_eq!(run(&mut messages, 0, 2), refused(DENIED));
    assert_eq!(run(&mut messages, 0, 3), Next::Block(None));
    messages.resume(&places(), vcpu(3));
    assert_eq!(respond(&mut messages, 3, 0), Next::Block(Some(vcpu(0))));
    assert_eq!(
        messages.resume(&places(), vcpu(0))[0],
        function::DIRECT_RESP.into()
    );
    assert_eq!(run(&mut messages, 0, 3), refused(DENIED));
    // The response comes while it does something else.
    ask(&mut messages, 0, 3);
    messages.resume(&places(), vcpu(0));
    messages.resume(&places(), vcpu(3));
    respond(&mut messages, 3, 0);
    assert_eq!(ask(&mut messages, 0, 3), refused(BUSY));
    messages.end(0b1100);
    let response = message(function::DIRECT_RESP, 3, 0);
    let response = [response[0], response[1], 0, 3, 4, 5, 6, 7];
    assert_eq!(run(&mut messages, 0, 3), Next::Return(response));
    assert_eq!(run(&mut messages, 0, 3), refused(DENIED));
}

/// G1-MSG-003: the end of a VM ends requests to it, with an error, and requests by it. An end that
/// is over does not affect later requests.
#[test]
fn the_end_of_a_vm_ends_its_messages() {
    let mut messages = Messages::new();
    wait(&mut messages, 2);
    ask(&mut messages, 0, 2);
    assert_eq!(messages.end(0b1100), 0b1);
    assert_eq!(
        messages.resume(&places(), vcpu(0))[..3],
        [function::ERROR.into(), 0, (-8_i32) as u32 as u64]
    );
    assert_eq!(respond(&mut messages, 2, 0), refused(DENIED));
    wait(&mut messages, 2);
    ask(&mut messages, 0, 2);
    messages.resume(&places(), vcpu(2));
    assert_eq!(messages.end(0b11), 0);
    assert_eq!(respond(&mut messages, 2, 0), refused(DENIED));
    assert_eq!(wait(&mut messages, 2), Next::Block(None));
    assert_eq!(messages.end(0b111111), 0);
    assert_eq!(messages, Messages::new());
}

/// G1-MSG-004: each call in each role is done or refused as the table says; a refused call changes
/// nothing.
#[test]
fn every_call_in_every_role() {
    type Role = (&'static str, fn(&mut Messages));
    let roles: [Role; 5] = [
        ("none", |_| ()),
        ("waits", |m| {
            wait(m, 2);
        }),
        ("serves", |m| {
            wait(m, 2);
            ask(m, 0, 2);
            m.resume(&places(), vcpu(2));
        }),
        ("asks", |m| {
            wait(m, 4);
            ask(m, 2, 4);
            m.resume(&places(), vcpu(2));
        }),
        ("serves and asks", |m| {
            wait(m, 2);
            ask(m, 0, 2);
            m.resume(&places(), vcpu(2));
            wait(m, 4);
            ask(m, 2, 4);
            m.resume(&places(), vcpu(2));
        }),
    ];
    let with = |at: usize, value: u64| {
        let mut regs = message(function::DIRECT_REQ, 2, 4);
        regs[at] = value;
        regs
    };
    let response = |at: usize, value: u64| {
        let mut regs = message(function::DIRECT_RESP, 2, 0);
        regs[at] = value;
        regs
    };
    let run = |name: u64| [function::RUN.into(), name, 0, 0, 0, 0, 0, 0];
    let simple = |id: u32| [id.into(), 0, 0, 0, 0, 0, 0, 0];
    // Status in each role; 0: it is done. VM 2's vCPU 5 waits always.
    let calls: [(&str, Regs, [i32; 5]); 13] = [
        (
            "wait",
            simple(function::MSG_WAIT),
            [0, 0, DENIED, DENIED, DENIED],
        ),
        ("yield", simple(function::YIELD), [0; 5]),
        ("ask", with(2, 0), [0, 0, 0, BUSY, BUSY]),
        ("ask who does not wait", with(1, 2 << 16 | 1), [BUSY; 5]),
        (
            "ask for another",
            with(1, 1 << 16 | 3),
            [INVALID, INVALID, INVALID, BUSY, BUSY],
        ),
        (
            "framework",
            with(2, 1 << 31),
            [INVALID, INVALID, INVALID, BUSY, BUSY],
        ),
        (
            "ask itself",
            with(1, 2 << 16 | 2),
            [DENIED, DENIED, DENIED, BUSY, BUSY],
        ),
        (
            "ask the hypervisor",
            with(1, 2 << 16),
            [DENIED, DENIED, DENIED, BUSY, BUSY],
        ),
        (
            "ask nobody",
            with(1, 2 << 16 | 0x8003),
            [DENIED, DENIED, DENIED, BUSY, BUSY],
        ),
        (
            "respond",
            response(2, 0),
            [DENIED, DENIED, 0, DENIED, DENIED],
        ),
        (
            "respond to another",
            response(1, 2 << 16 | 3),
            [DENIED, DENIED, INVALID, DENIED, DENIED],
        ),
        ("run another", run(1 << 16), [DENIED; 5]),
        (
            "run who was asked",
            run(3 << 16),
            [DENIED, DENIED, DENIED, 0, 0],
        ),
    ];
    for (which, (role, make)) in roles.into_iter().enumerate() {
        for (name, regs, expected) in calls {
            let mut messages = Messages::new();
            wait(&mut messages, 5);
            make(&mut messages);
            // A VM that waits in one vCPU does not ask by it; the call comes after an interrupt.
            let before = messages.clone();
            let next = call(&mut messages, 2, regs);
            match expected[which] {
                0 => assert!(!matches!(next, Next::Return(_)), "{role}: {name}: {next:?}"),
                status => {
                    assert_eq!(next, refused(status), "{role}: {name}");
                    assert!(messages == before, "{role}: {name}");
                }
            }
        }
    }
}

proptest! {
    /// G1-MSG-002: whatever vCPUs do, each that waits for a response is waited for by one that
    /// serves it, and no circle of them is closed: the last of each chain is not blocked.
    #[test]
    fn no_circle(steps in prop::collection::vec((0..6_usize, 0..6_usize, 0..6_u8, any::<bool>()), 1..200)) {
        let mut messages = Messages::new();
        let mut blocked = [false; 6];
        for (me, other, what, interrupt) in steps {
            // A blocked vCPU continues only with mail or an interrupt.
            if blocked[me] {
                if messages.roles[me].mail[0] != 0 || interrupt {
                    messages.resume(&places(), vcpu(me));
                    blocked[me] = false;
                }
                continue;
            }
            let next = match what {
                0 => wait(&mut messages, me),
                1 | 2 => ask(&mut messages, me, other),
                3 => respond(&mut messages, me, other),
                4 => run(&mut messages, me, other),
                _ => {
                    let gone = 0b11 << (me / 2 * 2);
                    messages.end(gone);
                    blocked[me / 2 * 2] = false;
                    blocked[me / 2 * 2 + 1] = false;
                    Next::Yield
                }
            };
            blocked[me] = matches!(next, Next::Block(_));
            for (number, role) in messages.roles.iter().enumerate() {
                let asked = role.asks.trailing_zeros() as usize;
                assert!(role.asks.count_ones() <= 1 && role.serves.count_ones() <= 1);
                if role.asks != 0 && role.mail[0] == 0 {
                    assert_eq!(messages.roles[asked].serves, 1 << number);
                    let mut seen = Vec::from([number]);
                    let mut at = number;
                    while messages.roles[at].asks != 0 && messages.roles[at].mail[0] == 0 {
                        at = messages.roles[at].asks.trailing_zeros() as usize;
                        assert!(!seen.contains(&at), "a circle: {seen:?}");
                        seen.push(at);
                    }
                    // The vCPU has the request, or may respond.
                    assert!(!blocked[at] || messages.roles[at].mail[0] != 0);
                }
            }
        }
    }
}
