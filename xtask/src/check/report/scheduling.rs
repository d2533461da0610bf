//! Scheduling in a report: the pools with their VMs, windows, and the parts of their CPUs.

use std::fmt::Write as _;

use gearv_manifest::{CpuIndex, Manifest, Scheduler, Vm, VmKind};

use super::{Owner, Report};

/// CPUs with one scheduler. The pool of all other CPUs is shown like a named one, since its VMs are
/// scheduled alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) struct Pool {
    /// Name, CPUs, scheduler and times, in one line.
    pub(in crate::check) title: String,
    /// VMs of the pool with their parameters.
    pub(in crate::check) vms: Vec<String>,
    /// Length of the major frame; 0 where the scheduler has none.
    pub(in crate::check) frame_us: u32,
    /// In the order of time.
    pub(in crate::check) windows: Vec<Window>,
    /// Parts of each CPU that has some.
    pub(in crate::check) cpus: Vec<(String, Vec<Part>)>,
}

/// A window of a major frame. ARINC 653's term for the time that a partition has to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) struct Window {
    /// The VM; `None`: those without a window.
    pub(in crate::check) owner: Option<Owner>,
    /// The window's name in the manifest.
    pub(in crate::check) what: String,
    /// From the beginning of the frame, as in the manifest.
    pub(in crate::check) start_us: u64,
    /// 64 bits: the sum of two numbers that a rule may have refused.
    pub(in crate::check) end_us: u64,
}

/// A part of a CPU. Parts of a CPU add up to the whole, whatever the scheduler, so that a bar can
/// show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) struct Part {
    pub(in crate::check) owner: Owner,
    /// Where the size comes from: a weight, a budget, or what is left.
    pub(in crate::check) what: String,
    /// Size in millionths.
    pub(in crate::check) ppm: u64,
}

/// Returns the pools that have CPUs, those of no pool first. A pool without a CPU on this board has
/// an error of its own and no line.
pub(super) fn pools(manifest: &Manifest<'_>, cpu_count: usize) -> Vec<Pool> {
    let all = [None]
        .into_iter()
        .chain((0..manifest.pools.len()).map(Some));
    let there = all.filter(|pool| !manifest.pool_cpus(*pool, cpu_count).is_empty());
    there.map(|pool| make(manifest, pool, cpu_count)).collect()
}

/// VMs of real-time are in no pool, as Gear2 does not schedule them. CPUs without a part, as of a
/// policy that promises nothing, have no line.
fn make(manifest: &Manifest<'_>, pool: Option<usize>, cpu_count: usize) -> Pool {
    let cpus = manifest.pool_cpus(pool, cpu_count);
    let vms = manifest.vms.iter().filter(|vm| vm.kind != VmKind::RealTime);
    let vms: Vec<_> = vms.filter(|vm| manifest.pool_of(vm) == pool).collect();
    let parts = cpus.iter().map(|cpu| {
        let parts = parts_of(manifest, cpu, cpu_count);
        (format!("CPU {}", cpu.index()), parts)
    });
    Pool {
        title: title(manifest, pool, cpu_count),
        vms: vms.iter().map(|vm| parameters(vm)).collect(),
        frame_us: manifest.policy_of(pool).frame_us,
        windows: windows(manifest, pool),
        cpus: parts.filter(|(_, parts)| !parts.is_empty()).collect(),
    }
}

/// Returns a pool's name, CPUs, scheduler and times. Times that the manifest leaves out are left
/// out here too, but for a slice: that has a default.
fn title(manifest: &Manifest<'_>, pool: Option<usize>, cpu_count: usize) -> String {
    let policy = manifest.policy_of(pool);
    let named = pool.and_then(|index| manifest.pools.get(index));
    let name = named.map_or("default", |pool| pool.name);
    let cpus = manifest.pool_cpus(pool, cpu_count);
    let plural = if cpus.len() == 1 { "" } else { "s" };
    let list: String = cpus.iter().map(|cpu| format!(" {}", cpu.index())).collect();
    let mut title = format!("{name} on CPU{plural}{list}: {}", policy.scheduler.name());
    let slice = Some(policy.slice_us()).filter(|_| policy.scheduler != Scheduler::Null);
    let given = |us: u32| Some(us).filter(|us| *us != 0);
    let times = [
        ("slice", slice),
        ("ceiling", given(policy.ceiling_us)),
        ("frame", given(policy.frame_us)),
    ];
    for (what, us) in times {
        if let Some(us) = us {
            write!(title, ", {what} {us} us").expect("a String takes all");
        }
    }
    title
}

/// Returns a VM's name and the parameters that the manifest gives it. Only what is given: a default
/// says nothing about the author's wishes. The words are the manifest's own, to be searched for
/// there.
fn parameters(vm: &Vm<'_>) -> String {
    let named = vm.parameters.named();
    let named: String = named
        .map(|(name, value)| format!("  {name} {value}"))
        .collect();
    format!("{}{named}", vm.name)
}

/// Returns the windows of a pool in the order of time. The manifest may list windows in any order,
/// and Gear2 sorts them in the same way.
fn windows(manifest: &Manifest<'_>, pool: Option<usize>) -> Vec<Window> {
    let owner = |name| {
        let vm = manifest.vms.iter().find(|vm| vm.name == name);
        vm.map(|vm| Owner::Vm(vm.id.index()))
    };
    let mut list: Vec<Window> = manifest
        .windows_of(pool)
        .map(|window| Window {
            owner: window.vm.and_then(owner),
            what: window.name.to_owned(),
            start_us: window.start_us.into(),
            end_us: window.end_us(),
        })
        .collect();
    list.sort_by_key(|window| window.start_us);
    list
}

