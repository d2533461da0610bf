//! Places its own translation tables in the GIC's registers, where a walk reads arbitrary values or
//! aborts: at once, and while another CPU is just leaving the guest, so that Gear1 walks them.
//!
//! Requirements: G1-FLT-002, G1-FLT-007.
//!
//! A CPU that leaves the guest on a stage-2 fault may not know the IPA (HPFAR_EL2), so Gear1
//! translates the address by AT, which walks the guest's tables. Tables in device registers could
//! end that walk in an external abort at EL2, which Gear1 has to survive. HCR_EL2.PTW has stage 2
//! refuse such a walk.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use test_guests::exception::{Caught, catch, esr};
use test_guests::mmio::{read64, write32, write64};
use test_guests::report::equal;
use test_guests::{Machine, check, cpu, guest, psci, read_sysreg};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = toggle
);

/// The 1 GiB at the end of what stage 1 maps, whose descriptor is changed. No other access of the
/// guest goes there.
const ENTRY: u64 = 511;
const VA: u64 = ENTRY << 30;
/// Nothing is there. No VM of the tests has memory or a device there.
const NOWHERE: u64 = 0x3000_0000;
/// Valid, and a table.
const TABLE: u64 = 0b11;
/// Valid, a block of Device memory that was accessed. AF is set: an access flag fault would be
/// another answer.
const DEVICE_BLOCK: u64 = 1 << 10 | 0b01;
/// Stores to nowhere while the tables change. The other CPU changes the tables many times
/// meanwhile.
const STORES: u32 = 20_000;
const ADDRESS: u64 = 0xffff_ffff_f000;
/// Status of an abort on the walk: the second table is not there.
const WALK: u64 = esr::EXTERNAL_WALK | 2;

#[repr(align(4096))]
struct Table([AtomicU64; 512]);

/// Level 2 with one block of 2 MiB.
static LEVEL2: Table = Table([const { AtomicU64::new(0) }; 512]);
/// Descriptors that the other CPU writes in turn. Values and not addresses, so that the other CPU
/// only copies.
static DESCRIPTORS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static STOP: AtomicBool = AtomicBool::new(false);

/// Address of the descriptor of [`VA`]: each table begins where TTBR0_EL1 says. TTBR0_EL1 holds an
/// ASID above the address, hence the mask.
fn descriptor() -> u64 {
    (read_sysreg!("ttbr0_el1") & ADDRESS) + 8 * ENTRY
}

/// Writes the descriptor. Inner shareable, so that the CPU that stores sees the change too. No
/// invalid descriptor stands in between, as break-before-make asks for (Arm DDI 0487, D8.14): a
/// guest that omits it is what Gear1 has to bear, and the CPU that stores would only meet the gap.
fn write_descriptor(value: u64) {
    write64(descriptor(), value);
    // SAFETY: drops cached translations only; nothing that Rust uses is mapped by the descriptor.
    unsafe {
        asm!(
            "dsb ish",
            "tlbi vmalle1is",
            "dsb ish",
            "isb",
            options(nostack)
        )
    };
}

/// Each kind of abort is provoked alone first: the statuses are what the stores below are compared
/// with.
fn main(machine: &Machine) {
    let before = read64(descriptor());
    LEVEL2.0[0].store(NOWHERE | DEVICE_BLOCK, Ordering::Relaxed);
    let own = core::ptr::from_ref(&LEVEL2).addr() as u64 | TABLE;
    let devices = machine.gic_cpus.start | TABLE;
    write_descriptor(devices);
    let stored = status_of(catch(|| write32(VA, 0)));
    equal("table-in-registers", stored, caught(WALK));
    write_descriptor(own);
    let stored = status_of(catch(|| write32(VA, 0)));
    equal("table-in-memory", stored, caught(esr::EXTERNAL));
    DESCRIPTORS[0].store(own, Ordering::Relaxed);
    DESCRIPTORS[1].store(devices, Ordering::Relaxed);
    store_while_tables_change();
    write_descriptor(before);
}

/// The tables' kind of abort, and that of the block, are all that stores end in. Both kinds must
/// occur, or the two CPUs have never met.
fn store_while_tables_change() {
    equal("cpu-on", psci::cpu_on(1), psci::result::SUCCESS);
    let (mut by_walk, mut others) = (0_u32, 0_u32);
    for _ in 0..STORES {
        match status_of(catch(|| write32(VA, 0))) {
            status if status == caught(WALK) => by_walk += 1,
            status if status == caught(esr::EXTERNAL) => {}
            _ => others += 1,
        }
    }
    STOP.store(true, Ordering::Release);
    cpu::wait_until(|| !STOP.load(Ordering::Acquire));
    let right = by_walk != 0 && by_walk != STORES && others == 0;
    check!("tables-change", right, "{by_walk}, {others} of {STORES}");
}

/// Class and status of a data abort.
fn caught(status: u64) -> Option<(u64, u64)> {
    Some((esr::EC_DATA_ABORT, status))
}

/// The rest of the syndrome tells of the instruction.
fn status_of(caught: Option<Caught>) -> Option<(u64, u64)> {
    caught.map(|caught| (caught.class(), caught.esr & esr::STATUS))
}

/// Some pause between two changes leaves time for a whole store with each table.
fn toggle(_cpu: usize) {
    let mut turn = 0;
    while !STOP.load(Ordering::Acquire) {
        turn ^= 1;
        write_descriptor(DESCRIPTORS[turn].load(Ordering::Relaxed));
        for _ in 0..200 {
            cpu::relax();
        }
    }
    STOP.store(false, Ordering::Release);
}
