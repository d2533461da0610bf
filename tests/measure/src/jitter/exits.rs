//! Gear1's exit counters of the VM that measures, as Gear2 shows them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use workbench::expect::Session;
use xtask::smoke::ESCAPE;

use super::fact;
use crate::report::Facts;

/// Longest time of an answer of Gear2. Gear2 answers at once in virtual time, but a loaded
/// machine's virtual time may pass slowly.
const ANSWER: Duration = Duration::from_secs(60);
/// The reason of the one exit that a guest with pass-through takes by design. Gear1 has to send a
/// physical SGI on behalf of the guest, and only to CPUs of the VM, so the write traps.
const SGI: &str = "sgi";

/// A vCPU's exits so far, by reason. Reasons are kept as Gear2 prints them: a reason that this code
/// does not know counts as an exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exits(BTreeMap<String, u64>);

/// Exits of a vCPU during a measurement. Two counts of SGIs are kept because they check each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Exits other than those for SGIs.
    pub others: u64,
    /// Number of SGIs that the vCPU sent.
    pub sgis: u64,
    /// Number of SGIs that the vCPU's kernel counted, in a time that begins a little earlier.
    pub own: u64,
}

impl Counted {
    /// Returns the counts as facts about a configuration.
    pub(super) fn facts(self) -> Facts {
        let Counted { others, sgis, own } = self;
        let facts = [(fact::EXITS, others), (fact::SGIS, sgis), (fact::OWN, own)];
        Facts::from(facts.map(|(name, count)| (name.to_owned(), count.to_string())))
    }
}

impl Exits {
    /// Returns the counts that a console's log holds of a VM's first vCPU, in their order. A log of
    /// a board has as many as a person pressed the key, and the caller chooses.
    pub(super) fn all_in(log: &str, vm: &str) -> Vec<Exits> {
        let start = starts(vm);
        let counts = log.lines().filter_map(|line| line.split_once(&start));
        counts.map(|(_, counts)| Exits::parse(counts)).collect()
    }

    /// Reads the counts of the VM's first vCPU from Gear2. The key is the one that a person
    /// presses, so that the measurement needs no interface of its own in Gear2.
    pub(super) fn read(gear2: &mut Session, vm: &str) -> Result<Exits> {
        gear2.send(&format!("{ESCAPE}p"))?;
        gear2.expect(&starts(vm), ANSWER)?;
        Ok(Exits::parse(&gear2.expect("\n", ANSWER)?))
    }

    /// Parses ` hvc 3 wfi 17 (250 ns)`. Words that are no pair of a reason and a number, such as
    /// those in parentheses, are skipped.
    fn parse(line: &str) -> Exits {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pairs = words.windows(2).filter_map(|pair| {
            let count = pair[1].parse().ok()?;
            Some((pair[0].to_owned(), count))
        });
        Exits(pairs.collect())
    }

    /// Returns what has come since; `own` is what the guest's kernel says. A reason that appears
    /// for the first time was zero before, and a count that fell, as after a reload of the VM, is
    /// no exit.
    pub(super) fn since(&self, before: &Exits, own: u64) -> Counted {
        let mut counted = Counted {
            others: 0,
            sgis: 0,
            own,
        };
        for (reason, count) in &self.0 {
            let new = count - before.0.get(reason).copied().unwrap_or(0).min(*count);
            match reason.as_str() {
                SGI => counted.sgis += new,
                _ => counted.others += new,
            }
        }
        counted
    }
}

/// Returns the beginning of Gear2's line with the counts of the VM's first vCPU. The measured VMs
/// have one vCPU, and the line of another VM must not be taken for theirs.
fn starts(vm: &str) -> String {
    format!("gear2: {vm} vCPU 0:")
}

#[cfg(test)]
mod tests;
