//! The device tree of a VM that owns devices: the board's own, as firmware left it, with the nodes
//! of other owners disabled or left out, and with Gear1's additions.
//!
//! Nodes are copied in their order, phandles included; memory, CPUs, PSCI and `/chosen` describe
//! the VM. Invariant: a device that the VM does not own is disabled or left out, except for the
//! interrupt controller, the timer and fixed clocks.
//!
//! A disabled node stays in the tree if it or a node below has a phandle, by which others may refer
//! to it: clocks, regulators and interrupt controllers of devices that the VM does own. So does one
//! that an alias names. A board has dozens of others, which no guest needs. Stage 2 protects other
//! owners' devices whatever the tree says; the tree spares the guest's drivers the faults.
//!
//! Requirements: G1-BOOT-006.

use alloc::string::String;
use alloc::vec::Vec;

use gear1_abi::boot::BootPl061;
use gear1_core::seed::SEED_SIZE;
use gearv_manifest::blob::{Blob, Node, Texts};
use gearv_manifest::{ChannelEnd, DevicePatterns, VirtioDevice, VirtioKind, Vm, VmKind};

use crate::devices::{self, Bridge, Owned};
use crate::fdt::bus::cell_counts;
use crate::fdt::{FIRST_SPI, PMUS, is_of_type, move_below, root_path, stdout_path};
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

mod as_booted;
mod emulated;
mod writer;
use emulated::uart_name;
use writer::Writer;

#[cfg(test)]
mod tests;

/// Compatible strings of nodes that stay enabled without an owner, beside the interrupt controller:
/// a guest has the timer of each CPU it runs on, and a fixed clock is a number without registers.
const ENABLED: Texts = Texts::new(&["arm,armv8-timer", "arm,armv7-timer", "fixed-clock"]);
/// Nodes of the root that init writes anew.
const REPLACED: &[&str] = &["chosen", "cpus", "gearv"];
/// Nodes of the root that describe no devices. Aliases may name disabled nodes, which drivers then
/// skip; reservations lie outside of the VM's memory.
const COPIED: &[&str] = &["aliases", "reserved-memory"];
/// Properties of a CPU node that describe only the physical CPU.
///
/// Affinity and the way to turn a CPU on are the VM's. Clocks, supplies, operating points and power
/// domains belong to nodes of other owners, and a driver that changed them would change the CPU of
/// other VMs. An idle state would be entered by a call that Gear1 answers otherwise.
const CPU_DROPPED: &[&str] = &[
    "reg",
    "enable-method",
    "cpu-release-addr",
    "cpu-idle-states",
    "clocks",
    "cpu-supply",
    "operating-points",
    "operating-points-v2",
    "power-domains",
    "power-domain-names",
    "status",
];
/// Properties that a disabled node loses. Linux probes each GICv2m frame that is an MSI controller,
/// whatever its status.
const DISABLED_DROPPED: &[&str] = &["status", "msi-controller"];
/// Properties that a VM's device loses. The SMMU is Gear1's, and to the VM the device has the
/// addresses of its CPUs. Messages to the interrupt controller abort, so that INTx is left.
const OWNED_DROPPED: &[&str] = &[
    "iommus",
    "iommu-map",
    "iommu-map-mask",
    "msi-map",
    "msi-map-mask",
    "msi-parent",
];
/// Property of a host bridge, and of `/chosen` for Linux before 6.12: BARs stay as they are.
const PROBE_ONLY: &str = "linux,pci-probe-only";
const RNG_SEED_SIZE: usize = 32;
/// Trigger types of an interrupt specifier.
const EDGE_RISING: u32 = 1;
const LEVEL_HIGH: u32 = 4;
/// A virtio device, as the device model sees it.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// Index of the channel that the device's notifications come by.
    pub channel: u32,
    /// Name of the VM that uses the device.
    pub vm: &'a str,
    /// Configuration from the manifest.
    pub device: VirtioDevice<'a>,
    /// Address of that VM's memory in that VM (IPA).
    pub guest_ipa: u64,
    /// Range of that VM's memory in the device VM (IPA).
    pub guest: Region,
    /// Index of that VM's register page.
    pub page: u32,
}

