//! Descriptors that a call reads and writes: a few for each page, however the sender lays the pages
//! out. The bad layouts come from a climb, and from one made by hand: alternating between two
//! blocks.
//!
//! Requirements: G1-MEM-012.

use std::vec::Vec;

use super::{Kind, RW, Setup, offer};
use crate::addr::Ipa;
use crate::ownership::testing::{start, vm};
use crate::ownership::{MAX_PAGES, Offer};

/// Most descriptors that are read and written for a page that is sent and retrieved: the list's,
/// two walks of three levels, the page's own. A new table takes one for each of its entries.
const FOR_A_PAGE: u64 = 10;
const FOR_A_TABLE: u64 = 2 * 512;
/// The two blocks of the sender, the list; the receiver's two tables and the one above them.
const TABLES: u64 = 6;

/// Returns how many descriptors are read and written to lend these pages of VM 0, one range each,
/// and to retrieve them.
fn cost(pages: &[u64]) -> [u64; 2] {
    let mut setup = Setup::new(16);
    let ranges = pages.len() as u16;
    let offer = Offer {
        ranges,
        ..offer(Kind::Lend, 0, 1, ranges)
    };
    let index = setup.ledger.begin(&mut setup.vms, offer).unwrap();
    for page in pages {
        let ipa = Ipa::new(start(0) + page * 4096);
        let pushed = setup.ledger.push(&mut setup.vms, index, ipa, 1);
        pushed.unwrap();
    }
    let done = |setup: &Setup| setup.vms.reads.get() + setup.vms.writes;
    let before = done(&setup);
    setup.ledger.send(&mut setup.vms, index).unwrap();
    setup.finish(index);
    let sent = done(&setup) - before;
    let before = done(&setup);
    setup.retrieve(index, vm(1), RW).unwrap();
    [sent, done(&setup) - before]
}

/// Sending and retrieving takes a number of descriptors that grows with the pages alone.
#[test]
fn no_order_of_pages_is_worse_than_another() {
    let bound = FOR_A_PAGE * MAX_PAGES as u64 + FOR_A_TABLE * TABLES;
    let judge = |pages: &[u64]| {
        let [sent, retrieved] = cost(pages);
        assert!(sent <= bound && retrieved <= bound, "{sent} {retrieved}");
        sent.max(retrieved)
    };
    let in_turn: Vec<_> = (0..MAX_PAGES as u64)
        .map(|index| index % 2 * 512 + 256 + index / 2 % 256)
        .collect();
    let mut worst = judge(&in_turn);
    // The climb exchanges two pages, or replaces one, and keeps the more expensive layout.
    let mut pages = in_turn;
    let mut random = 0x6665_6c6c_u64;
    let mut next = |limit: usize| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for _ in 0..100 {
        let mut other = pages.clone();
        for _ in 0..1 + next(64) {
            let (a, b) = (next(other.len()), next(other.len()));
            other.swap(a, b);
            let page = next(1024) as u64;
            if !other.contains(&page) {
                other[a] = page;
            }
        }
        let cost = judge(&other);
        if cost >= worst {
            (worst, pages) = (cost, other);
        }
    }
    std::println!(
        "figure: sending or retrieving 512 pages in 512 ranges, at worst: {worst} descriptors read and written, at most {bound}"
    );
}
