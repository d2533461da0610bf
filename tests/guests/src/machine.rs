//! The machine that the device tree describes.

use core::ops::Range;

use gearv_manifest::blob::{Blob, Node};

use crate::mmio::read32;
use crate::psci;

/// Architecture of the interrupt controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Memory-mapped CPU interface (Arm IHI 0048).
    V2,
    /// Redistributors and system registers (Arm IHI 0069).
    #[default]
    V3,
}

/// Description of the machine that a guest runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// RAM: one range.
    pub ram: Range<u64>,
    /// Architecture of the interrupt controller.
    pub gic: Version,
    /// GIC distributor.
    pub gicd: Range<u64>,
    /// Redistributors (GICv3), or the CPU interface (GICv2).
    pub gic_cpus: Range<u64>,
    /// Address of the PL011; 0: the machine has none, and the guest prints nothing.
    pub uart: u64,
    /// The PL011's INTID.
    pub uart_intid: u32,
    /// Whether the UART has only the PL011's registers that SBSA names: Xen's guests have such a
    /// one.
    pub uart_is_sbsa: bool,
    /// CPUs, whose Aff0 counts from 0.
    pub cpus: usize,
    /// Whether the guest runs in a VM of GearV.
    pub gearv: bool,
    /// Address range of the device tree.
    pub tree: Range<u64>,
    /// Kernel command line from the manifest.
    pub command_line: &'static str,
    /// Register that the VMM of a KVM guest answers.
    pub bench_device: Option<u64>,
    /// Doorbell and interrupt of another VM, if this one is connected to one.
    pub peer: Option<Peer>,
    /// Virtio devices, in the order of their addresses.
    pub virtio: [Option<VirtioNode>; MAX_VIRTIO],
    /// Memory shared from boot on, with the metadata that describes it.
    pub shared: Option<Range<u64>>,
    /// Control frame of the VM's watchdog, if there is one.
    pub watchdog: Option<u64>,
    /// Word that a real-time VM changes as a sign of life, if it has to.
    pub heartbeat: Option<u64>,
    /// Doorbells of other VMs and of this one.
    pub channels: [Option<ChannelNode>; MAX_CHANNELS],
}

/// Most channels that a guest uses.
const MAX_CHANNELS: usize = 4;

/// A doorbell, as one of its two VMs sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelNode {
    /// Name that the manifest gives it.
    pub name: &'static str,
    /// A store to this address interrupts the other VM; 0: this VM is interrupted.
    pub doorbell: u64,
    /// INTID of this VM's interrupt; 0: this VM rings.
    pub intid: u32,
    /// Memory that both VMs reach.
    pub memory: Option<Range<u64>>,
}

/// Most virtio devices that a guest uses.
const MAX_VIRTIO: usize = 8;

/// A virtio device with registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioNode {
    /// Address of the registers.
    pub registers: u64,
    /// INTID.
    pub intid: u32,
}

/// Connection to another VM: how each interrupts the other, and memory that both reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// A store to this register interrupts the other VM; 0: it cannot.
    pub doorbell: u64,
    /// The INTID of the other VM's interrupt; 0: there is none.
    pub intid: u32,
    /// Memory that both VMs reach, zero at first.
    pub shared: u64,
    /// Whether the doorbell is the data register of a PL011 that both VMs reach: a store raises
    /// the transmit interrupt, which lasts until it is cleared.
    pub is_pl011: bool,
}

/// Offset of the doorbell of channel 0 in the device VM's window: the page of the first VM that is
/// served, behind the page of GDM's own.
const DOORBELLS: u64 = 0x8_1000;
/// Offset of the memory that a served guest shares with a bare-metal device VM.
const SHARED: u64 = 8 << 20;

impl Machine {
    /// Reads the device tree at `address`.
    pub(crate) fn from_dtb(address: u64) -> Option<Self> {
        let size = u32::from_be(read32(address + 4)) as usize;
        // SAFETY: the boot protocol puts the tree there; nothing writes to it.
        let bytes: &'static [u8] =
            unsafe { core::slice::from_raw_parts(address as *const u8, size) };
        let root = Blob::new(bytes).ok()?.root();
        let mut nodes = root.children();
        let memory = nodes.find(|node| is(node, "device_type", "memory"))?;
        let (version, gic) = interrupt_controller(&root)?;
        let (uart, is_sbsa) = match find(&root, "arm,pl011") {
            Some(pl011) => (Some(pl011), false),
            None => (find(&root, "arm,sbsa-uart"), true),
        };
        let bench_device = find(&root, "gearv,bench-device");
        let ram = range(&memory, 0)?;
        Some(Self {
            peer: peer(&root, ram.start),
            ram,
            gic: version,
            gicd: range(&gic, 0)?,
            gic_cpus: range(&gic, 1)?,
            uart: uart.as_ref().and_then(start).unwrap_or(0),
            uart_intid: uart.as_ref().and_then(intid).unwrap_or(0),
            uart_is_sbsa: is_sbsa,
            cpus: cpu_count(&root)?,
            gearv: psci::is_gearv(),
            tree: address..address + size as u64,
            command_line: command_line(&root),
            bench_device: bench_device.as_ref().and_then(start),
            virtio: virtio(&root),
            shared: find(&root, "pmem-region").and_then(|node| range(&node, 0)),
            watchdog: find(&root, "arm,sbsa-gwdt").as_ref().and_then(start),
            heartbeat: find(&root, "gearv,heartbeat").as_ref().and_then(start),
            channels: channels(&root),
        })
    }

    /// Returns the channel with this name.
    pub fn channel(&self, name: &str) -> Option<&ChannelNode> {
        let mut all = self.channels.iter().flatten();
        all.find(|channel| channel.name == name)
    }

