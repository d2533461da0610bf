//! `gearctl sched`: how Gear2 schedules, and changes of it.
//!
//! Gear2 begins a move, or a change of parameters, and answers before it has ended. The command
//! waits for the end and says what came of it: a policy may refuse.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gear1_abi::id::MAX_CPUS;
use gear2_protocol::{cpu_flag, op, outcome, share, stays};

use crate::client::{Client, Vm, describe};
use crate::control::name_of;
use crate::json::Json;

#[cfg(test)]
mod tests;

/// Time until a change that does not end is given up. A loop takes part in it at its next event,
/// which a poke causes at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Request of a `sched` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Show all.
    Show,
    /// Set a parameter of a VM: a number of [`share`], a value and a period.
    Set(String, [u64; 3]),
    /// Move a vCPU of a VM to a CPU, and pin it there if that is wished.
    Move {
        /// The VM.
        vm: String,
        /// Index of the vCPU in the VM.
        index: u64,
        /// The CPU.
        cpu: u64,
        /// Whether the vCPU stays there.
        pin: bool,
    },
    /// Let a pinned vCPU move again.
    Unpin(String, u64),
    /// Let a CPU take vCPUs, or have it give them away.
    Cpu(u64, bool),
    /// Move all vCPUs of a VM to the CPUs of a pool, which is named.
    Pool(String, String),
}

/// Reads the words behind `sched`.
pub(super) fn parse(words: &[&str]) -> Option<Ask> {
    let number = |word: &str| word.parse::<u64>().ok();
    let moves = |vm: &str, index: &str, cpu: &str, pin| {
        Some(Ask::Move {
            vm: vm.into(),
            index: number(index)?,
            cpu: number(cpu)?,
            pin,
        })
    };
    match *words {
        [] => Some(Ask::Show),
        ["set", vm, ref setting @ ..] => Some(Ask::Set(vm.into(), parse_setting(setting)?)),
        ["move", vm, index, cpu] => moves(vm, index, cpu, false),
        ["pin", vm, index, cpu] => moves(vm, index, cpu, true),
        // A vCPU is unpinned wherever it is.
        ["unpin", vm, index] => Some(Ask::Unpin(vm.into(), number(index)?)),
        ["cpu", cpu, "on"] => Some(Ask::Cpu(number(cpu)?, true)),
        ["cpu", cpu, "off"] => Some(Ask::Cpu(number(cpu)?, false)),
        ["pool", vm, pool] => Some(Ask::Pool(vm.into(), pool.into())),
        _ => None,
    }
}

/// Period of a cap without one, in microseconds: the manifest's default.
const PERIOD_US: u64 = 10_000;

/// Reads a parameter with its value, as the manifest has it.
/// The numbers are those of [`op::SCHED_SET`]: parameter, value and period; a value of 0 takes a
/// cap or a budget away.
fn parse_setting(words: &[&str]) -> Option<[u64; 3]> {
    let number = |word: &str| word.parse::<u64>().ok();
    // Percent of a period.
    let cap = |percent: &str, period: u64| {
        let percent = number(percent).filter(|percent| (1..=100).contains(percent))?;
        Some([share::CAP, period.checked_mul(percent)? / 100, period])
    };
    match *words {
        ["weight", value] => Some([share::WEIGHT, number(value)?, 0]),
        ["priority", value] => Some([share::PRIORITY, number(value)?, 0]),
        ["latency-us", value] => Some([share::LATENCY, number(value)?, 0]),
        ["cap-percent", "none"] => Some([share::CAP, 0, 0]),
        ["cap-percent", percent] => cap(percent, PERIOD_US),
        ["cap-percent", percent, "period-us", period] => cap(percent, number(period)?),
        ["budget-us", "none"] => Some([share::BUDGET, 0, 0]),
        ["budget-us", budget, "period-us", period] => {
            let budget = number(budget).filter(|budget| *budget != 0)?;
            Some([share::BUDGET, budget, number(period)?])
        }
        _ => None,
    }
}

