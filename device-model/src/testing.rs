//! Shared parts of the tests: a directory for each test, and a guest made of plain memory that
//! drives one device through its slot and rings, as a guest's driver does.

use std::fs::File;
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use gear2_protocol::virtio::{MAX_QUEUES, SetUp};
use gear2_protocol::{
    DOORBELL_GEAR2, REGION_SIZE, Region, cause, doorbell_device, op, outcome, slot, vm_flag,
};
use vm_memory::{Bytes, FileOffset, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

use crate::address::Mac;
use crate::backend::Backend;
use crate::board::{DeviceKind, DeviceNode};
use crate::gpio::Line;
use crate::mapping::{Doorbell, Mapping, Registers};
use crate::memory::Memory;
use crate::orders::Desk;
use crate::state::DeviceState;
use crate::transport::{COMMON_FEATURES, register};
use crate::worker::{Arrival, Away, Wiring, Worker};
use sched::FakeSched;
use trace::FakeTrace;

mod sched;
pub(crate) mod trace;

/// Guest address of the RAM.
pub(crate) const RAM: u64 = 0x4000_0000;
pub(crate) const RAM_SIZE: usize = 0x40_0000;
/// Address at which tests put data.
pub(crate) const DATA: u64 = RAM + 0x10_0000;
pub(crate) const CHANNEL: usize = 2;
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Tells threads of a scope to end when the test is through with them, also by a failed assertion:
/// the scope would wait for them for ever, and the test hang instead of fail.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory that goes away.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gdm-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Makes a file of this content; returns its path.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a device of random numbers.
pub(crate) fn node() -> DeviceNode {
    DeviceNode {
        channel: 0,
        vm: "linux".into(),
        vm_id: 0,
        kind: DeviceKind::Rng,
        backend: String::new(),
        queues: 0,
        config_size: 0,
        limit: None,
        command: Vec::new(),
        files: Vec::new(),
        tag: String::new(),
        read_only: false,
        mac: Mac::default(),
        label: String::new(),
        serial: String::new(),
        mtu: 0,
        limits: [0; 3],
        cid: 0,
        memory: [0; 3],
        registers: [0; 2],
    }
}

pub(crate) fn region() -> &'static Region {
    let region = Mapping::of_zeroes(REGION_SIZE).unwrap().region().unwrap();
    region.header.vcpu_count.store(1, Ordering::Relaxed);
    region
        .header
        .counter_hz
        .store(1_000_000_000, Ordering::Relaxed);
    region
}

pub(crate) fn page() -> Registers {
    let mapping = Mapping::of_zeroes(0x1000).unwrap();
    mapping.registers(0, 0x1000).unwrap()
}

pub(crate) fn memory() -> Memory {
    let file = crate::sys::shared_memory(c"ram", RAM_SIZE as u64).unwrap();
    let mapping = Mapping::of_file(&file, 0, RAM_SIZE).unwrap();
    mapping
        .memory_of_file(RAM, FileOffset::new(file, 0))
        .unwrap()
}

/// Addresses of a queue's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) size: u16,
    pub(crate) base: u64,
    pub(crate) added: u16,
}

impl Ring {
    pub(crate) fn descriptors(&self) -> u64 {
        self.base
    }

    pub(crate) fn available(&self) -> u64 {
        self.base + 0x4000
    }

    pub(crate) fn used(&self) -> u64 {
        self.base + 0x8000
    }
}

/// A guest with one device.
pub(crate) struct Guest {
    pub(crate) region: &'static Region,
    pub(crate) page: Registers,
    pub(crate) doorbells: Registers,
    pub(crate) memory: Memory,
    pub(crate) rings: Vec<Ring>,
    /// Gear2 does the writes that it may do; the others, or all, go to GDM.
    pub(crate) gear2_writes: bool,
    /// Writes that went to GDM.
    pub(crate) forwarded: u64,
    /// Time after which requests without a backend fail.
    pub(crate) limit: Option<Duration>,
    /// Longest time for which an interrupt of the next GDM's may wait, in microseconds.
    pub(crate) delay_us: u64,
    worker: Option<Worker>,
}