/// Facts about the VM that init has established before it writes the tree.
#[derive(Clone, Debug)]
pub struct Facts<'f, 'a> {
    /// The VM.
    pub vm: &'f Vm<'a>,
    /// Devices that the VM owns.
    pub owned: &'f Owned<'a>,
    /// Memory of the VM.
    pub memory: Region,
    /// Initial RAM disk; empty if there is none.
    pub initrd: Region,
    /// Kernel command line.
    pub bootargs: &'a str,
    /// `rng-seed`, then `kaslr-seed`.
    pub seed: [u8; SEED_SIZE],
    /// Emulated PL061 blocks.
    pub pl061: &'f [BootPl061],
    /// Virtio devices of the VM's own.
    pub virtio: &'f [VirtioDevice<'a>],
    /// Memory that device-dax offers to userspace, with the metadata that describes it.
    pub slices: &'f [Region],
    /// Doorbells of the VM.
    pub channels: &'f [ChannelEnd<'a>],
    /// Region shared with Gear2; only the device VM has one.
    pub control: Option<Region>,
    /// Virtio devices that the device model serves.
    pub served: &'f [Served<'a>],
}

/// Returns the tree of a VM that owns devices, made from the board's.
pub fn make(board: &Blob<'_>, facts: &Facts<'_, '_>) -> Result<Vec<u8>, Refusal> {
    let root = board.root();
    let mut maker = Maker::new(board, facts)?;
    maker.out.begin("");
    maker.root(&root);
    maker.chosen(&root);
    maker.memory()?;
    maker.cpus(&root)?;
    maker.psci();
    maker.additions()?;
    maker.gearv();
    maker.copy(&root, &mut root_path());
    maker.out.end();
    Ok(maker.out.finish())
}

/// A tree in the making, with what its nodes need to know of the board's.
struct Maker<'f, 'a> {
    facts: &'f Facts<'f, 'a>,
    out: Writer,
    /// `#address-cells` and `#size-cells` of the root.
    cells: (u32, u32),
    /// Paths of the board's `/aliases`.
    aliases: Vec<&'f str>,
    gic_phandle: Option<u32>,
    /// Cells of the interrupt controller's specifiers: type, number, trigger; a fourth is a PPI's
    /// set of CPUs.
    interrupt_cells: u32,
    /// First phandle that no node of the board has.
    next_phandle: u32,
}

impl<'f, 'a> Maker<'f, 'a> {
    /// Takes in the board's tree. New phandles begin behind its highest, so that no reference of
    /// the board's leads to a node of Gear1's.
    fn new(board: &Blob<'f>, facts: &'f Facts<'f, 'a>) -> Result<Self, Refusal> {
        let root = &board.root();
        let aliases = root.child("aliases").into_iter();
        let aliases = aliases.flat_map(|node| node.properties());
        let gic = devices::find_gic(root);
        let gic = gic.ok_or_else(|| refusal!(Board, "/: no interrupt controller"))?;
        Ok(Self {
            facts,
            out: Writer::new(board),
            cells: cell_counts(root, "/")?,
            aliases: aliases.filter_map(|alias| alias.text()).collect(),
            gic_phandle: devices::phandle(&gic),
            interrupt_cells: devices::cell(&gic, "#interrupt-cells")
                .map_or(3, |count| count.clamp(3, 4)),
            next_phandle: root.highest_phandle().saturating_add(1),
        })
    }

    /// Copies the properties of the root. `compatible` stays the board's, by which drivers choose;
    /// a guest reads its name in `model`, as in a tree of xtask's.
    fn root(&mut self, root: &Node<'_>) {
        let vm = self.facts.vm;
        if vm.kind != VmKind::Guest {
            self.out.properties(root, &[]);
            return;
        }
        self.out.properties(root, &["model"]);
        let model = alloc::format!("GearV VM {}", vm.name);
        self.out.text("model", &model);
    }

    /// Copies the nodes below `node`, but for those that are written anew; those that are not the
    /// VM's are disabled or left out.
    fn copy(&mut self, node: &Node<'_>, path: &mut String) {
        let length = path.len();
        let is_root = length == 0;
        for child in node.children() {
            let name = child.name();
            let is_memory = || is_of_type(&child, "memory");
            let replaced = is_root && (REPLACED.contains(&name) || is_memory());
            if replaced || child.is_compatible(&devices::PSCI) {
                continue;
            }
            let copied = is_root && COPIED.contains(&name);
            move_below(path, length, name);
            self.copy_node(&child, path, copied);
        }
    }

