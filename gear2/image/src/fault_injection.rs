//! Failures on demand, in the build of Gear2 that tests supervision (feature `fault-injection`)
//! only.
//!
//! The guest names the failure and the number of restarts that it has seen. After the restart its
//! call is repeated, and Gear2 does not fail again.

use core::arch::asm;

use gear1_abi::call::Status::{Invalid, NoSuchCall, NotFound, Ok as Done, WrongState};
use gear1_abi::call::number;
use gear1_abi::guest::GEAR2_FAIL;
use gear1_abi::record::RecordId;
use gear2_core::{Conduit as _, Gear1 as _};

use crate::heap;
use crate::svc::{self, Supervisor};

/// Nothing of Gear2's is here.
const NOWHERE: usize = 0x10;
/// The way that is no failure: calls that Gear1 must refuse.
const MISUSE: u64 = 5;
/// The ways that are questions: for the bytes that are allocated, and for the count at which Gear1
/// found the last failure.
const HEAP: u64 = 8;
const FOUND_AT: u64 = 9;
/// Names no VM, vCPU, CPU or reason.
const NOTHING: u64 = 999;
/// A CPU that there can be, and that the test's machine does not have.
const NO_CPU: u64 = 7;

/// Answers the call, if it is this one.
pub(crate) fn call([function, way, restarts, ..]: [u64; 5]) -> Option<u64> {
    if function & 0xffff_ffff != u64::from(GEAR2_FAIL) {
        return None;
    }
    match way {
        MISUSE => return Some(misuse()),
        HEAP => return Some(heap::used() as u64),
        FOUND_AT => return Some(found_at()),
        _ => {}
    }
    let count = Supervisor.last_restart().map_or(0, |last| last.count);
    if count == restarts {
        fail(way);
    }
    Some(count)
}

/// Fails in one of the ways that Gear1 has to notice: a store that stage 2 refuses, an instruction
/// that does not exist, a panic, a wait, calls without end, or a hang.
fn fail(way: u64) -> ! {
    match way {
        1 => touch(NOWHERE),
        2 => touch(fail as *const () as usize),
        // SAFETY: an undefined instruction ends here: Gear1 does not resume this loop.
        3 => unsafe { asm!("udf #0") },
        4 => panic!("as a guest wanted"),
        6 => loop {
            // SAFETY: changes nothing.
            unsafe { asm!("wfi", options(nomem, nostack)) };
        },
        7 => loop {
            call_of::<{ number::VM_STATE }>([0, 0, 0]);
        },
        _ => {}
    }
    // A hang, also if one of the above did not end it.
    loop {
        svc::pause();
    }
}

/// Returns the count at which Gear1 found the last failure of Gear2.
fn found_at() -> u64 {
    let (mut cursor, mut found) = (0, 0);
    while let Some((next, record)) = Supervisor.log_read(cursor) {
        if record.id_and_cpu as u32 == RecordId::Gear2Restart as u32 {
            found = record.time.max(found);
        }
        cursor = next;
    }
    found
}

/// Stores where Gear2 cannot.
fn touch(address: usize) {
    // SAFETY: stage 2 refuses the store, and Gear1 does not resume this loop.
    unsafe { asm!("str xzr, [{}]", in(reg) address) };
}

/// Makes calls that are wrong, while VM 0 runs and vCPU 1 is another CPU's; then some that are
/// right. Returns those whose status is not as it must be: a bit each, in this order.
fn misuse() -> u64 {
    let statuses = [
        (call_of::<{ number::VCPU_STATE }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::VCPU_WAITS }>([NOTHING, 0, 0]), NotFound),
        (
            call_of::<{ number::VCPU_ASSIGN }>([NOTHING, 0, 0]),
            NotFound,
        ),
        (
            call_of::<{ number::VCPU_ASSIGN }>([0, NOTHING, 0]),
            NotFound,
        ),
        (call_of::<{ number::VCPU_ASSIGN }>([0, NO_CPU, 0]), NotFound),
        (call_of::<{ number::VCPU_ASSIGN }>([1, 0, 0]), WrongState),
        (call_of::<{ number::VCPU_REPLY }>([NOTHING, 0, 1]), NotFound),
        (call_of::<{ number::VCPU_REPLY }>([0, 0, NOTHING]), Invalid),
        (call_of::<{ number::VCPU_REPLY }>([0, 0, 1]), WrongState),
        (call_of::<{ number::VCPU_REGS }>([NOTHING, 0, 0]), NotFound),
        // VMs that run: the second one lets Gear2 read its last registers.
        (call_of::<{ number::VCPU_REGS }>([0, 0, 0]), NotFound),
        (call_of::<{ number::VCPU_REGS }>([1, 0, 0]), WrongState),
        (call_of::<{ number::VM_STATE }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::VM_STOP }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::VM_LOAD }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::VM_LOAD }>([0, 0, 0]), WrongState),
        (call_of::<{ number::VM_START }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::VM_START }>([0, 0, 0]), WrongState),
        (call_of::<{ number::IRQ_SET }>([NOTHING, 40, 1]), NotFound),
        (call_of::<{ number::IRQ_SET }>([0, 27, 1]), Invalid),
        (call_of::<{ number::IRQ_SET }>([0, 512, 1]), Invalid),
        (
            call_of::<{ number::IRQ_SET }>([0, 1 << 32 | 40, 1]),
            Invalid,
        ),
        (call_of::<{ number::IRQ_SET }>([0, 40, 2]), Invalid),
        (call_of::<{ number::IRQ_DONE }>([27, 0, 0]), NotFound),
        (call_of::<{ number::IRQ_DONE }>([u64::MAX, 0, 0]), NotFound),
        (call_of::<{ number::POKE }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::POKE }>([NO_CPU, 0, 0]), NotFound),
        (call_of::<{ number::PL061_RAISE }>([0, 0, 0]), NotFound),
        (
            call_of::<{ number::PL061_RAISE }>([u64::MAX, 0, 0]),
            NotFound,
        ),
        // A doorbell that is there, and not Gear2's to ring.
        (call_of::<{ number::CHANNEL_RING }>([0, 0, 0]), NotFound),
        (
            call_of::<{ number::CHANNEL_RING }>([u64::MAX, 0, 0]),
            NotFound,
        ),
        (call_of::<{ number::EXIT_STATS }>([NOTHING, 0, 0]), NotFound),
        (call_of::<{ number::EXIT_STATS }>([0, NOTHING, 0]), NotFound),
        (call_of::<{ number::LOG_READ }>([u64::MAX, 0, 0]), NotFound),
        (call_of::<999>([0, 0, 0]), NoSuchCall),
        // The vCPU whose call this is: it leaves this CPU's registers, and comes back to them.
        (call_of::<{ number::VCPU_ASSIGN }>([2, 0, 0]), Done),
        (call_of::<{ number::POKE }>([1, 0, 0]), Done),
    ];
    let wrong = (0..)
        .zip(statuses)
        .filter(|(_, (got, wanted))| *got != *wanted as u64);
    wrong.fold(0, |mask, (number, _)| mask | 1 << number)
}

/// Makes a call and returns its status.
fn call_of<const NUMBER: u16>([a, b, c]: [u64; 3]) -> u64 {
    let [status, ..] = Supervisor.svc::<NUMBER>([a, b, c, 0, 0, 0, 0, 0]);
    status
}
