//! The page returns what was stored, and accepts any contents.

use super::*;

fn vm(index: usize) -> VmId {
    VmId::new(index).unwrap()
}

#[test]
fn all_is_found_again() {
    let kept = Kept::new();
    assert_eq!(kept.goal(vm(3)), None);
    for goal in GOALS {
        kept.set_goal(vm(3), Some(goal));
        assert_eq!(kept.goal(vm(3)), Some(goal));
    }
    kept.set_goal(vm(3), None);
    assert_eq!(kept.goal(vm(3)), None);
    kept.set_uart(vm(15), Settings([1, 2, 3, 4]));
    assert_eq!(kept.uart(vm(15)), Settings([1, 2, 3, 4]));
    assert_eq!(kept.uart(vm(0)), Settings([0; 4]));
    kept.set_paused(vm(2), true);
    assert!(kept.is_paused(vm(2)) && !kept.is_paused(vm(1)));
    kept.set_paused(vm(2), false);
    let times = core::array::from_fn(|place| 100 + place as u64);
    kept.set_restarts(vm(15), times, 7);
    assert_eq!(kept.restarts(vm(15)), (times, 7));
    assert_eq!(kept.restarts(vm(14)), ([0; REMEMBERED], 0));
    let vcpu = |index| VcpuId::new(index).unwrap();
    kept.set_asked(vcpu(31), 9);
    assert_eq!((kept.asked(vcpu(31)), kept.asked(vcpu(0))), (9, 0));
    assert!(!kept.is_paused(vm(2)));
    kept.set_fail_over(vm(15), 3);
    assert_eq!((kept.fail_over(vm(15)), kept.fail_over(vm(14))), (3, 0));
    assert_eq!(kept.pool(vm(15)), None);
    kept.set_pool(vm(15), 0);
    assert_eq!((kept.pool(vm(15)), kept.pool(vm(14))), (Some(0), None));
}

#[test]
fn rubbish_is_no_goal() {
    let kept = Kept::new();
    for rubbish in [6, u32::MAX] {
        kept.goals[0].store(rubbish, Relaxed);
        assert_eq!(kept.goal(vm(0)), None);
    }
}

#[test]
fn an_access_is_blamed_the_second_time() {
    let kept = Kept::new();
    let vcpu = |index| VcpuId::new(index).unwrap();
    assert!(!kept.repeat(vcpu(0), 1));
    assert!(kept.repeat(vcpu(0), 2), "made again at once");
    assert!(!kept.repeat(vcpu(0), 4), "one was answered in between");
    assert!(!kept.repeat(vcpu(1), 5), "another vCPU");
}
