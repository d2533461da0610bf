//! The checks of a manifest with a device VM.
//!
//! The terminal is the device VM's console; the guest's is reached from there with `gearctl`, as a
//! person does it. What went over the guest's disk is looked at from outside in the end.
//!
//! What a check needs is set up by those before it, so that one boot serves all: a failure ends the
//! run. Every command is typed at a shell, and its status is read back: output alone would miss a
//! program that fails in silence.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use gearv_manifest::VmKind;
use serde_json::Value;
use workbench::expect::Session;
use workbench::manifest::{Compiled, VmSummary};
use workbench::{device_userland, ext4, network, payloads};

use super::fio::{FILE, FINISH, fio, fio_result, in_background, reads};
use super::process::{placed, rightless};
use super::session::{
    BOOT, COMMAND, LONG, Smoke, check_cpu_count, power_off, ready, shell, shell_within,
};

/// File whose blocks are flushed, and its number of blocks: more than are written by then.
pub(super) const FLUSHED: &str = "/root/flushed";
/// Most wakes of the device VM by the set-up of a disk. Gear2 answers the writes of a set-up that
/// need no backend itself (docs/device-model.md), so more wakes than these mean that one of them is
/// forwarded again.
const WAKES: u64 = 3;
/// Longest time until a killed device model is back. A guest's requests wait meanwhile, and fail
/// only after several times as long.
const BACK_SECONDS: f64 = 5.0;
/// Key that leaves the guest's console. Ctrl-], which `gearctl console` takes for itself as telnet
/// does.
pub const LEAVE: &str = "\x1d";
/// Addresses of the device VM and of the guest on the bridge, and a port there.
const ADDRESS: &str = network::DEVICE_VM;
/// The guest's userland takes it unless its command line names another.
const GUEST_ADDRESS: &str = network::GUEST;
/// Not in use by any program of the two userlands. Both sides tell each other over it when they are
/// done.
const PORT: u16 = 7000;
/// Prompt of the device VM's shell. A prompt is the sign that the shell reads its terminal again.
const PROMPT: &str = "device:";
/// Longest time for an answer of a shell, and number of attempts. Several short attempts find a
/// shell that lost its input sooner than a long one.
const ANSWER: Duration = Duration::from_secs(20);
/// Two minutes in all, which a busy machine may need.
const ANSWERS: usize = 6;

