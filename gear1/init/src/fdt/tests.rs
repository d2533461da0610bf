//! Requirements: G1-BOOT-001.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::boot::EnableMethod;
use gear1_abi::info::uart;
use proptest::prelude::{any, prop, proptest};

use super::{Board, Cpu, Region, Uart, read};
use crate::testing::{VIRT_GICV2, VIRT_GICV3, tree};
use crate::trees::{Aligned, Tree, cells, text};

const GIC: &str = "/intc@8000000";

fn board(tree: &Tree) -> Result<Board, String> {
    let refused = |refusal: crate::refusal::Refusal| refusal.to_string();
    read(tree.flatten().as_slice()).board.map_err(refused)
}

fn virt() -> Tree {
    tree(VIRT_GICV3)
}

fn without(mut tree: Tree, name: &str) -> Tree {
    tree.children.retain(|(child, _)| child != name);
    tree
}

#[test]
fn virt_is_understood() {
    let board = board(&virt()).unwrap();
    assert_eq!(board.memory, vec![Region::new(0x4000_0000, 0x8000_0000)]);
    let cpu = |mpidr| Cpu {
        mpidr,
        release_addr: 0,
        cluster: 0,
        lacks_sve: true,
    };
    assert_eq!(board.cpus, vec![cpu(0), cpu(1)]);
    assert_eq!(
        (board.enable_method, board.unused_cpu_count),
        (EnableMethod::PsciSmc, 0)
    );
    let gic = board.gic;
    assert_eq!(
        (gic.version, gic.gicd, gic.gicr),
        (3, 0x800_0000, 0x80a_0000)
    );
    assert_eq!((gic.gicr_stride, board.gicr_size), (0x2_0000, 0xf6_0000));
    assert_eq!(
        board.uart,
        Some(Uart {
            kind: 1,
            base: 0x900_0000,
            intid: 33
        })
    );
    assert_eq!(board.archive.start, 0x4800_0000);
    assert_eq!(board.seed.len(), 40);
    assert!(board.reserved.is_empty() && board.no_map.is_empty());
}

/// Two entries of one node, and two nodes: what touches is one piece, as a VM may need all of it.
#[test]
fn banks_that_touch_are_one() {
    let banks = cells(&[
        0,
        0x5000_0000,
        0,
        0x1000_0000,
        0,
        0x4000_0000,
        0,
        0x1000_0000,
    ]);
    let tree = virt()
        .set("/memory@40000000", "reg", banks)
        .set("/memory@60000000", "device_type", text("memory"))
        .set(
            "/memory@60000000",
            "reg",
            cells(&[0, 0x6000_0000, 0, 0x1000_0000]),
        )
        .set("/memory@80000000", "device_type", text("memory"))
        .set(
            "/memory@80000000",
            "reg",
            cells(&[0, 0x8000_0000, 0, 0x1000_0000]),
        );
    let memory = [
        Region::new(0x4000_0000, 0x7000_0000),
        Region::new(0x8000_0000, 0x9000_0000),
    ];
    assert_eq!(board(&tree).unwrap().memory, memory);
}

/// Gear2's watchdog is longer where the CPUs are threads of a host.
#[test]
fn an_emulator_is_known_by_its_name() {
    assert!(board(&virt()).unwrap().is_virtual);
    let real = virt().set("/", "compatible", text("raspberrypi,4-model-b"));
    assert!(!board(&real).unwrap().is_virtual);
}

#[test]
fn virt_with_gicv2_is_understood() {
    let gic = board(&tree(VIRT_GICV2)).unwrap().gic;
    assert_eq!(
        (gic.version, gic.gicd, gic.gicr),
        (2, 0x800_0000, 0x801_0000)
    );
    assert_eq!((gic.gich, gic.gicv), (0x803_0000, 0x804_0000));
}

