//! Runtime of the bare-metal test guests.
//!
//! A guest is a binary in `src/bin` that names its parts with [`guest!`] and prints one line a
//! check: `PASS <name>` or `FAIL <name>: <why>`, and at last `DONE`; then it turns its machine off.
//! The same bytes run in a VM of GearV and on QEMU's `virt` by `-kernel`. `tests/README.md` tells
//! how to add one.
//!
//! Owns: entry, vectors, exception capture, the identity map, and small drivers. Tests need to see
//! each access, so a driver caches no state and retries nothing. Only the boot CPU prints. No
//! floating-point register is touched outside of [`fp`].
#![no_std]
#![cfg(target_os = "none")]

pub mod attack;
pub mod boot;
pub mod cpu;
pub mod edu;
pub mod exception;
pub mod failing;
pub mod ffa;
pub mod fp;
pub mod gic;
pub mod machine;
pub mod mmio;
pub mod monitors;
pub mod psci;
pub mod realtime;
pub mod report;
pub mod stats;
pub mod sve;
pub mod timer;
pub mod uart;
pub mod virtio;
pub mod watch;

pub use boot::finish;
pub use machine::{Machine, VirtioNode};

/// Most CPUs a guest uses; `boot.s` has as many stacks.
pub const MAX_CPUS: usize = 8;

/// Names the parts of a guest: its `main` on the boot CPU, and optionally what its interrupts and
/// the CPUs that it turns on do.
///
/// `irq` gets the INTID of an acknowledged interrupt, which ends when it returns. `other_cpu` gets
/// the CPU's index and must not return while the CPU is to stay on. `first` is called on the boot
/// CPU before the interrupt controller is set up.
#[macro_export]
macro_rules! guest {
    ($main:path) => {
        $crate::guest!($main, irq = $crate::exception::ignore);
    };
    ($main:path, irq = $irq:path) => {
        $crate::guest!($main, irq = $irq, other_cpu = $crate::cpu::ignore);
    };
    ($main:path, first = $first:path) => {
        $crate::guest!(
            $main,
            irq = $crate::exception::ignore,
            other_cpu = $crate::cpu::ignore,
            first = $first
        );
    };
    ($main:path, irq = $irq:path, other_cpu = $other_cpu:path) => {
        $crate::guest!(
            $main,
            irq = $irq,
            other_cpu = $other_cpu,
            first = $crate::boot::ignore
        );
    };
    ($main:path, irq = $irq:path, other_cpu = $other_cpu:path, first = $first:path) => {
        #[unsafe(no_mangle)]
        fn guest_first(machine: &$crate::Machine) {
            $first(machine);
        }

        #[unsafe(no_mangle)]
        fn guest_main(machine: &$crate::Machine) {
            $main(machine);
        }

        #[unsafe(no_mangle)]
        fn guest_irq(intid: u32) {
            $irq(intid);
        }

        #[unsafe(no_mangle)]
        fn guest_other_cpu(cpu: usize) {
            $other_cpu(cpu);
        }
    };
}
