//! Gear2's calls, as the simulated Gear1 answers them. An answer that Gear1 cannot give, and a call
//! that Gear2 must not make, end the simulation.

use gear1_abi::call::{Reply, Status, VcpuState, VmState, number};
use gear1_abi::event::{Ended, Event};
use gear1_abi::exit::ExitReason;
use gear1_abi::regs::Regs;

use super::World;
use crate::simulator::{CONSOLE, LOAD_PIECES, LOAD_TICKS, SMMU_INTID, UART_INTID, WATCHDOG};

impl World {
    pub(in crate::simulator) fn call(&mut self, call: u16, args: Regs, cpu: usize) -> Regs {
        // Gear2 may fail at each call: a restart has to go on from any state between two calls.
        if let Some(left) = &mut self.fails_in {
            *left = left.saturating_sub(1);
        }
        let index = usize::try_from(args[0]).unwrap_or(usize::MAX);
        let mut results = [0; 8];
        let status = match call {
            number::VERSION => self.version(&mut results),
            number::VCPU_STATE => self.vcpu_state(index, &mut results),
            number::VCPU_ASSIGN => self.assign(index, usize::try_from(args[1]).unwrap(), cpu),
            number::VCPU_REPLY => {
                let reply = Reply::from_reg(args[2]).unwrap();
                self.reply(index, reply, args[1], cpu)
            }
            number::VCPU_WAITS => self.vcpu_waits(index, &mut results),
            number::VCPU_REGS => self.vcpu_regs(index, args[1], cpu, &mut results),
            number::VM_STATE => self.vm_state(index, &mut results),
            number::VM_STOP => self.stop(index, cpu),
            number::VM_LOAD => self.load(index, cpu, &mut results),
            number::VM_START => {
                results[1] = self.now;
                self.start(index)
            }
            number::IRQ_SET => self.irq_set(index, args),
            number::IRQ_DONE => self.irq_done(args),
            number::POKE => {
                self.cpus[index].poked = true;
                Status::Ok
            }
            number::PL061_RAISE => self.pl061_raise(args),
            number::CHANNEL_RING => {
                self.rings[index] += 1;
                Status::Ok
            }
            number::DMA_EVENT => self.smmu.take(&mut results),
            number::EXIT_STATS => self.exit_stats(index, args, &mut results),
            number::LOG_READ => self.log_read(args, &mut results),
            number::TRACE if self.has_rings => {
                self.cpus[cpu].traces = args[0] != 0;
                Status::Ok
            }
            number::TRACE => Status::NoSuchCall,
            // Gear1 refuses while a real-time VM runs that must not end.
            number::SYSTEM if self.keeps_power_on => Status::WrongState,
            number::SYSTEM => {
                self.powered_off = true;
                Status::Ok
            }
            other => panic!("call {other} in a simulation"),
        };
        results[0] = status as u64;
        results
    }

    /// Answers VERSION: the time, and how often and at which place Gear2 failed before.
    fn version(&self, results: &mut Regs) -> Status {
        results[1] = u64::from(gear1_abi::ABI_VERSION);
        results[2] = self.now;
        let last = [self.restarts, 1, 0x1000_0000, self.failed as u64];
        results[3..7].copy_from_slice(&last);
        Status::Ok
    }

    /// Answers VCPU_STATE. A restarted Gear2 learns by this which access a vCPU waits with.
    fn vcpu_state(&self, index: usize, results: &mut Regs) -> Status {
        let Some(vcpu) = self.vcpus.get(index) else {
            return Status::NotFound;
        };
        results[1] = vcpu.state as u64;
        if let Some(Event::Mmio(_, access)) = vcpu.asked {
            results[2] = access.ipa;
            results[3] = access.access_word();
        }
        results[4] = vcpu.cpu as u64;
        results[5] = u64::from(self.powered_down == Some(index));
        Status::Ok
    }

