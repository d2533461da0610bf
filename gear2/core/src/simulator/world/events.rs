//! Actions of the simulated CPUs: a decision is carried out, and the next event comes.

use gear1_abi::call::{Decision, Reply, Status, VcpuState, Waits};
use gear1_abi::event::{Event, Fault, VmEnd};
use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::{Cpu, Vcpu, World};
use crate::simulator::{Guest, SMMU_INTID, UART_INTID};

impl World {
    /// Takes a decision in, and returns the refusal if it cannot be carried out.
    pub(in crate::simulator) fn decided(
        &mut self,
        cpu: usize,
        decision: Decision,
    ) -> Option<Event> {
        let now = self.now;
        // The way into the guest takes time.
        let entry = now + self.below(20);
        let pending = self.is_pending(cpu);
        self.cpus[cpu].began = if pending { 0 } else { entry };
        match decision {
            Decision::Idle { deadline } => {
                self.cpus[cpu].deadline = deadline;
                self.cpus[cpu].runs = None;
            }
            Decision::Run {
                vcpu,
                deadline,
                reply,
                value,
                waits,
            } => {
                let index = vcpu.index();
                assert_eq!(self.vcpus[index].cpu, cpu, "runs on the wrong CPU");
                assert!(deadline > now, "no time to run");
                if reply != Reply::None {
                    // The VM may have been stopped in between.
                    self.reply(index, reply, value, cpu);
                }
                match self.vcpus[index].state {
                    VcpuState::Ready => {}
                    VcpuState::Off | VcpuState::Wfi => {
                        self.refused += 1;
                        self.cpus[cpu].began = 0;
                        return Some(Event::Refused(Status::WrongState as u64));
                    }
                    VcpuState::Running | VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall => {
                        panic!("cannot be run: {:?}", self.vcpus[index])
                    }
                }
                let acts_in = match self.vms[self.vcpus[index].vm].guest {
                    _ if self.vcpus[index].again => 0,
                    _ if self.frozen => NO_DEADLINE,
                    Guest::Spins => NO_DEADLINE,
                    Guest::Feeds(_) if self.vms[self.vcpus[index].vm].hangs => NO_DEADLINE,
                    Guest::Works | Guest::WorksAndEnds | Guest::Feeds(_) => 1 + self.below(300),
                };
                let vcpu = &mut self.vcpus[index];
                vcpu.state = VcpuState::Running;
                vcpu.held = true;
                vcpu.wake = false;
                vcpu.acts_at = now.saturating_add(acts_in);
                self.cpus[cpu] = Cpu {
                    runs: Some(index),
                    deadline,
                    waits,
                    waits_since: None,
                    ..self.cpus[cpu]
                };
            }
        }
        assert!(cpu != 0 || !self.irq_open, "an interrupt is left active");
        self.check_others(cpu);
        None
    }