/// Does what is asked for.
pub(super) fn run(client: &mut Client, ask: &Ask) -> Result<Json, String> {
    match ask {
        Ask::Show => show(client),
        Ask::Set(vm, setting) => set(client, vm, *setting),
        Ask::Move {
            vm,
            index,
            cpu,
            pin,
        } => move_to(client, vm, *index, *cpu, *pin),
        Ask::Unpin(vm, index) => {
            let (vm, vcpu) = vcpu_of(client, vm, *index)?;
            fetch(client, op::SCHED_PIN, [vcpu, 0, 0, 0])?;
            Ok(place(&vm, *index, client, vcpu)?)
        }
        Ask::Cpu(cpu, on) => switch(client, *cpu, *on),
        Ask::Pool(vm, pool) => change_pool(client, vm, pool),
    }
}

/// Asks for something that must be there.
/// A refusal is an error in words here, so that no caller has to look at outcomes.
fn fetch(client: &mut Client, op: u32, arguments: [u64; 4]) -> Result<[u64; 6], String> {
    let answer = client.call(op, &arguments)?;
    match answer.outcome {
        outcome::OK | outcome::STARTED => Ok(answer.results),
        outcome::STAYS => Err(reason(answer.results[0])),
        outcome::UNKNOWN => Err(
            "this Gear2 knows no `gearctl sched`; see `gearctl version` for both versions".into(),
        ),
        other => Err(describe(other)),
    }
}

/// Says why something stays as it is.
fn reason(number: u64) -> String {
    let text = match number {
        stays::CPU_IS_OFF => "the CPU is off for the scheduler; `gearctl sched cpu` turns it on",
        stays::ELSEWHERE => {
            "the VM's pool, or `cpus` in the manifest, places the VM on other CPUs; see `gearctl \
             sched`"
        }
        stays::PINNED => "a vCPU is pinned there or to another CPU; see `gearctl sched`",
        stays::OVERLOAD => "the budgets on a CPU would exceed its time",
        stays::BAD_BUDGET => "a budget is zero or longer than its period",
        stays::FULL => "the policy of a CPU takes one vCPU, and has it",
        stays::NO_GAIN => "the CPU has as much to do",
        stays::NO_OTHER => "no other CPU of the pool takes vCPUs",
        stays::CHANGES => "parameters are being changed; try again",
        stays::OUT_OF_RANGE => "the value is out of the range that docs/manifest.md gives",
        stays::STARVES => "the device VM, which serves others, could be kept from running",
        stays::WINDOW => "a window of its pool is the VM's own, and no other pool has that",
        stays::NO_WINDOW => "all windows of the pool are of other VMs",
        other => return format!("reason {other}"),
    };
    text.into()
}

/// Finds a vCPU by its VM and its index there.
fn vcpu_of(client: &mut Client, name: &str, index: u64) -> Result<(Vm, u64), String> {
    let vm = scheduled(client, name)?;
    if index >= vm.vcpus {
        // Names by the index in the VM: numbers over all VMs are Gear2's own.
        let last = vm.vcpus.saturating_sub(1);
        return Err(format!("VM {} has vCPUs 0 to {last}", vm.name));
    }
    let vcpu = vm.first_vcpu + index;
    Ok((vm, vcpu))
}

/// Finds a VM that Gear2 schedules.
/// A real-time VM has no entry at Gear2's loops: each operation would fail in words that do not say
/// why.
fn scheduled(client: &mut Client, name: &str) -> Result<Vm, String> {
    let vm = client.find(name)?;
    if vm.real_time {
        return Err(format!(
            "VM {} is real-time, with CPUs of its own on which Gear2 does not schedule it",
            vm.name
        ));
    }
    Ok(vm)
}

/// Asks again and again until `ended` has an answer.
fn wait<T>(mut ended: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ended()? {
            return Ok(answer);
        }
        if begun.elapsed() >= PATIENCE {
            // Gear2 goes on with it: only this program stops to wait.
            return Err("it is begun and has not ended; see `gearctl sched`".into());
        }
        sleep(Duration::from_millis(1));
    }
}

