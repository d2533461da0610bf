//! Waits in WFI for a timer that is due a few instructions later, beside a guest that computes on
//! the same CPU: whatever the hypervisor does when the timer becomes due, the wait ends with it.
//!
//! `spins=1` on the command line makes it the guest that computes. With a counter of 1 GHz and
//! `icount` a tick is an instruction, so the sweep has the timer become due at each instruction of
//! the way from the WFI to the other guest.
//!
//! Requirements: G1-TIM-004, G1-VCPU-001.
#![no_std]
#![no_main]

use test_guests::timer::{self, Kind};
use test_guests::{Machine, check, cpu, gic, guest};

guest!(main);

/// The sweep: ticks from setting the timer to its deadline. Fewer ticks would be over before the
/// WFI.
const NEAREST: u64 = 100;
/// The way from the WFI to the other guest is shorter.
const FARTHEST: u64 = 2_500;
/// Period of the work, which is no multiple of the other guest's time slice. Each phase of a slice
/// is met.
const PERIOD_US: u64 = 730;
const PERIODS: u64 = 200;
/// The other guest has a time slice of 100 us and keeps the CPU to its end. A wake-up that is lost
/// comes with Gear2's watchdog, 20 ms later. Both figures are the manifest's. Ten microseconds are
/// for the way back to this guest.
const LATE_US: u64 = 110;
/// Number of lost wake-ups after which the guest gives up.
const ENOUGH: u32 = 5;
fn main(machine: &Machine) {
    if machine.option("spins") == Some(1) {
        // No YIELD: QEMU looks for another CPU then, which takes many times as long.
        loop {
            core::hint::black_box(());
        }
    }
    for kind in [Kind::Virtual, Kind::Physical] {
        sweep(kind);
        periods(kind);
    }
}

/// Sets the timer, and waits in WFI until it is due. Returns by how many ticks that was too late.
/// No interrupt is taken: the wake-up alone matters, and WFI may return early (Arm ARM, Wait for
/// Interrupt), hence the loop.
fn wait_until(kind: Kind, deadline: u64) -> u64 {
    kind.set_compare(deadline);
    kind.set_control(1);
    while kind.now() < deadline {
        cpu::wfi();
    }
    let late = kind.now() - deadline;
    kind.set_control(0);
    let intid = gic::acknowledge();
    if gic::is_real(intid) {
        gic::end(intid);
    }
    late
}

/// A lost wake-up is one that came between the check of the timer and the change to the other guest
/// (G1-VCPU-001): one tick of thousands.
fn sweep(kind: Kind) {
    gic::enable(kind.intid());
    let limit = timer::from_us(LATE_US);
    let (mut lost, mut first, mut worst) = (0, 0, 0);
    for ticks in NEAREST..FARTHEST {
        let late = wait_until(kind, kind.now() + ticks);
        worst = late.max(worst);
        if late > limit {
            lost += 1;
            first = if lost == 1 { ticks } else { first };
        }
        if lost == ENOUGH {
            break;
        }
    }
    check!(
        name(kind, "sweep-virtual", "sweep-physical"),
        lost == 0,
        "{lost} wake-ups were lost, the first at {first} ticks ahead; the latest came {worst} ticks late"
    );
}

/// Deadlines follow one another without a read of the counter: a late one would shorten the next
/// wait.
fn periods(kind: Kind) {
    let (period, limit) = (timer::from_us(PERIOD_US), timer::from_us(LATE_US));
    let (mut deadline, mut worst) = (kind.now(), 0);
    for _ in 0..PERIODS {
        deadline += period;
        worst = wait_until(kind, deadline).max(worst);
        if worst > limit {
            break;
        }
    }
    check!(
        name(kind, "periods-virtual", "periods-physical"),
        worst <= limit,
        "{worst} ticks late"
    );
}

fn name(kind: Kind, of_virtual: &'static str, of_physical: &'static str) -> &'static str {
    match kind {
        Kind::Virtual => of_virtual,
        Kind::Physical => of_physical,
    }
}