impl Guest {
    /// Makes a guest whose driver has done nothing yet.
    pub(crate) fn new(backend: Box<dyn Backend>) -> Self {
        let rings = (0..MAX_QUEUES as u64).map(|queue| Ring {
            size: 16,
            base: RAM + 0x1_0000 * queue,
            added: 0,
        });
        let mut guest = Self {
            region: region(),
            page: page(),
            doorbells: page(),
            memory: memory(),
            rings: rings.collect(),
            gear2_writes: true,
            forwarded: 0,
            limit: None,
            delay_us: 300_000,
            worker: None,
        };
        guest.start_gdm(backend);
        guest
    }

    /// Starts a GDM on what there is: another than the first finds the earlier one's device.
    pub(crate) fn start_gdm(&mut self, backend: Box<dyn Backend>) {
        self.worker = Some(Worker::new(self.wiring(), backend).unwrap());
    }

    /// Starts a GDM whose device takes orders.
    pub(crate) fn start_gdm_with_orders(&mut self, backend: Box<dyn Backend>) -> Desk {
        let mut wiring = self.wiring();
        let desk = wiring.desk().unwrap();
        self.worker = Some(Worker::new(wiring, backend).unwrap());
        desk
    }

    /// Starts a GDM with the first backend that arrives; the others follow when one is lost.
    pub(crate) fn start_gdm_of(&mut self, arrival: Arrival) {
        let backend = arrival.recv().unwrap();
        let mut worker = Worker::new(self.wiring(), backend).unwrap();
        worker.follow(arrival);
        self.worker = Some(worker);
    }

    /// Starts a GDM that finds no backend yet.
    pub(crate) fn start_gdm_without(&mut self, kind: DeviceKind) -> Sender<Box<dyn Backend>> {
        let (sender, arrival) = std::sync::mpsc::channel();
        self.worker = Some(Worker::awaiting(self.wiring(), kind, arrival).unwrap());
        sender
    }

    pub(crate) fn wiring(&self) -> Wiring {
        let doorbell = |offset| Doorbell {
            page: self.doorbells,
            offset,
        };
        Wiring {
            channel: CHANNEL,
            vm: 0,
            name: "test".into(),
            region: self.region,
            page: self.page,
            memory: self.memory.clone(),
            interrupt: doorbell(doorbell_device(CHANNEL)),
            answer: doorbell(DOORBELL_GEAR2),
            line: line(),
            kick: EventFd::new(0).unwrap(),
            orders: None,
            spin: false,
            linger_us: 20_000,
            delay_us: self.delay_us,
            limit: self.limit,
            away: Away::now(self.region, self.state()),
        }
    }

    pub(crate) fn kill_gdm(&mut self) {
        self.worker = None;
    }

