//! Configuration of Gear2: the machine from Gear1's description, the VMs from the manifest.
//!
//! Owns the check that the two agree with each other and with this build. All that Gear2 knows
//! about a VM is here.
//!
//! init has judged the manifest by the same rules before. The check here finds images that were not
//! built together: then identifiers would name other VMs than Gear1's. Nothing changes after the
//! start, so every loop reads the configuration without a lock.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use gear1_abi::event::Mmio;
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VcpuId, VmId};
use gear1_abi::info::{Gear2Info, INFO_MAGIC};
use gear1_abi::{ABI_VERSION, abi_compatible};
use gear2_protocol::RTC_DEVICE;
use gearv_manifest::{
    Console, CpuSet, Manifest, ManifestError, Restart, Rtc, Supply, Vm, VmKind, WatchdogDevice,
    limits,
};

use crate::balancer::{self, Balancer};
use crate::pl011::PAGE_BYTES;
use crate::restarts::RestartPolicy;
use crate::scheduler::{Admission, Budget, Plan, Policy, PolicyKind, Refused, Share, Window};
use crate::trace::Gear1Ring;

mod safe_state;
#[cfg(feature = "host")]
mod schedule;
#[cfg(test)]
mod tests;
mod virtio;

pub(crate) use safe_state::SafeState;
#[cfg(feature = "host")]
pub use schedule::{CpuSchedule, VcpuSchedule};
pub(crate) use virtio::VirtioPage;

/// Why Gear2 does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Gear1 left nothing where its description of the machine should be.
    NoInfo,
    /// Gear1 speaks another version.
    Abi(u32),
    /// The manifest is refused, for these reasons.
    Manifest(String),
    /// The scheduler of a CPU does not take a vCPU.
    Plan(usize, Refused),
    /// Gear1 and the manifest do not agree on this VM.
    Disagreement(usize),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInfo => f.write_str("no description of the machine from Gear1"),
            Self::Abi(gear1) => {
                let ([a, b], [c, d]) = (version(*gear1), version(ABI_VERSION));
                write!(f, "Gear1 has ABI {a}.{b}, Gear2 was built for ABI {c}.{d}")
            }
            Self::Manifest(text) => write!(f, "manifest: {text}"),
            Self::Plan(cpu, why) => {
                write!(f, "manifest: /gear2: scheduler: CPU {cpu}: {why}")
            }
            Self::Disagreement(vm) => write!(f, "Gear1 and the manifest differ in VM {vm}"),
        }
    }
}

/// Returns major and minor of an ABI version.
pub(crate) const fn version(abi: u32) -> [u32; 2] {
    [abi >> 16, abi & 0xffff]
}

/// Checks that Gear1 speaks this build's ABI. Nothing else in `info` means anything before.
pub fn check_abi(info: &Gear2Info) -> Result<(), StartError> {
    if info.magic != INFO_MAGIC {
        return Err(StartError::NoInfo);
    }
    if !abi_compatible(info.abi_version) {
        return Err(StartError::Abi(info.abi_version));
    }
    Ok(())
}

/// Configuration of the machine and its VMs.
#[derive(Clone)]
pub struct Config {
    pub(crate) cpus: CpuSet,
    /// Cluster of each CPU, by any numbers.
    pub(crate) clusters: [u8; MAX_CPUS],
    /// Ticks a second of the counter that all times of Gear1's are read from.
    pub(crate) counter_hz: u64,
    /// Physical interrupt of the boot UART, if Gear2 owns one.
    pub(crate) uart_intid: u32,
    /// INTID of the SMMU's event queue; 0: the machine has none that interrupts.
    pub(crate) smmu_intid: u32,
    /// Whether Gear1 writes its rings of trace records since boot.
    pub(crate) trace_from_boot: bool,
    /// Gear1's rings of trace records, by CPU, until the machine takes them.
    pub rings: Vec<Gear1Ring>,
    /// The CPUs of no pool.
    pub(crate) default_pool: PoolConfig,
    /// Pools of CPUs, in the order of the manifest.
    pub(crate) pools: Vec<PoolConfig>,
    /// VMs in the order of the manifest, which is that of their identifiers.
    pub(crate) vms: Vec<VmConfig>,
    /// The VM whose userspace serves the others' virtio devices.
    pub(crate) device_vm: Option<VmId>,
    /// Longest time that a VM waits at boot for those that start before it, in ticks; 0: no limit.
    pub(crate) boot_order_timeout: u64,
    /// VM and CPU of each vCPU.
    pub(crate) vcpus: [Option<VcpuConfig>; MAX_VCPUS],
}

