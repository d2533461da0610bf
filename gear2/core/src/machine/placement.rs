//! CPUs of vCPUs: where each vCPU is, how it moves, and which CPUs take vCPUs at all.
//!
//! Owns one word for each vCPU. A vCPU is always on one CPU, whose loop has it in its policy and is
//! its owner for Gear1; a move changes nothing before both loops agree. The word says how far a
//! move is:
//!
//! | stage | stored by | meaning | next |
//! |---|---|---|---|
//! | `Home` | the CPU that gave it away | here, and no move is under way | `Wanted`, `Offered` |
//! | `Ready` | the CPU that gave it away | the same, and it could run there | as from `Home` |
//! | `Wanted` | anybody | somebody wants it to move | `Offered` by its CPU |
//! | `Offered` | its CPU | asks another CPU | `Taken` or `Refused` by that one |
//! | `Taken` | the other CPU | its policy has room for the vCPU | `Home` or `Ready` there, by its CPU |
//! | `Refused` | the other CPU | here as before, and why | as from `Home` |
//!
//! Whoever stores a stage that another CPU goes on from pokes that CPU, with [`MOVE`] among its
//! errands and the vCPU among its news. The loop side is `cpu_loop/moves.rs`.
//!
//! A restart of Gear2 forgets moves that are under way: Gear1 knows where each vCPU is.

use core::array;
use core::fmt;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};

use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VcpuId};
use gearv_manifest::CpuSet;

use super::{Machine, Platform};
use crate::config::Config;
use crate::gear1::Gear1;
use crate::kept::bit;
use crate::scheduler::Refused;

/// Errand of a poke: look at the states of the CPU's vCPUs.
pub(crate) const LOOK: u32 = 1;
/// Errand of a poke: look at the moves.
pub(crate) const MOVE: u32 = 2;
/// Errand of a poke: look at the change of scheduling parameters.
pub(crate) const SHARE: u32 = 4;
/// Errand of a poke: let go of the registers of vCPUs that are off.
pub(crate) const WORDS: u32 = 8;
/// Errand of a poke: carry out an order about traces.
pub(crate) const TRACE: u32 = 16;
/// Errand of a poke: decide anew whether WFI traps, as every decision does.
pub(crate) const LOOK_AT_WAITS: u32 = 32;

/// Reason why a vCPU stays where it is, or a VM's parameters stay what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// The CPU takes no vCPUs: it is off for the scheduler.
    CpuIsOff,
    /// The manifest or the VM's pool places the VM on other CPUs.
    Elsewhere,
    /// The vCPU is pinned to another CPU.
    Pinned,
    /// The policy of the CPU does not take the vCPU.
    Policy(Refused),
    /// The CPU has no less to do.
    NoGain,
    /// No other CPU of the pool takes vCPUs of the VM.
    NoOther,
    /// Parameters are being changed.
    Changes,
    /// The value is not one that a manifest may have.
    OutOfRange,
    /// A window of the pool's frame is the VM's.
    Window,
    /// The pool's frame has no window for the VM.
    NoWindow,
}

/// Reasons, in the order of their numbers from 1 on.
pub(crate) const REASONS: [Stays; 13] = [
    Stays::CpuIsOff,
    Stays::Elsewhere,
    Stays::Pinned,
    Stays::Policy(Refused::Overload),
    Stays::Policy(Refused::BadBudget),
    Stays::Policy(Refused::Full),
    Stays::NoGain,
    Stays::NoOther,
    Stays::Changes,
    Stays::OutOfRange,
    Stays::Policy(Refused::Starves),
    Stays::Window,
    Stays::NoWindow,
];

impl Stays {
    /// Returns the number of the reason, which is not 0.
    pub(crate) fn number(self) -> u32 {
        let place = REASONS.iter().position(|reason| *reason == self);
        place.map_or(1, |place| place as u32 + 1)
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuIsOff => f.write_str("the CPU takes no vCPUs"),
            Self::Elsewhere => f.write_str("the manifest or its pool places the VM elsewhere"),
            Self::Pinned => f.write_str("the vCPU is pinned"),
            Self::Policy(why) => why.fmt(f),
            Self::NoGain => f.write_str("the CPU has as much to do"),
            Self::NoOther => f.write_str("no other CPU of the pool takes vCPUs"),
            Self::Changes => f.write_str("parameters are being changed"),
            Self::OutOfRange => f.write_str("the value is out of range"),
            Self::Window => f.write_str("a window of the pool is the VM's"),
            Self::NoWindow => f.write_str("the pool has no window for the VM"),
        }
    }
}

/// Progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Home,
    Ready,
    Wanted,
    /// With the number of ready vCPUs that the vCPU would leave, if the balancer offers it; 0 for a
    /// move that somebody asked for.
    Offered(u32),
    Taken,
    Refused(Stays),
}

impl Stage {
    /// Tells whether no move is under way.
    pub(crate) const fn rests(self) -> bool {
        matches!(self, Self::Home | Self::Ready | Self::Refused(_))
    }
}

/// Place of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// CPU whose loop has the vCPU.
    pub(crate) cpu: CpuIndex,
    /// Progress of a move, or why the last one was refused.
    pub(crate) stage: Stage,
    /// CPU that the stage is about.
    pub(crate) to: CpuIndex,
}

impl Place {
    pub(crate) const fn home(cpu: CpuIndex) -> Self {
        Self {
            cpu,
            stage: Stage::Home,
            to: cpu,
        }
    }

    fn word(self) -> u32 {
        let (stage, detail) = match self.stage {
            Stage::Home => (0, 0),
            Stage::Wanted => (1, 0),
            Stage::Offered(ready) => (2, ready.min(0xff)),
            Stage::Taken => (3, 0),
            Stage::Refused(why) => (4, why.number()),
            Stage::Ready => (5, 0),
        };
        // A byte each, in one word: nobody sees a stage with the CPUs of another one.
        self.cpu.index() as u32 | (self.to.index() as u32) << 8 | stage << 16 | detail << 24
    }

    fn from_word(word: u32) -> Self {
        let cpu = |shift: u32| CpuIndex::from_reg(u64::from(word >> shift & 0xff));
        // Numbers of reasons begin with 1.
        let detail = word >> 24;
        let reason = REASONS.get((detail as usize).wrapping_sub(1));
        Self {
            cpu: cpu(0).unwrap_or_default(),
            to: cpu(8).unwrap_or_default(),
            stage: match word >> 16 & 0xff {
                1 => Stage::Wanted,
                2 => Stage::Offered(detail),
                3 => Stage::Taken,
                4 => reason.map_or(Stage::Home, |why| Stage::Refused(*why)),
                5 => Stage::Ready,
                _ => Stage::Home,
            },
        }
    }
}

/// The places of all vCPUs.
pub(crate) struct Placement {
    places: [AtomicU32; MAX_VCPUS],
    /// Errands of each CPU's next poke.
    errands: [AtomicU32; MAX_CPUS],
    /// vCPUs, a bit each, with news of their moves for each CPU.
    news: [AtomicU32; MAX_CPUS],
    /// Number of vCPUs on each CPU.
    counts: [AtomicU32; MAX_CPUS],
    /// Counter value of each vCPU's last move.
    moved: [AtomicU64; MAX_VCPUS],
    /// Number of moves.
    moves: AtomicU64,
}

impl Placement {
    /// Places each vCPU on the CPU that it starts on.
    pub(super) fn new(config: &Config) -> Self {
        let places = Self {
            places: [const { AtomicU32::new(0) }; MAX_VCPUS],
            counts: [const { AtomicU32::new(0) }; MAX_CPUS],
            errands: [const { AtomicU32::new(0) }; MAX_CPUS],
            news: [const { AtomicU32::new(0) }; MAX_CPUS],
            moved: [const { AtomicU64::new(0) }; MAX_VCPUS],
            moves: AtomicU64::new(0),
        };
        for (vcpu, config) in config.vcpus() {
            places.begin(vcpu, config.cpu);
        }
        places
    }

    /// Notes the first place of a vCPU.
    fn begin(&self, vcpu: VcpuId, cpu: CpuIndex) {
        self.counts[cpu.index()].fetch_add(1, SeqCst);
        self.set(vcpu, Place::home(cpu));
    }

