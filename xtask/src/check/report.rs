//! `check --report`: owners of a board's resources, and the free ones, as a table and as a picture.
//!
//! Owns no placement: the data comes from Gear1's init, run on this machine (`placement.rs`), and
//! from the manifest.

use gear1_abi::boot::{IrqOwner, MAX_INTIDS};
use gear1_init::devices::Device;
use gear1_init::region::{Region, subtract};
use gearv_manifest::{Channel, CpuIndex, GicMode, Manifest, SharedMemory, VmKind};

use super::partition;
use crate::placement::Placement;
use scheduling::Pool;

pub(super) mod scheduling;

#[cfg(test)]
mod tests;

/// The first INTID of a shared peripheral interrupt; those below are each CPU's own (GICv3, 2.2.1).
const FIRST_SPI: usize = 32;

/// A line of the memory map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// Physical addresses: two VMs may have the same IPA.
    pub(super) region: Region,
    /// One owner: memory of several is `Shared`.
    pub(super) owner: Owner,
    /// Use of the range, in words of the manifest or of the boot.
    pub(super) what: String,
}

impl Range {
    /// Makes a line of the map.
    fn new(region: Region, owner: Owner, what: &str) -> Range {
        Range {
            region,
            owner,
            what: what.to_owned(),
        }
    }
}

/// Owner of a resource. The owners are those of ARCHITECTURE's section on memory: each page has
/// exactly one, or is declared as shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Free: what the report counts as left.
    Nobody,
    /// Reserved by the board's device tree; the VMs never get it.
    Firmware,
    Gear1,
    Gear2,
    /// The VM with this number.
    Vm(usize),
    /// Several VMs.
    Shared,
}

/// A line on a CPU, a device or an interrupt. One shape for three tables, so that all of them are
/// written and counted alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// As the table shows it: a path, a number, an INTID.
    pub(super) name: String,
    pub(super) owner: Owner,
    /// Details: registers and INTIDs of a device, sources of an interrupt.
    pub(super) what: String,
}

/// Everything on a board, with its owner. Built once, and shown as tables and as a picture by two
/// writers which read nothing else: the two cannot differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Manifest and board.
    pub(super) title: String,
    /// Names by identifier, for owners.
    pub(super) vms: Vec<String>,
    /// By address.
    pub(super) memory: Vec<Range>,
    /// By number, as the board's tree lists them.
    pub(super) cpus: Vec<Item>,
    pub(super) pools: Vec<Pool>,
    /// Every device that init could give to a VM.
    pub(super) devices: Vec<Item>,
    /// SPIs: private ones are each CPU's own, and nobody's to give away.
    pub(super) interrupts: Vec<Item>,
    /// Doorbells, a line each.
    pub(super) channels: Vec<String>,
    /// Mappings of each VM, as text.
    pub(super) partition: String,
}

impl Report {
    /// Makes the report of a manifest that init has placed. init ran on this machine with the
    /// board's tree, so the figures are those of a boot, not of a second calculation.
    pub(super) fn new(title: &str, manifest: &Manifest<'_>, placed: &Placement) -> Report {
        Report {
            title: title.to_owned(),
            vms: manifest.vms.iter().map(|vm| vm.name.to_owned()).collect(),
            memory: memory(manifest, placed),
            cpus: cpus(manifest, placed),
            pools: scheduling::pools(manifest, placed.board.cpus.len()),
            devices: devices(manifest, placed),
            interrupts: interrupts(manifest, placed),
            channels: manifest.channels.iter().map(channel).collect(),
            partition: partition::text(&placed.partition, manifest),
        }
    }

    /// Returns the name of an owner.
    pub(super) fn owner(&self, owner: Owner) -> &str {
        match owner {
            Owner::Nobody => "-",
            Owner::Firmware => "firmware",
            Owner::Gear1 => "Gear1",
            Owner::Gear2 => "Gear2",
            Owner::Shared => "shared",
            Owner::Vm(index) => self.vms.get(index).map_or("?", String::as_str),
        }
    }

