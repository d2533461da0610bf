//! Environment of the protocol: an owner CPU with its loop and its guest, the VM's lock, and
//! interrupts between CPUs. Each function does the work of the runtime function that it names.

use gear1_abi::call::VcpuState;
use shuttle::sync::{Condvar, Mutex, MutexGuard};

use crate::atomic::barrier;
use crate::vcpu::{CpuShared, Notify, Requests, VcpuShared};

/// Number of the vCPU.
const NUMBER: usize = 3;

/// Something that a CPU waits for: its interrupt line, or an event for Gear2. It stays until it is
/// taken.
#[derive(Default)]
pub(crate) struct Line {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Line {
    pub(crate) fn raise(&self) {
        // DSB: `send_sgi`.
        barrier();
        *self.raised.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Waits for the interrupt, and takes it: WFI, or an interrupt of the guest.
    pub(crate) fn wait(&self) {
        let mut raised = self.raised.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
        // DSB: `acknowledge`.
        barrier();
    }

    /// Withdraws the interrupt.
    pub(crate) fn lower(&self) {
        *self.raised.lock().unwrap() = false;
    }
}

/// State under the VM's lock.
#[derive(Default)]
pub(crate) struct Vm {
    /// Interrupts that are pending and in no list register.
    pub(crate) pending: u32,
    /// Whether the VM stops.
    pub(crate) stopping: bool,
}

/// A vCPU, its owner CPU, and the state that other CPUs share with them.
pub(crate) struct Machine {
    pub(crate) vcpu: VcpuShared,
    pub(crate) loops: CpuShared,
    /// Kicks of the owner CPU.
    pub(crate) kicks: Line,
    vm: Mutex<Vm>,
    /// Messages for the vCPU, which come without the VM's lock.
    messages: Mutex<u32>,
    /// Pokes that the loop has taken.
    pub(crate) pokes: Mutex<u32>,
}

/// Way in which the owner CPU blocks the vCPU.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Block {
    /// The vCPU's list registers are empty.
    Quiet,
    /// A list register holds an interrupt that cannot be delivered.
    Locked,
}

/// Reason for which the guest no longer runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The guest saw all that it waited for.
    Done,
    /// The VM stops.
    Stopped,
}

impl Machine {
    /// A vCPU in a state.
    pub(crate) fn new(state: VcpuState) -> Self {
        let vcpu = VcpuShared::new();
        vcpu.set_state(state);
        Self {
            vcpu,
            loops: CpuShared::new(),
            kicks: Line::default(),
            vm: Mutex::default(),
            messages: Mutex::default(),
            pokes: Mutex::default(),
        }
    }

