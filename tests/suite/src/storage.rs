//! Storage that fails: a disk that stalls for seconds while the device model is killed and VMs are
//! restarted, a disk that loses unflushed data with power, and a disk whose thread hangs.
//!
//! The disk is a server of the tests (`nbd`), between QEMU and its image. Kills and restarts come
//! at times drawn from a fixed seed; their effects differ from run to run.
//!
//! The default system runs here, on a disk that nobody can buy: a real one fails too rarely to test
//! with, and QEMU's own error injection neither stalls nor forgets. Losses are judged from inside
//! the guest, by hashes and by fio's checksums, because GDM's word is under test.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, Images, last_words};
use workbench::cache::sha256_of;
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::run;
use xtask::smoke::device_vm::{answers, enter, is_up, leave};
use xtask::smoke::fio::fio;
use xtask::smoke::{BOOT, LONG, ready, shell, shell_within};

use crate::nbd::Disk;
use crate::part::{Part, Tally, count_of};
use crate::record;

/// Number of times that GDM is killed, unless `GEARV_KILLS` is set. Ten rounds, five of each kind
/// of restart.
const KILLS: u32 = 40;
/// Kills between two restarts of a VM. Several in a row, so that a GDM is killed that has just
/// taken over another's unfinished requests.
const KILLS_A_ROUND: u32 = 4;
/// Longest stall of the disk. Half of the time after which GDM takes a thread for hung
/// (docs/device-model.md, A thread that hangs).
const STALL: Duration = Duration::from_secs(5);
/// Number of losses of power, unless `GEARV_POWER_LOSSES` is set.
const POWER_LOSSES: u32 = 4;
/// The ASCII bytes of a name; any number would do. A fixed one repeats the times of a failed run.
const SEED: u64 = 0x6764_6d31_3531_3630;

/// File of random bytes that is never written again. fio overwrites its own file all the time, so
/// damage to data at rest would not show there.
const REFERENCE: &str = "/root/reference";
/// The guest's work: fio writes and verifies until it is told to stop, and says how it ended.
const WORK: &str = "(rm -f /run/stop; while [ ! -e /run/stop ]; do";
/// Ends the workload, and prints the number of fio's successful runs. The status is removed only
/// after a success: a failure stays for a person to look at.
const STOP: &str = "touch /run/stop; until [ -s /run/status ]; do sleep 0.2; done; \
    cat /run/status; tail -n 3 /run/fio; grep -qx good /run/status && rm /run/status";
/// Hashes the file as the disk has it. Without the first command the guest's page cache would
/// answer, and the disk would not be read.
const HASH: &str = "echo 3 > /proc/sys/vm/drop_caches; sha256sum";
/// Kills GDM, and waits until the next one answers. Another process identifier tells the next GDM
/// from one that has not died yet. An answer to `gearctl` shows that it serves.
const KILL: &str = "old=$(pidof gdm); kill -9 $old; \
    until [ -n \"$(pidof gdm)\" ] && [ \"$(pidof gdm)\" != \"$old\" ] && gearctl list > /dev/null 2>&1; \
    do sleep 0.1; done";
/// Waits until the guest has booted: its init has set its network up. The address is the guest's on
/// the bridge of the device VM.
const BOOTED: &str = "until ping -c 1 -W 1 10.0.2.101 > /dev/null; do sleep 0.5; done";
/// Prints descriptors and KiB of GDM. All processes count: GDM has one for itself and one per
/// guest, and a leak in either ends the system.
const USAGE: &str = "fds=0; kib=0; for pid in $(pidof gdm); do \
    fds=$((fds+$(ls /proc/$pid/fd | wc -l))); \
    kib=$((kib+$(awk '/^VmRSS/ { print $2 }' /proc/$pid/status))); done; echo uses $fds $kib";
/// Most KiB and per cent by which GDM's memory may differ from start to start. An allocator keeps
/// what it was once given, so memory is not the same to the page. A leak by each of 40 kills is
/// more than that.
const SLACK_KIB: u64 = 1024;
const SLACK_PERCENT: u64 = 25;

/// Key that ends the line being typed. Ctrl-C.
const INTERRUPT: &str = "\x03";

