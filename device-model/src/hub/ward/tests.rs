//! Tests of which devices are whose.

use super::*;
use crate::testing::node;

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
