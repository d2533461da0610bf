//! The queue beside a plain list.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

proptest! {
    /// The reference is a list in the order of arrival, sorted by key.
    #[test]
    fn keeps_the_order_of_a_sorted_list(
        steps in proptest::collection::vec((0..5, 0..MAX_VCPUS, 0..20_u64), 1..400),
    ) {
        let mut queue = Queue::new();
        let mut list: Vec<(VcpuId, u64)> = Vec::new();
        for (what, index, key) in steps {
            let vcpu = VcpuId::new(index).unwrap();
            let place = list.iter().position(|(other, _)| *other == vcpu);
            match what {
                0 => {
                    queue.insert(vcpu, key);
                    place.map(|place| list.remove(place));
                    list.push((vcpu, key));
                }
                1 => {
                    prop_assert_eq!(queue.remove(vcpu), place.is_some());
                    place.map(|place| list.remove(place));
                }
                2 if place.is_none() => {
                    list.push((vcpu, key));
                    // Of several that are least, the first one to arrive.
                    let least = list.iter().copied().min_by_key(|(_, key)| *key).unwrap();
                    prop_assert_eq!(queue.exchange(vcpu, key), least.0);
                    list.retain(|(vcpu, _)| *vcpu != least.0);
                }
                2 | 3 => {
                    queue.set_key(vcpu, key);
                    if let Some(place) = place {
                        list[place].1 = key;
                    }
                }
                _ => {
                    let due = list.iter().copied().min_by_key(|(_, key)| *key);
                    let due = due.filter(|(_, due)| *due <= key).map(|(vcpu, _)| vcpu);
                    prop_assert_eq!(queue.pop_until(key), due);
                    list.retain(|(vcpu, _)| Some(*vcpu) != due);
                }
            }
            let mut sorted = list.clone();
            // A stable sort keeps the order of arrival.
            sorted.sort_by_key(|(_, key)| *key);
            prop_assert_eq!(queue.len(), sorted.len());
            prop_assert_eq!(queue.first(), sorted.first().copied());
        }
    }
}
