//! Gear1's runtime image at EL2: what remains after boot.
//!
//! Owns: the dispatch of exits and interrupts, the loading of vCPUs onto CPUs, VM states, Gear2's
//! calls. Mechanism only: what runs next is Gear2's decision.
//!
//! Invariants: no heap, no `dyn`, no recursion, no path that panics (the link fails otherwise: the
//! panic handler calls a symbol that does not exist), no lock of another VM taken while one is
//! held.
//!
//! Must not: format text (it logs binary records; only a halt prints), read a manifest, or know a
//! scheduling policy.
//!
//! `docs/ARCHITECTURE.md` has a diagram of each path. The details follow.
//!
//! # Start
//!
//! `gear1_arch::start` loads TTBR0_EL2 with the runtime's tables and calls `gear1_main` on a new
//! stack. `boot::start_machine` runs on the boot CPU. `boot::start_cpu` runs on each CPU. Other
//! CPUs start by PSCI or by spin-table (`window::release_cpu`) with their MMU off. Each finds its
//! entry in the boot page by its affinity and reaches `gear1_main` as well. A CPU then enters Gear2
//! at EL0, or `realtime::start` if a real-time VM owns the CPU.
//!
//! # An access that Gear2 answers
//!
//! 1. The vector stores X0 to X18 and X30 into the frame of the running vCPU. The vector stores X19
//!    to X29 only if the syndrome can name one of them.
//! 2. `abort::distributor_read` answers loads of the distributor's control registers before any
//!    other check, as they are the most frequent. `abort::data` takes the address from HPFAR_EL2 and
//!    FAR_EL2. HPFAR_EL2 is UNKNOWN after a permission fault, so `abort::faulting_ipa` walks the
//!    guest's stage 1 then. An instruction whose translation changed meanwhile runs again.
//! 3. ESR and FAR are kept in the context for a later abort, the vCPU moves to AwaitsMmio, and the
//!    registers that act at EL0 are exchanged. `abort::forward_at_once` does all of it for a fault of
//!    a VM that shares no memory, at an address where Gear1 has no device; `abort::data` looks into
//!    all other faults, and ends in `abort::forward`.
//! 4. The reply extends the value as the load wants and moves the PC behind the instruction.
//!    `run::run_at_once` does so for the loaded vCPU, if its deadline stays and no event waits;
//!    `run::run_loaded` and `run::run_another` take all other decisions, by `reply::apply` at once
//!    for a loaded vCPU and at the next load otherwise. An event that arrived meanwhile returns to
//!    Gear2 first; the vCPU is Ready then.
//!
//! Both short ways use no stack, since a function with calls stores registers on it at each exit,
//! and decide all before they change anything: what they do not handle begins anew on the long way.
//!
//! # Virtual timer
//!
//! CNTVOFF_EL2 is the physical count at the start of the VM. `gear1_irq` acknowledges PPI 27 and
//! drops the priority; the interrupt stays active (EOImode 1) until the guest's EOI deactivates
//! both. The first interrupt goes through the virtual GIC under the VM's lock. A repetition is a
//! copy of the last list register, as long as that list register is the timer's own and no request
//! is set.
//!
//! `run::idle` turns the virtual interface off, since a pending list register would end WFI at
//! EL2. The physical active state of PPI 27 belongs to the vCPU, so `vcpu::unload` makes PPI 27
//! inactive. Nothing is injected twice: an unloaded vCPU's timer is injected only after the next
//! load.
//!
//! # SGIs
//!
//! An SGI to one vCPU that is on is posted as a bit of the target's request word,
//! without the VM's lock. The target CPU drains the bits into the virtual GIC under the lock
//! (`VmGic::post_sgis`). If the SGI equals the last one and no other request is set, the CPU
//! rewrites its list register without the lock. A CPU that reads the target's redistributor drains
//! first. A guest can observe one difference: an SGI that its target has disabled ends a WFI early,
//! which the architecture allows.
//!
//! An SGI arrives once even if a third vCPU drains between the write of the list register and the
//! clearing of the bit: the writer finds the bit cleared, and the next flush merges list register
//! and latch under the lock. `gear1/core/tests/protocol/sgi.rs` tries all interleavings. A posted
//! SGI survives a concurrent CPU_OFF and does not survive the end of the VM.
//!
//! An SGI of a GICv2 comes from each of its senders (IHI 0048, 4.3.15), so a word of each SGI of the
//! target notes them. The sender notes itself before it raises the bit, and the target takes the
//! noted senders behind the bit: `gear1/core/tests/protocol/senders.rs` tries the orders. Nobody but
//! the target drains, since the registers that show SGIs are each vCPU's own.
//!
//! # Wake-ups
//!
//! A CPU does not interrupt itself. A change of virtual interrupts or timers is therefore followed
//! by a check for events of this CPU's loop before the guest is entered: `run::run_another` checks
//! again after the load, and exits end in `vcpu::woke_somebody` or `vcpu::after_interrupt`. A vCPU
//! whose list registers are empty enters Wfi without the VM's lock, because a due interrupt outside
//! of the list registers sets a request. Otherwise Wfi is entered under the VM's lock.
//!
//! # Restart of Gear2
//!
//! The EL2 timer fires one period after an event at the latest; an interrupt that finds Gear2
//! running past its time means a hang. The timer is not set back when Gear2 returns, which keeps
//! the path short, so a guest can see one needless exit per period. A guest that leaves for the
//! meeting stays loaded, and its vCPU becomes Ready. An access can be performed twice if Gear2
//! failed between the access and its reply.
//!
//! Requirements: G1-RUN-001.
#![no_std]
#![no_main]

mod abort;
mod board_watchdog;
mod boot;
mod channel;
mod ending;
mod event;
mod exit;
mod exit_timing;
mod ffa;
mod gear2_call;
#[cfg(feature = "check-ghost")]
mod ghost;
mod gic;
mod guest_call;
mod halt;
mod inject;
mod irq;
mod kick;
mod last_words;
mod lifecycle;
mod log;
mod machine;
mod messages;
mod monitors;
mod passthrough;
mod pci;
mod realtime;
mod reply;
mod run;
mod smmu;
mod smmu_driver;
mod supervise;
mod sysreg;
mod timer;
mod trng;
mod vcpu;
mod vgic;
mod vgic_mmio;
mod vm_state;
mod wait;

use core::panic::PanicInfo;

#[cfg(not(feature = "check-ghost"))]
unsafe extern "C" {
    /// Exists nowhere: a panicking path that survives optimization fails the link.
    safe fn a_panicking_path_is_left_in_the_runtime_image() -> !;
}

#[cfg(not(feature = "check-ghost"))]
#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    a_panicking_path_is_left_in_the_runtime_image()
}

#[cfg(feature = "check-ghost")]
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    ghost::panicked(info)
}
