//! All cases.
//!
//! A case asks one question of one system: GearV with one policy, or Linux under KVM with the class
//! that comes nearest. All systems get the same guests, so that a difference is the scheduler's.
//!
//! | question | GearV | Linux |
//! |---|---|---|
//! | how late is a wake-up | each policy | EEVDF, nice -20, FIFO, DEADLINE |
//! | are shares as promised | `fair`, `bvt` | `cpu.weight` |
//! | what does switching cost | policies with slices | EEVDF |
//! | does a cap hold | `fair`, `edf` | `cpu.max`, DEADLINE |
//! | does a burst end in time | all but `null` and `arinc653` | EEVDF, FIFO, DEADLINE |
//! | are deadlines kept | `edf` | DEADLINE |
//! | do windows begin in time | `arinc653` | none |
//! | is load spread | `fair` with the balancer `load` | EEVDF |
//! | what does a move cost | `fair` with the balancer `load` | none |

use super::case::{Case, System};
use super::figures::Question;
use super::vm::{Run, Vm};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Size {
    /// Length of a run that measures latencies.
    latency_ms: u64,
    /// Length of a run that measures shares.
    share_ms: u64,
    /// Number of jobs, and of frames.
    events: u64,
}

impl Size {
    /// A minute or two.
    pub(in crate::bench) const SHORT: Size = Size {
        latency_ms: 200,
        share_ms: 1_000,
        events: 1_000,
    };
    /// The lengths of the other systems' figures in the documents.
    pub(in crate::bench) const USUAL: Size = Size {
        latency_ms: 2_000,
        share_ms: 5_000,
        events: 10_000,
    };
    /// The numbers of jobs and frames that the goals name.
    pub(in crate::bench) const FULL: Size = Size {
        events: 100_000,
        ..Size::USUAL
    };
}

/// Numbers of vCPUs that spin beside the one that wakes up, and the VMs that they are in. 31
/// spinners and the waker are all of the 32 vCPUs that a system may have, and a VM has at most
/// eight.
const SPINNERS: [(&str, &[usize]); 5] = [
    ("alone", &[]),
    ("beside 1 spinner", &[1]),
    ("beside 2 spinners", &[1, 1]),
    ("beside 7 spinners", &[7]),
    ("beside 31 spinners", &[8, 8, 8, 7]),
];
/// Periods of the VM that wakes up. With one of them the phases of timers may be lucky.
const PERIODS_US: [u64; 2] = [970, 1_000];
/// Latency alone, and beside spinners, that the goals allow. Beside spinners a wake-up has a world
/// switch, which takes most of the time.
const ALONE_US: f64 = 0.25;
const BESIDE_US: f64 = 2.5;
/// Slices: of `fair` and `bvt`, and of the other policies that have one.
const SHORT_SLICE_US: f64 = 2_500.0;
/// Both are the policies' own defaults, with which they are measured.
const SLICE_US: f64 = 5_000.0;
/// Policies with slices, which the goals of switching are about: a slice bounds the longest gap of
/// an equal.
const SHARING: [(&str, f64); 4] = [
    ("round-robin", SLICE_US),
    ("fair", SHORT_SLICE_US),
    ("bvt", SHORT_SLICE_US),
    ("priority", SLICE_US),
];
/// Servers of the jobs: budget and period. Their utilisation is 0.95.
const SERVERS_US: [[u64; 2]; 3] = [[2_000, 5_000], [3_000, 10_000], [5_000, 20_000]];
/// Part of a budget that is left for what a wake-up and a switch take. A job that took its whole
/// budget would exhaust its server and wait for the next period.
const RESERVE_US: u64 = 10;
const LARGE_RESERVE_US: u64 = 100;
/// Length of the cap's period, and the cap. A period of 10 ms has 2.5 ms of budget, far more than
/// the 2 us to which the end of a run is judged.
const CAP_PERIOD_US: u64 = 10_000;
const CAP_PERCENT: u64 = 25;

