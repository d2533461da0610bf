use super::*;

fn counters(name: &str, guest: u64, device: u64, ticks: u64) -> String {
    let row = |vm: &str, reason: &str, exits| {
        format!(r#"{{"vcpu":0,"vm":"{vm}","reason":"{reason}","exits":{exits},"ticks":{ticks}}}"#)
    };
    let rows = [
        row("guest", "timer", guest),
        row("guest", "wfi", guest),
        row("device", "wfi", device),
    ];
    let rows = rows.join(",");
    format!("COUNTERS {name} {{\"kind\":\"stats\",\"answer\":{{\"exits\":[{rows}]}}}}\n")
}

#[test]
fn exits_are_those_between_both_counts() {
    let printed = format!(
        "WHERE guest\n{}{}APP fio 1000 10 1\n",
        counters("fio", 5, 100, 7),
        counters("fio", 25, 140, 57)
    );
    let figures = parse("GearV", &printed).expect("it is well-formed");
    let [figure] = &figures[..] else {
        panic!("{figures:?}")
    };
    assert_eq!(figure.place, "GearV guest");
    assert_eq!((figure.ns, figure.operations), (1000, 10));
    assert_eq!(
        figure.exits,
        [("device".to_owned(), 40), ("guest".to_owned(), 40)]
    );
    assert_eq!((figure.interrupts, figure.gear2_ns), (20, 50));
    assert!(table(&figures).contains("guest 40 (4.000)"));
    let split = kinds(&figures, "fio");
    assert!(split.contains("exits of guest an operation: timer 2.00, wfi 2.00\n"));
    assert!(split.contains("exits of device an operation: wfi 4.00\n"));
    assert_eq!(kinds(&figures, "hackbench"), "");
}

#[test]
fn kvm_counts_on_its_own() {
    let printed = "EXITS 90\nEXITS 100\nSTART hackbench\nEXITS 120\nAPP hackbench 500 5 1\nEXITS 150\nEXITS 160\n";
    let figures = parse("KVM", printed).expect("it is well-formed");
    assert_eq!(figures[0].exits, [("KVM".to_owned(), 50)]);
    assert!(parse("KVM", "APP hackbench x 5 1\n").is_err());
}

#[test]
fn interrupts_are_of_the_last_place() {
    let printed = "WHERE device VM\nAPP fio 1000 10 1\nTOOK fio virtio=5\n\
        WHERE guest\nAPP fio 1000 10 1\nAPP hackbench 9 1 1\nTOOK fio virtio=10 timer=2 call=0\r\n";
    let figures = parse("GearV", printed).expect("it is well-formed");
    let told = interrupts(&figures, "fio");
    assert_eq!(
        told,
        "fio, GearV device VM: interrupts an operation: virtio 0.50\n\
         fio, GearV guest: interrupts an operation: virtio 1.00, timer 0.20\n"
    );
    assert!(parse("GearV", "TOOK fio virtio=5\n").is_err());
    assert!(parse("GearV", "APP fio 1 1 1\nTOOK fio virtio\n").is_err());
}

#[test]
fn counters_without_exits_are_no_zeroes() {
    let app = "WHERE guest\nAPP fio 1000 10 1\n";
    let other_shape = "COUNTERS fio {\"exits\":[]}\n".repeat(2);
    assert!(parse("GearV", &(app.to_owned() + &other_shape)).is_err());
    let one_state = app.to_owned() + &counters("fio", 1, 2, 3);
    assert!(parse("GearV", &one_state).is_err());
}

#[test]
fn the_least_size_is_subtracted() {
    let printed = "WHERE guest\nAPP fio 1000 12 2\nAPP dhrystone 9 4 4\n";
    let mut figures = parse("GearV", printed).expect("it is well-formed");
    assert_eq!(figures[0].instructions_an_operation(), None);
    add_instructions(&mut figures, "100\n1100\n5\n6\n").expect("two each");
    assert_eq!(figures[0].instructions_an_operation(), Some(100.0));
    // Not more operations than the least size has.
    assert_eq!(figures[1].instructions_an_operation(), None);
    for wrong in ["100\n1100\n5\n", "1\n2\n3\nx\n"] {
        assert!(add_instructions(&mut figures, wrong).is_err(), "{wrong}");
    }
}

/// A workload of 11 operations, of which the least size has 1, in a place.
fn counted(place: &str, vm: &str, instructions: u64) -> Vec<Figure> {
    let printed = format!("WHERE {vm}\nAPP fio 1000 11 1\n");
    let mut figures = parse(place, &printed).expect("it is well-formed");
    let counts = format!("50\n{}\n", 50 + instructions);
    add_instructions(&mut figures, &counts).expect("one figure");
    figures
}

#[test]
fn gear2_costs_the_difference() {
    let shipped = counted("GearV", "guest", 1010);
    let null = counted("GearV null", "guest", 1000);
    let text = gear2_cost(&[shipped, null].concat());
    assert!(text.contains("fio, GearV guest: 101 instructions an operation, 100 without Gear2"));
    assert!(text.contains("it costs 1.00 %"), "{text}");
}

#[test]
fn ratios_are_of_as_many_cpus() {
    let places = [
        counted("native", "", 100),
        counted("native, one CPU", "", 200),
        counted("GearV, one CPU", "guest", 300),
        counted("GearV", "guest", 300),
    ];
    let text = table(&places.concat());
    let ratio = |place: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line[19..].starts_with(place)).unwrap();
        line.contains("3.000")
    };
    assert!(
        ratio("GearV guest") && !ratio("GearV, one CPU guest"),
        "{text}"
    );
}

#[test]
fn the_run_in_the_middle_stands_for_all() {
    let printed = "WHERE guest\nAPP hackbench 7 11 1\nAPP copy 5 11 1\nAPP hackbench+2 8 11 1\n\
        APP hackbench+3 9 11 1\nTOOK hackbench call=10\nTOOK hackbench+2 call=20\n";
    let mut figures = parse("GearV", printed).expect("it is well-formed");
    add_instructions(&mut figures, "0\n300\n0\n50\n0\n200\n0\n100\n").expect("two each");
    let figures = in_the_middle(figures).expect("all are counted");
    let [hackbench, copy] = &figures[..] else {
        panic!("{figures:?}")
    };
    assert_eq!(hackbench.name, "hackbench");
    assert_eq!(hackbench.instructions_an_operation(), Some(20.0));
    // Time and interrupts of the same run.
    assert_eq!((hackbench.ns, hackbench.took["call"]), (8, 20));
    assert_eq!(hackbench.runs, [10.0, 20.0, 30.0]);
    assert_eq!(
        (copy.spread(), hackbench.spread()),
        (None, Some([10.0, 30.0]))
    );
    assert!(table(&figures).contains("10 to 30 in 3 runs"));
    let json = to_json(&figures);
    assert_eq!(
        json["figures"][0]["runs"],
        serde_json::json!([10.0, 20.0, 30.0])
    );
}

#[test]
fn a_repetition_without_a_count_is_an_error() {
    let figures = parse("KVM", "APP hackbench 7 11 1\nAPP hackbench+2 8 11 1\n").unwrap();
    assert!(in_the_middle(figures).is_err());
}
