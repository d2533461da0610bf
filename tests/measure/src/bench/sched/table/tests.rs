use super::*;

fn row(answer: Result<Vec<Figure>, String>) -> Row {
    Row {
        what: "latency alone".to_owned(),
        system: "GearV fair".to_owned(),
        answer,
    }
}

fn figures() -> Vec<Figure> {
    let goal = Some(Goal::AtMost(0.25));
    vec![
        Figure {
            name: "max us",
            value: 0.5,
            goal,
        },
        Figure {
            name: "missed",
            value: 0.0,
            goal: None,
        },
    ]
}

#[test]
fn a_row_shows_figures_and_goals() {
    let text = text(&[row(Ok(figures()))]);
    assert!(
        text.contains("max 0.500 us  missed 0 | max <= 0.25 over"),
        "{text}"
    );
}

#[test]
fn what_was_not_measured_is_a_failure() {
    let rows = [row(Ok(figures())), row(Err("it hangs".to_owned()))];
    assert!(text(&rows).contains("not measured"));
    assert_eq!(failures(&rows), ["it hangs"]);
    assert_eq!(to_json(&rows[1])["failure"], "it hangs");
    assert_eq!(to_json(&rows[0])["figures"]["max us"]["met"], false);
}
