//! Where the processes of GDM find memory, registers and lines.
//!
//! Owns: the paths of the device VM's kernel, and what of all that one process maps. The process
//! of a guest maps what is that guest's: the protocol has a page for each VM.

use core::mem::offset_of;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use gear2_protocol::{
    DOORBELL_GEAR2, Header, REGION_SIZE, Region, VIRTIO_STRIDE, doorbell_arm, doorbell_device,
    doorbell_page, line_of_channel, offset,
};
use vm_memory::FileOffset;
use vmm_sys_util::eventfd::EventFd;

use crate::board::{Board, DOORBELLS, DeviceNode, PAGE, REGISTER_PAGES};
use crate::gpio::{self, Line};
use crate::mapping::{self, Doorbell, Mapping, Registers};
use crate::memory::Memory;
use crate::state::DeviceState;
use crate::worker::{Away, LINGER_US, LONGEST_US, Wiring};

/// Sources of memory, registers and lines, by physical address.
pub trait Hardware: Debug + Sync {
    /// Returns the file of memory that another VM has too, and its place there.
    fn memory(&self, address: u64, size: usize) -> io::Result<FileOffset>;

    /// Returns the file of pages that no driver claims, and their place there.
    fn registers(&self, address: u64) -> io::Result<FileOffset>;

    /// Takes a line of the PL061 at an address.
    fn line(&self, address: u64, line: u32) -> io::Result<Line>;
}

/// The device VM's own kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

impl Hardware for Kernel {
    fn memory(&self, address: u64, size: usize) -> io::Result<FileOffset> {
        mapping::find_dax(Path::new("/sys/bus/dax/devices"), address, size)
    }

    fn registers(&self, address: u64) -> io::Result<FileOffset> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_SYNC);
        Ok(FileOffset::new(options.open("/dev/mem")?, address))
    }

    fn line(&self, address: u64, line: u32) -> io::Result<Line> {
        gpio::Line::open(address, line)
    }
}

/// The doorbell page of GDM's own.
const OWN_DOORBELLS: u32 = 0;

