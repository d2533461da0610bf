//! Scheduling parameters of VMs, and changes of them while VMs run.
//!
//! A VM's vCPUs are on several CPUs, whose policies may refuse new parameters. A change is tried on
//! every CPU, and taken back on all if one refuses: either all vCPUs of the VM have the new
//! parameters, or all have the old ones. One change is under way at a time. No CPU takes a vCPU
//! from another one meanwhile, as room that a smaller budget leaves may have to be given back.
//!
//! Changed parameters are kept over a restart of Gear2, which forgets a change that is under way.

use gear1_abi::id::{CpuIndex, MAX_VMS, VmId};
use gearv_manifest::limits;

use super::placement::SHARE;
use super::pool_change::PoolChange;
use super::{Machine, Platform, Stays};
use crate::config::{Config, PoolConfig};
use crate::gear1::Gear1;
use crate::kept::KeptShare;
use crate::scheduler::{Budget, MAX_WEIGHT, Refused, Share};

/// Name of the policy whose order is fixed priorities.
const PRIORITY: &str = "priority";

/// A parameter with its new value, as `gearctl` asks for it. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// From 1 to [`MAX_WEIGHT`].
    Weight(u64),
    /// Use and period; use 0: no cap.
    Cap(u64, u64),
    /// Budget and period; budget 0: no server.
    Server(u64, u64),
    /// A higher priority runs first.
    Priority(u64),
    /// Time that a vCPU may borrow from its own future after a wake-up.
    Latency(u64),
}

/// A change under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) vm: VmId,
    /// Parameters that every CPU goes back to after a refusal.
    pub(crate) old: Share,
    pub(crate) new: Share,
    /// CPUs, a bit each, that still have to set the parameters, and those that have.
    waits: u8,
    /// CPUs, a bit each, that have set the new parameters, and take them back after a refusal.
    done: u8,
    /// Reason of the CPU that refused; the others take the change back.
    refused: Option<Stays>,
}

/// The parameters of all VMs.
pub(crate) struct Shares {
    /// Parameters that all CPUs have. Those of a change come here with the last answer.
    all: [Share; MAX_VMS],
    change: Option<Change>,
    /// Change of a VM's pool. At most one of both is under way.
    pub(super) pool: Option<PoolChange>,
    /// Reason why the last change of each VM was taken back.
    refusals: [Option<Stays>; MAX_VMS],
}

impl Shares {
    pub(super) fn new(config: &Config) -> Self {
        let vm = |index| VmId::new(index).unwrap_or_default();
        Self {
            all: core::array::from_fn(|index| config.share(vm(index))),
            change: None,
            pool: None,
            refusals: [None; MAX_VMS],
        }
    }

    /// Returns the parameters of a VM.
    pub(crate) const fn of(&self, vm: VmId) -> &Share {
        &self.all[vm.index()]
    }

    /// Tells whether a change is under way.
    pub(crate) const fn is_changing(&self) -> bool {
        self.change.is_some() || self.pool.is_some()
    }

    /// Tells whether a VM's pool is being changed.
    pub(super) const fn is_changing_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// Tells whether no CPU takes a vCPU of a VM, since a change of another kind is under way.
    pub(crate) fn bars(&self, vm: VmId) -> bool {
        let moves = self.pool.is_some_and(|change| change.takes(vm));
        self.is_changing() && !moves
    }

    /// Forgets why the last change of a VM was taken back, before another one.
    pub(super) const fn forget_refusal(&mut self, vm: VmId) {
        self.refusals[vm.index()] = None;
    }

    /// Ends the change of a VM's pool.
    pub(super) const fn end_pool_change(&mut self, vm: VmId, refused: Option<Stays>) {
        self.pool = None;
        self.refusals[vm.index()] = refused;
    }

    /// Returns why the last change of a VM was taken back.
    pub(crate) const fn refusal(&self, vm: VmId) -> Option<Stays> {
        self.refusals[vm.index()]
    }

    /// Returns what a CPU still has to do: the change, and the parameters to set.
    pub(crate) fn task(&self, cpu: CpuIndex) -> Option<(Change, Share)> {
        let change = self.change.filter(|change| change.waits & bit(cpu) != 0)?;
        let share = if change.refused.is_some() {
            change.old
        } else {
            change.new
        };
        Some((change, share))
    }

