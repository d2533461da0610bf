//! A machine for tests: QEMU's `virt` as it describes itself, its memory as pages, and an archive.

use std::borrow::ToOwned;
use std::boxed::Box;
use std::collections::{HashMap, HashSet};
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use gear1_abi::boot::BootInfo;
use gear1_abi::info::Gear2Info;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::table::MapError;
use gearv_manifest::blob::{Blob, Node};

use crate::region::Region;
use crate::trees::{Aligned, Tree, cells, text};

mod bus;
pub(crate) use bus::{FakeBus, FakeFunction};

const PAGE: u64 = 4096;
/// Byte that all memory holds before a write.
pub(crate) const POISON: u8 = 0xa5;
/// QEMU's `virt`, two CPUs, 1 GiB; `-M virt,virtualization=on,gic-version=3,dumpdtb=FILE`.
pub(crate) const VIRT_GICV3: &[u8] = include_bytes!("fdt/virt-gicv3.dtb");
/// Like [`VIRT_GICV3`], with GICv2.
pub(crate) const VIRT_GICV2: &[u8] = include_bytes!("fdt/virt-gicv2.dtb");

/// Returns the tree in a blob, to be changed.
pub(crate) fn tree(blob: &[u8]) -> Tree {
    let bytes = Aligned::new(blob);
    from_node(&Blob::new(bytes.as_slice()).unwrap().root())
}

fn from_node(node: &Node<'_>) -> Tree {
    let property = |property: gearv_manifest::blob::Property<'_>| {
        (property.name().to_string(), property.value.to_vec())
    };
    Tree {
        properties: node.properties().map(property).collect(),
        children: node
            .children()
            .map(|child| (child.name().to_owned(), from_node(&child)))
            .collect(),
    }
}

/// A part of a packet, which as a descriptor leads to a table.
const PACKET: u64 = 0x4800_0003;

/// Physical memory, one page at a time, as it is touched.
#[derive(Default)]
pub(crate) struct FakeMemory {
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
    pub(crate) dirty: HashSet<u64>,
    pub(crate) registers: HashMap<u64, u64>,
    pub(crate) boot_info: Option<(u64, Box<BootInfo>)>,
    pub(crate) gear2_info: Option<(u64, Gear2Info)>,
    pub(crate) smmu: FakeSmmu,
    pub(crate) pci: Option<FakeBus>,
}

/// Registers of an SMMUv3 as QEMU's `virt` has it, or in its place what QEMU does not have: an
/// SMMUv2 with 4 KiB pages, or an IPMMU. Commands are done at once.
#[derive(Default)]
pub(crate) struct FakeSmmu {
    /// Values by offset, as they were written.
    pub(crate) written: HashMap<u64, u64>,
    /// Identification registers that differ from QEMU's, by offset.
    pub(crate) id: HashMap<u64, u32>,
    /// Changes of control are never acknowledged.
    pub(crate) is_hung: bool,
    /// The SMMU is an SMMUv2.
    pub(crate) is_v2: bool,
    /// The SMMU is an IPMMU.
    pub(crate) is_ipmmu: bool,
}

impl FakeSmmu {
    /// Where QEMU's `virt` has it.
    pub(crate) const BASE: u64 = 0x0905_0000;

    /// Reads a register, if it is one.
    fn read(&self, at: u64) -> Option<u32> {
        let offset = at
            .checked_sub(Self::BASE)
            .filter(|offset| *offset < 0x2_0000)?;
        let value = |offset| self.written.get(&offset).map_or(0, |value| *value as u32);
        let id = self.id.get(&offset).copied();
        if self.is_ipmmu {
            // IMCTR of a context reads as flushing for as long as that lasts.
            let flushes = offset % 0x1000 < 0x200 && offset % 0x40 == 0 && !self.is_hung;
            return Some(id.unwrap_or(value(offset) & !(u32::from(flushes) << 1)));
        }
        if self.is_v2 {
            return Some(match offset {
                // Stage 2, stream matching, 15 bits of StreamIDs, 48 register groups.
                0x20 => id.unwrap_or(1 << 29 | 1 << 27 | 15 << 9 | 48),
                // Two halves of 16 pages with 4 KiB, 16 context banks.
                0x24 => id.unwrap_or(3 << 28 | 16),
                // 4 KiB tables, 48 bits of addresses on either side of stage 2.
                0x28 => id.unwrap_or(1 << 12 | 5 << 4 | 5),
                0x74 => self.is_hung.into(),
                _ => value(offset),
            });
        }
        Some(match offset {
            0x0 => id.unwrap_or(0x0d44_101b),
            0x4 => id.unwrap_or(0x0273_0010),
            0x14 => id.unwrap_or(0x74),
            0x24 if self.is_hung => !value(0x20),
            // Acknowledged, updated and done as soon as asked.
            0x24 => value(0x20),
            0x44 => value(0x44) & !(1 << 31),
            0x54 => value(0x50),
            0x9c => value(0x98),
            _ => value(offset),
        })
    }

