//! Xen to compare with: Debian's hypervisor on QEMU, which starts guests without a dom0.
//!
//! Xen takes its guests from the device tree ("dom0less": docs/misc/arm/device-tree/booting.txt in
//! Xen's source): a node of `/chosen` for each guest says where in memory the guest's image lies,
//! and QEMU puts the image there. Nothing but Xen and the guests runs. Xen makes the guests' own
//! device trees, each with a GIC of the machine's version and an SBSA UART, whose lines appear on
//! Xen's console: those of the first guest behind [`GUEST`].
//!
//! Two guests have a doorbell. Debian's Xen has no memory that two guests share (CONFIG_STATIC_SHM)
//! and lets two guests have neither grants nor event channels in common (XSM SILO). What both can
//! reach are devices that Xen passes to them (docs/misc/arm/passthrough.txt): the machine's second
//! PL011, whose interrupt is the second guest's, and memory that is kept from Xen by
//! `/reserved-memory`. The interrupt is an edge, so that a PL011 that stays active interrupts once.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use workbench::expect::Session;
use workbench::manifest::{compile_text, decompile};
use workbench::payloads;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::tools::Tools;

#[cfg(test)]
mod tests;

/// Start of each line of the first guest's on Xen's console.
const GUEST: &str = "(XEN) DOM1: ";
/// Characters of a guest's line after which Xen begins another one, by what it prints.
const PIECE: usize = 126;
/// Memory of the machine. Debian's Xen takes some 30 MiB.
const MACHINE_MIB: u32 = 1024;
/// Memory of a guest, in the unit of the binding.
const GUEST_KIB: u32 = 32 << 10;
/// Where the first guest's image lies in physical memory, far behind Xen, which QEMU loads to the
/// start; the distance of the next guest's, and of what Xen passes to a guest from its image.
const IMAGE: usize = 0x6000_0000;
const NEXT: usize = 0x0100_0000;
const PASSED: usize = 0x0080_0000;
/// QEMU's second PL011: its node, address and SPI (hw/arm/virt.c, VIRT_UART1).
const PL011: &str = "/pl011@9040000";
const DOORBELL: usize = 0x0904_0000;
const SPI: u32 = 8;
/// Memory that two guests share, and its node.
const SHARED: usize = 0x5000_0000;
const SHARED_NODE: &str = "/reserved-memory/shared@50000000";
/// Phandle of the interrupt controller in a guest's tree (Xen, docs/misc/arm/passthrough.txt).
const GUEST_GIC: u32 = 0xfde8;
/// Xen's command line. A timer of Xen's is due no earlier than `timer_slop` from now, 50 us by
/// default: a vCPU that sleeps for a shorter time would be woken as late as that, and a row would
/// count the CPU's rest instead of Xen's instructions. Without `bootscrub=0`, CPUs that are idle
/// wipe free memory, which would count as well.
const COMMAND_LINE: &str = "console=dtuart timer_slop=0 bootscrub=0";

/// Guests, and how Xen runs them.
#[derive(Clone, Copy, Debug)]
pub struct Xen<'a> {
    /// The guests' kernel, an arm64 `Image`.
    pub kernel: &'a Path,
    /// The guests: one, or two that share memory and of which the first can interrupt the second.
    pub guests: &'a [Guest<'a>],
    /// Whether a vCPU waits in the guest (`vwfi=native`). By default WFI traps, and Xen schedules.
    pub waits_in_guest: bool,
}

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// The number of vCPUs.
    pub vcpus: u32,
    /// The guest's command line.
    pub command_line: &'a str,
}

