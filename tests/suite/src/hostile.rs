//! The device model under attack: a hostile guest beside an honest one, both served by a device VM
//! on the stock kernel (`tests/manifests/hostile.dts`).
//!
//! `tests/manifests/hostile-code.dts` has another device model, one of whose processes is
//! subverted: the code of the guest that it serves runs there, and reaches for other guests.
//!
//! The guests judge the effects inside their VMs. From outside, the test checks that the honest
//! guest continues all the time, that the device model is the same process at the end and has
//! reported no bug of its own, and that only the guests' own parts of the disk have changed.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hostile_driver::{SECTOR, WRITTEN_SECTORS, pattern, sector_byte};
use serde_json::Value;
use workbench::build_images::{self, Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::{device_userland, workspace};
use xtask::run;
use xtask::smoke::device_vm::{LEAVE, json, number, widen};
use xtask::smoke::{shell, shell_within};

use crate::guests::count_verdicts;
use crate::part::{Part, Tally, count_of};

mod dumps;

/// Longest boot of the device VM until its shell, and longest work of a guest at its end, on a host
/// that is busy with another lane.
const BOOT: Duration = Duration::from_secs(180);
/// Longest time of the attacks from within the device model.
const ATTACKS: Duration = Duration::from_secs(900);
/// Longest wait for a guest's last words and for the machine's end, which follow at once.
const END: Duration = Duration::from_secs(60);
/// Attacks of the hostile guest within which the honest one completes at least one request. Events
/// are counted and no time: a busy host slows both guests alike.
const STALL: u64 = 20_000;
/// The guests that attack: one the device model's own devices, one those that programs serve.
const HOSTILE_VMS: [&str; 2] = ["hostile", "saboteur"];
/// Looks without an event of the hostile guests after which they wait for ever. A look is three
/// commands in the device VM and half a second; a program that has ended serves again within a few.
const QUIET: u32 = 200;
/// More events than attacks have: a long run has about 20,000 for each device.
const MOST_EVENTS: u64 = 2_000_000;
/// Random attacks on each device of a long run, unless `GEARV_ATTACKS` is set; the manifest says
/// how many there are in a short one.
const LONG: u32 = 1000;

/// Layout of the disk, in sectors: the guests' partitions, with unowned space around each.
const HONEST: u64 = 2048;
const HOSTILE: u64 = HONEST + PARTITION + 2048;
/// The disk that a program serves.
const PROGRAMS: u64 = HOSTILE + PARTITION + 2048;
const SECTORS: u64 = PROGRAMS + PARTITION + 2048;
const PARTITION: u64 = 2 * WRITTEN_SECTORS;
/// Contents of disk space that belongs to nobody. Neither zeroes nor the pattern of a guest: what a
/// device model clears or misplaces there is seen.
const NOBODYS: u8 = 0xee;

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("hostile driver", |tally| attacked(None, tally)).beside(),
        Part::new("device model under long attack", |tally| {
            attacked(Some(count_of("GEARV_ATTACKS", LONG)), tally)
        })
        .slow(true),
        Part::new("hostile code in the device model", |tally| {
            subverted(attack_from_within, tally)
        })
        .either(),
        // The host's test of the processes (device-model/tests/processes.rs) has the same attacks
        // in every run.
        Part::new("hostile code without a filter of system calls", |tally| {
            subverted(attack_without_filter, tally)
        })
        .slow(true),
    ]
}

/// Attacks by code in the process of one guest (`device-model/src/bin/gdm_hostile`), and those of
/// them that the filter of system calls may answer without ending the process.
const SUBVERTED_ATTACKS: usize = 28;

/// Has a subverted process attack. The honest guest is looked at afterwards: an attack may be
/// refused and still cost its neighbour the device.
fn subverted(
    attack: impl FnOnce(&mut Session, &mut Tally) -> Result<()>,
    tally: &mut Tally,
) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/hostile-code.dts");
    on_disk(&manifest, None, |session| {
        attack(session, tally)?;
        honest_goes_on(session, tally)
    })?;
    Ok(())
}

