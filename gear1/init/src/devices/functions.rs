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

/// What the last name of a function's path begins with.
const NAME: &str = "pci@";

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

/// A function that a VM owns apart from its bridge.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Its path in the manifest.
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
    /// Reads the last name of a path behind [`NAME`]: the device, and the function behind a comma.
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

/// Tells whether a pattern names a function below the bridge at `path`, and not the bridge.
fn unit_below<'a>(pattern: &'a str, path: &str) -> Option<&'a str> {
    pattern
        .strip_prefix(path)?
        .strip_prefix('/')?
        .strip_prefix(NAME)
}

impl<'a, 't> Walk<'_, 'a, 't> {
    /// Tells whether the VM owns functions of the bridge at `path`.
    pub(super) fn has_functions(&self, path: &str) -> bool {
        let mut patterns = self.vm.devices.iter();
        patterns.any(|pattern| unit_below(pattern, path).is_some())
    }

    /// Gives the VM the functions that it owns of a bridge, apart from the bridge.
    pub(super) fn give_functions(
        &mut self,
        node: &Node<'t>,
        path: &str,
        bus: Option<&Bus<'_, 't>>,
    ) {
        let patterns = self.vm.devices.iter();
        let named: Vec<_> = patterns
            .filter_map(|pattern| Some((pattern, unit_below(pattern, path)?)))
            .collect();
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
            }
            Err(unreadable) => self.cannot_give(unreadable),
        }
    }

    /// Returns why functions of a bridge are not given away one by one, if they are not.
    fn why_whole(&self, node: &Node<'_>, path: &str) -> Option<&'static str> {
        if self.vm.devices.owns(path) {
            Some("the VM owns the whole bridge")
        } else if self.bridge.is_some() {
            Some("the VM owns functions of another bridge, and has one bus")
        } else {
            keeps(node, self.gic.as_ref())
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
        let requester = bridge.first_bus << 8 | place;
        let stream = streams::of_requester(node, requester);
        let is_behind = stream.is_some_and(|(smmu, _)| self.smmu == Some(smmu));
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
        self.functions.push(Function {
            path,
            space: Region::new(start, start + FUNCTION_SIZE),
            lines: core::array::from_fn(line),
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
    let space = regions.first().map(|space| space.start);
    let space = space.filter(|space| space.is_multiple_of(BUS_SIZE));
    let space = space.zip(regions.first()).filter(|(start, space)| {
        // A bus is whole, so that each function has its place.
        start.saturating_add(BUS_SIZE) <= space.end
    });
    let (start, _) = space.ok_or_else(|| {
        refusal!(
            Board,
            "{path}: reg: no configuration space of a whole bus, at a multiple of 1 MiB"
        )
    })?;
    Ok(Bridge {
        path: path.to_string(),
        space: Region::new(start, start + BUS_SIZE),
        first_bus: pci::buses(node).map_or(0, |(first, _)| first),
        windows: pci::windows(node, path, bus)?,
    })
}
