//! Tests of the rules on scheduling.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::judge::validate;
use crate::rules::tests::{BOARD, DEVICE, VM, real_time, served, two};
use crate::testing::{Tree, cells, smallest, text};

/// Returns the errors and warnings of a manifest on the usual board.
fn found(tree: &Tree) -> Vec<String> {
    let blob = tree.flatten();
    let mut list = Vec::new();
    let _ = validate(blob.as_slice(), &BOARD, &mut |error| {
        list.push(error.to_string());
    });
    list
}

/// Checks that a manifest breaks one rule, and how the message begins.
#[track_caller]
fn refuses(tree: &Tree, start: &str) {
    let list = found(tree);
    assert!(
        matches!(&list[..], [one] if one.starts_with(start)),
        "{start}: {list:#?}"
    );
}

fn with(property: &str, value: u32) -> Tree {
    smallest().set(VM, property, cells(&[value]))
}

#[test]
fn parameters_have_ranges() {
    let ranges: [(&str, &[u32], &[u32]); 6] = [
        ("weight", &[1, 1000], &[0, 1001]),
        ("cap-percent", &[1, 100], &[0, 101]),
        ("budget-us", &[1, 10_000], &[0]),
        ("period-us", &[100, 10_000_000], &[10_000_001]),
        ("priority", &[0, 31], &[32]),
        ("latency-us", &[0, 1_000_000], &[1_000_001]),
    ];
    for (property, good, bad) in ranges {
        for value in good {
            assert_eq!(
                found(&with(property, *value)),
                [""; 0],
                "{property} {value}"
            );
        }
        for value in bad {
            let start = std::format!("M-SYN-006: {VM}: {property}: ");
            refuses(&with(property, *value), &start);
        }
    }
    for (property, bad) in [("slice-us", 99), ("ceiling-us", 99)] {
        let tree = smallest().set("/gear2", property, cells(&[bad]));
        refuses(&tree, &std::format!("M-SYN-006: /gear2: {property}: "));
    }
}

#[test]
fn budgets_fit_into_periods() {
    refuses(
        &with("budget-us", 10_001),
        "M-SCH-001: /vms/linux: budget-us: the budget is longer than its period (10001 us in each \
         10000 us); ",
    );
    let whole = with("budget-us", 300).set(VM, "period-us", cells(&[300]));
    assert_eq!(found(&whole), [""; 0]);
    refuses(
        &with("period-us", 99),
        "M-SCH-002: /vms/linux: period-us: a period as short as this is spent on switches (99 us); ",
    );
}

#[test]
fn real_time_vms_have_no_parameters() {
    let tree = real_time().set("/vms/rt", "weight", cells(&[100]));
    refuses(&tree, "M-SCH-003: /vms/rt: weight: ");
}

#[test]
fn the_slice_is_the_policys() {
    for (name, expected) in [
        ("round-robin", 5000),
        ("fair", 2500),
        ("bvt", 2500),
        ("edf", 2500),
        ("priority", 5000),
    ] {
        let tree = smallest().set("/gear2", "scheduler", text(name));
        let blob = tree.flatten();
        let manifest = crate::read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
        assert_eq!(manifest.gear2.policy.slice_us(), expected, "{name}");
    }
}

const POOL: &str = "/gear2/pools/control";

/// Returns a manifest with a pool that has CPU 1 and the VM `other`, beside `linux` on CPU 0.
fn pool(scheduler: &str) -> Tree {
    two()
        .set("/gear2", "cpus", cells(&[0, 1]))
        .set(POOL, "cpus", cells(&[1]))
        .set(POOL, "scheduler", text(scheduler))
        .set("/vms/other", "pool", text("control"))
}

fn window(tree: Tree, name: &str, vm: Option<&str>, start: u32, length: u32) -> Tree {
    let path = std::format!("{POOL}/windows/{name}");
    let tree =
        tree.set(&path, "start-us", cells(&[start]))
            .set(&path, "length-us", cells(&[length]));
    match vm {
        Some(vm) => tree.set(&path, "vm", text(vm)),
        None => tree,
    }
}

