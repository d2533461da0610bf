use super::*;

#[test]
fn a_metric_has_its_help_its_type_and_its_samples() {
    let mut text = Text::default();
    let labels = |vm: &str, number: &str| [("vm", vm.into()), ("vcpu", number.into())];
    let samples = vec![
        sample(labels("a", "0"), "7".into()),
        sample(labels("b", "1"), "0".into()),
    ];
    text.family("exits_total", Kind::Counter, "Exits.", samples);
    text.family("cpus", Kind::Gauge, "CPUs.", vec![sample([], "4".into())]);
    text.family("nothing", Kind::Gauge, "None.", Vec::new());
    assert_eq!(
        text.end(),
        "# HELP gearv_exits_total Exits.\n\
         # TYPE gearv_exits_total counter\n\
         gearv_exits_total{vm=\"a\",vcpu=\"0\"} 7\n\
         gearv_exits_total{vm=\"b\",vcpu=\"1\"} 0\n\
         # HELP gearv_cpus CPUs.\n\
         # TYPE gearv_cpus gauge\n\
         gearv_cpus 4\n"
    );
}

/// A name of a VM is the manifest's, and may have any character.
#[test]
fn no_label_ends_before_its_value() {
    assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    let mut text = Text::default();
    let labels = [("vm", "x\"} 1\n".to_owned())];
    text.family("up", Kind::Gauge, "Up.", vec![sample(labels, "1".into())]);
    assert!(text.end().ends_with("\ngearv_up{vm=\"x\\\"} 1\\n\"} 1\n"));
}

#[test]
fn seconds_keep_all_digits() {
    assert_eq!(seconds(0, 62_500_000), "0.000000000");
    assert_eq!(seconds(1, 62_500_000), "0.000000016");
    assert_eq!(seconds(125_000_001, 62_500_000), "2.000000016");
    // No product overflows, and a counter without a frequency divides by nothing.
    assert_eq!(seconds(u64::MAX, 1), "18446744073709551615.000000000");
    assert_eq!(seconds(5, 0), "5.000000000");
}
