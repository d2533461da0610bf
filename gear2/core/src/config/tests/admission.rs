//! A policy takes at run time what `check` takes, and refuses what `check` refuses.

use gearv_manifest::limits::SWITCH_NS;
use proptest::prelude::*;

use super::*;

/// Frequencies of counters: of QEMU, of boards, and the lowest that is exact.
const FREQUENCIES: [u64; 6] = [
    1_000_000,
    8_333_000,
    19_200_000,
    54_000_000,
    62_500_000,
    1_000_000_000,
];

/// Budget and period in microseconds.
type Server = (u32, u32);

/// Returns a manifest with these budgets on one CPU, in the free half of a frame or on the whole
/// CPU.
fn with_budgets(servers: &[Server], in_windows: bool) -> Manifest<'static> {
    let servers: Vec<_> = servers.iter().copied().map(Some).collect();
    with_device_vm(&servers, in_windows)
}

/// Returns the same with a device VM where a budget is missing.
fn with_device_vm(servers: &[Option<Server>], in_windows: bool) -> Manifest<'static> {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let vms = (0..).zip(servers).map(|(place, server)| Vm {
        parameters: Parameters {
            budget_us: server.map(|(budget, _)| budget),
            period_us: server.map(|(_, period)| period),
            ..Parameters::default()
        },
        kind: server.map_or(VmKind::Device, |_| VmKind::Guest),
        ..vm(place, NAMES[place], 1, &[0])
    });
    let vms: Vec<_> = vms.collect();
    let mut manifest = manifest(&vms);
    let policy = &mut manifest.gear2.policy;
    policy.scheduler = Scheduler::Edf;
    if in_windows {
        policy.scheduler = Scheduler::Arinc653;
        policy.frame_us = 1_000;
        let free = gearv_manifest::Window {
            pool: None,
            name: "free",
            vm: None,
            start_us: 0,
            length_us: 500,
        };
        assert!(manifest.windows.push(free).is_ok());
    }
    manifest
}

/// Tells whether `check` takes a manifest.
fn is_checked(manifest: &Manifest<'_>) -> bool {
    gearv_manifest::judge_scheduling(manifest, 1, &mut |_| {}).is_ok()
}

/// Tells whether the policy of the CPU takes all vCPUs, one after the other.
fn is_taken(manifest: &Manifest<'_>, counter_hz: u64) -> bool {
    let info = Gear2Info {
        counter_hz: u32::try_from(counter_hz).unwrap(),
        cpu_count: 1,
        cpu_mask: 1,
        ..info(&[1; 7])
    };
    let mut policy = PoolConfig::new(&info, manifest, None).make_policy();
    let mut vms = manifest.vms.iter();
    vms.all(|vm| {
        let share = share(vm, counter_hz);
        let vcpu = VcpuId::new(vm.id.index()).unwrap();
        policy.add(vcpu, &share, 0).is_ok()
    })
}

/// A budget that leaves no time for its switches fits by itself, and is refused.
#[test]
fn switches_need_room() {
    // Two switches take 4 us.
    assert_eq!(SWITCH_NS, 2_000);
    for (budget, fits) in [(996, true), (997, false)] {
        let manifest = with_budgets(&[(budget, 1_000)], false);
        assert_eq!(is_checked(&manifest), fits);
        for counter_hz in FREQUENCIES {
            assert_eq!(
                is_taken(&manifest, counter_hz),
                fits,
                "{budget} at {counter_hz}"
            );
        }
    }
}

/// Windows without a VM are not the whole CPU.
#[test]
fn windows_are_not_the_whole_cpu() {
    for (budget, fits) in [(4_996, true), (4_997, false)] {
        let manifest = with_budgets(&[(budget, 10_500)], true);
        assert_eq!(is_checked(&manifest), fits, "{budget}");
        for counter_hz in FREQUENCIES {
            assert_eq!(
                is_taken(&manifest, counter_hz),
                fits,
                "{budget} at {counter_hz}"
            );
        }
    }
}

proptest! {
    /// Budgets whose sum is about what there is.
    #[test]
    fn a_policy_takes_what_check_takes(
        mut servers in proptest::collection::vec((0..1_000_000_u32, 600..20_000_u32), 1..6),
        last in 600..20_000_u32,
        off in -2..3_i64,
        in_windows: bool,
        device: Option<bool>,
        frequency in 0..FREQUENCIES.len(),
    ) {
        let supply = if in_windows { 500_000 } else { 1_000_000_i64 };
        let delay = if in_windows { 500 } else { 0 };
        // A device VM without a budget needs the least part for itself.
        let mut left = supply - device.map_or(0, |_| 50_000);
        let count = servers.len() as i64;
        for (budget, period) in &mut servers {
            let usable = i64::from(*period) - delay;
            let part = i64::from(*budget) * supply / 1_000_000 / count;
            *budget = u32::try_from(usable * part / 1_000_000).unwrap().max(1);
            left -= (i64::from(*budget) + 4) * 1_000_000 / usable + 1;
        }
        let usable = i64::from(last) - delay;
        let rest = usable * left / 1_000_000 - 4 + off;
        servers.push((u32::try_from(rest.max(1)).unwrap(), last));
        let mut servers: Vec<_> = servers.into_iter().map(Some).collect();
        match device {
            Some(true) => servers.insert(0, None),
            Some(false) => servers.push(None),
            None => {}
        }
        let manifest = with_device_vm(&servers, in_windows);
        let counter_hz = FREQUENCIES[frequency];
        prop_assert_eq!(is_checked(&manifest), is_taken(&manifest, counter_hz), "{:?}", servers);
    }
}
