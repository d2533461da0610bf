//! The SMMUv2 of a ZCU102 whose device tree enables it, as docs/boards/zcu102.md says.
//!
//! No machine of QEMU's has an SMMUv2: where a ZCU102's registers are, `xlnx-zcu102` reads zeroes. So
//! what is seen here is that the tree is understood, that init places a real archive by it, and that
//! a boot refuses an SMMU without what Gear1 needs. Host tests have models of the registers.
//!
//! Requirement: G1-DMA-001.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use workbench::board::BoardTree;
use workbench::expect::Session;
use workbench::manifest::{compile_text, decompile};
use workbench::qemu::Qemu;
use workbench::tools::Tools;
use workbench::{build_images, payloads, workspace};
use xtask::{check, placement};

use crate::part::{Part, Tally};

/// What the owner of a board adds to the kernel's tree, for GEM3 and SD1.
const ENABLED: &str = "
/ {
	axi {
		iommu@fd800000 { status = \"okay\"; phandle = <0x1000>; };
		ethernet@ff0e0000 { iommus = <0x1000 0x877>; };
		mmc@ff170000 { iommus = <0x1000 0x871>; };
	};
};
";
/// What init says of QEMU's registers.
const REFUSED: &str = "/axi/iommu@fd800000: a VM owns devices behind it, and it has no stage 2";
/// Gear1 refuses before a guest runs.
const BOOT: Duration = Duration::from_secs(60);

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("the SMMU of a ZCU102's tree", all)]
}

fn all(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let manifest = workspace::root().join("tests/manifests/zcu102-smmu.dts");
    let off = BoardTree::from_file(&payloads::zcu102_device_tree()?, &tools)?;
    let file = enabled(&tools)?;
    let on = BoardTree::from_file(&file, &tools)?;
    for (name, board, expected) in [
        ("off: check warns", &off, &["M-WRN-001"][..]),
        ("on: check does not", &on, &[]),
    ] {
        let findings = check::check(&manifest, board, &tools)?;
        let found: Vec<_> = findings.list.iter().map(|found| found.id).collect();
        let outcome = (found == expected).then_some(());
        tally.check(name, outcome.ok_or_else(|| anyhow!("found: {found:?}")));
    }
    let images = build_images::build(&manifest)?;
    let archive = fs::read(&images.archive)?;
    let placed = placement::place(on, &archive, &tools)?;
    let placed = placed.map(drop).map_err(|one| anyhow!("{one}"));
    tally.check("on: init places it", placed);
    let command = Qemu::prepare(10)?.zcu102([&images.gear1, &images.archive, &file], None);
    let mut session = Session::start(command, &workspace::output_dir().join("zcu102-smmu.log"))?;
    tally.check(
        "on: QEMU's is refused",
        session.expect(REFUSED, BOOT).map(drop),
    );
    Ok(())
}

/// Writes the kernel's tree with the SMMU enabled, and returns the file.
fn enabled(tools: &Tools) -> Result<PathBuf> {
    let file = workspace::output_dir().join("zcu102-smmu.dtb");
    fs::create_dir_all(workspace::output_dir())?;
    let tree = fs::read(payloads::zcu102_device_tree()?)?;
    let text = decompile(&tree, tools, &file)? + ENABLED;
    let blob = compile_text(&text, tools, &file)?;
    ensure!(blob != tree, "nothing was enabled");
    fs::write(&file, blob)?;
    Ok(file)
}
