use super::*;

#[test]
fn the_guest_says_when_and_where_it_began() {
    let first = parse("counter\nFIRST 301 0x40200000\nDONE\n");
    let first = first.map(|first| (first.count, first.address));
    assert_eq!(first, Some((300, 0x4020_0000)));
    assert!(parse("FIRST x 0x4020\n").is_none());
}

#[test]
fn functions_are_told_apart_by_name() {
    for (function, kind) in [
        ("memcpy", "copying"),
        ("gear1_init::flat::Flat::load", "copying"),
        ("gear1_init::memory::Physical::zero", "wiping"),
        ("gear1_init::prepare::prepare", "else"),
    ] {
        assert_eq!(what("gear1-init", function), format!("gear1-init {kind}"));
    }
}

#[test]
fn logic_is_what_neither_copies_nor_wipes() {
    let purposes = [
        ("gear1-init copying", 1),
        ("gear1-init digesting", 10),
        ("gear1-init else", 100),
        ("gear1-runtime else", 1_000),
        ("gear1-runtime wiping", 10_000),
        ("in memcpy", 100_000),
    ];
    let purposes = purposes.map(|(what, count)| (what.to_owned(), count));
    assert_eq!(logic(&purposes.into()), 1_110);
    assert_eq!((goal(START), goal(LOGIC)), (Some(400_000), Some(300_000)));
    assert_eq!(goal("Gear2, bytes of image"), None);
}
