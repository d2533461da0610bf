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
    /// The board's part of a device VM, if xtask knows the board's devices.
    device_vm: Option<&'static DeviceVm>,
}

/// Lines in which the manifests of a device VM and its guest differ between boards. The rates of
/// clocks and the addresses are those of the board's example in `manifests/`.
struct DeviceVm {
    /// Memory of the device VM, with a comment where it is.
    memory: &'static [&'static str],
    /// Linux's name of the console.
    console: &'static str,
    /// The devices, with a comment that says what they are, and what else the board needs.
    devices: &'static [&'static str],
    /// Memory of the guest, and the address of its virtio devices where the usual one is taken.
    guest: &'static [&'static str],
    /// The guest's disk in the device VM, and what a person does to have it.
    disk: [&'static str; 2],
    /// Whether the device VM has a clock whose time the guest can have.
    has_clock: bool,
    /// Nodes behind the VMs.
    more: &'static str,
}

const ANY_MEMORY: &[&str] = &[
    "/* Gear1 places it, and the VM sees it where it is. */",
    "memory-mib = <512>;",
];
const CLOCK: &str = r"			/* A real-time clock with the device VM's time. */
			rtc { };

";
const CARD_COMMENT: &str = "The card's second partition.";

const QEMU_VIRT: DeviceVm = DeviceVm {
    memory: ANY_MEMORY,
    console: "ttyAMA0",
    devices: &[
        "/* Paths in the board's device tree: the boot UART, the clock, disks and the network card. */",
        "devices = \"/pl011@9000000\", \"/pl031@9010000\", \"/virtio_mmio@*\";",
    ],
    guest: &["memory-mib = <512>;"],
    disk: ["/dev/vda", "`run --disk FILE` adds /dev/vdb."],
    has_clock: true,
    more: "",
};

const RPI4: DeviceVm = DeviceVm {
    memory: &[
        "/* The SD host controller reaches the first GiB only, and the guest's memory as well. */",
        "memory-mib = <256>;",
        "memory-address = <0x10000000>;",
    ],
    console: "ttyAMA0",
    devices: &[
        "/* Paths in the board's device tree: the SD card and the boot UART. */",
        "devices = \"/emmc2bus/mmc@7e340000\", \"/soc/serial@7e201000\";",
        "/* Between the peripherals and the interrupt controller, where this board has nothing. */",
        "window-address = <0xff000000>;",
    ],
    guest: &[
        "memory-mib = <256>;",
        "memory-address = <0x20200000>;",
        "virtio-address = <0xfe300000>;",
    ],
    disk: ["/dev/mmcblk0p2", CARD_COMMENT],
    has_clock: false,
    more: r#"
	/* The firmware has the clocks, and leaves these on: docs/manifest.md, /as-booted. */
	as-booted {
		sd { device = "/emmc2bus/mmc@7e340000"; clocks-hz = <100000000>; };
		uart { device = "/soc/serial@7e201000"; clocks-hz = <48000000 500000000>; };
	};
"#,
};

const ZCU102: DeviceVm = DeviceVm {
    memory: ANY_MEMORY,
    console: "ttyPS0",
    devices: &[
        "/* Paths in the board's device tree: the SD card, the Ethernet and the boot UART. */",
        "devices = \"/axi/mmc@ff170000\", \"/axi/ethernet@ff0e0000\", \"/axi/serial@ff000000\";",
        "/* In the programmable logic, where this board has nothing. */",
        "window-address = <0xa0000000>;",
    ],
    guest: &["memory-mib = <512>;", "virtio-address = <0xa1001000>;"],
    disk: ["/dev/mmcblk0p2", CARD_COMMENT],
    has_clock: false,
    more: r#"
	/* The platform firmware has the clocks, and leaves these on: docs/manifest.md, /as-booted. */
	as-booted {
		sd { device = "/axi/mmc@ff170000"; clocks-hz = <187500000 100000000>; };
		ethernet {
			device = "/axi/ethernet@ff0e0000";
			clocks-hz = <100000000 125000000 125000000 125000000 250000000>;
		};
		uart { device = "/axi/serial@ff000000"; clocks-hz = <100000000 100000000>; };
	};
"#,
};

