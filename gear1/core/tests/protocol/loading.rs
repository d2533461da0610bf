//! Two of Gear2's CPUs load a VM, start it and stop it at once: `lifecycle::load` lets the VM's
//! lock go while it takes back what the VM has shared. Each function does what the one of
//! `runtime/src/lifecycle.rs` does that it names, with the shipped table of a VM's life.
//!
//! Requirements: G1-RUN-009, G1-RUN-010.

use std::sync::Arc;

use gear1_abi::call::{Status, VmState};
use gear1_core::life;
use shuttle::scheduler::PctScheduler;
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::{DRAWN, SEED, config};

/// Pieces of the VM's memory.
const PIECES: u32 = 2;

struct Vm {
    state: VmState,
    progress: u32,
    starts: u32,
}

struct Machine {
    vm: Mutex<Vm>,
    /// Memory that the VM has shared, in steps that the take-back needs.
    shared: Mutex<u32>,
    /// Whether the VM's state is checked again after work without the lock.
    looks: bool,
}

impl Machine {
    fn new(looks: bool) -> Self {
        Self {
            vm: Mutex::new(Vm {
                state: VmState::Stopped,
                progress: 0,
                starts: 0,
            }),
            shared: Mutex::new(1),
            looks,
        }
    }

    /// `ffa::release`: tells whether nothing is left.
    fn release(&self) -> bool {
        let mut shared = self.shared.lock().unwrap();
        let is_done = *shared == 0;
        *shared = shared.saturating_sub(1);
        is_done
    }

    fn load(&self) -> Result<(), Status> {
        let mut vm = self.vm.lock().unwrap();
        if life::load(vm.state)? {
            vm.state = VmState::Loading;
            vm.progress = 0;
        }
        if vm.progress == 0 {
            let starts = vm.starts;
            drop(vm);
            if !self.release() {
                return Ok(());
            }
            vm = self.vm.lock().unwrap();
            if self.looks && !life::still_loads(vm.state, vm.starts == starts) {
                return Err(Status::WrongState);
            }
        }
        assert_eq!(
            vm.state,
            VmState::Loading,
            "a piece of a VM that is not loading"
        );
        assert_eq!(
            *self.shared.lock().unwrap(),
            0,
            "a piece of a VM that shares"
        );
        vm.progress = (vm.progress + 1).min(PIECES);
        if vm.progress == PIECES {
            vm.state = VmState::Loaded;
        }
        Ok(())
    }

    /// `lifecycle::start`, and the guest, which shares memory at once.
    fn start(&self) {
        let mut vm = self.vm.lock().unwrap();
        if let Ok(state) = life::start(vm.state) {
            vm.state = state;
            vm.starts += 1;
            *self.shared.lock().unwrap() = 2;
        }
    }

    /// `lifecycle::stop`, with vCPUs that are off at once.
    fn stop(&self) {
        let mut vm = self.vm.lock().unwrap();
        if life::stop(vm.state) {
            vm.state = life::settled(VmState::Stopping, || false);
        }
    }

    /// A loop of Gear2 that wants the VM to run, and then to run anew. Calls that are refused
    /// change nothing.
    fn restarts(&self) {
        for _ in 0..2 {
            for _ in 0..4 {
                let _refused = self.load();
            }
            self.start();
            self.stop();
        }
    }
}

fn many_orders(looks: bool) {
    let runner = Runner::new(PctScheduler::new_from_seed(SEED, 3, DRAWN), config());
    runner.run(move || {
        let machine = Arc::new(Machine::new(looks));
        let beside = Arc::clone(&machine);
        let other = thread::spawn(move || beside.restarts());
        machine.restarts();
        other.join().unwrap();
    });
}

#[test]
fn a_vm_is_loaded_only_while_it_is_loading() {
    many_orders(true);
}

#[test]
#[should_panic(expected = "a piece of a VM that")]
fn a_load_that_does_not_look_again_is_found() {
    many_orders(false);
}