/// Dumps the guest beside the subverted process under another Gear1: one with a planted bug in what
/// it tells of FP registers.
pub(super) fn dumps_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/hostile-code.dts");
    on_disk(&manifest, Some(gear1), |session| {
        shell(session, "until gearctl version; do sleep 0.2; done")?;
        honest_goes_on(session, tally)
    })?;
    Ok(())
}

/// Boots a manifest on a new disk, under another Gear1 if one is given, and runs `check` at the
/// device VM's prompt. Returns the disk as the machine left it: what a guest did to another one's
/// sectors shows there, whatever the guests say.
fn on_disk(
    manifest: &Path,
    gear1: Option<PathBuf>,
    check: impl FnOnce(&mut Session) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut images = build_images::build(manifest)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    let directory = images.archive.with_file_name("");
    let disk = directory.join("disk.img");
    fs::write(&disk, new_disk())?;
    let machine = Machine {
        cpus: u32::try_from(images.manifest.cpu_count)?,
        memory_mib: run::memory_for(&images)?,
        disk: Some(disk.clone()),
        ..Machine::default()
    };
    let mut session = start(&images, &machine, &directory.join("test.log"))?;
    let result = check(&mut session);
    result.with_context(|| last_words(&session))?;
    drop(session);
    let content = fs::read(&disk)?;
    fs::remove_file(disk)?;
    Ok(content)
}

/// Judges what the device model has logged since its start. The attacks begin by themselves with
/// the first life of the subverted process.
fn attack_from_within(session: &mut Session, tally: &mut Tally) -> Result<()> {
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    let log = shell_within(session, &attacks_in("/run/gdm.log"), ATTACKS)?;
    judge_attacks(&log, true, tally);
    Ok(())
}

/// Starts the device model again, without its filters, and judges what it logs then. Without
/// filters the kernel's other walls (users, namespaces, mappings) stand alone, and must hold as
/// well.
fn attack_without_filter(session: &mut Session, tally: &mut Tally) -> Result<()> {
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    let again = format!(
        "touch /run/gdm.hold; kill -9 $(pidof gdm); sleep 2; \
         (gdm --no-seccomp > /run/without.log 2>&1 < /dev/null &); {}",
        attacks_in("/run/without.log")
    );
    let log = shell_within(session, &again, ATTACKS)?;
    judge_attacks(&log, false, tally);
    Ok(())
}

/// Returns a command that waits until all attacks are made, and prints a log.
fn attacks_in(log: &str) -> String {
    let made = format!("hostile: made all of {SUBVERTED_ATTACKS} attacks");
    format!("until grep -q '{made}' {log}; do sleep 1; done; cat {log}")
}

/// The guest beside the subverted process has been served all the time, and turns off.
fn honest_goes_on(session: &mut Session, tally: &mut Tally) -> Result<()> {
    tally.check("a dump of a guest that runs", dumps::of_running(session));
    let said = console(session, "honest", "q")?;
    judge(&said, "honest: ", 2, tally);
    tally.check("one of a guest that has ended", dumps::of_stopped(session));
    session.send("sync; poweroff -f\n")?;
    let status = session.expect_end(END)?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(())
}

/// Tallies the attacks: each was refused by an error or by the end of the process, and no other
/// process ended.
fn judge_attacks(log: &str, is_filtered: bool, tally: &mut Tally) {
    let lines = || log.lines().map(str::trim);
    for line in lines().filter(|line| line.starts_with("hostile: refused")) {
        println!("{line}");
    }
    let through: Vec<&str> = lines()
        .filter(|line| line.contains("WENT THROUGH"))
        .collect();
    through.iter().for_each(|line| tally.fail(*line));
    let refused = log.matches("hostile: refused: ").count();
    let killed = log
        .matches("hostile: its process ended with signal: 31")
        .count();
    println!("{refused} attacks were refused by an error, {killed} ended the process");
    // The last attack is a message that gdm ends the process for.
    let all = refused + killed == SUBVERTED_ATTACKS - 1 && is_filtered == (killed > 0);
    let honest = log.matches("honest: its process").count();
    match all && honest == 0 {
        true => tally.pass(refused + killed),
        false => tally.fail(format!(
            "{honest} processes of the other guest ended:\n{log}"
        )),
    }
}

