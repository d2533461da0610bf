//! State that outlives a restart of Gear2: one page that Gear1 does not renew.
//!
//! Owns the words for which Gear1 keeps no equivalent: the settings of emulated UARTs, the goal of
//! each VM, the news already reported, the VMs that are paused or given up, their fail-overs, the
//! times of their restarts, their watchdogs, the access that each vCPU waits for, the CPUs that are
//! off for the scheduler, pins, changed parameters and pools. A Gear2 that failed wrote these
//! words, so each may hold anything: a reader reduces a word to the values that have a meaning, and
//! no value leads to a failure. Invariant: all of the page is zero when Gear2 is entered for the
//! first time.

use core::array;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use gear1_abi::id::{CpuIndex, MAX_VCPUS, MAX_VMS, VcpuId, VmId};

use crate::lifecycle::Goal;
use crate::pl011::Settings;
use crate::restarts::REMEMBERED;
use crate::watchdog::Word;

/// Goals, in the order of their numbers from 1 on.
const GOALS: [Goal; 5] = [
    Goal::Run,
    Goal::Restart,
    Goal::Stop,
    Goal::PowerOff,
    Goal::GiveUp,
];

/// The page.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Kept {
    uarts: [[AtomicU32; Settings::COUNT]; MAX_VMS],
    goals: [AtomicU32; MAX_VMS],
    /// News already reported of each VM's starts and ends.
    reported: [[AtomicU32; 2]; MAX_VMS],
    paused: AtomicU32,
    given_up: AtomicU32,
    /// Sequence number of each vCPU's access when it is repeated after a restart.
    repeated: [AtomicU64; MAX_VCPUS],
    /// Times of each VM's last automatic restarts.
    restarts: [[AtomicU64; REMEMBERED]; MAX_VMS],
    /// The restart that is owed to each VM after its last end, as a word.
    owed: [AtomicU64; MAX_VMS],
    /// Number of the access that each vCPU waits for, in its slot; 0: none.
    asked: [AtomicU64; MAX_VCPUS],
    /// CPUs, a bit each, that take no vCPUs.
    closed: AtomicU32,
    /// CPU that each vCPU is pinned to, counted from 1; 0: none.
    pins: [AtomicU8; MAX_VCPUS],
    /// State of each VM's watchdog, and the count at which the VM's virtual count is 0.
    watchdogs: [[AtomicU64; 2]; MAX_VMS],
    /// Scheduling parameters that somebody has changed; all 0: none.
    shares: [[AtomicU32; KeptShare::COUNT]; MAX_VMS],
    /// Pool of each VM, counted from 1; 0: that of the manifest.
    pools: [AtomicU8; MAX_VMS],
    /// Starts of each VM's standby before the fail-over to it, counted from 1; 0: there was none.
    fail_overs: [AtomicU32; MAX_VMS],
}

/// Scheduling parameters as words: weight with priority above, latency, cap with period, budget
/// with period; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptShare(pub(crate) [u32; Self::COUNT]);

impl KeptShare {
    const COUNT: usize = 6;
}

const fn word() -> AtomicU32 {
    AtomicU32::new(0)
}

const fn words<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