impl Smoke<'_> {
    /// Runs all checks of a manifest with a device VM and, after the machine's end, of the disk.
    /// The order is that of a life: what uses the guest's disk as the boot left it comes before
    /// what makes the guest or its server start again, and the hashes of files come last, because
    /// they cover all that was written.
    pub(super) fn all_of_device_vm(&mut self, manifest: &Compiled, disk: &Path) -> Result<()> {
        let guest = manifest.vms.iter().find(|vm| vm.may_power_off);
        let guest = guest.context("no guest may power the machine off")?;
        self.device_vm(manifest)?;
        self.guest(guest)?;
        self.exits(guest)?;
        self.network()?;
        let address = self.address(None)?;
        self.reboots(guest)?;
        self.address(Some(&address))?;
        self.killed_device_model(guest)?;
        self.absence(guest)?;
        self.end(disk)
    }

    /// Boots the device VM, and uses GDM and `gearctl` there. Kernel and modules are compared with
    /// Debian's packages first: all that follows says something on a stock kernel only.
    fn device_vm(&mut self, manifest: &Compiled) -> Result<()> {
        let hello = format!("Gear1 {}", env!("CARGO_PKG_VERSION"));
        self.check("Gear1 reports its version", |s| {
            s.expect(&hello, BOOT).map(drop)
        })?;
        self.check("the device VM reaches its shell", |s| {
            s.expect(device_userland::READY, BOOT)?;
            widen(s)
        })?;
        self.check_and_say("its kernel is Debian's own", stock_kernel)?;
        self.check("its modules are that kernel's own", own_modules)?;
        self.check("GDM answers", |s| {
            shell(s, "until gearctl version; do sleep 0.2; done")?;
            shell(s, "iperf3 -s -D").map(drop)
        })?;
        self.check("the process of a guest's devices has no rights", rightless)?;
        self.check("the disk's thread is where the disk interrupts", placed)?;
        self.gearctl(manifest)
    }

    /// Asks for all that `gearctl` tells, and changes the lives of VMs.
    fn gearctl(&mut self, manifest: &Compiled) -> Result<()> {
        self.check("gearctl list names all VMs", |s| {
            let list = shell(s, "gearctl list")?;
            let missing = manifest.vms.iter().find(|vm| !list.contains(&vm.name));
            ensure!(missing.is_none(), "{missing:?} is not in\n{list}");
            Ok(())
        })?;
        for command in [
            "gearctl stats",
            "gearctl log",
            "gearctl list --json",
            "gearctl device list",
        ] {
            self.check(command, |s| {
                let printed = shell(s, command)?;
                ensure!(!printed.trim().is_empty(), "it prints nothing");
                Ok(())
            })?;
        }
        self.lives(manifest)
    }

    /// Stops and starts what may be stopped under the guests: the real-time VMs. Guests and the
    /// device VM stay as they are, since the later checks run in them. The end of each change is
    /// awaited, since the next one would meet a VM that is on its way.
    fn lives(&mut self, manifest: &Compiled) -> Result<()> {
        for vm in manifest.vms.iter().filter(|vm| vm.kind == VmKind::RealTime) {
            let name = &vm.name;
            self.check(&format!("gearctl stops and starts {name}"), |s| {
                change(s, "stop", name, "stopped")?;
                change(s, "start", name, "running")?;
                change(s, "restart", name, "running")
            })?;
        }
        self.check("gearctl refuses what does not exist", |s| {
            ensure!(shell(s, "gearctl stop nobody").is_err(), "it does not");
            Ok(())
        })?;
        self.refusals(manifest)
    }

    /// Asks for what Gear2 refuses, and for a console that does not exist: both have a reason. A
    /// command that fails without a reason cannot be told from one that is broken, so each refusal
    /// is compared with its text.
    fn refusals(&mut self, manifest: &Compiled) -> Result<()> {
        for vm in &manifest.vms {
            let (name, reason) = match vm.kind {
                VmKind::RealTime => (&vm.name, "it is real-time, with CPUs of its own"),
                VmKind::Device => (&vm.name, "nobody could resume it"),
                VmKind::Guest => continue,
            };
            self.check(&format!("gearctl says why it does not pause {name}"), |s| {
                says(s, &format!("! gearctl pause {name} 2>&1"), reason)
            })?;
            self.check(&format!("gearctl names the consoles beside {name}"), |s| {
                let command = format!("! gearctl console {name} 2>&1 < /dev/null");
                says(s, &command, "VMs with a serial console: ")
            })?;
        }
        self.check("gearctl log has names", |s| {
            let first = manifest.vms.first().context("there is no VM")?;
            says(s, "gearctl log", &format!("VM {} started", first.name))
        })
    }

    /// Brings the guest to its shell over its virtio disk, and lets the disk work under load. Root
    /// on `/dev/vda` shows that the kernel itself reads by GDM, and not from an initramfs.
    fn guest(&mut self, guest: &VmSummary) -> Result<()> {
        let name = &guest.name;
        self.check(&format!("{name} reaches its shell from its disk"), |s| {
            s.send(&format!("{}\n", guest.console_command()))?;
            s.expect(&ready(name), BOOT)?;
            answers(s, name)?;
            shell(s, "grep '^/dev/vda / ext4' /proc/mounts").map(drop)
        })?;
        self.check_and_say(&format!("{name} runs uname"), stock_kernel)?;
        let what = format!("{name} has {} CPUs", guest.vcpus);
        self.check(&what, |s| check_cpu_count(s, guest.vcpus))?;
        let mib = self.extent.disk_mib;
        let what = format!("fio writes and verifies {mib} MiB, 4 KiB at random, 16 at a time");
        self.check_and_say(&what, |s| {
            shell_within(s, &format!("{} > /run/fio", fio(mib)), LONG)?;
            fio_result(&shell(s, "cat /run/fio")?)
        })
    }

    /// Counts what I/Os cost; nobody uses the guest's console meanwhile, which costs exits too. No
    /// access may be forwarded to GDM while data flows: a doorbell and an interrupt are channels in
    /// Gear1, and neither Gear2 nor the register page takes part.
    fn exits(&mut self, guest: &VmSummary) -> Result<()> {
        let mut counted = (Value::Null, Value::Null);
        let count = self.extent.counted_ios;
        let what = format!("{count} I/Os of {} pass Gear2 by", guest.name);
        self.check(&what, |s| {
            counted = stats_around_reads(s, count)?;
            let (before, after) = &counted;
            let served = ios(after)? - ios(before)?;
            ensure!(served >= count, "the guest's disk served {served} I/Os");
            enter(s, guest)?;
            shell(s, FINISH)?;
            let forwarded = number(&after["mmio_events"])? - number(&before["mmio_events"])?;
            ensure!(forwarded == 0, "{forwarded} accesses were forwarded");
            Ok(())
        })?;
        let what = format!(
            "the set-up of {}'s disk woke GDM at most {WAKES} times",
            guest.name
        );
        self.check(&what, |_| {
            let writes = writes_to_gdm(&counted.0, &guest.name)?;
            ensure!(writes <= WAKES, "GDM had to answer {writes} writes");
            Ok(())
        })?;
        for vm in names_of(&counted.1) {
            let line = exits_each(&counted.0, &counted.1, &vm)?;
            (self.report)(&format!("     exits of {vm} an I/O: {line}"));
        }
        Ok(())
    }

    /// The guest's card has an address that was made for this board: not one that all boards have,
    /// and the `first` one with each boot. `02:47:56` is the beginning of the addresses that GDM
    /// would give without a board's own number; two boards on one network would have the same ones.
    fn address(&mut self, first: Option<&str>) -> Result<String> {
        let mut found = String::new();
        self.check_and_say("the network card has an address of this board's", |s| {
            found = shell(s, "cat /sys/class/net/eth0/address")?
                .trim()
                .to_owned();
            let is_local = found.len() == 17 && found.starts_with("02:");
            ensure!(
                is_local && !found.starts_with("02:47:56:"),
                "it is {found:?}"
            );
            let first = first.unwrap_or(&found);
            ensure!(found == first, "it is {found}, and was {first}");
            Ok(found.clone())
        })?;
        Ok(found)
    }

    /// Moves data between the guest and the device VM, in both directions. Both directions are
    /// measured, because the paths differ: the guest's transmit queue wakes GDM by a channel, and
    /// received frames wait in the tap device. The receiver's figure is taken: a sender counts what
    /// its own buffers hold.
    fn network(&mut self) -> Result<()> {
        let mib = self.extent.network_mib;
        for (what, option) in [("to", ""), ("from", " -R")] {
            let what = format!("iperf3 moves {mib} MiB {what} the device VM");
            self.check_and_say(&what, |s| {
                let client = format!("iperf3 -c {ADDRESS} -n {mib}M -f m{option} > /run/iperf3");
                shell_within(s, &client, LONG)?;
                let summary = shell(s, "grep receiver /run/iperf3")?;
                let words: Vec<&str> = summary.split_whitespace().collect();
                let at = words.iter().position(|word| word.ends_with("bits/sec"));
                let at = at.with_context(|| format!("iperf3 says {summary:?}"))?;
                Ok(format!("{} {}", words[at.saturating_sub(1)], words[at]))
            })?;
        }
        Ok(())
    }

    /// Reboots the guest, which nobody else may notice. A reboot by PSCI SYSTEM_RESET loads the
    /// guest anew. GDM has to let go of the old queues, and must neither end nor be started again
    /// for that. Several times, since what a reboot leaks shows at a later one.
    fn reboots(&mut self, guest: &VmSummary) -> Result<()> {
        let name = &guest.name;
        for count in 1..=self.extent.reboots {
            let what = format!("{name} reboots, {count} of {}", self.extent.reboots);
            self.check(&what, |s| {
                s.send("reboot\n")?;
                s.expect(&ready(name), BOOT)?;
                answers(s, name)
            })?;
        }
        self.check("the device VM did not notice", |s| {
            leave(s)?;
            never_restarted(s, name)?;
            enter(s, guest)
        })
    }

    /// Kills GDM while the guest writes. fio verifies all blocks, so a request that got lost, or
    /// that two processes served, shows as an error of its. The time is that of the device VM's own
    /// clock, which stands while the host is busy.
    fn killed_device_model(&mut self, guest: &VmSummary) -> Result<()> {
        let timed = self.extent.timed;
        let what = match timed {
            true => format!("GDM, killed, is back within {BACK_SECONDS} s"),
            false => "GDM, killed, is back".to_owned(),
        };
        let (mib, rate) = if timed { (8, 300) } else { (2, 100) };
        self.check_and_say(&what, |s| {
            // At this rate the guest cannot be done before GDM is killed.
            in_background(s, &format!("{} --rate_iops=,{rate}", fio(mib)))?;
            leave(s)?;
            let printed = shell_within(s, KILL, LONG)?;
            enter(s, guest)?;
            let seconds = seconds_away(&printed)?;
            ensure!(!timed || seconds <= BACK_SECONDS, "it took {seconds:.1} s");
            Ok(format!("{seconds:.1} s"))
        })?;
        self.check_and_say("fio noticed nothing", |s| {
            fio_result(&shell_within(s, FINISH, LONG)?)
        })
    }

    /// Ends the machine, and looks at the guest's disk from outside. What a guest reads back may
    /// come from its page cache or from GDM's; the image on the host's disk is what lasts. Hashes
    /// of the files, and not of the image: an unmounted file system differs in its times.
    fn end(&mut self, disk: &Path) -> Result<()> {
        let files = match self.extent.away {
            true => &[FILE, FLUSHED][..],
            false => &[FILE],
        };
        let mut inside = String::new();
        self.check("the guest hashes its files", |s| {
            inside = shell(s, &format!("sha256sum {}", files.join(" ")))?;
            Ok(())
        })?;
        self.check("the guest powers the machine off", |s| {
            power_off(s, "poweroff")
        })?;
        self.check("its file system is clean from outside", |_| {
            ext4::check(disk)
        })?;
        self.check("its files have the same hashes from outside", |_| {
            for file in files {
                let outside = ext4::hash_of(disk, file)?;
                ensure!(inside.contains(&outside), "{outside}, but inside {inside}");
            }
            Ok(())
        })
    }
}