    /// Copies a node with all below it: as it is if it is the VM's or `copied`, with a look at each
    /// node below if it stays enabled, and disabled otherwise. A disabled node that no other node
    /// refers to is left out.
    fn copy_node(&mut self, node: &Node<'_>, path: &mut String, copied: bool) {
        if copied {
            self.out.begin(node.name());
            self.out.properties(node, &[]);
            self.out.children(node);
        } else if self.facts.owned.has(path) {
            self.out.begin(node.name());
            self.own(node, path, false);
        } else if let Some(bridge) = self.facts.owned.bridge_at(path) {
            self.out.begin(node.name());
            self.bridge(node, bridge);
        } else if self.stays(node, path) {
            self.out.begin(node.name());
            self.out.properties(node, &[]);
            self.copy(node, path);
        } else if node.highest_phandle() != 0 || self.has_alias(path) {
            self.out.begin(node.name());
            self.out.properties(node, DISABLED_DROPPED);
            self.out.text("status", "disabled");
            self.out.children(node);
        } else {
            return;
        }
        self.out.end();
    }

    /// Tells whether a node that is not the VM's stays enabled: one that is no device, a bus with a
    /// device of the VM's below, or one that every guest has.
    fn stays(&self, node: &Node<'_>, path: &str) -> bool {
        let is_device = node.has_compatible() || node.property("reg").is_some();
        !is_device
            || devices::is_gic(node)
            || node.is_compatible(&ENABLED)
            || self.facts.vm.pmu && node.is_compatible(&PMUS)
            || self.facts.owned.has_below(path)
    }

    /// Tells whether an alias names the node at `path`, or one below it: Linux numbers devices
    /// behind the aliases of nodes that are there.
    fn has_alias(&self, path: &str) -> bool {
        let mut aliases = self.aliases.iter();
        aliases.any(|named| DevicePatterns::covers(path, named))
    }

    /// Writes the host bridge of PCI functions that the VM owns: of its buses the first, where the
    /// functions are and where they stay. What the tree says of functions is of all owners'.
    fn bridge(&mut self, node: &Node<'_>, bridge: &Bridge) {
        let dropped = [OWNED_DROPPED, &["bus-range", PROBE_ONLY]].concat();
        self.out.properties(node, &dropped);
        self.out.cells("bus-range", &[bridge.first_bus; 2]);
        self.out.cells(PROBE_ONLY, &[1]);
    }

    /// Writes `/chosen`: what a boot loader would tell a kernel. The console is the emulated one,
    /// or the board's if the VM owns that.
    fn chosen(&mut self, root: &Node<'_>) {
        let facts = self.facts;
        self.out.begin("chosen");
        self.out.text("bootargs", facts.bootargs);
        let uart = facts.vm.console.map(uart_name);
        let board_uart = stdout_path(root).filter(|path| facts.owned.has(path));
        if let Some(uart) = uart {
            self.out.text("stdout-path", &alloc::format!("/{uart}"));
        } else if let Some(path) = board_uart {
            self.out.text("stdout-path", path);
        }
        if facts.initrd.bytes() != 0 {
            self.out.longs("linux,initrd-start", &[facts.initrd.start]);
            self.out.longs("linux,initrd-end", &[facts.initrd.end]);
        }
        if facts.owned.bridge.is_some() {
            self.out.cells(PROBE_ONLY, &[1]);
        }
        let (rng, kaslr) = facts.seed.split_at(RNG_SEED_SIZE);
        self.out.property("rng-seed", rng);
        self.out.property("kaslr-seed", kaslr);
        self.out.end();
    }

    /// Writes the VM's memory. The board's nodes are left out: a kernel takes all memory it is told
    /// of.
    fn memory(&mut self) -> Result<(), Refusal> {
        let memory = self.facts.memory;
        self.out.begin(&alloc::format!("memory@{:x}", memory.start));
        self.out.text("device_type", "memory");
        self.reg(memory)?;
        self.out.end();
        Ok(())
    }

    /// Writes as many CPUs as the VM has, each after the board's CPU in its place. A VM with more
    /// CPUs than the board repeats the last: the model matters to drivers, and the number to the
    /// scheduler.
    fn cpus(&mut self, root: &Node<'_>) -> Result<(), Refusal> {
        let Some(cpus) = root.child("cpus") else {
            return Err(refusal!(Board, "/: no node \"cpus\""));
        };
        let (address_cells, _) = cell_counts(&cpus, "/cpus")?;
        let is_cpu = |node: &Node<'_>| is_of_type(node, "cpu");
        let models: Vec<Node<'_>> = cpus.children().filter(is_cpu).collect();
        self.out.begin("cpus");
        self.out.properties(&cpus, &[]);
        for index in 0..self.facts.vm.vcpu_count {
            let Some(model) = models.get(index).or(models.last()) else {
                break;
            };
            let is_again = index >= models.len();
            self.cpu(model, index as u32, is_again, address_cells);
        }
        self.caches(&cpus);
        self.out.end();
        Ok(())
    }

