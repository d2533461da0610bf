//! Words of places.

use super::*;

#[test]
fn a_place_is_read_back() {
    let cpu = |index| CpuIndex::new(index).unwrap();
    let refused = REASONS.map(Stage::Refused);
    let others = [
        Stage::Home,
        Stage::Wanted,
        Stage::Offered(0),
        Stage::Offered(32),
        Stage::Taken,
    ];
    for stage in refused.into_iter().chain(others) {
        let place = Place {
            cpu: cpu(7),
            to: cpu(3),
            stage,
        };
        assert_eq!(Place::from_word(place.word()), place);
    }
}

#[test]
fn any_word_is_a_place() {
    for word in [u32::MAX, 0x00ff_0000, 0xff04_0909, 0x0004_0000] {
        assert_eq!(Place::from_word(word).stage, Stage::Home, "{word:#x}");
    }
}
