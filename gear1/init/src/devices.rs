//! Pass-through: which of the board's devices a VM owns, and with them which pages and interrupts.
//!
//! Owns the meaning of the manifest's `devices`. Invariants: no page and no interrupt that is given
//! away has another owner, nor is it memory or the interrupt controller's; only shared interrupts
//! of the GIC are given away. A device that is disabled in the tree is not there.
//!
//! Errors of the manifest are collected, so that a person sees all of them at once
//! (`cargo xtask check`). So is a device that is named, and whose node Gear1 cannot read or route:
//! the tree is good for everyone else. What the board's buses do wrong ends the walk: the rest of
//! the tree means nothing then.
//!
//! Requirements: G1-BOOT-005.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use gear1_abi::boot::BootMaster;
use gearv_manifest::blob::{Blob, Node, Texts};
use gearv_manifest::{AsBooted, DevicePatterns, Manifest, Rule, Vm, nearest};

use crate::fdt::bus::Bus;
use crate::fdt::smmu::{is_driven, is_ipmmu};
use crate::fdt::{Board, FIRST_SPI, Names, SPI, is_disabled, move_below, path_below, root_path};
use crate::refusal::{Fault, Refusal, refusal};
use crate::region::{Region, merged, pages};

pub(crate) mod as_booted;
mod conflicts;
mod functions;
mod inventory;
mod masters;
mod pci;
pub(crate) mod placed;
mod source;
mod streams;
#[cfg(test)]
mod tests;

pub use functions::{Bridge, Function};
pub use source::source_of;
pub use streams::Streams;

#[cfg(feature = "host")]
pub use inventory::{Device, bus_masters, inventory};

/// Compatible strings of a GIC.
static GIC: Texts = Texts::new(&["arm,gic-v3", "arm,gic-400", "arm,cortex-a15-gic"]);
/// Compatible strings of the GIC parts that have nodes of their own.
const GIC_PARTS: Texts = Texts::new(&["arm,gic-v3-its", "arm,gic-v2m-frame"]);
/// Nodes of the root whose `reg` is no register: addresses of memory, affinities, or nothing.
const NOT_DEVICES: &[&str] = &["reserved-memory", "cpus", "chosen", "aliases"];
/// Nodes of firmware's PSCI, which the VM's own replaces.
pub(crate) const PSCI: Texts = Texts::new(&["arm,psci", "arm,psci-0.2", "arm,psci-1.0"]);
/// Trigger types of an interrupt that are edges.
const EDGES: u32 = 0b11;

/// A shared interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// INTID.
    pub intid: u32,
    /// Whether the interrupt is edge-triggered.
    pub is_edge: bool,
}

/// Devices of the board that a VM owns.
#[derive(Clone, Debug)]
pub struct Owned<'a> {
    /// Patterns of the devices' paths.
    patterns: Vec<&'a str>,
    /// Registers, as whole pages, in order and without overlap.
    pub pages: Vec<Region>,
    /// Interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Bus masters, with the VM as their owner.
    pub masters: Vec<BootMaster>,
    /// Names of the nodes of `/bus-masters` that say how one of them is stopped.
    pub kinds: Vec<&'a str>,
    /// Devices that stay as firmware has left them.
    pub as_booted: Vec<AsBooted<'a>>,
    /// Streams of devices behind the SMMU.
    pub streams: Vec<Streams>,
    /// PCI functions that the VM owns apart from their bridge.
    pub functions: Vec<Function<'a>>,
    /// The bridge of these functions.
    pub bridge: Option<Bridge>,
}

impl Owned<'_> {
    /// Tells whether the node at `path`, or one above it, is the VM's.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let mut patterns = self.patterns.iter();
        // planted: a device's tree shows what is not its own
        patterns.any(|pattern| DevicePatterns::covers(pattern, path))
    }

    /// Tells whether a node below the one at `path` is the VM's.
    #[must_use]
    pub fn has_below(&self, path: &str) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| DevicePatterns::is_below(pattern, path))
    }

    /// Tells whether a device of the VM's has this interrupt, or may have: the bus alone tells
    /// which line a PCI function has.
    #[must_use]
    pub fn may_have_interrupt(&self, intid: u32) -> bool {
        let lines = self.functions.iter().flat_map(Function::interrupts);
        let mut interrupts = self.interrupts.iter().copied().chain(lines);
        interrupts.any(|interrupt| interrupt.intid == intid)
    }

    /// Returns the bridge at `path`, if the VM owns functions of it.
    #[must_use]
    pub fn bridge_at(&self, path: &str) -> Option<&Bridge> {
        self.bridge.as_ref().filter(|bridge| bridge.path == path)
    }

    /// Tells whether all of `region` is the VM's.
    #[must_use]
    pub fn contains(&self, region: &Region) -> bool {
        self.pages.iter().any(|page| page.contains(region))
    }
}

