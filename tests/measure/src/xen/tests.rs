use super::*;

const ALONE: [Guest<'_>; 1] = [Guest {
    vcpus: 2,
    command_line: "",
}];
const PAIR: [Guest<'_>; 2] = [
    Guest {
        vcpus: 1,
        command_line: "role=1 switch=1",
    },
    Guest {
        vcpus: 1,
        command_line: "role=2",
    },
];

fn xen<'a>(guests: &'a [Guest<'a>], waits_in_guest: bool) -> Xen<'a> {
    Xen {
        kernel: Path::new("/guest"),
        guests,
        waits_in_guest,
    }
}

#[test]
fn the_tree_says_where_the_guest_lies_and_how_it_waits() {
    let text = xen(&ALONE, true).additions(0x1_2345, &[]);
    assert!(text.contains("module@60000000"), "{text}");
    assert!(text.contains("reg = <0 0x60000000 0 0x12345>"), "{text}");
    assert!(text.contains("cpus = <2>"), "{text}");
    assert!(text.contains("memory = <0 0x8000>"), "{text}");
    assert!(text.contains(" vwfi=native\""), "{text}");
    assert!(!text.contains("reserved-memory"), "{text}");
    assert!(!xen(&ALONE, false).additions(1, &[]).contains("vwfi"));
    // QEMU takes a doubled comma for one.
    let [_, loader] = loader(Path::new("/g,uest"), IMAGE).unwrap();
    assert_eq!(loader, "loader,file=/g,,uest,addr=0x60000000,force-raw=on");
}

/// Both guests reach the doorbell and the memory, which is kept from Xen. The interrupt is the
/// second one's alone.
#[test]
fn two_guests_have_a_doorbell() {
    let text = xen(&PAIR, false).additions(0x1000, &[0x222, 0x333]);
    for part in [
        "domU2 {",
        "bootargs = \"role=1 switch=1\"",
        "reg = <0 0x60800000 0 0x222>",
        "reg = <0 0x61000000 0 0x1000>",
        "reg = <0 0x61800000 0 0x333>",
        "shared@50000000",
        "&{/pl011@9040000} {",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let [first, second] = [passed(0), passed(1)];
    for passed in [&first, &second] {
        assert!(passed.contains("0x1000 0 0x9040000>"), "{passed}");
        assert!(passed.contains("0x1000 0 0x50000000>"), "{passed}");
    }
    assert!(first.contains("xen,path = \"/reserved-memory/shared@50000000\""));
    assert!(second.contains("xen,path = \"/pl011@9040000\""));
}

/// A line is cut behind 126 characters, the guest's other lines stay, and Xen's own go.
#[test]
fn pieces_of_a_line_are_joined() {
    let long = "7x1 ".repeat(63);
    let (first, second) = long.split_at(126);
    let console = format!(
        "(XEN) Brought up 2 CPUs\n(XEN) DOM1: BENCH timer 1 2 3 4 5\n(XEN) DOM1: {first}\n\
         (XEN) d1v1: vGICR: SGI: unhandled word write\n(XEN) DOM1: {second}\n(XEN) DOM1: \n\
         (XEN) DOM1: DONE\n"
    );
    assert_eq!(
        guest_lines(&console),
        format!("BENCH timer 1 2 3 4 5\n{long}\nDONE\n")
    );
}