    /// Returns the device's thread of the GDM that runs.
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().unwrap()
    }

    pub(crate) fn state(&self) -> DeviceState {
        DeviceState::new(&self.region.devices[CHANNEL])
    }

    /// Makes an access as Gear2 does: does a write itself if it may, or posts the access and lets
    /// the device work. Returns the slot's state.
    pub(crate) fn access(&mut self, register: usize, access: u32, value: u64) -> u32 {
        let set_up = SetUp::new(&self.region.devices[CHANNEL]);
        let show = |register, value| self.page.store(register, value);
        let is_word = self.gear2_writes && access == 6;
        if is_word && set_up.write_by_gear2(register, value as u32, &show) {
            return slot::DONE;
        }
        self.forwarded += 1;
        let slot = &self.region.slots[0][0];
        slot.device.store(CHANNEL as u32, Ordering::Relaxed);
        slot.register.store(register as u32, Ordering::Relaxed);
        slot.access.store(access, Ordering::Relaxed);
        slot.value.store(value, Ordering::Relaxed);
        slot.set_state(slot::POSTED);
        self.work();
        let state = slot.state();
        slot.set_state(slot::IDLE);
        state
    }

    /// Writes a 32-bit register.
    pub(crate) fn write(&mut self, register: usize, value: u32) {
        assert_eq!(self.access(register, 6, value.into()), slot::DONE);
    }

    pub(crate) fn read(&self, register: usize) -> u32 {
        self.page.load(register)
    }

    /// Lets the device work until it has nothing to do; bounded, since a guest must not keep it
    /// busy alone.
    pub(crate) fn work(&mut self) {
        if let Some(worker) = &mut self.worker {
            for _ in 0..1000 {
                if !worker.turn() {
                    return;
                }
            }
            panic!("the device never comes to rest");
        }
    }

    /// Lets the device take one turn; tells whether it has more to do.
    pub(crate) fn turn(&mut self) -> bool {
        self.worker.as_mut().is_some_and(Worker::turn)
    }

    /// Lets the device's thread take in what has happened, as at the end of a sleep.
    pub(crate) fn end_sleep(&mut self) {
        self.worker().wait(Some(Duration::ZERO)).unwrap();
    }

    /// Lets the device's thread do what it does between two sleeps, and sleep once.
    pub(crate) fn serve_and_sleep(&mut self) {
        self.worker().step().unwrap();
    }

    /// Lets the device work as its thread does when it was woken.
    pub(crate) fn wake(&mut self) {
        if let Some(worker) = &mut self.worker {
            while worker.serve() {}
        }
    }

    pub(crate) fn status(&self) -> u32 {
        self.read(register::STATUS)
    }

    /// Initialises the device as the specification says, with `queues` queues.
    pub(crate) fn initialise(&mut self, features: u64, queues: usize) {
        self.write(register::STATUS, 0);
        self.write(register::STATUS, 1);
        self.write(register::STATUS, 3);
        let features = features | COMMON_FEATURES & !(1 << 29);
        for half in 0..2 {
            self.write(register::DRIVER_FEATURES_SEL, half);
            self.write(register::DRIVER_FEATURES, (features >> (32 * half)) as u32);
        }
        self.write(register::STATUS, 0xb);
        assert_eq!(self.status(), 0xb);
        for queue in 0..queues {
            self.set_up(queue);
        }
        self.write(register::STATUS, 0xf);
    }

    pub(crate) fn set_up(&mut self, queue: usize) {
        let ring = self.rings[queue];
        self.write(register::QUEUE_SEL, queue as u32);
        self.write(register::QUEUE_NUM, ring.size.into());
        let parts = [
            (register::QUEUE_DESC, ring.descriptors()),
            (register::QUEUE_DRIVER, ring.available()),
            (register::QUEUE_DEVICE, ring.used()),
        ];
        for (register, address) in parts {
            self.write(register, address as u32);
            self.write(register + 4, (address >> 32) as u32);
        }
        self.write(register::QUEUE_READY, 1);
    }

    pub(crate) fn describe(&self, table: u64, index: u16, descriptor: (u64, u32, u16, u16)) {
        let (address, length, flags, next) = descriptor;
        let at = table + 16 * u64::from(index);
        self.put(at, &address.to_le_bytes());
        self.put(at + 8, &length.to_le_bytes());
        self.put(at + 12, &flags.to_le_bytes());
        self.put(at + 14, &next.to_le_bytes());
    }

    /// Makes the chain that starts at descriptor `head` available.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let place = ring.available() + 4 + 2 * u64::from(ring.added % ring.size);
        ring.added = ring.added.wrapping_add(1);
        let (index, added) = (ring.available() + 2, ring.added);
        self.put(place, &head.to_le_bytes());
        self.put(index, &added.to_le_bytes());
    }

    /// Chains `pieces` (address, length, device-writable) from descriptor `head` on and offers
    /// them.
    pub(crate) fn request(&mut self, queue: usize, head: u16, pieces: &[(u64, u32, bool)]) {
        let table = self.rings[queue].descriptors();
        for (index, (address, length, writable)) in pieces.iter().enumerate() {
            let last = index + 1 == pieces.len();
            let flags = if *writable { WRITE } else { 0 } | if last { 0 } else { NEXT };
            let index = head + index as u16;
            self.describe(table, index, (*address, *length, flags, index + 1));
        }
        self.offer(queue, head);
    }

    pub(crate) fn used_index(&self, queue: usize) -> u16 {
        self.memory
            .read_obj(GuestAddress(self.rings[queue].used() + 2))
            .unwrap()
    }

    /// Returns entry `index` of the used ring: head and bytes written.
    pub(crate) fn used(&self, queue: usize, index: u16) -> (u32, u32) {
        let ring = &self.rings[queue];
        let at = ring.used() + 4 + 8 * u64::from(index % ring.size);
        let read = |at| self.memory.read_obj(GuestAddress(at)).unwrap();
        (read(at), read(at + 4))
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_slice(bytes, GuestAddress(address))
            .unwrap();
    }

    pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory
            .read_slice(&mut bytes, GuestAddress(address))
            .unwrap();
        bytes
    }

    /// Tells whether the guest was interrupted since the last call.
    pub(crate) fn interrupted(&self) -> bool {
        let at = doorbell_device(CHANNEL);
        let rung = self.doorbells.load(at) != 0;
        self.doorbells.store(at, 0);
        rung
    }
}