#[test]
fn the_two_pages_of_gicc_lie_side_by_side_where_pages_have_64_kib_too() {
    let gicc = |size: u32| {
        let regions = [0x800_0000, 0x1_0000, 0x801_0000, size];
        let rest = [0x803_0000, size, 0x804_0000, size];
        let reg: Vec<u32> = regions.iter().chain(&rest).copied().collect();
        let reg = reg.chunks(2).flat_map(|pair| [0, pair[0], 0, pair[1]]);
        let reg: Vec<u32> = reg.collect();
        let board = board(&tree(VIRT_GICV2).set(GIC, "reg", cells(&reg))).unwrap();
        assert_eq!(board.gic.gicr, 0x801_0000);
        board.gicc()
    };
    // GICC_DIR is 4 KiB on: at 0x8011000, and at the second page's start.
    assert_eq!([0x2000, 0x1_0000].map(gicc), [0x801_0000; 2]);
    assert_eq!(gicc(0x2_0000) + 0x1000, 0x802_0000);
    assert_eq!(board(&virt()).unwrap().gicc(), 0x80a_0000);
}

#[test]
fn reservations_are_respected() {
    let range = cells(&[0, 0x4100_0000, 0, 0x1000]);
    let tree = virt()
        .set("/reserved-memory", "#address-cells", cells(&[2]))
        .set("/reserved-memory", "#size-cells", cells(&[2]))
        .set("/reserved-memory", "ranges", vec![])
        .set("/reserved-memory/firmware@41000000", "reg", range)
        .set("/reserved-memory/firmware@41000000", "no-map", vec![])
        .set(
            "/reserved-memory/buffer",
            "reg",
            cells(&[0, 0x4200_0000, 0, 0x2000]),
        )
        .set("/reserved-memory/cma", "size", cells(&[0, 0x10_0000]));
    let board = board(&tree).unwrap();
    let firmware = Region::new(0x4100_0000, 0x4100_1000);
    let buffer = Region::new(0x4200_0000, 0x4200_2000);
    assert_eq!(board.reserved, vec![firmware, buffer]);
    assert_eq!(board.no_map, vec![firmware]);
}

#[test]
fn the_reservation_block_is_respected() {
    let blob = virt().flatten();
    let blob = blob.as_slice();
    // Moves everything behind the reservation block up by one entry.
    let mut bytes = blob[..40].to_vec();
    for field in [1, 2, 3] {
        let at = field * 4;
        let value = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) + 16;
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes.extend(0x4300_0000_u64.to_be_bytes());
    bytes.extend(0x1234_u64.to_be_bytes());
    bytes.extend(&blob[40..]);
    let board = read(Aligned::new(&bytes).as_slice()).board.unwrap();
    assert_eq!(board.reserved, vec![Region::new(0x4300_0000, 0x4300_1234)]);
}

#[test]
fn addresses_are_translated_and_aliases_followed() {
    let soc = |tree: Tree| {
        tree.set("/soc", "#address-cells", cells(&[1]))
            .set("/soc", "#size-cells", cells(&[1]))
            .set(
                "/soc",
                "ranges",
                cells(&[0x7e00_0000, 0, 0xfe00_0000, 0x180_0000]),
            )
            .set("/soc/serial@7e201000", "compatible", text("arm,pl011"))
            .set("/soc/serial@7e201000", "reg", cells(&[0x7e20_1000, 0x200]))
            .set("/soc/serial@7e201000", "interrupts", cells(&[0, 121, 4]))
            .set("/aliases", "serial0", text("/soc/serial@7e201000"))
            .set("/chosen", "stdout-path", text("serial0:115200n8"))
    };
    let uart = board(&soc(virt())).unwrap().uart.unwrap();
    assert_eq!((uart.base, uart.intid), (0xfe20_1000, 153));
    let outside = soc(virt()).set("/soc/serial@7e201000", "reg", cells(&[0x100, 0x200]));
    let refused = board(&outside).unwrap_err();
    assert!(
        refused.starts_with("device tree: /soc/serial@7e201000: reg:"),
        "{refused}"
    );
}