    /// Copies the caches, which CPUs name by phandle. Idle states and the map of all CPUs describe
    /// the physical CPUs, which the VM does not have all of, nor for itself.
    fn caches(&mut self, cpus: &Node<'_>) {
        let is_cpu = |node: &Node<'_>| is_of_type(node, "cpu");
        let kept = |node: &Node<'_>| node.has_compatible() && !is_cpu(node);
        for child in cpus.children().filter(kept) {
            self.out.begin(child.name());
            self.out.properties(&child, &[]);
            self.out.children(&child);
            self.out.end();
        }
    }

    /// Writes the node of a vCPU after the board's CPU in its place. A physical CPU that models two
    /// vCPUs has its phandle only in the first.
    fn cpu(&mut self, model: &Node<'_>, index: u32, is_again: bool, address_cells: u32) {
        self.out.begin(&alloc::format!("cpu@{index:x}"));
        let again: &[&str] = match is_again {
            true => &["phandle", "linux,phandle"],
            false => &[],
        };
        self.out.properties(model, &[CPU_DROPPED, again].concat());
        let reg = [0, index];
        let reg = if address_cells == 2 { &reg } else { &reg[1..] };
        self.out.cells("reg", reg);
        self.out.text("enable-method", "psci");
        self.out.end();
    }

    /// Writes PSCI, which Gear1 answers: by HVC, as an SMC could be meant for firmware.
    fn psci(&mut self) {
        self.out.begin("psci");
        self.out.text("compatible", "arm,psci-1.0\0arm,psci-0.2");
        self.out.text("method", "hvc");
        self.out.end();
    }

    /// Writes what Gear1 adds to the machine: emulated devices, memory of others, doorbells.
    fn additions(&mut self) -> Result<(), Refusal> {
        let facts = self.facts;
        self.emulated()?;
        self.clocks_as_booted();
        for slice in facts.slices {
            self.slice(*slice)?;
        }
        for channel in facts.channels {
            self.channel(channel)?;
        }
        Ok(())
    }

    /// Writes memory that device-dax offers. Without `volatile` Linux would flush each write to it
    /// as to a persistent medium.
    fn slice(&mut self, slice: Region) -> Result<(), Refusal> {
        self.out
            .begin(&alloc::format!("pmem-region@{:x}", slice.start));
        self.out.text("compatible", "pmem-region");
        self.reg(slice)?;
        self.out.property("volatile", &[]);
        self.out.end();
        Ok(())
    }

    /// Writes a channel: the doorbell's page, the interrupt and the memory that the VM has of it.
    fn channel(&mut self, end: &ChannelEnd<'_>) -> Result<(), Refusal> {
        let name = match end.unit_address() {
            Some(address) => alloc::format!("{}@{address:x}", end.name),
            None => end.name.into(),
        };
        self.out.begin(&name);
        self.out.text("compatible", &end.compatible().join("\0"));
        // Linux' UIO would name its device by the node, with the address behind the name.
        self.out.text(ChannelEnd::UIO_NAME, end.name);
        let (names, ranges): (Vec<&str>, Vec<Region>) = end.registers().unzip();
        if !ranges.is_empty() {
            self.regs(&ranges)?;
            self.out.text("reg-names", &names.join("\0"));
        }
        if let Some(intid) = end.intid {
            self.interrupt(intid, EDGE_RISING);
            self.out.text("label", end.name);
            self.key(end, intid);
        }
        self.out.end();
        Ok(())
    }

    /// Writes the key by which Linux' gpio-keys shows a channel's interrupt to a program.
    fn key(&mut self, end: &ChannelEnd<'_>, intid: u32) {
        self.out.begin(ChannelEnd::KEY_NODE);
        self.out.text("label", end.name);
        self.out.cells("linux,code", &[end.key()]);
        // A key that is held for a while would hide the interrupts that follow.
        self.out.cells("debounce-interval", &[0]);
        self.interrupt(intid, EDGE_RISING);
        self.out.end();
    }

    /// Writes `reg` and the interrupt of a device that Gear1 emulates.
    fn registers(&mut self, ipa: u64, intid: u32) -> Result<(), Refusal> {
        self.reg(Region::new(ipa, ipa + gear1_abi::layout::PAGE_SIZE))?;
        self.interrupt(intid, LEVEL_HIGH);
        Ok(())
    }

    /// Writes an interrupt at the GIC.
    fn interrupt(&mut self, intid: u32, trigger: u32) {
        let mut interrupt = alloc::vec![0, intid.saturating_sub(FIRST_SPI), trigger];
        interrupt.resize(self.interrupt_cells as usize, 0);
        self.out.cells("interrupts", &interrupt);
        if let Some(gic) = self.gic_phandle {
            self.out.cells("interrupt-parent", &[gic]);
        }
    }

