//! The region that Gear2 shares with the device model: slots, mailbox, console rings, whatever the
//! device VM writes there.
//!
//! An input is a row of pieces of 16 bytes: byte 0 chooses the event, byte 1 the part of the
//! region, byte 2 the place in it, and bytes 8 to 15 are the value. The first two pieces are
//! written before Gear2 starts, as of a device VM that was quicker, and as of a region that an
//! earlier Gear2 left.
//!
//! Gear2 is the real one, with its loop; Gear1 and the UART are the smallest that it runs on. The
//! check is at the border between the two gears: whatever the region says, no call of Gear2's
//! concerns a vCPU, a VM or an interrupt that the manifest does not connect with the device VM.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::{Status, number};
use gear1_abi::event::{Event, Mmio};
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VMS, VcpuId};
use gear1_abi::info::{Gear2Info, INFO_MAGIC, uart};
use gear1_abi::regs::Regs;
use gear2_core::{Conduit, Config, CpuLoop, Kept, Machine, Platform, Shared, Times, Uart};
use gear2_protocol::device_word::{
    FEATURES, LOOKING, RAM_END, RESET_ASKED, RESET_SEEN, SET_UP, SIZES,
};
use gear2_protocol::virtio::{QUEUES, word};
use gear2_protocol::{ConsoleRing, MAGIC, MmioSlot, PROTOCOL_VERSION, Region, RegisterPage};

/// The manifest of the machine: a device VM, and a guest with a disk.
static MANIFEST: Aligned<{ include_bytes!("region.dtb").len() }> =
    Aligned(*include_bytes!("region.dtb"));
/// Number of VMs, with a vCPU each.
const VMS: u64 = 2;
/// Bytes of a piece. Two words of 64 bits.
const PIECE: usize = 16;
/// Slots, words and devices that are written. Few, so that two pieces of an input meet in one
/// place.
const PLACES: usize = 4;
/// Guest address of its disk.
const VIRTIO: u64 = gearv_manifest::Vm::DEFAULT_VIRTIO;

/// Bytes at an address that the reader of blobs accepts: `include_bytes!` aligns to one byte.
#[repr(align(4))]
struct Aligned<const COUNT: usize>([u8; COUNT]);

/// The platform: no UART, and locks of one thread.
struct Fuzzed;

impl Platform for Fuzzed {
    type Uart = Silent;
    type Relax = spin::relax::Spin;
}

/// A UART that takes everything: what Gear2 prints is not the matter here.
struct Silent;

impl Uart for Silent {
    fn send(&mut self, _: u8) -> bool {
        true
    }

    fn receive(&mut self) -> Option<u8> {
        None
    }

    fn interrupt_when_room(&mut self, _: bool) {}
}

/// A Gear1 that accepts every call, and checks its arguments.
struct Gear1 {
    // Goes on with each call and event, because Gear2 computes with differences of it.
    now: u64,
}

impl Conduit for Gear1 {
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs {
        self.now += 1;
        check_arguments(NUMBER, arguments);
        match NUMBER {
            // Gear2 was restarted once: it takes over the state that it finds.
            number::VERSION => [0, 0x1_0000, self.now, 1, 0, 0, 0, 0],
            number::LOG_READ => [Status::NotFound as u64, 0, 0, 0, 0, 0, 0, 0],
            _ => [0; 8],
        }
    }
}

/// No text in the region makes Gear2 name a vCPU or a VM that there is not, or end the machine.
fn check_arguments(call: u16, [first, second, ..]: Regs) {
    match call {
        number::VCPU_STATE
        | number::VCPU_WAITS
        | number::VCPU_REPLY
        | number::VCPU_ASSIGN
        | number::EXIT_STATS => {
            assert!(first < 32, "there is no vCPU {first}");
        }
        number::VM_STATE | number::VM_STOP | number::VM_LOAD | number::VM_START => {
            assert!(first < VMS, "there is no VM {first}");
        }
        number::IRQ_SET => assert!(first < VMS && second >= 32),
        // Gear2's own, or the disk's.
        number::PL061_RAISE => assert!(matches!((first, second), (0, 0..8) | (1, 0))),
        number::POKE => assert_eq!(first, 0),
        number::CHANNEL_RING => panic!("no VM tells another"),
        number::SYSTEM => panic!("the device VM powers the machine off"),
        _ => {}
    }
}

/// Each piece says which event comes, which part of the region is written before, and what stands
/// there then. What the first two write is there when Gear2 starts.
pub(crate) fn run(bytes: &[u8]) {
    /// Static, as Gear2 wants it for its lifetime; each run begins with a cleared one.
    static REGION: Region = Region::new();
    static KEPT: Kept = Kept::new();
    static PAGES: [RegisterPage; VMS as usize] = [const { RegisterPage::new() }; VMS as usize];
    let mut gear1 = Gear1 { now: 0 };
    clear(&REGION);
    let (before, after) = bytes.split_at(bytes.len().min(PIECE * 2));
    before.chunks(PIECE).for_each(|piece| fill(&REGION, piece));
    let shared = Some(Shared {
        region: &REGION,
        pages: &PAGES,
    });
    let machine: Machine<Fuzzed> = Machine::new(config(), None, shared, &KEPT, &mut gear1);
    let mut cpu_loop = CpuLoop::new(&machine, CpuIndex::default());
    let _first = cpu_loop.start(&mut gear1);
    for piece in after.chunks(PIECE) {
        fill(&REGION, piece);
        gear1.now += 1000;
        let times = Times {
            began: gear1.now - 500,
            now: gear1.now,
            waited: 0,
        };
        let _decision = cpu_loop.on_event(&mut gear1, event(piece), times);
    }
}

