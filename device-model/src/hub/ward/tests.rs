//! Tests of what a process may have of GDM: its place in the log, and which devices are whose.

use super::*;
use crate::testing::node;

/// A guest that has its process complain without end must not fill the log, and a message months
/// later must be seen.
#[test]
fn a_process_has_a_bounded_part_of_the_log() {
    let start = Instant::now();
    let mut allowance = Allowance {
        left: MESSAGE_BYTES,
        at: start,
    };
    let taken: u64 = (0..1000).map(|_| allowance.take(1024, start)).sum();
    assert_eq!(taken, MESSAGE_BYTES);
    assert_eq!(allowance.take(100, start + FORGIVEN_AFTER * 10), 10);
    let month = Duration::from_secs(30 * 24 * 3600);
    assert_eq!(allowance.take(u64::MAX, start + month), MESSAGE_BYTES);
}

#[test]
fn devices_are_grouped_by_their_vm() {
    let mut devices = Vec::new();
    for (channel, vm_id) in [(0, 1), (1, 1), (2, 4), (3, 1)] {
        let mut node = node();
        (node.channel, node.vm_id) = (channel, vm_id);
        devices.push(node);
    }
    let guests = by_guest(&devices);
    let channels = |guest: &Vec<DeviceNode>| -> Vec<usize> {
        guest.iter().map(|device| device.channel).collect()
    };
    let channels: Vec<Vec<usize>> = guests.iter().map(channels).collect();
    assert_eq!(channels, [vec![0, 1, 3], vec![2]]);
}
