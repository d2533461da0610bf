//! Tests of the table: it tells what the reader takes and what the manual says.

use std::fs;
use std::path::Path;

use gearv_manifest::binding::{
    BALANCERS, BOARD_WATCHDOG_PROPERTIES, CELL_PROPERTIES, CHANNEL_PROPERTIES, CONSOLE_PROPERTIES,
    GEAR2_PROPERTIES, GIC_MODES, GPIO_HEARTBEAT_PROPERTIES, KINDS, POOL_PROPERTIES, PRIVILEGES,
    RESTARTS, ROOT_PROPERTIES, SCHEDULERS, SHARED_PROPERTIES, VHOST_FUNCTIONS, VIRTIO_KINDS,
    VIRTIO_PROPERTIES, VM_PROPERTIES, WINDOW_PROPERTIES,
};
use gearv_manifest::limits;

use super::{OF_NODES, TABLE, names, value};

fn takes(property: &str) -> &'static str {
    let entry = TABLE.iter().find(|(name, ..)| *name == property);
    entry
        .unwrap_or_else(|| panic!("{property} is not in the table"))
        .1
}

#[test]
fn every_property_stands_once() {
    let known = [
        ROOT_PROPERTIES,
        GEAR2_PROPERTIES,
        VM_PROPERTIES,
        CONSOLE_PROPERTIES,
        VIRTIO_PROPERTIES,
        SHARED_PROPERTIES,
        CHANNEL_PROPERTIES,
        POOL_PROPERTIES,
        WINDOW_PROPERTIES,
    ];
    for name in known.concat() {
        assert_eq!(
            TABLE.iter().filter(|(entry, ..)| *entry == name).count(),
            1,
            "{name}"
        );
    }
    for (name, takes, example) in TABLE {
        assert!(known.concat().contains(name), "{name}");
        let is_cell = CELL_PROPERTIES.contains(name);
        assert_eq!(example.starts_with('<'), is_cell, "{name}");
        assert_eq!(takes.is_empty(), example.is_empty(), "{name}");
    }
}

