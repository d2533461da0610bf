//! Devices that master the bus: how each is stopped when its VM has, and whether a guest may have
//! it.
//!
//! A device tree does not tell every master, so a guest's devices are judged the other way round:
//! what is not known to leave memory alone, and is not behind the SMMU, counts as a master. The
//! device VM and real-time VMs are trusted with theirs (`docs/threat-model.md`).
//!
//! Requirements: G1-BOOT-005, G1-DMA-005.

use alloc::string::ToString;
use alloc::vec::Vec;

use gear1_abi::boot::{BootMaster, MAX_FUNCTIONS};
use gear1_abi::layout::PAGE_SIZE;
use gearv_manifest::blob::Node;
use gearv_manifest::{BusMaster, Manifest, Rule, VmKind};

use super::{NOT_DEVICES, Streams, Walk, pci, streams};
use crate::fdt::bus::Bus;
use crate::fdt::{Names, is_disabled, path_below};
use crate::refusal::{Fault, Refusal};
use crate::region::{Region, pages};

/// Compatible strings of devices that have no access to memory of their own: UARTs, clocks, GPIO,
/// timers, watchdogs and flash. A UART that names a DMA engine (`dmas`) is none either: the engine
/// is a device by itself, with an owner. The BCM2711's auxiliary UART shares its page with the
/// enables of the auxiliary devices and with two SPI controllers, which have no DMA.
const PASSIVE: &[&str] = &[
    "arm,pl011",
    "arm,pl031",
    "arm,pl061",
    "arm,sbsa-gwdt",
    "arm,sbsa-uart",
    "arm,sp804",
    "arm,sp805",
    "brcm,bcm2711-gpio",
    "brcm,bcm2835-aux",
    "brcm,bcm2835-aux-spi",
    "brcm,bcm2835-aux-uart",
    "brcm,bcm2835-gpio",
    "cfi-flash",
    "ns16550a",
    "xlnx,zynqmp-rtc",
];

/// Returns how a kind of device is stopped that GearV knows.
const fn stop(
    compatible: &'static str,
    offset: u32,
    [value, busy]: [u32; 2],
) -> BusMaster<'static> {
    BusMaster {
        name: "",
        compatible,
        offset,
        value,
        busy,
    }
}

/// Software Reset For All of an SD host controller, in the register of clock control, timeout and
/// software reset (SD Host Controller Simplified Specification 4.20, 2.2.15 and 2.2.17). The
/// controller clears the bit when the reset is done. The other fields are 0 after the reset.
const SDHCI_RESET: (u32, [u32; 2]) = (0x2c, [1 << 24; 2]);
/// Network control of a Cadence GEM, whose bits 2 and 3 enable reception and transmission (Zynq
/// UltraScale+ TRM, UG1085, GEM registers).
const GEM_STOP: (u32, [u32; 2]) = (0, [0, 0b1100]);

/// The devices that reach memory by themselves, as far as they can be stopped by a register. One
/// that is neither here nor in the manifest (`/bus-masters`) keeps on until its next driver finds
/// it. No device is here whose registers its VM can take the clock from: an access would hang the
/// CPU, or halt Gear1.
const MASTERS: &[BusMaster<'static>] = &[
    // A device is reset by 0 in Status, which reads as 0 when that is done (virtio 1.2, 2.4.2 and
    // 4.2.2).
    stop("virtio,mmio", 0x70, [0, u32::MAX]),
    stop("brcm,bcm2711-emmc2", SDHCI_RESET.0, SDHCI_RESET.1),
    stop("arasan,sdhci-8.9a", SDHCI_RESET.0, SDHCI_RESET.1),
    stop("xlnx,zynqmp-8.9a", SDHCI_RESET.0, SDHCI_RESET.1),
    stop("cdns,gem", GEM_STOP.0, GEM_STOP.1),
    stop("xlnx,zynqmp-gem", GEM_STOP.0, GEM_STOP.1),
    stop("cdns,zynqmp-gem", GEM_STOP.0, GEM_STOP.1),
];

