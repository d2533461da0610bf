//! Schedules in virtual time: the policies of a manifest, run on this machine against loads.
//!
//! Owns what a simulation is made from and its figures. The policies, their parameters and the CPU
//! in virtual time are Gear2's own. A tick is a nanosecond, which is an instruction of a machine
//! that counts them (QEMU's `-icount shift=0`).

use anyhow::{Result, anyhow, ensure};
use gear2_core::Config;
use gear2_core::config::CpuSchedule;
use gear2_core::scheduler::virtual_cpu::{self, VirtualCpu};
pub use gear2_core::scheduler::virtual_cpu::{Costs, Way};

use crate::manifest::Aligned;
pub use figures::{CpuFigures, Figures, Spread, VcpuFigures};
pub use loads::{Kind, Loads};
pub use time::time;

mod figures;
mod loads;
pub mod picture;
mod recorded;
mod time;
pub mod trace_events;

/// Ticks of a second.
pub const HZ: u32 = 1_000_000_000;

/// Input of a simulation, beside the manifest.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Physical CPUs of the machine.
    pub cpu_count: usize,
    /// Loads of the vCPUs.
    pub loads: Loads,
    /// Costs of the gears.
    pub costs: Costs,
    /// Whether the costs are those of `round-robin`, and decisions of other policies take longer.
    pub by_policy: bool,
    /// Simulated time in ticks.
    pub length: u64,
    /// Source of all random numbers.
    pub seed: u64,
    /// Name of a policy for all CPUs, instead of the manifest's.
    pub policy: Option<String>,
}

/// A vCPU of a simulation.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Name: the VM's, with the vCPU's number if the VM has several.
    pub name: String,
    /// Number of the VM in the simulation.
    pub vm: usize,
    /// The load, as it was written.
    pub load: String,
}

/// A CPU after its simulation. Its tasks and the lanes have one order.
pub struct Simulated {
    /// Number of the CPU.
    pub cpu: usize,
    /// Name of its policy.
    pub policy: &'static str,
    /// vCPUs of the CPU.
    pub lanes: Vec<Lane>,
    /// Results of the vCPUs.
    pub virtual_cpu: VirtualCpu,
}

/// Simulates all CPUs that Gear2 has in a manifest, which is a device tree blob.
pub fn simulate(blob: &[u8], setup: &Setup) -> Result<Vec<Simulated>> {
    let blob = Aligned::new(blob);
    let config = Config::of_blob(blob.as_slice(), setup.cpu_count, HZ);
    let config = config.map_err(|why| anyhow!("{why}"))?;
    let schedule = config.schedule();
    let names: Vec<_> = schedule.iter().flat_map(|cpu| &cpu.vcpus).collect();
    setup.loads.check(&names)?;
    let cpus = schedule.iter().filter(|cpu| !cpu.vcpus.is_empty());
    cpus.map(|cpu| simulate_cpu(cpu, setup)).collect()
}

/// Simulates a CPU. Fails if the policy refuses a vCPU, or breaks its contract.
fn simulate_cpu(schedule: &CpuSchedule, setup: &Setup) -> Result<Simulated> {
    let number = schedule.cpu.index();
    let policy = match &setup.policy {
        None => schedule.policy,
        Some(name) => policy_named(name)?,
    };
    let made = (policy.make)(&schedule.plan);
    let longer = if setup.by_policy {
        decision(policy.name)
    } else {
        0
    };
    let costs = setup.costs.with_decision(longer);
    let mut virtual_cpu = VirtualCpu::new(made, costs, setup.seed);
    let mut lanes = Vec::new();
    for vcpu in &schedule.vcpus {
        let name = loads::name(vcpu);
        let (text, kind) = setup.loads.of(vcpu);
        let seed = setup.seed ^ (vcpu.vcpu.index() as u64 + 1) << 32;
        let added = virtual_cpu.add(vcpu.vcpu, &vcpu.share, kind.load(seed));
        added.map_err(|why| anyhow!("CPU {number}: {} takes no {name}: {why}", policy.name))?;
        lanes.push(Lane {
            name,
            vm: vcpu.share.vm.index(),
            load: text.to_owned(),
        });
    }
    let defect = |defect: virtual_cpu::Defect| {
        anyhow!(
            "CPU {number}: a defect of the policy {}: {defect}",
            policy.name
        )
    };
    virtual_cpu.run_until(setup.length).map_err(defect)?;
    Ok(Simulated {
        cpu: number,
        policy: policy.name,
        lanes,
        virtual_cpu,
    })
}