/// Returns a manifest with a pool of windows: 2 ms for `other` in each 10 ms.
fn windows() -> Tree {
    let tree = pool("arinc653").set(POOL, "frame-us", cells(&[10_000]));
    window(tree, "a", Some("other"), 0, 2_000)
}

#[test]
fn vms_start_on_their_pools_cpus() {
    let tree = windows().set("/vms/other", "vcpus", cells(&[2]));
    let blob = tree.flatten();
    let manifest = validate(blob.as_slice(), &BOARD, &mut |error| panic!("{error}")).unwrap();
    let cpu = |vm: usize, vcpu| {
        let cpu = manifest.start_cpu(manifest.vms.get(vm).unwrap(), vcpu, 4);
        cpu.unwrap().index()
    };
    assert_eq!((cpu(0, 0), cpu(1, 0), cpu(1, 1)), (0, 1, 1));
    let vms: Vec<_> = manifest.vms.iter().map(|vm| manifest.pool_of(vm)).collect();
    assert_eq!(vms, [None, Some(0)]);
    let default = manifest.pool_cpus(None, 4);
    assert_eq!(default.mask(), 0b01);
    // By its CPUs, a VM is in the same pool.
    let tree = windows()
        .unset("/vms/other", "pool")
        .set("/vms/other", "cpus", cells(&[1]));
    assert_eq!(found(&tree), [""; 0]);
}

#[test]
fn pools_are_judged() {
    let second = "/gear2/pools/second";
    let cases = [
        (
            pool("fair").set("/vms/other", "pool", text("contro")),
            "M-SCH-004: /vms/other: pool: there is no such pool (\"contro\"); did you mean control?",
        ),
        (
            pool("fair").set("/gear2/pools/default", "cpus", cells(&[0])),
            "M-SCH-005: /gear2/pools/default: ",
        ),
        (
            pool("fair").set(second, "scheduler", text("fair")),
            "M-SCH-006: /gear2/pools/second: cpus: ",
        ),
        (
            pool("fair").set(second, "cpus", cells(&[1])),
            "M-SCH-007: /gear2/pools/second: cpus: a CPU is in two pools (1), in conflict with \
             /gear2/pools/control; ",
        ),
        (
            pool("fair").set(POOL, "cpus", cells(&[1, 2])),
            "M-SCH-008: /gear2/pools/control: cpus: ",
        ),
        (
            pool("fair").set("/vms/other", "cpus", cells(&[1, 0])),
            "M-SCH-009: /vms/other: cpus: a VM's CPUs are not all of one pool (0), in conflict with \
             /gear2/pools/control; ",
        ),
        (
            pool("fair").set(POOL, "cpus", cells(&[1, 0])),
            "M-SCH-010: /vms/linux: pool: ",
        ),
        (
            pool("fair")
                .unset("/gear2", "cpus")
                .set(POOL, "cpus", cells(&[1, 4])),
            "M-CPU-003: /gear2/pools/control: cpus: the machine has no such CPU (4); ",
        ),
        (
            real_time().set(POOL, "cpus", cells(&[1])),
            "M-CPU-006: /gear2/pools/control: cpus: a CPU of a real-time VM is used elsewhere too \
             (1), in conflict with /vms/rt; ",
        ),
        (
            pool("fair").set(POOL, "windw", text("x")),
            "M-SYN-001: /gear2/pools/control: windw: ",
        ),
        (
            pool("fair").set(POOL, "slice-us", cells(&[50])),
            "M-SYN-006: /gear2/pools/control: slice-us: ",
        ),
    ];
    for (tree, start) in cases {
        refuses(&tree, start);
    }
}

#[test]
fn lists_that_are_too_long_are_refused() {
    let many = (0..9).fold(smallest(), |tree, index| {
        tree.node(&std::format!("/gear2/pools/p{index}"))
    });
    let list = found(&many);
    let count = list
        .iter()
        .filter(|one| one.starts_with("M-SCH-011: /gear2/pools/p8: "));
    assert_eq!(count.count(), 1, "{list:#?}");
    let tree = (0..33).fold(windows(), |tree, index| {
        window(
            tree,
            &std::format!("w{index}"),
            None,
            2_000 + 60 * index,
            60,
        )
    });
    refuses(&tree, "M-SCH-012: /gear2/pools/control/windows/w31: ");
}