/// File whose blocks are flushed one by one.
const FLUSHED: &str = "/root/flushed";
/// The number that a block holds fills all of it, so that a block of which a part is lost has
/// another hash.
const BLOCK: usize = 4096;
/// More than are written until the latest moment at which power is lost.
const BLOCKS: u32 = 200;

/// Each takes minutes of waiting for stalls and boots, and is therefore slow.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("a disk that stalls, GDM killed, VMs restarted", stalls).slow(true),
        Part::new("a disk that loses power", loses_power).slow(true),
        Part::new("a disk that the device VM has mounted", mounted).slow(true),
        Part::new("a disk whose thread in GDM hangs", hangs).slow(true),
    ]
}

/// The system of the device VM on a disk of ours.
struct Rig {
    images: Images,
    machine: Machine,
    disk: Disk,
    log: PathBuf,
}

// QEMU gets the socket's address where it would get the image's path; nothing else differs from
// `run`.
impl Rig {
    fn new(name: &str) -> Result<Rig> {
        let images = build_images::build(&build_images::default_manifest())?;
        let mut machine = run::machine_for(&images)?;
        let image = machine.disk.take().context("the machine has no disk")?;
        let disk = Disk::serve(&image, &image.with_extension("socket"), SEED)?;
        machine.disk = Some(disk.url());
        let log = workspace::output_dir().join(format!("{name}.log"));
        Ok(Rig {
            images,
            machine,
            disk,
            log,
        })
    }

    fn guest(&self) -> Result<&VmSummary> {
        let vms = &self.images.manifest.vms;
        let guest = vms.iter().find(|vm| vm.may_power_off);
        guest.context("no guest may power the machine off")
    }

    /// Boots until the device VM's shell. A loss of power boots again on the disk as it was left,
    /// so the images are built once and started often.
    fn boot(&self) -> Result<Session> {
        let qemu = Qemu::prepare(10)?;
        let mut session = self.images.start(&qemu, &self.machine, &self.log)?;
        is_up(&mut session).with_context(|| last_words(&session))?;
        Ok(session)
    }
}

/// Goes to the guest's shell, as soon as it has one. The prompt alone may come from the history
/// that the console shows first, so the shell has to answer.
fn reach(session: &mut Session, guest: &VmSummary) -> Result<()> {
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)
}

/// Numbers of the generator SplitMix64. Small enough to own: a crate's generator may change its
/// numbers with a version, and a seed would not repeat a run any more.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    /// Returns a time for `sleep`.
    fn seconds(&mut self, end: u64) -> String {
        let tenths = self.below(10 * end);
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

/// Disturbances of the machine so far.
#[derive(Default)]
struct Done {
    kills: u32,
    guest_restarts: u32,
    device_restarts: u32,
}

/// The figure is printed before the outcome is judged: a failure is understood by how far the run
/// came.
fn stalls(tally: &mut Tally) -> Result<()> {
    let kills = count_of("GEARV_KILLS", KILLS);
    let rig = Rig::new("storage-stalls")?;
    let mut session = rig.boot()?;
    let mut done = Done::default();
    let outcome = storm(&rig, &mut session, kills, &mut done);
    let (stalls, flushes) = rig.disk.counts();
    let mut figure = String::new();
    write!(
        figure,
        "GDM killed {} times, guest restarted {} times, device VM {} times; {stalls} stalls of up to \
         {} s, {flushes} flushes",
        done.kills,
        done.guest_restarts,
        done.device_restarts,
        STALL.as_secs()
    )?;
    println!("{figure}");
    let last = outcome.with_context(|| last_words(&session))?;
    tally.pass(usize::try_from(
        done.kills + done.guest_restarts + done.device_restarts,
    )?);
    let command = format!("GEARV_KILLS={kills} cargo xtask test --slow \"a disk that stalls\"");
    record::note("storage stalls", &format!("{figure}; {last}"), &command)
}

/// The disk stalls only after the reference is written and GDM's usage is noted: both describe a
/// system at rest.
fn storm(rig: &Rig, session: &mut Session, kills: u32, done: &mut Done) -> Result<String> {
    let guest = rig.guest()?;
    let reference = make_reference(session, guest)?;
    let before = usage(session)?;
    rig.disk.stall(STALL);
    enter(session, guest)?;
    let mut storm = Storm {
        session,
        guest,
        reference,
        random: Random(SEED),
        done,
    };
    for round in 0..kills.div_ceil(KILLS_A_ROUND) {
        storm.round(round, kills)?;
    }
    // The judgement of usage would otherwise wait for the disk, too.
    rig.disk.stall(Duration::ZERO);
    leave(session)?;
    let log = shell(session, "cat /run/gdm.log")?;
    // GDM's own invariants report as panics or by this text; both may pass unseen, as GDM is
    // restarted.
    let complains = log.contains("panicked") || log.contains("bug in gdm");
    ensure!(!complains, "{log}");
    no_more_than(before, usage(session)?)
}

/// Writes the guest's reference file, and returns its hash. The guest makes the hash itself: its
/// own view is what later views are compared with.
fn make_reference(session: &mut Session, guest: &VmSummary) -> Result<String> {
    reach(session, guest)?;
    let made = format!("dd if=/dev/urandom of={REFERENCE} bs=1M count=2; sync; {HASH} {REFERENCE}");
    let made = shell(session, &made)?;
    let hash = made.split_whitespace().find(|word| word.len() == 64);
    let hash = hash.context("no hash")?.to_owned();
    leave(session)?;
    Ok(hash)
}

/// Work of the guest's, and what disturbs it.
struct Storm<'a> {
    session: &'a mut Session,
    guest: &'a VmSummary,
    /// Hash of the guest's reference file.
    reference: String,
    random: Random,
    done: &'a mut Done,
}

