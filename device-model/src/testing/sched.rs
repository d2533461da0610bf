//! Gear2's scheduling, as its mailbox shows it: CPUs 0 and 1, of which CPU 1 has no room for more
//! than five vCPUs, and VMs 0 and 1 with two vCPUs each. A move and a change end at the second
//! question.

use gear2_protocol::{cpu_flag, op, outcome, share, stays};

/// State of the fake scheduler.
#[derive(Default)]
pub(crate) struct FakeSched {
    /// CPU and pin of each vCPU, and why it stayed there.
    vcpus: [(u64, u64, u64); 4],
    /// A vCPU, or parameters, that are asked for once more.
    busy: bool,
    /// CPUs, a bit each, that take no vCPU.
    closed: u64,
    /// Difference of the weight of both VMs from the default of 100.
    weight: u64,
    /// Budget and period of both VMs, in microseconds.
    budget: [u64; 2],
    /// Why the last change was taken back; 0: it was made.
    refusal: u64,
    /// VMs, a bit each, that have changed their pools.
    elsewhere: u64,
}

impl FakeSched {
    /// Returns outcome and result words of an operation, as Gear2 stores them in the mailbox.
    pub(crate) fn answer(&mut self, op: u32, arguments: [u64; 4]) -> (u32, [u64; 6]) {
        let [first, second, value, period] = arguments;
        // The first question about a move finds it under way, the second one ended.
        let busy = u64::from(core::mem::take(&mut self.busy));
        let name = |name: &[u8; 8]| u64::from_le_bytes(*name);
        match (op, first) {
            (op::SCHED_CPU, 0..2) => {
                let vcpus = self.vcpus.iter().filter(|vcpu| vcpu.0 == first).count();
                let flags = (self.closed >> first & 1) * cpu_flag::CLOSED;
                let flags = flags | first << cpu_flag::CLUSTER;
                let names = [name(b"edf\0\0\0\0\0"), 0, name(b"load\0\0\0\0")];
                let [a, b, c] = names;
                (outcome::OK, [a, b, c, flags, vcpus as u64, 2500])
            }
            (op::SCHED_POOL, 0..2) => (outcome::OK, self.pool(first, second)),
            (op::SCHED_SET_POOL, 0..2) => self.set_pool(first, second),
            (op::SCHED_VCPU, 0..4) => {
                let (cpu, pin, why) = self.vcpus[first as usize];
                (outcome::OK, [cpu, busy, why, pin, 3, 9])
            }
            (op::SCHED_MOVE, 0..4) => self.begin_move(first as usize, second),
            (op::SCHED_PIN, 0..4) => {
                self.vcpus[first as usize].1 = second;
                (outcome::OK, [0; 6])
            }
            (op::SCHED_CLOSE, 0..2) => self.close(first, second),
            (op::SCHED_SHARE, 0..2) if second == 0 => (
                outcome::OK,
                [100 + self.weight, 16, 0, busy, self.refusal, 0],
            ),
            (op::SCHED_SHARE, 0..2) => {
                let [budget, period] = self.budget;
                (outcome::OK, [0, 0, budget, period, 0, 0])
            }
            (op::SCHED_SET, 0..2) => self.set(second, value, period),
            _ => (outcome::NOT_FOUND, [0; 6]),
        }
    }

    /// Moves a vCPU at once, and is busy until somebody asks.
    fn begin_move(&mut self, vcpu: usize, cpu: u64) -> (u32, [u64; 6]) {
        // Refused at once, before a move begins.
        if self.closed >> cpu & 1 != 0 {
            return stays(stays::CPU_IS_OFF);
        }
        self.busy = true;
        // Refused by the other CPU, after the move has begun.
        if vcpu == 3 {
            self.vcpus[vcpu].2 = stays::FULL;
        } else {
            self.vcpus[vcpu].0 = cpu;
        }
        (outcome::STARTED, [0; 6])
    }

    /// vCPU 3 never leaves its CPU.
    fn close(&mut self, cpu: u64, closed: u64) -> (u32, [u64; 6]) {
        if self.vcpus.iter().any(|vcpu| vcpu.0 == cpu && vcpu.1 != 0) && closed != 0 {
            return stays(stays::PINNED);
        }
        let other = 1 - cpu;
        if closed != 0 && self.vcpus[3].0 == cpu {
            self.vcpus[3].2 = stays::OVERLOAD;
        } else {
            self.closed = closed << cpu;
            let leaves = self.vcpus.iter_mut().filter(|vcpu| vcpu.0 == cpu);
            leaves.for_each(|vcpu| vcpu.0 = if closed != 0 { other } else { cpu });
        }
        (outcome::STARTED, [0; 6])
    }

    /// Sets a parameter, or refuses the value as Gear2 does: now, or later as a CPU.
    fn set(&mut self, parameter: u64, value: u64, period: u64) -> (u32, [u64; 6]) {
        self.busy = true;
        self.refusal = 0;
        match parameter {
            // Out of range is refused at once; a budget that is too large, by a CPU later.
            share::WEIGHT if value > 1000 => return stays(stays::OUT_OF_RANGE),
            share::WEIGHT => self.weight = value - 100,
            share::BUDGET if value * 2 > period && period != 0 => self.refusal = stays::OVERLOAD,
            share::BUDGET => self.budget = [value, period],
            _ => {}
        }
        (outcome::STARTED, [0; 6])
    }

    /// CPU 0 is that of no pool, and has VM 0; CPU 1 is the pool `work`, and has VM 1.
    fn pool(&self, place: u64, half: u64) -> [u64; 6] {
        let word = |name: &[u8; 8]| u64::from_le_bytes(*name);
        let name = [word(b"default\0"), word(b"work\0\0\0\0")][place as usize];
        if half == 0 {
            return [name, 0, 0, 0, 0, 0];
        }
        let of_vm = |vm: u64| (vm + (self.elsewhere >> vm & 1)) % 2;
        let vms = (0..2).filter(|vm| of_vm(*vm) == place);
        let vms = vms.fold(0, |vms, vm| vms | 1 << vm);
        let (policy, balancer) = (word(b"edf\0\0\0\0\0"), word(b"load\0\0\0\0"));
        [policy, 0, balancer, 1 << place, vms, 2500]
    }

    /// Puts a VM into a pool, or refuses as Gear2 does: now, as for a pinned vCPU, or later as a CPU
    /// of the pool, of which `work` has no room for VM 0.
    fn set_pool(&mut self, vm: u64, place: u64) -> (u32, [u64; 6]) {
        if self
            .vcpus
            .iter()
            .skip(2 * vm as usize)
            .take(2)
            .any(|vcpu| vcpu.1 != 0)
        {
            return stays(stays::PINNED);
        }
        self.busy = true;
        self.refusal = 0;
        match vm == 0 && place == 1 {
            true => self.refusal = stays::OVERLOAD,
            false => self.elsewhere = self.elsewhere & !(1 << vm) | u64::from(vm != place) << vm,
        }
        (outcome::STARTED, [0; 6])
    }
}

/// Returns the answer that something stays as it is, with a reason of the module `stays`.
fn stays(why: u64) -> (u32, [u64; 6]) {
    (outcome::STAYS, [why, 0, 0, 0, 0, 0])
}
