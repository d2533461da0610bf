//! The guest's device tree.

use std::ops::Range;

use dtoolkit::ToPropertyValue;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};

use crate::layout;
use crate::options::{Gic, Options};

#[cfg(test)]
mod tests;

/// Any numbers that differ.
const PHANDLE_GIC: u32 = 1;
const PHANDLE_CLOCK: u32 = 2;
/// First cell of `interrupts` (Linux, arm,gic-v3.yaml).
const SPI: u32 = 0;
/// A private interrupt, counted from INTID 16.
const PPI: u32 = 1;
/// The second cell counts from there.
const FIRST_SPI: u32 = 32;
/// Third cell: rising edge.
const EDGE: u32 = 1;
/// Third cell: active high.
const LEVEL: u32 = 4;

/// Returns the blob that describes the VM to its kernel; `initrd` is where the RAM disk lies. The
/// shape is that of the trees that GearV makes, so that both boot Linux in the same way.
pub fn blob(options: &Options, initrd: Option<Range<u64>>) -> Vec<u8> {
    let mut tree = DeviceTree::new();
    let root = node("")
        .with("#address-cells", 2_u32)
        .with("#size-cells", 2_u32)
        .with("compatible", "linux,dummy-virt")
        .with("model", "KVM guest")
        .with("interrupt-parent", PHANDLE_GIC)
        .child(chosen(options, initrd))
        .child(memory(options))
        .child(cpus(options.cpus.len()))
        .child(psci())
        .child(timer())
        .child(gic(options))
        .child(clock())
        .child(uart())
        .child(device())
        .child(doorbell());
    let cards = [
        (options.disk.is_some(), layout::DISK, layout::DISK_INTID),
        (options.net.is_some(), layout::CARD, layout::CARD_INTID),
    ];
    let cards = cards.iter().filter(|(is_there, ..)| *is_there);
    let root = cards.fold(root, |root, &(_, at, intid)| root.child(virtio(at, intid)));
    tree.root = root.0;
    tree.to_dtb()
}

/// A fixed seed, because random numbers decide addresses, and those decide caches.
fn chosen(options: &Options, initrd: Option<Range<u64>>) -> Node {
    let chosen = node("chosen")
        .with("bootargs", options.cmdline.as_str())
        .with("stdout-path", format!("/uart@{:x}", layout::UART))
        .with("rng-seed", options.seed)
        .with("kaslr-seed", 0_u64);
    // A RAM disk whose ends are missing is ignored by Linux without a word, so both are given or
    // none.
    match initrd {
        Some(initrd) => chosen
            .with("linux,initrd-start", initrd.start)
            .with("linux,initrd-end", initrd.end),
        None => chosen,
    }
}

/// One bank.
fn memory(options: &Options) -> Node {
    node(format!("memory@{:x}", layout::RAM))
        .with("device_type", "memory")
        .with("reg", reg(&[(layout::RAM, options.memory_mib << 20)]))
}

/// MPIDRs count up, as KVM numbers its vCPUs.
fn cpus(count: usize) -> Node {
    let cpus = node("cpus")
        .with("#address-cells", 1_u32)
        .with("#size-cells", 0_u32);
    (0..count as u32).fold(cpus, |cpus, index| {
        // The node that fits any core: what this core is, Linux reads from its ID registers.
        let cpu = node(format!("cpu@{index:x}"))
            .with("device_type", "cpu")
            .with("compatible", "arm,armv8")
            .with("reg", index)
            .with("enable-method", "psci");
        cpus.child(cpu)
    })
}

/// KVM answers by HVC.
fn psci() -> Node {
    node("psci")
        .with("compatible", vec!["arm,psci-1.0", "arm,psci-0.2"])
        .with("method", "hvc")
}

/// Secure, non-secure, virtual and hypervisor timer, in this order.
fn timer() -> Node {
    // Linux takes the entries by position, and needs the virtual timer's, the third; a guest has no
    // secure and no hypervisor timer, whose numbers keep the places.
    let interrupts = [13, 14, 11, 10].map(|ppi| [PPI, ppi, LEVEL]);
    node("timer")
        .with("compatible", "arm,armv8-timer")
        .with("interrupts", interrupts.concat())
        .with("always-on", [0_u8; 0])
}

