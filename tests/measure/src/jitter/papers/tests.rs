use super::super::table::tests::results;
use super::*;

#[test]
fn the_papers_figures_stand_beside_ours() {
    let html = table(&results([10_000, 20_000, 15_000, 10_500], "off", [0, 2, 2]));
    let row = html.lines().find(|line| line.contains("GearV RT VM<"));
    let row = row.expect("it is there");
    assert!(row.contains("<td class=\"group\">1</td><td>2</td><td>40</td><td>1.05</td>"));
    assert!(row.contains("<td>45</td><td>1.12</td>"));
    assert!(
        row.ends_with("<td>0.1</td><td>10.5</td><td>1.05</td></tr>"),
        "{row}"
    );
    let kvm = html.lines().find(|line| line.contains("KVM RT VM"));
    assert!(kvm.is_some_and(|row| row.ends_with("<td>-</td></tr>")));
}

/// The largest latency by the native one is the last column, but for one row that the papers print
/// otherwise.
#[test]
fn the_papers_ratios_follow_from_their_maxima() {
    for configuration in ALL {
        let (name, xenomai, preempt_rt) = printed(configuration);
        for (row, native) in [(xenomai, 38.0), (preempt_rt, 40.0)] {
            let number = |text: &str| text.parse::<f64>().expect("a number");
            let ratio = number(row[2]) / native;
            let is_near = (ratio - number(row[3])).abs() < 0.03;
            assert_eq!(is_near, row[3] != "1.39", "{name}: {ratio}");
        }
    }
}
