//! Pools of VMs, and changes of them while VMs run.
//!
//! A VM is in one pool: its vCPUs may be on CPUs of that one. A change of the pool is a move of all
//! vCPUs of the VM, which go or stay together:
//!
//! 1. Each vCPU is offered to the CPUs of the new pool, one after the other. A CPU that agrees has
//!    added the vCPU to its policy, which keeps room for it; the vCPU runs where it was.
//! 2. When all vCPUs have a CPU that agreed, the VM is in the new pool, and each CPU gives its
//!    vCPUs away. Nobody can refuse any more.
//! 3. If no CPU of the new pool takes one of them, all agreements are called off, and the VM is in
//!    the old pool as before.
//!
//! One change of a pool or of parameters is under way at a time ([`Shares`]). A restart of Gear2
//! finds the pool of each VM in a kept word, which is stored with step 2: a change is forgotten
//! before, and ended after it.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU8, AtomicU32};

use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, MAX_VMS, VcpuId, VmId};

use super::placement::{Place, Stage};
use super::pool_change::PoolChange;
use super::shares::Shares;
use super::{Machine, Platform, Stays};
use crate::config::{Config, PoolConfig};
use crate::gear1::Gear1;
use crate::kept::bit;
use crate::scheduler::Refused;

/// The pools of all VMs. Loops read them without a lock; [`Machine::shares`] is locked for changes.
pub(crate) struct Pools {
    /// Place of each VM's pool among those that have CPUs.
    places: [AtomicU8; MAX_VMS],
    /// CPUs, a bit each, that each VM's vCPUs may move to: of the new pool while a change lasts.
    cpus: [AtomicU8; MAX_VMS],
    /// vCPUs, a bit each, whose VM changes its pool.
    changing: AtomicU32,
}

// `Pools::cpus` has a bit for each CPU.
const _: () = assert!(MAX_CPUS <= 8);

/// Next step of a vCPU's loop for a change of its VM's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Offer the vCPU to a CPU of the new pool.
    Offer(CpuIndex),
    /// Give the vCPU to the CPU that has agreed, which is one of the old pool: that move began
    /// before the change.
    Move,
    /// Give the vCPU to the CPU that has agreed.
    Give,
    /// Call the other CPU's agreement off.
    CallOff,
    /// Nothing, since the change has ended for the vCPU.
    Stay,
    /// Nothing yet.
    Wait,
}

impl Pools {
    pub(super) fn new(config: &Config) -> Self {
        let pools = Self {
            places: [const { AtomicU8::new(0) }; MAX_VMS],
            cpus: [const { AtomicU8::new(0) }; MAX_VMS],
            changing: AtomicU32::new(0),
        };
        for vm in config.vms.iter().map(|vm| vm.id) {
            pools.set(config, vm, config.home_pool(vm));
        }
        pools
    }

    /// Puts a VM into a pool. In the manifest's pool of the VM, its vCPUs may be on the CPUs that
    /// the manifest names; in another one, on all.
    fn set(&self, config: &Config, vm: VmId, place: usize) {
        self.places[vm.index()].store(place as u8, SeqCst);
        self.allow(config, vm, place);
    }

    /// Lets the vCPUs of a VM move to CPUs of a pool, and to no others.
    fn allow(&self, config: &Config, vm: VmId, place: usize) {
        let pool = config.pools().nth(place).map_or(0, |pool| pool.cpus.mask());
        let is_home = place == config.home_pool(vm);
        let named = config.vm(vm).filter(|_| is_home);
        let cpus = named.map_or(pool, |vm| pool & vm.affinity.mask());
        self.cpus[vm.index()].store(cpus as u8, SeqCst);
    }

    /// Returns the place of a VM's pool among those that have CPUs.
    pub(crate) fn place(&self, vm: VmId) -> usize {
        self.places[vm.index()].load(SeqCst).into()
    }

    /// Returns the CPUs, a bit each, that vCPUs of a VM may move to.
    #[inline]
    pub(crate) fn cpus(&self, vm: VmId) -> u8 {
        self.cpus[vm.index()].load(SeqCst)
    }

    /// Tells whether the VM of a vCPU changes its pool.
    #[inline]
    pub(crate) fn is_changing(&self, vcpu: VcpuId) -> bool {
        self.changing.load(SeqCst) & bit(vcpu) != 0
    }
}

