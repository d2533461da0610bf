//! Descriptors and calls as an attacker makes them: right ones with some of their bits changed,
//! bytes at random, fragments out of order, lengths that lie, buffers that come and go in between.

use gear1_abi::regs::Regs;

use super::machine::{COUNT, Machine, PAGE, Random, own, tx};
use crate::ffa::function;
use crate::ownership::Phase;

const CALLS: u64 = 100_000;
/// Values of a wrong field.
const LIES: [u64; 16] = [
    0,
    1,
    2,
    3,
    15,
    16,
    47,
    48,
    64,
    80,
    4080,
    4096,
    0x7fff_ffff,
    0xffff_fff0,
    0xffff_ffff,
    u64::MAX,
];
const CALLS_TO_LIE_IN: [u32; 10] = [
    function::MEM_SHARE,
    function::MEM_LEND,
    function::MEM_DONATE,
    function::MEM_FRAG_TX,
    function::MEM_FRAG_RX,
    function::MEM_RETRIEVE_REQ,
    function::MEM_RELINQUISH,
    function::MEM_RECLAIM,
    function::RXTX_MAP,
    function::PARTITION_INFO_GET,
];

/// Returns a descriptor that would be right for something, and how many bytes it has.
fn descriptor(random: &mut Random, index: usize, handle: u64) -> ([u64; 20], u64) {
    let mut words = [0; 20];
    let receiver = (index as u64 + 1 + random.below(2)) % COUNT as u64 + 1;
    let page = own(index, random.below(8));
    match random.below(3) {
        0 => {
            let head = [(index as u64 + 1) | (0x2f << 16), 0, 7, 16 | 1 << 32, 48, 0];
            let access = [receiver | 2 << 16 | 64 << 32, 0, 3 | 2 << 32, 0];
            let ranges = [page, 1, page + 2 * PAGE, 2];
            words[..6].copy_from_slice(&head);
            words[6..10].copy_from_slice(&access);
            words[10..14].copy_from_slice(&ranges);
            (words, 112)
        }
        1 => {
            let head = [receiver | 1 << 42, handle, 7, 16 | 1 << 32, 48, 0];
            words[..6].copy_from_slice(&head);
            words[6] = index as u64 + 1;
            (words, 64)
        }
        _ => {
            words[..3].copy_from_slice(&[handle, 1 << 32, index as u64 + 1]);
            (words, 18)
        }
    }
}

fn lie(random: &mut Random, word: &mut u64) {
    let shift = random.below(8) * 8;
    match random.below(5) {
        0 => *word ^= 1 << random.below(64),
        1 => *word = random.of(&LIES),
        2 => {
            *word = *word & !(0xffff_ffff << (shift & 32))
                | (random.of(&LIES) & 0xffff_ffff) << (shift & 32)
        }
        3 => *word = *word & !(0xff << shift) | random.below(256) << shift,
        _ => *word = random.next() << 11 | random.below(4096),
    }
}

impl Machine {
    /// Makes one call with a wrong field, or a valid call.
    fn lies(&mut self, random: &mut Random) -> Regs {
        let index = random.below(COUNT as u64) as usize;
        let slot = random.below(32) as usize;
        let handle = self.ledger.handle(slot);
        let (mut words, size) = descriptor(random, index, handle);
        for _ in 0..random.below(4) {
            let at = random.below(14) as usize;
            lie(random, &mut words[at]);
        }
        for (at, word) in words.iter().enumerate() {
            *self.host.word(tx(index), at) = *word;
        }
        let mut id = random.of(&CALLS_TO_LIE_IN);
        if size == 112 && random.below(2) == 0 {
            id = function::MEM_SHARE;
        }
        let mut regs = match id {
            function::MEM_FRAG_TX | function::MEM_FRAG_RX | function::MEM_RECLAIM => {
                let third = random.of(&[0, 16, 32, 80, 96, 4096]);
                [
                    id.into(),
                    handle & 0xffff_ffff,
                    handle >> 32,
                    third,
                    0,
                    0,
                    0,
                    0,
                ]
            }
            function::RXTX_MAP => {
                let at = random.of(&[0, 1, 1022, 1023]);
                [id.into(), own(index, at), own(index, at + 1), 1, 0, 0, 0, 0]
            }
            _ => {
                // Less than all of it: the rest is to come in fragments.
                let less = if random.below(4) == 0 { 16 } else { 0 };
                [id.into(), size, size - less.min(size), 0, 0, 0, 0, 0]
            }
        };
        if random.below(4) == 0 {
            let at = 1 + random.below(5) as usize;
            lie(random, &mut regs[at]);
        }
        if random.below(30) == 0 {
            let unmap = [function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0];
            self.call(index, &unmap).unwrap();
        }
        let before = self.ledger.without_serial();
        let answer = self
            .call(index, &regs)
            .unwrap_or_else(|wrong| panic!("{regs:x?}: {wrong:x?}"));
        let refused = answer[0] == u64::from(function::ERROR);
        // A fragment that is wrong ends its transaction, which held no page.
        if refused && id != function::MEM_FRAG_TX {
            assert!(self.ledger.without_serial() == before, "{regs:x?}");
        }
        self.call(index, &[function::RX_RELEASE.into(), 0, 0, 0, 0, 0, 0, 0])
            .unwrap();
        answer
    }
}

/// G1-MEM-012, -016: whatever descriptors say, a call is done as the ghost says or changes nothing;
/// and when the VMs have ended, nothing is left of it, tables and transactions included.
#[test]
fn descriptors_that_lie() {
    let mut random = Random(0x6c69_6573);
    let mut machine = Machine::new(12);
    let first = machine.everything();
    let (mut done, mut fragments) = (0, 0);
    for number in 0..CALLS {
        let answer = machine.lies(&mut random);
        done += u64::from(answer[0] != u64::from(function::ERROR));
        fragments += u64::from(answer[0] == u64::from(function::MEM_FRAG_RX));
        if number % 500 == 0 {
            (0..COUNT).for_each(|index| machine.reload(index).unwrap());
            assert!(machine.everything() == first, "{number}");
            assert!((0..32).all(|slot| machine.ledger.transaction(slot).phase == Phase::Free));
        }
    }
    // Most are refused; enough are not, so that there is something to attack.
    assert!(done > CALLS / 50 && done < CALLS / 2, "{done}");
    assert!(fragments > CALLS / 1000, "{fragments}");
}