    /// Writes what the device model reads.
    fn gearv(&mut self) {
        let facts = self.facts;
        let both = |region: &Region| [region.start, region.bytes()];
        let Some(control) = facts.control else {
            return;
        };
        self.out.begin("gearv");
        self.out.text("compatible", "gearv,device-vm");
        self.out.longs("control", &both(&control));
        self.out.longs("window", &both(&facts.vm.window()));
        for served in facts.served {
            self.served(served);
        }
        self.out.end();
    }

    /// Writes a device that the device model serves: where its guest's memory and registers are in
    /// the device VM, and what the manifest says of it.
    fn served(&mut self, served: &Served<'_>) {
        let device = &served.device;
        self.out
            .begin(&alloc::format!("device@{:x}", served.channel));
        self.out.cells("channel", &[served.channel]);
        self.out.text("vm", served.vm);
        self.out.cells("vm-id", &[device.vm.reg() as u32]);
        let kind = device.kind.map_or("", VirtioKind::name);
        self.out.text("type", kind);
        self.backend(device);
        self.service(device);
        let guest = [served.guest_ipa, served.guest.start, served.guest.bytes()];
        self.out.longs("guest-memory", &guest);
        let registers = [served.page, device.offset() as u32];
        self.out.cells("register-page", &registers);
        self.out.end();
    }

    /// Writes what the device model opens for a device, and what its guest sees of that. A path and
    /// a socket share a name: the device model tells them apart by the type.
    fn backend(&mut self, device: &VirtioDevice<'_>) {
        if let Some(backend) = device.backend {
            self.out.text("backend", backend);
        }
        if let Some(socket) = device.socket {
            self.out.text("backend", socket);
        }
        if device.kind == Some(VirtioKind::VhostUser) {
            self.vhost_user(device);
        }
        if let Some(cid) = device.cid {
            self.out.cells("cid", &[cid]);
        }
        if device.read_only {
            self.out.property("read-only", &[]);
        }
        if let Some(mac) = device.mac_bytes() {
            self.out.property("mac", &mac);
        }
    }

    /// Writes what the device model has to know of a disk or a network card of its own. The label
    /// is the name by which a person knows the device.
    fn service(&mut self, device: &VirtioDevice<'_>) {
        self.out.text("label", device.name);
        if let Some(serial) = device.service.serial {
            self.out.text("serial", serial);
        }
        if let Some(mtu) = device.service.mtu {
            self.out.cells("mtu", &[mtu]);
        }
        let is_served = matches!(device.kind, Some(VirtioKind::Block | VirtioKind::Net));
        if let Some(queues) = device.vhost_user.queues.filter(|_| is_served) {
            self.out.cells("queues", &[queues]);
        }
        if let Some(limits) = device.service.limits() {
            self.out.cells("limits", &limits);
        }
    }

    /// Writes what the device model has to know of a device whose function is another program.
    fn vhost_user(&mut self, device: &VirtioDevice<'_>) {
        let vhost_user = &device.vhost_user;
        let (queues, config) = (vhost_user.queue_count(), vhost_user.config_bytes());
        self.out
            .cells("vhost-user", &[device.device_id(), queues, config]);
        if let Some(tag) = vhost_user.tag {
            self.out.text("tag", tag);
        }
        if let Some(time) = vhost_user.timeout_ms {
            self.out.cells("timeout-ms", &[time]);
        }
        for (name, list) in [("command", vhost_user.command), ("files", vhost_user.files)] {
            if !list.is_empty() {
                self.out.property(name, list.bytes());
            }
        }
    }

    /// Writes a `reg` below the root, in as many cells as the board's root has. A number that does
    /// not fit is refused: cut off, it would be another address.
    fn reg(&mut self, region: Region) -> Result<(), Refusal> {
        self.regs(&[region])
    }

    fn regs(&mut self, regions: &[Region]) -> Result<(), Refusal> {
        let mut cells = Vec::new();
        let counts = self.cells;
        let numbers = regions
            .iter()
            .flat_map(|region| [(region.start, counts.0), (region.bytes(), counts.1)]);
        for (number, count) in numbers {
            let words = [0, (number >> 32) as u32, number as u32];
            let left_out = words.len() - (count as usize).min(words.len());
            if words.iter().take(left_out).any(|word| *word != 0) {
                return Err(refusal!(
                    Board,
                    "/: #address-cells: {number:#x} has no room in {count} cells"
                ));
            }
            cells.extend(words.iter().skip(left_out));
        }
        self.out.cells("reg", &cells);
        Ok(())
    }
}
