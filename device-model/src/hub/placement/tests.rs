//! Tests of the placement of disks' threads: where the interrupt of a disk arrives, and for how long
//! a thread stays there.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use super::*;
use crate::state::{DeviceState, WORDS};
use crate::testing::{Directory, node, region};

const INTERRUPTS: &str = "           CPU0       CPU1
 11:      50561      27011     GICv3  27 Level     arch_timer
 14:          5          0     GICv3  78 Edge      virtio1
 15:       1811          0     GICv3  79 Edge      virtio0, other
 16:         12          0     GICv3 120 Level     ahci[0000:00:1f.2]
 44:         10          0     ITS-MSI 16384 Edge  nvme0q0
 45:         10          0     ITS-MSI 16385 Edge  nvme0
 46:         10          0     ITS-MSI 16386 Edge  nvme0
IPI0:      2011       3022       Rescheduling interrupts
ERR:          0
";

#[test]
fn a_disk_has_the_interrupt_of_a_device_that_its_path_leads_through() {
    let cases = [
        (
            "platform/a003e00.virtio_mmio/virtio0/block/vda/vda1",
            Some(15),
        ),
        ("platform/a003c00.virtio_mmio/virtio1/block/vdb", Some(14)),
        ("pci0000:00/0000:00:1f.2/ata1/host0/block/sda", Some(16)),
        // One for each queue.
        ("pci0000:00/0000:00:02.0/nvme/nvme0/nvme0n1", None),
        ("virtual/block/loop0", None),
        ("platform/virtio/block/vda", None),
    ];
    for (path, expected) in cases {
        let place = Path::new("/sys/devices").join(path);
        assert_eq!(interrupt_of(INTERRUPTS, &place), expected, "{path}");
    }
}

fn shares(ran: u64, waited: u64) -> Account {
    Account { ran, waited }
}

/// Returns how many calm looks bring a thread back to its interrupt.
fn looks_until_near(habit: &mut Habit) -> Option<u32> {
    (1..1000).find(|_| {
        habit.note(shares(CALM, 0));
        habit.is_near
    })
}

#[test]
fn a_thread_is_released_while_it_is_busy_or_waits_for_its_turn() {
    for busy in [shares(BUSY + 1, 0), shares(BUSY, 1), shares(1, CROWDED + 1)] {
        let mut habit = Habit::default();
        for _ in 0..100 {
            habit.note(shares(BUSY, 0));
            assert!(habit.is_near);
        }
        habit.note(busy);
        assert!(!habit.is_near, "{busy:?}");
        for _ in 0..100 {
            habit.note(shares(CALM + 1, 0));
            assert!(!habit.is_near, "{busy:?}");
        }
        assert_eq!(looks_until_near(&mut habit), Some(2 * FIRST_PATIENCE));
    }
}

/// A thread that is crowded out where it is placed comes back ever more seldom.
#[test]
fn a_thread_that_is_released_again_and_again_stays_away_for_longer() {
    let mut habit = Habit::default();
    let mut near = 0;
    for _ in 0..10_000 {
        near += u32::from(habit.is_near);
        let waited = if habit.is_near { CROWDED + 1 } else { 0 };
        habit.note(shares(100, waited));
    }
    assert!(near < 50, "{near}");
    for _ in 0..2 * LONGEST_PATIENCE {
        habit.note(shares(100, 0));
    }
    assert!(habit.is_near && habit.patience == FIRST_PATIENCE);
}

/// A thread that tells which CPUs it may run on each time it is asked.
fn subject() -> (u64, Sender<()>, Receiver<CpuSet>) {
    let (ask, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let [_, thread] = sys::own_ids();
        tell.send(u64::from(thread)).unwrap();
        while asked.recv() == Ok(()) {
            answer.send(CpuSet::of_this_thread()).unwrap();
        }
    });
    (told.recv().unwrap(), ask, answers)
}

/// A kernel whose disk at the returned path interrupts the CPU of this number.
fn kernel(directory: &Directory, cpu: usize) -> (Kernel, String) {
    let [proc, sys] = ["proc", "sys"].map(|name| directory.path().join(name));
    let image = directory.file("image", b"");
    let [major, minor] = sys::device_numbers(fs::metadata(&image).unwrap().st_dev());
    let place = sys.join("devices/a003e00.virtio_mmio/virtio0/block/vda");
    for folder in [&place, &sys.join("dev/block"), &proc.join("irq/15")] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(&place, sys.join(format!("dev/block/{major}:{minor}"))).unwrap();
    fs::write(proc.join("interrupts"), INTERRUPTS).unwrap();
    let list = proc.join("irq/15/effective_affinity_list");
    fs::write(list, format!("{cpu}\n")).unwrap();
    (Kernel { proc, sys }, image)
}

#[test]
fn a_thread_goes_to_its_disks_interrupt_and_leaves_it_when_it_is_busy() {
    let all = CpuSet::of_this_thread();
    let Some(last) = (0..1024).rev().find(|cpu| all.has(*cpu)) else {
        panic!("no CPU");
    };
    let directory = Directory::new("placement");
    let (kernel, backend) = kernel(&directory, last);
    let (thread, ask, answers) = subject();
    // The kernel has each thread's account outside of its process as well.
    let tasks = [format!("7/task/{thread}"), thread.to_string()].map(|at| kernel.proc.join(at));
    let has_run = |ns: u64| {
        for task in &tasks {
            fs::create_dir_all(task).unwrap();
            fs::write(task.join("schedstat"), format!("{ns} 0 9\n")).unwrap();
        }
    };
    let mut node = node();
    (node.kind, node.backend) = (DeviceKind::Block, backend);
    let page: &'static [_; WORDS] = &region().devices[0];
    let state = DeviceState::new(page);
    state.set(Word::Thread, thread);
    let choices = Arc::new(Choices::read(directory.text(), &[]));
    let mut placement = Placement::new(&choices, &[(node, state)]);
    placement.kernel = kernel;
    let mut placed = |process, ns| {
        has_run(ns);
        placement.look(process);
        ask.send(()).unwrap();
        let now = answers.recv().unwrap();
        assert!(now.has(last));
        now.count()
    };
    let count = all.count();
    // The thread of another process.
    assert_eq!(placed(8, 0), count);
    assert_eq!(placed(7, 0), 1);
    // An hour within the time since the last look.
    assert_eq!(placed(7, 3_600_000_000_000), count);
    for _ in 1..2 * FIRST_PATIENCE {
        assert_eq!(placed(7, 3_600_000_000_000), count);
    }
    assert_eq!(placed(7, 3_600_000_000_000), 1);
}