impl Shares {
    /// Decides what follows for a vCPU. `next`: chooses a CPU of the new pool of those that are not
    /// in a mask.
    fn step(
        &mut self,
        vcpu: VcpuId,
        place: Place,
        is_in: impl Fn(usize, CpuIndex) -> bool,
        next: impl Fn(u8) -> Option<CpuIndex>,
    ) -> Step {
        let Some(change) = self.pool.as_mut().filter(|c| c.open & bit(vcpu) != 0) else {
            return Step::Stay;
        };
        let is_answer = is_in(change.to, place.to);
        let was_asked = change.asked & bit(vcpu) != 0;
        match place.stage {
            // The answer of another CPU comes with a poke.
            Stage::Offered(_) => return Step::Wait,
            Stage::Taken if !is_answer => return Step::Move,
            Stage::Taken if change.refused.is_some() => return Step::CallOff,
            Stage::Taken => {
                change.waits &= !bit(vcpu);
                return if change.waits == 0 {
                    Step::Give
                } else {
                    Step::Wait
                };
            }
            Stage::Refused(_) if was_asked && is_answer => {
                change.tried[vcpu.index()] |= 1 << place.to.index();
            }
            Stage::Home | Stage::Ready | Stage::Wanted | Stage::Refused(_) => {}
        }
        if change.refused.is_some() {
            return Step::Stay;
        }
        let Some(cpu) = next(change.tried[vcpu.index()]) else {
            change.refused = Some(match place.stage {
                Stage::Refused(why) if was_asked && is_answer => why,
                _ => Stays::NoOther,
            });
            return Step::Stay;
        };
        change.asked |= bit(vcpu);
        Step::Offer(cpu)
    }
}

impl<P: Platform> Machine<P> {
    /// Begins to change the pool of a VM to another one, named by its place among those that have
    /// CPUs.
    pub(crate) fn change_pool(
        &self,
        gear1: &mut impl Gear1,
        vm: VmId,
        to: usize,
    ) -> Result<(), Stays> {
        let Some(pool) = self.config.pools().nth(to) else {
            return Err(Stays::NoOther);
        };
        let mut shares = self.shares.lock();
        if shares.is_changing() {
            return Err(Stays::Changes);
        }
        shares.forget_refusal(vm);
        let from = self.pools.place(vm);
        if from == to {
            return Ok(());
        }
        self.check_pool(&shares, vm, pool)?;
        let vcpus = self.vcpus_of(vm);
        self.begin_pool_change(&mut shares, vm, [from, to], vcpus);
        drop(shares);
        self.poke_owners(gear1, vcpus);
        Ok(())
    }

    /// Checks what no policy knows: pins, windows, closed CPUs and the needs of the device VM.
    fn check_pool(&self, shares: &Shares, vm: VmId, pool: &PoolConfig) -> Result<(), Stays> {
        let old = self.config.pools().nth(self.pools.place(vm));
        let mut windows = old.into_iter().flat_map(|pool| &pool.plan.windows);
        if windows.any(|window| window.vm == Some(vm)) {
            return Err(Stays::Window);
        }
        let windows = &pool.plan.windows;
        let of_vm = |owner: Option<VmId>| owner.is_none_or(|owner| owner == vm);
        // planted: a VM moves to a pool that has no window for it
        if !windows.is_empty() && !windows.iter().any(|window| of_vm(window.vm)) {
            return Err(Stays::NoWindow);
        }
        if !pool.cpus.iter().any(|cpu| !self.is_closed(cpu)) {
            return Err(Stays::CpuIsOff);
        }
        for vcpu in vcpus_in(self.vcpus_of(vm)) {
            if self.pin(vcpu).is_some() {
                return Err(Stays::Pinned);
            }
            // Its CPU gives it to another one of the old pool just now.
            if self.is_closed(self.placement.cpu(vcpu)) {
                return Err(Stays::Changes);
            }
        }
        if self.starves_device_vm(shares, shares.of(vm), Some(pool)) {
            return Err(Stays::Policy(Refused::Starves));
        }
        Ok(())
    }

    /// Notes a change. `shares` is locked, so nobody asks for another one.
    fn begin_pool_change(&self, shares: &mut Shares, vm: VmId, [from, to]: [usize; 2], vcpus: u32) {
        shares.pool = Some(PoolChange {
            vm,
            from,
            to,
            waits: vcpus,
            asked: 0,
            open: vcpus,
            tried: [0; MAX_VCPUS],
            refused: None,
        });
        self.pools.allow(&self.config, vm, to);
        self.pools.changing.store(vcpus, SeqCst);
    }

