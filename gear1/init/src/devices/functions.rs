//! PCI functions that VMs own apart from their host bridge, as the manifest names them: by the
//! bridge's path and `pci@DEVICE,FUNCTION` in hexadecimal digits (the PCI bus binding to Open
//! Firmware, 2.2.1).
//!
//! The tree tells what a function has of the bridge: configuration space, the StreamID and the
//! interrupt of each line. What the function is, the bus alone tells ([`placed`](super::placed)).
//! Functions of the bridge's first bus are given away, and no bridges among these: what is behind
//! one bridge shares requester IDs and windows.
//!
//! Requirements: G1-BOOT-005, G1-DMA-007.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::boot::{BARS, BootFunction, BootMaster};
use gear1_core::pci::{BUS_SIZE, FUNCTION_SIZE};
use gearv_manifest::Rule;
use gearv_manifest::blob::Node;

use super::pci::{self, LINES, Line};
use super::{Interrupt, Walk, keeps, streams};
use crate::fdt::bus::{Bus, PciWindow};
use crate::refusal::{Fault, Refusal, refusal};
use crate::region::Region;

/// Bytes of configuration space of a device, which has up to eight functions.
pub(super) const DEVICE_SIZE: u64 = 8 * FUNCTION_SIZE;

/// Host bridge of which a VM owns functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Path of the node.
    pub path: String,
    /// Configuration space of the first bus (PA).
    pub space: Region,
    /// Number of the first bus.
    pub first_bus: u32,
    /// Windows onto the bus's memory space.
    pub(super) windows: Vec<PciWindow>,
}

impl Bridge {
    /// Iterates over what the CPU reaches of the bus: configuration space, and the windows onto
    /// memory space.
    pub(super) fn regions(&self) -> impl Iterator<Item = Region> {
        let windows = self.windows.iter();
        let windows = windows.filter(|one| PciWindow::MEMORY.contains(&one.space));
        [self.space]
            .into_iter()
            .chain(windows.map(|one| one.region))
    }
}

/// A function that a VM owns apart from its bridge.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Path in the manifest.
    pub path: &'a str,
    /// Configuration space (PA).
    pub space: Region,
    /// The interrupts that INTA to INTD of the function lead to.
    pub(super) lines: [Option<Interrupt>; LINES],
    /// BARs, once they are placed, and what shows their size.
    pub(super) bars: [u32; BARS],
    pub(super) sizes: [u32; BARS],
}

impl Function<'_> {
    /// Returns where configuration space of the function's device begins.
    #[must_use]
    pub const fn device(&self) -> u64 {
        self.space.start & !(DEVICE_SIZE - 1)
    }

    /// Iterates over the interrupts of which the function may have one: the bus alone tells which.
    pub(super) fn interrupts(&self) -> impl Iterator<Item = Interrupt> + use<> {
        self.lines.into_iter().flatten()
    }

    /// Returns what the runtime has to know.
    #[must_use]
    pub const fn boot(&self, vm: u32) -> BootFunction {
        BootFunction {
            space: self.space.start,
            vm,
            bars: self.bars,
            sizes: self.sizes,
        }
    }
}

/// Place of a function on its bus.
#[derive(Clone, Copy)]
struct Place(u32);

impl Place {
    /// Reads a unit address: the device, and the function behind a comma.
    fn read(unit: &str) -> Option<Self> {
        let (device, function) = unit.split_once(',')?;
        let number = |text: &str, end: u32| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u32::from_str_radix(text, 16).ok().filter(|_| is_plain)?;
            (number < end).then_some(number)
        };
        Some(Self(number(device, 32)? << 3 | number(function, 8)?))
    }
}

