//! `check --report`: owners of a board's resources, and the free ones, as a table and as a picture.
//!
//! Owns no placement: the data comes from Gear1's init, run on this machine (`placement.rs`), and
//! from the manifest.

use std::fmt::Write as _;

use gear1_abi::boot::{IrqOwner, MAX_INTIDS};
use gear1_init::devices::Device;
use gear1_init::region::{Region, subtract};
use gearv_manifest::{CpuIndex, Manifest, Vm, VmKind};

use super::partition;
use crate::placement::Placement;

#[cfg(test)]
mod tests;

/// A line of the memory map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) region: Region,
    pub(super) owner: Owner,
    pub(super) what: String,
}

/// Owner of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    Firmware,
    Gear1,
    Gear2,
    /// The VM with this number.
    Vm(usize),
    /// Several VMs.
    Shared,
}

/// A line on a CPU, a device or an interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) what: String,
}

/// Everything on a board, with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) title: String,
    pub(super) vms: Vec<String>,
    pub(super) memory: Vec<Range>,
    pub(super) cpus: Vec<Item>,
    pub(super) devices: Vec<Item>,
    pub(super) interrupts: Vec<Item>,
    /// Mappings of each VM, as text.
    pub(super) partition: String,
}

impl Report {
    /// Makes the report of a manifest that init has placed.
    pub(super) fn new(title: &str, manifest: &Manifest<'_>, placed: &Placement) -> Report {
        Report {
            title: title.to_owned(),
            vms: manifest.vms.iter().map(|vm| vm.name.to_owned()).collect(),
            memory: memory(manifest, placed),
            cpus: cpus(manifest, placed),
            devices: devices(manifest, placed),
            interrupts: interrupts(placed),
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

    /// Returns the report as tables.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\nMemory\n", self.title);
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
        let left = self
            .memory
            .iter()
            .filter(|range| range.owner == Owner::Nobody);
        let left: u64 = left.map(|range| range.region.bytes()).sum();
        writeln!(text, "  left: {}", bytes(left)).expect("writing to a String does not fail");
        for (title, items) in [
            ("CPUs", &self.cpus),
            ("Devices", &self.devices),
            ("Interrupts", &self.interrupts),
        ] {
            text += &format!("\n{title}\n");
            let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0);
            for Item { name, owner, what } in items {
                let line = format!("  {name:width$}  {:20}  {what}", self.owner(*owner));
                text += &(line.trim_end().to_owned() + "\n");
            }
            let left = items.iter().filter(|item| item.owner == Owner::Nobody);
            writeln!(text, "  left: {}", left.count()).expect("as above");
        }
        text + "\nStage 2\n\n" + &self.partition
    }
}

/// Writes a size to a tenth of the unit that fits.
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

