//! Instructions for a person who measures jitter on a board, step by step.
//!
//! xtask cannot press a board's keys. The steps name the files to boot, the lines to wait for and
//! the keys to press, and the logs that result are what `--from` reads.

use std::path::Path;

use anyhow::Result;
use gearv_manifest::Scheduler;
use workbench::board::Name;
use workbench::{jitter_userland, payloads, workspace};

use super::configuration::{Configuration, Load, Serial};

/// Seconds for which the guest on a board sleeps before and after a measurement, in which a person
/// can press keys. On QEMU the pauses are in virtual time and differ (`drive.rs`). The pause is the
/// same in the manifest and in the text, which both take it from here.
const SETTLE_S: u64 = 20;

/// Returns the UART that the real-time VM gets on a board, and how it comes to be there. The
/// board's first UART is Gear2's, so the VM needs another one, which a person has to make
/// available. Device and console belong together: the manifest passes the first through, and the
/// kernel's command line names the second.
fn serial(board: Name) -> (Serial, &'static str) {
    match board {
        Name::QemuVirt => (Serial::SECOND_OF_VIRT, "a second -serial option of QEMU's"),
        Name::Rpi4 => (
            Serial {
                device: "/soc/serial@7e201600",
                console: "ttyAMA3",
            },
            "uart3 on GPIO 4 and 5, by dtoverlay=uart3 in config.txt",
        ),
        Name::RcarH3 => (
            Serial {
                device: "/soc/serial@e6e68000",
                console: "ttySC1",
            },
            "SCIF1, enabled in the device tree that the boot loader passes",
        ),
        Name::Zcu102 => (
            Serial {
                device: "/axi/serial@ff010000",
                console: "ttyPS1",
            },
            "UART1, the second port of the board's USB bridge",
        ),
        Name::Imx8mpEvk => (
            Serial {
                device: "/soc@0/bus@30800000/spba-bus@30800000/serial@30880000",
                console: "ttymxc2",
            },
            "UART3, on the board's expansion connector",
        ),
    }
}

/// Makes what the board boots, and returns what to do with it. The manifests are those that QEMU's
/// machine gets, but for the serial port and the pauses. The kernel is Debian's, which does not run
/// on each board, so the steps allow another one. The native boot comes first, because all others
/// are divided by it.
pub(super) fn instructions(board: Name, loops: u64, load: Load) -> Result<String> {
    let (serial, what) = serial(board);
    let directory = workspace::target_dir().join("jitter");
    std::fs::create_dir_all(&directory)?;
    let kernel = payloads::debian_rt_kernel()?;
    let initramfs = jitter_userland::initramfs(&directory)?;
    let mut steps = format!(
        "Jitter on {name}. The real-time VM needs a serial port of its own, {device}: {what}.
If its kernel does not run on this board, put the board's own into the manifests and boot commands below.

1. Without GearV: boot
     kernel   {kernel}
     initrd   {initramfs}
     options  {options}
   and keep all that the console says, in native.log.
",
        name = board.text(),
        device = serial.device,
        kernel = kernel.display(),
        initramfs = initramfs.display(),
        options = Configuration::Native.command_line(serial.console, loops, load, "nr_cpus=1"),
    );
    let real_time = [Configuration::Emulated, Configuration::PassThrough];
    for (number, configuration) in (2..).zip(real_time) {
        let file = directory.join(format!("{}-{}.dts", board.text(), configuration.word()));
        std::fs::write(
            &file,
            configuration.manifest(serial, loops, load, SETTLE_S, Scheduler::Fair),
        )?;
        steps += &step(number, configuration, &file);
    }
    Ok(steps
        + "4. Make the report:
     cargo xtask jitter --from native.log emulated*.log pass-through*.log
")
}

/// Returns the steps of one real-time VM. The exits between both counts are judged by the person:
/// those of SGIs are allowed with pass-through, as many as the kernel sent.
fn step(number: u32, configuration: Configuration, manifest: &Path) -> String {
    let word = configuration.word();
    format!(
        "{number}. {}:
     cargo xtask build --manifest {}
   prints two files: boot the first as kernel and the second as initrd. Keep what the VM's serial port says in {word}.log.
   Keep what the boot console says in {word}-gear2.log, for the exits.
   Press Ctrl-G p on the boot console (exit counts) within {SETTLE_S} s after JITTER-READY, and again after JITTER-MEASURED. With
   pass-through, rt may have had no exits in between but sgi, and as many of these as the number behind the two words grew by.
",
        configuration.text(),
        manifest.display()
    )
}
