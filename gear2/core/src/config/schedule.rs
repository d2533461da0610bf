//! Schedules of the CPUs, for programs on the host.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::ABI_VERSION;
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VMS, VcpuId};
use gear1_abi::info::{Gear2Info, INFO_MAGIC, uart};
use gearv_manifest::Manifest;

use super::{Config, StartError};
use crate::scheduler::{Plan, PolicyKind, Share};

/// Schedule of one CPU.
#[derive(Clone, Debug)]
pub struct CpuSchedule {
    /// The CPU.
    pub cpu: CpuIndex,
    /// Policy of the CPU.
    pub policy: &'static PolicyKind,
    /// Plan that the policy is made from.
    pub plan: Plan,
    /// vCPUs that start there.
    pub vcpus: Vec<VcpuSchedule>,
}

/// A vCPU and its parameters.
#[derive(Clone, Debug)]
pub struct VcpuSchedule {
    /// The vCPU.
    pub vcpu: VcpuId,
    /// Name of its VM.
    pub vm: String,
    /// Index in its VM.
    pub index: usize,
    /// Number of vCPUs of its VM.
    pub siblings: usize,
    /// Parameters for the policy.
    pub share: Share,
}

impl Config {
    /// Reads the manifest in `blob` for a machine with so many CPUs and such a counter.
    pub fn of_blob(blob: &[u8], cpu_count: usize, counter_hz: u32) -> Result<Self, StartError> {
        let mut reasons = Vec::new();
        let manifest = gearv_manifest::read(blob, &mut |error| reasons.push(error.to_string()));
        let manifest = manifest.map_err(|_| StartError::Manifest(reasons.join("; ")))?;
        // The way of `Config::new`, so that a simulation places and counts exactly as Gear2 does.
        Self::from_manifest(&info(&manifest, cpu_count, counter_hz), &manifest)
    }

    /// Returns what each of Gear2's CPUs schedules.
    #[must_use]
    pub fn schedule(&self) -> Vec<CpuSchedule> {
        self.cpus.iter().map(|cpu| self.schedule_of(cpu)).collect()
    }

    fn schedule_of(&self, cpu: CpuIndex) -> CpuSchedule {
        let vcpus = self.vcpus().filter(|(_, place)| place.cpu == cpu);
        let vcpus = vcpus.filter_map(|(vcpu, place)| {
            let vm = self.vm(place.vm)?;
            Some(VcpuSchedule {
                vcpu,
                vm: vm.name.clone(),
                index: place.index,
                siblings: vm.vcpus.len(),
                share: self.share(place.vm),
            })
        });
        CpuSchedule {
            cpu,
            policy: self.pool(cpu).policy,
            plan: self.pool(cpu).plan.clone(),
            vcpus: vcpus.collect(),
        }
    }
}

/// Describes a machine as Gear1's init does: vCPUs are counted through all VMs in the manifest's
/// order.
fn info(manifest: &Manifest<'_>, cpu_count: usize, counter_hz: u32) -> Gear2Info {
    // UART, device model, MPIDRs and clusters stay empty: no schedule depends on them.
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut info = Gear2Info {
        magic: INFO_MAGIC,
        abi_version: ABI_VERSION,
        cpu_count: number(cpu_count),
        vm_count: number(manifest.vms.len()),
        counter_hz,
        manifest_size: 0,
        heap_size: manifest.gear2.memory_bytes,
        uart_kind: uart::NONE,
        uart_intid: 0,
        shared_size: 0,
        cpu_mask: manifest.gear2_cpus(cpu_count).mask(),
        mpidr: [0; MAX_CPUS],
        cluster: [0; MAX_CPUS],
        first_vcpu: [0; MAX_VMS],
        vcpu_count: [0; MAX_VMS],
        register_pages: 0,
        smmu_intid: 0,
        trace_size: 0,
    };
    let mut next = 0;
    let slots = info.first_vcpu.iter_mut().zip(&mut info.vcpu_count);
    for ((first, count), vm) in slots.zip(manifest.vms.iter()) {
        *first = next;
        *count = u16::try_from(vm.vcpu_count).unwrap_or(u16::MAX);
        next = next.saturating_add(*count);
    }
    info
}
