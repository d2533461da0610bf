//! `gearctl sched`: how Gear2 schedules, and changes of it.
//!
//! Gear2 begins a move, or a change of parameters, and answers before it has ended. The command
//! waits for the end and says what came of it: a policy may refuse.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use gear1_abi::id::MAX_CPUS;
use gear2_protocol::{cpu_flag, op, outcome, share, stays};

use super::answer::{
    Answer, CpuSwitched, Parameters, Place, PoolChanged, Quota, Sched, SchedCpu, SchedPool, Switch,
};
use crate::client::{Client, Vm, describe, kind_of};
use crate::control::name_of;
use crate::error::{Error, ErrorKind};

#[cfg(test)]
mod tests;

/// Time until a change that does not end is given up. A loop takes part in it at its next event,
/// which a poke causes at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Request of a `sched` command.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Ask {
    /// Set a parameter of a VM
    Set {
        /// Name or number of the VM
        vm: String,
        /// The parameter
        #[command(subcommand)]
        setting: Setting,
    },
    /// Move a vCPU to a CPU
    Move(Move),
    /// Move a vCPU to a CPU, and keep it there
    Pin(Move),
    /// Let a pinned vCPU move again
    Unpin {
        /// Name or number of the VM
        vm: String,
        /// Index of the vCPU in the VM
        vcpu: u64,
    },
    /// Have a CPU give its vCPUs to others (off), or take some again (on)
    Cpu {
        /// Number of the CPU
        cpu: u64,
        /// The new state
        state: Switch,
    },
    /// Move all vCPUs of a VM to the CPUs of a pool
    Pool {
        /// Name or number of the VM
        vm: String,
        /// Name of the pool
        pool: String,
    },
}

/// A vCPU and the CPU where it is to be.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Name or number of the VM
    pub vm: String,
    /// Index of the vCPU in the VM
    pub vcpu: u64,
    /// Number of the CPU
    pub cpu: u64,
}

/// A parameter with its value, as the manifest has it.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Setting {
    /// Share relative to others, 1 to 1000
    Weight {
        /// The weight
        value: u64,
    },
    /// Fixed priority, 0 to 31
    Priority {
        /// The priority
        value: u64,
    },
    /// Time that a vCPU may borrow from its own future
    LatencyUs {
        /// Microseconds
        value: u64,
    },
    /// Most that a vCPU gets of each period, of 10 ms unless told: `cap-percent 25 period-us 5000`
    CapPercent {
        /// Percent, 1 to 100, or `none`
        #[arg(value_parser = percent)]
        percent: Amount,
        /// Length of the period
        #[command(flatten)]
        period: Period,
    },
    /// Least that a vCPU gets of each period: `budget-us 2000 period-us 10000`, or `none`
    BudgetUs {
        /// Microseconds, or `none`
        #[arg(value_parser = amount)]
        budget: Amount,
        /// Length of the period
        #[command(flatten)]
        period: Period,
    },
}

/// A number that is not 0, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(Option<u64>);

/// Words for the length of a period.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// The word `period-us`
    #[arg(value_parser = ["period-us"], value_name = "period-us", requires = "us")]
    word: Option<String>,
    /// Microseconds
    us: Option<u64>,
}

/// Reads a number that is not 0, or `none`.
fn amount(word: &str) -> Result<Amount, String> {
    match (word, word.parse()) {
        ("none", _) => Ok(Amount(None)),
        (_, Ok(number)) if number > 0 => Ok(Amount(Some(number))),
        _ => Err("it is neither a number above 0 nor `none`".into()),
    }
}

/// Reads a number of percent, or `none`.
fn percent(word: &str) -> Result<Amount, String> {
    let amount = amount(word)?;
    match amount.0.is_none_or(|number| number <= 100) {
        true => Ok(amount),
        false => Err("it is more than 100".into()),
    }
}

/// Period of a cap without one, in microseconds: the manifest's default.
const PERIOD_US: u64 = 10_000;