/// Finds what `vm` owns of the board that `tree` describes. `virtual_intids` are those of what
/// Gear1 emulates for it. What the manifest does wrong goes to `faults`, all of it.
pub fn resolve<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    virtual_intids: Range<u32>,
    tree: &Blob<'_>,
    board: &Board,
    faults: &mut Vec<Fault>,
) -> Result<Owned<'a>, Refusal> {
    let root = tree.root();
    let mut walk = Walk::new((manifest, vm), virtual_intids, root, faults);
    walk.gic_version = board.gic.version;
    walk.smmu = board
        .smmu
        .as_ref()
        .map(|smmu| smmu.names.clone())
        .unwrap_or_default();
    let bus = Bus::root(&root)?;
    let parent = cell(&root, "interrupt-parent");
    walk.visit(&root, &mut root_path(), Some(&bus), parent)?;
    if walk.shares_pages() {
        walk.note_sharers(&root, "", &bus)?;
    }
    walk.check_patterns();
    walk.check_trust();
    walk.check(board);
    Ok(walk.owned())
}

/// A walk over the board's tree for one VM, and what it has found so far.
struct Walk<'w, 'a, 't> {
    manifest: &'w Manifest<'a>,
    vm: &'w Vm<'a>,
    /// Root of the tree, where a phandle is looked up.
    root: Node<'t>,
    /// INTIDs of what Gear1 emulates for the VM.
    virtual_intids: Range<u32>,
    /// Node of the interrupt controller.
    gic: Option<Node<'t>>,
    /// Version of the interrupt controller.
    gic_version: u32,
    /// The registers that are given away, with the path of their node.
    given: Vec<(String, Region)>,
    interrupts: Vec<Interrupt>,
    masters: Vec<BootMaster>,
    /// Names of the nodes of `/bus-masters` that say how one of them is stopped.
    kinds: Vec<&'a str>,
    /// Devices that stay as firmware has left them.
    as_booted: Vec<AsBooted<'a>>,
    /// Streams of the devices that are given away, with the phandle of the SMMU of each.
    streams: Vec<(u32, Streams)>,
    /// PCI functions that are given away one by one, and their bridge.
    functions: Vec<Function<'a>>,
    bridge: Option<Bridge>,
    /// Names of the SMMU that Gear1 drives.
    smmu: Names,
    /// Devices that may reach all memory, and whose VM is not trusted with that.
    untrusted: Vec<String>,
    /// Other devices that may reach all memory, with their registers.
    neighbours: Vec<(String, Region)>,
    /// Patterns of the VM's devices.
    patterns: Vec<&'a str>,
    /// The patterns that stand for a node.
    matched: Vec<&'a str>,
    /// Errors of the manifest, those of other VMs included.
    faults: &'w mut Vec<Fault>,
}

impl<'w, 'a, 't> Walk<'w, 'a, 't> {
    /// Begins a walk of which nothing is found yet.
    fn new(
        (manifest, vm): (&'w Manifest<'a>, &'w Vm<'a>),
        virtual_intids: Range<u32>,
        root: Node<'t>,
        faults: &'w mut Vec<Fault>,
    ) -> Self {
        Self {
            manifest,
            vm,
            root,
            virtual_intids,
            gic: find_gic(&root),
            gic_version: 0,
            given: Vec::new(),
            interrupts: Vec::new(),
            masters: Vec::new(),
            kinds: Vec::new(),
            as_booted: Vec::new(),
            streams: Vec::new(),
            functions: Vec::new(),
            bridge: None,
            smmu: Names::default(),
            untrusted: Vec::new(),
            neighbours: Vec::new(),
            patterns: vm.devices.iter().collect(),
            matched: Vec::new(),
            faults,
        }
    }

