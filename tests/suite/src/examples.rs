//! The example manifests: each keeps all rules on the board it is for, and those that the Debian
//! tests do not boot are booted here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::board::{self, BoardTree};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::manifest::diagnostic::error_count;
use workbench::qemu::Qemu;
use workbench::tools::Tools;
use workbench::{device_userland, initramfs, workspace};
use xtask::new_manifest::{self, Choice};
use xtask::smoke::{self, ESCAPE, Extent, shell};
use xtask::{check, run};

use crate::part::{Part, Tally};

mod cockpit;

const BOOT: Duration = Duration::from_secs(300);
/// Line that the control loop of the examples prints after a second.
const PERIODS: &str = "control loop: 1000 periods, at most ";

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("example manifests keep the rules", judged),
        Part::new("a new manifest boots", new),
        Part::new("the manual's third guest keeps the rules", |tally| {
            third_guest(false, tally)
        }),
        Part::new("the manual's third guest boots", |tally| {
            third_guest(true, tally)
        })
        .slow(true),
        Part::new("Linux finds the memory that it shares", shared_with_linux).slow(true),
        Part::new("digests, boot order and alignment", ordered),
        Part::new("example bare-metal-pair boots", pair),
        Part::new("example mixed-criticality boots", cockpit::part).either(),
        Part::new("example pools boots", pools),
        Part::new("example doorbells boots", doorbells),
    ]
}

fn manifest(name: &str) -> PathBuf {
    workspace::root().join(format!("manifests/{name}.dts"))
}

fn judged(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let examples = [
        (
            board::Name::QemuVirt,
            &[
                "minimal",
                "two-guests",
                "qemu-virt",
                "mixed-criticality",
                "bare-metal-pair",
                "pools",
                "doorbells",
            ][..],
        ),
        (board::Name::Rpi4, &["rpi4"]),
        (board::Name::RcarH3, &["minimal", "two-guests", "rcar-h3"]),
        (board::Name::Zcu102, &["zcu102"]),
        (board::Name::Imx8mpEvk, &["imx8mp-evk"]),
    ];
    for (name, manifests) in examples {
        let board = BoardTree::named(name, &tools)?;
        for stem in manifests {
            tally.check(stem, keeps_rules(&manifest(stem), &board, &tools));
        }
        for choice in Choice::all(name) {
            let new = workspace::output_dir().join(format!("new-{}.dts", name.text()));
            fs::write(&new, new_manifest::text(name, choice))?;
            let judged = keeps_rules(&new, &board, &tools);
            tally.check(&format!("new-manifest, {choice:?}"), judged);
        }
    }
    Ok(())
}

fn keeps_rules(file: &std::path::Path, board: &BoardTree, tools: &Tools) -> Result<()> {
    let findings = check::check(file, board, tools)?;
    let errors = error_count(&findings.list);
    ensure!(
        errors == 0,
        "{} on {}:\n{}",
        file.display(),
        board.name,
        findings.sources.draw(&findings.list, false)
    );
    Ok(())
}

/// Boots the manifest that `new-manifest` writes.
fn new(tally: &mut Tally) -> Result<()> {
    let file = workspace::output_dir().join("new.dts");
    fs::write(
        &file,
        new_manifest::text(board::Name::QemuVirt, Choice::default()),
    )?;
    let images = build_images::build(&file)?;
    let machine = run::machine_for(&images)?;
    let qemu = Qemu::prepare(10)?;
    let checks = smoke::check_all(&qemu, &machine, &images, "new.log", Extent::BRIEF, &|_| {})?;
    tally.pass(checks);
    Ok(())
}

/// The guest that `docs/manifest.md` adds to the system of the device VM, taken from its text.
fn third_guest(boots: bool, tally: &mut Tally) -> Result<()> {
    let file = workspace::output_dir().join("third-guest.dts");
    fs::write(&file, with_third_guest()?)?;
    let tools = Tools::prepare()?;
    let board = BoardTree::named(board::Name::QemuVirt, &tools)?;
    keeps_rules(&file, &board, &tools)?;
    tally.pass(1);
    if !boots {
        return Ok(());
    }
    let images = build_images::build(&file)?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("third-guest.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = use_third(&mut session);
    outcome.with_context(|| last_words(&session))?;
    tally.pass(3);
    Ok(())
}

/// Returns the manifest of the device VM's system with the manual's guest behind the last VM.
fn with_third_guest() -> Result<String> {
    let manual = fs::read_to_string(workspace::root().join("docs/manifest.md"))?;
    let steps = manual.split("### Adding a guest").nth(1);
    let node = steps.and_then(|steps| steps.split("```dts").nth(1)?.split("```").next());
    let node = node.context("the manual adds no guest")?;
    let system = fs::read_to_string(build_images::default_manifest())?;
    // The ends of the last VM, of /vms and of the root.
    let end = system.rfind("\n\t};\n};").context("/vms has no end")?;
    let (before, behind) = system.split_at(end);
    Ok(format!("{before}\n{node}{behind}"))
}

fn use_third(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    let list = shell(session, "until gearctl list; do sleep 0.2; done")?;
    ensure!(list.contains("third"), "third is not in\n{list}");
    session.send("gearctl console --all third\n")?;
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}third{after}"), BOOT)?;
    smoke::check_input(session)
}