/// CPUs with one policy, of which each has an instance of its own.
#[derive(Clone)]
pub(crate) struct PoolConfig {
    pub(crate) name: String,
    pub(crate) cpus: CpuSet,
    pub(crate) policy: &'static PolicyKind,
    /// Plan that the policy of each CPU is made from.
    pub(crate) plan: Plan,
    /// Balancer of vCPUs between the CPUs.
    pub(crate) balancer: &'static dyn Balancer,
}

/// A vCPU that Gear2 schedules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VcpuConfig {
    pub(crate) vm: VmId,
    /// Index of the vCPU in its VM.
    pub(crate) index: usize,
    /// CPU that the vCPU starts on.
    pub(crate) cpu: CpuIndex,
}

/// A VM.
#[derive(Clone, Debug)]
pub(crate) struct VmConfig {
    pub(crate) id: VmId,
    pub(crate) name: String,
    /// Guest address (IPA) and interrupt of the UART that Gear2 emulates for the VM.
    pub(crate) console: Option<Console>,
    /// Whether the machine goes off when the VM turns itself off.
    pub(crate) may_power_off: bool,
    /// Whether the device VM may read the registers of its vCPUs while it does not run.
    pub(crate) dump: bool,
    /// Ends of its own after which the VM starts again.
    pub(crate) restart: Restart,
    /// Parameters of each vCPU for the policy of its CPU.
    pub(crate) share: Share,
    /// Limits of automatic restarts.
    pub(crate) restarts: RestartPolicy,
    /// Consequence of a failure after which the VM is not started again.
    pub(crate) safe_state: SafeState,
    /// Doorbell that is rung when the VM ends by itself.
    pub(crate) tells: Option<u32>,
    /// Doorbell that is the VM's power button.
    pub(crate) power_button: Option<u32>,
    /// Whether this VM must never stay stopped: people reach Gear2 only through it.
    pub(crate) must_run: bool,
    /// Longest time without a heartbeat of the device model in this VM, or without a refresh of a
    /// guest's watchdog, in ticks; 0: no limit.
    pub(crate) watchdog: u64,
    /// Most ticks for which a guest's vCPU may run without an exit of its own; 0: no limit.
    pub(crate) progress: u64,
    /// Aborted accesses of its devices after which the VM ends as after a fault; 0: no limit.
    pub(crate) dma_fault_limit: u64,
    /// Whether Gear2 starts the VM at boot.
    pub(crate) autostart: bool,
    /// Rank at boot: VMs with a smaller one start earlier.
    pub(crate) boot_order: u32,
    /// Whether Gear2 schedules the VM. Gear1 runs the others, the real-time VMs; Gear2 may start
    /// and stop them.
    pub(crate) scheduled: bool,
    /// CPUs that the VM's vCPUs may be on.
    pub(crate) affinity: CpuSet,
    /// Guest address (IPA) and interrupt of the watchdog that Gear2 emulates for the VM.
    pub(crate) watchdog_device: Option<WatchdogDevice>,
    /// Whether the VM has performance monitors.
    pub(crate) has_pmu: bool,
    /// Real-time clock, if the VM has one.
    pub(crate) rtc: Option<Rtc>,
    /// Virtio devices, if the VM has any.
    pub(crate) virtio: Option<VirtioPage>,
    /// Range of the VM's vCPUs, with the parked vCPUs that Gear2 does not schedule.
    pub(crate) vcpus: Range<usize>,
}

