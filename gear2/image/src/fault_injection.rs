//! Failures on demand, in the build of Gear2 that tests supervision (feature `fault-injection`) and
//! in no other.
//!
//! The guest says how, and how often Gear2 was restarted before: after the restart its call is made
//! again, and Gear2 does not fail any more.

use core::arch::asm;

use gear1_abi::guest::GEAR2_FAIL;
use gear2_core::Gear1 as _;

use crate::svc::{self, Supervisor};

/// Nothing of Gear2's is here.
const NOWHERE: usize = 0x10;

/// Answers the call, if it is this one.
pub(crate) fn call([function, way, restarts, ..]: [u64; 5]) -> Option<u64> {
    if function & 0xffff_ffff != u64::from(GEAR2_FAIL) {
        return None;
    }
    let count = Supervisor.last_restart().map_or(0, |last| last.count);
    if count == restarts {
        fail(way);
    }
    Some(count)
}

fn fail(way: u64) -> ! {
    match way {
        1 => touch(NOWHERE),
        2 => touch(fail as *const () as usize),
        // SAFETY: an undefined instruction ends here: Gear1 does not resume this loop.
        3 => unsafe { asm!("udf #0") },
        4 => panic!("as a guest wanted"),
        _ => {}
    }
    // A hang, also if one of the above did not end it.
    loop {
        svc::pause();
    }
}

/// Stores where Gear2 cannot.
fn touch(address: usize) {
    // SAFETY: stage 2 refuses the store, and Gear1 does not resume this loop.
    unsafe { asm!("str xzr, [{}]", in(reg) address) };
}