/// Returns how the device of a node is stopped, if that is known. The manifest goes first: it knows
/// the board. Of each, the first word of `compatible` that is there counts: the words go from the
/// device itself to what it is like (Devicetree Specification 0.4, 2.3.1).
pub(super) fn stop_of<'a>(manifest: &Manifest<'a>, node: &Node<'_>) -> Option<BusMaster<'a>> {
    let own = words(node).find_map(|word| {
        let mut kinds = manifest.bus_masters.iter();
        kinds.find(|kind| kind.compatible.as_bytes() == word)
    });
    let known = || {
        words(node).find_map(|word| {
            let mut kinds = MASTERS.iter();
            kinds.find(|kind| kind.compatible.as_bytes() == word)
        })
    };
    // planted: a device is stopped by what GearV knows alone
    own.or_else(known).copied()
}

/// Iterates over the words of `compatible`, from the device itself to what it is like.
fn words<'t>(node: &Node<'t>) -> impl Iterator<Item = &'t [u8]> {
    let compatible = node
        .property("compatible")
        .map(|compatible| compatible.value);
    compatible
        .into_iter()
        .flat_map(|words| words.split(|byte| *byte == 0))
}

impl<'t> Walk<'_, '_, 't> {
    /// Notes how the device at `path` is stopped, if it masters the bus.
    pub(super) fn note_master(&mut self, node: &Node<'_>, path: &str, registers: Option<&Region>) {
        if pci::is_bridge(node) {
            self.note_bridge(path, registers);
            return;
        }
        let kind = stop_of(self.manifest, node);
        let (Some(kind), Some(registers)) = (kind, registers) else {
            return;
        };
        if !kind.name.is_empty() {
            self.kinds.push(kind.name);
        }
        let register = registers.start + u64::from(kind.offset);
        if !register.is_multiple_of(4) || register + 4 > registers.end {
            self.refuse(path, "it has no register to stop it by");
            return;
        }
        self.masters.push(BootMaster {
            register,
            value: kind.value,
            busy: kind.busy,
            vm: self.vm.id.reg() as u32,
            functions: 0,
        });
    }

    /// Tells whether another device may be in a page of the VM's devices.
    pub(super) fn shares_pages(&self) -> bool {
        let mut given = self.given.iter().map(|(_, region)| region);
        given.any(|region| pages(region) != *region)
    }

    /// Notes how the bus masters are stopped that nobody names in the pages of the VM's devices: the
    /// VM reaches them all the same, and what it starts there has to stop with it.
    pub(super) fn note_sharers(
        &mut self,
        node: &Node<'t>,
        path: &str,
        bus: &Bus<'_, 't>,
    ) -> Result<(), Refusal> {
        let enabled = node.children().filter(|child| !is_disabled(child));
        for child in enabled.filter(|child| !NOT_DEVICES.contains(&child.name())) {
            let path = path_below(path, child.name());
            // planted: a bus master beside a VM's device goes on
            if !self.vm.devices.owns(&path) && stop_of(self.manifest, &child).is_some() {
                let regions = bus.regions(&child, &path).unwrap_or_default();
                let first = regions.first().filter(|region| self.has_page_of(region));
                if first.is_some() {
                    self.note_master(&child, &path, first);
                }
            }
            if let Some(ranges) = child.property("ranges") {
                let below = bus.below(&child, ranges, &path)?;
                self.note_sharers(&child, &path, &below)?;
            }
        }
        Ok(())
    }

    /// Tells whether a page of these registers is the VM's.
    fn has_page_of(&self, registers: &Region) -> bool {
        let mut given = self.given.iter();
        given.any(|(_, own)| pages(own).overlaps(&pages(registers)))
    }

    /// Notes that the functions of the bridge's first bus are stopped in configuration space. A
    /// bridge among them passes nothing up any longer, whatever is behind it.
    fn note_bridge(&mut self, path: &str, space: Option<&Region>) {
        let pages = space.filter(|space| space.start.is_multiple_of(PAGE_SIZE));
        let functions = pages.map_or(0, |space| space.bytes() / PAGE_SIZE);
        let Some((space, 1..)) = space.zip(u32::try_from(functions).ok()) else {
            self.refuse(
                path,
                "it has no configuration space to stop its functions by",
            );
            return;
        };
        self.masters.push(BootMaster {
            register: space.start,
            value: 0,
            busy: 0,
            vm: self.vm.id.reg() as u32,
            functions: (functions as u32).min(MAX_FUNCTIONS),
        });
    }

    /// Tells whether the VM is a guest that the manifest does not trust with all memory.
    pub(super) const fn is_judged(&self) -> bool {
        matches!(self.vm.kind, VmKind::Guest) && !self.vm.trusts_dma
    }

