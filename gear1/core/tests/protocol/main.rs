//! The protocol by which CPUs wake, kick, stop and answer a vCPU, in all orders that its steps can
//! come in: `src/vcpu/shared.rs` and `signals.rs` as they ship, with shuttle's atomics for the
//! hardware's.
//!
//! A wake-up that is lost leaves a CPU waiting for ever, which shuttle finds as a deadlock. With
//! two CPUs all orders are tried ([`most_orders`] has the exception); with three, so many that were
//! drawn from a fixed seed. Every step of the protocol is `SeqCst`; the orders are those of the
//! architecture, and those of an emulator that lets a load overtake a store ([`atomic`]).
//!
//! Requirements: G1-VCPU-001, G1-VCPU-002, G1-CPU-011, G1-SUP-005.

mod atomic;
mod doorbell;
mod fp;
mod here;
mod icache;
mod loading;
mod machine;
mod moves;
mod senders;
mod sgi;
mod switch;
mod vcpu;

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::CpuIndex;
use shuttle::scheduler::{DfsScheduler, PctScheduler};
use shuttle::{Config, FailurePersistence, Runner, thread};

use atomic::Order;
use machine::{Block, Left, Machine};
use vcpu::{Notify, Requests};

/// Orders that are drawn where there are too many; `GEARV_ORDERS` says otherwise.
const DRAWN: usize = 3_000;
const SEED: u64 = 0x6765_6172_7631;

type Body = fn(&Machine);

/// Runs an owner CPU and others beside it once.
fn once(state: VcpuState, owner: Body, others: &[Body]) {
    let machine = Arc::new(Machine::new(state));
    let threads: Vec<_> = others
        .iter()
        .map(|other| {
            let (machine, other) = (Arc::clone(&machine), *other);
            thread::spawn(move || other(&machine))
        })
        .collect();
    owner(&machine);
    threads.into_iter().for_each(|other| other.join().unwrap());
}

/// Stack of a model CPU: the default of 32 KiB is too small without optimisation.
const STACK_BYTES: usize = 0x2_0000;

/// The relaxed accesses, of which shuttle would warn, are of words that a request passes on.
fn config() -> Config {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    config
}

/// Tries all orders of two CPUs.
fn all_orders(state: VcpuState, owner: Body, other: Body) {
    for kind in [Order::Kept, Order::LoadsOvertake] {
        let runner = Runner::new(DfsScheduler::new(None, false), config());
        let orders = atomic::on(kind, || runner.run(move || once(state, owner, &[other])));
        println!("figure: all {orders} orders of two CPUs, {kind:?}");
        assert!(orders > 50, "{orders} orders only");
    }
}

/// Tries all orders of two CPUs, which take minutes, if `GEARV_ORDERS` asks for more than each run
/// has; else some.
fn most_orders(state: VcpuState, owner: Body, other: Body) {
    if std::env::var_os("GEARV_ORDERS").is_some() {
        all_orders(state, owner, other);
    } else {
        many_orders(state, owner, [other]);
    }
}

/// Tries orders of more CPUs.
fn many_orders<const OTHERS: usize>(state: VcpuState, owner: Body, others: [Body; OTHERS]) {
    let said = std::env::var("GEARV_ORDERS").ok();
    let drawn = said.and_then(|said| said.parse().ok()).unwrap_or(DRAWN);
    for kind in [Order::Kept, Order::LoadsOvertake] {
        let scheduler = PctScheduler::new_from_seed(SEED, 3, drawn);
        let runner = Runner::new(scheduler, config());
        let ran = atomic::on(kind, || runner.run(move || once(state, owner, &others)));
        assert_eq!(ran, drawn);
        println!("figure: {drawn} orders of {} CPUs, {kind:?}", OTHERS + 1);
    }
}

fn quiet(machine: &Machine) {
    assert_eq!(machine.waits(Block::Quiet, 1), Left::Done);
}

fn locked(machine: &Machine) {
    assert_eq!(machine.waits(Block::Locked, 1), Left::Done);
}

#[test]
fn an_interrupt_wakes_who_waits() {
    all_orders(VcpuState::Running, quiet, Machine::inject);
    all_orders(VcpuState::Running, locked, Machine::inject);
}