    /// No vCPU of the CPU is forgotten: what does not run is off, waits, or is behind another one.
    pub(in crate::simulator) fn check_others(&self, cpu: usize) {
        let here = &self.cpus[cpu];
        // A policy that does not conserve work says when it is to be asked again.
        let idle = here.runs.is_none() && (self.conserves || here.deadline == NO_DEADLINE);
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.cpu == cpu) {
            let open = matches!(
                vcpu.state,
                VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall
            );
            assert!(!open || vcpu.forwarded, "not answered: {vcpu:?}");
            let paused = self.paused >> vcpu.vm & 1 != 0;
            let ready = vcpu.state == VcpuState::Ready && !vcpu.wake && !paused;
            // A poke follows each move.
            let lost = idle && ready && !here.poked;
            assert!(!lost, "a lost wake-up: {vcpu:?}");
        }
    }

    /// Tells whether an event for the CPU comes before any vCPU is entered.
    fn is_pending(&self, cpu: usize) -> bool {
        let here = &self.cpus[cpu];
        let woken = |vcpu: &Vcpu| match vcpu.state {
            VcpuState::Ready => vcpu.wake,
            VcpuState::Wfi => vcpu.wake_at <= self.now,
            _ => false,
        };
        let mut vcpus = self.vcpus.iter().filter(|vcpu| vcpu.cpu == cpu);
        let smmu = cpu == 0 && self.smmu.is_due();
        let any = here.poked || here.irq || smmu || here.doorbell || here.real_time != 0;
        any || vcpus.any(woken)
    }

    /// Returns when the next event for the CPU is due.
    pub(in crate::simulator) fn due(&self, cpu: usize) -> u64 {
        let here = &self.cpus[cpu];
        let mut due = here.deadline.max(self.now);
        let smmu = cpu == 0 && self.smmu.is_due();
        if here.poked || here.irq || smmu || here.doorbell || here.real_time | here.crossed != 0 {
            return self.now;
        }
        let stopped = |index| here.waits_since.is_some() && here.runs == Some(index);
        let vcpus = self.vcpus.iter().enumerate();
        for (index, vcpu) in vcpus.filter(|(_, vcpu)| vcpu.cpu == cpu) {
            due = due.min(match vcpu.state {
                // Gear1 is told of a stop as it waits.
                VcpuState::Off if stopped(index) => self.now,
                VcpuState::Ready if vcpu.wake => self.now,
                VcpuState::Wfi => vcpu.wake_at.max(self.now),
                VcpuState::Running if vcpu.leave => self.now,
                VcpuState::Running => vcpu.acts_at.max(self.now),
                VcpuState::Off
                | VcpuState::Ready
                | VcpuState::AwaitsMmio
                | VcpuState::AwaitsHypercall => continue,
            });
        }
        due
    }

    /// Returns the event that is due on the CPU now. `None`: the vCPU begins to wait inside Gear1, or
    /// goes on after that.
    pub(in crate::simulator) fn event(&mut self, cpu: usize) -> Option<Event> {
        if self.cpus[cpu].waits_since.is_some() {
            return self.end_wait(cpu);
        }
        let event = self.exit(cpu);
        let Event::Wfi(id) = event else {
            return Some(event);
        };
        let vcpu = &mut self.vcpus[id.index()];
        match self.cpus[cpu].waits {
            Waits::Leaves | Waits::GivesWay => return Some(event),
            // An event was pending, so that Gear1 did not enter the guest.
            Waits::Stays | Waits::Alone if self.cpus[cpu].began == 0 => return Some(event),
            // The way into the guest may not be over yet.
            Waits::Stays => {
                self.cpus[cpu].waits_since = Some(self.now.max(self.cpus[cpu].began));
            }
            // Nobody sees that the guest waits.
            Waits::Alone => (vcpu.state, vcpu.acts_at) = (VcpuState::Running, vcpu.wake_at),
        }
        self.cpus[cpu].runs = Some(id.index());
        None
    }

    /// Something is due on a CPU that waits with its vCPU: a wake-up of the vCPU alone lets it go on.
    fn end_wait(&mut self, cpu: usize) -> Option<Event> {
        let now = self.now;
        let index = self.cpus[cpu].runs.unwrap();
        self.cpus[cpu].end_wait(now);
        let vcpu = &mut self.vcpus[index];
        if vcpu.state == VcpuState::Off {
            self.cpus[cpu].runs = None;
            return Some(Event::Off(VcpuId::new(index).unwrap()));
        }
        let wakes = match vcpu.state {
            VcpuState::Ready => vcpu.wake,
            VcpuState::Wfi => vcpu.wake_at <= now,
            _ => false,
        };
        let before = (vcpu.state, vcpu.wake, vcpu.wake_at);
        (vcpu.state, vcpu.wake) = (VcpuState::Running, false);
        if wakes
            && !self.is_pending(cpu)
            && self.cpus[cpu].crossed == 0
            && now < self.cpus[cpu].deadline
        {
            self.vcpus[index].acts_at = now + 1 + self.below(300);
            return None;
        }
        let vcpu = &mut self.vcpus[index];
        (vcpu.state, vcpu.wake, vcpu.wake_at) = before;
        self.cpus[cpu].runs = None;
        Some(self.exit(cpu))
    }

    /// Returns the event that is due on the CPU now, whatever its vCPU's waits do.
    fn exit(&mut self, cpu: usize) -> Event {
        let now = self.now;
        let runs = self.cpus[cpu].runs.take();
        let id = runs.and_then(VcpuId::new);
        if let Some(index) = runs {
            self.vcpus[index].state = VcpuState::Ready;
            if self.vcpus[index].leave {
                return self.leave(index, id.unwrap());
            }
            if self.vcpus[index].acts_at <= now {
                return self.act(index, id.unwrap());
            }
        }
        if core::mem::take(&mut self.cpus[cpu].poked) {
            return Event::Poke(id);
        }
        if core::mem::take(&mut self.cpus[cpu].doorbell) {
            return Event::Doorbell(id);
        }
        if core::mem::take(&mut self.cpus[cpu].irq) {
            self.irq_open = true;
            return Event::Irq(id, UART_INTID);
        }
        if cpu == 0 && self.smmu.deliver() {
            return Event::Irq(id, SMMU_INTID);
        }
        if let Some(index) = self.woken(cpu) {
            return Event::Wake(VcpuId::new(index).unwrap());
        }
        assert!(now >= self.cpus[cpu].deadline, "an event without a cause");
        Event::Deadline(id)
    }

    /// Turns off the running vCPU of a VM that ends. An end that the vCPU asked for at the same
    /// time comes too late to be one, and Gear1 passes the event on all the same.
    fn leave(&mut self, index: usize, id: VcpuId) -> Event {
        self.turn_off(index);
        let vm = self.vcpus[index].vm;
        let ends = self.disorder && self.vms[vm].guest == Guest::WorksAndEnds;
        match self.below(4) {
            0 if ends => Event::VmEnd(id, VmEnd::Off),
            1 if ends => Event::Fault(id, Fault::default()),
            _ => Event::Off(id),
        }
    }

    /// Takes the next wake-up of the CPU: of a vCPU that it runs, or else of a real-time VM's.
    fn woken(&mut self, cpu: usize) -> Option<usize> {
        let now = self.now;
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.cpu == cpu) {
            if vcpu.state == VcpuState::Wfi && vcpu.wake_at <= now {
                vcpu.state = VcpuState::Ready;
                vcpu.wake = true;
            }
        }
        let woken = |vcpu: &Vcpu| vcpu.cpu == cpu && vcpu.wake;
        if let Some(index) = self.vcpus.iter().position(woken) {
            self.vcpus[index].wake = false;
            return Some(index);
        }
        let crossed = self.cpus[cpu].crossed;
        if crossed != 0 {
            self.cpus[cpu].crossed &= crossed - 1;
            return Some(crossed.trailing_zeros() as usize);
        }
        let real_time = self.cpus[cpu].real_time;
        if real_time == 0 {
            return None;
        }
        self.cpus[cpu].real_time &= real_time - 1;
        Some(real_time.trailing_zeros() as usize)
    }
}
