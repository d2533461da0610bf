//! `cargo xtask run`: builds what a manifest describes and starts it on QEMU.
//!
//! Options are judged before anything is built, so that a slip costs seconds. The machine has what
//! the manifest needs and no more: a VM that runs here by an accident of a larger machine would
//! fail on a board.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal as _, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use gearv_manifest::{MAX_CPUS, VmKind};
use rustix::termios::{self, OptionalActions, Termios};
use workbench::board::BoardTree;
use workbench::build_images::{self, Images, Plan};
use workbench::manifest::Compiled;
use workbench::qemu::{Console, Disk, Machine, Network, Qemu};
use workbench::tools::Tools;
use workbench::{number, output};

use crate::{check, smoke};
use ports::Wanted;
use watch::{End, Watch};

pub mod disks;
mod greeting;
mod ports;
mod watch;

/// Memory that GearV and QEMU need beside the VMs' memory. Gear1, Gear2, stage-2 tables and device
/// trees, with room.
const OVERHEAD_MIB: u64 = 256;
/// Options and manifests count in MiB.
const MIB: u64 = 1 << 20;
/// Sizes of memory that QEMU's `virt` can have and GearV starts in. With more, `virt` moves
/// registers that lie behind its memory (QEMU's hw/arm/virt.c, LEGACY_RAMLIMIT_GB).
const MEMORY_MIB: std::ops::RangeInclusive<u32> = 256..=255 << 10;

/// The options of `run`.
#[derive(Args, Debug)]
pub struct Options {
    /// The manifest to run [default: manifests/qemu-virt.dts]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The CPU model, with options of QEMU's: cortex-a53, cortex-a72, max, ...
    #[arg(long, value_name = "MODEL", default_value = "cortex-a57")]
    cpu: String,
    /// The version of the interrupt controller, 2 or 3
    #[arg(long, value_name = "VERSION", default_value_t = 3,
          value_parser = number::within(2..=3_u32))]
    gic: u32,
    /// The number of CPUs, 1 to 8 [default: as many as the manifest names, at least 2]
    #[arg(long, value_name = "COUNT",
          value_parser = number::within(1..=MAX_CPUS as u32))]
    cpus: Option<u32>,
    /// The machine's memory [default: enough for the VMs, at least 1024]
    #[arg(long, value_name = "MIB", value_parser = number::within(MEMORY_MIB))]
    memory: Option<u32>,
    /// A disk beside the manifest's own: an image (raw or qcow2) or a block device, written to; may
    /// be given several times
    #[arg(long = "disk", value_name = "FILE")]
    disks: Vec<PathBuf>,
    /// Discard in the end what was written to disks
    #[arg(long)]
    snapshot: bool,
    /// Keep the manifest's own disk for the next run with this option
    #[arg(long)]
    keep: bool,
    /// Let VMs reach this machine (10.0.2.2) and the networks behind it
    #[arg(long)]
    net: bool,
    /// A port of this machine that leads to a VM's, as 8080:80, udp:53:53 or 8080:VM:80; may be
    /// given several times
    #[arg(long = "port-forward", value_name = "HOST:GUEST")]
    ports: Vec<Wanted>,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value = "10",
          value_parser = PossibleValuesParser::new(["10", "7"]).try_map(|text| text.parse::<u32>()))]
    qemu: u32,
    /// Wait for a debugger before the first instruction
    #[arg(long)]
    gdb: bool,
    /// Boot and check without a terminal; the exit code tells
    #[arg(long, conflicts_with_all = ["gdb", "snapshot"])]
    smoke: bool,
    /// More options of QEMU, behind `--`
    #[arg(last = true, value_name = "QEMU OPTION")]
    options: Vec<OsString>,
}

impl Options {
    /// Builds, starts and, with a terminal, hands it over. Everything that can be refused is
    /// refused before the images are built, which takes minutes.
    pub fn run(self) -> Result<()> {
        let more_disks = disks::judged(&self.disks, self.snapshot)?;
        ports::judge(&self.ports)?;
        let qemu = Qemu::prepare(self.qemu)?;
        judge_cpu(&self.cpu, &qemu.cpu_models()?)?;
        let manifest = self.manifest.clone();
        let plan = Plan::new(&manifest.unwrap_or_else(build_images::default_manifest))?;
        let network = self.reach(&plan.manifest)?;
        let images = plan.build(|_, _| Ok(()))?;
        let machine = self.machine(&images, more_disks, network)?;
        judge_machine(&qemu, &machine, &images)?;
        if self.smoke {
            return smoke::run(&qemu, &machine, &images);
        }
        interactive(&qemu, &machine, &images)
    }

