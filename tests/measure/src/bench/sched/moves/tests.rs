use super::*;

fn stretches(trace: &[(u32, Place)]) -> Stretches {
    let mut stretches = Stretches::default();
    for (cpu, place) in trace {
        stretches.add(*cpu, *place);
    }
    stretches
}

#[test]
fn a_line_has_its_cpu_and_its_program_counter() {
    let line = "Trace 1: 0x7f3e8c0 [00800400/0000700000001a40/5120/ff020000] \n";
    assert_eq!(traced(line), Some((1, 0x7000_0000_1a40)));
    assert_eq!(traced("Linking TBs"), None);
}

#[test]
fn an_inlined_function_tells_its_leg() {
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let moves = "gear2_core::cpu_loop::moves::<impl gear2_core::cpu_loop::CpuLoop<P>>";
    let give = names(&["core::option::map", &format!("{moves}::give")]);
    assert_eq!(leg(&give), Some(2));
    // Of another module.
    assert_eq!(
        leg(&names(&[
            "gear2_core::machine::placement::Placement::arrive"
        ])),
        None
    );
    assert_eq!(leg(&names(&[&format!("{moves}::balance")])), None);
}

/// A call of Gear2's is within the stretch, which ends with the decision.
#[test]
fn a_stretch_goes_from_a_guest_to_a_decision() {
    let give = Place::Gear2(Some(2));
    let stretches = stretches(&[
        (0, Place::Gear1),
        (0, Place::Leaves),
        (0, give),
        (1, Place::Gear1),
        (0, Place::Gear1),
        (0, Place::Leaves),
        (0, Place::Gear2(None)),
        (0, Place::Decides),
        (0, Place::Gear1),
        (0, Place::Leaves),
        (1, Place::Leaves),
        (0, Place::Gear1),
        (0, Place::Leaves),
        (0, Place::Decides),
    ]);
    let leg = Leg {
        count: 1,
        instructions: 7,
        way_back: 2,
    };
    assert_eq!(stretches.legs[2], leg);
    assert_eq!(stretches.legs.iter().map(|leg| leg.count).sum::<u64>(), 1);
}

/// Gear2 is interrupted where Gear1 returns to it from a call.
#[test]
fn an_interrupt_of_gear2_ends_no_stretch() {
    let stretches = stretches(&[
        (0, Place::Gear2(Some(0))),
        (0, Place::Leaves),
        (0, Place::Gear1),
        (0, Place::Leaves),
        (0, Place::Decides),
    ]);
    assert_eq!(stretches.legs[0].instructions, 5);
}

/// An event that was pending is a stretch of its own, and no guest was entered before it.
#[test]
fn an_event_behind_a_decision_is_another_stretch() {
    let stretches = stretches(&[
        (0, Place::Gear2(Some(1))),
        (0, Place::Decides),
        (0, Place::Gear1),
        (0, Place::Leaves),
        (0, Place::Gear2(Some(3))),
        (0, Place::Decides),
        (0, Place::Leaves),
        (0, Place::Gear1),
    ]);
    let leg = |instructions, way_back| Leg {
        count: 1,
        instructions,
        way_back,
    };
    let nothing = Leg::default();
    assert_eq!(stretches.legs, [nothing, leg(2, 0), nothing, leg(4, 1)]);
}

#[test]
fn a_move_without_a_leg_is_an_error() {
    let leg = |count| Leg {
        count,
        instructions: 100 * count,
        way_back: count,
    };
    assert!(answer([leg(4); 4]).is_ok());
    assert!(answer([leg(3); 4]).is_err());
    assert!(answer([leg(4), leg(4), leg(4), leg(3)]).is_err());
}