    fn write(&mut self, at: u64, value: u64) {
        let offset = at.checked_sub(Self::BASE).unwrap();
        self.written.insert(offset, value);
    }

    /// Returns the root of context 1, if it is named and the last micro-TLB was not led anywhere:
    /// a network card that firmware left on writes there.
    fn open_table(&self) -> Option<u64> {
        let is_open = self.is_ipmmu && !self.written.contains_key(&0x36f0);
        self.written.get(&0x50).copied().filter(|_| is_open)
    }
}

impl FakeMemory {
    /// Returns the memory of a machine with these GICv3 redistributors.
    pub(crate) fn new(gicr: u64, affinities: &[u64]) -> Self {
        let mut memory = Self::default();
        for (index, affinity) in affinities.iter().enumerate() {
            let last = u64::from(index + 1 == affinities.len()) << 4;
            let typer = gicr + index as u64 * 0x2_0000 + 8;
            memory.registers.insert(typer, affinity << 32 | last);
        }
        memory
    }

    pub(crate) fn read(&self, start: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![POISON; size];
        for (at, part) in parts(start, size) {
            if let Some(page) = self.pages.get(&(at / PAGE)) {
                let from = (at % PAGE) as usize;
                bytes[part.clone()].copy_from_slice(&page[from..from + part.len()]);
            }
        }
        bytes
    }

    fn put(&mut self, start: u64, bytes: &[u8]) {
        for (at, part) in parts(start, bytes.len()) {
            let from = (at % PAGE) as usize;
            self.page(at)[from..from + part.len()].copy_from_slice(&bytes[part]);
        }
    }

    fn page(&mut self, at: u64) -> &mut [u8; PAGE as usize] {
        self.dirty.insert(at / PAGE);
        let poison = || Box::new([POISON; PAGE as usize]);
        self.pages.entry(at / PAGE).or_insert_with(poison)
    }
}

/// Cuts `size` bytes at `start` where pages end: where each part lies, and which bytes it is.
fn parts(start: u64, size: usize) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = start + done as u64;
        let count = ((PAGE - at % PAGE) as usize).min(size - done);
        done += count;
        (count != 0).then_some((at, done - count..done))
    })
}

impl PhysicalMemory for FakeMemory {
    fn read_word(&self, pa: Pa) -> u64 {
        assert!(pa.is_aligned(8));
        u64::from_le_bytes(self.read(pa.get(), 8).try_into().unwrap())
    }

    fn write_word(&mut self, pa: Pa, value: u64) {
        assert!(pa.is_aligned(8));
        self.put(pa.get(), &value.to_le_bytes());
    }

    fn write(&mut self, pa: Pa, bytes: &[u8]) {
        self.put(pa.get(), bytes);
    }

    fn zero(&mut self, pa: Pa, size: u64) {
        for (at, part) in parts(pa.get(), size as usize) {
            let from = (at % PAGE) as usize;
            self.page(at)[from..from + part.len()].fill(0);
        }
    }

    fn write_boot_info(&mut self, pa: Pa, info: &BootInfo) {
        self.boot_info = Some((pa.get(), Box::new(*info)));
    }

    fn write_gear2_info(&mut self, pa: Pa, info: &Gear2Info) {
        self.gear2_info = Some((pa.get(), *info));
    }

    fn clean(&mut self, pa: Pa, size: u64) {
        for page in pa.get() / PAGE..(pa.get() + size).div_ceil(PAGE) {
            self.dirty.remove(&page);
        }
    }

    fn read_register8(&self, pa: Pa) -> u8 {
        self.registers[&pa.get()] as u8
    }

    fn read_register16(&self, pa: Pa) -> u16 {
        self.registers[&pa.get()] as u16
    }

    /// Returns GICD_TYPER of a distributor with 288 interrupts, unless the test says otherwise.
    fn read_register32(&self, pa: Pa) -> u32 {
        if let Some(bus) = self.pci.as_ref().filter(|bus| bus.has(pa.get())) {
            return bus.read(pa.get());
        }
        let smmu = self.smmu.read(pa.get());
        let other = || self.registers.get(&pa.get()).map(|value| *value as u32);
        smmu.or_else(other).unwrap_or(8)
    }

    fn read_register(&self, pa: Pa) -> u64 {
        self.registers[&pa.get()]
    }

