//! Absence of the device VM: the checks of its effects on guests.
//!
//! The device VM is restarted in each possible way, while a guest writes to its disk and computes.
//! The guest's writes wait; its computation does not: it stamps its progress with the guest's own
//! uptime, which shows afterwards whether it was held up.
//!
//! Then the device model is kept away for longer than a guest's request waits. The guest reads its
//! disk, and writes a file block by block and flushes each, until that fails. Its file system does
//! not note times of access and of change during this check: a journal that gets an I/O error would
//! end the writing, and the file system with it.
//!
//! Guests must outlive their device VM (docs/ARCHITECTURE.md), since a device VM is a whole Linux
//! with drivers, and the likeliest part to fail.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use workbench::cache::sha256_of;
use workbench::expect::Session;
use workbench::manifest::VmSummary;

use super::device_vm::{FLUSHED, answers, enter, is_up, json, leave, number};
use super::fio::{FINISH, fio, fio_result, in_background};
use super::session::{LONG, Smoke, shell, shell_within};

/// The ways in which the device VM begins anew. The last one takes longest, since Gear2 waits for
/// the heartbeat to be late.
const RESTARTS: [(&str, &str); 4] = [
    ("crashes", "echo b > /proc/sysrq-trigger"),
    ("reboots", "reboot -f"),
    ("is restarted by gearctl", "gearctl restart device"),
    // The kernel panics and stays there: Gear2 misses the device model's heartbeat.
    ("hangs", "echo c > /proc/sysrq-trigger"),
];

/// Work of a guest: a checksum, in a shell that does nothing else, so that no disk is needed. Every
/// so many steps, the shell notes the number of steps, the sum and the uptime. A hash of the step's
/// number in each step, so that a step that was lost shows.
const COMPUTE: &str = "(i=0; c=1; while :; do i=$((i+1)); c=$(((c*31+i)%65521)); \
    if [ $((i%5000)) = 0 ]; then read -r up rest < /proc/uptime; echo $i $c $up >> /run/sums; fi; \
    done) & echo $! > /run/computer";
/// Ends that work, and prints the last note and the longest time between two notes. The gap is in
/// the guest's own time: a slow host does not lengthen it.
const COMPUTED: &str = "kill $(cat /run/computer); awk 'NR > 1 && $3 - last > gap { gap = $3 - last } \
    { last = $3 } END { print \"computed\", $1, $2, gap }' /run/sums; rm /run/sums";

/// Message of the guest's programs when the disk fails.
const ERROR: &str = "Input/output error";
/// Time without GDM, in seconds: longer than a request waits for GDM. Of GDM's limit there are 2 s
/// to spare.
const AWAY_SECONDS: u64 = 32;
/// More than a guest writes in that time.
const BLOCKS: u64 = 512;
/// A block of the file system, so that each write is one request.
const BLOCK: usize = 4096;

/// Makes the file, and begins to read the disk and to write the file, a block after the other. What
/// was flushed is noted only then. Reader and writer are two, because a flush that fails ends the
/// writer alone.
fn use_disk() -> String {
    format!(
        "dd if=/dev/zero of={FLUSHED} bs={BLOCK} count={BLOCKS} 2> /run/made; \
         mount -o remount,noatime,lazytime /; sync; \
         (while dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct; do sleep 0.1; done \
         2> /run/read; echo read >> /run/status) & \
         (n=0; while [ $n -lt {BLOCKS} ] && printf '%0{digits}d\\n' $n > /run/block && \
         dd if=/run/block of={FLUSHED} bs={BLOCK} seek=$n count=1 oflag=direct conv=notrunc && \
         sync -d {FLUSHED}; do n=$((n+1)); echo $n > /run/flushed; sleep 0.1; done \
         2> /run/written; echo written >> /run/status) & :",
        digits = BLOCK - 1
    )
}

/// Waits until both have failed, and prints how, and how many blocks were flushed. Mount options
/// come back, since later checks use the file system as it was.
fn failures() -> String {
    format!(
        "until grep -q read /run/status && grep -q written /run/status; do sleep 0.2; done; \
         rm /run/status; mount -o remount,relatime,nolazytime /; \
         for log in /run/read /run/written; do grep -m 1 '{ERROR}' $log; done; \
         echo flushed $(cat /run/flushed)"
    )
}

/// Returns a command that kills GDM and delays its return. GDM's supervisor in the device VM starts
/// no GDM while `/run/gdm.hold` is there.
fn keep_away() -> String {
    format!(
        "touch /run/gdm.hold; kill -9 $(pidof gdm); sleep {AWAY_SECONDS}; rm /run/gdm.hold; \
         until gearctl list > /dev/null 2>&1; do sleep 0.1; done"
    )
}