/// Returns device and register offset of an access to a real-time clock. A PL031 takes words alone
/// (Arm DDI 0224, 3.1).
fn locate_rtc(rtc: Option<Rtc>, access: Mmio) -> Option<(u32, u32)> {
    let offset = access.ipa.checked_sub(rtc?.ipa)?;
    let is_word = access.size_log2 == 2 && offset.is_multiple_of(4);
    let register = u32::try_from(offset).ok()?;
    (offset < PAGE_BYTES && is_word).then_some((RTC_DEVICE, register))
}

impl Config {
    /// Reads the manifest in `blob` for the machine that `info` describes.
    pub fn new(info: &Gear2Info, blob: &[u8]) -> Result<Self, StartError> {
        check_abi(info)?;
        let config = Self::read(info, blob)?;
        config.check_plans()?;
        Ok(config)
    }

    // The function has a frame of its own, which is gone when policies are made: the manifest and a
    // policy are large, and the stack is small.
    #[inline(never)]
    fn read(info: &Gear2Info, blob: &[u8]) -> Result<Self, StartError> {
        // In the heap: on the stack the manifest left 208 bytes to the deepest rule.
        let mut manifest = Box::new(Manifest::EMPTY);
        let mut reasons = Vec::new();
        let mut sink = |error: ManifestError<'_>| reasons.push(error.to_string());
        let read = gearv_manifest::read_into(&mut manifest, blob, &mut sink);
        read.map_err(|_| StartError::Manifest(reasons.join("; ")))?;
        Self::from_manifest(info, &manifest)
    }

    pub(crate) fn from_manifest(
        info: &Gear2Info,
        manifest: &Manifest<'_>,
    ) -> Result<Self, StartError> {
        check_schedule(info, manifest)?;
        let counter_hz = u64::from(info.counter_hz);
        let vms = manifest.vms.iter();
        let vms = vms.map(|vm| VmConfig::new(info, manifest, vm));
        let mut config = Self {
            cpus: cpu_set(info.cpu_mask),
            clusters: info.cluster,
            counter_hz,
            uart_intid: info.uart_intid,
            smmu_intid: info.smmu_intid,
            trace_from_boot: manifest.gear2.trace_from_boot,
            rings: Vec::new(),
            default_pool: PoolConfig::new(info, manifest, None),
            pools: (0..manifest.pools.len())
                .map(|pool| PoolConfig::new(info, manifest, Some(pool)))
                .collect(),
            vms: vms.collect(),
            device_vm: manifest.device_vm().map(|vm| vm.id),
            boot_order_timeout: u64::from(manifest.gear2.boot_order_timeout_ms) * counter_hz / 1000,
            vcpus: [None; MAX_VCPUS],
        };
        // Identifiers that Gear1 gives would name other VMs here.
        if usize::try_from(info.vm_count) != Ok(config.vms.len()) {
            return Err(StartError::Disagreement(config.vms.len()));
        }
        for vm in manifest.vms.iter().filter(|vm| vm.kind != VmKind::RealTime) {
            config.place(info, manifest, vm)?;
        }
        Ok(config)
    }

    /// Checks that the policy of each CPU takes the vCPUs that start there.
    #[inline(never)]
    fn check_plans(&self) -> Result<(), StartError> {
        for cpu in self.cpus.iter() {
            // A policy of its own, which is dropped again: nothing has started when one refuses.
            let mut policy = self.pool(cpu).make_policy();
            for (vcpu, place) in self.vcpus().filter(|(_, place)| place.cpu == cpu) {
                let taken = policy.add(vcpu, &self.share(place.vm), 0);
                taken.map_err(|why| StartError::Plan(cpu.index(), why))?;
            }
        }
        Ok(())
    }