/// The device VM's Linux offers memory that it shares with the guest to programs, by device-dax,
/// and the guest's finds it in its device tree.
fn shared_with_linux(tally: &mut Tally) -> Result<()> {
    let system = fs::read_to_string(build_images::default_manifest())?;
    let end = system.rfind("\n};").context("the root has no end")?;
    let (before, behind) = system.split_at(end);
    let node = "shared-memory { board { address = <0x70000000>; size-mib = <4>; vms = \"device\", \"linux\"; }; };";
    let file = workspace::output_dir().join("shared-linux.dts");
    fs::write(&file, format!("{before}\n{node}{behind}"))?;
    let images = build_images::build(&file)?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("shared-linux.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = find_shared(&mut session);
    outcome.with_context(|| last_words(&session))?;
    tally.pass(3);
    Ok(())
}

fn find_shared(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    let name = dax_device(session)?;
    let size = shell(session, &format!("cat {name}/size; ls /dev/{name}"))?;
    ensure!(size.contains("4194304"), "{name} has {size}");
    session.send("gearctl console --all linux\n")?;
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), BOOT)?;
    let node = "cat /proc/device-tree/pmem-region@6fe00000/compatible";
    let node = shell(session, node)?;
    ensure!(node.contains("pmem-region"), "the guest's tree has {node}");
    Ok(())
}

/// Waits for the dax device of the shared memory, and returns its name.
fn dax_device(session: &mut Session) -> Result<String> {
    let found = "cd /sys/bus/dax/devices; until grep -l 0x70000000 */resource; do sleep 1; done";
    let found = shell(session, found)?;
    let mut lines = found.lines().rev();
    let name = lines.find_map(|line| line.trim().strip_suffix("/resource"));
    Ok(name.context("no device has it")?.to_owned())
}

/// Files with the right digests boot, the VM that comes first in the file starts last, and memory
/// lies where it was asked to.
fn ordered(tally: &mut Tally) -> Result<()> {
    let file = workspace::output_dir().join("ordered.dts");
    fs::write(&file, ordered_manifest()?)?;
    let images = build_images::build(&file)?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("ordered.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    for name in ["first", "middle", "last"] {
        let started = session.expect(&format!("gear2: {name} started"), BOOT);
        started.with_context(|| last_words(&session))?;
        tally.pass(1);
    }
    for (name, _, align) in ORDERED {
        let place = place_of(session.transcript(), name)?;
        let is_aligned = place.is_multiple_of(u64::from(align) << 20);
        ensure!(is_aligned, "{name} lies at {place:#x}, for {align} MiB");
        tally.pass(1);
    }
    Ok(())
}

/// VMs by name, boot order and alignment in MiB.
const ORDERED: [(&str, u32, u32); 3] = [("last", 2, 64), ("middle", 1, 128), ("first", 0, 2)];

fn ordered_manifest() -> Result<String> {
    let image = build_images::build_guest("counters")?;
    let digest = smoke::hex(&fs::read(image)?);
    let vms = ORDERED.map(|(name, order, align)| {
        format!(
            "{name} {{ memory-mib = <2>; memory-align-mib = <{align}>; boot-order = <{order}>;\n\
             image = \"artifact:guest:counters\"; image-sha256 = \"{digest}\"; console {{ }}; }};\n"
        )
    });
    let vms = vms.concat();
    Ok(format!(
        "/dts-v1/;\n/ {{ compatible = \"gearv,manifest\"; version = <1>; vms {{\n{vms}}}; }};\n"
    ))
}

/// Returns where init says that a VM of [`ORDERED`] lies.
fn place_of(said: &str, name: &str) -> Result<u64> {
    let line = format!("gearv: {name}: 1 vCPUs, 2 MiB at 0x");
    let place = said
        .split(&line)
        .skip(1)
        .find_map(|rest| rest.split_whitespace().next());
    let place = place.context("init does not say where it is")?;
    Ok(u64::from_str_radix(place, 16)?)
}

/// An example on QEMU.
struct Example {
    session: Session,
    vms: Vec<VmSummary>,
    /// File that the second UART writes to.
    serial: PathBuf,
}