#[test]
fn windows_are_judged() {
    let other = |start, length| window(windows(), "b", None, start, length);
    assert_eq!(found(&other(2_000, 8_000)), [""; 0]);
    let cases = [
        (
            pool("arinc653"),
            "M-SCH-013: /gear2/pools/control: frame-us: ",
        ),
        (
            pool("arinc653").set(POOL, "frame-us", cells(&[10_000])),
            "M-SCH-013: /gear2/pools/control: windows: ",
        ),
        (
            window(pool("fair"), "a", Some("other"), 0, 2_000),
            "M-SCH-014: /gear2/pools/control: windows: ",
        ),
        (
            pool("fair").set(POOL, "frame-us", cells(&[10_000])),
            "M-SCH-014: /gear2/pools/control: frame-us: ",
        ),
        (
            windows().set(
                &std::format!("{POOL}/windows/b"),
                "start-us",
                cells(&[5_000]),
            ),
            "M-SCH-015: /gear2/pools/control/windows/b: length-us: ",
        ),
        (
            other(8_000, 2_001),
            "M-SCH-016: /gear2/pools/control/windows/b: length-us: a window ends behind its frame \
             (the window ends at 10001 us, the frame at 10000 us); ",
        ),
        (
            other(u32::MAX, u32::MAX),
            "M-SYN-006: /gear2/pools/control/windows/b: start-us: ",
        ),
        (
            other(3_000, 0),
            "M-SYN-006: /gear2/pools/control/windows/b: length-us: ",
        ),
        (
            other(1_999, 100),
            "M-SCH-017: /gear2/pools/control/windows/b: start-us: two windows of a frame overlap \
             (1999 us to 2099 us), in conflict with /gear2/pools/control/windows/a; ",
        ),
        (
            window(windows(), "b", Some("othr"), 3_000, 100),
            "M-SCH-018: /gear2/pools/control/windows/b: vm: this is no VM that Gear2 schedules \
             (\"othr\"); did you mean other?",
        ),
        (
            window(windows(), "b", Some("linux"), 3_000, 100),
            "M-SCH-019: /gear2/pools/control/windows/b: vm: ",
        ),
        (
            windows().set(VM, "pool", text("control")),
            "M-SCH-020: /vms/linux: no window lets this VM run; ",
        ),
    ];
    for (tree, start) in cases {
        refuses(&tree, start);
    }
}

/// Returns a manifest whose two VMs have budgets on CPU 0.
fn budgets(scheduler: &str, budgets: [(u32, u32); 2]) -> Tree {
    let tree = two()
        .set("/gear2", "cpus", cells(&[0]))
        .set("/gear2", "scheduler", text(scheduler));
    let vms = [VM, "/vms/other"].into_iter().zip(budgets);
    vms.fold(tree, |tree, (vm, (budget, period))| {
        tree.set(vm, "budget-us", cells(&[budget]))
            .set(vm, "period-us", cells(&[period]))
    })
}

/// Two switches of 2 us belong to each period: 0.4 % of 1 ms.
#[test]
fn budgets_and_their_switches_fit_into_a_cpu() {
    let fits = budgets("edf", [(496, 1_000), (496, 1_000)]);
    assert_eq!(found(&fits), [""; 0]);
    refuses(
        &budgets("edf", [(496, 1_000), (497, 1_000)]),
        "M-SCH-021: /vms/other: budget-us: the vCPUs of one CPU need more than its time (CPU 0: \
         100.10 % asked for, which is 99.30 % of budgets and 0.80 % of two switches of 2 us in each \
         period; 100.00 % there); ",
    );
    // Two vCPUs of one VM, each with the budget.
    let both = budgets("edf", [(400, 1_000), (290, 1_000)]).set("/vms/other", "vcpus", cells(&[2]));
    assert_eq!(found(&both), [""; 0]);
    let both = both.set(VM, "vcpus", cells(&[2]));
    refuses(&both, "M-SCH-021: /vms/other: budget-us: ");
    // Nobody else reads budgets.
    assert_eq!(
        found(&budgets("fair", [(900, 1_000), (900, 1_000)])),
        [""; 0]
    );
}