#[test]
fn other_uarts_are_known_where_their_page_has_them() {
    let named = |kind: &str, reg: &[u32]| {
        virt()
            .set("/serial", "compatible", text(kind))
            .set("/serial", "reg", cells(reg))
            .set("/serial", "interrupts", cells(&[0, 93, 4]))
            .set("/chosen", "stdout-path", text("/serial"))
    };
    let mini = named("brcm,bcm2835-aux-uart", &[0, 0xfe21_5040, 0, 0x40]);
    let found = board(&mini).unwrap().uart.unwrap();
    assert_eq!(
        (found.kind, found.base, found.page()),
        (uart::MINI, 0xfe21_5040, 0xfe21_5000)
    );
    let scif = named("renesas,scif", &[0, 0xe6e8_8000, 0, 0x40]);
    let found = board(&scif).unwrap().uart.unwrap();
    assert_eq!((found.kind, found.page()), (uart::SCIF, 0xe6e8_8000));
    let cadence = named("cdns,uart-r1p12", &[0, 0xff00_0000, 0, 0x1000]);
    let found = board(&cadence).unwrap().uart.unwrap();
    assert_eq!((found.kind, found.base), (uart::CADENCE, 0xff00_0000));
    let imx = named("fsl,imx6q-uart", &[0, 0x3089_0000, 0, 0x1_0000]);
    let found = board(&imx).unwrap().uart.unwrap();
    assert_eq!((found.kind, found.base), (uart::IMX, 0x3089_0000));
    let moved = named("brcm,bcm2835-aux-uart", &[0, 0xfe21_5000, 0, 0x40]);
    let refused = board(&moved).unwrap_err();
    assert!(
        refused.starts_with("device tree: /serial: reg:"),
        "{refused}"
    );
}

#[test]
fn spin_tables_and_clusters_are_understood() {
    let tree = virt()
        .set("/cpus/cpu@0", "enable-method", text("spin-table"))
        .set("/cpus/cpu@0", "cpu-release-addr", cells(&[0, 0xd8]))
        .set("/cpus/cpu@1", "enable-method", text("spin-table"))
        .set("/cpus/cpu@1", "cpu-release-addr", cells(&[1, 0xe0]))
        .set("/cpus/cpu@1", "reg", cells(&[0x101]));
    let board = board(&tree).unwrap();
    assert_eq!(board.enable_method, EnableMethod::SpinTable);
    assert_eq!(
        board.cpus[1],
        Cpu {
            mpidr: 0x101,
            release_addr: 0x1_0000_00e0,
            cluster: 0,
            lacks_sve: true,
        }
    );
}

#[test]
fn what_is_disabled_is_not_there() {
    let tree = virt().set("/pl011@9000000", "status", text("disabled"));
    assert_eq!(board(&tree).unwrap().uart, None);
}

