//! Does whatever a guest can, at random, for ever: registers of the interrupt controller and of
//! every device, SGIs to everybody, calls with any argument. `seed=` in its command line says what.
//!
//! The guest is judged by others alone, which measure whether they are disturbed. Reported counts
//! show that the attacks go on.
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::attack::{FAIL_GEAR2, PLACES, Random, SERVICES, SPARED};
use test_guests::exception::{catch, ignore};
use test_guests::gic::{Version, v3::FRAMES};
use test_guests::mmio::{read8, read32, read64, write8, write32, write64};
use test_guests::{MAX_CPUS, Machine, cpu, gic, guest, psci, read_sysreg, say, write_sysreg};

guest!(main, irq = ignore);

/// Attacks between two report lines. A report goes through the console, whose time would take the
/// place of attacks.
const REPORT: u64 = 2000;

/// The seed repeats a run, and the count in a report tells how far it came.
fn main(machine: &Machine) {
    let mut random = Random::new(machine.option("seed").unwrap_or(1));
    say!("begins");
    for count in 1_u64.. {
        // Pending interrupts, even to this CPU, change nothing: interrupts stay masked.
        catch(|| attack(machine, &mut random));
        if count % REPORT == 0 {
            say!("ATTACKS {count}");
        }
    }
}

/// Attacks once. The distributor and the redistributors are drawn twice as often as other places,
/// since they have most state. Addresses reach eight redistributors, whoever has them.
fn attack(machine: &Machine, random: &mut Random) {
    match random.below(9) {
        8 => steal(random),
        0 | 1 => access(machine.gicd.start + random.below(0x1_0000), random),
        2 | 3 => {
            let frames = machine.gic_cpus.start + random.below(MAX_CPUS as u64) * FRAMES;
            access(frames + random.below(FRAMES), random);
        }
        4 => access(random.of(&PLACES) + random.below(0x1000), random),
        5 => sgis(machine, random),
        6 => call(random),
        _ => interface(machine, random),
    }
}

/// Whoever the shared interrupt is, it is to come to one of the first CPUs, now. An SPI of another
/// VM is in no register of this one (G1-RT-003).
fn steal(random: &mut Random) {
    let intid = 32 + random.below(256) as u32;
    gic::route(intid, random.below(4) as usize);
    gic::write_bit(gic::register::ICACTIVER, intid);
    gic::enable_as_routed(intid);
    gic::set_pending(intid, true);
}

/// A load or a store of any size, aligned. An aligned access alone leaves the guest; another one is
/// an alignment fault at EL1.
fn access(address: u64, random: &mut Random) {
    let value = random.next();
    match random.below(6) {
        0 => write8(address, value as u8),
        1 | 2 => write32(address & !3, value as u32),
        3 => write64(address & !7, value),
        4 => drop(read32(address & !3)),
        _ => drop((read8(address), read64(address & !7))),
    }
}

/// A GICv3 sends Group 0 and the other Security state's Group 1 by registers of their own
/// (ICC_SGI0R_EL1, ICC_ASGI1R_EL1), which have to be stopped as well.
fn sgis(machine: &Machine, random: &mut Random) {
    let value = random.next();
    match (machine.gic, random.below(3)) {
        (Version::V2, _) => write32(machine.gicd.start + gic::register::SGIR, value as u32),
        // To each affinity there may be, and to all but itself.
        (Version::V3, 0) => write_sysreg!("icc_sgi1r_el1", value & 0xf00_ffff | value & 1 << 40),
        (Version::V3, 1) => write_sysreg!("icc_sgi1r_el1", value),
        (Version::V3, _) => {
            write_sysreg!("icc_sgi0r_el1", value);
            write_sysreg!("icc_asgi1r_el1", value);
        }
    }
}

/// Functions that would end this VM are spared, as the attacks would end with it. Small arguments
/// are valid more often, so that calls get further than their first check.
fn call(random: &mut Random) {
    let function = random.of(&SERVICES) + random.below(0x20) as u32;
    if SPARED.contains(&function) || function == FAIL_GEAR2 {
        return;
    }
    let arguments = [
        random.next(),
        random.next() >> random.below(64),
        random.below(4),
    ];
    psci::hvc(function, arguments);
}

/// Attacks the CPU interface, mainly by ends of interrupts that were never taken, and the timers.
/// SEV reaches all CPUs of the machine, whatever runs there: their WFE may end early, and must be
/// right then too.
fn interface(machine: &Machine, random: &mut Random) {
    let value = random.next();
    match (random.below(6), machine.gic) {
        (0, _) => write_sysreg!("cntv_ctl_el0", value & 3),
        (1, _) => write_sysreg!("cntp_tval_el0", value >> 44),
        (2, Version::V3) => write_sysreg!("icc_eoir1_el1", value & 0x1ff),
        (3, Version::V3) => write_sysreg!("icc_dir_el1", value & 0x1ff),
        (4, Version::V3) => write_sysreg!("icc_pmr_el1", value & 0xff),
        (5, Version::V3) => drop(read_sysreg!("icc_iar1_el1")),
        (_, Version::V3) => write_sysreg!("icc_ctlr_el1", value & 3),
        (_, Version::V2) => access(machine.gic_cpus.start + random.below(0x2000), random),
    }
    // SAFETY: a hint, and a barrier for what was written.
    unsafe { asm!("sev", "isb", options(nostack, nomem)) }
    cpu::relax();
}
