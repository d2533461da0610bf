//! Placement by init on boards that QEMU does not have, with each memory size of the board, run on
//! this machine (`placement.rs`).
//!
//! Boards come with other amounts of memory than the one on a developer's desk, and a placement
//! that fails there would fail at a user's first boot. Placement depends on the tree and the
//! archive alone, and runs as a library here, so all sizes are tried.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use gear1_init::fdt::{Board, SmmuKind};
use gear1_init::region::{Region, subtract};
use workbench::board::{self, BoardTree, Name};
use workbench::manifest::compile_text;
use workbench::tools::Tools;
use workbench::{build_images, payloads, workspace};
use xtask::placement::{self, Placement};
use xtask::{check, flash};

use crate::part::{Part, Tally};

/// Manifests count memory in MiB.
const MIB: u64 = 1 << 20;
/// Memory below 1 GiB that the Raspberry Pi's VideoCore has, with the `gpu_mem` of `config.txt` and
/// more.
const VIDEO_CORE: Region = Region::new(0x3b40_0000, 0x4000_0000);

/// A board with one of the amounts of memory it comes with. The limits are looked at from both
/// sides: a checker that is too careful refuses what would run.
struct Variant {
    /// Amount of memory, which names the failure.
    name: &'static str,
    /// The value of `reg` in the memory node, or of each of its nodes.
    banks: &'static [(&'static str, &'static str)],
    /// The largest guest that the check takes beside the others, and one that is too large, in MiB.
    largest: [u32; 2],
}

/// The tree in the repository is that of 4 GiB; other sizes replace its text.
const RPI4_MEMORY: &str = "<0x0 0x00000000 0x3b400000>, <0x0 0x40000000 0xbc000000>";
const RPI4: &[Variant] = &[
    Variant {
        name: "1 GiB",
        banks: &[(RPI4_MEMORY, "<0x0 0x0 0x3b400000>")],
        largest: [800, 896],
    },
    Variant {
        name: "2 GiB",
        banks: &[(
            RPI4_MEMORY,
            "<0x0 0x0 0x3b400000>, <0x0 0x40000000 0x40000000>",
        )],
        largest: [1024, 1536],
    },
    Variant {
        name: "4 GiB",
        banks: &[],
        largest: [3000, 3072],
    },
    Variant {
        name: "8 GiB",
        banks: &[(
            RPI4_MEMORY,
            "<0x0 0x0 0x3b400000>, <0x0 0x40000000 0xbc000000>, <0x1 0x0 0x80000000>, <0x1 0x80000000 0x80000000>",
        )],
        // The two banks above 4 GiB touch.
        largest: [4096, 4098],
    },
];
/// Four banks far from each other, each of a node of its own, of which init must use all and cross
/// none.
const RCAR_H3: &[Variant] = &[
    Variant {
        name: "4 GiB",
        banks: &[],
        largest: [1024, 1026],
    },
    Variant {
        name: "8 GiB",
        banks: &[
            (
                "<0x0 0x48000000 0x0 0x38000000>",
                "<0x0 0x48000000 0x0 0x78000000>",
            ),
            (
                "<0x5 0x00000000 0x0 0x40000000>",
                "<0x5 0x0 0x0 0x80000000>",
            ),
            (
                "<0x6 0x00000000 0x0 0x40000000>",
                "<0x6 0x0 0x0 0x80000000>",
            ),
            (
                "<0x7 0x00000000 0x0 0x40000000>",
                "<0x7 0x0 0x0 0x80000000>",
            ),
        ],
        largest: [2048, 2050],
    },
];

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("layouts on the Raspberry Pi 4", |tally| {
            all(Name::Rpi4, RPI4, tally)
        }),
        Part::new("layouts on the R-Car H3", |tally| {
            all(Name::RcarH3, RCAR_H3, tally)
        }),
        Part::new("the R-Car H3's own device tree", own_tree).slow(true),
    ]
}

