//! Configurations to measure: the five of the papers, and the loads on the other CPU.
//!
//! The machine has two CPUs in all of them, and the measured system runs on CPU 1. A load has CPU 0
//! alone, except beside the guest without real-time guarantees: there the load has both CPUs, and
//! shares CPU 1 with the guest.

use clap::ValueEnum;
use gearv_manifest::Scheduler;

/// The machine's CPUs. One CPU is measured, and the other one has the load.
pub(super) const CPUS: u32 = 2;

/// Latest expiry of the timer of cyclictest's other thread under load. Without load that timer may
/// be late by as much as all periods take; with load, waiting for so much virtual time would take
/// too long.
const BUSY_SLACK_MS: u32 = 20;

/// Place in which cyclictest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Configuration {
    /// On the machine itself
    Native,
    /// In a guest of KVM on a stock Debian host, on an isolated CPU
    Kvm,
    /// In a guest of GearV that Gear2 schedules
    Guest,
    /// In a real-time VM with an emulated interrupt controller
    Emulated,
    /// In a real-time VM with the machine's interrupt controller
    PassThrough,
}

/// All, in the order in which they run and are shown.
pub(super) const ALL: [Configuration; 5] = [
    Configuration::Native,
    Configuration::Kvm,
    Configuration::Guest,
    Configuration::Emulated,
    Configuration::PassThrough,
];

/// Returns the place of a configuration's name in tables; unknown ones come last. An unknown name
/// is that of a log whose configuration has no name.
pub(super) fn place(name: &str) -> usize {
    let place = ALL.iter().position(|one| one.text() == name);
    place.unwrap_or(ALL.len())
}

/// Load on the other CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Sleeps
    Off,
    /// Computes and starts programs
    Cpu,
    /// Writes to a disk
    Disk,
    /// Both
    All,
}

/// A serial port that a real-time VM has to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serial {
    /// Path in the board's device tree.
    pub(super) device: &'static str,
    /// Name in Linux.
    pub(super) console: &'static str,
}

impl Serial {
    /// The one that QEMU's virt has from version 10 on.
    pub(super) const SECOND_OF_VIRT: Serial = Serial {
        device: "/pl011@9040000",
        console: "ttyAMA1",
    };
}

impl Load {
    /// Returns the word for the results and for the kernel's command line, by which earlier results
    /// are compared.
    pub(super) fn text(self) -> &'static str {
        match self {
            Load::Off => "off",
            Load::Cpu => "cpu",
            Load::Disk => "disk",
            Load::All => "all",
        }
    }

    /// Tells whether something writes to a disk. All loads are listed, so that a new one has to say
    /// whether it needs the disk.
    pub(super) fn needs_disk(self) -> bool {
        match self {
            Load::Off | Load::Cpu => false,
            Load::Disk | Load::All => true,
        }
    }

    /// Tells whether something computes.
    fn computes(self) -> bool {
        match self {
            Load::Off | Load::Disk => false,
            Load::Cpu | Load::All => true,
        }
    }
}

