//! Any order of what happens to a disk.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::*;

/// An event in the life of a disk.
#[derive(Clone, Debug)]
enum Event {
    /// Offers a write of this value to this sector, or a flush.
    Offer(Option<(u64, u8)>),
    /// Lets the oldest, or a later one, of what is under way end.
    End(usize),
    Kill,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..8_u64, any::<u8>()).prop_map(|write| Event::Offer(Some(write))),
        1 => proptest::prelude::Just(Event::Offer(None)),
        5 => (0..5_usize).prop_map(Event::End),
        1 => proptest::prelude::Just(Event::Kill),
    ]
}

proptest! {
    /// Over any history each request is completed exactly once, and a sector whose writes did not
    /// overlap in time has the value that was completed last.
    #[test]
    fn each_request_is_completed_exactly_once(events in vec(event(), 1..60)) {
        let mut disk = Slow::new();
        let mut next = 0_u16;
        let mut offered = 0_usize;
        let mut busy = [false; 5];
        for event in events {
            match event {
                Event::Offer(write) => {
                    let number = next % 5;
                    if !busy[usize::from(number)] {
                        let (kind, sector) = write.map_or((4, 0), |(sector, _)| (1, sector));
                        if let Some((_, value)) = write {
                            let at = BUFFER + 512 * u64::from(number);
                            disk.guest.put(at, &[value; 512]);
                        }
                        disk.offer(number, kind, sector);
                        offered += 1;
                        disk.guest.work();
                    }
                    next += 1;
                }
                Event::End(index) => {
                    let begun = disk.desk.lock().unwrap().begun.clone();
                    if let Some((_, sector)) = begun.get(index.min(begun.len().saturating_sub(1))) {
                        disk.end(*sector);
                    }
                }
                Event::Kill => disk.restart(),
            }
            let used = usize::from(disk.guest.used_index(0));
            assert_eq!(used + disk.noted(), offered);
            busy = [false; 5];
            let begun = InFlight::of(disk.guest.state(), 0).in_order(used as u16);
            for head in begun {
                busy[usize::from(head / 3)] = true;
            }
            assert_eq!(disk.guest.status(), 0xf);
        }
    }
}
