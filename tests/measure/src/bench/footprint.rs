//! `cargo xtask bench --footprint`: how large Gear1 is, and what happens between reset and the
//! first instruction of the first VM.
//!
//! In place of a VM's kernel stands the guest `first_instruction`, which reads the physical counter
//! before anything else: with `icount` and a counter of 1 GHz that is the number of instructions of
//! all CPUs since reset. The rest of the kernel's bytes stay, so that as much is copied as always.
//! For the real-time VM a trace says in addition where those instructions are, by what they do:
//! copying, wiping, and the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::build_images::{self, Images};
use workbench::qemu::{Machine, Qemu};
use workbench::{ext4, payloads, workspace};
use xtask::{audit, run};

use super::breakdown::{self, Program};
use super::column::{COUNTER, log};
use crate::report::Counts;

/// Limit for a boot. Debian's kernel in a VM is copied and digested before its first instruction,
/// which takes long under `icount`.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Least number of instructions of a function that the table names: a thirtieth of the goal for the
/// whole boot. Smaller functions are part of the sums by purpose.
const SHOWN: u64 = 10_000;
/// The guest that stands in place of a kernel, as a flat image.
const GUEST: &str = "first_instruction";
/// Size to which the bare-metal real-time VM's image is padded.
const IMAGE_BYTES: usize = 64 << 10;
/// Instructions of the real-time VM's start, and those of them that are logic.
pub(super) const START: &str = "boot real-time VM, instructions";
const LOGIC: &str = "boot real-time VM, instructions of logic";
/// Kinds of instructions that are no logic: their number is that of the bytes.
const NO_LOGIC: [&str; 2] = [" copying", " wiping"];
/// Bytes of an arm64 `Image`'s header that belong to the kernel: all but the first instruction
/// (Linux, Documentation/arch/arm64/booting.rst).
const HEADER: std::ops::Range<usize> = 4..64;
/// Name of the first system.
pub(super) const REAL_TIME_VM: &str = "real-time VM";
/// The property's value that the guest replaces, in the first VM of a manifest alone.
const KERNEL: &str = "\"artifact:debian-kernel\"";

/// A manifest, with the VM whose start is measured first. In the first system all else is small, so
/// that GearV's own work remains.
struct System {
    name: &'static str,
    /// From the workspace's root, or the text itself.
    manifest: Result<&'static str, &'static str>,
}

/// The other two are manifests that users boot, so that a change shows what it costs them.
const SYSTEMS: [System; 3] = [
    System {
        name: REAL_TIME_VM,
        manifest: Err(REAL_TIME),
    },
    System {
        name: "minimal.dts",
        manifest: Ok("manifests/minimal.dts"),
    },
    System {
        name: "qemu-virt.dts",
        manifest: Ok("manifests/qemu-virt.dts"),
    },
];

/// A real-time VM with a UART, on one CPU of two.
const REAL_TIME: &str = r#"/dts-v1/;
/ {
	compatible = "gearv,manifest";
	version = <1>;
	vms {
		first {
			kind = "real-time";
			cpus = <1>;
			memory-mib = <2>;
			gic = "pass-through";
			devices = "/pl011@9040000";
			image = "image";
			may-power-off;
		};
	};
};
"#;

/// Returns the goal of a count, if it has one.
pub(super) fn goal(name: &str) -> Option<u64> {
    match name {
        START => Some(400_000),
        LOGIC => Some(300_000),
        _ => None,
    }
}

/// Measures all counts. Bytes come from the linker's sections and the files, and need no boot. The
/// runtime is measured for both versions of the GIC, as each is an image of its own.
/// `only` is a part of the names of the systems to boot.
pub(super) fn measure(qemu: &Qemu, only: &str) -> Result<Counts> {
    let asked_for = |name: &str| name.contains(only);
    let names = SYSTEMS.each_ref().map(|system| system.name);
    ensure!(
        names.into_iter().any(asked_for),
        "no system is named {only:?}; the names: {}",
        names.join(", ")
    );
    let mut counts = sizes()?;
    for system in SYSTEMS.iter().filter(|system| asked_for(system.name)) {
        boot(system, qemu, &mut counts).with_context(|| system.name)?;
    }
    Ok(counts)
}

