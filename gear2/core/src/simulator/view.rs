//! Views of a simulated machine for tests, and changes from outside.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::event::Ended;
use gear1_abi::regs::NO_DEADLINE;

use super::Simulation;
use super::world::{Lived, Vcpu};
use crate::kept::Kept;

impl Simulation {
    /// Returns the words that outlive a Gear2.
    pub(crate) const fn kept(&self) -> &'static Kept {
        self.kept
    }

    /// Types at the terminal; the interrupt goes to CPU 0.
    pub(crate) fn type_keys(&self, keys: &[u8]) {
        let mut world = self.world.borrow_mut();
        world.wire.0.borrow_mut().1.extend(keys);
        world.cpus[0].irq = true;
    }

    /// A device of a VM tries to write to an address that the VM has not.
    pub(crate) fn fault_dma(&self, vm: u64, address: u64) {
        self.world.borrow_mut().smmu.fault(vm, address);
    }

    /// A device that no VM has tries to reach memory.
    pub(crate) fn fault_dma_of_nobody(&self) {
        self.world.borrow_mut().smmu.fault_of_nobody();
    }

    /// A device of a VM that is stopped goes on behind an SMMUv2: interrupts without events.
    pub(crate) fn fault_dma_silently(&self) {
        self.world.borrow_mut().smmu.is_held = true;
    }

    /// Returns the number of interrupts of the SMMU.
    pub(crate) fn dma_interrupts(&self) -> u64 {
        self.world.borrow().smmu.interrupts
    }

    /// Gear1 repeats the wake-up of a vCPU.
    pub(crate) fn wake_again(&self, vcpu: usize) {
        self.world.borrow_mut().vcpus[vcpu].wake = true;
    }

    /// Returns what the terminal has shown since the last call.
    pub(crate) fn shown(&self) -> String {
        let world = self.world.borrow();
        let shown = core::mem::take(&mut world.wire.0.borrow_mut().0);
        String::from_utf8(shown).unwrap()
    }

    /// Returns the time that each vCPU has had.
    pub(crate) fn used(&self) -> Vec<u64> {
        self.world
            .borrow()
            .vcpus
            .iter()
            .map(|vcpu| vcpu.used)
            .collect()
    }

    /// Has a VM hang: its vCPUs spin from their next turns on.
    pub(crate) fn hang(&self, vm: usize) {
        self.world.borrow_mut().vms[vm].hangs = true;
    }

    /// Returns how often each VM has refreshed its watchdog.
    pub(crate) fn fed(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.fed).collect()
    }

    /// Returns whether each VM sees the first signal of its watchdog.
    pub(crate) fn signalled(&self) -> Vec<bool> {
        let world = self.world.borrow();
        world.vms.iter().map(|vm| vm.signalled).collect()
    }

    /// Returns which CPUs write their rings of trace records.
    pub(crate) fn traces(&self) -> Vec<bool> {
        let world = self.world.borrow();
        world.cpus.iter().map(|cpu| cpu.traces).collect()
    }

    /// Returns the state of a vCPU.
    pub(crate) fn vcpu_state(&self, vcpu: usize) -> VcpuState {
        self.world.borrow().vcpus[vcpu].state
    }

    pub(crate) fn vm_states(&self) -> Vec<VmState> {
        self.world.borrow().vms.iter().map(|vm| vm.state).collect()
    }

    pub(crate) fn starts(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.starts).collect()
    }

    /// Returns how many whole lines each VM sent.
    pub(crate) fn lines(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.line).collect()
    }

    /// Returns how many bytes each VM read from its console.
    pub(crate) fn read(&self) -> Vec<u64> {
        self.world.borrow().vms.iter().map(|vm| vm.read).collect()
    }

    /// Has a VM end by itself, and returns when Gear2 has heard of it.
    pub(crate) fn end(&mut self, vm: usize, how: Ended) {
        self.world.borrow_mut().ends_next = Some((vm, how));
        while self.world.borrow().ends_next.is_some() {
            assert!(self.step(), "nothing happens");
        }
    }

    /// Returns each VM's starts and ends by itself, in order.
    pub(crate) fn lived(&self, vm: usize) -> Vec<Lived> {
        self.world.borrow().vms[vm].lived.clone()
    }

    /// A real-time VM ends, which Gear1 restarts or not. Gear2 may hear of it now or later.
    pub(crate) fn real_time_ends(&self, vm: usize, how: Ended, restarts: bool) {
        let mut world = self.world.borrow_mut();
        assert!(world.vms[vm].real_time && world.vms[vm].state == VmState::Running);
        world.vms[vm].ends_by_itself(how);
        if restarts {
            world.vms[vm].starts_anew();
        } else {
            world.vms[vm].state = VmState::Stopped;
        }
        world.cpus[0].real_time |= 1 << world.vms[vm].first;
    }

    /// Gear1 starts a real-time VM, as at boot.
    pub(crate) fn real_time_starts(&self, vm: usize) {
        let mut world = self.world.borrow_mut();
        assert!(world.vms[vm].real_time);
        world.vms[vm].starts_anew();
    }

    /// Tells whether every CPU is idle for good.
    pub(crate) fn is_quiet(&self) -> bool {
        let world = self.world.borrow();
        let cpus = (0..world.cpus.len()).all(|cpu| world.due(cpu) == NO_DEADLINE);
        cpus && world.gdm_due() == NO_DEADLINE
    }

    /// Returns how many vCPUs wait for the device model.
    pub(crate) fn unanswered(&self) -> usize {
        let world = self.world.borrow();
        let waits = |vcpu: &&Vcpu| vcpu.state == VcpuState::AwaitsMmio;
        world.vcpus.iter().filter(waits).count()
    }

    /// Asks for an operation by the mailbox, and returns the outcome and the result words.
    pub(crate) fn control(&mut self, op: u32, [first, second]: [u64; 2]) -> (u32, [u64; 6]) {
        self.control_with(op, [first, second, 0, 0])
    }

    /// Asks for an operation with more arguments.
    pub(crate) fn control_with(&mut self, op: u32, arguments: [u64; 4]) -> (u32, [u64; 6]) {
        let mailbox = {
            let mut world = self.world.borrow_mut();
            let mailbox = &world.gdm.as_ref().unwrap().region.control;
            for (word, argument) in mailbox.arguments.iter().zip(arguments) {
                word.store(argument, Relaxed);
            }
            mailbox.op.store(op, Relaxed);
            mailbox.asked.fetch_add(1, Relaxed);
            world.ring();
            mailbox
        };
        let asked = mailbox.asked.load(Relaxed);
        while mailbox.answered.load(Relaxed) != asked {
            assert!(self.step(), "nothing happens");
        }
        let results = core::array::from_fn(|word| mailbox.results[word].load(Relaxed));
        (mailbox.outcome.load(Relaxed), results)
    }
}
