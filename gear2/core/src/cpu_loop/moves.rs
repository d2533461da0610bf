//! vCPUs that come to this CPU and leave it, and the balancer's looks.
//!
//! The stages of a move and who stores them are in `machine/placement.rs`. Between two events this
//! loop's policy has the vCPUs in `here` and those in `arriving`, which it has agreed to take and
//! which are still their old CPU's.
//!
//! A vCPU that arrives is looked at, unless its old CPU says that it could run: a wake-up that
//! crossed the move came to the old CPU. A wake-up of a vCPU that is not here pokes the CPU where it
//! is. No wake-up is lost by a move, as either is enough (G1-VCPU-001 for Gear1's part).

use gear1_abi::call::VcpuState;
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::CpuLoop;
use super::jobs::{BALANCE_JOB, TRACE_JOB};
use crate::balancer::Other;
use crate::gear1::Gear1;
use crate::kept::bit;
use crate::load::Seen;
use crate::machine::{LOOK, MOVE, Place, Platform, SHARE, Stage, Stays, Step, TRACE, WORDS};
use crate::scheduler::{Choice, Share};

/// State of a loop's moves.
pub(super) struct Moves {
    /// vCPUs of this CPU, a bit each.
    pub(super) here: u32,
    /// vCPUs that the policy of this CPU has room for, and that are still elsewhere.
    arriving: u32,
    /// Time of the balancer's next look.
    balance_at: u64,
    /// The CPU is closed, and its vCPUs are being given away.
    clears: bool,
    /// CPUs, a bit each, that refused each vCPU since then.
    tried: [u8; MAX_VCPUS],
    /// vCPU that the balancer offered last.
    offered: Option<VcpuId>,
}

// `Moves::tried` has a bit for each CPU.
const _: () = assert!(MAX_CPUS <= 8);

impl Moves {
    pub(super) const fn new() -> Self {
        Self {
            here: 0,
            arriving: 0,
            balance_at: 0,
            clears: false,
            tried: [0; MAX_VCPUS],
            offered: None,
        }
    }

    /// Returns the vCPUs that the policy of this CPU has, a bit each.
    /// A change of parameters reaches those that arrive too, which were added with the old ones.
    pub(super) const fn known(&self) -> u32 {
        self.here | self.arriving
    }

    /// Tells whether a vCPU is on this CPU.
    #[inline]
    pub(super) const fn has(&self, vcpu: VcpuId) -> bool {
        self.here & bit(vcpu) != 0
    }
}

/// Iterates over the vCPUs of a word with a bit for each.
pub(super) fn vcpus_of(mut word: u32) -> impl Iterator<Item = VcpuId> {
    core::iter::from_fn(move || {
        let vcpu = VcpuId::new(word.trailing_zeros() as usize)?;
        word &= word.wrapping_sub(1);
        Some(vcpu)
    })
}

