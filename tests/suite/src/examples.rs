//! The example manifests: each keeps all rules on the board it is for, and those that the Debian
//! tests do not boot are booted here.
//!
//! A reader copies these manifests first, so an example that a later rule forbids, or that boots
//! only nowhere, costs a newcomer the first hour. Rules are judged on all boards, because the
//! compiler knows boards that QEMU does not have.

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

/// A boot of Debian takes tens of seconds. The rest is for a host that compiles meanwhile: the
/// limit has to end a hang, not to measure.
const BOOT: Duration = Duration::from_secs(300);
/// Line that the control loop of the examples prints after a second. The figure behind the text
/// depends on the host, so no test reads it.
const PERIODS: &str = "control loop: 1000 periods, at most ";

/// The compiler judges before anything boots: a fault that it finds costs seconds there and minutes
/// in QEMU.
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
        Part::new("example doorbells boots", doorbells).slow(true),
    ]
}

/// Returns the file of an example as a user names it: a copy would hide that the file itself is
/// wrong.
fn manifest(name: &str) -> PathBuf {
    workspace::root().join(format!("manifests/{name}.dts"))
}

/// Judges each example on each board that it is for, and all that `new-manifest` can write for a
/// board. The choices come from the type itself, so that a new choice is judged without a change
/// here.
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
        (
            board::Name::RcarH3,
            &["minimal", "two-guests", "rcar-h3", "rcar-h3-device-vm"],
        ),
        (board::Name::Zcu102, &["zcu102"]),
        (board::Name::Imx8mpEvk, &["imx8mp-evk"]),
    ];
    for (name, manifests) in examples {
        let board = BoardTree::named(name, &tools)?;
        for stem in manifests {
            tally.check(stem, keeps_rules(&manifest(stem), &board, &tools));
        }
        for choice in Choice::all(name) {
            // Drawn findings name the file, which therefore has to exist.
            let new = workspace::output_dir().join(format!("new-{}.dts", name.text()));
            fs::write(&new, new_manifest::text(name, choice))?;
            let judged = keeps_rules(&new, &board, &tools);
            tally.check(&format!("new-manifest, {choice:?}"), judged);
        }
    }
    Ok(())
}

/// Warnings pass: an example may do what is legal and unusual, and explains the reason in its text.
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

/// Boots the manifest that `new-manifest` writes. The compiler's verdict alone would miss a
/// manifest that is valid and whose guest nobody can use.
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

/// The guest that `docs/manifest.md` adds to the system of the device VM, taken from its text. The
/// text itself is the input, so that the manual cannot grow apart from the compiler. The boot is
/// slow and shows little that the rules do not, which is why only `--slow` does it.
fn third_guest(boots: bool, tally: &mut Tally) -> Result<()> {
    let file = workspace::output_dir().join("third-guest.dts");
    fs::write(&file, with_third_guest()?)?;
    let tools = Tools::prepare()?;
    let board = BoardTree::named(board::Name::QemuVirt, &tools)?;
    keeps_rules(&file, &board, &tools)?;
    tally.pass(1);
    // The part without a boot ends at the compiler's verdict.
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

/// Returns the manifest of the device VM's system with the manual's guest behind the last VM. Cuts
/// the block of code out of the heading's section: a manual that moves or renames the section fails
/// here by name.
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

/// The device VM's shell comes first, because the third guest's console is a window in `gearctl`
/// there.
fn use_third(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    // A narrow terminal breaks the echo of a long command, and the end of an answer would not be
    // recognized.
    session.send("stty cols 1000\n")?;
    let list = shell(session, "until gearctl list; do sleep 0.2; done")?;
    ensure!(list.contains("third"), "third is not in\n{list}");
    session.send("gearctl console --all third\n")?;
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}third{after}"), BOOT)?;
    smoke::check_input(session)
}

/// The device VM's Linux offers memory that it shares with the guest to programs, by device-dax,
/// and the guest's finds it in its device tree. A stock kernel needs a namespace's metadata in the
/// region to offer it, which Gear1's init writes (`gear1/init/src/dax.rs`). Only a real Debian
/// shows that the metadata satisfies the driver.
fn shared_with_linux(tally: &mut Tally) -> Result<()> {
    let system = fs::read_to_string(build_images::default_manifest())?;
    let end = system.rfind("\n};").context("the root has no end")?;
    let (before, behind) = system.split_at(end);
    // The default system shares no memory, so the node is added to a copy of its manifest.
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

/// The device VM's Linux must show the size of the manifest, without the 2 MiB of metadata before
/// it.
fn find_shared(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    let name = dax_device(session)?;
    let size = shell(session, &format!("cat {name}/size; ls /dev/{name}"))?;
    ensure!(size.contains("4194304"), "{name} has {size}");
    session.send("gearctl console --all linux\n")?;
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), BOOT)?;
    // The node begins 2 MiB before the address of the manifest: the metadata lie there.
    let node = "cat /proc/device-tree/pmem-region@6fe00000/compatible";
    let node = shell(session, node)?;
    ensure!(node.contains("pmem-region"), "the guest's tree has {node}");
    Ok(())
}

