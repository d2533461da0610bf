//! A guest that attacks the device model through each of its virtio devices, by the attacks of
//! `tests/hostile`; before and after, an honest driver of `virtio-drivers` does real I/O with the
//! same device. `operations` and `seed` on the command line say how many random attacks there are;
//! what is the same for every kind of device only the disk suffers, unless there is `everywhere=1`.
//! The last `programs` devices are served by programs of their own, which may end during an attack:
//! of these are asked memory, and service afterwards.
//!
//! Memory that is not handed over is filled with a pattern and looked at again and again.
//!
//! The honest driver runs before the attacks, to show that the device works, and after them, to
//! show that no attack has broken it for good. The canaries find a device model that writes to
//! memory that no descriptor named.
#![no_std]
#![no_main]

use core::fmt;
use core::ops::Range;

use hostile_driver::{
    ARENA_SIZE, Counts, Kind, Layout, Options, Platform, SECTOR, WRITTEN_SECTORS, sector_byte,
};
use test_guests::exception::catch;
use test_guests::mmio::{read32, write8, write16, write32, write64};
use test_guests::virtio::{self, GuestHal};
use test_guests::{Machine, VirtioNode, check, cpu, guest, report, say, timer};
use virtio_drivers::device::blk::VirtIOBlk;
use virtio_drivers::device::console::VirtIOConsole;
use virtio_drivers::device::input::{InputConfigSelect, VirtIOInput};
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::device::rng::VirtIORng;
use virtio_drivers::device::socket::{
    ConnectionInfo, DisconnectReason, VirtIOSocket, VsockAddr, VsockEventType,
};
use virtio_drivers::transport::mmio::MmioTransport;

guest!(main);

/// Address of the arena in the guest's memory. 2 MiB leave room for the image and its stack, and
/// are far from the device tree.
const ARENA: u64 = 2 << 20;
/// Seconds until a device must be there: Linux boots in the device VM meanwhile. Until then the
/// transport shows device ID 0, a placeholder (virtio 1.2, 4.2.2).
const PATIENCE_S: u64 = 120;
/// Most violations that are reported in detail. More of them are counted, as a broken device could
/// fill the log.
const TOLD: u64 = 10;
/// Longest time in which the device VM answers a frame. The device VM is a Linux on an emulated
/// CPU, and has other guests to serve.
const ANSWER_MS: u64 = 10_000;
/// Longest frame, with its header. More than an Ethernet frame of 1514 bytes and the header of 12.
const FRAME: usize = 2048;

unsafe extern "C" {
    static _bss_end: u8;
}

/// Attacks one device after the other. The verdict counts operations too: a run without one attack
/// would have no violations. Devices that are served by programs of their own are told by their
/// number alone.
fn main(machine: &Machine) {
    let mut bench = Bench::new(machine);
    bench.fill();
    let (mut operations, mut violations) = (0, 0);
    let devices = machine.virtio.iter().flatten().count() as u64;
    let own = devices.saturating_sub(machine.option("programs").unwrap_or(0));
    for (number, node) in (0..).zip(machine.virtio.iter().flatten()) {
        let shown = virtio::wait_for_device(node, PATIENCE_S);
        let Some(kind) = shown.and_then(Kind::of) else {
            report::fail("hostile", format_args!("device type {shown:?}"));
            continue;
        };
        bench.registers = node.registers;
        honest(machine, &mut bench, kind, "before", node);
        let counts = attack(machine, &mut bench, kind, number >= own);
        operations += counts.operations;
        violations += counts.violations;
        honest(machine, &mut bench, kind, "after", node);
    }
    say!("hostile: {operations} operations in all, {violations} violations");
    bench.verdict();
    let held = operations > 0 && violations == 0;
    check!("hostile", held, "{violations} violations");
}

/// Parts of the random attacks that a device suffers whose program may end of one: a program is
/// started again after a pause that grows.
const ELSEWHERE: u64 = 4;
/// Of the attacks on a graphics card one in so many is made, unless there is `everywhere=1`. A
/// reset ends its program, whose start takes seconds on an emulated CPU; the tests on the host make
/// all.
const ON_GRAPHICS: usize = 16;