    /// Returns the report as tables. The rows have fixed widths, since golden files of the tests
    /// compare them line by line.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\nMemory\n{}", self.title, self.memory_rows());
        for (title, items) in [
            ("CPUs", &self.cpus),
            ("Devices", &self.devices),
            ("Interrupts", &self.interrupts),
        ] {
            text += &format!("\n{title}\n{}", self.item_rows(items));
        }
        if !self.channels.is_empty() {
            text += &format!("\nChannels\n  {}\n", self.channels.join("\n  "));
        }
        text += &format!("\nScheduling\n{}", self.pool_rows());
        text + "\nStage 2\n\n" + &self.partition
    }

    /// Returns the memory map's rows, and the bytes that are left. The sum is printed because "what
    /// can I still give to a VM" is the question that brings most readers here.
    fn memory_rows(&self) -> String {
        let mut text = String::new();
        for Range {
            region,
            owner,
            what,
        } in &self.memory
        {
            let (start, end, size) = (region.start, region.end, bytes(region.bytes()));
            let owner = self.owner(*owner);
            let line = format!("  {start:#012x}  {end:#012x}  {size:>9}  {owner:20}  {what}");
            text += &(line.trim_end().to_owned() + "\n");
        }
        let memory = self.memory.iter();
        let left = memory.filter(|range| range.owner == Owner::Nobody);
        let left: u64 = left.map(|range| range.region.bytes()).sum();
        text + &format!("  left: {}\n", bytes(left))
    }

    /// Returns the rows of a list, and how many of its items are left.
    fn item_rows(&self, items: &[Item]) -> String {
        let mut text = String::new();
        let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0);
        for Item { name, owner, what } in items {
            let line = format!("  {name:width$}  {:20}  {what}", self.owner(*owner));
            text += &(line.trim_end().to_owned() + "\n");
        }
        let left = items.iter().filter(|item| item.owner == Owner::Nobody);
        text + &format!("  left: {}\n", left.count())
    }
}

