//! Configuration space as a VM sees it, against a model of a function that keeps what it is told,
//! and forgets all of it in a reset.
//!
//! Requirements: G1-DMA-007.

use std::cell::RefCell;
use std::vec::Vec;

use gear1_abi::boot::BootFunction;

use super::{
    Access, CONVENTIONAL_SIZE, ConfigSpace, FIRST_BAR, MEMORY, NOT_ASKED, ROM, SizedBars, read,
    write,
};

const COMMAND: u64 = super::COMMAND;
const STATUS: u64 = 6;
/// Device control of a PCI Express capability at 0x40, whose bit 15 resets the function (PCIe
/// 7.5.3.4), and device status behind it, whose bits a 1 clears.
const DEVICE_CONTROL: u64 = 0x48;
const DEVICE_STATUS: u64 = 0x4a;
const RESET: u32 = 1 << 15;
const BAR0: u32 = 0x1000_0000;
/// A BAR of 64 bits and 16 KiB.
const BAR2: [u32; 2] = [0x0000_000c, 0x80];

/// A function with 256 bytes of configuration space, of which all is written but the identity and
/// the low bits of BARs.
struct Model {
    bytes: [u8; 4096],
    /// Writes in order: offset, size in bytes, value.
    writes: Vec<(u64, u8, u32)>,
    /// A reset that another vCPU has begun takes effect with this many more accesses.
    resets_in: RefCell<Option<usize>>,
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            bytes: [0; 4096],
            writes: Vec::new(),
            resets_in: RefCell::new(None),
        };
        model.put(0, 4, 0x11e8_1234);
        model.put(DEVICE_STATUS, 2, 0xf);
        model.put(0x100, 4, 0x0001_000f);
        model
    }

    fn put(&mut self, offset: u64, size: usize, value: u32) {
        let at = offset as usize;
        self.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    fn get(&self, offset: u64, size: usize) -> u32 {
        let mut word = [0; 4];
        let at = offset as usize;
        word[..size].copy_from_slice(&self.bytes[at..at + size]);
        u32::from_le_bytes(word)
    }

    /// Counts down to the other vCPU's reset.
    fn is_reset_now(&self) -> bool {
        let mut left = self.resets_in.borrow_mut();
        *left = left.map(|left| left.wrapping_sub(1));
        left.take_if(|left| *left == 0).is_some()
    }

    /// The command and the BARs are 0 after a reset.
    fn reset(&mut self) {
        self.put(COMMAND, 2, 0);
        (0..6).for_each(|bar| self.put(FIRST_BAR + bar * 4, 4, 0));
    }
}

impl ConfigSpace for Model {
    fn read(&self, access: Access) -> u32 {
        self.get(access.offset(), 1 << access.size_log2())
    }

    fn write(&mut self, access: Access, value: u32) {
        let (offset, size) = (access.offset(), 1 << access.size_log2());
        if self.is_reset_now() {
            self.reset();
        }
        self.writes.push((offset, size, value));
        if offset == DEVICE_STATUS {
            let old = self.get(offset, 2);
            self.put(offset, 2, old & !value);
        } else {
            self.put(offset, size.into(), value);
        }
        if offset == DEVICE_CONTROL && value & RESET != 0 {
            self.reset();
        }
    }
}

/// A function with a BAR of 1 MiB, one of 64 bits, and one in I/O space, as init hands them over.
fn function() -> BootFunction {
    BootFunction {
        space: 0x40_1000_8000,
        vm: 1,
        bars: [BAR0, 0, BAR2[0], BAR2[1], 0, 0],
        sizes: [0xfff0_0000, 0, 0xffff_c00c, u32::MAX, 0, 0],
    }
}

/// The function as init leaves it, and what its VM does.
struct Vm {
    function: BootFunction,
    sized: SizedBars,
    model: Model,
}

impl Vm {
    fn new() -> Self {
        let mut model = Model::new();
        let function = function();
        for (bar, value) in (FIRST_BAR..).step_by(4).zip(function.bars) {
            model.put(bar, 4, value);
        }
        Self {
            function,
            sized: NOT_ASKED[0],
            model,
        }
    }

    fn read(&self, offset: u64, size_log2: u8) -> u32 {
        let access = Access::new(offset, size_log2).unwrap();
        read(&self.function, self.sized, access, &self.model)
    }

    fn write(&mut self, offset: u64, size_log2: u8, value: u32) {
        let access = Access::new(offset, size_log2).unwrap();
        write(
            &self.function,
            &mut self.sized,
            access,
            value,
            &mut self.model,
        );
    }

    /// Returns the BARs that the function has.
    fn bars(&self) -> [u32; 6] {
        core::array::from_fn(|bar| self.model.get(FIRST_BAR + bar as u64 * 4, 4))
    }
}

