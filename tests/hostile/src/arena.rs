//! Layout of the arena, the only memory that is handed over to the device.

/// Bytes of the arena.
pub const ARENA_SIZE: u64 = 0x10_0000;

/// Bytes of one queue's rings.
const QUEUE: u64 = 0x3000;
/// Bytes beside the queues: indirect tables, headers.
const TABLES: u64 = 0x1_0000;
/// Bytes that a device may write to.
const BUFFERS: u64 = 0x8_0000;

/// Returns where a queue's descriptor table lies, from the arena's start.
pub(crate) const fn descriptors(queue: u16) -> u64 {
    queue as u64 * QUEUE
}

/// Returns where a queue's available ring lies.
pub(crate) const fn available(queue: u16) -> u64 {
    descriptors(queue) + 0x1000
}

/// Returns where a queue's used ring lies.
pub(crate) const fn used(queue: u16) -> u64 {
    descriptors(queue) + 0x2000
}

/// Returns the place of byte `at` of the tables.
pub(crate) const fn table(at: u64) -> u64 {
    TABLES + at
}

/// Returns the place of byte `at` of the buffers.
pub(crate) const fn buffer(at: u64) -> u64 {
    BUFFERS + at
}

/// Bytes of buffers.
pub(crate) const BUFFER_SIZE: u64 = ARENA_SIZE - BUFFERS;
