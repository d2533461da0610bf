//! The command queue: what the SMMU is told to forget (Arm IHI 0070, 4).
//!
//! Commands are issued with a CMD_SYNC behind them, and whoever needs them done asks later. The SMMU
//! ends a CMD_SYNC when accesses that used what was forgotten are complete, which is up to the
//! devices: nobody holds a lock meanwhile.
//!
//! Requirements: G1-DMA-002.

use tock_registers::register_bitfields;

use super::{Device, slots};

/// Indices of the queue (6.3.26, 6.3.27).
pub(super) const PROD: usize = 0x98;
pub(super) const CONS: usize = 0x9c;
/// Commands that the queue has room for, as a power of 2: a page of 16-byte commands.
pub(super) const LOG2: u32 = 8;
const CAPACITY: u32 = 1 << LOG2;
/// CMD_CFGI_ALL is CMD_CFGI_STE_RANGE of 2^32 streams (4.3.4).
const ALL_STREAMS: u64 = 31;

register_bitfields! { u64,
    /// First word of a command (4.1).
    COMMAND [
        VMID OFFSET(32) NUMBITS(16) [],
        OPCODE OFFSET(0) NUMBITS(8) [
            CfgiAll = 0x04,
            TlbiS12Vmall = 0x28,
            TlbiNsnhAll = 0x30,
            Sync = 0x46,
        ],
    ],
}

/// What the SMMU is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command([u64; 2]);

impl Command {
    /// The stream table is to be read anew.
    #[must_use]
    pub fn reread_streams() -> Self {
        Self([COMMAND::OPCODE::CfgiAll.value, ALL_STREAMS])
    }

    /// The translations of a VM are to be forgotten (4.4.3).
    #[must_use]
    pub fn forget(vmid: u16) -> Self {
        let vmid = COMMAND::VMID.val(vmid.into());
        // planted: a lost page stays in the SMMU's TLB
        let command = COMMAND::OPCODE::TlbiS12Vmall + vmid;
        Self([command.value, 0])
    }

    /// All translations are to be forgotten.
    pub(super) fn forget_everything() -> Self {
        Self([COMMAND::OPCODE::TlbiNsnhAll.value, 0])
    }

    /// What was told before is to be done (4.7.3).
    fn sync() -> Self {
        Self([COMMAND::OPCODE::Sync.value, 0])
    }
}

/// Commands up to the one with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// The producer's side of the queue. Calls do not overlap.
#[derive(Debug, Default)]
pub struct Queue {
    /// Commands issued so far.
    issued: u64,
}

impl Queue {
    /// A queue that nothing was issued to by this side.
    #[must_use]
    pub const fn new() -> Self {
        Self { issued: 0 }
    }

    /// Has the SMMU carry out commands. `None`: there is no room now, and nothing is issued.
    pub fn issue(&mut self, device: &mut impl Device, commands: &[Command]) -> Option<Ticket> {
        let count = commands.len().saturating_add(1) as u64;
        if u64::from(waiting(device)).saturating_add(count) > CAPACITY.into() {
            return None;
        }
        let mut index = device.read32(PROD);
        // Bound: commands of a call, 2.
        for command in commands {
            index = put(device, index, *command);
        }
        index = put(device, index, Command::sync());
        device.order();
        device.write32(PROD, index);
        self.issued = self.issued.wrapping_add(count);
        Some(Ticket(self.issued))
    }

    /// Tells whether commands are done: no access uses any longer what they made the SMMU forget.
    ///
    /// A command that is an error stops the queue (7.1): it and those behind it are never done.
    pub fn is_done(&self, device: &impl Device, ticket: Ticket) -> bool {
        let done = self.issued.wrapping_sub(waiting(device).into());
        // planted: an invalidation is not waited for
        let is_done = done >= ticket.0;
        device.order();
        is_done
    }
}

/// Writes a command where the index says, and returns the next index.
fn put(device: &mut impl Device, index: u32, Command(words): Command) -> u32 {
    device.put_command(index & slots(LOG2, 1), words);
    index.wrapping_add(1) & slots(LOG2, 2)
}

/// Returns how many commands are in the queue. CMDQ_CONS has error bits beside the index.
fn waiting(device: &impl Device) -> u32 {
    let consumed = device.read32(CONS);
    device.read32(PROD).wrapping_sub(consumed) & slots(LOG2, 2)
}
