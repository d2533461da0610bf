//! The userlands of the device VM and of its guest on the bare machine, to attribute failures in
//! other parts to GearV.
//!
//! Both userlands are made of Debian's packages by the workbench. A package that lacks a library,
//! or a kernel without a module, looks like a fault of GearV's in every other part.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{device_userland, ext4, guest_userland, initramfs, payloads, workspace};
use xtask::smoke::shell;

use crate::part::{Part, Tally};

/// The rest is for a host that is busy.
const BOOT: Duration = Duration::from_secs(120);
const COMMAND: Duration = Duration::from_secs(60);

/// Behind `--slow`: nothing of GearV's runs in them. They tell whose fault it is when a part with
/// these systems fails.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("linux of the device VM without GearV", device).slow(true),
        Part::new("linux with a disk without GearV", guest).slow(true),
    ]
}

/// A machine that has the guest's disk. GearV's device VM and guest see virtio devices; so does the
/// bare machine.
struct Native {
    session: Session,
    disk: std::path::PathBuf,
}

impl Native {
    fn boot(name: &str, initrd: &std::path::Path, ready: &str) -> Result<Native> {
        let (mut session, disk) = Native::start(name, initrd)?;
        let booted = session.expect(ready, BOOT);
        booted.with_context(|| session.tail(60))?;
        // A wide terminal shows the typed command in one line.
        session.send("stty cols 1000\n")?;
        Ok(Native { session, disk })
    }

    /// Starts a kernel with a fresh disk. The disk is a copy: fio and the power-off change it.
    /// Without EL2 the machine is what a VM is.
    fn start(name: &str, initrd: &std::path::Path) -> Result<(Session, std::path::PathBuf)> {
        let out_dir = workspace::output_dir();
        let disk = out_dir.join(format!("native-{name}.img"));
        ext4::copy(&guest_userland::disk(&out_dir)?, &disk)?;
        let kernel = payloads::debian_kernel()?;
        let boot = Boot {
            kernel: &kernel,
            initrd: Some(initrd),
            command_line: Some("console=ttyAMA0 root=/dev/vda"),
        };
        let machine = Machine {
            disk: Some(disk.clone()),
            ..Machine::default().without_el2()
        };
        let command = Qemu::prepare(10)?.command(&machine, &boot, Console::Pipes);
        let log = out_dir.join(format!("native-{name}.log"));
        Ok((Session::start(command, &log)?, disk))
    }

    fn shell(&mut self, command: &str) -> Result<String> {
        shell(&mut self.session, command).with_context(|| self.session.tail(60))
    }

    fn power_off(&mut self, command: &str) -> Result<()> {
        self.session.send(&format!("{command}\n"))?;
        self.session.expect_end(COMMAND)?;
        Ok(())
    }
}

/// Each module that the userland loads is looked for, because a device VM that lacks one still
/// boots.
fn device(tally: &mut Tally) -> Result<()> {
    let initrd = device_userland::build(&workspace::output_dir())?;
    let mut native = Native::boot("device", &initrd, device_userland::READY)?;
    let modules = native.shell("cut -d' ' -f1 /proc/modules")?;
    for module in device_userland::modules()? {
        let loaded = modules.lines().any(|line| line == module);
        ensure!(loaded, "{module} is not loaded, only\n{modules}");
    }
    native.shell("ls /sys/class/net/br0/brif/eth0/state")?;
    native.shell("dd if=/dev/vda of=/dev/null bs=1M count=8")?;
    native.shell("iperf3 --version")?;
    native.power_off("poweroff -f")?;
    tally.pass(4);
    Ok(())
}

/// The file's hash is compared inside and outside, so a write that ended in a cache alone shows.
fn guest(tally: &mut Tally) -> Result<()> {
    let initrd = guest_userland::initramfs(&workspace::output_dir())?;
    let (before, after) = initramfs::READY;
    let ready = format!("{before}native{after}");
    let mut native = Native::boot("guest", &initrd, &ready)?;
    native.shell("grep '^/dev/root / ext4\\|^/dev/vda / ext4' /proc/mounts")?;
    native.shell(
        "fio --name=short --filename=/root/short --size=4M --rw=randwrite --bs=4k --iodepth=16 \
         --ioengine=libaio --direct=1 --verify=crc32c --minimal > /tmp/fio",
    )?;
    has_all_libraries(&mut native)?;
    let hash = native.shell("sha256sum /root/short")?;
    native.power_off("poweroff")?;
    ext4::check(&native.disk)?;
    let outside = ext4::hash_of(&native.disk, "/root/short")?;
    ensure!(hash.contains(&outside), "{outside} outside, {hash} inside");
    tally.pass(5);
    Ok(())
}

/// Asks the dynamic linker for the libraries of the programs that measure. A library that the image
/// lacks shows only when the program runs, in a part that measures.
fn has_all_libraries(native: &mut Native) -> Result<()> {
    for program in ["stress-ng", "cyclictest", "hackbench", "iperf3", "e2fsck"] {
        let libraries = format!(
            "LD_TRACE_LOADED_OBJECTS=1 /lib/ld-linux-aarch64.so.1 /usr/bin/{program} > /tmp/needed \
             && ! grep 'not found' /tmp/needed"
        );
        native.shell(&libraries)?;
    }
    Ok(())
}