#[test]
fn null_has_one_vcpu_on_each_cpu() {
    let one = two()
        .set("/gear2", "scheduler", text("null"))
        .set(VM, "cpus", cells(&[0]))
        .set("/vms/other", "cpus", cells(&[1]));
    assert_eq!(found(&one), [""; 0]);
    refuses(
        &one.set("/vms/other", "cpus", cells(&[0])),
        "M-SCH-022: /vms/other: cpus: null runs one vCPU on each CPU (0), in conflict with \
         /vms/linux; ",
    );
    let same = smallest()
        .set("/gear2", "scheduler", text("null"))
        .set(VM, "vcpus", cells(&[5]));
    refuses(&same, "M-SCH-022: /vms/linux: cpus: ");
}

#[test]
fn nobody_starves_the_device_vm() {
    let tree =
        served()
            .set("/gear2", "scheduler", text("priority"))
            .set(VM, "priority", cells(&[17]));
    let start = "M-SCH-023: /vms/linux: priority: the device VM, which serves others, can be \
        kept from running (a higher priority, and no ceiling-us), in conflict with /vms/device; ";
    refuses(&tree, start);
    for good in [
        tree.clone().set("/gear2", "ceiling-us", cells(&[50_000])),
        tree.clone().set(DEVICE, "priority", cells(&[17])),
        tree.clone()
            .set(VM, "cpus", cells(&[1]))
            .set(DEVICE, "cpus", cells(&[0])),
    ] {
        assert_eq!(found(&good), [""; 0]);
    }
    let edf = |budget| {
        served()
            .set("/gear2", "scheduler", text("edf"))
            .set(VM, "budget-us", cells(&[budget]))
    };
    assert_eq!(found(&edf(9_496)), [""; 0]);
    refuses(
        &edf(9_497),
        "M-SCH-023: /vms/linux: budget-us: the device VM, which serves others, can be kept from \
         running (4.99 % of CPU 0 left), in conflict with /vms/device; ",
    );
    assert_eq!(
        found(&edf(9_000).set(DEVICE, "budget-us", cells(&[900]))),
        [""; 0]
    );
}

/// The free window of 8 ms comes after up to 2 ms, so a period of 10 ms counts as 8 ms.
#[test]
fn budgets_fit_into_the_windows_without_a_vm() {
    let free = window(windows(), "rest", None, 2_000, 8_000)
        .set(VM, "pool", text("control"))
        .unset("/gear2", "cpus");
    let with = |budget, period| {
        free.clone()
            .set(VM, "budget-us", cells(&[budget]))
            .set(VM, "period-us", cells(&[period]))
    };
    assert_eq!(found(&with(6_396, 10_000)), [""; 0]);
    refuses(
        &with(6_397, 10_000),
        "M-SCH-021: /vms/linux: budget-us: the vCPUs of one CPU need more than its time (CPU 1: \
         80.02 % asked for, which is 79.97 % of budgets and 0.05 % of two switches of 2 us in each \
         period; 80.00 % there, for which a period waits up to 2000 us); ",
    );
    refuses(
        &with(100, 2_000),
        "M-SCH-024: /vms/linux: period-us: the budget's period ends before a window without vm is \
         sure to come (a period of 2000 us, a wait of up to 2000 us); ",
    );
}

fn warned(tree: &Tree) -> Vec<String> {
    let warned = crate::rules::tests::warnings(tree);
    let places = warned.iter().map(|one| {
        let parts: Vec<&str> = one.splitn(4, ": ").take(3).collect();
        parts.join(" ")
    });
    places.collect()
}

