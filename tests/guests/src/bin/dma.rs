//! A VM with a PCI host bridge has a device attack: QEMU's `edu`, which copies between memory and a
//! buffer of its own wherever its registers say.
//!
//! The device first shows that it works, in the VM's own memory and by an interrupt. With
//! `ram-mib` it then writes a pattern everywhere else in so much of the board's memory; the host
//! looks for the pattern afterwards. With `target-mib` it writes there alone. With `victim-mib` it
//! reads the code of another VM that runs this same image, which is the VM's own code if the
//! device has reached it; `exposed=1` says that it should. `role=1` is that other VM. With `random`
//! it reads and writes so often at random addresses that are not the VM's, most of them in
//! `random-mib` of RAM, `bytes` at a time. With `lends=1` the VM lends a page, which the device loses too, and takes
//! it back. With `late=1` the VM resets itself while the device is about to write. Its next life,
//! which finds the device set up, sees that the device was kept from memory, and that it works
//! again.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-003.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use test_guests::attack::Random;
use test_guests::edu::{self, BUFFER, Edu, INTERRUPT, TO_MEMORY};
use test_guests::ffa::{self, Descriptor, function, regs};
use test_guests::mmio::{read8, read16, read32, read64, write8, write16, write32};
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, timer};

guest!(main, irq = on_interrupt);

/// Configuration space of QEMU's `virt`, and where the device's registers are put. QEMU's `virt`
/// has its PCIe configuration there as long as memory ends below 256 GiB.
const CONFIGURATION: u64 = 0x40_1000_0000;
const REGISTERS: u64 = 0x1000_0000;
const EDU: Edu = Edu(REGISTERS);
/// Configuration space: command, first base address.
const COMMAND: u64 = 0x4;
const BAR0: u64 = 0x10;
/// Bits of the command: memory, and master of the bus.
const MEMORY: u16 = 0b010;
const MASTER: u16 = 0b100;
/// Interrupts of the bridge's four lines.
const LINES: core::ops::Range<u32> = 35..39;

/// Bytes of the pattern.
const SIZE: u64 = 64;
/// Distance of the attacked addresses. Each VM has at least a MiB; the gears are attacked in
/// smaller steps.
const STEP: u64 = 1 << 20;
/// Memory from the beginning where Gear1 and Gear2 lie, and the distance there.
const GEARS: u64 = 2 << 20;
const FINE: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
/// Offset of what the device writes after the VM's end. Behind the pattern and its copy, which the
/// next life writes anew.
const LATE: u64 = 0x1000;
const RAM: u64 = 0x4000_0000;
/// Size of RAM without `random-mib`, the end of what the device reaches, and the attacks between
/// two lines about them.
const RAM_MIB: u64 = 128;
const REACH: u64 = 1 << 40;
const PROGRESS: u64 = 10_000;
/// Offsets of the buffers of FF-A and of the page that is lent, and the endpoint that gets it.
const TX: u64 = 0x4000;
const LENT: u64 = 0x8000;
const PAGE: u64 = 0x1000;
const PEER: u64 = 2;

/// Interrupts of the device so far.
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