impl Setting {
    /// Returns the numbers of [`op::SCHED_SET`]: parameter, value and period; a value of 0 takes a
    /// cap or a budget away.
    fn numbers(&self) -> Result<[u64; 3], Error> {
        Ok(match self {
            Self::Weight { value } => [share::WEIGHT, *value, 0],
            Self::Priority { value } => [share::PRIORITY, *value, 0],
            Self::LatencyUs { value } => [share::LATENCY, *value, 0],
            Self::CapPercent { percent, period } => match percent.0 {
                None => [share::CAP, 0, 0],
                Some(percent) => {
                    let period = period.us.unwrap_or(PERIOD_US);
                    // A period whose hundredth part has no number is out of each range.
                    [share::CAP, period.saturating_mul(percent) / 100, period]
                }
            },
            Self::BudgetUs { budget, period } => budget_numbers(budget.0, period.us)?,
        })
    }
}

/// Returns the numbers of a budget, which `None` takes away.
fn budget_numbers(budget: Option<u64>, period: Option<u64>) -> Result<[u64; 3], Error> {
    match (budget, period) {
        (None, _) => Ok([share::BUDGET, 0, 0]),
        (Some(budget), Some(period)) => Ok([share::BUDGET, budget, period]),
        (Some(_), None) => {
            let sentence = "a budget has a period: `budget-us 2000 period-us 10000`";
            Err(Error::new(ErrorKind::Usage, sentence))
        }
    }
}

/// Does what is asked for; shows all where nothing is.
pub(super) fn run(client: &mut Client, ask: Option<&Ask>) -> Result<Answer, Error> {
    let Some(ask) = ask else {
        return show(client).map(Answer::Sched);
    };
    match ask {
        Ask::Set { vm, setting } => set(client, vm, setting).map(Answer::VmParameters),
        Ask::Move(to) => move_to(client, to, false).map(Answer::VcpuPlace),
        Ask::Pin(to) => move_to(client, to, true).map(Answer::VcpuPlace),
        Ask::Unpin { vm, vcpu } => {
            let (vm, number) = vcpu_of(client, vm, *vcpu)?;
            fetch(client, op::SCHED_PIN, [number, 0, 0, 0])?;
            place(&vm, *vcpu, client, number).map(Answer::VcpuPlace)
        }
        Ask::Cpu { cpu, state } => switch(client, *cpu, *state).map(Answer::CpuSwitched),
        Ask::Pool { vm, pool } => change_pool(client, vm, pool).map(Answer::PoolChanged),
    }
}

/// Asks for something that must be there.
/// A refusal is an error in words here, so that no caller has to look at outcomes.
fn fetch(client: &mut Client, op: u32, arguments: [u64; 4]) -> Result<[u64; 6], Error> {
    let answer = client.call(op, &arguments)?;
    match answer.outcome {
        outcome::OK | outcome::STARTED => Ok(answer.results),
        outcome::STAYS => Err(Error::refused(reason(answer.results[0]))),
        outcome::UNKNOWN => Err(Error::new(
            ErrorKind::Version,
            "this Gear2 knows no `gearctl sched`; see `gearctl version` for both versions",
        )),
        other => Err(Error::new(kind_of(other), describe(other))),
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
fn vcpu_of(client: &mut Client, name: &str, index: u64) -> Result<(Vm, u64), Error> {
    let vm = scheduled(client, name)?;
    if index >= vm.vcpus {
        // Names by the index in the VM: numbers over all VMs are Gear2's own.
        let last = vm.vcpus.saturating_sub(1);
        let sentence = format!("VM {} has vCPUs 0 to {last}", vm.name);
        return Err(Error::not_found(sentence));
    }
    let vcpu = vm.first_vcpu + index;
    Ok((vm, vcpu))
}

/// Finds a VM that Gear2 schedules.
/// A real-time VM has no entry at Gear2's loops: each operation would fail in words that do not say
/// why.
fn scheduled(client: &mut Client, name: &str) -> Result<Vm, Error> {
    let vm = client.find(name)?;
    if vm.real_time {
        return Err(Error::refused(format!(
            "VM {} is real-time, with CPUs of its own on which Gear2 does not schedule it",
            vm.name
        )));
    }
    Ok(vm)
}

/// Asks again and again until `ended` has an answer.
fn wait<T>(mut ended: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ended()? {
            return Ok(answer);
        }
        if begun.elapsed() >= PATIENCE {
            // Gear2 goes on with it: only this program stops to wait.
            let sentence = "it is begun and has not ended; see `gearctl sched`";
            return Err(Error::new(ErrorKind::TimedOut, sentence));
        }
        sleep(Duration::from_millis(1));
    }
}

/// Moves a vCPU, and pins it there. The balancer may be moving the vCPU at this moment, or move it
/// away again before it is pinned: then all begins anew.
fn move_to(client: &mut Client, to: &Move, pin: bool) -> Result<Place, Error> {
    let Move {
        vcpu: index, cpu, ..
    } = *to;
    let (vm, vcpu) = vcpu_of(client, &to.vm, index)?;
    let refused = |error: Error| {
        let name = &vm.name;
        error.within(|why| format!("vCPU {index} of {name} does not move to CPU {cpu}: {why}"))
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
            return Err(refused(Error::refused(reason(why))));
        }
        fetch(client, op::SCHED_MOVE, [vcpu, cpu, 0, 0]).map_err(refused)?;
        asked = true;
        Ok(None)
    })?;
    place(&vm, index, client, vcpu)
}

