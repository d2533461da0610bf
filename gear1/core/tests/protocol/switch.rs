//! An owner CPU that switches from one vCPU to another: the timer of the first becomes due at any
//! moment, and a CPU that wakes a vCPU of its own sends no interrupt. Each function does the work
//! of the runtime function that it names.
//!
//! Requirements: G1-TIM-004, G1-VCPU-001.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use shuttle::scheduler::DfsScheduler;
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::config;
use crate::machine::Line;
use crate::vcpu::{CpuShared, VcpuShared};

/// Number of the waiting vCPU.
const OUTGOING: usize = 1;

/// Source that signals the outgoing vCPU's timer when it is due.
#[derive(Clone, Copy, Default, PartialEq)]
enum Source {
    /// The hardware's virtual timer: the vCPU is loaded.
    #[default]
    Hardware,
    /// The EL2 timer, which watches the vCPU's timer.
    Watched,
    /// No source: the owner CPU has noticed the timer already.
    Nothing,
}

#[derive(Default)]
struct Timer {
    is_due: bool,
    source: Source,
}

/// A CPU with two vCPUs of its own.
struct Owner {
    /// Loaded at first, and in WFI until its timer is due.
    outgoing: VcpuShared,
    /// Runs next, and computes.
    next: VcpuShared,
    loops: CpuShared,
    interrupts: Line,
    timer: Mutex<Timer>,
}

/// Place where `run::run_another` looks for events that its loop has not received.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    /// Before the load of the vCPU.
    Before,
    /// Behind that as well.
    Behind,
}

impl Owner {
    fn new() -> Self {
        let (outgoing, next) = (VcpuShared::new(), VcpuShared::new());
        outgoing.set_state(VcpuState::Wfi);
        next.set_state(VcpuState::Ready);
        Self {
            outgoing,
            next,
            loops: CpuShared::new(),
            interrupts: Line::default(),
            timer: Mutex::default(),
        }
    }

    /// Time passes.
    fn expire(&self) {
        let mut timer = self.timer.lock().unwrap();
        timer.is_due = true;
        if timer.source != Source::Nothing {
            self.interrupts.raise();
        }
    }

    /// `kick::wake` on the owner CPU itself.
    fn wake(&self) {
        if self.outgoing.wake_up() {
            self.loops.wake(OUTGOING);
        }
    }

    /// `vcpu::load`, with `vcpu::unload` and `timer::watch_unloaded` of the outgoing vCPU.
    fn load(&self) {
        let mut timer = self.timer.lock().unwrap();
        if timer.source != Source::Hardware {
            return;
        }
        timer.source = Source::Watched;
        if timer.is_due {
            timer.source = Source::Nothing;
            self.interrupts.lower();
            self.wake();
        }
    }

    /// `run::run_another`: tells whether the guest was entered.
    fn run(&self, looks: Looks) -> bool {
        if self.loops.is_pending() {
            return false;
        }
        assert!(self.next.claim());
        self.load();
        if looks == Looks::Behind && self.loops.is_pending() {
            self.next.set_state(VcpuState::Ready);
            return false;
        }
        true
    }

    /// Gear2's loop, which runs the other vCPU until it hears of the one that waits.
    fn hears(&self, looks: Looks) {
        loop {
            if self.run(looks) {
                // The guest computes. `irq::virtual_timer`, or `timer::expired`.
                self.interrupts.wait();
                self.timer.lock().unwrap().source = Source::Nothing;
                self.wake();
                // `vcpu::after_interrupt`.
                self.next.set_state(VcpuState::Ready);
            }
            if self.loops.take_wake() == Some(OUTGOING) {
                assert_eq!(self.outgoing.state(), VcpuState::Ready);
                return;
            }
        }
    }
}

fn all_orders(looks: Looks) {
    let runner = Runner::new(DfsScheduler::new(None, false), config());
    let orders = runner.run(move || {
        let owner = Arc::new(Owner::new());
        let beside = Arc::clone(&owner);
        let time = thread::spawn(move || beside.expire());
        owner.hears(looks);
        time.join().unwrap();
    });
    assert!(orders > 10, "{orders} orders only");
}

#[test]
fn a_timer_that_is_due_while_another_is_loaded_wakes() {
    all_orders(Looks::Behind);
}

/// An owner CPU that looks before it loads, and not again, enters the guest for good.
#[test]
#[should_panic(expected = "deadlock")]
fn an_owner_that_does_not_look_behind_its_load_is_found() {
    all_orders(Looks::Before);
}