impl<P: Platform> CpuLoop<'_, P> {
    /// Takes in the vCPUs that are on this CPU as the loop begins. A policy that refuses one with
    /// its parameters gets the vCPU without: they were changed while it was elsewhere.
    pub(super) fn settle(&mut self) {
        let machine = self.machine;
        for (vcpu, config) in machine.config.vcpus() {
            if machine.placement.cpu(vcpu) != self.cpu {
                continue;
            }
            let share = machine.share(config.vm);
            if self.scheduler.add(vcpu, &share, 0).is_err() {
                let _ = self.scheduler.add(vcpu, &Share::of(config.vm), 0);
            }
            self.moves.here |= bit(vcpu);
        }
        // A CPU that is alone in its pool has nobody to give a vCPU to.
        if machine.config.pool(self.cpu).balancer.period().is_some()
            && machine.pool(self.cpu).len() > 1
        {
            self.jobs |= BALANCE_JOB;
        }
        self.judge_waits();
    }

    /// Goes about the errands of a poke. One without an errand, which a Gear2 that failed left, is
    /// for a look at everything.
    pub(super) fn errands(&mut self, gear1: &mut impl Gear1, now: u64) {
        let errands = self.machine.placement.take_errands(self.cpu);
        // Parameters first: no CPU takes in a vCPU while a change of them waits for an answer.
        if errands & SHARE != 0 {
            self.change_shares(gear1, now);
        }
        if errands & MOVE != 0 {
            self.go_on_with_moves(gear1, now);
        }
        if errands & WORDS != 0 {
            self.let_go_of_registers(gear1);
        }
        if errands & TRACE != 0 {
            self.take_job(TRACE_JOB, 0);
        }
        if errands == 0 || errands & LOOK != 0 {
            self.look_again(gear1, now);
            self.serve(gear1, now);
        }
    }

    /// Has Gear1 put the registers of vCPUs that do not run, and that this CPU still holds, where
    /// any loop may ask for them.
    fn let_go_of_registers(&self, gear1: &mut impl Gear1) {
        for vcpu in vcpus_of(self.moves.here) {
            // A refusal means that the VM runs, and is not to be dumped.
            let _ = gear1.vcpu_registers(vcpu);
        }
    }

    /// Goes on with all moves that wait for this CPU.
    pub(super) fn go_on_with_moves(&mut self, gear1: &mut impl Gear1, now: u64) {
        let machine = self.machine;
        for vcpu in vcpus_of(machine.placement.take_news(self.cpu)) {
            // One look for all of the word: `offer` stores only if the word is still this one, and
            // every other stage below is this CPU's alone to leave.
            let place = machine.placement.of(vcpu);
            let (mine, to_me) = (place.cpu == self.cpu, place.to == self.cpu);
            let is_under_way = to_me && place.stage == Stage::Taken;
            if self.moves.arriving & bit(vcpu) != 0 && !is_under_way {
                // Before what somebody may want of it by now.
                self.arrive(gear1, vcpu, place.stage, mine, now);
            }
            if mine && machine.pools.is_changing(vcpu) {
                self.go_on_with_pool(gear1, vcpu, place, now);
                continue;
            }
            match place.stage {
                // Somebody asked for the move: 0 says that no loads are compared.
                Stage::Wanted if mine => self.offer(gear1, vcpu, place, place.to, 0),
                Stage::Taken if mine => self.give(gear1, vcpu, place, now),
                Stage::Offered(theirs) if to_me => self.judge(gear1, vcpu, place, theirs, now),
                // The two others are no answer to the offer of a CPU that is closed.
                Stage::Refused(Stays::NoGain | Stays::Changes) => {}
                Stage::Refused(_) if mine && self.moves.clears => {
                    self.moves.tried[vcpu.index()] |= 1 << place.to.index();
                }
                Stage::Home
                | Stage::Ready
                | Stage::Wanted
                | Stage::Offered(_)
                | Stage::Taken
                | Stage::Refused(_) => {}
            }
        }
        self.clear(gear1);
    }

    /// Goes on with a vCPU of this CPU's whose VM changes its pool.
    fn go_on_with_pool(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place, now: u64) {
        let machine = self.machine;
        match machine.pool_step(gear1, vcpu, place) {
            Step::Offer(to) => self.offer(gear1, vcpu, place, to, 0),
            // The other CPU, whose vCPU it is from now on, goes on with the change.
            Step::Move => {
                self.give(gear1, vcpu, place, now);
            }
            Step::Give => {
                // First: the other CPU, which may look at once, finds a vCPU that has arrived, and
                // no change that it would go on with.
                machine.pool_done(vcpu);
                self.give(gear1, vcpu, place, now);
            }
            Step::CallOff => {
                // planted: a pool that refused a VM keeps room for its vCPUs
                machine.placement.set(vcpu, Place::home(self.cpu));
                machine.poke_for(gear1, place.to, vcpu);
                machine.pool_done(vcpu);
            }
            Step::Stay => machine.pool_done(vcpu),
            Step::Wait => {}
        }
    }

    /// Offers a vCPU of this CPU's to another one.
    /// `ready`: as in [`Stage::Offered`]. Without a poke if somebody has changed the word since
    /// `place` was read: whoever did so has poked this CPU.
    fn offer(&self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place, to: CpuIndex, ready: u32) {
        let stage = Stage::Offered(ready);
        if self
            .machine
            .placement
            .change(vcpu, place, Place { stage, to, ..place })
        {
            self.machine.poke_for(gear1, to, vcpu);
        }
    }

    /// Takes a vCPU that another CPU offers, or says why not. `theirs`: ready vCPUs there, if the
    /// balancer offers it.
    fn judge(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place, theirs: u32, now: u64) {
        let stage = match self.refusal(vcpu, theirs, now) {
            None => {
                self.moves.arriving |= bit(vcpu);
                Stage::Taken
            }
            Some(why) => Stage::Refused(why),
        };
        self.machine.placement.set(vcpu, Place { stage, ..place });
        self.machine.poke_for(gear1, place.cpu, vcpu);
    }

    /// Returns why this CPU does not take a vCPU. `None`: its policy has room for it now.
    fn refusal(&mut self, vcpu: VcpuId, theirs: u32, now: u64) -> Option<Stays> {
        let machine = self.machine;
        if let Some(why) = machine.bars(vcpu, self.cpu) {
            return Some(why);
        }
        let own = machine.loads[self.cpu.index()].count();
        // Several CPUs may offer a vCPU by one published load: those that are agreed on count too.
        let own = own + self.moves.arriving.count_ones();
        if theirs != 0 && !machine.config.pool(self.cpu).balancer.takes(own, theirs) {
            return Some(Stays::NoGain);
        }
        let vm = machine.config.vcpu(vcpu)?.vm;
        // Locked until the vCPU counts here: a change that begins now finds it.
        let shares = machine.shares.lock();
        if shares.bars(vm) {
            return Some(Stays::Changes);
        }
        let taken = self.scheduler.add(vcpu, shares.of(vm), now);
        taken.err().map(Stays::Policy)
    }

    /// Gives a vCPU to the CPU that has agreed to take it. Gear1 is told first: after
    /// a refusal the vCPU is still here, and nothing is to be undone.
    fn give(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place, now: u64) {
        let machine = self.machine;
        if gear1.vcpu_assign(vcpu, place.to).is_ok() {
            // As published with the last choice. Without a balancer nothing is.
            let ready = machine.loads[self.cpu.index()].ready() & bit(vcpu) != 0;
            self.scheduler.remove(vcpu, now);
            self.moves.here &= !bit(vcpu);
            self.judge_waits();
            // The short way back of `on_event` would run the vCPU once more.
            if self.last.is_some_and(|last| last.vcpu == vcpu) {
                self.last = None;
            }
            if self.cause == Some(vcpu) {
                // Its account is the other CPU's from now on.
                self.cause = None;
            }
            machine.placement.arrive(vcpu, place, ready, now);
        } else {
            // Gear1 refuses only who is not the owner CPU. The other CPU forgets the vCPU.
            machine.placement.set(vcpu, Place::home(self.cpu));
        }
        machine.poke_for(gear1, place.to, vcpu);
    }

    /// Takes in a vCPU whose move has ended: it is here, or stayed where it was.
    fn arrive(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, stage: Stage, mine: bool, now: u64) {
        self.moves.arriving &= !bit(vcpu);
        if !mine {
            // The move was called off: the room that `refusal` has made for the vCPU is free again.
            return self.scheduler.remove(vcpu, now);
        }
        self.moves.here |= bit(vcpu);
        self.judge_waits();
        if stage == Stage::Ready
            && let Some(config) = self.machine.config.vcpu(vcpu)
        {
            // Nobody has run it since. If its VM was stopped meanwhile, Gear1 refuses to run it.
            self.make_ready(vcpu, config.vm, now);
        } else {
            // planted: nobody looks at a vCPU that arrives
            self.look_at(gear1, vcpu, now);
        }
    }

    /// Compares a vCPU of this CPU with Gear1: is it ready?
    pub(super) fn look_at(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, now: u64) {
        let ready = match gear1.vcpu_state(vcpu) {
            Ok(VcpuState::Ready | VcpuState::Running) => true,
            // An earlier Gear2 may have taken the question with it: then the vCPU asks again.
            Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall) => {
                self.machine.can_go_on(gear1, vcpu)
            }
            Ok(VcpuState::Off | VcpuState::Wfi) | Err(_) => false,
        };
        let vm = self.machine.config.vcpu(vcpu).map(|config| config.vm);
        // A pause is between Gear2 and itself: to Gear1 the vCPU is as ready as before.
        if ready && vm.is_some_and(|vm| !self.machine.is_paused(vm)) {
            self.scheduler.wake(vcpu, now);
        } else {
            self.scheduler.block(vcpu, now);
        }
    }

    /// Offers the vCPUs of a closed CPU to the others, one after the other for each vCPU. If none
    /// takes one of them, the CPU opens again: what has left stays where it went.
    fn clear(&mut self, gear1: &mut impl Gear1) {
        let machine = self.machine;
        if !machine.is_closed(self.cpu) {
            self.moves.clears = false;
            return;
        }
        if !self.moves.clears {
            self.moves.clears = true;
            self.moves.tried = [0; MAX_VCPUS];
        }
        let mut counts = machine.placement.counts();
        for vcpu in vcpus_of(self.moves.here) {
            let place = machine.placement.of(vcpu);
            if !place.stage.rests() {
                continue;
            }
            match self.untried(vcpu, &counts) {
                Some(to) => {
                    // Offers that are not answered yet count, or all vCPUs would go to one CPU.
                    counts[to.index()] += 1;
                    self.offer(gear1, vcpu, place, to, 0);
                }
                None => return self.stays_open(gear1, vcpu, place),
            }
        }
    }

    /// Returns the CPU with the fewest vCPUs of those that may take a vCPU and have not refused it;
    /// of several the one of this cluster.
    fn untried(&self, vcpu: VcpuId, counts: &[u32; MAX_CPUS]) -> Option<CpuIndex> {
        let machine = self.machine;
        let tried = self.moves.tried[vcpu.index()];
        let others = machine.pool(self.cpu).iter().filter(|cpu| {
            *cpu != self.cpu && tried >> cpu.index() & 1 == 0 && machine.bars(vcpu, *cpu).is_none()
        });
        // planted: a vCPU of a closed CPU goes to another cluster
        others.min_by_key(|cpu| {
            (
                counts[cpu.index()],
                !machine.config.are_near(self.cpu, *cpu),
            )
        })
    }

    /// Opens this CPU again, since a vCPU of it has nowhere to go.
    fn stays_open(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId, place: Place) {
        let machine = self.machine;
        let why = match place.stage {
            Stage::Refused(why) => why,
            // No CPU was asked, as none of the pool may take the vCPU.
            _ => Stays::NoOther,
        };
        machine.placement.set(
            vcpu,
            Place {
                stage: Stage::Refused(why),
                ..place
            },
        );
        // Opening a CPU is never refused.
        let _ = machine.set_closed(gear1, self.cpu, false);
        self.moves.clears = false;
        let config = machine.config.vcpu(vcpu);
        let name = config.and_then(|config| machine.config.vm(config.vm));
        let name = name.map_or("", |vm| vm.name.as_str());
        let (cpu, index) = (self.cpu.index(), config.map_or(0, |config| config.index));
        self.say(
            None,
            format_args!("CPU {cpu} stays on: no other CPU takes vCPU {index} of {name}: {why}"),
        );
    }

    /// Looks for a CPU that has less to do, if vCPUs wait here beside the policy's choice and a look
    /// is due. Returns when to look again.
    pub(super) fn balance(&mut self, gear1: &mut impl Gear1, choice: Choice, now: u64) -> u64 {
        if now < self.moves.balance_at {
            return self.moves.balance_at;
        }
        // What runs next stays: it would only wait for the move.
        let Choice::Run(next) = choice else {
            return NO_DEADLINE;
        };
        // Nobody waits. A wake-up that changes this is an event, and the job is done again then.
        if !next.contended {
            return NO_DEADLINE;
        }
        let machine = self.machine;
        let balancer = machine.config.pool(self.cpu).balancer;
        let period = machine.config.ticks(balancer.period().unwrap_or(0));
        let load = |cpu: CpuIndex| machine.loads[cpu.index()].read(now, period);
        let pool = machine.pool(self.cpu);
        let others = pool
            .iter()
            .filter(|cpu| *cpu != self.cpu && !machine.is_closed(*cpu));
        let mut others = others.map(|cpu| Other {
            cpu,
            near: machine.config.are_near(self.cpu, cpu),
            seen: load(cpu),
        });
        let own = load(self.cpu);
        let target = balancer.target(own, &mut others);
        let moved = target.is_some_and(|to| self.offer_one(gear1, to, next.vcpu, own, now));
        let pause = machine.config.ticks(balancer.pause(moved));
        // A slow counter may have no tick in the pause: without one, each event would look again.
        self.moves.balance_at = now.saturating_add(pause.max(1));
        self.moves.balance_at
    }

    /// Offers one of the vCPUs that wait to another CPU. At most one such offer is under way, as
    /// the loads of both CPUs follow from it. `own`: the load of this CPU.
    fn offer_one(
        &mut self,
        gear1: &mut impl Gear1,
        to: CpuIndex,
        next: VcpuId,
        own: Seen,
        now: u64,
    ) -> bool {
        let machine = self.machine;
        let offered = self.moves.offered.filter(|vcpu| self.moves.has(*vcpu));
        if offered.is_some_and(|vcpu| !machine.placement.of(vcpu).stage.rests()) {
            return false;
        }
        let stay = machine.config.pool(self.cpu).balancer.stay();
        let stay = machine.config.ticks(stay);
        let ready = machine.loads[self.cpu.index()].ready();
        let may_go = |vcpu: VcpuId| {
            // One look for all: `offer` stores only if the word is still this one.
            let place = machine.placement.of(vcpu);
            let moved = machine.placement.moved(vcpu);
            let settled = moved == 0 || now.saturating_sub(moved) >= stay;
            // One that somebody wants elsewhere is under way already.
            let free = settled && place.stage.rests() && machine.bars(vcpu, to).is_none();
            free.then_some((vcpu, place))
        };
        let mut waiting = vcpus_of(ready & self.moves.here & !bit(next));
        let Some((vcpu, place)) = waiting.find_map(may_go) else {
            return false;
        };
        self.moves.offered = Some(vcpu);
        self.offer(gear1, vcpu, place, to, own.ready as u32);
        true
    }

    /// Has the CPU where a vCPU is look at it.
    pub(super) fn forward_wake(&self, gear1: &mut impl Gear1, vcpu: VcpuId) {
        let cpu = self.machine.placement.cpu(vcpu);
        // A vCPU that is about to arrive here is looked at then.
        if cpu != self.cpu {
            self.machine.poke(gear1, cpu, LOOK);
        }
    }
}