    /// Tells whether a device may reach memory that is not its VM's.
    fn may_reach_all(&self, node: &Node<'_>) -> bool {
        !is_passive(node) && !is_translated(node, &self.root, &self.smmu)
    }

    /// Notes a device of a guest that may reach all memory, unless the manifest trusts the guest
    /// with that. A node without registers is no device.
    pub(super) fn note_untrusted(
        &mut self,
        node: &Node<'_>,
        path: &str,
        registers: Option<&Region>,
    ) {
        // planted: a guest has a bus master that nothing keeps back
        if self.is_judged() && registers.is_some() && self.may_reach_all(node) {
            self.untrusted.push(path.to_string());
        }
    }

    /// Notes a device that is not the guest's, and that a page of the guest's devices may hold.
    pub(super) fn note_neighbour(&mut self, node: &Node<'_>, path: &str, registers: &[Region]) {
        if self.is_judged() && !registers.is_empty() && self.may_reach_all(node) {
            let registers = registers.iter();
            let neighbours = registers.map(|region| (path.to_string(), pages(region)));
            self.neighbours.extend(neighbours);
        }
    }

    /// Notes a device that the tree disables, which nobody gets by its name. Its registers are in
    /// the page all the same, and a guest that finds them there can set the device up.
    pub(super) fn note_disabled(&mut self, node: &Node<'_>, path: &str, bus: Option<&Bus<'_, '_>>) {
        if self.is_judged() && node.property("reg").is_some() {
            let registers = bus.and_then(|bus| bus.regions(node, path).ok());
            self.note_neighbour(node, path, &registers.unwrap_or_default());
        }
    }

    /// Refuses a guest's devices that may reach all memory, and those that share a page with such a
    /// one, which the guest then has too. A pattern may stand for dozens of devices, so the first is
    /// named and the others are counted.
    pub(super) fn check_trust(&mut self) {
        let given = |page: &Region| {
            let mut given = self.given.iter();
            given.any(|(_, own)| pages(own).overlaps(page))
        };
        let neighbours = self.neighbours.iter().filter(|(_, page)| given(page));
        let neighbours = neighbours.map(|(path, _)| alloc::format!("{path}, by its page"));
        let mut untrusted = self.untrusted.iter().cloned().chain(neighbours);
        let Some(first) = untrusted.next() else {
            return;
        };
        let why = match untrusted.count() {
            0 => first,
            count => alloc::format!("{first}, and {count} more"),
        };
        let fault = Fault::new(Rule::DmaUntrusted, self.vm.name, "devices", why);
        self.faults.push(fault);
    }
}

/// Tells whether a device is known to leave memory alone. The first word of `compatible` is the
/// device's own, and those behind it are devices that it is like (Devicetree Specification 0.4,
/// 2.3.1). It may do more than these: a `brcm,bcm7271-uart` is an `ns16550a` with a DMA engine.
fn is_passive(node: &Node<'_>) -> bool {
    let first = words(node).next();
    first.is_some_and(|first| PASSIVE.iter().any(|name| name.as_bytes() == first))
}

/// Tells whether all accesses of a device, or of all functions behind a bridge, go through this
/// SMMU.
pub(super) fn is_translated(node: &Node<'_>, root: &Node<'_>, smmu: &Names) -> bool {
    if pci::is_bridge(node) {
        return streams::rows(node).is_some_and(|rows| covers(node, smmu, rows));
    }
    let own = streams::own(node, root).unwrap_or_default();
    let is_behind = |(phandle, streams): &(u32, Streams)| streams.of(smmu, *phandle).is_some();
    !own.is_empty() && own.iter().all(is_behind)
}

/// Tells whether `iommu-map` leads each requester ID of the bridge's buses to this SMMU: 256 a bus.
fn covers(bridge: &Node<'_>, smmu: &Names, mut rows: Vec<streams::Row>) -> bool {
    let Some((first, last)) = pci::buses(bridge) else {
        return false;
    };
    rows.retain(|(_, named, streams)| streams.of(smmu, *named).is_some());
    rows.sort_by_key(|(requester, ..)| *requester);
    let begin = u64::from(first) << 8;
    let reached = rows.iter().fold(begin, |reached, (requester, _, streams)| {
        let start = u64::from(*requester);
        let end = start + u64::from(streams.count);
        if start <= reached {
            reached.max(end)
        } else {
            reached
        }
    });
    reached >= (u64::from(last) + 1) << 8
}