impl Storm<'_> {
    /// Kills GDM while the guest works. Even rounds then restart the guest, odd rounds the device
    /// VM. Rounds take turns, because each kind of restart leaves other state behind: a guest's
    /// restart drops its queues, a device VM's restart keeps them.
    fn round(&mut self, round: u32, kills: u32) -> Result<()> {
        let fio = format!("{WORK} {} > /run/fio 2>&1 || break; done; ", fio(1));
        let work = format!(
            "{fio} [ -e /run/stop ] && echo good > /run/status || echo bad > /run/status) & :"
        );
        shell(self.session, &work)?;
        leave(self.session)?;
        for _ in 0..KILLS_A_ROUND.min(kills - self.done.kills) {
            let wait = self.random.seconds(8);
            shell_within(self.session, &format!("sleep {wait}; {KILL}"), LONG)?;
            self.done.kills += 1;
        }
        match round % 2 {
            0 => self.restart_guest(&work)?,
            _ => self.restart_device()?,
        }
        verify(self.session, &self.reference)?;
        let Done {
            kills,
            guest_restarts,
            device_restarts,
        } = self.done;
        let seconds = self.session.elapsed().as_secs_f32();
        println!(
            "round {round}: {kills} kills, restarts {guest_restarts} and {device_restarts}, \
             {seconds:.0} s"
        );
        Ok(())
    }

    /// Restarts the guest in the middle of its work, and kills GDM while the guest is stopped. A
    /// GDM that starts then finds no queues that it could go on with.
    fn restart_guest(&mut self, work: &str) -> Result<()> {
        let (wait, kill) = (self.random.seconds(4), self.random.seconds(2));
        stop_work(self.session, self.guest)?;
        verify(self.session, &self.reference)?;
        // The run of fio that begins here is cut off by the restart. A status that it leaves must
        // not count.
        shell(self.session, &work.replace("good", "cut"))?;
        leave(self.session)?;
        let restart = format!(
            "sleep {wait}; gearctl restart {}; sleep {kill}; {KILL}; sleep 5; {BOOTED}",
            self.guest.name
        );
        shell_within(self.session, &restart, LONG)?;
        self.done.guest_restarts += 1;
        enter_booted(self.session, self.guest)
    }

    /// The guest keeps running meanwhile, and none of its requests may fail.
    fn restart_device(&mut self) -> Result<()> {
        let wait = self.random.seconds(4);
        let restart = format!("sleep {wait}; gearctl restart device\n");
        self.session.send(&restart)?;
        is_up(self.session)?;
        self.done.device_restarts += 1;
        stop_work(self.session, self.guest)
    }
}

