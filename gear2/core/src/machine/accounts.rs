//! Accounts of vCPUs: for how many ticks each ran.
//!
//! A loop charges with its events. Between two events the time of the vCPU that runs is open, less
//! the time for which it waits inside Gear1 ([`Waits::Stays`](gear1_abi::call::Waits)), of which
//! Gear1 tells. Nobody can tell for how long a vCPU waits whose WFI does not trap
//! ([`Waits::Alone`](gear1_abi::call::Waits)): its idle time is charged. Therefore no vCPU runs so
//! while somebody looks at accounts, and people learn whose account has such time.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use gear1_abi::call::VcpuState;
use gear1_abi::id::{MAX_VCPUS, VcpuId};

use super::{LOOK_AT_WAITS, Machine, Platform};
use crate::gear1::{Gear1, Waits};
use crate::kept::bit;

/// Time for which WFI traps after a look at an account: `gearctl top` looks each second.
const LOOK_US: u64 = 3_000_000;

/// Accounts of all vCPUs.
pub(super) struct Accounts {
    /// Ticks that each vCPU ran and that the gears worked for it, loads of its VM included.
    ran: [AtomicU64; MAX_VCPUS],
    /// Counter value up to which `ran` has the time of a vCPU that runs, less the ticks for which
    /// vCPUs had waited inside Gear1 on its CPU by then.
    charged: [AtomicU64; MAX_VCPUS],
    /// vCPUs, a bit each, whose accounts have time in which their WFI did not trap.
    unseen: AtomicU32,
    /// Counter value until which every WFI traps; 0: nobody has looked.
    seen_until: AtomicU64,
}

impl Accounts {
    pub(super) const fn new() -> Self {
        Self {
            ran: [const { AtomicU64::new(0) }; MAX_VCPUS],
            charged: [const { AtomicU64::new(0) }; MAX_VCPUS],
            unseen: AtomicU32::new(0),
            seen_until: AtomicU64::new(0),
        }
    }
}

impl<P: Platform> Machine<P> {
    /// Charges a vCPU.
    #[inline]
    pub(crate) fn account(&self, vcpu: VcpuId, ticks: u64) {
        // Relaxed: a figure for people and no order for anybody.
        vcpu.select(&self.accounts.ran).fetch_add(ticks, Relaxed);
    }

    /// Notes up to when a vCPU that runs from now on is charged. `waited`: ticks for which vCPUs
    /// have waited inside Gear1 on its CPU.
    #[inline]
    pub(crate) fn runs(&self, vcpu: VcpuId, charged: u64, waited: u64) {
        let charged = charged.wrapping_sub(waited);
        vcpu.select(&self.accounts.charged).store(charged, Relaxed);
    }

    /// Notes that a vCPU runs from now on without a trap of WFI.
    pub(crate) fn runs_unseen(&self, vcpu: VcpuId) {
        let unseen = &self.accounts.unseen;
        if unseen.load(Relaxed) & bit(vcpu) == 0 {
            unseen.fetch_or(bit(vcpu), Relaxed);
        }
    }

    /// Tells whether a vCPU's account has time for which nobody knows whether the vCPU waited.
    pub(crate) fn is_unseen(&self, vcpu: VcpuId) -> bool {
        self.accounts.unseen.load(Relaxed) & bit(vcpu) != 0
    }

    /// Returns the ticks that a vCPU is charged for, and those up to now that its loop will charge
    /// with its next event.
    pub(crate) fn ran(&self, gear1: &mut impl Gear1, vcpu: VcpuId) -> u64 {
        let runs = gear1.vcpu_state(vcpu) == Ok(VcpuState::Running);
        let open = if let Ok(Waits { here, is_here, .. }) = gear1.vcpu_waits(vcpu)
            && (runs || is_here)
        {
            let charged = vcpu.select(&self.accounts.charged).load(Relaxed);
            let open = gear1.now().wrapping_sub(here).wrapping_sub(charged);
            // Another CPU's words, one after the other: an event in between makes it negative.
            if open >> 63 == 0 { open } else { 0 }
        } else {
            0
        };
        vcpu.select(&self.accounts.ran)
            .load(Relaxed)
            .wrapping_add(open)
    }

    /// Has every WFI trap for a while, because somebody looks at the accounts. Loops whose vCPU runs
    /// without a trap are told.
    pub(crate) fn look_at_accounts(&self, gear1: &mut impl Gear1) {
        let now = gear1.now();
        let until = now.saturating_add(self.config.ticks(LOOK_US));
        if self.accounts.seen_until.swap(until, SeqCst) > now {
            return;
        }
        for cpu in self.config.cpus.iter() {
            self.poke(gear1, cpu, LOOK_AT_WAITS);
        }
    }

    /// Returns until when every WFI traps, unless that is over.
    #[inline]
    pub(crate) fn is_looked_at(&self, now: u64) -> Option<u64> {
        let until = self.accounts.seen_until.load(SeqCst);
        (until > now).then_some(until)
    }
}