/// Each thing that is missing or wrong is refused by node and property.
#[test]
fn refusals_name_node_and_property() {
    let cases = [
        (without(virt(), "cpus"), "/: no node \"cpus\""),
        (without(virt(), "chosen"), "/: no node \"chosen\""),
        (
            without(virt(), "intc@8000000"),
            "/: no node compatible with \"arm,gic-v3\" or \"arm,gic-400\"",
        ),
        (
            without(virt(), "memory@40000000"),
            "/: no node with device_type \"memory\" has a size in reg",
        ),
        (
            virt().set("/memory@40000000", "reg", cells(&[0, 0, 0, 0])),
            "/: no node with device_type \"memory\" has a size in reg",
        ),
        (
            virt().set("/memory@40000000", "reg", cells(&[0x7000, 0, 0, 0x1000])),
            "memory: reg: memory up to 0x700000001000; none above 0x700000000000 is supported",
        ),
        (
            without(virt(), "psci"),
            "/cpus/cpu@0: enable-method: \"psci\" without a PSCI node",
        ),
        (
            virt().set("/psci", "method", text("svc")),
            "/psci: method: not \"smc\" or \"hvc\"",
        ),
        (
            virt().unset("/memory@40000000", "reg"),
            "/memory@40000000: reg: missing, or not whole addresses and sizes",
        ),
        (
            virt().set("/memory@40000000", "reg", cells(&[0, 1, 2])),
            "/memory@40000000: reg: missing, or not whole addresses and sizes",
        ),
        (
            virt().set("/memory@40000000", "reg", vec![1, 2]),
            "/memory@40000000: reg: missing, or not whole addresses and sizes",
        ),
        (
            virt().set(GIC, "reg", cells(&[0, 1, 2, 3])),
            "/intc@8000000: reg: no distributor and redistributors",
        ),
        (
            virt().set(GIC, "#redistributor-regions", cells(&[2])),
            "/intc@8000000: #redistributor-regions: only one region is supported",
        ),
        (
            virt().unset("/pl011@9000000", "interrupts"),
            "/pl011@9000000: interrupts: not a shared interrupt of the GIC",
        ),
        (
            virt().set("/pl011@9000000", "interrupts", cells(&[1, 3, 4])),
            "/pl011@9000000: interrupts: not a shared interrupt of the GIC",
        ),
        (
            virt().set("/cpus/cpu@1", "enable-method", text("magic")),
            "/cpus/cpu@1: enable-method: \"magic\" is not known",
        ),
        (
            virt().set("/cpus/cpu@1", "enable-method", text("spin-table")),
            "/cpus/cpu@1: cpu-release-addr: missing",
        ),
        (
            virt().set("/cpus/cpu@1", "reg", cells(&[0xff00_0000])),
            "/cpus/cpu@1: reg: no affinity of a CPU",
        ),
        (
            virt().unset("/cpus/cpu@1", "reg"),
            "/cpus/cpu@1: reg: no affinity of a CPU",
        ),
        (
            virt().set("/", "#address-cells", cells(&[9])),
            "/: #address-cells: not a number that is supported",
        ),
        (
            virt().unset("/chosen", "linux,initrd-start"),
            "/chosen: linux,initrd-start: missing: pass the boot archive as initrd",
        ),
        (
            virt().set("/chosen", "linux,initrd-end", cells(&[0])),
            "/chosen: linux,initrd-end: the initrd is empty",
        ),
    ];
    for (tree, message) in cases {
        assert_eq!(
            board(&tree).err(),
            Some(["device tree: ", message].concat())
        );
    }
    assert_eq!(
        read(&[]).board.unwrap_err().to_string(),
        "device tree: shorter than its header says"
    );
}

#[test]
fn the_console_is_found_whatever_else_is_wrong() {
    let tree = without(virt(), "cpus").unset("/memory@40000000", "reg");
    let found = read(tree.flatten().as_slice());
    assert!(found.board.is_err());
    assert_eq!(found.console.map(|uart| uart.base), Some(0x900_0000));
}

#[test]
fn cpus_beyond_the_limit_are_counted() {
    let mut tree = virt();
    for cpu in 2..11 {
        let path = alloc::format!("/cpus/cpu@{cpu}");
        tree = tree
            .set(&path, "reg", cells(&[cpu]))
            .set(&path, "device_type", text("cpu"));
    }
    let board = board(&tree).unwrap();
    assert_eq!((board.cpus.len(), board.unused_cpu_count), (8, 3));
}

proptest! {
    /// No bytes panic.
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0..VIRT_GICV3.len(), any::<u8>()), 1..40)) {
        let mut bytes: Vec<u8> = VIRT_GICV3.to_vec();
        for (at, value) in damage {
            bytes[at] = value;
        }
        let _ = read(Aligned::new(&bytes).as_slice());
    }
}