/// Ends the guest's work, which must have gone well. fio that ended early has written another
/// status, and says in its last lines why.
fn stop_work(session: &mut Session, guest: &VmSummary) -> Result<()> {
    enter(session, guest)?;
    let ended = shell_within(session, STOP, LONG)?;
    ensure!(ended.contains("good"), "fio says {ended}");
    Ok(())
}

/// Compares GDM's descriptors and memory in KiB with those of its start, and returns them in words.
/// Descriptors are compared exactly: a server of a fixed set of files has no reason to have one
/// more.
fn no_more_than(before: [u64; 2], after: [u64; 2]) -> Result<String> {
    let words = format!(
        "GDM has {} descriptors and {} KiB, and had {} and {}",
        after[0], after[1], before[0], before[1]
    );
    let limit = before[1] + before[1] * SLACK_PERCENT / 100 + SLACK_KIB;
    ensure!(after[0] == before[0] && after[1] <= limit, "{words}");
    Ok(words)
}

/// Goes to the shell of a guest that has just booted, from a disk that stalls. What is typed too
/// early may arrive in part, and is given up.
fn enter_booted(session: &mut Session, guest: &VmSummary) -> Result<()> {
    session.send(&format!("{}\n", guest.console_command()))?;
    session.listen(Duration::from_secs(5))?;
    session.send(INTERRUPT)?;
    let first = answers(session, &guest.name);
    first.or_else(|_| {
        session.send(INTERRUPT)?;
        answers(session, &guest.name)
    })
}

/// GDM comes back while the device VM has mounted the guest's disk: it refuses that disk by name,
/// the guest keeps its device and waits, and is served when the disk is free. Two writers of one
/// file system destroy it, so serving a mounted disk would be worse than a guest that waits.
fn mounted(tally: &mut Tally) -> Result<()> {
    let rig = Rig::new("storage-mounted")?;
    let mut session = rig.boot()?;
    let outcome = mount_and_free(&mut session, rig.guest()?);
    outcome.with_context(|| last_words(&session))?;
    tally.pass(3);
    Ok(())
}

/// Begins to read in the background, and finds that the read does not end. Direct I/O reaches the
/// device; a cached block would be read without it.
fn begin_to_read(session: &mut Session) -> Result<()> {
    let read = "(dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct 2> /run/read \
        && echo good > /run/status || echo bad > /run/status) & sleep 2; [ ! -e /run/status ]";
    shell(session, read)?;
    Ok(())
}

/// The file `/run/gdm.hold` keeps the init script from starting the next GDM, because the mount
/// must come first. Both lines of the log are awaited: the reason, and the state that a person is
/// told.
fn mount_and_free(session: &mut Session, guest: &VmSummary) -> Result<()> {
    reach(session, guest)?;
    leave(session)?;
    let mount = "touch /run/gdm.hold; kill -9 $(pidof gdm); mkdir -p /mnt; \
        until mount -t ext4 -o ro,noload /dev/vda /mnt; do sleep 0.2; done; rm /run/gdm.hold; \
        until grep '/dev/vda: is mounted in the device VM' /run/gdm.log; do sleep 0.5; done; \
        until grep 'its backend is awaited, requests wait' /run/gdm.log; do sleep 0.5; done";
    shell_within(session, mount, LONG)?;
    enter(session, guest)?;
    begin_to_read(session)?;
    leave(session)?;
    let free = "umount /mnt; until grep 'its backend is there' /run/gdm.log; do sleep 0.5; done";
    shell_within(session, free, LONG)?;
    enter(session, guest)?;
    let ended = "until [ -s /run/status ]; do sleep 0.2; done; cat /run/status; cat /run/read";
    let ended = shell_within(session, ended, LONG)?;
    ensure!(ended.contains("good"), "the guest reads: {ended}");
    Ok(())
}

/// A thread that hangs ends the process of its guest, GDM goes on, and the next process serves the
/// disk. A kill ends a process at once and is easy to see. A thread that hangs leaves its process
/// alive and its socket open, and only counts of steps tell.
fn hangs(tally: &mut Tally) -> Result<()> {
    let rig = Rig::new("storage-hangs")?;
    let mut session = rig.boot()?;
    let outcome = hang_a_thread(&mut session, rig.guest()?);
    println!("{}", outcome.with_context(|| last_words(&session))?);
    tally.pass(3);
    Ok(())
}