/// Returns a policy of Gear2; the error lists all names.
fn policy_named(name: &str) -> Result<&'static gear2_core::scheduler::PolicyKind> {
    let policy = gear2_core::scheduler::PolicyKind::named(name);
    let names = gear2_core::scheduler::POLICIES.iter().map(|kind| kind.name);
    policy.ok_or_else(|| {
        let names: Vec<_> = names.collect();
        anyhow!(
            "there is no policy {name:?}, there are: {}",
            names.join(", ")
        )
    })
}

/// Figures of the machine that counts instructions.
const BASELINE: &str = include_str!("../../../tests/bench-baseline.txt");

/// Ways through both gears under `round-robin`, in instructions of the CPU `max` with a GIC.
///
/// A trace of both gears under the parts `schedules` has them: from the exception to the guest's next
/// instruction, and up to the counter's reading in `leave_as_is`. Most of them occur there a hundred
/// times and have one length.
struct Ways {
    /// Entry, and way back to the same vCPU.
    end: [u64; 2],
    wake_up: [u64; 2],
    /// Entry.
    block: u64,
    /// Way to another vCPU: in the order above.
    others: [u64; 3],
    /// Delivery of an interrupt that has waited, and the exit that follows it.
    late: u64,
}

/// With a GICv2 and with a GICv3.
const WAYS: [Ways; 2] = [
    Ways {
        end: [223, 804],
        wake_up: [277, 969],
        block: 74,
        others: [1314, 1729, 958],
        late: 915,
    },
    Ways {
        end: [221, 804],
        wake_up: [275, 967],
        block: 73,
        others: [1317, 1728, 961],
        late: 900,
    },
];

/// Instructions of a decision beyond those of `round-robin`, in the mean of the three ways. `bvt` has
/// the queues of `fair`, and `null` none.
const DECISIONS: [(&str, u64); 5] = [
    ("priority", 85),
    ("edf", 100),
    ("arinc653", 100),
    ("fair", 205),
    ("bvt", 205),
];

/// Returns the instructions of a policy's decision beyond those of `round-robin`.
fn decision(policy: &str) -> u64 {
    let row = DECISIONS.iter().find(|(name, _)| *name == policy);
    row.map_or(0, |(_, longer)| *longer)
}

/// Returns what the gears take in instructions with a GIC, which is 2 or 3, under `round-robin`: by
/// the row `timer_wfi` of `tests/bench-baseline.txt`, and `WAYS`.
pub fn measured_costs(gic: u32) -> Result<Costs> {
    let row = |name: &str| -> Result<u64> {
        let start = format!("GearV EL0 max GICv{gic}: {name} ");
        let row = BASELINE.lines().find_map(|line| line.strip_prefix(&start));
        let figure = row.and_then(|figure| figure.trim().parse().ok());
        figure.ok_or_else(|| anyhow!("tests/bench-baseline.txt has no {start}"))
    };
    let ways = &WAYS[usize::from(gic == 3)];
    let [end, wake_up, block] = ways.others;
    let way = |[entry, same]: [u64; 2], other: u64| Way { entry, same, other };
    Ok(Costs {
        end: way(ways.end, end),
        wake_up: way(ways.wake_up, wake_up),
        block: way([ways.block, ways.end[1]], block),
        late: ways.late,
        wake: row("timer_wfi")?,
    })
}

/// Refuses a simulation that would take hours.
pub fn check_length(length: u64) -> Result<()> {
    let most = 1_000 * u64::from(HZ);
    ensure!(
        length > 0 && length <= most,
        "a simulation takes up to 1,000 seconds"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