    /// Gives each vCPU of a VM its CPU, which Gear1 knows as the vCPU's owner CPU from the
    /// manifest.
    fn place(
        &mut self,
        info: &Gear2Info,
        manifest: &Manifest<'_>,
        vm: &Vm<'_>,
    ) -> Result<(), StartError> {
        let wrong = || StartError::Disagreement(vm.id.index());
        let place = vm.id.index();
        if usize::from(info.vcpu_count[place]) != vm.vcpu_count {
            return Err(wrong());
        }
        let cpu_count = usize::try_from(info.cpu_count).unwrap_or(usize::MAX);
        for index in 0..vm.vcpu_count {
            let cpu = manifest.start_cpu(vm, index, cpu_count).ok_or_else(wrong)?;
            // Identifiers of vCPUs count through all VMs, as init has given them.
            let vcpu = usize::from(info.first_vcpu[place]) + index;
            let slot = self.vcpus.get_mut(vcpu).ok_or_else(wrong)?;
            // A vCPU on a CPU without a loop would never run.
            if !self.cpus.contains(cpu) {
                return Err(wrong());
            }
            *slot = Some(VcpuConfig {
                vm: vm.id,
                index,
                cpu,
            });
        }
        Ok(())
    }

    /// Iterates over the vCPUs that are scheduled.
    pub(crate) fn vcpus(&self) -> impl Iterator<Item = (VcpuId, VcpuConfig)> {
        (0..MAX_VCPUS).filter_map(|index| Some((VcpuId::new(index)?, self.vcpus[index]?)))
    }

    /// Returns the real-time VM whose vCPU this is.
    pub(crate) fn real_time_vm(&self, vcpu: VcpuId) -> Option<&VmConfig> {
        let mut vms = self.vms.iter().filter(|vm| !vm.scheduled);
        vms.find(|vm| vm.vcpus.contains(&vcpu.index()))
    }

    /// Returns VM and CPU of a vCPU, if Gear2 schedules it.
    pub(crate) const fn vcpu(&self, vcpu: VcpuId) -> Option<VcpuConfig> {
        self.vcpus[vcpu.index()]
    }

    /// Returns the number of all VMs' vCPUs.
    pub(crate) fn vcpu_count(&self) -> usize {
        self.vms.iter().map(|vm| vm.vcpus.end).max().unwrap_or(0)
    }

    /// Returns a VM of the manifest.
    pub(crate) fn vm(&self, vm: VmId) -> Option<&VmConfig> {
        self.vms.get(vm.index())
    }

    /// Returns the scheduling parameters of a VM.
    pub(crate) fn share(&self, vm: VmId) -> Share {
        self.vm(vm).map_or(Share::of(vm), |vm| vm.share)
    }

    /// Returns the pool that a CPU is in.
    pub(crate) fn pool(&self, cpu: CpuIndex) -> &PoolConfig {
        let mut pools = self.pools.iter();
        let pool = pools.find(|pool| pool.cpus.contains(cpu));
        pool.unwrap_or(&self.default_pool)
    }

    /// Returns the place of a CPU's pool among those that have CPUs.
    pub(crate) fn pool_place(&self, cpu: CpuIndex) -> usize {
        let place = self.pools().position(|pool| pool.cpus.contains(cpu));
        place.unwrap_or(usize::MAX)
    }

    /// Returns the place of the pool that the manifest has a VM in.
    pub(crate) fn home_pool(&self, vm: VmId) -> usize {
        let first = self.vcpus().find(|(_, vcpu)| vcpu.vm == vm);
        first.map_or(usize::MAX, |(_, vcpu)| self.pool_place(vcpu.cpu))
    }

    /// Tells whether two CPUs are of one cluster.
    pub(crate) fn are_near(&self, one: CpuIndex, other: CpuIndex) -> bool {
        self.clusters[one.index()] == self.clusters[other.index()]
    }

    /// Returns the schedulers as text: one name, or those of the pools with their CPUs.
    pub(crate) fn schedulers(&self) -> String {
        let mut pools = self.pools();
        if let (Some(pool), None) = (pools.next(), pools.next()) {
            return format!("scheduler {}", pool.policy.name);
        }
        let text = self.pools().map(|pool| {
            let plural = if pool.cpus.len() == 1 { "" } else { "s" };
            let cpus = pool.cpus.iter();
            let cpus: String = cpus.map(|cpu| format!(" {}", cpu.index())).collect();
            let name = match pool.name == self.default_pool.name {
                true => String::new(),
                false => format!(" ({})", pool.name),
            };
            format!("{} on CPU{plural}{cpus}{name}", pool.policy.name)
        });
        format!("schedulers {}", text.collect::<Vec<_>>().join(", "))
    }

