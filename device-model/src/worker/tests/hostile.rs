//! The hostile driver's attacks (`tests/hostile`), which a bare-metal guest makes on the target,
//! on devices whose guest is made of plain memory.

use std::fmt;

use gear2_protocol::slot;
use hostile_driver::{
    ARENA_SIZE, Counts, Kind, Layout, Options, Platform, SECTOR, WRITTEN_SECTORS, attack,
    sector_byte,
};

use crate::backend::block::Block;
use crate::backend::rng::Rng;
use crate::backend::{self, Backend};
use crate::board::{DeviceKind, DeviceNode};
use crate::mapping::Mapping;
use crate::testing::{self, Directory, Guest, RAM, RAM_SIZE};

const ARENA: u64 = RAM + 0x10_0000;
const SECTORS: u64 = 2 * WRITTEN_SECTORS;
const CANARY: u8 = 0xc9;
/// Memory behind the guest's, of somebody else.
const BEHIND: usize = 0x20_0000;

/// The attacked guest, and all that was not as it should be.
pub(crate) struct Attacked {
    pub(crate) guest: Guest,
    pub(crate) violations: Vec<String>,
}

impl Attacked {
    /// Makes a guest whose device model believes that it has `size` bytes of memory.
    fn new(open: impl Fn() -> Box<dyn Backend>, size: usize) -> Self {
        let mut guest = Guest::new(open());
        guest.kill_gdm();
        guest.memory = Mapping::of_zeroes(size).unwrap().memory(RAM).unwrap();
        guest.start_gdm(open());
        Self::over(guest)
    }

    /// Takes a guest whose device there is already.
    pub(crate) fn over(guest: Guest) -> Self {
        let attacked = Self {
            guest,
            violations: Vec::new(),
        };
        for (address, length) in attacked.canaries() {
            attacked.guest.put(address, &vec![CANARY; length]);
        }
        attacked
    }

    /// Returns what the arena is not.
    fn canaries(&self) -> [(u64, usize); 2] {
        use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
        let size: u64 = self.guest.memory.iter().map(|region| region.len()).sum();
        let behind = ARENA + ARENA_SIZE;
        [
            (RAM, (ARENA - RAM) as usize),
            (behind, (RAM + size - behind) as usize),
        ]
    }

    pub(crate) fn attack(&mut self, kind: Kind, operations: u64, seed: u64) -> Counts {
        let options = Options {
            common: true,
            elsewhere: false,
            one_in: 1,
            operations,
            seed,
        };
        self.attack_by(kind, options)
    }

    /// Attacks a device that another program serves. Attacks that are common to all types of device
    /// are made on disks alone: each has a graphics card's program started again.
    pub(crate) fn attack_elsewhere(&mut self, kind: Kind, operations: u64, seed: u64) -> Counts {
        let options = Options {
            common: kind == Kind::Block,
            elsewhere: true,
            one_in: 1,
            operations,
            seed,
        };
        self.attack_by(kind, options)
    }

    fn attack_by(&mut self, kind: Kind, options: Options) -> Counts {
        let layout = Layout {
            ram: RAM..RAM + RAM_SIZE as u64,
            arena: ARENA,
            registers: 0x0a00_0000,
        };
        attack(self, layout, kind, options)
    }
}

impl Platform for Attacked {
    fn read(&mut self, register: u64) -> u32 {
        self.guest.read(register as usize)
    }

    fn write(&mut self, register: u64, size: u64, value: u64) -> bool {
        let access = 4 | size.ilog2();
        let value = value & (u64::MAX >> (64 - 8 * size));
        let mut answer = || self.guest.access(register as usize, access, value);
        // A reset waits for a backend that has the guest's memory.
        let mut answers = std::iter::from_fn(|| Some(answer()));
        answers.find(|answer| *answer != slot::POSTED) == Some(slot::DONE)
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.guest.get(address, bytes.len()));
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        self.guest.put(address, bytes);
    }

    fn changed(&mut self) -> Option<u64> {
        self.canaries().into_iter().find_map(|(address, length)| {
            let bytes = self.guest.get(address, length);
            let at = bytes.iter().position(|byte| *byte != CANARY)?;
            Some(address + at as u64)
        })
    }

    fn pause(&mut self, ms: u64) {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }

    fn violation(&mut self, what: fmt::Arguments<'_>) {
        self.violations.push(what.to_string());
    }
}

