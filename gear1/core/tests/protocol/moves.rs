//! A vCPU that moves to another CPU while a third CPU wakes it. Each function does the work of the
//! function that it names, of the runtime or of Gear2's loops.
//!
//! Two rules of Gear2's bring a crossing wake-up home: the loop that gave the vCPU away pokes its
//! new owner CPU when the wake-up comes to it after all, and a loop that is given a vCPU looks at
//! its state. Either is enough, and Gear1 has to do its part for both.
//!
//! Requirements: G1-VCPU-001, G1-RUN-005.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use gear1_abi::id::CpuIndex;
use shuttle::scheduler::{DfsScheduler, Scheduler};
use shuttle::{Runner, thread};

use crate::config;
use crate::machine::Line;
use crate::vcpu::{CpuShared, Notify, Requests, VcpuShared};

/// Number of the vCPU.
const NUMBER: usize = 3;

/// Times that `kick::wake` reads the owner CPU.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// Once, for the signal and for the interrupt.
    Once,
    /// Once for each of the two.
    Twice,
}

/// Rules of Gear2's loops.
#[derive(Clone, Copy)]
struct Rules {
    /// A loop pokes the owner CPU of a vCPU that is not its own any more.
    forwards: bool,
    /// A loop tells the next one that it has given a vCPU away.
    tells: bool,
}

/// A CPU with a loop.
#[derive(Default)]
struct Cpu {
    signals: CpuShared,
    interrupts: Line,
}

struct Machine {
    vcpu: VcpuShared,
    cpus: [Cpu; 2],
    reads: Reads,
    rules: Rules,
    /// The vCPU's timer is watched by the EL2 timer of its first owner CPU.
    watched: bool,
}

impl Machine {
    fn new(reads: Reads, rules: Rules, watched: bool) -> Self {
        let vcpu = VcpuShared::new();
        vcpu.set_state(VcpuState::Wfi);
        vcpu.set_owner_cpu(CpuIndex::new(0).unwrap());
        Self {
            vcpu,
            cpus: [Cpu::default(), Cpu::default()],
            reads,
            rules,
            watched,
        }
    }

    /// `kick::wake`.
    fn wake(&self) {
        let target = self.vcpu.owner_cpu();
        self.cpus[target.index()].signals.wake(NUMBER);
        let target = match self.reads {
            Reads::Once => target,
            Reads::Twice => self.vcpu.owner_cpu(),
        };
        self.cpus[target.index()].interrupts.raise();
    }

    /// `kick::request`, by a CPU that is neither of the two.
    fn inject(&self) {
        if self.vcpu.request(Requests::IRQ) == Notify::Wake {
            self.wake();
        }
    }

    /// `gear2_call::poke`.
    fn poke(&self, cpu: CpuIndex) {
        let cpu = &self.cpus[cpu.index()];
        cpu.signals.poke();
        cpu.interrupts.raise();
    }

    /// `gear2_call::assign`, with the vCPU unloaded.
    fn assign(&self, target: CpuIndex) {
        self.vcpu.set_owner_cpu(target);
        // `timer::hand_over`.
        if self.watched && self.vcpu.wake_up() {
            self.wake();
        }
    }

    /// The loop of the first owner CPU gives the vCPU away. Then the loop is idle until it is told
    /// to end, by a bit that no vCPU here has.
    fn gives(&self) {
        let target = CpuIndex::new(1).unwrap();
        self.assign(target);
        if self.rules.tells {
            self.poke(target);
        }
        loop {
            let signals = &self.cpus[0].signals;
            match signals.take_wake() {
                Some(NUMBER) if self.rules.forwards => self.poke(self.vcpu.owner_cpu()),
                Some(NUMBER) => {}
                Some(_) => return,
                None => self.cpus[0].interrupts.wait(),
            }
        }
    }

    /// The loop of the new owner CPU: runs the vCPU when it hears that it can.
    fn takes(&self) {
        loop {
            let signals = &self.cpus[1].signals;
            let woken = signals.take_wake() == Some(NUMBER);
            let looks = signals.take_poke() && self.vcpu.state() == VcpuState::Ready;
            if (woken || looks) && self.vcpu.claim() {
                if self.vcpu.take(Requests::IRQ) {
                    return;
                }
                // `vcpu::is_due`: woken for nothing, and it waits again.
                if self.vcpu.wait_quiet(Requests::NONE) {
                    continue;
                }
                assert!(self.vcpu.take(Requests::IRQ));
                return;
            }
            if !signals.is_pending() {
                self.cpus[1].interrupts.wait();
            }
        }
    }
}

fn run(scheduler: impl Scheduler + 'static, reads: Reads, rules: Rules, watched: bool) -> usize {
    Runner::new(scheduler, config()).run(move || {
        let machine = Arc::new(Machine::new(reads, rules, watched));
        let (beside, other) = (Arc::clone(&machine), Arc::clone(&machine));
        let gives = thread::spawn(move || beside.gives());
        let wakes = thread::spawn(move || other.inject());
        machine.takes();
        wakes.join().unwrap();
        machine.cpus[0].signals.wake(NUMBER + 1);
        machine.cpus[0].interrupts.raise();
        gives.join().unwrap();
    })
}

fn all_orders(reads: Reads, rules: Rules, watched: bool) {
    // As many as there is time for: a move has more orders than can be tried.
    let orders = run(
        DfsScheduler::new(Some(60_000), false),
        reads,
        rules,
        watched,
    );
    let drawn = shuttle::scheduler::RandomScheduler::new_from_seed(0x6d6f_7665, 6_000);
    let orders = orders + run(drawn, reads, rules, watched);
    println!("figure: {orders} orders of a move and a wake-up");
    assert!(orders > 1_000, "{orders} orders only");
}

const FORWARDS: Rules = Rules {
    forwards: true,
    tells: false,
};
const TELLS: Rules = Rules {
    forwards: false,
    tells: true,
};

#[test]
fn a_wake_up_follows_its_vcpu() {
    for watched in [false, true] {
        all_orders(Reads::Once, FORWARDS, watched);
        all_orders(Reads::Once, TELLS, watched);
    }
}

/// A waker that signals one CPU and interrupts another leaves the first one idle beside a signal.
#[test]
#[should_panic(expected = "deadlock")]
fn a_waker_that_asks_twice_is_found() {
    all_orders(Reads::Twice, FORWARDS, false);
}

/// A wake-up that crosses the move is nobody's.
#[test]
#[should_panic(expected = "deadlock")]
fn a_move_that_nobody_hears_of_is_found() {
    let silent = Rules {
        forwards: false,
        tells: false,
    };
    all_orders(Reads::Once, silent, false);
}