/// Returns all cases, in the order of the table. Cases of one question follow each other, which the
/// table relies on for its headings.
pub(super) fn all(size: Size) -> Vec<Case> {
    let mut cases = latencies(size);
    cases.extend(weights(size));
    cases.extend(lost(size));
    cases.extend(caps(size));
    cases.extend(bursts(size));
    cases.extend(jobs(size));
    cases.push(windows(size));
    cases.extend(balances());
    cases.push(moves());
    cases
}

/// Returns a VM that never sleeps: the neighbour that leaves a policy the least room. A neighbour
/// that slept would leave gaps in which any policy looks urgent.
fn spinner() -> Vm {
    Vm::new("role=spin")
}

/// Returns the cases of wake-ups. The goal is that of the policies that promise one; `round-robin`
/// and Linux's classes are shown beside them.
fn latencies(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, spinners) in SPINNERS {
        let case = |system, goal_us, waker: &dyn Fn(u64) -> Vm, others: &Vm| Case {
            what: format!("latency {what}"),
            cpus: 1,
            system,
            runs: PERIODS_US
                .iter()
                .map(|period_us| latency_run(size, waker(*period_us), spinners, others))
                .collect(),
            question: Question::Latency { goal_us },
        };
        let goal_us = Some(if spinners.is_empty() {
            ALONE_US
        } else {
            BESIDE_US
        });
        for (system, judged, waker, others) in latency_systems(spinners.is_empty()) {
            let goal_us = goal_us.filter(|_| judged);
            cases.push(case(system, goal_us, &waker, &others));
        }
    }
    cases
}

/// Returns a run with the waker as VM 0, whose report is the measured one. The spinners have no
/// report that matters, and their number is all that changes between two cases.
fn latency_run(size: Size, waker: Vm, spinners: &[usize], others: &Vm) -> Run {
    let spinners = spinners
        .iter()
        .map(|vcpus| others.clone().with_vcpus(*vcpus));
    Run {
        vms: std::iter::once(waker).chain(spinners).collect(),
        ms: size.latency_ms,
    }
}

/// A system, whether it has the goal, its VM that wakes up with a period, and a spinner.
type LatencySystem = (System, bool, fn(u64) -> Vm, Vm);

/// Returns the systems with a waker that is urgent by the means of each policy or class. `null`
/// gives each vCPU a CPU of its own, and is measured alone.
fn latency_systems(alone: bool) -> Vec<LatencySystem> {
    let kvm = |class| System::Kvm { class };
    let mut systems: Vec<LatencySystem> = vec![
        (System::gearv("round-robin"), false, plain_waker, spinner()),
        (System::gearv("fair"), true, plain_waker, spinner()),
        (System::gearv("bvt"), true, warped_waker, spinner()),
        (System::gearv("edf"), true, served_waker, spinner()),
        (System::gearv("priority"), true, high_waker, low_spinner()),
        (kvm("EEVDF"), false, plain_waker, spinner()),
        (kvm("EEVDF nice -20"), false, nice_waker, spinner()),
        (kvm("FIFO"), false, high_waker, spinner()),
        (kvm("DEADLINE"), false, served_waker, spinner()),
    ];
    if alone {
        systems.insert(0, (System::gearv("null"), true, plain_waker, spinner()));
    }
    systems
}

/// Returns a VM that wakes up in each period by its own timer and notes how late that is. The
/// policy is told nothing about the VM, so that a good latency is the policy's own merit.
fn plain_waker(period_us: u64) -> Vm {
    Vm::new(format!("role=periodic period-us={period_us}"))
}

/// Returns a waker whose vCPU may run ahead of its share by 1,000 us, which is how `bvt` prefers
/// one.
fn warped_waker(period_us: u64) -> Vm {
    plain_waker(period_us).treated("latency-us = <1000>;", "")
}