/// Runs the machine with `operations` random attacks, or as many as the manifest says.
fn attacked(operations: Option<u32>, tally: &mut Tally) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/hostile.dts");
    let manifest = match operations {
        Some(count) => longer(&manifest, count)?,
        None => manifest,
    };
    let disk = on_disk(&manifest, None, |session| check(session, tally))?;
    tally.check("the disk", check_disk(&disk));
    Ok(())
}

/// Makes a manifest with another number of attacks. `everywhere=1` lifts what a short run leaves
/// out.
fn longer(manifest: &Path, operations: u32) -> Result<PathBuf> {
    let text = fs::read_to_string(manifest)?;
    let mut pieces = text.split("operations=");
    let mut text = pieces.next().context("no manifest")?.to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|digit: char| digit.is_ascii_digit());
        text += &format!("operations={operations} everywhere=1{rest}");
    }
    let directory = workspace::output_dir().join("hostile-long");
    fs::create_dir_all(&directory)?;
    let longer = directory.join("hostile-long.dts");
    fs::write(&longer, text)?;
    Ok(longer)
}

fn start(images: &Images, machine: &Machine, log: &Path) -> Result<Session> {
    let mut session = images.start(&Qemu::prepare(10)?, machine, log)?;
    let ready = session.expect(device_userland::READY, BOOT);
    ready.with_context(|| last_words(&session))?;
    widen(&mut session)?;
    Ok(session)
}

fn check(session: &mut Session, tally: &mut Tally) -> Result<()> {
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    let gdm = shell(session, "pidof gdm")?;
    let begin = session.elapsed();
    let stall = wait_for_attacks(session)?;
    let seconds = (session.elapsed() - begin).as_secs();
    println!("attacked for {seconds} s; the honest guest waits for no longer than {stall} events");
    tally.pass(1);
    judge_guests(session, tally)?;
    tally.check("the device model", unharmed(session, &gdm));
    session.send("sync; poweroff -f\n")?;
    let status = session.expect_end(END)?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(())
}

/// Judges what each guest says of itself: the attackers what they found, the honest one whether its
/// data are right.
fn judge_guests(session: &mut Session, tally: &mut Tally) -> Result<()> {
    for (vm, least) in [("hostile", 14), ("saboteur", 8)] {
        let said = console(session, vm, "")?;
        judge(&said, "hostile: ", least, tally);
    }
    let said = console(session, "honest", "q")?;
    judge(&said, "honest: ", 2, tally);
    // The attacks' output overwrites earlier output in the ring.
    let found = shows(
        session,
        "gearctl console --all hostile --virtio",
        "the honest driver after the attacks",
    );
    tally.check("the virtio console", found);
    Ok(())
}

