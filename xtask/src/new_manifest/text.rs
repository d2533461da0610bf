//! The text of a new manifest.
//!
//! A new manifest is the first one that most users read, so it has a comment at each line whose
//! purpose its name does not tell, and names the documents for the rest. The texts are constants
//! and not built from parts: what stands here is what the user gets.
//!
//! A test compiles and judges each combination of choices and boards, by which a text that the
//! binding no longer takes is found.

use workbench::board::Name;

use super::Choice;

/// Facts in which boards differ. The texts are the same for all boards, and only these differ.
struct Facts {
    /// Name of the board as people say it, for the first comment.
    description: &'static str,
    /// Number of CPUs that the board has.
    cpus: usize,
    /// The console of a guest that no device VM serves.
    console: &'static str,
    /// Properties of a real-time VM beside its memory, one property a line.
    real_time: &'static [&'static str],
}

/// Address of a console where the usual one is in the board's memory. The default lies where these
/// boards have RAM, and a rule refuses a UART over a VM's memory.
const CONSOLE_ELSEWHERE: &str = "console { address = <0xfe201000>; };";
/// The program of the examples wants its memory in the second GiB, and devices in the first. A flat
/// program is linked for one address.
const MEMORY_IPA: &str = "memory-ipa = <0x40000000>;";
/// Without the line the controller is emulated.
const PASS_THROUGH: &str = "gic = \"pass-through\";";

/// The match is exhaustive, so that a new board does not compile without its facts.
fn facts(board: Name) -> Facts {
    match board {
        Name::QemuVirt => Facts {
            description: "QEMU's virt",
            cpus: 4,
            console: "console { };",
            // The second UART of the machine, which nothing else uses.
            real_time: &[PASS_THROUGH, "devices = \"/pl011@9040000\";"],
        },
        Name::Rpi4 => Facts {
            description: "Raspberry Pi 4",
            cpus: 4,
            console: CONSOLE_ELSEWHERE,
            real_time: &[MEMORY_IPA],
        },
        Name::RcarH3 => Facts {
            description: "R-Car H3: CPUs 0 to 3 are Cortex-A57, 4 to 7 Cortex-A53",
            cpus: 8,
            console: "console { };",
            real_time: &[],
        },
        Name::Zcu102 => Facts {
            description: "AMD ZCU102, four Cortex-A53",
            cpus: 4,
            console: CONSOLE_ELSEWHERE,
            real_time: &[MEMORY_IPA, PASS_THROUGH],
        },
        Name::Imx8mpEvk => Facts {
            description: "NXP i.MX 8M Plus EVK, four Cortex-A53",
            cpus: 4,
            console: "console { };",
            real_time: &[MEMORY_IPA, PASS_THROUGH],
        },
    }
}

/// Returns the manifest of these VMs for a board. The VMs are put together from whole texts,
/// comments included: a reader learns from the file, and no generator's formatting stands in
/// between.
pub fn text(board: Name, choice: Choice) -> String {
    let facts = facts(board);
    let name = board.text();
    let description = facts.description;
    // A machine of QEMU has as many CPUs as its manifest names; boards have what they have. Two
    // CPUs for Gear2, and one more for each VM that wants one.
    let used = 2 + usize::from(choice.guest) + usize::from(choice.real_time);
    let count = if board == Name::QemuVirt {
        used
    } else {
        facts.cpus
    };
    let real_time = choice.real_time.then(|| count - 1);
    let shared = cells(0..count - usize::from(choice.real_time));
    let mut vms = String::new();
    if choice.device_vm {
        vms += DEVICE;
    }
    if choice.guest {
        vms += SERVED;
    } else if !choice.device_vm {
        vms += &PLAIN.replace("CONSOLE", facts.console);
    }
    if let Some(cpu) = real_time {
        vms += &control(cpu, facts.real_time);
    }
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
		cpus = {shared};
		/* The longest that a vCPU runs while another one waits, in microseconds. */
		slice-us = <5000>;
	}};

	/* A node a VM; its name is the VM's. */
	vms {{
{}	}};
}};
"#,
        vms.trim_start_matches('\n')
    )
}

/// Writes a property's numbers as the device tree's source has them. A range has no form of its own
/// there.
fn cells(cpus: std::ops::Range<usize>) -> String {
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    format!("<{}>", cpus.join(" "))
}

/// A Linux guest that needs no other VM. `CONSOLE` is replaced: its address depends on the board. A
/// kernel and an initramfs that xtask downloads and makes: the manifest runs before its user has
/// any file.
const PLAIN: &str = r#"
		linux {
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
			CONSOLE
		};
"#;

/// The VM that owns the devices of QEMU's `virt`. The patterns are those of QEMU's tree; `check
/// --report` lists what they name.
const DEVICE: &str = r#"
		/* A Linux with the board's drivers, which serves the other VMs by its device model. */
		device {
			kind = "device";
			vcpus = <1>;
			/* The CPUs that its vCPUs start on; Gear2 may move them. */
			cpus = <0>;
			/* Gear1 places it, and the VM sees it where it is. */
			memory-mib = <512>;

			/* A file beside this one, or what xtask makes or downloads ("artifact:..."). */
			kernel = "artifact:debian-kernel";
			initrd = "artifact:device-initramfs";
			cmdline = "console=ttyAMA0";

			/* Paths in the board's device tree: the boot UART, the clock, disks and the network card. */
			devices = "/pl011@9000000", "/pl031@9010000", "/virtio_mmio@*";

			/* Without it nothing is served: start it again when it fails. */
			restart = "on-failure";
			/* That its kernel hangs shows in that nothing serves any more. */
			watchdog-ms = <60000>;
		};
"#;

/// A guest with devices that the device VM serves. Each kind of virtio device is there once, to be
/// copied or deleted.
const SERVED: &str = r#"
		/* A Linux without anything physical. */
		linux {
			vcpus = <2>;
			cpus = <1 2>;
			memory-mib = <512>;

			kernel = "artifact:debian-kernel";
			initrd = "artifact:guest-initramfs";
			/* gearv.ip=10.0.2.102/24 is for a second guest of this kind. */
			cmdline = "console=ttyAMA0 root=/dev/vda rw";

			/* When it turns itself off, so does the machine: for one VM at most. */
			may-power-off;
			/* After a fault it is started again. */
			restart = "on-failure";

			/* An emulated PL011: `gearctl console linux` in the device VM. */
			console { };

			/* A real-time clock with the device VM's time. */
			rtc { };

			/* Served by the device VM; `backend` is what serves it there. */
			virtio {
				/* `run --disk FILE` adds /dev/vdb. */
				disk { type = "block"; backend = "/dev/vda"; };
				net { type = "net"; backend = "tap0"; };
				console { type = "console"; backend = "pty"; };
				random { type = "rng"; };
			};
		};
"#;

/// Returns a VM that has a CPU to itself. The CPU is the last one, which leaves the low numbers to
/// Gear2, as most examples have it.
fn control(cpu: usize, properties: &[&str]) -> String {
    let properties: String = properties
        .iter()
        .map(|line| format!("\n\t\t\t{line}"))
        .collect();
    format!(
        r#"
		/*
		 * A program that reads its clock each millisecond, with a CPU to itself. It may own devices of
		 * the board, by their paths in its device tree, and interrupts that pass Gear1 by:
		 * gic = "pass-through".
		 */
		control {{
			kind = "real-time";
			cpus = <{cpu}>;
			memory-mib = <16>;{properties}

			/* tests/guests/src/bin/control_loop.rs; your own program is a flat binary. */
			image = "artifact:guest:control_loop";
			restart = "on-failure";
		}};
"#
    )
}