/// The archive is the board's own example, so its size is a real one. One figure is below the limit
/// and one above it: a limit at neither end would pass one of them.
fn all(name: Name, variants: &[Variant], tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let manifest = workspace::root().join(format!("manifests/{}.dts", name.text()));
    let archive = fs::read(build_images::build(&manifest)?.archive)?;
    // The Raspberry Pi's device VM has a fixed place below 1 GiB, so the limits are another
    // manifest's, whose VMs init places.
    let movable = match name {
        Name::Rpi4 => workspace::root().join("tests/manifests/rpi4-console.dts"),
        _ => manifest,
    };
    let source = fs::read_to_string(board::source(name))?;
    for variant in variants {
        let board = variant.board(name, &source, &tools);
        let board = board.with_context(|| variant.name)?;
        tally.check(variant.name, fits(&board, name, &archive, &tools));
        for (mib, is_good) in variant.largest.into_iter().zip([true, false]) {
            let judged = takes(&board, &movable, mib, &tools);
            let judged = judged.and_then(|good| {
                ensure!(good == is_good, "a guest of {mib} MiB: {good}");
                Ok(())
            });
            tally.check(variant.name, judged);
        }
    }
    Ok(())
}

impl Variant {
    /// A text that is replaced must be there: otherwise each variant would be the board of 4 GiB
    /// again.
    fn board(&self, name: Name, source: &str, tools: &Tools) -> Result<BoardTree> {
        let mut text = source.to_owned();
        // An empty list leaves the tree as it is.
        for (old, new) in self.banks {
            ensure!(text.contains(old), "the tree has no {old}");
            text = text.replace(old, new);
        }
        let stem = format!("{}-{}", name.text(), self.name.replace(' ', "-"));
        let file = workspace::output_dir().join(format!("{stem}.dtb"));
        fs::write(&file, compile_text(&text, tools, &file)?)?;
        BoardTree::from_file(&file, tools)
    }
}

/// Returns whether the manifest is valid on the board when its first VM has `mib` of memory. Only
/// the two rules about room may fail. Another finding would make the limit pass for a wrong reason.
fn takes(board: &BoardTree, manifest: &Path, mib: u32, tools: &Tools) -> Result<bool> {
    let text = fs::read_to_string(manifest)?;
    let (before, rest) = text.split_once("memory-mib = <").context("no memory")?;
    let (_, behind) = rest.split_once('>').context("no memory")?;
    let file = workspace::output_dir().join("layout.dts");
    fs::write(&file, format!("{before}memory-mib = <{mib}>{behind}"))?;
    let findings = check::check(&file, board, tools)?;
    let errors = workbench::manifest::diagnostic::error_count(&findings.list);
    // Not enough memory in all, and not enough in one piece.
    let known = ["M-MEM-007", "M-MEM-009"];
    let wrong = findings.list.iter().find(|one| !known.contains(&one.id));
    ensure!(wrong.is_none(), "{wrong:?}");
    Ok(errors == 0)
}

/// Has init place everything, where the boot script would load it, and looks that it is in memory,
/// and nothing twice. Overlap is looked for pair by pair, and with what the firmware has reserved.
fn fits(board: &BoardTree, name: Name, archive: &[u8], tools: &Tools) -> Result<()> {
    let placed = placement::place(board.clone(), archive, tools)?;
    // Init's own words are the reason that a user would read.
    let placed = placed.map_err(|refusal| anyhow!("{refusal}"))?;
    let regions = regions(&placed);
    let outside: Vec<Region> = regions
        .iter()
        .flat_map(|region| subtract(&[*region], &placed.board.memory))
        .collect();
    ensure!(outside.is_empty(), "outside of memory: {outside:x?}");
    for (index, one) in regions.iter().enumerate() {
        // Each pair once.
        let mut others = regions[index + 1..].iter();
        let twice = others.find(|other| other.overlaps(one));
        ensure!(twice.is_none(), "{one:x?} and {twice:x?} overlap");
        let mut reserved = placed.board.reserved.iter();
        let taken = reserved.find(|other| other.overlaps(one));
        ensure!(taken.is_none(), "{one:x?} is firmware's: {taken:x?}");
        let is_video = name == Name::Rpi4 && one.overlaps(&VIDEO_CORE);
        ensure!(!is_video, "{one:x?} is the VideoCore's");
    }
    match name {
        Name::RcarH3 => is_loaded_to_first_bank(&placed, archive),
        _ => Ok(()),
    }
}

/// Checks that the R-Car H3's boot script loads init and the archive into the first bank.
fn is_loaded_to_first_bank(placed: &Placement, archive: &[u8]) -> Result<()> {
    let bank = placed.board.memory.first().context("no memory")?.start;
    let script = flash::boot_script(Name::RcarH3, archive.len());
    for address in [bank + 2 * MIB, bank + 128 * MIB] {
        let address = format!("{address:#x}");
        let is_used = script.contains(&address);
        ensure!(is_used, "{script} loads nothing to {address}");
    }
    ensure!(placed.init.start == bank + 2 * MIB, "init lies elsewhere");
    Ok(())
}

