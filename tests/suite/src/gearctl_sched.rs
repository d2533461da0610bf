//! Figures of `gearctl top` and `gearctl sched` on schedules, on a machine whose figures are known
//! (`tests/manifests/gearctl-sched.dts`): two equal spinners on one CPU, a capped one on another. A
//! restart of Gear2 finds what `gearctl` changed.
//!
//! `bvt` and `null` run on the target here; the parts `schedules` and the example of pools have the
//! other policies.
//!
//! Figures are compared with each other, and not with the time of this host: how long a vCPU ran
//! and how long it waited come in one answer. A host that stops the machine for a while lengthens a
//! turn, which a policy makes good in the next second only: bounds are wide.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use workbench::expect::Session;
use workbench::qemu::Machine;
use xtask::smoke::device_vm::{json, number};
use xtask::smoke::shell;
use xtask::smoke::top::top;
use xtask::terminal::Terminal;

use crate::device_shell::{on_machine, power_off};
use crate::part::{Part, Tally};

/// Preemptions of a spinner in a second that are expected at least: a turn is 2.5 ms, and a busy
/// host may stop the machine for some of them. Of 200 in a second when two share.
const PREEMPTIONS: u64 = 40;

/// Has QEMU's device tree put each CPU into a cluster of its own. One cluster for all, QEMU's usual
/// tree, would show 0 for each CPU whatever was read.
const CLUSTERS: [&str; 2] = ["-smp", "clusters=3,cores=1"];

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("gearctl tells true figures of schedules", run)]
}

/// Three CPUs, a pool each: the device VM's own, that of the sharers, and that of the capped.
fn run(tally: &mut Tally) -> Result<()> {
    let machine = Machine {
        cpus: 3,
        options: CLUSTERS.map(Into::into).into(),
        ..Machine::default()
    };
    on_machine("gearctl-sched", machine, |session, _| check(session, tally))
}

/// The order matters: figures first, while nothing has moved, and the restart of Gear2 last. Once
/// the figures are read the spinners stop: they keep a CPU of the host busy for as long as they
/// run, and everything at the prompt takes several times as long beside them.
fn check(session: &mut Session, tally: &mut Tally) -> Result<()> {
    let start = "for vm in left right capped; do gearctl start $vm || exit 1; done";
    shell(session, &format!("({start})"))?;
    // In the first second the VMs are loaded.
    let top = json(session, "gearctl --json top 3 | tail -n 1")?;
    tally.check("waits of spinners that share", shared(&top));
    tally.check("waits of a spinner with a cap", capped(&top));
    let sched = json(session, "gearctl sched --json")?;
    tally.check("pools with their VMs", pools(&sched));
    tally.check("top on a serial console", top_is_shown(session));
    shell(session, "gearctl stop left && gearctl stop right")?;
    tally.check("the last CPU of a pool stays on", last_cpu(session));
    tally.check("a budget leaves time for its switches", budgets(session));
    let change = "a VM changes its pool, or stays whole";
    tally.check(change, change_pool(session));
    tally.check("a restarted Gear2 finds a changed pool", restart(session));
    power_off(session)?;
    tally.pass(1);
    Ok(())
}

/// `gearctl top` has the screen for itself, obeys keys, and leaves the terminal as it was. The
/// output is drawn by a terminal model of the tests, because control sequences cannot be compared
/// as text.
fn top_is_shown(session: &mut Session) -> Result<()> {
    let second = Duration::from_secs(1);
    // The second row is chosen: its name is that of the chart.
    let title = |screen: &Terminal| {
        let row = screen.row(3);
        let second_vm = row.split(' ').next().unwrap_or_default().to_owned();
        format!(" {second_vm}: share, to 100 %, ")
    };
    let is_second = |screen: &Terminal| screen.row(13).contains(&title(screen));
    let by_vm = top(session, (80, 20), &[(4 * second, "j")], is_second)?;
    ensure!(
        by_vm.row(0).starts_with("gearctl top  5 VMs by number, "),
        "{}",
        by_vm.row(0)
    );
    ensure!(by_vm.row(1).starts_with("VM "), "{}", by_vm.row(1));
    let rows: Vec<String> = (2..7).map(|row| by_vm.row(row)).collect();
    for vm in ["device", "left", "right", "capped"] {
        let row = rows.iter().find(|row| row.starts_with(vm));
        let row = row.with_context(|| format!("{vm} is not in {rows:?}"))?;
        ensure!(row.contains(" % "), "{row}");
    }
    ensure!(is_second(&by_vm), "{}", by_vm.row(13));
    ensure!(
        by_vm.row(19).starts_with("q quit  v VMs/vCPUs"),
        "{}",
        by_vm.row(19)
    );
    let is_by_vcpu = |screen: &Terminal| screen.row(0).contains(" vCPUs by number, ");
    let by_vcpu = top(session, (80, 20), &[(2 * second, "v")], is_by_vcpu)?;
    ensure!(is_by_vcpu(&by_vcpu), "{}", by_vcpu.row(0));
    ensure!(
        by_vcpu.row(1).starts_with("VCPU  VM "),
        "{}",
        by_vcpu.row(1)
    );
    Ok(())
}