#[test]
fn warns_of_what_is_not_read() {
    let cases: [(&str, &str, &[&str]); 9] = [
        ("weight", "round-robin", &["M-WRN-023 /vms/linux weight"]),
        ("weight", "fair", &[]),
        ("cap-percent", "bvt", &["M-WRN-023 /vms/linux cap-percent"]),
        ("cap-percent", "edf", &[]),
        ("budget-us", "fair", &["M-WRN-023 /vms/linux budget-us"]),
        ("priority", "fair", &["M-WRN-023 /vms/linux priority"]),
        ("latency-us", "fair", &["M-WRN-023 /vms/linux latency-us"]),
        ("latency-us", "bvt", &[]),
        ("period-us", "edf", &["M-WRN-017 /vms/linux period-us"]),
    ];
    for (property, scheduler, expected) in cases {
        let value = if property.ends_with("-us") { 1_000 } else { 20 };
        let tree = with(property, value).set("/gear2", "scheduler", text(scheduler));
        assert_eq!(warned(&tree), expected, "{property} {scheduler}");
    }
    let server = with("weight", 20)
        .set("/gear2", "scheduler", text("edf"))
        .set(VM, "budget-us", cells(&[100]));
    assert_eq!(warned(&server), ["M-WRN-017 /vms/linux weight"]);
    let in_window = windows().set("/vms/other", "weight", cells(&[20]));
    assert_eq!(warned(&in_window), ["M-WRN-017 /vms/other weight"]);
    let ceiling = smallest().set("/gear2", "ceiling-us", cells(&[1_000]));
    assert_eq!(warned(&ceiling), ["M-WRN-017 /gear2 ceiling-us"]);
    let unused = pool("fair").unset("/vms/other", "pool");
    let text = "M-WRN-022 /gear2/pools/control no VM is in this pool; name it with pool in a VM, or \
        remove it";
    assert_eq!(warned(&unused), [text]);
}

/// A VM that has an error is left out, and its pool is not called unused for that.
#[test]
fn a_pool_whose_name_is_misspelled_is_not_unused() {
    let tree = pool("fair").set("/vms/other", "pool", text("controls"));
    let blob = tree.flatten();
    let mut said = Vec::new();
    let mut sink = |error: crate::ManifestError<'_>| said.push(error.to_string());
    let judged = crate::judge(blob.as_slice(), None, &mut sink);
    crate::warn(&judged.manifest.unwrap(), None, &mut sink);
    let rules: Vec<&str> = said.iter().map(|one| &one[..9]).collect();
    assert_eq!(rules, ["M-SCH-004"]);
}

#[test]
fn warns_of_a_balancer_of_one_cpu() {
    let control = "/gear2/pools/control";
    let one = pool("fair").set(control, "balancer", text("load"));
    assert_eq!(warned(&one), ["M-WRN-017 /gear2/pools/control balancer"]);
    let none = pool("fair").set(control, "balancer", text("none"));
    assert_eq!(warned(&none), [""; 0]);
}

#[test]
fn warns_of_a_cpu_between_others_that_nobody_has() {
    let idle = |cpus: &[u32]| {
        let tree = smallest().set("/gear2", "cpus", cells(cpus));
        let blob = tree.flatten();
        let manifest = crate::read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
        let board = crate::Exposed {
            cpu_count: 4,
            clusters: &[0; 4],
            masters: &[],
        };
        let mut said = Vec::new();
        crate::warn(
            &manifest,
            Some(&board),
            &mut |error: crate::ManifestError<'_>| {
                said.push((error.rule, error.found));
            },
        );
        said.retain(|(rule, _)| *rule == crate::Rule::IdleCpu);
        said.first().map(|(_, found)| found.to_string())
    };
    assert_eq!(idle(&[0, 2, 3]).as_deref(), Some(" (1)"));
    assert_eq!(idle(&[3]).as_deref(), Some(" (0)"));
    // A list that ends early is meant.
    assert_eq!(idle(&[0, 1]), None);
    assert_eq!(idle(&[0, 1, 2, 3]), None);
}