    /// Returns the number of vCPUs on each CPU.
    pub(crate) fn counts(&self) -> [u32; MAX_CPUS] {
        array::from_fn(|cpu| self.counts[cpu].load(SeqCst))
    }

    /// Returns the place of a vCPU.
    pub(crate) fn of(&self, vcpu: VcpuId) -> Place {
        Place::from_word(self.places[vcpu.index()].load(SeqCst))
    }

    /// Returns the CPU of a vCPU.
    pub(crate) fn cpu(&self, vcpu: VcpuId) -> CpuIndex {
        self.of(vcpu).cpu
    }

    /// Changes a place, if nobody has meanwhile.
    pub(crate) fn change(&self, vcpu: VcpuId, from: Place, to: Place) -> bool {
        let place = &self.places[vcpu.index()];
        let changed = place.compare_exchange(from.word(), to.word(), SeqCst, SeqCst);
        changed.is_ok()
    }

    /// Notes that a vCPU is on the CPU that has taken it from now on. `ready`: it could run.
    pub(crate) fn arrive(&self, vcpu: VcpuId, place: Place, ready: bool, now: u64) {
        self.counts[place.cpu.index()].fetch_sub(1, SeqCst);
        self.counts[place.to.index()].fetch_add(1, SeqCst);
        self.moved[vcpu.index()].store(now, SeqCst);
        self.moves.fetch_add(1, SeqCst);
        let stage = if ready { Stage::Ready } else { Stage::Home };
        self.set(
            vcpu,
            Place {
                stage,
                ..Place::home(place.to)
            },
        );
    }

    /// Stores a place. Only the CPU that the stage waits for does so.
    pub(crate) fn set(&self, vcpu: VcpuId, place: Place) {
        self.places[vcpu.index()].store(place.word(), SeqCst);
    }

    /// Returns when a vCPU moved last.
    pub(crate) fn moved(&self, vcpu: VcpuId) -> u64 {
        self.moved[vcpu.index()].load(SeqCst)
    }

    /// Returns the number of moves.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(SeqCst)
    }

    /// Takes the vCPUs with news for a CPU, a bit each.
    pub(crate) fn take_news(&self, cpu: CpuIndex) -> u32 {
        self.news[cpu.index()].swap(0, SeqCst)
    }

    /// Takes a CPU's errands.
    pub(crate) fn take_errands(&self, cpu: CpuIndex) -> u32 {
        self.errands[cpu.index()].swap(0, SeqCst)
    }
}

impl<P: Platform> Machine<P> {
    /// Pokes a CPU's loop for an errand.
    pub(crate) fn poke(&self, gear1: &mut impl Gear1, cpu: CpuIndex, errand: u32) {
        self.placement.errands[cpu.index()].fetch_or(errand, SeqCst);
        // The CPU is one of Gear2's.
        let _ = gear1.poke(cpu);
    }

    /// Tells a CPU's loop to go on with the move of a vCPU.
    pub(crate) fn poke_for(&self, gear1: &mut impl Gear1, cpu: CpuIndex, vcpu: VcpuId) {
        // Before the errand: who takes that finds the news.
        self.placement.news[cpu.index()].fetch_or(bit(vcpu), SeqCst);
        self.poke(gear1, cpu, MOVE);
    }

    /// Finds each vCPU where Gear1 has it.
    pub(super) fn take_over_places(&self, gear1: &mut impl Gear1) {
        self.placement
            .counts
            .iter()
            .for_each(|count| count.store(0, SeqCst));
        for (vcpu, config) in self.config.vcpus() {
            let known = gear1.vcpu_info(vcpu).ok();
            let cpu = known.and_then(|(_, cpu)| CpuIndex::from_reg(cpu));
            let cpu = cpu.filter(|cpu| self.config.cpus.contains(*cpu));
            // planted: a restarted Gear2 puts every vCPU where it started
            self.placement.begin(vcpu, cpu.unwrap_or(config.cpu));
        }
    }

    /// Returns the CPUs that share their vCPUs with `cpu`.
    pub(crate) fn pool(&self, cpu: CpuIndex) -> CpuSet {
        self.config.pool(cpu).cpus
    }

