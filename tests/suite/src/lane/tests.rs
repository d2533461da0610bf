use super::*;

/// Parts of all places, as a list has them.
fn chosen() -> Vec<Part> {
    let part = |name: &str| Part::new(name, |_| Ok(()));
    vec![
        part("lints").beside(),
        part("boot"),
        part("storm").either(),
        part("documents").beside(),
        part("linux"),
        part("attack").either(),
    ]
}

fn names(parts: Vec<(usize, &Part)>) -> Vec<&str> {
    parts.into_iter().map(|(_, part)| &*part.name).collect()
}

#[test]
fn the_lanes_meet_at_the_parts_of_either() {
    let chosen = chosen();
    assert_eq!(names(first(&chosen)), ["boot", "linux", "storm", "attack"]);
    assert_eq!(
        names(second(&chosen)),
        ["lints", "documents", "attack", "storm"]
    );
}

#[test]
fn each_part_runs_once_whichever_lane_is_faster() {
    let chosen = chosen();
    for steps_of_second in 0..4 {
        let folder = workspace::scratch("claims");
        let claims = Claims(folder.join(steps_of_second.to_string()));
        claims.clear().unwrap();
        let ahead = second(&chosen).into_iter().take(steps_of_second);
        let rest = second(&chosen).into_iter().skip(steps_of_second);
        let order = ahead.chain(first(&chosen)).chain(rest);
        let mut ran: Vec<usize> = order
            .map(|(number, _)| number)
            .filter(|number| claims.take(*number).unwrap())
            .collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2, 3, 4, 5], "{steps_of_second}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn claims_of_an_earlier_run_are_gone() {
    let folder = workspace::scratch("old-claims");
    let claims = Claims(folder.join("claims"));
    claims.clear().unwrap();
    assert!(claims.take(7).unwrap());
    assert!(!claims.take(7).unwrap());
    claims.clear().unwrap();
    assert!(claims.take(7).unwrap());
    fs::remove_dir_all(folder).unwrap();
}