/// Each of two equal spinners waits for half of the time, in turns, and its VM is told so. Half of
/// the time within wide bounds: a VM that runs alone or starves is far outside.
fn shared(top: &Value) -> Result<()> {
    for vm in ["left", "right"] {
        let row = Row::of(top, vm)?;
        // Far from 0 and from 100, which a VM that rules or starves would have.
        row.waits(35..=65)?;
        ensure!(row.preemptions >= PREEMPTIONS, "{row:?}");
    }
    Ok(())
}

/// A spinner with a cap of 25 % waits for the rest of the time, and nobody takes its place. Alone
/// on its CPU, a spinner without a cap would wait for nothing.
fn capped(top: &Value) -> Result<()> {
    let row = Row::of(top, "capped")?;
    row.waits(55..=95)?;
    ensure!(row.preemptions == 0, "{row:?}");
    Ok(())
}

/// Pools by name, CPUs, policy, balancer and VMs. Names, CPUs, policies and VMs differ, so that
/// rows cannot be mixed up.
const POOLS: [[&str; 5]; 3] = [
    ["default", "0", "null", "load", "device"],
    ["shared", "1", "bvt", "none", "left right saboteur"],
    ["budgets", "2", "edf", "load", "capped"],
];

/// The pools are those of the manifest, each with its own balancer or that of `/gear2`. The
/// clusters are those of the board's device tree. Balancers: a pool's own word wins over that of
/// `/gear2`.
fn pools(sched: &Value) -> Result<()> {
    let rows = sched["pools"].as_array().context("there are no pools")?;
    let shown = rows
        .iter()
        .map(|row| ["pool", "cpus", "policy", "balancer", "vms"].map(|name| words(&row[name])));
    let shown: Vec<[String; 5]> = shown.collect();
    ensure!(shown == POOLS, "{shown:?}");
    let cpus = sched["cpus"].as_array().context("there are no CPUs")?;
    let of_cpus = cpus
        .iter()
        .map(|cpu| cpu["pool"].as_str().unwrap_or("none"));
    let of_cpus: Vec<_> = of_cpus.collect();
    ensure!(of_cpus == POOLS.map(|[name, ..]| name), "{of_cpus:?}");
    let clusters = cpus.iter().map(|cpu| cpu["cluster"].as_u64());
    let clusters: Option<Vec<_>> = clusters.collect();
    ensure!(clusters == Some(vec![0, 1, 2]), "clusters {clusters:?}");
    Ok(())
}

