use super::*;

/// A line of the plugin's with these counts in all iterations, and none of the other kinds.
fn line(counts: &[(&str, u64)]) -> String {
    let names = KINDS.map(|(name, _)| name);
    let others = ["thread", "dmb", "translate", "memory", "other"];
    let words = names.iter().chain(&others).map(|name| {
        let known = counts.iter().find(|(kind, _)| kind == name);
        format!(
            "{name}={}",
            known.map_or(0, |(_, count)| count * ITERATIONS)
        )
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_line_is_of_the_row_that_was_printed_in_its_place() {
    let lines = [
        line(&[("return", 1), ("other", 50)]),
        line(&[("return", 2), ("memory", 10), ("device", 3)]),
    ];
    let printed = "[bench] BENCH hypercall 5 5 5 5 5\nRAW hypercall 5x2\nBENCH sysreg 1 1 1 1 1\n";
    let rows = of_rows(printed, &lines.join("\n")).unwrap();
    let [first, second] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (first.row.as_str(), first.instructions()),
        ("hypercall", 51.0)
    );
    // A device's access is a load or store.
    assert_eq!(
        (second.row.as_str(), second.instructions()),
        ("sysreg", 12.0)
    );
}

#[test]
fn a_line_too_few_and_a_kind_too_few_are_errors() {
    let printed = "BENCH hypercall 5 5 5 5 5\nBENCH sysreg 1 1 1 1 1\n";
    let error = of_rows(printed, &line(&[])).unwrap_err().to_string();
    assert!(
        error.contains("2 rows") && error.contains("counted 1"),
        "{error}"
    );
    let error = Costs::parse("sysreg", "read=1 write=2")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sysreg") && error.contains("return"),
        "{error}"
    );
    assert!(Costs::parse("sysreg", "read=many").is_err());
}

/// The estimate is the sum of the kinds, with the plain instructions by how many go in a cycle. An
/// access of a device is not plain too.
#[test]
fn cycles_are_the_sum_of_all_kinds() {
    let core = &CORES[0];
    let of = |counts: &[(&str, u64)]| Costs::parse("row", &line(counts)).unwrap().cycles(core);
    let close = |[least, most]: [f64; 2], expected: [f64; 2]| {
        (least - expected[0]).abs() < 1e-6 && (most - expected[1]).abs() < 1e-6
    };
    assert!(close(of(&[("other", 60)]), [50.0, 100.0]));
    assert!(close(of(&[("return", 1)]), [133.0, 141.0]));
    assert!(close(of(&[("memory", 6), ("device", 6)]), [360.0, 780.0]));
    assert!(close(of(&[("memory", 12), ("device", 6)]), [365.0, 790.0]));
}

/// The plugin is a program of its own, whose names no import can compare.
#[test]
fn the_plugin_knows_the_names_of_kinds() {
    let plugin = include_str!("../../../../exit-counter/src/costs.rs");
    let (_, names) = plugin.split_once("const NAMES").unwrap();
    let (names, _) = names.split_once("];").unwrap();
    let of_cores = CORES
        .iter()
        .flat_map(|core| core.kinds.map(|(name, _)| name));
    for name in KINDS.map(|(name, _)| name).into_iter().chain(of_cores) {
        assert!(names.contains(&format!("\"{name}\"")), "{name}");
    }
}