/// Moves a vCPU, and pins it there. The balancer may be moving the vCPU at this moment, or move it
/// away again before it is pinned: then all begins anew.
fn move_to(
    client: &mut Client,
    name: &str,
    index: u64,
    cpu: u64,
    pin: bool,
) -> Result<Json, String> {
    let (vm, vcpu) = vcpu_of(client, name, index)?;
    let refused = |why: String| {
        format!(
            "vCPU {index} of {} does not move to CPU {cpu}: {why}",
            vm.name
        )
    };
    let mut asked = false;
    wait(|| {
        let [at, moving, why, ..] = fetch(client, op::SCHED_VCPU, [vcpu, 0, 0, 0])?;
        // A move that somebody else began ends first.
        if moving != 0 {
            return Ok(None);
        }
        if at == cpu {
            return Ok((!pin || is_pinned(client, vcpu, cpu)?).then_some(()));
        }
        // The reason may be the answer to an offer of the balancer's, or pass with a change of
        // parameters: then the move is asked for once more.
        if asked && !matches!(why, 0 | stays::NO_GAIN | stays::CHANGES) {
            return Err(refused(reason(why)));
        }
        fetch(client, op::SCHED_MOVE, [vcpu, cpu, 0, 0]).map_err(refused)?;
        asked = true;
        Ok(None)
    })?;
    place(&vm, index, client, vcpu)
}

/// Pins a vCPU to the CPU where it was just now. Tells whether it was there still.
fn is_pinned(client: &mut Client, vcpu: u64, cpu: u64) -> Result<bool, String> {
    // CPUs are counted from 1: 0 takes the pin away.
    let answer = client.call(op::SCHED_PIN, &[vcpu, cpu + 1])?;
    match answer.outcome {
        outcome::OK => Ok(true),
        outcome::WRONG_STATE => Ok(false),
        other => Err(describe(other)),
    }
}

/// Returns where a vCPU is.
/// The answer is read anew: it shows what is, and not what was asked for.
fn place(vm: &Vm, index: u64, client: &mut Client, vcpu: u64) -> Result<Json, String> {
    // `allowed` is a mask of the CPUs that the manifest places the VM on.
    let [cpu, _, _, pin, allowed, _] = fetch(client, op::SCHED_VCPU, [vcpu, 0, 0, 0])?;
    Ok(Json::Object(vec![
        ("vm", vm.name.as_str().into()),
        ("index", index.into()),
        ("cpu", cpu.into()),
        ("pinned", Json::Bool(pin != 0)),
        ("allowed", cpus_text(allowed).as_str().into()),
    ]))
}

/// Returns the CPUs of a mask as text.
fn cpus_text(mask: u64) -> String {
    let cpus = (0..MAX_CPUS).filter(|cpu| mask >> cpu & 1 != 0);
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    cpus.join(" ")
}

/// Lets a CPU take vCPUs, or has it give them away.
fn switch(client: &mut Client, cpu: u64, on: bool) -> Result<Json, String> {
    let state = if on { "on" } else { "off" };
    let refused = |why: String| format!("CPU {cpu} is not turned {state}: {why}");
    fetch(client, op::SCHED_CLOSE, [cpu, (!on).into(), 0, 0]).map_err(refused)?;
    let ended = |client: &mut Client| {
        let [_, _, _, flags, vcpus, _] = fetch(client, op::SCHED_CPU, [cpu, 0, 0, 0])?;
        let is_off = flags & cpu_flag::CLOSED != 0;
        // Ended: the CPU is on again, has given all vCPUs away, or was only to be turned on.
        Ok((is_off == on || on || vcpus == 0).then_some(is_off))
    };
    let is_off = wait(|| ended(client))?;
    if is_off == on {
        return Err(refused(left_behind(client, cpu)?));
    }
    Ok(Json::Object(vec![
        ("cpu", cpu.into()),
        ("scheduler", state.into()),
    ]))
}

