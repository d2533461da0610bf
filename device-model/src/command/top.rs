//! `gearctl top`: what the vCPUs did in each second.
//!
//! Times are differences of the counter in Gear2's answers, not of this program's clock. Each vCPU
//! has a counter value of its own, read next to its sums: on a busy machine the answers about one
//! vCPU take a tenth of a second, and not in each round as long.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use gear1_abi::exit::ExitReason;

use super::answer::{Answer, Load, Percent};
use crate::client::{Client, Vm};
use crate::error::Error;
use crate::output::Output;

mod screen;
mod session;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows on a terminal what the VMs do, until a key ends it.
pub(super) fn watch(run_directory: &str, by_vcpu: bool) -> Result<(), Error> {
    session::run(run_directory, by_vcpu)
}

/// Prints each second what the vCPUs did in it, over the table of the second before.
pub(super) fn run(
    client: &mut Client,
    count: u64,
    by_vcpu: bool,
    clear: bool,
    print: &mut dyn FnMut(&Answer) -> Result<(), Error>,
) -> Result<(), Error> {
    let vms = client.vms()?;
    let mut old = Sample::take(client, &vms)?;
    for _ in 0..count {
        std::thread::sleep(INTERVAL);
        let new = Sample::take(client, &vms)?;
        if clear {
            clear_screen()?;
        }
        let passed = Passed {
            old: &old,
            new: &new,
        };
        print(&Answer::Top(passed.rows(&vms, by_vcpu)))?;
        old = new;
    }
    Ok(())
}

/// Moves the cursor home, and clears the screen.
fn clear_screen() -> Result<(), Error> {
    let cleared = Output.write_all(b"\x1b[H\x1b[2J");
    cleared.map_err(|error| Error::failed(format!("cannot print: {error}")))
}

/// Counter value of Gear2's answer, then sums of a vCPU: ticks run, waited and stolen, preemptions
/// and exits.
type Sums = [u64; 6];

/// Sums of all vCPUs, each at a moment of its own.
struct Sample {
    /// By the number of the vCPU over all VMs.
    vcpus: BTreeMap<u64, Sums>,
}

impl Sample {
    /// The vCPUs run on while their sums are asked for.
    fn take(client: &mut Client, vms: &[Vm]) -> Result<Self, Error> {
        let mut vcpus = BTreeMap::new();
        for vcpu in vms.iter().flat_map(Vm::numbers) {
            let [_, _, counter, ..] = client.version()?;
            let [ran, _, _, waited, stolen, preemptions] = client.vcpu(vcpu)?;
            let mut exits = 0;
            for reason in ExitReason::ALL {
                exits += client.exits(vcpu, *reason as u64)?[0];
            }
            vcpus.insert(vcpu, [counter, ran, waited, stolen, preemptions, exits]);
        }
        Ok(Self { vcpus })
    }
}

/// Difference between two moments.
struct Passed<'a> {
    /// Figures of a second ago.
    old: &'a Sample,
    /// Figures of now.
    new: &'a Sample,
}

impl Passed<'_> {
    /// Returns a row for each VM, whose vCPUs are added up, or for each vCPU.
    fn rows(&self, vms: &[Vm], by_vcpu: bool) -> Vec<Load> {
        let rows = vms.iter().flat_map(|vm| {
            let numbers = vm.numbers();
            match by_vcpu {
                true => numbers
                    .map(|vcpu| self.row(vm, Some(vcpu), [vcpu]))
                    .collect(),
                false => vec![self.row(vm, None, numbers)],
            }
        });
        rows.collect()
    }

    /// Returns a row about some vCPUs of a VM, or about one that is named.
    fn row(&self, vm: &Vm, vcpu: Option<u64>, vcpus: impl IntoIterator<Item = u64>) -> Load {
        let (mut sums, mut count) = (Sums::default(), 0);
        for vcpu in vcpus {
            let parts = self.of(vcpu);
            count += 1;
            sums.iter_mut()
                .zip(parts)
                .for_each(|(sum, part)| *sum += part);
        }
        let [all_ticks, ran, waited, stolen, preemptions, exits] = sums;
        // A share of one CPU: the sum of several vCPUs may exceed 100 %.
        let ticks = all_ticks / count.max(1);
        // Nobody waits for a CPU of its own.
        let part = |part| (!vm.real_time).then(|| Percent::of(part, ticks));
        Load {
            vcpu,
            vm: vm.name.clone(),
            share_percent: part(ran),
            wait_percent: part(waited),
            steal_percent: part(stolen),
            preemptions: (!vm.real_time).then_some(preemptions),
            exits,
        }
    }

    /// Returns by how much the sums of a vCPU grew. Some begin anew when its VM does.
    fn of(&self, vcpu: u64) -> Sums {
        let of = |sample: &Sample| sample.vcpus.get(&vcpu).copied().unwrap_or_default();
        let (old, new) = (of(self.old), of(self.new));
        let mut grown = new;
        for (grown, old) in grown.iter_mut().zip(old) {
            *grown = grown.saturating_sub(old);
        }
        grown
    }
}

#[cfg(test)]
mod tests;
