//! Latency of an interrupt to a program: `cargo xtask bench --wake` runs this in the device VM, and
//! on the same kernel without GearV.
//!
//! Owns: the layout of the memory shared with the guest `wake` (`tests/guests/src/bin/wake.rs`),
//! and the native sources of interrupts: a register of a PL061, and one of QEMU's PCI device `edu`.
//!
//! A sample ends when `poll` has returned. Its unit is the counter's tick.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gear1_abi::record::RecordId;
use gear2_protocol::{doorbell_device, doorbell_page, line_of_channel};

use crate::board::{Board, DOORBELLS, DeviceNode, PAGE};
use crate::client::{Client, LogReader, Logged};
use crate::error::Error;
use crate::gpio::Line;
use crate::mapping::{self, Doorbell, Registers, counter, finish_stores};
use crate::sys::{self, Wait};

/// Offset of the shared words in the guest's memory, and the offsets of the words.
const SHARED: usize = 8 << 20;
/// The guest writes [`MAGIC`] there when it can take part.
const READY: usize = 0;
/// The kind of measurement, and above it a number, so that two commands in a row differ.
const COMMAND: usize = 4;
/// The command that the guest has done.
const DONE: usize = 8;
/// Low word of the guest's counter at its notification.
const KICKED: usize = 12;
/// Number of the sample that was taken here: the guest begins the next one.
const WOKEN: usize = 16;
/// The guest's own samples, a word each.
const SAMPLES: usize = 64;
/// Value of `READY` in a guest that is ready.
const MAGIC: u32 = u32::from_le_bytes(*b"wake");

/// Samples of a measurement.
const ITERATIONS: usize = 200;
/// Longest time until an interrupt, also on an emulated machine with other work.
const PATIENCE_MS: i32 = 20_000;
/// Before each sample, so that the waiting thread sleeps.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two looks for the guest, which shares CPUs with this program.
const LOOK: Duration = Duration::from_millis(100);

/// QEMU virt's own PL061, and registers of one (Arm DDI 0190).
const PL061: u64 = 0x0903_0000;
const LINE: u32 = 0;
/// Interrupt sense: 0, edges. Interrupt event: 1, a rising edge.
const GPIO_IS: usize = 0x404;
const GPIO_IEV: usize = 0x40c;

/// Registers of `edu`: raising and acknowledging its interrupt.
/// QEMU describes the device in docs/specs/edu.rst.
const EDU_RAISE: usize = 0x60;
const EDU_ACKNOWLEDGE: usize = 0x64;
/// PCI configuration: the command register (PCI 3.0, 6.2.2).
const PCI_COMMAND: u64 = 4;

/// Path that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A guest's notification to this program, by a line of an emulated PL061.
    Line,
    /// A guest's request to GDM, until its interrupt.
    Request,
    /// Without GearV: a line of the board's PL061.
    NativeLine,
    /// Without GearV: INTx of a PCI device, by `uio_pci_generic`.
    NativeUio,
}

impl What {
    /// Returns the path with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "line" => Self::Line,
            "request" => Self::Request,
            "native-line" => Self::NativeLine,
            "native-uio" => Self::NativeUio,
            _ => return None,
        })
    }
}

/// Returns the records of Gear1's log.
fn records(run_directory: &str) -> Result<Vec<Logged>, Error> {
    let mut client = Client::connect(run_directory)?;
    LogReader::default().read(&mut client)
}

/// Returns the ticks by which the second VM started later than the first, this one: its virtual
/// count is smaller by that number. Gear1 writes the record of a start as soon as the count has
/// begun. Needs GDM, which shows Gear1's log.
pub fn later_start(run_directory: &str) -> Result<u64, String> {
    let records = records(run_directory).map_err(|error| error.sentence)?;
    let mut starts = [None; 2];
    for Logged { record, .. } in records {
        let [vm, ..] = record.values;
        let place = usize::try_from(vm).ok().and_then(|vm| starts.get_mut(vm));
        if record.id_and_cpu & 0xffff_ffff == RecordId::VmStart as u64
            && let Some(start) = place
        {
            *start = Some(record.time);
        }
    }
    match starts {
        [Some(own), Some(other)] => Ok(other.wrapping_sub(own)),
        _ => Err("the log does not tell when both VMs started".to_owned()),
    }
}