impl Smoke<'_> {
    /// Restarts the device VM under a guest that writes and computes. As many ways as the extent
    /// wants, in the order of the list.
    pub(super) fn absence(&mut self, guest: &VmSummary) -> Result<()> {
        let restarts = RESTARTS.iter().take(self.extent.restarts);
        for (what, command) in restarts {
            self.restart(guest, what, command)?;
        }
        if self.extent.away {
            self.away(guest)?;
        }
        Ok(())
    }

    /// Keeps GDM away for longer than a request waits. The count of flushed blocks is a promise of
    /// the guest's kernel, which the disk has to keep.
    fn away(&mut self, guest: &VmSummary) -> Result<()> {
        let name = &guest.name;
        let mut flushed = 0;
        let title = format!("GDM is away for {AWAY_SECONDS} s: {name} gets I/O errors");
        self.check_and_say(&title, |s| {
            shell(s, &use_disk())?;
            leave(s)?;
            shell_within(s, &keep_away(), LONG)?;
            enter(s, guest)?;
            flushed = flushed_before(&shell_within(s, &failures(), LONG)?)?;
            Ok(format!("{flushed} blocks were flushed before"))
        })?;
        self.has_flushed(flushed)
    }

    /// Reads the file back from the disk, not from the guest's page cache. Dropping the page cache
    /// makes the guest read what GDM has.
    fn has_flushed(&mut self, flushed: u64) -> Result<()> {
        self.check("its disk is served again, and has what was flushed", |s| {
            let read_back = format!("sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum {FLUSHED}");
            let printed = shell(s, &read_back)?;
            // The write that failed may have been done, but for its flush.
            let hashes = [flushed_hash(flushed)?, flushed_hash(flushed + 1)?];
            let good = hashes.iter().any(|hash| printed.contains(hash));
            ensure!(good, "after {flushed} blocks the file is {printed}");
            Ok(())
        })
    }

    /// Restarts the device VM by a command, under a guest that writes and computes. Two things are
    /// told apart: the writes may wait, and the computation may not.
    fn restart(&mut self, guest: &VmSummary, what: &str, command: &str) -> Result<()> {
        let name = &guest.name;
        let mut away = Duration::ZERO;
        let title = format!("the device VM {what}, and serves again");
        self.check_and_say(&title, |s| {
            // At this rate the guest cannot be done before.
            in_background(s, &format!("{} --rate_iops=100", fio(4)))?;
            shell(s, COMPUTE)?;
            leave(s)?;
            let before = restarts_of(s, name)?;
            away = begin_anew(s, command)?;
            let after = restarts_of(s, name)?;
            ensure!(after == before, "{name} was restarted, too");
            enter(s, guest)?;
            answers(s, name)?;
            Ok(format!("{:.1} s", away.as_secs_f64()))
        })?;
        self.check_and_say(&format!("{name} computed on"), |s| {
            computed(&shell(s, COMPUTED)?, away)
        })?;
        self.check_and_say(&format!("{name}'s writes went on"), |s| {
            fio_result(&shell_within(s, FINISH, LONG)?)
        })
    }
}

/// Ends the device VM by a command, and waits until GDM serves again. Returns the time between. The
/// console goes with the VM, and shows its next boot.
fn begin_anew(session: &mut Session, command: &str) -> Result<Duration> {
    let gone = Instant::now();
    session.send(&format!("{command}\n"))?;
    is_up(session)?;
    Ok(gone.elapsed())
}

/// Reads what [`failures`] prints: the reading and the writing have failed, after how many blocks.
/// Both programs have failed with EIO: an end by anything else is a defect.
fn flushed_before(printed: &str) -> Result<u64> {
    let errors = printed.matches(ERROR).count();
    ensure!(errors == 2, "the guest says {printed:?}");
    let count = printed
        .lines()
        .find_map(|line| line.strip_prefix("flushed "));
    let flushed = count.context("nothing was flushed")?.trim().parse()?;
    ensure!(flushed > 0, "nothing was flushed");
    Ok(flushed)
}

/// Returns the SHA-256 of the file after `blocks` of its blocks were written. The file's content is
/// known in advance: each block has its number.
fn flushed_hash(blocks: u64) -> Result<String> {
    let mut file = Vec::new();
    for block in 0..blocks {
        file.extend(format!("{block:0digits$}\n", digits = BLOCK - 1).bytes());
    }
    file.resize(BLOCKS as usize * BLOCK, 0);
    sha256_of(file.as_slice())
}

/// Returns how often Gear2 has restarted a VM. Gear2 counts; the guest's uptime would also change
/// by a pause.
fn restarts_of(session: &mut Session, name: &str) -> Result<u64> {
    let list = json(session, "gearctl list --json")?;
    let mut vms = list.as_array().into_iter().flatten();
    let vm = vms.find(|vm| vm["name"] == name);
    number(&vm.with_context(|| format!("{name} is not listed"))?["restarts"])
}

/// Checks what the guest computed while the device VM was away for so long. Half of the time away
/// is far above a time slice, and below any hold-up.
fn computed(printed: &str, away: Duration) -> Result<String> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("computed "));
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [steps, sum, gap] = words[..] else {
        anyhow::bail!("the guest says {printed:?}");
    };
    let (steps, sum, gap): (u64, u64, f64) = (steps.parse()?, sum.parse()?, gap.parse()?);
    ensure!(sum == checksum(steps), "after {steps} steps it has {sum}");
    let limit = away.as_secs_f64() / 2.0;
    ensure!(gap < limit, "it stood still for {gap} s");
    Ok(format!(
        "{steps} steps, never held up for more than {gap:.2} s"
    ))
}

/// Returns the result of the guest's computation after `steps` steps. The guest's shell computes
/// the same.
fn checksum(steps: u64) -> u64 {
    (1..=steps).fold(1, |sum, step| (sum * 31 + step) % 65521)
}

#[cfg(test)]
mod tests;
