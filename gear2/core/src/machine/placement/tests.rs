//! Words of places.

use gearv_manifest::Restart;

use super::*;
use crate::simulator::{AT_ONCE, Guest, Options, Plan, Simulation};

#[test]
fn a_place_is_read_back() {
    let cpu = |index| CpuIndex::new(index).unwrap();
    let refused = REASONS.map(Stage::Refused);
    let others = [
        Stage::Home,
        Stage::Ready,
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

/// A word that a Gear2 with other pools kept, or that is damaged, takes no pool all of its CPUs.
#[test]
fn a_kept_word_closes_no_whole_pool() {
    let plan = |cpus: &[usize]| Plan {
        guest: Guest::Works,
        cpus: cpus.into(),
        restart: Restart::OnFailure,
        restarts: AT_ONCE,
        devices: 0,
        watchdog: 0,
        progress: 0,
        dma_fault_limit: 0,
        boot_order: 0,
        dump: false,
        safe_state: crate::config::SafeState::Stop,
        tells: None,
        power_button: None,
        waits: false,
        real_time: false,
        affinity: None,
    };
    let plans = [plan(&[0, 1]), plan(&[2])];
    let options = Options {
        own_pool: 1,
        ..Options::default()
    };
    let machine = Simulation::plain(3, &plans, 3, options).machine;
    let closed = || [0, 1, 2].map(|index| machine.is_closed(CpuIndex::new(index).unwrap()));
    for (close, expected) in [
        (0, [true, false, false]),
        (2, [true, false, false]),
        (1, [false; 3]),
    ] {
        machine.kept.set_closed(CpuIndex::new(close).unwrap(), true);
        assert_eq!(closed(), expected);
    }
}
