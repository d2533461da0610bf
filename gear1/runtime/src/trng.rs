//! The TRNG service (Arm DEN 0098) of the calling guest.
//!
//! Requirements: G1-CPU-016, G1-CPU-017.

use gear1_arch::{firmware, random};
use gear1_core::trng::{self, Results};

use crate::machine::{Cpu, Loaded};

/// Answers a call in X0 and X1, and tells whether it is one of the service and the guest has it.
///
/// The CPU's own source comes first: its time is the CPU's, and no call of firmware is made. A guest
/// whose vCPUs run on CPUs with the source and on others has the service where it calls.
#[inline(never)]
pub(crate) fn answer(cpu: &mut Cpu, loaded: &Loaded) -> bool {
    let [function, argument, ..] = cpu.frame().x;
    let Some(call) = trng::decode(function, argument) else {
        return false;
    };
    let machine = loaded.machine;
    // planted: any guest keeps a CPU at EL3
    let may_ask_firmware = loaded.boot.firmware_trng && machine.firmware_trng;
    let results = if random::exists() {
        // SAFETY: this CPU has the source.
        call.answer(|| unsafe { random::reseeded() })
    } else if may_ask_firmware {
        call.pass_on(|| firmware::trng(machine.boot.enable_method, function, argument))
    } else {
        return false;
    };
    set_results(cpu, results);
    true
}

fn set_results(cpu: &mut Cpu, results: Results) {
    let [x0, x1, x2, x3] = results;
    let frame = cpu.frame();
    frame.set_reg(0, x0);
    frame.set_reg(1, x1);
    frame.set_reg(2, x2);
    frame.set_reg(3, x3);
}