    /// Returns what the loop of a vCPU does next for the change of its VM's pool.
    pub(crate) fn pool_step(&self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place) -> Step {
        let is_in = |pool: usize, cpu: CpuIndex| self.config.pool_place(cpu) == pool;
        let mut shares = self.shares.lock();
        let before = shares.pool;
        let step = shares.step(vcpu, place, is_in, |tried| self.pool_cpu(vcpu, tried));
        let Some((change, before)) = shares.pool.zip(before) else {
            return step;
        };
        let (agreed, refused) = (
            change.waits == 0 && before.waits != 0,
            change.refused.is_some() && before.refused.is_none(),
        );
        if agreed {
            self.pools.set(&self.config, change.vm, change.to);
            self.kept.set_pool(change.vm, change.to);
        }
        if refused {
            // planted: a VM that a pool refused may be on its CPUs all the same
            self.pools.set(&self.config, change.vm, change.from);
        }
        drop(shares);
        if agreed || refused {
            self.poke_owners(gear1, change.open & !bit(vcpu));
        }
        step
    }

    /// Returns the CPU of a VM's new pool that has the fewest vCPUs, with those that it has agreed
    /// to take and is asked to.
    fn pool_cpu(&self, vcpu: VcpuId, tried: u8) -> Option<CpuIndex> {
        let vm = self.config.vcpu(vcpu)?.vm;
        let mut counts = self.placement.counts();
        for sibling in vcpus_in(self.pools.changing.load(SeqCst)) {
            let place = self.placement.of(sibling);
            if matches!(place.stage, Stage::Offered(_) | Stage::Taken) {
                counts[place.to.index()] += 1;
            }
        }
        let mask = self.pools.cpus(vm) & !tried;
        let cpus = self.config.cpus.iter();
        let cpus = cpus.filter(|cpu| mask >> cpu.index() & 1 != 0 && !self.is_closed(*cpu));
        cpus.min_by_key(|cpu| counts[cpu.index()])
    }

    /// Notes that a change has ended for a vCPU. The last one ends the change.
    pub(crate) fn pool_done(&self, vcpu: VcpuId) {
        let mut shares = self.shares.lock();
        self.pools.changing.fetch_and(!bit(vcpu), SeqCst);
        let Some(change) = &mut shares.pool else {
            return;
        };
        change.open &= !bit(vcpu);
        if change.open == 0 {
            let (vm, refused) = (change.vm, change.refused);
            shares.end_pool_change(vm, refused);
        }
    }

    /// Returns the vCPUs of a VM, a bit each.
    fn vcpus_of(&self, vm: VmId) -> u32 {
        let all = self.config.vcpus().filter(|(_, config)| config.vm == vm);
        all.fold(0, |all, (vcpu, _)| all | bit(vcpu))
    }

    /// Has the loops of vCPUs go on with them.
    fn poke_owners(&self, gear1: &mut impl Gear1, vcpus: u32) {
        for vcpu in vcpus_in(vcpus) {
            self.poke_for(gear1, self.placement.cpu(vcpu), vcpu);
        }
    }

    /// Finds each VM in its pool after a restart of Gear2. vCPUs that the earlier Gear2 has not
    /// moved yet go on to the pool.
    pub(super) fn take_over_pools(&self, gear1: &mut impl Gear1) {
        for vm in self.config.vms.iter().filter(|vm| vm.scheduled) {
            let kept = self.kept.pool(vm.id);
            let kept = kept.filter(|place| self.config.pools().nth(*place).is_some());
            let Some(place) = kept else {
                continue;
            };
            self.pools.set(&self.config, vm.id, place);
            let elsewhere =
                |vcpu: &VcpuId| self.config.pool_place(self.placement.cpu(*vcpu)) != place;
            let left = vcpus_in(self.vcpus_of(vm.id)).filter(elsewhere);
            let left = left.fold(0, |left, vcpu| left | bit(vcpu));
            let mut shares = self.shares.lock();
            // One change was under way at most: words that say another thing were spoilt.
            if left != 0 && !shares.is_changing() {
                // planted: a restarted Gear2 leaves vCPUs behind in their old pool
                self.begin_pool_change(&mut shares, vm.id, [place; 2], left);
                drop(shares);
                self.poke_owners(gear1, left);
            }
        }
    }
}

/// Iterates over the vCPUs of a word with a bit for each.
fn vcpus_in(vcpus: u32) -> impl Iterator<Item = VcpuId> {
    let all = (0..MAX_VCPUS).filter_map(VcpuId::new);
    all.filter(move |vcpu| vcpus & bit(*vcpu) != 0)
}