/// Attacks a device. Attacks by the same seed are the same ones, so that a violation can be
/// repeated. Attacks that may end a program are made less often, since the pause before its next
/// start grows.
fn attack(machine: &Machine, bench: &mut Bench, kind: Kind, elsewhere: bool) -> Counts {
    let layout = layout(machine, bench);
    let everywhere = machine.option("everywhere") == Some(1);
    let operations = machine.option("operations").unwrap_or(100);
    let is_brief = kind == Kind::Gpu && !everywhere;
    let one_in = if is_brief { ON_GRAPHICS } else { 1 };
    let options = Options {
        common: !elsewhere && (kind == Kind::Block || everywhere),
        elsewhere,
        one_in,
        operations: if elsewhere {
            operations / (ELSEWHERE * one_in as u64)
        } else {
            operations
        },
        seed: machine.option("seed").unwrap_or(1),
    };
    let start = timer::now();
    let counts = hostile_driver::attack(bench, layout, kind, options);
    let milliseconds = timer::to_ns(timer::now() - start) / 1_000_000;
    let Counts {
        operations,
        broken,
        honest,
        violations,
    } = counts;
    say!(
        "hostile: {kind:?}: {operations} operations, {broken} broke the device, {honest} honest \
         requests between, {violations} violations, {milliseconds} ms"
    );
    counts
}

/// Returns where the attacks on the device at hand are made. The attacks need the bounds of the RAM
/// for addresses beyond them.
fn layout(machine: &Machine, bench: &Bench) -> Layout {
    Layout {
        ram: machine.ram.clone(),
        arena: machine.ram.start + ARENA,
        registers: bench.registers,
    }
}

/// Does real I/O with the device, as a good driver. Each driver is made anew, and resets the device
/// by its status register (virtio 1.2, 3.1.1), as Linux does when it loads a driver.
fn honest(machine: &Machine, bench: &mut Bench, kind: Kind, when: &str, node: &VirtioNode) {
    let result = match kind {
        // The crate has no driver of file systems. Its driver of graphics cards does not wait for a
        // program that is started again.
        Kind::Fs | Kind::Gpu | Kind::Cursor => {
            let layout = layout(machine, bench);
            ensure(
                hostile_driver::serves(bench, layout, kind),
                "it does not answer",
            )
        }
        Kind::Block => honest_disk(node),
        Kind::Net | Kind::Control => honest_net(node),
        Kind::Console => honest_console(when, node),
        Kind::Rng => honest_entropy(node),
        Kind::Input => honest_input(node),
        Kind::Vsock => honest_sockets(node),
    };
    match result {
        Ok(()) => say!("PASS honest-{kind:?}-{when}"),
        Err(why) => say!("FAIL honest-{kind:?}-{when}: {why}"),
    }
}

