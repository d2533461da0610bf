//! All cases under KVM: one host, whose script runs them one after the other.
//!
//! A host boots Debian once for all its cases. Each VM is a process of `kvm-vmm` in the background
//! of the script, and each run ends with a line that names its number.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;

use super::case::Case;
use super::guest::{self, Report};
use super::vm::{Run, Vm};
use crate::bench::column::{ensure_holds, log};
use crate::kvm_host::KvmHost;

/// The CPU of all systems. The plain algorithm of pointer authentication takes as many instructions
/// of the guest's, and many times as few of QEMU's.
pub(super) const CPU: &str = "max,pauth-impdef=on,cntfrq=1000000000";
/// Longest turn of a CPU of QEMU's, where there are two: short beside the turns of vCPUs.
pub(super) const TURN_US: u32 = 10;
/// Longest time of a run, on an idle machine. The first one includes the host's boot.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Memory of a VM, and what the host needs for five of them.
const MEMORY_MIB: u32 = 16;
const VMS_MIB: u32 = 128;

/// The script's functions. The start of a measurement is two seconds ahead of the host's uptime, so
/// that all VMs have booted. One of the two is the digit before the hundredths, without which the
/// shell would read `08` as octal. A cgroup is removed after each run, so that no weight or cap
/// lasts into the next one.
const FUNCTIONS: &str = "#!/bin/sh
gic=$1
groups=/sys/fs/cgroup
mount -t cgroup2 none $groups
echo +cpu > $groups/cgroup.subtree_control
begin() {
    read -r up idle < /proc/uptime
    start=$(( ${up%.*} * 1000 + 1${up#*.} * 10 + 1000 ))
    echo \"CASE $1 start_ms=$start\"
}
group() {
    mkdir -p $groups/vm$1
    echo \"$3\" > $groups/vm$1/$2
    echo 0 > $groups/vm$1/cgroup.procs
}
end() {
    wait
    for vm in $groups/vm*; do
        if [ -d $vm ]; then rmdir $vm; fi
    done
    echo \"CASE $1 ended\"
}
";

/// A host that runs the cases in their order. Cases and the host's script have one order, and the
/// number of a run is all that ties them.
pub(super) struct Host {
    session: Session,
    /// Number of runs that have ended.
    ended: usize,
}

impl Host {
    /// Starts a host with so many CPUs that runs these cases. Halt polling is off, as a thread that
    /// polls takes time from the vCPUs beside it.
    pub(super) fn start(qemu: &Qemu, guest: &Path, cpus: u32, cases: &[&Case]) -> Result<Host> {
        let host = KvmHost {
            kernel: guest.to_owned(),
            memory_mib: VMS_MIB,
            cpus: vec![0],
            halt_poll_ns: Some(0),
            script: Some(script(cases)?),
            ..KvmHost::default()
        };
        let host = host.build(&workspace::output_dir().join(format!("kvm-sched-{cpus}")))?;
        ensure_holds(host.initramfs(), guest)?;
        let machine = Machine {
            cpu: CPU.to_owned(),
            cpus,
            icount: true,
            turn_us: (cpus > 1).then_some(TURN_US),
            ..Machine::default()
        };
        let session = host.start(qemu, &machine, &log(&format!("sched-kvm-{cpus}")))?;
        Ok(Host { session, ended: 0 })
    }

    /// Waits for the next case, which must be this one, and returns the reports of each run.
    pub(super) fn measure(&mut self, case: &Case) -> Result<Vec<Vec<Report>>> {
        case.runs.iter().map(|run| self.wait(run)).collect()
    }

    /// Waits for the end of the next run and reads its reports. A run that the host never ends is
    /// an error after the timeout, with the console's last lines.
    fn wait(&mut self, run: &Run) -> Result<Vec<Report>> {
        let end = format!("CASE {} ended\n", self.ended);
        let printed = self.session.expect(&end, TIMEOUT);
        let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", self.session.tail(20)))?;
        self.ended += 1;
        let mut reports = guest::reports(run, &printed)?;
        from_release(&mut reports, &printed);
        Ok(reports)
    }
}

/// Counts the times of traced runs from the time at which all threads had been allowed all CPUs, if
/// that was printed: `FREED at=<ns>` of the counter whose `start_ms` the guests had as their start.
fn from_release(reports: &mut [Report], printed: &str) {
    let values = |word: &str, name: &str| -> Vec<u64> {
        let lines = printed.lines().filter(|line| line.starts_with(word));
        lines
            .filter_map(|line| guest::figures(line).get(name).copied())
            .collect()
    };
    let freed = values("FREED", "at").into_iter().max();
    let Some((freed, start_ms)) = freed.zip(values("CASE", "start_ms").pop()) else {
        return;
    };
    let release = freed.saturating_sub(start_ms * 1_000_000);
    for report in reports {
        report.runs.retain(|[_, end]| *end > release);
        for run in &mut report.runs {
            *run = run.map(|at| at.saturating_sub(release));
        }
    }
}

/// Returns the script that runs the cases. Runs are numbered over all cases, as [`Host::measure`]
/// counts them.
fn script(cases: &[&Case]) -> Result<String> {
    let mut text = FUNCTIONS.to_owned();
    let runs = cases.iter().flat_map(|case| &case.runs);
    for (number, run) in runs.enumerate() {
        writeln!(text, "begin {number}").context("a string")?;
        for (id, vm) in run.vms.iter().enumerate() {
            text += &command(id, vm, run.ms);
        }
        writeln!(text, "end {number}").context("a string")?;
    }
    Ok(text)
}

/// Returns the line that starts a VM in the background, in its cgroup if it has one. The thread of
/// each vCPU is pinned to CPU 0 at first: the cases with two CPUs release the threads with the
/// option `free`.
fn command(id: usize, vm: &Vm, ms: u64) -> String {
    let group = vm.group.as_ref().map(|(file, value)| {
        let quoted = format!("\"{value}\"");
        format!("group {id} cpu.{file} {quoted}; ")
    });
    let (group, options) = (group.unwrap_or_default(), &vm.kvm);
    let cpus = vec!["0"; vm.vcpus].join(",");
    let command_line = vm.command_line(id, "$start", ms);
    format!(
        "( {group}exec kvm-vmm kernel=/guest/kernel memory={MEMORY_MIB} gic=$gic cpus={cpus} \"cmdline={command_line}\" {options} ) &\n"
    )
}

#[cfg(test)]
mod tests;