/// Kills GDM, waits until the next one answers, and prints the times of both. The wait compares the
/// process's number, because the old one answers until the signal arrives.
pub const KILL: &str = "old=$(pidof gdm); killed=$(cut -d' ' -f1 /proc/uptime); kill -9 $old; \
    until [ -n \"$(pidof gdm)\" ] && [ \"$(pidof gdm)\" != \"$old\" ] && gearctl list > /dev/null 2>&1; \
    do sleep 0.1; done; echo killed $killed $(cut -d' ' -f1 /proc/uptime)";

/// Reads what [`KILL`] prints: how long GDM was away. Uptime of the device VM and not of the host:
/// the clock of a guest does not run while QEMU is not scheduled.
fn seconds_away(printed: &str) -> Result<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("killed "));
    let times = line.unwrap_or_default().split(' ');
    let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    ensure!(times.len() == 2, "the device VM says {printed:?}");
    Ok(times[1] - times[0])
}

/// Makes a guest do I/Os in the background, and leaves its console. Returns GDM's statistics from
/// before and after. The VM with the counters has to know when the guest is at rest, and the guest
/// when the counters are read.
fn stats_around_reads(s: &mut Session, count: u64) -> Result<(Value, Value)> {
    // Each side waits for the other's word: to look at the counters costs exits too.
    let wait = format!("nc -l -p {PORT} < /dev/null > /dev/null");
    let tell = |address| format!("until nc {address} {PORT} < /dev/null; do sleep 0.2; done");
    let (reads, told) = (reads(count), tell(ADDRESS));
    shell(
        s,
        &format!("({wait}; {reads} > /run/fio; echo $? > /run/status; {told}) & :"),
    )?;
    leave(s)?;
    let before = json(s, "gearctl stats --json")?;
    shell_within(s, &format!("{}; {wait}", tell(GUEST_ADDRESS)), LONG)?;
    let after = json(s, "gearctl stats --json")?;
    Ok((before, after))
}

