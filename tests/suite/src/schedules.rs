//! The simulation of `cargo xtask sched` beside the target: turn by turn, the two agree.
//!
//! Two VMs spin on one CPU and note when each of their turns began and ended; a third one wakes up
//! periodically between them, and what it takes is missing from their turns. QEMU counts
//! instructions. The simulator gets the same manifest and the same loads. Both must name the same
//! vCPUs in the same order, at times that differ by little. A comparison that could not fail proves
//! nothing: the turns of the target must differ from the simulation of every other policy.
//!
//! The simulator is what people tune manifests with, so its answers must be those of the target.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::build_images::Images;
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::sched::{self, Loads, Setup, Simulated};
use workbench::{build_images, workspace};
use xtask::run;

use crate::part::{Part, Tally};

mod wake_ups;

/// The spinners, by the numbers of their VMs.
const SPINNERS: [usize; 2] = [0, 1];
/// Starts of the three VMs, in milliseconds of the counter: the first one has the CPU alone for so
/// long that what each of them used before no longer counts. Policies weigh the past: without that
/// time a difference of the boot would shift each turn.
const STARTS_MS: [u64; 3] = [500, 540, 545];
/// All VMs stop at that moment, in milliseconds of the counter.
const END_MS: u64 = 640;
/// Period and work of the third VM. No slice and no frame is a multiple of the period, so wake-ups
/// fall into other places of each turn.
const PERIOD_US: u64 = 970;
const WORK_US: u64 = 20;
/// Shorter pauses of a spinner are exits, and not turns of others. In ns of the counter.
const PAUSE: u64 = 2_000;
/// Most by which the beginning or the end of a turn may differ, in ns: what the ways through the
/// gears differ from the simulated ones adds up over the turns. 2,500 were measured; a way that is
/// 30 instructions longer adds as much in 80 turns.
const TOLERANCE: u64 = 5_000;
/// Least turns that are compared: each policy has 75 to 120 until a VM stops.
const LEAST: usize = 60;
/// The machine counts instructions and needs seconds; the rest is for a busy host.
const TIMEOUT: Duration = Duration::from_secs(120);
/// GICs of the target. The simulation has the costs of each. A world switch costs other
/// instructions for each, and the sum decides about near wake-ups.
const GICS: [u32; 2] = [3, 2];

/// Policies, and what the manifest says for each: of Gear2, and of each VM. With these slices no
/// turn of a spinner ends within 10 us of a wake-up, where a little more or less of a switch would
/// decide which of the two comes first. `bvt` and `null` run on the target in `gearctl_sched`.
const CASES: [Case; 5] = [
    Case {
        policy: "round-robin",
        gear2: "slice-us = <1010>;",
        vms: ["", "", ""],
        unlike: &["fair", "edf"],
    },
    Case {
        policy: "fair",
        gear2: "",
        vms: ["weight = <100>;", "weight = <170>;", ""],
        unlike: &["round-robin", "priority"],
    },
    Case {
        policy: "edf",
        gear2: "",
        vms: [
            "budget-us = <3000>; period-us = <10000>;",
            "",
            "budget-us = <100>; period-us = <970>;",
        ],
        unlike: &["round-robin", "fair", "priority"],
    },
    Case {
        policy: "priority",
        gear2: "slice-us = <2600>;",
        vms: ["", "", "priority = <20>;"],
        unlike: &["round-robin", "fair", "edf"],
    },
    Case {
        policy: "arinc653",
        gear2: WINDOWS,
        vms: ["", "", ""],
        unlike: &["round-robin", "fair", "priority"],
    },
];

