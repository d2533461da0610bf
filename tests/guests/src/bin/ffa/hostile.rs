//! Descriptors and calls that lie, at random: all that they may do is to send pages of this VM's,
//! which come back (G1-MEM-012).

use test_guests::check;
use test_guests::ffa::{self, Descriptor, Regs, function, handle_of, regs};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;

use crate::{AGENT, OURS, OWN, PAGE, Test, word};

/// Enough that each lie meets each field several times. `gear1/core/src/ffa/tests/hostile.rs` makes
/// 100,000 on the host; here tables, TLBs and contents are real.
const CALLS: u64 = 3_000;
/// Pages that descriptors name.
const PAGES: u64 = 8;
/// Values at the edges of fields and of sums of fields. 16 is a range's size, 48 and 80 are where
/// the endpoints and the ranges of a descriptor begin, 4096 is the buffer's size. Numbers just
/// below 2^32 and 2^64 overflow sums of an offset and a length.
const LIES: [u64; 12] = [
    0,
    1,
    3,
    16,
    48,
    64,
    80,
    4096,
    0x7fff_ffff,
    0xffff_fff0,
    0xffff_ffff,
    u64::MAX,
];

/// Calls that read a descriptor or continue one. Every other function takes all of its arguments in
/// registers.
const FUNCTIONS: [u64; 7] = [
    function::SHARE,
    function::LEND,
    function::DONATE,
    function::RETRIEVE_REQ,
    function::RELINQUISH,
    function::FRAG_TX,
    function::FRAG_RX,
];

struct Random(u64);

impl Random {
    /// Deterministic, so that a failure can be repeated. Xorshift with Marsaglia's shifts 13, 7 and
    /// 17; a state of 0 would stay 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % limit
    }

    /// Fields have 32 bits or less, and two of them share a word: the third way leaves the
    /// neighbour as it was, so that the call gets further.
    fn lie(&mut self, value: u64) -> u64 {
        match self.below(4) {
            0 => value ^ 1 << self.below(64),
            1 => LIES[self.below(12) as usize],
            2 => value & !0xffff_ffff | LIES[self.below(12) as usize] & 0xffff_ffff,
            _ => self.0,
        }
    }
}

impl Test {
    /// Some lies are truths: a page of this VM's may be sent. Hence the bounds of the count. Too
    /// few would show that Gear1 looks no further than the first field, too many that lies are
    /// believed. A page with another word, or one that aborts, was sent and has not come back.
    pub(crate) fn lies(&self) {
        let page = self.arena + 300 * PAGE;
        self.fill(page, PAGES);
        let (done, parts) = self.lie_often(page);
        let some = done > 50 && done < CALLS / 2;
        check!("lies", some, "{done} done, {parts} in parts");
        check!("lies-in-parts", parts > 10, "{parts}");
        for page in (page..).step_by(PAGE as usize).take(PAGES as usize) {
            equal("lie-page", word(page), Some(page ^ OURS));
        }
        // All transactions and tables are there still.
        self.exhaustion();
    }

    /// Ends what a lie begins. Returns how many lies were taken for a transaction, and how many for
    /// the first part of one. A success without a handle in X2 and X3 is that of a call that sends
    /// nothing. The reclaim must succeed: nobody retrieves meanwhile.
    fn lie_often(&self, page: u64) -> (u64, u64) {
        let mut random = Random(0x6c69_6573);
        let (mut done, mut parts) = (0, 0);
        for _ in 0..CALLS {
            let x = self.lie(&mut random, page);
            match x[0] {
                function::FRAG_RX => {
                    parts += 1;
                    self.end_parts(&x);
                }
                function::SUCCESS if x[2] | x[3] != 0 => {
                    done += 1;
                    equal("lie-reclaim", self.reclaim(handle_of(&x, 2), 0), 0);
                }
                _ => {}
            }
        }
        (done, parts)
    }

    /// Ends a transaction that waits for another part: a part that is no range does. An unfinished
    /// transaction would keep one of the VM's slots, all of which must be free at the end. One byte
    /// is less than a range, so the part is refused and the transaction ends.
    fn end_parts(&self, x: &Regs) {
        let end = self.call(regs([function::FRAG_TX, x[1], x[2], 1]));
        check!("lie-fragment", ffa::status_of(&end) != 0, "taken");
    }

    /// Calls with a descriptor of which words are changed, or with registers that are. A size of 96
    /// in a total of 112 is one of two ranges, a first part. Buffers are mapped anew now and then,
    /// which is refused while a transaction needs them.
    fn lie(&self, random: &mut Random, page: u64) -> Regs {
        let id = FUNCTIONS[random.below(7) as usize];
        self.describe(random, id, page);
        if random.below(40) == 0 {
            self.call(regs([function::RXTX_UNMAP]));
            self.call(regs([function::RXTX_MAP, self.tx, self.rx, 1]));
        }
        let size = if random.below(3) == 0 { 96 } else { 112 };
        let mut x = regs([id, 112, size]);
        if random.below(4) == 0 {
            let at = 1 + random.below(4) as usize;
            x[at] = random.lie(x[at]);
        }
        self.call(x)
    }

    /// Writes a descriptor with two ranges, and changes up to two of its words. The ranges may
    /// overlap or change order with a lie, and the page count of 3 may differ from their sum: Gear1
    /// must judge each and trust none. 14 words are the whole descriptor.
    fn describe(&self, random: &mut Random, id: u64, page: u64) {
        Descriptor {
            pages: 3,
            ranges: 2,
            ..Descriptor::of_call(id, OWN, AGENT)
        }
        .write(self.tx);
        ffa::write_range(self.tx + 80, page + PAGE * random.below(3), 1);
        ffa::write_range(self.tx + 96, page + PAGE * (3 + random.below(3)), 2);
        for _ in 0..random.below(3) {
            let at = self.tx + 8 * random.below(14);
            write64(at, random.lie(read64(at)));
        }
    }
}