/// Pins a vCPU to the CPU where it was just now. Tells whether it was there still.
fn is_pinned(client: &mut Client, vcpu: u64, cpu: u64) -> Result<bool, Error> {
    // CPUs are counted from 1: 0 takes the pin away.
    let answer = client.call(op::SCHED_PIN, &[vcpu, cpu + 1])?;
    match answer.outcome {
        outcome::OK => Ok(true),
        outcome::WRONG_STATE => Ok(false),
        other => Err(Error::new(kind_of(other), describe(other))),
    }
}

/// Returns where a vCPU is.
/// The answer is read anew: it shows what is, and not what was asked for.
pub(super) fn place(vm: &Vm, index: u64, client: &mut Client, vcpu: u64) -> Result<Place, Error> {
    // `allowed` is a mask of the CPUs that the manifest places the VM on.
    let [cpu, _, _, pin, allowed, _] = fetch(client, op::SCHED_VCPU, [vcpu, 0, 0, 0])?;
    Ok(Place {
        vm: vm.name.clone(),
        index,
        cpu,
        pinned: pin != 0,
        allowed: cpus_of(allowed),
    })
}

/// Returns the CPUs of a mask.
fn cpus_of(mask: u64) -> Vec<u64> {
    let cpus = (0..MAX_CPUS as u64).filter(|cpu| mask >> cpu & 1 != 0);
    cpus.collect()
}

/// Lets a CPU take vCPUs, or has it give them away.
fn switch(client: &mut Client, cpu: u64, state: Switch) -> Result<CpuSwitched, Error> {
    let on = state == Switch::On;
    let refused = |error: Error| {
        error.within(|why| format!("CPU {cpu} is not turned {}: {why}", state.text()))
    };
    fetch(client, op::SCHED_CLOSE, [cpu, (!on).into(), 0, 0]).map_err(refused)?;
    let ended = |client: &mut Client| {
        let [_, _, _, flags, vcpus, _] = fetch(client, op::SCHED_CPU, [cpu, 0, 0, 0])?;
        let is_off = flags & cpu_flag::CLOSED != 0;
        // Ended: the CPU is on again, has given all vCPUs away, or was only to be turned on.
        Ok((is_off == on || on || vcpus == 0).then_some(is_off))
    };
    let is_off = wait(|| ended(client))?;
    if is_off == on {
        return Err(refused(Error::refused(left_behind(client, cpu)?)));
    }
    let scheduler = state;
    Ok(CpuSwitched { cpu, scheduler })
}

