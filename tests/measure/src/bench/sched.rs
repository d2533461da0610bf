//! `cargo xtask bench --sched`: Gear2's policies beside Linux's, with one guest image in its roles.
//!
//! A case is a question: how late a wake-up is beside spinners, what weights give, what switching
//! costs. Each policy of Gear2 and each class of Linux that can answer it has a row. All of them
//! run on one CPU of the same machine, in which an instruction takes a nanosecond, so that the
//! figures repeat exactly.
//!
//! GearV starts anew for each run of a case. One host of KVM runs all of them, one after the other.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use workbench::build_images;
use workbench::progress::Step;
use workbench::qemu::Qemu;

mod balance;
mod case;
mod cases;
mod figures;
mod gearv;
mod guest;
mod kvm;
mod moves;
mod table;
mod vm;

use case::{Case, System};
pub(super) use cases::Size;
use figures::Question;
use table::Row;

/// Measures all cases whose names contain `only`, prints the table and writes the JSON.
pub(super) fn run(qemu: &Qemu, size: Size, only: &str, json: &Path) -> Result<()> {
    let mut cases = cases::all(size);
    cases.retain(|case| case.name().contains(only));
    let names = || cases::all(size).iter().map(Case::name).collect::<Vec<_>>();
    ensure!(
        !cases.is_empty(),
        "no case is named {only:?}; the names: {}",
        names().join(", ")
    );
    let rows = measure(qemu, &cases)?;
    print!("{}", table::text(&rows));
    table::save(&rows, json)?;
    println!("\nas JSON: {}", json.display());
    let failures = table::failures(&rows);
    ensure!(failures.is_empty(), "{}", failures.join("\n       "));
    Ok(())
}

/// Measures the cases, and returns a row for each in their order.
fn measure(qemu: &Qemu, cases: &[Case]) -> Result<Vec<Row>> {
    let guest = build_images::build_guest("sched")?;
    let mut hosts = start_hosts(qemu, &guest, cases)?;
    let mut rows = Vec::new();
    for case in cases {
        let name = case.name();
        let step = Step::start(&name);
        let reports = match &case.system {
            // No report of a guest's tells it.
            System::GearV { .. } if case.question == Question::Moves => None,
            System::GearV { .. } => Some(gearv::measure(qemu, &guest, case)),
            System::Kvm { .. } => {
                let host = hosts.get_mut(&case.cpus).context("no such host")?;
                Some(host.measure(case))
            }
        };
        let answer = match reports {
            Some(reports) => reports.and_then(|reports| case.question.answer(&reports)),
            None => moves::measure(qemu, &guest, case),
        };
        let row = Row::new(case, answer.with_context(|| name.clone()));
        step.done(&format!("{name}: {}", row.brief()));
        rows.push(row);
    }
    Ok(rows)
}

/// Starts a host of KVM for each number of CPUs. Each runs its cases beside all else.
fn start_hosts(qemu: &Qemu, guest: &Path, cases: &[Case]) -> Result<BTreeMap<u32, kvm::Host>> {
    let mut by_cpus: BTreeMap<u32, Vec<&Case>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.system.is_kvm()) {
        by_cpus.entry(case.cpus).or_default().push(case);
    }
    let hosts = by_cpus.into_iter().map(|(cpus, cases)| {
        let host = kvm::Host::start(qemu, guest, cpus, &cases)?;
        Ok((cpus, host))
    });
    hosts.collect()
}