    /// Ends the walk. Registers become whole pages, which is what stage 2 can give; two devices of
    /// the VM in one page are one range.
    fn owned(self) -> Owned<'a> {
        let streams = self.streams.iter();
        let streams = streams.filter_map(|(phandle, streams)| streams.of(&self.smmu, *phandle));
        let given = self.given.iter();
        let regions = given.map(|(_, region)| pages(region)).collect();
        Owned {
            patterns: self.patterns,
            pages: merged(regions),
            interrupts: self.interrupts,
            masters: self.masters,
            kinds: self.kinds,
            as_booted: self.as_booted,
            streams: streams.collect(),
            functions: self.functions,
            bridge: self.bridge,
        }
    }

    /// Looks at all nodes below this one; the blob's reader has bounded how deep they nest. Without
    /// a bus, `reg` below it is no address of the CPU's.
    fn visit(
        &mut self,
        node: &Node<'t>,
        path: &mut String,
        bus: Option<&Bus<'_, 't>>,
        parent: Option<u32>,
    ) -> Result<(), Refusal> {
        let length = path.len();
        for child in node.children() {
            let name = child.name();
            if length == 0 && NOT_DEVICES.contains(&name) {
                continue;
            }
            move_below(path, length, name);
            if !self.has_interest_in(path) {
                continue;
            }
            if is_disabled(&child) {
                self.note_disabled(&child, path, bus);
                continue;
            }
            let parent = cell(&child, "interrupt-parent").or(parent);
            self.resolve_node(&child, path, bus, parent)?;
            if pci::is_bridge(&child) && self.vm.devices.functions_of(path).next().is_some() {
                // Nodes below describe functions, which the bus tells of.
                self.give_functions(&child, path, bus);
                continue;
            }
            let ranges = child.property("ranges").zip(bus);
            match ranges {
                Some((ranges, bus)) => {
                    let below = bus.below(&child, ranges, path)?;
                    self.visit(&child, path, Some(&below), parent)?;
                }
                None => self.visit(&child, path, None, parent)?,
            }
        }
        Ok(())
    }

    /// Tells whether a node, or one below it, matters to the VM: one that the VM owns or, if the VM
    /// has what devices of others must not touch, any.
    fn has_interest_in(&self, path: &str) -> bool {
        let covers = |pattern: &&str| {
            DevicePatterns::covers(pattern, path) || DevicePatterns::is_below(pattern, path)
        };
        self.looks_at_all() || self.patterns.iter().any(covers)
    }

    /// Tells whether devices of other owners matter to the VM.
    fn looks_at_all(&self) -> bool {
        self.has_emulated() || self.is_judged()
    }

    /// Looks at a node, whoever owns it: any device may lie in the device VM's window, have an
    /// interrupt that Gear1 emulates devices with, or share a page with a guest's device. The VM
    /// gets the node only if a pattern names it, and other VMs need to know of no others.
    fn resolve_node(
        &mut self,
        node: &Node<'t>,
        path: &str,
        bus: Option<&Bus<'_, 't>>,
        parent: Option<u32>,
    ) -> Result<(), Refusal> {
        let covering = self.patterns.iter().copied();
        let covering = covering.filter(|pattern| DevicePatterns::covers(pattern, path));
        let mut is_owned = false;
        for pattern in covering {
            is_owned = true;
            if DevicePatterns::matches(pattern, path) {
                self.matched.push(pattern);
            }
        }
        if !is_owned && !self.looks_at_all() {
            return Ok(());
        }
        let regions = match bus {
            Some(bus) if pci::is_bridge(node) => pci::regions(node, path, bus),
            Some(bus) if node.property("reg").is_some() => bus.regions(node, path),
            Some(_) | None => Ok(Vec::new()),
        };
        let interrupts = if pci::is_bridge(node) {
            self.bridge_interrupts(node, path)
        } else {
            self.interrupts(node, path, parent)
        };
        self.check_hole(path, regions.as_deref().unwrap_or(&[]));
        // A distributor has each INTID once. An interrupt that no VM gets is in none.
        let is_bridge = pci::is_bridge(node);
        let is_given =
            |vm: &Vm<'_>| vm.devices.owns(path) || is_bridge && vm.devices.owns_below(path);
        if self.manifest.vms.iter().any(is_given) {
            self.check_virtual(path, interrupts.as_deref().unwrap_or(&[]))?;
        }
        // A damaged node of another owner is not this VM's to refuse.
        if !is_owned {
            self.note_neighbour(node, path, regions.as_deref().unwrap_or(&[]));
            return Ok(());
        }
        if let Err(unreadable) = self.give(node, path, regions, interrupts) {
            self.cannot_give(unreadable);
        }
        Ok(())
    }

    /// Gives a node's registers and interrupts to the VM, unless the node is Gear1's own. Only what
    /// is given has to be readable.
    fn give(
        &mut self,
        node: &Node<'t>,
        path: &str,
        regions: Result<Vec<Region>, Refusal>,
        interrupts: Result<Vec<Interrupt>, Refusal>,
    ) -> Result<(), Refusal> {
        if let Some(why) = keeps(node, self.gic_version) {
            self.refuse(path, why);
            return Ok(());
        }
        let regions = regions?.into_iter().filter(|region| region.bytes() != 0);
        let regions: Vec<Region> = regions.collect();
        self.note_master(node, path, regions.first());
        self.note_untrusted(node, path, regions.first());
        self.note_as_booted(node, path)?;
        self.streams.extend(streams::of(node, path, &self.root)?);
        self.given
            .extend(regions.into_iter().map(|region| (path.to_string(), region)));
        self.add_interrupts(interrupts?);
        Ok(())
    }

    /// Adds interrupts that the VM gets. Two devices of the VM may share one, which the runtime
    /// then knows once.
    fn add_interrupts(&mut self, interrupts: Vec<Interrupt>) {
        for interrupt in interrupts {
            if !self.interrupts.contains(&interrupt) {
                self.interrupts.push(interrupt);
            }
        }
    }

    /// Returns the node's shared interrupts. Those that go to another controller are left out: that
    /// controller is a device of the VM too, and its own interrupt at the GIC is what Gear1 routes.
    fn interrupts(
        &self,
        node: &Node<'_>,
        path: &str,
        parent: Option<u32>,
    ) -> Result<Vec<Interrupt>, Refusal> {
        let extended = node.property("interrupts-extended");
        let Some(property) = extended.or_else(|| node.property("interrupts")) else {
            return Ok(Vec::new());
        };
        let wrong = |what: &str| refusal!(Board, "{path}: {}: {what}", property.name());
        let mut cells = property
            .cells()
            .ok_or_else(|| wrong("not whole interrupts"))?;
        let mut list = Vec::new();
        while cells.len() != 0 {
            let parent = match extended {
                Some(_) => cells.next(),
                None => parent,
            };
            let gic = self.gic.filter(|gic| phandle(gic) == parent);
            let controller = match gic {
                Some(gic) => gic,
                // The lookup is slow, and nodes of other owners do not matter.
                None if !self.vm.devices.owns(path) => return Ok(list),
                None => self
                    .own_controller(parent)
                    .ok_or_else(|| wrong("goes neither to the GIC nor to a device of this VM"))?,
            };
            let specifier = specifier(&controller, &mut cells);
            let specifier = specifier.ok_or_else(|| wrong("not whole interrupts"))?;
            if gic.is_some() {
                let shared = shared(&specifier);
                list.push(shared.ok_or_else(|| wrong("not a shared interrupt of the GIC"))?);
            }
        }
        Ok(list)
    }

    /// Returns the interrupt controller with this phandle, if it is the VM's too: an interrupt of
    /// another owner's controller would not reach the VM.
    fn own_controller(&self, phandle: Option<u32>) -> Option<Node<'t>> {
        let (node, path) = find_path(&self.root, "", phandle?)?;
        self.vm.devices.owns(&path).then_some(node)
    }

    /// Refuses patterns that stand for no device, each with the path of the board that is nearest
    /// to it: most are misspelled.
    fn check_patterns(&mut self) {
        let matched = &self.matched;
        let missing = self.vm.devices.iter().filter(|one| !matched.contains(one));
        for pattern in missing {
            if NOT_DEVICES.contains(&pattern.trim_start_matches('/')) {
                let why = alloc::format!("{pattern}: it is no device");
                let fault = Fault::new(Rule::DeviceStays, self.vm.name, "devices", why);
                self.faults.push(fault);
                continue;
            }
            let fault = Fault::new(Rule::NoSuchDevice, self.vm.name, "devices", pattern);
            let mut paths = Vec::new();
            add_paths(&self.root, "", &mut paths);
            self.faults.push(Fault {
                nearest: nearest_pattern(pattern, paths.iter().map(String::as_str)),
                ..fault
            });
        }
    }

    /// Notes a device that stays where it is, with the reason.
    fn refuse(&mut self, path: &str, what: &str) {
        let why = alloc::format!("{path}: {what}");
        let fault = Fault::new(Rule::DeviceStays, self.vm.name, "devices", why);
        self.faults.push(fault);
    }
}

