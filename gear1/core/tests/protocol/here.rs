//! A CPU that waits with its vCPU loaded, while Gear2 takes no part: whatever Gear2 or the vCPU is to
//! hear of finds the CPU.
//!
//! Requirements: G1-VCPU-001, G1-VCPU-003.

use gear1_abi::call::VcpuState;

use crate::machine::{Block, Left, Machine};
use crate::{Body, all_orders, many_orders, most_orders};

const QUIET: Body = |machine| assert_eq!(machine.waits_here(Block::Quiet, 1), Left::Done);
const LOCKED: Body = |machine| assert_eq!(machine.waits_here(Block::Locked, 1), Left::Done);

#[test]
fn an_interrupt_wakes_who_waits_here() {
    for waits in [QUIET, LOCKED] {
        all_orders(VcpuState::Running, waits, Machine::inject);
        all_orders(VcpuState::Running, waits, Machine::leave);
    }
    let twice: Body = |machine| assert_eq!(machine.waits_here(Block::Quiet, 2), Left::Done);
    many_orders(VcpuState::Running, twice, [Machine::inject, Machine::leave]);
}

/// A poke stands for all that Gear2 is to hear of: the loop takes it before the vCPU goes on, or
/// with the next event.
#[test]
fn a_poke_is_heard_by_who_waits_here() {
    let owner: Body = |machine| {
        assert_eq!(machine.waits_here(Block::Quiet, 1), Left::Done);
        let mut taken = *machine.pokes.lock().unwrap();
        while taken == 0 {
            // `event::pending_event`, before a guest is entered and with each kick.
            if machine.loops.take_poke() {
                taken += 1;
            } else {
                machine.kicks.wait();
            }
        }
        assert!(taken == 1 && !machine.loops.is_pending());
    };
    let pokes: Body = |machine| {
        machine.loops.poke();
        machine.kicks.raise();
    };
    many_orders(VcpuState::Running, owner, [pokes, Machine::inject]);
}

/// Unlike a CPU whose Gear2 waits, one that waits with its vCPU must hear of the stop, although the
/// vCPU is off by then: its registers and its stage 2 are still loaded.
#[test]
fn who_waits_here_stops() {
    let owner: Body = |machine| {
        assert_eq!(machine.waits_here(Block::Quiet, 1), Left::Stopped);
        assert_eq!(machine.vcpu.state(), VcpuState::Off);
    };
    let locked: Body = |machine| assert_eq!(machine.waits_here(Block::Locked, 1), Left::Stopped);
    let stop: Body = |machine| {
        machine.stop();
    };
    most_orders(VcpuState::Running, owner, stop);
    most_orders(VcpuState::Running, locked, stop);
    let either: Body = |machine| {
        if machine.waits_here(Block::Quiet, 1) == Left::Done {
            assert_eq!(machine.computes(9), Left::Stopped);
        }
    };
    many_orders(VcpuState::Running, either, [stop, Machine::inject]);
}

/// The checker finds a stop that tells nobody, which is enough where Gear2 waits.
#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_that_tells_nobody_is_found() {
    let owner: Body = |machine| assert_eq!(machine.waits_here(Block::Quiet, 1), Left::Stopped);
    all_orders(VcpuState::Running, owner, |machine| {
        let mut vm = machine.vm();
        vm.stopping = true;
        if !machine.vcpu.transition(VcpuState::Wfi, VcpuState::Off) {
            machine.notify(machine.vcpu.stop());
        }
    });
}

/// The time of waits is that between their beginnings and ends, also to a CPU that looks in between.
#[test]
fn waits_are_summed() {
    shuttle::check_dfs(
        || {
            let machine = Machine::new(VcpuState::Wfi);
            let loops = &machine.loops;
            assert_eq!(loops.waits(5), (0, false));
            loops.begin_wait(100);
            assert_eq!(loops.waits(130), (30, true));
            assert_eq!(loops.end_wait(100, 150), 50);
            assert_eq!(loops.waits(170), (50, false));
            loops.begin_wait(200);
            assert_eq!(loops.waits(201), (51, true));
            assert_eq!(loops.end_wait(200, 210), 10);
            assert_eq!(loops.waits(999), (60, false));
            loops.forget_waits();
            assert_eq!(loops.waits(999), (0, false));
        },
        None,
    );
}