impl Xen<'_> {
    /// Starts Xen and the guests. Device trees are made in `directory`; memory, EL2 and the second
    /// serial port of the machine are set as Xen needs them.
    pub fn start(
        &self,
        qemu: &Qemu,
        machine: &Machine,
        directory: &Path,
        log: &Path,
    ) -> Result<Session> {
        fs::create_dir_all(directory)?;
        let machine = Machine {
            virtualization: true,
            memory_mib: MACHINE_MIB,
            second_serial: self.has_doorbell().then(|| directory.join("second-serial")),
            ..machine.clone()
        };
        let tools = Tools::prepare()?;
        let mut options = machine.options.clone();
        let mut passed_bytes = Vec::new();
        for guest in 0..self.guests.len() {
            options.extend(loader(self.kernel, image(guest))?);
            if self.has_doorbell() {
                let tree = directory.join(format!("guest-{guest}.dtb"));
                let blob = compile_text(&passed(guest), &tools, &tree)?;
                passed_bytes.push(blob.len());
                fs::write(&tree, blob)?;
                options.extend(loader(&tree, image(guest) + PASSED)?);
            }
        }
        let tree = self.tree(qemu, &machine, directory, &passed_bytes, &tools)?;
        options.extend(["-dtb".into(), tree.into_os_string()]);
        let machine = Machine { options, ..machine };
        let xen = payloads::xen()?;
        let command = qemu.command(&machine, &Boot::bare(&xen), Console::Pipes);
        let mut session = Session::start(command, log)?;
        session.give_up_on(&["Panic on CPU"]);
        Ok(session)
    }

    /// Writes the machine's device tree with what Xen takes from it.
    fn tree(
        &self,
        qemu: &Qemu,
        machine: &Machine,
        directory: &Path,
        passed_bytes: &[usize],
        tools: &Tools,
    ) -> Result<PathBuf> {
        let tree = directory.join("xen.dtb");
        qemu.dump_tree(machine, &tree)?;
        let source = decompile(&fs::read(&tree)?, tools, &tree)?;
        let image_bytes = fs::metadata(self.kernel)?.len();
        let source = source + &self.additions(image_bytes, passed_bytes);
        fs::write(&tree, compile_text(&source, tools, &tree)?)?;
        Ok(tree)
    }

    fn has_doorbell(&self) -> bool {
        self.guests.len() > 1
    }

    /// Returns what is added to the machine's device tree, as source.
    fn additions(&self, image_bytes: u64, passed_bytes: &[usize]) -> String {
        let waits = if self.waits_in_guest {
            " vwfi=native"
        } else {
            ""
        };
        let domains = self.guests.iter().enumerate().map(|(index, guest)| {
            let passed_bytes = passed_bytes.get(index).copied();
            domain(index, guest, image_bytes, passed_bytes)
        });
        let mut text = format!(
            "
/ {{
	chosen {{
		#address-cells = <2>;
		#size-cells = <2>;
		xen,xen-bootargs = \"{COMMAND_LINE}{waits}\";
{}	}};
}};
",
            domains.collect::<String>()
        );
        if self.has_doorbell() {
            text += &format!(
                "
/ {{
	reserved-memory {{
		#address-cells = <2>;
		#size-cells = <2>;
		ranges;

		shared@{SHARED:x} {{
			reg = <0 {SHARED:#x} 0 0x1000>;
			no-map;
		}};
	}};
}};

&{{{PL011}}} {{
	interrupts = <0 {SPI} 1>;
}};
"
            );
        }
        text
    }
}

/// Returns where a guest's image lies; the first guest is 0.
fn image(guest: usize) -> usize {
    IMAGE + guest * NEXT
}

/// Returns the node of a guest. Names of guests count from 1, as Xen's numbers of domains do.
fn domain(index: usize, guest: &Guest<'_>, image_bytes: u64, passed: Option<usize>) -> String {
    let (image, number) = (image(index), index + 1);
    let passed = passed.map(|bytes| {
        let at = image + PASSED;
        format!(
            "
			module@{at:x} {{
				compatible = \"multiboot,device-tree\", \"multiboot,module\";
				reg = <0 {at:#x} 0 {bytes:#x}>;
			}};
"
        )
    });
    format!(
        "
		domU{number} {{
			compatible = \"xen,domain\";
			#address-cells = <2>;
			#size-cells = <2>;
			cpus = <{vcpus}>;
			memory = <0 {GUEST_KIB:#x}>;
			vpl011;

			module@{image:x} {{
				compatible = \"multiboot,kernel\", \"multiboot,module\";
				reg = <0 {image:#x} 0 {image_bytes:#x}>;
				bootargs = \"{command_line}\";
			}};
{passed}		}};
",
        vcpus = guest.vcpus,
        command_line = guest.command_line,
        passed = passed.unwrap_or_default(),
    )
}

/// Returns the device tree of what Xen passes to one of two guests, as source. `xen,path` names the
/// node whose interrupts the guest gets: the first guest gets none, by a node that has none.
fn passed(guest: usize) -> String {
    let path = if guest == 0 { SHARED_NODE } else { PL011 };
    format!(
        "/dts-v1/;

/ {{
	#address-cells = <2>;
	#size-cells = <2>;

	gic {{
		#interrupt-cells = <3>;
		interrupt-controller;
		phandle = <{GUEST_GIC:#x}>;
	}};

	passthrough {{
		compatible = \"simple-bus\";
		#address-cells = <2>;
		#size-cells = <2>;
		ranges;

		doorbell@{DOORBELL:x} {{
			compatible = \"gearv,bench-doorbell\", \"arm,pl011\";
			reg = <0 {DOORBELL:#x} 0 0x1000>, <0 {SHARED:#x} 0 0x1000>;
			interrupts = <0 {SPI} 1>;
			interrupt-parent = <{GUEST_GIC:#x}>;
			xen,reg = <0 {DOORBELL:#x} 0 0x1000 0 {DOORBELL:#x}>,
				<0 {SHARED:#x} 0 0x1000 0 {SHARED:#x}>;
			xen,path = \"{path}\";
			xen,force-assign-without-iommu;
		}};
	}};
}};
"
    )
}

/// Returns QEMU's device that puts a file into memory.
fn loader(file: &Path, at: usize) -> Result<[OsString; 2]> {
    let file = file.to_str().context("a path that is no text")?;
    let file = file.replace(',', ",,");
    let device = format!("loader,file={file},addr={at:#x},force-raw=on");
    Ok(["-device".into(), device.into()])
}

/// Returns the first guest's lines as the guest printed them, without those of others. Xen cuts
/// long lines to pieces, each with [`GUEST`] in front.
pub fn guest_lines(console: &str) -> String {
    let mut lines = String::new();
    for piece in console.lines().filter_map(|line| line.strip_prefix(GUEST)) {
        lines += piece;
        if piece.len() != PIECE {
            lines.push('\n');
        }
    }
    lines
}
