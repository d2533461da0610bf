//! The device tree of a guest, as source.
//!
//! The shape is fixed: facts of a boot (memory, the initial RAM disk, seeds, the interrupt
//! controller) have slots of their final size that Gear1's init fills in place, so init needs no
//! device tree writer. The tree has both interrupt controllers. Init removes the one that the
//! machine lacks, and the slots of the initial RAM disk if there is none.
//!
//! The bindings that a node follows are those of Linux (Documentation/devicetree/bindings), because
//! stock kernels are the ones that read it: psci.yaml, arm,arch_timer.yaml, arm,gic.yaml,
//! arm,gic-v3.yaml, pl011.yaml, arm,pl031.yaml, arm,sbsa-gwdt.yaml, mmio.yaml and
//! gpio-keys.yaml. An interrupt is type, number and trigger; type 0 counts from INTID 32, and type
//! 1 from INTID 16.
//!
//! Zeroes are places that Gear1's init fills in: it alone knows where the memory lies, which
//! interrupt controller the board has, and a random number.

use std::fmt::Write as _;

use gearv_manifest::{
    ChannelEnd, Console, Manifest, Payload, Rtc, SharedMemory, VirtioDevice, Vm, WatchdogDevice,
};

#[cfg(test)]
mod tests;

/// First SPI: `interrupts` counts from there (Linux, arm,gic-v3.yaml). INTIDs below are a CPU's
/// own, and have another first cell.
const FIRST_SHARED_INTID: u32 = 32;
/// Phandles are fixed, because init removes a node by path and keeps every reference.
const PHANDLE_GICV3: u32 = 1;
/// init turns `interrupt-parent` to this one on a machine with a GICv2.
const PHANDLE_GICV2: u32 = 2;
/// PL011 and PL031 share the clock.
const PHANDLE_CLOCK: u32 = 3;
/// Bytes of a redistributor: two frames of 64 KiB (GICv3 without GICv4). Fixed by the size of a
/// slot: init fills in the address alone.
const GICR_STRIDE: usize = 0x2_0000;

/// Returns the source of the device tree for `vm`, which is not the device VM: init makes that
/// one's. One literal, so that the tree's shape can be read here.
///
/// Zeroes stand where init writes: the ends of the initial RAM disk, the seeds, the banks of memory
/// and the registers of the interrupt controllers. Linux reads the timer's interrupts by position
/// (arm,arch_timer.yaml), so those of the secure and of the hypervisor timer, which no guest has,
/// keep their places. `always-on` says that the timer counts while a CPU sleeps: without the
/// property Linux would look for a broadcast timer before it goes idle.
pub(crate) fn source(manifest: &Manifest<'_>, vm: &Vm<'_>) -> String {
    let (Payload::Linux {
        cmdline: bootargs, ..
    }
    | Payload::Flat {
        cmdline: bootargs, ..
    }) = vm.payload;
    let cpus: String = (0..vm.vcpu_count).map(cpu).collect();
    let stdout = vm.console.map_or_else(String::new, |console| {
        format!("\t\tstdout-path = \"{}\";\n", uart_path(console))
    });
    let devices = devices(manifest, vm);
    format!(
        "/dts-v1/;

/ {{
	#address-cells = <2>;
	#size-cells = <2>;
	compatible = \"gearv,guest\";
	model = \"GearV VM {name}\";
	interrupt-parent = <{PHANDLE_GICV3}>;

	chosen {{
		bootargs = \"{bootargs}\";
{stdout}		linux,initrd-start = <0 0>;
		linux,initrd-end = <0 0>;
		rng-seed = [{rng_seed}];
		kaslr-seed = <0 0>;
	}};

	memory@0 {{
		device_type = \"memory\";
		reg = <0 0 0 0>;
	}};

	cpus {{
		#address-cells = <1>;
		#size-cells = <0>;
{cpus}	}};

	psci {{
		compatible = \"arm,psci-1.0\", \"arm,psci-0.2\";
		method = \"hvc\";
	}};

	timer {{
		compatible = \"arm,armv8-timer\";
		interrupts = <1 13 4>, <1 14 4>, <1 11 4>, <1 10 4>;
		always-on;
	}};

{controllers}{devices}}};
",
        name = vm.name,
        bootargs = escape(bootargs),
        rng_seed = ["00"; 32].join(" "),
        controllers = interrupt_controllers(vm.vcpu_count),
    )
}

/// Returns both interrupt controllers: Gear1's init keeps the one that the machine has, and fills
/// in its addresses. `arm,cortex-a15-gic` is what Linux takes for a GICv2 with virtualization.
fn interrupt_controllers(vcpu_count: usize) -> String {
    format!(
        "	interrupt-controller-v3 {{
		compatible = \"arm,gic-v3\";
		phandle = <{PHANDLE_GICV3}>;
		#interrupt-cells = <3>;
		#address-cells = <0>;
		interrupt-controller;
		reg = <0 0 0 0x10000>, <0 0 0 {redistributors:#x}>;
	}};

	interrupt-controller-v2 {{
		compatible = \"arm,cortex-a15-gic\";
		phandle = <{PHANDLE_GICV2}>;
		#interrupt-cells = <3>;
		#address-cells = <0>;
		interrupt-controller;
		reg = <0 0 0 0x1000>, <0 0 0 0x2000>;
	}};
",
        redistributors = vcpu_count * GICR_STRIDE,
    )
}

