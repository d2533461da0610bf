//! FF-A's descriptors, as Gear1 reads them from a VM's TX buffer.

use gear1_abi::id::VmId;
use gear1_core::ffa::descriptor::{self, Header};
use gear1_core::ownership::{Error, Kind, Offer, bit};

const PAGE: usize = 4096;
const KINDS: [Kind; 3] = [Kind::Share, Kind::Lend, Kind::Donate];

/// The first bytes say what the call says: its kind, how many bytes there are, the peers, the
/// caller. The rest is the buffer. Whatever stands there, nobody gets more than was offered, and
/// nothing is read behind the end.
pub(crate) fn run(bytes: &[u8]) {
    let Some((call, buffer)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let [
        kind,
        caller,
        size_low,
        size_high,
        peers_low,
        peers_high,
        writers,
        receivers,
    ] = *call;
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let caller = VmId::new(usize::from(caller) % 16).expect("it is below 16");
    let size = usize::from(u16::from_le_bytes([size_low, size_high])).min(PAGE);
    let peers = u16::from_le_bytes([peers_low, peers_high]) & !bit(caller);
    let mut page = [0; PAGE];
    let count = buffer.len().min(PAGE);
    page[..count].copy_from_slice(&buffer[..count]);
    let word = |at: usize| {
        page[at..at + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or(0)
    };
    let mut read = |offset: u64, words: &mut [u64]| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start.saturating_add(size_of_val(words)) > size {
            return Err(Error::Invalid);
        }
        assert_eq!(start % 8, 0, "a word is not aligned");
        let places = (start..).step_by(8);
        words
            .iter_mut()
            .zip(places)
            .for_each(|(slot, at)| *slot = word(at));
        Ok(())
    };
    let relinquished = descriptor::relinquished([word(0), word(8), word(16)]);
    if let Ok(said) = relinquished {
        assert_eq!(said.handle, word(0));
    }
    let Ok(header) = Header::read(&mut read) else {
        return;
    };
    if let Some(composite) = header.composite {
        assert!(composite.start as usize <= size && composite.start % 16 == 0);
    }
    if let Ok(offered) = header.offered(kind, peers) {
        assert_eq!(offered.receivers & !peers, 0, "it goes to who is no peer");
        assert_eq!(offered.writers & !offered.receivers, 0);
        assert!(kind != Kind::Donate || offered.receivers.count_ones() == 1);
        assert!(!offered.zero || kind != Kind::Share);
        let most = descriptor::MAX_RECEIVERS;
        assert!((1..=most).contains(&(offered.receivers.count_ones() as usize)));
    }
    let receivers = u16::from(receivers);
    let offer = Offer {
        kind,
        receivers,
        writers: u16::from(writers) & receivers,
        ..Offer::default()
    };
    if let Ok(got) = header.requested(&offer, caller) {
        // A caller that the header does not name is refused later, and has no right until then.
        assert!(offer.is_for(caller) || !got.execute && !got.zero_after);
        assert!(
            !got.write || offer.writers & bit(caller) != 0,
            "it is written"
        );
        let alone = offer.receivers == bit(caller);
        assert!(
            !got.execute || (kind != Kind::Share && alone),
            "it is executed"
        );
        assert!(!got.zero_after || (kind == Kind::Lend && got.write));
    }
}