#[test]
fn an_interrupt_reaches_who_computes() {
    let computes: Body = |machine| assert_eq!(machine.computes(1), Left::Done);
    all_orders(VcpuState::Running, computes, Machine::inject);
}

#[test]
fn an_sgi_that_is_left_is_seen() {
    let computes: Body = |machine| assert_eq!(machine.computes(2), Left::Done);
    all_orders(VcpuState::Running, quiet, Machine::leave);
    all_orders(VcpuState::Running, locked, Machine::leave);
    many_orders(
        VcpuState::Running,
        computes,
        [Machine::leave, Machine::inject],
    );
    for how in [Block::Quiet, Block::Locked] {
        let twice: Body = match how {
            Block::Quiet => |machine| assert_eq!(machine.waits(Block::Quiet, 2), Left::Done),
            Block::Locked => |machine| assert_eq!(machine.waits(Block::Locked, 2), Left::Done),
        };
        many_orders(VcpuState::Running, twice, [Machine::leave, Machine::inject]);
    }
}

#[test]
fn a_message_wakes_who_awaits_it() {
    let quiet: Body = |machine| assert_eq!(machine.receives(Block::Quiet, 1), Left::Done);
    let locked: Body = |machine| assert_eq!(machine.receives(Block::Locked, 1), Left::Done);
    all_orders(VcpuState::Running, quiet, Machine::send);
    most_orders(VcpuState::Running, locked, Machine::send);
}

#[test]
fn two_interrupts_and_a_message_wake() {
    let twice: Body = |machine| assert_eq!(machine.waits(Block::Quiet, 2), Left::Done);
    many_orders(
        VcpuState::Running,
        twice,
        [Machine::inject, Machine::inject],
    );
    let twice: Body = |machine| assert_eq!(machine.waits(Block::Locked, 2), Left::Done);
    many_orders(
        VcpuState::Running,
        twice,
        [Machine::inject, Machine::inject],
    );
    let either: Body = |machine| {
        machine.receives(Block::Quiet, 1);
    };
    many_orders(VcpuState::Running, either, [Machine::send, Machine::inject]);
}

/// Gear2 asks again until the vCPU is off.
fn stop(machine: &Machine) {
    while !machine.stop() {
        thread::yield_now();
    }
    // For the owner CPU of this model, which has to end.
    machine.kicks.raise();
}

#[test]
fn who_computes_stops() {
    let computes: Body = |machine| assert_eq!(machine.computes(1), Left::Stopped);
    let stop_once: Body = |machine| {
        machine.stop();
    };
    all_orders(VcpuState::Running, computes, stop_once);
}

#[test]
fn who_waits_stops() {
    let quiet: Body = |machine| {
        if machine.waits(Block::Quiet, 1) == Left::Done {
            assert_eq!(machine.computes(9), Left::Stopped);
        }
    };
    let locked: Body = |machine| {
        if machine.waits(Block::Locked, 1) == Left::Done {
            assert_eq!(machine.computes(9), Left::Stopped);
        }
    };
    for waits in [quiet, locked] {
        many_orders(VcpuState::Running, waits, [stop, Machine::inject]);
    }
}

/// A stop is asked for once: nobody repeats it where a VM ends by itself and Gear1 loads it anew.
#[test]
fn one_stop_is_enough() {
    let quiet: Body = |machine| assert_eq!(machine.waits(Block::Quiet, 1), Left::Stopped);
    let locked: Body = |machine| assert_eq!(machine.waits(Block::Locked, 1), Left::Stopped);
    let stop_once: Body = |machine| {
        machine.stop();
        // For the owner CPU of this model, which has to end when its vCPU was turned off as it
        // waited.
        machine.kicks.raise();
    };
    for waits in [quiet, locked] {
        most_orders(VcpuState::Running, waits, stop_once);
    }
}

/// A stop meets a decision that has the reply of the loaded vCPU: the vCPU is off before it runs, or
/// runs and hears of the stop.
#[test]
fn who_goes_on_by_a_reply_stops() {
    let owner: Body = |machine| {
        // `run::run_at_once`.
        let vcpu = &machine.vcpu;
        let runs = vcpu.transition(VcpuState::AwaitsMmio, VcpuState::Running);
        if runs && machine.prepare_entry().is_ok() {
            assert_eq!(machine.computes(9), Left::Stopped);
        }
        assert_eq!(machine.vcpu.state(), VcpuState::Off);
    };
    let stop_once: Body = |machine| {
        machine.stop();
    };
    all_orders(VcpuState::AwaitsMmio, owner, stop_once);
    many_orders(VcpuState::AwaitsMmio, owner, [stop_once, Machine::inject]);
}