/// Checks, in the device VM, that GDM and the VM itself were started once. A start of either would
/// hide a failure: clients reconnect by themselves.
fn never_restarted(session: &mut Session, guest: &str) -> Result<()> {
    let version = json(session, "gearctl version --json")?;
    let starts = number(&version["gdm_starts"])?;
    ensure!(starts == 1, "GDM was started {starts} times");
    let list = json(session, "gearctl list --json")?;
    let mut vms = list.as_array().into_iter().flatten();
    let device = vms.find(|vm| vm["name"] != *guest);
    let restarts = number(&device.context("there is no other VM")?["restarts"])?;
    ensure!(restarts == 0, "it was restarted {restarts} times");
    Ok(())
}

/// Widens the terminal, so that it shows a typed command in one line. A line that the terminal
/// wraps has a line break in the middle, where no search finds it.
pub fn widen(session: &mut Session) -> Result<()> {
    shell(session, "stty cols 1000").map(drop)
}

/// Runs a command that must print a text. For what must be said to a person, such as a reason.
fn says(session: &mut Session, command: &str, text: &str) -> Result<()> {
    let said = shell(session, command)?;
    ensure!(said.contains(text), "{text:?} is not in\n{said}");
    Ok(())
}

/// Waits until a device VM that starts has its shell and its GDM serves. GDM answers `gearctl` only
/// after it has opened its devices, so an answer means that the devices are there.
pub fn is_up(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    widen(session)?;
    shell(
        session,
        "until gearctl version > /dev/null 2>&1; do sleep 0.2; done",
    )
    .map(drop)
}