    /// Returns the number that the command line gives for `name`, as in `name=7`.
    pub fn option(&self, name: &str) -> Option<u64> {
        self.word(name)?.parse().ok()
    }

    /// Returns the word that the command line gives for `name`, as in `name=word`.
    pub fn word(&self, name: &str) -> Option<&'static str> {
        let mut words = self.command_line.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Finds the interrupt controller. A VM that owns devices has the board's node, with the board's
/// word for a GICv2, which may be on a bus.
fn interrupt_controller<'t>(root: &Node<'t>) -> Option<(Version, Node<'t>)> {
    let words = [
        ("arm,gic-v3", Version::V3),
        ("arm,cortex-a15-gic", Version::V2),
        ("arm,gic-400", Version::V2),
    ];
    let mut words = words.into_iter();
    words.find_map(|(word, version)| {
        let on_a_bus = || root.children().find_map(|bus| find(&bus, word));
        Some((version, find(root, word).or_else(on_a_bus)?))
    })
}

fn cpu_count(root: &Node<'_>) -> Option<usize> {
    let cpus = root.child("cpus")?;
    let cpus = cpus
        .children()
        .filter(|node| is(node, "device_type", "cpu"));
    Some(cpus.count())
}

/// Returns where a node's first registers begin.
fn start(node: &Node<'_>) -> Option<u64> {
    Some(range(node, 0)?.start)
}

fn command_line(root: &Node<'static>) -> &'static str {
    let text = || root.child("chosen")?.property("bootargs")?.text();
    text().unwrap_or("")
}

/// Returns the virtio devices; natively there are more than a guest uses, and none is looked at.
fn virtio(root: &Node<'_>) -> [Option<VirtioNode>; MAX_VIRTIO] {
    let mut found = [None; MAX_VIRTIO];
    let nodes = root
        .children()
        .filter(|node| is(node, "compatible", "virtio,mmio"));
    for (place, node) in found.iter_mut().zip(nodes) {
        *place = range(&node, 0)
            .zip(intid(&node))
            .map(|(registers, intid)| VirtioNode {
                registers: registers.start,
                intid,
            });
    }
    found
}

/// Returns the doorbells. The first range of one that this VM rings is its page.
fn channels(root: &Node<'static>) -> [Option<ChannelNode>; MAX_CHANNELS] {
    let mut found = [const { None }; MAX_CHANNELS];
    let nodes = root
        .children()
        .filter(|node| is(node, "compatible", "gearv,channel"));
    for (place, node) in found.iter_mut().zip(nodes) {
        let intid = intid(&node).unwrap_or(0);
        let rings = intid == 0;
        *place = Some(ChannelNode {
            name: node.name().split('@').next().unwrap_or_default(),
            doorbell: start(&node).filter(|_| rings).unwrap_or(0),
            intid,
            memory: range(&node, usize::from(rings)),
        });
    }
    found
}

/// Returns how this VM and another one reach each other: two of KVM or Xen, two with a channel
/// between them, or GearV's device VM and the guest that it serves.
fn peer(root: &Node<'_>, ram: u64) -> Option<Peer> {
    // Xen puts the devices that it passes to a guest below a node of this name.
    let passed = || find(&root.child("passthrough")?, "gearv,bench-doorbell");
    if let Some(node) = find(root, "gearv,bench-doorbell").or_else(passed) {
        return Some(Peer {
            doorbell: start(&node)?,
            intid: intid(&node)?,
            shared: range(&node, 1)?.start,
            is_pl011: is(&node, "compatible", "arm,pl011"),
        });
    }
    if let Some(node) = find(root, "gearv,channel") {
        let intid = intid(&node).unwrap_or(0);
        let memory = range(&node, usize::from(intid == 0))?;
        return Some(Peer {
            doorbell: start(&node).filter(|_| intid == 0).unwrap_or(0),
            intid,
            shared: memory.start,
            is_pl011: false,
        });
    }
    if let Some(served) = root.child("gearv") {
        let guest = served.children().next()?;
        return Some(Peer {
            doorbell: wide(&served, "window", 0)? + DOORBELLS,
            intid: 0,
            shared: wide(&guest, "guest-memory", 1)? + SHARED,
            is_pl011: false,
        });
    }
    let device = virtio(root)[0]?;
    Some(Peer {
        doorbell: 0,
        intid: device.intid,
        shared: ram + SHARED,
        is_pl011: false,
    })
}

/// Returns number `index` of a property's, of two cells each.
fn wide(node: &Node<'_>, property: &str, index: usize) -> Option<u64> {
    let mut cells = node.property(property)?.cells()?.skip(2 * index);
    Some(u64::from(cells.next()?) << 32 | u64::from(cells.next()?))
}

/// Returns a node's first shared interrupt.
fn intid(node: &Node<'_>) -> Option<u32> {
    Some(32 + node.property("interrupts")?.cells()?.nth(1)?)
}

/// Finds a child that is not disabled and compatible with `device`.
fn find<'a>(root: &Node<'a>, device: &str) -> Option<Node<'a>> {
    root.children()
        .find(|node| is(node, "compatible", device) && !is(node, "status", "disabled"))
}

/// Tells whether one of the property's strings is `text`.
fn is(node: &Node<'_>, property: &str, text: &str) -> bool {
    node.property(property).is_some_and(|found| {
        found
            .value
            .split(|&byte| byte == 0)
            .any(|part| part == text.as_bytes())
    })
}

/// Returns range `index` of `reg`, of two cells each for address and size.
fn range(node: &Node<'_>, index: usize) -> Option<Range<u64>> {
    let mut cells = node
        .property("reg")?
        .cells()?
        .skip(4 * index)
        .map(u64::from);
    let mut number = || Some(cells.next()? << 32 | cells.next()?);
    let start = number()?;
    Some(start..start + number()?)
}