impl Example {
    fn boot(name: &str) -> Result<Example> {
        let images = build_images::build(&manifest(name))?;
        let machine = run::machine_for(&images)?;
        let serial = run::second_serial(&images).context("no VM has the second UART")?;
        fs::write(&serial, "")?;
        let log = workspace::output_dir().join(format!("{name}/boot.log"));
        let session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
        let vms = images.manifest.vms;
        Ok(Example {
            session,
            vms,
            serial,
        })
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.session.expect(text, BOOT).map(drop);
        found.with_context(|| last_words(&self.session))
    }

    /// Returns a VM of the manifest.
    fn guest(&self, name: &str) -> Result<VmSummary> {
        let vm = self.vms.iter().find(|vm| vm.name == name);
        Ok(vm.with_context(|| format!("there is no {name}"))?.clone())
    }

    /// Returns how many reports the real-time VM has made.
    fn reports(&self) -> Result<usize> {
        Ok(fs::read_to_string(&self.serial)?
            .matches(" periods, at most ")
            .count())
    }

    /// Waits for a text of the real-time VM's.
    fn wait_for_serial(&mut self, text: &str) -> Result<()> {
        for _ in 0..600 {
            if fs::read_to_string(&self.serial)?.contains(text) {
                return Ok(());
            }
            self.session.listen(Duration::from_millis(100))?;
        }
        let said = fs::read_to_string(&self.serial)?;
        ensure!(false, "it does not say {text:?}:\n{said}");
        Ok(())
    }

    /// Waits for another report of the real-time VM.
    fn wait_for_report(&mut self) -> Result<()> {
        let before = self.reports()?;
        for _ in 0..600 {
            if self.reports()? > before {
                return Ok(());
            }
            self.session.listen(Duration::from_millis(100))?;
        }
        let said = fs::read_to_string(&self.serial)?;
        ensure!(
            false,
            "the real-time VM says no more:\n{said}\n{}",
            last_words(&self.session)
        );
        Ok(())
    }
}

/// Both programs run: one is seen on its own UART, the other by way of Gear2.
fn pair(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("bare-metal-pair")?;
    example.wait_for_report()?;
    example.session.send(&format!("{ESCAPE}1"))?;
    example.expect(PERIODS)?;
    tally.pass(2);
    Ok(())
}

/// Linux hears a bare-metal guest's doorbell as a key, and rings that of a real-time VM, which says
/// so on its own UART.
fn doorbells(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("doorbells")?;
    example.expect(device_userland::READY)?;
    example.session.send("stty cols 1000\n")?;
    let name = "cat /sys/class/input/event0/device/name";
    let name = shell(&mut example.session, name)?;
    ensure!(name.contains("tick"), "the input device is {name}");
    // Pressed and released, each with an event behind it: five interrupts.
    let events = "dd if=/dev/input/event0 of=/dev/null bs=24 count=20 2>&1";
    let events = shell(&mut example.session, events)?;
    ensure!(events.contains("20+0 records in"), "{events}");
    tally.pass(2);
    for rings in 1..=3 {
        shell(&mut example.session, "devmem 0x0b000000 32 1")?;
        example.wait_for_serial(&format!("redraw: {rings} rings"))?;
        tally.pass(1);
    }
    Ok(())
}

/// VMs of the example of pools, in the order of their numbers.
const POOLED: [&str; 7] = [
    "small",
    "large",
    "controller",
    "logger",
    "planner",
    "camera",
    "monitor",
];

/// Waits until all pooled VMs have ended. Where the host is slow, other lines interrupt the report
/// of a program that runs; the history of one that has ended is whole.
fn await_ends(session: &mut Session) -> Result<()> {
    let has_ended = |said: &str, name: &str| said.contains(&format!("{name} stopped"));
    let all_have = |said: &str| POOLED.iter().all(|name| has_ended(said, name));
    session
        .wait_until("end of all programs", BOOT, all_have)
        .with_context(|| last_words(session))
}

/// Shows the console of a pooled VM that has ended, and looks for its report.
fn reported(session: &mut Session, id: usize, name: &str) -> Result<()> {
    session.send(&format!("{ESCAPE}{id}"))?;
    session.expect(&format!("--- {name} ---"), BOOT)?;
    let report = session.expect("PASS sched", BOOT);
    let report = report.with_context(|| last_words(session))?;
    ensure!(report.contains(&format!(" id={id} ")), "{name}: {report}");
    Ok(())
}

/// Three schedulers in one machine: each VM starts, and what runs in windows, by a budget and by
/// what they leave comes to its end.
fn pools(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&manifest("pools"))?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("pools/boot.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let hello =
        "3 CPUs, schedulers fair on CPU 0, edf on CPU 1 (control), arinc653 on CPU 2 (avionics)";
    session
        .expect(hello, BOOT)
        .with_context(|| last_words(&session))?;
    tally.pass(1);
    await_ends(&mut session)?;
    for (id, name) in POOLED.iter().enumerate() {
        reported(&mut session, id, name)?;
        tally.pass(1);
    }
    Ok(())
}