    /// Tells whether a CPU takes no vCPUs. A word that closes all CPUs of a pool closes none of
    /// them.
    pub(crate) fn is_closed(&self, cpu: CpuIndex) -> bool {
        let closed = self.kept.closed();
        if closed >> cpu.index() & 1 == 0 {
            return false;
        }
        // planted: a word that an earlier Gear2 kept closes a whole pool
        let mut cpus = self.pool(cpu).iter();
        cpus.any(|cpu| closed >> cpu.index() & 1 == 0)
    }

    /// Returns the CPU that a vCPU is pinned to.
    pub(crate) fn pin(&self, vcpu: VcpuId) -> Option<CpuIndex> {
        let cpu = self.kept.pin(vcpu)?;
        self.config.cpus.contains(cpu).then_some(cpu)
    }

    /// Pins a vCPU to the CPU where it is, or to none.
    pub(crate) fn set_pin(&self, vcpu: VcpuId, cpu: Option<CpuIndex>) {
        self.kept.set_pin(vcpu, cpu);
    }

    /// Returns the CPUs, a bit each, that a vCPU may be on.
    pub(crate) fn affinity(&self, vcpu: VcpuId) -> u64 {
        let config = self.config.vcpu(vcpu);
        config.map_or(0, |config| self.pools.cpus(config.vm).into())
    }

    /// Returns why a vCPU may not be on a CPU, whatever the policy there says.
    pub(crate) fn bars(&self, vcpu: VcpuId, cpu: CpuIndex) -> Option<Stays> {
        let config = self.config.vcpu(vcpu)?;
        if self.is_closed(cpu) {
            return Some(Stays::CpuIsOff);
        }
        if self.pin(vcpu).is_some_and(|pin| pin != cpu) {
            return Some(Stays::Pinned);
        }
        if self.pools.cpus(config.vm) >> cpu.index() & 1 == 0 {
            return Some(Stays::Elsewhere);
        }
        // A window is a part of one CPU's frame.
        let windows = &self.config.pool(cpu).plan.windows;
        let windowed = config.cpu != cpu && windows.iter().any(|w| w.vm == Some(config.vm));
        windowed.then_some(Stays::Elsewhere)
    }

    /// Asks for a vCPU to move to a CPU. Its own loop offers the vCPU there.
    pub(crate) fn want(
        &self,
        gear1: &mut impl Gear1,
        vcpu: VcpuId,
        to: CpuIndex,
    ) -> Result<(), Stays> {
        if let Some(why) = self.bars(vcpu, to) {
            return Err(why);
        }
        let place = self.placement.of(vcpu);
        if place.stage.rests() && place.cpu != to {
            let wanted = Place {
                stage: Stage::Wanted,
                to,
                ..place
            };
            // Another request that came first is as good.
            self.placement.change(vcpu, place, wanted);
        }
        self.poke_for(gear1, place.cpu, vcpu);
        Ok(())
    }

    /// Closes a CPU for vCPUs, or opens it again. Its loop gives its vCPUs to other CPUs.
    pub(crate) fn set_closed(
        &self,
        gear1: &mut impl Gear1,
        cpu: CpuIndex,
        closed: bool,
    ) -> Result<(), Stays> {
        if closed {
            if self.shares.lock().is_changing_pool() {
                return Err(Stays::Changes);
            }
            let pool = self.pool(cpu);
            if !pool
                .iter()
                .any(|other| other != cpu && !self.is_closed(other))
            {
                return Err(Stays::NoOther);
            }
            for (vcpu, _) in self.config.vcpus() {
                if self.placement.cpu(vcpu) == cpu {
                    self.way_out(vcpu, cpu)?;
                }
            }
        }
        self.kept.set_closed(cpu, closed);
        self.poke(gear1, cpu, MOVE);
        Ok(())
    }

    /// Checks that a vCPU may leave its CPU, for one at least.
    fn way_out(&self, vcpu: VcpuId, cpu: CpuIndex) -> Result<(), Stays> {
        let mut why = Stays::NoOther;
        for other in self.pool(cpu).iter().filter(|other| *other != cpu) {
            match self.bars(vcpu, other) {
                None => return Ok(()),
                Some(Stays::CpuIsOff) => {}
                Some(bar) => why = bar,
            }
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests;
