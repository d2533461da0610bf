//! QEMU command lines, and QEMU as a child that does not outlive this program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tools::{self, Program};
use crate::trace;

mod cpus;
mod devices;

pub use devices::{Disk, Format, Forward, Network, Protocol};

/// The `virt` machine to start.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The CPU model, with options.
    pub cpu: String,
    /// The version of the interrupt controller.
    pub gic: u32,
    /// Whether an SMMUv3 is in front of PCI.
    pub smmu: bool,
    /// The number of CPUs.
    pub cpus: u32,
    /// The memory.
    pub memory_mib: u32,
    /// Whether the machine has EL2, which GearV runs at.
    pub virtualization: bool,
    /// Whether the machine has EL3 and a secure state, whose firmware is [`Machine::firmware`].
    pub secure: bool,
    /// Whether one instruction takes one virtual nanosecond, which makes runs repeatable.
    pub icount: bool,
    /// With `icount`, the longest turn of a CPU in microseconds, while others want theirs. QEMU
    /// changes CPUs when a timer of its own is due, which may be milliseconds away; so it gets one
    /// that is due so often.
    pub turn_us: Option<u32>,
    /// Whether QEMU waits for a debugger on port 1234.
    pub gdb: bool,
    /// The image behind the machine's disk, which is written to; with a disk comes a network card,
    /// on a network that leads nowhere.
    pub disk: Option<PathBuf>,
    /// Disks beside the machine's own, in the order of their names.
    pub more_disks: Vec<Disk>,
    /// Whether the end of the machine discards what was written to its disks.
    pub snapshot: bool,
    /// Reach of the network card.
    pub network: Network,
    /// Options of QEMU behind all others.
    pub options: Vec<OsString>,
    /// File that the first serial port writes to. The second has the pipes then, and there may be
    /// no file of the second's.
    pub first_serial: Option<PathBuf>,
    /// File that a second serial port writes to: QEMU 10's `virt` then has one.
    pub second_serial: Option<PathBuf>,
    /// Firmware that starts instead of the kernel, and finds its files on the machine's disk or
    /// card.
    pub firmware: Option<PathBuf>,
    /// Number of memory banks, each a node of the device tree.
    pub banks: u32,
    /// Image behind an NVMe disk, which firmware reads: no VM gets a PCI bridge.
    pub card: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            cpu: "cortex-a57".to_owned(),
            gic: 3,
            smmu: false,
            cpus: 2,
            memory_mib: 2048,
            virtualization: true,
            secure: false,
            icount: false,
            turn_us: None,
            gdb: false,
            disk: None,
            more_disks: Vec::new(),
            snapshot: false,
            network: Network::default(),
            options: Vec::new(),
            first_serial: None,
            second_serial: None,
            firmware: None,
            banks: 1,
            card: None,
        }
    }
}

/// Files and command line that the machine starts with.
#[derive(Clone, Copy, Debug)]
pub struct Boot<'a> {
    /// arm64 `Image`.
    pub kernel: &'a Path,
    /// Initial RAM disk.
    pub initrd: Option<&'a Path>,
    /// Kernel command line.
    pub command_line: Option<&'a str>,
}

/// Destination of the machine's first serial port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// Terminal of this process, with QEMU's own keys behind Ctrl-A.
    Terminal,
    /// Standard input and output as they are, for a program to drive.
    Pipes,
}

/// QEMU of one major version.
#[derive(Clone, Debug)]
pub struct Qemu {
    /// QEMU for AArch64.
    program: Program,
}

impl Qemu {
    /// Finds QEMU, or downloads it.
    pub fn prepare(major: u32) -> Result<Qemu> {
        Ok(Qemu {
            program: tools::qemu(major)?,
        })
    }

    /// Returns the command that starts the machine; it ends when this program does.
    pub fn command(&self, machine: &Machine, boot: &Boot<'_>, console: Console) -> Command {
        let mut command = self.dependent();
        command.args(machine.arguments());
        if let Some(file) = &machine.first_serial {
            command.arg("-serial").arg(to_file(file));
        }
        command.args(match console {
            Console::Terminal => &["-nographic", "-serial", "mon:stdio"][..],
            Console::Pipes => &["-display", "none", "-monitor", "none", "-serial", "stdio"],
        });
        if let Some(file) = &machine.second_serial {
            command.arg("-serial").arg(to_file(file));
        }
        trace::add_to(&mut command, machine.gic, boot.kernel);
        match &machine.firmware {
            Some(firmware) => command.arg("-bios").arg(firmware),
            None => boot.load(&mut command),
        };
        command.args(&machine.options);
        command
    }