/// Returns a line that never rises.
pub(crate) fn line() -> Line {
    static WRITERS: Mutex<Vec<PipeWriter>> = Mutex::new(Vec::new());
    let (line, writer) = line_and_writer();
    WRITERS.lock().unwrap().push(writer);
    line
}

/// Returns a line that rises when something is written.
pub(crate) fn line_and_writer() -> (Line, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = File::from(OwnedFd::from(reader));
    crate::sys::set_nonblocking(&file).unwrap();
    (Line::of_file(file), writer)
}

/// Returns a doorbell that nobody hears.
pub(crate) fn doorbell() -> Doorbell {
    Doorbell {
        page: page(),
        offset: DOORBELL_GEAR2,
    }
}

/// Answers the mailbox as Gear2 does, for two VMs of two vCPUs, until told to stop.
pub(crate) fn fake_gear2(region: &Region, stop: &AtomicBool) {
    let control = &region.control;
    let mut log = FakeLog::default();
    let mut sched = FakeSched::default();
    let mut trace = FakeTrace::default();
    while !stop.load(Ordering::Relaxed) {
        let asked = control.asked.load(Ordering::Acquire);
        if asked == control.answered.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        let arguments = control
            .arguments
            .each_ref()
            .map(|a| a.load(Ordering::Relaxed));
        let [first, second, ..] = arguments;
        let (outcome, results) = match control.op.load(Ordering::Relaxed) {
            op::LOG_READ => log.read(first),
            op @ op::SCHED_CPU..=op::SCHED_SET_POOL => sched.answer(op, arguments),
            op @ op::TRACE..=op::TRACE_NOTE => trace.answer(region, op, [first, second]),
            op => fake_answer(op, first, second),
        };
        for (word, result) in control.results.iter().zip(results) {
            word.store(result, Ordering::Relaxed);
        }
        control.outcome.store(outcome, Ordering::Relaxed);
        control.answered.store(asked, Ordering::Release);
    }
}

/// Gear1's log, which its cursors read CPU by CPU. There is a record of CPU 1, and one of CPU 5,
/// which is not Gear2's. Each time that all records of CPU 1 are read, new ones follow: one of CPU
/// 0, one of CPU 1, then many of CPU 0 of which one is kept, then one of CPU 1.
#[derive(Default)]
struct FakeLog {
    ends: u64,
}

impl FakeLog {
    /// CPU, number and time of each record that is kept.
    fn records(&self) -> Vec<[u64; 3]> {
        let first = [
            [1, 0, 1500],
            [5, 0, 1550],
            [0, 0, 1700],
            [1, 1, 1600],
            [0, 40, 1800],
        ];
        let others = (2..).map(|number| [1, number, 2000]);
        let all = first.into_iter().chain(others);
        all.take(2 + self.ends as usize).collect()
    }

    fn read(&mut self, cursor: u64) -> (u32, [u64; 6]) {
        let (first, number) = (cursor >> 56, cursor & ((1 << 56) - 1));
        let mut records = self.records();
        records.sort();
        let from = |cpu| if cpu == first { number } else { 0 };
        let found = records
            .iter()
            .find(|[cpu, number, _]| *cpu >= first && *number >= from(*cpu));
        let is_end = first == 1 && found.is_none_or(|[cpu, ..]| *cpu != 1);
        self.ends += u64::from(is_end);
        match found {
            Some([cpu, number, time]) => {
                let next = (cpu << 56) | (number + 1);
                (outcome::OK, [next, *time, 2 | cpu << 32, 1, 0x80, 0])
            }
            None => (outcome::NOT_FOUND, [0; 6]),
        }
    }
}

