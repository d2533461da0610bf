//! FF-A's descriptors, as Gear1 reads them from a VM's TX buffer.
//!
//! The runtime copies a descriptor word by word, since the VM may write the buffer meanwhile. The
//! target has one fixed buffer: what a race could do is a matter of copying once, and of other
//! tests.

use gear1_abi::id::VmId;
use gear1_core::ffa::descriptor::{self, Header};
use gear1_core::ownership::{Error, Kind, Offer, bit};

/// Bytes of a TX buffer: one page each, as FFA_RXTX_MAP takes it here.
const PAGE: usize = 4096;
/// A donation has one receiver and takes the owner's access; a loan takes it for a while; sharing
/// leaves it.
const KINDS: [Kind; 3] = [Kind::Share, Kind::Lend, Kind::Donate];

/// The first bytes say what the call says: its kind, how many bytes there are, the peers, the
/// caller. The rest is the buffer. Whatever stands there, nobody gets more than was offered, and
/// nothing is read behind the end.
pub(crate) fn run(bytes: &[u8]) {
    let Some((call, buffer)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let call = Call::of(*call);
    let buffer = Buffer::of(buffer, call.size);
    relinquish(&buffer);
    let Ok(header) = Header::read(&mut |offset, words| buffer.read(offset, words)) else {
        return;
    };
    // The constituents are read behind it, in steps of 16 bytes.
    if let Some(composite) = header.composite {
        assert!(composite.start as usize <= call.size && composite.start % 16 == 0);
    }
    send(&header, &call);
    retrieve(&header, &call);
}

/// A call, and the offer that its caller retrieves.
struct Call {
    kind: Kind,
    // Sends in one check, and retrieves in the other.
    caller: VmId,
    /// Bytes of the descriptor.
    size: usize,
    // VMs that the manifest lets the caller share memory with, a bit each; never the caller itself.
    peers: u16,
    // What the ledger has of an earlier transaction: readers and writers are any, and writers are
    // receivers.
    offer: Offer,
}

impl Call {
    /// Every byte has a meaning for each value, so that a mutation of the corpus is never wasted.
    fn of(bytes: [u8; 8]) -> Call {
        let [kind, caller, sizes @ .., _, _, _, _] = bytes;
        let [.., peers_low, peers_high, writers, receivers] = bytes;
        let kind = KINDS[usize::from(kind) % KINDS.len()];
        let caller = VmId::new(usize::from(caller) % 16).expect("it is below 16");
        let receivers = u16::from(receivers);
        Call {
            kind,
            caller,
            size: usize::from(u16::from_le_bytes(sizes)).min(PAGE),
            peers: u16::from_le_bytes([peers_low, peers_high]) & !bit(caller),
            offer: Offer {
                kind,
                receivers,
                writers: u16::from(writers) & receivers,
                ..Offer::default()
            },
        }
    }
}

/// The TX buffer, and how many bytes of it the call names.
struct Buffer {
    page: [u8; PAGE],
    size: usize,
}

impl Buffer {
    /// A page of zeroes with the bytes at its start: the rest of a real buffer may hold anything,
    /// and zeroes are the value that means most.
    fn of(bytes: &[u8], size: usize) -> Buffer {
        let mut page = [0; PAGE];
        let count = bytes.len().min(PAGE);
        page[..count].copy_from_slice(&bytes[..count]);
        Buffer { page, size }
    }

    /// Little-endian, as all of FF-A's descriptors.
    fn word(&self, at: usize) -> u64 {
        let bytes = self.page[at..at + 8].try_into();
        bytes.map(u64::from_le_bytes).unwrap_or(0)
    }

    /// Refuses what the call does not name: a descriptor must not reach into the rest of the page.
    fn read(&self, offset: u64, words: &mut [u64]) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start.saturating_add(size_of_val(words)) > self.size {
            return Err(Error::Invalid);
        }
        assert_eq!(start % 8, 0, "a word is not aligned");
        for (slot, at) in words.iter_mut().zip((start..).step_by(8)) {
            *slot = self.word(at);
        }
        Ok(())
    }
}

/// Reads the bytes as those of FFA_MEM_RELINQUISH, which has no transaction descriptor.
fn relinquish(buffer: &Buffer) {
    let words = [0, 8, 16].map(|at| buffer.word(at));
    if let Ok(said) = descriptor::relinquished(words) {
        assert_eq!(said.handle, buffer.word(0));
    }
}

/// Only peers are offered anything, and no more than the kind of the transaction allows. A receiver
/// beyond the peers would have memory of a VM that its manifest keeps apart.
fn send(header: &Header, call: &Call) {
    let Ok(offered) = header.offered(call.kind, call.peers) else {
        return;
    };
    let receivers = offered.receivers.count_ones() as usize;
    assert_eq!(
        offered.receivers & !call.peers,
        0,
        "it goes to who is no peer"
    );
    assert_eq!(offered.writers & !offered.receivers, 0);
    assert!(call.kind != Kind::Donate || receivers == 1);
    assert!(!offered.zero || call.kind != Kind::Share);
    assert!((1..=descriptor::MAX_RECEIVERS).contains(&receivers));
}

/// The caller gets no right that it was not offered.
fn retrieve(header: &Header, call: &Call) {
    let (offer, caller) = (&call.offer, call.caller);
    let Ok(got) = header.requested(offer, caller) else {
        return;
    };
    // A caller that the header does not name is refused later, and has no right until then.
    assert!(offer.is_for(caller) || !got.execute && !got.zero_after);
    let may_write = offer.writers & bit(caller) != 0;
    assert!(!got.write || may_write, "it is written");
    // Several borrowers must not execute what one of them may write.
    let alone = offer.receivers == bit(caller);
    let may_execute = call.kind != Kind::Share && alone;
    assert!(!got.execute || may_execute, "it is executed");
    assert!(!got.zero_after || (call.kind == Kind::Lend && got.write));
}
