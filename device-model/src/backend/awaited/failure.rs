//! How a request fails, by device type (virtio 1.2, chapter 5).

use virtio_bindings::virtio_ids::{
    VIRTIO_ID_BLOCK, VIRTIO_ID_FS, VIRTIO_ID_GPIO, VIRTIO_ID_GPU, VIRTIO_ID_I2C_ADAPTER,
    VIRTIO_ID_SOUND,
};

/// The beginning of what a driver asks for.
pub(super) type Head = [u8; 24];

/// `VIRTIO_BLK_S_IOERR`, `VIRTIO_I2C_MSG_ERR` and `VIRTIO_GPIO_STATUS_ERR`.
const ERROR: u8 = 1;
/// `VIRTIO_GPU_RESP_ERR_UNSPEC` and `VIRTIO_GPU_FLAG_FENCE`.
const GPU_ERROR: u32 = 0x1200;
const GPU_FENCE: u32 = 1;
/// `VIRTIO_SND_S_IO_ERR`.
const SOUND_ERROR: u32 = 0x8003;
/// Bytes of `struct fuse_out_header`, and `-EIO`.
const FUSE_ANSWER: u32 = 16;
const FUSE_ERROR: i32 = -5;

/// Tells whether requests of a queue of this device type can fail. Buffers for events are no
/// requests.
pub(super) const fn is_known(device_id: u32, queue: usize) -> bool {
    match device_id {
        VIRTIO_ID_BLOCK | VIRTIO_ID_FS | VIRTIO_ID_GPU | VIRTIO_ID_I2C_ADAPTER => true,
        VIRTIO_ID_GPIO => queue == 0,
        VIRTIO_ID_SOUND => queue != 1,
        _ => false,
    }
}

/// Returns what the driver reads of a request that failed, and its place in the `room` bytes that
/// the driver has for the answer; `None`: the request has no answer.
pub(super) fn of(device_id: u32, queue: usize, head: &Head, room: u64) -> Option<(u64, Vec<u8>)> {
    let (place, answer) = match (device_id, queue) {
        // The status is the last byte, behind data (5.2.6, 5.16.6.1).
        (VIRTIO_ID_BLOCK | VIRTIO_ID_I2C_ADAPTER, _) => (room.checked_sub(1)?, vec![ERROR]),
        // The status is the first byte (5.18.6).
        (VIRTIO_ID_GPIO, _) => (0, vec![ERROR]),
        (VIRTIO_ID_FS, _) => (0, fuse(head)),
        (VIRTIO_ID_GPU, _) => (0, gpu(head)),
        // A status of two words, behind the frames (5.14.6.8).
        (VIRTIO_ID_SOUND, 2..) => (room.checked_sub(8)?, words(&[SOUND_ERROR, 0])),
        (VIRTIO_ID_SOUND, _) => (0, words(&[SOUND_ERROR])),
        _ => return None,
    };
    let has_room = place.checked_add(answer.len() as u64)? <= room;
    has_room.then_some((place, answer))
}

/// Returns a `struct fuse_out_header` for the request of a `struct fuse_in_header`.
fn fuse(head: &Head) -> Vec<u8> {
    let unique = head.get(8..16).unwrap_or_default();
    let answer = [FUSE_ANSWER, FUSE_ERROR.cast_unsigned()];
    [words(&answer).as_slice(), unique].concat()
}

/// Returns a `struct virtio_gpu_ctrl_hdr` for the request of another one: a fence is signalled.
fn gpu(head: &Head) -> Vec<u8> {
    let (asked, _) = head.as_chunks::<4>();
    let mut answer: Vec<u32> = asked.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let [kind, flags, ..] = answer.as_mut_slice() {
        (*kind, *flags) = (GPU_ERROR, *flags & GPU_FENCE);
    }
    words(&answer)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests;
