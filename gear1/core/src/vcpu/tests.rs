//! Requirements: G1-VCPU-002.

mod transitions;

use gear1_abi::call::VcpuState;
use gear1_abi::exit::ExitReason;

use super::is_powered_down;
use super::{CpuShared, Notify, Requests, Start, VcpuShared};

#[test]
fn a_transition_needs_its_origin() {
    let vcpu = VcpuShared::new();
    assert!(!vcpu.transition(VcpuState::Ready, VcpuState::Running));
    vcpu.set_state(VcpuState::Ready);
    assert!(vcpu.transition(VcpuState::Ready, VcpuState::Running));
    assert!(
        !vcpu.transition(VcpuState::Ready, VcpuState::Running),
        "runs on one CPU only"
    );
    assert_eq!(vcpu.state(), VcpuState::Running);
}

#[test]
fn a_request_is_taken_once() {
    let vcpu = VcpuShared::new();
    vcpu.raise(Requests::IRQ);
    vcpu.raise(Requests::STOP);
    assert!(
        vcpu.requests().intersects(Requests::IRQ) && vcpu.requests().intersects(Requests::STOP)
    );
    assert!(vcpu.take(Requests::STOP));
    assert!(!vcpu.take(Requests::STOP));
    assert!(vcpu.requests().intersects(Requests::IRQ));
}

#[test]
fn a_start_voids_what_was_asked_of_the_former_life() {
    let vcpu = VcpuShared::new();
    vcpu.raise(Requests::STOP);
    vcpu.post_reply(1, 42);
    vcpu.request_reset(0x4000_0000, 7);
    assert_eq!(vcpu.take_reply(), None);
    assert!(!vcpu.take(Requests::STOP));
    let start = Start {
        pc: 0x4000_0000,
        argument: 7,
        warm: false,
    };
    assert_eq!(vcpu.take_reset(), Some(start));
    assert_eq!(vcpu.take_reset(), None);
}

#[test]
fn a_reply_arrives_once_and_whole() {
    let vcpu = VcpuShared::new();
    vcpu.post_reply(1, u64::MAX);
    assert_eq!(vcpu.take_reply(), Some((1, u64::MAX)));
    assert_eq!(vcpu.take_reply(), None);
}

#[test]
fn exits_are_counted_by_reason() {
    let vcpu = VcpuShared::new();
    vcpu.count(ExitReason::Hvc);
    vcpu.count(ExitReason::Hvc);
    vcpu.add_ticks(ExitReason::Wfi, 10);
    assert_eq!(vcpu.stats(ExitReason::Hvc), (2, 0));
    assert_eq!(vcpu.stats(ExitReason::Wfi), (0, 10));
}

/// Whether a CPU may hold FP registers of a vCPU is known without that CPU.
#[test]
fn fp_registers_are_saved_until_they_are_taken_again() {
    let vcpu = VcpuShared::new();
    assert!(!vcpu.has_saved_fp());
    vcpu.note_saved_fp();
    vcpu.count(ExitReason::Hvc);
    assert!(vcpu.has_saved_fp());
    vcpu.count(ExitReason::Fp);
    assert!(!vcpu.has_saved_fp());
    vcpu.note_saved_fp();
    assert!(vcpu.has_saved_fp());
}

#[test]
fn wakes_pokes_and_rings_stay_until_taken() {
    let cpu = CpuShared::new();
    assert!(!cpu.is_pending());
    cpu.wake(31);
    cpu.wake(3);
    cpu.wake(3);
    assert_eq!(
        [cpu.take_wake(), cpu.take_wake(), cpu.take_wake()],
        [Some(3), Some(31), None]
    );
    cpu.poke();
    assert!(cpu.is_pending() && cpu.take_poke() && !cpu.take_poke());
    cpu.ring();
    assert!(cpu.is_pending() && cpu.take_ring() && !cpu.take_ring());
    cpu.probe();
    assert!(cpu.is_pending() && cpu.is_probed() && cpu.take_wake().is_none());
    cpu.poke();
    assert!(!cpu.take_ring() && cpu.is_probed());
    assert!(cpu.take_poke() && !cpu.is_probed() && !cpu.take_poke());
    assert!(!cpu.is_pending());
}

