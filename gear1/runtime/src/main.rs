//! Gear1's runtime image at EL2: what remains after boot.
//!
//! Owns: the dispatch of exits and interrupts, the loading of vCPUs onto CPUs,
//! VM states, Gear2's calls. Mechanism only: what runs next is Gear2's decision.
//!
//! Invariants: no heap, no `dyn`, no recursion, no path that panics (the link
//! fails otherwise: the panic handler calls a symbol that does not exist), no
//! lock of another VM taken while one is held.
//!
//! Must not: format text (it logs binary records; only a halt prints), read a
//! manifest, or know a scheduling policy.
//!
//! Requirements: G1-RUN-001.
#![no_std]
#![no_main]

mod abort;
mod boot;
mod channel;
mod event;
mod exit;
mod ffa;
mod gear2_call;
#[cfg(feature = "check-ghost")]
mod ghost;
mod gic;
mod guest_call;
mod halt;
mod irq;
mod lifecycle;
mod log;
mod machine;
mod monitors;
mod next;
mod passthrough;
mod realtime;
mod reply;
mod signal;
mod supervise;
mod sysreg;
mod timer;
mod vcpu;
mod vgic;

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
