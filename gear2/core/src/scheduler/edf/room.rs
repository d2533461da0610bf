//! The room that a CPU has for budgets, and what is taken of it.
//!
//! A part of the CPU is kept free for the device VM while one of its vCPUs is here without a budget
//! of its own, since the VMs that it serves wait for it, and `gearctl`, which changes budgets, is
//! in it.

use gear1_abi::id::VcpuId;
use gearv_manifest::limits::LEAST_PPM;

use crate::scheduler::queue::Set;
use crate::scheduler::{Admission, Budget, Refused, Share};

/// Account of the room.
#[derive(Debug)]
pub(super) struct Room {
    admission: Admission,
    /// Demand of all servers, in millionths of the CPU.
    demand: u64,
    /// Demand that was given up, and the time from which it is free for others.
    given_up: (u64, u64),
    /// vCPUs without a server that others wait for.
    needed: Set,
}

/// Room that was found: the demand of all servers, and the vCPUs that others wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    demand: u64,
    needed: Set,
}

impl Room {
    pub(super) fn new(admission: Admission) -> Self {
        Self {
            admission,
            demand: 0,
            given_up: (0, 0),
            needed: Set::default(),
        }
    }

    /// Looks for the room of a vCPU with other parameters. `old`: its admitted budget.
    pub(super) fn admit(
        &self,
        vcpu: VcpuId,
        old: Option<Budget>,
        share: &Share,
        now: u64,
    ) -> Result<Found, Refused> {
        let old = self.demand_of(old);
        let new = share
            .server
            .map_or(Ok(0), |budget| self.admission.demand(budget))?;
        let mut needed = self.needed;
        needed.remove(vcpu);
        if share.needed && share.server.is_none() {
            needed.insert(vcpu);
        }
        let demand = self.demand - old + new;
        // A smaller budget is taken also while what others gave up is still held.
        let more = new > old;
        let all = demand + self.held(now);
        if more && !self.admission.has_room(all) {
            return Err(Refused::Overload);
        }
        // planted: budgets that come later starve the device VM
        let keeps = more && !needed.is_empty() || self.needed.is_empty() && !needed.is_empty();
        if keeps && !self.admission.has_room(all + LEAST_PPM) {
            return Err(Refused::Starves);
        }
        Ok(Found { demand, needed })
    }

    /// Returns the demand of an admitted budget.
    fn demand_of(&self, budget: Option<Budget>) -> u64 {
        budget.map_or(0, |budget| self.admission.demand(budget).unwrap_or(0))
    }

    /// Returns the demand that was given up and is not free yet.
    const fn held(&self, now: u64) -> u64 {
        let (part, free) = self.given_up;
        if now < free { part } else { 0 }
    }

    /// Takes room that was found into the account. What the vCPU gives up stays held until its
    /// `deadline`.
    pub(super) fn take_over(&mut self, deadline: u64, found: Found, now: u64) {
        let less = self.demand.saturating_sub(found.demand);
        if less > 0 && deadline > now {
            // planted: a server's part is free although it was used in advance
            let free = self.given_up.1.max(deadline);
            self.given_up = (self.held(now) + less, free);
        }
        (self.demand, self.needed) = (found.demand, found.needed);
    }

    /// Gives up the room of a vCPU that leaves, with its admitted budget.
    pub(super) fn release(
        &mut self,
        vcpu: VcpuId,
        budget: Option<Budget>,
        deadline: u64,
        now: u64,
    ) {
        let mut needed = self.needed;
        needed.remove(vcpu);
        let demand = self.demand - self.demand_of(budget);
        self.take_over(deadline, Found { demand, needed }, now);
    }
}