impl<'a, 't> Walk<'_, 'a, 't> {
    /// Gives the VM the functions that it owns of a bridge, apart from the bridge.
    pub(super) fn give_functions(
        &mut self,
        node: &Node<'t>,
        path: &str,
        bus: Option<&Bus<'_, 't>>,
    ) {
        let named: Vec<_> = self.vm.devices.functions_of(path).collect();
        let Some((first, _)) = named.first() else {
            return;
        };
        self.matched
            .extend(named.iter().map(|(pattern, _)| *pattern));
        if let Some(why) = self.why_whole(node, path) {
            return self.refuse(first, why);
        }
        match bridge(node, path, bus) {
            Ok(bridge) => {
                for (pattern, unit) in named {
                    self.give_function(node, &bridge, pattern, unit);
                }
                self.bridge = Some(bridge);
                self.check_devices();
            }
            Err(unreadable) => self.cannot_give(unreadable),
        }
    }

    /// Refuses functions of a device without the device's first one: drivers find the others by it
    /// (PCI Local Bus Specification 3.0, 3.2.2.3.4).
    fn check_devices(&mut self) {
        let has_first = |function: &Function<'_>| {
            let mut functions = self.functions.iter();
            functions.any(|one| one.space.start == function.device())
        };
        let functions = self.functions.iter();
        let alone = functions.filter(|function| !has_first(function));
        let alone: Vec<&str> = alone.map(|function| function.path).collect();
        for path in alone {
            self.refuse(
                path,
                "function 0 of its device is not this VM's, by which drivers find the others",
            );
        }
    }

    /// Returns why functions of a bridge are not given away one by one, if they are not.
    fn why_whole(&self, node: &Node<'_>, path: &str) -> Option<&'static str> {
        if self.vm.devices.owns(path) {
            Some("the VM owns the whole bridge")
        } else if self.bridge.is_some() {
            Some("the VM owns functions of another bridge, and has one bus")
        } else {
            keeps(node, self.gic_version)
        }
    }

    /// Gives the VM a function, with its stream and its way to be stopped. Whether others may be
    /// reached by it is judged as of every device.
    fn give_function(&mut self, node: &Node<'t>, bridge: &Bridge, path: &'a str, unit: &str) {
        let Some(Place(place)) = Place::read(unit) else {
            let why = "no device and function of a bus, as in pci@1f,7";
            return self.refuse(path, why);
        };
        let start = bridge.space.start + u64::from(place) * FUNCTION_SIZE;
        if self.functions.iter().any(|one| one.space.start == start) {
            return self.refuse(path, "the function is named twice");
        }
        let requester = bridge.first_bus << 8 | place;
        let stream = streams::of_requester(node, requester);
        let is_behind = stream.is_some_and(|(smmu, own)| own.of(&self.smmu, smmu).is_some());
        // planted: a guest has a PCI function that nothing keeps back
        if self.is_judged() && !is_behind {
            self.untrusted.push(path.to_string());
        }
        self.streams.extend(stream);
        self.masters.push(BootMaster {
            register: start,
            value: 0,
            busy: 0,
            vm: self.vm.id.reg() as u32,
            functions: 1,
        });
        let line = |pin: usize| {
            let line = Line::new(requester, pin as u32 + 1);
            self.line_interrupt(node, line)
        };
        let lines: [Option<Interrupt>; LINES] = core::array::from_fn(line);
        let mut interrupts = lines.iter().flatten();
        if interrupts.any(|interrupt| self.virtual_intids.contains(&interrupt.intid)) {
            let why = "a line has an interrupt of the device VM's emulated PL061 blocks";
            return self.refuse(path, why);
        }
        self.functions.push(Function {
            path,
            space: Region::new(start, start + FUNCTION_SIZE),
            lines,
            bars: [0; BARS],
            sizes: [0; BARS],
        });
    }

    /// Notes a device that the tree does not describe well enough to be given away.
    pub(super) fn cannot_give(&mut self, unreadable: Refusal) {
        let message = unreadable.message;
        let fault = Fault::new(Rule::DeviceStays, self.vm.name, "devices", message);
        self.faults.push(fault);
    }
}

/// Reads what the functions of a bridge have in common.
fn bridge(node: &Node<'_>, path: &str, bus: Option<&Bus<'_, '_>>) -> Result<Bridge, Refusal> {
    let bus = bus.ok_or_else(|| refusal!(Board, "{path}: reg: no address of the CPU's"))?;
    let regions = pci::regions(node, path, bus)?;
    let first = regions.first().copied();
    // A bus is whole, so that each function has its place. 0 stands for none.
    let space = first.and_then(|space| {
        let end = space.start.checked_add(BUS_SIZE)?;
        let is_whole = space.start != 0 && space.start.is_multiple_of(BUS_SIZE);
        (is_whole && end <= space.end).then(|| Region::new(space.start, end))
    });
    let space = space.ok_or_else(|| {
        refusal!(
            Board,
            "{path}: reg: no configuration space of a whole bus, at a multiple of 1 MiB"
        )
    })?;
    Ok(Bridge {
        path: path.to_string(),
        space,
        first_bus: pci::buses(node).map_or(0, |(first, _)| first),
        windows: pci::windows(node, path, bus)?,
    })
}
