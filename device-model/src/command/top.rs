//! `gearctl top`: what the vCPUs did in each second.
//!
//! Times are differences of the counter in Gear2's answers, not of this program's clock: what the
//! answers take does not count.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use gear1_abi::exit::ExitReason;

use super::{Command, share, share_of};
use crate::client::{Client, Vm};
use crate::json::Json;
use crate::output::Output;

/// Reads the words behind `top`.
pub(super) fn parse(words: &[&str]) -> Result<Command, String> {
    // The option may stand before or behind the number.
    let (options, counts): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| **word == "--vcpus");
    let count = match counts[..] {
        [] => u64::MAX,
        [count] => count
            .parse()
            .map_err(|_| format!("`{count}` is not a number of times"))?,
        [_, second, ..] => {
            return Err(format!(
                "`top` takes one number of times, not `{second}` too"
            ));
        }
    };
    let by_vcpu = !options.is_empty();
    Ok(Command::Top { count, by_vcpu })
}

/// Prints each second what the vCPUs did in it, over the table of the second before.
pub(super) fn run(
    client: &mut Client,
    count: u64,
    by_vcpu: bool,
    clear: bool,
    print: &mut dyn FnMut(&Json) -> Result<(), String>,
) -> Result<(), String> {
    let vms = client.vms()?;
    let mut old = Sample::take(client, &vms)?;
    for _ in 0..count {
        std::thread::sleep(Duration::from_secs(1));
        let new = Sample::take(client, &vms)?;
        if clear {
            clear_screen()?;
        }
        let passed = Passed {
            old: &old,
            new: &new,
        };
        print(&passed.rows(&vms, by_vcpu))?;
        old = new;
    }
    Ok(())
}

/// Moves the cursor home, and clears the screen.
fn clear_screen() -> Result<(), String> {
    let cleared = Output.write_all(b"\x1b[H\x1b[2J");
    cleared.map_err(|error| format!("cannot print: {error}"))
}

/// Sums of a vCPU: ticks run, waited and stolen, then preemptions and exits.
type Sums = [u64; 5];

/// Sums of all vCPUs at a moment.
struct Sample {
    /// Counter value of Gear2's answer, in ticks.
    counter: u64,
    /// By the number of the vCPU over all VMs.
    vcpus: BTreeMap<u64, Sums>,
}

impl Sample {
    /// The vCPUs run on while their sums are asked for: a sample is of nearly one moment, and not
    /// of one.
    fn take(client: &mut Client, vms: &[Vm]) -> Result<Self, String> {
        let [_, _, counter, ..] = client.version()?;
        let mut vcpus = BTreeMap::new();
        for vcpu in vms.iter().flat_map(Vm::numbers) {
            let [ran, _, _, waited, stolen, preemptions] = client.vcpu(vcpu)?;
            let mut exits = 0;
            for reason in ExitReason::ALL {
                exits += client.exits(vcpu, *reason as u64)?[0];
            }
            vcpus.insert(vcpu, [ran, waited, stolen, preemptions, exits]);
        }
        Ok(Self { counter, vcpus })
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
    fn rows(&self, vms: &[Vm], by_vcpu: bool) -> Json {
        let rows = vms.iter().flat_map(|vm| {
            let numbers = vm.numbers();
            match by_vcpu {
                true => numbers
                    .map(|vcpu| self.row(vm, vec![("vcpu", vcpu.into())], [vcpu]))
                    .collect(),
                false => vec![self.row(vm, Vec::new(), numbers)],
            }
        });
        Json::List(rows.collect())
    }

    /// Returns a row about some vCPUs of a VM, with what names it in front.
    fn row(
        &self,
        vm: &Vm,
        mut row: Vec<(&'static str, Json)>,
        vcpus: impl IntoIterator<Item = u64>,
    ) -> Json {
        let mut sums = Sums::default();
        for vcpu in vcpus {
            let parts = self.of(vcpu);
            sums.iter_mut()
                .zip(parts)
                .for_each(|(sum, part)| *sum += part);
        }
        let [ran, waited, stolen, preemptions, exits] = sums;
        // A share of one CPU: the sum of several vCPUs may exceed 100 %.
        let ticks = self.new.counter.wrapping_sub(self.old.counter);
        // Nobody waits for a CPU of its own.
        let known = |value: Json| if vm.real_time { Json::Null } else { value };
        row.extend([
            ("vm", vm.name.as_str().into()),
            ("share", share_of(vm, ran, ticks).as_str().into()),
            ("wait", known(share(waited, ticks).as_str().into())),
            ("steal", known(share(stolen, ticks).as_str().into())),
            ("preemptions", known(preemptions.into())),
            ("exits", exits.into()),
        ]);
        Json::Object(row)
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
