use super::super::parse;
use super::*;

fn figure(samples: &str) -> Figure {
    let mut figures = parse(&format!("RAW x {samples}"));
    figures.remove("x").expect("there are samples")
}

#[test]
fn every_sample_is_in_a_bar() {
    let (a, b) = (figure("100x999 290x1"), figure("150x500 5000000x500"));
    let axis = Axis::of(&[&a, &b]).expect("there are samples");
    for figure in [&a, &b] {
        let all: u64 = bins(axis, figure).iter().sum();
        assert_eq!(all, 1000);
    }
    let of_a: Vec<u64> = bins(axis, &a).into_iter().filter(|n| *n > 0).collect();
    assert_eq!(of_a, [999, 1]);
}

#[test]
fn both_are_drawn_and_one_sample_is_seen() {
    let (a, b) = (figure("100x999 290x1"), figure("150x1000"));
    let axis = Axis::of(&[&a, &b]).expect("there are samples");
    let svg = overlay(axis, [("native", 0, &a), ("RTVM", 4, &b)]);
    assert!(svg.contains(">native<") && svg.contains(">RTVM<"));
    assert_eq!(svg.matches("fill-opacity").count(), 2);
    // The bar of one sample of a thousand is higher than none.
    assert!(place(0.001, 3.0) > 0.1 && place(1.0, 3.0) == 1.0);
    assert_eq!(levels(3.0).len(), 4);
}