    /// Registers are numbers that tell the vCPU and the register. A CPU holds those of its vCPUs
    /// until its own loop asks.
    fn vcpu_regs(&mut self, index: usize, first: u64, cpu: usize, results: &mut Regs) -> Status {
        let Some(vcpu) = self.vcpus.get_mut(index) else {
            return Status::NotFound;
        };
        let runs = self.vms[vcpu.vm].state == VmState::Running;
        let vm = &self.vms[vcpu.vm];
        let lasts = runs && !vm.real_time || vcpu.state != VcpuState::Off;
        if lasts && !vm.dump {
            return Status::WrongState;
        }
        vcpu.held &= vcpu.cpu != cpu;
        if vcpu.held || vcpu.state == VcpuState::Running {
            return Status::Busy;
        }
        let number = 1_000 * (index as u64 + 1) + first;
        let registers = results[1..7].iter_mut().zip(number..);
        registers.for_each(|(register, number)| *register = number);
        Status::Ok
    }

    /// Waits are numbers that tell the vCPU and the word. Where nobody gets a CPU, they grow with
    /// the time.
    fn vcpu_waits(&self, index: usize, results: &mut Regs) -> Status {
        if index >= self.vcpus.len() {
            return Status::NotFound;
        }
        let vcpu = index as u64;
        let waited = if self.starves { 2 * self.now } else { 0 };
        let cpu = &self.cpus[self.vcpus[index].cpu];
        let lasts = cpu
            .waits_since
            .map_or(0, |since| self.now.saturating_sub(since));
        let is_here = cpu.waits_since.is_some() && cpu.runs == Some(index);
        let here = cpu.waited_before + lasts;
        let [stolen, all, preemptions] = [100 + vcpu, 200 + vcpu + waited, 300 + vcpu];
        results[1..6].copy_from_slice(&[stolen, all, preemptions, here, is_here.into()]);
        Status::Ok
    }

    /// Gives a vCPU to another CPU. Its timer, which the old CPU watched, counts as due. A wake-up
    /// that crosses comes to the old CPU.
    fn assign(&mut self, index: usize, target: usize, cpu: usize) -> Status {
        assert_eq!(self.vcpus[index].cpu, cpu, "only the owner CPU gives");
        assert!(target < self.cpus.len(), "no such CPU");
        assert_ne!(self.vcpus[index].state, VcpuState::Running, "it runs");
        self.vcpus[index].cpu = target;
        // Gear1 notes a wake-up under no lock: it may reach the old owner's event, or wait for the
        // new one's.
        let crosses = self.below(2) == 0;
        if crosses && core::mem::take(&mut self.vcpus[index].wake) {
            self.cpus[cpu].crossed |= 1 << index;
        }
        if self.vcpus[index].state == VcpuState::Wfi && self.below(2) == 0 {
            self.make_ready(index);
        }
        Status::Ok
    }

    /// Answers VM_STATE: the state, the number of starts, and how the last run ended.
    fn vm_state(&self, index: usize, results: &mut Regs) -> Status {
        let vm = &self.vms[index];
        results[1] = vm.state as u64;
        let silent = self.silent.filter(|(vm, _)| *vm == index);
        let silent = silent.map_or(0, |(_, life)| life);
        results[3..7].copy_from_slice(&[vm.starts, vm.end as u64, vm.ends.0, silent]);
        Status::Ok
    }

    /// Loads a piece of a VM. Nothing else may use the VM's memory from here on.
    fn load(&mut self, index: usize, cpu: usize, results: &mut Regs) -> Status {
        let state = self.vms[index].state;
        assert!(
            matches!(state, VmState::Stopped | VmState::Loading),
            "{:?}",
            self.vms[index]
        );
        // Devices may have had the memory only if the VM ran before.
        if state == VmState::Stopped && self.vms[index].starts > 0 {
            self.check_quiet(index);
        }
        let vm = &mut self.vms[index];
        vm.end = Ended::No;
        vm.left = if state == VmState::Stopped {
            LOAD_PIECES
        } else {
            vm.left
        } - 1;
        vm.state = if vm.left == 0 {
            VmState::Loaded
        } else {
            VmState::Loading
        };
        results[1] = vm.left;
        // Copying takes time of the CPU whose loop asks for it.
        let first = self.vms[index].first;
        self.ledger.load(cpu, first, LOAD_TICKS);
        self.now += LOAD_TICKS;
        Status::Ok
    }

