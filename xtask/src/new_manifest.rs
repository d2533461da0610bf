//! `cargo xtask new-manifest`: a commented manifest to start from, which passes `check` and boots.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use workbench::board::Name;

/// The options of `new-manifest`.
#[derive(Args, Debug)]
pub struct Options {
    /// The board of the manifest
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Name::QemuVirt)]
    board: Name,
    /// The file to write; no file is overwritten [default: standard output]
    file: Option<PathBuf>,
}

impl Options {
    /// Writes the manifest.
    pub fn run(self) -> Result<()> {
        let text = text(self.board);
        let Some(file) = self.file else {
            print!("{text}");
            return Ok(());
        };
        ensure!(!file.exists(), "{} is there already", file.display());
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Facts in which boards differ.
struct Facts {
    description: &'static str,
    cpus: &'static str,
    console: &'static str,
}

fn facts(board: Name) -> Facts {
    match board {
        Name::QemuVirt => Facts {
            description: "QEMU's virt with 2 or more CPUs",
            cpus: "<0 1>",
            console: "console { };",
        },
        Name::Rpi4 => Facts {
            description: "Raspberry Pi 4",
            cpus: "<0 1 2 3>",
            // The usual place is in this board's memory.
            console: "console { address = <0xfe201000>; };",
        },
        Name::RcarH3 => Facts {
            description: "R-Car H3: CPUs 0 to 3 are Cortex-A57, 4 to 7 Cortex-A53",
            cpus: "<0 1 2 3 4 5 6 7>",
            console: "console { };",
        },
        Name::Zcu102 => Facts {
            description: "AMD ZCU102, four Cortex-A53",
            cpus: "<0 1 2 3>",
            // As on the Raspberry Pi.
            console: "console { address = <0xfe201000>; };",
        },
    }
}

/// Returns the manifest for a board.
pub fn text(board: Name) -> String {
    let Facts {
        description,
        cpus,
        console,
    } = facts(board);
    let name = board.text();
    format!(
        r#"/dts-v1/;

/*
 * For {description}. Every property: docs/manifest.md.
 *
 *     cargo xtask check --board {name} FILE
 *     cargo xtask run --manifest FILE         (on QEMU's virt)
 */

/ {{
	compatible = "gearv,manifest";
	version = <1>;

	/* The primary VM, which schedules all VMs but real-time ones. */
	gear2 {{
		/* The CPUs that it has; without this line, all that no real-time VM has. */
		cpus = {cpus};
		/* The longest that a vCPU runs while another one waits, in microseconds. */
		slice-us = <5000>;
	}};

	/* A node a VM; its name is the VM's. */
	vms {{
		linux {{
			vcpus = <2>;
			/* The CPUs that its vCPUs start on; Gear2 may move them. */
			cpus = <0 1>;
			/* Gear1 places it, and the guest sees it where it is. */
			memory-mib = <256>;

			/* A file beside this one, or what xtask makes or downloads ("artifact:..."). */
			kernel = "artifact:debian-kernel";
			initrd = "artifact:busybox-initramfs";
			cmdline = "console=ttyAMA0";

			/* When it turns itself off, so does the machine: for one VM at most. */
			may-power-off;
			/* After a fault it is started again. */
			restart = "on-failure";

			/* An emulated PL011, which Gear2 shows on the board's UART. */
			{console}
		}};

		/*
		 * A real-time VM has its CPUs to itself; take them out of gear2's and the other VMs' cpus. It may own
		 * devices of the board, by their paths in its device tree.
		 *
		 * control {{
		 *	kind = "real-time";
		 *	cpus = <1>;
		 *	memory-mib = <16>;
		 *	gic = "pass-through";
		 *	image = "artifact:guest:control_loop";
		 * }};
		 */
	}};
}};
"#
    )
}
