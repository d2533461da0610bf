//! `cargo xtask run`: builds what a manifest describes and starts it on QEMU.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use gearv_manifest::VmKind;
use rustix::termios::{self, OptionalActions, Termios};
use workbench::build_images::{self, Images};
use workbench::manifest::VmSummary;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::{ext4, guest_userland, output, workspace};

use crate::smoke;
use watch::{End, Watch};

mod watch;

/// Memory that GearV and QEMU need beside the VMs' memory.
const OVERHEAD_MIB: u64 = 256;
const MIB: u64 = 1 << 20;

/// The options of `run`.
#[derive(Args, Debug)]
pub struct Options {
    /// The manifest to run [default: manifests/qemu-virt.dts]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The CPU model: cortex-a57, cortex-a72, max, ...
    #[arg(long, value_name = "MODEL", default_value = "cortex-a57")]
    cpu: String,
    /// The version of the interrupt controller
    #[arg(long, value_name = "VERSION", default_value_t = 3)]
    gic: u32,
    /// The number of CPUs [default: as many as the manifest names, at least 2]
    #[arg(long, value_name = "COUNT")]
    cpus: Option<u32>,
    /// The machine's memory [default: enough for the VMs, at least 1024]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value_t = 10)]
    qemu: u32,
    /// Wait for a debugger before the first instruction
    #[arg(long)]
    gdb: bool,
    /// Boot and check without a terminal; the exit code tells
    #[arg(long, conflicts_with = "gdb")]
    smoke: bool,
}

impl Options {
    /// Builds, starts and, with a terminal, hands it over.
    pub fn run(self) -> Result<()> {
        let manifest = self
            .manifest
            .clone()
            .unwrap_or_else(build_images::default_manifest);
        let images = build_images::build(&manifest)?;
        let qemu = Qemu::prepare(self.qemu)?;
        let machine = self.machine(&images)?;
        if self.smoke {
            return smoke::run(&qemu, &machine, &images);
        }
        interactive(&qemu, &machine, &images)
    }

    fn machine(&self, images: &Images) -> Result<Machine> {
        let needed = machine_for(images)?;
        Ok(Machine {
            cpu: self.cpu.clone(),
            gic: self.gic,
            cpus: self.cpus.unwrap_or(needed.cpus),
            memory_mib: self.memory.unwrap_or(needed.memory_mib),
            gdb: self.gdb,
            ..needed
        })
    }
}

/// Returns the least machine that the manifest can run on; a disk is made for it here.
pub fn machine_for(images: &Images) -> Result<Machine> {
    let default = Machine::default();
    let disk = match images.manifest.device_vm() {
        Some(_) => Some(new_disk(images)?),
        None => None,
    };
    Ok(Machine {
        cpus: default.cpus.max(u32::try_from(images.manifest.cpu_count)?),
        memory_mib: memory_for(images)?,
        disk,
        second_serial: second_serial(images),
        ..default
    })
}

/// Returns the file that the second UART writes to, if a VM owns one.
pub fn second_serial(images: &Images) -> Option<PathBuf> {
    let file = images.archive.with_file_name("second-serial.log");
    images.manifest.second_uart.then_some(file)
}

/// Returns a disk as it is before the first boot, and this run's own; those of runs that have ended
/// are removed.
fn new_disk(images: &Images) -> Result<PathBuf> {
    let directory = images.archive.with_file_name("disks");
    fs::create_dir_all(&directory)?;
    for disk in fs::read_dir(&directory)?.flatten() {
        let disk = disk.path();
        let run = disk.file_stem().unwrap_or_default();
        if !Path::new("/proc").join(run).exists() {
            fs::remove_file(disk)?;
        }
    }
    let disk = directory.join(format!("{}.img", process::id()));
    ext4::copy(&guest_userland::disk(&workspace::output_dir())?, &disk)?;
    Ok(disk)
}

/// Returns how many MiB a machine needs for the VMs, the archive and GearV.
pub fn memory_for(images: &Images) -> Result<u32> {
    let vms: u64 = images.manifest.vms.iter().map(|vm| vm.memory_bytes).sum();
    let archive = std::fs::metadata(&images.archive)?.len();
    let needed = (vms + archive).div_ceil(MIB) + OVERHEAD_MIB;
    Ok(u32::try_from(needed.next_multiple_of(512))?.max(1024))
}

/// Runs the machine on this terminal until it ends.
fn interactive(qemu: &Qemu, machine: &Machine, images: &Images) -> Result<()> {
    let mut command = qemu.command(machine, &images.boot(), Console::Terminal);
    greet(machine, images);
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
fn follow(
    command: &mut Command,
    is_last: impl Fn(End) -> bool,
) -> Result<(ExitStatus, Option<End>)> {
    let mut child = command.spawn().context("QEMU cannot be started")?;
    let mut printed = child.stdout.take().context("QEMU has no output pipe")?;
    let mut watch = Watch::default();
    let mut bytes = [0; 4096];
    let end = loop {
        let length = read_some(&mut printed, &mut bytes)?;
        if length == 0 {
            break None;
        }
        output::pass_on(&bytes[..length]);
        let end = watch.take(&bytes[..length]);
        if end.is_some_and(&is_last) {
            child.kill()?;
            break end;
        }
    };
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

/// Says what starts and which keys lead out of it.
fn greet(machine: &Machine, images: &Images) {
    let Machine {
        cpu,
        gic,
        cpus,
        memory_mib,
        ..
    } = machine;
    eprintln!("QEMU virt: {cpus} x {cpu}, GICv{gic}, {memory_mib} MiB");
    name_vms(&images.manifest.vms);
    if let Some(file) = &machine.second_serial {
        eprintln!("the second serial port writes to {}", file.display());
    }
    eprintln!("{}", keys(images));
    if machine.gdb {
        let images = workspace::target_dir()
            .join(workspace::BARE_TARGET)
            .join("image");
        eprintln!(
            "waiting for: gdb-multiarch -ex 'target remote :1234' {}/gear1-init",
            images.display()
        );
    }
}

/// Says which VMs start.
fn name_vms(vms: &[VmSummary]) {
    for (index, vm) in vms.iter().enumerate() {
        let mib = vm.memory_bytes / MIB;
        let VmSummary {
            name, kind, vcpus, ..
        } = vm;
        eprintln!("  VM {index}  {name} ({kind:?}), {vcpus} vCPUs, {mib} MiB");
    }
}

/// Says what leads to the VMs' consoles, and out.
fn keys(images: &Images) -> String {
    let vms = &images.manifest.vms;
    let Some((device, vm)) = images.manifest.device_vm() else {
        return "keys: Ctrl-G, then 0-9 = console of that VM, l = list VMs, r = restart, s = stop, \
                t = start,\n      q = power off, h = all keys; Ctrl-A, then x = end QEMU at once"
            .to_owned();
    };
    let mut text = format!("this terminal is the console of {}; type there\n", vm.name);
    for (index, guest) in vms.iter().enumerate() {
        if index != device {
            let command = guest.console_command();
            text += &format!(
                "  {command:32} for the console of {}, Ctrl-] leaves it\n",
                guest.name
            );
        }
    }
    text + "  gearctl help                     for what else there is\n\
            keys: Ctrl-A, then x = end QEMU at once"
}

/// The settings of this terminal, restored when QEMU did not get to it.
struct Terminal(Option<Termios>);

impl Terminal {
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
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // If the terminal has gone away there is nothing to restore.
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, settings);
        }
    }
}