/// G1-VCPU-001: a waker and a CPU that blocks, as the table in `vcpu.rs` has
/// them (requests first, then state; state first, then requests), never miss
/// each other.
#[test]
fn no_wake_up_is_lost_between_two_cpus() {
    use std::sync::Arc;
    let vcpu = Arc::new(VcpuShared::new());
    let cpu = Arc::new(CpuShared::new());
    const ROUNDS: usize = 20_000;
    vcpu.set_state(VcpuState::Running);
    let waker = {
        let (vcpu, cpu) = (vcpu.clone(), cpu.clone());
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                vcpu.raise(Requests::IRQ);
                if vcpu.transition(VcpuState::Wfi, VcpuState::Ready) {
                    cpu.wake(0);
                }
                while vcpu.requests().intersects(Requests::IRQ) {
                    std::thread::yield_now();
                }
            }
        })
    };
    for _ in 0..ROUNDS {
        // The owner CPU: takes an interrupt, or blocks until it is woken.
        loop {
            if vcpu.take(Requests::IRQ) {
                break;
            }
            vcpu.set_state(VcpuState::Wfi);
            if vcpu.requests().intersects(Requests::IRQ)
                && vcpu.transition(VcpuState::Wfi, VcpuState::Running)
            {
                continue;
            }
            while cpu.take_wake().is_none() {
                if vcpu.requests().intersects(Requests::IRQ)
                    && vcpu.transition(VcpuState::Wfi, VcpuState::Running)
                {
                    break;
                }
                std::thread::yield_now();
            }
            vcpu.set_state(VcpuState::Running);
        }
    }
    waker.join().unwrap();
}

/// G1-PSCI-006: a vCPU in power-down is on, and keeps the requests that arrive meanwhile.
#[test]
fn a_resume_keeps_other_requests() {
    let vcpu = VcpuShared::new();
    vcpu.raise(Requests::STOP);
    vcpu.request_resume(0x4000_0000, 7);
    assert!(vcpu.requests().intersects(Requests::STOP));
    let start = vcpu.take_reset().map(|s| (s.pc, s.argument, s.warm));
    assert_eq!(start, Some((0x4000_0000, 7, true)));
    // The next life of the same vCPU is a cold one.
    vcpu.request_resume(1, 2);
    vcpu.request_reset(3, 4);
    let start = vcpu.take_reset().map(|s| (s.pc, s.argument, s.warm));
    assert_eq!(start, Some((3, 4, false)));
}

/// G1-PSCI-009: a vCPU in power-down shows, and one that waits in WFI, or has woken, does not.
#[test]
fn power_down_shows_while_it_lasts() {
    let vcpu = VcpuShared::new();
    vcpu.set_state(VcpuState::Wfi);
    assert!(!is_powered_down(&vcpu));
    vcpu.request_resume(0x4000_0000, 7);
    assert!(is_powered_down(&vcpu));
    assert!(vcpu.wake_up());
    assert!(!is_powered_down(&vcpu));
    assert!(vcpu.take_reset().is_some());
    vcpu.set_state(VcpuState::Wfi);
    assert!(!is_powered_down(&vcpu));
}

/// An SGI that came too late for a vCPU's life is there when the vCPU is turned on, but in no other
/// life of its VM.
#[test]
fn an_sgi_that_is_left_outlives_a_cpu_off() {
    let vcpu = VcpuShared::new();
    vcpu.raise(Requests::sgi(5).union(Requests::STOP));
    vcpu.request_reset(1, 2);
    let left = vcpu.take_each(Requests::INTERRUPTS);
    assert!(left.intersects(Requests::IRQ) && left.sgis() == 1 << 5);
    assert!(!vcpu.requests().intersects(Requests::STOP));
    vcpu.raise(Requests::sgi(15));
    assert!(vcpu.requests().intersects(Requests::RESET) && !vcpu.requests().is_interrupts());
    vcpu.begin_life();
    vcpu.take_reset();
    assert!(vcpu.requests().is_none());
}

