//! Earliest deadline first: servers with a budget in each period, and an inner policy for the rest.
//!
//! A vCPU with a [`Share::server`] is a constant-bandwidth server in its hard form: it has a
//! deadline and a budget. Of the ready servers with budget, the one with the earliest deadline
//! runs. A server without budget waits for its deadline, which then moves by a period. A server
//! that wakes keeps deadline and budget if they do not exceed its share, else it begins anew. vCPUs
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

#[cfg(test)]
mod tests;

/// Account of a server.
#[derive(Clone, Copy, Debug)]
struct Server {
    budget: Budget,
    /// Ticks left until the deadline.
    left: u64,
    /// Ticks used beyond the budget.
    debt: u64,
    deadline: u64,
    ready: bool,
}

impl Server {
    const fn new(budget: Budget) -> Self {
        Self {
            budget,
            left: 0,
            debt: 0,
            deadline: 0,
            ready: false,
        }
    }

    /// Begins a period that ends at `deadline`. Debts are paid first.
    fn begin(&mut self, deadline: u64) {
        let paid = self.debt.min(self.budget.ticks);
        self.debt -= paid;
        self.left = self.budget.ticks - paid;
        self.deadline = deadline;
    }

    /// Tells whether the rest of the budget would exceed the server's share until the deadline.
    fn is_stale(&self, now: u64) -> bool {
        let Some(rest) = self.deadline.checked_sub(now).filter(|rest| *rest > 0) else {
            return true;
        };
        let needed = u128::from(self.left) * u128::from(self.budget.period);
        needed > u128::from(rest) * u128::from(self.budget.ticks)
    }
}

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
    admission: Admission,
    /// Demand of all servers, in millionths of the CPU.
    demand: u64,
    /// Demand that was given up, and the time from which it is free for others.
    given_up: (u64, u64),
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
            admission,
            demand: 0,
            given_up: (0, 0),
        }
    }

    /// Returns the demand with another budget in place of a vCPU's.
    fn admit(&self, vcpu: VcpuId, budget: Option<Budget>, now: u64) -> Result<u64, Refused> {
        let old = self.demand_of(vcpu);
        let new = budget.map_or(Ok(0), |budget| self.admission.demand(budget))?;
        let sum = self.demand - old + new;
        // A smaller budget is taken also while what others gave up is still held.
        if new > old && !self.admission.has_room(sum + self.held(now)) {
            return Err(Refused::Overload);
        }
        Ok(sum)
    }

    /// Returns the demand of a vCPU's server, which was admitted.
    fn demand_of(&self, vcpu: VcpuId) -> u64 {
        let server = self.servers[vcpu.index()];
        server.map_or(0, |server| {
            self.admission.demand(server.budget).unwrap_or(0)
        })
    }

    /// Returns the demand that was given up and is not free yet.
    const fn held(&self, now: u64) -> u64 {
        let (part, free) = self.given_up;
        if now < free { part } else { 0 }
    }

    /// Takes the demand with a vCPU's admitted budget into the account. What the vCPU gives up
    /// stays held until its deadline.
    fn take_over(&mut self, vcpu: VcpuId, demand: u64, now: u64) {
        let less = self.demand.saturating_sub(demand);
        let deadline = self.servers[vcpu.index()].map_or(0, |server| server.deadline);
        if less > 0 && deadline > now {
            // planted: a server's part is free although it was used in advance
            let free = self.given_up.1.max(deadline);
            self.given_up = (self.held(now) + less, free);
        }
        self.demand = demand;
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

    fn leave_queues(&mut self, vcpu: VcpuId) {
        self.eligible.remove(vcpu);
        self.spent.remove(vcpu);
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
        let demand = self.admit(vcpu, share.server, now)?;
        if share.server.is_none() {
            self.rest.add(vcpu, share, now)?;
        } else {
            self.rest.remove(vcpu, now);
        }
        self.take_over(vcpu, demand, now);
        self.leave_queues(vcpu);
        self.rest_ready.remove(vcpu);
        self.known.insert(vcpu);
        self.servers[vcpu.index()] = share.server.map(Server::new);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.take_over(vcpu, self.demand - self.demand_of(vcpu), now);
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
        let demand = self.admit(vcpu, share.server, now)?;
        match (share.server, &mut self.servers[vcpu.index()]) {
            (Some(budget), Some(server)) => {
                server.budget = budget;
                self.take_over(vcpu, demand, now);
            }
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
                self.take_over(vcpu, demand, now);
                self.leave_queues(vcpu);
                self.servers[vcpu.index()] = budget.map(Server::new);
                if ready {
                    self.wake(vcpu, now);
                }
            }
        }
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        let Some(server) = &mut self.servers[vcpu.index()] else {
            self.rest_ready.insert(vcpu);
            return self.rest.wake(vcpu, now);
        };
        if server.ready {
            return;
        }
        server.ready = true;
        if server.is_stale(now) {
            server.begin(now.saturating_add(server.budget.period));
        }
        self.queue(vcpu);
    }

    fn block(&mut self, vcpu: VcpuId, now: u64) {
        self.leave_queues(vcpu);
        match &mut self.servers[vcpu.index()] {
            Some(server) => server.ready = false,
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

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        let Some(server) = &mut self.servers[vcpu.index()] else {
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

    fn pick(&mut self, now: u64) -> Choice {
        self.replenish(now);
        let back = self.spent.first().map_or(NO_DEADLINE, |(_, time)| time);
        let server = self.eligible.first().map(|(vcpu, _)| vcpu);
        if let Some((vcpu, server)) =
            server.and_then(|vcpu| Some((vcpu, self.servers[vcpu.index()].as_ref()?)))
        {
            return Choice::Run(Run {
                vcpu,
                until: now.saturating_add(server.left).min(back),
                // See `give_way`.
                contended: false,
            });
        }
        self.rest.pick(now).until_at_most(back)
    }
}
