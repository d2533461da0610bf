//! A Debian guest with SVE: its kernel finds the manifest's length of vectors, and programs have it.
//!
//! Requirements: G1-CPU-018.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, initramfs, workspace};
use xtask::{run, smoke};

use crate::part::{Part, Tally};

/// Bytes of a vector in the guest's manifest.
const VECTOR: u64 = 64;
/// Runs of the program, one after the other, on each of the two vCPUs.
const RUNS: u64 = 20;
/// Program: `rdvl x0, #1`, and `exit` of that number.
const CODE: [u32; 3] = [0x04bf_5020, 0xd280_0ba8, 0xd400_0001];
/// Address of the program.
const BASE: u64 = 0x40_0000;
/// Bytes of the headers of an ELF file with one segment.
const HEADERS: u64 = 64 + 56;

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("Linux has SVE", linux)]
}

fn linux(tally: &mut Tally) -> Result<()> {
    let path = workspace::root().join("tests/manifests/sve-linux.dts");
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: "max".to_owned(),
        ..run::machine_for(&images)?
    };
    let log = workspace::output_dir().join("sve-linux.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let checks = work(&mut session);
    tally.pass(checks.map_err(|error| error.context(build_images::last_words(&session)))?);
    Ok(())
}

/// Looks at what the kernel says, and runs a program that says how long its vectors are. The programs
/// of the system are Debian's, whose library copies with SVE where the kernel announces it.
fn work(session: &mut Session) -> Result<usize> {
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), Duration::from_secs(120))?;
    // A wide terminal shows the typed command in one line.
    session.send("stty cols 2000\n")?;
    let features = smoke::shell(session, "grep -c '^Features.* sve ' /proc/cpuinfo")?;
    ensure!(features.trim() == "2", "{features:?} CPUs have sve");
    let said = smoke::shell(
        session,
        "dmesg | grep 'SVE: maximum available vector length'",
    )?;
    let expected = format!("vector length {VECTOR} bytes");
    ensure!(said.contains(&expected), "the kernel says {said:?}");
    let file = program();
    let text = file.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\0{byte:o}");
        text
    });
    smoke::shell(session, &format!("printf '%b' '{text}' > /p; chmod +x /p"))?;
    let once = format!("/p; [ $? = {VECTOR} ] || echo wrong");
    let many = format!("for i in $(seq {RUNS}); do {once}; done");
    let wrong = smoke::shell(session, &format!("({many}) & {many}; wait"))?;
    ensure!(!wrong.contains("wrong"), "programs say {wrong:?}");
    session.send("poweroff -f\n")?;
    session.expect_end(Duration::from_secs(60))?;
    smoke::no_kernel_complains(session)?;
    Ok(4)
}

/// Returns an ELF file with the program.
fn program() -> Vec<u8> {
    let size = HEADERS + 4 * CODE.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // ET_EXEC, EM_AARCH64; EV_CURRENT.
    file.extend([2_u16, 183].map(u16::to_le_bytes).concat());
    file.extend(1_u32.to_le_bytes());
    // Entry, program headers, section headers; flags; sizes and numbers of headers.
    file.extend([BASE + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    file.extend(0_u32.to_le_bytes());
    file.extend([64_u16, 56, 1, 64, 0, 0].map(u16::to_le_bytes).concat());
    // PT_LOAD, readable and executable: offset, two addresses, two sizes, alignment.
    file.extend([1_u32, 5].map(u32::to_le_bytes).concat());
    let segment = [0, BASE, BASE, size, size, 0x1_0000];
    file.extend(segment.map(u64::to_le_bytes).concat());
    file.extend(CODE.map(u32::to_le_bytes).concat());
    file
}