    fn write_register32(&mut self, pa: Pa, value: u32) {
        if let Some(bus) = self.pci.as_mut().filter(|bus| bus.has(pa.get())) {
            return bus.write(pa.get(), value);
        }
        self.smmu.write(pa.get(), value.into());
        if let Some(table) = self.smmu.open_table() {
            self.write_word(Pa::new(table), PACKET);
        }
    }

    fn write_register(&mut self, pa: Pa, value: u64) {
        self.smmu.write(pa.get(), value);
    }

    fn reach_registers(&mut self, _: core::ops::Range<u64>) -> Result<bool, MapError> {
        Ok(self.pci.is_some())
    }

    fn order(&self) {}
}

/// Mapping of a leaf in a table tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) input: u64,
    pub(crate) output: Region,
    pub(crate) descriptor: u64,
}

/// Returns all leaves of a tree whose root's entries map 2^`shift` bytes each.
pub(crate) fn mappings(memory: &FakeMemory, root: u64, entries: u64, shift: u32) -> Vec<Mapping> {
    let mut list = Vec::new();
    for index in 0..entries {
        let descriptor = memory.read_word(Pa::new(root + index * 8));
        let output = descriptor & 0x0000_ffff_ffff_f000;
        let below = match descriptor & 3 {
            3 if shift > 12 => mappings(memory, output, 512, shift - 9),
            0 => vec![],
            _ => vec![Mapping {
                input: 0,
                output: Region::new(output, output + (1 << shift)),
                descriptor,
            }],
        };
        let input = index << shift;
        list.extend(below.into_iter().map(|leaf| Mapping {
            input: input + leaf.input,
            ..leaf
        }));
    }
    list
}

/// Returns a flat image with one page each of text, constants, data and bss.
pub(crate) fn flat_image(magic: u64, base: u64) -> Vec<u8> {
    let abi = u64::from(gear1_abi::ABI_VERSION);
    let page = |count: u64| base + count * PAGE;
    let boot_page = if magic == gear1_abi::image::RUNTIME_MAGIC {
        page(1)
    } else {
        0
    };
    let header = [
        magic,
        abi,
        base,
        base + 0x100,
        page(2),
        page(3),
        page(4),
        page(5),
        boot_page,
    ];
    let mut file: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
    file.resize(4 * PAGE as usize, 0x11);
    file
}

/// Returns a Linux `Image` with this header and `size` bytes of file.
pub(crate) fn kernel(text_offset: u64, image_size: u64, size: usize) -> Vec<u8> {
    let mut file = vec![0x22; size];
    file[8..16].copy_from_slice(&text_offset.to_le_bytes());
    file[16..24].copy_from_slice(&image_size.to_le_bytes());
    file[56..60].copy_from_slice(b"ARM\x64");
    file
}

/// Returns a guest's device tree as xtask makes it, as far as init is concerned.
pub(crate) fn guest_tree() -> Tree {
    Tree::default()
        .set("/", "interrupt-parent", cells(&[0]))
        .set("/chosen", "linux,initrd-start", cells(&[0, 0]))
        .set("/chosen", "linux,initrd-end", cells(&[0, 0]))
        .set("/chosen", "rng-seed", vec![0; 32])
        .set("/chosen", "kaslr-seed", cells(&[0, 0]))
        .set("/memory@0", "device_type", text("memory"))
        .set("/memory@0", "reg", cells(&[0, 0, 0, 0]))
        .set("/interrupt-controller-v3", "phandle", cells(&[1]))
        .set("/interrupt-controller-v3", "reg", cells(&[0; 8]))
        .set("/interrupt-controller-v2", "phandle", cells(&[2]))
        .set("/interrupt-controller-v2", "reg", cells(&[0; 8]))
}

/// The files of a boot archive.
#[derive(Clone, Default)]
pub(crate) struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    /// Adds a file, or replaces it.
    pub(crate) fn with(mut self, name: &str, data: &[u8]) -> Self {
        self = self.without(name);
        self.0.push((name.to_owned(), data.to_vec()));
        self
    }

    /// Removes a file.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| known != name);
        self
    }

    /// Returns the archive: cpio newc, data on pages.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, data) in &self.0 {
            let name_size = (bytes.len() + 111 + name.len()).next_multiple_of(PAGE as usize)
                - bytes.len()
                - 110;
            member(&mut bytes, name, name_size, data);
        }
        member(&mut bytes, "TRAILER!!!", 11, &[]);
        bytes
    }
}

fn member(bytes: &mut Vec<u8>, name: &str, name_size: usize, data: &[u8]) {
    let mut fields = [0; 13];
    fields[6] = data.len();
    fields[11] = name_size;
    bytes.extend(b"070701");
    fields
        .iter()
        .for_each(|field| bytes.extend(std::format!("{field:08x}").bytes()));
    bytes.extend(name.bytes());
    bytes.extend(core::iter::repeat_n(0, name_size - name.len()));
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
