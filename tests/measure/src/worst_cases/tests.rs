use super::{Measured, name, parse, shown};

#[test]
fn kinds_have_names() {
    let named = [
        ("gear2:svc:10", 3, "Gear2: VM_LOAD"),
        ("guest:hvc:0xc4000003", 3, "call: CPU_ON"),
        ("guest:smc:0x84000003", 3, "call: CPU_ON"),
        ("guest:hvc:0xc600ff01", 3, "call: the hypervisor's own"),
        ("guest:store:0x8000384", 3, "GICD_ICACTIVER written"),
        ("guest:load:0x80d0200", 3, "GICR_ISPENDR read"),
        (
            "guest:store:0x8006100",
            3,
            "GICD_IROUTER and others written",
        ),
        ("guest:store:0x8011000", 2, "GICC_DIR written"),
        ("guest:load:0x9000018", 3, "device read"),
        (
            "guest:sysreg:s3_0_c12_c11_5:write",
            3,
            "ICC_SGI1R_EL1 written",
        ),
        ("guest:irq:kicked", 3, "interrupt of a guest: kick"),
        ("guest:wait:wfi", 3, "WFI"),
        ("look", 3, "waiting at EL2"),
    ];
    for (kind, gic, expected) in named {
        assert_eq!(name::of(kind, gic), expected, "{kind}");
    }
}

fn measured(lines: &[&str]) -> Measured {
    let mut measured = Measured::default();
    for line in lines {
        measured
            .add("here", 3, line)
            .expect("a line of the plugin's");
    }
    measured
}

/// G1-RUN-011: the longest of a kind counts, a growth and the limit are told.
#[test]
fn what_grows_is_told() {
    let lines = [
        "gear2:svc:10 100 1 x=0x0 far=0x0 path=a",
        "gear2:svc:10 900 7 x=0x0 far=0x0 path=a",
        "guest:wait:wfi 20001 1 x=0x0 far=0x0 path=a",
    ];
    let found = measured(&lines);
    let same = parse("Gear2: VM_LOAD: 900\nWFI: 20001\n").expect("a baseline");
    assert!(found.grown_since(&same).is_empty());
    let shorter = parse("Gear2: VM_LOAD: 300\nWFI: 20001\n").expect("a baseline");
    assert_eq!(found.grown_since(&shorter).len(), 1);
    let more = parse("Gear2: VM_LOAD: 900\nWFI: 20001\ncall: CPU_ON: 1\n").expect("a baseline");
    assert_eq!(found.grown_since(&more).len(), 1);
    assert_eq!(found.over_the_limit().len(), 1);
    assert_eq!(measured(&lines[..2]).over_the_limit().len(), 0);
}

#[test]
fn a_page_shows_what_was_called() {
    let line = "guest:hvc:0x84000004 10 1 x=0x84000004,0x1,0x2,0x3,0x4 far=0x0 path=a";
    assert_eq!(
        shown(line),
        "`hvc:0x84000004`, X0 to X3 0x84000004 0x1 0x2 0x3"
    );
    assert_eq!(shown("look 10 1 x= far=0 path=a"), "`look`");
}