/// Returns a waker with a server: a budget of 200 us in each period, of which a wake-up takes a
/// small part. The budget is many times what a wake-up takes: a server that ran out would measure
/// its replenishment.
fn served_waker(period_us: u64) -> Vm {
    let gearv = format!("budget-us = <200>; period-us = <{period_us}>;");
    let kvm = format!("deadline=200,{period_us},{period_us}");
    plain_waker(period_us).treated(gearv, kvm)
}

/// Returns a waker above all others by a fixed priority. The real-time priority of 50 under Linux
/// is the middle of the range; any above the spinners' would do, as these have none.
fn high_waker(period_us: u64) -> Vm {
    plain_waker(period_us).treated("priority = <20>;", "fifo=50")
}

/// Returns a waker with the lowest nice value, the most that a thread of SCHED_OTHER can have.
fn nice_waker(period_us: u64) -> Vm {
    plain_waker(period_us).treated("", "nice=-20")
}

/// Returns a spinner below the waker's priority, so that the priorities alone decide.
fn low_spinner() -> Vm {
    spinner().treated("priority = <10>;", "")
}

/// Returns the cases of weights. Three spinners want all of the CPU, so that their work is in the
/// ratio of the weights if the policy keeps them. The ratios are powers of two, far enough apart
/// that two equal shares cannot pass for them.
fn weights(size: Size) -> Vec<Case> {
    const WEIGHTS: [u64; 3] = [100, 200, 400];
    let vms = WEIGHTS.map(|weight| {
        spinner()
            .treated(format!("weight = <{weight}>;"), "")
            .grouped("weight", weight.to_string())
    });
    let systems = [
        (System::gearv("fair"), true),
        (System::gearv("bvt"), true),
        (
            System::Kvm {
                class: "cpu.weight",
            },
            false,
        ),
    ];
    let cases = systems.map(|(system, judged)| Case {
        what: "weights 1:2:4".to_owned(),
        cpus: 1,
        system,
        runs: vec![Run {
            vms: vms.to_vec(),
            ms: size.share_ms,
        }],
        question: Question::Weights {
            weights: WEIGHTS.map(|weight| weight as f64).to_vec(),
            judged,
        },
    });
    cases.into()
}

/// Returns the cases of switching. The same work is done by one spinner alone and by three in
/// turns; what the three do less is what the switches took. The run alone is under the same policy,
/// so that the number of spinners is all that differs.
fn lost(size: Size) -> Vec<Case> {
    let policies = SHARING.map(|(policy, slice_us)| (System::gearv(policy), Some(slice_us)));
    let systems = policies
        .into_iter()
        .chain([(System::Kvm { class: "EEVDF" }, None)]);
    let cases = systems.map(|(system, slice_us)| Case {
        what: "lost to switching, three equal spinners".to_owned(),
        cpus: 1,
        system,
        runs: [1, 3]
            .map(|count| Run {
                vms: vec![spinner(); count],
                ms: size.share_ms,
            })
            .into(),
        question: Question::Lost { slice_us },
    });
    cases.collect()
}

/// Returns the cases of a cap. The capped VM runs beside a spinner that takes what the cap leaves,
/// and another run without a neighbour says what the whole CPU is.
fn caps(size: Size) -> Vec<Case> {
    // Runs are judged to 2 us: the spinner looks at the counter as often.
    let fine = || Vm::new("role=spin unit=200");
    let budget_us = CAP_PERIOD_US * CAP_PERCENT / 100;
    let group = format!("{budget_us} {CAP_PERIOD_US}");
    let by_cap = format!("cap-percent = <{CAP_PERCENT}>; period-us = <{CAP_PERIOD_US}>;");
    let by_budget = format!("budget-us = <{budget_us}>; period-us = <{CAP_PERIOD_US}>;");
    let deadline = format!("deadline={budget_us},{CAP_PERIOD_US},{CAP_PERIOD_US}");
    let kvm = |class| System::Kvm { class };
    let systems = [
        (System::gearv("fair"), fine().treated(by_cap, "")),
        (System::gearv("edf"), fine().treated(by_budget, "")),
        (kvm("cpu.max"), fine().grouped("max", group)),
        (kvm("DEADLINE"), fine().treated("", deadline)),
    ];
    let cases = systems.map(|(system, capped)| Case {
        what: "cap of 25 %, beside a spinner".to_owned(),
        cpus: 1,
        runs: [vec![fine()], vec![capped, fine()]]
            .map(|vms| Run {
                vms,
                ms: size.share_ms,
            })
            .into(),
        question: Question::Cap {
            percent: CAP_PERCENT as f64,
            budget_us: budget_us as f64,
            judged: !system.is_kvm(),
        },
        system,
    });
    cases.into()
}