    /// Notes what a CPU answers. Returns the CPUs, a bit each, that have to take the change back,
    /// and the new parameters if all CPUs have them now.
    fn answer(&mut self, cpu: CpuIndex, refused: Option<Stays>) -> (u8, Option<(VmId, Share)>) {
        let Some(change) = &mut self.change else {
            return (0, None);
        };
        change.waits &= !bit(cpu);
        if change.refused.is_none() && refused.is_none() {
            change.done |= bit(cpu);
        }
        if change.refused.is_none() && refused.is_some() {
            // Who has not tried yet has nothing to take back.
            // planted: a change that one CPU refuses stays on the others
            (change.refused, change.waits) = (refused, change.done);
            change.done = 0;
            if change.waits != 0 {
                // The CPUs that have set the new parameters answer once more.
                return (change.waits, None);
            }
        }
        if change.waits != 0 {
            return (0, None);
        }
        let change = *change;
        self.change = None;
        self.refusals[change.vm.index()] = change.refused;
        if change.refused.is_some() {
            return (0, None);
        }
        self.all[change.vm.index()] = change.new;
        (0, Some((change.vm, change.new)))
    }
}

const fn bit(cpu: CpuIndex) -> u8 {
    1 << cpu.index()
}

impl<P: Platform> Machine<P> {
    /// Returns the parameters of a VM.
    pub(crate) fn share(&self, vm: VmId) -> Share {
        *self.shares.lock().of(vm)
    }

    /// Begins to change a parameter of a VM.
    pub(crate) fn change_share(
        &self,
        gear1: &mut impl Gear1,
        vm: VmId,
        parameter: Parameter,
    ) -> Result<(), Stays> {
        let mut shares = self.shares.lock();
        if shares.is_changing() {
            return Err(Stays::Changes);
        }
        let old = *shares.of(vm);
        // `gearctl` is in the device VM, whose words are judged like a manifest's.
        let new = self.with(old, parameter).ok_or(Stays::OutOfRange)?;
        if new.priority != old.priority && self.starves_device_vm(&shares, &new, None) {
            return Err(Stays::Policy(Refused::Starves));
        }
        let cpus = self.config.cpus.iter();
        // All CPUs are asked, whether a vCPU of the VM is there or not: one may be arriving.
        let waits = cpus.fold(0, |all, cpu| all | bit(cpu));
        // An earlier reason would be read as the answer to this change.
        shares.forget_refusal(vm);
        shares.change = Some(Change {
            vm,
            old,
            new,
            waits,
            done: 0,
            refused: None,
        });
        drop(shares);
        // Without the lock, which each poked CPU takes at once.
        self.poke_all(gear1, waits);
        Ok(())
    }

    /// Takes a CPU's answer to a change. The last answer ends the change, or begins to take it
    /// back.
    pub(crate) fn changed_share(
        &self,
        gear1: &mut impl Gear1,
        cpu: CpuIndex,
        refused: Option<Stays>,
    ) {
        let (back, new) = self.shares.lock().answer(cpu, refused);
        if let Some((vm, share)) = new {
            // Kept when the last CPU has agreed: until then a restarted Gear2 begins with the old
            // ones.
            let kept = self.kept_share(&share);
            self.kept.set_share(vm, kept);
        }
        self.poke_all(gear1, back);
    }

    /// Tells whether a VM, with new parameters of this one or another one, or with this one in a new
    /// pool, could run for ever before the device VM does: by a higher priority on a CPU of both,
    /// without a ceiling (M-SCH-023). Of budgets, the policy of each CPU tells.
    pub(super) fn starves_device_vm(
        &self,
        shares: &Shares,
        new: &Share,
        moved: Option<&PoolConfig>,
    ) -> bool {
        let device = self.config.device_vm.and_then(|vm| self.config.vm(vm));
        let Some(device) = device else {
            return false;
        };
        let cpus = |vm: VmId| match moved {
            Some(pool) if vm == new.vm => pool.cpus.mask() as u8,
            _ => self.pools.cpus(vm),
        };
        let first = CpuIndex::new(cpus(device.id).trailing_zeros() as usize);
        let Some(pool) = first.map(|cpu| self.config.pool(cpu)) else {
            return false;
        };
        if pool.policy.name != PRIORITY || pool.plan.ceiling != 0 {
            return false;
        }
        let priority = |vm: VmId| match vm == new.vm {
            true => new.priority,
            false => shares.of(vm).priority,
        };
        let mut others = self.config.vms.iter().filter(|vm| vm.scheduled);
        others.any(|vm| {
            let meet = cpus(vm.id) & cpus(device.id) != 0;
            // planted: a priority that is set later starves the device VM
            meet && priority(vm.id) > priority(device.id)
        })
    }

