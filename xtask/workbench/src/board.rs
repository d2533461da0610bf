//! Boards to check manifests against: each is a device tree, read by the code that reads it at
//! boot.
//!
//! No fact about a board stands here: QEMU describes its `virt` itself, the kernel's package has
//! the trees of the ZCU102 and of the i.MX 8M Plus EVK, and the others are in `manifests/boards/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use gear1_init::fdt::{self, Board};
use gearv_manifest::blob::{Blob, Node};

use crate::manifest::{Aligned, compile_text, decompile};
use crate::qemu::{Machine, Qemu};
use crate::tools::Tools;
use crate::{dtb, payloads, workspace};

/// Name of a board. What ran where: docs/boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// QEMU's virt with 4 CPUs, 2 GiB, a GICv3 and two serial ports
    QemuVirt,
    /// Raspberry Pi 4 with 4 GiB
    Rpi4,
    /// R-Car H3 (H3ULCB) with 4 GiB
    RcarH3,
    /// AMD ZCU102 (Zynq UltraScale+) with 4 GiB, which QEMU has as xlnx-zcu102
    Zcu102,
    /// NXP i.MX 8M Plus EVK with 6 GiB, which QEMU has as imx8mp-evk
    Imx8mpEvk,
}

impl Name {
    /// Returns the name on the command line. Also the name of the manifest and of the tree.
    pub fn text(self) -> &'static str {
        match self {
            Name::QemuVirt => "qemu-virt",
            Name::Rpi4 => "rpi4",
            Name::RcarH3 => "rcar-h3",
            Name::Zcu102 => "zcu102",
            Name::Imx8mpEvk => "imx8mp-evk",
        }
    }
}

/// A board's device tree, as a boot loader passes it to Gear1. The bytes are what init reads, so
/// that `check` and a boot agree.
#[derive(Clone)]
pub struct BoardTree {
    /// Name in messages.
    pub name: String,
    bytes: Aligned,
}

impl BoardTree {
    /// Returns a board that GearV knows. QEMU's tree is dumped and not stored: it changes with the
    /// version.
    pub fn named(name: Name, tools: &Tools) -> Result<BoardTree> {
        let dtb = match name {
            Name::QemuVirt => {
                let file = scratch(name.text())?;
                Qemu::prepare(10)?.dump_tree(&virt(), &file)?;
                fs::read(file)?
            }
            Name::Zcu102 => fs::read(payloads::zcu102_device_tree()?)?,
            Name::Imx8mpEvk => fs::read(payloads::imx8mp_evk_device_tree()?)?,
            Name::Rpi4 | Name::RcarH3 => {
                let source = source(name);
                let text = fs::read_to_string(&source);
                let text = text.with_context(|| format!("cannot read {}", source.display()))?;
                compile_text(&text, tools, &scratch(name.text())?)?
            }
        };
        BoardTree::new(name.text(), dtb, tools)
    }

    /// Returns the ZCU102's tree as QEMU's `xlnx-zcu102` is: all GEMs have their PHY at address 23,
    /// of another model than the board's, where the kernel's package has the board's at 12.
    pub fn zcu102_of_qemu(tools: &Tools) -> Result<BoardTree> {
        let phy = "&{/axi/ethernet@ff0e0000/mdio/ethernet-phy@c}";
        let change = format!("{phy} {{ reg = <23>; /delete-property/ compatible; }};");
        BoardTree::named(Name::Zcu102, tools)?.with_source(&change, tools)
    }

