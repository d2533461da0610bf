//! Tests of the report: nothing of a board is missing, and nothing stands twice.

use gear1_init::region::Region;

use super::{Item, Owner, Range, Report};
use crate::check::svg;

fn report() -> Report {
    let range = |start, end, owner| Range {
        region: Region::new(start, end),
        owner,
        what: "memory".to_owned(),
    };
    let item = |name: &str, owner| Item {
        name: name.to_owned(),
        owner,
        what: "<0 & 1>".to_owned(),
    };
    Report {
        title: "a.dts on virt".to_owned(),
        vms: vec!["linux".to_owned()],
        memory: vec![
            range(0x4000_0000, 0x4020_0000, Owner::Nobody),
            range(0x4020_0000, 0x8000_0000, Owner::Vm(0)),
            range(0x8000_0000, 0xc000_0000, Owner::Nobody),
        ],
        cpus: vec![item("0", Owner::Gear2)],
        devices: vec![item("/uart", Owner::Nobody)],
        interrupts: vec![item("INTID 33", Owner::Vm(0))],
        partition: "/vms/linux\n".to_owned(),
    }
}

#[test]
fn the_table_names_owners_and_what_is_left() {
    let text = report().text();
    for line in [
        "  0x0040200000  0x0080000000   1022 MiB  linux                 memory",
        "  left: 1.1 GiB",
        "  0  Gear2                 <0 & 1>",
        "  left: 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line:?}\n{text}");
    }
}

#[test]
fn the_picture_is_xml() {
    let svg = svg::draw(&report());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("&lt;0 &amp; 1&gt;") && !svg.contains("<0"));
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}