/// Says which vCPU has stayed on a CPU that was to be turned off, and why.
fn left_behind(client: &mut Client, cpu: u64) -> Result<String, String> {
    for vm in client.vms()?.iter().filter(|vm| !vm.real_time) {
        for (index, vcpu) in vm.numbers().enumerate() {
            let [at, _, why, ..] = fetch(client, op::SCHED_VCPU, [vcpu, 0, 0, 0])?;
            // The first one explains enough: its place kept the CPU on.
            if at == cpu && why != 0 {
                let why = reason(why);
                return Ok(format!("vCPU {index} of {} stays there: {why}", vm.name));
            }
        }
    }
    Ok("it was turned on meanwhile".into())
}

/// Sets a parameter of a VM.
fn set(client: &mut Client, name: &str, [number, value, period]: [u64; 3]) -> Result<Json, String> {
    let vm = scheduled(client, name)?;
    let refused = |why: String| format!("VM {} keeps its parameters: {why}", vm.name);
    let arguments = [vm.id, number, value, period];
    fetch(client, op::SCHED_SET, arguments).map_err(refused)?;
    // All CPUs answer before it is known whether one refused.
    let [.., why, _] = wait(|| {
        let words = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
        Ok((words[3] == 0).then_some(words))
    })?;
    match why {
        0 => vm_row(client, &vm),
        why => Err(refused(reason(why))),
    }
}

/// Moves a VM to another pool.
fn change_pool(client: &mut Client, name: &str, pool: &str) -> Result<Json, String> {
    let vm = scheduled(client, name)?;
    let pools = Pool::all(client)?;
    let named = (0..).zip(&pools).find(|(_, one)| one.name == pool);
    let Some((place, there)) = named else {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!(
            "there is no pool {pool} with CPUs, there are: {names}"
        ));
    };
    let refused = |why: String| format!("VM {} stays in its pool: {why}", vm.name);
    fetch(client, op::SCHED_SET_POOL, [vm.id, place, 0, 0]).map_err(refused)?;
    // CPUs of the new pool agree, or refuse, one after the other.
    let [.., why, _] = wait(|| {
        let words = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
        Ok((words[3] == 0).then_some(words))
    })?;
    match why {
        0 => Ok(Json::Object(vec![
            ("vm", vm.name.as_str().into()),
            ("pool", pool.into()),
            ("cpus", cpus_text(there.cpus).as_str().into()),
        ])),
        why => Err(refused(reason(why))),
    }
}

/// Returns the parameters of a VM.
fn vm_row(client: &mut Client, vm: &Vm) -> Result<Json, String> {
    let [weight, priority, latency, ..] = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
    let [cap, cap_period, budget, period, ..] = fetch(client, op::SCHED_SHARE, [vm.id, 1, 0, 0])?;
    // Use 0 is no cap, and budget 0 is no server.
    let of = |us: u64, period: u64| match us {
        0 => Json::Null,
        us => format!("{us} of {period}").as_str().into(),
    };
    Ok(Json::Object(vec![
        ("vm", vm.name.as_str().into()),
        ("weight", weight.into()),
        ("cap_us", of(cap, cap_period)),
        ("budget_us", of(budget, period)),
        ("priority", priority.into()),
        ("latency_us", latency.into()),
    ]))
}

/// CPUs with one scheduler.
struct Pool {
    /// As in the manifest; `default` for CPUs of no pool.
    name: String,
    /// Names of the policy and of the balancer, which Gear2 tells: a newer one may have others.
    policy: String,
    balancer: String,
    /// CPUs, a bit each.
    cpus: u64,
    /// VMs, a bit each.
    vms: u64,
    /// Longest turn, in microseconds.
    slice_us: u64,
}