    /// Reads a device tree blob. Any blob, such as `/sys/firmware/fdt` of a running board.
    pub fn from_file(path: &Path, tools: &Tools) -> Result<BoardTree> {
        let dtb = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            dtb.starts_with(&dtb::MAGIC),
            "{}: this is no compiled device tree; a source becomes one by dtc -I dts -O dtb, and a \
             running board has its own in /sys/firmware/fdt",
            path.display()
        );
        BoardTree::new(&path.display().to_string(), dtb, tools)
    }

    /// Returns the same with another name in messages. A path of a scratch file means nothing to a
    /// person.
    pub fn called(self, name: &str) -> BoardTree {
        BoardTree {
            name: name.to_owned(),
            ..self
        }
    }

    /// init refuses a tree without an archive.
    fn new(name: &str, dtb: Vec<u8>, tools: &Tools) -> Result<BoardTree> {
        let tree = BoardTree {
            name: name.to_owned(),
            bytes: Aligned::new(&dtb),
        };
        // A boot loader adds the archive's address, which matters only once there is an archive.
        tree.with_archive(0..4096, tools)
    }

    /// Returns the same with this much memory in one piece, from the start of the tree's memory on,
    /// and no other. A tree as the kernel's package has it may leave the size to the firmware.
    /// Further banks are removed: a person says how much there is in all.
    pub fn with_memory(self, mib: u32, tools: &Tools) -> Result<BoardTree> {
        let name = self.name.clone();
        let (nodes, start, cells) = self.memory_nodes()?;
        let (node, others) = nodes
            .split_first()
            .with_context(|| format!("{name}: / has no node \"memory\" or \"memory@...\""))?;
        let most = if cells[1] == 1 {
            u32::MAX >> 20
        } else {
            u32::MAX
        };
        ensure!(
            mib <= most,
            "{name}: a tree like this has at most {most} MiB in one piece"
        );
        let starts = in_cells(start, cells[0]);
        let sizes = in_cells(u64::from(mib) << 20, cells[1]);
        let more =
            format!("&{{/{node}}} {{ device_type = \"memory\"; reg = <{starts} {sizes}>; }};");
        let others = others
            .iter()
            .map(|node| format!("/delete-node/ &{{/{node}}};\n"));
        self.with_source(&format!("{more}\n{}", others.collect::<String>()), tools)
    }

    /// Returns the tree, checked.
    pub fn tree(&self) -> Result<Blob<'_>> {
        Blob::new(self.bytes()).map_err(|error| anyhow!("{}: {error}", self.name))
    }

    /// Tells whether the tree leaves the size of its memory to the firmware. U-Boot and the Pi's
    /// firmware fill the node in.
    pub fn lacks_memory(&self) -> bool {
        let Ok(blob) = Blob::new(self.bytes()) else {
            return false;
        };
        let [starts, sizes] = root_cells(&blob);
        let is_empty = |node: Node<'_>| {
            let reg = node.property("reg").and_then(|reg| reg.cells());
            let cells: Vec<u32> = reg.into_iter().flatten().collect();
            let mut banks = cells.chunks(starts + sizes);
            banks.all(|bank| bank.iter().skip(starts).all(|cell| *cell == 0))
        };
        let root = blob.root();
        let mut nodes = root.children().filter(is_memory);
        nodes.all(is_empty)
    }

    /// Returns the names of the nodes with memory, the start of the first, and the root's cells for
    /// an address and a size. The first node stays, with its unit address.
    fn memory_nodes(&self) -> Result<(Vec<String>, u64, [usize; 2])> {
        let blob = self.tree()?;
        let root = blob.root();
        let cells = root_cells(&blob);
        let nodes = root.children().filter(is_memory);
        let names = nodes.map(|node| node.name().to_owned()).collect();
        let first = root.children().find(is_memory);
        let reg = first.and_then(|node| node.property("reg")?.cells());
        let start = reg.into_iter().flatten().take(cells[0]);
        let start = start.fold(0, |start, cell| start << 32 | u64::from(cell));
        Ok((names, start, cells))
    }

    /// Returns the same with the archive there, unless the tree tells of another one. dtc merges
    /// the text into the tree, and the last value of a property wins.
    pub fn with_archive(self, at: std::ops::Range<u64>, tools: &Tools) -> Result<BoardTree> {
        let cells = |value: u64| format!("<{:#x} {:#x}>", value >> 32, value & 0xffff_ffff);
        let (start, end) = (cells(at.start), cells(at.end));
        let more = format!(
            "/ {{ chosen {{ linux,initrd-start = {start}; linux,initrd-end = {end}; }}; }};"
        );
        self.with_source(&more, tools)
    }

    /// Returns the same with more source behind that of the tree. By text, since dtc is there and a
    /// writer of blobs is not.
    fn with_source(self, more: &str, tools: &Tools) -> Result<BoardTree> {
        let source = decompile(self.bytes.as_slice(), tools, &scratch("board")?)
            .with_context(|| self.name.clone())?;
        let source = format!("{source}\n{more}\n");
        let dtb = compile_text(&source, tools, &scratch("board")?)?;
        Ok(BoardTree {
            bytes: Aligned::new(&dtb),
            ..self
        })
    }

    /// Returns the tree's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Reads the tree as Gear1 does. The error has the board's name before init's words.
    pub fn read(&self) -> Result<Board> {
        let board = fdt::read(self.bytes()).board;
        board.map_err(|refusal| anyhow!("{}: {refusal}", self.name))
    }
}

/// Tells whether a node of the root is memory. By name, as init does: `device_type` is optional in
/// practice.
fn is_memory(node: &Node<'_>) -> bool {
    node.name() == "memory" || node.name().starts_with("memory@")
}

/// Returns an address or a size as the source of a `reg` has it, in one cell of 32 bits or two. The
/// root's cells decide, which boards set as they like.
fn in_cells(value: u64, cells: usize) -> String {
    match cells {
        1 => format!("{value:#x}"),
        _ => format!("{:#x} {:#x}", value >> 32, value & 0xffff_ffff),
    }
}

/// Returns the root's cells for an address and for a size. Only the root's matter: memory lies
/// there.
fn root_cells(blob: &Blob<'_>) -> [usize; 2] {
    // The defaults are those of the Devicetree Specification, 2.3.5.
    [("#address-cells", 2), ("#size-cells", 1)].map(|(name, default)| {
        let cells = blob.root().property(name).and_then(|cells| cells.cells());
        let first = cells.and_then(|mut cells| cells.next());
        first.map_or(default, |cells| cells as usize)
    })
}

/// Returns the machine that is meant by `qemu-virt`. The tests and documents assume this one.
pub fn virt() -> Machine {
    Machine {
        cpus: 4,
        second_serial: Some("/dev/null".into()),
        ..Machine::default()
    }
}

/// Returns where a board's source is. Short trees with what GearV reads, each with its origin in a
/// comment.
pub fn source(name: Name) -> PathBuf {
    workspace::root().join(format!("manifests/boards/{}.dts", name.text()))
}

/// Named by process, because checks run side by side.
fn scratch(name: &str) -> Result<PathBuf> {
    let folder = workspace::output_dir().join("boards");
    fs::create_dir_all(&folder)?;
    let process = std::process::id();
    ensure!(!name.contains('/'), "{name} is no board");
    Ok(folder.join(format!("{name}-{process}.dtb")))
}