/// Measures what the images take, in files and in memory.
fn sizes() -> Result<Counts> {
    let mut counts = Counts::new();
    build_images::gears()?;
    for gic in [3, 2] {
        let [image, memory] = audit::kept(gic)?;
        counts.insert(format!("Gear1 runtime GICv{gic}, bytes of image"), image);
        counts.insert(
            format!("Gear1 runtime GICv{gic}, bytes of RAM kept"),
            memory,
        );
    }
    let (gear1, gear2) = build_images::gears()?;
    for (name, path) in [("Gear1 with init", gear1), ("Gear2", gear2)] {
        counts.insert(format!("{name}, bytes of image"), fs::metadata(path)?.len());
    }
    Ok(counts)
}

/// Boots a system until its first VM has said when it began. The trace is taken of the real-time
/// VM's boot alone: the log of the others would have a line for each instruction that copies
/// Debian's kernel.
fn boot(system: &System, qemu: &Qemu, counts: &mut Counts) -> Result<()> {
    let (images, machine, first) = start(system, qemu)?;
    let mut insert = |what: &str, count| {
        counts.insert(format!("boot {}, {what}", system.name), count);
    };
    insert("instructions", first.count);
    if system.manifest.is_err() {
        let purposes = classify(qemu, &machine, &images, first.address)?;
        for (what, count) in &purposes {
            insert(&format!("instructions {what}"), *count);
        }
        insert("instructions of logic", logic(&purposes));
    }
    Ok(())
}

/// Boots a system, and returns what booted and when its first VM began.
fn start(system: &System, qemu: &Qemu) -> Result<(Images, Machine, First)> {
    let directory = workspace::output_dir().join("footprint");
    fs::create_dir_all(&directory)?;
    let manifest = write_manifest(system, &directory)?;
    let images = build_images::build(&manifest)?;
    let uart = directory.join("uart");
    let machine = machine(&images, &uart)?;
    let first = first(qemu, &machine, &images, &uart)?;
    Ok((images, machine, first))
}

/// Returns a machine for the images. Two CPUs are the least, so that the start of another CPU is a
/// part of each boot. The manifests with a device VM pass a disk through, and an empty file system
/// is enough for them.
fn machine(images: &Images, uart: &Path) -> Result<Machine> {
    let cpus = u32::try_from(images.manifest.cpu_count)?.max(2);
    let needs_disk = images.manifest.vms.len() > 1;
    let disk = workspace::output_dir().join("footprint/disk.img");
    if needs_disk {
        ext4::write(&workbench::tree::Tree::default(), 8, &disk)?;
    }
    Ok(Machine {
        cpu: format!("max,{}", COUNTER),
        cpus,
        memory_mib: run::memory_for(images)?,
        icount: true,
        disk: needs_disk.then_some(disk),
        second_serial: images.manifest.second_uart.then(|| uart.to_owned()),
        ..Machine::default()
    })
}

/// Writes the manifest with the guest in place of kernels. The real-time VM's image is padded with
/// zeroes to a usual size, as copying it is a part of the start.
fn write_manifest(system: &System, directory: &Path) -> Result<PathBuf> {
    let guest = fs::read(build_images::build_guest(GUEST)?)?;
    let text = match system.manifest {
        Err(text) => {
            let mut image = guest;
            ensure!(image.len() <= IMAGE_BYTES, "{GUEST} is too large");
            image.resize(IMAGE_BYTES, 0);
            fs::write(directory.join("image"), image)?;
            text.to_owned()
        }
        Ok(path) => {
            fs::write(directory.join("kernel"), kernel_with(&guest)?)?;
            let text = fs::read_to_string(workspace::root().join(path))?;
            ensure!(text.contains(KERNEL), "{path} does not hold {KERNEL}");
            // The other VMs' are as always.
            text.replacen(KERNEL, "\"kernel\"", 1)
        }
    };
    let name = system.name.trim_end_matches(".dts").replace(' ', "-");
    let file = directory.join(format!("first-{name}.dts"));
    fs::write(&file, text)?;
    Ok(file)
}

/// Returns Debian's kernel with the guest in place of its first bytes. The header stays the
/// kernel's, because the loader reads the size and the placement from it. Instruction 0 is the
/// guest's own, a branch over the header.
fn kernel_with(guest: &[u8]) -> Result<Vec<u8>> {
    let mut kernel = fs::read(payloads::debian_kernel()?)?;
    for (at, byte) in guest.iter().enumerate() {
        if !HEADER.contains(&at) {
            kernel[at] = *byte;
        }
    }
    Ok(kernel)
}

