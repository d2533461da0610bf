//! A real-time VM beside the device VM and one of its guests, whose activity and failures must not
//! affect it.
//!
//! The terminal is the device VM's console, from which the guest's is reached. Each [`Step`] is
//! judged by the windows since its beginning (see `windows.rs`): exits and interrupts in every run;
//! latencies, against those of the same real-time VM without other VMs, with `--slow`, since
//! `icount` makes two Linux systems slow.
//!
//! Test guests attack in ways that somebody thought of. Linux does many things at once, as users'
//! systems do.

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::build_images::{self, Images, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::run;
use xtask::smoke::device_vm::{KILL, answers, change, enter, is_up, leave};
use xtask::smoke::fio::{FINISH, fio, fio_result};
use xtask::smoke::{BOOT, LONG, ready, shell, shell_within};

use super::immunity;
use super::machine::{CHECKING, Serial, images};
use super::windows::{
    Latencies, WINDOWS, judge, lives, undisturbed, wait_for_life, wait_for_windows, windows,
};
use crate::part::{Part, Tally};

/// The real-time VM in the manifest.
const RT: &str = "rt";
/// Load in the device VM: computes and starts programs, as long as the VM runs. New processes
/// change page tables and invalidate TLBs, the effects of which could reach another CPU.
const LOAD: &str = "(while :; do dd if=/dev/zero bs=64k count=16 2> /dev/null | sha256sum; ls -l /proc/self/fd; \
    done) > /dev/null 2>&1 & :";

/// Steps of the test, in this order. A step ends when the system is at a shell again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The device VM boots.
    Boots,
    /// `gearctl` stops, starts and restarts the real-time VM itself.
    Gearctl,
    /// The guest boots from the disk that the device VM serves.
    GuestBoots,
    /// The device VM computes, the guest uses its disk and does all that stress-ng does.
    Busy,
    /// GDM is killed while the guest writes.
    GdmKilled,
    /// The device VM's kernel panics, and boots again.
    Crashes,
    /// The device VM reboots.
    Reboots,
    /// `gearctl` stops and starts the device VM.
    Restarts,
}

/// Steps in each run of the tests.
pub(super) const SHORT: [Step; 6] = [
    Step::Boots,
    Step::Gearctl,
    Step::GuestBoots,
    Step::Busy,
    Step::GdmKilled,
    Step::Crashes,
];
/// All, the guest's work again at the end. The work at the end shows that nothing was left by the
/// restarts.
const ALL: [Step; 9] = [
    Step::Boots,
    Step::Gearctl,
    Step::GuestBoots,
    Step::Busy,
    Step::GdmKilled,
    Step::Crashes,
    Step::Reboots,
    Step::Restarts,
    Step::Busy,
];

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("real-time VM is immune beside Linux", short),
        Part::new("real-time VM is immune beside Linux, all of it", long).slow(true),
    ]
}

fn short(tally: &mut Tally) -> Result<()> {
    tell(beside(&images("rt-linux", None)?, &SHORT, None)?, tally);
    Ok(())
}

/// Runs all steps, in the build that halts where the real-time VM's CPU takes a foreign lock.
/// Latency alone does not show a foreign lock that is free when it is taken.
fn long(tally: &mut Tally) -> Result<()> {
    let gear1 = build_images::build_gear1_of(workspace::root(), CHECKING, "image,check-locks")?;
    let images = images("rt-linux", Some(gear1))?;
    let before = immunity::alone()?;
    tell(beside(&images, &ALL, Some(before))?, tally);
    Ok(())
}

/// A verdict for each step, as one that fails leaves the others worth a look.
fn tell(verdicts: Vec<(Step, Result<()>)>, tally: &mut Tally) {
    for (step, verdict) in verdicts {
        tally.check(&format!("{step:?}"), verdict);
    }
}

/// MiB that fio writes and verifies. Small: the part looks at the real-time VM, and the disk has
/// parts of its own.
const DISK_MIB: u32 = 2;
/// Seconds under stress-ng.
const STRESS_S: u32 = 1;

/// Boots the system, takes the steps, and says of each whether the real-time VM was as it is beside
/// nobody; also its latencies, if they are given. A step that cannot be taken is an error. An error
/// of the steps themselves must not pass as "not disturbed".
pub(super) fn beside(
    images: &Images,
    steps: &[Step],
    before: Option<Latencies>,
) -> Result<Vec<(Step, Result<()>)>> {
    let mut system = start(images, before)?;
    let mut verdicts = Vec::new();
    for step in steps {
        let verdict = system
            .take_and_judge(*step)
            .map_err(|error| anyhow!("{step:?}: {error:#}\n{}", last_words(&system.session)))?;
        verdicts.push((*step, verdict));
    }
    Ok(verdicts)
}

