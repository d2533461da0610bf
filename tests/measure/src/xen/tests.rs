use super::*;

#[test]
fn the_tree_says_where_the_guest_lies_and_how_it_waits() {
    let xen = |waits_in_guest| Xen {
        kernel: Path::new("/g,uest"),
        vcpus: 2,
        waits_in_guest,
    };
    let text = xen(true).chosen(0x1_2345);
    assert!(text.contains("module@60000000"), "{text}");
    assert!(text.contains("reg = <0 0x60000000 0 0x12345>"), "{text}");
    assert!(text.contains("cpus = <2>"), "{text}");
    assert!(text.contains("memory = <0 0x8000>"), "{text}");
    assert!(text.contains(" vwfi=native\""), "{text}");
    assert!(!xen(false).chosen(1).contains("vwfi"));
    // QEMU takes a doubled comma for one.
    let loader = xen(true).loader().unwrap().into_string().unwrap();
    assert!(
        loader.contains("file=/g,,uest,addr=0x60000000,"),
        "{loader}"
    );
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