/// Flags of the fake device VM and of the fake real-time VM.
const DEVICE: u64 = vm_flag::DEVICE_MODEL | vm_flag::NO_CONSOLE;
/// Flags of the fake guest, whose vCPUs are paused.
const LINUX: u64 = vm_flag::MAY_POWER_OFF | vm_flag::PAUSED | vm_flag::QUIET | vm_flag::DUMP;
/// Flags of a fake VM that has stopped, whose devices do not come to rest.
const HALTED: u64 = vm_flag::PAUSED | vm_flag::DUMP;
const REAL_TIME: u64 = vm_flag::REAL_TIME | vm_flag::NO_CONSOLE;

/// Last console output of the fake guest.
const LAST_CONSOLE: &[u8] =
    b"ling\r\nwatchdog: BUG: soft lockup - CPU#1 stuck for 26s!\r\n\x1b[1mend";

fn fake_answer(op: u32, first: u64, second: u64) -> (u32, [u64; 6]) {
    let name = |name: &[u8; 8]| [u64::from_le_bytes(*name), 0, 0, 0, 0, 0];
    match (op, first) {
        (op::VM_INFO, 0) => (outcome::OK, [3, 2, 0, 0, DEVICE, 0]),
        (op::VM_INFO, 1) => (outcome::OK, [3, 2, 2, 5, LINUX, 1]),
        (op::VM_INFO, 2) => (outcome::OK, [3, 1, 4, 0, REAL_TIME, 0]),
        (op::VM_INFO, 3) => (outcome::OK, [0, 1, 5, 0, HALTED, 0]),
        (op::VM_HEALTH, 1) => (outcome::OK, [4, 2, 1, 30_000, 0, 0]),
        (op::LAST_WORDS, 1) => {
            let length = LAST_CONSOLE.len() as u64;
            (outcome::OK, [5, cause::HANG, 1_500, length, 0b10, 0])
        }
        (op::LAST_WORDS, _) => (outcome::NOT_FOUND, [0; 6]),
        (op::VCPU_REGISTERS, 1) => (outcome::OK, [second, 11, 12, 13, 14, 15]),
        // Only the second vCPU's are known.
        (op::LAST_REGISTERS, 1) if second == 1 => (outcome::OK, [10, 11, 12, 13, 14, 15]),
        (op::LAST_CONSOLE, 1) => {
            let mut part = [0; 48];
            let rest = LAST_CONSOLE.iter().skip(second as usize);
            part.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            let words = part.as_chunks().0.iter();
            let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
            (outcome::OK, words.try_into().unwrap())
        }
        (op::VM_FAULT, 1) => (outcome::OK, [1, 0x8200_0007, 0x200, 0x300, 0x400, 0x3c5]),
        (op::VM_NAME, 0) => (outcome::OK, name(b"device\0\0")),
        (op::VM_NAME, 1) => (outcome::OK, name(b"linux\0\0\0")),
        (op::VM_NAME, 2) => (outcome::OK, name(b"rt\0\0\0\0\0\0")),
        (op::VM_NAME, 3) => (outcome::OK, name(b"halted\0\0")),
        (op::VM_STOP, 0) if second == 0 => (outcome::NEEDED, [0; 6]),
        (op::VM_STOP, _) => (outcome::STARTED, [0; 6]),
        (op::VM_START, 2) => (outcome::OK, [0; 6]),
        (op::VM_RESUME, 1) => (outcome::OK, [0; 6]),
        (op::VM_START, 1) => (outcome::WRONG_STATE, [0; 6]),
        (op::VM_PAUSE, 1) => (outcome::OK, [0; 6]),
        (op::VM_PAUSE, 2) => (outcome::WRONG_STATE, [0; 6]),
        (op::VM_RESTART, 1) => (outcome::STARTED, [0; 6]),
        (op::EXIT_STATS, vcpu) if second.is_multiple_of(8) => {
            (outcome::OK, [vcpu, 10 * vcpu, 0, 0, 0, 0])
        }
        (op::EXIT_STATS, _) => (outcome::OK, [0; 6]),
        (op::VCPU_INFO, vcpu) => (outcome::OK, [50 * vcpu, vcpu, 3, 0, 0, 0]),
        (op::VCPU_UNSEEN, vcpu) => (outcome::OK, [u64::from(vcpu == 2), 0, 0, 0, 0, 0]),
        (op::VERSION, _) => (outcome::OK, [0x1_0009, 0x3_0009, 1000, 4, 77, 0]),
        _ => (outcome::NOT_FOUND, [0; 6]),
    }
}
