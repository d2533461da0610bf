//! Earliest deadline first: servers with a budget in each period, and an inner policy for the rest.
//!
//! A vCPU with a [`Share::server`] is a constant-bandwidth server in its hard form: it has a
//! deadline and a budget. Of the ready servers with budget, the one with the earliest deadline
//! runs. A server without budget waits for its deadline, which then moves by a period. A server
//! that wakes keeps deadline and budget if they do not exceed its share, else it begins anew. A rest
//! that the switches of a turn would take is no budget: the server waits for its deadline. vCPUs
//! without a server run by the inner policy while no server can.
//!
//! A server that leaves, or gives up a part of its budget, may have used more than its share of the
//! current period already. What it gives up is free for others after its deadline, else their jobs
//! would be late.
//!
//! Sources: C. L. Liu, J. W. Layland, "Scheduling Algorithms for Multiprogramming in a
//! Hard-Real-Time Environment", 1973; L. Abeni, G. Buttazzo, "Integrating Multimedia Applications
//! in Hard Real-Time Systems", RTSS 1998.

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::{Queue, Set};
use super::{Admission, Budget, Choice, Policy, Refused, Run, Share};
use room::Room;
use server::Server;

mod room;
mod server;
#[cfg(test)]
mod tests;

/// The earliest-deadline-first policy of one CPU, with `R` for vCPUs without a server.
#[derive(Debug)]
pub struct Edf<R> {
    known: Set,
    servers: [Option<Server>; MAX_VCPUS],
    /// Ready servers with budget, by deadline.
    eligible: Queue,
    /// Ready servers without budget, by the deadline that ends their wait.
    spent: Queue,
    rest: R,
    /// Ready vCPUs of the inner policy.
    rest_ready: Set,
    room: Room,
    /// Ticks of the two switches of a turn. A rest of a budget that is no longer is of no use.
    switches: u64,
}

impl<R: Policy> Edf<R> {
    /// Makes the policy over the inner one.
    #[must_use]
    pub fn new(rest: R, admission: Admission) -> Self {
        Self {
            known: Set::default(),
            servers: [None; MAX_VCPUS],
            eligible: Queue::new(),
            spent: Queue::new(),
            rest,
            rest_ready: Set::default(),
            room: Room::new(admission),
            switches: 2 * admission.switch_ticks(),
        }
    }

    /// Returns the admitted budget of a vCPU's server, and its deadline.
    fn admitted(&self, vcpu: VcpuId) -> (Option<Budget>, u64) {
        let server = &self.servers[vcpu.index()];
        let server = server.as_ref();
        server.map_or((None, 0), |server| (Some(server.budget), server.deadline))
    }

    /// Queues a ready server.
    fn queue(&mut self, vcpu: VcpuId) {
        let Some(server) = &self.servers[vcpu.index()] else {
            return;
        };
        if server.left > 0 {
            self.eligible.insert(vcpu, server.deadline);
        } else {
            self.spent.insert(vcpu, server.deadline);
        }
    }

    /// Takes a vCPU out of both queues. A server is in one of them at most.
    fn leave_queues(&mut self, vcpu: VcpuId) {
        self.eligible.remove(vcpu);
        self.spent.remove(vcpu);
    }

    /// Returns the eligible server with the earliest deadline, and its budget.
    #[inline]
    fn first(&self) -> Option<(VcpuId, u64)> {
        let (vcpu, _) = self.eligible.first()?;
        let server = vcpu.select(&self.servers).as_ref()?;
        Some((vcpu, server.left))
    }

    /// Chooses while servers wait for their deadlines: one that gets its budget back may have the
    /// earlier deadline.
    #[inline(never)]
    fn pick_beside_spent(&mut self, now: u64) -> Choice {
        self.replenish(now);
        match self.first() {
            Some((vcpu, left)) => {
                let back = self.preempted_at(vcpu);
                run(vcpu, now.saturating_add(left).min(back))
            }
            None => {
                let back = self.spent.first().map_or(NO_DEADLINE, |(_, time)| time);
                self.rest.pick(now).until_at_most(back)
            }
        }
    }

    /// Returns when the first spent server gets its budget back with an earlier deadline than that of
    /// `vcpu`. One that gets a later deadline ends no turn: `vcpu` would pay for the way to Gear2 and
    /// back, without end if there are many.
    fn preempted_at(&self, vcpu: VcpuId) -> u64 {
        let server_of = |vcpu: VcpuId| vcpu.select(&self.servers).as_ref();
        let limit = server_of(vcpu).map_or(NO_DEADLINE, |server| server.deadline);
        let preempts = |one: &(VcpuId, u64)| {
            let period = server_of(one.0).map_or(0, |server| server.budget.period);
            one.1.saturating_add(period) < limit
        };
        let times = self.spent.iter().filter(preempts).map(|(_, time)| time);
        times.min().unwrap_or(NO_DEADLINE)
    }

    /// Begins the next periods of spent servers whose deadlines have come.
    fn replenish(&mut self, now: u64) {
        // Bounded by the spent servers: a period that is over already begins at `now`.
        while let Some(vcpu) = self.spent.pop_until(now) {
            if let Some(server) = &mut self.servers[vcpu.index()] {
                let next = server.deadline.saturating_add(server.budget.period);
                let next = if next > now {
                    next
                } else {
                    now.saturating_add(server.budget.period)
                };
                server.begin(next);
            }
            self.queue(vcpu);
        }
    }
}