/// Returns why no VM may own a node, if none may. An ITS writes to memory that the VM names,
/// without a stage 2 in between. A PCI host bridge other than the generic one has registers of its
/// own, with which the VM could move its windows.
fn keeps(node: &Node<'_>, gic_version: u32) -> Option<&'static str> {
    if is_gic(node) || node.is_compatible(&GIC_PARTS) {
        Some("it is the interrupt controller's")
    } else if is_driven(node, gic_version) {
        Some("it is Gear1's, which drives it")
    } else if gic_version == 2 && is_ipmmu(node) {
        Some("it decides what bus masters reach, and Gear1 drives or closes it where it can")
    } else if pci::is_bridge(node) && !node.is_compatible(&pci::GENERIC) {
        Some("a PCI host bridge cannot be passed through, except for pci-host-ecam-generic")
    } else if node.is_compatible(&PSCI) {
        Some("it is firmware's, and each VM has Gear1's")
    } else {
        None
    }
}

/// Adds the paths of all enabled devices below a node.
fn add_paths(node: &Node<'_>, path: &str, paths: &mut Vec<String>) {
    let is_device = |node: &Node<'_>| !path.is_empty() || !NOT_DEVICES.contains(&node.name());
    let enabled = node.children().filter(|child| !is_disabled(child));
    for child in enabled.filter(is_device) {
        let path = path_below(path, child.name());
        paths.push(path.clone());
        add_paths(&child, &path, paths);
    }
}

/// Returns what a pattern that stands for no device was probably meant to be: the nearest of the
/// board's paths, of which a pattern with a star has the part before the unit address.
fn nearest_pattern<'s>(pattern: &str, seen: impl Iterator<Item = &'s str>) -> Option<String> {
    let Some(stem) = pattern.strip_suffix('*') else {
        return nearest(pattern, seen).map(str::to_string);
    };
    let stems = seen.filter_map(|path| path.rfind('@').and_then(|at| path.get(..=at)));
    nearest(stem, stems).map(|stem| alloc::format!("{stem}*"))
}

