use super::super::parse;
use super::*;

fn figure(samples: &str) -> Figure {
    let mut figures = parse(&format!("RAW x {samples}"));
    figures.remove("x").expect("there are samples")
}

#[test]
fn an_outlier_does_not_squeeze_the_bulk() {
    let native = figure("4500x990 8000x9 18000x1");
    let guest = figure("4600x500 5000000x500");
    let axis = Axis::of(&[&native, &guest]).expect("there are samples");
    assert_eq!(axis.split(), Some(16_000));
    let bulk = axis.place(8000) - axis.place(4500);
    assert!(bulk > 0.2, "{bulk}");
    assert!(axis.place(5_000_000) < 1.0 && axis.place(5_000_000) > 0.95);
    // The axis grows without a leap.
    let places: Vec<f64> = (4500..40_000).step_by(100).map(|v| axis.place(v)).collect();
    assert!(places.windows(2).all(|pair| {
        let step = pair[1] - pair[0];
        step > 0.0 && step < 0.01
    }));
}

#[test]
fn samples_close_together_have_a_linear_axis() {
    let axis = Axis::of(&[&figure("4500x999 9000x1")]).expect("there are samples");
    assert_eq!(axis.split(), None);
    let middle = axis.place(6863) - axis.place(4275);
    assert!((middle - 0.5).abs() < 0.01, "{middle}");
    let same = Axis::of(&[&figure("5x1000")]).expect("there are samples");
    assert!(same.place(5) >= 0.0 && same.place(5) <= 1.0);
    assert_eq!(Axis::of(&[]), None);
}

#[test]
fn an_axis_names_round_values_of_both_parts() {
    let native = figure("4500x990 8000x9 18000x1");
    let guest = figure("4600x500 290000x500");
    let axis = Axis::of(&[&native, &guest]).expect("there are samples");
    let linear = [6000, 8000, 10_000, 12_000, 14_000, 16_000];
    let logarithmic = [50_000, 100_000, 200_000];
    assert_eq!(axis.ticks(), [&linear[..], &logarithmic[..]].concat());
}

#[test]
fn latencies_have_units() {
    for (ns, text) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (5000, "5 µs"),
        (8528, "8.53 µs"),
        (10_000, "10 µs"),
        (18_336, "18.3 µs"),
        (296_784, "297 µs"),
        (5_024_608, "5.02 ms"),
    ] {
        assert_eq!(shown(ns), text);
    }
}