    /// Returns the models with 64-bit CPUs, by the names that QEMU gives them.
    pub fn cpu_models(&self) -> Result<Vec<String>> {
        let mut command = self.with_data(self.program.command());
        let output = command.args(["-M", "virt", "-cpu", "help"]).output();
        let output = output.context("QEMU cannot be started")?;
        let help = String::from_utf8_lossy(&output.stdout);
        let models = cpus::with_64_bits(&help);
        ensure!(!models.is_empty(), "QEMU names no CPU model: {help}");
        Ok(models)
    }

    /// Returns QEMU as a child that ends when this program does.
    fn dependent(&self) -> Command {
        // setpriv is in util-linux, which every Debian has.
        let setpriv = ["setpriv", "--pdeathsig", "TERM", "--"];
        self.with_data(self.program.command_under(&setpriv))
    }

    /// Says where QEMU's firmware is, if QEMU was downloaded.
    fn with_data(&self, mut command: Command) -> Command {
        if let Some(data) = self.program.data("qemu") {
            command.arg("-L").arg(data);
        }
        command
    }
}

impl Qemu {
    /// Returns the command that starts a Raspberry Pi 4 as its firmware would, with its PL011 or
    /// its mini-UART on pipes, and with a card if there is one. QEMU's slot is at the controller
    /// that is the radio's on the board.
    pub fn raspi4b(&self, files: [&Path; 3], mini_uart: bool, card: Option<&Path>) -> Command {
        let mut machine = vec!["raspi4b"];
        if mini_uart {
            machine.extend(["-serial", "null"]);
        }
        let mut command = self.board(&machine, files);
        add_card(&mut command, 0, card);
        command
    }

    /// Returns the command that starts a ZCU102 as U-Boot would, with 2 GiB: QEMU describes more as
    /// one bank. The card, if there is one, is in the board's only slot.
    pub fn zcu102(&self, files: [&Path; 3], card: Option<&Path>) -> Command {
        let machine = ["xlnx-zcu102,virtualization=on", "-smp", "4", "-m", "2048"];
        let mut command = self.board(&machine, files);
        // SD1 is the slot; the drive's index counts controllers.
        add_card(&mut command, 1, card);
        command
    }

    /// Returns the command that starts a ZCU102 with a card, and QEMU's own network at its socket.
    pub fn zcu102_with_network(&self, files: [&Path; 3], card: &Path) -> Command {
        let mut command = self.zcu102(files, Some(card));
        // QEMU gives its cards to the GEMs in their order, and the socket is GEM3's.
        for hub in ["1", "2", "3"] {
            let card = format!("hubport,hubid={hub},model=cadence_gem");
            command.args(["-nic", &card]);
        }
        command.args(["-nic", "user,model=cadence_gem"]);
        command
    }

    /// Returns the command that starts an i.MX 8M Plus EVK as U-Boot would, with 1 GiB and UART2 on
    /// pipes.
    pub fn imx8mp_evk(&self, files: [&Path; 3]) -> Command {
        let machine = ["imx8mp-evk", "-smp", "4", "-m", "1024", "-serial", "null"];
        let mut command = self.board(&machine, files);
        trace::add_to(&mut command, 3, files[0]);
        command
    }

    /// Returns the command that starts a kernel with its initial RAM disk and device tree on a
    /// machine with these options, with the next serial port on pipes.
    fn board(&self, machine: &[&str], [kernel, initrd, tree]: [&Path; 3]) -> Command {
        let mut command = self.dependent();
        command.arg("-M").args(machine);
        command.args(["-display", "none", "-monitor", "none", "-nic", "none"]);
        command.args(["-serial", "stdio", "-kernel"]).arg(kernel);
        command.arg("-initrd").arg(initrd).arg("-dtb").arg(tree);
        command
    }

