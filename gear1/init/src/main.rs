//! The init image: what `gear1_init` decides, on the machine.
//!
//! Whatever is wrong ends in one message on the console and a stopped machine, before a guest runs.
//!
//! Order: the device tree is mapped and read, since it alone says where the console is; then the
//! console speaks; then memory is mapped, and the archive read. Until the console is set, a refusal
//! is silent. The other CPUs are off, and interrupts are masked, until the runtime has taken over.
//!
//! Requirements: G1-BOOT-008.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::panic::PanicInfo;

use gear1_abi::ABI_VERSION;
use gear1_abi::layout::PAGE_SIZE;
use gear1_arch::boot::Machine;
use gear1_init::fdt::{self, Board, Smmu};
use gear1_init::prepare::{Given, HandOver, prepare};
use gear1_init::refusal::{Culprit, Refusal};
use gear1_init::region::{Region, subtract};
use gear1_init::smmu::ipmmu;

mod console;

/// The runtime's flat image for a GICv3, built before init.
static RUNTIME: &[u8] = include_bytes!(env!("GEAR1_RUNTIME_BIN"));
/// The runtime's flat image for a GICv2.
static RUNTIME_GICV2: &[u8] = include_bytes!(env!("GEAR1_RUNTIME_GICV2_BIN"));
/// The boot protocol's limit for a device tree (Linux, Documentation/arch/arm64/booting.rst).
const MAX_DEVICE_TREE: u64 = 2 << 20;

/// Reached from `gear1_arch::boot`, once, on the boot CPU with its MMU and caches on.
#[unsafe(no_mangle)]
fn gear1_init_main(mut machine: Machine) -> ! {
    match start(&mut machine) {
        Ok(HandOver {
            entry,
            root,
            left: _,
            partition: _,
            last_reset,
        }) => {
            if let Some(last_reset) = last_reset {
                log::info!("watchdog {last_reset}");
            }
            // SAFETY: `prepare` has built the tables, and returns what it built them for.
            unsafe { machine.enter(entry, root) }
        }
        Err(refusal) => {
            log::error!("{refusal}");
            stop()
        }
    }
}

/// Reads what firmware has left, and prepares the runtime.
fn start(machine: &mut Machine) -> Result<HandOver, Refusal> {
    let (tree, device_tree) = share_device_tree(machine)?;
    let mut index = Vec::new();
    let tree = fdt::indexed(tree, &mut index, fdt::BOARD_NODES);
    let tree = tree.map_err(|error| refuse(Culprit::Board, error.text()))?;
    let found = fdt::describe(&tree);
    if let Some(uart) = found.console {
        // SAFETY: the board's device tree says that this UART is there.
        let registers =
            unsafe { machine.console(uart.kind, uart.base) }.map_err(|error| refuse_map(&error))?;
        console::set(registers);
    }
    let mut board = found.board?;
    // Both have to agree: the tree may name a PMU that this CPU lacks, and a PMU without a node has
    // no interrupt that a guest could take.
    board.has_pmu &= machine.has_pmu();
    greet(&board);
    map_memory(machine, &board)?;
    if let Some(said) = ipmmu::settle(&mut board, machine) {
        log::info!("{said}");
    }
    let archive = share_archive(machine, &board)?;
    let init = machine.image();
    let given = Given {
        board: &board,
        archive,
        runtime: if board.gic.version == 2 {
            RUNTIME_GICV2
        } else {
            RUNTIME
        },
        init: Region::new(init.start, init.end),
        device_tree,
        tree,
        boot_cpu: machine.affinity(),
        pa_range: machine.pa_range(),
        // Firmware that leaves CNTFRQ_EL0 wrong tells the frequency in the timer's node.
        counter_hz: board.counter_hz.unwrap_or(machine.counter_hz() as u32),
        vector_lengths: gear1_arch::sve::lengths,
    };
    prepare(&given, machine)
}

/// Maps the device tree, first as much as says how long it is: X0 is all that is known of the
/// machine until then.
fn share_device_tree(machine: &mut Machine) -> Result<(&'static [u8], Region), Refusal> {
    let start = machine.device_tree().get();
    let missing = || refuse(Culprit::Board, "there is none at the address in X0");
    // SAFETY: by the boot protocol the boot loader has put the device tree into memory there, and
    // leaves it.
    let header = unsafe { machine.share_device_tree(8) }.ok_or_else(missing)?;
    let size = header
        .last_chunk::<4>()
        .map_or(0, |size| u32::from_be_bytes(*size));
    if u64::from(size) > MAX_DEVICE_TREE {
        return Err(refuse(Culprit::Board, "larger than 2 MiB"));
    }
    let region = Region::new(start, start + u64::from(size));
    // SAFETY: as above, as far as the header says.
    let tree = unsafe { machine.share_device_tree(region.bytes()) }.ok_or_else(missing)?;
    Ok((tree, region))
}