    /// Checks that no device writes to the memory of a VM that ran before.
    fn check_quiet(&self, index: usize) {
        let Some(gdm) = &self.gdm else {
            return;
        };
        let vm = &self.vms[index];
        let still = self.gdm_runs || self.masters == 0 || self.masters_stuck;
        for device in vm.first_channel..vm.first_channel + vm.devices {
            let (asked, done) = gdm.reset(device as usize);
            assert!(asked, "the next GDM would use the memory");
            let under_way = gdm.up || gdm.stalled && self.gdm_runs;
            assert!(done || !under_way, "a device uses the memory");
            assert!(done || still, "a bus master uses the memory");
        }
    }

    /// Starts a VM that is loaded. All of its state is that of a reset.
    fn start(&mut self, index: usize) -> Status {
        assert_eq!(self.vms[index].state, VmState::Loaded);
        self.vms[index].starts_anew();
        self.vms[index].listens = false;
        self.vms[index].hangs = false;
        if let Some(gdm) = &mut self.gdm {
            let first = self.vms[index].first_channel as usize;
            gdm.vm_starts(first..first + self.vms[index].devices as usize);
            // VM 0 is the device VM: GDM starts with it, and its bus masters may have transfers.
            if index == 0 {
                self.masters = self.random as u32 % 4;
                gdm.boots(self.now);
                self.gdm_runs = true;
            }
        }
        assert!(!self.vms[index].irq, "a device was not reset");
        assert!(!self.vms[index].signalled, "a watchdog was not reset");
        // Gear1 runs a real-time VM by itself: no loop of Gear2 has its vCPUs.
        if !self.vms[index].real_time {
            let boot = self.vms[index].first;
            self.make_ready(boot);
        }
        Status::Ok
    }

    /// Answers IRQ_SET: the level of a device's interrupt line.
    fn irq_set(&mut self, index: usize, args: Regs) -> Status {
        let vm = &mut self.vms[index];
        if args[1] == u64::from(WATCHDOG.intid) {
            vm.signalled = args[2] == 1;
            return Status::Ok;
        }
        assert_eq!(args[1], u64::from(CONSOLE.intid));
        // A call for each access would double the cost of a console. A Gear2 that was restarted
        // does not know the level, and sets it once.
        let changes = vm.irq != (args[2] == 1);
        assert!(changes || self.restarts > 0, "a level that is already so");
        vm.irq = args[2] == 1;
        if !vm.irq {
            vm.in_one_go = 0;
        }
        let boot = vm.first;
        if vm.irq && self.vcpus[boot].state == VcpuState::Wfi {
            self.make_ready(boot);
        }
        Status::Ok
    }

    /// Answers IRQ_DONE: Gear2 is through with a physical interrupt.
    fn irq_done(&mut self, args: Regs) -> Status {
        if args[0] == u64::from(SMMU_INTID) {
            return self.smmu.done();
        }
        assert_eq!(args[0], u64::from(UART_INTID));
        let open = core::mem::take(&mut self.irq_open);
        assert!(open || self.restarts > 0, "ends an interrupt twice");
        Status::Ok
    }

    /// Answers PL061_RAISE: a line of the device VM rises. The interrupt may take its time to get
    /// to GDM.
    fn pl061_raise(&mut self, args: Regs) -> Status {
        let delay = self.below(300);
        let line = (args[0] as usize, args[1] as u32);
        match &mut self.gdm {
            Some(gdm) if self.gdm_runs => {
                gdm.raised(line, self.now, delay);
                Status::Ok
            }
            _ => Status::WrongState,
        }
    }