impl<R: Policy> Policy for Edf<R> {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        let admitted = self.admitted(vcpu);
        // A refusal leaves all as it was: nothing is changed before it.
        let found = self.room.admit(vcpu, admitted.0, share, now)?;
        // The vCPU may have been added before, with other parameters: it leaves where it was.
        if share.server.is_none() {
            self.rest.add(vcpu, share, now)?;
        } else {
            self.rest.remove(vcpu, now);
        }
        self.room.take_over(admitted.1, found, now);
        self.leave_queues(vcpu);
        self.rest_ready.remove(vcpu);
        self.known.insert(vcpu);
        self.servers[vcpu.index()] = share.server.map(Server::new);
        Ok(())
    }

    /// Takes a vCPU out. Its share is free for others after its deadline alone: the server may have
    /// used more than its part of this period already.
    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        let (budget, deadline) = self.admitted(vcpu);
        self.room.release(vcpu, budget, deadline, now);
        self.leave_queues(vcpu);
        self.servers[vcpu.index()] = None;
        self.known.remove(vcpu);
        self.rest_ready.remove(vcpu);
        self.rest.remove(vcpu, now);
    }

    /// Changes the parameters. A new budget counts from the next period on.
    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        if !self.known.contains(vcpu) {
            return Ok(());
        }
        let admitted = self.admitted(vcpu);
        let found = self.room.admit(vcpu, admitted.0, share, now)?;
        match (share.server, &mut self.servers[vcpu.index()]) {
            // The deadline stays: with a new one, each change would begin a period, and a caller
            // that changes often would run without end.
            (Some(budget), Some(server)) => server.budget = budget,
            (None, None) => self.rest.set(vcpu, share, now)?,
            (budget, _) => {
                let ready = self.servers[vcpu.index()]
                    .map_or(self.rest_ready.contains(vcpu), |server| server.ready);
                if budget.is_none() {
                    self.rest.add(vcpu, share, now)?;
                } else {
                    self.rest_ready.remove(vcpu);
                    self.rest.remove(vcpu, now);
                }
                self.leave_queues(vcpu);
                self.servers[vcpu.index()] = budget.map(Server::new);
                if ready {
                    self.wake(vcpu, now);
                }
            }
        }
        self.room.take_over(admitted.1, found, now);
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        let Some(server) = vcpu.select_mut(&mut self.servers) else {
            self.rest_ready.insert(vcpu);
            return self.rest.wake(vcpu, now);
        };
        // A second wake-up is no new job, and must not bring a new period.
        if server.ready {
            return;
        }
        server.ready = true;
        if server.is_stale(now) {
            server.begin(now.saturating_add(server.budget.period));
        } else if server.left <= self.switches {
            // A job that begins shortly before the deadline of the last one would pay for the way to
            // such a turn and back, and lack the time in its own period.
            server.left = 0;
        }
        let queue = match server.left {
            0 => &mut self.spent,
            _ => &mut self.eligible,
        };
        queue.insert(vcpu, server.deadline);
    }

    /// A server that sleeps keeps deadline and budget: `wake` judges whether they are still worth
    /// something.
    fn block(&mut self, vcpu: VcpuId, now: u64) {
        match vcpu.select_mut(&mut self.servers) {
            Some(server) => {
                server.ready = false;
                self.leave_queues(vcpu);
            }
            None => {
                self.rest_ready.remove(vcpu);
                self.rest.block(vcpu, now);
            }
        }
    }

    /// A server does not give way: its deadline says what it needs, and WFE does not trap.
    fn give_way(&mut self, vcpu: VcpuId, now: u64) {
        if self.servers[vcpu.index()].is_none() {
            self.rest.give_way(vcpu, now);
        }
    }

    /// Charges a server. A turn may end late, as the switch comes on top: the next period pays the
    /// rest.
    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        let Some(server) = vcpu.select_mut(&mut self.servers) else {
            return self.rest.ran(vcpu, ticks, now);
        };
        let paid = server.left.min(ticks);
        server.left -= paid;
        server.debt = server.debt.saturating_add(ticks - paid);
        let spent = server.left == 0;
        if spent && self.eligible.remove(vcpu) {
            self.queue(vcpu);
        }
    }

    /// A server whose budget is used up pays for the way back, as one that blocks does.
    fn pays_for_end(&self, vcpu: VcpuId) -> bool {
        self.servers[vcpu.index()].is_some_and(|server| server.left == 0)
    }

    /// Without spent servers, which is the usual case, the first one of a queue decides.
    fn pick(&mut self, now: u64) -> Choice {
        if self.spent.len() != 0 {
            return self.pick_beside_spent(now);
        }
        match self.first() {
            Some((vcpu, left)) => run(vcpu, now.saturating_add(left)),
            None => self.rest.pick(now),
        }
    }
}

/// Returns the choice to run a server.
const fn run(vcpu: VcpuId, until: u64) -> Choice {
    Choice::Run(Run {
        vcpu,
        until,
        // See `give_way`.
        contended: false,
        // A server that wakes may begin a new period: `wake` judges.
        alone: false,
    })
}
