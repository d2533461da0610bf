//! A channel's kick, or a doorbell between two VMs: from a store of one VM to the first instruction
//! of another VM's handler.
//!
//! Two VMs run this program, `role=1` kicks, `role=2` is kicked. Under GearV the first is the
//! device VM, whose doorbell is the used-buffer interrupt of the second, which it serves. Under KVM
//! the doorbell is an ioeventfd that is an irqfd of the other VM, and under Xen a PL011 that both
//! reach. Both read the physical counter, which is the same for both, and share a page. With
//! `switch=1` both are on one CPU: measured is from the first one's WFI to the handler, with the
//! interrupt pending already, which is the change from one VM to another.

use core::arch::asm;

use test_guests::machine::Peer;
use test_guests::mmio::{read32, write32, write64};
use test_guests::uart::register;
use test_guests::{Machine, cpu, gic, report, timer, write_sysreg};

use super::{SETTLE_US, handle_until, measure};

/// Roles on the command line: the VM that measures, and the VM that is measured.
pub(super) const KICKER: u64 = 1;
pub(super) const KICKED: u64 = 2;

/// Offsets in the shared memory: the other VM is ready; its handler's time; order to stop spinning;
/// order to stop sleeping. The page is all that both VMs have in common, beside the doorbell.
const READY: u64 = 0;
const ANSWER: u64 = 8;
const SPUN: u64 = 16;
const SLEPT: u64 = 20;
/// The transmit interrupt in a PL011's IMSC and ICR (Arm DDI 0183, 3.3). ICR makes a new edge.
const TRANSMIT: u32 = 1 << 5;
/// Long enough for the other VM to handle its interrupt and to fall asleep.
const SLEEP_US: u64 = 100;

unsafe extern "C" {
    /// CNTPCT_EL0 instead of CNTVCT_EL0: each VM's virtual count has an offset of its own.
    static kick_vectors_v2: [u8; 2048];
    static kick_vectors_v3: [u8; 2048];
}

/// Measures both rows. One kick more after each order to stop: a sleeper sees the order only when
/// it is woken. `channel_kick` is a channel to a served guest, `doorbell` one of the manifest's.
pub(super) fn send(machine: &Machine) {
    let Some(peer) = machine.peer.filter(|peer| peer.doorbell != 0) else {
        report::fail("kick", format_args!("there is no doorbell"));
        return;
    };
    if machine.option("switch").is_some() {
        if peer.is_pl011 {
            write32(peer.doorbell + register::IMSC, TRANSMIT);
        }
        while read32(peer.shared + READY) == 0 {
            timer::sleep_us(SLEEP_US);
        }
        write32(peer.shared + SPUN, 1);
        measure(machine, "world_switch", || switch(&peer));
        return report::pass("bench");
    }
    cpu::wait_until(|| read32(peer.shared + READY) != 0);
    let names = match machine.channels {
        [None, ..] => ["channel_kick", "channel_kick_wfi"],
        _ => ["doorbell", "doorbell_wfi"],
    };
    for (name, over) in names.into_iter().zip([SPUN, SLEPT]) {
        measure(machine, name, || kick(&peer));
        write32(peer.shared + over, 1);
        kick(&peer);
    }
    report::pass("bench");
}

/// DSB has the cleared answer in memory before the store that rings; ISB keeps the counter's read
/// behind it.
fn kick(peer: &Peer) -> u64 {
    timer::delay_us(SETTLE_US);
    write64(peer.shared + ANSWER, 0);
    let (start, handler): (u64, u64);
    // SAFETY: rings the doorbell, which changes no memory of this VM's; reads what the other VM
    // writes, as aligned loads.
    unsafe {
        asm!(
            "dsb sy",
            "isb",
            "mrs x20, cntpct_el0",
            "str w1, [x2]",
            "2: yield",
            "ldr x9, [x3]",
            "cbz x9, 2b",
            in("w1") 1, in("x2") peer.doorbell, in("x3") peer.shared + ANSWER,
            out("x20") start, out("x9") handler,
            options(nostack),
        );
    }
    handler - start
}

/// Makes the other VM ready, then sleeps, so that the CPU goes there. The timer ends the sleep. The
/// counter is read behind the ring: the exit of the store is in another row. The timer wakes this
/// VM when the other one sleeps again.
fn switch(peer: &Peer) -> u64 {
    timer::sleep_us(SLEEP_US);
    if peer.is_pl011 {
        write32(peer.doorbell + register::ICR, TRANSMIT);
    }
    write64(peer.shared + ANSWER, 0);
    timer::arm(timer::now() + timer::from_us(SLEEP_US));
    let (start, handler): (u64, u64);
    // SAFETY: as for a kick. Interrupts stay masked.
    unsafe {
        asm!(
            "dsb sy",
            "isb",
            "str w1, [x2]",
            "mrs x20, cntpct_el0",
            "2: wfi",
            "ldr x9, [x3]",
            "cbz x9, 2b",
            in("w1") 1, in("x2") peer.doorbell, in("x3") peer.shared + ANSWER,
            out("x20") start, out("x9") handler,
            options(nostack),
        );
    }
    timer::disarm();
    // Nothing, if the other VM ran before this one slept.
    handler.saturating_sub(start)
}

/// Lets itself be kicked, first while it spins, then while it sleeps. READY is stored when the
/// interrupt is enabled: a ring before that would be lost natively.
pub(super) fn receive(machine: &Machine) -> ! {
    let vectors = match gic::version() {
        gic::Version::V2 => &raw const kick_vectors_v2,
        gic::Version::V3 => &raw const kick_vectors_v3,
    };
    write_sysreg!("vbar_el1", vectors as u64);
    if let Some(peer) = machine.peer {
        gic::set_edge(peer.intid, true);
        gic::enable(peer.intid);
        write32(peer.shared + READY, 1);
        handle_until!(peer.shared + ANSWER, peer.shared + SPUN; "msr daifclr, #2", "2: yield", "ldrb w12, [x13]", "cbz w12, 2b");
        handle_until!(
            peer.shared + ANSWER, peer.shared + SLEPT;
            "2: wfi",
            "msr daifclr, #2",
            "isb",
            "msr daifset, #2",
            "ldrb w12, [x13]",
            "cbz w12, 2b"
        );
    }
    cpu::halt()
}
