//! Requirements: G1-BOOT-005.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::boot::BootMaster;
use gearv_manifest::blob::Blob;

use super::{Interrupt, Owned, resolve};
use crate::fdt;
use crate::refusal::none_of;
use crate::region::Region;
use crate::testing::{VIRT_GICV3, tree};
use crate::trees::{Tree, cells, smallest, text};

const DEVICE: &str = "/vms/device";

/// Returns a manifest whose device VM owns `devices`, each name with its NUL.
fn manifest(devices: &str) -> Tree {
    smallest()
        .set(DEVICE, "kind", text("device"))
        .set(DEVICE, "memory-mib", cells(&[2]))
        .set(DEVICE, "image", text("flat"))
        .set(DEVICE, "devices", devices.as_bytes().to_vec())
}

fn resolved<R>(manifest: &Tree, board: &Tree, then: impl Fn(Result<Owned<'_>, String>) -> R) -> R {
    let manifest = manifest.flatten();
    let manifest = gearv_manifest::read(manifest.as_slice(), &mut |error| panic!("{error}"));
    let manifest = manifest.unwrap();
    let bytes = board.flatten();
    let found = fdt::read(bytes.as_slice()).board.unwrap();
    let blob = Blob::new(bytes.as_slice()).unwrap();
    let vm = manifest.device_vm().unwrap();
    let mut faults = Vec::new();
    let owned = resolve(&manifest, vm, 232..234, &blob, &found, &mut faults);
    let owned = owned.and_then(|owned| none_of(&faults).map(|()| owned));
    then(owned.map_err(|refusal| refusal.to_string()))
}

fn refused(devices: &str, board: &Tree) -> String {
    resolved(&manifest(devices), board, |owned| owned.unwrap_err())
}

fn virt() -> Tree {
    tree(VIRT_GICV3)
}

#[test]
fn devices_pages_and_interrupts_are_found() {
    let wanted = "/pl011@9000000\0/virtio_mmio@*\0/gpio-keys\0";
    resolved(&manifest(wanted), &virt(), |owned| {
        let owned = owned.unwrap();
        let uart = Region::new(0x900_0000, 0x900_1000);
        assert_eq!(owned.pages, [uart, Region::new(0xa00_0000, 0xa00_4000)]);
        assert_eq!(owned.interrupts.len(), 33);
        assert_eq!(owned.masters.len(), 32);
        let registers = owned.masters.iter().map(|master| master.register);
        let mut registers: Vec<u64> = registers.collect();
        registers.sort_unstable();
        let expected: Vec<u64> = (0..32).map(|n| 0xa00_0070 + 0x200 * n).collect();
        assert_eq!(registers, expected);
        let virtio = |master: &BootMaster| (master.value, master.busy, master.vm) == (0, !0, 1);
        assert!(owned.masters.iter().all(virtio));
        let uart = Interrupt {
            intid: 33,
            is_edge: false,
        };
        let last = Interrupt {
            intid: 79,
            is_edge: true,
        };
        assert!(owned.interrupts.contains(&uart) && owned.interrupts.contains(&last));
        assert!(owned.has("/gpio-keys/poweroff") && !owned.has("/gpio-keys2"));
        assert!(owned.has_below("") && !owned.has_below("/gpio-keys"));
    });
}

/// Returns a bus with its own addresses, an interrupt controller of the VM's behind the GIC, and
/// interrupts that name their controller.
fn soc() -> Tree {
    virt()
        .set("/soc", "#address-cells", cells(&[1]))
        .set("/soc", "#size-cells", cells(&[1]))
        .set("/soc", "ranges", cells(&[0, 0, 0xfe00_0000, 0x1000_0000]))
        .set("/soc", "interrupt-parent", cells(&[0x77]))
        .set("/soc/irq@0", "reg", cells(&[0, 0x100]))
        .set("/soc/irq@0", "phandle", cells(&[0x77]))
        .set("/soc/irq@0", "#interrupt-cells", cells(&[1]))
        .set("/soc/irq@0", "interrupt-parent", cells(&[0x8005]))
        .set("/soc/irq@0", "interrupts", cells(&[0, 100, 4]))
        .set("/soc/dma@1000", "reg", cells(&[0x1000, 0x800]))
        .set("/soc/dma@1000", "interrupts", cells(&[9]))
        .set("/soc/dma@1800", "reg", cells(&[0x1800, 0x801]))
        .set(
            "/soc/dma@1800",
            "interrupts-extended",
            cells(&[0x77, 8, 0x8005, 0, 101, 1]),
        )
}

fn gic_phandle(tree: &Tree) -> u32 {
    let property = |(name, value): &(String, Vec<u8>)| {
        (name == "interrupt-parent").then(|| u32::from_be_bytes(value[..].try_into().unwrap()))
    };
    tree.properties.iter().find_map(property).unwrap()
}

/// [`soc`] with the fixture's own phandle of the GIC.
fn board() -> Tree {
    let gic = gic_phandle(&virt());
    soc()
        .set("/soc/irq@0", "interrupt-parent", cells(&[gic]))
        .set(
            "/soc/dma@1800",
            "interrupts-extended",
            cells(&[0x77, 8, gic, 0, 101, 1]),
        )
}

#[test]
fn buses_and_other_controllers_are_followed() {
    resolved(&manifest("/soc/dma@*\0/soc/irq@0\0"), &board(), |owned| {
        let owned = owned.unwrap();
        let pages = [Region::new(0xfe00_0000, 0xfe00_3000)];
        assert_eq!(owned.pages, pages);
        let intids: Vec<_> = owned
            .interrupts
            .iter()
            .map(|i| (i.intid, i.is_edge))
            .collect();
        assert_eq!(intids, [(132, false), (133, true)]);
        assert!(owned.has_below("/soc"));
    });
    // All nodes below an owned bus are owned.
    resolved(&manifest("/soc\0"), &board(), |owned| {
        assert_eq!(owned.unwrap().interrupts.len(), 2);
    });
}

/// Everything that cannot be given away is refused by name.
#[test]
fn refusals_name_the_device() {
    let uart = "/pl011@9000000";
    let gic = gic_phandle(&virt());
    let at = |path: &str, property: &str, value: Vec<u8>| virt().set(path, property, value);
    let cases = [
        (
            "/uart@1\0",
            virt(),
            "manifest: M-DEV-007: /vms/device: devices: the machine has no such enabled device (\"/uart@1\")",
        ),
        (
            "/pl011@9000000\0/nothing@*\0",
            virt(),
            "manifest: M-DEV-007: /vms/device: devices: the machine has no such enabled device (\"/nothing@*\")",
        ),
        (
            "/virtio-mmio@*\0",
            virt(),
            "manifest: M-DEV-007: /vms/device: devices: the machine has no such enabled device (\"/virtio-mmio@*\"); did you mean /virtio_mmio@*?",
        ),
        (
            "/psci\0",
            virt(),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/psci: it is firmware's",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "status", text("disabled")),
            "manifest: M-DEV-007: /vms/device: devices: the machine has no such enabled device (\"/pl031@9010000\")",
        ),
        (
            "/intc@8000000\0",
            virt(),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/intc@8000000: it is the interrupt controller's",
        ),
        (
            "/intc@8000000/its@*\0",
            virt(),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/intc@8000000/its@8080000: it is the interrupt",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "reg", cells(&[0, 0x80a_0000, 0, 0x100])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: it lies in a page of the interrupt",
        ),
        (
            "/memory@40000000\0",
            virt(),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/memory@40000000: it lies in memory",
        ),
        (
            "/pcie@10000000\0",
            at("/pcie@10000000", "compatible", text("pci-host-cam-generic")),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pcie@10000000: a PCI host bridge",
        ),
        (
            "/pcie@10000000\0",
            at(
                "/pcie@10000000",
                "ranges",
                cells(&[0x200_0000, 0, 0x1000_0000]),
            ),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pcie@10000000: ranges: no whole windows",
        ),
        (
            "/pcie@10000000\0",
            at(
                "/pcie@10000000",
                "interrupt-map",
                cells(&[0, 0, 0, 1, gic, 0, 0, 0, 3]),
            ),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pcie@10000000: interrupt-map: not whole rows",
        ),
        (
            "/pcie@10000000\0",
            at("/pcie@10000000", "iommu-map", cells(&[0, 1, 0])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pcie@10000000: iommu-map: not whole rows",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "iommus", cells(&[1])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: iommus: not whole pairs",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "reg", cells(&[0, 0x900_0800, 0, 0x100])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: it shares a page with the boot UART",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "interrupts", cells(&[0, 1, 4])),
            "manifest: M-DEV-009: /vms/device: devices: the device has another owner too (interrupt 33 is also the boot UART's",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "interrupts", cells(&[1, 2, 4])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: interrupts: not a shared interrupt",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "interrupts", cells(&[0, 2])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: interrupts: not whole interrupts",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "interrupts", cells(&[0, 5000, 4])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: interrupts: not a shared interrupt",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "interrupt-parent", cells(&[0x1234])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: interrupts: goes neither to the GIC nor to a device",
        ),
        (
            "/soc/dma@1000\0",
            board(),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/soc/dma@1000: interrupts: goes neither to the GIC nor to a device",
        ),
        (
            "/pl031@9010000\0",
            at("/pl031@9010000", "reg", cells(&[0, 1, 2])),
            "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away (/pl031@9010000: reg: missing, or not whole",
        ),
        (
            "/pl011@9000000\0",
            at("/new@c080000", "reg", cells(&[0, 0xc08_0000, 0, 4])),
            "manifest: M-DEV-006: /vms/device: window-address: the window lies over memory, the console or a device (/new@c080000)",
        ),
        (
            "/pl011@9000000\0/new@b000000\0",
            with_pl061s_interrupt(gic),
            "device tree: /new@b000000: interrupts: 233 is needed for the device VM's emulated",
        ),
    ];
    for (devices, board, message) in cases {
        let refused = refused(devices, &board);
        assert!(refused.starts_with(message), "{refused:?}\n{message:?}");
    }
    let console = manifest(&[uart, "\0"].concat()).node("/vms/device/console");
    resolved(&console, &virt(), |owned| {
        assert_eq!(
            owned.err().as_deref(),
            Some(
                "manifest: M-DEV-008: /vms/device: devices: this device cannot be given away \
                (/pl011@9000000: it shares a page with this VM's emulated console); take it out \
                of devices"
            )
        );
    });
}

/// A board with a device that has an interrupt of the emulated PL061 blocks.
fn with_pl061s_interrupt(gic: u32) -> Tree {
    let interrupt = cells(&[gic, 0, 201, 4]);
    virt().set("/new@b000000", "interrupts-extended", interrupt)
}

/// A board's own device may have an interrupt of the emulated PL061 blocks, as long as no VM gets
/// it.
#[test]
fn an_interrupt_of_nobodys_is_no_conflict() {
    let gic = gic_phandle(&virt());
    let manifest = manifest("/pl011@9000000\0");
    resolved(&manifest, &with_pl061s_interrupt(gic), |owned| {
        assert!(owned.is_ok(), "{owned:?}");
    });
}

#[test]
fn no_device_is_no_device() {
    let mut none = manifest("/a\0");
    none = none.unset(DEVICE, "devices");
    resolved(&none, &virt(), |owned| {
        let owned = owned.unwrap();
        assert_eq!((owned.pages, owned.interrupts), (vec![], vec![]));
    });
}
