//! Resets its machine by PSCI again and again. Nothing may survive in memory, so the count is in
//! the physical counter, which keeps running: a boot every 100 ms until 650 ms after the machine's
//! start, which is six resets when the first boot comes before 100 ms (under `icount` it does).
//!
//! Each life leaves its interrupt controller as different from its reset state as it can, and finds
//! it as after a reset.
//!
//! Requirements: G1-RUN-009, G1-GIC-014.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::gic::{Version, register};
use test_guests::timer::{self, Kind};
use test_guests::{Machine, check, guest, mmio, psci, report, say};

guest!(main, first = look_at_gic);

const INTERVAL_US: u64 = 100_000;
/// Natively the count goes on as well, so the test ends by itself everywhere.
const LAST_US: u64 = 650_000;
/// Into the memory that nothing of the image lies in. A wipe that covered only what the image loads
/// would leave it.
const BEHIND_IMAGE: u64 = 8 << 20;
const MARK: u64 = 0x6d61_726b;

/// In the image's data, which is not cleared but loaded. A reset that left the image in memory
/// would show the 2 of the former life (G1-RUN-009).
static DATA: AtomicU64 = AtomicU64::new(1);

/// QEMU's own reset keeps RAM and the counter: both checks are of VMs alone. The spoiling comes
/// last, as the sleep before needs the controller.
fn main(machine: &Machine) {
    say!("BOOT");
    let place = machine.ram.start + BEHIND_IMAGE;
    report::equal("image-is-new", DATA.load(Ordering::Relaxed), 1);
    if machine.gearv {
        report::equal("memory-is-wiped", mmio::read64(place), 0);
    }
    if machine.gearv {
        // G1-TIM-005: the virtual count begins anew.
        let life = timer::now();
        check!("count-is-new", life < timer::from_us(INTERVAL_US), "{life}");
    }
    DATA.store(2, Ordering::Relaxed);
    mmio::write64(place, MARK);
    let end = sleep_to_interval();
    spoil_gic(machine);
    if end < timer::from_us(LAST_US) {
        psci::system_reset();
    }
    report::pass("reboot");
}

/// Sleeps until the physical count, which goes on over reboots, is at the end of an interval, and
/// returns that count. The virtual count cannot serve: a VM's begins at 0 with each life
/// (G1-TIM-005).
fn sleep_to_interval() -> u64 {
    let interval = timer::from_us(INTERVAL_US);
    let end = Kind::Physical.now().next_multiple_of(interval);
    while Kind::Physical.now() < end {
        timer::sleep_us(1000);
    }
    end
}

/// SGIs, which a GICv2 may have enabled for good. IHI 0048, 4.3.5, leaves it to the implementation
/// whether GICD_ISENABLER0 has their bits fixed.
const SGIS: u32 = 0xffff;
/// The trigger's bit of each field of ICFGR. The lower bit of each field is reserved.
const TRIGGERS: u32 = 0xaaaa_aaaa;
/// Offset of a redistributor's SGI frame, and distance of two redistributors.
const SGI_FRAME: u64 = 0x1_0000;
/// RD_base and SGI_base, 64 KiB each, without the frames of virtual LPIs (GICv4).
const REDISTRIBUTOR: u64 = 0x2_0000;
/// Priorities that every life leaves behind.
const PRIORITIES: u32 = 0x5050_5050;

/// A word of 32 interrupts' bits: the frame that holds it, and its index there.
#[derive(Clone, Copy)]
struct Word {
    frame: u64,
    index: u64,
}

/// Returns all words: SPIs, and the private interrupts of each CPU that the boot CPU reaches. A
/// GICv2 banks private interrupts by the CPU that reads, so the boot CPU sees its own alone.
fn words(machine: &Machine) -> impl Iterator<Item = Word> {
    let distributor = machine.gicd.start;
    let count = u64::from(mmio::read32(distributor + register::TYPER) & 0x1f) + 1;
    let spis = (1..count).map(move |index| Word {
        frame: distributor,
        index,
    });
    let (first, private) = match machine.gic {
        Version::V2 => (distributor, 1),
        Version::V3 => (machine.gic_cpus.start + SGI_FRAME, machine.cpus as u64),
    };
    let private = (0..private).map(move |cpu| Word {
        frame: first + cpu * REDISTRIBUTOR,
        index: 0,
    });
    spis.chain(private)
}