    /// Iterates over the pools that have CPUs.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &PoolConfig> {
        let all = core::iter::once(&self.default_pool).chain(&self.pools);
        all.filter(|pool| !pool.cpus.is_empty())
    }

    /// Returns the number of ticks in `microseconds`.
    pub(crate) const fn ticks(&self, microseconds: u64) -> u64 {
        ticks(self.counter_hz, microseconds)
    }
}

/// Checks what is scheduled where, by the rules of `cargo xtask check`.
fn check_schedule(info: &Gear2Info, manifest: &Manifest<'_>) -> Result<(), StartError> {
    let cpu_count = usize::try_from(info.cpu_count).unwrap_or(usize::MAX);
    let mut reasons = Vec::new();
    let mut sink = |error: ManifestError<'_>| reasons.push(error.to_string());
    let judged = gearv_manifest::judge_scheduling(manifest, cpu_count, &mut sink);
    judged.map_err(|_| StartError::Manifest(reasons.join("; ")))
}

impl PoolConfig {
    /// Returns what Gear2 knows of a pool. Times of the manifest become ticks here, once.
    fn new(info: &Gear2Info, manifest: &Manifest<'_>, pool: Option<usize>) -> Self {
        let counter_hz = u64::from(info.counter_hz);
        let policy = manifest.policy_of(pool);
        let named = pool.and_then(|index| manifest.pools.get(index));
        let cpu_count = usize::try_from(info.cpu_count).unwrap_or(usize::MAX);
        let cpus = cpu_set(info.cpu_mask).iter();
        let all = manifest.pool_cpus(pool, cpu_count);
        let mut windows: Vec<Window> = manifest
            .windows_of(pool)
            .map(|one| window(manifest, one, counter_hz))
            .collect();
        // A manifest names windows in any order, and [`Plan::windows`] has them by time.
        windows.sort_unstable_by_key(|window| window.start);
        Self {
            name: named.map_or("default", |pool| pool.name).into(),
            cpus: cpus
                .filter(|cpu| all.contains(*cpu))
                .fold(CpuSet::EMPTY, CpuSet::with),
            policy: PolicyKind::of(policy.scheduler),
            plan: Plan {
                slice: ticks(counter_hz, policy.slice_us().into()),
                ceiling: ticks(counter_hz, policy.ceiling_us.into()),
                frame: ticks(counter_hz, policy.frame_us.into()),
                windows,
                admission: Admission {
                    counter_hz,
                    switch_ns: limits::SWITCH_NS,
                    supply: gearv_manifest::supply_of(manifest, pool).unwrap_or(Supply::WHOLE),
                },
            },
            balancer: balancer::of(policy.balancer),
        }
    }

    /// Makes the policy of one of the CPUs, without vCPUs.
    pub(crate) fn make_policy(&self) -> Box<dyn Policy> {
        (self.policy.make)(&self.plan)
    }
}

/// Returns a window with its times in ticks. The length is the difference of the ends, so that
/// windows that touch in the manifest touch, and none reaches into the next.
fn window(manifest: &Manifest<'_>, window: &gearv_manifest::Window<'_>, counter_hz: u64) -> Window {
    let start = ticks(counter_hz, window.start_us.into());
    // The rules have found that each name is one of a VM.
    let named = |name| manifest.vms.iter().find(|vm| vm.name == name);
    Window {
        start,
        length: ticks(counter_hz, window.end_us()) - start,
        vm: window.vm.and_then(named).map(|vm| vm.id),
    }
}

impl VmConfig {
    /// Returns device and register offset of an access that the device model performs, `None` if
    /// no device of the VM's is there or the access is not aligned.
    #[inline]
    pub(crate) fn locate(&self, access: Mmio) -> Option<(u32, u32)> {
        let virtio = self.virtio.as_ref().and_then(|page| page.locate(access));
        virtio.or_else(|| locate_rtc(self.rtc, access))
    }