/// Returns the parts of a CPU: budgets with what is left, or the weights of spinners. vCPUs count
/// where they start. A balancer or a person may move them later, and admission judges again then.
fn parts_of(manifest: &Manifest<'_>, cpu: CpuIndex, cpu_count: usize) -> Vec<Part> {
    let starts = |vm: &Vm<'_>, vcpu| manifest.start_cpu(vm, vcpu, cpu_count) == Some(cpu);
    let here: Vec<_> = manifest
        .vms
        .iter()
        .flat_map(|vm| (0..vm.vcpu_count).map(move |vcpu| (vm, vcpu)))
        .filter(|(vm, vcpu)| starts(vm, *vcpu))
        .map(|(vm, _)| vm)
        .collect();
    match manifest.policy_of(manifest.pool_of_cpu(cpu)).scheduler {
        Scheduler::Fair | Scheduler::Bvt => weights(&here),
        _ => budgets(manifest, cpu, cpu_count, &here),
    }
}

/// Returns what each vCPU gets while all compute, by weight. Everybody computes: the worst case for
/// a VM, and the only one in which weights decide.
fn weights(here: &[&Vm<'_>]) -> Vec<Part> {
    let all: u64 = here
        .iter()
        .map(|vm| u64::from(vm.parameters.weight()))
        .sum();
    let part = |vm: &&Vm<'_>| {
        let weight = vm.parameters.weight();
        Part {
            owner: Owner::Vm(vm.id.index()),
            what: format!("(weight {weight})"),
            ppm: u64::from(weight) * 1_000_000 / all.max(1),
        }
    };
    here.iter().map(part).collect()
}

/// Returns the part of a CPU that the budget of a VM's vCPU takes, if the scheduler reads it. Only
/// the schedulers that keep budgets have servers; elsewhere the property is read by nobody.
fn server(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<Part> {
    let server = gearv_manifest::server_of(manifest, vm)?;
    let (budget_us, period_us) = (server.budget_us, server.period_us);
    Some(Part {
        owner: Owner::Vm(vm.id.index()),
        what: format!("({budget_us} us in each {period_us} us)"),
        ppm: u64::from(budget_us) * 1_000_000 / u64::from(period_us.max(1)),
    })
}

/// Returns the budgets on a CPU, the switches, and what is left. The sum is the one that admission
/// judges by (`rules/scheduling/load.rs`), so that a report never shows room that a rule would
/// refuse.
fn budgets(
    manifest: &Manifest<'_>,
    cpu: CpuIndex,
    cpu_count: usize,
    here: &[&Vm<'_>],
) -> Vec<Part> {
    let Some(load) = gearv_manifest::load_on(manifest, cpu, cpu_count) else {
        return Vec::new();
    };
    let servers = here.iter().filter_map(|vm| server(manifest, vm));
    let mut parts: Vec<Part> = servers.collect();
    let taken: u64 = parts.iter().map(|part| part.ppm).sum();
    let rest = |owner, what: &str, ppm| Part {
        owner,
        what: what.to_owned(),
        ppm,
    };
    parts.push(rest(Owner::Gear2, "(switches)", load.switches_ppm));
    let windowed = 1_000_000 - load.there_ppm.min(1_000_000);
    if windowed != 0 {
        let what = "(windows of VMs, and gaps)";
        parts.push(rest(Owner::Firmware, what, windowed));
    }
    let left = 1_000_000_u64.saturating_sub(taken + load.switches_ppm + windowed);
    parts.push(rest(Owner::Nobody, "(left for VMs without a budget)", left));
    parts
}

impl Report {
    /// Returns the rows of the pools. One line a window, with its times first: a frame reads as a
    /// timetable.
    pub(super) fn pool_rows(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            text += &format!("  {}\n", pool.title);
            text.extend(pool.vms.iter().map(|vm| format!("    {vm}\n")));
            for window in &pool.windows {
                let (start, end) = (window.start_us, window.end_us);
                let label = self.window_label(window);
                text += &format!("  {start:>8} us {end:>8} us  {label}\n");
            }
            for (cpu, parts) in &pool.cpus {
                let parts = parts.iter().map(|part| self.part_label(part));
                text += &format!("    {cpu}: {}\n", parts.collect::<Vec<_>>().join(", "));
            }
        }
        text
    }

    /// Returns the VM of a window, and the window's name. A window without a VM is for all that
    /// have none.
    pub(in crate::check) fn window_label(&self, window: &Window) -> String {
        let owner = window.owner.map(|owner| self.owner(owner));
        let owner = owner.unwrap_or("VMs without a window");
        format!("{owner}: {}", window.what)
    }

    /// Returns the owner and the size of a part. Hundredths of a percent, cut: a switch is a few of
    /// these.
    pub(in crate::check) fn part_label(&self, part: &Part) -> String {
        let (whole, rest) = (part.ppm / 10_000, part.ppm / 100 % 100);
        // What is no VM's is named by what it is.
        let owner = match part.owner {
            Owner::Vm(_) => format!("{} ", self.owner(part.owner)),
            _ => String::new(),
        };
        format!("{owner}{whole}.{rest:02} % {}", part.what)
    }
}