/// Failure of an honest driver. The driver's errors have no text of their own, hence the place.
struct Wrong(&'static str, Option<virtio_drivers::Error>);

impl From<virtio_drivers::Error> for Wrong {
    fn from(error: virtio_drivers::Error) -> Wrong {
        Wrong("error", Some(error))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong(what, error) = self;
        write!(f, "{what} {error:?}")
    }
}

/// Makes an error of a condition that does not hold. With `?`, one line for each rule that the
/// device has to keep.
fn ensure(condition: bool, what: &'static str) -> Result<(), Wrong> {
    condition.then_some(()).ok_or(Wrong(what, None))
}

/// Writes four sectors and reads them back. Sector 100 is in the half that attacks may write. The
/// flush (VIRTIO_BLK_T_FLUSH) keeps the read behind the write in the host's file, too.
fn write_and_read(disk: &mut VirtIOBlk<GuestHal, MmioTransport<'static>>) -> Result<(), Wrong> {
    let (mut data, mut back) = ([0; 4 * SECTOR as usize], [0; 4 * SECTOR as usize]);
    for (index, byte) in data.iter_mut().enumerate() {
        // Each sector differs from the others, so that sectors that are exchanged are seen.
        *byte = (index * 31 + index / SECTOR as usize) as u8;
    }
    disk.write_blocks(100, &data)?;
    disk.flush()?;
    disk.read_blocks(100, &mut back)?;
    ensure(data == back, "what was written is not read")
}

/// Writes and reads, then looks at sectors that nothing writes. The second half of the disk is
/// never written: any change there is an access out of place. The capacity shows that no attack's
/// store to the configuration space has changed it.
fn honest_disk(node: &VirtioNode) -> Result<(), Wrong> {
    let mut disk = VirtIOBlk::<GuestHal, _>::new(virtio::transport(node))?;
    let capacity = disk.capacity();
    ensure(
        capacity == 2 * WRITTEN_SECTORS,
        "the disk is of another size",
    )?;
    write_and_read(&mut disk)?;
    let mut back = [0; 4 * SECTOR as usize];
    for sector in [WRITTEN_SECTORS, WRITTEN_SECTORS + 4321, capacity - 4] {
        disk.read_blocks(sector as usize, &mut back)?;
        let expected = |index: usize| sector_byte(sector + index as u64 / SECTOR);
        let good = back
            .iter()
            .enumerate()
            .all(|(i, byte)| *byte == expected(i));
        ensure(good, "the disk has changed")?;
    }
    Ok(())
}

/// Reads random bytes twice. Two equal answers of 64 bytes would be a device that copies nothing.
/// The lengths are those that the device has written to the used ring, which a driver trusts.
fn honest_entropy(node: &VirtioNode) -> Result<(), Wrong> {
    let mut entropy = VirtIORng::<GuestHal, _>::new(virtio::transport(node))?;
    let (mut first, mut second) = ([0; 64], [0; 64]);
    let lengths = [
        entropy.request_entropy(&mut first)?,
        entropy.request_entropy(&mut second)?,
    ];
    ensure(lengths == [64; 2] && first != second, "no entropy")
}

/// Reads what the device is. An attack may have left another `select` in the configuration, which
/// is the driver's to write.
fn honest_input(node: &VirtioNode) -> Result<(), Wrong> {
    let mut input = VirtIOInput::<GuestHal, _>::new(virtio::transport(node))?;
    let mut name = [0; 128];
    let length = input.query_config_select(InputConfigSelect::IdName, 0, &mut name)?;
    let name = name.get(..usize::from(length));
    ensure(
        name == Some(b"GearV keyboard and tablet"),
        "it has another name",
    )
}

/// Asks for a program that there is not, and is told so. CID 2 is the host's (VMADDR_CID_HOST). A
/// port without a listener is answered by VIRTIO_VSOCK_OP_RST, which needs the whole way to the
/// device model and back.
fn honest_sockets(node: &VirtioNode) -> Result<(), Wrong> {
    let mut sockets = VirtIOSocket::<GuestHal, _>::new(virtio::transport(node))?;
    let connection = ConnectionInfo::new(VsockAddr { cid: 2, port: 1 }, 1);
    sockets.connect(&connection)?;
    let start = timer::now();
    loop {
        if let Some(event) = sockets.poll(|event, _| Ok(Some(event)))? {
            let refused = VsockEventType::Disconnected {
                reason: DisconnectReason::Reset,
            };
            return ensure(event.event_type == refused, "the refusal is none");
        }
        virtio::wait_for_interrupt(node, 10_000);
        let late = timer::to_ns(timer::now() - start) > ANSWER_MS * 1_000_000;
        ensure(!late, "no refusal arrives")?;
    }
}

/// Prints a line. The host looks for these lines in the console's output. Three buffers for a line
/// find a device that loses the order of its queue.
fn honest_console(when: &str, node: &VirtioNode) -> Result<(), Wrong> {
    let mut console = VirtIOConsole::<GuestHal, _>::new(virtio::transport(node))?;
    for text in ["the honest driver ", when, " the attacks\n"] {
        console.send_bytes(text.as_bytes())?;
    }
    Ok(())
}

/// Returns the frame that asks for the device VM's hardware address. The hardware address is in the
/// frame twice, as source at byte 6 and as the asker's at byte 22; a bridge learns the way by the
/// former, and the answer goes to the latter.
fn question(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame.copy_from_slice(&hostile_driver::ARP[12..]);
    frame[6..12].copy_from_slice(&mac);
    frame[22..28].copy_from_slice(&mac);
    frame
}

/// Asks for the device VM's hardware address and waits for the answer. The question is repeated
/// behind each frame that is no answer, as the network has other frames too.
fn honest_net(node: &VirtioNode) -> Result<(), Wrong> {
    let mut buffer = [0; FRAME];
    let mut net = VirtIONetRaw::<GuestHal, _, 16>::new(virtio::transport(node))?;
    let frame = question(net.mac_address());
    let start = timer::now();
    let late = || timer::to_ns(timer::now() - start) > ANSWER_MS * 1_000_000;
    while !late() {
        // SAFETY: the buffer outlives the driver, which resets the device's queues at its end, and
        // is not touched before the request is complete.
        let token = unsafe { net.receive_begin(&mut buffer) }?;
        net.send(&frame)?;
        while net.poll_receive().is_none() {
            virtio::wait_for_interrupt(node, 10_000);
            ensure(!late(), "nothing arrives")?;
        }
        // SAFETY: it is the buffer that the request was made with.
        let (header, length) = unsafe { net.receive_complete(token, &mut buffer) }?;
        let packet = &buffer[header..header + length];
        if is_answer(packet) {
            return Ok(());
        }
    }
    Err(Wrong("no answer to the address resolution protocol", None))
}

/// Tells whether a packet is an answer (2) of the address resolution protocol, from the address
/// asked for. EtherType 0x0806 is at byte 12, the operation at byte 20, and the address of who
/// answers at byte 28.
fn is_answer(packet: &[u8]) -> bool {
    packet.get(12..14) == Some(&[8, 6])
        && packet.get(20..22) == Some(&[0, 2])
        && packet.get(28..32) == Some(&[10, 0, 2, 100])
}

/// The guest as the attacks see it.
struct Bench {
    /// Of the device under attack.
    registers: u64,
    /// Memory outside of the arena and of the guest's own data. Three ranges, as the arena and the
    /// device tree lie between.
    canaries: [Range<u64>; 3],
    /// Violations so far, reported or not.
    told: u64,
}

/// Returns what a canary holds. The factor is odd, so that no two addresses have one pattern.
const fn canary(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c908
}

impl Bench {
    /// Finds the memory for canaries. The ranges leave out the guest's data, the arena that is
    /// handed to devices, and the device tree.
    fn new(machine: &Machine) -> Bench {
        let arena = machine.ram.start + ARENA;
        Bench {
            registers: 0,
            canaries: [
                (&raw const _bss_end as u64..arena),
                (arena + ARENA_SIZE..machine.tree.start & !7),
                (machine.tree.end.next_multiple_of(8)..machine.ram.end),
            ],
            told: 0,
        }
    }

    /// Reads the canaries once more at the end: a device may write after its last attack.
    fn verdict(&mut self) {
        let changed = self.changed();
        let kept = changed.is_none();
        check!("canaries", kept, "memory at {changed:x?} has changed");
    }

    /// Returns the addresses of all canaries.
    fn words(&self) -> impl Iterator<Item = u64> {
        self.canaries
            .iter()
            .flat_map(|range| range.clone().step_by(8))
    }

    /// Writes all canaries. Each word depends on its address, so that words that are copied are
    /// seen as well.
    fn fill(&self) {
        for address in self.words() {
            // SAFETY: the memory is the guest's, and nothing of Rust's lies in it.
            unsafe { (address as *mut u64).write_volatile(canary(address)) };
        }
    }
}

impl Platform for Bench {
    fn read(&mut self, register: u64) -> u32 {
        read32(self.registers + register)
    }

    /// Stores to a register. A store that aborts is caught, and the attack is told of it.
    fn write(&mut self, register: u64, size: u64, value: u64) -> bool {
        let at = self.registers + register;
        // Stores to memory must be visible before the store to the register is.
        cpu::dsb();
        let caught = catch(|| match size {
            1 => write8(at, value as u8),
            2 => write16(at, value as u16),
            4 => write32(at, value as u32),
            _ => write64(at, value),
        });
        cpu::dsb();
        caught.is_none()
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) {
        for (at, byte) in (address..).zip(bytes) {
            // SAFETY: the attacks read in their arena only, where nothing of Rust's lies.
            *byte = unsafe { (at as *const u8).read_volatile() };
        }
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            // SAFETY: the attacks write to their arena only, where nothing of Rust's lies.
            unsafe { (at as *mut u8).write_volatile(*byte) };
        }
    }

    /// Reads all canaries, and returns the first address that has changed.
    fn changed(&mut self) -> Option<u64> {
        self.words().find(|address| {
            // SAFETY: as in `fill`.
            let word = unsafe { (*address as *const u64).read_volatile() };
            word != canary(*address)
        })
    }

    fn pause(&mut self, ms: u64) {
        timer::sleep_us(ms * 1_000);
    }

    fn violation(&mut self, what: fmt::Arguments<'_>) {
        self.told += 1;
        if self.told <= TOLD {
            report::fail("violation", what);
        }
    }
}