impl Configuration {
    /// Returns the name in tables and files. Results of earlier runs are found by this name, so
    /// that a changed one would be another configuration.
    pub fn text(self) -> &'static str {
        match self {
            Configuration::Native => "native",
            Configuration::Kvm => "KVM guest",
            Configuration::Guest => "GearV guest",
            Configuration::Emulated => "RTVM, emulated GIC",
            Configuration::PassThrough => "RTVM, pass-through GIC",
        }
    }

    /// Returns whether the configuration is a real-time VM.
    pub fn is_real_time(self) -> bool {
        match self {
            Configuration::Native | Configuration::Kvm | Configuration::Guest => false,
            Configuration::Emulated | Configuration::PassThrough => true,
        }
    }

    /// Returns the name of the VM whose counters Gear2 prints.
    pub(super) fn vm(self) -> &'static str {
        if self.is_real_time() { "rt" } else { "guest" }
    }

    /// Returns the name on command lines, of xtask and of kernels. The word has no space, as it is
    /// a part of file names and of `jitter.name` on the kernel's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Configuration::Native => "native",
            Configuration::Kvm => "kvm",
            Configuration::Guest => "guest",
            Configuration::Emulated => "emulated",
            Configuration::PassThrough => "pass-through",
        }
    }

    /// Returns the command line of the kernel that measures. The name travels through the guest
    /// into its log, by which a log of a board says what it is of.
    pub(super) fn command_line(self, console: &str, loops: u64, load: Load, more: &str) -> String {
        let word = self.word();
        // A busy machine's virtual time is long to wait for.
        let slack = match load {
            Load::Off => String::new(),
            Load::Cpu | Load::Disk | Load::All => format!("jitter.slack={BUSY_SLACK_MS} "),
        };
        format!("console={console} jitter.loops={loops} jitter.name={word} {slack}{more}")
    }

    /// Returns the manifest of a configuration under GearV. All configurations have the same
    /// kernel, initramfs and memory, so that the VM's kind is all that differs.
    pub(super) fn manifest(
        self,
        serial: Serial,
        loops: u64,
        load: Load,
        settle: u64,
        scheduler: Scheduler,
    ) -> String {
        let (kind, console) = match self {
            Configuration::Emulated => (rt("emulated", serial), serial.console),
            Configuration::PassThrough => (rt("pass-through", serial), serial.console),
            Configuration::Native | Configuration::Kvm | Configuration::Guest => {
                ("\t\t\tconsole { };\n".to_owned(), "ttyAMA0")
            }
        };
        let vm = self.vm();
        let mut text = format!(
            "/dts-v1/;

/* Made by cargo xtask jitter. */

/ {{
	compatible = \"gearv,manifest\";
	version = <1>;

	gear2 {{
		scheduler = \"{}\";
	}};

	vms {{
		{vm} {{
			cpus = <1>;
			memory-mib = <256>;
			kernel = \"artifact:debian-rt-kernel\";
			initrd = \"artifact:jitter-initramfs\";
			cmdline = \"{}\";
{kind}		}};
",
            scheduler.name(),
            self.command_line(console, loops, load, &format!("jitter.settle={settle}"))
        );
        text += &self.load_vms(load);
        text + "\t};\n};\n"
    }

    /// Returns the VMs that make the load, on the CPUs that they may have. Beside a real-time VM
    /// the load has the other CPU; beside a guest the load has both, and shares the guest's, by
    /// which the scheduler is measured.
    fn load_vms(self, load: Load) -> String {
        let mut text = String::new();
        let (vcpus, cpus) = if self.is_real_time() {
            (1, "0")
        } else {
            (2, "0 1")
        };
        let place = format!("\t\t\tvcpus = <{vcpus}>;\n\t\t\tcpus = <{cpus}>;\n");
        if load.computes() {
            text += &load_vm("load", &place, "\t\t\tconsole { };\n", Load::Cpu);
        }
        if load.needs_disk() {
            // All transports of a page are its own.
            let own = format!(
                "{place}\t\t\tkind = \"device\";\n\t\t\tdevices = \"/virtio_mmio@a003*\";\n"
            );
            text += &load_vm("disk", &own, "", Load::Disk);
        }
        text
    }
}

/// Returns a VM that makes load. The load is the same kernel and initramfs with another word, which
/// keeps the images of a run few.
fn load_vm(name: &str, own: &str, nodes: &str, load: Load) -> String {
    format!(
        "
		{name} {{
{own}			memory-mib = <256>;
			kernel = \"artifact:debian-rt-kernel\";
			initrd = \"artifact:jitter-initramfs\";
			cmdline = \"console=ttyAMA0 jitter.load={}\";
{nodes}		}};
",
        load.text()
    )
}

/// Returns what makes a VM a real-time one. The guest's console is the port itself: a console of
/// Gear2's would make the VM exit.
fn rt(gic: &str, serial: Serial) -> String {
    format!(
        "\t\t\tkind = \"real-time\";\n\t\t\tgic = \"{gic}\";\n\t\t\tdevices = \"{}\";\n",
        serial.device
    )
}

#[cfg(test)]
mod tests;