const RCAR_H3: DeviceVm = DeviceVm {
    memory: ANY_MEMORY,
    console: "ttySC0",
    devices: &[
        "/*",
        " * Paths in the board's device tree: the SD card, Ethernet AVB, of which Debian's kernel has no",
        " * driver, the GPIO controller whose line is the interrupt of its PHY, and the boot UART.",
        " */",
        "devices = \"/soc/mmc@ee100000\", \"/soc/ethernet@e6800000\", \"/soc/gpio@e6052000\",",
        "          \"/soc/serial@e6e88000\";",
    ],
    guest: &["memory-mib = <512>;"],
    disk: ["/dev/mmcblk1p2", CARD_COMMENT],
    has_clock: false,
    more: r#"
	/* U-Boot has used these, and leaves their clocks on: docs/manifest.md, /as-booted. */
	as-booted {
		sd { device = "/soc/mmc@ee100000"; clocks-hz = <200000000 800000000>; };
		ethernet { device = "/soc/ethernet@e6800000"; clocks-hz = <133333333>; };
		gpio { device = "/soc/gpio@e6052000"; clocks-hz = <66666666>; };
		uart { device = "/soc/serial@e6e88000"; clocks-hz = <66666666 266666666 14745600>; };
	};

	/* How a device that reaches memory is stopped with its VM: docs/manifest.md, /bus-masters. */
	bus-masters {
		ethernet {
			compatible = "renesas,etheravb-rcar-gen3";
			offset = <0>;
			value = <0>;
			busy = <0>;
		};
	};
"#,
};

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
            device_vm: Some(&QEMU_VIRT),
        },
        Name::Rpi4 => Facts {
            description: "Raspberry Pi 4",
            cpus: 4,
            console: CONSOLE_ELSEWHERE,
            real_time: &[MEMORY_IPA],
            device_vm: Some(&RPI4),
        },
        Name::RcarH3 => Facts {
            description: "R-Car H3: CPUs 0 to 3 are Cortex-A57, 4 to 7 Cortex-A53",
            cpus: 8,
            console: "console { };",
            real_time: &[],
            device_vm: Some(&RCAR_H3),
        },
        Name::Zcu102 => Facts {
            description: "AMD ZCU102, four Cortex-A53",
            cpus: 4,
            console: CONSOLE_ELSEWHERE,
            real_time: &[MEMORY_IPA, PASS_THROUGH],
            device_vm: Some(&ZCU102),
        },
        Name::Imx8mpEvk => Facts {
            description: "NXP i.MX 8M Plus EVK, four Cortex-A53",
            cpus: 4,
            console: "console { };",
            real_time: &[MEMORY_IPA, PASS_THROUGH],
            device_vm: None,
        },
    }
}

/// Tells whether xtask knows the devices that a device VM has on a board. Paths of another board's
/// devices would be guesses.
pub(super) fn has_device_vm(board: Name) -> bool {
    facts(board).device_vm.is_some()
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
    let next = match board {
        Name::QemuVirt => "cargo xtask run --manifest FILE".to_owned(),
        _ => format!("cargo xtask flash --board {name} --manifest FILE --out PATH"),
    };
    let mut vms = String::new();
    let device_vm = facts.device_vm.filter(|_| choice.device_vm);
    match device_vm {
        Some(owned) => {
            vms += &owned.device();
            if choice.guest {
                vms += &owned.guest(facts.console);
            }
        }
        None => vms += &PLAIN.replace("CONSOLE", facts.console),
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
 *     {next}
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
{}}};
"#,
        vms.trim_start_matches('\n'),
        device_vm.map_or("", |owned| owned.more),
    )
}

impl DeviceVm {
    /// Returns the VM that owns the devices.
    fn device(&self) -> String {
        DEVICE
            .replace("MEMORY", &lines(self.memory))
            .replace("CONSOLE", self.console)
            .replace("DEVICES", &lines(self.devices))
    }

    /// Returns a guest that it serves, with this console.
    fn guest(&self, console: &str) -> String {
        let [disk, comment] = self.disk;
        SERVED
            .replace("MEMORY", &lines(self.guest))
            .replace("CONSOLE", console)
            .replace("RTC", if self.has_clock { CLOCK } else { "" })
            .replace("DISK", disk)
            .replace("COMMENT", comment)
    }
}

/// Returns lines of a VM's node, the first of which stands where it is put.
fn lines(lines: &[&str]) -> String {
    lines.join("\n\t\t\t")
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

/// The VM that owns the board's devices. Words in capitals are replaced. `check --report` lists
/// what the paths name.
const DEVICE: &str = r#"
		/* A Linux with the board's drivers, which serves the other VMs by its device model. */
		device {
			kind = "device";
			vcpus = <1>;
			/* The CPUs that its vCPUs start on; Gear2 may move them. */
			cpus = <0>;
			MEMORY

			/* A file beside this one, or what xtask makes or downloads ("artifact:..."). */
			kernel = "artifact:debian-kernel";
			initrd = "artifact:device-initramfs";
			cmdline = "console=CONSOLE";

			DEVICES

			/* Without it nothing is served: start it again when it fails. */
			restart = "on-failure";
			/* That its kernel hangs shows in that nothing serves any more. */
			watchdog-ms = <60000>;
		};
"#;

/// A guest with devices that the device VM serves. Each kind of virtio device is there once, to be
/// copied or deleted. Words in capitals are replaced.
const SERVED: &str = r#"
		/* A Linux without anything physical. */
		linux {
			vcpus = <2>;
			cpus = <1 2>;
			MEMORY

			kernel = "artifact:debian-kernel";
			initrd = "artifact:guest-initramfs";
			/* gearv.ip=10.0.2.102/24 is for a second guest of this kind. */
			cmdline = "console=ttyAMA0 root=/dev/vda rw";

			/* When it turns itself off, so does the machine: for one VM at most. */
			may-power-off;
			/* After a fault it is started again. */
			restart = "on-failure";

			/* An emulated PL011: `gearctl console linux` in the device VM. */
			CONSOLE

RTC			/* Served by the device VM; `backend` is what serves it there. */
			virtio {
				/* COMMENT */
				disk { type = "block"; backend = "DISK"; };
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
