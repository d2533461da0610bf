//! The state of one physical CPU, and the only way to reach it.
//!
//! TPIDR_EL2 points at the CPU's [`ThisCpu`]. The exception entry hands it to
//! the image's handlers as `&mut`; since EL2 runs with everything masked, and an
//! exception inside EL2 is fatal, no second reference can come into being.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;

use gear1_abi::id::{CpuIndex, MAX_CPUS};
use gear1_core::context::Frame;

/// One physical CPU. `T` is what the image keeps per CPU.
#[repr(C)]
pub struct ThisCpu<T> {
    /// The frame that the next exception is saved to: whoever runs.
    entered: *mut Frame,
    /// The frame that is restored next; differs from `entered` during a switch.
    current: *mut Frame,
    /// Top of this CPU's stack (EL2 VA).
    stack_top: u64,
    index: CpuIndex,
    /// Gear2's loop on this CPU.
    gear2: Frame,
    /// What the image keeps.
    pub data: T,
}

/// Offsets for the assembly; `T` comes last and moves nothing.
pub(crate) const ENTERED: usize = offset_of!(ThisCpu<()>, entered);
pub(crate) const CURRENT: usize = offset_of!(ThisCpu<()>, current);
pub(crate) const STACK_TOP: usize = offset_of!(ThisCpu<()>, stack_top);

impl<T> ThisCpu<T> {
    /// State of a CPU that is not up.
    pub const fn new(data: T) -> Self {
        Self {
            entered: ptr::null_mut(),
            current: ptr::null_mut(),
            stack_top: 0,
            // Set in `Cpus::attach`.
            index: match CpuIndex::new(0) {
                Some(index) => index,
                None => unreachable!(),
            },
            gear2: Frame { x: [0; 31], pc: 0, pstate: 0, sp_el0: 0 },
            data,
        }
    }

    /// Returns which CPU this is.
    #[inline(always)]
    pub fn index(&self) -> CpuIndex {
        self.index
    }

    /// Returns the frame of whoever trapped, or runs next.
    #[inline(always)]
    pub fn frame(&mut self) -> &mut Frame {
        // SAFETY: `current` points at this CPU's `gear2` or at the frame of the
        // vCPU context whose claim this CPU holds while it is current (`set_guest`);
        // `&mut self` makes the reference unique among safe users.
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
        ptr::eq(self.current, &raw const self.gear2)
    }

    /// Makes Gear2 run next.
    #[inline(always)]
    pub fn set_gear2(&mut self) {
        self.current = &raw mut self.gear2;
    }

    /// Makes a guest run next.
    ///
    /// # Safety
    ///
    /// `frame` lies in a context that this CPU has claimed and keeps claimed
    /// until it makes another one current.
    #[inline(always)]
    pub unsafe fn set_guest(&mut self, frame: *mut Frame) {
        self.current = frame;
    }
}

/// All CPUs' states, in a static.
pub struct Cpus<T> {
    slots: [UnsafeCell<ThisCpu<T>>; MAX_CPUS],
}

// SAFETY: each slot is reached only by the CPU that attached to it: `attach` is
// called once by each CPU with its own index, and later accesses go through that
// CPU's TPIDR_EL2.
unsafe impl<T: Send> Sync for Cpus<T> {}

impl<T> Cpus<T> {
    /// Wraps the initial states.
    pub const fn new(slots: [UnsafeCell<ThisCpu<T>>; MAX_CPUS]) -> Self {
        Self { slots }
    }

    /// Makes the calling CPU the one with `index`, with Gear2 as current.
    ///
    /// # Safety
    ///
    /// Called once by each CPU, at its start, with an index no other CPU has;
    /// `stack_top` is the top of its own stack, on which it runs now.
    pub unsafe fn attach(&self, index: CpuIndex, stack_top: u64) -> Option<&mut ThisCpu<T>> {
        let slot = self.slots.get(index.index())?;
        // SAFETY: the caller is the only user of this slot.
        let cpu = unsafe { &mut *slot.get() };
        cpu.index = index;
        cpu.stack_top = stack_top;
        cpu.current = &raw mut cpu.gear2;
        cpu.entered = cpu.current;
        crate::cpu::set_thread_pointer(ptr::from_mut(cpu).addr() as u64);
        Some(cpu)
    }
}