    /// Writes the device tree that the machine passes to its kernel.
    pub fn dump_tree(&self, machine: &Machine, file: &Path) -> Result<()> {
        let serial_ports = 1 + usize::from(machine.second_serial.is_some());
        let output = self
            .with_data(self.program.command())
            .args(machine.arguments())
            .args(["-machine", &format!("dumpdtb={}", option_path(file))])
            .args(["-display", "none", "-monitor", "none"])
            .args(["-serial", "null"].repeat(serial_ports))
            .output()
            .context("QEMU cannot be started")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "QEMU: {}", message.trim_end());
        Ok(())
    }
}

impl<'a> Boot<'a> {
    /// Boots a kernel that needs nothing else.
    pub fn bare(kernel: &'a Path) -> Boot<'a> {
        Boot {
            kernel,
            initrd: None,
            command_line: None,
        }
    }

    /// Adds what QEMU itself loads.
    fn load<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.arg("-kernel").arg(self.kernel);
        if let Some(initrd) = self.initrd {
            command.arg("-initrd").arg(initrd);
        }
        if let Some(command_line) = self.command_line {
            command.args(["-append", command_line]);
        }
        command
    }
}

impl Machine {
    /// Returns the machine as an operating system without a hypervisor wants it.
    pub fn without_el2(self) -> Machine {
        Machine {
            virtualization: false,
            ..self
        }
    }

    /// Returns the arguments that make the machine, without its images and consoles.
    fn arguments(&self) -> Vec<String> {
        let virtualization = if self.virtualization { "on" } else { "off" };
        let smmu = if self.smmu { ",iommu=smmuv3" } else { "" };
        let secure = if self.secure { ",secure=on" } else { "" };
        let machine = format!(
            "virt,virtualization={virtualization},gic-version={}{smmu}{secure}",
            self.gic
        );
        let mut arguments = Arguments::default();
        arguments.add(["-M", &machine, "-cpu", &self.cpu]);
        arguments.add(["-smp", &self.cpus.to_string()]);
        arguments.add(["-m", &self.memory_mib.to_string()]);
        // The boot ROMs of network cards are packages that nothing here needs.
        arguments.add(["-nic", "none"]);
        self.add_banks(&mut arguments);
        self.add_drives(&mut arguments);
        self.add_clock(&mut arguments);
        self.add_turns(&mut arguments);
        if self.gdb {
            arguments.add(["-S", "-s"]);
        }
        arguments.0
    }

    /// Time counted in instructions, one a nanosecond, with a fixed seed and a fixed date: a busy
    /// host changes no figure.
    fn add_clock(&self, arguments: &mut Arguments) {
        if self.icount {
            arguments.add(["-icount", "shift=0,sleep=off", "-seed", "1"]);
            arguments.add(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
        }
    }

    /// Several banks of memory: each node of a NUMA machine has one.
    fn add_banks(&self, arguments: &mut Arguments) {
        if self.banks <= 1 {
            return;
        }
        let size = self.memory_mib / self.banks;
        for bank in 0..self.banks {
            let memory = format!("memory-backend-ram,id=bank{bank},size={size}M");
            let node = format!("node,memdev=bank{bank}");
            arguments.add(["-object", &memory, "-numa", &node]);
        }
    }

    /// A filter that nothing passes through: what counts is its timer. QEMU divides the time until
    /// a timer is due among the CPUs.
    fn add_turns(&self, arguments: &mut Arguments) {
        if let Some(turn_us) = self.turn_us {
            let interval = turn_us.saturating_mul(self.cpus);
            let filter = format!("filter-buffer,id=turns,netdev=nothing,interval={interval}");
            arguments.add(["-netdev", "hubport,id=nothing,hubid=0"]);
            arguments.add(["-object", &filter]);
        }
    }
}

/// Returns the character device of a serial port that writes to a file.
fn to_file(file: &Path) -> String {
    format!("file:{}", file.display())
}

/// Puts a card into the slot of an SD host controller, counted as QEMU does.
fn add_card(command: &mut Command, controller: u32, card: Option<&Path>) {
    if let Some(card) = card {
        let file = option_path(card);
        let drive = format!("if=sd,index={controller},format=raw,file={file}");
        command.args(["-drive", &drive]);
    }
}

/// Arguments of QEMU.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    /// Appends an option with its value.
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        self.0.extend(arguments.map(str::to_owned));
    }
}

/// Returns a path as the value of a QEMU option, which takes a doubled comma for one.
fn option_path(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