fn on_interrupt(intid: u32) {
    if LINES.contains(&intid) {
        INTERRUPTS.fetch_add(1, Relaxed);
        EDU.end_interrupt();
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
    // Behind the image and the stacks.
    let own = machine.ram.end - MIB;
    let command = read16(function + COMMAND);
    if command & MEMORY != 0 {
        was_stopped(command, own);
    }
    write32(function + BAR0, REGISTERS as u32);
    write16(function + COMMAND, MEMORY | MASTER);
    fill(own, machine.option("seed").unwrap_or(1));
    works(own);
    if command & MEMORY != 0 {
        return;
    }
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
    if let Some(count) = machine.option("random") {
        attack_at_random(machine, count, own);
    }
    if machine.option("lends") == Some(1) {
        lends(own);
    }
    if machine.option("late") == Some(1) {
        // To the VM's own memory, which is that of its next life when the transfer ends.
        begin(BUFFER, own + LATE, TO_MEMORY);
        psci::system_reset();
    }
}

/// Checks that a transfer of the former life has not reached this one. The SMMU's stream has to be
/// closed before the VM's memory is given to its next life (G1-DMA-002).
fn was_stopped(command: u16, own: u64) {
    report::equal("master-is-off", command & MASTER, 0);
    EDU.await_end("late-transfer");
    let is_untouched = (0..SIZE).all(|at| read8(own + LATE + at) == 0);
    check!("late-write", is_untouched, "the device has written");
}

/// Returns the configuration space of the device. A function has 4 KiB of configuration space, a
/// device eight functions.
fn find() -> Option<u64> {
    let functions = (0..32).map(|device| CONFIGURATION + device * 0x8000);
    let mut functions = functions.filter(|function| read32(*function) == edu::IDENTITY);
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
/// addresses. With a stage 2 in front of the device (G1-DMA-001) each write ends as an event of the
/// SMMU, and not in memory.
fn attack(machine: &Machine, memory: core::ops::Range<u64>, own: u64) -> usize {
    transfer(own, BUFFER, 0);
    let gears = (memory.start..memory.start + GEARS).step_by(FINE as usize);
    let targets = gears.chain(memory.step_by(STEP as usize));
    let targets = targets.filter(|target| !machine.ram.contains(target));
    targets
        .map(|target| transfer(BUFFER, target, TO_MEMORY))
        .count()
}

/// Has the device read and write at addresses that are not the VM's: in RAM, and anywhere below the
/// size of the device's addresses.
fn attack_at_random(machine: &Machine, count: u64, own: u64) {
    let mut random = Random::new(machine.option("seed").unwrap_or(1));
    let ram_end = RAM + machine.option("random-mib").unwrap_or(RAM_MIB) * MIB;
    let size = machine.option("bytes").unwrap_or(SIZE);
    let load = || EDU.transfer(own, BUFFER, size, 0);
    load();
    for number in 1..=count {
        let end = if random.below(8) == 0 { REACH } else { ram_end };
        let target = random.below(end) & !(size - 1);
        if machine.ram.contains(&target) {
            continue;
        }
        // What is read stays in the device, which writes it nowhere: only events are left of it.
        if random.below(4) == 0 {
            EDU.transfer(target, BUFFER, size, 0);
            load();
        } else {
            EDU.transfer(BUFFER, target, size, TO_MEMORY);
        }
        if number % PROGRESS == 0 {
            say!("dma: {number} random accesses");
        }
    }
}

/// Has the device read another VM's code, and compares that with this VM's own, which is the same.
/// Two VMs run one image at the same offset: what the device would read there is known.
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

/// Lends a page to the other VM. The device, which has used the page before, loses it until it is
/// back.
fn lends(own: u64) {
    let (tx, page) = (own + TX, own + LENT);
    let mapped = ffa::hvc(regs([function::RXTX_MAP, tx, tx + PAGE, 1]));
    report::equal("buffers", ffa::status_of(&mapped), 0);
    transfer(own, BUFFER, 0);
    transfer(BUFFER, page, TO_MEMORY);
    let handle = lend(tx, page);
    transfer(BUFFER, page + SIZE, TO_MEMORY);
    let back = ffa::hvc(ffa::reclaim(handle, 0));
    report::equal("reclaim", ffa::status_of(&back), 0);
    let has = |at: u64| (0..SIZE).all(|byte| read8(own + byte) == read8(at + byte));
    check!("own-page", has(page), "the device has not written");
    report::equal("lent-page", has(page + SIZE), false);
    transfer(BUFFER, page + SIZE, TO_MEMORY);
    check!(
        "page-is-back",
        has(page + SIZE),
        "the device has not written"
    );
}

/// Offers the page to the other VM. Returns the transaction's handle. SMMU and CPU walk the same
/// tables; the device's translations are invalidated with the CPUs' (G1-DMA-002).
fn lend(tx: u64, page: u64) -> u64 {
    Descriptor {
        pages: 1,
        ranges: 1,
        ..Descriptor::of_call(function::LEND, ffa::own_endpoint(), PEER)
    }
    .write(tx);
    ffa::write_range(tx + ffa::HEADER, page, 1);
    let size = ffa::HEADER + 16;
    let answer = ffa::hvc(regs([function::LEND, size, size]));
    report::equal("lend", ffa::status_of(&answer), 0);
    ffa::handle_of(&answer, 2)
}

/// Has the device copy the pattern's bytes.
fn begin(source: u64, destination: u64, how: u64) {
    EDU.begin(source, destination, SIZE, how);
}

/// Has the device copy the pattern's bytes, and waits until it has.
fn transfer(source: u64, destination: u64, how: u64) {
    EDU.transfer(source, destination, SIZE, how);
}