/// The frames of a redistributor are 128 KiB for each vCPU. There is no node of an ITS: the guests
/// have no device that sends messages.
fn gic(options: &Options) -> Node {
    let frames = options.cpus.len() as u64 * layout::GICR_STRIDE;
    let (compatible, registers) = match options.gic {
        Gic::V2 => (
            "arm,cortex-a15-gic",
            [(layout::GICD, 0x1000), (layout::GICC, 0x2000)],
        ),
        Gic::V3 => (
            "arm,gic-v3",
            [(layout::GICD, 0x1_0000), (layout::GICR, frames)],
        ),
    };
    node(format!("interrupt-controller@{:x}", layout::GICD))
        .with("compatible", compatible)
        .with("reg", reg(&registers))
        .with("#interrupt-cells", 3_u32)
        .with("#address-cells", 0_u32)
        .with("interrupt-controller", [0_u8; 0])
        .with("phandle", PHANDLE_GIC)
}

/// Linux's PL011 driver wants a rate to divide.
fn clock() -> Node {
    node("clock")
        .with("compatible", "fixed-clock")
        .with("#clock-cells", 0_u32)
        .with("clock-frequency", 24_000_000_u32)
        .with("phandle", PHANDLE_CLOCK)
}

/// Two clocks of one rate: the UART's own and the bus's.
fn uart() -> Node {
    node(format!("uart@{:x}", layout::UART))
        .with("compatible", vec!["arm,pl011", "arm,primecell"])
        .with("reg", reg(&[(layout::UART, layout::PAGE)]))
        .with("interrupts", [SPI, layout::UART_INTID - FIRST_SPI, LEVEL])
        .with("clocks", [PHANDLE_CLOCK; 2])
        .with("clock-names", vec!["uartclk", "apb_pclk"])
}

/// The device that the VMM answers, for the benchmark. The benchmark finds it by its compatible.
fn device() -> Node {
    node(format!("device@{:x}", layout::DEVICE))
        .with("compatible", "gearv,bench-device")
        .with("reg", reg(&[(layout::DEVICE, layout::PAGE)]))
}

/// The doorbell to the other VM, the memory shared with it, and the interrupt that the other VM's
/// doorbell causes.
fn doorbell() -> Node {
    let intid = layout::DOORBELL_INTID - FIRST_SPI;
    node(format!("doorbell@{:x}", layout::DOORBELL))
        .with("compatible", "gearv,bench-doorbell")
        .with(
            "reg",
            reg(&[
                (layout::DOORBELL, layout::PAGE),
                (layout::SHARED, layout::PAGE),
            ]),
        )
        // An edge: KVM lowers the line of an irqfd as soon as it is raised, and a level would be
        // gone before the guest looks.
        .with("interrupts", [SPI, intid, EDGE])
}

/// A virtio device, whose kind its registers tell. Coherent, as whoever serves it accesses the
/// guest's memory by the caches.
fn virtio(at: u64, intid: u32) -> Node {
    node(format!("virtio_mmio@{at:x}"))
        .with("compatible", "virtio,mmio")
        .with("reg", reg(&[(at, layout::PAGE)]))
        // An edge, for the same reason as the doorbell's.
        .with("interrupts", [SPI, intid - FIRST_SPI, EDGE])
        .with("dma-coherent", [0_u8; 0])
}

/// Returns addresses and sizes as cells, two each.
fn reg(ranges: &[(u64, u64)]) -> Vec<u8> {
    let words = ranges.iter().flat_map(|&(start, size)| [start, size]);
    words.flat_map(u64::to_be_bytes).collect()
}

/// A node in the making. The library's builder, with names that are known to be good.
struct Node(DeviceTreeNode);

/// Begins a node.
fn node(name: impl Into<String>) -> Node {
    Node(DeviceTreeNode::new_unchecked(name))
}

impl Node {
    /// Adds a property.
    fn with(mut self, name: &str, value: impl ToPropertyValue) -> Node {
        self.0
            .add_property(DeviceTreeProperty::new_unchecked(name, value));
        self
    }

    /// Adds a node below.
    fn child(mut self, child: Node) -> Node {
        self.0.add_child(child.0);
        self
    }
}
