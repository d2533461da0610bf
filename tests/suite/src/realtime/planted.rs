//! Shows that the tests of real-time VMs find what they look for: each protection taken out of a
//! copy of Gear1 makes those of them fail that are about it. Each of a real-time VM's neighbours is
//! in the list.
//!
//! A test of "nothing happens" passes just as well when it looks at the wrong place. Only a Gear1
//! in which something does happen can tell.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use workbench::build_images;

use super::immunity;
use super::linux::{self, Step};
use super::machine::{images, starts};
use crate::change::Change;
use crate::copy;
use crate::part::{Part, Tally};

/// A protection to remove: a file of Gear1, a text in it, the replacement, and the disturbance that
/// must show. Features other than `image` build Gear1 with checks of its own.
struct Removed {
    name: &'static str,
    change: Change,
    by: By,
    features: &'static str,
}

/// Test that must fail because of the planted bug. The test is named, because any failure would be
/// too easy: a Gear1 that does not boot fails everywhere.
enum By {
    /// A disturbance by another VM: the name of the VM, and the title of the disturbance.
    Others(&'static str, &'static str),
    /// All disturbances by Linux in other VMs.
    Linux(&'static [Step]),
    /// Starts of the second CPU by the first one, with the delays of [`LATE_KICK`].
    Starts,
}

/// Widens the window of a few instructions in which a kick can come too late, so that each start of
/// a CPU falls into it. A CPU that has turned itself off polls for 200 us for its next start before
/// it waits for a kick; the CPU that starts it sends the kick 100 us after the poll could have seen
/// the start. The numbers are ticks of QEMU's counter of 62.5 MHz.
const LATE_KICK: [(&str, Change); 3] = [
    (
        "late: a CPU that turned itself off looks",
        Change::Ahead(
            "    let end = this_cpu::now().wrapping_add(12_500);
    while machine::vcpu(id).state() != VcpuState::Ready && this_cpu::now() < end {}
",
        ),
    ),
    (
        "late: who turns a CPU on kicks it",
        Change::Ahead("    be_late();\n"),
    ),
    (
        "late: how late",
        Change::Ahead(
            "fn be_late() {
    let end = gear1_arch::cpu::now().wrapping_add(6_250);
    while gear1_arch::cpu::now() < end {}
}

",
        ),
    ),
];

/// Each name says what holds no longer once it is out; the place in the code is marked by it.
const REMOVED: &[Removed] = &[
    // Every bit of a shared interrupt counts as the VM's: the trespasser can disable and retarget
    // others' SPIs.
    Removed {
        name: "a real-time VM has its own interrupts only",
        change: Change::Swap("|| ", "|| intid >= 32 || "),
        by: By::Others("trespasser", "trespasser goes for others' SPIs"),
        features: "image",
    },
    // The index of a vCPU is taken for the number of a CPU, so an SGI to the trespasser itself goes
    // to CPU 0.
    Removed {
        name: "its SGIs reach its own CPUs only",
        change: Change::Swap("target)", "target).and(CpuIndex::new(target.index()))"),
        by: By::Others("trespasser", "trespasser goes for others' CPUs by SGIs"),
        features: "image",
    },
    // The index of a vCPU is taken for the number of a CPU, so a frame of the trespasser's leads to
    // the registers of CPU 0.
    Removed {
        name: "its redistributors are its own CPUs'",
        change: Change::Swap(
            "owner_cpu(machine, loaded, owner)",
            "CpuIndex::new(owner.index())",
        ),
        by: By::Others("trespasser", "trespasser goes for others' redistributors"),
        features: "image",
    },
    // A device's mapping goes on over its neighbours' registers, which may master the bus.
    Removed {
        name: "it has no more of the board than its devices",
        change: Change::Swap("bytes()", "bytes().max(0x2_0000)"),
        by: By::Others("trespasser", "trespasser sets up others' DMA"),
        features: "image",
    },
    // HCR_EL2.IMO stays set: each timer interrupt of the VM is an exit, which its windows count.
    Removed {
        name: "its interrupts do not go to Gear1",
        change: Change::Swap(" & !hcr::IMO", ""),
        by: By::Others("attacker", "attacker"),
        features: "image",
    },
    // The first CPU gets a kick more, whomever it is for. That CPU is the real-time VM's, which
    // takes the SGI for an interrupt of its own.
    Removed {
        name: "a kick goes to one CPU",
        change: Change::Ahead("    kick_cpu(cpu, machine, CpuIndex::default());\n"),
        by: By::Others("storm", "storm"),
        features: "image",
    },
    // Linux' vCPUs wake each other all the time, so the bug above has to show there as well.
    Removed {
        name: "a kick goes to one CPU, beside Linux",
        change: Change::Ahead("    kick_cpu(cpu, machine, CpuIndex::default());\n"),
        by: By::Linux(&linux::SHORT),
        features: "image",
    },
    // The end of any VM freezes the first one, which is the real-time VM.
    Removed {
        name: "who is stopped loses its own memory",
        change: Change::Swap("id", "VmId::default()"),
        by: By::Others("resets", "resets"),
        features: "image",
    },
    // A restart of Gear2 kicks all CPUs to the meeting, those too that have no loop of Gear2's.
    Removed {
        name: "a restart of Gear2 calls its own CPUs only",
        change: Change::Swap("            && MEETING.has(other)\n", ""),
        by: By::Others("saboteur", "saboteur"),
        features: "image",
    },
    // Without the write to ICPENDR an SGI of Gear1's is left for the guest that gets the interface.
    Removed {
        name: "nothing pends when it gets the interface",
        change: Change::Drop,
        by: By::Starts,
        features: "image",
    },
    // The guard of the VM is dropped before the kick, so a CPU may see the start, run, and be
    // kicked afterwards.
    Removed {
        name: "who is started waits for its kick",
        change: Change::Ahead("    drop(vm);\n"),
        by: By::Starts,
        features: "image",
    },
    // `peers` becomes a number that is never 0, so a VM without peers walks its tables under the
    // lock over shared memory.
    Removed {
        name: "a real-time VM's path takes no lock of others",
        change: Change::Swap("boot.peers", "machine.boot.vm_count"),
        by: By::Others("foe", "foe attacks"),
        features: "image,check-locks",
    },
];

