//! Header of a packet (virtio 1.2, 5.10.6), which stands before its data in the same chain.

/// Bytes of a header.
pub(super) const HEADER: usize = 44;

/// Identifier of the device VM, as seen by each guest (`VMADDR_CID_HOST`).
pub(super) const HOST: u64 = 2;

/// Type of a socket: `VIRTIO_VSOCK_TYPE_STREAM`, the only one served.
pub(super) const STREAM: u16 = 1;

/// Operations (virtio 1.2, 5.10.6).
pub(crate) mod op {
    /// Asks for a connection.
    pub(crate) const REQUEST: u16 = 1;
    /// Accepts a connection.
    pub(crate) const RESPONSE: u16 = 2;
    /// Refuses a connection, or ends it at once.
    pub(crate) const RST: u16 = 3;
    /// Tells that the sender will send no more, or receive no more, or both.
    pub(crate) const SHUTDOWN: u16 = 4;
    /// Carries data.
    pub(crate) const RW: u16 = 5;
    /// Tells how much room the sender has; every other packet tells that too.
    pub(crate) const CREDIT_UPDATE: u16 = 6;
    /// Asks for the room.
    pub(crate) const CREDIT_REQUEST: u16 = 7;
}

/// Flags of [`op::SHUTDOWN`].
pub(crate) mod end {
    /// The sender will receive no more.
    pub(crate) const RECEIVE: u32 = 1;
    /// The sender will send no more.
    pub(crate) const SEND: u32 = 2;
    /// Both.
    pub(crate) const BOTH: u32 = RECEIVE | SEND;
}

/// A packet's header, in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Identifiers and ports of the sender and of the receiver (virtio 1.2, 5.10.6).
    pub(super) source_cid: u64,
    pub(super) target_cid: u64,
    pub(super) source_port: u32,
    pub(super) target_port: u32,
    /// Bytes of data behind the header.
    pub(super) length: u32,
    /// Type of the socket.
    pub(super) kind: u16,
    /// Operation, a number of [`op`].
    pub(super) op: u16,
    /// Of [`op::SHUTDOWN`] alone: bits of [`end`].
    pub(super) flags: u32,
    /// Bytes that the sender's buffer holds.
    pub(super) buffer: u32,
    /// Bytes that the sender has taken out of that buffer so far; wraps at 2^32.
    pub(super) forwarded: u32,
}

/// Takes the next bytes; zeroes behind the end.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let Some((first, others)) = rest.split_first_chunk() else {
        return [0; N];
    };
    *rest = others;
    *first
}

impl Header {
    /// Reads a header. All fields are little-endian.
    pub(super) fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        let mut rest = bytes.as_slice();
        // Fields are evaluated in this order, which is that of the bytes.
        Self {
            source_cid: u64::from_le_bytes(take(&mut rest)),
            target_cid: u64::from_le_bytes(take(&mut rest)),
            source_port: u32::from_le_bytes(take(&mut rest)),
            target_port: u32::from_le_bytes(take(&mut rest)),
            length: u32::from_le_bytes(take(&mut rest)),
            kind: u16::from_le_bytes(take(&mut rest)),
            op: u16::from_le_bytes(take(&mut rest)),
            flags: u32::from_le_bytes(take(&mut rest)),
            buffer: u32::from_le_bytes(take(&mut rest)),
            forwarded: u32::from_le_bytes(take(&mut rest)),
        }
    }

    /// Returns the bytes of the header.
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let fields: [&[u8]; 10] = [
            &self.source_cid.to_le_bytes(),
            &self.target_cid.to_le_bytes(),
            &self.source_port.to_le_bytes(),
            &self.target_port.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.op.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &self.buffer.to_le_bytes(),
            &self.forwarded.to_le_bytes(),
        ];
        let mut bytes = [0; HEADER];
        let all = fields.into_iter().flatten();
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        bytes
    }
}
