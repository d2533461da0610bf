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
        "WHERE guest\n{}{}APP fio 1000 10\n",
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
    assert!(table(&figures, &["fio"]).contains("guest 40 (4.000)"));
    let split = kinds(&figures, "fio");
    assert!(split.contains("exits of guest an operation: timer 2.00, wfi 2.00\n"));
    assert!(split.contains("exits of device an operation: wfi 4.00\n"));
    assert_eq!(kinds(&figures, "hackbench"), "");
}

#[test]
fn kvm_counts_on_its_own() {
    let printed = "EXITS 90\nEXITS 100\nSTART hackbench\nEXITS 120\nAPP hackbench 500 5\nEXITS 150\nEXITS 160\n";
    let figures = parse("KVM", printed).expect("it is well-formed");
    assert_eq!(figures[0].exits, [("KVM".to_owned(), 50)]);
    assert!(parse("KVM", "APP hackbench x 5\n").is_err());
}

#[test]
fn interrupts_are_of_the_last_place() {
    let printed = "WHERE device VM\nAPP fio 1000 10\nTOOK fio virtio=5\n\
        WHERE guest\nAPP fio 1000 10\nAPP hackbench 9 1\nTOOK fio virtio=10 timer=2 call=0\r\n";
    let figures = parse("GearV", printed).expect("it is well-formed");
    let told = interrupts(&figures, "fio");
    assert_eq!(
        told,
        "fio, GearV device VM: interrupts an operation: virtio 0.50\n\
         fio, GearV guest: interrupts an operation: virtio 1.00, timer 0.20\n"
    );
    assert!(parse("GearV", "TOOK fio virtio=5\n").is_err());
    assert!(parse("GearV", "APP fio 1 1\nTOOK fio virtio\n").is_err());
}

#[test]
fn counters_without_exits_are_no_zeroes() {
    let app = "WHERE guest\nAPP fio 1000 10\n";
    let other_shape = "COUNTERS fio {\"exits\":[]}\n".repeat(2);
    assert!(parse("GearV", &(app.to_owned() + &other_shape)).is_err());
    let one_state = app.to_owned() + &counters("fio", 1, 2, 3);
    assert!(parse("GearV", &one_state).is_err());
}