/// The guest reads its disk now and then, so that the thread is rarely in the kernel for the disk,
/// where nobody judges it.
const READS: &str = "rm -f /run/stop; (n=0; while [ ! -e /run/stop ]; do \
    dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct || break; \
    n=$((n+1)); echo $n > /run/count; sleep 0.5; done 2> /run/read; \
    [ -e /run/stop ] && echo good > /run/status || echo bad > /run/status) & :";
/// Freezes the disk's thread alone, by a cgroup of threads, and waits until another process serves.
/// The guest's first process ends, and GDM's own, the oldest, does not. A stop signal would stop
/// all threads of the process. The count of starts shows that GDM itself is the first one still,
/// and the log has to name the thread.
const HANG: &str = "old=$(pidof gdm); mkdir /run/groups; mount -t cgroup2 none /run/groups; \
    mkdir /run/groups/hung; echo threaded > /run/groups/hung/cgroup.type; \
    for task in $(for pid in $old; do echo /proc/$pid/task/*; done); do grep -q '^[^ ]*/block' $task/comm && \
    basename $task > /run/groups/hung/cgroup.threads; done; \
    grep -c . /run/groups/hung/cgroup.threads; echo 1 > /run/groups/hung/cgroup.freeze; \
    until [ \"$(pidof gdm | wc -w)\" = \"$(echo $old | wc -w)\" ] && [ \"$(pidof gdm)\" != \"$old\" ] && \
    gearctl list > /dev/null 2>&1; do sleep 0.1; done; \
    gearctl version --json | grep -q '\"gdm_starts\":1[,}]' && grep 'does not get on' /run/gdm.log";

/// The guest's reads run over the whole time: one that failed would have ended the loop by `bad`.
fn hang_a_thread(session: &mut Session, guest: &VmSummary) -> Result<String> {
    reach(session, guest)?;
    shell(session, READS)?;
    leave(session)?;
    let log = shell_within(session, HANG, LONG)?;
    let named = log.lines().find(|line| line.contains("/block"));
    let named = named.with_context(|| format!("GDM says {log:?}"))?;
    enter(session, guest)?;
    // One more read shows that the next GDM serves the disk.
    let stop = "before=$(cat /run/count); until [ \"$(cat /run/count)\" != \"$before\" ] || \
        [ -s /run/status ]; do sleep 0.2; done; touch /run/stop; \
        until [ -s /run/status ]; do sleep 0.2; done; cat /run/status /run/read; \
        echo reads $(cat /run/count)";
    let ended = shell_within(session, stop, LONG)?;
    ensure!(ended.contains("good"), "the guest reads: {ended}");
    let reads = ended.lines().find(|line| line.starts_with("reads "));
    let reads = reads.with_context(|| format!("the guest says {ended:?}"))?;
    Ok(format!("{named}; the guest's {reads}, none failed"))
}

/// Data at rest is whole after each round, so that a failure names the round that damaged it.
fn verify(session: &mut Session, reference: &str) -> Result<()> {
    let hash = shell_within(session, &format!("{HASH} {REFERENCE}"), LONG)?;
    ensure!(hash.contains(reference), "{hash}, and was {reference}");
    Ok(())
}

/// Returns how many descriptors GDM has, and how many KiB.
fn usage(session: &mut Session) -> Result<[u64; 2]> {
    let printed = shell(session, USAGE)?;
    let line = printed.lines().find_map(|line| line.strip_prefix("uses "));
    let numbers: Vec<u64> = line
        .unwrap_or_default()
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    numbers[..]
        .try_into()
        .ok()
        .with_context(|| format!("the device VM says {printed:?}"))
}

