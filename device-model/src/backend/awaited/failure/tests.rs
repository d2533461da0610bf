//! Tests of failures: what drivers read, by the structures of the specification.

use super::*;

fn head() -> Head {
    let mut head = Head::default();
    for (place, byte) in head.iter_mut().enumerate() {
        *byte = 0x10 + place as u8;
    }
    head
}

#[test]
fn each_type_fails_in_its_own_words() {
    let failed = |device_id, queue, room| of(device_id, queue, &head(), room);
    assert_eq!(failed(VIRTIO_ID_BLOCK, 0, 513), Some((512, vec![1])));
    assert_eq!(failed(VIRTIO_ID_I2C_ADAPTER, 0, 1), Some((0, vec![1])));
    assert_eq!(failed(VIRTIO_ID_GPIO, 0, 9), Some((0, vec![1])));
    let (place, fuse) = failed(VIRTIO_ID_FS, 1, 4096).unwrap();
    assert_eq!(
        (place, &fuse[..8]),
        (0, &[16, 0, 0, 0, 0xfb, 255, 255, 255][..])
    );
    assert_eq!(fuse[8..], head()[8..16]);
    let (place, gpu) = failed(VIRTIO_ID_GPU, 0, 24).unwrap();
    // Bit 0 of the flags is the fence's: 0x14 has none.
    assert_eq!((place, &gpu[..8]), (0, &[0, 0x12, 0, 0, 0, 0, 0, 0][..]));
    assert_eq!(gpu[8..], head()[8..]);
    let status = [3, 0x80, 0, 0];
    assert_eq!(failed(VIRTIO_ID_SOUND, 0, 100), Some((0, status.to_vec())));
    let frames = [status, [0; 4]].concat();
    assert_eq!(failed(VIRTIO_ID_SOUND, 3, 108), Some((100, frames)));
}

#[test]
fn a_fence_is_signalled() {
    let mut head = head();
    head[4] = 3;
    let (_, gpu) = of(VIRTIO_ID_GPU, 0, &head, 24).unwrap();
    assert_eq!(gpu[4..8], [1, 0, 0, 0]);
}

/// FORGET of a file system has no answer, and a driver may forget the place of one.
#[test]
fn an_answer_without_a_place_is_none() {
    for (device_id, queue, room) in [
        (VIRTIO_ID_BLOCK, 0, 0),
        (VIRTIO_ID_FS, 0, 15),
        (VIRTIO_ID_GPU, 1, 0),
        (VIRTIO_ID_SOUND, 2, 7),
        (VIRTIO_ID_SOUND, 0, 3),
    ] {
        assert_eq!(of(device_id, queue, &head(), room), None, "{device_id}");
    }
}

#[test]
fn buffers_for_events_are_kept() {
    assert!(is_known(VIRTIO_ID_SOUND, 0) && !is_known(VIRTIO_ID_SOUND, 1));
    assert!(is_known(VIRTIO_ID_GPIO, 0) && !is_known(VIRTIO_ID_GPIO, 1));
    // An input device has events alone, and packets of sockets have no answer.
    assert!(!is_known(18, 0) && !is_known(19, 1));
}
