//! Reads its own device tree as software without knowledge of GearV does: by `compatible` alone,
//! and by the presence of a property.
//!
//! KVM's unit tests stop at an initial RAM disk without bytes, and software that ignores `status`
//! takes the first interrupt controller that it finds. The command line says whether there is an
//! initial RAM disk (`initrd=1`), which is then an image of a guest, whose header the test reads.
//!
//! Requirements: G1-BOOT-007.
#![no_std]
#![no_main]

use core::ops::Range;

use gearv_manifest::blob::{Blob, Node};
use test_guests::gic::Version;
use test_guests::{Machine, check, guest, mmio, report};

guest!(main);

/// Compatible strings that drivers of interrupt controllers look for. The names are those of
/// Linux's drivers (`IRQCHIP_DECLARE`). GearV's template has a node for either version, and init
/// takes out the one that the machine has not (G1-BOOT-007).
const GICS: [(&str, Version); 4] = [
    ("arm,gic-v3", Version::V3),
    ("arm,cortex-a15-gic", Version::V2),
    ("arm,cortex-a7-gic", Version::V2),
    ("arm,gic-400", Version::V2),
];
/// Offset of the magic number in an arm64 `Image`, and its value.
/// Documentation/arch/arm64/booting.rst of Linux has the header.
const MAGIC: (u64, u32) = (56, u32::from_le_bytes(*b"ARM\x64"));

/// The library is content with the first node that it knows; this test looks at all of them.
fn main(machine: &Machine) {
    let size = (machine.tree.end - machine.tree.start) as usize;
    // SAFETY: `Machine` has read the tree there; nothing writes to it.
    let bytes: &'static [u8] =
        unsafe { core::slice::from_raw_parts(machine.tree.start as *const u8, size) };
    let Ok(blob) = Blob::new(bytes) else {
        report::fail("tree", format_args!("it is damaged"));
        return;
    };
    let root = blob.root();
    controllers(&root);
    memory(machine, &root);
    initrd(machine, &root);
}

/// Checks that there is one interrupt controller, with registers, and that interrupts lead to it. A
/// second node with `status = "disabled"` is not enough: software that looks at `compatible` alone
/// would use registers that are not there. An interrupt's parent is the root's `interrupt-parent`
/// where a node names none.
fn controllers(root: &Node<'_>) {
    let gics = || root.children().filter(|node| version(node).is_some());
    report::equal("one-interrupt-controller", gics().count(), 1);
    let enabled = gics().filter(|node| text(node, "status").is_none_or(|text| text == "okay"));
    report::equal("none-is-disabled", enabled.count(), gics().count());
    let lacking = gics().filter(|node| numbers(node, "reg").any(|number| number == 0));
    report::equal("interrupt-controllers-have-registers", lacking.count(), 0);
    let Some(gic) = gics().next() else { return };
    let phandle = cell(&gic, "phandle");
    check!("it-has-a-phandle", phandle.is_some(), "it has none");
    report::equal(
        "interrupts-lead-to-it",
        cell(root, "interrupt-parent"),
        phandle,
    );
}

/// Checks that memory is one node, and where the tree and this program lie. The boot protocol wants
/// the tree in memory that the kernel can map, and software takes the first node of this type for
/// all of memory.
fn memory(machine: &Machine, root: &Node<'_>) {
    let is_memory = |node: &Node<'_>| text(node, "device_type") == Some("memory");
    report::equal("one-memory", root.children().filter(is_memory).count(), 1);
    let lies =
        |range: &Range<u64>| machine.ram.start <= range.start && range.end <= machine.ram.end;
    check!(
        "the-tree-lies-in-it",
        lies(&machine.tree),
        "{:x?} of {:x?}",
        machine.tree,
        machine.ram
    );
}

/// Checks that an initial RAM disk is there with its bytes, or not at all. Properties without bytes
/// behind them are worse than none: a kernel would unpack what lies there. init writes start and
/// end into room that the template keeps, or takes the properties out.
fn initrd(machine: &Machine, root: &Node<'_>) {
    let chosen = root.child("chosen");
    let number = |name: &str| numbers(chosen.as_ref()?, name).next();
    let found = (number("linux,initrd-start"), number("linux,initrd-end"));
    if machine.option("initrd").unwrap_or(0) == 0 {
        report::equal("no-initrd", found, (None, None));
        return;
    }
    let (Some(start), Some(end)) = found else {
        report::fail("initrd", format_args!("{found:x?}"));
        return;
    };
    let inside = machine.ram.start <= start && start < end && end <= machine.ram.end;
    check!("initrd-lies-in-memory", inside, "{start:x} to {end:x}");
    let (offset, magic) = MAGIC;
    if inside && end - start > offset {
        report::equal("initrd-is-loaded", mmio::read32(start + offset), magic);
    }
}

/// `compatible` is a list of strings, the most specific one first; each ends with a zero.
fn version(node: &Node<'_>) -> Option<Version> {
    let compatible = node.property("compatible")?;
    let mut names = compatible.value.split(|&byte| byte == 0);
    names.find_map(|name| {
        let known = GICS.iter().find(|(gic, _)| gic.as_bytes() == name);
        known.map(|(_, version)| *version)
    })
}

/// `None` stands for a property that is absent or no string; `status` is optional, and its absence
/// means okay.
fn text<'a>(node: &Node<'a>, name: &str) -> Option<&'a str> {
    node.property(name)?.text()
}

/// Phandles are one cell, in big-endian order as all of the tree.
fn cell(node: &Node<'_>, name: &str) -> Option<u32> {
    node.property(name)?.cells()?.next()
}

/// Iterates over a property's numbers: of two cells each, or of one if there is but one.
fn numbers<'a>(node: &Node<'a>, name: &str) -> impl Iterator<Item = u64> + use<'a> {
    let value = node.property(name).map_or(&[][..], |found| found.value);
    let words = value.chunks(8);
    words.map(|word| {
        let bytes = word.iter().map(|byte| u64::from(*byte));
        bytes.fold(0, |number, byte| number << 8 | byte)
    })
}
