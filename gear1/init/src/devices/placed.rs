//! Where PCI functions answer that VMs own apart from their bridge: init sizes and places them
//! before a VM runs, since a VM that places its own could place them over another VM's.
//!
//! Each BAR has whole pages of the bridge's windows for itself, which stage 2 gives to the VM at
//! the physical address. All other functions of the bus are off: firmware may have left one that
//! answers, or masters the bus, where a VM's is now. What is wrong ends the boot: a VM without its
//! function, or a neighbour that shares it, is not what the manifest says.
//!
//! Section numbers are those of the PCI Local Bus Specification 3.0.
//!
//! Requirements: G1-DMA-007.

use alloc::vec::Vec;

use gear1_abi::boot::BARS;
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::pci::{BUS_SIZE, COMMAND, FIRST_BAR, FUNCTION_SIZE, MEMORY, NO_FUNCTION, ROM};
use gear1_core::physical::PhysicalMemory;

use super::functions::{Bridge, DEVICE_SIZE, Function};
use super::{Interrupt, Owned};
use crate::fdt::bus::PciWindow;
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, merged};

/// Words of the header: status, class, header type, capabilities, interrupt pin (6.1).
const STATUS: u64 = 4;
const CLASS: u64 = 8;
const HEADER_TYPE: u64 = 0xc;
const CAPABILITIES: u64 = 0x34;
const PIN: u64 = 0x3c;
/// Bit of the word of the status: there is a list of capabilities (6.2.3).
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Bits of the header type: of a device with several functions, and the layout, 0 of a function
/// that is no bridge (6.2.1).
const SEVERAL_FUNCTIONS: u32 = 0x80;
const LAYOUT: u32 = 0x7f;
/// Base class and subclass of a host bridge (appendix D).
const HOST_BRIDGE: u32 = 0x0600;
/// Capability of registers that have fixed addresses instead of BARs (PCI Express Base
/// Specification, 7.8.5).
const ENHANCED_ALLOCATION: u32 = 0x14;
/// Capability of PCI Express, its word of what the device is able to do, and the bits of requester
/// IDs of functions that are not there (PCI Express Base Specification, 7.5.3.3).
const EXPRESS: u32 = 0x10;
const DEVICE_CAPABILITIES: u64 = 4;
const PHANTOM_FUNCTIONS: u32 = 0b11 << 3;
/// Where extended capabilities begin, how many there may be, that of virtual functions, and the
/// word of its control, by which they answer and master the bus (the same, 7.6.2 and 9.3.3).
const FIRST_EXTENDED: u64 = 0x100;
const MAX_EXTENDED: u32 = 960;
const SR_IOV: u32 = 0x10;
const SR_IOV_CONTROL: u64 = 8;
/// Bit of the command: the function does not drive its line (6.2.2).
const INTX_DISABLE: u32 = 1 << 10;
/// Most capabilities in the 192 bytes behind the header.
const MAX_CAPABILITIES: u32 = 48;
/// Flags of a BAR: in I/O space, of 64 bits, and all bits that are no address (6.2.5.1).
const IO: u32 = 1;
const WIDTH: u32 = 0b110;
const WIDTH_64: u32 = 0b100;
const FLAGS: u32 = 0xf;

/// What is free of the windows of each bridge, by the bridge's configuration space.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Vec<(u64, Vec<PciWindow>)>);