    /// With a device model the figures are fixed, for its tests of the mailbox; without one they
    /// are the guest's questions, by which a restarted Gear2 judges what it failed at.
    fn exit_stats(&self, index: usize, args: Regs, results: &mut Regs) -> Status {
        if self.gdm.is_some() {
            results[1] = 7;
            results[2] = 8;
            return Status::Ok;
        }
        let mmio = args[1] == ExitReason::MmioGear2 as u64;
        results[1] = if mmio { self.vcpus[index].questions } else { 0 };
        Status::Ok
    }

    /// Answers LOG_READ: there is one record, at position 3.
    fn log_read(&self, args: Regs, results: &mut Regs) -> Status {
        if self.gdm.is_none() || args[0] != 3 {
            return Status::NotFound;
        }
        results[1..7].copy_from_slice(&[4, 5, 6, 7, 8, 9]);
        Status::Ok
    }

    /// Answers VCPU_REPLY. The guest compares the answer with the one that it expects.
    pub(in crate::simulator) fn reply(
        &mut self,
        index: usize,
        reply: Reply,
        value: u64,
        cpu: usize,
    ) -> Status {
        let vcpu = &mut self.vcpus[index];
        match vcpu.state {
            VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall => {
                let question = vcpu.expected;
                let (kind, expected) = vcpu.expected.take().expect("one answer to one question");
                if reply == Reply::None {
                    // Only a Gear2 that was restarted knows no answer, and never for a request that
                    // GDM has: GDM would perform it twice.
                    assert!(self.restarts > 0 && !vcpu.has_slot(&self.gdm), "{vcpu:?}");
                    vcpu.expected = question;
                    vcpu.again = true;
                } else if self.restarts > 0 && reply == Reply::Abort && kind != Reply::Abort {
                    // A guest whose request made Gear2 fail gets an abort instead of the same
                    // request again.
                    self.blamed += 1;
                } else {
                    assert_eq!(reply, kind);
                    // A restart loses bytes that were typed and not read.
                    let input_is_lost = self.restarts > 0 && vcpu.reads_input() && value == 0;
                    assert!(
                        expected.is_none_or(|expected| expected == value) || input_is_lost,
                        "{vcpu:?} {value}"
                    );
                }
                vcpu.state = VcpuState::Ready;
                vcpu.forwarded = false;
                vcpu.wake = vcpu.cpu != cpu;
                Status::Ok
            }
            // The VM was stopped in between.
            VcpuState::Off => Status::WrongState,
            VcpuState::Wfi if reply == Reply::None && self.powered_down == Some(index) => {
                self.powered_down = None;
                (vcpu.state, vcpu.wake) = (VcpuState::Ready, true);
                Status::Ok
            }
            VcpuState::Ready | VcpuState::Running | VcpuState::Wfi => {
                panic!("vCPU {index} asked nothing: {vcpu:?}")
            }
        }
    }

    /// Stops what does not run, and tells what does to leave.
    pub(in crate::simulator) fn stop(&mut self, vm: usize, cpu: usize) -> Status {
        let state = self.vms[vm].state;
        assert!(
            matches!(state, VmState::Running | VmState::Stopping),
            "{state:?}"
        );
        self.vms[vm].state = VmState::Stopping;
        self.vms[vm].end = Ended::No;
        self.gdm_ends(vm);
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.vm == vm) {
            assert!(
                vcpu.state != VcpuState::Running || vcpu.cpu != cpu,
                "runs under its loop"
            );
            vcpu.wake = false;
            if vcpu.state == VcpuState::Running {
                vcpu.leave = true;
            } else {
                vcpu.state = VcpuState::Off;
                vcpu.expected = None;
                vcpu.again = false;
            }
        }
        if self.is_empty(vm) && self.masters_stop(vm) {
            self.vms[vm].state = VmState::Stopped;
            return Status::Ok;
        }
        Status::Busy
    }
}