impl Word {
    /// Reads the bits of a register, a bit an interrupt.
    fn bits(self, register: u64) -> u32 {
        mmio::read32(self.frame + register + 4 * self.index)
    }

    /// Returns all fields of a register with `bits` a field, or-ed. OR shows whether any field is
    /// not zero, without a report of each of 512 interrupts.
    fn fields(self, register: u64, bits: u64) -> u32 {
        let words = (bits * self.index)..(bits * (self.index + 1));
        words.fold(0, |all, word| {
            all | mmio::read32(self.frame + register + 4 * word)
        })
    }

    /// Writes all words of such a register.
    fn write_fields(self, register: u64, bits: u64, value: u32) {
        for word in (bits * self.index)..(bits * (self.index + 1)) {
            mmio::write32(self.frame + register + 4 * word, value);
        }
    }

    /// Returns the targets of the SPIs of this word, combined by OR.
    fn targets(self, version: Version) -> u64 {
        match (version, self.index) {
            (_, 0) => 0,
            (Version::V2, _) => self.fields(register::ITARGETSR, 8).into(),
            (Version::V3, index) => (32 * index..32 * (index + 1)).fold(0, |all, intid| {
                all | mmio::read64(self.frame + register::IROUTER + 8 * intid)
            }),
        }
    }
}

/// The interrupt controller at the first instructions of a life (Arm IHI 0069, 12.9 and 12.11; IHI
/// 0048, 4.3). It runs before the library sets the controller up (`first`): what is found is the
/// reset's work alone.
fn look_at_gic(machine: &Machine) {
    let (mut enabled, mut pending, mut active, mut priorities) = (0, 0, 0, 0);
    let (mut triggers, mut targets) = (0, 0);
    for word in words(machine) {
        let sgis = if word.index == 0 { SGIS } else { 0 };
        enabled |= word.bits(register::ISENABLER) & !sgis;
        pending |= word.bits(register::ISPENDR);
        active |= word.bits(register::ISACTIVER);
        priorities |= word.fields(register::IPRIORITYR, 8);
        if word.index != 0 {
            triggers |= word.fields(register::ICFGR, 2) & TRIGGERS;
        }
        targets |= word.targets(machine.gic);
    }
    let groups = mmio::read32(machine.gicd.start + register::CTLR) & 3;
    report::equal("gic-groups-are-off", groups, 0);
    report::equal("gic-enables-are-new", enabled, 0);
    report::equal("gic-pending-is-new", pending, 0);
    report::equal("gic-active-is-new", active, 0);
    report::equal("gic-priorities-are-new", priorities, 0);
    report::equal("gic-triggers-are-new", triggers, 0);
    report::equal("gic-targets-are-new", targets, 0);
}

/// Leaves nothing in the interrupt controller as a reset does. GICD_CTLR on and interrupts pending:
/// a reset that kept list registers would have them signalled in the next life.
fn spoil_gic(machine: &Machine) {
    mmio::write32(machine.gicd.start + register::CTLR, 3);
    for word in words(machine) {
        word.write_fields(register::IPRIORITYR, 8, PRIORITIES);
        if word.index != 0 {
            word.write_fields(register::ICFGR, 2, TRIGGERS);
            match machine.gic {
                Version::V2 => word.write_fields(register::ITARGETSR, 8, 0x0202_0202),
                Version::V3 => (32 * word.index..32 * (word.index + 1)).for_each(|intid| {
                    mmio::write64(word.frame + register::IROUTER + 8 * intid, 1);
                }),
            }
        }
        for set in [register::ISENABLER, register::ISPENDR, register::ISACTIVER] {
            mmio::write32(word.frame + set + 4 * word.index, u32::MAX);
        }
    }
}