/// Returns the samples, in ticks; `later` is what [`later_start`] says, for what ends in another VM
/// than it begins in.
pub fn measure(what: What, later: u64) -> Result<Vec<u64>, String> {
    let done = match what {
        What::Line => line(later),
        What::Request => request(),
        What::NativeLine => native_line(),
        What::NativeUio => native_uio(),
    };
    done.map_err(|error| format!("{what:?}: {error}"))
}

/// Returns the name, minimum, median, mean, 99th percentile and maximum, as `bench` prints them.
pub fn report(name: &str, samples: &mut [u64]) -> String {
    samples.sort_unstable();
    let at = |index: usize| samples.get(index).copied().unwrap_or(0);
    let count = samples.len().max(1);
    let mean = samples.iter().sum::<u64>() / count as u64;
    let [min, median, p99, max] = [0, count / 2, count * 99 / 100, count - 1].map(at);
    format!("BENCH {name} {min} {median} {mean} {p99} {max}")
}

/// The memory of the guest that takes part, its device, and the window.
struct Guest {
    /// The words that both sides use, in the guest's RAM.
    shared: Registers,
    /// The guest's device, whose line and doorbell are used.
    device: DeviceNode,
    /// Start of the window in the device VM's physical addresses.
    window: u64,
}

impl Guest {
    /// Finds the first guest that is served, and waits until it takes part.
    fn find() -> io::Result<Self> {
        let board = Board::read(Path::new("/proc/device-tree")).map_err(io::Error::other)?;
        let device = board.devices.first().cloned();
        let device = device.ok_or_else(|| io::Error::other("no guest is served"))?;
        let [_, address, size] = device.memory;
        let (memory, _) = mapping::map_dax(address, size as usize)?;
        let shared = memory.registers(SHARED, SAMPLES + 4 * ITERATIONS);
        let shared = shared.ok_or_else(|| io::Error::other("the guest's memory is too small"))?;
        while shared.load(READY) != MAGIC {
            thread::sleep(LOOK);
        }
        Ok(Self {
            shared,
            device,
            window: board.window,
        })
    }

    /// Returns the doorbell of the device's interrupt, which nobody in the guest answers: an
    /// interrupt ends the guest's sleep.
    fn interrupt(&self) -> io::Result<Option<Doorbell>> {
        let [registers, _] = self.device.registers;
        let page = self.window + DOORBELLS + PAGE * u64::from(doorbell_page(registers));
        // SAFETY: the page of the window that holds the device's doorbell.
        let doorbells = unsafe { mapping::map_physical(page, PAGE as usize) }?;
        let page = doorbells.registers(0, PAGE as usize);
        let offset = doorbell_device(self.device.channel);
        Ok(page.map(|page| Doorbell { page, offset }))
    }

    /// Tells the guest what to do.
    fn command(&self, kind: u32) -> u32 {
        let command = (self.shared.load(COMMAND) & !0xff) + 0x100 + kind;
        self.shared.store(COMMAND, command);
        command
    }
}

/// Waits for an interrupt as a program does: by `poll`.
fn wait_for(file: &File) -> io::Result<()> {
    let wait = Wait {
        fd: file.as_raw_fd(),
        write: false,
        read: true,
    };
    match sys::wait(&[wait], PATIENCE_MS).first() {
        Some(true) => Ok(()),
        Some(false) | None => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no interrupt comes",
        )),
    }
}

/// Takes samples of a guest's notification, from the guest's counter before it to this program's
/// behind `poll`.
fn line(later: u64) -> io::Result<Vec<u64>> {
    sys::pin(0)?;
    let guest = Guest::find()?;
    let (block, number) = line_of_channel(guest.device.channel);
    let line = Line::open(guest.window + PAGE * block as u64, number)?;
    let doorbell = guest.interrupt()?;
    guest.command(1);
    let mut samples = Vec::with_capacity(ITERATIONS);
    for count in 1..=ITERATIONS {
        wait_for(line.file())?;
        let woken = counter() as u32;
        let kicked = guest.shared.load(KICKED).wrapping_add(later as u32);
        // Low words: a sample is far shorter than 2^32 ticks, 4 s at 1 GHz.
        samples.push(woken.wrapping_sub(kicked).into());
        line.drain();
        guest.shared.store(WOKEN, count as u32);
        if let Some(doorbell) = doorbell {
            doorbell.ring();
        }
    }
    Ok(samples)
}

