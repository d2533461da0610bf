//! The words that CPUs share about a vCPU, and every step of the protocol that [`super`] describes.
//!
//! Nothing here knows whose atomics these are: `tests/protocol` compiles this very file with those
//! of a checker, which tries the orders that the steps of several CPUs can come in.
//!
//! Requirements: G1-VCPU-001, G1-VCPU-002, G1-CPU-011.

use gear1_abi::call::VcpuState;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::CpuIndex;

use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Number of SGIs.
const SGI_COUNT: usize = 16;

/// Requests that a vCPU must handle before its next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests(u32);

impl Requests {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Virtual interrupts changed: list registers must be filled.
    pub const IRQ: Self = Self(1);
    /// The VM stops.
    pub const STOP: Self = Self(2);
    /// The vCPU restarts at the entry point requested.
    pub const RESET: Self = Self(4);
    /// A reply is in the mailbox.
    pub const REPLY: Self = Self(8);
    /// Beside `RESET`: the vCPU wakes from power-down, its timers ran on.
    pub const WARM: Self = Self(16);
    /// The vCPU is blocked in a call that a message or an interrupt ends.
    pub const AWAITS: Self = Self(32);
    /// A message has arrived.
    pub const MESSAGE: Self = Self(64);
    /// A sibling invalidates instruction caches: the vCPU's CPU must invalidate its own. Unlike the
    /// others it wakes nobody, since a vCPU that does not run fetches nothing.
    pub const ICACHE: Self = Self(128);
    /// Posted SGIs, one bit each: the sender raised them without the VM's lock, and they become
    /// pending in the virtual GIC later.
    pub const SGIS: Self = Self(0xffff << 16);
    /// Requests that come from virtual interrupts.
    pub const INTERRUPTS: Self = Self::IRQ.union(Self::SGIS);

    /// Returns the request for an SGI, 0 to 15.
    pub const fn sgi(number: u32) -> Self {
        Self(1 << 16 << (number & 15))
    }

    /// Returns the posted SGIs, one bit each.
    pub const fn sgis(self) -> u32 {
        self.0 >> 16
    }

    /// Returns whether there is no request.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all requests come from virtual interrupts.
    pub const fn is_interrupts(self) -> bool {
        !self.is_none() && self.without(Self::INTERRUPTS).is_none()
    }

    /// Returns the requests of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the requests that are not part of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether a request of `other` is among these.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A start that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Entry point (IPA).
    pub pc: u64,
    /// X0.
    pub argument: u64,
    /// Whether the vCPU wakes from power-down.
    pub warm: bool,
}

/// CPU to notify after [`VcpuShared::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// No CPU: the vCPU checks its requests before it runs next.
    Nobody,
    /// The CPU that runs the vCPU, or waits with it, must be interrupted.
    Kick,
    /// The vCPU waited and is ready: its owner CPU must get a wake-up.
    Wake,
}

/// The shared part of a vCPU.
pub struct VcpuShared {
    state: AtomicU8,
    owner_cpu: AtomicU16,
    requests: AtomicU32,
    /// With a GICv2, of each SGI the senders whose requests are posted, a bit each. A sender is
    /// noted before the SGI is raised, and taken after the SGI was taken: an SGI without a sender
    /// is one whose senders all were taken with an earlier one.
    sgi_senders: [AtomicU8; SGI_COUNT],
    reset_pc: AtomicU64,
    reset_argument: AtomicU64,
    reply_word: AtomicU64,
    reply_value: AtomicU64,
    awaited_ipa: AtomicU64,
    awaited_access: AtomicU64,
    /// Number of the last request in [`IcacheRequests`] that the vCPU's CPU has carried out.
    icache_done: AtomicU64,
    /// Counter value since which the vCPU is ready and not loaded; 0: not ready.
    ready_since: AtomicU64,
    /// Ticks during which the vCPU was ready and not loaded.
    stolen: AtomicU64,
    /// Number of times that the vCPU was unloaded ready.
    preemptions: AtomicU64,
    /// [`VcpuShared::fp_taken`] when the FP registers were last known to be in the context.
    fp_saved: AtomicU64,
    exits: [AtomicU64; ExitReason::COUNT],
    ticks: [AtomicU64; ExitReason::COUNT],
}

impl Default for VcpuShared {
    fn default() -> Self {
        Self::new()
    }
}