/// G1-GIC-017: an SGI of a GICv2 is taken with its senders, by one way or the other, and none of
/// them is left to the VM's next life.
#[test]
fn senders_are_taken_with_their_sgi() {
    let vcpu = VcpuShared::new();
    let post = |senders| {
        assert_eq!(vcpu.request_sgi_of(5, senders), Notify::Nobody);
        assert_eq!(vcpu.requests(), Requests::sgi(5));
    };
    post(0b010);
    assert!(vcpu.take_sgi_of(5, 0b010, || true));
    assert!(vcpu.requests().is_none() && vcpu.take_senders(5) == 0);
    // Another sender, several, and one whose list register is not free.
    for (senders, sender, is_free) in [(0b100, 0b010, true), (0b110, 0b010, true), (2, 2, false)] {
        post(senders);
        assert!(!vcpu.take_sgi_of(5, sender, || is_free));
        assert_eq!(vcpu.take_each(Requests::SGIS), Requests::sgi(5));
        assert_eq!(vcpu.take_senders(5), senders);
    }
    post(0b001);
    vcpu.begin_life();
    assert!(vcpu.requests().is_none() && vcpu.take_senders(5) == 0);
}

/// G1-TIM-007.
#[test]
fn time_is_stolen_from_who_could_run() {
    let vcpu = VcpuShared::new();
    assert_eq!(vcpu.end_stolen(100), None);
    // Preempted.
    vcpu.set_state(VcpuState::Ready);
    vcpu.unload(100);
    assert_eq!(vcpu.end_stolen(130), Some(30));
    assert_eq!(vcpu.end_stolen(140), None);
    // Waiting is not stolen, from the wake-up on it is.
    vcpu.set_state(VcpuState::Wfi);
    vcpu.unload(200);
    assert_eq!(vcpu.end_stolen(300), None);
    vcpu.unload(400);
    vcpu.set_state(VcpuState::Ready);
    vcpu.begin_stolen(450);
    assert_eq!(vcpu.end_stolen(460), Some(40));
    // Woken while loaded: the wait for its own CPU ends with its unloading.
    vcpu.begin_stolen(500);
    vcpu.set_state(VcpuState::Wfi);
    vcpu.unload(600);
    assert_eq!(vcpu.end_stolen(700), None);
    vcpu.begin_life();
    vcpu.begin_stolen(800);
    assert_eq!(vcpu.end_stolen(801), Some(1));
}

/// G1-TIM-010: a wait counts while it lasts, for who is ready and in no other state, and is stolen
/// time once it has ended.
#[test]
fn a_wait_counts_while_it_lasts() {
    let vcpu = VcpuShared::new();
    let figures = |now| (vcpu.stolen(), vcpu.waits_for(now), vcpu.preemptions());
    assert_eq!(figures(50), (0, 0, 0));
    vcpu.set_state(VcpuState::Ready);
    vcpu.unload(100);
    assert_eq!(figures(130), (0, 30, 1));
    vcpu.end_stolen(150);
    assert_eq!(figures(170), (50, 0, 1));
    // Woken while it is loaded: what was noted then is of no wait.
    vcpu.begin_stolen(200);
    vcpu.set_state(VcpuState::Running);
    assert_eq!(figures(300), (50, 0, 1));
    // It gives the CPU up.
    vcpu.set_state(VcpuState::Wfi);
    vcpu.unload(400);
    assert_eq!(figures(500), (50, 0, 1));
    vcpu.set_state(VcpuState::Ready);
    vcpu.begin_stolen(510);
    assert_eq!(figures(515), (50, 5, 1));
    vcpu.begin_life();
    assert_eq!(figures(600), (0, 0, 0));
}