/// Makes the boot archive readable, where the boot loader has put it. It stays there: the runtime
/// loads VMs and Gear2 from it again.
fn share_archive(machine: &mut Machine, board: &Board) -> Result<&'static [u8], Refusal> {
    let archive = board.archive.start..board.archive.end;
    // SAFETY: the boot loader has put the archive into memory there, by the board's device tree, and
    // leaves it.
    unsafe { machine.share(archive) }.ok_or_else(|| {
        refuse(
            Culprit::Board,
            "/chosen: linux,initrd-start: the initrd is not in memory",
        )
    })
}

/// Prints the first line of a boot: version and machine.
fn greet(board: &Board) {
    let (major, minor) = (ABI_VERSION >> 16, ABI_VERSION & 0xffff);
    let memory: u64 = board.memory.iter().map(Region::bytes).sum();
    log::info!(
        "Gear1 {} (ABI {major}.{minor}) on {} CPUs, GICv{}, {} MiB",
        env!("CARGO_PKG_VERSION"),
        board.cpus.len(),
        board.gic.version,
        memory >> 20
    );
    if board.unused_cpu_count != 0 {
        log::warn!("{} more CPUs are not used", board.unused_cpu_count);
    }
}

/// Maps the board's memory, which init fills, of the interrupt controller the redistributors, of
/// which it reads whose they are, and the page that tells how many interrupts there are, the
/// watchdogs, which tell of the last reset, and the SMMU. Memory with `no-map` stays unmapped: a
/// speculative access there may be an error.
fn map_memory(machine: &mut Machine, board: &Board) -> Result<(), Refusal> {
    for region in subtract(&board.memory, &board.no_map) {
        // SAFETY: the board's device tree says that this is memory.
        unsafe { machine.map_ram(region.start..region.end) }.map_err(|error| refuse_map(&error))?;
    }
    let redistributors = board.gic.gicr..board.gic.gicr + board.gicr_size;
    let distributor = board.gic.gicd..board.gic.gicd + PAGE_SIZE;
    let watchdogs = board.feedable.iter();
    let watchdogs = watchdogs.filter(|device| device.watchdog.timeouts().is_some());
    let watchdogs = watchdogs.map(|device| device.page..device.page + PAGE_SIZE);
    let smmu = board.smmu.iter().flat_map(Smmu::reached);
    let smmu = smmu.map(|registers| registers.start..registers.end);
    let interrupts = [redistributors, distributor];
    for registers in interrupts.into_iter().chain(watchdogs).chain(smmu) {
        let mapped = machine.map_device(registers);
        mapped.map_err(|error| refuse_map(&error))?;
    }
    Ok(())
}

/// Makes a refusal of an input that could not be mapped at all.
fn refuse(culprit: Culprit, message: &str) -> Refusal {
    Refusal {
        culprit,
        message: message.into(),
        fault: None,
    }
}

/// Makes a refusal of what the board's tree describes and init's tables cannot map.
fn refuse_map(error: &gear1_core::table::MapError) -> Refusal {
    let message = alloc::format!("memory or a device of the board cannot be mapped: {error:?}");
    Refusal {
        culprit: Culprit::Board,
        message,
        fault: None,
    }
}

/// Reached from init's exception vectors: an access to what is not mapped, by a mistake of init's
/// or a device tree that names memory which is not there.
#[unsafe(no_mangle)]
extern "C" fn gear1_init_exception(esr: u64, elr: u64, far: u64) -> ! {
    log::error!("exception in Gear1's init: ESR {esr:#x}, ELR {elr:#x}, FAR {far:#x}");
    stop()
}

/// A mistake of init's own, which overflow checks and slices find: told like a refusal.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    log::error!("Gear1's init: {info}");
    stop()
}

/// Stops the machine. A guest that ran now would run on half a partition.
fn stop() -> ! {
    log::info!("the machine is stopped; no guest was started");
    loop {
        gear1_arch::barrier::wfi();
    }
}