/// Returns the nodes of the VM's devices, and of what it has in common with others. The clock comes
/// before its users; Linux does not mind, and a reader does.
fn devices(manifest: &Manifest<'_>, vm: &Vm<'_>) -> String {
    let has_primecell = vm.console.is_some() || vm.rtc.is_some();
    let clock = if has_primecell {
        clock()
    } else {
        String::new()
    };
    let uart = vm.console.map_or_else(String::new, uart);
    let rtc = vm.rtc.map_or_else(String::new, rtc);
    let watchdog = watchdog(vm) + &heartbeat(vm);
    let pmu = if vm.pmu { PMU } else { "" };
    let served = manifest.virtio_of(vm.id);
    let virtio: String = served.map(|(_, device)| virtio(vm, device)).collect();
    let shared: String = shared_and_channels(manifest, vm);
    format!("{pmu}{clock}{uart}{rtc}{watchdog}{virtio}{shared}")
}

/// The performance monitors: PPI 7 is what Gear1 has for them, too. Linux asks for the interrupt
/// only if the node is there, so a VM without `pmu` has no counters.
const PMU: &str = "
	pmu {
		compatible = \"arm,armv8-pmuv3\";
		interrupts = <1 7 4>;
	};
";

/// Returns the node of a vCPU, whose MPIDR has the index as its lowest affinity. CPU_ON finds a
/// vCPU by this MPIDR (Arm DEN 0022, 5.6). `compatible` names no model: an archive serves boards
/// with different cores, and Linux reads the core's own ID registers.
fn cpu(index: usize) -> String {
    format!(
        "
		cpu@{index:x} {{
			device_type = \"cpu\";
			compatible = \"arm,armv8\";
			reg = <{index:#x}>;
			enable-method = \"psci\";
		}};
"
    )
}

/// `stdout-path` and the node have to agree on the name: Linux follows the path to find the early
/// console, and has none before its driver starts if the path leads nowhere.
fn uart_path(console: Console) -> String {
    format!("/uart@{:x}", console.ipa)
}

/// Returns the node of the clock that drivers of PrimeCells want. The rate does not matter to an
/// emulated UART, but Linux's driver computes divisors from it.
fn clock() -> String {
    format!(
        "
	clock {{
		compatible = \"fixed-clock\";
		#clock-cells = <0>;
		clock-frequency = <24000000>;
		phandle = <{PHANDLE_CLOCK}>;
	}};
"
    )
}

/// Returns the node of the PL031 that GDM emulates, without an alarm. The peripheral's number
/// stands in the tree, so that Linux need not read eight emulated registers to find it
/// (drivers/amba/bus.c).
fn rtc(rtc: Rtc) -> String {
    let (high, low) = (rtc.ipa >> 32, rtc.ipa & 0xffff_ffff);
    format!(
        "
	rtc@{:x} {{
		compatible = \"arm,pl031\", \"arm,primecell\";
		arm,primecell-periphid = <0x00041031>;
		reg = <{high:#x} {low:#x} 0 0x1000>;
		clocks = <{PHANDLE_CLOCK}>;
		clock-names = \"apb_pclk\";
	}};
",
        rtc.ipa,
    )
}

/// Returns the node of the watchdog that Gear2 emulates, if the VM has one (Linux,
/// arm,sbsa-gwdt.yaml: the control frame, then the refresh frame). Without `timeout-sec` Linux'
/// driver would begin with ten seconds of its own, which may be longer than the manifest allows.
fn watchdog(vm: &Vm<'_>) -> String {
    let Some(watchdog) = vm.watchdog() else {
        return String::new();
    };
    let frame = WatchdogDevice::SIZE / 2;
    let cells = |ipa: u64| format!("{:#x} {:#x} 0 {frame:#x}", ipa >> 32, ipa & 0xffff_ffff);
    let shared = watchdog.intid.saturating_sub(FIRST_SHARED_INTID);
    // Whole seconds, and no more than the manifest allows.
    let seconds = (vm.watchdog_ms / 1000).max(1);
    format!(
        "
	watchdog@{ipa:x} {{
		compatible = \"arm,sbsa-gwdt\";
		reg = <{control}>, <{refresh}>;
		interrupts = <0 {shared} 4>;
		timeout-sec = <{seconds}>;
	}};
",
        ipa = watchdog.ipa,
        control = cells(watchdog.ipa),
        refresh = cells(watchdog.ipa + frame),
    )
}

/// Returns the node of the page in which a real-time VM shows that it lives, if the VM has one. The
/// guest reads the limit here, so that the manifest alone decides how often the guest has to store.
fn heartbeat(vm: &Vm<'_>) -> String {
    let Some(page) = vm.heartbeat() else {
        return String::new();
    };
    let (high, low) = (page.start >> 32, page.start & 0xffff_ffff);
    format!(
        "
	heartbeat@{:x} {{
		compatible = \"gearv,heartbeat\";
		reg = <{high:#x} {low:#x} 0 {:#x}>;
		timeout-ms = <{}>;
	}};
",
        page.start,
        page.bytes(),
        vm.watchdog_ms,
    )
}

/// Returns the node of the PL011 that Gear2 emulates. Two clocks, although nothing divides them:
/// Linux' bus driver does not probe a PrimeCell without `apb_pclk` (drivers/amba/bus.c).
fn uart(console: Console) -> String {
    let name = &uart_path(console)[1..];
    let (high, low) = (console.ipa >> 32, console.ipa & 0xffff_ffff);
    let shared = console.intid.saturating_sub(FIRST_SHARED_INTID);
    format!(
        "
	{name} {{
		compatible = \"arm,pl011\", \"arm,primecell\";
		arm,primecell-periphid = <0x00241011>;
		reg = <{high:#x} {low:#x} 0 0x1000>;
		interrupts = <0 {shared} 4>;
		clocks = <{PHANDLE_CLOCK}>, <{PHANDLE_CLOCK}>;
		clock-names = \"uartclk\", \"apb_pclk\";
	}};
"
    )
}

/// Returns the node of a virtio device. Coherent: GDM reads the rings through its caches. The
/// interrupt is an edge: Gear1 pulses it for each notification.
fn virtio(vm: &Vm<'_>, device: &VirtioDevice<'_>) -> String {
    let address = vm.virtio_ipa + device.offset();
    let (high, low) = (address >> 32, address & 0xffff_ffff);
    let shared = device.intid().saturating_sub(FIRST_SHARED_INTID);
    let size = VirtioDevice::STRIDE;
    format!(
        "
	virtio_mmio@{address:x} {{
		compatible = \"virtio,mmio\";
		reg = <{high:#x} {low:#x} 0 {size:#x}>;
		interrupts = <0 {shared} 1>;
		dma-coherent;
	}};
"
    )
}

/// Returns the nodes of what the VM has in common with others. In the order of the manifest, so
/// that the same manifest gives the same bytes, whose digest a build can be compared by.
fn shared_and_channels(manifest: &Manifest<'_>, vm: &Vm<'_>) -> String {
    let shared = manifest.shared_of(vm).map(shared);
    shared
        .chain(manifest.channel_ends(vm).map(|end| channel(&end)))
        .collect()
}

/// Returns the node of memory that the VM shares, with what describes it to Linux. `volatile` keeps
/// Linux from flushing to media that there are not (Linux, pmem-region.txt).
fn shared(shared: &SharedMemory<'_>) -> String {
    let region = shared.with_lead();
    let cells = |value: u64| format!("{:#x} {:#x}", value >> 32, value & 0xffff_ffff);
    format!(
        "
	pmem-region@{:x} {{
		compatible = \"pmem-region\";
		reg = <{} {}>;
		volatile;
	}};
",
        region.start,
        cells(region.start),
        cells(region.bytes()),
    )
}

/// Returns the node of a channel: a doorbell's page, an interrupt, and memory, as the VM has them.
/// The node `gpio-keys` of Linux takes the interrupt without a driver of GearV's.
fn channel(end: &ChannelEnd<'_>) -> String {
    let cells = |value: u64| format!("{:#x} {:#x}", value >> 32, value & 0xffff_ffff);
    let compatible = end.compatible().join("\", \"");
    let address = end.unit_address();
    let address = address.map_or_else(String::new, |address| format!("@{address:x}"));
    let mut node = format!(
        "\n\t{0}{address} {{\n\t\tcompatible = \"{compatible}\";\n\t\t{1} = \"{0}\";\n",
        end.name,
        ChannelEnd::UIO_NAME,
    );
    let registers = end.registers().map(|(name, region)| {
        let range = format!("<{} {}>", cells(region.start), cells(region.bytes()));
        (format!("\"{name}\""), range)
    });
    let (names, ranges): (Vec<String>, Vec<String>) = registers.unzip();
    if !ranges.is_empty() {
        let (ranges, names) = (ranges.join(", "), names.join(", "));
        node += &format!("\t\treg = {ranges};\n\t\treg-names = {names};\n");
    }
    if let Some(intid) = end.intid {
        let interrupt = format!(
            "interrupts = <0 {} 1>;\n",
            intid.saturating_sub(FIRST_SHARED_INTID)
        );
        let (name, key, node_name) = (end.name, end.key(), ChannelEnd::KEY_NODE);
        node += &format!(
            "\t\t{interrupt}\t\tlabel = \"{name}\";\n\n\t\t{node_name} {{\n\t\t\tlabel = \"{name}\";\n\
             \t\t\tlinux,code = <{key:#x}>;\n\t\t\tdebounce-interval = <0>;\n\t\t\t{interrupt}\t\t}};\n"
        );
    }
    node + "\t};\n"
}

/// Escapes a text for a string of device tree source. A command line may hold any byte, and dtc's
/// strings may not. Bytes beyond ASCII are written by number, so that dtc's idea of an encoding
/// does not matter.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => write!(out, "\\x{byte:02x}").expect("writing to a String does not fail"),
        }
        out
    })
}