/// Windows of the three VMs, one of them split, with a gap. The first start is a multiple of the
/// frame, which begins at 0 in the simulation.
const WINDOWS: &str = "frame-us = <2000>; windows {
	first { vm = \"vm0\"; start-us = <0>; length-us = <600>; };
	second { vm = \"vm1\"; start-us = <700>; length-us = <500>; };
	third { vm = \"vm2\"; start-us = <1200>; length-us = <300>; };
	fourth { vm = \"vm0\"; start-us = <1500>; length-us = <200>; };
};";

/// A policy and its parameters. A parameter that makes two policies decide alike would make the
/// comparison blind for a mix-up of both.
struct Case {
    /// Name in the manifest.
    policy: &'static str,
    /// Properties of `/gear2` beside the policy.
    gear2: &'static str,
    /// Properties of each VM, in the order of their numbers.
    vms: [&'static str; 3],
    /// Policies that decide otherwise with these parameters.
    unlike: &'static [&'static str],
}

/// A turn of a spinner, in ns behind the first start. The first start is the zero point of both:
/// the target's boot takes a time that the simulation has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    vm: usize,
    start: u64,
    end: u64,
}

impl Turn {
    /// Returns by how much the beginnings or the ends differ.
    fn apart(self, other: Turn) -> u64 {
        let [starts, ends] = [(self.start, other.start), (self.end, other.end)];
        starts.0.abs_diff(starts.1).max(ends.0.abs_diff(ends.1))
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VM {} from {} to {}", self.vm, self.start, self.end)
    }
}

/// Each policy has a part for each GIC, so that a difference names both.
pub(super) fn parts() -> Vec<Part> {
    let part = |case: &'static Case, gic: u32| {
        let name = format!("schedules: {} as simulated, GICv{gic}", case.policy);
        Part::new(name, move |tally| compare(case, gic, tally))
    };
    let gics = |case| GICS.map(|gic| part(case, gic));
    let compared = CASES.iter().flat_map(gics);
    compared.chain(wake_ups::parts()).collect()
}

/// The largest distance is printed in a success, too: a tolerance that is nearly used up shows
/// before it fails.
fn compare(case: &Case, gic: u32, tally: &mut Tally) -> Result<()> {
    let (target, blob) = run_target(case, gic)?;
    let simulated = simulate(&blob, gic, None)?;
    let agrees = difference(&target, &simulated).map_or(Ok(()), |difference| bail!("{difference}"));
    let apart = target
        .iter()
        .zip(&simulated)
        .map(|(a, b)| a.apart(*b))
        .max();
    println!(
        "{} turns, up to {} ns apart",
        target.len(),
        apart.unwrap_or(0)
    );
    tally.check("the turns are those of the simulation", agrees);
    for other in case.unlike {
        let other_turns = simulate(&blob, gic, Some(other))?;
        let differs = difference(&target, &other_turns).is_some();
        let differs = differs.then_some(()).context("no turn differs");
        tally.check(&format!("they are not those of {other}"), differs);
    }
    Ok(())
}

/// Returns the first turn that differs by more than the tolerance, if there is one. Turns are
/// compared in order, so the first difference is shown: each later one may follow from it.
fn difference(target: &[Turn], simulated: &[Turn]) -> Option<String> {
    let count = target.len();
    // Few turns agree by chance. The simulation goes on to the end, so it may have more than the
    // target.
    if count < LEAST || simulated.len() < count {
        let simulated = simulated.len();
        return Some(format!(
            "{count} turns on the target, {simulated} simulated"
        ));
    }
    let agree = |(a, b): &(&Turn, &Turn)| a.vm == b.vm && a.apart(**b) <= TOLERANCE;
    let mut pairs = target.iter().zip(simulated).enumerate();
    pairs
        .find(|(_, pair)| !agree(pair))
        .map(|(index, (target, simulated))| {
            format!("turn {index}: {target} on the target, {simulated} simulated")
        })
}

/// Returns the manifest of a case. One text for the target and for the simulator, so that they
/// cannot be told different things.
fn manifest(case: &Case) -> String {
    let Case {
        policy, gear2, vms, ..
    } = case;
    let mut text = format!(
        "/dts-v1/;
/ {{
	compatible = \"gearv,manifest\";
	version = <1>;
	gear2 {{ scheduler = \"{policy}\"; {gear2} }};
	vms {{
"
    );
    for (id, (start, parameters)) in STARTS_MS.iter().zip(vms).enumerate() {
        let role = match SPINNERS.contains(&id) {
            true => format!("spin trace=1 unit=200 gap-us={}", PAUSE / 1_000),
            false => format!("periodic period-us={PERIOD_US} work-us={WORK_US}"),
        };
        let ms = END_MS - start;
        text += &format!(
            "		vm{id} {{
			cpus = <0>; memory-mib = <8>; {parameters}
			image = \"artifact:guest:sched\";
			cmdline = \"role={role} id={id} start-ms={start} ms={ms}\";
			console {{ }};
		}};
"
        );
    }
    text + "\t};\n};\n"
}

/// Runs a case on the target. Returns the turns, and the manifest as a blob. The manifest is
/// returned as the blob that booted, for the simulator.
fn run_target(case: &Case, gic: u32) -> Result<(Vec<Turn>, Vec<u8>)> {
    let folder = workspace::output_dir().join("schedules");
    fs::create_dir_all(&folder)?;
    let source: PathBuf = folder.join(format!("{}.dts", case.policy));
    fs::write(&source, manifest(case))?;
    let images = build_images::build_below("schedules", &source)?;
    let log = folder.join(format!("{}-gicv{gic}.log", case.policy));
    let mut session = start(&images, gic, &log)?;
    let mut printed = String::new();
    for _ in STARTS_MS {
        // Any VM may end first; each prints the word once.
        let more = session.expect("DONE\n", TIMEOUT);
        printed += &more.with_context(|| build_images::last_words(&session))?;
    }
    // A guest that could not note its turns says so; its turns would be compared for nothing.
    if let Some(line) = printed.lines().find(|line| line.contains("FAIL ")) {
        bail!("a guest says {}", line.trim());
    }
    Ok((turns(&printed)?, images.manifest.blob.clone()))
}

/// Starts a machine with one CPU, whose clock follows the instructions (`icount`): the turns are
/// then the same in each run, however busy the host is. One CPU: with several, the order in which
/// QEMU runs them would be in the figures.
fn start(images: &Images, gic: u32, log: &Path) -> Result<Session> {
    let machine = Machine {
        cpu: "max".to_owned(),
        cpus: 1,
        gic,
        icount: true,
        memory_mib: run::memory_for(images)?,
        ..Machine::default()
    };
    images.start(&Qemu::prepare(10)?, &machine, log)
}

/// Reads the lines `TRACE id=<VM> cpu=0 from=<ns> to=<ns>`, up to where a VM stopped to note its
/// turns. A VM that stops early changes the turns of the other, so nothing behind the first stop is
/// compared.
fn turns(printed: &str) -> Result<Vec<Turn>> {
    let mut turns: Vec<Turn> = printed.lines().filter_map(turn).collect();
    turns.sort_by_key(|turn| turn.start);
    let lasts = SPINNERS.map(|vm| turns.iter().rfind(|turn| turn.vm == vm));
    let ends: Option<Vec<_>> = lasts
        .iter()
        .map(|last| Some(last.as_ref()?.start))
        .collect();
    let ends = ends.context("a VM has noted no turn")?;
    let last = ends.into_iter().min().unwrap_or(0);
    // The zero of time is the first start.
    ensure!(last > 0, "a VM has noted one turn");
    turns.retain(|turn| turn.start < last);
    Ok(turns)
}

/// Guests count from their own start, which the manifest sets.
fn turn(line: &str) -> Option<Turn> {
    let (_, words) = line.split_once("TRACE ")?;
    let number = |name: &str| {
        let mut words = words
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        words.find(|word| word.0 == name)?.1.parse::<u64>().ok()
    };
    let vm = usize::try_from(number("id")?).ok()?;
    let behind = (STARTS_MS.get(vm)? - STARTS_MS[0]) * 1_000_000;
    Some(Turn {
        vm,
        start: behind + number("from")?,
        end: behind + number("to")?,
    })
}

/// Simulates the loads of the target under the policy of the manifest, or another one. Loads say
/// what the guests do: one spins from the start, one from its start on, and one has jobs.
fn simulate(blob: &[u8], gic: u32, policy: Option<&str>) -> Result<Vec<Turn>> {
    let behind = STARTS_MS.map(|start| format!("{}ms", start - STARTS_MS[0]));
    let loads = [
        "vm0=spin".to_owned(),
        format!("vm1=burst:work=1000s,sleep=1s,phase={}", behind[1]),
        format!("vm2=trace:{}", jobs()?.display()),
    ];
    let setup = Setup {
        cpu_count: 1,
        loads: Loads::read(&loads)?,
        costs: sched::measured_costs(gic)?,
        by_policy: true,
        length: (END_MS - STARTS_MS[0]) * 1_000_000,
        seed: 1,
        policy: policy.map(str::to_owned),
    };
    let simulated = sched::simulate(blob, &setup)?;
    let cpu = simulated.first().context("no CPU was simulated")?;
    Ok(simulated_turns(cpu))
}

/// Writes the jobs of the third VM: a short one at the start, then one in each period.
fn jobs() -> Result<PathBuf> {
    let first = (STARTS_MS[2] - STARTS_MS[0]) * 1_000;
    let mut text = format!("wake_us,work_us\n{first},0.3\n");
    let end = (END_MS - STARTS_MS[0]) * 1_000;
    for wake in (first + PERIOD_US..end).step_by(PERIOD_US as usize) {
        text += &format!("{wake},{WORK_US}\n");
    }
    let file = workspace::output_dir().join("schedules/jobs.csv");
    fs::write(&file, text)?;
    Ok(file)
}

/// Returns the turns of the spinners, where exits do not end a turn. A spinner cannot see an exit
/// that is shorter than its gap, so the simulation must not either.
fn simulated_turns(cpu: &Simulated) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let spins = |task: &usize| SPINNERS.contains(task);
    let stretches = cpu.virtual_cpu.stretches.iter();
    for stretch in stretches.filter(|stretch| spins(&stretch.task)) {
        match turns.last_mut() {
            Some(last) if last.vm == stretch.task && stretch.start - last.end <= PAUSE => {
                last.end = stretch.end;
            }
            _ => turns.push(Turn {
                vm: stretch.task,
                start: stretch.start,
                end: stretch.end,
            }),
        }
    }
    turns
}
