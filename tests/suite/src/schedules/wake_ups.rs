//! Wake-ups at every phase of other vCPUs' turns: none takes longer than `cargo xtask bench
//! --sched` allows, whatever the gears do when the timer becomes due.
//!
//! Turns are short and the waker's period is no multiple of them, so that its timer becomes due
//! many times while Gear2 decides on the end of a turn, and while the next vCPU is loaded. QEMU
//! counts instructions.
//!
//! Requirements: G1-TIM-004.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::run;

use super::TIMEOUT;
use crate::part::{Part, Tally};

/// 193 is a prime, and 150 no multiple, so the phase of a wake-up in a turn moves on each time.
const PERIOD_US: u64 = 193;
const SLICE_US: u64 = 150;
/// Each turn's end finds another vCPU to load.
const SPINNERS: usize = 7;
/// Some 2,000 wake-ups.
const MS: u64 = 400;
/// Longest way from a timer's deadline to the handler's first instruction, in instructions. A
/// wake-up that waits for the end of a turn of 150 us takes far longer.
const LIMIT: u64 = 2_500;

/// Policies under which a waker has the CPU at once, and what the manifest says of it. Under other
/// policies a waker waits for its turn.
const CASES: [(&str, &str); 4] = [
    ("fair", ""),
    ("bvt", "latency-us = <1000>;"),
    ("edf", "budget-us = <50>; period-us = <193>;"),
    ("priority", "priority = <20>;"),
];

pub(super) fn parts() -> impl Iterator<Item = Part> {
    CASES.into_iter().map(|(policy, waker)| {
        let name = format!("schedules: wake-ups beside ends of turns, {policy}");
        Part::new(name, move |tally| measure(policy, waker, tally))
    })
}

/// The maximum is what counts: one lost or late wake-up in 2,000 is the fault that is looked for.
fn measure(policy: &str, waker: &str, tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("schedules");
    fs::create_dir_all(&folder)?;
    let source = folder.join(format!("wake-ups-{policy}.dts"));
    fs::write(&source, manifest(policy, waker))?;
    let images = build_images::build_below("schedules", &source)?;
    let machine = Machine {
        cpu: "max".to_owned(),
        cpus: 1,
        icount: true,
        memory_mib: run::memory_for(&images)?,
        ..Machine::default()
    };
    let log = folder.join(format!("wake-ups-{policy}.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let printed = session.expect("DONE\n", TIMEOUT);
    let printed = printed.with_context(|| build_images::last_words(&session))?;
    let figure = |name: &str| -> Result<u64> {
        let mut words = printed.split_whitespace();
        let word = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Ok(word.with_context(|| format!("no {name}"))?.parse()?)
    };
    let (count, median, longest) = (figure("count")?, figure("median")?, figure("max")?);
    println!("figure: {count} wake-ups: median {median}, maximum {longest} instructions");
    ensure!(count > MS * 1_000 / PERIOD_US - 10, "{count} wake-ups");
    ensure!(longest <= LIMIT, "{longest} instructions");
    ensure!(figure("missed")? == 0, "a period was missed");
    tally.pass(1);
    Ok(())
}

fn manifest(policy: &str, waker: &str) -> String {
    let vm = |id, vcpus, start_ms, role: &str, more: &str| {
        format!(
            "		vm{id} {{
			vcpus = <{vcpus}>; cpus = <0>; memory-mib = <8>; {more}
			image = \"artifact:guest:sched\";
			cmdline = \"role={role} id={id} start-ms={start_ms} ms={MS}\";
			console {{ }};
		}};
"
        )
    };
    let periodic = format!("periodic period-us={PERIOD_US}");
    // The spinners begin first: of vCPUs that wake up at once, all but one wait for others.
    let vms = vm(0, 1, 500, &periodic, waker) + &vm(1, SPINNERS, 490, "spin", "");
    format!(
        "/dts-v1/;
/ {{
	compatible = \"gearv,manifest\";
	version = <1>;
	gear2 {{ scheduler = \"{policy}\"; slice-us = <{SLICE_US}>; }};
	vms {{
{vms}	}};
}};
"
    )
}