#[test]
fn a_driver_finds_the_sizes_of_bars_and_init_s_addresses() {
    let mut vm = Vm::new();
    for (bar, size) in [(0, 0xfff0_0000), (2, 0xffff_c00c), (3, u32::MAX), (1, 0)] {
        let offset = FIRST_BAR + bar * 4;
        let before = vm.read(offset, 2);
        vm.write(offset, 2, u32::MAX);
        assert_eq!(vm.read(offset, 2), size, "BAR {bar}");
        vm.write(offset, 2, before);
        assert_eq!(vm.read(offset, 2), function().bars[bar as usize]);
    }
    // Drivers may leave the flags out.
    vm.write(FIRST_BAR, 2, 0xffff_fff0);
    assert_eq!(vm.read(FIRST_BAR + 2, 1), 0xfff0);
    assert!(vm.model.writes.is_empty());
}

#[test]
fn a_bar_stays_where_init_has_put_it() {
    let mut vm = Vm::new();
    for (offset, size_log2) in [(FIRST_BAR, 2), (FIRST_BAR + 2, 1), (FIRST_BAR + 3, 0)] {
        vm.write(offset, size_log2, 0x2000_0000);
    }
    vm.write(ROM, 2, 0x2000_0001);
    assert!(vm.model.writes.is_empty());
    assert_eq!(vm.read(FIRST_BAR, 2), BAR0);
    assert_eq!(vm.read(ROM, 2), 0);
}

#[test]
fn a_function_answers_where_init_has_put_it_after_a_reset() {
    let mut vm = Vm::new();
    vm.write(DEVICE_CONTROL, 1, RESET);
    assert_eq!(vm.bars(), [0; 6]);
    vm.write(COMMAND, 1, MEMORY | 4);
    assert_eq!(vm.bars(), function().bars);
    assert_eq!(vm.read(COMMAND, 1), MEMORY | 4);
    // By a byte as well.
    vm.write(DEVICE_CONTROL, 1, RESET);
    vm.write(COMMAND, 0, MEMORY);
    assert_eq!(vm.bars(), function().bars);
}

#[test]
fn a_function_is_silent_if_it_is_reset_while_it_is_set_up() {
    // Of the BARs three words are written, and then the command.
    for accesses in 1..=4 {
        let mut vm = Vm::new();
        *vm.model.resets_in.borrow_mut() = Some(accesses);
        vm.write(COMMAND, 1, MEMORY | 4);
        let answers = vm.read(COMMAND, 1) & MEMORY != 0;
        let is_placed = vm.bars() == function().bars;
        assert!(!answers || is_placed, "reset in access {accesses}");
        assert_eq!(answers, accesses == 1, "reset in access {accesses}");
    }
}

#[test]
fn nobody_answers_in_io_space() {
    let mut vm = Vm::new();
    vm.write(COMMAND, 1, 0x407);
    assert_eq!(vm.read(COMMAND, 1), 0x406);
    vm.write(COMMAND, 2, 1);
    assert_eq!(vm.read(COMMAND, 1), 0);
}

#[test]
fn extended_configuration_space_is_not_there() {
    let mut vm = Vm::new();
    for (size_log2, ones) in [(2, u32::MAX), (1, 0xffff), (0, 0xff)] {
        assert_eq!(vm.read(CONVENTIONAL_SIZE, size_log2), ones);
        assert_eq!(vm.read(0xffc, size_log2), ones);
        vm.write(CONVENTIONAL_SIZE, size_log2, 0);
    }
    assert!(vm.model.writes.is_empty());
}

#[test]
fn a_write_has_the_size_that_the_vm_chose() {
    let mut vm = Vm::new();
    vm.write(DEVICE_CONTROL, 1, 0x2810);
    assert_eq!(vm.model.writes, [(DEVICE_CONTROL, 2, 0x2810)]);
    assert_eq!(vm.read(DEVICE_STATUS, 1), 0xf);
    vm.write(DEVICE_STATUS, 1, 1);
    assert_eq!(vm.read(DEVICE_STATUS, 1), 0xe);
    vm.write(STATUS, 1, 0xf900);
    assert_eq!(vm.model.writes.last(), Some(&(STATUS, 2, 0xf900)));
}

#[test]
fn of_the_header_a_vm_writes_what_concerns_the_function() {
    let mut vm = Vm::new();
    for offset in (0..COMMAND).chain(8..0x40) {
        vm.write(offset, 0, 0xff);
    }
    let written: Vec<_> = vm.model.writes.iter().map(|write| write.0).collect();
    // Cache line size, latency timer, interrupt line.
    assert_eq!(written, [0xc, 0xd, 0x3c]);
    vm.write(0xc, 2, u32::MAX);
    assert_eq!(vm.model.writes.last(), Some(&(0xc, 4, 0xffff)));
}

#[test]
fn configuration_space_has_aligned_accesses_of_up_to_four_bytes() {
    for (offset, size_log2) in [(0, 3), (1, 1), (2, 2), (0x1000, 0), (u64::MAX, 0)] {
        assert_eq!(Access::new(offset, size_log2), None, "{offset:#x}");
    }
    assert_eq!(Access::new(0xffe, 1).map(Access::offset), Some(0xffe));
}