/// G1-VCPU-002: of two CPUs that take a vCPU for theirs, one runs it.
#[test]
fn one_cpu_runs_it() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let runner = Runner::new(DfsScheduler::new(None, false), config());
    let orders = runner.run(|| {
        let (machine, runs) = (
            Arc::new(Machine::new(VcpuState::Wfi)),
            Arc::new(AtomicU32::new(0)),
        );
        let (beside, counts) = (Arc::clone(&machine), Arc::clone(&runs));
        let claim = |machine: &Machine, runs: &AtomicU32| {
            if machine.vcpu.claim() {
                runs.fetch_add(1, Ordering::SeqCst);
            }
        };
        let other = thread::spawn(move || claim(&beside, &counts));
        machine.notify(machine.vcpu.request(Requests::IRQ));
        claim(&machine, &runs);
        other.join().unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    });
    assert!(orders > 10, "{orders} orders only");
}

/// CPU_ON against the vCPU's own CPU_OFF: it starts if that was done, and as it was asked to.
#[test]
fn who_is_turned_on_starts_as_asked() {
    let owner: Body = |machine| {
        // `guest_call::cpu_off`.
        let vm = machine.vm();
        machine.vcpu.set_state(VcpuState::Off);
        drop(vm);
        machine.kicks.wait();
        assert!(machine.loops.take_wake().is_some() && machine.vcpu.claim());
        let start = machine.vcpu.take_reset().unwrap();
        assert_eq!((start.pc, start.argument, start.warm), (0x4000, 7, false));
    };
    let turns_on: Body = |machine| {
        loop {
            let _vm = machine.vm();
            if machine.vcpu.state() == VcpuState::Off {
                machine.vcpu.request_reset(0x4000, 7);
                machine.vcpu.set_state(VcpuState::Ready);
                machine.wake();
                return;
            }
            drop(_vm);
            thread::yield_now();
        }
    };
    many_orders(VcpuState::Running, owner, [turns_on]);
}

/// A reply comes whole, or its vCPU was stopped.
#[test]
fn a_reply_comes_whole() {
    let owner: Body = |machine| match machine.run_or_off() {
        Some(reply) => assert_eq!(reply, (1, u64::MAX)),
        None => assert_eq!(machine.vcpu.state(), VcpuState::Off),
    };
    // `reply::complete_and_wake`.
    let replies: Body = |machine| {
        machine.vcpu.post_reply(1, u64::MAX);
        if machine
            .vcpu
            .transition(VcpuState::AwaitsMmio, VcpuState::Ready)
        {
            machine.wake();
        }
    };
    let stops: Body = |machine| {
        machine.stop();
        machine.kicks.raise();
    };
    all_orders(VcpuState::AwaitsMmio, owner, replies);
    many_orders(VcpuState::AwaitsMmio, owner, [replies, stops]);
}

/// A request to a CPU's loop arrives, and arrives once.
#[test]
fn what_a_loop_is_told_arrives() {
    let owner: Body = |machine| {
        let (mut wakes, mut pokes, mut rings) = (0, 0, 0);
        while (wakes, pokes, rings) != (1, 1, 1) {
            if machine.loops.is_pending() {
                wakes += u32::from(machine.loops.take_wake().is_some());
                pokes += u32::from(machine.loops.take_poke());
                rings += u32::from(machine.loops.take_ring());
            } else {
                machine.kicks.wait();
            }
        }
        assert!(!machine.loops.is_pending());
    };
    let tells: Body = |machine| {
        machine.loops.poke();
        machine.kicks.raise();
    };
    let rings: Body = |machine| {
        machine.loops.ring();
        machine.kicks.raise();
    };
    many_orders(VcpuState::Ready, owner, [Machine::wake, tells, rings]);
}

