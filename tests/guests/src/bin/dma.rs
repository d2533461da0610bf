//! A VM with a PCI host bridge has a device attack: QEMU's `edu`, which copies between memory and a
//! buffer of its own wherever its registers say.
//!
//! The device first shows that it works, in the VM's own memory and by an interrupt. With
//! `ram-mib` it then writes a pattern everywhere else in so much of the board's memory; the host
//! looks for the pattern afterwards. With `target-mib` it writes there alone. With `victim-mib` it
//! reads the code of another VM that runs this same image, which is the VM's own code if the
//! device has reached it; `exposed=1` says that it should. `role=1` is that other VM. With `late=1`
//! the VM turns itself off while the device is about to write.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use test_guests::mmio::{read8, read32, read64, write8, write16, write32, write64};
use test_guests::{Machine, check, cpu, gic, guest, report, say, timer};

guest!(main, irq = on_interrupt);

/// Configuration space of QEMU's `virt`, and where the device's registers are put.
const CONFIGURATION: u64 = 0x40_1000_0000;
const REGISTERS: u64 = 0x1000_0000;
/// Device and vendor of `edu`.
const EDU: u32 = 0x11e8_1234;
/// Configuration space: command, first base address.
const COMMAND: u64 = 0x4;
const BAR0: u64 = 0x10;
/// Memory, and master of the bus.
const ENABLE: u16 = 0b110;
/// Interrupts of the bridge's four lines.
const LINES: core::ops::Range<u32> = 35..39;

/// Registers of `edu` (QEMU, docs/specs/edu).
const INTERRUPT_DONE: u64 = 0x64;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const RUN: u64 = 0x98;
/// The buffer, as SOURCE and DESTINATION name it.
const BUFFER: u64 = 0x4_0000;
/// Bits of RUN.
const START: u64 = 1;
const TO_MEMORY: u64 = 2;
const INTERRUPT: u64 = 4;
/// A transfer takes 100 ms.
const TRANSFER_US: u64 = 100_000;
const PATIENCE: u32 = 20;

/// Bytes of the pattern.
const SIZE: u64 = 64;
/// Distance of the attacked addresses.
const STEP: u64 = 1 << 20;
/// Memory from the beginning where Gear1 and Gear2 lie, and the distance there.
const GEARS: u64 = 2 << 20;
const FINE: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
/// Offset of what the device writes after the VM's end.
const LATE: u64 = 0x1000;
const RAM: u64 = 0x4000_0000;

/// Interrupts of the device so far.
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

fn on_interrupt(intid: u32) {
    if LINES.contains(&intid) {
        INTERRUPTS.fetch_add(1, Relaxed);
        write32(REGISTERS + INTERRUPT_DONE, u32::MAX);
    }
}

fn main(machine: &Machine) {
    if machine.option("role") == Some(1) {
        loop {
            cpu::wfi();
        }
    }
    let Some(function) = find() else {
        return report::fail("edu", format_args!("not on the bus"));
    };
    report::pass("edu");
    write32(function + BAR0, REGISTERS as u32);
    write16(function + COMMAND, ENABLE);
    // Behind the image and the stacks.
    let own = machine.ram.end - MIB;
    fill(own, machine.option("seed").unwrap_or(1));
    works(own);
    interrupts(own);
    if let Some(ram) = machine.option("ram-mib") {
        let count = attack(machine, RAM..RAM + ram * MIB, own);
        say!("dma: {count} addresses attacked");
    }
    if let Some(target) = machine.option("target-mib") {
        transfer(BUFFER, target * MIB, TO_MEMORY);
    }
    if let Some(victim) = machine.option("victim-mib") {
        spies(machine, victim * MIB, own);
    }
    if machine.option("late") == Some(1) {
        // To the VM's own memory, which the VM does not have any more when the transfer ends.
        begin(BUFFER, own + LATE, TO_MEMORY);
    }
}

/// Returns the configuration space of the device.
fn find() -> Option<u64> {
    let functions = (0..32).map(|device| CONFIGURATION + device * 0x8000);
    let mut functions = functions.filter(|function| read32(*function) == EDU);
    functions.next()
}

/// Writes the pattern to the VM's memory, as the host computes it too.
fn fill(address: u64, seed: u64) {
    for at in 0..SIZE {
        write8(address + at, (seed * 31 + at * at * 7 + at * 13) as u8);
    }
}

/// The device copies the pattern in the VM's own memory.
fn works(own: u64) {
    transfer(own, BUFFER, 0);
    transfer(BUFFER, own + SIZE, TO_MEMORY);
    let is_same = (0..SIZE).all(|at| read8(own + at) == read8(own + SIZE + at));
    check!("own-memory", is_same, "the copy differs");
}

/// The device tells the end of a transfer by its line, and the VM's interrupt controller passes it
/// on.
fn interrupts(own: u64) {
    for intid in LINES {
        gic::enable(intid);
    }
    transfer(own, BUFFER, INTERRUPT);
    cpu::unmask_irqs();
    timer::delay_us(1_000);
    cpu::mask_irqs();
    for intid in LINES {
        gic::disable(intid);
    }
    report::equal("interrupts", INTERRUPTS.load(Relaxed), 1);
}

/// Has the device write the pattern everywhere but in the VM's own memory. Returns to how many
/// addresses.
fn attack(machine: &Machine, memory: core::ops::Range<u64>, own: u64) -> usize {
    transfer(own, BUFFER, 0);
    let gears = (memory.start..memory.start + GEARS).step_by(FINE as usize);
    let targets = gears.chain(memory.step_by(STEP as usize));
    let targets = targets.filter(|target| !machine.ram.contains(target));
    targets
        .map(|target| transfer(BUFFER, target, TO_MEMORY))
        .count()
}

/// Has the device read another VM's code, and compares that with this VM's own, which is the same.
fn spies(machine: &Machine, victim: u64, own: u64) {
    let code = main as *const () as u64 & !(SIZE - 1);
    transfer(own, BUFFER, 0);
    transfer(victim + (code - machine.ram.start), BUFFER, 0);
    transfer(BUFFER, own + 2 * SIZE, TO_MEMORY);
    let has_read = (0..SIZE)
        .step_by(8)
        .all(|at| read64(own + 2 * SIZE + at) == read64(code + at));
    let exposed = machine.option("exposed") == Some(1);
    report::equal("another's-code-is-read", has_read, exposed);
}

/// Has the device copy the pattern's bytes.
fn begin(source: u64, destination: u64, how: u64) {
    write64(REGISTERS + SOURCE, source);
    write64(REGISTERS + DESTINATION, destination);
    write64(REGISTERS + COUNT, SIZE);
    write64(REGISTERS + RUN, START | how);
}

/// Has the device copy the pattern's bytes, and waits until it has.
fn transfer(source: u64, destination: u64, how: u64) {
    begin(source, destination, how);
    for _ in 0..PATIENCE {
        timer::sleep_us(TRANSFER_US);
        if read32(REGISTERS + RUN) & START as u32 == 0 {
            return;
        }
    }
    report::fail(
        "transfer",
        format_args!("{source:x} to {destination:x}: not done"),
    );
}
