//! Descriptors and calls that lie, at random: all that they may do is to send pages of this VM's,
//! which come back (G1-MEM-012).

use test_guests::check;
use test_guests::ffa::{self, Descriptor, Regs, function};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;

use crate::{AGENT, OURS, OWN, PAGE, Test, handle_of, word};

const CALLS: u64 = 3_000;
/// Pages that descriptors name.
const PAGES: u64 = 8;
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

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % limit
    }

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
    pub(crate) fn lies(&self) {
        let page = self.arena + 300 * PAGE;
        self.fill(page, PAGES);
        let mut random = Random(0x6c69_6573);
        let (mut done, mut parts) = (0, 0);
        for _ in 0..CALLS {
            let x = self.lie(&mut random, page);
            match x[0] {
                function::FRAG_RX => {
                    parts += 1;
                    // A fragment that is no range ends it.
                    let end = [function::FRAG_TX, x[1], x[2], 1, 0, 0, 0, 0];
                    check!(
                        "lie-fragment",
                        ffa::status_of(&self.call(end)) != 0,
                        "taken"
                    );
                }
                function::SUCCESS if x[2] | x[3] != 0 => {
                    done += 1;
                    equal("lie-reclaim", self.reclaim(handle_of(&x, 2), 0), 0);
                }
                _ => {}
            }
        }
        check!(
            "lies",
            done > 50 && done < CALLS / 2,
            "{done} done, {parts} in parts"
        );
        check!("lies-in-parts", parts > 10, "{parts}");
        for page in (page..).step_by(PAGE as usize).take(PAGES as usize) {
            equal("lie-page", word(page), Some(page ^ OURS));
        }
        // All transactions and tables are there still.
        self.exhaustion();
    }

    fn lie(&self, random: &mut Random, page: u64) -> Regs {
        let id = [
            function::SHARE,
            function::LEND,
            function::DONATE,
            function::RETRIEVE_REQ,
            function::RELINQUISH,
            function::FRAG_TX,
            function::FRAG_RX,
        ][random.below(7) as usize];
        Descriptor {
            attributes: if id == function::SHARE {
                ffa::WRITE_BACK
            } else {
                0
            },
            permissions: if id == function::DONATE {
                0
            } else {
                ffa::READ_WRITE
            },
            pages: 3,
            ranges: 2,
            ..Descriptor::new(OWN, AGENT)
        }
        .write(self.tx);
        ffa::write_range(self.tx + 80, page + PAGE * random.below(3), 1);
        ffa::write_range(self.tx + 96, page + PAGE * (3 + random.below(3)), 2);
        for _ in 0..random.below(3) {
            let at = self.tx + 8 * random.below(14);
            write64(at, random.lie(read64(at)));
        }
        if random.below(40) == 0 {
            self.call([function::RXTX_UNMAP, 0, 0, 0, 0, 0, 0, 0]);
            self.call([function::RXTX_MAP, self.tx, self.rx, 1, 0, 0, 0, 0]);
        }
        let size = if random.below(3) == 0 { 96 } else { 112 };
        let mut x = [id, 112, size, 0, 0, 0, 0, 0];
        if random.below(4) == 0 {
            let at = 1 + random.below(4) as usize;
            x[at] = random.lie(x[at]);
        }
        self.call(x)
    }
}