/// Changes a VM's life, and waits for the state that it is in then. `gearctl` returns when the
/// change has begun; a stop may last as long as the guest's next exit.
pub fn change(session: &mut Session, how: &str, vm: &str, state: &str) -> Result<()> {
    let is = format!("gearctl list | grep ' {vm} ' | grep -q {state}");
    shell(
        session,
        &format!("gearctl {how} {vm} && until {is}; do sleep 0.2; done"),
    )
    .map(drop)
}

/// Checks that the kernel is the one of the package, and that nothing foreign was loaded into it. A
/// module that is not Debian's would set a bit in `tainted` (Linux,
/// Documentation/admin-guide/tainted-kernels.rst).
fn stock_kernel(session: &mut Session) -> Result<String> {
    let name = shell(session, "uname -a")?;
    let release = payloads::kernel_release()?;
    ensure!(
        name.contains(&release) && name.contains("Debian") && name.contains("aarch64"),
        "uname says {name:?}, but the package is of {release}"
    );
    let tainted = shell(session, "cat /proc/sys/kernel/tainted")?;
    ensure!(tainted.trim() == "0", "it is tainted: {tainted}");
    Ok(release)
}

/// Checks that exactly the modules of the initramfs are loaded. One that is missing was refused by
/// the kernel; one more would have been built for GearV, which promises that none is.
fn own_modules(session: &mut Session) -> Result<()> {
    let mut loaded: Vec<String> = shell(session, "cut -d' ' -f1 /proc/modules")?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut own = device_userland::modules()?;
    loaded.sort();
    own.sort();
    ensure!(loaded == own, "{loaded:?} instead of {own:?}");
    Ok(())
}

/// Waits until the guest answers typed commands. The answer is compared with the VM's name, since
/// another VM's shell may have the console.
pub fn answers(session: &mut Session, name: &str) -> Result<()> {
    // A shell accepts input a moment after its first message: earlier input may be lost.
    let mut host = Err(anyhow!("it was not asked"));
    for _ in 0..ANSWERS {
        thread::sleep(Duration::from_secs(1));
        host = shell_within(session, "hostname", ANSWER);
        if host.is_ok() {
            break;
        }
    }
    let host = host?;
    ensure!(host.contains(name), "{host:?} answers");
    widen(session)
}