#[test]
fn words_are_those_of_the_reader() {
    fn words<T>(list: &[(&'static str, T)]) -> Vec<&'static str> {
        list.iter().map(|(word, _)| *word).collect()
    }
    let lists = [
        ("scheduler", words(SCHEDULERS)),
        ("balancer", words(BALANCERS)),
        ("privilege", words(PRIVILEGES)),
        ("kind", words(KINDS)),
        ("restart", words(RESTARTS)),
        ("type", words(VIRTIO_KINDS)),
        ("device", words(VHOST_FUNCTIONS)),
        ("gic", words(GIC_MODES)),
    ];
    for (property, words) in lists {
        let told: Vec<&str> = takes(property).split('"').skip(1).step_by(2).collect();
        assert_eq!(told, words, "{property}");
    }
}

#[test]
fn ranges_are_those_of_the_rules() {
    let ranges = [
        ("vcpus", 1_u64, limits::MAX_VCPUS_PER_VM as u64),
        ("queues", 1, gearv_manifest::MAX_VHOST_QUEUES.into()),
        ("config-size", 0, gearv_manifest::MAX_VHOST_CONFIG.into()),
        (
            "timeout-ms",
            (*limits::TIMEOUT_MS.start()).into(),
            (*limits::TIMEOUT_MS.end()).into(),
        ),
        ("cpus", 0, limits::MAX_CPUS as u64 - 1),
        ("boot-order", 0, limits::MAX_BOOT_ORDER.into()),
        ("restart-limit", 0, limits::MOST_RESTARTS.into()),
        ("restart-window-ms", 1, limits::LONGEST_MS.into()),
        ("restart-backoff-ms", 0, limits::LONGEST_MS.into()),
        ("watchdog-ms", 0, limits::LONGEST_MS.into()),
        ("progress-ms", 0, limits::LONGEST_MS.into()),
        ("boot-order-timeout-ms", 0, limits::LONGEST_MS.into()),
        (
            "interrupt",
            limits::SHARED_INTIDS.start.into(),
            u64::from(limits::SHARED_INTIDS.end) - 1,
        ),
    ];
    let scheduling = [
        ("slice-us", limits::SLICE_US),
        ("ceiling-us", limits::CEILING_US),
        ("frame-us", limits::FRAME_US),
        ("start-us", limits::START_US),
        ("length-us", limits::LENGTH_US),
        ("min-interval-us", limits::MIN_INTERVAL_US),
        ("weight", limits::WEIGHT),
        ("cap-percent", limits::CAP_PERCENT),
        ("budget-us", limits::BUDGET_US),
        ("period-us", limits::PERIOD_US),
        ("priority", limits::PRIORITY),
        ("latency-us", limits::LATENCY_US),
    ];
    let scheduling = scheduling.map(|(property, range)| {
        let (least, most) = range.into_inner();
        (property, u64::from(least), u64::from(most))
    });
    for (property, least, most) in ranges.into_iter().chain(scheduling) {
        let expected = format!("from {least} to {most}");
        assert!(
            takes(property).contains(&expected),
            "{property}: {expected}"
        );
    }
}

/// Nodes with rows of their own have a row for each property, as the manual has below their titles.
#[test]
fn rows_of_a_node_are_those_of_the_reader_and_the_manual() {
    let manual = manual();
    let names = [
        ("/board-watchdog", BOARD_WATCHDOG_PROPERTIES),
        ("/gpio-heartbeat", GPIO_HEARTBEAT_PROPERTIES),
    ];
    assert_eq!(OF_NODES.len(), names.len());
    for ((node, properties), (of, told)) in names.into_iter().zip(OF_NODES) {
        assert_eq!(node, *of);
        assert_eq!(told.iter().map(|row| row.0).collect::<Vec<_>>(), properties);
        let title = format!("`{node}`");
        let mut lines = manual.lines();
        let at_title = lines.find(|line| line.starts_with('#') && line.contains(&title));
        at_title.unwrap_or_else(|| panic!("no title of {node}"));
        let rows = lines.take_while(|line| !line.starts_with('#'));
        let rows: Vec<&str> = rows.filter(|line| line.starts_with("| `")).collect();
        for (name, _, example) in *told {
            let row = rows
                .iter()
                .find(|row| row.starts_with(&format!("| `{name}` | ")));
            let row = row.unwrap_or_else(|| panic!("no row of {node}'s {name}"));
            assert!(row.contains(&format!("`{name} = {example};`")), "{row}");
            assert_eq!(
                CELL_PROPERTIES.contains(name),
                example.starts_with('<'),
                "{name}"
            );
        }
    }
    let help = "write a number of milliseconds from 10 to 10000: period-ms = <100>;";
    assert_eq!(value("/gpio-heartbeat", "period-ms").as_deref(), Some(help));
    let range = gearv_manifest::GpioHeartbeat::PERIODS_MS;
    let range = format!("from {} to {}:", range.start(), range.end());
    assert!(help.contains(&range), "{range}");
}

fn manual() -> String {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manifest.md");
    fs::read_to_string(manual).unwrap()
}

/// The manual's tables have the same properties and types.
#[test]
fn the_manual_says_the_same() {
    let manual = manual();
    // A name may have another row at a node with rows of its own: its rows are of another test.
    let of_others = ["M-BWD-", "M-ASB-"];
    let own = |line: &&str| !of_others.iter().any(|rule| line.contains(rule));
    for (name, takes, _) in TABLE {
        let row = format!("| `{name}` | ");
        let mut lines = manual.lines().filter(own);
        let row = lines.find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("no row of {name}"));
        let kind = row.split(" | ").nth(1).unwrap();
        assert_eq!(kind == "switch", takes.is_empty(), "{name}");
        for word in takes
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|word| *word != "pty")
        {
            assert!(
                kind.contains(&format!("`{word}`")),
                "{name}: {word} and {kind}"
            );
        }
    }
}

#[test]
fn help_is_whole() {
    let help = "write a number of microseconds from 100 to 1000000: slice-us = <5000>;";
    assert_eq!(value("/", "slice-us").as_deref(), Some(help));
    let help = "a switch has no value: write debug; or remove it";
    assert_eq!(value("/", "debug").as_deref(), Some(help));
    let help = "the nodes of /vms/a are console, rtc, virtio";
    assert_eq!(names("/vms/a", true).as_deref(), Some(help));
    let help = "the properties of /vms/a/rtc are address";
    assert_eq!(names("/vms/a/rtc", false).as_deref(), Some(help));
    let help = "the properties of /vms/a/console are address, interrupt";
    assert_eq!(names("/vms/a/console", false).as_deref(), Some(help));
}
