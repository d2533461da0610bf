//! Placement of disks' threads among the vCPUs of the device VM.
//!
//! The thread of a disk runs on the vCPU that takes the interrupt of the physical disk, as long as
//! it has little to do. A thread elsewhere is woken by an SGI of that vCPU, and both the SGI and the
//! kick of the other vCPU are exits. A thread that is busy, or that waits for its turn on that
//! vCPU, may run on any vCPU again: several disks have one interrupt's vCPU as a rule, and the
//! interrupt itself needs time there.
//!
//! GDM places the threads of the guests' processes, which see no file of `/proc`. A process names
//! its threads in its devices' pages, and the kernel says whether a thread is the process's own.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::board::{DeviceKind, DeviceNode};
use crate::choices::Choices;
use crate::state::{DeviceState, Word};
use crate::sys::{self, CpuSet};

#[cfg(test)]
mod tests;

/// Looks between two searches for the interrupt of a disk: somebody may route it elsewhere.
const SEARCH: u32 = 20;
/// Share of its time, in 1/1000, for which a thread runs or waits for its turn and is busy.
const BUSY: u64 = 750;
/// Share below which a thread is not busy.
const CALM: u64 = 500;
/// Share for which a thread waits for its turn, and the vCPU has too much to do.
const CROWDED: u64 = 125;
/// Looks at a thread that is not busy before it is placed again, at first and at most. The number
/// doubles with each release.
const FIRST_PATIENCE: u32 = 8;
const LONGEST_PATIENCE: u32 = 256;

/// The time that a thread has had of a CPU, in nanoseconds (`/proc/PID/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// For which it ran.
    ran: u64,
    /// For which it waited for its turn.
    waited: u64,
}

impl Account {
    /// Reads the first two numbers of a line.
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(ran)), Some(Ok(waited))) => Some(Self { ran, waited }),
            _ => None,
        }
    }

    /// Returns what was added since, as shares of the time.
    fn since(self, before: Self, time: Duration) -> Self {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let share = |now: u64, before: u64| now.saturating_sub(before).saturating_mul(1000) / time;
        Self {
            ran: share(self.ran, before.ran),
            waited: share(self.waited, before.waited),
        }
    }
}

/// Whether a thread is to be near its disk's interrupt.
#[derive(Clone, Copy, Debug)]
struct Habit {
    is_near: bool,
    /// Looks in a row at which the thread was not busy.
    calm: u32,
    /// Looks that it takes to be placed again.
    patience: u32,
}

impl Default for Habit {
    fn default() -> Self {
        Self {
            is_near: true,
            calm: 0,
            patience: FIRST_PATIENCE,
        }
    }
}

impl Habit {
    /// Takes in what a thread has had since the last look.
    fn note(&mut self, shares: Account) {
        let Account { ran, waited } = shares;
        let wanted = ran.saturating_add(waited);
        if wanted > BUSY || waited > CROWDED {
            // planted: a busy thread stays beside its disk's interrupt
            if std::mem::replace(&mut self.is_near, false) {
                self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
            }
            self.calm = 0;
        } else if wanted > CALM {
            self.calm = 0;
        } else {
            self.calm = self.calm.saturating_add(1);
            if !self.is_near && self.calm >= self.patience {
                (self.is_near, self.calm) = (true, 0);
            } else if self.is_near && self.calm >= LONGEST_PATIENCE {
                self.patience = FIRST_PATIENCE;
            }
        }
    }
}

/// A thread of a process, when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Number of the thread.
    thread: u64,
    account: Account,
    at: Instant,
    /// The vCPU that the thread was placed on.
    placed: Option<usize>,
}

/// A disk of the guest.
struct Disk {
    node: DeviceNode,
    /// The device's page, in which the process names the thread.
    state: DeviceState,
    /// The vCPU that takes the interrupt of what the disk lies on, if one alone does.
    near: Option<usize>,
    habit: Habit,
    seen: Option<Seen>,
}

/// Where the kernel tells of processes and devices.
struct Kernel {
    proc: PathBuf,
    sys: PathBuf,
}

/// The disks of a guest.
pub(super) struct Placement {
    disks: Vec<Disk>,
    choices: Arc<Choices>,
    kernel: Kernel,
    /// The vCPUs that GDM may run on.
    all: CpuSet,
    looks: u32,
}