impl Removed {
    /// Returns the name of the place. The mark in the code is the sentence.
    fn place(&self) -> String {
        format!("no longer: {}", self.name)
    }
}

/// Returns the names of all places. The list of planted bugs is compared with the marks in the
/// code, so it has to know these as well.
#[cfg(test)]
pub(crate) fn places() -> Vec<String> {
    let removed = REMOVED.iter().map(Removed::place);
    let late = LATE_KICK.iter().map(|(place, _)| (*place).to_owned());
    removed.chain(late).collect()
}

/// A part for each. A copy of the workspace is made anew for each, so that no change is left for
/// the next.
pub(super) fn parts() -> Vec<Part> {
    let parts = REMOVED.iter().map(|removed| {
        let name = format!("protections of real-time VMs, one out: {}", removed.name);
        let body = move |tally: &mut Tally| {
            tally.check(
                removed.name,
                take_out(removed, &copy::fresh(copy::FOR_IMAGES)?),
            );
            Ok(())
        };
        Part::new(name, body).slow(true)
    });
    let late = Part::new("a kick that comes late reaches no real-time VM", late_kick).slow(true);
    parts.chain([late]).collect()
}

/// G1-RT-007: with both protections a late kick never becomes an interrupt of the guest. The
/// opposite of the rows with `By::Starts`: the delays alone must break nothing.
fn late_kick(tally: &mut Tally) -> Result<()> {
    let copy = copy::fresh(copy::FOR_IMAGES)?;
    for (place, change) in LATE_KICK {
        change.plant(place, &copy)?;
    }
    tally.check("starts", starts(build(&copy, "image")?));
    Ok(())
}

/// Takes a protection out of the copy, and sees whether that is found. What was found is printed,
/// as a person has to judge whether it was found for the right reason.
fn take_out(removed: &Removed, copy: &Path) -> Result<()> {
    if let By::Starts = removed.by {
        for (place, change) in LATE_KICK {
            change.plant(place, copy)?;
        }
    }
    removed.change.plant(&removed.place(), copy)?;
    let gear1 = build(copy, removed.features)?;
    let found = match removed.by {
        By::Others(name, title) => found_beside(name, title, gear1)?,
        By::Linux(steps) => found_beside_linux(steps, gear1)?,
        By::Starts => match starts(gear1) {
            Ok(()) => bail!("nothing fails without it"),
            Err(error) => format!("{error:#}"),
        },
    };
    println!(
        "{}: {}",
        removed.name,
        found.lines().next().unwrap_or_default()
    );
    Ok(())
}

/// A bug that does not build is found by nothing, and fails here.
fn build(copy: &Path, features: &str) -> Result<PathBuf> {
    build_images::build_gear1_of(copy, "unprotected", features).context("it does not build")
}

/// Returns the failure beside another VM during the expected disturbance. A halt counts: Gear1 may
/// notice by itself that it has lost a rule.
fn found_beside(name: &str, title: &str, gear1: PathBuf) -> Result<String> {
    let images = images("rt-immune", Some(gear1))?;
    let mut tally = Tally::default();
    let end = immunity::attack(&images, 3, &[name], &mut tally);
    let wanted = tally.failures.iter().find(|why| why.starts_with(title));
    // The machine may halt, or the real-time VM fall silent.
    let end = end.err().map(|error| format!("{error:#}"));
    let found = wanted.cloned().or(end);
    found.with_context(|| match tally.failures.first() {
        Some(other) => format!("only this fails without it: {other}"),
        None => "nothing fails without it".to_owned(),
    })
}

/// Returns what fails beside Linux, where each of the steps has to. Each disturbance has to show
/// the bug by itself, so that none of them is idle.
fn found_beside_linux(steps: &[Step], gear1: PathBuf) -> Result<String> {
    let verdicts = linux::beside(&images("rt-linux", Some(gear1))?, steps, None)?;
    let mut found = String::new();
    for (step, verdict) in verdicts {
        let error = verdict
            .err()
            .with_context(|| format!("{step:?} does not fail without it"))?;
        found = format!("{step:?}: {error:#}");
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