/// Waits for the dax device of the shared memory, and returns its name. The kernel numbers its
/// devices in the order of probing, so the address alone says which is ours.
fn dax_device(session: &mut Session) -> Result<String> {
    // The driver probes in the background, so the device may come after the shell.
    let found = "cd /sys/bus/dax/devices; until grep -l 0x70000000 */resource; do sleep 1; done";
    let found = shell(session, found)?;
    let mut lines = found.lines().rev();
    let name = lines.find_map(|line| line.trim().strip_suffix("/resource"));
    Ok(name.context("no device has it")?.to_owned())
}

/// Files with the right digests boot, the VM that comes first in the file starts last, and memory
/// lies where it was asked to. The order of the file is the opposite of the boot order, and the
/// largest alignment belongs to the VM in the middle: an order or a place that comes from the
/// file's order fails. `expect` looks behind the previous match only, so a start out of order is
/// not found. Places are read from init's own lines, since a guest knows its IPA alone.
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

/// All VMs run one small image, with its digest from the file: a wrong digest is refused, which the
/// invalid manifests show.
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

/// An example on QEMU. Real-time VMs have no console of Gear2's. Output of theirs goes to a UART of
/// their own, which QEMU writes to a file.
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
        // An earlier run's reports would count as this boot's.
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

    /// A bare timeout says nothing about the reason, so the end of the console goes with it.
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

    /// Waits for a text of the real-time VM's. The console is listened to meanwhile: a full pipe
    /// would stop QEMU, and with it the VM that is awaited.
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

    /// Waits for another report of the real-time VM. One report more than before is a sign of life;
    /// the last one would also stand there of a VM that died.
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

/// Both programs run: one is seen on its own UART, the other by way of Gear2. No Linux is in the
/// way here: this is the smallest system that shows both kinds of VM.
fn pair(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("bare-metal-pair")?;
    example.wait_for_report()?;
    example.session.send(&format!("{ESCAPE}1"))?;
    example.expect(PERIODS)?;
    tally.pass(2);
    Ok(())
}

/// Linux hears a bare-metal guest's doorbell as a key, and rings that of a real-time VM, which says
/// so on its own UART. GDM is in neither way: Debian's own `gpio-keys` driver hears the bell as an
/// interrupt, and a write to a register of the channel rings. A key is pressed and released, each
/// with an event behind it: five interrupts. The count is known, so `dd` ends by itself when the
/// bell rings as it should.
fn doorbells(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("doorbells")?;
    example.expect(device_userland::READY)?;
    example.session.send("stty cols 1000\n")?;
    let name = "cat /sys/class/input/event0/device/name";
    let name = shell(&mut example.session, name)?;
    ensure!(name.contains("tick"), "the input device is {name}");
    let events = "dd if=/dev/input/event0 of=/dev/null bs=24 count=20 2>&1";
    let events = shell(&mut example.session, events)?;
    ensure!(events.contains("20+0 records in"), "{events}");
    tally.pass(2);
    // The number in the answer shows that no ring was lost and none came twice.
    for rings in 1..=3 {
        shell(&mut example.session, "devmem 0x0b000000 32 1")?;
        example.wait_for_serial(&format!("redraw: {rings} rings"))?;
        tally.pass(1);
    }
    Ok(())
}

/// VMs of the example of pools, in the order of their numbers. The console's keys take that number,
/// and each program prints the number that it was told.
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

/// Shows the console of a pooled VM that has ended, and looks for its report. A report with another
/// VM's identifier would mean that the history of another VM was shown.
fn reported(session: &mut Session, id: usize, name: &str) -> Result<()> {
    session.send(&format!("{ESCAPE}{id}"))?;
    session.expect(&format!("--- {name} ---"), BOOT)?;
    let report = session.expect("PASS sched", BOOT);
    let report = report.with_context(|| last_words(session))?;
    ensure!(report.contains(&format!(" id={id} ")), "{name}: {report}");
    Ok(())
}

/// Three schedulers in one machine: each VM starts, and what runs in windows, by a budget and by
/// what they leave comes to its end. Shares are not judged here, because the host's load shows in
/// them. `schedules` judges turns, on a QEMU that counts instructions.
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
