//! The configuration and the features of a disk, as its driver sees them (virtio 1.2, 5.2).

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES,
};

use super::media::Geometry;
use super::range::MAX_RANGE_SECTORS;
use super::{MAX_RANGES, SECTOR, SEGMENTS};

/// Place of `writeback` in `struct virtio_blk_config`.
pub(super) const WRITEBACK: usize = 32;

/// Returns the features that a disk offers.
pub(super) fn features(read_only: bool, queues: usize) -> u64 {
    // SEG_MAX keeps a request within the queue. BLK_SIZE lets the driver align its requests, so
    // that their data passes the page cache by.
    let mut features = 1 << VIRTIO_BLK_F_SEG_MAX
        | 1 << VIRTIO_BLK_F_BLK_SIZE
        | 1 << VIRTIO_BLK_F_FLUSH
        | 1 << VIRTIO_BLK_F_CONFIG_WCE
        | 1 << VIRTIO_BLK_F_DISCARD
        | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
    if read_only {
        features |= 1 << VIRTIO_BLK_F_RO;
    }
    if queues > 1 {
        features |= 1 << VIRTIO_BLK_F_MQ;
    }
    features
}

/// Tells whether each write of a driver with these features is made durable before it is completed
/// (virtio 1.2, 5.2.5.2): a driver that cannot flush takes each completed write for durable, and
/// one with CONFIG_WCE may choose so.
pub(super) const fn is_write_through(features: u64, is_chosen: bool) -> bool {
    let flushes = features & 1 << VIRTIO_BLK_F_FLUSH != 0;
    let chooses = features & 1 << VIRTIO_BLK_F_CONFIG_WCE != 0;
    !flushes || (chooses && is_chosen)
}

/// Returns `struct virtio_blk_config` (virtio 1.2, 5.2.4).
pub(super) fn config(geometry: &Geometry, write_through: bool, queues: usize) -> Vec<u8> {
    let blocks = (geometry.block_size / SECTOR as u32).max(1);
    let mut config = Vec::with_capacity(60);
    // A rest that is no whole sector is out of the guest's reach.
    config.extend((geometry.bytes / SECTOR).to_le_bytes());
    config.extend(0_u32.to_le_bytes()); // size_max
    config.extend(SEGMENTS.to_le_bytes());
    config.extend([0; 4]); // geometry
    config.extend(geometry.block_size.to_le_bytes());
    config.extend([0; 8]); // topology
    config.extend([u8::from(!write_through), 0]); // writeback, unused
    config.extend((queues as u16).to_le_bytes());
    config.extend(MAX_RANGE_SECTORS.to_le_bytes());
    config.extend(MAX_RANGES.to_le_bytes());
    config.extend(blocks.to_le_bytes());
    config.extend(MAX_RANGE_SECTORS.to_le_bytes());
    config.extend(MAX_RANGES.to_le_bytes());
    config.extend([1, 0, 0, 0]); // may unmap
    config
}