    /// Returns the reach of the machine's network, and refuses devices that no VM would have.
    /// Without a VM that owns virtio devices, an option for one would be ignored in silence.
    fn reach(&self, manifest: &Compiled) -> Result<Network> {
        let asked = [
            ("--disk", !self.disks.is_empty()),
            ("--keep", self.keep),
            ("--net", self.net),
            ("--port-forward", !self.ports.is_empty()),
        ];
        if let Some((option, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked) {
            ensure_owner(option, manifest)?;
        }
        let forwards = self.ports.iter().map(|port| port.resolved(manifest));
        Ok(Network {
            outside: self.net,
            forwards: forwards.collect::<Result<_>>()?,
        })
    }

    /// Returns the manifest's own disk, for a device VM to serve. A fresh disk is the default: a
    /// run must not depend on the one before.
    fn own_disk(&self, images: &Images) -> Result<Option<PathBuf>> {
        let has_own_disk = images.manifest.device_vm().is_some();
        Ok(match (has_own_disk, self.keep) {
            (false, _) => None,
            (true, false) => Some(disks::fresh(images)?),
            (true, true) => Some(disks::kept(images)?),
        })
    }

    /// Options win over what the manifest needs: a person may want less memory to see it refused.
    fn machine(&self, images: &Images, more_disks: Vec<Disk>, network: Network) -> Result<Machine> {
        let needed = machine_with(images, self.own_disk(images)?)?;
        Ok(Machine {
            cpu: self.cpu.clone(),
            gic: self.gic,
            cpus: self.cpus.unwrap_or(needed.cpus),
            memory_mib: self.memory.unwrap_or(needed.memory_mib),
            gdb: self.gdb,
            more_disks,
            snapshot: self.snapshot,
            network,
            options: self.options.clone(),
            ..needed
        })
    }
}

/// Refuses an option for devices that no VM of the manifest has.
fn ensure_owner(option: &str, manifest: &Compiled) -> Result<()> {
    ensure!(
        manifest.virtio_owner.is_some(),
        "{option}: no VM of {} owns the machine's virtio devices; a device VM owns them by \
         devices = \"/virtio_mmio@*\"",
        manifest.dts.display()
    );
    Ok(())
}

/// Refuses what Gear1 would refuse on this machine, with the place in the manifest. What the user
/// changes by options of QEMU's own is not known here. QEMU writes the device tree of the very
/// machine, so init judges here what it will find.
fn judge_machine(qemu: &Qemu, machine: &Machine, images: &Images) -> Result<()> {
    let tools = Tools::prepare()?;
    let file = images.archive.with_file_name("machine.dtb");
    qemu.dump_tree(machine, &file)?;
    let board = BoardTree::from_file(&file, &tools)?.called("this machine");
    check::place(images, &board, &tools)?;
    Ok(())
}

/// Refuses a CPU model that QEMU lacks; behind a comma are the model's own options. QEMU's own
/// message for an unknown model lists all of its boards' models.
fn judge_cpu(cpu: &str, models: &[String]) -> Result<()> {
    let model = cpu.split(',').next().unwrap_or_default();
    let is_known = models.iter().any(|known| known == model);
    ensure!(
        is_known,
        "--cpu: QEMU has no 64-bit CPU model {model:?}; it has {}",
        models.join(", ")
    );
    Ok(())
}

/// Returns the least machine that the manifest can run on; a disk is made for it here. Tests take
/// this machine, so that they need no options.
pub fn machine_for(images: &Images) -> Result<Machine> {
    let disk = match images.manifest.device_vm() {
        Some(_) => Some(disks::fresh(images)?),
        None => None,
    };
    machine_with(images, disk)
}

/// More CPUs than the manifest names would stay off.
fn machine_with(images: &Images, disk: Option<PathBuf>) -> Result<Machine> {
    let default = Machine::default();
    Ok(Machine {
        cpus: default.cpus.max(u32::try_from(images.manifest.cpu_count)?),
        memory_mib: memory_for(images)?,
        disk,
        second_serial: second_serial(images),
        ..default
    })
}

/// Returns the file that the second UART writes to, if a VM owns one. The second UART is a
/// real-time VM's in the examples; a file keeps its output apart from the terminal.
pub fn second_serial(images: &Images) -> Option<PathBuf> {
    let file = images.archive.with_file_name("second-serial.log");
    images.manifest.second_uart.then_some(file)
}

/// Returns how many MiB a machine needs for the VMs, the archive and GearV. Rounded up to what
/// boards have: a manifest may name memory by address.
pub fn memory_for(images: &Images) -> Result<u32> {
    let vms: u64 = images.manifest.vms.iter().map(|vm| vm.memory_bytes).sum();
    let archive = std::fs::metadata(&images.archive)?.len();
    let needed = (vms + archive).div_ceil(MIB) + OVERHEAD_MIB;
    Ok(u32::try_from(needed.next_multiple_of(512))?.max(1024))
}

/// Runs the machine on this terminal until it ends. The watch ends QEMU where the machine has ended
/// for good: with a halted machine a user would wait in front of a dead terminal. A real-time VM
/// runs on after Gear1's halt.
fn interactive(qemu: &Qemu, machine: &Machine, images: &Images) -> Result<()> {
    let mut command = qemu.command(machine, &images.boot(), Console::Terminal);
    eprint!("{}", greeting::text(machine, &images.manifest));
    let terminal = Terminal::save();
    let mut vms = images.manifest.vms.iter();
    let has_real_time = vms.any(|vm| vm.kind == VmKind::RealTime);
    let ended = follow(command.stdout(Stdio::piped()), |end| match end {
        _ if machine.gdb => false,
        End::Refused => true,
        // Real-time VMs run on.
        End::Halted => !has_real_time,
    });
    drop(terminal);
    let (status, end) = ended?;
    match end {
        Some(End::Refused) => bail!("Gear1 refuses to start: its message is above"),
        Some(End::Halted) => bail!("Gear1 halted; cargo xtask symbolize explains the dump above"),
        None => ensure!(status.success(), "QEMU ended with {status}"),
    }
    Ok(())
}

/// Passes on what QEMU prints, and ends it when the machine has ended in a way that `is_last`.
/// Returns how the machine ended, also where a user ended QEMU after that. Output passes through
/// this program, which alone sees a refusal or a halt in it.
fn follow(
    command: &mut Command,
    is_last: impl Fn(End) -> bool,
) -> Result<(ExitStatus, Option<End>)> {
    let mut child = command.spawn().context("QEMU cannot be started")?;
    let mut printed = child.stdout.take().context("QEMU has no output pipe")?;
    let mut watch = Watch::default();
    let mut bytes = [0; 4096];
    let mut end = None;
    loop {
        let length = read_some(&mut printed, &mut bytes)?;
        if length == 0 {
            break;
        }
        output::pass_on(&bytes[..length]);
        end = watch.take(&bytes[..length]).or(end);
        if end.is_some_and(&is_last) {
            child.kill()?;
            break;
        }
    }
    Ok((child.wait()?, end))
}

/// Reads what is there; a signal to this program, such as of a resized terminal, is no end.
fn read_some(printed: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    loop {
        match printed.read(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            length => return length.context("QEMU's output"),
        }
    }
}

/// The settings of this terminal, restored when QEMU did not get to it. QEMU puts the terminal into
/// raw mode, and a QEMU that is killed leaves it there.
struct Terminal(Option<Termios>);

impl Terminal {
    /// Returns the settings; nothing if this is no terminal.
    fn save() -> Terminal {
        let stdin = io::stdin();
        Terminal(if stdin.is_terminal() {
            termios::tcgetattr(&stdin).ok()
        } else {
            None
        })
    }
}

impl Drop for Terminal {
    /// Output that is still under way is written with the old settings first.
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // If the terminal has gone away there is nothing to restore.
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, settings);
        }
    }
}

#[cfg(test)]
mod tests;
