//! Xen to compare with: Debian's hypervisor on QEMU, which starts a guest without a dom0.
//!
//! Xen takes the guest from the device tree ("dom0less": docs/misc/arm/device-tree/booting.txt in
//! Xen's source): a node of `/chosen` says where in memory the guest's image lies, and QEMU puts
//! the image there. Nothing but Xen and the guest runs. Xen makes the guest's own device tree, with
//! a GIC of the machine's version and an SBSA UART, whose lines appear on Xen's console behind
//! [`GUEST`].

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use workbench::expect::Session;
use workbench::manifest::{compile_text, decompile};
use workbench::payloads;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::tools::Tools;

#[cfg(test)]
mod tests;

/// Start of each line of the guest's on Xen's console.
const GUEST: &str = "(XEN) DOM1: ";
/// Characters of a guest's line after which Xen begins another one, by what it prints.
const PIECE: usize = 126;
/// Memory of the machine. Debian's Xen takes some 30 MiB.
const MACHINE_MIB: u32 = 1024;
/// Memory of the guest, in the unit of the binding.
const GUEST_KIB: u32 = 32 << 10;
/// Where the guest's image lies in physical memory: far behind Xen, which QEMU loads to the start.
const IMAGE: u32 = 0x6000_0000;
/// Xen's command line. A timer of Xen's is due no earlier than `timer_slop` from now, 50 us by
/// default: a vCPU that sleeps for a shorter time would be woken as late as that, and a row would
/// count the CPU's rest instead of Xen's instructions.
const COMMAND_LINE: &str = "console=dtuart timer_slop=0";

/// A guest, and how Xen runs it.
#[derive(Clone, Copy, Debug)]
pub struct Xen<'a> {
    /// The guest's kernel, an arm64 `Image`.
    pub kernel: &'a Path,
    /// The guest's vCPUs.
    pub vcpus: u32,
    /// Whether a vCPU waits in the guest (`vwfi=native`). By default WFI traps, and Xen schedules.
    pub waits_in_guest: bool,
}

impl Xen<'_> {
    /// Starts Xen and the guest. The device tree is made in `directory`; memory and EL2 of the
    /// machine are set as Xen needs them.
    pub fn start(
        &self,
        qemu: &Qemu,
        machine: &Machine,
        directory: &Path,
        log: &Path,
    ) -> Result<Session> {
        let machine = Machine {
            virtualization: true,
            memory_mib: MACHINE_MIB,
            ..machine.clone()
        };
        fs::create_dir_all(directory)?;
        let tree = directory.join("xen.dtb");
        qemu.dump_tree(&machine, &tree)?;
        let tools = Tools::prepare()?;
        let source = decompile(&fs::read(&tree)?, &tools, &tree)?;
        let source = source + &self.chosen(fs::metadata(self.kernel)?.len());
        fs::write(&tree, compile_text(&source, &tools, &tree)?)?;
        let mut options = machine.options.clone();
        options.extend(["-dtb".into(), tree.into_os_string(), "-device".into()]);
        options.push(self.loader()?);
        let machine = Machine { options, ..machine };
        let kernel = payloads::xen()?;
        let command = qemu.command(&machine, &Boot::bare(&kernel), Console::Pipes);
        let mut session = Session::start(command, log)?;
        session.give_up_on(&["Panic on CPU"]);
        Ok(session)
    }

    /// Returns QEMU's device that puts the image into memory.
    fn loader(&self) -> Result<OsString> {
        let kernel = self.kernel.to_str().context("a path that is no text")?;
        let kernel = kernel.replace(',', ",,");
        Ok(format!("loader,file={kernel},addr={IMAGE:#x},force-raw=on").into())
    }

    /// Returns what the machine's device tree has for Xen, as source.
    fn chosen(&self, image_bytes: u64) -> String {
        let mut command_line = COMMAND_LINE.to_owned();
        if self.waits_in_guest {
            // Writing to a String cannot fail.
            let _ = write!(command_line, " vwfi=native");
        }
        format!(
            "
/ {{
	chosen {{
		#address-cells = <2>;
		#size-cells = <2>;
		xen,xen-bootargs = \"{command_line}\";

		domU1 {{
			compatible = \"xen,domain\";
			#address-cells = <2>;
			#size-cells = <2>;
			cpus = <{vcpus}>;
			memory = <0 {GUEST_KIB:#x}>;
			vpl011;

			module@{IMAGE:x} {{
				compatible = \"multiboot,kernel\", \"multiboot,module\";
				reg = <0 {IMAGE:#x} 0 {image_bytes:#x}>;
			}};
		}};
	}};
}};
",
            vcpus = self.vcpus,
        )
    }
}

/// Returns the guest's lines as the guest printed them, without Xen's own. Xen cuts long lines to
/// pieces, each with [`GUEST`] in front.
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
