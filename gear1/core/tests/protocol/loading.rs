//! Two of Gear2's CPUs load a VM, start it and stop it at once: `lifecycle::load` lets the VM's
//! lock go while it takes back what the VM has shared. Each function does what the one of
//! `runtime/src/lifecycle.rs` does that it names, with the shipped table of a VM's life.
//!
//! Requirements: G1-RUN-009, G1-RUN-010.

use std::sync::Arc;

use gear1_abi::call::{Status, VmState};
use gear1_core::lifecycle;
use shuttle::scheduler::PctScheduler;
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use crate::{DRAWN, SEED, config};

/// Pieces of the VM's memory.
const PIECES: u32 = 2;

/// Looks at the VM's state after its lock was let go, each of which is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// The shipped code's: by the release, under the lock over shared memory, and by the load.
    Both,
    OnlyRelease,
    OnlyLoad,
}

struct Vm {
    state: VmState,
    progress: u32,
    starts: u32,
}

/// Memory that the VM has shared.
#[derive(Default)]
struct Shared {
    /// Steps that the take-back needs.
    steps: u32,
    /// Life of the VM that shared it.
    life: u32,
    /// Whether a take-back has begun and is not done.
    leaves: bool,
}

struct Machine {
    vm: Mutex<Vm>,
    /// Taken before the VM's lock, and by nobody who holds it.
    shared: Mutex<Shared>,
    looks: Looks,
}

impl Machine {
    fn new(looks: Looks) -> Self {
        Self {
            vm: Mutex::new(Vm {
                state: VmState::Stopped,
                progress: 0,
                starts: 0,
            }),
            shared: Mutex::new(Shared {
                steps: 1,
                ..Shared::default()
            }),
            looks,
        }
    }

    /// `ffa::release`: tells whether nothing is left. Refused if the VM runs.
    fn release(&self) -> Result<bool, Status> {
        let mut shared = self.shared.lock().unwrap();
        let state = self.vm.lock().unwrap().state;
        if self.looks != Looks::OnlyLoad && lifecycle::stop(state) {
            return Err(Status::WrongState);
        }
        let is_done = shared.steps == 0;
        if !is_done {
            let vm = self.vm.lock().unwrap();
            let is_alive = vm.state == VmState::Running && vm.starts == shared.life;
            assert!(!is_alive, "the memory of a VM that runs is taken back");
        }
        shared.steps = shared.steps.saturating_sub(1);
        shared.leaves = !is_done;
        Ok(is_done)
    }

    fn load(&self) -> Result<(), Status> {
        let mut vm = self.vm.lock().unwrap();
        if lifecycle::load(vm.state)? {
            vm.state = VmState::Loading;
            vm.progress = 0;
        }
        if vm.progress == 0 {
            let starts = vm.starts;
            drop(vm);
            if !self.release()? {
                return Ok(());
            }
            vm = self.vm.lock().unwrap();
            let looks = self.looks != Looks::OnlyRelease;
            if looks && !lifecycle::still_loads(vm.state, vm.starts == starts) {
                return Err(Status::WrongState);
            }
        }
        assert_eq!(
            vm.state,
            VmState::Loading,
            "a piece of a VM that is not loading"
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
        let Ok(state) = lifecycle::start(vm.state) else {
            return;
        };
        vm.state = state;
        vm.starts += 1;
        let life = vm.starts;
        drop(vm);
        let mut shared = self.shared.lock().unwrap();
        let vm = self.vm.lock().unwrap();
        if vm.state == VmState::Running && vm.starts == life {
            assert!(
                shared.steps == 0 && !shared.leaves,
                "a VM runs before all of it was taken back"
            );
            (shared.steps, shared.life) = (2, life);
        }
    }

    /// `lifecycle::stop`, with vCPUs that are off at once.
    fn stop(&self) {
        let mut vm = self.vm.lock().unwrap();
        if lifecycle::stop(vm.state) {
            vm.state = lifecycle::complete_stop(VmState::Stopping, || false);
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

fn many_orders(looks: Looks) {
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
    many_orders(Looks::Both);
}

#[test]
#[should_panic(expected = "a piece of a VM that")]
fn a_load_that_does_not_look_again_is_found() {
    many_orders(Looks::OnlyRelease);
}

#[test]
#[should_panic(expected = "the memory of a VM that runs is taken back")]
fn a_release_that_does_not_look_is_found() {
    many_orders(Looks::OnlyLoad);
}