    /// Tells whether Gear2 looks from time to time whether the guest hangs.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watchdog_device.is_some() || self.progress != 0
    }

    /// Returns what Gear2 knows of a VM. Times of the manifest become ticks here, once.
    fn new(info: &Gear2Info, manifest: &Manifest<'_>, vm: &Vm<'_>) -> Self {
        let scheduled = vm.kind != VmKind::RealTime;
        let cpu_count = usize::try_from(info.cpu_count).unwrap_or(usize::MAX);
        let first = usize::from(info.first_vcpu[vm.id.index()]);
        let ticks = |ms: u32| u64::from(ms) * u64::from(info.counter_hz) / 1000;
        Self {
            id: vm.id,
            name: vm.name.into(),
            console: vm.console,
            may_power_off: vm.may_power_off,
            dump: vm.dump,
            restart: vm.restart,
            share: share(vm, info.counter_hz.into()),
            restarts: RestartPolicy {
                limit: vm.restart_limit.limit,
                window: ticks(vm.restart_limit.window_ms),
                backoff: ticks(vm.restart_limit.backoff_ms),
            },
            safe_state: SafeState::new(manifest, vm),
            tells: vm.tells.and_then(|name| doorbell_named(manifest, name)),
            power_button: manifest
                .power_button_of(vm)
                .and_then(|place| u32::try_from(place).ok()),
            // `Machine::new` decides, which knows whether Gear2 has a console.
            must_run: false,
            watchdog: ticks(vm.watchdog_ms),
            progress: if vm.kind == VmKind::Guest {
                ticks(vm.progress_ms)
            } else {
                0
            },
            dma_fault_limit: vm.dma_fault_limit.into(),
            // Gear1 starts real-time VMs with the machine.
            autostart: vm.autostart && scheduled,
            boot_order: vm.boot_order,
            scheduled,
            affinity: manifest.cpus_of(vm, cpu_count),
            watchdog_device: vm.watchdog(),
            has_pmu: vm.pmu,
            rtc: vm.rtc,
            virtio: VirtioPage::new(manifest, vm),
            vcpus: first..first + vm.vcpu_count,
        }
    }
}

/// Returns the number of a channel among all, by which Gear1 knows its doorbell.
fn doorbell_named(manifest: &Manifest<'_>, name: &str) -> Option<u32> {
    let mut channels = manifest.channels.iter();
    let place = channels.position(|channel| channel.name == name)?;
    u32::try_from(place).ok()
}

/// Returns the parameters of a VM, with its times in ticks.
fn share(vm: &Vm<'_>, counter_hz: u64) -> Share {
    let parameters = &vm.parameters;
    let period = ticks(counter_hz, parameters.period_us().into());
    // A cap is a budget, of the same period: policies count ticks, and know no percent.
    let cap = parameters.cap_percent.map(|percent| Budget {
        ticks: period * u64::from(percent) / 100,
        period,
    });
    let server = parameters.server().map(|server| Budget {
        ticks: ticks(counter_hz, server.budget_us.into()),
        period,
    });
    Share {
        vm: vm.id,
        weight: parameters.weight().into(),
        cap,
        server,
        priority: u8::try_from(parameters.priority()).unwrap_or(u8::MAX),
        latency: ticks(counter_hz, parameters.latency_us.unwrap_or(0).into()),
        needed: vm.kind == VmKind::Device,
    }
}

/// Returns the number of ticks in `microseconds`.
const fn ticks(counter_hz: u64, microseconds: u64) -> u64 {
    microseconds.saturating_mul(counter_hz) / 1_000_000
}

/// Returns the CPUs of a mask, a bit each.
fn cpu_set(mask: u64) -> CpuSet {
    let all = CpuSet::first(MAX_CPUS);
    all.iter()
        .filter(|cpu| mask >> cpu.index() & 1 != 0)
        .fold(CpuSet::EMPTY, CpuSet::with)
}