/// A probe arrives as a poke does, and is pending until the loop takes it: the feeder of the board's
/// watchdog sees then that the CPU came round (G1-SUP-005).
#[test]
fn a_probe_is_pending_until_the_loop_takes_it() {
    let owner: Body = |machine| {
        let (mut wakes, mut probes) = (0, 0);
        while (wakes, probes) != (1, 1) {
            if machine.loops.is_pending() {
                wakes += u32::from(machine.loops.take_wake().is_some());
                let was_probed = machine.loops.is_probed();
                let taken = machine.loops.take_poke();
                assert!(taken || !was_probed, "the probe went by itself");
                probes += u32::from(taken);
            } else {
                machine.kicks.wait();
            }
        }
        assert!(!machine.loops.is_probed() && !machine.loops.is_pending());
    };
    let feeds: Body = |machine| {
        assert!(!machine.loops.is_probed());
        machine.loops.probe();
        machine.kicks.raise();
    };
    many_orders(VcpuState::Ready, owner, [Machine::wake, feeds]);
}

/// Time is stolen from when it could run until it is loaded, also if it is woken while it is
/// unloaded.
#[test]
fn stolen_time_begins_with_the_wake_up() {
    let owner: Body = |machine| {
        // `vcpu::unload` at 10, and `vcpu::load` at 30.
        machine.vcpu.unload(10);
        while machine.loops.take_wake().is_none() {
            machine.kicks.wait();
        }
        let waited = machine.vcpu.waits_for(30);
        let stolen = machine.vcpu.end_stolen(30);
        assert!(stolen == Some(20) || stolen == Some(10), "{stolen:?}");
        assert_eq!((stolen, machine.vcpu.waits_for(40)), (Some(waited), 0));
        assert_eq!(machine.vcpu.stolen(), waited);
        // A waker that came first made it ready before it was unloaded.
        assert!(machine.vcpu.preemptions() <= 1);
    };
    let wakes: Body = |machine| {
        if machine.vcpu.request(Requests::IRQ) == Notify::Wake {
            // `kick::wake` at 20.
            machine.vcpu.begin_stolen(20);
            machine.wake();
        }
    };
    all_orders(VcpuState::Wfi, owner, wakes);
}

/// The checker finds a wrong protocol: a waker that reads the state before it raises the request
/// loses a wake-up.
#[test]
#[should_panic(expected = "deadlock")]
fn a_waker_that_looks_too_early_is_found() {
    all_orders(VcpuState::Running, quiet, |machine| {
        let mut vm = machine.vm();
        vm.pending += 1;
        let notify = match machine.vcpu.state() {
            VcpuState::Running => Notify::Kick,
            VcpuState::Wfi if machine.vcpu.wake_up() => Notify::Wake,
            _ => Notify::Nobody,
        };
        machine.vcpu.raise(Requests::IRQ);
        machine.notify(notify);
    });
}

/// And so does an owner CPU that reads the requests before it waits.
#[test]
#[should_panic(expected = "deadlock")]
fn an_owner_that_looks_too_early_is_found() {
    let owner: Body = |machine| {
        if machine.vcpu.requests().is_none() {
            machine.vcpu.set_state(VcpuState::Wfi);
            assert!(machine.run().is_ok());
        }
    };
    all_orders(VcpuState::Running, owner, Machine::inject);
}

/// State of one CPU alone does not depend on orders: exits, the owner CPU, an awaited access.
#[test]
fn what_the_owner_notes_is_read_back() {
    shuttle::check_dfs(
        || {
            let machine = Machine::new(VcpuState::Running);
            machine.vcpu.count(ExitReason::Hvc);
            machine.vcpu.add_ticks(ExitReason::Hvc, 5);
            assert_eq!(machine.vcpu.stats(ExitReason::Hvc), (1, 5));
            machine.vcpu.set_owner_cpu(CpuIndex::new(2).unwrap());
            assert_eq!(machine.vcpu.owner_cpu(), CpuIndex::new(2).unwrap());
            machine.vcpu.set_awaited(0x1000, 4);
            assert_eq!(machine.vcpu.awaited(), (0x1000, 4));
            machine.vcpu.request_resume(8, 9);
            assert!(machine.vcpu.take_reset().is_some_and(|start| start.warm));
            machine.vcpu.raise(Requests::sgi(3));
            assert!(machine.vcpu.requests().is_interrupts());
            machine.vcpu.begin_life();
            assert!(machine.vcpu.requests().is_none());
            assert_eq!(machine.vcpu.end_stolen(1), None);
        },
        None,
    );
}
