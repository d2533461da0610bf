//! Requests of a virtio disk (virtio 1.2, 5.2.6), as Linux lays them out.

use std::ops::Deref;

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_S_IOERR,
    VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};
use virtio_queue::DescriptorChain;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

#[cfg(test)]
mod tests;

/// Register DeviceID (virtio 1.2, 5.2.1).
pub const DEVICE_ID: u32 = 2;
/// Entries of the queue, as many as a disk of GearV's has.
pub const QUEUE_SIZE: u16 = 128;
/// Features of the disk: those of GDM's that the measurements use.
pub const FEATURES: u64 =
    1 << VIRTIO_BLK_F_SEG_MAX | 1 << VIRTIO_BLK_F_BLK_SIZE | 1 << VIRTIO_BLK_F_FLUSH;
/// Unit of places on the disk in bytes, whatever its blocks are.
const SECTOR: u64 = 512;
/// Length in bytes of a request's first descriptor: type, reserved word and sector.
const HEADER_BYTES: u32 = 16;
/// Header and status take two descriptors of the queue.
const SEGMENTS: u32 = QUEUE_SIZE as u32 - 2;

/// Returns `struct virtio_blk_config` of a disk of so many bytes (virtio 1.2, 5.2.4), up to its
/// block size.
pub fn config(bytes: u64) -> Vec<u8> {
    let mut config = (bytes / SECTOR).to_le_bytes().to_vec();
    let [size_max, geometry] = [0_u32; 2];
    for word in [size_max, SEGMENTS, geometry, SECTOR as u32] {
        config.extend(word.to_le_bytes());
    }
    config
}

/// What a request asks for. Places are bytes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Moves data from the disk into the guest.
    Read(u64),
    /// Moves data from the guest to the disk.
    Write(u64),
    /// Makes durable what was written.
    Flush,
    /// Nothing that this disk knows.
    Unknown,
}

/// A request of the driver.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names the request in the used ring.
    pub head: u16,
    /// What is asked for.
    pub action: Action,
    /// The guest's buffers: address and length in bytes of each.
    pub buffers: Vec<(GuestAddress, u32)>,
    /// Where the status goes.
    status: GuestAddress,
}

impl Request {
    /// Reads a request: a descriptor with the header, buffers, and one with the status. The
    /// specification lets a driver cut a request in any way; Linux cuts it in this one.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the chain.
    pub fn read<M>(chain: DescriptorChain<M>) -> Result<Request, String>
    where
        M: Deref<Target = GuestMemoryMmap> + Clone,
    {
        let head = chain.head_index();
        let memory = chain.memory().clone();
        let descriptors: Vec<Descriptor> = chain.collect();
        let [header, buffers @ .., status] = &descriptors[..] else {
            return Err("a request of less than two descriptors".to_owned());
        };
        if header.is_write_only() || header.len() != HEADER_BYTES {
            return Err("a request whose first descriptor is no header".to_owned());
        }
        if !status.is_write_only() || status.len() != 1 {
            return Err("a request whose last descriptor is no status".to_owned());
        }
        let [kind, sector] = words(&memory, header.addr())?;
        let places = buffers.iter().map(|buffer| (buffer.addr(), buffer.len()));
        Ok(Request {
            head,
            // The type is 32 bits, and the other half is reserved.
            action: action(kind as u32, sector, buffers)?,
            buffers: places.collect(),
            status: status.addr(),
        })
    }

    /// Returns how many bytes the buffers have.
    pub fn length(&self) -> u64 {
        let lengths = self.buffers.iter();
        lengths.map(|(_, length)| u64::from(*length)).sum()
    }

    /// Stores the status, and returns what the used ring says of the request: the number of bytes
    /// that were written to the guest.
    ///
    /// # Errors
    ///
    /// If the driver's address is none of its memory.
    pub fn finish(&self, memory: &GuestMemoryMmap, end: End) -> Result<u32, String> {
        let (status, length) = match (end, self.action) {
            (End::Done, Action::Read(_)) => (VIRTIO_BLK_S_OK, self.length()),
            (End::Done, _) => (VIRTIO_BLK_S_OK, 0),
            (End::Failed, _) => (VIRTIO_BLK_S_IOERR, 0),
            (End::Unsupported, _) => (VIRTIO_BLK_S_UNSUPP, 0),
        };
        memory
            .write_obj(status as u8, self.status)
            .map_err(|error| format!("a request's status: {error}"))?;
        Ok(u32::try_from(length).unwrap_or(u32::MAX).saturating_add(1))
    }
}

/// Reads the two words of a header, which are little-endian. Read once: a driver that changes them
/// meanwhile gets one request or the other.
fn words(memory: &GuestMemoryMmap, header: GuestAddress) -> Result<[u64; 2], String> {
    let words = memory.read_obj::<[u64; 2]>(header);
    let words = words.map_err(|error| format!("a request's header: {error}"))?;
    Ok(words.map(u64::from_le))
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Done,
    /// The disk has failed.
    Failed,
    /// The disk does not know the request.
    Unsupported,
}

/// Tells what is asked for, and holds the buffers' direction to it: a buffer that the device may
/// only read would else be written.
fn action(kind: u32, sector: u64, buffers: &[Descriptor]) -> Result<Action, String> {
    let place = sector.checked_mul(SECTOR);
    let place = place.ok_or_else(|| format!("a request for sector {sector}"))?;
    let (action, writes_guest) = match kind {
        VIRTIO_BLK_T_IN => (Action::Read(place), true),
        VIRTIO_BLK_T_OUT => (Action::Write(place), false),
        VIRTIO_BLK_T_FLUSH => return Ok(Action::Flush),
        _ => return Ok(Action::Unknown),
    };
    let mut directions = buffers.iter().map(Descriptor::is_write_only);
    if directions.any(|is_written| is_written != writes_guest) {
        return Err(format!("a buffer of {action:?} has the other direction"));
    }
    Ok(action)
}
