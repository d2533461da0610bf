//! KVM, which is compared with: guests run under `tests/kvm-vmm` on a stock Debian host.
//!
//! The comparison in docs/performance.md stands on this host: it has to boot before a figure of it
//! means something. The measurements themselves are `cargo xtask bench`'s.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tests_measure::kvm_host::{GUEST_ENDED, GUEST_STARTS, KvmHost};
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, initramfs, payloads, workspace};

use crate::part::{Part, Tally};

/// The host boots on an emulated machine that counts instructions, which is slow.
const BOOT: Duration = Duration::from_secs(300);
const RUN: Duration = Duration::from_secs(300);

/// Behind `--slow`: the benchmarks need KVM, and nothing of GearV's runs in them.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("KVM: bare-metal guest", |tally| {
            let kernel = build_images::build_guest("bench")?;
            let host = KvmHost {
                kernel,
                cpus: vec![0, 1],
                ..KvmHost::default()
            };
            tally.check("bench", run(&host, "bench", "DONE\n"));
            Ok(())
        })
        .slow(true),
        Part::new("KVM: Linux guest", linux).slow(true),
    ]
}

/// Debian's kernel as a real-time guest is set up, but without PREEMPT_RT. The CPU is isolated and
/// does not poll, as for a guest whose jitter is measured.
fn linux(tally: &mut Tally) -> Result<()> {
    let host = KvmHost {
        kernel: payloads::debian_kernel()?,
        initrd: Some(initramfs::build(&workspace::output_dir())?),
        command_line: "console=ttyAMA0".to_owned(),
        cpus: vec![1],
        isolate: true,
        halt_poll_ns: Some(0),
        ..KvmHost::default()
    };
    tally.check("shell", run(&host, "linux", initramfs::READY.1));
    Ok(())
}

/// Runs the guest until it prints `text`. `icount`, as in the measurements. A guest that ends must
/// end its VMM and its host as well.
fn run(host: &KvmHost, name: &str, text: &str) -> Result<()> {
    let out_dir = workspace::output_dir().join(format!("kvm-{name}"));
    let built = host.build(&out_dir)?;
    let machine = Machine {
        icount: true,
        ..Machine::default()
    };
    let mut session = built.start(&Qemu::prepare(10)?, &machine, &log(&out_dir))?;
    session.expect(GUEST_STARTS, BOOT)?;
    let printed = session.expect(text, RUN)?;
    let failed: Vec<&str> = printed.lines().filter(|l| l.contains("FAIL ")).collect();
    ensure!(failed.is_empty(), "{failed:?}");
    if text == "DONE\n" {
        session.expect(&format!("{GUEST_ENDED} 0"), RUN)?;
        let status = session.expect_end(RUN)?;
        ensure!(status.success(), "QEMU ended with {status}");
    }
    Ok(())
}

fn log(out_dir: &Path) -> PathBuf {
    out_dir.join("console.log")
}