/// Returns the event of a piece: an access to the guest's disk, the end of a deadline, a doorbell.
fn event(piece: &[u8]) -> Event {
    let guest = VcpuId::new(1).expect("there are two");
    let access = Mmio {
        ipa: VIRTIO,
        size_log2: 2,
        store: None,
    };
    match piece.first().copied().unwrap_or(0) & 3 {
        0 => Event::Mmio(guest, access),
        1 => Event::Deadline(None),
        _ => Event::Doorbell(None),
    }
}

/// Returns the configuration, which each thread reads once.
fn config() -> Config {
    thread_local! {
        static CONFIG: RefCell<Option<Config>> = const { RefCell::new(None) };
    }
    CONFIG.with_borrow_mut(|config| config.get_or_insert_with(read_config).clone())
}

/// A manifest that is refused is a fault of this target, since its bytes are never changed.
fn read_config() -> Config {
    match Config::new(&info(), &MANIFEST.0) {
        Ok(config) => config,
        Err(error) => panic!("the manifest of this target: {error}"),
    }
}

/// Returns what Gear1 tells Gear2 of the machine: one CPU, and a vCPU for each VM.
fn info() -> Gear2Info {
    let mut info = Gear2Info {
        magic: INFO_MAGIC,
        abi_version: gear1_abi::ABI_VERSION,
        cpu_count: 1,
        vm_count: VMS as u32,
        counter_hz: 1_000_000,
        manifest_size: MANIFEST.0.len() as u64,
        heap_size: 1 << 20,
        uart_kind: uart::NONE,
        uart_intid: 0,
        shared_size: gear2_protocol::REGION_SIZE as u64,
        cpu_mask: 1,
        mpidr: [0; MAX_CPUS],
        cluster: [0; MAX_CPUS],
        first_vcpu: [0; MAX_VMS],
        vcpu_count: [0; MAX_VMS],
        register_pages: 0,
        smmu_intid: 0,
        trace_size: 0,
    };
    for vm in 0..VMS as usize {
        info.first_vcpu[vm] = vm as u16;
        info.vcpu_count[vm] = 1;
    }
    info
}

/// Words of a device's page that Gear2 reads, beside RESET_SEEN.
const WORDS: [usize; 10] = [
    RESET_ASKED,
    LOOKING,
    SET_UP,
    SIZES,
    FEATURES,
    RAM_END,
    word::STATUS,
    word::QUEUE_SEL,
    word::DRIVER_FEATURES_SEL,
    QUEUES,
];

/// Puts every part that is written back; all of the region would take too long.
fn clear(region: &Region) {
    for place in 0..(WORDS.len() * PLACES) as u8 {
        for part in 0..16 {
            let mut piece = [0; PIECE];
            piece[1] = part;
            piece[2] = place;
            fill(region, &piece);
        }
    }
    region.header.version.store(PROTOCOL_VERSION, Relaxed);
    region.header.magic.store(MAGIC, Relaxed);
}

/// Writes what a piece says into one of the parts that mean something.
fn fill(region: &Region, piece: &[u8]) {
    let mut padded = [0_u8; PIECE];
    padded[..piece.len()].copy_from_slice(piece);
    let value = u64::from_le_bytes(padded[8..].try_into().unwrap_or_default());
    let word = value as u32;
    let [_, place, index, ..] = padded;
    let index = usize::from(index);
    let control = &region.control;
    match place % 16 {
        0 => region.header.gdm_starts.store(word, Relaxed),
        1 => region.header.gdm_beats.store(word, Relaxed),
        part @ 2..=6 => {
            let page = &region.slots[index / PLACES % VMS as usize];
            fill_slot(&page[index % PLACES], part, value);
        }
        7 => control.asked.store(word, Relaxed),
        8 => control.op.store(word, Relaxed),
        9 => control.arguments[index % PLACES].store(value, Relaxed),
        part @ 10..=13 => fill_ring(&region.consoles[index % VMS as usize].ring, part, word),
        14 => region.devices[index % PLACES][RESET_SEEN].store(value, Relaxed),
        _ => {
            let word = WORDS[index / PLACES % WORDS.len()];
            region.devices[index % PLACES][word].store(value, Relaxed);
        }
    }
}

/// Writes a word of a slot, of which the value alone has 64 bits.
fn fill_slot(slot: &MmioSlot, part: u8, value: u64) {
    let word = value as u32;
    match part {
        2 => slot.state.store(word, Relaxed),
        3 => slot.device.store(word, Relaxed),
        4 => slot.register.store(word, Relaxed),
        5 => slot.access.store(word, Relaxed),
        _ => slot.value.store(value, Relaxed),
    }
}

/// Writes a counter of a console's ring. Two of the four are Gear2's own, and nothing keeps the
/// device VM from writing them too.
fn fill_ring(ring: &ConsoleRing, part: u8, word: u32) {
    match part {
        10 => ring.input_written.store(word, Relaxed),
        11 => ring.input_read.store(word, Relaxed),
        12 => ring.output_read.store(word, Relaxed),
        _ => ring.output_written.store(word, Relaxed),
    }
}