/// Says which vCPU has stayed on a CPU that was to be turned off, and why.
fn left_behind(client: &mut Client, cpu: u64) -> Result<String, Error> {
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
fn set(client: &mut Client, name: &str, setting: &Setting) -> Result<Parameters, Error> {
    let [number, value, period] = setting.numbers()?;
    let vm = scheduled(client, name)?;
    let refused =
        |error: Error| error.within(|why| format!("VM {} keeps its parameters: {why}", vm.name));
    let arguments = [vm.id, number, value, period];
    fetch(client, op::SCHED_SET, arguments).map_err(refused)?;
    // All CPUs answer before it is known whether one refused.
    let [.., why, _] = wait(|| {
        let words = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
        Ok((words[3] == 0).then_some(words))
    })?;
    match why {
        0 => parameters(client, &vm),
        why => Err(refused(Error::refused(reason(why)))),
    }
}

/// Moves a VM to another pool.
fn change_pool(client: &mut Client, name: &str, pool: &str) -> Result<PoolChanged, Error> {
    let vm = scheduled(client, name)?;
    let pools = Pool::all(client)?;
    let named = (0..).zip(&pools).find(|(_, one)| one.name == pool);
    let Some((place, there)) = named else {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        let names = names.join(", ");
        let sentence = format!("there is no pool {pool} with CPUs, there are: {names}");
        return Err(Error::not_found(sentence));
    };
    let refused =
        |error: Error| error.within(|why| format!("VM {} stays in its pool: {why}", vm.name));
    fetch(client, op::SCHED_SET_POOL, [vm.id, place, 0, 0]).map_err(refused)?;
    // CPUs of the new pool agree, or refuse, one after the other.
    let [.., why, _] = wait(|| {
        let words = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
        Ok((words[3] == 0).then_some(words))
    })?;
    match why {
        0 => Ok(PoolChanged {
            cpus: cpus_of(there.cpus),
            pool: pool.into(),
            vm: vm.name,
        }),
        why => Err(refused(Error::refused(reason(why)))),
    }
}

/// Returns the parameters of a VM.
pub(super) fn parameters(client: &mut Client, vm: &Vm) -> Result<Parameters, Error> {
    let [weight, priority, latency_us, ..] = fetch(client, op::SCHED_SHARE, [vm.id, 0, 0, 0])?;
    let [cap, cap_period, budget, period, ..] = fetch(client, op::SCHED_SHARE, [vm.id, 1, 0, 0])?;
    // Cap 0 is no cap, and budget 0 is no server.
    let of = |us: u64, period_us: u64| (us > 0).then_some(Quota { us, period_us });
    Ok(Parameters {
        vm: vm.name.clone(),
        weight,
        cap: of(cap, cap_period),
        budget: of(budget, period),
        priority,
        latency_us,
    })
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
    fn all(client: &mut Client) -> Result<Vec<Self>, Error> {
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
    fn row(&self, vms: &[Vm]) -> SchedPool {
        let here = vms.iter().filter(|vm| self.vms >> vm.id & 1 != 0);
        SchedPool {
            pool: self.name.clone(),
            cpus: cpus_of(self.cpus),
            policy: self.policy.clone(),
            slice_us: self.slice_us,
            balancer: self.balancer.clone(),
            vms: here.map(|vm| vm.name.clone()).collect(),
        }
    }
}

/// Returns the name of the pool of a CPU.
fn pool_of(pools: &[Pool], cpu: u64) -> Option<String> {
    let pool = pools.iter().find(|pool| pool.cpus >> cpu & 1 != 0);
    pool.map(|pool| pool.name.clone())
}

/// Returns the row of a CPU, if Gear2 has a loop there.
fn cpu_row(client: &mut Client, pools: &[Pool], cpu: u64) -> Result<Option<SchedCpu>, Error> {
    let answer = client.call(op::SCHED_CPU, &[cpu])?;
    // The machine has no such CPU, or a real-time VM has it.
    if answer.outcome == outcome::NOT_FOUND {
        return Ok(None);
    }
    let [.., balancer, flags, vcpus, slice_us] = fetch(client, op::SCHED_CPU, [cpu, 0, 0, 0])?;
    let [first, second, ..] = answer.results;
    let is_off = flags & cpu_flag::CLOSED != 0;
    Ok(Some(SchedCpu {
        cpu,
        cluster: flags >> cpu_flag::CLUSTER & 0xff,
        pool: pool_of(pools, cpu),
        policy: name_of(&[first, second]),
        slice_us,
        balancer: name_of(&[balancer]),
        vcpus,
        state: if is_off { Switch::Off } else { Switch::On },
    }))
}

/// Returns pools, CPUs with their policies, vCPUs with their places, and VMs with their parameters.
fn show(client: &mut Client) -> Result<Sched, Error> {
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
        vms.push(parameters(client, vm)?);
    }
    let pools = pools.iter().map(|pool| pool.row(&all)).collect();
    Ok(Sched {
        pools,
        cpus,
        vcpus,
        vms,
        moves,
    })
}
