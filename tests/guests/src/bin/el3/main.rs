//! Firmware at EL3 that counts: QEMU's own answers PSCI alone, and takes no SMC to EL3. It starts
//! the image at `0x4020_0000` at EL2 with the device tree at `0x4000_0000`, as TF-A does, and has
//! PSCI's SYSTEM_OFF and the architecture's calls.
//!
//! No test guest, but linked as one, at 0, where QEMU's `virt` starts its firmware from flash.
//! Nothing of the guests' library is linked: it is code of EL1.
#![no_std]
#![no_main]

use core::arch::global_asm;
use core::panic::PanicInfo;

global_asm!(include_str!("el3.s"));

/// Never called: the firmware is assembly.
#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