/// Says of an error what it is about.
pub(crate) fn named(what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// Maps a file, all or a part of it.
fn map(file: &FileOffset, size: usize) -> io::Result<Mapping> {
    Mapping::of_file(file.file(), file.start(), size)
}

/// Memory and registers that a process of GDM has mapped.
pub(crate) struct Machine {
    /// Opens memory and lines: those of the machine, or of a test.
    hardware: &'static dyn Hardware,
    /// The region shared with Gear2; of a guest's process, with the guest's own pages alone.
    pub(crate) region: &'static Region,
    /// Doorbell pages by their number in the window: a store to a word there makes Gear1 interrupt
    /// somebody.
    doorbells: BTreeMap<u32, Registers>,
    /// Start of the window in the device VM's physical addresses.
    window: u64,
    /// Guests' RAM by address in this VM: the devices of one VM share a mapping.
    memories: BTreeMap<u64, Memory>,
    /// Register pages by their number in the window; a VM has one for all of its devices.
    pages: BTreeMap<u32, Mapping>,
}

impl Machine {
    /// Maps what GDM itself has: the whole of the region shared with Gear2, and a doorbell. GDM
    /// itself maps no memory of a guest.
    pub(crate) fn of_gdm(hardware: &'static dyn Hardware, board: &Board) -> Result<Self, String> {
        let file = hardware.memory(board.control, REGION_SIZE);
        let mapping = file.and_then(|file| map(&file, REGION_SIZE));
        let mapping = mapping.map_err(|error| named("shared region", &error))?;
        let region = mapping.region().ok_or("shared region: not aligned")?;
        let mut machine = Self::new(hardware, region, board);
        machine.map_doorbells(OWN_DOORBELLS)?;
        Ok(machine)
    }

    /// Maps what the process of a guest has.
    pub(crate) fn of_guest(
        hardware: &'static dyn Hardware,
        board: &Board,
        devices: &[DeviceNode],
    ) -> Result<Self, String> {
        let region = guests_region(hardware, board, devices);
        let region = region.map_err(|error| named("shared region", &error))?;
        let mut machine = Self::new(hardware, region, board);
        for device in devices {
            machine.map_device(device)?;
        }
        Ok(machine)
    }

    /// Makes a machine of which the region alone is mapped.
    fn new(hardware: &'static dyn Hardware, region: &'static Region, board: &Board) -> Self {
        Self {
            hardware,
            region,
            doorbells: BTreeMap::new(),
            window: board.window,
            memories: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    /// Maps a page of the window.
    fn page(&self, offset: u64) -> io::Result<Mapping> {
        map(
            &self.hardware.registers(self.window + offset)?,
            PAGE as usize,
        )
    }

    /// Maps a doorbell page, unless that is done.
    fn map_doorbells(&mut self, number: u32) -> Result<(), String> {
        let offset = DOORBELLS + u64::from(number) * PAGE;
        if !self.doorbells.contains_key(&number) {
            let page = self.page(offset);
            let page = page.map_err(|error| named("doorbell page", &error))?;
            let page = page.registers(0, PAGE as usize);
            let page = page.ok_or("doorbell page: not aligned")?;
            self.doorbells.insert(number, page);
        }
        Ok(())
    }

    /// Maps what a device needs, unless another device of the VM has mapped it.
    fn map_device(&mut self, device: &DeviceNode) -> Result<(), String> {
        let [ipa, pa, size] = device.memory;
        if let Entry::Vacant(place) = self.memories.entry(pa) {
            let what = format!("RAM of VM {}", device.vm);
            let in_words = |error: io::Error| named(&what, &error);
            let file = self.hardware.memory(pa, size as usize).map_err(in_words)?;
            let mapping = map(&file, size as usize).map_err(in_words)?;
            let memory = mapping.memory_of_file(ipa, file);
            place.insert(memory.ok_or(format!("{what}: out of range"))?);
        }
        let [page, _] = device.registers;
        if !self.pages.contains_key(&page) {
            let mapping = self.page(REGISTER_PAGES + u64::from(page) * PAGE);
            let mapping = mapping.map_err(|error| named("register page", &error))?;
            self.pages.insert(page, mapping);
        }
        self.map_doorbells(doorbell_page(page))
    }

    /// Opens a line of a PL061, which Gear1 emulates in the window.
    pub(crate) fn line(&self, pl061: usize, line: u32) -> Result<Line, String> {
        let address = self.window + pl061 as u64 * PAGE;
        let opened = self.hardware.line(address, line);
        opened.map_err(|error| format!("line {line} of the PL061 at {address:#x}: {error}"))
    }

    /// Returns a doorbell of a page that is mapped.
    fn doorbell(&self, page: u32, offset: usize) -> Result<Doorbell, String> {
        let page = self.doorbells.get(&page).copied();
        let page = page.ok_or("no such doorbell page")?;
        Ok(Doorbell { page, offset })
    }

    /// Returns GDM's own doorbell, which tells Gear2 to look at the region.
    pub(crate) fn own_doorbell(&self) -> Result<Doorbell, String> {
        self.doorbell(OWN_DOORBELLS, DOORBELL_GEAR2)
    }

    /// Returns what the thread of a device gets besides its backend. All is opened here: the thread
    /// may open nothing once it serves. `kick` wakes the thread.
    pub(crate) fn wiring(
        &self,
        device: &DeviceNode,
        kick: EventFd,
        spin: bool,
    ) -> Result<Wiring, String> {
        let name = device.name();
        let [page, offset] = device.registers;
        let [_, pa, _] = device.memory;
        let state = self.region.devices.get(device.channel);
        let state = DeviceState::new(state.ok_or(format!("{name}: no such channel"))?);
        let doorbell = |offset| self.doorbell(doorbell_page(page), offset);
        let page = self.pages.get(&page);
        let registers =
            page.and_then(|page| page.registers(offset as usize, VIRTIO_STRIDE as usize));
        let (pl061, line) = line_of_channel(device.channel);
        Ok(Wiring {
            channel: device.channel,
            vm: device.vm_id,
            region: self.region,
            page: registers.ok_or(format!("{name}: no such register page"))?,
            memory: self.memories.get(&pa).cloned().ok_or("no such RAM")?,
            interrupt: doorbell(doorbell_device(device.channel))?,
            answer: doorbell(DOORBELL_GEAR2)?,
            line: (self.line(pl061, line)?).paced(doorbell(doorbell_arm(pl061))?, line),
            kick,
            orders: None,
            spin,
            linger_us: LINGER_US,
            delay_us: LONGEST_US,
            limit: device.limit,
            away: Away::now(self.region, state),
            name,
        })
    }
}

/// Maps a guest's own pages of the region, each at its place in a region that is otherwise private
/// zeroes. The numbers in the header are a copy: they are constant as long as the machine runs.
fn guests_region(
    hardware: &'static dyn Hardware,
    board: &Board,
    devices: &[DeviceNode],
) -> io::Result<&'static Region> {
    let file = hardware.memory(board.control, REGION_SIZE)?;
    let own = Mapping::of_zeroes(REGION_SIZE)?;
    let place = |at: usize| -> io::Result<()> {
        let from = file.start().saturating_add(at as u64);
        // planted: a process of a guest maps all guests' pages
        // SAFETY: `own` is referred to below only, when all its pages are in place.
        unsafe { own.cover(at, file.file(), from, PAGE as usize) }
    };
    for device in devices {
        place(offset::DEVICES + device.channel * offset::DEVICE_SIZE)?;
        place(offset::MMIO + device.vm_id * PAGE as usize)?;
    }
    let misplaced = || io::Error::other("not aligned");
    let region = own.region().ok_or_else(misplaced)?;
    copy_header(&file, region)?;
    Ok(region)
}

/// Copies what the header says of the machine.
fn copy_header(file: &FileOffset, region: &Region) -> io::Result<()> {
    let words: [u32; size_of::<Header>() / 4] = mapping::read_words(file.file(), file.start())?;
    let word = |at: usize| words.get(at / 4).copied().unwrap_or(0);
    let header = &region.header;
    for (to, at) in [
        (&header.version, offset_of!(Header, version)),
        (&header.vcpu_count, offset_of!(Header, vcpu_count)),
        (&header.vm_count, offset_of!(Header, vm_count)),
        (&header.counter_hz, offset_of!(Header, counter_hz)),
    ] {
        to.store(word(at), Ordering::Relaxed);
    }
    Ok(())
}