impl Placement {
    /// Makes the placement of those of the devices that are disks.
    pub(super) fn new(choices: &Arc<Choices>, devices: &[(DeviceNode, DeviceState)]) -> Self {
        let disks = devices
            .iter()
            .filter(|(node, _)| node.kind == DeviceKind::Block);
        let disks = disks.map(|(node, state)| Disk {
            node: node.clone(),
            state: *state,
            near: None,
            habit: Habit::default(),
            seen: None,
        });
        Self {
            disks: disks.collect(),
            choices: Arc::clone(choices),
            kernel: Kernel {
                proc: "/proc".into(),
                sys: "/sys".into(),
            },
            all: CpuSet::of_this_thread(),
            looks: 0,
        }
    }

    /// Looks at the threads of the process, and places them. Nothing depends on a placement: what
    /// cannot be read or done is left as it is.
    pub(super) fn look(&mut self, process: u32) {
        let searches = self.looks.is_multiple_of(SEARCH);
        self.looks = self.looks.wrapping_add(1);
        if self.all.count() < 2 {
            return;
        }
        for disk in &mut self.disks {
            if searches {
                let path = self.choices.apply(&disk.node).backend;
                let near = self.kernel.vcpu_of(Path::new(&path));
                disk.near = near.filter(|vcpu| self.all.has(*vcpu));
            }
            disk.look(&self.kernel, process, &self.all);
        }
    }
}

impl Disk {
    /// Looks at the disk's thread, and places it.
    fn look(&mut self, kernel: &Kernel, process: u32, all: &CpuSet) {
        let thread = self.state.get(Word::Thread);
        let (Some(account), at) = (kernel.account_of(process, thread), Instant::now()) else {
            self.seen = None;
            return;
        };
        let before = self.seen.filter(|seen| seen.thread == thread);
        let mut placed = None;
        if let Some(before) = before {
            let time = at.duration_since(before.at);
            self.habit.note(account.since(before.account, time));
            placed = before.placed;
        }
        let wanted = self.near.filter(|_| self.habit.is_near);
        if wanted != placed {
            let vcpus = wanted.map_or(*all, CpuSet::of);
            // The thread may have ended since.
            let _ = vcpus.give(thread);
            placed = wanted;
        }
        self.seen = Some(Seen {
            thread,
            account,
            at,
            placed,
        });
    }
}

impl Kernel {
    /// Returns what a thread of a process has had; `None`: the process has no such thread.
    fn account_of(&self, process: u32, thread: u64) -> Option<Account> {
        // planted: a process of a guest has threads of others placed
        let path = self.proc.join(format!("{process}/task/{thread}/schedstat"));
        Account::parse(&fs::read_to_string(path).ok()?)
    }

    /// Returns the vCPU that takes the interrupt of the block device at a path, or of the one that
    /// holds the file there; `None` if there are several, as of a disk with a queue and an interrupt
    /// for each vCPU, whose completions come to whoever asked.
    fn vcpu_of(&self, path: &Path) -> Option<usize> {
        let file = fs::metadata(path).ok()?;
        let device = match file.file_type().is_block_device() {
            true => file.st_rdev(),
            false => file.st_dev(),
        };
        let [major, minor] = sys::device_numbers(device);
        let place = self.sys.join(format!("dev/block/{major}:{minor}"));
        let place = fs::canonicalize(place).ok()?;
        let interrupts = fs::read_to_string(self.proc.join("interrupts")).ok()?;
        let interrupt = interrupt_of(&interrupts, &place)?;
        let irq = self.proc.join(format!("irq/{interrupt}"));
        let names = ["effective_affinity_list", "smp_affinity_list"];
        let mut lists = names
            .iter()
            .filter_map(|name| fs::read_to_string(irq.join(name)).ok());
        lists.next()?.trim().parse().ok()
    }
}

/// Finds the interrupt of a device in `/proc/interrupts`: its action has the name of one of the
/// devices that the path leads through (`virtio0`, `mmc1`). `None`: none has, or several have.
fn interrupt_of(interrupts: &str, place: &Path) -> Option<u32> {
    let names: Vec<&str> = place.iter().filter_map(|name| name.to_str()).collect();
    let mut found = interrupts.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut words = rest.split([' ', '\t', ',', '[', ']']);
        words.any(|word| names.contains(&word)).then_some(number)
    });
    let first = found.next();
    first.filter(|_| found.next().is_none())
}