/// Returns the memory map: what has an owner, and the rest of each bank.
fn memory(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Range> {
    let info = &placed.info;
    let range = |region, owner, what: &str| Range {
        region,
        owner,
        what: what.to_owned(),
    };
    let of = |start, size| Region::new(start, start + size);
    let reserved = placed.board.reserved.iter();
    let mut list: Vec<Range> = reserved
        .map(|region| range(*region, Owner::Firmware, "reserved"))
        .collect();
    list.push(range(
        placed.init,
        Owner::Gear1,
        "init; wiped at boot, then nobody's",
    ));
    list.push(range(placed.archive, Owner::Gear1, "boot archive"));
    list.push(range(
        placed.device_tree,
        Owner::Gear1,
        "the board's device tree",
    ));
    let pool = of(info.pool, info.pool_size);
    list.push(range(pool, Owner::Gear1, "stage-2 tables"));
    let gear2 = info.gear2.image;
    list.push(range(of(gear2.pa, gear2.size), Owner::Gear2, "image"));
    for (vm, boot) in manifest.vms.iter().zip(&info.vms) {
        for region in boot.regions.iter().filter(|region| region.size != 0) {
            let what = match region.ipa == region.pa {
                true => "memory".to_owned(),
                false => format!("memory, at {:#x} in the VM", region.ipa),
            };
            let owner = Owner::Vm(vm.id.index());
            list.push(range(of(region.pa, region.size), owner, &what));
        }
    }
    for shared in manifest.shared.iter() {
        let names = shared.vms.iter().collect::<Vec<_>>().join(", ");
        let readers = shared
            .readers
            .iter()
            .map(|name| format!(", {name} (reads)"));
        let what = format!("{}: {names}{}", shared.name, readers.collect::<String>());
        list.push(range(shared.with_lead(), Owner::Shared, &what));
    }
    list.extend(
        placed
            .left
            .iter()
            .map(|region| range(*region, Owner::Nobody, "")),
    );
    let known: Vec<Region> = list.iter().map(|range| range.region).collect();
    let rest = subtract(&placed.board.memory, &known);
    let own = "runtime, Gear2's heap, what is shared, device trees";
    list.extend(rest.iter().map(|region| range(*region, Owner::Gear1, own)));
    list.sort_by_key(|range| (range.region.start, range.region.end));
    list
}

fn cpus(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Item> {
    let count = placed.board.cpus.len();
    let starts = |vm: &Vm<'_>, cpu: CpuIndex| {
        let here = |vcpu: &usize| manifest.start_cpu(vm, *vcpu, count) == Some(cpu);
        (0..vm.vcpu_count).filter(here).count()
    };
    let item = |(index, cpu): (usize, &gear1_init::fdt::Cpu)| {
        let place = CpuIndex::new(index)?;
        let alone = manifest
            .vms
            .iter()
            .find(|vm| vm.kind == VmKind::RealTime && vm.cpus.set().contains(place));
        let boot = placed.info.cpus.get(index)?;
        let owner = match alone {
            Some(vm) => Owner::Vm(vm.id.index()),
            None if boot.gear2 => Owner::Gear2,
            None => Owner::Nobody,
        };
        let starting = manifest
            .vms
            .iter()
            .filter_map(|vm| match starts(vm, place) {
                0 => None,
                1 => Some(vm.name.to_owned()),
                vcpus => Some(format!("{} ({vcpus} vCPUs)", vm.name)),
            });
        let starting: Vec<String> = starting.collect();
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
    placed
        .board
        .cpus
        .iter()
        .enumerate()
        .filter_map(item)
        .collect()
}

fn devices(manifest: &Manifest<'_>, placed: &Placement) -> Vec<Item> {
    let uart = placed.board.uart.map(|uart| uart.base);
    let owner = |device: &Device| {
        let vm = manifest.vms.iter().find(|vm| vm.devices.owns(&device.path));
        let is_uart = device
            .registers
            .iter()
            .any(|region| Some(region.start) == uart);
        match vm {
            Some(vm) => Owner::Vm(vm.id.index()),
            None if device.is_gic => Owner::Gear1,
            None if is_uart => Owner::Gear2,
            None => Owner::Nobody,
        }
    };
    let item = |device: &Device| {
        let regions = device.registers.iter();
        let regions = regions.map(|region| format!("{:#x}-{:#x}", region.start, region.end));
        let intids = device.intids.iter().map(|intid| format!("INTID {intid}"));
        Item {
            name: device.path.clone(),
            owner: owner(device),
            what: regions.chain(intids).collect::<Vec<_>>().join(", "),
        }
    };
    placed.devices.iter().map(item).collect()
}

fn interrupts(placed: &Placement) -> Vec<Item> {
    let devices_of = |intid: u32| {
        let devices = placed.devices.iter();
        let devices = devices.filter(|device| device.intids.contains(&intid));
        devices
            .map(|device| device.path.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let item = |intid: usize| {
        let owner = *placed.info.irq_owner.get(intid)?;
        let word = *placed.info.irq_edge.get(intid / 32)?;
        let what = devices_of(intid as u32);
        let owner = match owner.vm_index() {
            Some(vm) => Owner::Vm(vm),
            None if owner == IrqOwner::GEAR2 => Owner::Gear2,
            None if what.is_empty() => return None,
            None => Owner::Nobody,
        };
        let trigger = if word >> (intid % 32) & 1 != 0 {
            "edge"
        } else {
            "level"
        };
        let name = match owner {
            Owner::Nobody => format!("INTID {intid}"),
            Owner::Firmware | Owner::Gear1 | Owner::Gear2 | Owner::Shared | Owner::Vm(_) => {
                format!("INTID {intid}, {trigger}")
            }
        };
        Some(Item { name, owner, what })
    };
    (32..MAX_INTIDS).filter_map(item).collect()
}
