//! The board's device tree: what machine this is (Devicetree Specification 0.4).
//!
//! Owns everything that init knows of the machine. `gearv_manifest::Blob` checks the tree before it
//! is looked at; what a node then lacks is refused by node and property. Nothing is guessed.
//!
//! One walk over all nodes collects what init is about, by `compatible` and `device_type`, at any
//! depth: boards put their UARTs and their interrupt controller below one or more buses. `/cpus`,
//! `/chosen` and `/aliases` are then read by name. A node without a use here is left alone,
//! whatever is in it.
//!
//! | node | properties | becomes |
//! |---|---|---|
//! | `device_type` "memory" | `reg` | RAM |
//! | `/reserved-memory/*` | `reg`, `no-map` | memory that nobody gets |
//! | `arm,gic-v3`, `arm,gic-400` | `reg`, `redistributor-stride` | interrupt controller |
//! | `arm,psci*` | `method` | how CPUs are turned on |
//! | `/cpus/*` | `reg`, `enable-method`, `cpu-release-addr` | CPUs |
//! | `/cpus/cpu-map` | `cpu` of its cores | clusters of CPUs |
//! | UARTs | `reg`, `interrupts` | console, by `stdout-path` |
//! | PMUs | `interrupts` | whether VMs may have one |
//! | watchdogs, PL061 | `reg` | what the manifest may have Gear1 feed |
//! | `arm,smmu-v3`; with a GICv2 `arm,smmu-v2`, `arm,mmu-500` | `reg`, `interrupts` | SMMU |
//! | with a GICv2 `renesas,ipmmu-r8a77*`, `renesas,prr` | `reg`, `interrupts` | IPMMU |
//! | `arm,armv8-timer` | `clock-frequency` | frequency of the counter |
//! | `/chosen` | `linux,initrd-*`, `rng-seed`, `kaslr-seed` | archive, random bytes |
//!
//! Requirements: G1-BOOT-001.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::boot::{BootGic, EnableMethod};
use gear1_abi::id::MAX_CPUS;
use gear1_abi::info::uart;
use gear1_abi::layout::PAGE_SIZE;
use gearv_manifest::blob::{Blob, Node, Property, Texts};

use self::bus::{Bus, number};
use self::cpus::{psci_method, read_cpus};
pub use self::index::{BOARD_NODES, MANIFEST_NODES, indexed};
pub(crate) use self::paths::{move_below, path_below, root_path, stdout_path};
pub(crate) use self::pmu::PMUS;
pub(crate) use self::question::{is_disabled, is_of_type, text};
pub use self::smmu::{Ipmmu, Names, Smmu, SmmuKind, SmmuV2, Unit};
pub use self::watchdogs::Feedable;
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, merged};

pub(crate) mod bus;
mod clusters;
mod cpus;
mod index;
mod paths;
mod pmu;
mod question;
pub(crate) mod smmu;
#[cfg(test)]
mod tests;
pub(crate) mod watchdogs;

/// Link address of init: memory is mapped at its physical address below. init and the runtime's
/// boot page are the only users of that identity map.
const ADDRESS_LIMIT: u64 = 0x7000_0000_0000;
/// Interrupt specifier of the GIC: a shared interrupt.
pub(crate) const SPI: u32 = 0;
/// INTID of the first shared interrupt, which specifiers count from 0.
pub(crate) const FIRST_SPI: u32 = 32;
/// Name of QEMU's `virt`, which is no real board.
const VIRTUAL: Texts = Texts::new(&["linux,dummy-virt"]);
/// Bytes of GICC: two pages, the second of which has GICC_DIR alone.
pub(crate) const GICC_SIZE: u64 = 0x2000;
/// Bytes of GICC whose pages have 64 KiB each.
const GICC_64K: u64 = 0x2_0000;
/// Distance between two redistributors of a GICv3, unless `redistributor-stride` names another.
const GICR_STRIDE: u64 = 0x2_0000;

/// A physical CPU, as firmware describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Affinity.
    pub mpidr: u64,
    /// Address that a spin-table CPU polls.
    pub release_addr: u64,
    /// Cluster, counted from 0 in the order of the clusters' first CPUs.
    pub cluster: u8,
    /// Whether its model is known to have no SVE.
    pub lacks_sve: bool,
}

/// The UART for messages and consoles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uart {
    /// Kind of UART: a constant of [`gear1_abi::info::uart`].
    pub kind: u32,
    /// Base address of the registers.
    pub base: u64,
    /// INTID.
    pub intid: u32,
}

