//! A real-time VM that attacks the property of others, for ever, with another attack at each start:
//! SGIs to others' CPUs, others' SPIs, others' redistributors and tables for LPIs, registers of
//! devices that master the bus.
//!
//! The VM owns the board's clock (PL031), which its restarts leave alone, and counts them there. It
//! turns itself off if an attack succeeds as far as it can see; the victims check the effects
//! themselves.
//!
//! Requirements: G1-RT-003, G1-RT-004.
#![no_std]
#![no_main]

use core::ops::Range;

use test_guests::exception::{catch, ignore};
use test_guests::gic::{Version, register, v3::FRAMES};
use test_guests::mmio::{read32, write32, write64};
use test_guests::{MAX_CPUS, Machine, gic, guest, psci, timer};

guest!(main, irq = ignore);

/// The clock's match register, and the shared interrupt that is the VM's own.
const STARTS: u64 = 0x0901_0004;
const OWN: u32 = 34;
/// SPIs up to this one are gone for; the machine has none behind it.
const INTIDS: Range<u32> = 32..288;
/// Between two rounds: who is attacked is to have interrupts of its own meanwhile.
const PAUSE_US: u64 = 20;

/// Registers in a redistributor that take effect on its CPU, or that make it read and write memory:
/// control, LPI tables.
const CTLR: u64 = 0;
const PROPBASER: u64 = 0x70;
const PENDBASER: u64 = 0x78;
const ENABLE_LPIS: u32 = 1;
const SGI_FRAME: u64 = 0x1_0000;

/// Registers of bus masters on QEMU's `virt`, with the distance of two: virtio transports, firmware
/// configuration, the interrupt translation service, SMMU, PCIe.
const MASTERS: [(Range<u64>, u64); 6] = [
    (0x0a00_0000..0x0a00_4000, 0x200),
    (0x0902_0010..0x0902_0018, 4),
    (0x0808_0000..0x0809_0000, 0x80),
    (0x0905_0000..0x0905_0100, 0x20),
    (0x3f00_0000..0x3f10_0000, 0x8000),
    (0x40_1000_0000..0x40_1010_0000, 0x8000),
];

fn main(machine: &Machine) {
    let starts = read32(STARTS);
    write32(STARTS, starts + 1);
    loop {
        let refused = match starts % 4 {
            0 => sgis(machine),
            1 => INTIDS.filter(|&intid| intid != OWN).all(spi),
            2 => redistributors(machine),
            _ => MASTERS
                .iter()
                .cloned()
                .all(|(range, step)| master(range, step)),
        };
        if !refused {
            psci::system_off();
        }
        timer::delay_us(PAUSE_US);
    }
}

/// Sends SGIs of each number, to each CPU alone and to all CPUs, this one included: the machine
/// numbers CPUs otherwise. Nothing comes back from them.
fn sgis(machine: &Machine) -> bool {
    for intid in 0..16 {
        for cpu in machine.cpus..MAX_CPUS {
            gic::send_sgi(cpu, intid);
        }
        gic::send_sgi_to(!0, intid);
        gic::send_sgi_to_others(intid);
    }
    true
}

/// Tries to route a foreign SPI to the first CPU and to trigger it, then to disable it. Returns
/// whether all registers ignored the writes.
fn spi(intid: u32) -> bool {
    let set = [register::ISENABLER, register::ISPENDR, register::ISACTIVER];
    gic::route(intid, 0);
    gic::set_priority(intid, 0x50);
    for register in set {
        gic::write_bit(register, intid);
    }
    let read = set.iter().any(|register| gic::read_bit(*register, intid));
    let priority = read32(gic::frame(intid) + register::IPRIORITYR + u64::from(intid & !3));
    for register in [register::ICENABLER, register::ICPENDR] {
        gic::write_bit(register, intid);
    }
    let priority = priority >> (8 * (intid % 4)) & 0xff;
    !read && priority == 0
}

/// Checks that redistributor frames of other VMs' CPUs are not mapped and that the VM's own has no
/// LPI tables. A GICv2 has no redistributors.
fn redistributors(machine: &Machine) -> bool {
    if machine.gic == Version::V2 {
        return true;
    }
    let first = machine.gic_cpus.start;
    let others = machine.cpus as u64..MAX_CPUS as u64;
    let foreign = others.map(|cpu| first + cpu * FRAMES).all(|frame| {
        let sgis = frame + SGI_FRAME;
        refuses(frame + CTLR, ENABLE_LPIS)
            && refuses(frame + PROPBASER, !0)
            && refuses(sgis + register::ISENABLER, !0)
            && refuses(sgis + register::ISPENDR, !0)
            && refuses(sgis + register::ICENABLER, !0)
    });
    let tables = machine.ram.start | 0x79f;
    write64(first + PROPBASER, tables);
    write64(first + PENDBASER, tables & !0xffff);
    write32(first + CTLR, ENABLE_LPIS);
    let enabled = read32(first + CTLR) & ENABLE_LPIS != 0;
    let set = [PROPBASER, PENDBASER]
        .iter()
        .any(|at| read32(first + at) != 0);
    foreign && !enabled && !set && own_frame(first + SGI_FRAME)
}

/// Makes an SGI of the VM's own frame pending, checks the bit, and enables none. Without that
/// check, a redistributor that ignores all writes would pass as protected.
fn own_frame(frame: u64) -> bool {
    const SGI: u32 = 9;
    write32(frame + register::ISPENDR, 1 << SGI);
    let pending = read32(frame + register::ISPENDR) >> SGI & 1 == 1;
    write32(frame + register::ICPENDR, 1 << SGI);
    pending
}

/// Checks that this VM cannot set up a bus master of another owner.
fn master(range: Range<u64>, step: u64) -> bool {
    range.step_by(step as usize).all(|at| refuses(at, !0))
}

/// Returns whether a store and a load both abort. Stage 2 has rights for loads and for stores, so
/// that both are tried.
fn refuses(address: u64, value: u32) -> bool {
    let store = catch(|| write32(address, value)).is_some();
    store && catch(|| _ = read32(address)).is_some()
}
