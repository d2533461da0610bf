//! Bugs in the virtual interrupt controller.
//!
//! A controller that loses, delays or repeats interrupts seldom still boots Linux. The tests on the
//! host fill all list registers, end interrupts in every order, and compare with a reference of
//! maps and sets after each operation; `gic-states` does so on the target with few of them.

use super::bug::{Bug, Finder};
use crate::change::Change;

const RULES: &str = "tests/suite/src/architecture.rs";

const REGISTERS: &str = "gear1/core/src/vgic/tests/registers.rs";
const LISTS: &str = "gear1/core/src/vgic/tests/list_registers.rs";
const V2: &str = "gear1/core/src/vgic/tests/gicv2.rs";

/// A bug that tests on the host find. The virtual controller is code without hardware, so most bugs
/// in it need no image.
const fn bug(
    name: &'static str,
    change: Change,
    breaks: &'static [&'static str],
    test: &'static str,
) -> Bug {
    Bug {
        name,
        change,
        breaks,
        test,
        finder: Finder::Host,
    }
}

pub(super) const BUGS: &[Bug] = &[
    // Firmware and kernels write what they need at boot, so a controller in another state works
    // with most. The guest leaves each register as unlike its reset state as it can, resets itself,
    // and looks.
    Bug {
        name: "a VM's next life has the interrupt controller of its last",
        change: Change::Drop,
        breaks: &["G1-GIC-014"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: Finder::Guest("reboot", "cortex-a57"),
    },
    // The reset has a condition that is true for a new controller. The test compares all registers
    // after a life with those of a new one.
    bug(
        "a reset keeps the private interrupts of vCPUs",
        Change::Swap(
            "fill(",
            "iter_mut().filter(|vcpu| !vcpu.asleep && vcpu.used == 0).for_each(|vcpu| *vcpu = ",
        ),
        &["G1-GIC-014"],
        LISTS,
    ),
    // Two SGIs of one number collapse into one. The short way of a repeated SGI is for one sender
    // alone; a GICv2 guest has to hear of each (IHI 0048, 3.2.3).
    bug(
        "a repeated SGI of two senders comes from one",
        Change::Swap(
            "sources & sources.wrapping_sub(1) == 0\n            && self",
            "self",
        ),
        &["G1-GIC-007"],
        V2,
    ),
    // The guest's end names INTID and sender, and finds no list register with sender 0. Only an SGI
    // that is active while others take all list registers comes to that, which the test arranges.
    bug(
        "an active SGI that gets a list register again has lost its sender",
        Change::Swap(
            "by_sender",
            "by_sender && (word.listed | !word.active) & bit != 0",
        ),
        &["G1-GIC-017"],
        "gear1/core/src/vgic/tests/gicv2.rs",
    ),
    // GICD_CTLR.DS reads as 0, which tells a guest that it is one of two states. Interrupts still
    // come: the test reads the register, whose DS and ARE are RAO (IHI 0069, 12.9.4).
    bug(
        "a guest is shown two security states",
        Change::Swap("6 | 1 << ", ""),
        &["G1-GIC-001"],
        REGISTERS,
    ),
    // The second word of SPIs and those behind always exist. Drivers go by GICD_TYPER and never
    // look: the test writes everywhere and reads zeroes.
    bug(
        "registers of SPIs that are not there are there",
        Change::Swap("0", "0 || index > 1"),
        &["G1-GIC-002"],
        REGISTERS,
    ),
    // Each priority bit chooses the wrong half. With one pending interrupt the choice does not
    // matter; the test has more pending ones than list registers.
    bug(
        "the best of many is the worst",
        Change::Swap("among & !", "among & "),
        &["G1-GIC-007"],
        LISTS,
    ),
    // SGI 5 counts as enabled. The shadow of the register is right, so reads agree with the guest;
    // the test looks at the list registers.
    bug(
        "a disabled interrupt is delivered",
        Change::Swap("self.enabled", "(self.enabled | 1 << 5)"),
        &["G1-GIC-003"],
        LISTS,
    ),
    // The target list is ignored. SGIs of Linux to all others have the same effect, and SGIs that
    // nobody needs are taken and forgotten: the test compares the kicks for each target list.
    bug(
        "an SGI reaches every vCPU",
        Change::Swap("everybody & value as u8", "    everybody"),
        &["G1-GIC-004"],
        REGISTERS,
    ),
    // The mask of all vCPUs is that of eight. SGIs to all others then have targets that no vCPU is;
    // the test compares the targets in VMs of fewer.
    bug(
        "an SGI reaches vCPUs that the VM does not have",
        Change::Swap(
            "(0xff_u16 >> (8_u8.wrapping_sub(vcpu_count) & 7)) as u8",
            "0xff",
        ),
        &["G1-GIC-004"],
        REGISTERS,
    ),
    // The latch of an edge is left out. Levels, which most devices have, are unaffected.
    bug("an edge is lost", Change::Drop, &["G1-GIC-005"], LISTS),
    // A guest may end an interrupt by ICACTIVER or ICPENDR in place of EOI. The physical interrupt
    // then has no virtual one, and never comes again if nobody deactivates it.
    bug(
        "a physical interrupt stays active after its end",
        Change::Swap("unbacked | ", ""),
        &["G1-GIC-006"],
        LISTS,
    ),
    // The best of the words is chosen by `max` where a lower rank is better. Interrupts of one word
    // are still in order, so the test spreads them over several.
    bug(
        "of two pending interrupts the worse comes first",
        Change::Become(
            "let best = each.filter(|rank| *rank != Rank::NONE).max().unwrap_or(Rank::NONE);",
        ),
        &["G1-GIC-007"],
        LISTS,
    ),
    // The pending state that is in a list register is not moved back. Only a vCPU that is unloaded
    // between delivery and acknowledge loses it.
    bug(
        "an unloaded vCPU forgets what was pending",
        Change::Drop,
        &["G1-GIC-008"],
        LISTS,
    ),
    // A vCPU that masks an interrupt by ICC_PMR_EL1 wakes for it, sees nothing, and waits again:
    // CPU time is all that is lost. The test asks with a mask that holds the interrupt back.
    bug(
        "WFI ends whatever the priority mask is",
        Change::Swap("bit| word.priority_at(bit) < pmr", "_| pmr != 0"),
        &["G1-GIC-009"],
        LISTS,
    ),
    // A route to an affinity that does not exist delivers to vCPU 0, which hides a driver's
    // mistake. IHI 0069, 12.9.22 has such an SPI pending at nobody.
    bug(
        "an SPI to nowhere goes to the first vCPU",
        Change::Swap("0", "1"),
        &["G1-GIC-010"],
        REGISTERS,
    ),
    // Timers are private interrupts 27 and 30, and the mask keeps the lower 16 bits. The guest
    // would take an interrupt of a timer that it has turned off.
    bug(
        "a timer whose line is low stays pending",
        Change::Swap("bits", "bits & 0xffff"),
        &["G1-GIC-011"],
        LISTS,
    ),
    // The maintenance interrupt by an end is not enabled. Four list registers are enough for most
    // guests; random operations fill them, and the reference model ends each interrupt.
    bug(
        "the end of an interrupt without list register is missed",
        Change::Become("wanted.deactivate = false;"),
        &["G1-GIC-012"],
        "gear1/core/src/vgic/tests/random.rs",
    ),
    // The kick for the vCPU itself is dropped. The next exit of a busy guest flushes soon enough;
    // the test expects the kick of the exit that finds the end.
    bug(
        "what is due again after its end is left to the next flush",
        Change::Become("kicks.without(vcpu)"),
        &["G1-GIC-012"],
        LISTS,
    ),
    // A GICv3 guest's Group 0 is never delivered, so the constant reads as the rule. The test has
    // interrupts of both groups with a GICv2.
    bug(
        "Group 0 of a GICv2 guest is not delivered",
        Change::Become("group0: 0,"),
        &["G1-GIC-013"],
        V2,
    ),
    // All shared interrupts pass the mask. A real-time VM with one device uses only its own; the
    // test compares the masks of whole registers.
    bug(
        "with pass-through every interrupt is the VM's",
        Change::Swap("intid) ", "intid) || intid > 31 "),
        &["G1-RT-003"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    // Eight lines share a register. One device at a time never loses anything: the test raises two.
    bug(
        "a PL061 loses a line when another is raised",
        Change::Swap("raised |", "raised "),
        &["G1-CHN-002"],
        "gear1/core/src/pl061/tests.rs",
    ),
    // Pacing is off: a guest's kicks interrupt the device VM as fast as they come. All requests are
    // served, so only the count of interrupts tells.
    bug(
        "a line is shown before it is armed again",
        Change::Drop,
        &["G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    // The device model arms its lines, other programs do not. The next user of a line would get one
    // interrupt and no more.
    bug(
        "a line stays paced for a user that does not arm it",
        Change::Drop,
        &["G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    // A kick during the device model's last look is neither shown nor held, and the guest waits for
    // ever. The window lies between the look and the arming; the test raises at each point.
    bug(
        "an edge before the line is armed again is lost",
        Change::Drop,
        &["G1-CHN-002", "G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    // An empty target list wakes vCPU 0. No kernel sends to nobody on purpose, and hardware
    // delivers nothing.
    bug(
        "an SGI of a real-time VM to nobody goes to its first vCPU",
        Change::Swap("targets", "targets.max(1)"),
        &["G1-RT-004"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    // The DSB behind the read of ICC_IAR1_EL1 is gone. QEMU performs accesses in order; on hardware
    // a load may pass the read of a System register (IHI 0069, 12.1.7). The rule wants DSB SY right
    // behind each acknowledge.
    Bug {
        name: "what a kick is for is loaded before its acknowledge",
        change: Change::Drop,
        breaks: &["G1-VCPU-001"],
        test: RULES,
        finder: Finder::Rules,
    },
    // INTIDs from 1024 on count as spurious. QEMU's machine sends no LPI to Gear1 unless firmware
    // left one on, and the running priority would then stay up for good.
    Bug {
        name: "an LPI is taken for none, and not ended",
        change: Change::Swap("& !3 !=", "<"),
        breaks: &["G1-GIC-016"],
        test: REGISTERS,
        finder: Finder::Host,
    },
    // Enable lets EL1 turn its interface off where SRE is writable, for later guests too. QEMU's
    // SRE is fixed, so the rule reads the value that is written to ICC_SRE_EL2.
    Bug {
        name: "a guest reaches ICC_SRE_EL1",
        change: Change::Swap(
            "ICC_SRE_EL2::SRE",
            "ICC_SRE_EL2::ENABLE::SET.value | ICC_SRE_EL2::SRE",
        ),
        breaks: &["G1-GIC-015"],
        test: RULES,
        finder: Finder::Rules,
    },
    // ICH_ELRSR_EL2 shows a list register as empty until a context synchronization event. The fake
    // interface of the tests behaves so, which QEMU's does not.
    Bug {
        name: "a list register that was just written counts as ended",
        change: Change::Drop,
        breaks: &["G1-GIC-007"],
        test: "gear1/core/src/vgic/tests/list_registers.rs",
        finder: Finder::Host,
    },
    // Each interrupt arrives all the same, by another CPU and a kick: the guest sees the difference
    // by its counters of exits alone.
    Bug {
        name: "a device's interrupt stays with the CPU of the first vCPU",
        change: Change::Swap("= target {", "= target.filter(|_| false) {"),
        breaks: &["G1-GIC-018"],
        test: "tests/suite/src/own_devices.rs",
        finder: Finder::OwnDevices,
    },
];
