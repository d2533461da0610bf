//! SGIs in every form that a guest can send to its own CPU.

use test_guests::gic::{self, NONE, Version, register as r, v2, v3};
use test_guests::mmio::{read32, write8, write32};
use test_guests::{Machine, report, write_sysreg};

use super::{BOTH, IDLE, PENDING, SGI, acknowledge, state, stays, take};

/// SGIs to oneself, and those that must not reach one. `gic_smp` has those to others. Two SGIs of
/// one number and sender are one while the first is pending: the state is a bit and no count. A
/// target list is a mask of CPUs that are there; other bits reach nobody, and no vCPU of another VM
/// (G1-GIC-004). GICD_SGIR's filter 1 and ICC_SGI1R_EL1.IRM leave the sender out.
pub(super) fn sgi_forms(machine: &Machine) {
    gic::send_sgi(0, SGI);
    let listed = (state(SGI), take(), take());
    report::equal("sgi-by-list", listed, (PENDING, SGI, NONE));
    gic::send_sgi_to_others(SGI);
    report::equal("sgi-to-others", take(), NONE);
    gic::send_sgi_to(0, SGI);
    report::equal("sgi-to-nobody", take(), NONE);
    let absent = 0xff << machine.cpus;
    gic::send_sgi_to(absent as u8, SGI);
    report::equal("sgi-to-absent", take(), NONE);
    gic::send_sgi(0, SGI);
    gic::send_sgi(0, SGI);
    report::equal("sgis-merge", (take(), take()), (SGI, NONE));
    match gic::version() {
        Version::V2 => sgi_forms_v2(machine),
        Version::V3 => sgi_forms_v3(machine),
    }
}

/// GICD_SGIR's filters, and SGIs of several senders. CPU 1 need not run to be one of them. GICC_IAR
/// names the sender in bits 12:10, the lowest one first in GearV. GICD_SPENDSGIR takes senders as
/// bits, and GICC_EOIR must be given the sender that GICC_IAR told. The second one stays pending
/// behind the active first: a list register holds one sender at a time (G1-GIC-017). Filter 3 of
/// GICD_SGIR is reserved (IHI 0048, 4.3.15).
fn sgi_forms_v2(machine: &Machine) {
    v2::send_sgi_to_self(SGI);
    report::equal("sgi-to-self", (take(), take()), (SGI, NONE));
    if machine.gearv {
        // QEMU's GIC sends the SGI to all.
        write32(gic::distributor() + r::SGIR, 3 << 24 | 1 << 16 | SGI);
        report::equal("sgi-reserved-filter", take(), NONE);
    }
    let at = |register: u64| gic::distributor() + register + u64::from(SGI);
    let (set, clear) = (at(r::SPENDSGIR), at(r::CPENDSGIR));
    write8(set, 0b11);
    let took = (take(), take(), take());
    report::equal("sgi-by-sender", took, (SGI, 1 << 10 | SGI, NONE));
    write8(set, 0b11);
    let first = acknowledge();
    let meanwhile = (state(SGI), acknowledge());
    gic::end(first);
    let waits = (first, meanwhile);
    report::equal("second-sender-waits", waits, (SGI, (BOTH, NONE)));
    write8(clear, 0b10);
    stays("sgi-withdrawn", SGI, IDLE);
}

/// Aff1 is in bits 23:16, and vCPUs have affinities 0.0.0.n. ICC_SGI0R_EL1 and, with one security
/// state, ICC_ASGI1R_EL1 send Group 0 alone: an SGI that its target has in Group 1 is dropped.
/// Group 0 is never signalled to a GICv3 guest, but stays pending and comes when the group changes
/// (G1-GIC-003).
fn sgi_forms_v3(machine: &Machine) {
    let number = u64::from(SGI) << 24;
    write_sysreg!("icc_sgi1r_el1", number | 1 << 16 | 1);
    report::equal("sgi-other-affinity", take(), NONE);
    write_sysreg!("icc_sgi0r_el1", number | 1);
    stays("sgi0r-of-group-1", SGI, IDLE);
    if machine.gearv {
        // The GIC has one security state: Group 1 of the other state reaches no CPU.
        write_sysreg!("icc_asgi1r_el1", number | 1);
        stays("asgi1r-of-group-1", SGI, IDLE);
    }
    let groups = v3::sgi_frame() + r::IGROUPR;
    let before = read32(groups);
    write32(groups, before & !(1 << SGI));
    write_sysreg!("icc_sgi0r_el1", number | 1);
    stays("sgi0r-of-group-0", SGI, PENDING);
    write32(groups, before);
    report::equal("group-0-made-group-1", take(), SGI);
}
