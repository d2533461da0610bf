//! The state of one physical CPU, and the only way to reach it.
//!
//! TPIDR_EL2 points at the CPU's [`ThisCpu`]. The exception entry hands it to
//! the image's handlers as `&mut`; since EL2 runs with everything masked, and an
//! exception inside EL2 is fatal, no second reference can come into being.
//!
//! Requirements: G1-RUN-003.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use gear1_abi::id::{CpuIndex, MAX_CPUS};
use gear1_abi::layout::el2;
use gear1_core::context::{Frame, VcpuContext};
use gear1_core::vcpu::VcpuShared;

use crate::sync::Claim;

/// Index of the CPU that runs this: proof for functions that act on the running CPU.
///
/// Neither the index nor a [`ThisCpu`] can be sent to another CPU.
#[derive(Clone, Copy, Debug)]
pub struct LocalCpu<'a> {
    index: CpuIndex,
    this: PhantomData<&'a *const ()>,
}

impl LocalCpu<'_> {
    /// Returns the index.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> CpuIndex {
        self.index
    }
}

/// A physical CPU. `T` is the per-CPU state of the image.
#[repr(C)]
pub struct ThisCpu<T> {
    /// Frame that the next exception is saved to: Gear2's or the loaded guest's.
    entered: *mut Frame,
    /// The frame that is restored next; differs from `entered` during a switch.
    current: *mut Frame,
    /// Top of this CPU's stack (EL2 VA).
    stack_top: u64,
    /// Header of the CPU's ring of trace records (EL2 VA); 0: the CPU has none.
    pub(crate) trace: u64,
    index: CpuIndex,
    /// The vCPU whose frame `current` is; none: Gear2.
    running: Option<&'static VcpuShared>,
    /// Gear2's loop on this CPU.
    gear2: Frame,
    /// The vCPU loaded on this CPU; the guest frame that `current` may point at is in it.
    context: Option<Claim<'static, VcpuContext>>,
    /// Per-CPU state of the image.
    pub data: T,
}

/// Offsets for the assembly; `T` comes last and moves nothing.
pub(crate) const ENTERED: usize = offset_of!(ThisCpu<()>, entered);
pub(crate) const CURRENT: usize = offset_of!(ThisCpu<()>, current);
pub(crate) const STACK_TOP: usize = offset_of!(ThisCpu<()>, stack_top);
pub(crate) const TRACE: usize = offset_of!(ThisCpu<()>, trace);
pub(crate) const RUNNING: usize = offset_of!(ThisCpu<()>, running);
pub(crate) const GEAR2: usize = offset_of!(ThisCpu<()>, gear2);

impl<T> ThisCpu<T> {
    /// State of a CPU that is not up. Nobody uses it before `Cpus::attach` has set its pointers.
    const fn new(data: T) -> Self {
        Self {
            entered: ptr::null_mut(),
            current: ptr::null_mut(),
            stack_top: 0,
            trace: 0,
            // Set in `Cpus::attach`.
            index: match CpuIndex::new(0) {
                Some(index) => index,
                None => unreachable!(),
            },
            running: None,
            gear2: Frame {
                x: [0; 31],
                pc: 0,
                pstate: 0,
                sp_el0: 0,
            },
            context: None,
            data,
        }
    }

    /// Returns which CPU this is.
    #[inline(always)]
    pub fn index(&self) -> CpuIndex {
        self.index
    }

    /// Returns the proof that this CPU runs the caller.
    #[inline(always)]
    pub fn local(&self) -> LocalCpu<'_> {
        LocalCpu {
            index: self.index,
            this: PhantomData,
        }
    }

    /// Returns the frame of the context that trapped, or runs next.
    #[inline(always)]
    pub fn frame(&mut self) -> &mut Frame {
        // SAFETY: `current` points at this CPU's `gear2` or into the context whose
        // claim it holds (`install` and `remove` point it away first); `&mut self`
        // covers both, so the reference is unique.
        unsafe { &mut *self.current }
    }

    /// Returns the frame of Gear2's loop.
    #[inline(always)]
    pub fn gear2(&mut self) -> &mut Frame {
        &mut self.gear2
    }

    /// Tells whether Gear2 is what trapped, or runs next.
    #[inline(always)]
    pub fn is_gear2_current(&self) -> bool {
        self.running.is_none()
    }

    /// Returns the vCPU that trapped, or runs next; none: Gear2.
    #[inline(always)]
    pub fn running(&self) -> Option<&'static VcpuShared> {
        self.running
    }

    /// Makes Gear2 run next.
    ///
    /// # Safety
    ///
    /// `World::leave_guest` or `World::start_gear2` has prepared the CPU for Gear2. The handler
    /// returns [`Resume::Switch`](crate::entry::Resume), or a guest is made next before.
    #[inline(always)]
    pub unsafe fn set_gear2(&mut self) {
        self.point_at_gear2();
    }

    #[inline(always)]
    fn point_at_gear2(&mut self) {
        self.current = &raw mut self.gear2;
        self.running = None;
    }

    /// Drops X19 to X29 of the context that trapped: the loaded vCPU's registers were set anew, and
    /// the old ones must not be stored over them.
    ///
    /// # Safety
    ///
    /// Gear2 has trapped, whose X19 to X29 they are, or never runs on this CPU.
    pub unsafe fn forget_interrupted(&mut self) {
        self.entered = &raw mut self.gear2;
    }

    /// Takes over the registers of the vCPU that is loaded from now on.
    ///
    /// # Safety
    ///
    /// Gear2 has trapped, or this CPU has left EL2 never yet and enters a guest first: `entered` is
    /// Gear2's frame, in which a switch stores the registers of the context that trapped.
    pub unsafe fn install(&mut self, context: Claim<'static, VcpuContext>) {
        self.point_at_gear2();
        self.context = Some(context);
    }

    /// Gives the loaded vCPU's registers back.
    ///
    /// # Safety
    ///
    /// Gear2 has trapped, as for [`ThisCpu::install`].
    pub unsafe fn remove(&mut self) {
        self.point_at_gear2();
        self.context = None;
    }

    /// Returns the parts: the loaded vCPU's registers, Gear2's frame, the image's data.
    #[inline(always)]
    pub fn parts(&mut self) -> (Option<&mut VcpuContext>, &mut Frame, &mut T) {
        (self.context.as_deref_mut(), &mut self.gear2, &mut self.data)
    }

    /// Returns the same parts, and what says who runs next.
    #[inline(always)]
    pub fn parts_to_switch(&mut self) -> (Option<&mut VcpuContext>, &mut Frame, &mut T, Next<'_>) {
        let next = Next {
            current: &mut self.current,
            running: &mut self.running,
        };
        let context = self.context.as_deref_mut();
        (context, &mut self.gear2, &mut self.data, next)
    }

    /// Returns the loaded vCPU's registers.
    #[inline(always)]
    pub fn context(&mut self) -> Option<&mut VcpuContext> {
        self.context.as_deref_mut()
    }
}