    fn poke_all(&self, gear1: &mut impl Gear1, cpus: u8) {
        for cpu in self.config.cpus.iter().filter(|cpu| cpus & bit(*cpu) != 0) {
            self.poke(gear1, cpu, SHARE);
        }
    }

    /// Returns parameters with one changed, if its value is one that a manifest may have.
    fn with(&self, share: Share, parameter: Parameter) -> Option<Share> {
        let mut new = share;
        match parameter {
            Parameter::Weight(weight) if (1..=MAX_WEIGHT).contains(&weight) => new.weight = weight,
            Parameter::Cap(0, _) => new.cap = None,
            Parameter::Cap(us, period) => new.cap = Some(self.budget(us, period)?),
            Parameter::Server(0, _) => new.server = None,
            Parameter::Server(us, period) => new.server = Some(self.budget(us, period)?),
            Parameter::Priority(priority) if in_range(limits::PRIORITY, priority) => {
                new.priority = u8::try_from(priority).ok()?;
            }
            Parameter::Latency(us) if in_range(limits::LATENCY_US, us) => {
                new.latency = self.config.ticks(us);
            }
            Parameter::Weight(_) | Parameter::Priority(_) | Parameter::Latency(_) => return None,
        }
        Some(new)
    }

    fn budget(&self, us: u64, period: u64) -> Option<Budget> {
        let fits = us <= period && in_range(limits::PERIOD_US, period);
        fits.then(|| Budget {
            ticks: self.config.ticks(us),
            period: self.config.ticks(period),
        })
    }

    /// Returns a number of ticks in microseconds.
    pub(crate) fn us(&self, ticks: u64) -> u64 {
        // A million times the ticks of five hours at 1 GHz has more than 64 bits.
        let us = u128::from(ticks) * 1_000_000 / u128::from(self.config.counter_hz.max(1));
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    fn kept_share(&self, share: &Share) -> KeptShare {
        // Microseconds: the words come back through `with`, whose ranges are the manifest's.
        let us = |ticks| self.us(ticks) as u32;
        let budget =
            |budget: Option<Budget>| budget.map_or([0; 2], |b| [us(b.ticks), us(b.period)]);
        let ([cap, cap_period], [budget, period]) = (budget(share.cap), budget(share.server));
        // Weight and priority have half a word each.
        let weight = share.weight as u32 | u32::from(share.priority) << 16;
        KeptShare([weight, us(share.latency), cap, cap_period, budget, period])
    }

    /// Takes over the parameters that somebody changed before a restart of Gear2. Words that mean
    /// none leave those of the manifest.
    pub(super) fn take_over_shares(&self) {
        let mut shares = self.shares.lock();
        for vm in self.config.vms.iter().map(|vm| vm.id) {
            // Nobody has changed the parameters of this VM.
            let Some(KeptShare(words)) = self.kept.share(vm) else {
                continue;
            };
            let [weight, latency, cap, cap_period, budget, period] = words.map(u64::from);
            let parameters = [
                Parameter::Weight(weight & 0xffff),
                Parameter::Priority(weight >> 16),
                Parameter::Latency(latency),
                Parameter::Cap(cap, cap_period),
                Parameter::Server(budget, period),
            ];
            // Cap and budget fit to the other words only together: one bad word leaves all of the
            // VM's as they are in the manifest.
            let begin = Some(*shares.of(vm));
            let share = parameters
                .into_iter()
                .fold(begin, |share, parameter| self.with(share?, parameter));
            shares.all[vm.index()] = share.unwrap_or(shares.all[vm.index()]);
        }
    }
}

fn in_range(range: core::ops::RangeInclusive<u32>, value: u64) -> bool {
    u32::try_from(value).is_ok_and(|value| range.contains(&value))
}