impl Kept {
    /// Makes a page of zeroes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            uarts: [const { [const { word() }; Settings::COUNT] }; MAX_VMS],
            goals: [const { word() }; MAX_VMS],
            reported: [const { [const { word() }; 2] }; MAX_VMS],
            paused: word(),
            given_up: word(),
            repeated: words(),
            restarts: [const { words() }; MAX_VMS],
            owed: words(),
            asked: words(),
            closed: word(),
            pins: [const { AtomicU8::new(0) }; MAX_VCPUS],
            watchdogs: [const { words() }; MAX_VMS],
            shares: [const { [const { word() }; KeptShare::COUNT] }; MAX_VMS],
            pools: [const { AtomicU8::new(0) }; MAX_VMS],
            fail_overs: [const { word() }; MAX_VMS],
        }
    }

    /// Notes the settings of a VM's UART.
    pub(crate) fn set_uart(&self, vm: VmId, settings: Settings) {
        for (word, value) in self.uarts[vm.index()].iter().zip(settings.0) {
            word.store(value, Relaxed);
        }
    }

    /// Returns the settings of a VM's UART.
    pub(crate) fn uart(&self, vm: VmId) -> Settings {
        let words = &self.uarts[vm.index()];
        Settings(array::from_fn(|word| words[word].load(Relaxed)))
    }

    /// Notes the goal of a VM.
    pub(crate) fn set_goal(&self, vm: VmId, goal: Option<Goal>) {
        let place = goal.and_then(|goal| GOALS.iter().position(|known| *known == goal));
        let number = place.map_or(0, |place| place + 1);
        self.goals[vm.index()].store(u32::try_from(number).unwrap_or(0), Relaxed);
    }

    /// Returns the goal of a VM.
    pub(crate) fn goal(&self, vm: VmId) -> Option<Goal> {
        let number = usize::try_from(self.goals[vm.index()].load(Relaxed)).ok()?;
        GOALS.get(number.checked_sub(1)?).copied()
    }

    /// Notes the news already reported of a VM's starts and ends.
    pub(crate) fn set_reported(&self, vm: VmId, words: [u32; 2]) {
        for (word, value) in self.reported[vm.index()].iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    /// Returns the news already reported of a VM's starts and ends.
    pub(crate) fn reported(&self, vm: VmId) -> [u32; 2] {
        let words = &self.reported[vm.index()];
        array::from_fn(|word| words[word].load(Relaxed))
    }

    /// Says that a VM's vCPUs are not to run, or are.
    pub(crate) fn set_paused(&self, vm: VmId, paused: bool) {
        set(&self.paused, vm, paused);
    }

    /// Tells whether a VM's vCPUs are not to run.
    pub(crate) fn is_paused(&self, vm: VmId) -> bool {
        is_set(&self.paused, vm)
    }

    /// Says whether a VM is given up.
    pub(crate) fn set_given_up(&self, vm: VmId, given_up: bool) {
        set(&self.given_up, vm, given_up);
    }

    /// Tells whether a VM is given up.
    pub(crate) fn is_given_up(&self, vm: VmId) -> bool {
        is_set(&self.given_up, vm)
    }

    /// Notes the fail-over of a VM.
    pub(crate) fn set_fail_over(&self, vm: VmId, word: u32) {
        self.fail_overs[vm.index()].store(word, Relaxed);
    }

    /// Returns the fail-over of a VM.
    pub(crate) fn fail_over(&self, vm: VmId) -> u32 {
        self.fail_overs[vm.index()].load(Relaxed)
    }

    /// Notes the times of a VM's last restarts, and the restart that is owed to it.
    pub(crate) fn set_restarts(&self, vm: VmId, times: [u64; REMEMBERED], owed: u64) {
        for (word, value) in self.restarts[vm.index()].iter().zip(times) {
            word.store(value, Relaxed);
        }
        self.owed[vm.index()].store(owed, Relaxed);
    }

    /// Returns the times of a VM's last restarts, and the restart that is owed to it.
    pub(crate) fn restarts(&self, vm: VmId) -> ([u64; REMEMBERED], u64) {
        let words = &self.restarts[vm.index()];
        let times = array::from_fn(|word| words[word].load(Relaxed));
        (times, self.owed[vm.index()].load(Relaxed))
    }

    /// Notes which access in its slot a vCPU waits for; 0: for none.
    pub(crate) fn set_asked(&self, vcpu: VcpuId, sequence: u64) {
        self.asked[vcpu.index()].store(sequence, Relaxed);
    }

    /// Returns which access in its slot a vCPU waits for; 0: for none.
    pub(crate) fn asked(&self, vcpu: VcpuId) -> u64 {
        self.asked[vcpu.index()].load(Relaxed)
    }

    /// Says whether a CPU takes no vCPUs.
    pub(crate) fn set_closed(&self, cpu: CpuIndex, closed: bool) {
        let bit = 1 << cpu.index();
        if closed {
            self.closed.fetch_or(bit, Relaxed);
        } else {
            self.closed.fetch_and(!bit, Relaxed);
        }
    }

    /// Returns the CPUs, a bit each, that take no vCPUs.
    pub(crate) fn closed(&self) -> u32 {
        self.closed.load(Relaxed)
    }

    /// Notes the CPU that a vCPU is pinned to.
    pub(crate) fn set_pin(&self, vcpu: VcpuId, cpu: Option<CpuIndex>) {
        let number = cpu.map_or(0, |cpu| cpu.index() as u8 + 1);
        self.pins[vcpu.index()].store(number, Relaxed);
    }

    /// Returns the CPU that a vCPU is pinned to.
    pub(crate) fn pin(&self, vcpu: VcpuId) -> Option<CpuIndex> {
        let number = u64::from(self.pins[vcpu.index()].load(Relaxed));
        CpuIndex::from_reg(number.checked_sub(1)?)
    }

    /// Notes the state of a VM's watchdog.
    pub(crate) fn set_watchdog(&self, vm: VmId, word: Word) {
        self.watchdogs[vm.index()][0].store(word.0, Relaxed);
    }

    /// Returns the state of a VM's watchdog.
    pub(crate) fn watchdog(&self, vm: VmId) -> Word {
        Word(self.watchdogs[vm.index()][0].load(Relaxed))
    }

    /// Notes the count at which a VM's virtual count is 0.
    pub(crate) fn set_origin(&self, vm: VmId, origin: u64) {
        self.watchdogs[vm.index()][1].store(origin, Relaxed);
    }

    /// Returns the count at which a VM's virtual count is 0.
    pub(crate) fn origin(&self, vm: VmId) -> u64 {
        self.watchdogs[vm.index()][1].load(Relaxed)
    }

    /// Notes scheduling parameters of a VM. The weight, which is never 0, is stored last.
    pub(crate) fn set_share(&self, vm: VmId, share: KeptShare) {
        for (word, value) in self.shares[vm.index()].iter().zip(share.0).rev() {
            word.store(value, Release);
        }
    }

    /// Returns the changed scheduling parameters of a VM.
    pub(crate) fn share(&self, vm: VmId) -> Option<KeptShare> {
        let words = &self.shares[vm.index()];
        let share = array::from_fn(|word| words[word].load(Relaxed));
        (share[0] != 0).then_some(KeptShare(share))
    }

    /// Notes the pool of a VM by its place among those that have CPUs.
    pub(crate) fn set_pool(&self, vm: VmId, place: usize) {
        self.pools[vm.index()].store(place as u8 + 1, Relaxed);
    }

    /// Returns the place of a VM's pool, if somebody has changed the pool.
    pub(crate) fn pool(&self, vm: VmId) -> Option<usize> {
        usize::from(self.pools[vm.index()].load(Relaxed)).checked_sub(1)
    }

    /// Notes at a restart that a vCPU's access, its `number`th (from 1 on), is made again. Tells
    /// whether it already was: then it may be what Gear2 fails at.
    pub(crate) fn repeat(&self, vcpu: VcpuId, number: u64) -> bool {
        self.repeated[vcpu.index()].swap(number.wrapping_add(1), Relaxed) == number
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets or clears a VM's bit. Loops of several CPUs may do so at a time, each for its VM.
/// Each change is one atomic operation, so that no bit of another VM is lost.
fn set(word: &AtomicU32, vm: VmId, value: bool) {
    let bit = 1 << vm.index();
    if value {
        word.fetch_or(bit, Relaxed);
    } else {
        word.fetch_and(!bit, Relaxed);
    }
}

fn is_set(word: &AtomicU32, vm: VmId) -> bool {
    word.load(Relaxed) >> vm.index() & 1 != 0
}

/// Returns the bit of a vCPU.
pub(crate) const fn bit(vcpu: VcpuId) -> u32 {
    1 << vcpu.index()
}

const _: () = assert!(size_of::<Kept>() == 4096);

#[cfg(test)]
mod tests;