impl VcpuShared {
    /// A vCPU that is off.
    pub const fn new() -> Self {
        Self {
            state: AtomicU8::new(VcpuState::Off as u8),
            owner_cpu: AtomicU16::new(0),
            requests: AtomicU32::new(0),
            sgi_senders: [const { AtomicU8::new(0) }; SGI_COUNT],
            reset_pc: AtomicU64::new(0),
            reset_argument: AtomicU64::new(0),
            reply_word: AtomicU64::new(0),
            reply_value: AtomicU64::new(0),
            awaited_ipa: AtomicU64::new(0),
            awaited_access: AtomicU64::new(0),
            icache_done: AtomicU64::new(0),
            ready_since: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            fp_saved: AtomicU64::new(0),
            exits: [const { AtomicU64::new(0) }; ExitReason::COUNT],
            ticks: [const { AtomicU64::new(0) }; ExitReason::COUNT],
        }
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> VcpuState {
        let state = self.state.load(Ordering::SeqCst);
        VcpuState::from_reg(state.into()).unwrap_or(VcpuState::Off)
    }

    /// Tells whether this is the state.
    #[inline(always)]
    pub fn is(&self, state: VcpuState) -> bool {
        self.state.load(Ordering::SeqCst) == state as u8
    }

    /// Sets the state; see the table above for who may.
    #[inline]
    pub fn set_state(&self, state: VcpuState) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// Moves from one state to another, and tells whether it was in the first.
    #[inline]
    pub fn transition(&self, from: VcpuState, to: VcpuState) -> bool {
        // planted: a vCPU that runs is claimed again
        self.state
            .compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Makes the vCPU Running, if it is Ready or in Wfi. Returns whether it was.
    #[inline(always)]
    pub fn claim(&self) -> bool {
        self.transition(VcpuState::Ready, VcpuState::Running)
            || self.transition(VcpuState::Wfi, VcpuState::Running)
    }

    /// Raises `what` and returns the CPU that the caller must notify. The request is raised before
    /// the state is read.
    #[inline(always)]
    pub fn request(&self, what: Requests) -> Notify {
        self.raise(what);
        if self.is(VcpuState::Running) {
            Notify::Kick
        } else if self.wake_up() {
            Notify::Wake
        } else {
            Notify::Nobody
        }
    }

    /// Posts an SGI of the GICv2 by a sender of `senders`, a bit each, as [`Self::request`] raises
    /// requests.
    #[inline(always)]
    pub fn request_sgi_of(&self, sgi: u32, senders: u8) -> Notify {
        // planted: the sender of an SGI is noted after the SGI
        self.note_senders(sgi, senders);
        self.request(Requests::sgi(sgi))
    }

    #[inline(always)]
    fn note_senders(&self, sgi: u32, senders: u8) {
        if let Some(noted) = self.sgi_senders.get(sgi as usize) {
            noted.fetch_or(senders, Ordering::SeqCst);
        }
    }

    /// Takes an SGI of the GICv2 if it is posted by `sender`, a bit, alone, and `deliver` delivers
    /// it, which is called at most once. Returns whether it did; if not, the SGI is posted as
    /// before. Called by the owner CPU.
    #[inline(always)]
    pub fn take_sgi_of(&self, sgi: u32, sender: u8, deliver: impl FnOnce() -> bool) -> bool {
        self.take(Requests::sgi(sgi));
        let senders = self.take_senders(sgi);
        if senders == sender && deliver() {
            return true;
        }
        self.note_senders(sgi, senders);
        self.raise(Requests::sgi(sgi));
        false
    }

    /// Takes the senders of a posted SGI of the GICv2, a bit each, after the SGI itself was taken.
    /// Called by the owner CPU.
    #[inline(always)]
    pub fn take_senders(&self, sgi: u32) -> u8 {
        let noted = self.sgi_senders.get(sgi as usize);
        noted.map_or(0, |noted| noted.swap(0, Ordering::SeqCst))
    }

    /// Makes a waiting vCPU ready. Returns whether it waited: the caller must then send a wake-up
    /// to the vCPU's owner CPU.
    #[inline(always)]
    pub fn wake_up(&self) -> bool {
        self.transition(VcpuState::Wfi, VcpuState::Ready)
    }

    /// Turns the vCPU off, or asks a running one to turn itself off, and returns the CPU that the
    /// caller must notify. Called under the VM's lock when the VM stops. One call is enough: a vCPU
    /// that is in no waiting state was running meanwhile, and a request also reaches it if it waits
    /// by now. The owner CPU of one in WFI may wait with it, and nothing else tells it of the stop.
    pub fn stop(&self) -> Notify {
        // planted: nobody tells a CPU that waits with a vCPU that its VM stops
        if self.transition(VcpuState::Wfi, VcpuState::Off) {
            return Notify::Kick;
        }
        let waiting = [
            VcpuState::Ready,
            VcpuState::AwaitsMmio,
            VcpuState::AwaitsHypercall,
        ];
        let mut waiting = waiting.into_iter();
        // Bound: 3 states.
        if self.is(VcpuState::Off) || waiting.any(|state| self.transition(state, VcpuState::Off)) {
            return Notify::Nobody;
        }
        // planted: a vCPU that runs is not asked to stop
        self.request(Requests::STOP)
    }

    /// Lets the running vCPU wait, before its owner CPU looks for requests: of that look and the
    /// waker's look at the state, one sees what the other CPU has written.
    ///
    /// A swap and not a store. The architecture keeps a Load-Acquire behind a Store-Release (Arm
    /// ARM B2.3, *Barrier-ordered-before*), but QEMU on an x86 host lets the load go first: its
    /// translation has no barrier between the two.
    #[inline(always)]
    fn begin_to_wait(&self) {
        // planted: a load overtakes the store of a waiting state
        self.state.swap(VcpuState::Wfi as u8, Ordering::SeqCst);
    }

    /// Makes the running vCPU, whose list registers are empty, wait, unless more than `expected` is
    /// requested. Returns whether the vCPU waits or was already woken. Called by its owner CPU;
    /// everything that becomes due raises a request.
    #[inline(always)]
    pub fn wait_quiet(&self, expected: Requests) -> bool {
        self.begin_to_wait();
        let is_asked = !self.requests().without(expected).is_none();
        !is_asked || !self.transition(VcpuState::Wfi, VcpuState::Running)
    }

    /// Makes the running vCPU wait like [`Self::wait_quiet`], but under the VM's lock, under which
    /// interrupts become `due`. Only messages and SGIs arrive without the lock.
    #[inline(always)]
    pub fn wait_locked(&self, expected: Requests, due: impl FnOnce() -> bool) -> bool {
        if !self.requests().without(expected).is_none() || due() {
            return false;
        }
        self.begin_to_wait();
        // A vCPU that is no longer in Wfi was woken.
        let without_lock = Requests::MESSAGE.union(Requests::SGIS);
        let is_asked = self.requests().intersects(without_lock);
        let goes_on = is_asked && self.transition(VcpuState::Wfi, VcpuState::Running);
        !goes_on
    }

    /// Returns the CPU whose loop owns the vCPU.
    #[inline]
    pub fn owner_cpu(&self) -> CpuIndex {
        let cpu = self.owner_cpu.load(Ordering::SeqCst);
        CpuIndex::new(cpu.into()).unwrap_or_default()
    }

    /// Gives the vCPU to another CPU's loop. Called by its owner CPU, with the vCPU unloaded.
    pub fn set_owner_cpu(&self, cpu: CpuIndex) {
        self.owner_cpu.store(cpu.reg() as u16, Ordering::SeqCst);
    }

    /// Raises requests.
    #[inline]
    pub fn raise(&self, requests: Requests) {
        self.requests.fetch_or(requests.0, Ordering::SeqCst);
    }

    /// Returns the raised requests.
    #[inline]
    pub fn requests(&self) -> Requests {
        Requests(self.requests.load(Ordering::SeqCst))
    }

    /// Clears a request. Returns whether it was raised.
    #[inline]
    pub fn take(&self, requests: Requests) -> bool {
        !self.take_each(requests).is_none()
    }

    /// Clears the requests in `what`. Returns those of them that were raised.
    #[inline]
    pub fn take_each(&self, what: Requests) -> Requests {
        Requests(self.requests.fetch_and(!what.0, Ordering::SeqCst) & what.0)
    }

    /// Asks for the instruction cache of the CPU that runs the vCPU to be invalidated, and returns
    /// the CPU that the caller must notify. A vCPU that does not run is left alone: its CPU looks
    /// at the request before it runs next.
    pub fn request_icache(&self) -> Notify {
        // planted: nobody is asked to invalidate instruction caches
        self.raise(Requests::ICACHE);
        if self.is(VcpuState::Running) {
            Notify::Kick
        } else {
            Notify::Nobody
        }
    }

    /// Carries out by `invalidate`, on the calling CPU, all requests of the VM so far. Called by
    /// the owner CPU while the vCPU is Running and before it executes another instruction.
    pub fn serve_icache(&self, requests: &IcacheRequests, invalidate: impl FnOnce()) {
        // In this order: a request that comes in between is numbered later, and raised again.
        self.take(Requests::ICACHE);
        let asked = requests.last();
        // planted: a request to invalidate instruction caches is done before it is carried out
        invalidate();
        self.icache_done.store(asked, Ordering::SeqCst);
    }

    /// Tells whether the vCPU executes no instruction from now on that was cached before request
    /// `number` was raised: its CPU has carried out the request, or will before the vCPU runs next.
    pub fn has_served_icache(&self, number: u64) -> bool {
        // planted: nobody waits for siblings that invalidate
        !self.is(VcpuState::Running) || self.icache_done.load(Ordering::SeqCst) >= number
    }

    /// Requests a start of a vCPU that is off, at `pc` with `argument` in X0. Drops requests to its
    /// former life (a stop, a reply), but keeps what came too late for that life: SGIs, and what
    /// concerns its CPU's instruction cache, which the start does not empty.
    pub fn request_reset(&self, pc: u64, argument: u64) {
        self.reset_pc.store(pc, Ordering::Relaxed);
        self.reset_argument.store(argument, Ordering::Relaxed);
        // planted: a start forgets what the instruction cache holds
        let kept = Requests::SGIS.union(Requests::ICACHE);
        self.requests.fetch_and(kept.0, Ordering::SeqCst);
        self.raise(Requests::RESET.union(Requests::IRQ));
    }

    /// Requests a warm start of the running vCPU for the time when it wakes. Called by the owner
    /// CPU only.
    pub fn request_resume(&self, pc: u64, argument: u64) {
        self.reset_pc.store(pc, Ordering::Relaxed);
        // planted: a vCPU wakes from power-down without its context
        self.reset_argument.store(argument, Ordering::Relaxed);
        self.raise(Requests::RESET.union(Requests::WARM));
    }

    /// Returns the requested start, once.
    pub fn take_reset(&self) -> Option<Start> {
        if !self.take(Requests::RESET) {
            return None;
        }
        Some(Start {
            pc: self.reset_pc.load(Ordering::Relaxed),
            argument: self.reset_argument.load(Ordering::Relaxed),
            warm: self.take(Requests::WARM),
        })
    }

    /// Leaves a reply for the vCPU's next entry.
    pub fn post_reply(&self, word: u64, value: u64) {
        self.reply_word.store(word, Ordering::Relaxed);
        self.reply_value.store(value, Ordering::Relaxed);
        self.raise(Requests::REPLY);
    }

    /// Returns the reply left, once.
    pub fn take_reply(&self) -> Option<(u64, u64)> {
        if !self.take(Requests::REPLY) {
            return None;
        }
        Some((
            self.reply_word.load(Ordering::Relaxed),
            self.reply_value.load(Ordering::Relaxed),
        ))
    }

    /// Begins to count stolen time, up to the next load (G1-TIM-007). A waker calls this after the
    /// vCPU left its waiting state.
    pub fn begin_stolen(&self, now: u64) {
        self.ready_since.store(now, Ordering::SeqCst);
    }

    /// Notes that the vCPU is unloaded at `now`, ready or not. Called by the owner CPU only.
    pub fn unload(&self, now: u64) {
        // In this order, so that the store of a waker in between is not lost. A swap for the reason
        // that `begin_to_wait` has.
        self.ready_since.swap(0, Ordering::SeqCst);
        // planted: stolen time counts while a vCPU waits
        if self.state() == VcpuState::Ready {
            self.begin_stolen(now);
            add(Some(&self.preemptions), 1);
        }
    }

    /// Notes that the vCPU is loaded at `now`. Returns the sum of all stolen ticks, if it has
    /// grown. Called by the owner CPU only.
    pub fn end_stolen(&self, now: u64) -> Option<u64> {
        let since = self.ready_since.load(Ordering::SeqCst);
        if since == 0 {
            return None;
        }
        self.begin_stolen(0);
        let stolen = self.stolen.load(Ordering::Relaxed);
        let stolen = stolen.wrapping_add(now.saturating_sub(since));
        self.stolen.store(stolen, Ordering::Relaxed);
        Some(stolen)
    }

    /// Returns the ticks stolen so far, as the VM sees them.
    pub fn stolen(&self) -> u64 {
        self.stolen.load(Ordering::Relaxed)
    }

    /// Returns for how many ticks the vCPU has been ready and not loaded at `now`. The caller has
    /// seen that no CPU has loaded the vCPU: of a loaded one, the last wake-up is still noted.
    pub fn waits_for(&self, now: u64) -> u64 {
        let since = self.ready_since.load(Ordering::SeqCst);
        // planted: a vCPU that runs waits
        if since == 0 || !self.is(VcpuState::Ready) {
            return 0;
        }
        now.saturating_sub(since)
    }

    /// Returns how often the vCPU was preempted: unloaded while it was ready.
    pub fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }

    /// Resets the stolen time, the preemptions and the posted SGIs at the start of the VM.
    pub fn begin_life(&self) {
        self.take(Requests::SGIS);
        // Bound: 16 SGIs.
        for noted in &self.sgi_senders {
            noted.store(0, Ordering::SeqCst);
        }
        self.begin_stolen(0);
        self.stolen.store(0, Ordering::Relaxed);
        self.preemptions.store(0, Ordering::Relaxed);
    }

    /// Notes the access that Gear2 must complete. Called by the owner CPU only.
    #[inline]
    pub fn set_awaited(&self, ipa: u64, access: u64) {
        self.awaited_ipa.store(ipa, Ordering::Relaxed);
        self.awaited_access.store(access, Ordering::Relaxed);
    }

    /// Returns the address and the access word of the access that an `AwaitsMmio` vCPU waits for.
    pub fn awaited(&self) -> (u64, u64) {
        (
            self.awaited_ipa.load(Ordering::Relaxed),
            self.awaited_access.load(Ordering::Relaxed),
        )
    }

    /// Counts an exit. Called by the owner CPU only.
    #[inline]
    pub fn count(&self, reason: ExitReason) {
        add(self.exits.get(reason as usize), 1);
    }

    /// Adds counter ticks spent on exits that went to Gear2. Called by the owner CPU only.
    #[inline]
    pub fn add_ticks(&self, reason: ExitReason, ticks: u64) {
        add(self.ticks.get(reason as usize), ticks);
    }

    /// Returns the exits counted and the ticks spent for a reason.
    pub fn stats(&self, reason: ExitReason) -> (u64, u64) {
        let read = |cells: &[AtomicU64]| {
            cells
                .get(reason as usize)
                .map_or(0, |c| c.load(Ordering::Relaxed))
        };
        (read(&self.exits), read(&self.ticks))
    }

    /// Notes that the FP registers are in the context. Called by the owner CPU only, which alone can
    /// hold them.
    pub fn note_saved_fp(&self) {
        self.fp_saved.store(self.fp_taken(), Ordering::SeqCst);
    }

    /// Returns whether the FP registers are in the context since such a note: each use of them in the
    /// guest that takes them out of it is an exit.
    pub fn has_saved_fp(&self) -> bool {
        self.fp_saved.load(Ordering::SeqCst) == self.fp_taken()
    }

    /// Returns how often the FP registers were taken out of the context, from 1 on.
    fn fp_taken(&self) -> u64 {
        self.stats(ExitReason::Fp).0.wrapping_add(1)
    }
}

/// Adds without a locked read-modify-write: the counters have one writer.
#[inline]
fn add(cell: Option<&AtomicU64>, amount: u64) {
    if let Some(cell) = cell {
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }
}

/// Requests of a VM's vCPUs to invalidate the instruction caches of all of them, numbered.
///
/// An issuer takes a number, raises [`Requests::ICACHE`] for each sibling, and repeats its
/// instruction until all have [served](VcpuShared::has_served_icache) that number. A sibling that
/// serves a request has read a number behind the raising, so one look serves all issuers so far.
pub struct IcacheRequests(AtomicU64);

impl Default for IcacheRequests {
    fn default() -> Self {
        Self::new()
    }
}

impl IcacheRequests {
    /// No request yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Numbers a new request. Numbers begin at 1 and do not come back.
    pub fn add(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
    }

    /// Returns the number of the last request.
    fn last(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
