//! Input of a simulation: the guests, and Gear2's configuration for them.

use alloc::format;
use alloc::vec::Vec;

use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VmId};
use gearv_manifest::{Balancer, CpuSet, Restart};

use super::{CONSOLE, SLICE, SMMU_INTID, UART_INTID, VIRTIO_IPA, WATCHDOG};
use crate::balancer;
use crate::config::{Config, PoolConfig, SafeState, VcpuConfig, VirtioPage, VmConfig};
use crate::restarts::RestartPolicy;
use crate::scheduler::{Plan as SchedulerPlan, PolicyKind, Share};

/// Behaviour of a guest's vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// Never leave the CPU by themselves.
    Spins,
    /// Everything a guest can do but end.
    Works,
    /// Everything.
    WorksAndEnds,
    /// Refresh the VM's watchdog and sleep, for so many ticks, until the VM hangs.
    Feeds(u64),
}

/// A VM of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) guest: Guest,
    /// The CPU of each vCPU.
    pub(crate) cpus: Vec<usize>,
    pub(crate) restart: Restart,
    pub(crate) restarts: RestartPolicy,
    /// Number of virtio devices.
    pub(crate) devices: u32,
    /// Longest time without a refresh of the VM's watchdog; 0: it has none.
    pub(crate) watchdog: u64,
    /// Longest time for which a vCPU may run without an exit of its own; 0: no limit.
    pub(crate) progress: u64,
    /// Aborted accesses of its devices at which the VM ends; 0: no limit.
    pub(crate) dma_fault_limit: u64,
    pub(crate) boot_order: u32,
    /// Whether its registers may be read while it is paused.
    pub(crate) dump: bool,
    pub(crate) safe_state: SafeState,
    pub(crate) tells: Option<u32>,
    /// The doorbell that is the VM's power button.
    pub(crate) power_button: Option<u32>,
    /// Whether nobody starts the VM at boot.
    pub(crate) waits: bool,
    /// Whether Gear1 runs the VM; such plans come last.
    pub(crate) real_time: bool,
    /// CPUs that the VM's vCPUs may be on, if not all.
    pub(crate) affinity: Option<CpuSet>,
}

/// Guests that end all the time are started again at once, and are never given up.
pub(crate) const AT_ONCE: RestartPolicy = RestartPolicy {
    limit: 0,
    window: 1,
    backoff: 0,
};

/// Makes Gear2's configuration for a plan. Time is in microseconds.
pub(crate) fn config(cpu_count: usize, plans: &[Plan]) -> Config {
    let mut vcpus = [None; MAX_VCPUS];
    let mut next = 0;
    let mut vms = Vec::new();
    let (mut first_channel, mut served) = (0, 0);
    for (place, plan) in plans.iter().enumerate() {
        let id = VmId::new(place).unwrap();
        let first = next;
        for (index, &cpu) in plan.cpus.iter().enumerate() {
            vcpus[next] = (!plan.real_time).then(|| VcpuConfig {
                vm: id,
                index,
                cpu: CpuIndex::new(cpu).unwrap(),
            });
            next += 1;
        }
        vms.push(VmConfig {
            id,
            name: format!("guest{place}"),
            console: (!plan.real_time).then_some(CONSOLE),
            may_power_off: false,
            dump: plan.dump,
            restart: plan.restart,
            share: Share::of(id),
            restarts: plan.restarts,
            must_run: false,
            watchdog: plan.watchdog,
            progress: plan.progress,
            dma_fault_limit: plan.dma_fault_limit,
            safe_state: plan.safe_state,
            tells: plan.tells,
            power_button: plan.power_button,
            autostart: !plan.real_time && !plan.waits,
            boot_order: plan.boot_order,
            scheduled: !plan.real_time,
            affinity: plan.affinity.unwrap_or(CpuSet::first(cpu_count)),
            watchdog_device: (plan.watchdog != 0).then_some(WATCHDOG),
            has_pmu: false,
            rtc: None,
            virtio: (plan.devices > 0).then_some(VirtioPage {
                ipa: VIRTIO_IPA,
                first_channel,
                count: plan.devices,
                number: served,
            }),
            vcpus: first..next,
        });
        first_channel += plan.devices;
        served += usize::from(plan.devices > 0);
    }
    Config {
        cpus: CpuSet::first(cpu_count),
        clusters: [0; MAX_CPUS],
        counter_hz: 1_000_000,
        uart_intid: UART_INTID,
        smmu_intid: SMMU_INTID,
        trace_from_boot: false,
        rings: Vec::new(),
        default_pool: PoolConfig {
            name: "default".into(),
            cpus: CpuSet::first(cpu_count),
            policy: PolicyKind::named("round-robin").unwrap(),
            plan: SchedulerPlan {
                slice: SLICE,
                ..SchedulerPlan::default()
            },
            balancer: balancer::of(Balancer::None),
        },
        pools: Vec::new(),
        vms,
        device_vm: None,
        boot_order_timeout: 0,
        vcpus,
    }
}

impl Config {
    /// Makes the last CPUs a pool of their own, which is scheduled as the others.
    pub(super) fn split_pool(&mut self, count: usize) {
        let rest = CpuSet::first(self.cpus.len() - count);
        if count > 0 {
            self.pools.push(PoolConfig {
                name: "own".into(),
                cpus: self.cpus.without(rest),
                ..self.default_pool.clone()
            });
            self.default_pool.cpus = rest;
        }
    }
}
