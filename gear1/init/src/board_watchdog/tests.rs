//! Watchdogs that Gear1 feeds, through the whole of init.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.

use gear1_abi::boot::{BootWatchdog, board_watchdog as kind};
use gear1_abi::layout::el2;
use gear1_core::board_watchdog::Cause;

use crate::prepare::tests::{Case, stage2};
use crate::testing::mappings;
use crate::trees::{cells, text};

const WATCHDOG: &str = "/board-watchdog";
const HEARTBEAT: &str = "/gpio-heartbeat";
const IMX2: &str = "/watchdog@30280000";
const IMX2_PAGE: u64 = 0x3028_0000;
/// WRSR, which tells of the last reset.
const IMX2_WRSR: u64 = IMX2_PAGE + 4;
const PL061: &str = "/pl061@9030000";
const PL061_PAGE: u64 = 0x903_0000;

/// A `virt` that has an i.MX's watchdog, which is fed, and whose PL061 has a line that is.
fn case() -> Case {
    let mut case = Case::new();
    let compatible = b"fsl,imx8mp-wdt\0fsl,imx21-wdt\0".to_vec();
    case.board = case
        .board
        .set(IMX2, "compatible", compatible)
        .set(IMX2, "reg", cells(&[0, IMX2_PAGE as u32, 0, 0x1_0000]))
        .set(IMX2, "fsl,ext-reset-output", Vec::new());
    case.manifest = case
        .manifest
        .set(WATCHDOG, "device", text(IMX2))
        .set(WATCHDOG, "timeout-ms", cells(&[10_000]))
        .set(HEARTBEAT, "device", text(PL061))
        .set(HEARTBEAT, "line", cells(&[7]))
        .set(HEARTBEAT, "period-ms", cells(&[100]));
    case.registers.push((IMX2_WRSR, 2));
    case
}

type Vec<T> = alloc::vec::Vec<T>;

#[test]
fn the_runtime_is_told_what_it_feeds() {
    let (_, info) = case().booted();
    let expected = [
        BootWatchdog {
            kind: kind::IMX2,
            parameter: 1,
            timeout_ms: 10_000,
        },
        BootWatchdog {
            kind: kind::PL061,
            parameter: 7,
            timeout_ms: 0,
        },
    ];
    assert_eq!(info.watchdogs, expected);
    // The shorter of a quarter of the timeout and the line's period, at 62.5 MHz.
    assert_eq!(info.feed_period, 6_250_000);
    assert_eq!(info.settle_ticks, 3875);
}

#[test]
fn a_watchdog_alone_is_fed_four_times_within_its_timeout() {
    let mut case = case();
    case.manifest
        .children
        .retain(|(name, _)| name != "gpio-heartbeat");
    let (_, info) = case.booted();
    assert_eq!(info.watchdogs[1], BootWatchdog::default());
    assert_eq!(info.feed_period, 2500 * 62_500);
}

#[test]
fn nothing_is_fed_by_default() {
    let (memory, info) = Case::new().booted();
    assert_eq!(info.watchdogs, [BootWatchdog::default(); 2]);
    let root = info.ttbr0_el2;
    let mut mapped = mappings(&memory, root, 512, 39).into_iter();
    assert!(!mapped.any(|leaf| leaf.output.start == PL061_PAGE));
}

/// The runtime has the pages, and no VM has.
#[test]
fn the_pages_are_the_runtimes() {
    let (memory, info) = case().booted();
    let mapped = mappings(&memory, info.ttbr0_el2, 512, 39);
    for (number, page) in [IMX2_PAGE, PL061_PAGE].into_iter().enumerate() {
        let at = el2::WATCHDOGS + number as u64 * 0x1000;
        let leaf = mapped.iter().find(|leaf| leaf.input == at).unwrap();
        assert_eq!((leaf.output.start, leaf.output.end), (page, page + 0x1000));
        for vm in &info.vms[..2] {
            let others = stage2(&memory, vm.root);
            assert!(!others.iter().any(|leaf| leaf.output.start == page));
        }
    }
}

#[test]
fn the_last_reset_is_told() {
    let told = |status| {
        let mut case = case();
        case.registers.push((IMX2_WRSR, status));
        let (hand_over, ..) = case.run();
        hand_over.unwrap().last_reset.unwrap()
    };
    let last_reset = told(2);
    assert_eq!(last_reset.cause, Cause::Watchdog);
    assert_eq!(
        alloc::format!("{last_reset}"),
        "/watchdog@30280000: 10000 ms; the last reset was by this watchdog"
    );
    assert_eq!(told(0x10).cause, Cause::PowerOn);
    assert!(Case::new().run().0.unwrap().last_reset.is_none());
}

#[test]
fn a_line_tells_of_no_reset() {
    let mut case = case();
    case.manifest
        .children
        .retain(|(name, _)| name != "board-watchdog");
    assert!(case.run().0.unwrap().last_reset.is_none());
}

#[test]
fn refusals() {
    type Change = fn(&mut Case);
    let set: [(Change, &str); 6] = [
        (
            |case| change(case, WATCHDOG, "device", text("/watchdog@30280001")),
            "M-BWD-001: /board-watchdog: device: ",
        ),
        // A line is no watchdog, and a watchdog is no line.
        (
            |case| change(case, WATCHDOG, "device", text(PL061)),
            "M-BWD-001: /board-watchdog: device: ",
        ),
        (
            |case| change(case, HEARTBEAT, "device", text(IMX2)),
            "M-BWD-001: /gpio-heartbeat: device: ",
        ),
        (
            |case| change(case, WATCHDOG, "timeout-ms", cells(&[999])),
            "M-BWD-002: /board-watchdog: timeout-ms: ",
        ),
        (
            |case| change(case, WATCHDOG, "timeout-ms", cells(&[128_001])),
            "M-BWD-002: /board-watchdog: timeout-ms: ",
        ),
        (
            |case| case.board = case.board.clone().set(IMX2, "status", text("disabled")),
            "M-BWD-001: /board-watchdog: device: ",
        ),
    ];
    for (change, expected) in set {
        let mut case = case();
        change(&mut case);
        let refused = case.refused();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
}

fn change(case: &mut Case, node: &str, name: &str, value: Vec<u8>) {
    case.manifest = case.manifest.clone().set(node, name, value);
}

#[test]
fn no_vm_owns_what_is_fed() {
    for device in [IMX2, PL061] {
        let mut case = case();
        case.manifest = case.manifest.set("/vms/linux", "kind", text("device")).set(
            "/vms/linux",
            "devices",
            text(device),
        );
        let refused = case.refused();
        let expected = alloc::format!(
            "M-DEV-009: /vms/linux: devices: the device has another owner too ({device}: Gear1 \
             feeds it)"
        );
        assert!(refused.contains(&expected), "{refused}");
    }
}

/// The boards' own names, and registers that do not begin their page.
#[test]
fn each_kind_is_known_by_its_name() {
    let names = [
        ("renesas,rcar-gen3-wdt", kind::RWDT),
        ("brcm,bcm2835-pm-wdt", kind::BCM2835),
    ];
    for (name, number) in names {
        let mut case = case();
        case.board = case.board.set(IMX2, "compatible", text(name));
        case.registers.push((IMX2_PAGE + 0x20, 0));
        let (_, info) = case.booted();
        assert_eq!(info.watchdogs[0].kind, number);
    }
    let mut case = case();
    let odd = cells(&[0, IMX2_PAGE as u32 + 0x40, 0, 0x40]);
    case.board = case.board.set(IMX2, "reg", odd);
    assert!(case.refused().contains("M-BWD-001"));
}