impl Rooms {
    /// Tells whether no bridge has functions of VMs.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the free parts of a bridge's windows. The first VM that owns functions of the bridge
    /// has all functions turned off.
    fn of<M: PhysicalMemory>(&mut self, bridge: &Bridge, memory: &mut M) -> &mut Vec<PciWindow> {
        let start = bridge.space.start;
        let known = self.0.iter().position(|(space, _)| *space == start);
        let index = known.unwrap_or_else(|| {
            turn_off(start, memory);
            self.0.push((start, bridge.windows.clone()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }
}

/// Places the functions that a VM owns apart from their bridge, and gives the VM their registers
/// and interrupts. Without a machine, as where a manifest is checked, nothing is known of them.
pub(crate) fn place<M: PhysicalMemory>(
    owned: &mut Owned<'_>,
    rooms: &mut Rooms,
    memory: &mut M,
) -> Result<(), Refusal> {
    let Some(bridge) = &owned.bridge else {
        return Ok(());
    };
    let reached = memory.reach_registers(bridge.space.start..bridge.space.end);
    let is_there = reached.map_err(|error| {
        let path = &bridge.path;
        refusal!(Board, "{path}: reg: cannot be mapped: {error:?}")
    })?;
    if !is_there {
        return Ok(());
    }
    let free = rooms.of(bridge, memory);
    let mut pages = owned.pages.clone();
    for function in &mut owned.functions {
        let mut bus = On {
            start: function.space.start,
            memory,
        };
        bus.check(function.path)?;
        pages.extend(bus.place(function, free)?);
        let interrupt = bus.interrupt(function)?;
        if let Some(interrupt) = interrupt.filter(|one| !owned.interrupts.contains(one)) {
            owned.interrupts.push(interrupt);
        }
    }
    owned.pages = merged(pages);
    Ok(())
}

/// Turns all functions of a bus off. A device without several functions may answer for its first
/// one at the others' addresses (6.2.1). The host bridge is left on, as it passes accesses on.
fn turn_off<M: PhysicalMemory>(space: u64, memory: &mut M) {
    for device in (0..BUS_SIZE).step_by(DEVICE_SIZE as usize) {
        for function in (0..DEVICE_SIZE).step_by(FUNCTION_SIZE as usize) {
            let mut bus = On {
                start: space + device + function,
                memory,
            };
            if bus.read(0) != NO_FUNCTION && !bus.is_host_bridge() {
                // planted: what firmware has left on stays on beside a VM's function
                bus.turn_off();
            }
            if function == 0 && bus.header_type() & SEVERAL_FUNCTIONS == 0 {
                break;
            }
        }
    }
}

/// A function on its bus.
struct On<'m, M> {
    /// Configuration space (PA).
    start: u64,
    memory: &'m mut M,
}

impl<M: PhysicalMemory> On<'_, M> {
    fn read(&self, offset: u64) -> u32 {
        self.memory.read_register32(Pa::new(self.start + offset))
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.memory
            .write_register32(Pa::new(self.start + offset), value);
    }

    fn header_type(&self) -> u32 {
        self.read(HEADER_TYPE) >> 16 & 0xff
    }

    fn is_host_bridge(&self) -> bool {
        self.read(CLASS) >> 16 == HOST_BRIDGE
    }

    /// Has the function answer nowhere, master nothing and drive no line, of which VMs' functions
    /// may have a part (6.2.2), and its virtual functions neither.
    fn turn_off(&mut self) {
        self.write(COMMAND, INTX_DISABLE);
        if let Some(virtualization) = self.extended(SR_IOV) {
            self.write(virtualization + SR_IOV_CONTROL, 0);
        }
    }

    /// Returns the offset of an extended capability (PCI Express Base Specification, 7.6.3).
    fn extended(&self, wanted: u32) -> Option<u64> {
        let mut at = FIRST_EXTENDED;
        for _ in 0..MAX_EXTENDED {
            let capability = self.read(at);
            if capability == 0 || capability == NO_FUNCTION {
                return None;
            }
            if capability & 0xffff == wanted {
                return Some(at);
            }
            at = u64::from(capability >> 20 & !3);
            if at < FIRST_EXTENDED {
                return None;
            }
        }
        None
    }

    /// Refuses what is no function that can be given away.
    fn check(&self, path: &str) -> Result<(), Refusal> {
        if self.read(0) == NO_FUNCTION {
            return Err(refusal!(Board, "{path}: no PCI function answers there"));
        }
        if self.header_type() & LAYOUT != 0 || self.is_host_bridge() {
            return Err(refusal!(
                Board,
                "{path}: a bridge: functions of the first bus can be given away, and no bridges"
            ));
        }
        if self.is_alias() {
            return Err(refusal!(
                Board,
                "{path}: its device has one function, function 0"
            ));
        }
        let express = self.capability(EXPRESS);
        let device = express.map_or(0, |express| self.read(express + DEVICE_CAPABILITIES));
        if device & PHANTOM_FUNCTIONS != 0 {
            return Err(refusal!(
                Board,
                "{path}: it may use requester IDs of other functions (Phantom Functions), which is \
                 not supported"
            ));
        }
        if self.capability(ENHANCED_ALLOCATION).is_some() {
            return Err(refusal!(
                Board,
                "{path}: its registers have fixed addresses (Enhanced Allocation), which is not \
                 supported"
            ));
        }
        Ok(())
    }

    /// Tells whether what answers may be the device's first function, which a device without others
    /// may show at all their places (6.2.1).
    fn is_alias(&self) -> bool {
        let first = self.start & !(DEVICE_SIZE - 1);
        let header = self.memory.read_register32(Pa::new(first + HEADER_TYPE));
        self.start != first && header >> 16 & SEVERAL_FUNCTIONS == 0
    }

    /// Returns the offset of a capability (6.7).
    fn capability(&self, wanted: u32) -> Option<u64> {
        let is_there = self.read(STATUS) & HAS_CAPABILITIES != 0;
        let mut at = if is_there { self.read(CAPABILITIES) } else { 0 };
        for _ in 0..MAX_CAPABILITIES {
            at &= 0xfc;
            if at == 0 {
                return None;
            }
            let capability = self.read(at.into());
            if capability & 0xff == wanted {
                return Some(at.into());
            }
            at = capability >> 8;
        }
        None
    }

    /// Places the function's BARs in what is free, and has the function answer there. Returns the
    /// pages that the CPU sees.
    fn place(
        &mut self,
        function: &mut Function<'_>,
        free: &mut [PciWindow],
    ) -> Result<Vec<Region>, Refusal> {
        self.write(ROM, 0);
        let mut pages = Vec::new();
        let mut bar = 0;
        while bar < BARS {
            let (size, words) = self.size(function, bar);
            if size != 0 {
                let whole = Some(size.max(PAGE_SIZE)).filter(|size| size.is_power_of_two());
                let room = whole.and_then(|size| take(free, size, words == 2));
                let (address, region) = room.ok_or_else(|| {
                    let path = function.path;
                    refusal!(
                        Board,
                        "{path}: the bridge's windows have no room left for {size:#x} bytes of BAR \
                         {bar}"
                    )
                })?;
                let is_set = self.set(
                    function,
                    bar,
                    [address as u32, (address >> 32) as u32],
                    words,
                );
                if !is_set {
                    let path = function.path;
                    return Err(refusal!(
                        Board,
                        "{path}: BAR {bar} does not keep the address {address:#x}"
                    ));
                }
                pages.push(region);
            }
            bar += words;
        }
        self.write(COMMAND, MEMORY);
        Ok(pages)
    }

    /// Asks a BAR for its size in bytes, 0 of one that no VM needs, and notes the answer. Returns
    /// also how many words the BAR has.
    fn size(&mut self, function: &mut Function<'_>, bar: usize) -> (u64, usize) {
        let low = self.ask(bar);
        if low == 0 || low & IO != 0 {
            return (0, 1);
        }
        let is_64 = low & WIDTH == WIDTH_64 && bar + 1 < BARS;
        let high = if is_64 { self.ask(bar + 1) } else { u32::MAX };
        let mask = u64::from(high) << 32 | u64::from(low & !FLAGS);
        let words = if is_64 { 2 } else { 1 };
        for (slot, answer) in function
            .sizes
            .iter_mut()
            .skip(bar)
            .zip([low, high])
            .take(words)
        {
            *slot = answer;
        }
        (mask.wrapping_neg(), words)
    }

    /// Returns which bits of a BAR's word can be set.
    fn ask(&mut self, bar: usize) -> u32 {
        let offset = FIRST_BAR + 4 * bar as u64;
        self.write(offset, u32::MAX);
        let answer = self.read(offset);
        self.write(offset, 0);
        answer
    }

    /// Writes a BAR, and notes what it reads as: the address, and flags that nobody changes.
    /// Returns whether the address is there.
    fn set(
        &mut self,
        function: &mut Function<'_>,
        bar: usize,
        address: [u32; 2],
        words: usize,
    ) -> bool {
        let mut is_set = true;
        for (index, word) in address.into_iter().enumerate().take(words) {
            let offset = FIRST_BAR + 4 * (bar + index) as u64;
            self.write(offset, word);
            let kept = self.read(offset);
            // Of the second word all bits are address.
            let flags = if index == 0 { FLAGS } else { 0 };
            is_set &= kept & !flags == word;
            if let Some(slot) = function.bars.get_mut(bar + index) {
                *slot = kept;
            }
        }
        is_set
    }

    /// Returns the function's interrupt; `None`: it has no line (6.2.4).
    fn interrupt(&self, function: &Function<'_>) -> Result<Option<Interrupt>, Refusal> {
        let pin = (self.read(PIN) >> 8 & 0xff) as usize;
        let Some(line) = pin.checked_sub(1) else {
            return Ok(None);
        };
        let found = function.lines.get(line).copied().flatten();
        let found = found.ok_or_else(|| {
            let path = function.path;
            refusal!(
                Board,
                "{path}: interrupt-map of the bridge leads line {pin} to no shared interrupt of \
                 the GIC"
            )
        })?;
        Ok(Some(found))
    }
}

/// Takes `size` bytes, a power of two, of a window with room, aligned to the size. A BAR of 64 bits
/// leaves addresses of 32 bits to others, where it can. Nothing is placed at 0, where a function
/// may answer for a moment that is reset. Returns the address on the bus, and where the CPU sees
/// it.
fn take(free: &mut [PciWindow], size: u64, is_64: bool) -> Option<(u64, Region)> {
    let first = if is_64 {
        PciWindow::MEMORY[1]
    } else {
        PciWindow::MEMORY[0]
    };
    let mut windows: Vec<&mut PciWindow> = free
        .iter_mut()
        .filter(|one| PciWindow::MEMORY.contains(&one.space))
        .collect();
    windows.sort_by_key(|window| window.space != first);
    windows.into_iter().find_map(|window| {
        let start = window.pci.max(1).checked_next_multiple_of(size)?;
        let end = start.checked_add(size)?;
        let offset = end.checked_sub(window.pci)?;
        let fits = offset <= window.region.bytes() && (is_64 || end <= 1 << 32);
        fits.then(|| {
            let cpu_end = window.region.start + offset;
            // planted: two functions answer at one address
            (window.pci, window.region.start) = (end, cpu_end);
            (start, Region::new(cpu_end - size, cpu_end))
        })
    })
}

#[cfg(test)]
mod tests;