/// Waits until the hostile guests have turned themselves off; returns the longest that the honest
/// one got nothing done, in what the hostile ones' devices saw meanwhile.
fn wait_for_attacks(session: &mut Session) -> Result<u64> {
    let mut watch = Watch::default();
    loop {
        watch.look(Seen::at(session)?)?;
        let mut ended = true;
        for vm in HOSTILE_VMS {
            ended &= state(session, vm)? == "stopped";
        }
        if ended {
            ensure!(watch.last.done > 0, "the honest guest did nothing at all");
            return Ok(watch.longest);
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Counts of the guests' devices up to a look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Accesses, requests and notifications of the hostile guests.
    events: u64,
    /// Requests of the honest guest.
    done: u64,
}

impl Seen {
    fn at(session: &mut Session) -> Result<Seen> {
        let stats = json(session, "gearctl stats --json")?;
        let mut events = 0;
        for vm in HOSTILE_VMS {
            events += total(&stats, vm, &["registers", "requests", "wakeups"])?;
        }
        let done = total(&stats, "honest", &["requests"])?;
        Ok(Seen { events, done })
    }
}

/// Progress of the guests over the looks. A busy machine makes looks rarer and attacks slower
/// alike, so no time ends the wait.
#[derive(Debug, Default)]
struct Watch {
    /// The first look that found the honest guest's latest request.
    last: Seen,
    longest: u64,
    /// Events up to the last look, and the looks since they changed.
    events: u64,
    quiet: u32,
}

impl Watch {
    fn look(&mut self, seen: Seen) -> Result<()> {
        // The last request was done at some time since the last look: the wait is no longer.
        if seen.done > 0 {
            self.longest = self.longest.max(seen.events - self.last.events);
        }
        if seen.done != self.last.done || seen.done == 0 {
            self.last = seen;
        }
        let is_quiet = seen.events == self.events;
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        self.events = seen.events;
        let longest = self.longest;
        ensure!(
            longest <= STALL,
            "the honest guest did nothing during {longest} events"
        );
        ensure!(self.quiet < QUIET, "the attacks do not go on");
        ensure!(seen.events < MOST_EVENTS, "the attacks do not end");
        Ok(())
    }
}

/// Adds up numbers of a VM's devices.
fn total(stats: &Value, vm: &str, names: &[&str]) -> Result<u64> {
    let devices = stats["devices"].as_array().context("no devices")?;
    let devices = devices.iter().filter(|device| device["vm"] == vm);
    let numbers = devices.flat_map(|device| names.iter().map(|name| number(&device[*name])));
    numbers.sum()
}

fn state(session: &mut Session, vm: &str) -> Result<String> {
    let list = json(session, "gearctl list --json")?;
    let vms = list.as_array().context("no list")?;
    let vm = vms.iter().find(|entry| entry["name"] == vm);
    let state = vm.and_then(|vm| vm["state"].as_str());
    state.map(str::to_owned).context("no state")
}

/// Types something on a guest's console, and returns all that the guest has said up to its end. The
/// key follows the guest's first line, which shows that the console is connected.
fn console(session: &mut Session, vm: &str, typed: &str) -> Result<String> {
    session.send(&format!("gearctl console --all {vm}\n"))?;
    if !typed.is_empty() {
        session.expect("begins", END)?;
        session.send(typed)?;
    }
    // The honest driver compares all of its disk before: 2,048 requests.
    let said = session.expect("DONE\n", BOOT)?;
    session.send(LEAVE)?;
    thread::sleep(Duration::from_millis(500));
    shell(session, "echo left")?;
    Ok(said)
}

/// Waits until a console shows a text of the past, and leaves the console. The emulated UART may
/// take long for what a ring holds, so the text and no time ends the wait.
fn shows(session: &mut Session, command: &str, text: &str) -> Result<()> {
    session.send(&format!("{command}\n"))?;
    let seen = session.expect(text, END);
    session.send(LEAVE)?;
    thread::sleep(Duration::from_millis(500));
    shell_output(session)?;
    seen.map(drop)
}

fn shell_output(session: &mut Session) -> Result<String> {
    let mark = session.transcript().len();
    session.send(&format!("echo \"end-$(({mark}+1))\"\n"))?;
    session.expect(&format!("end-{}", mark + 1), END)
}

/// Tallies a guest's verdicts and shows its figures.
fn judge(said: &str, prefix: &str, least: usize, tally: &mut Tally) {
    for line in said.lines().filter(|line| line.starts_with(prefix)) {
        println!("{line}");
    }
    let passed = count_verdicts(said, tally);
    if passed < least {
        tally.fail(format!("{prefix}{passed} checks of {least} passed"));
    }
}

/// Checks that the device model is the process that it was, and has found no fault in itself.
fn unharmed(session: &mut Session, gdm: &str) -> Result<()> {
    let now = shell(session, "pidof gdm")?;
    ensure!(now == gdm, "its process is {now:?}, and was {gdm:?}");
    let version = json(session, "gearctl version --json")?;
    let starts = number(&version["gdm_starts"])?;
    ensure!(starts == 1, "it was started {starts} times");
    let log = shell(session, "cat /run/gdm.log")?;
    for bad in ["bug in gdm", "process ended", "gdm ended", "panicked"] {
        ensure!(!log.contains(bad), "it says:\n{log}");
    }
    // virtiofsd asserts that a request has a header: an attack that ends it has reached it.
    let lost = |socket: &str| {
        let lines = log.lines().filter(|line| line.contains(socket));
        lines.filter(|line| line.contains("next backend")).count()
    };
    let [image, shared, screen] = [
        "gearv-image/socket",
        "gearv-shared/socket",
        "gearv-screen/socket",
    ]
    .map(lost);
    println!(
        "qemu-storage-daemon was lost {image} times or more, virtiofsd {shared}, vhost-user-gpu \
         {screen}"
    );
    ensure!(shared > 0, "virtiofsd has outlived the attacks:\n{log}");
    // A program that ends by its own filter is none of the device model's.
    let complaints = "dmesg | grep -c 'Oops\\|BUG\\|type=1326.*gdm' || :";
    let kernel = shell(session, complaints)?;
    ensure!(kernel.trim() == "0", "the kernel complains {kernel} times");
    Ok(())
}

/// Returns a disk with a partition for each guest.
fn new_disk() -> Vec<u8> {
    let mut disk = vec![NOBODYS; (SECTORS * SECTOR) as usize];
    for sector in 0..PARTITION {
        sector_of(&mut disk, HONEST + sector).fill(sector_byte(sector));
        sector_of(&mut disk, HOSTILE + sector).fill(sector_byte(sector));
        sector_of(&mut disk, PROGRAMS + sector).fill(sector_byte(sector));
    }
    let table = sector_of(&mut disk, 0);
    table.fill(0);
    for (entry, start) in [HONEST, HOSTILE, PROGRAMS].into_iter().enumerate() {
        let entry = &mut table[446 + 16 * entry..][..16];
        // Linux, by sectors.
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&(start as u32).to_le_bytes());
        entry[12..].copy_from_slice(&(PARTITION as u32).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn sector_of(disk: &mut [u8], sector: u64) -> &mut [u8] {
    let start = (sector * SECTOR) as usize;
    &mut disk[start..start + SECTOR as usize]
}

/// Checks that each guest has written only its own partition, and the honest one only whole blocks.
fn check_disk(disk: &[u8]) -> Result<()> {
    let fresh = new_disk();
    let nobodys = [
        (0, HONEST),
        (HONEST + PARTITION, HOSTILE),
        (HOSTILE + WRITTEN_SECTORS, PROGRAMS),
        (PROGRAMS + WRITTEN_SECTORS, SECTORS),
    ];
    ensure!(disk.len() == fresh.len(), "it has another size");
    for (from, to) in nobodys {
        let (now, then) = (&disk[bytes(from, to)], &fresh[bytes(from, to)]);
        let at = now.iter().zip(then).position(|(now, then)| now != then);
        ensure!(at.is_none(), "byte {at:?} behind sector {from} has changed");
    }
    let range = bytes(HONEST, HONEST + PARTITION);
    let written = whole_blocks(&disk[range.clone()], &fresh[range])?;
    ensure!(written > 0, "the honest guest's disk is as it was");
    Ok(())
}

/// Returns the bytes from one sector to another.
fn bytes(from: u64, to: u64) -> Range<usize> {
    (from * SECTOR) as usize..(to * SECTOR) as usize
}

/// Checks that each block of the honest guest is whole or as before, and counts the former.
fn whole_blocks(now: &[u8], before: &[u8]) -> Result<usize> {
    let blocks = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let blocks = bytes.chunks(pattern::BLOCK as usize);
        blocks.map(<[u8]>::to_vec).collect()
    };
    let mut written = 0;
    for (block, (now, then)) in blocks(now).iter().zip(blocks(before)).enumerate() {
        if *now == then {
            continue;
        }
        let words = now.as_chunks::<8>().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word));
        let whole = pattern::is_whole(block as u64, words);
        ensure!(whole, "the honest guest's block {block} is damaged");
        written += 1;
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
