use super::super::parse;
use super::*;

fn figure(samples: &str) -> Figure {
    let mut figures = parse(&format!("RAW x {samples}"));
    figures.remove("x").expect("there are samples")
}

#[test]
fn shares_are_logarithmic_towards_all() {
    let decades = 4.7;
    let places = [1.0, 0.1, 0.01, 0.001].map(|later| place(later, decades));
    assert_eq!(places, [0.0, 0.2, 0.4, 0.6]);
    assert_eq!(place(0.0, decades), 1.0);
    let names: Vec<String> = levels(4.0).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
}

#[test]
fn a_distribution_is_a_stair_to_the_top() {
    // In any order: half of the samples at 200, nine tenths at 300.
    let figure = figure("400x1 200x5 300x4");
    let axis = Axis::of(&[&figure]).expect("there are samples");
    let path = path(axis, &figure, 1.0);
    let corners: Vec<&str> = path.split('H').collect();
    let ys: Vec<f64> = corners[1..]
        .iter()
        .filter_map(|corner| corner.split_once('V')?.1.parse().ok())
        .collect();
    assert_eq!(ys.len(), 3, "{path}");
    let near = |y: f64, later: f64| (y - svg::y(place(later, 1.0))).abs() < 0.1;
    assert!(
        near(ys[0], 0.5) && near(ys[1], 0.1) && near(ys[2], 0.0),
        "{path}"
    );
}

#[test]
fn all_configurations_are_in_one_plot() {
    let (a, b) = (figure("100x50 200x50"), figure("100x99 90000x1"));
    let axis = Axis::of(&[&a, &b]).expect("there are samples");
    let svg = cdf(axis, &[("native", &a), ("KVM <guest>", &b)]);
    assert_eq!(svg.matches("<svg").count(), 1);
    assert!(svg.contains(">native<") && svg.contains("KVM &lt;guest&gt;"));
    assert!(svg.contains("logarithmic from"));
}

#[test]
fn many_values_make_a_short_path() {
    let samples: Vec<String> = (4000..64_000).map(|value: u64| value.to_string()).collect();
    let figure = figure(&samples.join(" "));
    let axis = Axis::of(&[&figure]).expect("there are samples");
    assert!(path(axis, &figure, 4.8).len() < 200_000);
}