impl Pool {
    /// Asks for all pools, of which each has a CPU. An older Gear2 does not tell.
    fn all(client: &mut Client) -> Result<Vec<Self>, String> {
        let mut pools = Vec::new();
        for place in 0..MAX_CPUS as u64 {
            let answer = client.call(op::SCHED_POOL, &[place, 0])?;
            if answer.outcome != outcome::OK {
                break;
            }
            let half = fetch(client, op::SCHED_POOL, [place, 1, 0, 0])?;
            let [first, second, balancer, cpus, vms, slice_us] = half;
            pools.push(Self {
                name: name_of(&answer.results),
                policy: name_of(&[first, second]),
                balancer: name_of(&[balancer]),
                cpus,
                vms,
                slice_us,
            });
        }
        Ok(pools)
    }

    /// Returns the pool's row, with the names of its VMs.
    fn row(&self, vms: &[Vm]) -> Json {
        let here = vms.iter().filter(|vm| self.vms >> vm.id & 1 != 0);
        let names: Vec<&str> = here.map(|vm| vm.name.as_str()).collect();
        Json::Object(vec![
            ("pool", self.name.as_str().into()),
            ("cpus", cpus_text(self.cpus).as_str().into()),
            ("policy", self.policy.as_str().into()),
            ("slice_us", self.slice_us.into()),
            ("balancer", self.balancer.as_str().into()),
            ("vms", names.join(" ").as_str().into()),
        ])
    }
}

/// Returns the name of the pool of a CPU.
fn pool_of(pools: &[Pool], cpu: u64) -> Json {
    let pool = pools.iter().find(|pool| pool.cpus >> cpu & 1 != 0);
    pool.map_or(Json::Null, |pool| pool.name.as_str().into())
}

/// Returns the row of a CPU, if Gear2 has a loop there.
fn cpu_row(client: &mut Client, pools: &[Pool], cpu: u64) -> Result<Option<Json>, String> {
    let answer = client.call(op::SCHED_CPU, &[cpu])?;
    // The machine has no such CPU, or a real-time VM has it.
    if answer.outcome == outcome::NOT_FOUND {
        return Ok(None);
    }
    let [.., balancer, flags, vcpus, slice] = fetch(client, op::SCHED_CPU, [cpu, 0, 0, 0])?;
    let [first, second, ..] = answer.results;
    let is_off = flags & cpu_flag::CLOSED != 0;
    Ok(Some(Json::Object(vec![
        ("cpu", cpu.into()),
        ("cluster", (flags >> cpu_flag::CLUSTER & 0xff).into()),
        ("pool", pool_of(pools, cpu)),
        ("policy", name_of(&[first, second]).as_str().into()),
        ("slice_us", slice.into()),
        ("balancer", name_of(&[balancer]).as_str().into()),
        ("vcpus", vcpus.into()),
        ("state", if is_off { "off" } else { "on" }.into()),
    ])))
}

/// Returns pools, CPUs with their policies, vCPUs with their places, and VMs with their parameters.
fn show(client: &mut Client) -> Result<Json, String> {
    let all = client.vms()?;
    let pools = Pool::all(client)?;
    let mut cpus = Vec::new();
    for cpu in 0..MAX_CPUS as u64 {
        // CPUs without a loop may lie between those that have one.
        cpus.extend(cpu_row(client, &pools, cpu)?);
    }
    let (mut vcpus, mut vms, mut moves) = (Vec::new(), Vec::new(), 0);
    for vm in all.iter().filter(|vm| !vm.real_time) {
        for (index, vcpu) in (0..).zip(vm.numbers()) {
            vcpus.push(place(vm, index, client, vcpu)?);
            [.., moves] = fetch(client, op::SCHED_VCPU, [vcpu, 0, 0, 0])?;
        }
        vms.push(vm_row(client, vm)?);
    }
    let pools = pools.iter().map(|pool| pool.row(&all)).collect();
    Ok(Json::Object(vec![
        ("pools", Json::List(pools)),
        ("cpus", Json::List(cpus)),
        ("vcpus", Json::List(vcpus)),
        ("vms", Json::List(vms)),
        ("moves", moves.into()),
    ]))
}