/// Flushed data survives each loss of power, and the file system stays usable. The loop has one
/// boot more than losses, since only the next boot can read what the last loss left.
fn loses_power(tally: &mut Tally) -> Result<()> {
    let losses = count_of("GEARV_POWER_LOSSES", POWER_LOSSES);
    let rig = Rig::new("storage-power")?;
    let guest = rig.guest()?;
    let mut random = Random(SEED);
    let mut lost = 0;
    let mut flushed: Option<(u32, u32)> = None;
    for cycle in 0..=losses {
        let mut session = rig.boot()?;
        reach(&mut session, guest).with_context(|| last_words(&session))?;
        if let Some((cycle, blocks)) = flushed {
            has_flushed(&mut session, cycle, blocks)?;
            tally.pass(1);
        }
        if cycle == losses {
            break;
        }
        let last = write_for_a_while(&mut session, cycle, &mut random)?;
        // As the mains' plug does. Dropping the session kills QEMU without a word to the guests.
        drop(session);
        lost += rig.disk.lose_power();
        flushed = Some((cycle, last));
    }
    let (_, flushes) = rig.disk.counts();
    // A run in which all data was flushed, or none, would pass whatever GDM does with flushes.
    let figure = format!("{losses} losses of power, {lost} bytes lost, {flushes} flushes");
    ensure!(lost > 0 && flushes > 0, "{figure}: that tests nothing");
    let command = "cargo xtask test --slow \"a disk that loses power\"";
    record::note("storage power", &figure, command)
}

/// Checks the blocks of a cycle that were flushed before the power was lost. The content is
/// computed anew here, from cycle and number: a block of an earlier cycle, which a lost write would
/// leave, has another hash.
fn has_flushed(session: &mut Session, cycle: u32, blocks: u32) -> Result<()> {
    let command = format!("dd if={FLUSHED} bs={BLOCK} count={blocks} | sha256sum");
    let inside = shell(session, &command)?;
    let is_there = inside.contains(&hash_of(cycle, blocks)?);
    let flushed = format!("{blocks} flushed blocks of cycle {cycle}");
    ensure!(is_there, "{flushed} are {inside}");
    Ok(())
}

/// Has the guest write blocks until a random moment, and returns how many it has flushed by then.
/// The moment lies behind a number of flushes and a part of a second, so that it falls between any
/// two steps of a block's life.
fn write_for_a_while(session: &mut Session, cycle: u32, random: &mut Random) -> Result<u32> {
    let made = format!("dd if=/dev/zero of={FLUSHED} bs={BLOCK} count={BLOCKS}; sync");
    shell(session, &made)?;
    session.send(&write_blocks(cycle))?;
    let least = 5 + random.below(60);
    session.expect(&format!("<flushed {least}>"), LONG)?;
    let beyond = Duration::from_millis(random.below(1000));
    session.listen(beyond)?;
    last_flushed(session.transcript())
}

/// Writes the file's blocks one after the other, and says of each when it is flushed; writes
/// without a flush to another file in between. The writes in between leave unflushed data in the
/// disk's cache, which is lost: without them a flush that does nothing would lose nothing.
fn write_blocks(cycle: u32) -> String {
    format!(
        "n=0; while [ $n -lt {BLOCKS} ]; do printf '%0{digits}d\\n' $(({base}+n)) > /run/block; \
         dd if=/run/block of={FLUSHED} bs={BLOCK} seek=$n count=1 oflag=direct conv=notrunc 2> /dev/null && \
         sync -d {FLUSHED} && n=$((n+1)) && echo \"<flushed $n>\"; \
         dd if=/run/block of=/root/rest bs={BLOCK} seek=$n count=1 oflag=direct conv=notrunc 2> /dev/null; done\n",
        digits = BLOCK - 1,
        base = cycle * 1000,
    )
}

/// The last line on the console counts: the guest prints it after its flush was answered.
fn last_flushed(transcript: &str) -> Result<u32> {
    let last = transcript.rsplit("<flushed ").find_map(|rest| {
        let (number, _) = rest.split_once('>')?;
        number.parse().ok()
    });
    last.context("nothing was flushed")
}

/// Returns the SHA-256 of the first `blocks` blocks of a cycle.
fn hash_of(cycle: u32, blocks: u32) -> Result<String> {
    let mut file = String::new();
    for block in 0..blocks {
        writeln!(
            file,
            "{:0digits$}",
            cycle * 1000 + block,
            digits = BLOCK - 1
        )?;
    }
    sha256_of(file.as_bytes())
}