/// Returns the cases of bursts. A burst of 3 ms is longer than a slice of `fair` and `bvt` (2.5
/// ms), so a policy that shares by slices interrupts the burst: only `edf` and `priority` have the
/// goal. The server of `edf` has 0.1 ms more than the burst, for the wake-up and the switches
/// around it.
fn bursts(size: Size) -> Vec<Case> {
    let burst = || Vm::new("role=burst");
    let served = burst().treated(
        "budget-us = <3100>; period-us = <6000>;",
        "deadline=3100,6000,6000",
    );
    let high = burst().treated("priority = <20>;", "fifo=50");
    let kvm = |class| System::Kvm { class };
    let systems = [
        (System::gearv("round-robin"), burst(), spinner()),
        (System::gearv("fair"), burst(), spinner()),
        (System::gearv("bvt"), burst(), spinner()),
        (System::gearv("edf"), served.clone(), spinner()),
        (System::gearv("priority"), high.clone(), low_spinner()),
        (kvm("EEVDF"), burst(), spinner()),
        (kvm("FIFO"), high, spinner()),
        (kvm("DEADLINE"), served, spinner()),
    ];
    let cases = systems.map(|(system, burst, spinner)| Case {
        what: "bursts of 3 ms, beside a spinner".to_owned(),
        cpus: 1,
        question: Question::Burst {
            judged: matches!(&system, System::GearV { policy, .. } if ["edf", "priority"].contains(policy)),
        },
        system,
        runs: vec![Run {
            vms: vec![burst, spinner],
            ms: size.share_ms,
        }],
    });
    cases.into()
}

/// Returns the cases of jobs. Each server's job takes the whole budget but the reserve. KVM also
/// has a larger one: Linux's own work for a vCPU's thread counts as the thread's. The run is as
/// long as all servers together need for the number of jobs, and 20 ms longer, which is the longest
/// of the periods.
fn jobs(size: Size) -> Vec<Case> {
    let per_second: u64 = SERVERS_US
        .iter()
        .map(|[_, period]| 1_000_000 / period)
        .sum();
    let kvm = |class| System::Kvm { class };
    let systems = [
        (System::gearv("edf"), RESERVE_US),
        (kvm("DEADLINE"), RESERVE_US),
        (kvm("DEADLINE, 0.1 ms less"), LARGE_RESERVE_US),
    ];
    let cases = systems.map(|(system, reserve_us)| Case {
        what: "jobs of three servers, U = 0.95".to_owned(),
        cpus: 1,
        question: Question::Jobs {
            judged: !system.is_kvm(),
        },
        system,
        runs: vec![Run {
            vms: SERVERS_US.map(|server| worker(server, reserve_us)).into(),
            ms: (size.events * 1_000).div_ceil(per_second) + 20,
        }],
    });
    cases.into()
}

/// Returns a VM with a server, and with a job in each period. Deadline and period are equal, for
/// which a utilisation of up to 1 can be kept by EDF on one CPU.
fn worker([budget, period]: [u64; 2], reserve_us: u64) -> Vm {
    let work = budget - reserve_us;
    Vm::new(format!("role=periodic period-us={period} work-us={work}")).treated(
        format!("budget-us = <{budget}>; period-us = <{period}>;"),
        format!("deadline={budget},{period},{period}"),
    )
}