    pub(crate) fn vm(&self) -> MutexGuard<'_, Vm> {
        // The lock is taken by an access that reads and writes.
        barrier();
        self.vm.lock().unwrap()
    }

    /// `kick::wake`.
    pub(crate) fn wake(&self) {
        self.loops.wake(NUMBER);
        self.kicks.raise();
    }

    /// `kick::request`.
    pub(crate) fn request(&self, what: Requests) {
        self.notify(self.vcpu.request(what));
    }

    pub(crate) fn notify(&self, notify: Notify) {
        match notify {
            Notify::Kick => self.kicks.raise(),
            Notify::Wake => self.wake(),
            Notify::Nobody => {}
        }
    }

    /// `vgic::change_vm_gic`: an interrupt becomes pending under the VM's lock.
    pub(crate) fn inject(&self) {
        let mut vm = self.vm();
        vm.pending += 1;
        self.request(Requests::IRQ);
    }

    /// `vgic::sgi1r`: an SGI is posted without the VM's lock.
    pub(crate) fn leave(&self) {
        self.request(Requests::sgi(5));
    }

    /// `Messages::call`: a message comes without the VM's lock.
    pub(crate) fn send(&self) {
        *self.messages.lock().unwrap() += 1;
        self.request(Requests::MESSAGE);
    }

    /// `lifecycle::stop`, of a VM that runs or is stopping. Tells whether the vCPU is off.
    pub(crate) fn stop(&self) -> bool {
        let mut vm = self.vm();
        vm.stopping = true;
        self.notify(self.vcpu.stop());
        self.vcpu.state() == VcpuState::Off
    }

    /// `vgic::flush_gic`: returns how many interrupts the guest gets.
    fn flush(&self) -> u32 {
        let sgis = self.vcpu.take_each(Requests::INTERRUPTS).sgis();
        core::mem::take(&mut self.vm().pending) + sgis.count_ones()
    }

    /// `vcpu::prepare_entry` and `messages::resume`: what the guest gets, unless it stops.
    pub(crate) fn prepare_entry(&self) -> Result<u32, Left> {
        let wanted = self.vcpu.requests();
        let mut got = 0;
        if wanted.intersects(Requests::STOP) {
            self.vcpu.take(Requests::STOP);
            self.vcpu.set_state(VcpuState::Off);
            return Err(Left::Stopped);
        }
        if wanted.intersects(Requests::AWAITS.union(Requests::MESSAGE)) {
            self.vcpu.take(Requests::MESSAGE);
            if self.vcpu.take(Requests::AWAITS) {
                got += core::mem::take(&mut *self.messages.lock().unwrap());
            }
        }
        if wanted.intersects(Requests::INTERRUPTS) {
            got += self.flush();
        }
        Ok(got)
    }

    /// `vcpu::is_due`.
    fn is_due(&self, how: Block, expected: Requests) -> bool {
        if how == Block::Quiet && self.vcpu.wait_quiet(expected) {
            return false;
        }
        let vm = self.vm();
        !self.vcpu.wait_locked(expected, || vm.pending != 0)
    }

    /// The loop of Gear2 and `run::idle`: waits until the vCPU is to run, and enters it.
    pub(crate) fn run(&self) -> Result<u32, Left> {
        loop {
            if self.loops.take_wake() == Some(NUMBER) && self.vcpu.claim() {
                return self.prepare_entry();
            }
            if self.loops.take_poke() {
                *self.pokes.lock().unwrap() += 1;
            }
            if self.vcpu.state() == VcpuState::Off {
                return Err(Left::Stopped);
            }
            self.kicks.wait();
        }
    }

    /// `run::wait_here`: waits with the vCPU until it is woken, or there is an event for Gear2, whose
    /// loop runs the vCPU then.
    fn wait_here(&self) -> Result<u32, Left> {
        loop {
            if self.loops.is_pending() {
                if !self.loops.take_only_wake(NUMBER) {
                    return self.run();
                }
                let goes_on = self.vcpu.transition(VcpuState::Ready, VcpuState::Running);
                return if goes_on {
                    self.prepare_entry()
                } else {
                    Err(Left::Stopped)
                };
            }
            self.kicks.wait();
            if self.vcpu.is(VcpuState::Off) {
                return Err(Left::Stopped);
            }
        }
    }

    /// Runs a vCPU that waits for a reply: returns the reply, or nothing when the vCPU is off.
    pub(crate) fn run_or_off(&self) -> Option<(u64, u64)> {
        loop {
            if self.loops.take_wake() == Some(NUMBER) && self.vcpu.claim() {
                // The CPU that made the vCPU ready left the reply before.
                return Some(self.vcpu.take_reply().unwrap());
            }
            if self.vcpu.state() == VcpuState::Off {
                return None;
            }
            self.kicks.wait();
        }
    }

    /// Runs a guest that waits by WFI for `wanted` interrupts.
    pub(crate) fn waits(&self, how: Block, wanted: u32) -> Left {
        self.waits_by(how, wanted, Self::run)
    }

    /// Runs such a guest whose CPU waits with it.
    pub(crate) fn waits_here(&self, how: Block, wanted: u32) -> Left {
        self.waits_by(how, wanted, Self::wait_here)
    }

    fn waits_by(&self, how: Block, wanted: u32, wait: fn(&Self) -> Result<u32, Left>) -> Left {
        let mut seen = 0;
        while seen < wanted {
            let got = if self.is_due(how, Requests::NONE) {
                // `guest_call::block` and `vcpu::after_interrupt`.
                let flushed = self.flush();
                self.prepare_entry().map(|got| flushed + got)
            } else {
                wait(self)
            };
            match got {
                Ok(got) => seen += got,
                Err(left) => return left,
            }
        }
        Left::Done
    }

    /// Runs a guest that is blocked in calls which `wanted` messages end: `ffa::go_on`.
    pub(crate) fn receives(&self, how: Block, wanted: u32) -> Left {
        let mut seen = 0;
        while seen < wanted {
            self.vcpu.raise(Requests::AWAITS);
            let got = if self.is_due(how, Requests::AWAITS) {
                self.prepare_entry()
            } else {
                self.run()
            };
            match got {
                Ok(got) => seen += got,
                Err(left) => return left,
            }
        }
        Left::Done
    }

    /// Runs a guest that computes until `wanted` interrupts have come.
    pub(crate) fn computes(&self, wanted: u32) -> Left {
        let mut seen = 0;
        while seen < wanted {
            self.kicks.wait();
            match self.prepare_entry() {
                Ok(got) => seen += got,
                Err(left) => return left,
            }
        }
        Left::Done
    }
}