fn disk(directory: &Directory) -> impl Fn() -> Box<dyn Backend> + use<> {
    let content: Vec<u8> = (0..SECTORS * SECTOR)
        .map(|at| sector_byte(at / SECTOR))
        .collect();
    let path = directory.file("disk", &content);
    move || Box::new(Block::open(&path, false).unwrap())
}

fn input(directory: &Directory) -> Box<dyn Backend> {
    let node = DeviceNode {
        kind: DeviceKind::Input,
        backend: format!("socket:{}/input", directory.text()),
        ..node()
    };
    opened(&node, directory)
}

fn sockets(directory: &Directory) -> Box<dyn Backend> {
    let node = DeviceNode {
        kind: DeviceKind::Vsock,
        backend: format!("{}/vsock", directory.text()),
        cid: 3,
        ..node()
    };
    opened(&node, directory)
}

fn console(directory: &Directory) -> Box<dyn Backend> {
    opened(&node(), directory)
}

/// Opens a backend and makes it, as GDM and the process of a guest do.
fn opened(node: &DeviceNode, directory: &Directory) -> Box<dyn Backend> {
    let opened = backend::open(node, directory.text(), |_| {}).unwrap();
    backend::make(node, opened.into(), |_| {}).unwrap()
}

fn node() -> DeviceNode {
    DeviceNode {
        vm: "hostile".into(),
        kind: DeviceKind::Console,
        ..testing::node()
    }
}

#[test]
fn a_disk_withstands_all_attacks() {
    let directory = Directory::new("hostile-disk");
    let mut attacked = Attacked::new(disk(&directory), RAM_SIZE);
    let counts = attacked.attack(Kind::Block, 400, 1);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
    assert!(counts.broken > 100 && counts.honest > 100, "{counts:?}");
    let content = std::fs::read(directory.path().join("disk")).unwrap();
    assert_eq!(content.len() as u64, SECTORS * SECTOR);
    let kept = (WRITTEN_SECTORS * SECTOR) as usize;
    let mut bytes = (kept as u64..).zip(&content[kept..]);
    assert!(bytes.all(|(at, byte)| *byte == sector_byte(at / SECTOR)));
}

#[test]
fn a_console_withstands_all_attacks() {
    let directory = Directory::new("hostile-console");
    let mut attacked = Attacked::new(|| console(&directory), RAM_SIZE);
    let counts = attacked.attack(Kind::Console, 400, 2);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
}

#[test]
fn entropy_withstands_all_attacks() {
    let mut attacked = Attacked::new(|| Box::new(Rng), RAM_SIZE);
    let counts = attacked.attack(Kind::Rng, 400, 3);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
}

/// A program is connected all the time, and others come and go.
#[test]
fn sockets_withstand_all_attacks() {
    let directory = Directory::new("hostile-vsock");
    let mut attacked = Attacked::new(|| sockets(&directory), RAM_SIZE);
    let counts = attacked.attack(Kind::Vsock, 400, 5);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
}

#[test]
fn an_input_device_withstands_all_attacks() {
    let directory = Directory::new("hostile-input");
    let mut attacked = Attacked::new(|| input(&directory), RAM_SIZE);
    let counts = attacked.attack(Kind::Input, 400, 6);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
}

/// Shows that the attacks find what they look for.
#[test]
fn a_device_model_that_is_wrong_about_the_memory_is_found_out() {
    let directory = Directory::new("hostile-planted");
    let mut attacked = Attacked::new(disk(&directory), RAM_SIZE + BEHIND);
    let counts = attacked.attack(Kind::Block, 10, 4);
    assert!(counts.violations > 10, "{counts:?}");
    let changed = attacked.violations.iter();
    assert!(changed.filter(|text| text.contains("has changed")).count() > 0);
}
