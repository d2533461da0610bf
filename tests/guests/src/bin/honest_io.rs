//! A driver that keeps to all rules, beside one that breaks them: it writes its disk at random and
//! verifies what it reads, until a `q` is typed, and then verifies all of the disk. A pattern
//! stands in its FP registers, which a dump shows.
//!
//! Gear1 leaves the FP registers with their last user until another one executes an FP instruction.
//! A dump therefore has to find this guest's registers in the CPU or in memory.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hostile_driver::pattern::{self, BLOCK, WORDS};
use test_guests::fp::{self, Registers};
use test_guests::virtio::{self, GuestHal};
use test_guests::{Machine, VirtioNode, check, guest, report, say, timer, uart};
use virtio_drivers::device::blk::{BlkReq, BlkResp, VirtIOBlk};
use virtio_drivers::transport::mmio::MmioTransport;

guest!(main);

/// 8 MiB of the disk, whose numbers of writes take 8 KiB ([`WRITES`]).
const BLOCKS: usize = 2048;
/// virtio-blk counts in sectors of 512 bytes, whatever the disk's own block is.
const SECTORS: usize = (BLOCK / hostile_driver::SECTOR) as usize;
/// The device VM boots Linux meanwhile, on CPUs that attackers share.
const PATIENCE_S: u64 = 120;
/// The device rings when it is done; this is how soon a lost interrupt is made up for.
const LOOK_US: u64 = 100_000;

/// Time between eight exercises of blocks and the next: the disk is in use all the time, and the
/// CPUs are the attackers' for the most part.
const PAUSE_US: u64 = 20_000;

/// Pattern of the FP registers. The host looks for the registers of this pattern in the dump.
const FP_SEED: u64 = 5;

/// Number of writes to each block; too large for a stack. A block without writes is not compared,
/// as the disk's former contents are unknown.
static WRITES: [AtomicU32; BLOCKS] = [const { AtomicU32::new(0) }; BLOCKS];

/// One request at a time: whose answer is whose is never in question.
struct Disk<'a> {
    /// The device's interrupt ends the waits.
    node: &'a VirtioNode,
    driver: VirtIOBlk<GuestHal, MmioTransport<'static>>,
    /// Number of requests done, then of those that failed.
    done: u64,
    wrong: u64,
    /// The longest that one took, in ticks.
    longest: u64,
}

/// The generator is a linear one, of which the upper bits are used, since the lower ones repeat
/// soon. No FP instruction comes between `load` and `current`, as the guests are compiled without.
fn main(machine: &Machine) {
    let Some(mut disk) = Disk::find(machine) else {
        return;
    };
    fp::enable();
    let pattern = Registers::pattern(FP_SEED);
    pattern.load();
    say!("honest: begins");
    let mut random = 1_u64;
    while uart::receive() != Some(b'q') {
        for _ in 0..8 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            disk.exercise((random >> 33) as usize % BLOCKS);
        }
        disk.pause();
    }
    let registers = Registers::current();
    check!("fp-kept", registers == pattern, "{registers:x?}");
    for block in 0..BLOCKS {
        disk.verify(block);
    }
    let milliseconds = timer::to_ns(disk.longest) / 1_000_000;
    let (done, wrong) = (disk.done, disk.wrong);
    say!("honest: {done} requests, the longest took {milliseconds} ms");
    check!(
        "honest-io",
        wrong == 0 && done > 0,
        "{wrong} of {done} went wrong"
    );
}

impl<'a> Disk<'a> {
    /// Waits for the disk. Reports why there is none.
    fn find(machine: &'a Machine) -> Option<Disk<'a>> {
        let Some(node) = &machine.virtio[0] else {
            report::fail("honest", format_args!("there is no device"));
            return None;
        };
        let shown = virtio::wait_for_device(node, PATIENCE_S);
        if shown != Some(2) {
            report::fail("honest", format_args!("device type {shown:?}, not a disk"));
            return None;
        }
        let driver = VirtIOBlk::new(virtio::transport(node));
        let driver = driver.inspect_err(|error| report::fail("honest", format_args!("{error:?}")));
        Some(Disk {
            node,
            driver: driver.ok()?,
            done: 0,
            wrong: 0,
            longest: 0,
        })
    }
}

impl Disk<'_> {
    /// Waits for [`PAUSE_US`]. The last request's interrupt may still be pending, and would end a
    /// sleep by the timer alone again and again.
    fn pause(&self) {
        let end = timer::now() + timer::from_us(PAUSE_US);
        while timer::now() < end {
            virtio::wait_for_interrupt(self.node, PAUSE_US);
        }
    }

    /// The read before the write finds a write of another guest, or of an earlier request, in the
    /// wrong place.
    fn exercise(&mut self, block: usize) {
        self.verify(block);
        let writes = WRITES[block].fetch_add(1, Relaxed) + 1;
        let first = pattern::first_word(block as u64, writes);
        let mut data = core::array::from_fn(|index| pattern::word(first, index));
        self.transfer(block, &mut data, true);
        self.verify(block);
    }

    /// Reads a block; one that nobody has written holds what the disk held before. One word that
    /// differs is enough: the pattern tells which write a word is of.
    fn verify(&mut self, block: usize) {
        let mut data = [0; WORDS];
        self.transfer(block, &mut data, false);
        let writes = WRITES[block].load(Relaxed);
        let first = pattern::first_word(block as u64, writes);
        let mut words = data.iter().enumerate();
        let wrong = words.find(|(index, word)| **word != pattern::word(first, *index));
        if let Some((index, word)) = wrong.filter(|_| writes != 0) {
            self.wrong += 1;
            say!("honest: block {block}, written {writes} times, has {word:#x} at {index}");
        }
    }

    /// Does one request and waits for it. A used ring without an interrupt is served after
    /// [`LOOK_US`], so that a lost interrupt costs time and no data.
    fn transfer(&mut self, block: usize, data: &mut [u64; WORDS], write: bool) {
        let start = timer::now();
        let (mut request, mut response) = (BlkReq::default(), BlkResp::default());
        // SAFETY: any bytes are words, and nothing else refers to them.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), BLOCK as usize)
        };
        let sector = block * SECTORS;
        let (request, response) = (&mut request, &mut response);
        let driver = &mut self.driver;
        let token = if write {
            // SAFETY: the three live until the request is complete, and are not touched before.
            unsafe { driver.write_blocks_nb(sector, request, bytes, response) }
        } else {
            // SAFETY: as above.
            unsafe { driver.read_blocks_nb(sector, request, bytes, response) }
        };
        let Ok(token) = token else {
            self.wrong += 1;
            return;
        };
        while driver.peek_used() != Some(token) {
            virtio::wait_for_interrupt(self.node, LOOK_US);
        }
        driver.ack_interrupt();
        let result = if write {
            // SAFETY: they are the three that the request was made with.
            unsafe { driver.complete_write_blocks(token, request, bytes, response) }
        } else {
            // SAFETY: as above.
            unsafe { driver.complete_read_blocks(token, request, bytes, response) }
        };
        self.done += 1;
        self.wrong += u64::from(result.is_err());
        self.longest = self.longest.max(timer::now() - start);
    }
}