/// Start of the first VM: its time and its address. The address is where the trace of another boot
/// of these images stops.
struct First {
    count: u64,
    address: u64,
}

/// Boots, and returns what the first VM said. A real-time VM has the second UART, whose text QEMU
/// writes to a file, and the file is complete only at QEMU's end.
fn first(qemu: &Qemu, machine: &Machine, images: &Images, uart: &Path) -> Result<First> {
    if uart.exists() {
        fs::remove_file(uart)?;
    }
    let mut session = images.start(qemu, machine, &log("footprint"))?;
    let printed = match images.manifest.second_uart {
        true => {
            let ended = session.expect_end(TIMEOUT);
            ended.and_then(|_| Ok(fs::read_to_string(uart)?))
        }
        false => session.expect("DONE\n", TIMEOUT),
    };
    let printed = printed.with_context(|| build_images::last_words(&session))?;
    parse(&printed).with_context(|| format!("it does not say when it began: {printed}"))
}

/// Parses `FIRST <ns> <address>`; one instruction was executed before the counter was read. The
/// guest's own instruction is not a part of the boot.
fn parse(printed: &str) -> Option<First> {
    let (_, rest) = printed.split_once("FIRST ")?;
    let mut words = rest.split_whitespace();
    Some(First {
        count: words.next()?.parse::<u64>().ok()?.checked_sub(1)?,
        address: u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?,
    })
}

/// Counts the instructions before the one at `end` by what they do. The guest's first instruction
/// is in the filter too, for the reader of the log to know where to stop.
fn classify(
    qemu: &Qemu,
    machine: &Machine,
    images: &Images,
    end: u64,
) -> Result<BTreeMap<String, u64>> {
    let programs = ["gear1-init", "gear1-runtime", "gear2"]
        .map(|name| Ok((name, Program::load(&workspace::bare_elf_in("", name))?)));
    let programs: Vec<_> = programs.into_iter().collect::<Result<_>>()?;
    let code = programs.iter().map(|(_, program)| program.code.clone());
    let mut ranges: Vec<_> = code.collect();
    ranges.push(end..end + 4);
    let counts = breakdown::trace(qemu, machine, images, &ranges, Some(end))?;
    Ok(by_purpose(&programs, &counts))
}

/// Sums counts by what the instructions are for, and by function where these are many. Instructions
/// outside of the three programs, which are the guest's one and the boot loader's, are left out. An
/// instruction is in two sums, one by purpose and one by function, and the two are different views
/// of one total.
fn by_purpose(programs: &[(&str, Program)], counts: &BTreeMap<u64, u64>) -> BTreeMap<String, u64> {
    let (mut kinds, mut functions) = (BTreeMap::new(), BTreeMap::new());
    for (pc, count) in counts {
        let Some((name, program)) = programs.iter().find(|(_, p)| p.code.contains(pc)) else {
            continue;
        };
        let function = program.function(*pc);
        *kinds.entry(what(name, &function)).or_insert(0) += count;
        *functions.entry(format!("in {function}")).or_insert(0) += count;
    }
    functions.retain(|_, count| *count >= SHOWN);
    kinds.extend(functions);
    kinds
}

/// Sums the instructions by purpose that are logic.
fn logic(purposes: &BTreeMap<String, u64>) -> u64 {
    let is_logic = |what: &str| {
        !what.starts_with("in ") && !NO_LOGIC.iter().any(|purpose| what.ends_with(purpose))
    };
    let logic = purposes.iter().filter(|(what, _)| is_logic(what));
    logic.map(|(_, count)| count).sum()
}

/// Functions into which the copying of whole images is inlined.
const COPY_IMAGES: [&str; 2] = ["Flat::load", "PhysicalMemory>::write"];

/// Returns what a function's instructions are for. The names are those of the compiler's built-ins
/// and of the gears' own functions. A new function of such a kind with another name shows as
/// `else`, and by its own name if it is large.
fn what(program: &str, function: &str) -> String {
    let does = |words: &[&str]| words.iter().any(|word| function.contains(word));
    let kind = if does(&["memcpy", "memmove", "copy"]) || does(&COPY_IMAGES) {
        "copying"
    } else if does(&["memset", "zero", "wipe", "bulk::clean"]) {
        "wiping"
    } else if does(&["sha", "digest"]) {
        "digesting"
    } else {
        "else"
    };
    format!("{program} {kind}")
}

#[cfg(test)]
mod tests;