/// Takes the cells of one interrupt, as many as its controller says; `None` if there are fewer. A
/// count of 0 is none as well, since the caller's loop would never end.
fn specifier(controller: &Node<'_>, cells: &mut impl Iterator<Item = u32>) -> Option<Vec<u32>> {
    // `take` bounds what a count of the tree's can ask for: the cells that there are.
    let count = cell(controller, "#interrupt-cells").unwrap_or(0) as usize;
    let specifier: Vec<u32> = cells.by_ref().take(count).collect();
    (count != 0 && specifier.len() == count).then_some(specifier)
}

/// Returns the GIC's shared interrupt with this specifier. Private interrupts belong to a CPU, and
/// go on when the VM's vCPU does.
fn shared(specifier: &[u32]) -> Option<Interrupt> {
    let [SPI, number, flags, ..] = specifier else {
        return None;
    };
    // SPI 0 is INTID 32 (Arm IHI 0069, 2.2.1); the sum of a damaged number may wrap.
    let intid = number.checked_add(FIRST_SPI)?;
    // The virtual interrupt has the INTID of the physical one, so the guest's distributor must have
    // it.
    (intid < FIRST_SPI + gear1_core::vgic::MAX_SPIS as u32).then_some(Interrupt {
        intid,
        is_edge: flags & EDGES != 0,
    })
}

/// Returns the first node below `node`, itself included, that is one.
pub(crate) fn find<'t>(node: &Node<'t>, is_it: &dyn Fn(&Node<'t>) -> bool) -> Option<Node<'t>> {
    node.all().find(is_it)
}

/// Returns the board's interrupt controller.
pub(crate) fn find_gic<'t>(root: &Node<'t>) -> Option<Node<'t>> {
    root.all_compatible(&GIC).find(|node| !is_disabled(node))
}

/// Returns the node with this phandle, and its path.
fn find_path<'t>(node: &Node<'t>, path: &str, wanted: u32) -> Option<(Node<'t>, String)> {
    if phandle(node) == Some(wanted) {
        return Some((*node, path.to_string()));
    }
    node.children().find_map(|child| {
        let path = path_below(path, child.name());
        find_path(&child, &path, wanted)
    })
}

/// Tells whether the node is the interrupt controller.
pub(crate) fn is_gic(node: &Node<'_>) -> bool {
    node.is_compatible(&GIC) && !is_disabled(node)
}

/// Returns the node's phandle.
pub(crate) fn phandle(node: &Node<'_>) -> Option<u32> {
    node.phandle()
}

/// Returns a property of one cell. Inlined, as [`Node::property`] is.
#[inline(always)]
pub(crate) fn cell(node: &Node<'_>, name: &str) -> Option<u32> {
    node.property(name)?.cells()?.next()
}