/// Major frame of the time table, as short as the period of a control loop. The number of frames is
/// the number of windows of each VM, and so of the samples.
const FRAME_US: u64 = 1_000;
/// The time table: two VMs with a window each, and the rest for all others. The windows follow each
/// other without a gap, so that a window that ends late delays the next one.
const TABLE: &str = "frame-us = <1000>; windows { \
    a { vm = \"vm0\"; start-us = <0>; length-us = <300>; }; \
    b { vm = \"vm1\"; start-us = <300>; length-us = <300>; }; \
    rest { start-us = <600>; length-us = <400>; }; };";

/// Returns the case of a time table, with a spinner in what the windows leave. The spinner is in
/// the rest of the frame, so that each first window begins with a switch from a VM that does not
/// yield.
fn windows(size: Size) -> Case {
    let window = |start_us| {
        Vm::new(format!(
            "role=window unit=100 frame-us={FRAME_US} window-us={start_us}"
        ))
    };
    Case {
        what: "windows of a time table".to_owned(),
        cpus: 1,
        system: System::gearv_with("arinc653", TABLE),
        runs: vec![Run {
            vms: vec![window(0), window(300), spinner()],
            ms: size.events * FRAME_US / 1_000,
        }],
        question: Question::Windows,
    }
}

/// Returns the cases of four spinners that begin on one of two CPUs. GearV starts a VM on the first
/// CPU of its list, and may move it from then on: another VM keeps the second CPU busy until
/// shortly before the start. Linux has the threads on one CPU until they are released, at several
/// phases of their turns. One phase under Linux could hit the moment at which its balancer runs
/// anyway, and the goal is for any moment.
fn balances() -> Vec<Case> {
    let spinner = || Vm::new("role=spin trace=1 gap-us=200");
    let spinners = |kvm: &str| vec![spinner().treated("", kvm); 4];
    let mut beside_busy = spinners("");
    beside_busy.push(Vm::new("role=busy").only_on(1));
    let released = FREE_MS.map(|ms| spinners(&format!("free=$((start + {ms}))")));
    let systems = [
        (
            System::gearv_with("fair", "balancer = \"load\";"),
            vec![beside_busy],
        ),
        (System::Kvm { class: "EEVDF" }, released.into()),
    ];
    let cases = systems.map(|(system, runs)| Case {
        what: "four spinners on one of two CPUs".to_owned(),
        cpus: 2,
        question: Question::Balance {
            judged: !system.is_kvm(),
        },
        system,
        runs: (runs.into_iter())
            .map(|vms| Run {
                vms,
                ms: BALANCE_MS,
            })
            .collect(),
    });
    cases.into()
}

/// Returns the case of moves: of eight spinners on one CPU, four go to the other one. The VM `busy`
/// keeps the second CPU busy until the start, so that all eight begin on the first one. The case is
/// GearV's alone, as its figures are instructions of the gears, which nothing counts in Linux.
fn moves() -> Case {
    let mut vms = vec![spinner(); 8];
    vms.push(Vm::new("role=busy").only_on(1));
    Case {
        what: "a move to another CPU".to_owned(),
        cpus: 2,
        system: System::gearv_with("fair", "balancer = \"load\";"),
        runs: vec![Run { vms, ms: MOVES_MS }],
        question: Question::Moves,
    }
}

/// Length of that run. The run is short because each instruction of the gears in it is logged.
const MOVES_MS: u64 = 40;

/// Times from the start of the guests to the release of their threads: four phases, a millisecond
/// apart, of Linux's slices.
const FREE_MS: [u64; 4] = [100, 101, 102, 103];
/// Length of these runs: many times the goal of 8 ms, and longer than Linux takes.
const BALANCE_MS: u64 = 300;

#[cfg(test)]
mod tests;