/// Choice of the context that runs next on a CPU, apart from the CPU's other parts: a switch that
/// holds those parts looks for nothing twice.
pub struct Next<'a> {
    current: &'a mut *mut Frame,
    running: &'a mut Option<&'static VcpuShared>,
}

impl Next<'_> {
    /// Makes Gear2 run next.
    ///
    /// # Safety
    ///
    /// As for [`ThisCpu::set_gear2`]. `gear2` is the frame of Gear2's loop on this CPU.
    #[inline(always)]
    pub unsafe fn set_gear2(self, gear2: &mut Frame) {
        *self.current = gear2;
        *self.running = None;
    }

    /// Makes the loaded guest run next.
    ///
    /// # Safety
    ///
    /// `World::enter_guest` has prepared the CPU for `guest`, the context of the vCPU that is loaded on
    /// this CPU, and whose shared part `vcpu` is. The handler returns
    /// [`Resume::Switch`](crate::entry::Resume).
    #[inline(always)]
    pub unsafe fn set_guest(self, guest: &mut VcpuContext, vcpu: &'static VcpuShared) {
        *self.current = &raw mut guest.frame;
        *self.running = Some(vcpu);
    }
}

/// Tells whether both are the shared part of one vCPU.
#[inline(always)]
#[must_use]
pub fn is_same(one: &VcpuShared, other: &VcpuShared) -> bool {
    ptr::eq(one, other)
}

/// State of a CPU before it is up.
pub struct CpuSlot<T>(UnsafeCell<ThisCpu<T>>);

impl<T> CpuSlot<T> {
    /// Wraps the image's state of a CPU.
    pub const fn new(data: T) -> Self {
        Self(UnsafeCell::new(ThisCpu::new(data)))
    }
}

/// All CPUs' states, in a static.
pub struct Cpus<T> {
    taken: [AtomicBool; MAX_CPUS],
    slots: [CpuSlot<T>; MAX_CPUS],
}

// SAFETY: `attach` hands each slot out once, to the CPU that then owns it; the
// raw pointers in it point into the slot itself or into what it claimed.
unsafe impl<T: Send> Sync for Cpus<T> {}

impl<T> Cpus<T> {
    /// Wraps the initial states.
    pub const fn new(slots: [CpuSlot<T>; MAX_CPUS]) -> Self {
        Self {
            taken: [const { AtomicBool::new(false) }; MAX_CPUS],
            slots,
        }
    }

    /// Makes the calling CPU the one with `index`, with Gear2 as current. Succeeds once for each
    /// index.
    ///
    /// # Safety
    ///
    /// The calling CPU runs on the stack of `index`, and calls this once. The image's handlers,
    /// which get the `ThisCpu` from the vectors, take one of this `T`.
    #[expect(clippy::mut_from_ref, reason = "each slot is handed out once")]
    pub unsafe fn attach(&'static self, index: CpuIndex) -> Option<&'static mut ThisCpu<T>> {
        let slot = index.select(&self.slots);
        if index.select(&self.taken).swap(true, Ordering::SeqCst) {
            return None;
        }
        // SAFETY: `taken` was false, so nobody got this slot before.
        let cpu = unsafe { &mut *slot.0.get() };
        cpu.index = index;
        cpu.stack_top =
            el2::STACKS.wrapping_add(index.reg().wrapping_add(1).wrapping_mul(el2::STACK_STRIDE));
        cpu.current = &raw mut cpu.gear2;
        cpu.entered = cpu.current;
        crate::cpu::set_thread_pointer(ptr::from_mut(cpu).addr() as u64);
        Some(cpu)
    }
}