/// Writes a size to a tenth of the unit that fits. Rounded up: a part must never look as if it
/// would fit into a smaller range.
pub(super) fn bytes(size: u64) -> String {
    let (unit, name) = match size {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let tenths = (size * 10).div_ceil(unit);
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

/// Returns the memory map: what has an owner, and the rest of each bank. Every byte of RAM is in a
/// range: a rest without a name would hide memory that got lost.
fn memory(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Range> {
    let mut list = boot_memory(placed);
    list.extend(vm_memory(manifest, placed));
    list.extend(shared_memory(manifest));
    let left = placed.left.iter();
    list.extend(left.map(|region| Range::new(*region, Owner::Nobody, "")));
    // Init does not list what it takes for the runtime and Gear2: all that nothing else accounts
    // for.
    let known: Vec<Region> = list.iter().map(|range| range.region).collect();
    let rest = subtract(&placed.board.memory, &known);
    let own = "runtime, Gear2's heap, what is shared, device trees";
    let rest = rest.iter();
    list.extend(rest.map(|region| Range::new(*region, Owner::Gear1, own)));
    list.sort_by_key(|range| (range.region.start, range.region.end));
    list
}

/// Returns what the firmware and the boot take: Gear1's parts with a place of their own, and
/// Gear2's image. Gear1's init is listed although its memory is wiped: during the boot nothing else
/// can lie there.
fn boot_memory(placed: &Placement) -> Vec<Range> {
    let info = &placed.info;
    let gear2 = info.gear2.image;
    let reserved = placed.board.reserved.iter();
    let reserved = reserved.map(|region| Range::new(*region, Owner::Firmware, "reserved"));
    let own = [
        (placed.init, "init; wiped at boot, then nobody's"),
        (placed.archive, "boot archive"),
        (placed.device_tree, "the board's device tree"),
        (sized(info.pool, info.pool_size), "stage-2 tables"),
    ];
    let own = own.map(|(region, what)| Range::new(region, Owner::Gear1, what));
    let image = Range::new(sized(gear2.pa, gear2.size), Owner::Gear2, "image");
    reserved.chain(own).chain([image]).collect()
}

/// Returns the memory of the VMs. A VM that sees its memory elsewhere has both addresses in the
/// row: a debugger needs the IPA, and a hardware probe the PA.
fn vm_memory(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Range> {
    let mut list = Vec::new();
    for (vm, boot) in manifest.vms.iter().zip(&placed.info.vms) {
        for region in boot.regions.iter().filter(|region| region.size != 0) {
            let what = match region.ipa == region.pa {
                true => "memory".to_owned(),
                false => format!("memory, at {:#x} in the VM", region.ipa),
            };
            let owner = Owner::Vm(vm.id.index());
            list.push(Range::new(sized(region.pa, region.size), owner, &what));
        }
    }
    list
}

/// Returns the memory that several VMs have, with the VMs' names. The lead before it holds what
/// describes the memory to Linux, and is as shared.
fn shared_memory(manifest: &Manifest<'_>) -> Vec<Range> {
    let range = |shared: &SharedMemory<'_>| {
        let names = shared.vms.iter().collect::<Vec<_>>().join(", ");
        let readers = shared.readers.iter();
        let readers: String = readers.map(|name| format!(", {name} (reads)")).collect();
        let what = format!("{}: {names}{readers}", shared.name);
        Range::new(shared.with_lead(), Owner::Shared, &what)
    };
    manifest.shared.iter().map(range).collect()
}

/// Init has lengths where the report has ends.
fn sized(start: u64, size: u64) -> Region {
    Region::new(start, start + size)
}

/// Returns the CPUs with the VMs whose vCPUs start there. A CPU without a loop of Gear2 and without
/// a real-time VM stays off, and is shown as free.
fn cpus(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Item> {
    let cpus = placed.board.cpus.iter().enumerate();
    let item = |(index, cpu): (usize, &gear1_init::fdt::Cpu)| {
        let place = CpuIndex::new(index)?;
        let owner = cpu_owner(place, manifest, placed)?;
        let starting = starting_on(place, manifest, placed.board.cpus.len());
        let what = match (owner, starting.is_empty()) {
            (Owner::Gear2, false) => format!("starts {}", starting.join(", ")),
            _ => String::new(),
        };
        Some(Item {
            name: format!("{index}, affinity {:#x}", cpu.mpidr),
            owner,
            what,
        })
    };
    cpus.filter_map(item).collect()
}

/// Returns the owner of a CPU: the real-time VM that has it to itself, or Gear2, which schedules
/// all others. The manifest decides before init's list: a CPU of a real-time VM has no loop.
fn cpu_owner(cpu: CpuIndex, manifest: &Manifest<'_>, placed: &Placement) -> Option<Owner> {
    let alone = manifest
        .vms
        .iter()
        .find(|vm| vm.kind == VmKind::RealTime && vm.cpus.set().contains(cpu));
    let boot = placed.info.cpus.get(cpu.index())?;
    Some(match alone {
        Some(vm) => Owner::Vm(vm.id.index()),
        None if boot.gear2 => Owner::Gear2,
        None => Owner::Nobody,
    })
}

/// Returns the VMs with vCPUs that start on a CPU, each with the number of these vCPUs if there are
/// several. Starts, not stays: balancers and `gearctl` move vCPUs within their pool.
fn starting_on(cpu: CpuIndex, manifest: &Manifest<'_>, cpu_count: usize) -> Vec<String> {
    let starting = manifest.vms.iter().filter_map(|vm| {
        let here = |vcpu: &usize| manifest.start_cpu(vm, *vcpu, cpu_count) == Some(cpu);
        match (0..vm.vcpu_count).filter(here).count() {
            0 => None,
            1 => Some(vm.name.to_owned()),
            vcpus => Some(format!("{} ({vcpus} vCPUs)", vm.name)),
        }
    });
    starting.collect()
}

/// Returns the devices of the board's tree with their registers and interrupts, the free ones too:
/// that is the list to pick a VM's `devices` from.
fn devices(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Item> {
    let item = |device: &Device| {
        let regions = device.registers.iter();
        let regions = regions.map(|region| format!("{:#x}-{:#x}", region.start, region.end));
        let intids = device.intids.iter().map(|intid| format!("INTID {intid}"));
        Item {
            name: device.path.clone(),
            owner: device_owner(device, manifest, placed),
            what: regions.chain(intids).collect::<Vec<_>>().join(", "),
        }
    };
    placed.devices.iter().map(item).collect()
}

/// Returns the owner of a device: the VM that the manifest gives it to, Gear1 of the GIC, Gear2 of
/// the console's UART. The manifest comes first, because a VM may own the boot UART.
fn device_owner(device: &Device, manifest: &Manifest<'_>, placed: &Placement) -> Owner {
    let vm = manifest.vms.iter().find(|vm| vm.devices.owns(&device.path));
    let uart = placed.board.uart.map(|uart| uart.base);
    let mut registers = device.registers.iter();
    let is_uart = registers.any(|region| Some(region.start) == uart);
    match vm {
        Some(vm) => Owner::Vm(vm.id.index()),
        None if device.is_gic => Owner::Gear1,
        None if is_uart => Owner::Gear2,
        None => Owner::Nobody,
    }
}

/// Returns the SPIs that somebody owns or a device has, with their trigger if they are owned.
/// INTIDs without owner and source are left out: a GIC implements hundreds of them.
fn interrupts(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Item> {
    let item = |intid: usize| {
        let what = sources_of(intid as u32, manifest, placed);
        let owner = match *placed.info.irq_owner.get(intid)? {
            IrqOwner::GEAR2 => Owner::Gear2,
            owner => owner.vm_index().map_or(Owner::Nobody, Owner::Vm),
        };
        let name = match owner {
            Owner::Nobody if what.is_empty() => return None,
            Owner::Nobody => format!("INTID {intid}"),
            _ => format!("INTID {intid}, {}", trigger(intid, placed)?),
        };
        Some(Item { name, owner, what })
    };
    (FIRST_SPI..MAX_INTIDS).filter_map(item).collect()
}

/// Returns what triggers an interrupt: the hand-over has a bit for each INTID, set for an edge. The
/// configuration is the hand-over's, which is what Gear1 writes into GICD_ICFGR.
fn trigger(intid: usize, placed: &Placement) -> Option<&'static str> {
    let word = *placed.info.irq_edge.get(intid / 32)?;
    let is_edge = word >> (intid % 32) & 1 != 0;
    Some(if is_edge { "edge" } else { "level" })
}

/// Returns what makes an interrupt pending: the paths of devices, and channels into VMs with
/// pass-through. With an emulated controller a channel's INTID is the VM's own, and no physical
/// interrupt.
fn sources_of(intid: u32, manifest: &Manifest<'_>, placed: &Placement) -> String {
    let devices = placed.devices.iter();
    let devices = devices.filter(|device| device.intids.contains(&intid));
    let paths = devices.map(|device| device.path.clone());
    let rings = |channel: &&Channel<'_>| {
        let to = manifest.vm_named(channel.to);
        channel.intid == intid && to.is_some_and(|to| to.gic == GicMode::PassThrough)
    };
    let channels = manifest.channels.iter().filter(rings);
    let channels = channels.map(|channel| format!("channel {}", channel.name));
    paths.chain(channels).collect::<Vec<_>>().join(", ")
}

/// Returns the line of a channel: its VMs, where each finds its end, and how often it interrupts.
/// The line has both ends, since a reader looks for one VM's address and the other's INTID. A power
/// button has no address, because Gear2 presses it.
fn channel(channel: &Channel<'_>) -> String {
    let Channel {
        name,
        from,
        to,
        ipa,
        intid,
        ..
    } = channel;
    let memory = channel
        .memory
        .map_or_else(String::new, |memory| format!(", memory {memory}"));
    let pace = match channel.min_interval_us.unwrap_or(0) {
        0 => "at any rate".to_owned(),
        interval => format!("at most once in {interval} us"),
    };
    let sender = if channel.power_button {
        "Gear2, as a power button,".to_owned()
    } else {
        format!("{from} at {ipa:#x}")
    };
    format!("{name}: {sender} rings {to} by INTID {intid}, {pace}{memory}")
}