/// Returns everything that has an owner, or is free. Free memory counts, because init hands it on
/// as free: a byte that is free and owned would be given twice.
fn regions(placed: &Placement) -> Vec<Region> {
    let info = &placed.info;
    let vms = info.vms.iter().flat_map(|vm| vm.regions);
    let vms = vms.filter(|region| region.size != 0);
    let mut list: Vec<Region> = vms
        .map(|region| Region::new(region.pa, region.pa + region.size))
        .collect();
    let image = info.gear2.image;
    list.push(Region::new(image.pa, image.pa + image.size));
    list.push(Region::new(info.pool, info.pool + info.pool_size));
    list.extend([placed.init, placed.archive, placed.device_tree]);
    list.extend(&placed.left);
    list
}

/// Runs the test on the tree that the kernel has for the board. The tree in the repository is a
/// short one, with what GearV reads. Nodes that only the long one has may be in the way of a rule.
fn own_tree(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let scratch = workspace::output_dir().join("rcar-h3-tree");
    let tree = payloads::rcar_h3_device_tree(&tools, &scratch)?;
    let board = BoardTree::from_file(&tree, &tools)?;
    // The short tree is the one that `check --board` and `flash` use.
    let small = BoardTree::named(Name::RcarH3, &tools)?;
    // Facts first: what follows would fail for each that differs.
    have_equal_facts(&board.read()?, &small.read()?)?;
    tally.pass(6);
    let manifest = workspace::root().join("manifests/rcar-h3.dts");
    let archive = fs::read(build_images::build(&manifest)?.archive)?;
    tally.check("rcar-h3", fits(&board, Name::RcarH3, &archive, &tools));
    for name in ["minimal", "two-guests", "rcar-h3", "rcar-h3-device-vm"] {
        keeps_rules(name, &board, &tools)?;
        tally.pass(1);
    }
    Ok(())
}

/// Checks that an example keeps all rules on a board.
fn keeps_rules(name: &str, board: &BoardTree, tools: &Tools) -> Result<()> {
    let file = workspace::root().join(format!("manifests/{name}.dts"));
    let findings = check::check(&file, board, tools)?;
    let errors = workbench::manifest::diagnostic::error_count(&findings.list);
    let drawn = findings.sources.draw(&findings.list, false);
    ensure!(errors == 0, "{name}: {drawn}");
    Ok(())
}

/// The main unit of an IPMMU, its interrupt, and the units that Gear1 drives and leaves alone, by
/// their addresses.
type IpmmuFacts = (u64, Option<(u32, bool)>, [Vec<u64>; 2]);

/// Returns what a board's tree tells of its IPMMU. Each tree has its units in its own order.
fn ipmmu(board: &Board) -> Option<IpmmuFacts> {
    let smmu = board.smmu.as_ref()?;
    let SmmuKind::Ipmmu(ipmmu) = &smmu.kind else {
        return None;
    };
    let mut sorted = [&ipmmu.others[..ipmmu.driven], &ipmmu.others[ipmmu.driven..]].map(|units| {
        let mut starts: Vec<u64> = units.iter().map(|unit| unit.registers.start).collect();
        starts.sort_unstable();
        starts
    });
    sorted[1].extend(ipmmu.product);
    Some((smmu.registers.start, smmu.interrupt, sorted))
}

/// Compares the properties that Gear1 reads from two trees of the R-Car H3. Whatever Gear1 reads
/// must be the same, or the tests on the short tree say nothing about the board.
fn have_equal_facts(own: &Board, small: &Board) -> Result<()> {
    ensure!(own.cpus.len() == 8, "{} CPUs", own.cpus.len());
    let memory = &own.memory;
    ensure!(*memory == small.memory, "other memory: {memory:x?}");
    ensure!(own.cpus == small.cpus, "other CPUs: {:x?}", own.cpus);
    ensure!(own.uart == small.uart, "another UART: {:x?}", own.uart);
    let gic = [own.gic, small.gic].map(|gic| format!("{gic:x?}"));
    ensure!(gic[0] == gic[1], "another GIC: {gic:?}");
    let is_same = own.enable_method == small.enable_method;
    ensure!(is_same, "another way to start CPUs");
    let ipmmus = [own, small].map(ipmmu);
    ensure!(ipmmus[0] == ipmmus[1], "another IPMMU: {ipmmus:x?}");
    Ok(())
}