/// Asks the guest for samples, which it takes itself.
fn request() -> io::Result<Vec<u64>> {
    let guest = Guest::find()?;
    let command = guest.command(2);
    while guest.shared.load(DONE) != command {
        thread::sleep(LOOK);
    }
    // The samples are read behind the command that tells of them.
    finish_stores();
    let sample = |index| guest.shared.load(SAMPLES + 4 * index).into();
    Ok((0..ITERATIONS).map(sample).collect())
}

/// Measures natively: `kick` on CPU 1 causes what CPU 0 waits for in `file`, and `handle` ends.
fn native(
    file: &File,
    kick: impl Fn() + Send,
    handle: impl Fn() -> io::Result<()>,
) -> io::Result<Vec<u64>> {
    sys::pin(0)?;
    let (kicked, woken) = (&AtomicU64::new(0), &AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(move || {
            // The other thread then finds no interrupt, and says so.
            if sys::pin(1).is_err() {
                return;
            }
            for count in 1..=ITERATIONS as u64 {
                // CPU 0 is asleep in `poll` by then.
                thread::sleep(PAUSE);
                kicked.store(counter(), Ordering::SeqCst);
                kick();
                while woken.load(Ordering::SeqCst) < count {
                    mapping::relax();
                }
            }
        });
        let mut samples = Vec::with_capacity(ITERATIONS);
        for count in 1..=ITERATIONS as u64 {
            let waited = wait_for(file);
            let now = counter();
            samples.push(now.wrapping_sub(kicked.load(Ordering::SeqCst)));
            let handled = waited.and_then(|()| handle());
            // The other thread must end, whatever happened.
            let next = if handled.is_ok() { count } else { u64::MAX };
            woken.store(next, Ordering::SeqCst);
            handled?;
        }
        Ok(samples)
    })
}

/// The line is low, so that a level-sensitive low interrupt is there at once. The kernel's driver,
/// which wants rising edges, does not know.
fn native_line() -> io::Result<Vec<u64>> {
    let line = Line::open(PL061, LINE)?;
    // SAFETY: the board has a PL061 there, whose one line this program measures.
    let registers = unsafe { mapping::map_physical(PL061, PAGE as usize) }?;
    let registers = registers.registers(0, PAGE as usize);
    let registers = registers.ok_or_else(|| io::Error::other("no registers"))?;
    let bit = 1 << LINE;
    let kick = move || {
        registers.store(GPIO_IEV, registers.load(GPIO_IEV) & !bit);
        let sense = registers.load(GPIO_IS);
        registers.store(GPIO_IS, sense | bit);
        registers.store(GPIO_IS, sense);
        registers.store(GPIO_IEV, registers.load(GPIO_IEV) | bit);
    };
    native(line.file(), kick, || {
        line.drain();
        Ok(())
    })
}

/// The interrupt is a level: the device is acknowledged before the kernel's driver unmasks it.
fn native_uio() -> io::Result<Vec<u64>> {
    let device = Path::new("/sys/class/uio/uio0/device");
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
    let uio = open(Path::new("/dev/uio0"))?;
    let config = open(&device.join("config"))?;
    let size = fs::metadata(device.join("resource0"))?.len() as usize;
    let registers = mapping::Mapping::of_file(&open(&device.join("resource0"))?, 0, size)?;
    let registers = registers.registers(0, PAGE as usize);
    let registers = registers.ok_or_else(|| io::Error::other("no registers"))?;
    let mut command = [0; 2];
    config.read_exact_at(&mut command, PCI_COMMAND)?;
    let kick = move || registers.store(EDU_RAISE, 1);
    native(&uio, kick, || {
        registers.store(EDU_ACKNOWLEDGE, 1);
        io::Read::read_exact(&mut &uio, &mut [0; 4])?;
        // The kernel's driver masked it: Interrupt Disable of the command register.
        config.write_all_at(&command, PCI_COMMAND)
    })
}

#[cfg(test)]
mod tests;
