//! Tests of the report: nothing of a board is missing, and nothing stands twice.

use gear1_init::region::Region;

use super::scheduling::{Part, Pool, Window};
use super::{Item, Owner, Range, Report};
use crate::check::svg;

/// A pool with a window of VM 0 and one of nobody, and a CPU of which VM 0 has a half.
fn pool() -> Pool {
    let part = |owner, ppm| Part {
        owner,
        what: "<a & b>".to_owned(),
        ppm,
    };
    let window = |owner, start_us, end_us| Window {
        owner,
        what: "<w & x>".to_owned(),
        start_us,
        end_us,
    };
    Pool {
        title: "p on CPU 0: arinc653".to_owned(),
        vms: vec!["linux  weight 3".to_owned()],
        frame_us: 10_000,
        windows: vec![
            window(Some(Owner::Vm(0)), 0, 5_000),
            window(None, 6_000, 10_000),
        ],
        cpus: vec![(
            "CPU 0".to_owned(),
            vec![part(Owner::Vm(0), 500_000), part(Owner::Nobody, 500_000)],
        )],
    }
}

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
        pools: vec![pool()],
        devices: vec![item("/uart", Owner::Nobody)],
        interrupts: vec![item("INTID 33", Owner::Vm(0))],
        channels: vec!["bell: a at 0xb000000 rings b by INTID 240, at any rate".to_owned()],
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
        "  p on CPU 0: arinc653",
        "    linux  weight 3",
        "  bell: a at 0xb000000 rings b by INTID 240, at any rate",
        "         0 us     5000 us  linux: <w & x>",
        "      6000 us    10000 us  VMs without a window: <w & x>",
        "    CPU 0: linux 50.00 % <a & b>, 50.00 % <a & b>",
    ] {
        assert!(text.lines().any(|one| one == line), "{line:?}\n{text}");
    }
}

#[test]
fn the_picture_is_xml() {
    let svg = svg::draw(&report());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for (text, raw) in [
        ("&lt;0 &amp; 1&gt;", "<0"),
        ("&lt;a &amp; b&gt;", "<a "),
        ("&lt;w &amp; x&gt;", "<w "),
    ] {
        assert!(svg.contains(text) && !svg.contains(raw), "{text}");
    }
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}

/// A half of the CPU and of the frame has a half of the width.
#[test]
fn the_picture_is_to_scale_where_time_is_drawn() {
    let svg = svg::draw(&report());
    let half = svg::timeline::WIDTH / 2;
    let boxes = svg.lines().filter(|line| line.starts_with("<rect x="));
    let halves = boxes.filter(|line| line.contains(&format!("width=\"{half}\"")));
    assert_eq!(halves.count(), 3, "{svg}");
}