impl Uart {
    /// Returns the page that its registers are in.
    #[must_use]
    pub const fn page(&self) -> u64 {
        self.base & !(PAGE_SIZE - 1)
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Board {
    /// RAM, in order, without banks that touch.
    pub memory: Vec<Region>,
    /// Memory that firmware keeps for itself.
    pub reserved: Vec<Region>,
    /// Reserved memory that must not even be mapped (`no-map`).
    pub no_map: Vec<Region>,
    /// CPUs, in the tree's order.
    pub cpus: Vec<Cpu>,
    /// Method of turning CPUs on.
    pub enable_method: EnableMethod,
    /// Interrupt controller.
    pub gic: BootGic,
    /// Bytes of the redistributors' region, or of GICC.
    pub gicr_size: u64,
    /// UART for messages and consoles.
    pub uart: Option<Uart>,
    /// Devices that Gear1 can feed, in the tree's order.
    pub feedable: Vec<Feedable>,
    /// SMMU, which Gear1 drives.
    pub smmu: Option<Smmu>,
    /// Memory where the boot loader put the archive.
    pub archive: Region,
    /// Random bytes from the firmware: `rng-seed`, then `kaslr-seed`.
    pub seed: Vec<u8>,
    /// Whether the CPUs have a PMU that interrupts by the PPI that guests have.
    pub has_pmu: bool,
    /// Frequency of the counter, where firmware does not set CNTFRQ_EL0.
    pub counter_hz: Option<u32>,
    /// Whether the board is an emulator's, of which no hardware exists.
    pub is_virtual: bool,
    /// Number of CPUs beyond the supported ones.
    pub unused_cpu_count: usize,
}

impl Board {
    /// Returns where GICC's two pages lie side by side. Where a page has 64 KiB, as on SoCs that
    /// may have pages of that size, the first page's registers are there 16 times, the last time
    /// just before the second's.
    #[must_use]
    pub fn gicc(&self) -> u64 {
        // planted: GICC's second page is a copy of the first
        let before_second = u64::from(self.gicr_size == GICC_64K) * 0xf000;
        self.gic.gicr + before_second
    }
}

/// Result of reading a board's tree.
#[derive(Debug)]
pub struct Found {
    /// Console; known even where the rest of the tree is refused.
    pub console: Option<Uart>,
    /// The machine.
    pub board: Result<Board, Refusal>,
}

/// Reads the tree in `bytes`.
#[must_use]
pub fn read(bytes: &[u8]) -> Found {
    match Blob::new(bytes) {
        Ok(tree) => describe(&tree),
        Err(error) => Found {
            console: None,
            board: Err(refusal!(Board, "{error}")),
        },
    }
}

/// Returns what `tree` says of the machine. A refusal is printed on the console beside it.
#[must_use]
pub fn describe(tree: &Blob<'_>) -> Found {
    let root = tree.root();
    let seen = look(&root, tree.bytes());
    let console = console(&root, &seen.uarts);
    Found {
        console,
        board: board(&root, seen, console),
    }
}

/// Looks at all nodes below the root, and at the memory reservation block in front of them.
fn look(root: &Node<'_>, bytes: &[u8]) -> Seen {
    let mut seen = Seen::default();
    match Bus::root(root) {
        Ok(bus) => visit(root, &mut root_path(), &bus, &mut seen),
        Err(refusal) => seen.refused = Some(refusal),
    }
    // planted: memory that firmware reserves is not seen
    seen.reserved.extend(memory_reservations(bytes));
    seen
}

/// Returns the machine that was seen, unless a part is missing that no boot can do without.
fn board(root: &Node<'_>, seen: Seen, uart: Option<Uart>) -> Result<Board, Refusal> {
    if let Some(refusal) = seen.refused {
        return Err(refusal);
    }
    let chosen = child(root, "chosen")?;
    let (mut cpus, enable_method) = read_cpus(&child(root, "cpus")?, seen.psci)?;
    let unused_cpu_count = cpus.len().saturating_sub(MAX_CPUS);
    cpus.truncate(MAX_CPUS);
    let (gic, gicr_size) = seen.gic.ok_or_else(|| {
        refusal!(
            Board,
            "/: no node compatible with \"arm,gic-v3\" or \"arm,gic-400\""
        )
    })?;
    check_memory(&seen.memory)?;
    Ok(Board {
        // Firmware names memory by controller or by kind of address: a VM may need two such banks.
        // planted: memory ends where a bank does
        memory: merged(seen.memory),
        reserved: seen.reserved,
        no_map: seen.no_map,
        cpus,
        enable_method,
        gic,
        gicr_size,
        uart,
        feedable: seen.feedable,
        smmu: seen.smmu.driven(gic.version)?,
        archive: archive(&chosen)?,
        seed: seed(&chosen),
        has_pmu: seen.has_pmu,
        counter_hz: seen.counter_hz,
        is_virtual: root.is_compatible(&VIRTUAL),
        unused_cpu_count,
    })
}

/// Refuses a machine without memory, and memory that init cannot map at its physical address.
fn check_memory(banks: &[Region]) -> Result<(), Refusal> {
    if banks.is_empty() {
        return Err(refusal!(
            Board,
            "/: no node with device_type \"memory\" has a size in reg"
        ));
    }
    match banks.iter().find(|bank| bank.end > ADDRESS_LIMIT) {
        Some(Region { end, .. }) => Err(refusal!(
            Board,
            "memory: reg: memory up to {end:#x}; none above {ADDRESS_LIMIT:#x} is supported"
        )),
        None => Ok(()),
    }
}

/// Facts that a walk over all nodes collects.
#[derive(Default)]
struct Seen {
    /// The first node that cannot be used; the walk goes on behind it.
    refused: Option<Refusal>,
    counter_hz: Option<u32>,
    has_pmu: bool,
    memory: Vec<Region>,
    reserved: Vec<Region>,
    no_map: Vec<Region>,
    /// The interrupt controller, with the bytes of its second region.
    gic: Option<(BootGic, u64)>,
    /// UARTs of all known kinds, with their paths: which one is the console is known later.
    uarts: Vec<(String, Uart)>,
    feedable: Vec<Feedable>,
    smmu: smmu::Smmus,
    /// The conduit of PSCI; `None`: the board has none.
    psci: Option<EnableMethod>,
}

/// Looks at all nodes below this one; the blob's reader has bounded how deep they nest. A disabled
/// node is skipped with all below it: the devices of a bus that is off do not answer.
fn visit<'a>(node: &Node<'a>, path: &mut String, bus: &Bus<'_, 'a>, seen: &mut Seen) {
    let length = path.len();
    // Boards have dozens of equal devices in a row, and names that Gear1 does not know are most.
    let mut unknown: &[u8] = &[];
    for child in node.children() {
        if is_disabled(&child) {
            continue;
        }
        let is_memory = is_of_type(&child, "memory");
        let compatible = child.compatible();
        let compatible = compatible.filter(|names| names.value != unknown);
        let ranges = child.property("ranges");
        if !is_memory && compatible.is_none() && ranges.is_none() {
            continue;
        }
        move_below(path, length, child.name());
        let mut read = || {
            if is_memory {
                read_memory(&child, path, bus, seen)?;
            }
            if let Some(names) = compatible
                && !read_first_known(&child, &names, path, bus, seen)?
            {
                unknown = names.value;
            }
            // Without `ranges`, the CPU reaches nothing below.
            ranges.map_or(Ok(()), |ranges| {
                visit_below(&child, ranges, path, bus, seen)
            })
        };
        if let Err(refusal) = read() {
            // The walk continues: a later node may describe the console that the message needs.
            seen.refused.get_or_insert(refusal);
        }
    }
}

/// Reads a bank of memory.
fn read_memory(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
    seen: &mut Seen,
) -> Result<(), Refusal> {
    let banks = bus.regions(node, path)?.into_iter();
    seen.memory.extend(banks.filter(|bank| bank.bytes() != 0));
    Ok(())
}

/// Reads what a node says by the first of its names that is known, and tells whether one is: a node
/// lists its most specific name first, and the others are what it is compatible with beside.
fn read_first_known(
    node: &Node<'_>,
    names: &Property<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
    seen: &mut Seen,
) -> Result<bool, Refusal> {
    for name in names.texts() {
        if read_compatible(node, name, path, bus, seen)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the nodes below one that has `ranges`.
fn visit_below<'a>(
    node: &Node<'a>,
    ranges: Property<'a>,
    path: &mut String,
    bus: &Bus<'_, 'a>,
    seen: &mut Seen,
) -> Result<(), Refusal> {
    let below = bus.below(node, ranges, path)?;
    if path == "/reserved-memory" {
        return read_reserved(node, path, &below, seen);
    }
    visit(node, path, &below, seen);
    Ok(())
}

/// Reads what a node compatible with `name` says, and tells whether that is of interest.
///
/// Every name is one that the Linux kernel's bindings define, and has a driver in Gear1 or Gear2. A
/// later PSCI lists the earlier names too, so the first of them decides for all.
fn read_compatible(
    node: &Node<'_>,
    name: &[u8],
    path: &str,
    bus: &Bus<'_, '_>,
    seen: &mut Seen,
) -> Result<bool, Refusal> {
    match name {
        b"arm,gic-v3" => seen.gic = Some(read_gicv3(node, path, bus)?),
        b"arm,gic-400" | b"arm,cortex-a15-gic" => seen.gic = Some(read_gicv2(node, path, bus)?),
        b"arm,pl011" => add_uart(node, path, bus, (uart::PL011, 0), seen)?,
        b"renesas,scif" => add_uart(node, path, bus, (uart::SCIF, 0), seen)?,
        b"brcm,bcm2835-aux-uart" => {
            add_uart(node, path, bus, (uart::MINI, uart::MINI_OFFSET), seen)?;
        }
        b"cdns,uart-r1p12" => add_uart(node, path, bus, (uart::CADENCE, 0), seen)?,
        b"fsl,imx6q-uart" => add_uart(node, path, bus, (uart::IMX, 0), seen)?,
        _ if watchdogs::is_known(name) => watchdogs::add(node, name, path, bus, &mut seen.feedable),
        b"arm,psci-1.0" | b"arm,psci-0.2" | b"arm,psci" => {
            seen.psci = Some(psci_method(node, path)?);
        }
        _ if smmu::is_known(name) => seen.smmu.add(node, name, path, bus)?,
        b"arm,armv8-timer" => {
            let frequency = node.property("clock-frequency");
            seen.counter_hz = frequency.and_then(|property| property.cells()?.next());
        }
        _ if PMUS.contains(name) => {
            seen.has_pmu = pmu::has_guests_ppi(node);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Notes a UART of a kind whose registers begin at an offset in their page. Init and Gear2 map the
/// page at a fixed address, and would find another device's registers at another offset.
fn add_uart(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
    (kind, offset): (u32, u64),
    seen: &mut Seen,
) -> Result<(), Refusal> {
    let regions = bus.regions(node, path)?;
    let base = regions.first().map(|region| region.start);
    let base = base.filter(|base| base & (PAGE_SIZE - 1) == offset);
    let base = base.ok_or_else(|| refusal!(Board, "{path}: reg: not where its page has it"))?;
    let intid = shared_interrupt(node, path)?;
    let uart = Uart { kind, base, intid };
    seen.uarts.push((path.to_string(), uart));
    Ok(())
}

/// Reads `/reserved-memory`. Firmware's secure memory and its own tables are there: to give one of
/// them to a VM would let the VM break firmware, or fault at EL3. `no-map` is not even mapped, as a
/// speculative access may be an error.
fn read_reserved(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
    seen: &mut Seen,
) -> Result<(), Refusal> {
    // Without `reg` a node asks Linux to choose a place.
    let placed = |child: &Node<'_>| !is_disabled(child) && child.property("reg").is_some();
    for child in node.children().filter(placed) {
        let regions = bus.regions(&child, &path_below(path, child.name()))?;
        if child.property("no-map").is_some() {
            seen.no_map.extend(regions.iter().copied());
        }
        seen.reserved.extend(regions);
    }
    Ok(())
}

/// Reads a GICv3: distributor and redistributors, which are the first two entries of `reg`. Several
/// regions of redistributors, as on machines with more CPUs than Gear1 has, are refused.
fn read_gicv3(node: &Node<'_>, path: &str, bus: &Bus<'_, '_>) -> Result<(BootGic, u64), Refusal> {
    check_one_redistributor_region(node, path)?;
    let regions = bus.regions(node, path)?;
    let [gicd, gicr, ..] = &regions[..] else {
        return Err(refusal!(
            Board,
            "{path}: reg: no distributor and redistributors"
        ));
    };
    let gic = BootGic {
        version: 3,
        gicd: gicd.start,
        gicr: gicr.start,
        gicr_stride: last_cell(node, "redistributor-stride").map_or(GICR_STRIDE, u64::from),
        gich: 0,
        gicv: 0,
    };
    Ok((gic, gicr.bytes()))
}

/// Refuses redistributors in several regions. The runtime finds a CPU's by its distance from the
/// first, which only one region keeps.
fn check_one_redistributor_region(node: &Node<'_>, path: &str) -> Result<(), Refusal> {
    match last_cell(node, "#redistributor-regions") {
        None | Some(1) => Ok(()),
        Some(_) => Err(refusal!(
            Board,
            "{path}: #redistributor-regions: only one region is supported"
        )),
    }
}

/// Returns the last cell of a property: the number, whether the tree gives it one cell or two.
fn last_cell(node: &Node<'_>, name: &str) -> Option<u32> {
    let property = node.property(name)?;
    property.cells()?.last()
}

/// Reads a GICv2 with virtualization, whose `reg` names all four frames.
fn read_gicv2(node: &Node<'_>, path: &str, bus: &Bus<'_, '_>) -> Result<(BootGic, u64), Refusal> {
    let regions = bus.regions(node, path)?;
    let [gicd, gicc, gich, gicv, ..] = &regions[..] else {
        return Err(refusal!(Board, "{path}: reg: no GICD, GICC, GICH and GICV"));
    };
    let gic = BootGic {
        version: 2,
        gicd: gicd.start,
        gicr: gicc.start,
        gicr_stride: 0,
        gich: gich.start,
        gicv: gicv.start,
    };
    Ok((gic, gicc.bytes()))
}

/// Returns the INTID of a node's first interrupt, which has to be a shared one of the GIC.
fn shared_interrupt(node: &Node<'_>, path: &str) -> Result<u32, Refusal> {
    let mut cells = node
        .property("interrupts")
        .and_then(|property| property.cells());
    let mut next = || cells.as_mut().and_then(Iterator::next);
    match (next(), next()) {
        (Some(SPI), Some(spi)) => spi.checked_add(FIRST_SPI),
        _ => None,
    }
    .filter(|intid| (*intid as usize) < gear1_abi::boot::MAX_INTIDS)
    .ok_or_else(|| {
        refusal!(
            Board,
            "{path}: interrupts: not a shared interrupt of the GIC"
        )
    })
}

/// Returns the UART that `stdout-path` names, or else the first one.
fn console(root: &Node<'_>, uarts: &[(String, Uart)]) -> Option<Uart> {
    let path = stdout_path(root);
    let named = uarts.iter().find(|(uart, _)| Some(uart.as_str()) == path);
    named.or(uarts.first()).map(|(_, uart)| *uart)
}

/// Returns where the boot loader put the archive: boot loaders pass one file beside the kernel, as
/// its initial RAM disk.
fn archive(chosen: &Node<'_>) -> Result<Region, Refusal> {
    let start = archive_end(chosen, "linux,initrd-start")?;
    let end = archive_end(chosen, "linux,initrd-end")?;
    let region = Region::new(start, end);
    if region.bytes() == 0 {
        return Err(refusal!(
            Board,
            "/chosen: linux,initrd-end: the initrd is empty"
        ));
    }
    Ok(region)
}

/// Returns one end of the archive. Boot loaders write it in one cell or in two, whatever the root's
/// `#address-cells` are.
fn archive_end(chosen: &Node<'_>, name: &str) -> Result<u64, Refusal> {
    let cells = chosen.property(name).and_then(|property| property.cells());
    let cells = cells.filter(|cells| cells.len() <= 2);
    let address = cells.and_then(|mut cells| {
        let count = u32::try_from(cells.len()).ok()?;
        number(&mut cells, count)
    });
    address.ok_or_else(|| {
        refusal!(
            Board,
            "/chosen: {name}: missing: pass the boot archive as initrd"
        )
    })
}

/// Returns the firmware's random bytes. A board without any has none, and guests get seeds that
/// another boot gives too.
fn seed(chosen: &Node<'_>) -> Vec<u8> {
    let values = ["rng-seed", "kaslr-seed"].map(|name| chosen.property(name));
    let values = values.iter().flatten().map(|property| property.value);
    values.collect::<Vec<_>>().concat()
}

/// Iterates over the memory reservation block, whose start the blob's reader has checked. The block
/// is the older way to reserve memory, which boot loaders still use beside `/reserved-memory`.
fn memory_reservations(bytes: &[u8]) -> impl Iterator<Item = Region> {
    let start = bytes.get(16..20).and_then(|field| field.try_into().ok());
    let start = start.map_or(0, u32::from_be_bytes);
    let rest = bytes.get(start as usize..).unwrap_or(&[]);
    let entries = rest.as_chunks::<16>().0;
    let word = |half: &[u8]| {
        half.iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let entries = entries.iter().map(move |entry| {
        let (address, size) = entry.split_at(8);
        (word(address), word(size))
    });
    entries
        .take_while(|entry| *entry != (0, 0))
        .map(|(address, size)| Region::new(address, address.saturating_add(size)))
}

/// Returns a node of the root that each board has.
fn child<'a>(root: &Node<'a>, name: &str) -> Result<Node<'a>, Refusal> {
    root.child(name)
        .ok_or_else(|| refusal!(Board, "/: no node \"{name}\""))
}