/// Goes from the device VM's shell to the guest's.
pub fn enter(session: &mut Session, guest: &VmSummary) -> Result<()> {
    session.send(&format!("{}\n", guest.console_command()))?;
    answers(session, &guest.name)
}

/// Goes from the guest's shell to the device VM's.
pub fn leave(session: &mut Session) -> Result<()> {
    session.send(LEAVE)?;
    // Input before the shell has the terminal again is lost.
    session.expect(PROMPT, COMMAND)?;
    let host = shell(session, "hostname")?;
    ensure!(host.contains("device"), "{host:?} answers");
    Ok(())
}

/// Returns the most register writes of a disk of the VM's that came to GDM: each may wake the
/// device VM. GDM counts for each device the register accesses that it performed.
fn writes_to_gdm(stats: &Value, vm: &str) -> Result<u64> {
    let devices = stats["devices"].as_array().context("no devices")?;
    let disks = devices.iter();
    let disks = disks.filter(|one| one["vm"] == vm && one["type"] == "block");
    let writes: Vec<u64> = disks
        .map(|one| number(&one["registers"]))
        .collect::<Result<_>>()?;
    writes.into_iter().max().context("no disk")
}

/// Returns how many requests the guests' disks have served. Only disks count: a network card serves
/// requests without the guest's asking.
fn ios(stats: &Value) -> Result<u64> {
    let devices = stats["devices"].as_array().into_iter().flatten();
    let disks = devices.filter(|device| device["type"] == "block");
    disks.map(|disk| number(&disk["requests"])).sum()
}

/// Runs a `gearctl` that prints JSON, and returns the answer in it. The line with the value is
/// searched: a kernel message may stand on the console before it.
pub fn json(session: &mut Session, command: &str) -> Result<Value> {
    let printed = shell_within(session, command, COMMAND)?;
    let line = printed.lines().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("{command} prints {printed:?}"))?;
    let mut reply: Value =
        serde_json::from_str(line).with_context(|| format!("{command} prints {line}"))?;
    ensure!(reply["version"] == 1, "{command} prints {line}");
    Ok(reply["answer"].take())
}

/// Returns a number out of JSON.
pub fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .with_context(|| format!("{value} is no number"))
}

/// Returns the names of the VMs that have exits. Rows of vCPUs stand together by VM, so neighbours
/// are all that has to be compared.
fn names_of(stats: &Value) -> Vec<String> {
    let vcpus = stats["vcpus"].as_array().into_iter().flatten();
    let mut names: Vec<String> = vcpus
        .filter_map(|vcpu| Some(vcpu["vm"].as_str()?.to_owned()))
        .collect();
    names.dedup();
    names
}

/// Says how often a VM left for what reason, an I/O. Reasons below a hundredth of an I/O are left
/// out; those are timers and the shell.
fn exits_each(before: &Value, after: &Value, vm: &str) -> Result<String> {
    let ios = (ios(after)? - ios(before)?) as f64;
    let (before, after) = (exits_by_reason(before, vm), exits_by_reason(after, vm));
    let each = |count: u64| count as f64 / ios;
    let mut reasons: Vec<(u64, &str)> = after
        .iter()
        .map(|(reason, count)| (count - before.get(reason).unwrap_or(&0), reason.as_str()))
        .filter(|(count, _)| each(*count) >= 0.01)
        .collect();
    reasons.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = reasons.iter().map(|(count, _)| count).sum();
    let parts: Vec<String> = reasons
        .iter()
        .map(|(count, reason)| format!("{reason} {:.2}", each(*count)))
        .collect();
    Ok(format!("{:.2} ({})", each(total), parts.join(", ")))
}

/// Returns the exits of a VM by their reason, the sum of its vCPUs: which vCPU submits a request is
/// the guest's scheduler's affair.
fn exits_by_reason(stats: &Value, vm: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for row in stats["exits"].as_array().into_iter().flatten() {
        if let (true, Some(reason), Some(exits)) = (
            row["vm"] == vm,
            row["reason"].as_str(),
            row["exits"].as_u64(),
        ) {
            *counts.entry(reason.to_owned()).or_default() += exits;
        }
    }
    counts
}

#[cfg(test)]
mod tests;