/// Returns a text, or the texts and numbers of a list, with blanks between. Rows are compared as
/// texts.
fn words(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// CPU 1 is not closed, although CPUs of other pools are open. A pool without a CPU would keep its
/// VMs from running with no way to see why.
fn last_cpu(session: &mut Session) -> Result<()> {
    let said = shell(session, "! gearctl sched cpu 1 off 2>&1")?;
    let why = "CPU 1 is not turned off: no other CPU of the pool takes vCPUs";
    ensure!(said.contains(why), "it says {said:?}");
    Ok(())
}

/// `check` takes a budget of 996 us in each millisecond, beside which two switches have time, and
/// so does `gearctl`. 997 us, one more, are refused.
fn budgets(session: &mut Session) -> Result<()> {
    let set = |us| format!("gearctl sched set capped budget-us {us} period-us 1000");
    let said = shell(session, &format!("! {} 2>&1", set(997)))?;
    let why = "VM capped keeps its parameters: the budgets on a CPU would exceed its time";
    ensure!(said.contains(why), "it says {said:?}");
    let said = shell(session, &set(996))?;
    ensure!(said.contains("budget_us: 996 of 1000"), "it says {said:?}");
    Ok(())
}

/// A VM with a cap goes to a pool that reads none, and has its CPU whole there. It comes back with
/// its budget, and keeps another VM with a budget out. Refusals must leave the VM where it was,
/// which the last comparison shows.
fn change_pool(session: &mut Session) -> Result<()> {
    let said = shell(session, "gearctl sched pool capped shared")?;
    ensure!(said.contains("pool: shared"), "it says {said:?}");
    vms_of_pools(session, ["device", "left right capped saboteur", ""])?;
    let top = json(session, "gearctl --json top 2 | tail -n 1")?;
    Row::of(&top, "capped")?.waits(0..=15)?;
    refused(
        session,
        "capped default",
        "the policy of a CPU takes one vCPU",
    )?;
    shell(session, "gearctl sched pool capped budgets")?;
    shell(
        session,
        "gearctl sched set left budget-us 100 period-us 1000",
    )?;
    refused(
        session,
        "left budgets",
        "the budgets on a CPU would exceed its time",
    )?;
    refused(
        session,
        "left nothing",
        "there are: default, shared, budgets",
    )?;
    vms_of_pools(session, ["device", "left right saboteur", "capped"])
}

/// A VM that is in another pool than the manifest's, and a changed weight, stay what they are when
/// Gear2 fails and is started anew. The VM runs on, on the CPU of its pool and under its policy.
/// Gear2's own memory is renewed with it.
fn restart(session: &mut Session) -> Result<()> {
    shell(session, "gearctl sched pool capped shared")?;
    shell(session, "gearctl sched set capped weight 300")?;
    let before = number(&json(session, "gearctl --json version")?["gear2_restarts"])?;
    let after = before + 1;
    let restarted = format!("gearctl --json version | grep -q '\"gear2_restarts\": *{after}'");
    // An answer may be lost with the Gear2 that fails.
    shell(
        session,
        &format!("gearctl start saboteur; until {restarted}; do sleep 0.2; done"),
    )?;
    vms_of_pools(session, ["device", "left right capped saboteur", ""])?;
    let sched = json(session, "gearctl sched --json")?;
    let row = |list: &str| {
        let mut rows = sched[list].as_array().into_iter().flatten();
        let row = rows.find(|row| row["vm"] == "capped").cloned();
        row.with_context(|| format!("capped is not in {}", sched[list]))
    };
    let place = row("vcpus")?;
    ensure!(
        place["cpu"] == 1 && words(&place["allowed"]) == "1",
        "{place}"
    );
    let parameters = row("vms")?;
    ensure!(parameters["weight"] == 300, "{parameters}");
    let top = json(session, "gearctl --json top 2 | tail -n 1")?;
    Row::of(&top, "capped")?.waits(0..=15)?;
    shell(session, "gearctl sched pool capped budgets")?;
    vms_of_pools(session, ["device", "left right saboteur", "capped"])
}

/// A VM does not change its pool, and `gearctl` says why. The reason is part of the interface: a
/// person has to know what to change.
fn refused(session: &mut Session, words: &str, why: &str) -> Result<()> {
    let said = shell(session, &format!("! gearctl sched pool {words} 2>&1"))?;
    ensure!(said.contains(why), "it says {said:?}");
    Ok(())
}

/// Compares the VMs of each pool. Whole lists, so that a VM in two pools or in none is found.
fn vms_of_pools(session: &mut Session, expected: [&str; 3]) -> Result<()> {
    let sched = json(session, "gearctl sched --json")?;
    let rows = sched["pools"].as_array().context("there are no pools")?;
    let vms: Vec<String> = rows.iter().map(|row| words(&row["vms"])).collect();
    ensure!(vms == expected, "VMs of the pools: {vms:?}");
    Ok(())
}

/// Row of a VM, in percent of a second.
#[derive(Debug)]
struct Row {
    /// Name of the VM.
    vm: String,
    /// Time in which a vCPU of the VM ran.
    share: f64,
    /// Time in which one could run and did not.
    wait: f64,
    /// Time that the VM was told as stolen.
    steal: f64,
    /// Turns that ended while a vCPU could go on.
    preemptions: u64,
}

impl Row {
    fn of(top: &Value, vm: &str) -> Result<Self> {
        let mut rows = top.as_array().into_iter().flatten();
        let row = rows.find(|row| row["vm"] == vm);
        let row = row.with_context(|| format!("{vm} is not in {top}"))?;
        let percent = |name: &str| {
            let number = row[name].as_f64();
            number.with_context(|| format!("{name} is no part in {row}"))
        };
        Ok(Self {
            vm: vm.to_owned(),
            share: percent("share_percent")?,
            wait: percent("wait_percent")?,
            steal: percent("steal_percent")?,
            preemptions: number(&row["preemptions"])?,
        })
    }

    /// Checks the part of its time in which a vCPU that always could run did not, and that the VM
    /// was told of that, but for what it waited last. Stolen time that a VM is told must be the
    /// wait that Gear2 measured.
    fn waits(&self, expected: RangeInclusive<u32>) -> Result<()> {
        let all = self.share + self.wait;
        let part = 100.0 * self.wait / all;
        let (from, to) = (f64::from(*expected.start()), f64::from(*expected.end()));
        println!("figure: {} waits for {part:.1} % of its time", self.vm);
        ensure!((from..=to).contains(&part), "{part:.1} %: {self:?}");
        let untold = 100.0 * (self.wait - self.steal).abs() / all;
        ensure!(untold <= 10.0, "{untold:.1} % untold: {self:?}");
        Ok(())
    }
}