/// Boots the system. Only runs that are compared with latencies count instructions (`icount`): such
/// a machine has one thread of the host for all CPUs, and is slower. Without `icount` each CPU has
/// a thread, and times are the host's.
fn start(images: &Images, before: Option<Latencies>) -> Result<System<'_>> {
    let serial = Serial::new(&workspace::output_dir().join("rt-linux"))?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".to_owned(),
        icount: before.is_some(),
        second_serial: Some(serial.file.clone()),
        ..run::machine_for(images)?
    };
    let log = serial.file.with_file_name("console.log");
    let guest = images.manifest.vms.iter().find(|vm| vm.may_power_off);
    Ok(System {
        session: images.start(&Qemu::prepare(10)?, &machine, &log)?,
        serial,
        guest: guest.context("there is no guest")?,
        before,
        judged: 0,
    })
}

/// The running machine.
struct System<'a> {
    session: Session,
    serial: Serial,
    guest: &'a VmSummary,
    before: Option<Latencies>,
    /// Number of windows that were judged.
    judged: usize,
}

impl System<'_> {
    /// Windows of the step itself count, and some behind it: an effect may come late.
    fn take_and_judge(&mut self, step: Step) -> Result<Result<()>> {
        self.take(step)?;
        // Effects of the last step show in the next windows.
        let seen = windows(&self.serial.text()?)?.len();
        wait_for_windows(&mut self.session, &self.serial, seen + WINDOWS)?;
        let all = windows(&self.serial.text()?)?;
        let during = all.get(self.judged..).context("windows are missing")?;
        self.judged = all.len();
        let name = format!("{step:?} ({} s)", self.session.elapsed().as_secs());
        Ok(match &self.before {
            Some(before) => judge(&name, before, during),
            None => {
                println!("beside {name}: {} windows", during.len());
                undisturbed(during)
            }
        })
    }

    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Boots => is_up(&mut self.session),
            Step::Gearctl => self.gearctl(),
            Step::GuestBoots => enter_at_boot(&mut self.session, self.guest),
            Step::Busy => self.busy(),
            Step::GdmKilled => self.gdm_killed(),
            Step::Crashes => self.device_vm_goes("echo c > /proc/sysrq-trigger"),
            Step::Reboots => self.device_vm_goes("reboot -f"),
            Step::Restarts => self.device_vm_goes("gearctl restart device"),
        }
    }

    /// Each start begins anew, and there is none more. The number of starts is exact, so a start
    /// that nobody ordered shows.
    fn gearctl(&mut self) -> Result<()> {
        let session = &mut self.session;
        change(session, "stop", RT, "stopped")?;
        let before = windows(&self.serial.text()?)?.len();
        shell(session, "sleep 1")?;
        let stopped = windows(&self.serial.text()?)?.len();
        ensure!(before == stopped, "it measures though it is stopped");
        change(session, "start", RT, "running")?;
        wait_for_life(session, &self.serial, 2)?;
        change(session, "restart", RT, "running")?;
        wait_for_life(session, &self.serial, 3)?;
        let starts = lives(&self.serial.text()?);
        ensure!(starts == 3, "it began {starts} times");
        Ok(())
    }

    /// From the guest's shell, and back to it. All three at once: two VMs that compute, and I/O
    /// between them.
    fn busy(&mut self) -> Result<()> {
        let session = &mut self.session;
        leave(session)?;
        shell(session, LOAD)?;
        enter(session, self.guest)?;
        let stress = format!(
            "stress-ng --quiet --cpu 1 --vm 1 --vm-bytes 16M --fork 1 --switch 1 --timer 1 --timeout {STRESS_S}"
        );
        shell(session, &format!("({stress}) > /run/stress 2>&1 & :"))?;
        let printed = shell_within(session, &fio(DISK_MIB), LONG)?;
        fio_result(&printed)?;
        shell_within(session, "wait; cat /run/stress", LONG)?;
        Ok(())
    }

    /// Leaves the terminal with the device VM's shell; the guest is still writing when GDM is
    /// killed. The rate is limited so that the work lasts longer than the kill.
    fn gdm_killed(&mut self) -> Result<()> {
        let session = &mut self.session;
        let fio = fio(1);
        shell(
            session,
            &format!("({fio} --rate_iops=,100 > /run/fio; echo $? > /run/status) & :"),
        )?;
        leave(session)?;
        shell_within(session, KILL, LONG)?;
        enter(session, self.guest)?;
        fio_result(&shell_within(session, FINISH, LONG)?)?;
        Ok(())
    }

    /// The guest writes on when the device VM is back. The guest keeps running without its device
    /// model, and its requests wait.
    fn device_vm_goes(&mut self, command: &str) -> Result<()> {
        let session = &mut self.session;
        leave(session)?;
        session.send(&format!("{command}\n"))?;
        is_up(&mut self.session)?;
        let session = &mut self.session;
        enter(session, self.guest)?;
        fio_result(&shell_within(session, &fio(1), LONG)?)?;
        Ok(())
    }
}

fn enter_at_boot(session: &mut Session, guest: &VmSummary) -> Result<()> {
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)
}
