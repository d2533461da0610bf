//! Shows that the tests of real-time VMs find what they look for: each protection taken out of a copy
//! of Gear1 makes them fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{images, immunity};
use crate::test::{Part, Tally};
use crate::{build_images, workspace};

/// A protection: in a file of Gear1, what is replaced by what, and who disturbs then.
struct Removed {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    others: &'static [&'static str],
    features: &'static str,
}

const REMOVED: &[Removed] = &[
    Removed {
        name: "a real-time VM has its own interrupts only",
        file: "core/src/vgic/passthrough.rs",
        from: "private || intid >= 32 && owned(intid)",
        to: "private || intid >= 32 && (owned(intid) || true)",
        others: &["foe"],
        features: "image",
    },
    Removed {
        name: "its SGIs reach its own CPUs only",
        file: "runtime/src/passthrough.rs",
        from: "if let Some(home) = home(machine, loaded, target.index())",
        to: "if let Some(home) = home(machine, loaded, target.index()).and(CpuIndex::new(target.index()))",
        others: &["foe"],
        features: "image",
    },
    Removed {
        name: "its interrupts do not go to Gear1",
        file: "runtime/src/boot.rs",
        from: "hcr::GUEST & !hcr::TWI & !hcr::IMO",
        to: "hcr::GUEST & !hcr::TWI",
        others: &["attacker"],
        features: "image",
    },
    Removed {
        name: "a kick goes to one CPU",
        file: "runtime/src/signal.rs",
        from: "    kick(cpu, machine, machine::vcpu(id).home());",
        to: "    kick(cpu, machine, machine::vcpu(id).home());\n    kick(cpu, machine, CpuIndex::default());",
        others: &["storm"],
        features: "image",
    },
    Removed {
        name: "who is stopped loses its own memory",
        file: "runtime/src/lifecycle.rs",
        from: "    realtime::freeze(cpu, machine, id);",
        to: "    realtime::freeze(cpu, machine, VmId::default());",
        others: &["resets"],
        features: "image",
    },
    Removed {
        name: "a restart of Gear2 calls its own CPUs only",
        file: "runtime/src/supervise.rs",
        from: "            && MEETING.has(other)\n",
        to: "",
        others: &["saboteur"],
        features: "image",
    },
    Removed {
        name: "a real-time VM's path takes no lock of others",
        file: "runtime/src/ffa.rs",
        from: ") -> bool {\n    if machine::boot_vm(machine, vm).peers == 0 {\n        return false;",
        to: ") -> bool {\n    if machine.boot.vm_count == 0 {\n        return false;",
        others: &["foe"],
        features: "image,check-locks",
    },
];

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("protections of real-time VMs taken out", all).slow(true)]
}

fn all(tally: &mut Tally) -> Result<()> {
    let copy = copy()?;
    for removed in REMOVED {
        tally.check(removed.name, take_out(removed, &copy));
    }
    Ok(())
}

/// Copies what Gear1 is built from.
fn copy() -> Result<PathBuf> {
    let copy = workspace::output_dir().join("unprotected-copy");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    let entries = fs::read_dir(workspace::root())?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let mut command = Command::new("cp");
    command.current_dir(workspace::root()).arg("-r");
    command.args(
        names
            .iter()
            .filter(|name| !is_left_out(&name.to_string_lossy())),
    );
    ensure!(
        command.arg(&copy).status()?.success(),
        "the workspace cannot be copied"
    );
    Ok(copy)
}

/// The target directory, in which the copy lies, and what no build needs.
fn is_left_out(name: &str) -> bool {
    name == "target" || name.starts_with('.')
}

/// Takes a protection out, sees whether that is found, and puts it back.
fn take_out(removed: &Removed, copy: &Path) -> Result<()> {
    let path = copy.join("gear1").join(removed.file);
    let good = fs::read_to_string(&path)?;
    let count = good.matches(removed.from).count();
    ensure!(
        count == 1,
        "{} holds {:?} {count} times",
        removed.file,
        removed.from
    );
    fs::write(&path, good.replace(removed.from, removed.to))?;
    let gear1 = build_images::build_gear1_of(copy, "unprotected", removed.features);
    fs::write(&path, good)?;
    let images = images("rt-immune", Some(gear1.context("it does not build")?))?;
    let mut tally = Tally::default();
    let end = immunity::attack(&images, 3, removed.others, &mut tally);
    let found = end.err().map(|error| format!("{error:#}"));
    let found = found.or_else(|| tally.failures.first().cloned());
    let found = found.context("nothing fails without it")?;
    println!(
        "{}: {}",
        removed.name,
        found.lines().next().unwrap_or_default()
    );
    Ok(())
}
