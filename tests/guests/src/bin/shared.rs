//! Memory that VMs have from boot on: two write it and answer each other, one only reads it, and
//! one does not have it. The command line says which this is: `role=0` to `role=3`, and for the
//! last where the memory lies.
//!
//! Requirements: G1-MEM-021.
//!
//! The order is given by two words in the memory itself: the writer publishes the first when all
//! pages are written, and the other VM answers in the second. No channel is used, as the memory
//! alone is under test.
#![no_std]
#![no_main]

use core::arch::asm;
use core::ops::Range;

use test_guests::exception::{Caught, catch, esr};
use test_guests::mmio::{read64, write64};
use test_guests::{Machine, check, guest, timer};

guest!(main);

const PAGE: u64 = 4096;
/// Bytes before the memory that describe it to Linux.
const LEAD: u64 = 2 << 20;
/// Words of the first page: the writer's, then the other VM's. The words differ from page marks in
/// place, so that no check of a mark sees them.
const WRITTEN: u64 = 8;
const ANSWERED: u64 = 16;
/// Long enough for the other VM's boot.
const PATIENCE_US: u64 = 20_000_000;

/// Acts in the role of the command line. The stranger has no node in its device tree, so its
/// command line says where the memory lies.
fn main(machine: &Machine) {
    let role = machine.option("role").unwrap_or(0);
    if role == 3 {
        let at = machine.option("at").unwrap_or(0);
        check!("no-node", machine.shared.is_none(), "{:x?}", machine.shared);
        for address in [at - LEAD, at, at + PAGE] {
            let refused = [load(address), store(address), fetch(address)];
            check!("stranger", refused.iter().all(is_external), "{refused:x?}");
        }
        return;
    }
    let Some(node) = machine.shared.clone() else {
        check!("node", false, "the tree has none");
        return;
    };
    let shared = node.start + LEAD..node.end;
    match role {
        0 => write(&shared),
        1 => answer(&shared),
        _ => only_read(&shared),
    }
}

/// Returns the last word of a page that was written. The value depends on the page, so that pages
/// that are mapped in each other's place are seen.
fn mark(page: u64) -> u64 {
    page ^ 0x5eed_5eed_5eed_5eed
}

/// Returns the addresses of each page's last word.
fn last_words(shared: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    shared
        .clone()
        .step_by(PAGE as usize)
        .map(|page| page + PAGE - 8)
}

/// Writes all pages. Zeroes at first show that nothing of anybody's is in the memory.
fn write(shared: &Range<u64>) {
    let first = last_words(shared).all(|word| read64(word) == 0);
    check!("zero-at-first", first, "it is not zero");
    last_words(shared).for_each(|word| write64(word, mark(word)));
    publish(shared.start + WRITTEN, 1);
    check!("answer", comes(shared.start + ANSWERED, 7), "there is none");
    no_other_way(shared);
}

/// Sees what was written and answers, as the second VM that may write.
fn answer(shared: &Range<u64>) {
    see(shared);
    publish(shared.start + ANSWERED, 7);
    no_other_way(shared);
}

/// Sees what was written and cannot change it. The words are read again, since a store could be
/// refused and still take place.
fn only_read(shared: &Range<u64>) {
    see(shared);
    let words = [shared.start, shared.end - 8];
    let before = words.map(read64);
    let refused = words.map(store);
    check!("read-only", refused.iter().all(is_external), "{refused:x?}");
    check!(
        "unchanged",
        words.map(read64) == before,
        "a store went through"
    );
    no_other_way(shared);
}

/// Waits until all has been written, and looks at it.
fn see(shared: &Range<u64>) {
    check!(
        "written",
        comes(shared.start + WRITTEN, 1),
        "nothing is written"
    );
    let wrong = last_words(shared).filter(|word| read64(*word) != mark(*word));
    let wrong = wrong.count();
    check!("what-was-written", wrong == 0, "{wrong} pages differ");
}

/// Checks accesses that nobody may make: execution, a write to the metadata, an access past the
/// end.
fn no_other_way(shared: &Range<u64>) {
    let refused = [
        fetch(shared.start),
        store(shared.start - LEAD),
        fetch(shared.start - LEAD),
        load(shared.start - LEAD - 8),
        load(shared.end),
    ];
    check!(
        "no-other-way",
        refused.iter().all(is_external),
        "{refused:x?}"
    );
}

/// Stores a word behind all that was stored before.
fn publish(address: u64, value: u64) {
    // SAFETY: a barrier: what was stored before is seen before what follows.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) };
    write64(address, value);
}

/// Waits for a word, but not for ever.
fn comes(address: u64, value: u64) -> bool {
    let end = timer::now() + timer::from_us(PATIENCE_US);
    while read64(address) != value {
        if timer::now() > end {
            return false;
        }
    }
    // SAFETY: as in `publish`, for what is loaded.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) };
    true
}

/// Tells whether an access was refused as one to nowhere: a guest must not see from the abort what
/// another VM has.
fn is_external(caught: &Option<Caught>) -> bool {
    caught.is_some_and(|caught| caught.esr & esr::STATUS == esr::EXTERNAL)
}

/// Loads, and returns the exception if there was one.
fn load(address: u64) -> Option<Caught> {
    catch(|| _ = read64(address))
}

/// Stores zero, and returns the exception if there was one.
fn store(address: u64) -> Option<Caught> {
    catch(|| write64(address, 0))
}

/// Branches to an address, and returns the exception if there was one. Shared memory is never
/// executable.
fn fetch(address: u64) -> Option<Caught> {
    // SAFETY: the branch aborts; if it does not, the test has found what it looks for.
    catch(|| unsafe { asm!("blr {}", in(reg) address, out("x30") _) })
}
